"""A program that leads, and a witness of it.

usage: leader.py SOCKET ELECTION NAME PROOF WITNESS

It says on standard output what happens, a line each: `start TOKEN NOW`, `extended TOKEN
DEADLINE`, `lost TOKEN REASON`, `stop TOKEN`. Into the file WITNESS it writes `NAME TOKEN NOW` each
time that it believes in its leadership, where NOW was read before it asked. SIGTERM ends it in good
order. Points in time are nanoseconds of CLOCK_BOOTTIME.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import primacy

#: Between two looks, so that it leaves the processor to others.
REST_S = 0.004


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def tell(*words: object) -> None:
    print(*words, flush=True)


def main(socket: str, election: str, name: str, proof: primacy.Proof, witness: str) -> None:
    log = os.open(witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    candidate = primacy.campaign(election, name=name, proof=proof, socket=socket)

    def work(leadership: primacy.Leadership) -> bool:
        """One piece of work, if it may be done."""
        before_ns = now_ns()
        if not leadership.is_current():
            return False
        os.write(log, f"{name} {leadership.token} {before_ns}\n".encode())
        return True

    def deadline_ns(leadership: primacy.Leadership) -> int:
        """At most its deadline, since the clock is read before."""
        return now_ns() + int(leadership.remaining() * 1e9)

    signal.signal(signal.SIGTERM, lambda *_: candidate.close())
    tell("ready")
    with contextlib.suppress(primacy.ClosedError):
        while True:
            with candidate.elected() as leadership:
                tell("start", leadership.token, now_ns())
                told_ns = deadline_ns(leadership)
                while work(leadership) and not leadership.wait_lost(REST_S):
                    if deadline_ns(leadership) > told_ns + 10**8:
                        told_ns = deadline_ns(leadership)
                        tell("extended", leadership.token, told_ns)
                tell("lost", leadership.token, leadership.wait_lost())
                tell("stop", leadership.token)
    tell("end")


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
