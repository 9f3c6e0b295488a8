"""Names: a folder of 2,000 files, a list of a million."""

import os
import random
import sqlite3
import subprocess
import threading
import time

from rows import Row, systems
from servers import serving
from systems import mounted, peak_memory, work_folder

FOLDERS, FILES = 1000, 1000


def listing(results, repetition):
    """`ls -l` of 2,000 files of which nothing is known, and again after a remount."""
    files = {f"film{index}.mp4": 1 << 20 for index in range(2000)}
    for system in systems(results):
        if system.name == "rclone tuned" or (system.name == "rclone" and repetition >= 1):
            continue  # long, and always the same, for both
        with serving(files, latency=0.05) as origin:
            folder = work_folder("listing")
            with mounted(system, origin, folder, keep=True):
                results.add("listing", system, list_all(system.mountpoint))
            if not system.is_ours:
                continue  # it asks for all of them again
            origin.command("reset-log")
            with mounted(system, origin, folder):
                results.add("listing-again", system, list_all(system.mountpoint))
                results.add("listing-again-requests", system, origin.totals()["requests"])


def list_all(folder):
    begin = time.perf_counter()
    done = subprocess.run(["ls", "-lR", folder], check=True, capture_output=True, text=True, env={"LC_ALL": "C"})
    seconds = time.perf_counter() - begin
    lines = [line for line in done.stdout.splitlines() if ".mp4" in line]
    wrong = [line for line in lines if int(line.split()[4]) != 1 << 20]
    if len(lines) != 2000 or wrong:
        raise RuntimeError(f"the listing is wrong: {len(lines)} lines, {len(wrong)} with another size: {wrong[:1]}")
    return seconds


def known(results, repetition):
    """`ls -lR` of 2,000 files whose sizes and dates the list gives. Only mediafs: rclone has no lists."""
    for system in systems(results):
        if not system.is_ours:
            continue
        files = {f"film{index}.mp4": 1 << 20 for index in range(2000)}
        with serving(files, latency=0.05) as origin:
            folder = work_folder("known")
            with open(os.path.join(folder, "urls.txt"), "w") as file:
                file.write('<metalink xmlns="urn:ietf:params:xml:ns:metalink">')
                for name, size in files.items():
                    file.write(f'<file name="{name}"><size>{size}</size><url>{origin.url}/{name}</url></file>\n')
                file.write("</metalink>\n")
            with mounted(system, origin, folder):
                origin.command("reset-log")  # the mount's status may ask for one
                results.add("known", system, list_all(system.mountpoint))
                results.add("known-requests", system, origin.totals()["requests"])


def million(results, repetition):
    """A million entries in a thousand folders. Only mediafs: rclone would ask the origin for each one's size."""
    for system in systems(results):
        if system.is_ours:
            one_million(results, repetition, system)


def one_million(results, repetition, system):
    folder = work_folder("million")
    with serving({"one.mp4": 1 << 20, "large.mp4": 64 << 20}) as origin:
        with open(os.path.join(folder, "urls.txt"), "w") as file:
            file.write(f"{origin.url}/large.mp4\n")
            for index in range(FOLDERS):
                for number in range(FILES):
                    file.write(f"{origin.url}/one.mp4?n={index * FILES + number}\n"
                               f"  out=clip{number}.mp4\n  dir=folder{index}\n")
        # A list that was written this very moment may change again unseen, and so would be read again by the second
        # mount.
        old = time.time() - 60
        os.utime(os.path.join(folder, "urls.txt"), (old, old))
        with mounted(system, origin, folder, keep=True):
            results.add("million-first", system, system.mount_seconds)
            results.add("million-first-memory", system, peak_memory(system.pids()))
        with mounted(system, origin, folder, keep=True):
            results.add("million-again", system, system.mount_seconds)
            begin = time.perf_counter()
            names = os.listdir(system.mountpoint)
            assert len(names) == FOLDERS + 1
            results.add("million-ls-root", system, time.perf_counter() - begin)
            begin = time.perf_counter()
            names = os.listdir(system.path("folder500"))
            assert len(names) == FILES
            results.add("million-ls", system, time.perf_counter() - begin)
            chance = random.Random(repetition)
            begin = time.perf_counter()
            for _ in range(1000):
                assert not os.path.lexists(system.path(f"folder{chance.randrange(FOLDERS)}/none{chance.random()}"))
            results.add("million-lookup", system, (time.perf_counter() - begin) / 1000)
            begin = time.perf_counter()
            found = subprocess.run(["find", system.mountpoint, "-type", "f"], check=True, capture_output=True)
            assert found.stdout.count(b"\n") == FOLDERS * FILES + 1
            results.add("million-find", system, time.perf_counter() - begin)
            results.add("million-memory", system, peak_memory(system.pids()))
            before = peak_memory(system.pids())
            reload_beside(results, repetition, system)
            results.add("million-reload-memory", system, max(0, peak_memory(system.pids()) - before))
            log = os.path.join(system.store, "catalog.sqlite-wal")
            results.add("million-reload-log", system, os.path.getsize(log))
        with mounted(system, origin, folder):
            edit_ten(repetition, system)
            results.add("million-reload", system, reload_ten(system))


