"""Lines with real TCP between two network namespaces: Tests/test-line, as a process for one measurement."""

import os
import subprocess
from dataclasses import dataclass

from systems import BUILT, end_process

TRIP = 0.06
RATE = 4e6


class NoLine(Exception):
    """This machine has no such line: why."""


@dataclass(frozen=True)
class Path:
    """What lies between a client and a server."""
    http2: bool
    congestion: str
    trips: int  # what the router's queue holds, in round trips
    loss: float

    def __str__(self):
        return (f"{'HTTP/2' if self.http2 else 'HTTP/1.1'}, {self.congestion}, queue {self.trips}"
                + (f", loss {self.loss:.1%}" if self.loss else ""))


class Line:
    """A command behind `in_server` or `in_client` runs at that end of the line."""
    SERVER = "10.9.0.1"

    def __init__(self, path):
        words = [os.path.join(BUILT, "test-line"), str(TRIP * 1000), str(RATE), str(RATE * TRIP * path.trips),
                 str(path.loss), path.congestion]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        ready = self.process.stdout.readline().split()
        if not ready:
            raise NoLine(self.process.communicate()[1].strip())
        self.in_server, self.in_client = (["nsenter", f"--net={network}"] for network in ready[1:])

    def counts(self):
        """What the line has counted: bytes `queued` now and at `most` since the last call; packets."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        return {name: int(value) for name, value in zip(words[::2], words[1::2])}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end_process(self.process)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
