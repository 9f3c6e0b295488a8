"""Fleets in virtual time, with the protocol's own code: Tests/SharingTests runs them, and this makes a table of it."""

import os
import re
import subprocess
from dataclasses import dataclass

from rows import Row
from systems import ROOT

COUNTS = (8, 100, 1000)
# Names of the test's cases, and what they are.
CASES = {
    "at once": "cold, all within 0.5 s",
    "cold": "cold, within a minute",
    "a kill each 5 s": "a node killed each 5 s",
    "half cut off": "half of the nodes cut off from the store for 10 s",
}
LINE = re.compile(r"(?P<case>[\w ]+), MEDIAFS_SEED=(?P<seed>\d+): (?P<nodes>\d+) nodes: "
                  r"origin (?P<origin>[\d.]+) x .*?longest wait (?P<wait>[\d.]+) s .*?(?P<requests>[\d.]+) requests/GiB/node, "
                  r"hottest key (?P<hottest>\d+)/s .*?store (?P<store>\d+)/s")
MOST = 5500  # requests a second that S3 answers for a prefix
ORIGIN = 1.05


@dataclass
class Run:
    """A line that the test prints."""
    case: str
    seed: int
    nodes: int
    origin: float
    wait: float
    requests: float
    hottest: int
    store: int


def fleet_simulated(results, repetition):
    """Runs the simulation and adds its table to the remarks."""
    del repetition
    done = subprocess.run(
        [os.environ.get("SWIFT", "swift"), "test", "--skip-build", "--filter", "SimulationTests.manyNodes"], cwd=ROOT,
        env=dict(os.environ, MEDIAFS_FLEET_NODES=",".join(map(str, COUNTS))), capture_output=True, text=True,
        timeout=400)
    found = [Run(**{name: Run.__annotations__[name](value) for name, value in match.groupdict().items()})
             for match in LINE.finditer(done.stdout)]
    if done.returncode != 0 or len(found) != len(COUNTS) * len(CASES):
        raise RuntimeError("the simulation fails (swift build --build-tests makes it): "
                           f"{done.stdout[-1000:]}{done.stderr[-1000:]}")
    # Up to 100 nodes the test has the cold start twice, both within half a second.
    found = [run for run in found if run.case != "cold" or run.nodes > 100]
    for run in found:
        if run.nodes == COUNTS[0] and run.case == "at once":
            results.add("simulated-bytes", "mediafs", run.origin)
    results.remarks.append(table(sorted(found, key=lambda run: run.nodes)))


def table(found):
    names = ["nodes", "case", "bytes from the origin / list", "longest wait", "requests a GiB and node", "hottest key",
             "store"]
    lines = ["In virtual time, with the code that the mounts run (SimulationTests.manyNodes, "
             f"MEDIAFS_SEED={found[0].seed}): 8 files of 64 blocks of 4 MiB, an origin of 40 MiB/s in all, 2 ms to the "
             "store. A killed node comes back empty.", "", f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for case, words in CASES.items():
        for run in found:
            if run.case == case:
                times = f"**{run.origin:.3f}**" if run.origin > ORIGIN else f"{run.origin:.3f}"
                lines.append(f"| {run.nodes:,} | {words} | {times} | {run.wait:.1f} s | {run.requests:.0f} | "
                             f"{run.hottest:,}/s | {run.store:,}/s |")
    return "\n".join([*lines, "", *(f"- {words}: {where_it_breaks([run for run in found if run.case == case])}"
                                    for case, words in CASES.items())])


def where_it_breaks(runs):
    """At which of the counts the origin or a key gets too much, or where that is to be expected."""
    for run in runs:
        if run.origin > ORIGIN:
            return f"at {run.nodes:,} nodes the origin sends more than {ORIGIN} times the list."
        if run.hottest > MOST:
            return f"at {run.nodes:,} nodes a key gets more than {MOST:,} requests a second."
    nodes = round(runs[-1].nodes * MOST / max(runs[-1].hottest, 1), -2)
    return (f"holds at {runs[-1].nodes:,} nodes. As its hottest key grows, that gets {MOST:,} requests a second, what "
            f"S3 gives a prefix, near {nodes:,.0f} nodes.")


ROWS = [
    Row("simulated-bytes", f"{COUNTS[0]} nodes in virtual time, cold: bytes from the origin / list", "", goal=1.02, absolute=True,
        measure=fleet_simulated, how="The table below has more nodes and what befalls them."),
]
