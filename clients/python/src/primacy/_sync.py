"""Candidates and leaderships for programs with threads."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import Callable, Iterator, Optional, Type

from ._driver import Driver
from ._engine import Standing
from ._requests import Proof, hold_request
from ._term import Term, TermView
from ._wire import SocketPath, boottime_ns

OnLost = Callable[["Leadership", str], None]

#: A wait looks at the clock so often at least, since a time-out does not count suspended time.
LOOK_S = 1.0


class Leadership(TermView):
    """The right to act as leader, until its deadline. `Candidate.elected` hands it out.

    Leaving its block, also by an exception, says that **the work has stopped**, and gives the
    leadership back at once. So nothing that works by it may outlive the block: no thread, no child.
    """

    def __init__(self, term: Term, driver: Driver) -> None:
        self._term = term
        self._driver = driver

    def wait_lost(self, timeout: Optional[float] = None) -> Optional[str]:
        """Waits until the work is to stop, and returns why, as `reason` does.

        Returns `None` after `timeout` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._driver.changed:
            while True:
                now_ns = boottime_ns()
                reason = self._term.judge(now_ns)
                if reason is not None:
                    return reason
                wait_s = min(LOOK_S, (self._term.stop_ns - now_ns) / 1e9)
                if until is not None:
                    left_s = until - time.monotonic()
                    if left_s <= 0:
                        return None
                    wait_s = min(wait_s, left_s)
                self._driver.changed.wait(wait_s)

    def resign(self) -> None:
        """Says that the work has stopped, and gives the leadership back; as leaving the block does.

        The candidate goes on behind the others. Calling it again does nothing.
        """
        self._driver.left(self._term)

    def __enter__(self) -> "Leadership":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.resign()


class Candidate:
    """Wants to lead an election, from `campaign` until it is closed.

    It goes on when the agent ends, and asks the next one. All methods may be called by any thread,
    and `close` and `Leadership.resign` by a handler of a signal, too.
    """

    def __init__(self, driver: Driver, on_lost: Optional[OnLost]) -> None:
        self._driver = driver
        self._on_lost = on_lost

    def elected(self, timeout: Optional[float] = None) -> Leadership:
        """Waits until this candidate leads.

        A leadership is handed out only after the one before was left. One that begins while nobody
        waits here is kept for the next call, and one that ends meanwhile is given back.

        Raises `TimeoutError` after `timeout` seconds, `RefusedError` if the agent refuses for good,
        and `ClosedError` if the candidate is closed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._driver.changed:
            while True:
                term = self._driver.take()
                if term is not None:
                    return self._hand_out(term)
                wait_s = None if until is None else until - time.monotonic()
                if wait_s is not None and wait_s <= 0:
                    raise TimeoutError(f"not elected within {timeout} s")
                self._driver.changed.wait(wait_s)

    def _hand_out(self, term: Term) -> Leadership:
        leadership = Leadership(term, self._driver)
        if self._on_lost is not None:
            # It is started now, when a failure to do so is seen, and not when it is needed.
            watch = threading.Thread(
                target=_tell_loss,
                args=(leadership, self._on_lost),
                name="primacy-lost",
                daemon=True,
            )
            try:
                watch.start()
            except BaseException:
                leadership.resign()
                raise
        return leadership

    @property
    def trouble(self) -> Optional[str]:
        """Why this candidate cannot be elected at the moment, for people; `None` if it can.

        For example that no agent is there, or that it has ended.
        """
        return self._driver.engine.trouble

    @property
    def standing(self) -> Optional[Standing]:
        """How it stands while it waits; `None` where that is not known."""
        return self._driver.engine.standing

    def close(self) -> None:
        """Stops being a candidate. Threads that wait in `elected` are told by a `ClosedError`.

        The work of a leadership that was not left is told to stop, and its deadline is not extended
        any more. It is given back when it is left.
        """
        self._driver.close()

    def __enter__(self) -> "Candidate":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


def _tell_loss(leadership: Leadership, on_lost: OnLost) -> None:
    reason = leadership.wait_lost()
    if reason is not None and reason != "resigned":
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
    """Becomes a candidate of `election`, at once and without waiting for the agent.

    - `name`: what people call this candidate; by default the agent's name.
    - `data`: what it publishes, such as its address, up to 1,024 bytes.
    - `proof`: how the agent may know that nothing works for this program any more, when it has not
      said so. `"process"` declares that this process is the only one that works for it; a program
      that forks workers must not declare that. `"cgroup"` declares that all that works for it is in
      the control group of this process. With `"none"` the agent waits until the deadline.
    - `socket`: where the agent is; by default what `PRIMACY_AGENT` says, or the usual place.
    - `on_lost(leadership, reason)`: called once for each leadership that was handed out and whose
      work is to stop, on a thread of its own. It is not called for one that was left before.

    Raises `ValueError` if `data` is too long. What the agent refuses is raised by `elected`.
    """
    driver = Driver(hold_request(election, name, data, proof), socket, _nothing)
    return Candidate(driver, on_lost)


@contextlib.contextmanager
def lead(
    election: str,
    *,
    name: Optional[str] = None,
    data: Optional[str] = None,
    proof: Proof = "none",
    socket: Optional[SocketPath] = None,
    on_lost: Optional[OnLost] = None,
    timeout: Optional[float] = None,
) -> Iterator[Leadership]:
    """Waits until this program leads, runs the block, and gives the leadership back.

    Arguments as of `campaign`, and errors and `timeout` as of `Candidate.elected`.
    """
    with campaign(
        election, name=name, data=data, proof=proof, socket=socket, on_lost=on_lost
    ) as candidate:
        with candidate.elected(timeout) as leadership:
            yield leadership


def _nothing() -> None:
    """Threads that wait are told by the condition."""
