"""What is measured, and what it is compared with: mounts that live for one measurement."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILT = os.path.abspath(os.environ.get("BUILT", os.path.join(ROOT, ".build", "release")))
BENCH = os.path.abspath(os.environ.get("BENCH", os.path.join(ROOT, ".build", "bench")))
RCLONE = os.path.join(BENCH, "venv", "bin", "rclone")
VERBOSE = False  # --verbose: the servers' debug logs are kept in .build/bench/logs

PR_SET_PDEATHSIG = 1

TICK = os.sysconf("SC_CLK_TCK")
_counter = [0]
_counter_lock = threading.Lock()


def work_folder(name):
    """A new, empty folder below .build/bench/work."""
    with _counter_lock:
        _counter[0] += 1
        number = _counter[0]
    path = os.path.join(BENCH, "work", f"{number:04}-{name}")
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def cpu_seconds(pids):
    """User and system time of processes so far, in seconds."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def peak_memory(pids):
    """The sum of the peaks of resident memory (VmHWM), in bytes: never less than the peak of the sum."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    total += int(line.split()[1]) * 1024
    return total


def wait_until(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"no {what} in {seconds} s")
        time.sleep(0.005)


def end_with_parent(number):
    """This process gets the signal when its parent ends, however that ends. For Popen's preexec_fn."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def end_process(process, seconds=10):
    """Asks a process to end, and makes it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Mediafs:
    """mediafs as it is installed, with its defaults."""
    name = "mediafs"
    is_ours = True
    built = BUILT
    secrets = {}  # what it has to know that no command line has

    def __init__(self, purpose=None, options=()):
        del purpose  # it has no flags to be tuned by
        self.options = list(options)

    def start(self, origin, folder=None):
        self.folder = folder or work_folder("mediafs")
        self.mountpoint = os.path.join(self.folder, "mount")
        self.manifest = os.path.join(self.folder, "urls.txt")
        os.makedirs(self.mountpoint, exist_ok=True)
        if not os.path.exists(self.manifest):
            with open(self.manifest, "w") as file:
                for path in origin.files:
                    file.write(f"{origin.url}/{urllib.parse.quote(path)}\n")
                    if "/" in path:
                        file.write(f"  dir={os.path.dirname(path)}\n")
        self.environment = dict(os.environ, XDG_DATA_HOME=os.path.join(self.folder, "data"), **self.secrets)
        self.log = os.path.join(self.folder, "log")
        trust = ["--cacert", origin.authority] if origin.authority else []
        begin = time.monotonic()
        self.run("mount", self.mountpoint, "--manifest", self.manifest, "--store", self.store, *trust,
                 *(["-v", "-v", "--log-file", self.log] if VERBOSE else []), *self.options, enter=origin.enter)
        self.mount_seconds = time.monotonic() - begin
        # Of one file: a status of all would be long in a mount of a million.
        name = next(iter(os.listdir(self.mountpoint)))
        self.server = json.loads(self.run("status", self.path(name), "--json"))["pid"]
        with open(f"/proc/{self.server}/stat") as file:
            self.helper = int(file.read().rsplit(")", 1)[1].split()[1])
        return self

    @property
    def store(self):
        return os.path.join(self.folder, "store")

    def copy(self, name):
        """Where a complete file's copy lies."""
        return os.path.join(self.store, "library", name)

    def run(self, *arguments, check=True, enter=()):
        done = subprocess.run([*enter, os.path.join(self.built, "mediafs"), *arguments], env=self.environment,
                              capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            raise RuntimeError(f"mediafs {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def path(self, name):
        return os.path.join(self.mountpoint, name)

    def pids(self):
        return [self.server, self.helper] if self.helper > 1 else [self.server]

    def download(self, name):
        """Has the rest of a file fetched, with nobody reading."""
        self.run("fetch", self.path(name))
        return None

    def complete(self, name):
        """Waits until a file whose bytes are all there is verified and placed."""
        self.run("fetch", "--wait", self.path(name))

    def discard(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self, keep=False):
        self.run("unmount", self.mountpoint, check=False)
        if os.path.ismount(self.mountpoint):
            unmount(self.mountpoint)
        if VERBOSE and os.path.exists(self.log):
            os.makedirs(os.path.join(BENCH, "logs"), exist_ok=True)
            shutil.copy(self.log, os.path.join(BENCH, "logs", os.path.basename(self.folder) + ".log"))
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self):
        """As a crash: the server and its helper get SIGKILL; then the dead mount is taken away. Does nothing again."""
        for pid in reversed(self.pids() if self.server else []):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.server = None
        unmount(self.mountpoint)


class Before(Mediafs):
    """Another build of mediafs, to compare with: --before sets where it is."""
    name = "before"


class Rclone:
    """rclone mount with its full cache."""
    name = "rclone"
    is_ours = False
    flags = ()

    def __init__(self, purpose=None):
        self.purpose = purpose

    def start(self, origin, folder=None):
        self.folder = folder or work_folder(self.name.replace(" ", "-"))
        self.mountpoint = os.path.join(self.folder, "mount")
        os.makedirs(self.mountpoint, exist_ok=True)
        arguments = [*origin.enter, RCLONE, "mount", ":http:", self.mountpoint, "--http-url", origin.url + "/",
                     "--config", "", "--cache-dir", os.path.join(self.folder, "cache"), "--vfs-cache-mode", "full",
                     "--read-only", *self.flags]
        if origin.authority:
            arguments += ["--ca-cert", origin.authority, *([] if origin.http2 else ["--disable-http2"])]
        self.errors = open(os.path.join(self.folder, "log"), "w")
        begin = time.monotonic()
        self.process = subprocess.Popen(arguments, stdout=self.errors, stderr=self.errors)
        wait_until("mount of rclone", lambda: os.path.ismount(self.mountpoint) or self.process.poll() is not None)
        self.mount_seconds = time.monotonic() - begin
        if self.process.poll() is not None:
            with open(os.path.join(self.folder, "log")) as file:
                raise RuntimeError("rclone: " + file.read())
        return self

    def path(self, name):
        return os.path.join(self.mountpoint, name)

    def pids(self):
        return [self.process.pid]

    def download(self, name):
        """It has no download without a reader: one that throws the bytes away stands in for it."""
        return subprocess.Popen(["cat", self.path(name)], stdout=subprocess.DEVNULL)

    def complete(self, name):
        """It does nothing more to a file when all of it was read."""

    def discard(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self, keep=False):
        unmount(self.mountpoint)
        end_process(self.process)
        self.errors.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self):
        self.process.kill()
        self.process.wait()
        unmount(self.mountpoint)


