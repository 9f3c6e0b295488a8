"""Waiting and playing over lines as they are: real TCP, TLS, HTTP/1.1 and HTTP/2, a router's queue, loss."""

import contextlib
import functools
import itertools
import os
import random
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, wait

from lines import RATE, TRIP, Line, NoLine, Path
from play_rows import CHUNK, SHOWN, Player
from rows import Row, systems
from servers import Nginx
from systems import BENCH, end_process, mounted, work_folder
from wait_rows import FILM, first_look, read_at, seek_samples

READ = 64 << 10
COPY_READ = 128 << 10
NEW = 4  # files that nobody touched before
LISTED = 4  # those whose sizes are known
EPISODES = 12  # of one folder, of which the last ones are opened
REST = 2.0  # seconds without a request, in which servers shrink congestion windows
PLAYED = 0.6 * RATE
PLAYED_FAST = 0.9 * RATE
PLAY_SECONDS = 12
COPY_SECONDS = 10
PATIENCE = 20
PATHS = [Path(*kind) for kind in itertools.product((False, True), ("bbr", "cubic"), (1, 5), (0, 0.005))]
# rclone waits for seconds at each seek: it is measured where most servers are.
PEER_PATHS = [path for path in PATHS if path.congestion == "cubic" and path.trips == 1 and not path.loss]
LONGEST = 12 * 60
# Each line has its own namespaces and moves at most 4 MB/s.
AT_ONCE = 4


def lines(results, repetition):
    """All rows over all paths, some paths at a time; what is not begun in time is left out."""
    try:
        with Line(PATHS[0]):
            pass
    except NoLine as reason:
        results.remarks.append(f"Nothing was measured over real TCP: {reason}.")
        return
    root = media_folder()
    deadline = time.monotonic() + LONGEST
    jobs = [functools.partial(curl if path.loss else curl_copies, results, root, path) for path in PATHS]
    jobs += [functools.partial(curl_plays, results, root, path) for path in PATHS if path.loss]
    # Beside rclone's measurements, which are the longest, all others find time.
    jobs += [functools.partial(measure, results, repetition, root, path, system)
            for path in sorted(PATHS, key=lambda path: path not in PEER_PATHS)
            for measure in (waits, known_sizes, rested, starts, copies, seeks_beside_own, seeks_beside_other,
                            seeks_beside_copy, plays, plays_fast, plays_beside)
            if not (measure in (rested, copies) and path.loss)
            for system in systems(results) if system.is_ours or system.name == "rclone" and path in PEER_PATHS]
    left_out = []

    def run(job):
        if time.monotonic() > deadline:
            left_out.append(job)
        else:
            job()
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        done = [pool.submit(run, job) for job in jobs]
        wait(done)
    finally:
        # An interrupt does not wait for what has not begun.
        pool.shutdown(cancel_futures=True)
    if left_out:
        results.remarks.append(f"Left out for want of time: {len(left_out)} of {len(jobs)} measurements over real TCP.")
    for job in done:
        job.result()


def media_folder():
    """Files without content: what they bring is not looked at, and takes no space."""
    root = os.path.join(BENCH, "work", "line-media")
    sizes = {"film.mp4": FILM, "other.mp4": FILM, "third.mp4": FILM, "warm/f.mp4": 8 << 20}
    # Each in a folder of its own: a stat asks for the sizes beside it, too, and what comes next is fetched ahead.
    sizes.update({f"{kind}{index}/f.mp4": 8 << 20 for kind, count in (("new", NEW), ("listed", LISTED))
                  for index in range(count)})
    sizes.update({f"season/e{index}.mp4": 8 << 20 for index in range(EPISODES)})
    for name, size in sizes.items():
        os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
        with open(os.path.join(root, name), "wb") as file:
            file.truncate(size)
    return root


@contextlib.contextmanager
def ends(root, path):
    """A line with a server at its far end."""
    with Line(path) as line:
        server = Nginx(root, line, path.http2)
        try:
            yield line, server
        finally:
            server.stop()


def row(name, path):
    return f"line-{name}-loss" if path.loss else f"line-{name}"


