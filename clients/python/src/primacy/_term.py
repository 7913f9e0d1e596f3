"""One leadership as the program knows it: its token, until when it lasts, and why it ended."""

from __future__ import annotations

from typing import Optional

from ._wire import boottime_ns

#: For people, where it is not the agent that says why.
SILENT_WHY = "the agent has not extended the leadership in time"
DISCONNECTED_WHY = "the connection to the agent has ended"


class Term:
    """The state of a leadership.

    The owner's lock guards all changes, with two exceptions that every thread may make at any time
    because they only end something: `is_over` becomes true, and `reason` is set for the first time.
    """

    def __init__(self, token: int, stop_ns: int, deadline_ns: int) -> None:
        self.token = token
        self.stop_ns = stop_ns
        self.deadline_ns = deadline_ns
        #: While draining: when the work must have stopped.
        self.by_ns: Optional[int] = None
        #: It does not lead any more, whatever the deadline is.
        self.is_over = False
        #: The connection that it came by is there.
        self.is_connected = True
        #: The program has said that its work has stopped.
        self.is_left = False
        self.reason: Optional[str] = None
        self.why = ""

    def is_current(self) -> bool:
        """Whether it leads now. Once false, it stays false."""
        if self.is_over:
            return False
        if boottime_ns() >= self.deadline_ns:
            self.is_over = True
            return False
        return True

    def remaining_ns(self) -> int:
        """How long the work may go on; 0 if it may not."""
        if self.is_over:
            return 0
        end = self.deadline_ns if self.by_ns is None else min(self.by_ns, self.deadline_ns)
        return max(0, end - boottime_ns())

    def extend(self, stop_ns: int, deadline_ns: int, now_ns: int) -> None:
        """It was extended, unless that comes too late."""
        if now_ns >= self.deadline_ns:
            self.is_over = True
        if not self.is_over:
            self.stop_ns, self.deadline_ns = stop_ns, deadline_ns

    def lose(self, reason: str, why: str) -> None:
        """The work is to stop. The first reason counts."""
        if self.reason is None:
            self.why = why
            self.reason = reason

    def judge(self, now_ns: int) -> Optional[str]:
        """Why the work is to stop; `None` as long as it may go on."""
        if self.reason is None and (self.is_over or now_ns >= self.stop_ns):
            if self.is_connected:
                self.lose("silent", SILENT_WHY)
            else:
                self.lose("disconnected", DISCONNECTED_WHY)
        return self.reason


class TermView:
    """What `primacy.Leadership` and `primacy.aio.Leadership` have in common."""

    _term: Term

    @property
    def token(self) -> int:
        """The fencing token. It goes into every write, for a fence to compare."""
        return self._term.token

    def is_current(self) -> bool:
        """Whether the program may act: nobody else leads at this moment.

        Compares the last deadline that was read with the clock, and does not wait. Once false, it
        stays false. It is true while the leadership is draining, since it still leads then.
        """
        return self._term.is_current()

    def remaining(self) -> float:
        """Seconds for which the work may go on: until it must have stopped, or the deadline."""
        return self._term.remaining_ns() / 1e9

    @property
    def lost(self) -> bool:
        """Whether the work is to stop: the leadership is draining, is lost, or was not extended."""
        return self._term.judge(boottime_ns()) is not None

    @property
    def reason(self) -> Optional[str]:
        """Why the work is to stop, in one word; `None` as long as it may go on.

        A word of the agent, such as `deposed` or `expired`, or one of `silent` (the agent has not
        extended it), `disconnected`, `closed` (the candidate was), and `resigned` (it was left).
        """
        return self._term.judge(boottime_ns())

    @property
    def why(self) -> str:
        """The same in a sentence for people; empty as long as the work may go on."""
        return self._term.why if self.lost else ""

    def __repr__(self) -> str:
        state = self.reason or "leads"
        return f"<{type(self).__module__}.{type(self).__name__} token={self.token} {state}>"
