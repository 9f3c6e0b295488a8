"""Eight kinds of readers, each in a process of its own, that compare every byte with the originals."""

import contextlib
import hashlib
import mmap
import multiprocessing
import os
import random
import signal
import subprocess
import tempfile
import time

from systems import end_with_parent

SIZE = 24 << 20
SMALL = 300
# A reader that waits this long hangs. (mpv plays for 20 s.)
LONGEST = 90


class Fault(Exception):
    """What no reader may see."""


class Media:
    """The originals, and where they are in a mount."""

    def __init__(self, folder, seed):
        self.folder = folder
        chance = random.Random(seed)
        for name in ("copied.bin", "random.bin", "mapped.bin", "whole.bin", "tail.bin", "held.bin"):
            with open(self.original(name), "wb") as file:
                file.write(chance.randbytes(SIZE))
        for number in range(SMALL):
            with open(self.original(f"small{number:03}.txt"), "wb") as file:
                file.write(chance.randbytes(chance.randrange(1, 2000)))
        subprocess.run(["ffmpeg", "-loglevel", "error", "-y", "-f", "lavfi", "-i", "testsrc2=s=640x360:r=25:d=120", "-f",
                        "lavfi", "-i", "sine=d=120", "-c:v", "libx264", "-preset", "ultrafast", "-b:v", "2M",
                        "-movflags", "faststart", self.original("film.mp4")], check=True)
        self.files = {name: self.original(name) for name in sorted(os.listdir(folder))}

    def original(self, name):
        return os.path.join(self.folder, name)


# Each is a loop that checks what it reads and calls `done` after each piece of work.

