"""What befalls the mount of a soak, or its origin, while readers read. None of it may be noticed but as a pause."""

import contextlib
import os
import signal
import subprocess
import time

from soak_readers import LONGEST, Fault
from systems import wait_until

# Whose stored bytes are deleted now and then, so that readers need the origin.
CLEARED = ("copied.bin", "random.bin", "mapped.bin", "tail.bin", "held.bin", "film.mp4")


class Events:
    """Each is done at moments, for times and in ways that `chance` decides."""

    def __init__(self, system, origin, chance, only=None):
        self.system, self.origin, self.chance = system, origin, chance
        self.number = self.edits = 0
        # The names that the list has beside the media's.
        self.extra = []
        self.failures = ["crash", "exit", "hang", "starve"]
        # What, and how often in comparison.
        self.weights = {self.kill: 8, self.kill_again: 2, self.upgrade: 3, self.stop: 2, self.stop_for_long: 1,
                        self.lose_origin: 3, self.suspend: 2, self.jump: 2, self.clear: 3, self.starve: 1,
                        self.fail_to_start: 2, self.edit: 4}
        if system.is_bounded:
            self.weights[self.fill] = 3
        if only:
            self.weights = {what: weight for what, weight in self.weights.items() if what.__name__ in only}
        self.pauses = {what.__name__: [] for what in self.weights}

    def one(self):
        """One of them. The pause is from its start to the next answer of the mount, in seconds."""
        what = self.chance.choices(list(self.weights), list(self.weights.values()))[0]
        begin = time.monotonic()
        what()
        self.answered()
        self.pauses[what.__name__].append(time.monotonic() - begin)

    def answered(self):
        """Waits until the mount answers a lookup of a name that nobody asked for."""
        self.number += 1
        try:
            os.stat(os.path.join(self.system.mountpoint, f"nothing-{self.number}"))
        except FileNotFoundError:
            return
        raise Fault("a file that is not there")

    def kill(self):
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(self.system.server(), signal.SIGKILL)

    def kill_again(self):
        """The next server too, while it prepares."""
        server = self.system.server()
        self.kill()
        wait_until("server", lambda: self.system.server() not in (None, server))
        time.sleep(self.chance.uniform(0, 0.03))
        self.kill()

    def upgrade(self):
        process = subprocess.Popen([os.path.join(self.system.built, "mediafs"), "upgrade", self.system.mountpoint],
                                   env=self.system.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(0.01)
        self.answered()
        if process.wait(LONGEST) != 0:
            raise Fault(f"upgrade: {process.stderr.read().decode()}")

    def stop(self, seconds=None):
        """The server is stopped. It goes on, and is not replaced."""
        server = self.served()
        os.kill(server, signal.SIGSTOP)
        time.sleep(seconds or self.chance.uniform(0.1, 1))
        os.kill(server, signal.SIGCONT)
        self.answered()
        if self.system.server() != server:
            raise Fault("a server that was stopped was replaced")

    def stop_for_long(self):
        self.stop(self.system.WATCHDOG * self.chance.uniform(1.3, 1.8))

    def served(self):
        """The server, once it serves: before that, the watchdog may replace it."""
        self.answered()
        return self.system.server()

    def suspend(self):
        """The machine sleeps: nobody runs, and afterwards the clocks of the kernel have gone on for a long time."""
        server = self.served()
        processes = [self.system.helper, server, self.origin.process.pid]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.3, 2))
        hours = self.chance.uniform(0.1, 100)
        self.system.clocks.move(self.system.clocks.SLEPT, int(hours * 3600))
        self.system.clocks.move(self.system.clocks.WALL, int(hours * 3600))
        for process in reversed(processes):
            os.kill(process, signal.SIGCONT)
        self.answered()
        if self.system.server() != server:
            raise Fault("a server that slept was replaced")

    def jump(self):
        """The date jumps, by up to ten years."""
        self.system.clocks.move(self.system.clocks.WALL, int(self.chance.uniform(-3e8, 3e8)))

    def clear(self):
        """Stored bytes are deleted, of files that are read. A file that is not deleted is named, with status 2."""
        names = self.chance.sample(CLEARED, self.chance.randrange(1, len(CLEARED)))
        done = subprocess.run([os.path.join(self.system.built, "mediafs"), "clear", *map(self.system.path, names)],
                              env=self.system.environment, capture_output=True, text=True, timeout=LONGEST)
        if done.returncode not in (0, 2):
            raise Fault(f"clear: status {done.returncode}, {done.stderr}")

    def lose_origin(self):
        """The origin dies, stalls, resets connections or fails, and is back before a reader may give up."""
        way = self.chance.choice(["dies", "resets", "fails", "stalls", "breaks off"])
        if way == "dies":
            self.origin.die()
            time.sleep(self.chance.uniform(0.2, 3))
            self.origin.come_back()
        elif way == "resets":
            with contextlib.suppress(OSError):  # the one that brings the command too
                self.origin.command("drop")
        elif way == "stalls":
            self.origin.command("set", frozen=1)
            time.sleep(self.chance.uniform(0.2, 3))
            self.origin.command("set", frozen=0)
        else:
            if way == "fails":
                self.origin.command("fault", kind="status", status=self.chance.choice([500, 502, 503, 504]))
            else:
                self.origin.command("fault", kind="reset-after", bytes=self.chance.randrange(200_000))
            time.sleep(self.chance.uniform(0.2, 1.5))
            self.origin.command("clear-faults")

    def fill(self):
        """The store's filesystem is full for a while, and a server may be killed meanwhile."""
        path = os.path.join(self.system.store, "filling")
        end = time.monotonic() + self.chance.uniform(0.5, 4)
        kill_at = self.chance.uniform(0, 6)
        with open(path, "wb", buffering=0) as file:
            try:
                while time.monotonic() < end:
                    with contextlib.suppress(OSError):
                        for size in (1 << 20, 4096):  # until not a page is left
                            while time.monotonic() < end and file.write(bytes(size)) == size:
                                pass
                    kill_at -= 0.1
                    if -0.1 < kill_at <= 0:
                        self.kill()
                    time.sleep(0.1)
            finally:
                os.unlink(path)

    def edit(self):
        """The list gets other names or links, or is of no use for a while: then nothing changes."""
        way = self.chance.choice(["names", "links", "garbage", "half", "gone"])
        if way in ("names", "links"):
            self.edits += 1
            links = self.edits if way == "links" else 0
            extra = self.chance.sample(range(1000), self.chance.randrange(30)) if way == "names" else self.extra
            self.write(self.lines(extra, links))
            self.extra = extra
        else:
            whole = self.lines(self.extra, 0)
            if way == "gone":
                os.unlink(self.system.manifest)
            else:
                self.write([os.urandom(3000).hex()] if way == "garbage" else whole[:len(whole) // 3])
            time.sleep(self.chance.uniform(0.1, 2))
            self.shows(self.extra)
            self.write(whole)
        self.reload()
        self.shows(self.extra)

    def lines(self, extra, links):
        """Of the media, by other links if `links` is not 0: the signature is no part of what a URL names."""
        signed = f"?X-Amz-Credential=k&X-Amz-Date=20260101T000000Z&X-Amz-Signature={links}" if links else ""
        return ([f"{self.origin.url}/{path}{signed}" for path in self.origin.files]
                + [f"{self.origin.url}/small000.txt?extra={number}\n  out=extra{number}.txt" for number in extra])

    def write(self, lines):
        """In the list's place, as editors do."""
        with open(self.system.manifest + ".new", "w") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.rename(self.system.manifest + ".new", self.system.manifest)

    def reload(self):
        done = subprocess.run([os.path.join(self.system.built, "mediafs"), "reload", self.system.mountpoint],
                              env=self.system.environment, capture_output=True, text=True, timeout=LONGEST)
        if done.returncode != 0:
            raise Fault(f"reload: status {done.returncode}, {done.stderr}")

    def shows(self, extra):
        """Waits for these names: the new ones show once the programs that watch the mount are told."""
        wanted = sorted([*self.origin.files, *(f"extra{number}.txt" for number in extra)])
        end = time.monotonic() + 10
        while (found := sorted(os.listdir(self.system.mountpoint))) != wanted:
            if time.monotonic() > end:
                raise Fault(f"the list: {len(found)} names, not {len(wanted)}: {sorted(set(found) ^ set(wanted))[:9]}")
            time.sleep(0.05)

    def starve(self):
        """There are too few descriptors for the helper to start a server."""
        before = self.system.limit_descriptors(self.chance.randrange(3, 16))
        try:
            self.kill()
            time.sleep(self.chance.uniform(0, 1))
        finally:
            self.system.limit_descriptors(before)

    def fail_to_start(self):
        """The next server crashes as it begins, ends, hangs, or has too few descriptors."""
        does = self.chance.choice(self.failures)
        if does == "hang":
            self.failures.remove(does)  # once: after each, the watchdog waits for twice as long
        self.system.next_server(does)
        self.kill()


def end_by_helper(system):
    """The helper is killed: the mount goes, its server too, and the store is as it should be."""
    server = system.server()
    os.kill(system.helper, signal.SIGKILL)
    system.process.wait()
    wait_until("end of the mount", lambda: not os.path.ismount(system.mountpoint), LONGEST)
    wait_until("end of the server", lambda: server is None or not os.path.exists(f"/proc/{server}"), LONGEST)
    verified = subprocess.run([os.path.join(system.built, "mediafs"), "verify", system.mountpoint],
                              env=system.environment, capture_output=True, text=True, timeout=LONGEST)
    if verified.returncode != 0:
        raise Fault(f"verify: status {verified.returncode}, {verified.stdout}{verified.stderr}")
