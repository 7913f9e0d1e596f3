"""What a candidate decides, at points in time that the tests choose."""

from __future__ import annotations

import unittest
from typing import Any, List, Optional
from unittest import mock

from primacy import _term
from primacy._engine import Connect, Engine, HangUp, Send
from primacy._errors import MalformedFrame, RefusedError
from primacy._term import Term, TermView
from primacy._wire import BackOff, Frame

S = 10**9
REQUEST = {"type": "hold", "protocol": 1, "election": "billing", "proof": "none"}


class View(TermView):
    """A leadership without a driver."""

    def __init__(self, term: Term) -> None:
        self._term = term


class EngineTest(unittest.TestCase):
    """An engine, its clock, and what it wants."""

    def setUp(self) -> None:
        self.now = 100 * S
        clock = mock.patch.object(_term, "boottime_ns", lambda: self.now)
        clock.start()
        self.addCleanup(clock.stop)
        self.engine = Engine(dict(REQUEST), self.now, BackOff(lambda: 1.0))
        self.number = 0

    def effects(self) -> List[object]:
        effects: List[object] = list(self.engine.effects)
        self.engine.effects.clear()
        return effects

    def sent(self) -> List[Frame]:
        return [effect.frame for effect in self.effects() if isinstance(effect, Send)]

    def wake(self) -> List[object]:
        self.engine.wake(self.now)
        return self.effects()

    def tell(self, kind: str, **fields: Any) -> List[Frame]:
        """Tells it a frame with a number, and returns what it sends but for the answer."""
        self.number += 1
        self.engine.received({"type": kind, "n": self.number, **fields}, self.now)
        sent = self.sent()
        self.assertIn({"type": "read", "n": self.number}, sent)
        return [frame for frame in sent if frame["type"] != "read"]

    def hold(self) -> None:
        """It connects, and asks for the hold."""
        self.assertEqual(self.wake(), [Connect()])
        self.engine.connected(self.now)
        self.engine.received({"type": "agent", "protocol": 1, "now_ns": self.now}, self.now)
        self.assertEqual(self.sent(), [{**REQUEST, "now_ns": self.now}])

    def elect(self, token: int = 7, kind: str = "elected") -> None:
        """It is to stop in 2 s, and its deadline is in 3 s."""
        stop_ns, deadline_ns = self.now + 2 * S, self.now + 3 * S
        self.tell(kind, token=str(token), stop_ns=stop_ns, deadline_ns=deadline_ns)

    def take(self) -> Term:
        term = self.engine.take(self.now)
        assert term is not None
        return term

    def lead(self, token: int = 7) -> Term:
        self.hold()
        self.elect(token)
        return self.take()


