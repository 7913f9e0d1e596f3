#!/usr/bin/python3
"""A service that works where it leads: started by `primacy run`, or as a client of an agent. It says so on its output."""

import os
import signal
import sys
import threading

sys.path.insert(0, "/srv")
asked = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: asked.set())


def say(*words):
    print(*words, flush=True)


if "PRIMACY_AGENT" not in os.environ:
    say("works", os.environ["PRIMACY_TOKEN"])
    asked.wait()
    say("stops")
    sys.exit(0)

import primacy  # noqa: E402: it is there with an agent alone

folder = os.path.dirname(os.path.dirname(os.environ["PRIMACY_AGENT"]))
for place in (folder, os.path.dirname(os.environ["PRIMACY_AGENT"])):
    try:
        os.mkdir(os.path.join(place, "another"))
        say("could put another socket into", place)
        sys.exit(1)
    except OSError as error:
        say("refused:", error.strerror)
threading.Thread(target=lambda: (asked.wait(), os._exit(0)), daemon=True).start()
while True:
    with primacy.lead("billing", name=os.uname().nodename, proof="process") as leadership:
        say("works", leadership.token)
        leadership.wait_lost() if hasattr(leadership, "wait_lost") else asked.wait()
        say("stops")
