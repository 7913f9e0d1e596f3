"""An agent that a test plays: it says what the test wants, and checks what the program answers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

#: How long an event may take on a busy machine.
PATIENCE_S = 20.0
SECOND_NS = 10**9

Frame = Dict[str, Any]


def now_ns() -> int:
    """The clock that the agent and the program share."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def ahead_ns(seconds: float) -> int:
    """A point in time."""
    return now_ns() + int(seconds * SECOND_NS)


class Peer:
    """The agent's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE_S)
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._number = 0

    def raw(self, data: bytes) -> None:
        """Sends these bytes."""
        self._connection.sendall(data)

    def send(self, kind: str, **fields: Any) -> None:
        """Sends a frame without a number."""
        self.raw(json.dumps({"type": kind, **fields}).encode() + b"\n")

    def tell(self, kind: str, **fields: Any) -> int:
        """Sends a frame with a number, which is returned."""
        self._number += 1
        self.send(kind, n=self._number, **fields)
        return self._number

    def told(self, kind: str, **fields: Any) -> None:
        """Sends a frame with a number, and awaits that it was read."""
        number = self.tell(kind, **fields)
        assert self.expect("read")["n"] == number

    def wait(self, **fields: Any) -> None:
        """Tells the program that it waits."""
        self.told("waiting", **{"position": 1, "leader": None, "why": "...", **fields})

    def elect(self, token: int, stop_s: float = 60.0, deadline_s: float = 90.0) -> None:
        """Elects the program: after these seconds it is to stop, and its deadline comes."""
        self._lead("elected", token, stop_s, deadline_s)

    def extend(self, token: int, stop_s: float = 60.0, deadline_s: float = 90.0) -> None:
        """Extends its leadership likewise."""
        self._lead("extended", token, stop_s, deadline_s)

    def _lead(self, kind: str, token: int, stop_s: float, deadline_s: float) -> None:
        stop_ns, deadline_ns = ahead_ns(stop_s), ahead_ns(deadline_s)
        self.told(kind, token=str(token), stop_ns=stop_ns, deadline_ns=deadline_ns)

    def receive(self) -> Optional[Frame]:
        """The next frame of the program; `None` if it has ended the connection."""
        try:
            line = self._lines.readline()
        except ConnectionResetError:
            return None
        if not line:
            return None
        frame: Frame = json.loads(line)
        return frame

    def expect(self, kind: str) -> Frame:
        """The next frame of the program, which is of this type."""
        frame = self.receive()
        assert frame is not None, f"the program has ended the connection, and not sent {kind}"
        assert frame["type"] == kind, f"the program has sent {frame}, and not {kind}"
        return frame

    def expect_stopped(self, token: int) -> None:
        """The program's work of this token has stopped."""
        frame = self.expect("stopped")
        assert frame == {"type": "stopped", "token": str(token)}, frame

    def expect_end(self) -> None:
        """The program has ended the connection."""
        frame = self.receive()
        assert frame is None, f"the program has sent {frame}"

    def greet(self, request: str) -> Frame:
        """Speaks first, and returns the request, which is of this type."""
        self.send("agent", protocol=1, now_ns=now_ns())
        return self.expect(request)

    def close(self) -> None:
        """Ends the connection."""
        self._lines.close()
        self._connection.close()


class FakeAgent:
    """A socket that a test listens on."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="primacy-")
        self.path = os.path.join(self._folder, "agent.sock")
        self._listener: Optional[socket.socket] = None
        self._peers: List[Peer] = []
        self.listen()

    def listen(self) -> None:
        """Begins to listen, as an agent that starts."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(PATIENCE_S)

    def end(self) -> None:
        """Listens no more, and ends all connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            os.unlink(self.path)
        while self._peers:
            self._peers.pop().close()

    def accept(self) -> Peer:
        """The next connection."""
        assert self._listener is not None
        peer = Peer(self._listener.accept()[0])
        self._peers.append(peer)
        return peer

    def held(self) -> Peer:
        """The next connection, whose program asks for a hold and is told that it waits."""
        peer = self.accept()
        peer.greet("hold")
        peer.wait()
        return peer

    def __enter__(self) -> "FakeAgent":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.end()
        shutil.rmtree(self._folder)
