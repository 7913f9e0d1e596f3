"""Candidates of programs with threads, against an agent that the tests play."""

from __future__ import annotations

import os
import queue
import signal
import threading
from typing import Any, List, Tuple

import primacy
from agent_test import AgentTest
from fake_agent import PATIENCE_S, Peer, ahead_ns, now_ns


class CandidateTest(AgentTest):
    """An agent, and candidates that ask it."""

    def campaign(self, **options: Any) -> primacy.Candidate:
        candidate = primacy.campaign("billing", socket=self.agent.path, **options)
        self.addCleanup(candidate.close)
        return candidate

    def led(self, **options: Any) -> Tuple[primacy.Candidate, Peer, primacy.Leadership]:
        """A candidate that leads with token 7 for long."""
        candidate = self.campaign(**options)
        peer = self.agent.held()
        peer.elect(7)
        return candidate, peer, candidate.elected(PATIENCE_S)


class Holding(CandidateTest):
    def test_the_request_says_what_was_asked_for(self) -> None:
        before = now_ns()
        self.campaign()
        request = self.agent.accept().greet("hold")
        self.assertTrue(before <= request.pop("now_ns") <= now_ns())
        expected = {"type": "hold", "protocol": 1, "election": "billing", "proof": "none"}
        self.assertEqual(request, expected)
        self.campaign(name="web-1", data="10.0.0.1:8080", proof="process")
        request = self.agent.accept().greet("hold")
        self.assertEqual((request["name"], request["proof"]), ("web-1", "process"))
        self.assertEqual(request["data"], "10.0.0.1:8080")

    def test_what_cannot_be_asked_is_a_value_error(self) -> None:
        for wrong in ({"data": "ä" * 513}, {"name": "a" * 16_384}, {"name": "\ud800"}):
            with self.subTest(str(wrong)[:20]), self.assertRaises(ValueError):
                self.campaign(**wrong)

    def test_leaving_the_block_gives_the_leadership_back(self) -> None:
        candidate, peer, leadership = self.led()
        with leadership:
            self.assertEqual(leadership.token, 7)
            self.assertTrue(leadership.is_current())
            self.assertFalse(leadership.lost)
            self.assertTrue(60 < leadership.remaining() <= 90)
            self.assertIsNone(leadership.wait_lost(0))
            self.assertIn("token=7 leads", repr(leadership))
        peer.expect_stopped(7)
        self.assertFalse(leadership.is_current())
        self.assertEqual(leadership.wait_lost(), "resigned")
        peer.wait(position=3)
        self.assertEqual(candidate.standing and candidate.standing.position, 3)
        candidate.close()
        peer.expect_end()

    def test_an_error_in_the_block_gives_it_back_too(self) -> None:
        _, peer, leadership = self.led()
        with self.assertRaises(KeyError), leadership:
            raise KeyError
        peer.expect_stopped(7)

    def test_lead_does_all_of_it(self) -> None:
        def program() -> int:
            with primacy.lead("billing", socket=self.agent.path) as leadership:
                return leadership.token

        result = self.started(program)
        peer = self.agent.held()
        peer.elect(7)
        self.assertEqual(result.get(), 7)
        peer.expect_stopped(7)
        peer.expect_end()

    def test_not_elected_in_time(self) -> None:
        candidate = self.campaign()
        peer = self.agent.held()
        with self.assertRaises(TimeoutError):
            candidate.elected(0.01)
        with self.assertRaises(TimeoutError):
            candidate.elected(0)
        peer.elect(7)
        self.assertEqual(candidate.elected(PATIENCE_S).token, 7)

    def test_what_nobody_awaits_is_kept_until_it_ends(self) -> None:
        candidate = self.campaign()
        peer = self.agent.held()
        peer.elect(7, stop_s=0.05, deadline_s=60)
        peer.expect_stopped(7)
        peer.elect(8)
        peer.told("draining", token="8", reason="deposed", why="", by_ns=ahead_ns(60))
        peer.expect_stopped(8)
        peer.elect(9)
        self.assertEqual(candidate.elected(PATIENCE_S).token, 9)

    def test_frames_are_answered_while_the_program_computes(self) -> None:
        _, peer, leadership = self.led()
        done = threading.Event()

        def extend() -> None:
            for _ in range(20):
                peer.extend(7)
            done.set()

        extended = self.started(extend)
        while not done.is_set():
            self.assertTrue(leadership.is_current())
        self.assertIsNone(extended.get())

    def test_close_ends_the_wait_of_another_thread(self) -> None:
        candidate = self.campaign()
        peer = self.agent.held()
        result = self.started(candidate.elected)
        candidate.close()
        self.assertIsInstance(result.get(), primacy.ClosedError)
        peer.expect_end()
        with self.assertRaises(primacy.ClosedError):
            candidate.elected()

    def test_a_handler_of_a_signal_may_close_it(self) -> None:
        candidate = self.campaign()
        peer = self.agent.held()
        before = signal.signal(signal.SIGUSR1, lambda *_: candidate.close())
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        signals = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        signals.start()
        with self.assertRaises(primacy.ClosedError):
            candidate.elected(PATIENCE_S)
        signals.join()
        peer.expect_end()

    def test_several_threads_wait_and_one_leads_at_a_time(self) -> None:
        candidate = self.campaign()
        peer = self.agent.held()
        results = [self.started(candidate.elected) for _ in range(3)]
        leading: "List[primacy.Leadership]" = []
        for token in (7, 8, 9):
            if leading:
                leading.pop().resign()
                peer.expect_stopped(token - 1)
            peer.elect(token)
            leading.append(self.one_of(results))
            self.assertEqual(leading[0].token, token)

    @staticmethod
    def one_of(results: "List[queue.Queue[Any]]") -> primacy.Leadership:
        while True:
            for result in results:
                try:
                    leadership: primacy.Leadership = result.get(timeout=0.01)
                    return leadership
                except queue.Empty:
                    pass


