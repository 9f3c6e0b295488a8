#!/usr/bin/env python3
"""The figures of the design, measured beside rclone: see docs/BENCHMARKS.md for what came out and how to repeat it."""

import argparse
import json
import os
import shutil
import signal
import sys
import time

import copy_rows
import play_rows
import report
import systems
import wait_rows
from rows import Results

GROUPS = [(wait_rows, 7, 3), (play_rows, 7, 2), (copy_rows, 7, 2)]
REPETITIONS = {  # where not 7: (full, quick)
    "seeks": (5, 2), "crowd": (3, 1), "play": (7, 2), "cold": (7, 2), "throttled": (7, 2), "first_byte": (7, 2),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", metavar="TEXT", help="only measures whose name contains one of these words (a,b)")
    parser.add_argument("--systems", default="mediafs,rclone,rclone tuned", help="which to run, separated by commas")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--output", help="where the table is written; else to standard output")
    parser.add_argument("--verbose", action="store_true", help="keep mediafs's debug logs in .build/bench/logs")
    options = parser.parse_args()
    # So that every mount and process is taken away, as after an interrupt.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    systems.VERBOSE = options.verbose
    known = {kind.name: kind for kind in (systems.Mediafs, systems.Rclone, systems.RcloneTuned)}
    results = Results([known[name] for name in options.systems.split(",")])
    shutil.rmtree(os.path.join(systems.BENCH, "work"), ignore_errors=True)
    begin = time.monotonic()
    rows = [row for module, _, _ in GROUPS for row in module.ROWS]
    for row in rows:
        if row.measure is None:
            continue
        name = row.measure.__name__
        if options.only and not any(word in name for word in options.only.split(",")):
            continue
        full, quick = REPETITIONS.get(name, (7, 2))
        started = time.monotonic()
        row.measure(results, options.repetitions or (quick if options.quick else full))
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    seconds = time.monotonic() - begin
    text = report.markdown(rows, results, seconds)
    if options.output:
        with open(options.output, "w") as file:
            file.write(text)
    else:
        print(text)
    with open(os.path.join(systems.BENCH, "samples.json"), "w") as file:
        json.dump({"samples": results.samples, "notes": results.notes}, file, indent=1)


main()
