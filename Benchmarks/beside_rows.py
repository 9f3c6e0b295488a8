"""A player beside readers that take all they get: copies and scanners."""

import subprocess
import threading
import time

from play_rows import CHUNK, Player
from rows import Row, systems
from servers import serving
from systems import mounted

RATE = 1e6  # bytes a second of the film
CREDIT = 14  # seconds after which nothing is new about thirty copies: each begins when it has its file's head
SECONDS = 20
NOTICED = 0.1  # a stall that is shorter is not seen
# id: (bytes a second of the line, round trip, copies, scanners)
CASES = {
    "3-copies-8": (8e6, 0.08, 3, 0), "3-copies-4": (4e6, 0.08, 3, 0), "30-copies-4": (4e6, 0.08, 30, 0),
    "1-copy-1.2": (1.2e6, 0.08, 1, 0), "8-scanners-12": (12e6, 0.04, 0, 8),
}
CLIPS = 200  # for each scanner


def beside(results, repetition):
    """Copies at the same time, each case on an origin, a line and a mount of its own: together they move 17 MB/s.
    Scanners after that, alone: where the processor is busy, they are too slow to take the line."""
    for system in systems(results):
        if system.name == "rclone tuned" or (not system.is_ours and repetition >= 1):
            continue
        errors = []
        for together in ([case for case in CASES if CASES[case][2]], [case for case in CASES if not CASES[case][2]]):
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


def beside_one(results, system, case):
    line, trip, copies, scanners = CASES[case]
    files = {"film.bin": 64 << 20}
    files.update({f"copy{index}.bin": 1 << 30 for index in range(copies)})
    files.update({f"clip{index}.bin": 16 << 20 for index in range(scanners * CLIPS)})
    with serving(files, latency=trip, line=line) as origin, mounted(system, origin):
        others = [subprocess.Popen(["cat", system.path(f"copy{index}.bin")], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL) for index in range(copies)]
        is_over = threading.Event()
        scans = [threading.Thread(target=scan, args=(system, index, is_over)) for index in range(scanners)]
        try:
            time.sleep(CREDIT if copies else 0)
            for thread in scans:
                thread.start()
            before, begun = origin.totals()["bytesSent"], time.monotonic()
            player = Player(system.path("film.bin"), RATE, line, SECONDS, jumps=[(10, 0.5)], trip=trip,
                            patience=20)
            player.run()
            sent, seconds = origin.totals()["bytesSent"] - before, time.monotonic() - begun
        finally:
            is_over.set()
            for other in others:
                other.kill()
                other.wait()
            for thread in scans:
                if thread.ident:
                    thread.join()
        if player.error:
            raise player.error
        stalls = [stall for stall in player.stalls if stall[2] > NOTICED]
        results.add(f"beside-{case}", system, len(stalls), note=player.stalls)
        results.add(f"beside-{case}-line", system, sent / seconds / line)


def scan(system, scanner, is_over):
    """Reads the head and the tail of one file after the other."""
    for index in range(CLIPS):
        if is_over.is_set():
            return
        with open(system.path(f"clip{scanner * CLIPS + index}.bin"), "rb", buffering=0) as file:
            file.read(CHUNK)
            file.seek(-CHUNK, 2)
            file.read(CHUNK)


def title(case):
    line, trip, copies, scanners = CASES[case]
    others = f"{copies} {'copy' if copies == 1 else 'copies'}" if copies else f"{scanners} scanners"
    return f"Playing 1.0 MB/s beside {others}, {line / 1e6:g} MB/s, {trip * 1000:.0f} ms: stalls over 100 ms"


ROWS = [
    row for number, case in enumerate(CASES) for row in (
        Row(f"beside-{case}", title(case), "", limit=0, goal=0, worst=True, measure=None if number else beside,
            how="" if number else "The player of the rows above, with one jump, on a film of which nothing is known. "
            "Copies are `cat`, and have run for 14 s; a scanner reads 64 KiB at the head and at the tail of one "
            "unknown file after the other. The cases with copies at the same time, each with an origin and a mount of "
            "its own; the scanners after them."),
        Row(f"beside-{case}-line", "… part of the line that was used", "", more=True))
]
