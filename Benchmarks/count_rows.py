"""What the origin had to send: counts, which are the same on a loaded machine."""

import contextlib
import os
import random
import subprocess
import threading
import time

from rows import Row, systems
from servers import serving
from systems import mounted, work_folder
from wait_rows import read_all, read_at

MIXED = 48 << 20


def mix(results, repetition):
    """Seeks, short and long reads, closes, two readers at a time, a restart; then the file is read to its end."""
    for system in systems(results):
        with serving({"film.mp4": MIXED}, latency=0.01, line=40e6) as origin:
            folder = work_folder("mix")
            chance = random.Random(repetition)
            for part in range(3):
                with mounted(system, origin, folder, keep=True):
                    path = system.path("film.mp4")
                    if part < 2:
                        threads = [threading.Thread(target=wander, args=(path, chance.random())) for _ in range(2)]
                        for thread in threads:
                            thread.start()
                        for thread in threads:
                            thread.join()
                    else:
                        read_all(path)
                        system.complete("film.mp4")
            totals = origin.totals()
            results.add("mix-bytes", system, totals["bytesSent"] / MIXED)
            results.add("mix-requests", system, totals["requests"])
            system.discard()


def wander(path, seed):
    chance = random.Random(seed)
    for _ in range(4):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            for _ in range(chance.randrange(1, 4)):
                offset = chance.randrange(0, MIXED - (4 << 20))
                count = chance.choice([4 << 10, 64 << 10, 1 << 20, 3 << 20])
                for start in range(0, count, 128 << 10):
                    os.pread(descriptor, min(count, 128 << 10), offset + start)
        finally:
            os.close(descriptor)


def restart(results, repetition):
    """Killed half-way through a copy, mounted again, and read to the end."""
    for system in systems(results):
        if not system.is_ours and repetition >= 1:
            continue  # 7 s each, and always the same
        size = 64 << 20
        with serving({"film.mp4": size}, latency=0.01, line=16e6) as origin:
            folder = work_folder("restart")
            with contextlib.ExitStack() as undo:
                system.start(origin, folder)
                undo.callback(system.kill)
                reader = subprocess.Popen(
                    ["cat", system.path("film.mp4")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                undo.callback(reader.wait)
                undo.callback(reader.kill)
                time.sleep(size / 16e6 / 2)
                system.kill()  # before the reader: nothing is to be closed in order
            sent = origin.totals()["bytesSent"]
            begin = time.perf_counter()
            try:
                system.start(origin, folder)
                read_at(system.path("film.mp4"), 0, 4096)
                results.add("restart-first-byte", system, time.perf_counter() - begin)
                read_all(system.path("film.mp4"))
                system.complete("film.mp4")
            finally:
                system.stop()
            # What a second brings may be fetched again: that is what was promised (16 MB here).
            results.add("restart-again", system, max(0, origin.totals()["bytesSent"] - size))
            results.add("restart-sent", system, sent)


def scan(results, repetition):
    """A library scan: of each file the head and the tail, by a program known to look at files."""
    count = 500
    files = {f"film{index}.mkv": 32 << 20 for index in range(count)}
    for system in systems(results):
        if system.name == "rclone" and repetition >= 1:
            continue  # it fetches gigabytes
        with serving(files, latency=0.005) as origin, mounted(system, origin):
            subprocess.run(["python3", "-c", SCANNER, *[system.path(name) for name in files]], check=True)
            time.sleep(0.5)
            extra = origin.totals()["bytesSent"] - count * 2 * (32 << 10)
            results.add("scan-extra", system, extra / count)


def changed(results, repetition):
    """Files that changed at their origin after their stat, of which nothing is stored: each is read whole."""
    count, size, larger = 20, 4 << 20, (4 << 20) + 4096
    for system in systems(results, mediafs_options=["--fresh", "1"]):
        if not system.is_ours and repetition >= 1:
            continue  # always the same
        files = {f"film{index}.mp4": size for index in range(count)}
        with serving(files, latency=0.01) as origin, mounted(system, origin):
            for name in files:
                os.stat(system.path(name))
            time.sleep(2)
            for name in files:
                origin.command("next", path=f"/{name}", size=larger)
            origin.command("reset-log")
            failed = 0
            for name in files:
                try:
                    failed += read_all(system.path(name)) != larger
                except OSError:
                    failed += 1
            results.add("changed-failed", system, failed)


# As ffprobe: its name is what programs are told by.
SCANNER = """
import os, sys
open("/proc/self/comm", "w").write("ffprobe")
for path in sys.argv[1:]:
    file = os.open(path, os.O_RDONLY)
    os.pread(file, 32 << 10, 0)
    os.pread(file, 32 << 10, os.fstat(file).st_size - (32 << 10))
    os.close(file)
"""

ROWS = [
    Row("mix-bytes", "Bytes sent by the origin / size, after a mix", "", goal=1.01, absolute=True, measure=mix,
        how="A 48 MiB file over a line of 40 MB/s with 10 ms: twice two readers at a time, each opening it four times "
            "and reading 4 KiB to 3 MiB at one to three random places, with a restart after each; then it is read "
            "through."),
    Row("mix-requests", "… requests", "", how="As the origin counted them."),
    Row("restart-again", "Bytes fetched again after kill -9 half-way through a copy", "B", goal=16e6, absolute=True,
        measure=restart,
        how="64 MiB at 16 MB/s, killed after 2 s, mounted again, read to the end. The goal is what one second brings."),
    Row("restart-first-byte", "… from the new mount's start to a stored byte", "s",
        how="Mount, open, read 4 KiB at 0."),
    Row("changed-failed", "20 files that changed after their stat: reads that fail or bring another length", "",
        limit=0, goal=0, worst=True, measure=changed,
        how="`stat` of each; 2 s later the origin has longer files; then each is read whole. mediafs with `--fresh 1`, "
            "rclone with its defaults."),
    Row("scan-extra", "A look at 500 files: bytes fetched beyond those read, a file", "B", goal=128 << 10,
        absolute=True, measure=scan,
        how="A process called ffprobe reads 32 KiB at the head and at the tail of each 32 MiB file."),
]
