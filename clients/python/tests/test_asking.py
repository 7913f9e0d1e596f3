"""Looking at an election, orders, and the list of holds, against an agent that the tests play."""

from __future__ import annotations

import queue
from typing import Any

import primacy
from agent_test import AgentTest
from fake_agent import PATIENCE_S
from primacy._wire import BackOff




class Orders(AgentTest):
    def test_orders_are_sent_and_their_outcome_is_returned(self) -> None:
        path = self.agent.path
        common = {"type": "order", "protocol": 1, "election": "billing"}
        for give, request in [
            (
                lambda: primacy.promote("billing", "web-2", token=42, socket=path),
                {"order": "promote", "candidate": "web-2", "token": "42"},
            ),
            (lambda: primacy.depose("billing", socket=path), {"order": "depose"}),
            (lambda: primacy.pause("billing", socket=path), {"order": "pause"}),
            (lambda: primacy.resume("billing", socket=path), {"order": "resume"}),
        ]:
            result = self.started(give)
            peer = self.agent.accept()
            self.assertEqual(peer.greet("order"), {**common, **request})
            peer.send("tomorrow")
            peer.send("ordered", outcome={"result": "written"})
            peer.close()
            self.assertEqual(result.get(), {"result": "written"})

    def test_a_refused_order_is_raised(self) -> None:
        result = self.started(lambda: primacy.depose("billing", socket=self.agent.path))
        peer = self.agent.accept()
        peer.greet("order")
        peer.send("refused", code="refused", why="nobody waits")
        error = result.get()
        self.assertIsInstance(error, primacy.RefusedError)
        self.assertEqual((error.code, str(error)), ("refused", "nobody waits (refused)"))

    def test_whether_an_order_was_sent_is_known(self) -> None:
        result = self.started(lambda: primacy.depose("billing", socket=self.agent.path))
        peer = self.agent.accept()
        peer.close()
        error = result.get()
        self.assertEqual((type(error), error.is_sent), (primacy.AgentError, False))

        result = self.started(lambda: primacy.depose("billing", socket=self.agent.path))
        peer = self.agent.accept()
        peer.greet("order")
        peer.close()
        error = result.get()
        self.assertEqual((type(error), error.is_sent), (primacy.AgentError, True))

        result = self.started(lambda: primacy.depose("billing", socket=self.agent.path, timeout=2.0))
        peer = self.agent.accept()
        peer.greet("order")
        error = result.get()
        self.assertEqual((type(error), error.is_sent), (primacy.AgentError, True))
        peer.expect_end()

    def test_without_an_agent_it_is_raised(self) -> None:
        self.agent.end()
        with self.assertRaises(primacy.AgentError):
            primacy.holds(socket=self.agent.path)

    def test_orders_that_make_no_sense_are_not_sent(self) -> None:
        with self.assertRaises(ValueError):
            primacy.order("billing", "promote")
        with self.assertRaises(ValueError):
            primacy.order("billing", "depose", candidate="web-2")

    def test_holds_are_listed(self) -> None:
        result = self.started(lambda: primacy.holds(socket=self.agent.path))
        peer = self.agent.accept()
        self.assertEqual(peer.greet("list"), {"type": "list", "protocol": 1})
        holds = [{"election": "a", "token": "42"}, {"election": "b", "token": None}]
        peer.send("holds", name="web", version="0.1.0", holds=holds)
        expected = [{"election": "a", "token": 42}, {"election": "b", "token": None}]
        self.assertEqual(result.get(), expected)

    def test_an_answer_of_another_shape_is_an_error(self) -> None:
        result = self.started(lambda: primacy.holds(socket=self.agent.path))
        peer = self.agent.accept()
        peer.greet("list")
        peer.send("holds", holds=7)
        self.assertIsInstance(result.get(), primacy.AgentError)


class Looking(AgentTest):
    def looked_at(self, observation: primacy.Observation, token: int) -> None:
        """The agent is asked, and tells a status."""
        result = self.started(lambda: observation.next(PATIENCE_S))
        peer = self.agent.accept()
        request = peer.greet("observe")
        self.assertEqual(request, {"type": "observe", "protocol": 1, "election": "billing"})
        self.see(peer, result, token)
        self.peer = peer

    def see(self, peer: Any, result: "queue.Queue[Any]", token: int) -> None:
        peer.told("seen", status={"token": token})
        self.assertEqual(result.get(), {"token": token})

    def test_each_status_is_answered_and_told(self) -> None:
        with primacy.observe("billing", socket=self.agent.path) as observation:
            self.looked_at(observation, 1)
            self.assertIsNone(observation.trouble)
            result = self.started(lambda: next(observation))
            self.peer.told("tomorrow")
            self.see(self.peer, result, 2)
            with self.assertRaises(TimeoutError):
                observation.next(0.01)
            result = self.started(observation.next)
            self.see(self.peer, result, 3)
        self.peer.expect_end()

    def test_it_goes_on_with_the_next_agent(self) -> None:
        with primacy.observe("billing", socket=self.agent.path) as observation:
            self.looked_at(observation, 1)
            self.agent.end()
            with self.assertRaises(TimeoutError):
                observation.next(1.0)
            self.assertIn("no agent", observation.trouble or "")
            self.agent.listen()
            self.looked_at(observation, 2)

    def test_what_an_agent_has_said_that_has_gone_is_not_told(self) -> None:
        with primacy.observe("billing", socket=self.agent.path) as observation:
            self.looked_at(observation, 1)
            self.peer.tell("seen", status={"token": 2})
            self.peer.close()
            self.looked_at(observation, 3)
            for token in (4, 5):
                self.peer.tell("seen", status={"token": token})
            self.assertEqual(observation.next(), {"token": 5})

    def test_refusals_are_waited_out_or_raised(self) -> None:
        with primacy.observe("billing", socket=self.agent.path) as observation:
            result = self.started(lambda: observation.next(PATIENCE_S))
            self.agent.accept().send("refused", code="busy", why="too many")
            peer = self.agent.accept()
            peer.greet("observe")
            peer.raw(b"nonsense\n")
            peer.expect_end()
            peer = self.agent.accept()
            peer.greet("observe")
            peer.send("refused", code="not-allowed", why="you may not")
            self.assertIsInstance(result.get(), primacy.RefusedError)

    def test_attempts_back_off_until_one_has_seen_something(self) -> None:
        with primacy.observe("billing", socket=self.agent.path) as observation:
            result = self.started(lambda: observation.next(PATIENCE_S))
            for _ in range(3):
                peer = self.agent.accept()
                peer.greet("observe")
                peer.send("refused", code="unavailable", why="the store does not answer")
                peer.expect_end()
            peer = self.agent.accept()
            peer.greet("observe")
            self.assertIn("does not answer", observation.trouble or "")
            self.assertGreaterEqual(observation._back_off.next_s(), BackOff.FIRST_S * 4)
            self.see(peer, result, 1)
            self.assertIsNone(observation.trouble)
            self.assertLessEqual(observation._back_off.next_s(), BackOff.FIRST_S)

    def test_close_ends_a_wait(self) -> None:
        observation = primacy.observe("billing", socket=self.agent.path)
        self.looked_at(observation, 1)
        result = self.started(lambda: list(observation))
        observation.close()
        self.assertEqual(result.get(), [])
        self.peer.expect_end()
