"""Programs that look at media: how long they take beside the same program on the URL, and what a scan costs."""

import concurrent.futures
import os
import re
import subprocess
import time

from lines import Line, NoLine, Path
from rows import Row, systems
from servers import Nginx, serving
from systems import BENCH, mounted

TRIP = 0.05
LINE = 4e6
SCANNED = 500
AT_ONCE = 8
KINDS = {"first.mp4": "MP4, moov first", "last.mp4": "MP4, moov last", "film.mkv": "MKV"}
PROGRAMS = {
    "ffprobe": ("ffprobe", lambda path: ["ffprobe", "-v", "error", "-show_format", "-show_streams", path]),
    "first-frame": ("first frame", lambda path: [*FFMPEG, "-i", path, "-frames:v", "1", "-f", "null", "-"]),
    "frame-at-20": ("frame at 20 s",
                    lambda path: [*FFMPEG, "-ss", "20", "-i", path, "-frames:v", "1", "-f", "null", "-"]),
    "decode": ("decode", lambda path: [*FFMPEG, "-i", path, "-f", "null", "-"]),
}
FFMPEG = ["ffmpeg", "-nostdin", "-v", "error"]


def media():
    """Films of 30 s, 1.3 Mbit/s, made once: name -> path."""
    folder = os.path.join(BENCH, "media")
    os.makedirs(folder, exist_ok=True)
    base = os.path.join(folder, "film.mkv")
    sources = ["-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25,noise=alls=20:allf=t",
               "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=44100"]
    coding = ["-t", "30", "-c:v", "mpeg4", "-b:v", "1200k", "-g", "50", "-c:a", "aac", "-b:a", "128k"]
    make(base, [*sources, *coding])
    make(os.path.join(folder, "last.mp4"), ["-i", base, "-c", "copy"])
    make(os.path.join(folder, "first.mp4"), ["-i", base, "-c", "copy", "-movflags", "+faststart"])
    return {name: os.path.join(folder, name) for name in KINDS}


def make(path, arguments):
    if not os.path.exists(path):
        unfinished = os.path.join(os.path.dirname(path), "unfinished-" + os.path.basename(path))
        subprocess.run([*FFMPEG, "-y", *arguments, unfinished], check=True)
        os.rename(unfinished, path)


def looks(results, repetition):
    """Each program on each kind of file: cold through a mount that was just made, and on the URL."""
    files = media()
    for kind in KINDS:
        for program, (_, command) in PROGRAMS.items():
            row = f"look-{program}-{kind}"
            with serving({}, latency=TRIP, line=LINE, media={kind: files[kind]}) as origin:
                results.add(row, "the URL", seconds(command(f"{origin.url}/{kind}")))
            for system in systems(results):
                if not system.is_ours and repetition >= 1:
                    continue
                with serving({}, latency=TRIP, line=LINE, media={kind: files[kind]}) as origin:
                    with mounted(system, origin):
                        results.add(row, system, seconds(command(system.path(kind))))


PATHS = [Path(http2, "cubic", trips, 0) for http2 in (False, True) for trips in (1, 5)]


def looks_lines(results, repetition):
    """The same by mediafs alone over real TCP and TLS, one after the other: the programs need the processor."""
    del repetition
    folder = os.path.dirname(media()["first.mp4"])
    try:
        for path in PATHS:
            for kind in KINDS:
                for program, (_, command) in PROGRAMS.items():
                    look_over(path, folder, results, f"look-line-{program}-{kind}", kind, command)
    except NoLine as reason:
        results.remarks.append(f"No program looked at media over real TCP: {reason}.")


def look_over(path, folder, results, row, kind, command):
    with Line(path) as line:
        server = Nginx(folder, line, path.http2)
        try:
            # ffmpeg speaks HTTP/1.1 alone. It checks no certificate unless it is told to.
            results.add(row, "the URL", seconds([*server.enter, *command(f"{server.url}/{kind}")]), path=path)
            for system in (system for system in systems(results) if system.is_ours):
                with mounted(system, server):
                    results.add(row, system, seconds(command(system.path(kind))), path=path)
        finally:
            server.stop()


def seconds(command):
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - begin


def looks_scan(results, repetition):
    """ffprobe over 500 files nobody touched before, several at a time; then once more."""
    del repetition
    kinds = list(media().items())
    files = {f"{index:03}-{name}": path for index in range(SCANNED) for name, path in [kinds[index % len(kinds)]]}
    read = {name: bytes_read(path) for name, path in kinds}
    total = sum(read[name.split("-", 1)[1]] for name in files)
    for system in systems(results):
        with serving({}, latency=0.005, media=files) as origin, mounted(system, origin):
            for row in ("look-scan", "look-again"):
                origin.command("reset-log")
                command = PROGRAMS["ffprobe"][1]
                with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                    list(pool.map(lambda name: seconds(command(system.path(name))), files))
                time.sleep(1)
                totals = origin.totals()
                extra = totals["bytesSent"] - (total if row == "look-scan" else 0)
                results.add(f"{row}-extra", system, extra / SCANNED)
                results.add(f"{row}-requests", system, totals["requests"] / SCANNED)


def bytes_read(path):
    """What ffprobe says that it reads of a file."""
    done = subprocess.run(["ffprobe", "-v", "debug", path], check=True, capture_output=True, text=True)
    return int(re.search(r"Statistics: (\d+) bytes read", done.stderr)[1])


ROWS = [
    Row(f"look-{program}-{kind}", f"{what}, {container}", "s", goal=1.05, of="the URL",
        measure=looks if (program, kind) == ("ffprobe", "first.mp4") else None,
        how="A film of 30 s and 5 MB, through a mount that was just made; 4 MB/s, 50 ms a request and a connection. "
            "The goal is the time of the same program on the URL.")
    for kind, container in KINDS.items() for program, (what, _) in PROGRAMS.items()
] + [
    Row(f"look-line-{program}-{kind}", f"Real line: {what}, {container}", "s", goal=1.05, of="the URL",
        measure=looks_lines if (program, kind) == ("ffprobe", "first.mp4") else None,
        how="The same over real TCP and TLS (Tests/test-line): 60 ms, 4 MB/s, over HTTP/1.1 and HTTP/2, with cubic, a "
            "router's queue of one and of five round trips.")
    for kind, container in KINDS.items() for program, (what, _) in PROGRAMS.items()
] + [
    Row("look-scan-extra", "ffprobe over 500 unknown files: bytes fetched beyond those read, a file", "B",
        goal=128 << 10, absolute=True, measure=looks_scan,
        how="A third each of the three kinds above, eight at a time, latency 5 ms. What ffprobe reads is what it says "
            "of a file on the disk."),
    Row("look-scan-requests", "… requests a file", "", goal=2, absolute=True, how="As the origin counted them."),
    Row("look-again-extra", "… the same scan again: bytes fetched a file", "B", goal=0, absolute=True,
        how="In the same mount."),
    Row("look-again-requests", "… requests a file", "", goal=0, absolute=True, how="As the origin counted them."),
]
