#!/usr/bin/env python3
"""fleet_demo.py FILE: four mounts share a film that a slow origin has, a player on each; FILE becomes a chart of who
fetched what from where, over time. Leaves nothing else behind."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import chart
import systems
from fleet import metrics, sharing

MOUNTS = 4
APART = 4  # seconds from one player's start to the next one's
WATCHED = 20  # seconds of the film that each player shows
FILM_SECONDS, FILM_RATE = 60, 4e6  # bits a second
LINE = 1.5e6  # bytes a second, for all: what three players need
STEP = 0.5


def make_film():
    path = os.path.join(systems.work_folder("film"), "film.mp4")
    rate = f"{FILM_RATE / 1e6:g}M"
    subprocess.run(
        ["ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i",
         f"testsrc2=size=1280x720:rate=25:duration={FILM_SECONDS}", "-f", "lavfi", "-i",
         f"sine=frequency=440:duration={FILM_SECONDS}", "-c:v", "libx264", "-preset", "ultrafast", "-b:v", rate,
         "-minrate", rate, "-maxrate", rate, "-bufsize", rate, "-x264-params", "nal-hrd=cbr", "-pix_fmt", "yuv420p",
         "-c:a", "aac", "-movflags", "+faststart", path], check=True)
    return path


def player(path):
    """Plays as fast as it is watched, to no screen and no speaker."""
    if shutil.which("mpv"):
        words = ["mpv", "--no-config", "--vo=null", "--ao=null", "--really-quiet", f"--length={WATCHED}", path]
    else:
        words = ["ffmpeg", "-nostdin", "-v", "error", "-re", "-i", path, "-t", str(WATCHED), "-f", "null", "-"]
    return subprocess.Popen(words, preexec_fn=lambda: systems.end_with_parent(signal.SIGKILL))


def play(nodes, undo):
    """Starts the players in turns, and looks at all mounts each half second until a while after their end: for each
    mount how many bytes it had by then from the origin, and from the fleet."""
    players, begin = [], time.monotonic()
    series = [[] for _ in nodes]
    quiet = 0
    while quiet < 4:
        now = time.monotonic() - begin
        if len(players) < len(nodes) and now >= APART * len(players):
            players.append(player(nodes[len(players)].path("film.mp4")))
            undo.callback(players[-1].wait)
            undo.callback(players[-1].kill)
            print(f"{now:4.1f} s: mount {len(players)} plays", flush=True)
        for index, node in enumerate(nodes):
            found = metrics(node)
            series[index].append((found["mediafs_origin_bytes_total"], found["mediafs_shared_bytes_total"]))
        is_over = len(players) == len(nodes) and all(one.poll() is not None for one in players)
        quiet = quiet + 1 if is_over else 0
        time.sleep(max(0, begin + STEP * len(series[0]) - time.monotonic()))
    if any(one.returncode for one in players):
        raise RuntimeError(f"players ended with {[one.returncode for one in players]}")
    return series


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split(":")[0])
    # So that every mount and process is taken away, as after an interrupt.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    systems.clean()
    try:
        film = make_film()
        size = os.path.getsize(film)
        print(f"A film of {size / 1e6:.1f} MB, {FILM_RATE / 8e6:g} MB/s; an origin that sends {LINE / 1e6:g} MB/s in "
              f"all; {MOUNTS} mounts that share through SeaweedFS", flush=True)
        with sharing(MOUNTS, {"film.mp4": film}, latency=0.02, line=LINE) as (nodes, origin, _), \
                contextlib.ExitStack() as undo:
            origin.command("reset-log")
            series = play(nodes.members, undo)
            sent = origin.totals()["bytesSent"]
            for index, node in enumerate(nodes.members, 1):
                print(node.run("status", node.mountpoint).splitlines()[0])
                with open(film, "rb") as one, open(node.path("film.mp4"), "rb") as other:
                    if one.read() != other.read():
                        raise RuntimeError(f"mount {index} has other bytes than the origin")
    finally:
        systems.clean()
    rows = [(f"mount {index}", values) for index, values in enumerate(series, 1)]
    title = f"{MOUNTS} mounts play a film of {size / (1 << 20):.0f} MiB; the origin sent {sent / (1 << 20):.0f} MiB"
    sources = {"origin": "from the origin", "fleet": "from the fleet's store"}
    with open(sys.argv[1], "w") as file:
        file.write(chart.strips(title, "B", sources, rows, STEP))
    print(f"The origin sent {sent / size:.2f} times the film. Written: {sys.argv[1]}")


main()
