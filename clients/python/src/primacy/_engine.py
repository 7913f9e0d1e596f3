"""Decides what a candidate does. It has no clock, no socket and no thread: time is passed in.

Its owner calls it under a lock, and then carries out `effects` in order.
"""

from __future__ import annotations

import copy
import enum
from typing import List, NamedTuple, Optional, Union

from ._errors import ClosedError, MalformedFrame, PrimacyError, RefusedError
from ._term import Term
from ._wire import GREETING_NS, BackOff, Frame, integer, text, token

#: A connection that has held for so long has worked, and the next attempt is made at once.
WORKED_NS = 10**9


class Connect(NamedTuple):
    """Try to connect to the agent."""


class Send(NamedTuple):
    """Send this frame."""

    frame: Frame


class HangUp(NamedTuple):
    """End the connection."""


Effect = Union[Connect, Send, HangUp]


class Standing(NamedTuple):
    """How a candidate that waits stands, as the agent has told it last."""

    #: 1 is next; `None` where it is not known.
    position: Optional[int]
    #: What people call the leader; `None` if nobody is known to lead.
    leader: Optional[str]
    #: The leader's token.
    token: Optional[int]
    #: A sentence for people.
    why: str


class Stage(enum.Enum):
    """How far the engine is with the agent."""

    APART = "without a connection"
    GREETING = "the agent has to speak first"
    HOLDING = "the request is sent"
    OVER = "closed, or refused for good"