class Losing(CandidateTest):
    def setUp(self) -> None:
        super().setUp()
        self.losses: "queue.Queue[Tuple[primacy.Leadership, str]]" = queue.Queue()

    def lost(self, leadership: primacy.Leadership, reason: str) -> None:
        self.losses.put((leadership, reason))

    def test_draining_is_told_and_it_still_leads(self) -> None:
        _, peer, leadership = self.led(on_lost=self.lost)
        peer.told("draining", token="7", reason="deposed", why="by ann", by_ns=ahead_ns(60))
        self.assertEqual(leadership.wait_lost(PATIENCE_S), "deposed")
        self.assertEqual(self.losses.get(timeout=PATIENCE_S), (leadership, "deposed"))
        self.assertTrue(leadership.is_current())
        self.assertEqual(leadership.why, "by ann")
        peer.told("lost", token="7", reason="expired", why="")
        leadership.resign()
        peer.expect_stopped(7)
        self.assertTrue(self.losses.empty(), "told once")

    def test_lost_is_told_and_it_leads_no_more(self) -> None:
        _, peer, leadership = self.led(on_lost=self.lost)
        peer.told("lost", token="7", reason="expired", why="")
        self.assertEqual(self.losses.get(timeout=PATIENCE_S), (leadership, "expired"))
        self.assertFalse(leadership.is_current())

    def test_a_silent_agent_ends_it_at_stop(self) -> None:
        candidate, peer, leadership = self.led(on_lost=self.lost)
        stop_ns, deadline_ns = ahead_ns(0.3), ahead_ns(0.6)
        peer.told("extended", token="7", stop_ns=stop_ns, deadline_ns=deadline_ns)
        with leadership:
            self.assertEqual(self.losses.get(timeout=PATIENCE_S), (leadership, "silent"))
            self.assertGreaterEqual(now_ns(), stop_ns)
            while True:
                before = now_ns()
                if not leadership.is_current():
                    break
                self.assertLess(before, deadline_ns)
            self.assertGreaterEqual(now_ns(), deadline_ns)
        # It was silent, and not gone: it is told, and goes on.
        peer.expect_stopped(7)
        peer.elect(8)
        self.assertEqual(candidate.elected(PATIENCE_S).token, 8)

    def test_extended_in_time_it_goes_on(self) -> None:
        candidate = self.campaign(on_lost=self.lost)
        peer = self.agent.held()
        first_stop_ns = ahead_ns(2.0)
        peer.told("elected", token="7", stop_ns=first_stop_ns, deadline_ns=ahead_ns(60))
        leadership = candidate.elected(PATIENCE_S)
        peer.extend(7)
        while now_ns() < first_stop_ns:
            leadership.wait_lost(0.05)
        self.assertFalse(leadership.lost)
        self.assertTrue(self.losses.empty())

    def test_a_callback_that_blocks_keeps_nothing_up(self) -> None:
        release = threading.Event()
        self.addCleanup(release.set)
        blocked = threading.Event()

        def block(*_: object) -> None:
            blocked.set()
            release.wait()

        candidate, peer, leadership = self.led(on_lost=block)
        peer.told("lost", token="7", reason="expired", why="")
        self.assertTrue(blocked.wait(PATIENCE_S))
        leadership.resign()
        peer.expect_stopped(7)
        peer.wait()
        peer.elect(8)
        self.assertEqual(candidate.elected(PATIENCE_S).token, 8)

    def test_what_was_left_is_not_told_as_lost(self) -> None:
        _, peer, leadership = self.led(on_lost=self.lost)
        leadership.resign()
        peer.expect_stopped(7)
        watches = [thread for thread in threading.enumerate() if thread.name == "primacy-lost"]
        for watch in watches:
            watch.join(PATIENCE_S)
        self.assertTrue(self.losses.empty())

    def test_closing_loses_what_was_not_left(self) -> None:
        candidate, peer, leadership = self.led(on_lost=self.lost)
        candidate.close()
        self.assertEqual(self.losses.get(timeout=PATIENCE_S), (leadership, "closed"))
        peer.extend(7)
        self.assertTrue(leadership.is_current())
        leadership.resign()
        self.assertFalse(leadership.is_current())
        peer.expect_stopped(7)
        peer.expect_end()

    def test_closed_and_never_left_it_ends_at_its_deadline(self) -> None:
        candidate, peer, leadership = self.led()
        peer.extend(7, stop_s=0.1, deadline_s=0.2)
        candidate.close()
        peer.expect_end()
        self.assertFalse(leadership.is_current())


