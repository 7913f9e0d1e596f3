#!/usr/bin/python3
"""A service that works where it leads: started by `primacy run`, or as a client of an agent. It says so on its output."""

import http.server
import os
import signal
import sys
import threading

sys.path.insert(0, "/srv")


def say(*words):
    print(*words, flush=True)


def end(*_):
    say("stops")
    sys.exit(0)


def refused(folder):
    """A program that could write there could put another socket in the place of the agent's."""
    try:
        os.mkdir(os.path.join(folder, "another"))
    except OSError as error:
        say("refused:", error.strerror)
    else:
        sys.exit(f"could write to {folder}")


class Named(http.server.BaseHTTPRequestHandler):
    """Says on which host it is."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.uname().nodename.encode())


signal.signal(signal.SIGTERM, end)
if "PRIMACY_AGENT" not in os.environ:
    say("works", os.environ["PRIMACY_TOKEN"])
    if len(sys.argv) > 2:
        http.server.ThreadingHTTPServer(("", int(sys.argv[2])), Named).serve_forever()
    threading.Event().wait()

import primacy  # noqa: E402: where there is no agent, there is no need of it

agent = os.path.dirname(os.environ["PRIMACY_AGENT"])
refused(agent)
refused(os.path.dirname(agent))
while True:
    with primacy.lead("billing", name=os.uname().nodename, proof="process") as leadership:
        say("works", leadership.token)
        leadership.wait_lost()
