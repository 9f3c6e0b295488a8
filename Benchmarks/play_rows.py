"""Playing: whether the bytes are there when they are due."""

import math
import os
import threading
import time

from rows import Row, systems
from servers import serving
from systems import mounted, peak_memory

TRIP = 0.05
CHUNK = 64 << 10
AHEAD = 1.0  # seconds a player reads ahead of what it shows
SHOWN = 0.2  # seconds it needs before it shows anything


class OpenFile:
    """What a player reads: a file of a mount."""

    def __init__(self, path):
        self.descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.descriptor).st_size

    def read(self, count, offset):
        os.pread(self.descriptor, count, offset)

    def close(self):
        os.close(self.descriptor)


class Player:
    """Reads at a rate as a player does: the head, the tail, then in sequence, at most a second ahead of what it shows.

    It shows when it has 0.2 s of the medium, as mpv does (--audio-buffer), at the start and after each jump. A stall is
    an underrun: the next chunk is not there when it is due. The start is none, nor is the time after a jump up to the
    limit (the round trip and those 0.2 s at the line's rate) and 15 %."""

    def __init__(self, path, rate, line, seconds, jumps=(), probes_tail=True, trip=TRIP,
                 patience=math.inf, opened=OpenFile):
        self.opened = opened
        self.path, self.rate, self.seconds, self.probes_tail = path, rate, seconds, probes_tail
        self.patience = patience  # seconds of stalls after which it gives up
        self.jumps = sorted(jumps)  # (second of the medium shown so far, share of the file)
        self.first = -(-SHOWN * rate // CHUNK) * CHUNK
        self.allowed = 1.15 * (trip + self.first / line)
        self.stalls = []  # (second, what for, how long)
        self.start_seconds = None
        self.error = None

    def run(self):
        try:
            self._run()
        except OSError as error:
            self.error = error

    def _run(self):
        begin = time.monotonic()
        file = self.opened(self.path)
        try:
            file.read(CHUNK, 0)
            if self.probes_tail:
                file.read(CHUNK, file.size - CHUNK)
            offset, shown = 0, 0.0
            for stop, share in [*self.jumps, (self.seconds, None)]:
                asked = time.monotonic()
                for start in range(0, int(self.first), CHUNK):
                    file.read(CHUNK, offset + start)
                waited = time.monotonic() - asked
                if self.start_seconds is None:
                    self.start_seconds = time.monotonic() - begin
                elif waited > self.allowed:
                    self._stall(shown, "jump", waited - self.allowed)
                self._play(file, offset + int(self.first), shown, stop)
                shown = stop
                if share:
                    offset = int(share * file.size) // CHUNK * CHUNK
        finally:
            file.close()

    def _play(self, file, offset, shown, stop):
        """From `offset`, up to which it has 0.2 s to show, until `stop` seconds of the medium were shown."""
        shift = time.monotonic() - shown  # when the medium's second 0 would have been shown
        have = shown + self.first / self.rate  # up to here is read
        while have < stop and self.stalled < self.patience:
            wait = shift + have - AHEAD - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            file.read(CHUNK, offset)
            late = time.monotonic() - (shift + have)
            if late > 0:
                self._stall(have, "play", late)
                shift += late
            have += CHUNK / self.rate
            offset += CHUNK
        rest = shift + min(stop, have) - time.monotonic()
        if rest > 0:
            time.sleep(rest)

    def _stall(self, second, what, seconds):
        self.stalls.append((round(second, 2), what, round(seconds, 3)))

    def stalls_over(self, seconds):
        return [stall for stall in self.stalls if stall[2] > seconds]

    @property
    def stalled(self):
        return sum(seconds for _, _, seconds in self.stalls)


def play(results, repetition):
    """15 s at a rate of 60 % and of 90 % of the line. Every system and both rates at the same time, each on an origin
    and a line of its own: together they move 6 MB/s, which leaves the processors idle."""
    del repetition
    threads = [
        threading.Thread(target=play_one, args=(results, system, share, rate))
        for share, rate in (("60", 1.0e6), ("90", 1.44e6)) for system in systems(results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def play_one(results, system, share, rate):
    line = 1.6e6
    with serving({"film.mp4": 64 << 20}, latency=TRIP, line=line) as origin, mounted(system, origin):
        player = Player(system.path("film.mp4"), rate, line, 15, jumps=[(5, 0.4), (10, 0.75)])
        player.run()
        if player.error:
            raise player.error
        results.add(f"play-{share}-stalls", system, len(player.stalls), note=player.stalls)
        results.add(f"play-{share}-seconds", system, player.stalled)
        results.add("play-start", system, player.start_seconds)


def crowd(results, repetition):
    """32 players of 250 kB/s each, which need two thirds of the line."""
    count, rate, line = 32, 250e3, 12e6
    files = {f"film{index}.mp4": 32 << 20 for index in range(count)}
    for system in systems(results):
        if repetition >= (3 if system.is_ours else 1):
            continue  # 15 s and more each, and always the same
        with serving(files, latency=TRIP, line=line) as origin, mounted(system, origin):
            players = [Player(system.path(name), rate, line / count, 12, probes_tail=False) for name in files]
            threads = []
            for player in players:
                threads.append(threading.Thread(target=player.run))
                threads[-1].start()
                time.sleep(0.05)
            for thread in threads:
                thread.join()
            for player in players:
                if player.error:
                    raise player.error
            results.add("crowd-stalls", system, sum(len(player.stalls) for player in players),
                        note=[player.stalls for player in players if player.stalls])
            results.add("crowd-seconds", system, sum(player.stalled for player in players))
            results.add("crowd-memory", system, peak_memory(system.pids()))


ROWS = [
    Row("play-60-stalls", "Playing 1.0 MB/s over a 1.6 MB/s line, 15 s: stalls", "", limit=0, goal=0, worst=True,
        measure=play,
        how="A reader of 64 KiB at a time: the head, the tail, then in sequence, at most 1 s ahead; at 5 s it jumps to "
            "40 %, at 10 s to 75 %. It shows when it has 0.2 s. Latency 50 ms. A stall is a chunk that is not there "
            "when it is due; the start is none, nor is 1.15 x (round trip + 0.2 s of the medium at the line's rate) "
            "after a jump."),
    Row("play-60-seconds", "… seconds of stalls", "s", limit=0, goal=0, worst=True),
    Row("play-90-stalls", "Playing 1.44 MB/s over a 1.6 MB/s line, 15 s: stalls", "", limit=0, how="As above."),
    Row("play-90-seconds", "… seconds of stalls", "s", limit=0),
    Row("play-start", "… until 0.2 s can be shown, behind head and tail", "s",
        limit=2 * TRIP + (-(-SHOWN * 1.44e6 // CHUNK) + 1) * CHUNK / 1.6e6,
        how="The limit: one round trip for the head, one for the tail, and their bytes with the 0.2 s at the line's "
            "rate."),
    Row("crowd-stalls", "32 players on a line with 50 % to spare: stalls", "", limit=0, goal=0, worst=True,
        measure=crowd,
        how="32 files at 250 kB/s each over 12 MB/s, started 50 ms apart, 12 s each; the same player without tail and "
            "jumps."),
    Row("crowd-seconds", "… seconds of stalls, all together", "s", limit=0, goal=0, worst=True),
    Row("crowd-memory", "… peak memory of all processes", "B", goal=64 << 20, absolute=True,
        how="VmHWM of server and helper."),
]