def waits(results, repetition, root, path, system):
    """First bytes on a warm connection, and seeks while nothing else goes on."""
    with ends(root, path) as (_, server), mounted(system, server):
        first_look(system.path("warm/f.mp4"), READ)
        for index in range(NEW):
            time.sleep(0.3)
            results.add(row("first-byte", path), system, first_look(system.path(f"new{index}/f.mp4"), READ), path=path)
        for seconds in seek_samples(system, "idle", random.Random(repetition), 10 if system.is_ours else 4, READ):
            results.add(row("seek-idle", path), system, seconds, path=path)


def known_sizes(results, _, root, path, system):
    """First bytes of files whose sizes are known: the list gives them, or a stat of each (rclone)."""
    with ends(root, path) as (_, server):
        with mounted(system, server, sized_list(server) if system.is_ours else None):
            first_look(system.path("warm/f.mp4"), READ)
            names = [system.path(f"listed{index}/f.mp4") for index in range(LISTED)]
            for name in names:
                os.stat(name)
            for name in names:
                time.sleep(0.3)
                begin = time.perf_counter()
                read_at(name, 0, READ)
                results.add(row("first-byte-known", path), system, time.perf_counter() - begin, path=path)


def rested(results, _, root, path, system):
    """First bytes of files of a listed folder, each after a rest."""
    with ends(root, path) as (_, server), mounted(system, server):
        names = [system.path(f"season/e{index}.mp4") for index in range(EPISODES)]
        for name in names:
            os.stat(name)
        # A mount may have fetched more of the first ones, and fetches what comes next.
        for name in reversed(names[-3:]):
            time.sleep(REST)
            begin = time.perf_counter()
            read_at(name, 0, READ)
            results.add("line-first-byte-rested", system, time.perf_counter() - begin, path=path)


def sized_list(server):
    """A folder with a list that gives the sizes of the server's files."""
    folder = work_folder("sized")
    with open(os.path.join(folder, "urls.txt"), "w") as file:
        file.write('<metalink xmlns="urn:ietf:params:xml:ns:metalink">')
        for name, size in server.files.items():
            file.write(f'<file name="{name}"><size>{size}</size><url>{server.url}/{name}</url></file>\n')
        file.write("</metalink>\n")
    return folder


def starts(results, _, root, path, system):
    """The start of a player, on a warm connection."""
    with ends(root, path) as (_, server), mounted(system, server):
        first_look(system.path("warm/f.mp4"), READ)
        time.sleep(0.3)
        player = Player(system.path("film.mp4"), PLAYED, RATE, 1, trip=TRIP)
        player.run()
        if player.error:
            raise player.error
        results.add(row("start", path), system, player.start_seconds, path=path)


def copies(results, _, root, path, system):
    """The first seconds of a copy: bytes a second."""
    with ends(root, path) as (_, server), mounted(system, server):
        count = 0
        end = time.monotonic() + COPY_SECONDS
        with open(system.path("film.mp4"), "rb", buffering=0) as film:
            while time.monotonic() < end:
                count += len(film.read(COPY_READ))
        results.add("line-copy", system, count / COPY_SECONDS, path=path)


def curl_copies(results, root, path):
    """The same by curl alone, in one response."""
    with ends(root, path) as (_, server):
        done = subprocess.run([*server.enter, *curl_words(server, path), "--max-time", str(COPY_SECONDS), "--output",
                               "/dev/null", "--write-out", "%{size_download}", f"{server.url}/film.mp4"],
                              capture_output=True, text=True, timeout=60)
        results.add("line-copy", "curl", float(done.stdout) / COPY_SECONDS, path=path)


def seeks_beside_own(*arguments):
    seeks_beside("own", *arguments)


def seeks_beside_other(*arguments):
    seeks_beside("other", *arguments)


def seeks_beside_copy(*arguments):
    seeks_beside("copy", *arguments)


def seeks_beside(kind, results, repetition, root, path, system):
    with ends(root, path) as (line, server), mounted(system, server):
        def look():
            results.add(row(f"underway-{kind}", path), system, server.underway(), path=path)
            results.add(row(f"queued-{kind}", path), system, line.counts()["queued"], path=path)
        samples = seek_samples(system, kind, random.Random(repetition), 12 if system.is_ours else 4, READ, look)
        for seconds in samples:
            results.add(row(f"seek-{kind}", path), system, seconds, path=path)


def plays(results, _, root, path, system):
    with ends(root, path) as (_, server), mounted(system, server):
        play(results, "alone", path, system, system.path("film.mp4"))


def plays_fast(results, _, root, path, system):
    """Playing at 90 % of the line's rate."""
    with ends(root, path) as (_, server), mounted(system, server):
        play(results, "fast", path, system, system.path("film.mp4"), PLAYED_FAST)


