"""The mount of a soak, and what its processes are like. All of it ends when the soak does, however that ends."""

import ctypes
import mmap
import os
import re
import resource
import signal
import struct
import subprocess

from systems import BUILT, Mediafs, end_process, end_with_parent, server_of, unmount, wait_until, work_folder

SHIM = os.path.join(BUILT, "libdisk-shim.so")
# Of the store's filesystem, if the soak may mount one: twice what all files have.
STORE_SIZE = 384 << 20
CLONE_NEWNS, MS_PRIVATE = 0x20000, 0x4C000  # MS_PRIVATE | MS_REC
# mount-helper/session.h
SESSION_SLOT_MARK, SESSION_SLOTS, SESSION_HANDLES, SESSION_SLOT_SIZE, SESSION_HANDLE_SIZE = 16, 135168, 2232320, 128, 32
SESSION_BUFFERS, SESSION_BUFFER_SIZE, SESSION_BUFFER_COUNT = 4096, 8192, 16


def enter_mount_namespace():
    """What is mounted from now on is gone when the last process of the soak is. Only root can."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_PRIVATE, None) != 0:
        raise OSError(ctypes.get_errno(), "cannot get a mount namespace")


class Clocks:
    """The server's clocks, which Tests/DiskShim moves: a page of memory that all servers share."""
    WALL, SLEPT = 22, 27  # words of struct disk_control

    def __init__(self, folder):
        self.path = os.path.join(folder, "clocks")
        with open(self.path, "wb") as file:
            file.write(bytes(4096))
        with open(self.path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 4096)
        struct.pack_into("q", self.page, 16 * 8, -1)  # nothing kills

    def move(self, word, seconds):
        """Moves a clock by so many seconds from where it is."""
        struct.pack_into("q", self.page, word * 8, struct.unpack_from("q", self.page, word * 8)[0] + seconds)


class SoakedMediafs(Mediafs):
    """mediafs in the foreground, as a child that ends with the soak; its store is a small filesystem if possible."""
    WATCHDOG = 2

    def start(self, origin, folder=None):
        self.folder = folder or work_folder("mediafs")
        self.mountpoint, self.manifest = os.path.join(self.folder, "mount"), os.path.join(self.folder, "urls.txt")
        self.log = os.path.join(self.folder, "log")
        self.environment = dict(os.environ, XDG_DATA_HOME=os.path.join(self.folder, "data"))
        for path in (self.mountpoint, self.store):
            os.makedirs(path, exist_ok=True)
        os.chmod(self.store, 0o700)
        self.is_bounded = os.geteuid() == 0
        if self.is_bounded:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STORE_SIZE},mode=700", "none", self.store], check=True)
        self.clocks, self.begin = Clocks(self.folder), os.path.join(self.folder, "begin")
        with open(self.manifest, "w") as file:
            file.writelines(f"{origin.url}/{path}\n" for path in origin.files)
        shim = dict(self.environment, LD_PRELOAD=SHIM, MEDIAFS_DISK_CONTROL=self.clocks.path,
                    MEDIAFS_DISK_STORE=self.store, MEDIAFS_START=self.begin)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [os.path.join(self.built, "mediafs"), "mount", self.mountpoint, "--manifest", self.manifest, "--store",
                 self.store, "--foreground", "--watchdog", str(self.WATCHDOG), "--min-free", "0", "--continue", "never"],
                env=shim, stdout=log, stderr=log, preexec_fn=lambda: end_with_parent(signal.SIGTERM))
        self.helper = self.process.pid
        wait_until("mount", lambda: "mounted at" in self.said() or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise RuntimeError(self.said())
        return self

    def said(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def server(self):
        """The process that serves, or prepares to."""
        return server_of(self.helper)

    def limit_descriptors(self, count):
        """Of the helper; a server that it starts raises its own limit again. Returns what it was."""
        soft, hard = resource.prlimit(self.helper, resource.RLIMIT_NOFILE)
        resource.prlimit(self.helper, resource.RLIMIT_NOFILE, (count, hard))
        return soft

    def next_server(self, does):
        """What the next server does as it starts (Tests/DiskShim/start.c)."""
        with open(self.begin + "-new", "w") as file:
            file.write(does)
        os.rename(self.begin + "-new", self.begin)

    def state(self):
        """Descriptors, threads and resident KiB of the server and of the helper."""
        return state(self.server()), state(self.helper)

    def session(self):
        """How many slots, buffers and handles of the session memory are in use. Only root can look."""
        folder = f"/proc/{self.helper}/fd"
        name = next(name for name in os.listdir(folder)
                    if re.match(r"/memfd:.*session", os.readlink(os.path.join(folder, name))))
        with open(os.path.join(folder, name), "rb") as file:
            def used(start, count, size, form):
                file.seek(start)
                part = file.read(count * size)
                return sum(struct.unpack_from(form, part, index * size)[0] != 0 for index in range(count))
            file.seek(SESSION_SLOT_MARK)
            slots, handles = struct.unpack("II", file.read(8))
            return (used(SESSION_SLOTS, slots, SESSION_SLOT_SIZE, "I"),
                    used(SESSION_BUFFERS, SESSION_BUFFER_COUNT, SESSION_BUFFER_SIZE, "I"),
                    used(SESSION_HANDLES, handles, SESSION_HANDLE_SIZE, "Q"))

    def stop(self, keep=False):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.run("unmount", "--lazy", self.mountpoint, check=False)
        end_process(self.process)
        if os.path.ismount(self.mountpoint):
            unmount(self.mountpoint)
        if self.is_bounded:
            subprocess.run(["umount", "-l", self.store], check=False)
        self.discard()


def state(pid):
    with open(f"/proc/{pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    try:
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        descriptors = 0  # neither process is dumpable: only root sees them
    return descriptors, int(fields["Threads"]), int(fields["VmRSS"].split()[0])
