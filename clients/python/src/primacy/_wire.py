"""Frames of the agent's socket: how they are written, read and checked, and where the socket is."""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any, Callable, Dict, Iterator, Optional, Union

from ._errors import MalformedFrame

Frame = Dict[str, Any]
SocketPath = Union[str, "os.PathLike[str]"]

PROTOCOL = 1
#: What a frame of a program has at most, with the newline at its end.
FRAME_BYTES_MAX = 16 * 1024
#: What a frame of an agent has at most.
ANSWER_BYTES_MAX = 4 * 1024 * 1024
#: Within this time the agent speaks first.
GREETING_NS = 5 * 10**9
DATA_BYTES_MAX = 1024


def boottime_ns() -> int:
    """Nanoseconds of the host's clock `CLOCK_BOOTTIME`, which goes on while the host sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def agent_path(given: Optional[SocketPath]) -> str:
    """Where the agent's socket is: as given, as the environment says, or where it is by default."""
    if given is not None:
        return os.fspath(given)
    named = os.environ.get("PRIMACY_AGENT")
    if named:
        return named
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _is_own(runtime):
        path = os.path.join(runtime, "primacy", "agent.sock")
        if os.path.exists(path) and _is_own(os.path.dirname(path)):
            return path
    return "/run/primacy/agent.sock"


def _is_own(folder: str) -> bool:
    """Whether a folder is this user's, and no other may write to it.

    In another's, as after `sudo -E`, or in one for all, as `/tmp`, anybody could be the agent.
    """
    try:
        found = os.stat(folder)
    except OSError:
        return False
    return found.st_uid == os.geteuid() and found.st_mode & 0o022 == 0


def encode(frame: Frame) -> bytes:
    """A frame as it is sent. Raises `ValueError` if it is too long, or is not text."""
    line = json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    if len(line) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame has at most {FRAME_BYTES_MAX} bytes, and this has {len(line)}")
    return line


class FrameReader:
    """Cuts what is received into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that end in `data`. Raises `MalformedFrame` after those before it."""
        seen = len(self._rest)
        self._rest += data
        while True:
            end = self._rest.find(b"\n", seen)
            if max(end, len(self._rest) if end < 0 else 0) >= ANSWER_BYTES_MAX:
                raise MalformedFrame(f"a frame of the agent has more than {ANSWER_BYTES_MAX} bytes")
            if end < 0:
                return
            line, seen = bytes(self._rest[:end]), 0
            del self._rest[: end + 1]
            yield decode(line)


def decode(line: bytes) -> Frame:
    """The frame on a line, without the newline."""
    try:
        frame = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedFrame(f"the agent has sent what is no JSON: {error}") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise MalformedFrame("the agent has sent what is no object with a type")
    return frame


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def integer(frame: Frame, field: str) -> int:
    """A whole number of a frame."""
    value = frame.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedFrame(f"{field} of a frame {frame['type']} is no whole number")
    return value


def text(frame: Frame, field: str) -> str:
    """A text of a frame; what is left out is empty."""
    value = frame.get(field, "")
    if not isinstance(value, str):
        raise MalformedFrame(f"{field} of a frame {frame['type']} is no text")
    return value


def token(frame: Frame) -> int:
    """The token of a frame."""
    digits = text(frame, "token")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise MalformedFrame(f"the token of a frame {frame['type']} is no number in digits")
    return int(digits)


class BackOff:
    """How long to wait before the next attempt: from 50 ms, doubling, to 1 s, less some jitter."""

    FIRST_S = 0.05
    LAST_S = 1.0

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._next_s = self.FIRST_S

    def reset(self) -> None:
        """Something has worked."""
        self._next_s = self.FIRST_S

    def next_s(self) -> float:
        """Seconds until the next attempt, between half of what it is at most and all of it."""
        delay = self._next_s * (0.5 + 0.5 * self._jitter())
        self._next_s = min(self.LAST_S, self._next_s * 2)
        return delay
