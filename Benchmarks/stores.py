"""The store that a fleet shares through: SeaweedFS on loopback, as processes for one measurement; and a line to it."""

import collections
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request

from systems import ROOT, end_with_parent, wait_until, work_folder

WEED = os.path.join(ROOT, ".build", "venv", "bin", "weed")
KEY, SECRET = "AKFLEETEXAMPLE000001", "fleet/secret+EXAMPLE/K7MDENGbPxRfiCYEXAM"
BUCKET = "fleet"
GATEWAYS = ("gateway1", "gateway2")


def free_ports(count):
    """Ports that nothing listens on, below those that the kernel gives to connections."""
    with contextlib.ExitStack() as held:
        sockets = []
        for port in range(random.randrange(16000, 30000), 32000):
            one = held.enter_context(contextlib.closing(socket.socket()))
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                sockets.append(port)
            if len(sockets) == count:
                return sockets
    raise RuntimeError(f"no {count} free ports")


class Seaweed:
    """A master, two volume servers, a filer and two gateways that speak S3. It has a bucket, and keys for it."""

    def __init__(self):
        self.folder = work_folder("seaweed")
        parts = ("master", "volume1", "volume2", "filer", *GATEWAYS)
        ports = iter(free_ports(2 * len(parts) + len(GATEWAYS)))
        self.ports = {part: (next(ports), next(ports)) for part in parts}
        self.counters = {gateway: next(ports) for gateway in GATEWAYS}
        self.counted = collections.Counter()  # requests to gateways that were killed
        self.processes = {}
        identity = {"name": "node", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                    "actions": ["Admin", "Read", "List", "Write"]}
        with open(os.path.join(self.folder, "s3.json"), "w") as file:
            json.dump({"identities": [identity]}, file)
        try:
            for part in parts:
                self.start(part)
            wait_until("SeaweedFS that stores", self._stores)
            for gateway in GATEWAYS:
                self.wait_for(gateway)
        except BaseException:
            self.stop()
            raise

    def _stores(self):
        """Whether the filer takes an object, which it does once it knows a volume server: the folder is a bucket."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports['filer'][0]}/buckets/{BUCKET}/ready",
                                         data=b"ready", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except OSError:
            if self.processes["filer"].poll() is not None:
                raise RuntimeError("SeaweedFS's filer has ended: " + self.said("filer")) from None
            return False

    def said(self, part):
        """What a part wrote last."""
        with open(os.path.join(self.folder, f"{part}.log"), errors="replace") as file:
            return (file.read().strip().splitlines() or [""])[-1]

    def start(self, part):
        """Starts a part, again too."""
        own, grpc = self.ports[part]
        words = [f"-port={own}", f"-port.grpc={grpc}"]
        master, filer = ("{}.{}".format(*self.ports[name]) for name in ("master", "filer"))
        data = os.path.join(self.folder, part)
        os.makedirs(data, exist_ok=True)
        if part == "master":
            # It tells its makers of itself by default.
            words = ["master", *words, f"-mdir={data}", "-peers=none", "-volumeSizeLimitMB=256",
                     "-volumePreallocate=false", "-defaultReplication=000", "-telemetry=false"]
        elif part == "filer":
            words = ["filer", *words, f"-master=127.0.0.1:{master}", f"-defaultStoreDir={data}",
                     f"-localSocket={data}/socket"]
        elif part in GATEWAYS:
            words = ["s3", *words, "-port.iceberg=0", "-port.lance=0", f"-filer=127.0.0.1:{filer}",
                     f"-config={self.folder}/s3.json", f"-localSocket={data}/socket",
                     f"-metricsPort={self.counters[part]}"]
        else:
            words = ["volume", *words, f"-dir={data}", "-max=40", f"-master=127.0.0.1:{master}", "-minFreeSpace=100MiB",
                     "-preStopSeconds=0"]
        address = "-ip.bind=127.0.0.1" if part in GATEWAYS else "-ip=127.0.0.1"
        with open(os.path.join(self.folder, f"{part}.log"), "a") as log:
            # Its own runtime would take every core from what is measured.
            self.processes[part] = subprocess.Popen(
                [WEED, "-logtostderr=true", *words, address], cwd=self.folder, stdout=log, stderr=log,
                env=dict(os.environ, GOMAXPROCS="2", HOME=self.folder),
                preexec_fn=lambda: end_with_parent(signal.SIGKILL))

    def wait_for(self, gateway):
        def answers():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[gateway][0]), 1):
                return True
            if self.processes[gateway].poll() is not None:
                raise RuntimeError(f"SeaweedFS's {gateway} has ended: {self.said(gateway)}")
            return False
        wait_until(f"{gateway} of SeaweedFS", answers)

    def port(self, gateway=GATEWAYS[0]):
        return self.ports[gateway][0]

    def endpoint(self, index=0):
        return f"http://127.0.0.1:{self.port(GATEWAYS[index % len(GATEWAYS)])}"

    def signal(self, number, parts=GATEWAYS):
        for part in parts:
            self.processes[part].send_signal(number)

    def kill(self, gateway):
        """As a crash. What it counted is kept."""
        self.counted += self._requests(gateway)
        self.processes[gateway].kill()
        self.processes[gateway].wait()

    def _requests(self, gateway):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.counters[gateway]}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found = collections.Counter()
        for line in lines:
            if line.startswith("SeaweedFS_s3_request_total{"):
                found[re.search(r'type="(\w+)"', line)[1]] += round(float(line.rsplit(" ", 1)[1]))
        return found

    def requests(self):
        """How many requests of each kind the gateways have answered."""
        return self.counted + sum((self._requests(gateway) for gateway in GATEWAYS), collections.Counter())

    def stop(self):
        # By SIGKILL: it takes its time over an orderly end.
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def storing():
    store = Seaweed()
    try:
        yield store
    finally:
        store.stop()


class Far:
    """A port whose connections lead to another one, `trip` seconds away: what comes goes on half a trip later. The
    handshake costs nothing."""

    def __init__(self, port, trip):
        self.to, self.delay = port, trip / 2
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return  # stop() closed it
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            for source, target in ((near, far), (far, near)):
                for one in (source, target):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._join(source, target)

    def _join(self, source, target):
        waiting, came = collections.deque(), threading.Semaphore(0)

        def take():
            part = b"-"
            while part:
                try:
                    part = source.recv(1 << 16)
                except OSError:
                    part = b""
                waiting.append((time.monotonic() + self.delay, part))
                came.release()

        def give():
            while True:
                came.acquire()
                due, part = waiting.popleft()
                time.sleep(max(0, due - time.monotonic()))
                try:
                    if part:
                        target.sendall(part)
                        continue
                    target.shutdown(socket.SHUT_WR)
                except OSError:
                    source.close()  # the other end has gone
                return
        for body in (take, give):
            threading.Thread(target=body, daemon=True).start()

    def stop(self):
        # A thread in accept() does not notice that its socket is closed.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
