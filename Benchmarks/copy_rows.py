"""Copies: connections that are throttled, and a fast origin."""

import os
import subprocess
import time

from rows import Row, systems
from servers import Nginx, serving
from systems import cpu_seconds, data_file, mounted, peak_memory, work_folder
from wait_rows import read_all

CONNECTION = 4e6
SIZE = 64 << 20
COLD = 1 << 30


def throttled(results, repetition):
    """A copy over a line of 100 MB/s on which each connection is held to 4 MB/s."""
    for system in systems(results, "copy"):
        if system.name == "rclone" and repetition >= 1:
            continue  # 16 s each, and always the same
        with serving({"film.mp4": SIZE}, latency=0.05, line=25 * CONNECTION, connection=CONNECTION) as origin:
            with mounted(system, origin):
                os.stat(system.path("film.mp4"))
                begin = time.perf_counter()
                read_all(system.path("film.mp4"))
                results.add("throttled", system, SIZE / (time.perf_counter() - begin))
                results.add("throttled-connections", system, origin.totals()["peakConnections"])


def cold(results, repetition):
    """A file read through, from nginx on loopback, and by curl to a file."""
    del repetition
    plain = data_file(COLD)
    name = os.path.basename(plain)
    server = Nginx(os.path.dirname(plain))
    try:
        target = os.path.join(work_folder("curl"), name)
        begin = time.perf_counter()
        subprocess.run(["curl", "-s", "-o", target, f"{server.url}/{name}"], check=True)
        results.add("cold", "curl", COLD / (time.perf_counter() - begin))
        os.unlink(target)
        for system in systems(results, "copy"):
            with mounted(system, server):
                os.stat(system.path(name))
                before = cpu_seconds(system.pids())
                begin = time.perf_counter()
                count = read_all(system.path(name))
                results.add("cold", system, count / (time.perf_counter() - begin))
                results.add("cold-cpu", system, (cpu_seconds(system.pids()) - before) * (1 << 30) / count)
                results.add("cold-memory", system, peak_memory(system.pids()))
    finally:
        server.stop()


ROWS = [
    Row("throttled", "Copy, each connection held to 1/25 of the line", "B/s", limit=CONNECTION, goal=4, more=True,
        measure=throttled,
        how="64 MiB read in sequence; 4 MB/s a connection, 100 MB/s in all, latency 50 ms. The limit column is one "
            "connection."),
    Row("throttled-connections", "… connections at most", ""),
    Row("cold", "Cold sequential, fast origin", "B/s", goal=2, of="rclone", more=True, measure=cold,
        how="1 GiB from nginx on loopback (sendfile, in the page cache), read in 1 MiB pieces through the mount; curl "
            "writes it to a file."),
    Row("cold-cpu", "… CPU a GiB", "s", goal=1.5, absolute=True,
        how="User and system time of mediafs's server and helper, or of rclone; the reader and nginx are not counted."),
    Row("cold-memory", "… peak memory", "B", goal=64 << 20, absolute=True, how="VmHWM, as above."),
]
