"""What goes wrong between a program and its agent."""

from __future__ import annotations

#: Refusals after which it is of use to ask again later.
PASSING_CODES = frozenset({"busy", "ending", "unavailable"})


class PrimacyError(Exception):
    """Any error of this package, but for wrong arguments and time that has run out."""


class RefusedError(PrimacyError):
    """The agent refuses what it was asked for. Nothing was changed."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(code, why)
        #: One of the words of the protocol, such as `not-allowed`.
        self.code = code
        #: A sentence for people.
        self.why = why

    def __str__(self) -> str:
        return f"{self.why} ({self.code})"

    @property
    def passes(self) -> bool:
        """Whether it is of use to ask again later."""
        return self.code in PASSING_CODES


class AgentError(PrimacyError):
    """No agent was reached, or it has not answered as it should."""

    def __init__(self, why: str, *, is_sent: bool = False) -> None:
        super().__init__(why)
        #: Whether the request was sent: if so, an order may have been carried out.
        self.is_sent = is_sent


class ClosedError(PrimacyError):
    """The candidate was closed, or belongs to the process that this one was forked from."""


class MalformedFrame(ValueError):
    """The agent has sent what is no frame. It ends the connection, and no caller sees it."""
