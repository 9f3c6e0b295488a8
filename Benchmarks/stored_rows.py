"""Bytes that are stored: of a partial file, and of a complete one."""

import os
import pwd
import random
import time

from rows import Row, systems
from servers import Nginx
from systems import Copying, Mediafs, data_file, forget_pages, mounted, work_folder
from wait_rows import read_all

SIZE = 1 << 30
HALF = SIZE // 2
RANDOM_READS = 20000
COPY = "the copy"
USER = "nobody"


class UsersMediafs(Mediafs):
    """mediafs as root mounts it for another user, whose server has no rights of root's."""

    def start(self, origin, folder=None):
        folder = folder or work_folder("mediafs")
        user = pwd.getpwnam(USER)
        os.mkdir(os.path.join(folder, "store"), 0o700)
        os.chown(os.path.join(folder, "store"), user.pw_uid, user.pw_gid)
        self.options += ["-o", f"user={USER},allow_other"]  # root reads
        return super().start(origin, folder)


def stored(results, repetition):
    """Everything is read once, and then again by every system in turn, from the daemon: the kernel's pages of the mount
    are dropped before each time. The stored file itself stays in the page cache, so that no disk is measured."""
    plain = data_file(SIZE)
    server = Nginx(os.path.dirname(plain))
    try:
        measure(results, "partial", "file", plain, HALF, repetition)
        with mounted(Copying(), plain) as copying:
            measure(results, "partial", "C copier", copying.path(os.path.basename(plain)), HALF, repetition)
        for system in systems(results, "copy", mediafs_options=["--continue", "never"]):
            if not system.is_ours and repetition >= 2:
                continue
            with mounted(system, server):
                path = system.path(os.path.basename(plain))
                read_up_to(path, HALF)
                measure(results, "partial", system, path, HALF, repetition)
                read_all(path)
                system.complete(os.path.basename(plain))
                measure(results, "complete", system, path, SIZE, repetition)
                if system.is_ours:
                    measure(results, "complete", COPY, system.copy(os.path.basename(plain)), SIZE, repetition)
        if os.geteuid() == 0:
            measure_as_user(results, server, plain, repetition)
    finally:
        server.stop()


def measure_as_user(results, server, plain, repetition):
    """The same complete file, where the server cannot have the kernel read it, and the helper does."""
    system = UsersMediafs()
    with mounted(system, server):
        path = system.path(os.path.basename(plain))
        read_all(path)
        system.complete(os.path.basename(plain))
        measure(results, "complete-user", system, path, SIZE, repetition)
        measure(results, "complete-user", COPY, system.copy(os.path.basename(plain)), SIZE, repetition)


def read_up_to(path, end):
    with open(path, "rb", buffering=0) as file:
        while file.tell() < end:
            file.read(min(1 << 20, end - file.tell()))


def measure(results, what, system, path, end, seed):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        forget = system not in ("file", COPY)
        buffer = bytearray(1 << 20)
        if forget:
            forget_pages(descriptor)
        begin = time.perf_counter()
        for offset in range(0, end, len(buffer)):
            os.preadv(descriptor, [buffer], offset)
        results.add(f"{what}-sequential", system, end / (time.perf_counter() - begin))
        places = random.Random(seed).sample(range(0, end >> 12), RANDOM_READS)
        # No read-ahead, as for a database; each read is a request of its own.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        if forget:
            forget_pages(descriptor)
        buffer = [bytearray(4096)]
        begin = time.perf_counter()
        for place in places:
            os.preadv(descriptor, buffer, place << 12)
        results.add(f"{what}-random", system, (time.perf_counter() - begin) / len(places))
    finally:
        os.close(descriptor)


ROWS = [
    Row("partial-sequential", "Stored range of a partial file, sequential", "B/s", goal=0.9, of="C copier", more=True,
        measure=stored,
        how="512 MiB of a 1 GiB file are stored and read in 1 MiB pieces, after the kernel's pages of the mount were "
            "dropped (POSIX_FADV_DONTNEED); the stored file is in the page cache. C copier: a FUSE server of 80 lines "
            "of C that does nothing but copy (Benchmarks/copying.c), over the plain file; file: the plain file "
            "itself."),
    Row("partial-random", "… random 4 KiB", "s", goal=1.15, of="C copier",
        how="20,000 reads at random places (POSIX_FADV_RANDOM), pages dropped before. With Python's 1 us a call."),
    # Where the kernel may read the copy itself, which takes root, else through mediafs.
    Row("complete-sequential", "Complete file, sequential", "B/s", more=True,
        **(dict(goal=0.8, of=COPY) if os.geteuid() == 0 else dict(goal=3, of="rclone")),
        how="As above, 1 GiB, after the file was completed, opened anew. The copy: the file in mediafs's library, read "
            "without mediafs, right after. (How fast a file is copied from the page cache depends on how it got "
            "there.)"),
    Row("complete-random", "… random 4 KiB", "s", how="As above."),
    Row("complete-user-sequential", "Complete file of a mount for another user (user=), sequential", "B/s", goal=0.8,
        of=COPY, more=True,
        how="As above. Its server has no rights of root's: the mount helper has the kernel read the file."),
]