def copies(media, mountpoint, chance, done):
    """cat and cp, in turns at random."""
    with open(media.original("copied.bin"), "rb") as file:
        wanted = hashlib.sha256(file.read()).digest()
    source = os.path.join(mountpoint, "copied.bin")
    while True:
        if chance.random() < 0.5:
            copies_by_cp(source, media.folder, wanted, done)
            continue
        found = hashlib.sha256()
        with subprocess.Popen(["cat", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as cat:
            while piece := cat.stdout.read(1 << 20):
                found.update(piece)
                done()
            errors = cat.stderr.read().decode()
        if cat.returncode != 0:
            raise Fault(f"cat: {errors}")
        if found.digest() != wanted:
            raise Fault("cat: other bytes")


def copies_by_cp(source, folder, wanted, done):
    """In the folder of the originals: the soak removes it, also when it kills this process at the end."""
    with tempfile.NamedTemporaryFile(dir=folder) as copy:
        size = 0
        with subprocess.Popen(["cp", source, copy.name], stderr=subprocess.PIPE) as cp:
            while cp.poll() is None:
                time.sleep(0.05)
                if os.path.getsize(copy.name) > size:
                    size = os.path.getsize(copy.name)
                    done()
            errors = cp.stderr.read().decode()
        if cp.returncode != 0:
            raise Fault(f"cp: {errors}")
        with open(copy.name, "rb") as file:
            if hashlib.sha256(file.read()).digest() != wanted:
                raise Fault("cp: other bytes")


def reads_anywhere(media, mountpoint, chance, done):
    with open(media.original("random.bin"), "rb") as original, open(os.path.join(mountpoint, "random.bin"), "rb") as file:
        while True:
            offset, count = chance.randrange(SIZE), chance.randrange(1, 200_000)
            bytes_read = os.pread(file.fileno(), count, offset)
            if bytes_read != os.pread(original.fileno(), count, offset):
                raise Fault(f"pread at {offset}: other bytes")
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            done()


def maps(media, mountpoint, chance, done):
    with open(media.original("mapped.bin"), "rb") as original, open(os.path.join(mountpoint, "mapped.bin"), "rb") as file:
        while True:
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                offset = chance.randrange(SIZE - 100_000)
                if mapped[offset:offset + 100_000] != os.pread(original.fileno(), 100_000, offset):
                    raise Fault(f"mmap at {offset}: other bytes")
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            done()


def lists(media, mountpoint, _, done):
    """`ls -lR`, then ffprobe, as programs that scan do."""
    wanted = {name: os.path.getsize(path) for name, path in media.files.items()}
    facts = probe(media.original("film.mp4"))
    while True:
        listed = subprocess.run(["ls", "-lR", mountpoint], capture_output=True, text=True)
        # What an edit of the list takes away between the two looks of ls is gone from any filesystem.
        errors = [line for line in listed.stderr.splitlines() if "/extra" not in line or "No such file" not in line]
        if listed.returncode != 0 and (errors or not listed.stderr):
            raise Fault(f"ls: {listed.stderr}")
        lines = [line.split() for line in listed.stdout.splitlines() if line[:1] == "-" and line[:2] != "-?"]
        found = {line[-1]: int(line[4]) for line in lines}
        if any(found.get(name) != size for name, size in wanted.items()):
            raise Fault(f"ls: {len(found)} files, or other sizes")
        done()
        if probe(os.path.join(mountpoint, "film.mp4")) != facts:
            raise Fault("ffprobe: other facts")
        done()


def probe(path):
    probed = subprocess.run(["ffprobe", "-v", "error", "-show_streams", "-show_format", path], capture_output=True,
                            text=True)
    if probed.returncode != 0 or probed.stderr:
        raise Fault(f"ffprobe: {probed.stderr}")
    return probed.stdout.replace(path, "")


def reads_whole(media, mountpoint, chance, done):
    """A complete file, over a handle that stays open and over new ones."""
    path = os.path.join(mountpoint, "whole.bin")
    with open(media.original("whole.bin"), "rb") as original, open(path, "rb") as held:
        while True:
            with open(path, "rb") as file:
                for number in (held.fileno(), file.fileno()):
                    offset = chance.randrange(SIZE)
                    if os.pread(number, 300_000, offset) != os.pread(original.fileno(), 300_000, offset):
                        raise Fault(f"complete file at {offset}: other bytes")
            done()


def tails(media, mountpoint, chance, done):
    with open(media.original("tail.bin"), "rb") as original:
        while True:
            count = chance.randrange(1, 1_000_000)
            read = subprocess.run(["tail", "-c", str(count), os.path.join(mountpoint, "tail.bin")], capture_output=True)
            if read.returncode != 0:
                raise Fault(f"tail: {read.stderr.decode()}")
            if read.stdout != os.pread(original.fileno(), count, SIZE - count):
                raise Fault("tail: other bytes")
            done()


def holds(media, mountpoint, chance, done):
    """A handle that is idle for long."""
    with open(media.original("held.bin"), "rb") as original, open(os.path.join(mountpoint, "held.bin"), "rb") as file:
        while True:
            time.sleep(chance.uniform(0.5, 5))
            offset = chance.randrange(SIZE)
            if os.pread(file.fileno(), 4096, offset) != os.pread(original.fileno(), 4096, offset):
                raise Fault(f"held file at {offset}: other bytes")
            done()


def plays(_, mountpoint, __, done):
    while True:
        played = subprocess.run(["mpv", "--no-config", "--ao=null", "--vo=null", "--msg-level=all=warn", "--untimed=no",
                                 os.path.join(mountpoint, "film.mp4"), "--length=20"], capture_output=True, text=True)
        if played.returncode != 0 or "rror" in played.stdout + played.stderr:
            raise Fault(f"mpv: status {played.returncode}, {played.stdout}{played.stderr}")
        done()


READERS = (plays, copies, reads_anywhere, maps, lists, reads_whole, tails, holds)


def read(reader, media, mountpoint, seed, rounds, last, faults, goes_on):
    """A reader's process. One that `goes_on` begins anew after a fault, and each fault counts."""
    def done():
        rounds.value += 1
        last.value = time.monotonic()
    os.setsid()  # its programs end with it
    end_with_parent(signal.SIGKILL)
    chance = random.Random(seed)
    while True:
        try:
            reader(media, mountpoint, chance, done)
        except (Fault, OSError, ValueError) as error:
            faults.put(f"{reader.__name__}: {error}")
            if not goes_on:
                return
            time.sleep(0.2)


class Readers:
    """All eight, each in a process of its own."""

    def __init__(self, media, mountpoint, seed, goes_on=False):
        self.faults = multiprocessing.Queue()
        self.seen = []
        self.rounds = [multiprocessing.Value("q", 0) for _ in READERS]
        self.last = [multiprocessing.Value("d", time.monotonic()) for _ in READERS]
        self.processes = [
            multiprocessing.Process(target=read, args=(reader, media, mountpoint, seed + index, self.rounds[index],
                                                       self.last[index], self.faults, goes_on), daemon=True)
            for index, reader in enumerate(READERS)]
        for process in self.processes:
            process.start()

    def look(self):
        """Faults so far. A reader that was killed by a signal (SIGBUS), or hangs, is one too."""
        with contextlib.suppress(Exception):
            while True:
                self.seen.append(self.faults.get_nowait())
        for index, process in enumerate(self.processes):
            name = READERS[index].__name__
            if process.exitcode is not None and process.exitcode < 0:
                self.seen.append(f"{name}: killed by signal {-process.exitcode}")
                self.processes[index] = multiprocessing.Process(target=time.sleep, args=(0,))
            if process.is_alive() and time.monotonic() - self.last[index].value > LONGEST:
                self.seen.append(f"{name}: nothing for {LONGEST} s")
                self.last[index].value = time.monotonic()
        return self.seen

    def stop(self):
        for process in self.processes:
            if process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
                process.join()