class RcloneTuned(Rclone):
    """rclone with flags that suit the purpose: for copies eight streams of 4 MiB each; for readers that jump and wait
    small requests that grow, and no buffer of its own, so that a stream that was left eats little of the line."""
    name = "rclone tuned"
    common = ("--vfs-fast-fingerprint", "--dir-cache-time", "24h", "--attr-timeout", "24h", "--buffer-size", "0")

    @property
    def flags(self):
        if self.purpose == "copy":
            return self.common + ("--vfs-read-chunk-streams", "8", "--vfs-read-chunk-size", "4Mi")
        return self.common + ("--vfs-read-chunk-size", "256Ki", "--vfs-read-chunk-size-limit", "16Mi")


class Copying:
    """The least FUSE server that copies (copying.c), over a plain file."""
    name = "C copier"

    def start(self, file, folder=None):
        self.folder = folder or work_folder("copying")
        self.mountpoint = os.path.join(self.folder, "mount")
        os.makedirs(self.mountpoint)
        program = os.path.join(BENCH, "copying")
        self.process = subprocess.Popen([program, file, self.mountpoint])
        wait_until("mount of the C copier", lambda: os.path.ismount(self.mountpoint))
        # As mediafs does where it may.
        device = os.stat(self.mountpoint).st_dev
        path = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
        with contextlib.suppress(OSError), open(path, "w") as bdi:
            bdi.write("1024")
        return self

    def path(self, name):
        return os.path.join(self.mountpoint, name)

    def stop(self, keep=False):
        del keep
        unmount(self.mountpoint)
        end_process(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


def server_of(helper):
    """The process that serves for a helper, or prepares to; None while there is none."""
    with open(f"/proc/{helper}/task/{helper}/children") as file:
        children = file.read().split()
    for child in children:
        try:
            with open(f"/proc/{child}/cmdline") as file:
                if file.read().split("\0")[1:2] == ["serve"]:
                    return int(child)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return None


@contextlib.contextmanager
def mounted(system, origin, folder=None, keep=False):
    """A system at work on an origin; ended and removed behind it."""
    try:
        yield system.start(origin, folder)
    finally:
        system.stop(keep)


def clean():
    """Takes away what an interrupted run may have left: mounts below our folder, then the folder."""
    work = os.path.join(BENCH, "work")
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4] for line in file]
    for mount in reversed(mounts):
        if mount.startswith(work + "/"):
            unmount(mount)
    shutil.rmtree(work, ignore_errors=True)


def unmount(mountpoint):
    """Lazily, as root or as an ordinary user."""
    command = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-uz"]
    subprocess.run([*command, mountpoint], check=False, stderr=subprocess.DEVNULL)


def forget_pages(descriptor):
    """Drops what the kernel holds of a file: what is read next comes from the daemon. Needs no privilege."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def data_file(size):
    """A file of random bytes that stays for the whole run, in the page cache."""
    folder = os.path.join(BENCH, "work", f"data-{size}")
    path = os.path.join(folder, "film.mp4")
    if not os.path.exists(path):
        os.makedirs(folder)
        with open(path, "wb") as file:
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    return path
