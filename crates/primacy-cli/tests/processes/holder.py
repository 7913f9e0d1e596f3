"""A program that holds a leadership through an agent, and tells what it sees in the lines of a witness.

usage: holder.py SOCKET ELECTION NAME PROOF [fork] [deaf] [stubborn]

fork: a forked process works on when this one is gone.  deaf: it reads nothing once it leads.
stubborn: it works on when it is told to stop, until its deadline.

Lines about work have its token, and all others have 0.
"""

import json
import os
import socket
import sys
import time

where, election, name, proof, *options = sys.argv[1:]


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def tell(word, token, at=None):
    line = f"{word} {token} {os.getpid()} {name} {at or now()}\n"
    os.write(1, line.encode())


def connect():
    global link, inbox
    link, inbox = socket.socket(socket.AF_UNIX), b""
    link.connect(where)


token, deadline, reads = 0, 0, True
connect()


def send(frame):
    try:
        link.sendall(json.dumps(frame).encode() + b"\n")
    except OSError:
        pass  # its end is read


def frames():
    """What has come, without waiting for more than 2 ms; None at the end of the connection."""
    global inbox
    while b"\n" not in inbox:
        link.settimeout(0.002)
        try:
            more = link.recv(65536)
        except TimeoutError:
            return []
        except OSError:
            return None
        if not more:
            return None
        inbox += more
    lines, _, inbox = inbox.rpartition(b"\n")
    return [json.loads(line) for line in lines.split(b"\n")]


def beat():
    """One piece of work, if it may be done now."""
    at = now()
    if token and at < deadline:
        tell("beat", token, at)
        return True
    return False


def work_alone():
    while beat():
        time.sleep(0.002)


def stop():
    global token
    if token:
        tell("stop", 0)
        send({"type": "stopped", "token": str(token)})
        token = 0


while True:
    came = frames() if reads else []
    if came is None:
        tell("gone", 0)
        work_alone()
        sys.exit(0)
    if not reads:
        time.sleep(0.002)
    for frame in came:
        kind = frame["type"]
        if kind == "agent":
            request = {"type": "hold", "protocol": 1, "election": election, "now_ns": now()}
            send({**request, "name": name, "proof": proof})
        elif kind == "refused" and frame["code"] == "busy":
            # As when this process stood still before it could say what the time is.
            connect()
            break
        elif kind == "refused":
            tell("refused-" + frame["code"], 0)
            sys.exit(1)
        elif kind == "elected":
            token, deadline = int(frame["token"]), frame["deadline_ns"]
            if now() < deadline:
                tell("start", token)
            if "deaf" in options:
                reads = False
            if "fork" in options and os.fork() == 0:
                link.close()
                name += "-fork"
                work_alone()
                os._exit(0)
        elif kind == "extended" and int(frame["token"]) == token:
            deadline = frame["deadline_ns"]
        elif kind == "draining":
            tell("draining", 0)
            if "stubborn" not in options:
                stop()
        elif kind == "lost":
            stop()
        if "n" in frame:
            send({"type": "read", "n": frame["n"]})
    if not beat() and token and reads:
        stop()