class Reconnecting(CandidateTest):
    def test_a_lost_connection_ends_the_leadership_and_not_the_candidate(self) -> None:
        candidate = self.campaign()
        peer = self.agent.held()
        peer.elect(7, stop_s=2.0, deadline_s=60)
        first = candidate.elected(PATIENCE_S)
        peer.close()
        self.assertTrue(first.is_current())
        again = self.agent.held()
        self.assertFalse(candidate.trouble)
        self.assertEqual(first.wait_lost(PATIENCE_S), "disconnected")
        again.elect(8)
        with self.assertRaises(TimeoutError):
            candidate.elected(0.05)
        self.assertIn("was not left", candidate.trouble or "")
        first.resign()
        self.assertEqual(candidate.elected(PATIENCE_S).token, 8)
        again.extend(8)  # Nothing was said of token 7 by a connection that does not know it.

    def test_leaving_hands_the_next_to_a_thread_that_waits(self) -> None:
        candidate, peer, first = self.led()
        peer.close()
        self.agent.held().elect(8)
        result = self.started(candidate.elected)
        first.resign()
        self.assertEqual(result.get().token, 8)

    def test_it_waits_for_an_agent(self) -> None:
        self.agent.end()
        candidate = self.campaign()
        with self.assertRaises(TimeoutError):
            candidate.elected(1.0)
        self.assertIn("no agent", candidate.trouble or "")
        self.agent.listen()
        self.agent.held().elect(7)
        self.assertEqual(candidate.elected(PATIENCE_S).token, 7)
        self.assertIsNone(candidate.trouble)
        self.agent.end()
        self.agent.listen()
        self.agent.held()

    def test_passing_refusals_are_waited_out(self) -> None:
        candidate = self.campaign()
        self.agent.accept().send("refused", code="busy", why="too many")
        peer = self.agent.accept()
        peer.greet("hold")
        peer.send("refused", code="unavailable", why="the store does not answer")
        peer.expect_end()
        peer = self.agent.held()
        peer.send("refused", code="ending", why="the agent ends")
        peer.close()
        self.agent.held().elect(7)
        self.assertEqual(candidate.elected(PATIENCE_S).token, 7)

    def test_other_refusals_are_raised(self) -> None:
        for code in ("malformed", "protocol", "clock", "not-allowed", "no-such-election", "proof"):
            candidate = self.campaign()
            peer = self.agent.accept()
            peer.greet("hold")
            peer.send("refused", code=code, why="so it is")
            peer.close()  # What was sent before the end is read.
            with self.assertRaises(primacy.RefusedError) as caught:
                candidate.elected(PATIENCE_S)
            self.assertEqual((caught.exception.code, caught.exception.why), (code, "so it is"))

    def test_a_malformed_frame_ends_the_connection(self) -> None:
        for wrong in (b"nonsense\n", b'{"type": "elected", "n": 2}\n', b"a" * 5_000_000):
            with self.subTest(wrong[:20]):
                candidate = self.campaign()
                peer = self.agent.held()
                try:
                    peer.raw(wrong)
                except BrokenPipeError:
                    pass  # It has heard enough.
                peer.expect_end()
                self.agent.held()
                candidate.close()

    def test_frames_before_the_end_count(self) -> None:
        candidate = self.campaign()
        peer = self.agent.held()
        peer.tell("elected", token="7", stop_ns=ahead_ns(60), deadline_ns=ahead_ns(60))
        peer.tell("extended", token="7", stop_ns=ahead_ns(90), deadline_ns=ahead_ns(90))
        self.assertEqual([peer.expect("read")["n"] for _ in range(2)], [2, 3])
        leadership = candidate.elected(PATIENCE_S)
        peer.tell("lost", token="7", reason="expired", why="")
        peer.close()
        self.assertEqual(leadership.wait_lost(PATIENCE_S), "expired")

    def test_threads_and_descriptors_end_with_the_candidate(self) -> None:
        before = set(os.listdir("/proc/self/fd"))
        threads = set(threading.enumerate())
        candidate, peer, leadership = self.led()
        leadership.resign()
        candidate.close()
        for thread in set(threading.enumerate()) - threads:
            thread.join(PATIENCE_S)
        peer.close()
        self.assertEqual(set(os.listdir("/proc/self/fd")) - before, set())
