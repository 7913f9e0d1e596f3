"""Looking at elections, giving orders, and asking the agent about itself, with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import socket as sockets
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Tuple, Type

from . import _asking
from ._asking import ANSWER_S, CHUNK_BYTES, Status
from ._errors import AgentError, MalformedFrame, RefusedError
from ._forks import GATE, forget_in_children
from ._requests import Order, observe_request
from ._wire import (
    GREETING_NS,
    BackOff,
    Frame,
    FrameReader,
    SocketPath,
    agent_path,
    encode,
    integer,
    text,
)


class _Connection:
    """A connection to the agent, which a forked child does not keep."""

    def __init__(self) -> None:
        with GATE:
            self._socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
            forget_in_children(self)
        self._streams: Optional[Tuple[asyncio.StreamReader, asyncio.StreamWriter]] = None

    async def open(self, path: str) -> None:
        """Connects. Raises `OSError`."""
        # An agent that does not take connections off its queue must not block the loop.
        self._socket.setblocking(False)
        self._socket.connect(path)
        self._streams = await asyncio.open_unix_connection(sock=self._socket)

    async def read(self) -> bytes:
        """What has come; nothing at its end. Raises `OSError`."""
        return await self._streams[0].read(CHUNK_BYTES) if self._streams is not None else b""

    def has_ended(self) -> bool:
        """Whether the agent has ended it, and all was read or nothing can be answered."""
        if self._streams is None:
            return False
        reader, writer = self._streams
        return reader.at_eof() or writer.is_closing()

    def write(self, frame: Frame) -> None:
        """Sends a frame."""
        if self._streams is not None:
            self._streams[1].write(encode(frame))

    def close(self) -> None:
        """Ends it."""
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._socket.close()

    async def wait_closed(self) -> None:
        """Returns when it has ended."""
        if self._streams is not None:
            with contextlib.suppress(OSError):
                await self._streams[1].wait_closed()

    def forget(self) -> None:
        """This is a forked child."""
        self._socket.close()


class Observation:
    """An election, watched without taking part: `async for status in observation`.

    It goes on when the agent ends, and asks the next one. It is for one task at a time.
    """

    def __init__(self, election: str, path: Optional[SocketPath]) -> None:
        self._request = observe_request(election)
        encode(self._request)
        self._path = path
        self._connection: Optional[_Connection] = None
        self._is_asked = False
        self._reader = FrameReader()
        self._frames: Iterator[Frame] = iter(())
        self._back_off = BackOff()
        self._is_closed = False
        #: Why it sees nothing at the moment, for people; `None` if it does.
        self.trouble: Optional[str] = "not connected yet"

    def __aiter__(self) -> "Observation":
        return self

    async def __anext__(self) -> Status:
        """The next status: at once how the election stands, and then each change.

        Changes that came since the last call are told in one. Raises `RefusedError` if the agent
        refuses for good. It ends once it is closed.
        """
        while not self._is_closed:
            try:
                connection = self._connection or await self._connect()
                status = _asking._status(await self._await_newest(connection, "seen"))
            except (AgentError, MalformedFrame, RefusedError) as error:
                if self._is_closed:
                    break
                self._part(str(error))
                if isinstance(error, RefusedError) and not error.passes:
                    raise
            else:
                self._back_off.reset()
                self.trouble = None
                return status
            await asyncio.sleep(self._back_off.next_s())
        raise StopAsyncIteration

    async def _connect(self) -> _Connection:
        path = agent_path(self._path)
        self._connection = connection = _Connection()
        self._reader, self._frames, self._is_asked = FrameReader(), iter(()), False
        try:
            await connection.open(path)
            greeting = self._await_frame(connection, "agent")
            await asyncio.wait_for(greeting, GREETING_NS / 1e9)
        except asyncio.TimeoutError:
            raise AgentError("the agent has not spoken within 5 s") from None
        except OSError as error:
            raise AgentError(f"no agent at {path}: {error}") from error
        except asyncio.CancelledError:
            self._part("not connected yet")
            raise
        connection.write(self._request)
        self._is_asked = True
        return connection

    async def _await_frame(self, connection: _Connection, kind: str) -> Frame:
        while connection is self._connection:
            frame = self._next_come(connection, kind)
            if frame is not None:
                return frame
            try:
                data = await connection.read()
            except OSError as error:
                raise AgentError(f"the connection to the agent ended: {error}") from error
            if not data:
                break
            self._frames = self._reader.feed(data)
        raise AgentError("the agent has ended the connection")

    async def _await_newest(self, connection: _Connection, kind: str) -> Frame:
        """The same, but the last one that has come, and not by a connection that has ended."""
        newest = await self._await_frame(connection, kind)
        frame: Optional[Frame] = newest
        while frame is not None:
            newest, frame = frame, self._next_come(connection, kind)
        await asyncio.sleep(0)  # The loop reads the end in a turn of its own.
        if connection.has_ended():
            raise AgentError("the agent has ended the connection")
        return newest

    def _next_come(self, connection: _Connection, kind: str) -> Optional[Frame]:
        """The next frame of this type among those that were read; others are answered."""
        for frame in self._frames:
            if frame["type"] == "refused":
                raise RefusedError(text(frame, "code"), text(frame, "why"))
            if "n" in frame and self._is_asked:
                connection.write({"type": "read", "n": integer(frame, "n")})
            if frame["type"] == kind:
                return frame
        return None

    def _part(self, why: str) -> None:
        self.trouble = why
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Ends it."""
        self._is_closed = True
        connection = self._connection
        self._part("closed")
        if connection is not None:
            await connection.wait_closed()

    async def __aenter__(self) -> "Observation":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()


