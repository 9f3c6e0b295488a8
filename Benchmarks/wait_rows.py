"""What a reader waits: the first byte, seeks."""

import os
import random
import time

from rows import Row, systems
from systems import Mediafs, mounted, serving

TRIP = 0.05
LINE = 20e6
READ = 128 << 10


def first_byte(results, repetitions):
    """stat + open + read of 4 KiB, on a connection that is warm: another file was read before."""
    count = 3
    files = {"warm/f.mp4": 1 << 20}
    files.update({f"new{index}/f{index}.mp4": 8 << 20 for index in range(count)})
    files.update({f"listed/f{index}.mp4": 8 << 20 for index in range(count)})
    for _ in range(repetitions):
        for system in systems(results):
            with serving(files, latency=TRIP) as origin, mounted(system, origin):
                read_all(system.path("warm/f.mp4"))
                for index in range(count):
                    time.sleep(0.3)
                    origin.command("reset-log")
                    path = system.path(f"new{index}/f{index}.mp4")
                    begin = time.perf_counter()
                    os.stat(path)
                    read_at(path, 0, 4096)
                    results.add("first-byte-unknown", system, time.perf_counter() - begin)
                    results.add("first-byte-requests", system, origin.totals()["requests"])
                # As a file manager: all of a folder, then one of it is opened.
                with os.scandir(system.path("listed")) as names:
                    for name in names:
                        name.stat()
                for index in range(count):
                    time.sleep(0.3)
                    begin = time.perf_counter()
                    read_at(system.path(f"listed/f{index}.mp4"), 0, 65536)
                    results.add("first-byte-known", system, time.perf_counter() - begin)


def seeks(results, repetitions):
    """Reads of 128 KiB at places of which nothing near is stored, on a line that is idle, or busy with our own work."""
    size = 8 << 30
    for repetition in range(repetitions):
        for kind in ("idle", "own", "other", "copy"):
            for system in systems(results):
                files = {"film.mp4": size, "other.mp4": size}
                with serving(files, latency=TRIP, line=LINE) as origin, mounted(system, origin):
                    seek_samples(results, system, kind, random.Random(repetition))


def seek_samples(results, system, kind, places):
    path = system.path("film.mp4")
    descriptor = os.open(path, os.O_RDONLY)
    busy = None
    try:
        os.pread(descriptor, READ, 0)
        if kind == "own":
            # Playing arms the continuation: it goes on behind wherever the reader is.
            for offset in range(0, 12 << 20, 1 << 20):
                os.pread(descriptor, 1 << 20, offset)
        elif kind == "other":
            read_at(system.path("other.mp4"), 0, READ)
            busy = system.download("other.mp4")
        elif kind == "copy":
            busy = Mediafs_copy(system.path("other.mp4"))
        time.sleep(1)
        slots = list(range(1, 8 << 30 >> 26))
        places.shuffle(slots)
        for slot in slots[:12]:
            time.sleep(places.uniform(0.2, 0.4))
            offset = (slot << 26) + (places.randrange(0, 64) << 17)
            begin = time.perf_counter()
            os.pread(descriptor, READ, offset)
            results.add(f"seek-{kind}", system, time.perf_counter() - begin)
    finally:
        if busy:
            busy.kill()
            busy.wait()
        os.close(descriptor)


def Mediafs_copy(path):
    import subprocess
    return subprocess.Popen(["cat", path], stdout=subprocess.DEVNULL)


def read_at(path, offset, count):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, count, offset)
    finally:
        os.close(descriptor)


def read_all(path):
    total = 0
    with open(path, "rb", buffering=0) as file:
        while part := file.read(1 << 20):
            total += len(part)
    return total


LIMIT = TRIP + READ / LINE
ROWS = [
    Row("first-byte-unknown", "First byte, size unknown (stat, open, read)", "s", limit=TRIP, goal=1.15, measure=first_byte,
        how="Latency 50 ms a request and a connection; 4 KiB at 0 of a file nobody touched before, in a folder nobody "
            "listed; another file was read a moment before. The limit is one round trip."),
    Row("first-byte-known", "First byte, size known (open, read)", "s", limit=TRIP, goal=1.15,
        how="As above, 64 KiB at 0 after a stat of every file in the folder."),
    Row("first-byte-requests", "Requests up to the first byte", "", limit=1, goal=1,
        how="As the origin counted them, size unknown."),
    Row("seek-idle", "Seek into a hole, idle line", "s", limit=LIMIT, goal=1.15, measure=seeks,
        how="128 KiB at a random place of an 8 GiB file, no stored byte within 32 MiB, 0.2 to 0.4 s after the last; "
            "20 MB/s for all connections together, 50 ms. The limit is the round trip and the 128 KiB at the line's rate."),
    Row("seek-own", "Seek, line busy with the file's own continuation", "s", limit=LIMIT, goal=1.15,
        how="As above, after 12 MiB were read in sequence."),
    Row("seek-other", "Seek, line busy with the download of another file", "s", limit=LIMIT, goal=1.15,
        how="As above, while another file is fetched (mediafs fetch; rclone: cat of it)."),
    Row("seek-copy", "Seek, while another program copies another file", "s", limit=TRIP + 2 * READ / LINE, goal=1.15,
        how="As above, while cat reads another file as fast as it comes, in every system. Two readers wait: the limit is "
            "the round trip and 128 KiB at half the line's rate."),
]