def plays_beside(results, _, root, path, system):
    """Playing while two other files are fetched."""
    with ends(root, path) as (_, server), mounted(system, server):
        downloads = [system.download(f"{name}.mp4") for name in ("other", "third")]
        try:
            play(results, "beside", path, system, system.path("film.mp4"))
        finally:
            for process in filter(None, downloads):
                process.kill()
                process.wait()


def play(results, kind, path, system, film, rate=PLAYED, **values):
    jumps = [(PLAY_SECONDS / 3, 0.4), (PLAY_SECONDS * 2 / 3, 0.75)]
    player = Player(film, rate, RATE, PLAY_SECONDS, jumps, trip=TRIP, patience=PATIENCE, **values)
    player.run()
    if player.error:
        raise player.error
    results.add(row(f"play-{kind}-stalls", path), system, len(player.stalls_over(0.1)), note=player.stalls, path=path)
    results.add(row(f"play-{kind}-seconds", path), system, player.stalled, path=path)


class CurlFile:
    """A file as curl brings it: in one response up to its end, and at each jump in another, over a new connection."""

    def __init__(self, server, path, name):
        self.command = [*server.enter, *curl_words(server, path), f"{server.url}/{name}"]
        self.size = server.files[name]
        self.process, self.position = None, None

    def read(self, count, offset):
        if offset != self.position:
            self.close()
            self.process = subprocess.Popen([*self.command, "--range", f"{offset}-"], stdout=subprocess.PIPE)
        if len(self.process.stdout.read(count)) < count:
            raise OSError(f"curl ended before byte {offset + count}")
        self.position = offset + count

    def close(self):
        if self.process:
            end_process(self.process)
            self.process.stdout.close()


def curl_words(server, path):
    return ["curl", "--http2" if path.http2 else "--http1.1", "--cacert", server.authority, "--silent", "--fail"]


def curl_plays(results, root, path):
    """The player of the other rows, fed by curl alone."""
    with ends(root, path) as (_, server):
        play(results, "alone", path, "curl", "film.mp4", opened=lambda name: CurlFile(server, path, name))


