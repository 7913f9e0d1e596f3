"""Leader election for Python programs, through the agent of primacy on their host.

    import primacy

    with primacy.lead("billing") as leadership:
        while not leadership.wait_lost(1.0):
            work(leadership.token)

`primacy.aio` has the same for asyncio.
"""

from ._asking import Observation, Status, depose, holds, observe, order, pause, promote, resume
from ._engine import Standing
from ._errors import AgentError, ClosedError, PrimacyError, RefusedError
from ._requests import Order, Proof
from ._sync import Candidate, Leadership, campaign, lead

__version__ = "0.1.0"

__all__ = [
    "AgentError",
    "Candidate",
    "ClosedError",
    "Leadership",
    "Observation",
    "Order",
    "PrimacyError",
    "Proof",
    "RefusedError",
    "Standing",
    "Status",
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
