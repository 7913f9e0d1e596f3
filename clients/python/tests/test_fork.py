"""Forked children and programs that are started: the connection stays with the parent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import unittest
import warnings
from typing import Any, Callable, Dict, Set

import primacy
from fake_agent import PATIENCE_S, FakeAgent, ahead_ns, now_ns
from primacy import aio

Report = Dict[str, Any]


def sockets(pid: str = "self") -> Set[str]:
    """The sockets that a process has, as the kernel names them."""
    links = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            pass  # That was the folder itself.
    return {link for link in links if link.startswith("socket:")}


def in_child(work: Callable[[], Report]) -> Report:
    """What a forked child reports."""
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        # Threads that fork are what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            os.write(sender, json.dumps(work()).encode())
        except BaseException as error:
            os.write(sender, json.dumps({"error": repr(error)}).encode())
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as report:
        reported: Report = json.loads(report.read())
    os.waitpid(pid, 0)
    return reported


class Forks(unittest.TestCase):
    def setUp(self) -> None:
        self.agent = FakeAgent()
        self.addCleanup(self.agent.__exit__, None, None, None)

    def test_a_child_says_nothing_and_the_parent_goes_on(self) -> None:
        with primacy.campaign("billing", socket=self.agent.path) as candidate:
            peer = self.agent.held()
            peer.elect(7)
            with candidate.elected(PATIENCE_S) as leadership:

                def child() -> Report:
                    seen: Report = {"current": leadership.is_current(), "lost": leadership.lost}
                    leadership.resign()
                    seen["left"] = leadership.is_current()
                    try:
                        candidate.elected()
                    except primacy.ClosedError as error:
                        seen["elected"] = str(error)
                    candidate.close()
                    return seen

                seen = in_child(child)
                self.assertIn("forked", seen.pop("elected"))
                self.assertEqual(seen, {"current": True, "lost": False, "left": False})
                peer.extend(7)
                self.assertTrue(leadership.is_current())
            peer.expect_stopped(7)

    def test_a_child_has_no_copy_of_the_connection(self) -> None:
        with primacy.campaign("billing", socket=self.agent.path):
            self.agent.held()
            own = sockets()
            inherited = in_child(lambda: {"sockets": list(sockets())})["sockets"]
            # Gone are the connection, and both ends of what wakes the thread.
            self.assertEqual(len(own - set(inherited)), 3)

    def test_a_child_judges_by_the_last_deadline_that_it_knows(self) -> None:
        with primacy.campaign("billing", socket=self.agent.path) as candidate:
            peer = self.agent.held()
            peer.elect(7, stop_s=2.0, deadline_s=2.5)
            deadline_ns = ahead_ns(2.5)
            with candidate.elected(PATIENCE_S) as leadership:

                def child() -> Report:
                    os.read(extended[0], 1)
                    reason = leadership.wait_lost(PATIENCE_S)
                    last_ns, before_ns = 0, now_ns()
                    while leadership.is_current():
                        last_ns, before_ns = before_ns, now_ns()
                    return {"reason": reason, "last_ns": last_ns, "why": leadership.why}

                extended = os.pipe()
                os.write(extended[1], b"e")
                seen = in_child(child)
                self.assertEqual(seen["reason"], "disconnected")
                self.assertLess(seen["last_ns"], deadline_ns)
                for descriptor in extended:
                    os.close(descriptor)

    def test_a_child_that_lives_on_does_not_hide_the_death_of_its_parent(self) -> None:
        program = (
            "import os, sys, primacy\n"
            "with primacy.lead('billing', socket=sys.argv[1]):\n"
            "    if os.fork() == 0:\n"
            "        os.read(0, 1)\n"
            "        os._exit(0)\n"
            "    os.kill(os.getpid(), 9)\n"
        )
        source = os.path.dirname(os.path.dirname(primacy.__file__))
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program, self.agent.path],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": source},
        ) as parent:
            peer = self.agent.held()
            peer.elect(7)
            peer.expect_end()  # The child waits for its standard input to end.
            parent.wait()

    def test_a_program_that_is_started_does_not_inherit_it(self) -> None:
        with primacy.campaign("billing", socket=self.agent.path):
            self.agent.held()
            with subprocess.Popen(
                [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                close_fds=False,
            ) as started:
                assert started.stdout is not None
                started.stdout.readline()
                before = sockets()
                inherited = sockets(str(started.pid))
                self.assertGreaterEqual(len(before - inherited), 3)
                started.communicate()

    def test_a_child_does_not_look_by_its_parents_connection_with_asyncio(self) -> None:
        async def program() -> None:
            async with aio.observe("billing", socket=self.agent.path) as observation:
                wanted = asyncio.ensure_future(observation.__anext__())
                peer = await asyncio.to_thread(self.agent.accept)
                await asyncio.to_thread(peer.greet, "observe")
                await asyncio.to_thread(lambda: peer.told("seen", status={}))
                await wanted
                own = sockets()
                inherited = in_child(lambda: {"sockets": list(sockets())})["sockets"]
                self.assertEqual(len(own - set(inherited)), 1)

        asyncio.run(program())

    def test_a_child_does_not_look_by_its_parents_connection(self) -> None:
        with primacy.observe("billing", socket=self.agent.path) as observation:
            looks = threading.Thread(target=observation.next)
            looks.start()
            peer = self.agent.accept()
            peer.greet("observe")
            peer.told("seen", status={})
            looks.join()
            own = sockets()
            inherited = in_child(lambda: {"sockets": list(sockets())})["sockets"]
            self.assertEqual(len(own - set(inherited)), 1)
