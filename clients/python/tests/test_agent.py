"""Programs that lead through real agents: `PRIMACY` is the path of the command.

Each test has hosts with an agent each, on one store, and a lease of 4 s unless it says otherwise.
After each, the witness tells whether two have believed at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import unittest

import primacy
from agents import PATIENCE_S, Process, Site, beliefs, binary, overlaps
from fake_agent import now_ns
from primacy import aio


class AgentTest(unittest.TestCase):
    """Hosts with agents, and programs."""

    has_witness = True

    def setUp(self) -> None:
        command = binary()
        if command is None:
            if os.environ.get("CI"):
                self.fail("PRIMACY is not set: it is the path of the command")
            self.skipTest("PRIMACY is not set: it is the path of the command")
        folder = tempfile.mkdtemp(prefix="primacy-")
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.callback(shutil.rmtree, folder)
        self.site = Site(command, folder, stack)

    def tearDown(self) -> None:
        if self.has_witness and hasattr(self, "site"):
            self.assertEqual(overlaps(beliefs(self.site.witness)), [])

    def pair(self, proof: str = "none", lease: str = "4s") -> "tuple[Process, Process, Process]":
        """The agent of host `a`, a program that leads there, and one that waits on host `b`."""
        agent = self.site.agent("a", lease)
        self.site.agent("b", lease)
        leads = self.site.program("a", "one", proof)
        leads.expect("start")
        waits = self.site.program("b", "two")
        self.site.waits("b", "two")
        return agent, leads, waits


class Witness(unittest.TestCase):
    def test_it_tells_who_believed_at_a_time(self) -> None:
        for lines, count in [
            (["one 7 10", "one 7 20", "two 8 21", "one 9 30"], 0),
            (["one 7 10", "two 8 20", "one 7 21", "one 9 30"], 1),
            (["one 7 10", "two 8 30", "one 9 30"], 1),
            (["one 7 10", "two 7 20"], 1),
        ]:
            with tempfile.NamedTemporaryFile("w") as witness:
                witness.write("".join(f"{line}\n" for line in lines))
                witness.flush()
                self.assertEqual(len(overlaps(beliefs(witness.name))), count, lines)


class Handovers(AgentTest):
    def test_one_that_ends_in_good_order_is_followed_at_once(self) -> None:
        _, leads, waits = self.pair(lease="60s")
        leads.signal(signal.SIGTERM)
        leads.expect("end")
        waits.expect("start")
        waits.signal(signal.SIGTERM)
        waits.expect("end")

    def test_a_deposed_leader_stops_and_waits_behind_the_others(self) -> None:
        _, leads, waits = self.pair(lease="60s")
        code, _ = self.site.command("depose")
        self.assertEqual(code, 0)
        self.assertEqual(leads.expect("lost")[2], "deposed")
        waits.expect("start")
        self.site.waits("a", "one")
        waits.signal(signal.SIGTERM)
        leads.expect("start")


class Deaths(AgentTest):
    def test_a_dead_process_that_was_the_only_one_is_followed_before_its_deadline(self) -> None:
        _, leads, waits = self.pair(proof="process", lease="60s")
        leads.kill()
        waits.expect("start")

    def test_without_a_proof_it_is_followed_after_its_deadline(self) -> None:
        _, leads, waits = self.pair()
        extended = leads.expect("extended")
        leads.kill()
        self.assertGreater(int(waits.expect("start")[2]), int(extended[2]))

    def test_a_killed_agent_costs_its_program_the_leadership(self) -> None:
        agent, leads, waits = self.pair()
        agent.kill()
        self.assertEqual(leads.expect("lost")[2], "disconnected")
        leads.expect("stop")
        waits.expect("start")

    def test_after_a_restart_of_the_agent_the_program_leads_again(self) -> None:
        agent = self.site.agent("a")
        leads = self.site.program("a", "one")
        first = int(leads.expect("start")[1])
        agent.kill()
        self.assertEqual(leads.expect("lost")[2], "disconnected")
        self.site.agent("a")
        self.assertGreater(int(leads.expect("start")[1]), first)

    def test_an_agent_that_is_asked_to_end_tells_its_programs(self) -> None:
        agent, leads, waits = self.pair(lease="60s")
        agent.signal(signal.SIGTERM)
        self.assertEqual(leads.expect("lost")[2], "withdrawn")
        waits.expect("start")
        agent.process.wait(PATIENCE_S)
        self.site.agent("a", "60s")
        self.site.waits("a", "one")


class Pauses(AgentTest):
    def test_a_frozen_agent_costs_its_program_the_leadership(self) -> None:
        agent, leads, waits = self.pair()
        agent.freeze()
        self.assertEqual(leads.expect("lost")[2], "silent")
        waits.expect("start")
        agent.thaw()
        self.site.waits("a", "one")
        waits.signal(signal.SIGTERM)
        leads.expect("start")

    def test_a_frozen_program_loses_the_leadership(self) -> None:
        _, leads, waits = self.pair()
        leads.freeze()
        waits.expect("start")
        leads.thaw()
        leads.expect("stop")
        self.site.waits("a", "one")
        waits.signal(signal.SIGTERM)
        leads.expect("start")


class Asking(AgentTest):
    has_witness = False

    def test_holds_orders_and_statuses(self) -> None:
        self.site.agent("a", "60s")
        path = self.site.socket("a")
        with primacy.campaign("billing", name="web-1", data="here", socket=path) as candidate:
            with candidate.elected(PATIENCE_S) as leadership:
                (hold,) = primacy.holds(socket=path)
                self.assertEqual((hold["pid"], hold["token"]), (os.getpid(), leadership.token))
                self.assertEqual((hold["election"], hold["standing"]), ("billing", "leads"))
                self.assertGreater(hold["deadline_ns"], now_ns())
                with primacy.observe("billing", socket=path) as observation:
                    status = observation.next(PATIENCE_S)
                    leader = status["leader"]
                    self.assertEqual((leader["label"], leader["data"]), ("web-1", "here"))
                    self.assertEqual(status["token"], leadership.token)
                    outcome = primacy.pause("billing", socket=path)
                    self.assertEqual(outcome["result"], "written")
                    while not status["paused"]:
                        status = observation.next(PATIENCE_S)
                _, printed = self.site.command("status", "--json")
                self.assertTrue(json.loads(printed)["paused"])
                primacy.resume("billing", socket=path)
                with self.assertRaises(primacy.RefusedError) as caught:
                    primacy.depose("billing", socket=path)
                self.assertEqual(caught.exception.code, "refused")
                with primacy.campaign("billing", name="web-2", socket=path):
                    self.site.waits("a", "web-2")
                    with self.assertRaises(primacy.RefusedError):
                        primacy.promote("billing", "web-2", token=99, socket=path)
                    primacy.promote("billing", "web-2", token=leadership.token, socket=path)
                    self.assertEqual(leadership.wait_lost(PATIENCE_S), "promoted")

    def test_what_the_agent_refuses_is_raised(self) -> None:
        self.site.agent("a")
        with primacy.campaign("", socket=self.site.socket("a")) as candidate:
            with self.assertRaises(primacy.RefusedError) as caught:
                candidate.elected(PATIENCE_S)
            self.assertEqual(caught.exception.code, "malformed")

    def test_programs_with_asyncio(self) -> None:
        async def program() -> None:
            path = self.site.socket("a")
            async with aio.lead("billing", name="web-1", socket=path) as first:
                async with aio.campaign("billing", name="web-2", socket=path) as candidate:
                    async with aio.observe("billing", socket=path) as observation:
                        async for status in observation:
                            if status["candidates"]:
                                break
                    await aio.order("billing", "depose", token=first.token, socket=path)
                    self.assertEqual(await first.wait_lost(), "deposed")
                    await first.resign()
                    async with await candidate.elected() as second:
                        self.assertGreater(second.token, first.token)
                        self.assertEqual(len(await aio.holds(socket=path)), 2)

        self.site.agent("a", "60s")
        asyncio.run(asyncio.wait_for(program(), PATIENCE_S))
