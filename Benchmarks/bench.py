#!/usr/bin/env python3
"""The figures of the design, measured beside rclone: docs/BENCHMARKS.md says what came out and how to repeat it. With
--fleet those of mounts that share: docs/BENCHMARKS-FLEET.md.

Every measure is repeated; within a repetition the systems take turns, and the repetitions of all measures take turns
too, so that what the machine does besides falls on all alike."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback

import beside_rows
import chart
import copy_rows
import count_rows
import fleet_rows
import fleet_simulated
import fleet_trip_rows
import jump_rows
import line_rows
import look_rows
import play_rows
import report
import stored_rows
import systems
import tree_rows
import wait_rows
from rows import Results

MODULES = (wait_rows, play_rows, beside_rows, line_rows, copy_rows, stored_rows, count_rows, jump_rows, look_rows,
           tree_rows)
FLEET = (fleet_rows, fleet_trip_rows, fleet_simulated)
# How often, in a full and in a quick run.
REPETITIONS = {
    "first_byte": (7, 2), "seeks": (7, 2), "play": (7, 2), "crowd": (3, 1), "throttled": (7, 2),
    "throttled_large": (2, 1), "cold": (7, 3), "stored": (7, 3), "mix": (3, 2), "restart": (3, 1), "changed": (2, 1),
    "scan": (1, 1), "listing": (3, 1), "known": (1, 1), "million": (3, 1),
    "lines": (1, 0),
    "fleet_cold": (1, 1), "fleet_apart": (1, 1), "fleet_failing": (1, 1), "fleet_far": (1, 1), "fleet_gone": (2, 1),
    "fleet_single": (3, 2), "fleet_simulated": (1, 0),
    "beside": (1, 1), "jumps": (1, 1), "killed": (3, 1), "tagless": (1, 1), "looks": (3, 1), "looks_lines": (2, 0),
    "looks_scan": (1, 1),
}
# Those whose figures are counts, and so the same on any machine.
COUNTS = ["first_byte", "mix", "restart", "scan", "known"]
COUNTED = ["first-byte-requests", "mix-bytes", "restart-again", "scan-extra", "known-requests"]
LONGEST = 32 * 60 + line_rows.LONGEST
LONGEST_OF_FLEET = 10 * 60


def measures(rows, options):
    names = list(dict.fromkeys(row.measure for row in rows if row.measure))
    if options.counts:
        return [measure for measure in names if measure.__name__ in COUNTS]
    if options.only:
        return [measure for measure in names if any(word in measure.__name__ for word in options.only.split(","))]
    return names


def repetitions(measure, options):
    full, quick = REPETITIONS[measure.__name__]
    return options.repetitions or (1 if options.counts else quick if options.quick else full)


def run(rows, options, results):
    """All repetitions, as far as the time goes; what was left out."""
    begin = time.monotonic()
    lasted = {}
    left_out = []
    chosen = measures(rows, options)
    for repetition in range(max(repetitions(measure, options) for measure in chosen)):
        results.is_reversed = repetition % 2 == 1
        for measure in chosen:
            if repetition >= repetitions(measure, options):
                continue
            name = measure.__name__
            started = time.monotonic()
            if started - begin + lasted.get(name, 0) > options.seconds:
                left_out.append((name, repetition + 1, None))
                continue
            try:
                measure(results, repetition)
            except (OSError, RuntimeError, ValueError, AssertionError, subprocess.SubprocessError) as error:
                # One measure that breaks must not cost the others' figures; the run fails at its end.
                traceback.print_exc()
                left_out.append((name, repetition + 1, error))
                results.failed = True
            took = time.monotonic() - started
            # As long as the last time: peers drop out of later repetitions.
            lasted[name] = took
            print(f"{name} {repetition + 1}: {took:.1f} s", file=sys.stderr, flush=True)
    return time.monotonic() - begin, left_out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleet", action="store_true", help="mounts that share: docs/BENCHMARKS-FLEET.md")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--counts", action="store_true",
                        help="only mediafs, once, only what is counted (bytes, requests)")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is worse than in floors.json")
    parser.add_argument("--only", metavar="A,B", help="only measures with one of these words in their names")
    parser.add_argument("--systems", default="mediafs,rclone,rclone tuned", help="which to run, separated by commas")
    parser.add_argument("--before", metavar="FOLDER",
                        help="only mediafs, and beside it the build in FOLDER (its .build/release): rows where the "
                             "new one is worse than the old one's own spread are named, and make the run fail")
    parser.add_argument("--repetitions", type=int, help="the same number for each measure")
    parser.add_argument("--seconds", type=float, help="no repetition is begun that would end later")
    parser.add_argument("--output", metavar="FILE",
                        help="write the document there, and its charts into images beside it; no table is printed")
    parser.add_argument("--verbose", action="store_true", help="keep mediafs's debug logs in .build/bench/logs")
    options = parser.parse_args()
    options.seconds = options.seconds or (LONGEST_OF_FLEET if options.fleet else LONGEST)
    rows = [row for module in (FLEET if options.fleet else MODULES) for row in module.ROWS]
    # So that every mount and process is taken away, as after an interrupt.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    systems.VERBOSE = options.verbose
    systems.clean()
    known = {kind.name: kind for kind in (systems.Mediafs, systems.Before, systems.Rclone, systems.RcloneTuned)}
    names = ["mediafs"] if options.counts else options.systems.split(",")
    if options.before:
        systems.Before.built = os.path.abspath(options.before)
        names = ["mediafs", "before"]
    results = Results([known[name] for name in names])
    try:
        seconds, left_out = run(rows, options, results)
    finally:
        systems.clean()
    rows = [row for row in rows if not options.counts or row.id in COUNTED]
    if options.output:
        # Before the file is opened: the document says whether the checkout was clean.
        text = report.document(report.FLEET_HEAD if options.fleet else report.HEAD, rows, results, seconds, left_out)
        with open(options.output, "w") as file:
            file.write(text)
        chart.draw(options.output, os.path.join(os.path.dirname(options.output), "images"))
    else:
        print(report.comparison(rows, results) if options.before else report.table(rows, results))
        print(report.path_tables(rows, results), *results.remarks, sep="\n")
    with open(os.path.join(systems.BENCH, "fleet-samples.json" if options.fleet else "samples.json"), "w") as file:
        json.dump({"samples": results.samples, "notes": results.notes, "paths": results.by_path}, file, indent=1)
    failed = results.failed or (options.before and report.worse(rows, results))
    if options.check and report.check(rows, results):
        failed = True
    sys.exit(1 if failed else 0)


main()
