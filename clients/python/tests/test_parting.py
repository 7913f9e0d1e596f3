"""What a candidate decides when its connection ends, it is closed, or its process is forked."""

from __future__ import annotations

from primacy._engine import HangUp, Send
from primacy._errors import ClosedError
from test_engine import EngineTest, S, View


class Parting(EngineTest):
    def test_after_the_connection_it_lasts_until_its_last_deadline(self) -> None:
        term = self.lead()
        self.now += S
        self.engine.ended(self.now, "ended")
        self.effects()
        self.assertTrue(term.is_current())
        self.assertIsNone(term.reason)
        self.hold()
        self.now += S
        self.assertEqual(self.wake(), [])
        self.assertEqual(term.reason, "disconnected")
        self.assertEqual(View(term).remaining(), 1.0)
        self.elect(7, "extended")
        self.assertEqual(View(term).remaining(), 1.0, "this connection does not know it")
        self.now += S
        self.assertFalse(term.is_current())

        self.elect(8)
        self.assertIsNone(self.engine.take(self.now))
        self.engine.left(term)
        self.assertEqual(self.effects(), [], "the connection that it came by has ended")
        self.assertEqual(self.take().token, 8)

    def test_what_nobody_has_asked_for_goes_with_the_connection(self) -> None:
        self.hold()
        self.elect()
        self.engine.ended(self.now, "ended")
        self.assertIsNone(self.engine.take(self.now))

    def test_a_closed_candidate_gives_its_leadership_back_when_it_is_left(self) -> None:
        term = self.lead()
        self.engine.close()
        self.engine.close()
        self.assertEqual((self.effects(), term.reason), ([], "closed"))
        self.assertTrue(term.is_current())
        with self.assertRaises(ClosedError):
            self.engine.take(self.now)
        self.now += S
        self.elect(kind="extended")
        self.assertEqual(View(term).remaining(), 2.0, "it is not extended any more")
        self.engine.left(term)
        self.assertEqual(self.effects(), [Send({"type": "stopped", "token": "7"}), HangUp()])
        self.assertTrue(self.engine.is_over())

    def test_a_closed_candidate_does_not_hold_its_leadership_for_ever(self) -> None:
        for end in ("deadline", "connection", "refusal", "abandoned"):
            with self.subTest(end):
                self.setUp()
                term = self.lead()
                self.engine.close()
                self.assertEqual(self.engine.due_ns(), term.deadline_ns)
                if end == "deadline":
                    self.now += 3 * S
                    self.engine.wake(self.now)
                elif end == "connection":
                    self.engine.ended(self.now, "ended")
                elif end == "refusal":
                    self.engine.received({"type": "refused", "code": "ending"}, self.now)
                else:
                    self.engine.abandon()
                self.assertEqual(self.effects(), [HangUp()])
                self.assertTrue(self.engine.is_over())
                self.engine.left(term)
                self.assertEqual(self.wake(), [])
                with self.assertRaises(ClosedError):
                    self.engine.take(self.now)

    def test_a_closed_candidate_without_its_connection_is_over(self) -> None:
        term = self.lead()
        self.engine.ended(self.now, "ended")
        self.effects()
        self.hold()
        self.engine.close()
        self.assertEqual((self.effects(), term.reason), ([HangUp()], "closed"))

    def test_after_a_refusal_a_leadership_is_looked_after(self) -> None:
        term = self.lead()
        self.engine.received({"type": "refused", "code": "malformed", "why": ""}, self.now)
        self.assertFalse(self.engine.is_over())
        self.assertEqual(self.engine.due_ns(), term.stop_ns)
        self.now += 2 * S
        self.engine.wake(self.now)
        self.assertEqual(term.reason, "disconnected")
        self.assertTrue(self.engine.is_over())

    def test_a_forked_child_says_nothing(self) -> None:
        term = self.lead()
        self.engine.forked()
        self.engine.left(term)
        self.engine.close()
        self.assertEqual(self.wake(), [])
        with self.assertRaises(ClosedError):
            self.engine.take(self.now)
