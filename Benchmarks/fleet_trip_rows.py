"""Mounts that share: a store that is far away, that hangs, that is gone; and what it costs a node that has nobody to
share with."""

import os
import random
import signal
import subprocess
import time

from fleet import Films, Node, fleet, settled, sharing, wait_until_sharing
from fleet_rows import NEAR
from rows import Row
from servers import serving
from stores import BUCKET, KEY, SECRET, Far, storing
from systems import Mediafs, mounted
from wait_rows import FILM, first_look, read_all, read_at, seek_samples

LINE = 40e6
TRIP = 0.05
DETECTION = 0.3
LOOKS = 6
COPIES = 3
NODES = 2
SIZE = 64 << 20
_films = []  # made once


def fleet_far(results, repetition):
    """A node that comes later to a store a round trip away, on a connection that another file's bytes came by."""
    del repetition
    files = {"warm/f.mp4": 1 << 20} | {f"{kind}{index}/f.mp4": 8 << 20
                                       for kind in ("known", "new") for index in range(LOOKS)}
    with storing() as store, serving(files) as origin:
        with mounted(Node(store.endpoint()), origin) as first:
            wait_until_sharing(first)
            for name in files:
                read_all(first.path(name))
            settled([first])
        line = Far(store.port(), TRIP)
        try:
            with mounted(Node(line.url), origin) as node:
                wait_until_sharing(node)
                read_all(node.path("warm/f.mp4"))
                origin.command("reset-log")
                for index in range(LOOKS):
                    time.sleep(0.3)
                    results.add("far-new", "mediafs", first_look(node.path(f"new{index}/f.mp4"), 4096))
                for index in range(LOOKS):
                    path = node.path(f"known{index}/f.mp4")
                    os.stat(path)
                    time.sleep(0.3)
                    begin = time.perf_counter()
                    read_at(path, 0, 4096)
                    results.add("far-known", "mediafs", time.perf_counter() - begin)
                for seconds in trips(line):
                    for row in ("far-known", "far-new"):
                        results.add(row, "curl", seconds)
                results.add("far-bytes", "mediafs", origin.totals()["bytesSent"])
        finally:
            line.stop()


def trips(line):
    """What curl waits for a small object of the store, on a connection that it has."""
    ask = ["-o", os.devnull, f"{line.url}/{BUCKET}/bench/mfs1/format"]
    done = subprocess.run(
        ["curl", "--silent", "--fail", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{KEY}:{SECRET}",
         "--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--write-out", "%{time_starttransfer}\n",
         *ask * (LOOKS + 1)], check=True, capture_output=True, text=True)
    return [float(seconds) for seconds in done.stdout.split()[1:]]


def fleet_gone(results, repetition):
    """Nodes read a file that none has, from when the store hangs, or is killed: beside nodes that never had one."""
    del repetition
    if not _films:
        _films.append(Films(2, SIZE))
    [media] = _films
    with fleet([Mediafs() for _ in range(NODES)], media.media(), latency=NEAR, line=LINE) as (nodes, _):
        without = after(nodes, media, lambda: None)
    longest = max(one["longest"] for one in without)
    for kind, number in (("hangs", signal.SIGSTOP), ("dies", signal.SIGKILL)):
        with sharing(NODES, media.media(), latency=NEAR, line=LINE) as (nodes, _, store):
            found = after(nodes, media, lambda: store.signal(number))
        for one in found:
            results.add(f"gone-{kind}", "mediafs", one["seconds"] - DETECTION)
            results.add(f"gone-{kind}-wait", "mediafs", max(0, one["longest"] - longest))
        for one in without:
            results.add(f"gone-{kind}", "without sharing", one["seconds"])
            results.add(f"gone-{kind}-wait", "without sharing", one["longest"])


def after(nodes, media, event):
    """All read a file; then something happens, and they read another one: what came of that.

    All of the first one: its rest would go on beside a reader on the other node, which shares the line."""
    nodes.read(media, media.names[:1])
    nodes.compared(media.size)
    event()
    nodes.read(media, media.names[1:])
    found = nodes.compared(media.size)
    if any(one["wrong"] for one in found):
        raise RuntimeError("wrong bytes")
    return found


def fleet_single(results, repetition):
    """A node with a store that nobody else uses, and one without, one after the other."""
    files = {"film.mp4": FILM} | {f"copy{index}.mp4": SIZE for index in range(COPIES)}
    files |= {f"new{index}/f.mp4": 8 << 20 for index in range(LOOKS)}
    with storing() as store:
        kinds = [Mediafs(), Node(store.endpoint())]
        for system in reversed(kinds) if results.is_reversed else kinds:
            name = "mediafs" if isinstance(system, Node) else "without sharing"
            with serving(files, latency=TRIP, line=LINE) as origin, mounted(system, origin):
                if isinstance(system, Node):
                    wait_until_sharing(system)
                for index in range(COPIES):
                    begin = time.perf_counter()
                    read_all(system.path(f"copy{index}.mp4"))
                    results.add("single-copy", name, time.perf_counter() - begin)
                for index in range(LOOKS):
                    time.sleep(0.3)
                    results.add("single-first", name, first_look(system.path(f"new{index}/f.mp4"), 4096))
                for seconds in seek_samples(system, "idle", random.Random(repetition), LOOKS):
                    results.add("single-seek", name, seconds)


SINGLE = {"of": "without sharing", "goal": 1.05, "spread": True}
ROWS = [
    Row("far-known", "A node that comes later: first byte after a stat, the store a round trip away", "s",
        of="curl", goal=1.2, measure=fleet_far,
        how=f"Another node stored the files. {TRIP * 1000:.0f} ms to the store on a warm connection: a file was read "
            "before. A stat; 0.3 s later open, and 4 KiB at 0. curl asks the store for a small object over the same "
            "line: a round trip, and what the store itself takes."),
    Row("far-new", "… without a stat before (stat, open, read)", "s", of="curl", goal=2.2,
        how="As above, all three together, of a file that nobody on the node touched before."),
    Row("far-bytes", "… bytes from the origin", "", limit=0, goal=0, worst=True),
    Row("gone-hangs", f"The store hangs: {SIZE >> 20} MiB at each of {NODES} nodes, without {DETECTION} s", "s",
        of="without sharing", goal=1.15, worst=True, measure=fleet_gone,
        how=f"The nodes share a line of {LINE / 1e6:.0f} MB/s. They have read another file when both gateways "
            "get SIGSTOP; then each reads a file that none has. Of the time, that of one detection is taken off."),
    Row("gone-hangs-wait", "… longest wait of a read, beyond the longest without a store", "s", goal=DETECTION,
        absolute=True, worst=True),
    Row("gone-dies", "The store dies: the same", "s", of="without sharing", goal=1.15, worst=True,
        how="Both gateways get SIGKILL."),
    Row("gone-dies-wait", "… longest wait of a read, beyond the longest without a store", "s", goal=DETECTION,
        absolute=True, worst=True),
    Row("single-copy", f"A single node with a store: {SIZE >> 20} MiB in sequence", "s", measure=fleet_single, **SINGLE,
        how=f"In turns with a node without a store. The line has {LINE / 1e6:.0f} MB/s and {TRIP * 1000:.0f} ms, the "
            "store is near, and has nothing."),
    Row("single-first", "… first byte, size unknown (stat, open, read)", "s", **SINGLE),
    Row("single-seek", "… seek into a hole", "s", **SINGLE),
]