class Engine:
    """One candidate, over as many connections as it takes."""

    def __init__(self, request: Frame, now_ns: int, back_off: BackOff) -> None:
        self.effects: List[Effect] = []
        self.stage = Stage.APART
        #: Why it has no hold at the moment, for people.
        self._trouble: Optional[str] = "not connected yet"
        self.standing: Optional[Standing] = None
        self._request = request
        self._back_off = back_off
        #: When the next attempt is made, or by when the agent has to speak, or since when it holds.
        self._stage_ns = now_ns
        self._has_elected = False
        #: What was handed out and not left yet.
        self._out: Optional[Term] = None
        #: What nobody has asked for yet.
        self._kept: Optional[Term] = None
        self._failure: Optional[PrimacyError] = None
        #: The program has closed it, and has not left its leadership yet.
        self._is_closing = False

    @property
    def trouble(self) -> Optional[str]:
        """Why the candidate is not elected, or its leadership not handed out, for people."""
        if self._trouble is None and self._out is not None and self._kept is not None:
            return f"the leadership with token {self._out.token} was not left yet"
        return self._trouble

    # What its owner tells it.

    def connected(self, now_ns: int) -> None:
        """The attempt to connect has succeeded."""
        self.stage, self._stage_ns = Stage.GREETING, now_ns + GREETING_NS

    def ended(self, now_ns: int, why: str) -> None:
        """The attempt to connect has failed, or the connection has ended."""
        self._part(now_ns, why, may_be_at_once=True)

    def broken(self, now_ns: int, why: str) -> None:
        """What the agent has sent does not keep the protocol."""
        self._part(now_ns, why, may_be_at_once=False)

    def received(self, frame: Frame, now_ns: int) -> None:
        """The agent has sent a frame. Raises `MalformedFrame`."""
        kind = frame["type"]
        if kind == "refused":
            self._refused(frame, now_ns)
        elif self.stage is Stage.GREETING:
            if kind == "agent":
                self._greeted(now_ns)
        elif self.stage is Stage.HOLDING:
            number = integer(frame, "n") if kind in _NEWS or "n" in frame else None
            self._news(kind, frame, now_ns)
            if number is not None:
                self._send({"type": "read", "n": number})

    def wake(self, now_ns: int) -> None:
        """Does what is due by now."""
        if self.stage is Stage.APART and now_ns >= self._stage_ns:
            self.effects.append(Connect())
        elif self.stage is Stage.GREETING and now_ns >= self._stage_ns:
            self._part(now_ns, "the agent has not spoken within 5 s", may_be_at_once=False)
        if self._out is not None:
            self._out.judge(now_ns)
        if self._kept is not None and (self._is_closing or self._kept.judge(now_ns) is not None):
            self._discard()
        if self._is_closing and (self._out is None or now_ns >= self._out.deadline_ns):
            self._finish()

    def due_ns(self) -> Optional[int]:
        """When `wake` is due, if nothing else happens before."""
        points = [self._stage_ns] if self.stage in (Stage.APART, Stage.GREETING) else []
        terms = [term for term in (self._out, self._kept) if term is not None]
        points += [term.stop_ns for term in terms if term.reason is None]
        points += [term.deadline_ns for term in terms if self._is_closing]
        return min(points, default=None)

    def leads(self) -> bool:
        """Whether a leadership is to be looked after."""
        return self._out is not None or self._kept is not None

    # What the program asks of it.

    def take(self, now_ns: int) -> Optional[Term]:
        """Hands out the leadership, if there is one and the one before was left.

        Raises why there will never be one.
        """
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._out is not None or self._kept is None:
            return None
        if self._kept.judge(now_ns) is not None:
            self._discard()
            return None
        self._out, self._kept = self._kept, None
        return self._out

    def left(self, term: Term) -> None:
        """The program's work of this term has stopped."""
        if term.is_left:
            return
        # Before the agent learns of it: from then on somebody else may lead.
        term.is_over = True
        term.lose("resigned", "the program has left it")
        term.is_left = True
        if self._out is term:
            self._out = None
        self._say_stopped(term)
        if self._is_closing:
            self._finish()

    def close(self) -> None:
        """The program does not want to lead any more.

        While it has not left its leadership the connection stays, to say so when it does; but no
        longer than until the deadline, which is not extended any more.
        """
        if self.stage is Stage.OVER or self._is_closing:
            return
        if self._kept is not None:
            self._discard()
        self._fail(ClosedError("the candidate is closed"))
        if self._out is not None:
            self._out.lose("closed", "the candidate was closed")
            self._is_closing = self._out.is_connected
        if not self._is_closing:
            self._finish()

    def abandon(self) -> None:
        """Nobody will call it any more."""
        self.close()
        if self.stage is not Stage.OVER:
            self._finish()

    def forked(self) -> None:
        """This is a forked child: the connection is its parent's."""
        self.effects.clear()
        self.stage, self._kept = Stage.OVER, None
        self._trouble = "this process was forked from the candidate's"
        self._failure = ClosedError("this process was forked from the candidate's")
        if self._out is not None:
            self._out.is_connected = False

    def is_over(self) -> bool:
        """Whether it has nothing to do any more."""
        return self.stage is Stage.OVER and (self._out is None or self._out.reason is not None)

    # How it gets there.

    def _greeted(self, now_ns: int) -> None:
        self.stage, self._stage_ns, self._trouble = Stage.HOLDING, now_ns, None
        self._send({**self._request, "now_ns": now_ns})

    def _news(self, kind: str, frame: Frame, now_ns: int) -> None:
        if kind == "waiting":
            self.standing = _standing(frame)
        elif kind == "elected":
            term = Term(token(frame), integer(frame, "stop_ns"), integer(frame, "deadline_ns"))
            if self._kept is not None:
                self._discard()
            self._kept, self.standing, self._has_elected = term, None, True
        elif kind == "extended":
            stop_ns, deadline_ns = integer(frame, "stop_ns"), integer(frame, "deadline_ns")
            for term in self._terms_of(frame):
                if not self._is_closing:
                    term.extend(stop_ns, deadline_ns, now_ns)
        elif kind == "draining":
            by_ns = integer(frame, "by_ns")
            for term in self._terms_of(frame):
                term.by_ns = by_ns
                term.lose(text(frame, "reason"), text(frame, "why"))
        elif kind == "lost":
            for term in self._terms_of(frame):
                term.is_over = True
                term.lose(text(frame, "reason"), text(frame, "why"))

    def _terms_of(self, frame: Frame) -> List[Term]:
        number = token(frame)
        terms = [term for term in (self._out, self._kept) if term is not None]
        return [term for term in terms if term.token == number and term.is_connected]

    def _refused(self, frame: Frame, now_ns: int) -> None:
        refusal = RefusedError(text(frame, "code"), text(frame, "why"))
        if refusal.passes:
            self._part(now_ns, str(refusal), may_be_at_once=False)
        else:
            if self._failure is None:
                self._fail(refusal)
            self._finish()

    def _part(self, now_ns: int, why: str, *, may_be_at_once: bool) -> None:
        """Ends the connection, and plans the next one."""
        if self._is_closing:
            self._finish()
            return
        has_held = self.stage is Stage.HOLDING and now_ns >= self._stage_ns + WORKED_NS
        has_worked = self._has_elected or has_held
        if has_worked:
            self._back_off.reset()
        delay_s = 0.0 if has_worked and may_be_at_once else self._back_off.next_s()
        self._disconnect()
        self.stage, self._stage_ns, self._trouble = Stage.APART, now_ns + int(delay_s * 1e9), why
        self._has_elected = False

    def _fail(self, failure: PrimacyError) -> None:
        """Nothing will be handed out any more, and this is why."""
        self._failure, self._trouble = failure, str(failure)

    def _finish(self) -> None:
        """Ends the connection, and makes no other."""
        self._disconnect()
        self.stage, self._is_closing = Stage.OVER, False

    def _disconnect(self) -> None:
        self.effects.append(HangUp())
        self.standing = None
        # Nobody works by it, and it cannot be extended: it is as good as lost.
        self._kept = None
        if self._out is not None:
            self._out.is_connected = False

    def _discard(self) -> None:
        """Gives back what nobody has asked for: no work has begun."""
        term, self._kept = self._kept, None
        if term is not None:
            self._say_stopped(term)

    def _say_stopped(self, term: Term) -> None:
        if term.is_connected and self.stage is Stage.HOLDING:
            self._send({"type": "stopped", "token": str(term.token)})

    def _send(self, frame: Frame) -> None:
        self.effects.append(Send(frame))


#: Types of frames that always have a number.
_NEWS = frozenset({"waiting", "elected", "extended", "draining", "lost"})


def _standing(frame: Frame) -> Standing:
    position = None if frame.get("position") is None else integer(frame, "position")
    leader = frame.get("leader")
    if leader is None:
        return Standing(position, None, None, text(frame, "why"))
    if not isinstance(leader, dict):
        raise MalformedFrame("the leader of a frame waiting is no object")
    leader = {"type": "waiting", **leader}
    number = None if leader.get("token") is None else token(leader)
    return Standing(position, text(leader, "name"), number, text(frame, "why"))