class Connections(EngineTest):
    def test_the_agent_speaks_first(self) -> None:
        self.wake()
        self.engine.connected(self.now)
        self.assertEqual(self.wake(), [])
        self.engine.received({"type": "tomorrow", "n": 1}, self.now)
        self.assertEqual(self.effects(), [])
        self.engine.received({"type": "agent", "protocol": 9, "now_ns": 1}, self.now)
        self.assertEqual(self.sent()[0]["type"], "hold")

    def test_one_that_does_not_speak_is_hung_up_on(self) -> None:
        self.wake()
        self.engine.connected(self.now)
        self.assertEqual(self.engine.due_ns(), self.now + 5 * S)
        self.now += 5 * S
        self.assertEqual(self.wake(), [HangUp()])
        self.assertIn("not spoken", self.engine.trouble or "")

    def test_attempts_back_off(self) -> None:
        for wait in (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
            due = self.engine.due_ns()
            assert due is not None
            self.assertEqual(due - self.now, int(wait * S))
            self.now = due
            self.assertEqual(self.wake(), [Connect()])
            self.engine.ended(self.now, "no agent")
            self.assertEqual(self.engine.trouble, "no agent")
            self.effects()

    def test_after_a_connection_that_has_worked_the_next_is_made_at_once(self) -> None:
        for works in ("long", "elected"):
            self.hold()
            self.assertIsNone(self.engine.trouble)
            if works == "long":
                self.now += S
            else:
                self.elect()
            self.engine.ended(self.now, "ended")
            self.assertEqual(self.wake(), [HangUp(), Connect()], works)
            self.engine.ended(self.now, "no agent")
            self.assertEqual(self.engine.due_ns(), self.now + S // 20)
            self.effects()
            self.now += S // 20

    def test_after_one_that_has_not_worked_it_waits(self) -> None:
        self.hold()
        self.engine.ended(self.now, "ended")
        self.assertEqual(self.engine.due_ns(), self.now + S // 20)

    def test_passing_refusals_are_waited_out(self) -> None:
        for code in ("busy", "ending", "unavailable"):
            self.hold()
            self.now += 10 * S
            self.engine.received({"type": "refused", "code": code, "why": "..."}, self.now)
            self.assertEqual(self.effects(), [HangUp()])
            self.assertEqual(self.engine.due_ns(), self.now + S // 20)
            self.assertIn(code, self.engine.trouble or "")
            self.now += S // 20

    def test_other_refusals_are_raised(self) -> None:
        self.wake()
        self.engine.connected(self.now)
        self.engine.received({"type": "refused", "code": "busy", "why": "first of all"}, self.now)
        self.effects()
        self.now += S // 20
        self.hold()
        self.engine.received({"type": "refused", "code": "new", "why": "so it is"}, self.now)
        self.assertEqual(self.effects(), [HangUp()])
        for _ in range(2):
            with self.assertRaises(RefusedError) as caught:
                self.engine.take(self.now)
            self.assertEqual((caught.exception.code, caught.exception.why), ("new", "so it is"))
        self.assertTrue(self.engine.is_over())
        self.assertEqual(self.wake(), [])

    def test_frames_without_what_they_need_are_malformed(self) -> None:
        self.hold()
        wrong: List[Frame] = [
            {"type": "waiting"},
            {"type": "unknown", "n": "1"},
            {"type": "elected", "n": 1, "token": "7", "stop_ns": 1},
            {"type": "elected", "n": 1, "token": 7, "stop_ns": 1, "deadline_ns": 2},
            {"type": "draining", "n": 1, "token": "7", "reason": "deposed", "why": ""},
            {"type": "waiting", "n": 1, "leader": "web-2"},
        ]
        for frame in wrong:
            with self.subTest(frame), self.assertRaises(MalformedFrame):
                self.engine.received(frame, self.now)
        self.engine.broken(self.now, "malformed")
        self.assertIn(HangUp(), self.effects())


class Leading(EngineTest):
    def judged(self, term: Term) -> Optional[str]:
        self.engine.wake(self.now)
        return term.reason

    def test_it_is_told_how_it_waits(self) -> None:
        self.hold()
        self.tell("waiting", position=2, leader={"name": "web-2", "token": "41"}, why="...")
        self.assertEqual(self.engine.standing, (2, "web-2", 41, "..."))
        self.tell("waiting", position=None, leader=None, why="")
        self.assertEqual(self.engine.standing, (None, None, None, ""))

    def test_what_it_does_not_know_is_answered_and_ignored(self) -> None:
        self.hold()
        self.assertEqual(self.tell("tomorrow", token=[]), [])
        self.engine.received({"type": "without a number"}, self.now)
        self.assertEqual(self.effects(), [])

    def test_it_leads_until_its_deadline_and_stops_before(self) -> None:
        term = self.lead()
        view = View(term)
        self.assertEqual((view.token, view.remaining(), view.why), (7, 3.0, ""))
        self.now += 2 * S - 1
        self.assertIsNone(self.judged(term))
        self.assertEqual(self.engine.due_ns(), self.now + 1)
        self.now += 1
        self.assertEqual(self.judged(term), "silent")
        self.assertTrue(view.lost)
        self.now += S - 1
        self.assertTrue(term.is_current())
        self.now += 1
        self.assertFalse(term.is_current())
        self.assertEqual(view.remaining(), 0.0)

    def test_of_several_extensions_the_last_counts(self) -> None:
        term = self.lead()
        self.now += S
        self.elect(kind="extended")
        self.now += S
        self.elect(kind="extended")
        self.now += S
        self.assertIsNone(self.judged(term))
        self.assertEqual(View(term).remaining(), 2.0)

    def test_what_is_said_of_another_token_does_not_count(self) -> None:
        term = self.lead(7)
        self.elect(8, "extended")
        self.tell("lost", token="8", reason="expired", why="")
        self.now += 2 * S
        self.assertEqual(self.judged(term), "silent")
        self.assertTrue(term.is_current())

    def test_an_extension_after_the_deadline_comes_too_late(self) -> None:
        term = self.lead()
        self.now += 3 * S
        self.elect(kind="extended")
        self.assertFalse(term.is_current())
        self.assertEqual(self.judged(term), "silent")

    def test_once_false_is_current_stays_false(self) -> None:
        term = self.lead()
        self.now += 3 * S
        self.assertFalse(term.is_current())
        self.now -= 1
        self.elect(kind="extended")
        self.assertFalse(term.is_current())
        self.assertEqual(self.judged(term), "silent")

    def test_an_extension_after_stop_lets_the_work_finish_and_no_more(self) -> None:
        term = self.lead()
        self.now += 2 * S
        self.assertEqual(self.judged(term), "silent")
        self.elect(kind="extended")
        self.assertEqual(View(term).remaining(), 3.0)
        self.assertEqual(self.judged(term), "silent")

    def test_draining_leads_on_and_stops(self) -> None:
        term = self.lead()
        view = View(term)
        self.tell("draining", token="7", reason="deposed", why="by ann", by_ns=self.now + S)
        self.assertEqual((view.reason, view.why, view.remaining()), ("deposed", "by ann", 1.0))
        self.assertTrue(term.is_current())
        self.tell("lost", token="7", reason="expired", why="")
        self.assertEqual(view.reason, "deposed")
        self.assertFalse(term.is_current())

    def test_lost_ends_it_whatever_the_deadline_is(self) -> None:
        term = self.lead()
        self.tell("lost", token="7", reason="expired", why="late")
        self.assertFalse(term.is_current())
        self.assertEqual((View(term).reason, View(term).why), ("expired", "late"))
        self.engine.left(term)
        self.assertEqual(self.sent(), [{"type": "stopped", "token": "7"}])

    def test_leaving_says_so_once_and_ends_it(self) -> None:
        term = self.lead()
        self.engine.left(term)
        self.assertFalse(term.is_current())
        self.assertEqual(term.reason, "resigned")
        self.assertEqual(self.sent(), [{"type": "stopped", "token": "7"}])
        self.engine.left(term)
        self.assertEqual(self.effects(), [])
        self.elect(8)
        self.assertEqual(self.take().token, 8)

    def test_frames_after_leaving_are_answered(self) -> None:
        term = self.lead()
        self.engine.left(term)
        self.effects()
        self.elect(kind="extended")
        self.assertFalse(term.is_current())

    def test_what_nobody_asks_for_is_kept_and_extended(self) -> None:
        self.hold()
        self.elect()
        self.now += S
        self.elect(kind="extended")
        self.now += S
        self.assertEqual(self.wake(), [])
        self.assertEqual(View(self.take()).remaining(), 2.0)

    def test_what_nobody_asks_for_and_ends_is_given_back(self) -> None:
        stopped = {"type": "stopped", "token": "7"}
        self.hold()
        self.elect()
        self.now += 2 * S
        self.assertIsNone(self.engine.take(self.now))
        self.assertEqual(self.sent(), [stopped])
        self.elect()
        self.tell("draining", token="7", reason="deposed", why="", by_ns=self.now + S)
        self.assertEqual(self.wake(), [Send(stopped)])
        self.elect()
        self.tell("lost", token="7", reason="expired", why="")
        self.assertEqual(self.wake(), [Send(stopped)])
        self.elect()
        self.engine.close()
        self.assertEqual(self.effects(), [Send(stopped), HangUp()])

    def test_the_next_is_handed_out_after_the_one_before_was_left(self) -> None:
        first = self.lead(7)
        self.tell("lost", token="7", reason="expired", why="")
        self.elect(8)
        self.assertIsNone(self.engine.take(self.now))
        self.assertIn("token 7", self.engine.trouble or "")
        self.engine.left(first)
        self.assertEqual(self.sent(), [{"type": "stopped", "token": "7"}])
        self.assertEqual(self.take().token, 8)
