"""Lets all that can go wrong befall a mount under eight kinds of readers, and compares every byte that they read.

make soak SOAK_SECONDS=600, or with --peer: the same readers on rclone, which is killed, and mounted anew each time."""

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from servers import Origin
from soak_events import Events, end_by_helper
from soak_mount import SoakedMediafs, enter_mount_namespace
from soak_readers import READERS, Fault, Media, Readers
from systems import BENCH, Rclone, unmount, wait_until

LINE = 12_000_000
# At rest, how much more a later server may have than the first: idle connections, files that are held open for a while,
# and what the allocator keeps. Its helper has none of that.
MORE = (48, 0, 16 << 10)
MORE_OF_HELPER = (0, 0, 1 << 10)


def soak(system, origin, media, options, chance):
    """Events until the time is over; the pauses in seconds by what was done, faults, and how often each reader read."""
    def at_rest():
        return system.session() == (0, 0, 0)
    events = Events(system, origin, chance, options.events and options.events.split(","))
    before = system.state()
    readers = Readers(media, system.mountpoint, options.seed)
    faults = readers.seen
    end = time.monotonic() + options.seconds
    try:
        while time.monotonic() < end and not readers.look():
            time.sleep(chance.uniform(0.2, 1.5))
            events.one()
        readers.look()
    except (Fault, OSError, RuntimeError) as error:
        faults.append(f"{type(error).__name__}: {error}")
    readers.stop()
    if os.geteuid() == 0 and not faults:
        try:
            wait_until("rest", at_rest, 20)
        except RuntimeError:
            faults.append(f"slots, buffers, handles in use when nobody reads: {system.session()}")
    if not faults:
        events.answered()
        after = system.state()
        print("descriptors, threads, KiB of server and helper:", *before, "then", *after)
        for early, late, more in zip(before, after, (MORE, MORE_OF_HELPER)):
            if any(now > then + allowed for then, now, allowed in zip(early, late, more)):
                faults.append(f"descriptors, threads or memory grew from {early} to {late}")
    rounds = {reader.__name__: count.value for reader, count in zip(READERS, readers.rounds)}
    return events.pauses, faults, rounds


def soak_mediafs(origin, media, options, chance):
    """Runs it and prints what came of it; the exit status."""
    if os.geteuid() == 0:
        enter_mount_namespace()
    else:
        print("not root: the disk is never full, and nobody looks at the session memory")
    system = SoakedMediafs().start(origin)
    try:
        system.run("fetch", "--wait", system.path("whole.bin"))
        # While the origin is away, a size that nobody knows yet is a placeholder.
        subprocess.run(["ls", "-lR", system.mountpoint], check=True, stdout=subprocess.DEVNULL)
        pauses, faults, rounds = soak(system, origin, media, options, chance)
        if not faults:
            try:
                end_by_helper(system)
            except (Fault, RuntimeError) as error:
                faults.append(f"the helper was killed: {error}")
        if faults:
            print(*[line for line in system.said().splitlines() if ": complete, " not in line][-200:], sep="\n")
    finally:
        system.stop()
    for what, seconds in pauses.items():
        print(f"{what}: {milliseconds(seconds)}")
    print("readers:", ", ".join(f"{name} {count}" for name, count in rounds.items()))
    for fault in faults:
        print("FAULT", fault)
    return 1 if faults else 0


def soak_peer(origin, media, options, chance):
    """rclone, killed as often, and mounted anew at once by who supervises it."""
    system = Rclone().start(origin)
    readers = Readers(media, system.mountpoint, options.seed, goes_on=True)
    pauses = []
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.2, 1.5) + 2)
        begin = time.monotonic()
        system.process.kill()
        system.process.wait()
        unmount(system.mountpoint)
        system.start(origin, system.folder)
        pauses.append(time.monotonic() - begin)
        readers.look()
    faults = readers.look()
    readers.stop()
    system.stop()
    print(f"rclone: kills {milliseconds(pauses)}; {len(faults)} faults of readers")
    for reader in READERS:
        print(f"  {reader.__name__}: {sum(fault.startswith(reader.__name__) for fault in faults)}")
    return 0


def milliseconds(pauses):
    if not pauses:
        return "none"
    return f"{len(pauses)}, median {statistics.median(pauses) * 1000:.0f} ms, worst {max(pauses) * 1000:.0f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--events", metavar="A,B", help="only these: the names of the table that it prints")
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    os.makedirs(BENCH, exist_ok=True)
    folder = tempfile.mkdtemp(dir=BENCH, prefix="soak-")
    try:
        media = Media(folder, options.seed)
        origin = Origin({}, line=LINE, latency=0.01, media=media.files)
        try:
            return (soak_peer if options.peer else soak_mediafs)(origin, media, options, chance)
        finally:
            origin.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
