"""Hosts with real agents, programs that lead through them, and what their witness tells."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

import primacy

#: How long an event may take on a busy machine.
PATIENCE_S = 20.0
#: Between two attempts to see what tells of no event.
LOOK_S = 0.01
SOURCE = os.path.dirname(os.path.dirname(primacy.__file__))
HERE = os.path.dirname(__file__)


class Process:
    """A process that a test has started. It ends with the test."""

    def __init__(self, command: List[str], environment: Dict[str, str], log: str) -> None:
        self.log = log
        self._lines: "queue.Queue[List[str]]" = queue.Queue()
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.split())
        self._lines.put(["(its output has ended)"])

    def expect(self, word: str, within_s: float = PATIENCE_S) -> List[str]:
        """The next line of its output that begins with this word; others are passed over."""
        until = time.monotonic() + within_s
        seen: List[List[str]] = []
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line '{word}', but {seen}: {self.told()}") from None
            if line[0] == word:
                return line
            seen.append(line)
            assert line[0][0] != "(", f"no line '{word}', but {seen}: {self.told()}"

    def told(self) -> str:
        """What it has written to standard error."""
        with open(self.log, encoding="utf-8", errors="replace") as errors:
            return errors.read()

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def freeze(self) -> None:
        """Stops it, and returns when it stands still.

        One that stood still in a transaction of SQLite would keep all others from the store, and nobody could lead. It goes on a
        little then.
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            self.signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED)
            if not self._has_write_lock():
                return
            assert time.monotonic() < until, "it does not stand still without a lock"
            self.thaw()
            time.sleep(LOOK_S)

    def _has_write_lock(self) -> bool:
        # As "1: POSIX  ADVISORY  WRITE 4711 fe:01:1234 120 120".
        with open("/proc/locks", encoding="ascii") as locks:
            words = [line.split() for line in locks]
        return any(
            word[1] == "POSIX" and "WRITE" in word and str(self.process.pid) in word for word in words if len(word) > 4
        )

    def thaw(self) -> None:
        """Lets it go on."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills it, and returns when it is dead."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Belief(NamedTuple):
    """From when until when a program has believed in a leadership."""

    name: str
    token: int
    first_ns: int
    last_ns: int


class Site:
    """Hosts that share a store, and the file of their witness."""

    def __init__(self, binary: str, folder: str, stack: contextlib.ExitStack) -> None:
        self._binary = binary
        self._folder = folder
        self._stack = stack
        self._environment = {"PRIMACY_STORE": f"sqlite:{folder}/primacy.db", "PYTHONPATH": SOURCE}
        self.witness = os.path.join(folder, "witness")

    def socket(self, host: str) -> str:
        """Where the agent of a host is."""
        return os.path.join(self._folder, f"{host}.sock")

    def agent(self, host: str, lease: str = "4s") -> Process:
        """Starts the agent of a host, and returns when it takes connections."""
        path = self.socket(host)
        command = [self._binary, "agent", "--socket", path, "--name", host, "--lease", lease]
        agent = self._start(command, f"agent-{host}")
        until = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
                try:
                    probe.connect(path)
                    return agent
                except OSError:
                    assert agent.process.poll() is None, f"the agent ended: {agent.told()}"
                    assert time.monotonic() < until, f"the agent is not ready: {agent.told()}"
            time.sleep(LOOK_S)

    def program(self, host: str, name: str, proof: str = "none") -> Process:
        """Starts a program on a host."""
        command = [sys.executable, os.path.join(HERE, "leader.py"), self.socket(host), "billing"]
        program = self._start([*command, name, proof, self.witness], f"program-{name}")
        program.expect("ready")
        return program

    def waits(self, host: str, name: str) -> None:
        """Returns when the program with this name waits for the leadership of another."""
        with primacy.observe("billing", socket=self.socket(host)) as observation:
            while True:
                status = observation.next(PATIENCE_S)
                if name in [candidate["label"] for candidate in status["candidates"]]:
                    return

    def command(self, *words: str) -> Tuple[int, str]:
        """Runs a command of primacy, and returns its exit code and output."""
        command = [self._binary, *words, "--election", "billing"]
        done = subprocess.run(
            command,
            check=False,
            env={**os.environ, **self._environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.returncode, done.stdout

    def _start(self, command: List[str], log: str) -> Process:
        process = Process(command, self._environment, os.path.join(self._folder, log))
        self._stack.callback(process.kill)
        return process


def beliefs(witness: str) -> List[Belief]:
    """What a witness tells, by tokens."""
    spans: Dict[Tuple[str, int], Tuple[int, int]] = {}
    with open(witness, encoding="ascii") as lines:
        for line in lines:
            name, token, at = line.split()
            key, at_ns = (name, int(token)), int(at)
            first_ns, last_ns = spans.get(key, (at_ns, at_ns))
            spans[key] = (min(first_ns, at_ns), max(last_ns, at_ns))
    found = [Belief(name, number, *span) for (name, number), span in spans.items()]
    return sorted(found, key=lambda belief: belief.token)


def overlaps(found: List[Belief]) -> List[Tuple[Belief, Belief]]:
    """Leaderships that two have believed in at a time, or whose tokens do not grow."""
    pairs = zip(found, found[1:])
    return [(a, b) for a, b in pairs if a.token == b.token or a.last_ns >= b.first_ns]


def binary() -> Optional[str]:
    """The command that is to be tested, as an absolute path."""
    path = os.environ.get("PRIMACY")
    return os.path.abspath(path) if path else None