def curl(results, root, path):
    """The same reads by curl alone, one after the other on one connection, three a second."""
    chance = random.Random(0)
    with ends(root, path) as (_, server):
        requests = []
        for _ in range(17):
            start = chance.randrange(FILM // READ - 1) * READ
            requests.append("\n".join([
                f'url = "{server.url}/film.mp4"', f'range = "{start}-{start + READ - 1}"', 'output = "/dev/null"',
                f'cacert = "{server.authority}"', "http2" if path.http2 else "http1.1", "silent", "fail",
                'write-out = "%{time_total}\\n"']))
        done = subprocess.run([*server.enter, "curl", "--rate", "180/m", "-K", "-"], input="\nnext\n".join(requests),
                              capture_output=True, text=True, check=True, timeout=60)
    # The first one makes the connection.
    for seconds in done.stdout.split()[1:]:
        for name in ("first-byte", "first-byte-known", "seek-idle", "seek-own", "seek-other", "seek-copy"):
            results.add(row(name, path), "curl", float(seconds), path=path)


LIMIT = TRIP + READ / RATE
START_LIMIT = 2 * TRIP + (-(-SHOWN * PLAYED // CHUNK) + 1) * CHUNK / RATE
TITLES = {
    "first-byte": "first byte, size unknown (stat, open, read)",
    "first-byte-known": "… size known (open, read)",
    "start": "… until a player of 2.4 MB/s shows 0.2 s, behind head and tail",
    "seek-idle": "seek into a hole, idle line",
    "seek-own": "… line busy with the file's own continuation",
    "underway-own": "… … bytes in the server's sockets before each seek, not acknowledged",
    "queued-own": "… … of those in the router's queue",
    "seek-other": "… line busy with the download of another file",
    "underway-other": "… … bytes in the server's sockets before each seek, not acknowledged",
    "queued-other": "… … of those in the router's queue",
    "seek-copy": "… while another program copies another file",
    "underway-copy": "… … bytes in the server's sockets before each seek, not acknowledged",
    "queued-copy": "… … of those in the router's queue",
    "play-alone-stalls": "playing at 60 %, two jumps: stalls over 100 ms",
    "play-alone-seconds": "… seconds of stalls",
    "play-fast-stalls": "playing at 90 %, two jumps: stalls over 100 ms",
    "play-fast-seconds": "… seconds of stalls",
    "play-beside-stalls": "playing at 60 % beside two downloads of other files: stalls over 100 ms",
    "play-beside-seconds": "… seconds of stalls",
}
HOW = {
    "first-byte": "Real TCP and TLS between two network namespaces (Tests/test-line): 60 ms, 4 MB/s, over HTTP/1.1 "
                  "and HTTP/2, with bbr and cubic, a router's queue of one and of five round trips; all samples "
                  "together, and the path with the worst median. 64 KiB at 0 of files nobody touched before, each "
                  "in a folder of its own, after a look at another. The limit is one round trip and the bytes at the "
                  "line's rate. rclone with its default flags, over two of these paths.",
    "first-byte-known": "As above, of files whose sizes the list gives (rclone: after a stat of each).",
    "start": "The time from the open, by the player of the other rows, of a film of which nothing was read. The limit: "
             "a round trip for the head, one for the tail, and their bytes with the 0.2 s at the line's rate.",
    "seek-idle": "64 KiB, on such a line, else as on the shaped one.",
    "seek-own": "As above, after 12 MiB were read in sequence.",
    "underway-own": "Not sent yet, or sent and on their way: what the kernel's table of sockets gives for the server.",
    "seek-other": "As above, while another file is fetched (mediafs fetch; rclone: cat of it).",
    "seek-copy": "As above, beside cat. Two readers wait: the limit is the round trip and the bytes at half the rate.",
    "play-alone-stalls": f"{PLAYED / 1e6:.1f} MB/s for {PLAY_SECONDS} s, the player of the other rows; it jumps after "
                         f"a third and after two thirds. It gives up when it has stalled for {PATIENCE} s.",
    "play-fast-stalls": f"As above, {PLAYED_FAST / 1e6:.1f} MB/s.",
    "play-beside-stalls": "The player at 60 %, while two other files are fetched (rclone: cat of them).",
}
LOSS_HOW = ("The same over the paths that lose 0.5 % of the packets, beside curl alone on the same line: the same "
            "reads, three a second on one connection. At 60 % it also feeds a player: with one response from each jump "
            "to the end, over a new connection, whose handshakes are 0.3 s of its stalls a jump.")


def rows_of(loss):
    """The table's rows for the paths that lose packets, or for the others."""
    for name, title in TITLES.items():
        values = {"unit": "B" if "queued" in name or "underway" in name else "" if "stalls" in name else "s"}
        if name == "start":
            values |= {"limit": START_LIMIT} if loss else {"limit": START_LIMIT, "goal": 1.25, "tail": True}
        elif loss and name == "play-alone-seconds":
            values |= {"of": "curl", "goal": 1}
        elif name.startswith("play"):
            values |= {"limit": 0} if loss or "fast" in name else {"limit": 0, "goal": 0, "worst": True}
        elif loss and values["unit"] == "s":
            values |= {"of": "curl", "goal": 1}
        elif name == "seek-copy":
            values |= {"limit": TRIP + 2 * READ / RATE}
        elif values["unit"] == "s":
            values |= {"limit": LIMIT, "goal": 1.25, "tail": True}
        if not title.startswith("…"):
            title = f"Real line{', 0.5 % loss' if loss else ''}: {title}"
        if name == "first-byte":
            values |= {"how": LOSS_HOW if loss else HOW[name], "measure": None if loss else lines}
        elif not loss:
            values |= {"how": HOW.get(name, "")}
        yield Row(f"line-{name}{'-loss' if loss else ''}", title, **values)


COPY = Row("line-copy", f"Real line: a copy's first {COPY_SECONDS} s", "B/s", of="curl", goal=0.95, more=True,
           how="Reads of 128 KiB one after the other, over the paths without loss, beside curl alone on such a line.")
RESTED = Row(
    "line-first-byte-rested", "Real line: first byte of a file of a listed folder, after 2 s without a request", "s",
    limit=LIMIT, goal=1.25, tail=True,
    how="64 KiB at 0, over the paths without loss. A folder of twelve files was listed, then the last three are opened. "
        "With CUBIC a server sends ten packets, and then waits, over a connection that has rested.")
ROWS = [*rows_of(loss=False), RESTED, COPY, *rows_of(loss=True)]
