"""The thread of a candidate: it reads and answers frames at once, whatever the program does."""

from __future__ import annotations

import select
import socket
import threading
from typing import Callable, List, Optional

from ._engine import Connect, Engine, Send, Stage
from ._errors import MalformedFrame
from ._forks import GATE, forget_in_children
from ._term import Term
from ._wire import BackOff, Frame, FrameReader, SocketPath, agent_path, boottime_ns, encode

#: While it leads it looks at the clock so often at least: a time-out does not count suspended time.
LOOK_NS = 10**9
CHUNK_BYTES = 64 * 1024


class Driver:
    """Runs an engine on a thread of its own.

    The lock of `changed` guards all. It may be taken again by a thread that has it, since a handler
    of a signal can interrupt that thread anywhere, and may close the candidate.
    """

    def __init__(
        self, request: Frame, path: Optional[SocketPath], on_change: Callable[[], None]
    ) -> None:
        encode({**request, "now_ns": 2**63})  # Raises what the caller is to know.
        self.changed = threading.Condition(threading.RLock())
        self.engine = Engine(request, boottime_ns(), BackOff())
        self._path = path
        self._on_change = on_change
        self._reader = FrameReader()
        self._socket: Optional[socket.socket] = None
        #: Connections that have ended. The thread closes them: until then it may wait for them.
        self._ended: List[socket.socket] = []
        with GATE:
            self._waker, self._woken = socket.socketpair()
            forget_in_children(self)
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="primacy", daemon=True)
        self._thread.start()

    # For the program's threads.

    def take(self) -> Optional[Term]:
        """A leadership, if there is one to hand out. Raises why there will never be one."""
        with self.changed:
            try:
                return self.engine.take(boottime_ns())
            finally:
                # Nothing has changed for those who wait, and telling them would make them ask.
                self._perform()

    def left(self, term: Term) -> None:
        """The work of this term has stopped."""
        with self.changed:
            self.engine.left(term)
            self._settle()

    def close(self) -> None:
        """The program does not want to lead any more."""
        with self.changed:
            self.engine.close()
            self._settle()

    def forget(self) -> None:
        """This is a forked child. Its parent's threads are not here, but what they have held is."""
        self.changed = threading.Condition(threading.RLock())
        self.engine.forked()
        for mine in [self._socket, *self._ended, self._waker, self._woken]:
            if mine is not None:
                mine.close()
        self._socket, self._ended = None, []

    # The thread.

    def _run(self) -> None:
        try:
            while True:
                with self.changed:
                    self.engine.wake(boottime_ns())
                    self._settle()
                    self._close_ended()
                    if self.engine.is_over():
                        return
                    connection, timeout_ms = self._socket, self._timeout_ms()
                if self._wait(connection, timeout_ms) and connection is not None:
                    self._receive(connection)
        finally:
            with self.changed:
                # Without the thread nothing is extended: whatever has ended it, say so.
                self.engine.abandon()
                self._settle()
                self._close_ended()
                self._waker.close()
                self._woken.close()

    def _timeout_ms(self) -> Optional[int]:
        due_ns = self.engine.due_ns()
        if due_ns is None:
            return None
        wait_ns = max(0, due_ns - boottime_ns())
        if self.engine.leads():
            wait_ns = min(wait_ns, LOOK_NS)
        return -(-wait_ns // 1_000_000)

    def _wait(self, connection: Optional[socket.socket], timeout_ms: Optional[int]) -> bool:
        """Whether something has come by the connection, or it has ended."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if connection is not None:
            poll.register(connection, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(timeout_ms)}
        if self._woken.fileno() in ready:
            try:
                self._woken.recv(CHUNK_BYTES)
            except BlockingIOError:
                pass
        return connection is not None and connection.fileno() in ready

    def _receive(self, connection: socket.socket) -> None:
        with self.changed:
            # What has come counts before the points in time that have passed meanwhile.
            while connection is self._socket:
                try:
                    data = connection.recv(CHUNK_BYTES)
                except BlockingIOError:
                    return
                except OSError as error:
                    self.engine.ended(boottime_ns(), f"the connection to the agent ended: {error}")
                else:
                    self._handle(data)
                self._settle()

    def _handle(self, data: bytes) -> None:
        if not data:
            self.engine.ended(boottime_ns(), "the agent has ended the connection")
            return
        try:
            for frame in self._reader.feed(data):
                if self.engine.stage not in (Stage.GREETING, Stage.HOLDING):
                    return
                self.engine.received(frame, boottime_ns())
        except MalformedFrame as error:
            self.engine.broken(boottime_ns(), str(error))

    # What the engine wants, under the lock.

    def _settle(self) -> None:
        """Does what the engine wants, and tells those who wait for a change."""
        self._perform()
        self.changed.notify_all()
        self._on_change()
        if threading.current_thread() is not self._thread:
            self._wake()

    def _perform(self) -> None:
        effects = self.engine.effects
        while effects:
            try:
                effect = effects.pop(0)
            except IndexError:
                return  # A handler of a signal has come between, and done the rest.
            if isinstance(effect, Send):
                self._send(effect.frame)
            elif isinstance(effect, Connect):
                self._connect()
            else:
                self._hang_up()

    def _connect(self) -> None:
        self._reader = FrameReader()
        path = agent_path(self._path)
        with GATE:
            connection = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # An agent that does not take connections off its queue must not block this thread.
            connection.setblocking(False)
            connection.connect(path)
        except OSError as error:
            self.engine.ended(boottime_ns(), f"no agent at {path}: {error}")
        else:
            self.engine.connected(boottime_ns())

    def _send(self, frame: Frame) -> None:
        connection = self._socket
        if connection is None:
            return
        line = encode(frame)
        try:
            sent = connection.send(line, socket.MSG_NOSIGNAL)
        except OSError:
            sent = 0
        if sent < len(line):
            # It does not read. The end is read like one that the agent has made.
            self._shut(connection)

    def _hang_up(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            self._shut(connection)
            self._ended.append(connection)

    @staticmethod
    def _shut(connection: socket.socket) -> None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It has ended already.

    def _close_ended(self) -> None:
        while self._ended:
            self._ended.pop().close()

    def _wake(self) -> None:
        try:
            self._waker.send(b"w", socket.MSG_NOSIGNAL)
        except OSError:
            pass  # It is awake already, or has ended.
