"""A fleet on one machine: mounts that share, and the readers that compare what they get."""

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import time

from servers import serving
from stores import BUCKET, KEY, SECRET, storing
from systems import Mediafs, end_with_parent, server_of, wait_until, work_folder

READ = 128 << 10
NOTED = 0.05  # seconds: shorter waits of a read are not told


class Node(Mediafs):
    """mediafs with --share."""
    helper = None
    secrets = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "MEDIAFS_FLEET_KEY": "0123456789abcdef0123"}

    def __init__(self, endpoint):
        super().__init__(options=["--share", f"s3://{BUCKET}/bench", "--share-endpoint", endpoint])

    def stop(self, keep=False):
        if self.helper:
            with contextlib.suppress(OSError):
                self.signal(signal.SIGCONT)
        super().stop(keep)

    def signal(self, number):
        """To its server, if there is one now: the helper starts another one when it ends."""
        server = server_of(self.helper)
        if server:
            os.kill(server, number)
        return bool(server)


class Reader:
    """A process that reads files from one folder, one after the other, and compares each read with the file of that
    name in another one: all, or the first `part` bytes. `end()` tells what came of it."""

    def __init__(self, folder, originals, names, part=None):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), folder, originals, str(part or 0), *names],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: end_with_parent(signal.SIGKILL))

    def begin(self):
        self.process.stdin.close()

    def is_running(self):
        return self.process.poll() is None

    def end(self, seconds=240):
        """What came of it: bytes (compared), wrong (of those), error, waits (when a read began, and its seconds),
        longest (of the waits), seconds (of all)."""
        try:
            # communicate() would write to what begin() closed.
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"a reader does not end in {seconds} s") from None
        return json.loads(self.process.stdout.read())

    def stop(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()


def read_and_compare(folder, originals, part, names):
    """What a Reader's process does."""
    sys.stdin.read()
    count = wrong = 0
    waits, error = [], None
    begin = time.monotonic()
    try:
        for name in names:
            with contextlib.ExitStack() as opened:
                descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
                opened.callback(os.close, descriptor)
                original = opened.enter_context(open(os.path.join(originals, name), "rb"))
                expected = opened.enter_context(mmap.mmap(original.fileno(), 0, prot=mmap.PROT_READ))
                for offset in range(0, int(part) or len(expected), READ):
                    asked = time.monotonic()
                    got = os.pread(descriptor, READ, offset)
                    took = time.monotonic() - asked
                    if took > NOTED:
                        waits.append((asked, took))
                    right = expected[offset:offset + READ]
                    if got != right:
                        wrong += sum(one != other for one, other in zip(got, right)) + abs(len(got) - len(right))
                    count += len(got)
    except OSError as failure:
        error = str(failure)
    print(json.dumps({"bytes": count, "wrong": wrong, "error": error, "waits": waits,
                      "longest": max((took for _, took in waits), default=0), "begin": begin,
                      "seconds": time.monotonic() - begin}))


class Films:
    """Files of random bytes that stay for the whole run, in the page cache."""

    def __init__(self, count, size):
        self.folder = work_folder("films")
        self.names = [f"film{index}.mp4" for index in range(count)]
        self.size = size
        self.bytes = count * size
        for name in self.names:
            with open(os.path.join(self.folder, name), "wb") as file:
                for _ in range(size >> 20):
                    file.write(os.urandom(1 << 20))

    def media(self, count=None):
        return {name: os.path.join(self.folder, name) for name in self.names[:count]}


class Fleet:
    """Mounts of the same list; `stop()` ends what is left of them and their readers."""

    def __init__(self):
        self.members, self.readers = [], []

    def add(self, system, origin):
        self.members.append(system)  # before its start: one that fails has to be stopped too
        system.start(origin)
        return system

    def read(self, films, names=None, members=None, part=None):
        """Has a reader of each member begin, all at once."""
        self.readers = [Reader(member.mountpoint, films.folder, names or films.names, part)
                        for member in members or self.members]
        for reader in self.readers:
            reader.begin()
        return self.readers

    def compared(self, expected, seconds=240):
        """What came of the readers; fails unless each got `expected` bytes."""
        found = [reader.end(seconds) for reader in self.readers]
        for index, one in enumerate(found):
            if one["error"] or one["bytes"] != expected:
                raise RuntimeError(f"the reader of node {index} got {one['bytes']} of {expected} bytes: {one['error']}")
        return found

    def stop(self):
        for reader in self.readers:
            reader.stop()
        for member in self.members:
            member.stop()


@contextlib.contextmanager
def fleet(systems, media, **line):
    """Mounts of those systems, and the origin, which is theirs alone."""
    with contextlib.ExitStack() as undo:
        origin = undo.enter_context(serving({}, media=media, **line))
        nodes = Fleet()
        undo.callback(nodes.stop)
        for system in systems:
            nodes.add(system, origin)
        yield nodes, origin


@contextlib.contextmanager
def sharing(count, media, **line):
    """The same of nodes that share: they, the origin, and the store, which half of them use by one gateway."""
    with storing() as store:
        systems = [Node(store.endpoint(index)) for index in range(count)]
        with fleet(systems, media, **line) as (nodes, origin):
            for node in nodes.members:
                wait_until_sharing(node)
            yield nodes, origin, store


def metrics(node):
    """The metrics without labels, and with labels their sums, by name."""
    found = {}
    for line in node.run("metrics", node.mountpoint).splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            found[name] = found.get(name, 0) + float(value)
    return found


def settled(nodes):
    """Waits until no block waits for its upload, and what was under way then is stored."""
    for node in nodes:
        wait_until("end of the uploads", lambda: metrics(node)["mediafs_share_waiting_bytes"] == 0)
    time.sleep(1)


def wait_until_sharing(node):
    wait_until("mount that shares", lambda: metrics(node).get("mediafs_share_up") == 1)


if __name__ == "__main__":
    read_and_compare(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
