"""Rows of the table, and the samples they are made of."""

import math
import statistics
import threading
from dataclasses import dataclass
from typing import Callable, Optional


@dataclass
class Row:
    """One figure. `limit`: what physics allows. `goal`: the most (with `more`: the least) that the median may be, as a
    multiple of the limit or of the system `of`; with `absolute`, or a limit of 0, as it is. With `tail` the 95th
    percentile has to meet it too, with `worst` the worst sample. With `spread` the goal is met as well within the spread
    of the samples of `of`."""
    id: str
    title: str
    unit: str
    limit: Optional[float] = None
    goal: Optional[float] = None
    of: Optional[str] = None
    more: bool = False
    absolute: bool = False
    tail: bool = False
    worst: bool = False
    spread: bool = False
    how: str = ""
    measure: Optional[Callable] = None


class Results:
    """Samples by row and system."""

    def __init__(self, kinds):
        self.kinds = kinds
        # Whether the systems take turns in the other order: whoever comes first may find the machine colder.
        self.is_reversed = False
        self.samples = {}
        self.notes = {}
        # Of those that were measured over several paths (lines.Path): by row, system and path.
        self.by_path = {}
        # What else a reader of the table has to know.
        self.remarks = []
        self.lock = threading.Lock()
        self.failed = False

    def add(self, row, system, value, note=None, path=None):
        name = system if isinstance(system, str) else system.name
        with self.lock:
            self.samples.setdefault(row, {}).setdefault(name, []).append(value)
            if path:
                paths = self.by_path.setdefault(row, {}).setdefault(name, {})
                paths.setdefault(str(path), []).append(value)
            if note:
                self.notes.setdefault(row, {}).setdefault(name, []).append(note)

    def of(self, row, system):
        return self.samples.get(row, {}).get(system, [])

    def median(self, row, system):
        values = self.of(row, system)
        return statistics.median(values) if values else None

    def worst_path(self, row, system):
        """The greatest median and its path; None unless there are several paths."""
        paths = self.by_path.get(row, {}).get(system, {})
        return max((statistics.median(values), path) for path, values in paths.items()) if len(paths) > 1 else None

    def median_where(self, row, system, other):
        """The median over those paths over which `other` was measured too: of all samples where there are no paths."""
        paths = self.by_path.get(row, {})
        values = [value for path in paths.get(other, {}) for value in paths.get(system, {}).get(path, [])]
        return statistics.median(values) if values else self.median(row, system)


def systems(results, purpose=None, mediafs_options=()):
    """A new one of each kind that is compared, tuned for a purpose ("copy") where it can be."""
    kinds = reversed(results.kinds) if results.is_reversed else results.kinds
    return [kind(purpose, mediafs_options) if kind.is_ours else kind(purpose) for kind in kinds]


def percentile(values, share):
    """The smallest value that `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
