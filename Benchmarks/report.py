"""From samples to the table, the document and the verdict."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time

import systems
from rows import percentile

PEERS = ("rclone", "rclone tuned")
REFERENCES = ("without sharing", "curl", "file", "C copier", "the copy", "the URL", "a fresh mount")


def figure(value, unit):
    """A value as a person reads it."""
    if value is None:
        return ""
    if unit == "s":
        if value == 0:
            return "0"
        if value < 0.001:
            return f"{value * 1e6:.1f} µs"
        return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"
    if unit == "B/s":
        return f"{value / 1e6:.1f} MB/s" if value < 1e9 else f"{value / 1e9:.2f} GB/s"
    if unit == "B":
        return f"{value / (1 << 20):.2f} MiB" if value >= 1 << 20 else f"{value / 1024:.0f} KiB"
    return f"{value:.4g}"


def cell(row, results, name):
    values = results.of(row.id, name)
    if not values:
        return ""
    if len(values) == 1:
        return figure(values[0], row.unit)
    worst = min(values) if row.more else max(values)
    tail = percentile([-value for value in values], 0.95) * -1 if row.more else percentile(values, 0.95)
    text = f"{figure(results.median(row.id, name), row.unit)} ({figure(tail, row.unit)}, {figure(worst, row.unit)})"
    worst_path = results.worst_path(row.id, name)
    if worst_path and worst_path[0] > 0 and name not in REFERENCES:
        text += f"; over {worst_path[1]}: {figure(worst_path[0], row.unit)}"
    return text


def times_limit(row, results):
    median = results.median(row.id, "mediafs")
    return f"{median / row.limit:.2f}" if row.limit and median is not None else ""


def times_peer(row, results):
    """How many times better than the better of the peers: above 1 is better, for a rate as for a time."""
    theirs = [(value, name) for name in PEERS if (value := results.median(row.id, name)) is not None]
    if not theirs:
        return ""
    best, peer = max(theirs) if row.more else min(theirs)
    ours = results.median_where(row.id, "mediafs", peer)
    if ours is None:
        return ""
    above, below = (ours, best) if row.more else (best, ours)
    if not below:
        return "" if not above else "∞"
    return f"{above / below:.2f}"


def ratio(row, results, value):
    """What the goal and the floor speak of; None when it was not measured."""
    if value is None:
        return None
    if row.of:
        base = results.median(row.id, row.of)
        return value / base if base else None
    if row.limit and not row.absolute:
        return value / row.limit
    return value


def judged(row, results):
    """The ratios that have to meet the goal, by what they are of."""
    values = results.of(row.id, "mediafs")
    if not values:
        return {}
    if row.worst:
        return {"worst": ratio(row, results, min(values) if row.more else max(values))}
    found = {"median": ratio(row, results, results.median(row.id, "mediafs"))}
    if row.tail:
        found["p95"] = ratio(row, results, percentile(values, 0.95))
    return {key: value for key, value in found.items() if value is not None}


def spread(row, results):
    """From the least to the greatest sample of `of`, as a multiple of its median."""
    base = results.of(row.id, row.of)
    return (max(base) - min(base)) / statistics.median(base) if base else 0


def goal_text(row):
    sign = "≥" if row.more else "≤"
    if row.of:
        return f"{sign} {row.goal:g} × {row.of}" + (" and its spread" if row.spread else "")
    if row.limit and not row.absolute:
        return f"{sign} {row.goal:g} × limit"
    return f"{sign} {figure(row.goal, row.unit)}" if row.goal else "0"


def verdict(row, results):
    found = judged(row, results)
    if row.goal is None or not found:
        return ""
    goal = row.goal + (spread(row, results) if row.spread else 0)
    missed = [key for key, value in found.items() if (value < goal if row.more else value > goal)]
    return goal_text(row) + (": **missed** (" + ", ".join(f"{key} {found[key]:.3g}" for key in missed) + ")"
                             if missed else ": met")


def table(rows, results):
    names = ["mediafs", *(name for name in PEERS if any(results.of(row.id, name) for row in rows))]
    head = ["what", "limit", *names, "mediafs / limit", "better than the best peer", "goal"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        if not results.of(row.id, "mediafs"):
            continue
        title = row.title
        others = [f"{name}: {cell(row, results, name)}" for name in REFERENCES if results.of(row.id, name)]
        limit = figure(row.limit, row.unit) if row.limit is not None else "; ".join(others)
        cells = [title, limit, *(cell(row, results, name) for name in names), times_limit(row, results),
                 times_peer(row, results), verdict(row, results)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def path_tables(rows, results):
    """What was measured over several paths: a table for all rows of the same paths. The median and the worst sample."""
    groups = {}
    for row in rows:
        paths = results.by_path.get(row.id, {}).get("mediafs", {})
        if paths:
            groups.setdefault(frozenset(paths), []).append(row)
    return "\n".join(path_table(sorted(paths), group, results) for paths, group in groups.items())


def path_table(paths, rows, results):
    lines = ["| path | system | " + " | ".join(row.id for row in rows) + " |", "|" + "---|" * (len(rows) + 2)]
    for path in paths:
        for name in ("mediafs", *PEERS, *REFERENCES):
            found = [results.by_path[row.id].get(name, {}).get(path) for row in rows]
            if any(found):
                cells = [f"{figure(statistics.median(values), row.unit)} ({figure(max(values), row.unit)})"
                         if values else "" for row, values in zip(rows, found)]
                lines.append(f"| {path} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def is_worse(row, results):
    """Whether the median is outside of what the build before gave in the same run, on the bad side."""
    before = results.of(row.id, "before")
    ours = results.median(row.id, "mediafs")
    if ours is None or not before:
        return False
    return ours < min(before) if row.more else ours > max(before)


def worse(rows, results):
    return [row.id for row in rows if is_worse(row, results)]


def comparison(rows, results):
    """This build beside the one before, in one run: the median and the spread of each."""
    lines = ["| what | before: median (least to most) | now: median (least to most) | now / before | |", "|" + "---|" * 5]
    for row in rows:
        before, ours = results.of(row.id, "before"), results.of(row.id, "mediafs")
        if not before or not ours:
            continue
        cells = [f"{figure(results.median(row.id, name), row.unit)} "
                 f"({figure(min(values), row.unit)} to {figure(max(values), row.unit)})"
                 for name, values in (("before", before), ("mediafs", ours))]
        base = results.median(row.id, "before")
        share = f"{results.median(row.id, 'mediafs') / base:.2f}" if base else ""
        lines.append("| " + " | ".join(
            [row.title, *cells, share, "**worse than its spread**" if is_worse(row, results) else ""]) + " |")
    return "\n".join(lines) + "\n"


def shortfall(left_out):
    """What the time was too short for: of each measure the first repetition that is missing; and what failed."""
    first, failed = {}, []
    for name, number, error in left_out:
        if error:
            failed.append(f"{name} {number}: {error}")
        else:
            first.setdefault(name, number)
    told = []
    if first:
        told.append("The time did not suffice for all repetitions. The first one that is missing: "
                    + ", ".join(f"{name} {number}" for name, number in first.items()) + ".")
    if failed:
        told.append(f"Failed: {'; '.join(failed)}.")
    return " ".join(told)


def document(head, rows, results, seconds, left_out):
    """docs/BENCHMARKS.md, or with another head docs/BENCHMARKS-FLEET.md."""
    measured = [row for row in rows if results.of(row.id, "mediafs")]
    missed = [f"{row.title} ({row.id})" for row in measured if "missed" in verdict(row, results)]
    text = head.format(machine=machine(), seconds=f"{seconds:.0f}", load=f"{os.getloadavg()[2]:.1f}")
    if left_out:
        text += f"\n{shortfall(left_out)}\n"
    text += (CHARTS if head is HEAD else "") + "\n" + table(rows, results)
    text += "\nMissed: " + ("; ".join(missed) if missed else "nothing") + ".\n"
    text += "".join(f"\n{remark}\n" for remark in results.remarks)
    if results.by_path:
        text += "\n## Over each path of real TCP\n\nThe median, in brackets the worst sample.\n\n"
        text += path_tables(rows, results)
    text += "\n## How each was measured\n\n"
    for row in measured:
        if row.how:
            samples = len(results.of(row.id, 'mediafs'))
            text += f"- **{row.title.removeprefix('… ')}** ({row.id}, {samples} samples): {row.how}\n"
    return text


def machine():
    with open("/proc/cpuinfo") as file:
        models = (line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
        model = next(models, platform.machine())
    commit = output(["git", "-C", systems.ROOT, "describe", "--always", "--dirty"])
    rclone = output([systems.RCLONE, "version"]).splitlines()[:1]
    kernel = ".".join(platform.release().split("-")[0].split(".")[:2])
    parts = [f"{os.cpu_count()} × {model}", f"Linux {kernel}", *rclone, f"commit {commit}",
             time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
             "as root" if os.geteuid() == 0 else "as an ordinary user"]
    return ", ".join(part for part in parts if part)


def output(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def check(rows, results):
    """Compares with floors.json: 1 when a kept ratio is worse, 0 otherwise."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "floors.json")) as file:
        floors = json.load(file)
    failed = 0
    compared = 0
    for row in rows:
        if row.id not in floors:
            continue
        found = judged(row, results)
        value = found.get("worst", found.get("median"))
        if value is None:
            continue
        compared += 1
        floor = floors[row.id]
        if value < floor if row.more else value > floor:
            failed = 1
            print(f"bench-check: {row.title} ({row.id}): {value:.4g}, kept is "
                  f"{'at least' if row.more else 'at most'} {floor:g} ({goal_unit(row)})", file=sys.stderr)
    if not compared:
        failed = 1
    print(f"bench-check: {compared} figures compared, "
          f"{'some are worse' if failed else 'none is worse'}", file=sys.stderr)
    return failed


