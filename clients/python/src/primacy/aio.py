"""The same for programs with asyncio.

    async with primacy.aio.lead("billing") as leadership:
        ...

The connection is read on a thread of its own, so a task that blocks the event loop does not end a
leadership. Waits may be cancelled: `asyncio.wait_for(candidate.elected(), 10)`.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import AsyncIterator, Callable, Optional, Set, Type

from ._aio_asking import Observation, depose, holds, observe, order, pause, promote, resume
from ._driver import Driver
from ._engine import Standing
from ._requests import Proof, hold_request
from ._term import Term, TermView
from ._wire import Frame, SocketPath, boottime_ns

__all__ = [
    "Candidate",
    "Leadership",
    "Observation",
    "campaign",
    "depose",
    "holds",
    "lead",
    "observe",
    "order",
    "pause",
    "promote",
    "resume",
]

OnLost = Callable[["Leadership", str], None]


class _Bell:
    """Wakes the tasks that wait for a change."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: Set["asyncio.Future[None]"] = set()

    def ring(self) -> None:
        """Something has changed. Any thread may call it."""
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            pass  # The loop is closed: no task waits.

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self) -> None:
        """Returns at the next change, and perhaps without one."""
        change = self._loop.create_future()
        self._waiting.add(change)
        try:
            await change
        finally:
            self._waiting.discard(change)


class Leadership(TermView):
    """The right to act as leader, until its deadline. `Candidate.elected` hands it out.

    Leaving its block, also by an exception, says that **the work has stopped**, and gives the
    leadership back at once. So nothing that works by it may outlive the block: no task, no thread,
    no child.
    """

    def __init__(self, term: Term, driver: Driver, bell: _Bell) -> None:
        self._term = term
        self._driver = driver
        self._bell = bell

    async def wait_lost(self) -> str:
        """Waits until the work is to stop, and returns why, as `reason` does."""
        while True:
            reason = self._term.judge(boottime_ns())
            if reason is not None:
                return reason
            await self._bell.wait()

    async def resign(self) -> None:
        """Says that the work has stopped, and gives the leadership back; as leaving the block does.

        The candidate goes on behind the others. Calling it again does nothing.
        """
        self._driver.left(self._term)

    async def __aenter__(self) -> "Leadership":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.resign()


class Candidate:
    """Wants to lead an election, from `campaign` until it is closed.

    It goes on when the agent ends, and asks the next one. It belongs to the loop that it began in.
    """

    def __init__(
        self, request: Frame, path: Optional[SocketPath], on_lost: Optional[OnLost]
    ) -> None:
        self._bell = _Bell()
        self._driver = Driver(request, path, self._bell.ring)
        self._on_lost = on_lost
        self._watches: Set["asyncio.Task[None]"] = set()

    async def elected(self) -> Leadership:
        """Waits until this candidate leads.

        A leadership is handed out only after the one before was left. One that begins while nobody
        waits here is kept for the next call, and one that ends meanwhile is given back.

        Raises `RefusedError` if the agent refuses for good, and `ClosedError` if the candidate is
        closed.
        """
        while True:
            term = self._driver.take()
            if term is not None:
                leadership = Leadership(term, self._driver, self._bell)
                if self._on_lost is not None:
                    watch = asyncio.ensure_future(_tell_loss(leadership, self._on_lost))
                    self._watches.add(watch)
                    watch.add_done_callback(self._watches.discard)
                return leadership
            await self._bell.wait()

    @property
    def trouble(self) -> Optional[str]:
        """Why this candidate cannot be elected at the moment, for people; `None` if it can."""
        return self._driver.engine.trouble

    @property
    def standing(self) -> Optional[Standing]:
        """How it stands while it waits; `None` where that is not known."""
        return self._driver.engine.standing

    async def close(self) -> None:
        """Stops being a candidate. Tasks that wait in `elected` are told by a `ClosedError`.

        The work of a leadership that was not left is told to stop, and its deadline is not extended
        any more. It is given back when it is left.
        """
        self._driver.close()

    async def __aenter__(self) -> "Candidate":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()


async def _tell_loss(leadership: Leadership, on_lost: OnLost) -> None:
    reason = await leadership.wait_lost()
    if reason != "resigned":
        on_lost(leadership, reason)


def campaign(
    election: str,
    *,
    name: Optional[str] = None,
    data: Optional[str] = None,
    proof: Proof = "none",
    socket: Optional[SocketPath] = None,
    on_lost: Optional[OnLost] = None,
) -> Candidate:
    """Becomes a candidate of `election`, as `primacy.campaign` does. A loop must be running.

    The loop calls `on_lost(leadership, reason)`, so it must not block.
    """
    return Candidate(hold_request(election, name, data, proof), socket, on_lost)


@contextlib.asynccontextmanager
async def lead(
    election: str,
    *,
    name: Optional[str] = None,
    data: Optional[str] = None,
    proof: Proof = "none",
    socket: Optional[SocketPath] = None,
    on_lost: Optional[OnLost] = None,
) -> AsyncIterator[Leadership]:
    """Waits until this program leads, runs the block, and gives the leadership back."""
    async with campaign(
        election, name=name, data=data, proof=proof, socket=socket, on_lost=on_lost
    ) as candidate:
        async with await candidate.elected() as leadership:
            yield leadership
