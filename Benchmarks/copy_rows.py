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
LARGE = COLD = 1 << 30


def throttled(results, repetition):
    """A copy over a line of 100 MB/s on which each connection is held to 4 MB/s."""
    for system in systems(results, "copy"):
        if system.name == "rclone" and repetition >= 1:
            continue  # 16 s each, and always the same
        with throttling({"film.mp4": SIZE, "next.mp4": SIZE, "again.mp4": SIZE}) as origin:
            folder = work_folder("throttled")
            with mounted(system, origin, folder, keep=True):
                results.add("throttled", system, copied(system, "film.mp4", SIZE))
                results.add("throttled-next", system, copied(system, "next.mp4", SIZE))
                results.add("throttled-connections", system, origin.totals()["peakConnections"])
            with mounted(system, origin, folder):
                results.add("throttled-again", system, copied(system, "again.mp4", SIZE))


def throttled_large(results, repetition):
    """A copy of 1 GiB over the same line."""
    for system in systems(results, "copy"):
        if not system.is_ours and (system.name == "rclone" or repetition >= 1):
            continue  # minutes by one connection
        with throttling({"film.mp4": LARGE}) as origin:
            with mounted(system, origin):
                results.add("throttled-large", system, copied(system, "film.mp4", LARGE))


def throttling(files):
    return serving(files, latency=0.05, line=25 * CONNECTION, connection=CONNECTION)


def copied(system, name, size):
    """Reads a file through; bytes a second."""
    os.stat(system.path(name))
    begin = time.perf_counter()
    read_all(system.path(name))
    return size / (time.perf_counter() - begin)


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
    Row("throttled", "Copy, each connection held to 1/25 of the line", "B/s", limit=CONNECTION, goal=1,
        of="rclone tuned", more=True, measure=throttled,
        how="64 MiB read in sequence; 4 MB/s a connection, 100 MB/s in all, latency 50 ms. The limit column is one "
            "connection. rclone tuned has eight streams."),
    Row("throttled-next", "… the next file of the host", "B/s", limit=CONNECTION, goal=1, of="rclone tuned", more=True,
        how="Another 64 MiB in the same mount."),
    Row("throttled-again", "… a file of the host after a restart", "B/s", limit=CONNECTION, goal=1, of="rclone tuned",
        more=True, how="The first file that a new mount with the same store reads."),
    Row("throttled-connections", "… connections at most", ""),
    Row("throttled-large", "… 1 GiB", "B/s", limit=25 * CONNECTION, goal=0.8, more=True, measure=throttled_large,
        how="The limit column is the line, which 25 connections fill; 32 are allowed."),
    Row("cold", "Cold sequential, fast origin", "B/s", goal=2, of="rclone", more=True, measure=cold,
        how="1 GiB from nginx on loopback (sendfile, in the page cache), read in 1 MiB pieces through the mount; curl "
            "writes it to a file."),
    Row("cold-cpu", "… CPU a GiB", "s", goal=1.5, absolute=True,
        how="User and system time of mediafs's server and helper, or of rclone; the reader and nginx are not counted."),
    Row("cold-memory", "… peak memory", "B", goal=64 << 20, absolute=True, how="VmHWM, as above."),
]
