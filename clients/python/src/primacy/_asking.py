"""Looking at elections, giving orders, and asking the agent about itself."""

from __future__ import annotations

import socket as sockets
import threading
import time
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Type

from ._errors import AgentError, ClosedError, MalformedFrame, RefusedError
from ._forks import GATE, forget_in_children
from ._requests import Order, list_request, observe_request, order_request
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

#: An agent gives an order for 10 s at most.
ANSWER_S = 15.0
CHUNK_BYTES = 64 * 1024

Status = Dict[str, Any]


class Channel:
    """A connection to the agent, for one thread at a time. Its calls wait."""

    def __init__(self, path: Optional[SocketPath]) -> None:
        self._reader = FrameReader()
        self._frames: Iterator[Frame] = iter(())
        self._is_sent = False
        with GATE:
            self._socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
            forget_in_children(self)
        try:
            self._socket.settimeout(GREETING_NS / 1e9)
            self._socket.connect(agent_path(path))
        except OSError as error:
            self._socket.close()
            raise AgentError(f"no agent at {agent_path(path)}: {error}") from error

    def ask(self, request: Frame, until: Optional[float]) -> None:
        """Sends the request, once the agent has spoken. Waits until that point in time."""
        greeted_by = time.monotonic() + GREETING_NS / 1e9
        is_patient = until is None or until > greeted_by
        try:
            self.await_frame("agent", greeted_by if is_patient else until)
        except TimeoutError:
            if is_patient:
                raise AgentError("the agent has not spoken within 5 s") from None
            raise
        self._send(request)
        self._is_sent = True

    def await_frame(self, kind: str, until: Optional[float]) -> Frame:
        """The next frame of this type; others are answered and ignored.

        Raises `TimeoutError` at that point in time, when it has read all that has come, and may be
        called again then.
        """
        while True:
            try:
                for frame in self._frames:
                    if frame["type"] == "refused":
                        raise RefusedError(text(frame, "code"), text(frame, "why"))
                    if "n" in frame and self._is_sent:
                        self._send({"type": "read", "n": integer(frame, "n")})
                    if frame["type"] == kind:
                        return frame
                self._frames = self._reader.feed(self._receive(until))
            except MalformedFrame as error:
                raise self._error(str(error)) from None

    def await_newest(self, kind: str, until: Optional[float]) -> Frame:
        """The same, but the last one that has come, and not by a connection that has ended."""
        frame = self.await_frame(kind, until)
        while True:
            try:
                frame = self.await_frame(kind, 0.0)
            except TimeoutError:
                return frame

    def _receive(self, until: Optional[float]) -> bytes:
        try:
            self._socket.settimeout(None if until is None else max(0.0, until - time.monotonic()))
            data = self._socket.recv(CHUNK_BYTES)
        except (sockets.timeout, BlockingIOError):
            raise TimeoutError("the agent has not answered in time") from None
        except OSError as error:
            raise self._error(f"the connection to the agent ended: {error}") from error
        if not data:
            raise self._error("the agent has ended the connection")
        return data

    def _send(self, frame: Frame) -> None:
        line = encode(frame)
        try:
            self._socket.settimeout(GREETING_NS / 1e9)
            self._socket.sendall(line, sockets.MSG_NOSIGNAL)
        except OSError:
            # What the agent has said before it ended, such as why it refuses, is still to be read.
            pass

    def _error(self, why: str) -> AgentError:
        return AgentError(why, is_sent=self._is_sent)

    def close(self) -> None:
        """Ends the connection, also while another thread waits for it."""
        try:
            self._socket.shutdown(sockets.SHUT_RDWR)
        except OSError:
            pass  # It has ended already.
        self._socket.close()

    def forget(self) -> None:
        """This is a forked child."""
        self._socket.close()


class Observation:
    """An election, watched without taking part. Iterate over it, or call `next`.

    It goes on when the agent ends, and asks the next one. It is for one thread at a time, but for
    `close`, which ends a wait of another thread.
    """

    def __init__(self, election: str, path: Optional[SocketPath]) -> None:
        self._request = observe_request(election)
        encode(self._request)
        self._path = path
        self._channel: Optional[Channel] = None
        self._back_off = BackOff()
        #: When the next attempt is made, by the monotonic clock.
        self._retry_at = 0.0
        self._closed = threading.Event()
        #: Why it sees nothing at the moment, for people; `None` if it does.
        self.trouble: Optional[str] = "not connected yet"

    def next(self, timeout: Optional[float] = None) -> Status:
        """Waits for the next status: at once how the election stands, and then each change.

        Changes that came since the last call are told in one. Raises `TimeoutError` after `timeout`
        seconds, `RefusedError` if the agent refuses for good, and `ClosedError` once it is closed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._closed.is_set():
            try:
                channel = self._channel or self._connect(until)
                status = _status(channel.await_newest("seen", until))
            except RefusedError as refusal:
                self._part(str(refusal))
                if not refusal.passes:
                    raise
            except (AgentError, MalformedFrame) as error:
                self._part(str(error))
            else:
                self._back_off.reset()
                self.trouble = None
                return status
        raise ClosedError("the observation is closed")

    def _connect(self, until: Optional[float]) -> Channel:
        while True:
            wait_s = self._retry_at - time.monotonic()
            if until is not None:
                wait_s = min(wait_s, until - time.monotonic())
            if wait_s > 0 and self._closed.wait(wait_s):
                raise ClosedError("the observation is closed")
            if time.monotonic() >= self._retry_at:
                break
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"nothing seen: {self.trouble}")
        channel = Channel(self._path)
        try:
            channel.ask(self._request, until)
        except BaseException:
            channel.close()
            raise
        self._channel = channel
        if self._closed.is_set():
            self._part("closed")
            raise ClosedError("the observation is closed")
        return channel

    def _part(self, why: str) -> None:
        self.trouble = why
        self._retry_at = time.monotonic() + self._back_off.next_s()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Ends it."""
        self._closed.set()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def __iter__(self) -> "Observation":
        return self

    def __next__(self) -> Status:
        try:
            return self.next()
        except ClosedError:
            raise StopIteration from None

    def __enter__(self) -> "Observation":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


