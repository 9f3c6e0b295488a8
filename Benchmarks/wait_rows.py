"""What a reader waits: the first byte, seeks."""

import os
import random
import subprocess
import time

from rows import Row, systems
from servers import serving
from systems import mounted, wait_until

TRIP = 0.05
LINE = 20e6
READ = 128 << 10
FILM = 8 << 30
APART = 64 << 20  # seeks are at least half of this apart
LISTED = 20


def first_byte(results, repetition):
    """stat + open + read on a connection that is warm: another file was read before."""
    count = 3
    kinds = [system for system in systems(results) if system.is_ours or repetition < 4]
    files = {"warm/f.mp4": 1 << 20}
    files.update({f"new{index}/f{index}.mp4": 8 << 20 for index in range(count)})
    files.update({f"listed/f{index:02}.mp4": 8 << 20 for index in range(LISTED)})
    for system in kinds:
        with serving(files, latency=TRIP) as origin, mounted(system, origin):
            read_all(system.path("warm/f.mp4"))
            for index in range(count):
                time.sleep(0.3)
                origin.command("reset-log")
                path = system.path(f"new{index}/f{index}.mp4")
                results.add("first-byte-unknown", system, first_look(path, 4096))
                results.add("first-byte-requests", system, requests_before(origin, f"/new{index}/f{index}.mp4"))
            # As a file manager: every name of a folder, then some are opened.
            for name in sorted(os.listdir(system.path("listed"))):
                os.stat(system.path(f"listed/{name}"))
            # The last one first: a mount may fetch the start of those that come next.
            for index in reversed(range(LISTED - count, LISTED)):
                time.sleep(0.3)
                begin = time.perf_counter()
                read_at(system.path(f"listed/f{index:02}.mp4"), 0, 65536)
                results.add("first-byte-known", system, time.perf_counter() - begin)


def first_look(path, count):
    """The seconds that a stat, an open and a read at 0 take."""
    begin = time.perf_counter()
    os.stat(path)
    read_at(path, 0, count)
    return time.perf_counter() - begin


def requests_before(origin, path):
    """How many requests were made up to and with the one that brought the first byte."""
    found = []

    def is_logged():
        # The origin notes what it sent after sending it: the reader may be a moment ahead.
        found[:] = origin.log()["requests"]
        return any(brings_start(request, path) for request in found)
    wait_until("log of the first byte", is_logged)
    first = min(request["time"] for request in found if brings_start(request, path))
    return sum(request["time"] <= first for request in found)


def brings_start(request, path):
    return request["path"] == path and any(part[1][0] == 0 for part in request["sent"])


def seeks(results, repetition):
    """Reads at places of which nothing near is stored, on a line that is idle, or busy with our own work."""
    for kind in ("idle", "own", "other", "copy"):
        for system in systems(results):
            if not system.is_ours and repetition >= 3:
                continue  # they vary little, and time is short
            with serving({"film.mp4": FILM, "other.mp4": FILM}, latency=TRIP, line=LINE) as origin:
                with mounted(system, origin):
                    for seconds in seek_samples(system, kind, random.Random(repetition), 8 if system.is_ours else 3):
                        results.add(f"seek-{kind}", system, seconds)


def seek_samples(system, kind, chance, count, read=READ, before=lambda: None):
    """The seconds of reads at random places of film.mp4; `before` is called right before each."""
    descriptor = os.open(system.path("film.mp4"), os.O_RDONLY)
    busy = None
    try:
        os.pread(descriptor, read, 0)
        if kind == "own":
            # Playing arms the continuation: it goes on behind wherever the reader is.
            for offset in range(0, 12 << 20, 1 << 20):
                os.pread(descriptor, 1 << 20, offset)
        elif kind == "other":
            read_at(system.path("other.mp4"), 0, read)
            busy = system.download("other.mp4")
        elif kind == "copy":
            busy = subprocess.Popen(["cat", system.path("other.mp4")], stdout=subprocess.DEVNULL)
        time.sleep(1)
        for slot in chance.sample(range(1, FILM // APART), count):
            time.sleep(chance.uniform(0.2, 0.4))
            offset = slot * APART + chance.randrange(0, APART // 2 // read) * read
            before()
            begin = time.perf_counter()
            os.pread(descriptor, read, offset)
            yield time.perf_counter() - begin
    finally:
        if busy:
            busy.kill()
            busy.wait()
        os.close(descriptor)


def read_at(path, offset, count):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, count, offset)
    finally:
        os.close(descriptor)


def read_all(path):
    """Reads a file to its end; the number of bytes."""
    total = 0
    buffer = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total += count
    return total


LIMIT = TRIP + READ / LINE
ROWS = [
    Row("first-byte-unknown", "First byte, size unknown (stat, open, read)", "s", limit=TRIP, goal=1.15,
        measure=first_byte,
        how="Latency 50 ms a request and a connection; 4 KiB at 0 of a file nobody touched before, in a folder nobody "
            "listed; another file was read a moment before. The limit is one round trip."),
    Row("first-byte-known", "First byte, size known (open, read)", "s", limit=TRIP, goal=1.15,
        how="As above, 64 KiB at 0 after a stat of each of the 20 files in the folder."),
    Row("first-byte-requests", "Requests up to the first byte", "", limit=1, goal=1,
        how="As the origin counted them, up to and with the one that brought the first byte."),
    Row("seek-idle", "Seek into a hole, idle line", "s", limit=LIMIT, goal=1.15, tail=True, measure=seeks,
        how="128 KiB at a random place of an 8 GiB file, no stored byte within 32 MiB, 0.2 to 0.4 s after the last; "
            "20 MB/s for all connections together, 50 ms. The limit is the round trip and the 128 KiB at the line's "
            "rate."),
    Row("seek-own", "Seek, line busy with the file's own continuation", "s", limit=LIMIT, goal=1.15, tail=True,
        how="As above, after 12 MiB were read in sequence."),
    Row("seek-other", "Seek, line busy with the download of another file", "s", limit=LIMIT, goal=1.15, tail=True,
        how="As above, while another file is fetched (mediafs fetch; rclone, which has nothing like it: cat of it)."),
    Row("seek-copy", "Seek, while another program copies another file", "s", limit=TRIP + 2 * READ / LINE, goal=1.15,
        how="As above, while cat reads another file as fast as it comes, in every system. Two readers wait: the limit "
            "is the round trip and 128 KiB at half the line's rate."),
]
