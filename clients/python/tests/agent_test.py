"""What tests against an agent that they play have in common."""

from __future__ import annotations

import queue
import threading
import unittest
from typing import Any, Callable

from fake_agent import FakeAgent


class AgentTest(unittest.TestCase):
    """An agent, and programs that ask it."""

    def setUp(self) -> None:
        self.agent = FakeAgent()
        self.addCleanup(self.agent.__exit__, None, None, None)

    def started(self, work: Callable[[], Any]) -> "queue.Queue[Any]":
        """Where what this returns, or raises, will be."""
        results: "queue.Queue[Any]" = queue.Queue()

        def run() -> None:
            try:
                results.put(work())
            except Exception as error:
                results.put(error)

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        return results