def goal_unit(row):
    if row.of:
        return f"times {row.of}"
    return "times the limit" if row.limit and not row.absolute else row.unit or "as counted"


HEAD = """# Benchmarks

`make bench` wrote this: it runs mediafs and rclone (from PyPI, `--vfs-cache-mode full`, with its default flags and
tuned) on the same work and writes what came out. `make bench-check` compares a short run with the ratios that are kept
(Benchmarks/floors.json) and fails where one is worse.

{machine}. One run of {seconds} s; load average at its end {load}.

The origin is the project's own (Tests/test-origin), a process that delays and shapes what it sends: latency for each
request and each new connection, one rate for the whole line, one for each connection; or nginx where nothing is to be
shaped. A real line is two network namespaces that a program joins (Tests/test-line), with nginx and TLS at the far end:
the kernel's TCP, a router's queue, loss. Every measurement has a mount and an origin of its own, both empty; systems
take turns within each repetition, and the measures take turns too. Every cell is the median, in brackets the 95th
percentile and the worst sample. "Limit" is what the line allows, computed from its round trip and rate, or what a plain
file or curl does. Above 1 in "better than the best peer" is better, against the better of the two rclones. "rclone
tuned": `--vfs-fast-fingerprint --dir-cache-time 24h --attr-timeout 24h --buffer-size 0`, for copies with
`--vfs-read-chunk-streams 8 --vfs-read-chunk-size 4Mi`, else with `--vfs-read-chunk-size 256Ki
--vfs-read-chunk-size-limit 16Mi`. mediafs has its default options.
"""

FLEET_HEAD = """# Benchmarks of a fleet

`make bench-fleet` wrote this: several mounts of one machine share through a real SeaweedFS ([FLEET](FLEET.md)), and
readers compare every byte. [BENCHMARKS](BENCHMARKS.md) says what one mount does.

{machine}. One run of {seconds} s; load average at its end {load}.

All of it runs on the processors of this machine: the mounts, their readers, the store, the origin. So counts bind, and
times are compared with those of mounts without a store in the same run. The origin is the project's own
(Tests/test-origin): one rate for the whole line, and a latency for each request. SeaweedFS has a master, two volume
servers, a filer and two gateways; every second mount uses the second gateway. Every measurement has mounts, an origin
and a store of its own, all empty. A cell with several samples is the median, in brackets the 95th percentile and the
worst. "Without sharing" is mediafs without `--share`. rclone is `rclone mount --vfs-cache-mode full`.
"""

# chart.py draws them from the tables of the document.
CHARTS = """
![Time to the first byte](images/start.svg)

![Time of a seek](images/seeks.svg)

![Stalls while a film plays](images/stalls.svg)

![Reading in sequence](images/rates.svg)

![Copy from an origin that holds each connection](images/held.svg)

![Peak memory](images/memory.svg)
"""
