"""What a forked child must not use: connections of its parent.

A child that kept one open could say `stopped` while its parent works. So the child closes its
copies of the descriptors, which leaves the connections to the parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Inherited(Protocol):
    """Has descriptors that a forked child is to close."""

    def forget(self) -> None:
        """Closes the child's copies. No other thread is there, and no lock can be relied on."""


#: Held while a descriptor is made and noted, so that no child is forked in between.
GATE = threading.RLock()

_inherited: "weakref.WeakSet[Inherited]" = weakref.WeakSet()


def forget_in_children(thing: Inherited) -> None:
    """From now on a forked child calls `thing.forget()`."""
    with GATE:
        _inherited.add(thing)


def _in_child() -> None:
    try:
        for thing in list(_inherited):
            thing.forget()
    finally:
        GATE.release()


os.register_at_fork(
    before=GATE.acquire, after_in_parent=GATE.release, after_in_child=_in_child
)
