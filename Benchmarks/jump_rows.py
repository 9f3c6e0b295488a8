"""Readers that jump about: what their reads cost, what is left of those that were killed, and what a check costs."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

from rows import Row, systems
from servers import serving
from systems import mounted

TRIP = 0.005
SIZE = 64 << 30
READS = 8000
PEER_READS = 500  # a jump costs a peer many times more
PLAIN = 16 << 10  # what a plain client asks for: as much as mediafs does
KILLED = 200
KILLED_TRIP = 0.05
PATIENCE = 10  # seconds after which a reader is given up: the figure then
TAGLESS_SIZE = 32 << 20
PIECES = 32


def jumps(results, repetition):
    """Reads of 4 KiB at random places of a large file."""
    for system in systems(results):
        count = READS if system.is_ours else PEER_READS
        chance = random.Random(repetition)
        with serving({"data.bin": SIZE}, latency=TRIP) as origin, mounted(system, origin):
            descriptor = os.open(system.path("data.bin"), os.O_RDONLY)
            try:
                begin = time.perf_counter()
                for _ in range(count):
                    os.pread(descriptor, 4096, chance.randrange(SIZE // 4096) * 4096)
                seconds = time.perf_counter() - begin
            finally:
                os.close(descriptor)
            # The origin notes what it sent after sending it.
            time.sleep(0.5)
            results.add("jump-bytes", system, origin.totals()["bytesSent"] / count)
            results.add("jump-seconds", system, seconds / count)
            if system.is_ours:
                results.add("jump-seconds", "a plain client", plain_jump(origin, "data.bin", chance))


def plain_jump(origin, name, chance):
    """How long the same takes on one connection without a filesystem, by a client that does nothing else: what the
    origin and the machine add to the round trip."""
    address = urllib.parse.urlsplit(origin.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.perf_counter()
        for _ in range(PEER_READS):
            start = chance.randrange(SIZE // 4096) * 4096
            connection.sendall(f"GET /{name} HTTP/1.1\r\nHost: {address.netloc}\r\n"
                               f"Range: bytes={start}-{start + PLAIN - 1}\r\n\r\n".encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += connection.recv(PLAIN)
            missing = PLAIN - len(answer.partition(b"\r\n\r\n")[2])
            while missing > 0:
                missing -= len(connection.recv(missing))
        return (time.perf_counter() - begin) / PEER_READS


# Reads 64 KiB at an offset of a file and prints the seconds that took.
READER = """
import os, sys, time
begin = time.perf_counter()
file = os.open(sys.argv[1], os.O_RDONLY)
os.pread(file, 64 << 10, int(sys.argv[2]))
print(time.perf_counter() - begin)
"""


def killed(results, repetition):
    """Readers that seek and are killed while the origin hangs; then a cold read of another file. Beside it the same
    read on a mount that was just made."""
    for system in systems(results):
        if not system.is_ours and repetition >= 1:
            continue
        seconds = [after_killed(system, count) for count in (0, KILLED)]
        results.add("killed-fresh", system, seconds[0])
        results.add("killed-after", system, seconds[1])
        if system.is_ours:
            results.add("killed-after", "a fresh mount", seconds[0])


def after_killed(system, count):
    system = type(system)()
    with serving({"film.bin": 1 << 30, "other.bin": 64 << 20}, latency=KILLED_TRIP) as origin:
        with mounted(system, origin):
            path = system.path("film.bin")
            if count:
                with open(path, "rb", buffering=0) as film:
                    film.read(4096)
                origin.command("fault", kind="stall-before", path="/film.bin")
            for index in range(count):
                reader = subprocess.Popen(["dd", f"if={path}", "of=/dev/null", "bs=4096", "count=1", "status=none",
                                           f"skip={(128 << 10) + index * 619}"])
                time.sleep(0.02)
                reader.send_signal(signal.SIGKILL)
                try:
                    reader.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    return PATIENCE
            return seconds_of(system.path("other.bin"), 1 << 20)


def seconds_of(path, offset):
    """How long a read takes, in a process that can be given up."""
    reader = subprocess.Popen([sys.executable, "-c", READER, path, str(offset)], stdout=subprocess.PIPE, text=True)
    try:
        return float(reader.communicate(timeout=PATIENCE)[0])
    except subprocess.TimeoutExpired:
        reader.kill()
        return PATIENCE


def tagless(results, repetition):
    """A file without validators, read in pieces with a pause after each: every request after a pause compares."""
    for system in systems(results):
        if not system.is_ours and repetition >= 1:
            continue
        with serving({}, latency=TRIP) as origin:
            origin.command("resource", path="/film.bin", size=TAGLESS_SIZE, tag="none", modified="none")
            origin.add_to_index("film.bin", TAGLESS_SIZE)
            with mounted(system, origin):
                descriptor = os.open(system.path("film.bin"), os.O_RDONLY)
                try:
                    for piece in range(PIECES):
                        os.pread(descriptor, 64 << 10, piece * TAGLESS_SIZE // PIECES)
                        time.sleep(1.1)
                finally:
                    os.close(descriptor)
                with open(system.path("film.bin"), "rb", buffering=0) as film:
                    while film.read(1 << 20):
                        pass
                system.complete("film.bin")
                results.add("tagless-bytes", system, origin.totals()["bytesSent"] / TAGLESS_SIZE)


ROWS = [
    Row("jump-bytes", f"{READS:,} random reads of 4 KiB in a file of 64 GiB: bytes fetched a read", "B", goal=32 << 10,
        absolute=True, measure=jumps, how=f"Latency 5 ms; {PEER_READS} reads by rclone."),
    Row("jump-seconds", "… time of a read", "s", limit=TRIP, goal=1.15, of="a plain client",
        how="The mean. The limit is one round trip. The plain client asks the same origin for 16 KiB at a time, on one "
            "connection: it shows what the origin and the machine add to that."),
    Row("killed-after", f"Cold read after {KILLED} readers were killed while the origin hangs", "s", goal=1.15,
        of="a fresh mount", measure=killed,
        how="Each seeks within a file whose answers never begin, and is killed after 20 ms. Then 64 KiB of another "
            f"file; latency 50 ms. {PATIENCE} s: the read, or the end of one that was killed, did not come in that "
            "time."),
    Row("killed-fresh", "… the same read on a fresh mount", "s", how="It makes the mount's first connection."),
    Row("tagless-bytes", "Origin without validators: bytes sent / size, read with pauses", "", goal=1.005,
        absolute=True, measure=tagless,
        how="Neither ETag nor Last-Modified: 64 KiB at each of 32 places of a 32 MiB file, 1.1 s apart, then the "
            "whole. A request after a pause compares up to 4 KiB with what is stored."),
]
