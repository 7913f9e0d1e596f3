"""The asyncio side, against an agent that the tests play on threads."""

from __future__ import annotations

import asyncio
import threading
import unittest
from typing import Any, Callable, Dict, List, Tuple, TypeVar

import primacy
from fake_agent import PATIENCE_S, FakeAgent, Peer, ahead_ns
from primacy import aio
from primacy._wire import BackOff

T = TypeVar("T")


async def played(act: Callable[[], T]) -> T:
    """What the agent does, which waits for the program."""
    return await asyncio.to_thread(act)


async def soon(wanted: Any) -> Any:
    """The result of what is to happen."""
    return await asyncio.wait_for(wanted, PATIENCE_S)


class AioTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.agent = FakeAgent()
        self.addCleanup(self.agent.__exit__, None, None, None)

    def campaign(self, **options: Any) -> aio.Candidate:
        return aio.campaign("billing", socket=self.agent.path, **options)

    async def led(self, candidate: aio.Candidate) -> Tuple[Peer, aio.Leadership]:
        """It leads with token 7 for long."""
        peer = await played(self.agent.held)
        await played(lambda: peer.elect(7))
        return peer, await soon(candidate.elected())

    async def test_leaving_the_block_gives_the_leadership_back(self) -> None:
        async with self.campaign() as candidate:
            peer, leadership = await self.led(candidate)
            async with leadership:
                self.assertTrue(leadership.is_current())
                self.assertFalse(leadership.lost)
            await played(lambda: peer.expect_stopped(7))
            self.assertEqual(await soon(leadership.wait_lost()), "resigned")
        await played(peer.expect_end)

    async def test_lead_does_all_of_it(self) -> None:
        async def program() -> int:
            async with aio.lead("billing", socket=self.agent.path) as leadership:
                return leadership.token

        task = asyncio.ensure_future(program())
        peer = await played(self.agent.held)
        await played(lambda: peer.elect(7))
        self.assertEqual(await soon(task), 7)
        await played(lambda: peer.expect_stopped(7))
        await played(peer.expect_end)

    async def test_a_loss_is_told_to_all_who_wait(self) -> None:
        losses: List[Tuple[aio.Leadership, str]] = []
        told = asyncio.Event()

        def on_lost(leadership: aio.Leadership, reason: str) -> None:
            losses.append((leadership, reason))
            told.set()

        async with self.campaign(on_lost=on_lost) as candidate:
            peer, leadership = await self.led(candidate)
            waits = [asyncio.ensure_future(leadership.wait_lost()) for _ in range(2)]
            await played(lambda: peer.told(
                "draining", token="7", reason="deposed", why="", by_ns=ahead_ns(60)))
            self.assertEqual(await soon(asyncio.gather(*waits)), ["deposed", "deposed"])
            await soon(told.wait())
            await played(lambda: peer.told("lost", token="7", reason="expired", why=""))
            await leadership.resign()
            await played(lambda: peer.expect_stopped(7))
            self.assertEqual(losses, [(leadership, "deposed")])

    async def test_a_silent_agent_ends_it_at_stop(self) -> None:
        async with self.campaign() as candidate:
            peer, leadership = await self.led(candidate)
            async with leadership:
                await played(lambda: peer.extend(7, stop_s=0.1, deadline_s=0.2))
                self.assertEqual(await soon(leadership.wait_lost()), "silent")
            await played(lambda: peer.expect_stopped(7))

    async def test_frames_are_answered_while_the_loop_is_blocked(self) -> None:
        async with self.campaign() as candidate:
            peer, leadership = await self.led(candidate)

            def extend() -> None:
                for _ in range(20):
                    peer.extend(7)

            agent = threading.Thread(target=extend)
            agent.start()
            agent.join(PATIENCE_S)  # This blocks the loop.
            self.assertFalse(agent.is_alive())
            self.assertTrue(leadership.is_current())

    async def test_a_wait_that_was_cancelled_takes_nothing(self) -> None:
        async with self.campaign() as candidate:
            peer = await played(self.agent.held)
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(candidate.elected(), 0.05)
            await played(lambda: peer.elect(7))
            self.assertEqual((await soon(candidate.elected())).token, 7)

    async def test_the_next_is_handed_out_after_the_one_before_was_left(self) -> None:
        async with self.campaign() as candidate:
            peer, first = await self.led(candidate)
            await played(peer.close)
            again = await played(self.agent.held)
            await played(lambda: again.elect(8))
            waits = asyncio.ensure_future(candidate.elected())
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(waits), 0.05)
            await first.resign()
            self.assertEqual((await soon(waits)).token, 8)

    async def test_refusals_and_close_are_raised(self) -> None:
        async with self.campaign() as candidate:
            peer = await played(self.agent.accept)
            await played(lambda: peer.greet("hold"))
            await played(lambda: peer.send("refused", code="proof", why="none here"))
            with self.assertRaises(primacy.RefusedError):
                await soon(candidate.elected())
        candidate = self.campaign()
        waits = asyncio.ensure_future(candidate.elected())
        await played(self.agent.held)
        await candidate.close()
        with self.assertRaises(primacy.ClosedError):
            await soon(waits)

    async def test_statuses_are_told_and_it_goes_on_with_the_next_agent(self) -> None:
        async with aio.observe("billing", socket=self.agent.path) as observation:
            for token in (1, 2):
                wanted = asyncio.ensure_future(observation.__anext__())
                peer = await played(self.agent.accept)
                await played(lambda: peer.greet("observe"))
                await played(lambda: peer.told("seen", status={"token": token}))
                self.assertEqual(await soon(wanted), {"token": token})
                self.assertIsNone(observation.trouble)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(observation.__anext__(), 0.05)
                wanted = asyncio.ensure_future(observation.__anext__())
                await played(lambda: peer.told("seen", status={"token": token + 10}))
                self.assertEqual(await soon(wanted), {"token": token + 10})
                await played(peer.close)
            wanted = asyncio.ensure_future(observation.__anext__())
            peer = await played(self.agent.accept)
            await played(lambda: peer.greet("observe"))
            await played(lambda: peer.send("refused", code="not-allowed", why=""))
            with self.assertRaises(primacy.RefusedError):
                await soon(wanted)

    async def test_attempts_back_off_until_one_has_seen_something(self) -> None:
        async with aio.observe("billing", socket=self.agent.path) as observation:
            wanted = asyncio.ensure_future(observation.__anext__())
            for _ in range(3):
                peer = await played(self.agent.accept)
                await played(lambda: peer.greet("observe"))
                await played(lambda: peer.send("refused", code="unavailable", why="no store"))
                await played(peer.expect_end)
            peer = await played(self.agent.accept)
            await played(lambda: peer.greet("observe"))
            self.assertIn("no store", observation.trouble or "")
            self.assertGreaterEqual(observation._back_off.next_s(), BackOff.FIRST_S * 4)
            await played(lambda: peer.told("seen", status={"token": 1}))
            self.assertEqual(await soon(wanted), {"token": 1})
            self.assertIsNone(observation.trouble)
            self.assertLessEqual(observation._back_off.next_s(), BackOff.FIRST_S)

    async def test_without_an_agent_it_waits(self) -> None:
        self.agent.end()
        async with aio.observe("billing", socket=self.agent.path) as observation:
            wanted = asyncio.ensure_future(observation.__anext__())
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(wanted), 1.0)
            self.assertIn("no agent", observation.trouble or "")
            self.agent.listen()
            peer = await played(self.agent.accept)
            await played(lambda: peer.greet("observe"))
            await played(lambda: peer.told("seen", status={"token": 1}))
            self.assertEqual(await soon(wanted), {"token": 1})

    async def test_what_an_agent_has_said_that_has_gone_is_not_told(self) -> None:
        async with aio.observe("billing", socket=self.agent.path) as observation:
            wanted = asyncio.ensure_future(observation.__anext__())
            first = await played(self.agent.accept)
            await played(lambda: first.greet("observe"))
            first.tell("seen", status={"token": 1})
            first.close()
            second = await played(self.agent.accept)
            await played(lambda: second.greet("observe"))
            for token in (2, 3):
                second.tell("seen", status={"token": token})
            seen = await soon(wanted)
            while seen != {"token": 3}:
                seen = await soon(observation.__anext__())

    async def test_a_closed_observation_ends(self) -> None:
        observation = aio.observe("billing", socket=self.agent.path)

        statuses: "asyncio.Queue[Any]" = asyncio.Queue()

        async def read_all() -> None:
            async for status in observation:
                statuses.put_nowait(status)

        wanted = asyncio.ensure_future(read_all())
        peer = await played(self.agent.accept)
        await played(lambda: peer.greet("observe"))
        await played(lambda: peer.told("seen", status={"token": 1}))
        self.assertEqual(await soon(statuses.get()), {"token": 1})
        await observation.close()
        await soon(wanted)
        self.assertTrue(statuses.empty())

    async def test_orders_and_holds(self) -> None:
        path = self.agent.path
        orders: List[Tuple[Any, Dict[str, str]]] = [
            (
                aio.promote("billing", "web-2", token=7, socket=path),
                {"order": "promote", "candidate": "web-2", "token": "7"},
            ),
            (aio.depose("billing", token=7, socket=path), {"order": "depose", "token": "7"}),
            (aio.pause("billing", socket=path), {"order": "pause"}),
            (aio.resume("billing", socket=path), {"order": "resume"}),
        ]
        for give, expected in orders:
            wanted = asyncio.ensure_future(give)
            peer = await played(self.agent.accept)
            request = await played(lambda: peer.greet("order"))
            self.assertEqual({**request, **expected}, request)
            await played(lambda: peer.send("ordered", outcome={"result": "written"}))
            self.assertEqual(await soon(wanted), {"result": "written"})
        listed = asyncio.ensure_future(aio.holds(socket=path))
        peer = await played(self.agent.accept)
        await played(lambda: peer.greet("list"))
        await played(lambda: peer.send("holds", holds=[]))
        self.assertEqual(await soon(listed), [])