def _status(frame: Frame) -> Status:
    status = frame.get("status")
    if not isinstance(status, dict):
        raise MalformedFrame("a frame seen has no status")
    return status


def observe(election: str, *, socket: Optional[SocketPath] = None) -> Observation:
    """Watches an election: `for status in primacy.observe("billing"): ...`.

    A status is what `primacy status --json` prints. It is what the agent knew when it was sent.
    """
    return Observation(election, socket)


def answer(
    request: Frame, kind: str, path: Optional[SocketPath], timeout: Optional[float]
) -> Frame:
    """The one answer to a request. Raises `RefusedError` or `AgentError`."""
    until = None if timeout is None else time.monotonic() + timeout
    encode(request)
    channel = Channel(path)
    try:
        channel.ask(request, until)
        return channel.await_frame(kind, until)
    except TimeoutError as error:
        raise channel._error(str(error)) from None
    finally:
        channel.close()


def order(
    election: str,
    order: Order,
    *,
    candidate: Optional[str] = None,
    token: Optional[int] = None,
    socket: Optional[SocketPath] = None,
    timeout: Optional[float] = ANSWER_S,
) -> Dict[str, Any]:
    """Gives an order, and returns what `primacy promote --no-wait --json` and the others print.

    It does not wait until the order has come true. With `token` it counts only if that is still the
    last token that was granted.

    Raises `RefusedError`: nothing was changed, unless `code` is `unavailable`, when the order may
    have been carried out. Raises `AgentError` if there is no answer within `timeout` seconds: if
    its `is_sent` is true, the order may have been carried out.
    """
    request = order_request(election, order, candidate, token)
    outcome = answer(request, "ordered", socket, timeout).get("outcome")
    if not isinstance(outcome, dict):
        raise AgentError("the agent's answer has no outcome", is_sent=True)
    return outcome


def promote(
    election: str,
    candidate: str,
    *,
    token: Optional[int] = None,
    socket: Optional[SocketPath] = None,
    timeout: Optional[float] = ANSWER_S,
) -> Dict[str, Any]:
    """Makes a candidate that waits the leader: `order` with `promote`."""
    return order(
        election, "promote", candidate=candidate, token=token, socket=socket, timeout=timeout
    )


def depose(
    election: str,
    *,
    token: Optional[int] = None,
    socket: Optional[SocketPath] = None,
    timeout: Optional[float] = ANSWER_S,
) -> Dict[str, Any]:
    """Makes the leader hand over to any other candidate: `order` with `depose`."""
    return order(election, "depose", token=token, socket=socket, timeout=timeout)


def pause(
    election: str, *, socket: Optional[SocketPath] = None, timeout: Optional[float] = ANSWER_S
) -> Dict[str, Any]:
    """Lets nobody lead who does not lead already: `order` with `pause`."""
    return order(election, "pause", socket=socket, timeout=timeout)


def resume(
    election: str, *, socket: Optional[SocketPath] = None, timeout: Optional[float] = ANSWER_S
) -> Dict[str, Any]:
    """Lets candidates lead again: `order` with `resume`."""
    return order(election, "resume", socket=socket, timeout=timeout)


def holds(
    *, socket: Optional[SocketPath] = None, timeout: Optional[float] = ANSWER_S
) -> List[Dict[str, Any]]:
    """The programs that wait and lead through the agent, as the page on its socket describes them.

    Tokens are numbers here. Raises `RefusedError` and `AgentError`.
    """
    listed = answer(list_request(), "holds", socket, timeout).get("holds")
    if not isinstance(listed, list) or not all(isinstance(hold, dict) for hold in listed):
        raise AgentError("the agent's answer has no holds", is_sent=True)
    return [_with_number(hold) for hold in listed]


def _with_number(hold: Dict[str, Any]) -> Dict[str, Any]:
    digits = hold.get("token")
    return {**hold, "token": int(digits)} if isinstance(digits, str) and digits.isdigit() else hold
