"""Players beside readers that take all they get: copies, scanners, downloads, and other players."""

import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from play_rows import CHUNK, Player
from rows import Row, systems
from servers import serving
from systems import mounted

BEFORE = 14  # seconds that the others run before the players: their credit is used up
SECONDS = 30
APART = 3  # seconds between the starts of several players
NOTICED = 0.1  # a stall that is shorter is not seen
PATIENCE = 20
CLIPS = 400  # for each scanner


@dataclass(frozen=True)
class Case:
    """What reads over one line."""
    line: float  # bytes a second
    trip: float
    copies: int = 0
    scanners: int = 0
    fetched: int = 0  # files that are downloaded with nobody reading
    rates: tuple = (1e6,)  # of the players, in bytes a second; the last to start jumps

    @property
    def title(self):
        films = ", ".join(f"{rate / 1e6:.1f}" for rate in self.rates)
        others = [f"{count} {name if count == 1 else several}" for count, name, several in (
            (self.copies, "copy", "copies"), (self.scanners, "scanner", "scanners"),
            (self.fetched, "download", "downloads")) if count]
        beside = f" beside {' and '.join(others)}" if others else ""
        return f"Playing {films} MB/s{beside}, {self.line / 1e6:g} MB/s, {self.trip * 1000:.0f} ms"


# Those of 1.15 and of 3.45 MB/s have 15 % more than the players' sum.
CASES = {
    "3-copies-8": Case(8e6, 0.08, copies=3), "3-copies-4": Case(4e6, 0.08, copies=3),
    "30-copies-4": Case(4e6, 0.08, copies=30), "1-copy-1.2": Case(1.2e6, 0.08, copies=1),
    "10-copies": Case(1.15e6, 0.04, copies=10), "30-copies": Case(1.15e6, 0.08, copies=30),
    "10-copies-5ms": Case(1.15e6, 0.005, copies=10), "3-copies-300ms": Case(1.15e6, 0.3, copies=3),
    "32-scanners": Case(1.15e6, 0.04, scanners=32), "copies-scanners": Case(1.15e6, 0.08, copies=10, scanners=8),
    "downloads": Case(1.15e6, 0.08, fetched=20), "players": Case(3.45e6, 0.08, rates=(0.5e6, 1e6, 1.5e6)),
    "players-copies": Case(3.45e6, 0.08, copies=3, rates=(0.5e6, 1e6, 1.5e6)),
    "8-scanners-12": Case(12e6, 0.04, scanners=8),
}
# Cases that run at the same time: with more the processor would be what is short. The last one runs alone: where the
# processor is busy, its scanners are too slow to take a fast line.
TOGETHER = (
    ("3-copies-8", "3-copies-4", "30-copies-4", "1-copy-1.2"),
    ("10-copies", "30-copies", "10-copies-5ms", "3-copies-300ms", "downloads"),
    ("32-scanners", "copies-scanners", "players", "players-copies"), ("8-scanners-12",),
)


def beside(results, repetition):
    """Some cases at the same time, each on an origin, a line and a mount of its own: together they move 17 MB/s at
    most."""
    for system in systems(results):
        if not system.is_ours and repetition >= 1:
            continue
        errors = []
        for together in TOGETHER:
            threads = [threading.Thread(target=guarded, args=(errors, beside_one, results, type(system)(), case))
                       for case in together]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]


def guarded(errors, body, *arguments):
    try:
        body(*arguments)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        errors.append(error)


def beside_one(results, system, name):
    case = CASES[name]
    files = {f"film{index}.bin": 128 << 20 for index in range(len(case.rates))}
    files.update({f"copy{index}.bin": 1 << 30 for index in range(case.copies)})
    files.update({f"fetched{index}.bin": 1 << 30 for index in range(case.fetched)})
    files.update({f"clip{index}.bin": 16 << 20 for index in range(case.scanners * CLIPS)})
    with serving(files, latency=case.trip, line=case.line) as origin, mounted(system, origin):
        others = [subprocess.Popen(["cat", system.path(f"copy{index}.bin")], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL) for index in range(case.copies)]
        try:
            others += filter(None, [system.download(f"fetched{index}.bin") for index in range(case.fetched)])
            others += [scan(system, index) for index in range(case.scanners)]
            time.sleep(BEFORE if others or case.fetched else 0)
            before, begun = origin.totals()["bytesSent"], time.monotonic()
            players = play(system, case)
            sent, seconds = origin.totals()["bytesSent"] - before, time.monotonic() - begun
            if system.is_ours and any(other.poll() is not None for other in others):
                raise RuntimeError(f"{name}: the player was alone at the end")
        finally:
            for other in others:
                other.kill()
                other.wait()
    for player in players:
        if player.error:
            raise player.error
    stalls = [stall for player in players for stall in player.stalls_over(NOTICED)]
    results.add(f"beside-{name}", system, len(stalls), note=[player.stalls for player in players])
    results.add(f"beside-{name}-seconds", system, sum(stall[2] for stall in stalls))
    results.add(f"beside-{name}-line", system, sent / seconds / case.line)


def play(system, case):
    """Runs the players to their end. They start one after the other, and the last one jumps half-way."""
    players = [Player(system.path(f"film{index}.bin"), rate, case.line, SECONDS, trip=case.trip, patience=PATIENCE)
               for index, rate in enumerate(case.rates)]
    players[-1].jumps = [(SECONDS / 2, 0.5)]
    threads = [threading.Thread(target=player.run) for player in players]
    for index, thread in enumerate(threads):
        time.sleep(APART if index else 0)
        thread.start()
    for thread in threads:
        thread.join()
    return players


# mediafs tells programs by their names. It does not know this one.
SCANNER = """
import sys
open("/proc/self/comm", "w").write("scanner")
chunk = int(sys.argv[1])
for path in sys.argv[2:]:
    with open(path, "rb", buffering=0) as file:
        file.read(chunk)
        file.seek(-chunk, 2)
        file.read(chunk)
"""


def scan(system, scanner):
    """Reads the head and the tail of one file after the other."""
    paths = [system.path(f"clip{scanner * CLIPS + index}.bin") for index in range(CLIPS)]
    return subprocess.Popen([sys.executable, "-c", SCANNER, str(CHUNK), *paths], stderr=subprocess.DEVNULL)


HOW = (f"The player of the rows above, for {SECONDS} s of film with one jump, on a film of which nothing is known. It "
       f"gives up when it has stalled for {PATIENCE} s. Several players start {APART} s apart, and the last one jumps. "
       f"The others start {BEFORE} s earlier: a copy is `cat`, a download `mediafs fetch` (rclone: `cat`), a scanner "
       "reads 64 KiB at the head and at the tail of one unknown file after the other. Seconds: the sum of the stalls "
       "over 100 ms. Four or five cases run at the same time, each with an origin and a mount of its own; that of 12 "
       "MB/s runs alone.")
ROWS = [
    row for number, (name, case) in enumerate(CASES.items()) for row in (
        Row(f"beside-{name}", f"{case.title}: stalls over 100 ms", "", limit=0, goal=0, worst=True,
            measure=None if number else beside, how="" if number else HOW),
        Row(f"beside-{name}-seconds", "… seconds of them", "s", limit=0),
        Row(f"beside-{name}-line", "… part of the line that was used", "", more=True))
]
