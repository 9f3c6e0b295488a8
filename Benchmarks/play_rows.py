"""Playing: whether the bytes are there when they are due."""

import os
import threading
import time

from rows import Row, systems
from systems import mounted, peak_memory, serving

TRIP = 0.05
CHUNK = 64 << 10
AHEAD = 1.0  # seconds a player reads ahead of what it plays


class Player:
    """Reads at a rate as a player does: the head, the tail, then in sequence, at most a second ahead of what it shows.

    A stall is an underrun: the next chunk is not there when it is due. The start is none, nor is the time after a seek up to
    the limit (round trip and chunk) and 15 %."""

    def __init__(self, path, rate, line, seconds, jumps=(), probes_tail=True):
        self.path, self.rate, self.seconds, self.jumps, self.probes_tail = path, rate, seconds, jumps, probes_tail
        self.allowed = 1.15 * (TRIP + CHUNK / line)
        self.stalls = 0
        self.stalled = 0.0
        self.start_seconds = None
        self.error = None
        self.events = []

    def run(self):
        try:
            self._run()
        except OSError as error:
            self.error = error

    def _run(self):
        begin = time.monotonic()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            os.pread(descriptor, CHUNK, 0)
            if self.probes_tail:
                os.pread(descriptor, CHUNK, size - CHUNK)
            jumps = sorted(self.jumps)
            played = 0.0  # seconds of the medium shown so far
            offset = 0
            first = True
            end = self.seconds
            while played < end:
                stop = jumps[0][0] if jumps else end
                asked = time.monotonic()
                os.pread(descriptor, CHUNK, offset)
                now = time.monotonic()
                if first:
                    self.start_seconds = now - begin
                    first = False
                elif now - asked > self.allowed:
                    self.note(now - asked - self.allowed, "seek")
                played = self._play(descriptor, offset, played, stop)
                if jumps:
                    offset = int(jumps.pop(0)[1] * size) // CHUNK * CHUNK
        finally:
            os.close(descriptor)

    def _play(self, descriptor, offset, played, stop):
        """From the chunk at `offset`, which was read, until `stop` seconds of the medium were shown."""
        shift = time.monotonic() - played  # when the medium's second 0 would have been shown
        length = CHUNK / self.rate
        have = played + length  # up to here is read
        while have < stop:
            wait = shift + have - AHEAD - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            offset += CHUNK
            os.pread(descriptor, CHUNK, offset)
            late = time.monotonic() - (shift + have)
            if late > 0:
                self.note(late, "play")
                shift += late
            have += length
        rest = shift + stop - time.monotonic()
        if rest > 0:
            time.sleep(rest)
        return stop

    def note(self, seconds, kind):
        self.stalls += 1
        self.stalled += seconds
        self.events.append((kind, round(seconds, 3)))


def play(results, repetitions):
    """15 s at a rate of 60 % and of 90 % of the line. Every system and both rates at the same time, each on an origin and a
    line of its own: together they move 6 MB/s, which leaves the processors idle."""
    for _ in range(repetitions):
        threads = []
        for share, rate in (("60", 1.0e6), ("90", 1.44e6)):
            for system in systems(results):
                threads.append(threading.Thread(target=play_one, args=(results, system, share, rate)))
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
        results.add(f"play-{share}-stalls", system, player.stalls, note=player.events)
        results.add(f"play-{share}-seconds", system, player.stalled)
        results.add("play-start", system, player.start_seconds)


def crowd(results, repetitions):
    """32 players of 250 kB/s each, which need two thirds of the line."""
    count, rate, line = 32, 250e3, 12e6
    for _ in range(repetitions):
        for system in systems(results):
            files = {f"film{index}.mp4": 32 << 20 for index in range(count)}
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
                stalled = [player.stalled for player in players]
                results.add("crowd-stalls", system, sum(player.stalls for player in players),
                            note=[player.events for player in players if player.stalls])
                results.add("crowd-seconds", system, sum(stalled))
                results.add("crowd-memory", system, peak_memory(system.pids()))


ROWS = [
    Row("play-60-stalls", "Playing 1.0 MB/s over a 1.6 MB/s line, 15 s: stalls", "", limit=0, goal=0, measure=play,
        how="A reader of 64 KiB at a time: the head, the tail, then in sequence, at most 1 s ahead; at 5 s it jumps to 40 %, "
            "at 10 s to 75 %. Latency 50 ms. A stall is a chunk that is not there when it is due; the start is none, nor is "
            "1.15 x (round trip + chunk) after a jump."),
    Row("play-60-seconds", "… seconds of stalls", "s", limit=0, goal=0),
    Row("play-90-stalls", "Playing 1.44 MB/s over a 1.6 MB/s line, 15 s: stalls", "", limit=0, how="As above."),
    Row("play-90-seconds", "… seconds of stalls", "s", limit=0),
    Row("play-start", "… until the first chunk behind head and tail", "s", limit=2 * TRIP + 2 * CHUNK / 1.6e6),
    Row("crowd-stalls", "32 players on a line with 50 % to spare: stalls", "", limit=0, goal=0, measure=crowd,
        how="32 files at 250 kB/s each over 12 MB/s, started 50 ms apart, 12 s each; the same player without tail and jumps."),
    Row("crowd-seconds", "… seconds of stalls, all together", "s", limit=0, goal=0),
    Row("crowd-memory", "… peak memory of all processes", "B", goal=64 << 20, how="VmHWM of server and helper."),
]
