"""What is measured, and what it is measured against: processes that are started for one measurement and ended after it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILT = os.path.join(ROOT, ".build", "release")
BENCH = os.path.join(ROOT, ".build", "bench")
RCLONE = os.path.join(BENCH, "venv", "bin", "rclone")
VERBOSE = False  # --verbose: the servers' debug logs are kept in .build/bench/logs

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


def end_process(process, seconds=10):
    """Asks a process to end, and makes it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Origin:
    """The project's scriptable origin, as a process of its own (Tests/test-origin).

    files: path (without the leading slash) -> size. Each folder has an index page, which is how rclone lists.
    A new connection costs `latency` too, as a handshake would; so does each request."""

    def __init__(self, files, latency=0.0, line=None, connection=None):
        self.files = dict(files)
        self.folder = work_folder("origin")
        self._write_indexes()
        arguments = [os.path.join(BUILT, "test-origin"), "--folder", f"path={self.folder},at=/"]
        arguments += ["--set", f"latency={latency},accept-delay={latency},line-rate={line or 'none'},"
                      f"connection-rate={connection or 'none'}"]
        for path, size in self.files.items():
            arguments += ["--resource", f"path=/{path},size={size}"]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError("the origin did not start")

    def _write_indexes(self):
        listed = {"": set()}
        for path in self.files:
            parts = path.split("/")
            for depth in range(len(parts)):
                folder = "/".join(parts[:depth])
                is_folder = depth < len(parts) - 1
                listed.setdefault(folder, set()).add(parts[depth] + ("/" if is_folder else ""))
        for folder, names in listed.items():
            os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
            with open(os.path.join(self.folder, folder, "index.html"), "w") as file:
                file.write("<html><body>\n")
                for name in sorted(names):
                    file.write(f'<a href="{urllib.parse.quote(name)}">{name}</a>\n')
                file.write("</body></html>\n")

    def command(self, name, **values):
        query = urllib.parse.urlencode({key.replace("_", "-"): value for key, value in values.items()})
        request = urllib.request.Request(f"{self.url}/.origin/{name}?{query}", method="POST", data=b"")
        urllib.request.urlopen(request, timeout=30).read()

    def totals(self):
        """connections, requests, bytesSent, … since the start or the last reset-log."""
        with urllib.request.urlopen(f"{self.url}/.origin/totals", timeout=30) as answer:
            return json.load(answer)

    def log(self):
        with urllib.request.urlopen(f"{self.url}/.origin/log", timeout=60) as answer:
            return json.load(answer)

    def stop(self):
        end_process(self.process)
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Nginx:
    """nginx that serves a folder of plain files with sendfile: the fast origin. Lists its folders (autoindex)."""

    def __init__(self, root):
        self.folder = work_folder("nginx")
        with contextlib.closing(__import__("socket").socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        temporary = "\n".join(f"{kind}_temp_path {self.folder}/{kind};"
                              for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;" if os.geteuid() == 0 else ""
        configuration = f"""{user}
daemon off; worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/error.log;
events {{ worker_connections 1024; }}
http {{ {temporary}
  default_type application/octet-stream; access_log {self.folder}/access.log; sendfile on; tcp_nodelay on;
  keepalive_requests 1000000;
  server {{ listen 127.0.0.1:{port}; root "{root}"; autoindex on; }} }}
"""
        path = os.path.join(self.folder, "nginx.conf")
        with open(path, "w") as file:
            file.write(configuration)
        program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
        self.process = subprocess.Popen([program, "-c", path, "-e", f"{self.folder}/error.log"])
        self.url = f"http://127.0.0.1:{port}"
        self.files = {name: os.path.getsize(os.path.join(root, name)) for name in os.listdir(root)}

        def answers():
            try:
                urllib.request.urlopen(self.url + "/", timeout=5).read()
                return True
            except OSError:
                return False
        wait_until("answer of nginx", answers)

    def stop(self):
        end_process(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


class Mediafs:
    """mediafs as it is installed, with its defaults."""
    name = "mediafs"

    def __init__(self, purpose=None, options=()):
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
        self.environment = dict(os.environ, XDG_DATA_HOME=os.path.join(self.folder, "data"))
        self.log = os.path.join(self.folder, "log")
        begin = time.monotonic()
        self.run("mount", self.mountpoint, "--manifest", self.manifest, "--store", self.store,
                 *(["-v", "-v", "--log-file", self.log] if VERBOSE else []), *self.options)
        self.mount_seconds = time.monotonic() - begin
        server = json.loads(self.run("status", self.mountpoint, "--json", "/no-such-file", check=False) or "{}").get("pid")
        self.server = server or self._server_pid()
        with open(f"/proc/{self.server}/stat") as file:
            self.helper = int(file.read().rsplit(")", 1)[1].split()[1])
        return self

    @property
    def store(self):
        return os.path.join(self.folder, "store")

    def _server_pid(self):
        text = self.run("status", self.mountpoint)
        return int(text.split("served by process", 1)[1].split()[0])

    def run(self, *arguments, check=True):
        done = subprocess.run([os.path.join(BUILT, "mediafs"), *arguments], env=self.environment, capture_output=True,
                              text=True, timeout=120)
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

    def stop(self, keep=False):
        self.run("unmount", self.mountpoint, check=False)
        if os.path.ismount(self.mountpoint):
            subprocess.run(["umount", "-l", self.mountpoint], check=False)
        if VERBOSE and os.path.exists(self.log):
            os.makedirs(os.path.join(BENCH, "logs"), exist_ok=True)
            shutil.copy(self.log, os.path.join(BENCH, "logs", os.path.basename(self.folder) + ".log"))
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self):
        """As a crash: the server and its helper get SIGKILL; then the dead mount is taken away."""
        for pid in reversed(self.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["umount", "-l", self.mountpoint], check=False, stderr=subprocess.DEVNULL)


class Rclone:
    """rclone mount with its full cache."""
    name = "rclone"
    flags = ()

    def __init__(self, purpose=None):
        self.purpose = purpose

    def start(self, origin, folder=None):
        self.folder = folder or work_folder(self.name.replace(" ", "-"))
        self.mountpoint = os.path.join(self.folder, "mount")
        os.makedirs(self.mountpoint, exist_ok=True)
        arguments = [RCLONE, "mount", ":http:", self.mountpoint, "--http-url", origin.url + "/", "--config", "",
                     "--cache-dir", os.path.join(self.folder, "cache"), "--vfs-cache-mode", "full", "--read-only",
                     *self.flags]
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

    def stop(self, keep=False):
        subprocess.run(["umount", "-l", self.mountpoint], check=False, stderr=subprocess.DEVNULL)
        end_process(self.process)
        self.errors.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self):
        self.process.kill()
        self.process.wait()
        subprocess.run(["umount", "-l", self.mountpoint], check=False, stderr=subprocess.DEVNULL)


class RcloneTuned(Rclone):
    """rclone with flags that suit the purpose: for copies eight streams of 4 MiB each; for readers that jump and wait small
    requests that grow, and no buffer of its own, so that a stream that was left eats little of the line."""
    name = "rclone tuned"
    common = ("--vfs-fast-fingerprint", "--dir-cache-time", "24h", "--attr-timeout", "24h", "--buffer-size", "0")

    @property
    def flags(self):
        if self.purpose == "copy":
            return self.common + ("--vfs-read-chunk-streams", "8", "--vfs-read-chunk-size", "4Mi")
        return self.common + ("--vfs-read-chunk-size", "256Ki", "--vfs-read-chunk-size-limit", "16Mi")


@contextlib.contextmanager
def mounted(system, origin, folder=None, keep=False):
    """A system at work on an origin; ended and removed behind it."""
    try:
        yield system.start(origin, folder)
    finally:
        system.stop(keep)


@contextlib.contextmanager
def serving(*arguments, **values):
    origin = Origin(*arguments, **values)
    try:
        yield origin
    finally:
        origin.stop()


def drop_caches():
    """Where allowed: what is read next comes from the disk or the daemon, not from the kernel's cache."""
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("1")
        return True
    except OSError:
        return False
