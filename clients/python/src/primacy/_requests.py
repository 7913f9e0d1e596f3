"""What a program asks its agent for."""

from __future__ import annotations

from typing import Literal, Optional

from ._wire import DATA_BYTES_MAX, PROTOCOL, Frame

Proof = Literal["none", "process", "cgroup"]
Order = Literal["promote", "depose", "pause", "resume"]


def hold_request(
    election: str, name: Optional[str], data: Optional[str], proof: Proof
) -> Frame:
    """All of it but `now_ns`, which is read when it is sent. Raises `ValueError`."""
    if data is not None and len(data.encode()) > DATA_BYTES_MAX:
        raise ValueError(f"data has at most {DATA_BYTES_MAX} bytes")
    request: Frame = {"type": "hold", "protocol": PROTOCOL, "election": election, "proof": proof}
    if name is not None:
        request["name"] = name
    if data is not None:
        request["data"] = data
    return request


def observe_request(election: str) -> Frame:
    """To be told how an election stands."""
    return {"type": "observe", "protocol": PROTOCOL, "election": election}


def order_request(
    election: str, order: Order, candidate: Optional[str], token: Optional[int]
) -> Frame:
    """To change who leads. Raises `ValueError`."""
    if (order == "promote") != (candidate is not None):
        raise ValueError("a candidate belongs to the order promote, and to no other")
    request: Frame = {"type": "order", "protocol": PROTOCOL, "election": election, "order": order}
    if candidate is not None:
        request["candidate"] = candidate
    if token is not None:
        request["token"] = str(token)
    return request


def list_request() -> Frame:
    """To be told what the agent holds."""
    return {"type": "list", "protocol": PROTOCOL}
