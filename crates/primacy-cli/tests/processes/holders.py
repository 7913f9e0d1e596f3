"""A program that holds many leaderships through an agent, and tells each that it gets in a line of a witness.

usage: holders.py SOCKET    with a JSON list of holds on standard input: {"election": ..., "name": ..., "data": ...}
"""

import json
import os
import selectors
import socket
import sys
import time

holds = json.load(sys.stdin)
selector = selectors.DefaultSelector()
inboxes = {}


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def send(link, frame):
    link.sendall(json.dumps(frame).encode() + b"\n")


for hold in holds:
    link = socket.socket(socket.AF_UNIX)
    link.connect(sys.argv[1])
    selector.register(link, selectors.EVENT_READ, hold)
    inboxes[link] = b""

while True:
    for key, _ in selector.select():
        link, hold = key.fileobj, key.data
        more = link.recv(65536)
        if not more:
            sys.exit(f"the agent has hung up on {hold}")
        *lines, inboxes[link] = (inboxes[link] + more).split(b"\n")
        for line in lines:
            frame = json.loads(line)
            if frame["type"] == "agent":
                send(link, {"type": "hold", "protocol": 1, "now_ns": now(), "proof": "process", **hold})
            elif frame["type"] == "refused":
                sys.exit(frame["why"])
            elif frame["type"] == "elected":
                os.write(1, f"elected 0 {os.getpid()} holders {now()}\n".encode())
            if "n" in frame:
                send(link, {"type": "read", "n": frame["n"]})