def edit_ten(chance, system):
    """Ten lines of the million get other links, in a file beside the list."""
    lines = random.Random(chance).sample(range(FOLDERS * FILES), 10)
    with open(system.manifest) as file:
        text = file.readlines()
    for line in lines:
        text[1 + 3 * line] = text[1 + 3 * line].rstrip() + f"&again{chance}\n"
    with open(system.manifest + ".new", "w") as file:
        file.writelines(text)


def reload_ten(system):
    """That file becomes the list; returns the seconds until the mount has its links."""
    os.rename(system.manifest + ".new", system.manifest)
    begin = time.perf_counter()
    said = system.run("reload", system.mountpoint)
    seconds = time.perf_counter() - begin
    if "10 " not in said:
        raise RuntimeError(f"the reload says: {said}")
    return seconds


def reload_beside(results, repetition, system):
    """The same under programs that look names up, read, and write to the catalog, each a thousand times a second."""
    chance = random.Random(repetition)
    # Before the threads, which Python would let wait for it.
    edit_ten(f"{repetition}-beside", system)
    waits, commits, is_over = [], [], threading.Event()

    def look_up():
        while not is_over.wait(0.001):
            begin = time.perf_counter()
            assert not os.path.lexists(system.path(f"folder{chance.randrange(FOLDERS)}/none{chance.random()}"))
            waits.append(time.perf_counter() - begin)

    def read():
        """Stored bytes of a partial file, which the kernel does not keep."""
        file = os.open(system.path("large.mp4"), os.O_RDONLY)
        try:
            while not is_over.wait(0.001):
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                begin = time.perf_counter()
                assert len(os.pread(file, 4096, 0)) == 4096
                waits.append(time.perf_counter() - begin)
        finally:
            os.close(file)

    def commit():
        """What a commit waits for: the catalog's one writer."""
        catalog = sqlite3.connect(os.path.join(system.store, "catalog.sqlite"), timeout=0, isolation_level=None)
        try:
            while not is_over.wait(0.001):
                begin = time.perf_counter()
                while True:
                    try:
                        catalog.execute("BEGIN IMMEDIATE")
                        break
                    except sqlite3.OperationalError:
                        time.sleep(0.001)
                catalog.execute("ROLLBACK")
                commits.append(time.perf_counter() - begin)
        finally:
            catalog.close()

    subprocess.run(["head", "-c", "4096", system.path("large.mp4")], check=True, capture_output=True)
    threads = [threading.Thread(target=body) for body in (look_up, read, commit)]
    for thread in threads:
        thread.start()
    try:
        results.add("million-reload-beside", system, reload_ten(system))
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    results.add("million-reload-wait", system, max(waits))
    results.add("million-reload-commit", system, max(commits))


ROWS = [
    Row("listing", "ls -lR of 2,000 files, nothing known", "s", of="rclone", goal=1, measure=listing,
        how="Latency 50 ms a request and a connection; every size has to be asked for."),
    Row("listing-again", "… after a remount", "s", how="The sizes are remembered, or not."),
    Row("listing-again-requests", "… requests for it", "", goal=0, limit=0),
    Row("known", "ls -lR of 2,000 files whose sizes the list gives", "s", measure=known,
        how="A Metalink; the origin's latency is 50 ms a request."),
    Row("known-requests", "… requests for it", "", goal=0, limit=0),
    Row("million-first", "A million entries: first mount", "s", goal=5, absolute=True, measure=million,
        how="A thousand folders of a thousand entries (a manifest of three million lines)."),
    Row("million-again", "… second mount, manifest unchanged", "s", goal=0.1, absolute=True,
        how="From the command's start to its return."),
    Row("million-ls-root", "… first listing of the root, a thousand folders", "s"),
    Row("million-ls", "… first listing of a folder, a thousand files", "s"),
    Row("million-lookup", "… lookup of a name that is not there", "s"),
    Row("million-find", "… find -type f, all of it", "s"),
    Row("million-first-memory", "… peak memory of the first mount", "B", goal=100 << 20, absolute=True),
    Row("million-memory", "… of the second, with all the above", "B", goal=100 << 20, absolute=True),
    Row("million-reload", "… ten lines changed: `mediafs reload`", "s", goal=2, absolute=True,
        how="Ten entries get other links; no program has looked at the mount."),
    Row("million-reload-beside", "… the same beside programs that use the mount", "s",
        how="They look names up, read stored bytes, and take the catalog's writer as a commit does, each a thousand "
            "times a second. The kernel knows all names, and has to forget them before programs that watch are told."),
    Row("million-reload-wait", "… longest of the lookups and reads meanwhile", "s", goal=0.05, absolute=True,
        worst=True),
    Row("million-reload-commit", "… longest wait for the catalog's writer", "s", goal=0.05, absolute=True, worst=True),
    Row("million-reload-memory", "… peak memory above that of before", "B", goal=50 << 20, absolute=True),
    Row("million-reload-log", "… the catalog's log (WAL) afterwards", "B", goal=16 << 20, absolute=True),
]
