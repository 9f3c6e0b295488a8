"""Copies: connections that are throttled, and a fast origin."""

import os
import shutil
import subprocess
import time

from rows import Row, systems
from systems import Nginx, cpu_seconds, mounted, serving, work_folder
from wait_rows import read_all

CONNECTION = 4e6
SIZE = 64 << 20
COLD = 1 << 30


def throttled(results, repetitions):
    """A copy over a line of 100 MB/s on which each connection is held to 4 MB/s."""
    for repetition in range(repetitions):
        for system in systems(results, "copy"):
            if system.name == "rclone" and repetition >= 3:
                continue  # 16 s each, and always the same
            with serving({"film.mp4": SIZE}, latency=0.05, line=25 * CONNECTION, connection=CONNECTION) as origin:
                with mounted(system, origin):
                    os.stat(system.path("film.mp4"))
                    begin = time.perf_counter()
                    read_all(system.path("film.mp4"))
                    results.add("throttled", system, SIZE / (time.perf_counter() - begin))
                    results.add("throttled-connections", system, origin.totals()["peakConnections"])


def cold(results, repetitions):
    """A file read through, from nginx on loopback, and by curl to a file."""
    root = work_folder("files")
    try:
        with open(os.path.join(root, "film.mp4"), "wb") as file:
            for _ in range(COLD >> 20):
                file.write(os.urandom(1 << 20))
        os.sync()
        server = Nginx(root)
        try:
            for _ in range(repetitions):
                curl(results, server, root)
                for system in systems(results, "copy"):
                    with mounted(system, server):
                        os.stat(system.path("film.mp4"))
                        before = cpu_seconds(system.pids())
                        begin = time.perf_counter()
                        count = read_all(system.path("film.mp4"))
                        results.add("cold", system, count / (time.perf_counter() - begin))
                        results.add("cold-cpu", system, (cpu_seconds(system.pids()) - before) * (1 << 30) / count)
        finally:
            server.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def curl(results, server, root):
    target = root + "-curl"
    begin = time.perf_counter()
    subprocess.run(["curl", "-s", "-o", target, server.url + "/film.mp4"], check=True)
    results.add("cold", "curl", COLD / (time.perf_counter() - begin))
    os.unlink(target)


ROWS = [
    Row("throttled", "Copy, each connection held to 1/25 of the line", "B/s", limit=CONNECTION, goal=4, more=True,
        measure=throttled,
        how="64 MiB read in sequence; 4 MB/s a connection, 100 MB/s in all, latency 50 ms. The limit column is one "
            "connection."),
    Row("throttled-connections", "… connections at most", ""),
    Row("cold", "Cold sequential, fast origin", "B/s", goal=2, of="rclone", more=True, measure=cold,
        how="1 GiB from nginx on loopback (sendfile, in the page cache), read in 1 MiB pieces through the mount; curl writes "
            "it to a file."),
    Row("cold-cpu", "… CPU a GiB", "s", goal=1.5, absolute=True, how="User and system time of server and helper."),
]