def observe(election: str, *, socket: Optional[SocketPath] = None) -> Observation:
    """Watches an election, as `primacy.observe` does."""
    return Observation(election, socket)


async def order(
    election: str,
    order: Order,
    *,
    candidate: Optional[str] = None,
    token: Optional[int] = None,
    socket: Optional[SocketPath] = None,
    timeout: Optional[float] = ANSWER_S,
) -> Dict[str, Any]:
    """Gives an order, as `primacy.order` does."""
    return await asyncio.to_thread(
        _asking.order,
        election,
        order,
        candidate=candidate,
        token=token,
        socket=socket,
        timeout=timeout,
    )


async def promote(
    election: str,
    candidate: str,
    *,
    token: Optional[int] = None,
    socket: Optional[SocketPath] = None,
    timeout: Optional[float] = ANSWER_S,
) -> Dict[str, Any]:
    """Makes a candidate that waits the leader, as `primacy.promote` does."""
    return await order(
        election, "promote", candidate=candidate, token=token, socket=socket, timeout=timeout
    )


async def depose(
    election: str,
    *,
    token: Optional[int] = None,
    socket: Optional[SocketPath] = None,
    timeout: Optional[float] = ANSWER_S,
) -> Dict[str, Any]:
    """Makes the leader hand over to any other candidate, as `primacy.depose` does."""
    return await order(election, "depose", token=token, socket=socket, timeout=timeout)


async def pause(
    election: str, *, socket: Optional[SocketPath] = None, timeout: Optional[float] = ANSWER_S
) -> Dict[str, Any]:
    """Lets nobody lead who does not lead already, as `primacy.pause` does."""
    return await order(election, "pause", socket=socket, timeout=timeout)


async def resume(
    election: str, *, socket: Optional[SocketPath] = None, timeout: Optional[float] = ANSWER_S
) -> Dict[str, Any]:
    """Lets candidates lead again, as `primacy.resume` does."""
    return await order(election, "resume", socket=socket, timeout=timeout)


async def holds(
    *, socket: Optional[SocketPath] = None, timeout: Optional[float] = ANSWER_S
) -> List[Dict[str, Any]]:
    """The programs that wait and lead through the agent, as `primacy.holds` tells."""
    return await asyncio.to_thread(_asking.holds, socket=socket, timeout=timeout)
