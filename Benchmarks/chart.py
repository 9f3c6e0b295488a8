#!/usr/bin/env python3
"""chart.py DOCUMENT FOLDER: draws the charts of docs/BENCHMARKS.md from its own tables, as SVG: `start.svg` and so on,
and `summary.svg`, which README shows. bench.py does so at its end.

A chart is a title and groups of bars: one group for each row of the table, one bar for each system. The colors can be
read on a light and on a dark page; a browser that knows which it is takes better ones."""

import os
import re
import sys
from xml.sax.saxutils import escape

SYSTEMS = {"mediafs": "mediafs", "rclone": "rclone mount, full cache", "rclone tuned": "rclone, tuned"}
UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1, "KiB": 1024, "MiB": 1 << 20, "GiB": 1 << 30, "MB/s": 1e6, "GB/s": 1e9, "": 1}
# Charts by name: a title, the unit of the values, and the rows: the beginning of a row's title in the document, and what
# the chart calls it. A row "…" belongs to the row before it: it is named by both.
CHARTS = {
    "start": ("Time to the first byte", "s", [
        ("First byte, size unknown", "a file never seen before"),
        ("First byte, size known", "its size is known"),
        ("Real line: first byte", "over real TCP and TLS, 60 ms"),
    ]),
    "seeks": ("Time of a seek to a place that is not stored", "s", [
        ("Seek into a hole, idle line", "idle line"),
        ("Seek, line busy with the file's own", "beside the file's own download"),
        ("Seek, line busy with the download of", "beside another download"),
        ("Seek, while another program copies", "beside a copy"),
    ]),
    "stalls": ("Stalls while a film plays", "", [
        ("Playing 1.0 MB/s over a 1.6 MB/s line", "alone, line of 1.6 times its rate"),
        ("Playing 1.0 MB/s beside 3 copies, 4 MB/s", "beside 3 copies, 4 MB/s"),
        ("Playing 1.0 MB/s beside 30 copies, 4 MB/s", "beside 30 copies"),
        ("Playing 1.0 MB/s beside 8 scanners", "beside 8 library scans"),
        ("32 players on a line", "32 players, all together"),
    ]),
    "rates": ("Reading in sequence", "B/s", [
        ("Cold sequential", "fast origin, nothing stored"),
        ("Stored range of a partial file", "stored part of a file"),
        ("Complete file, sequential", "complete file"),
    ]),
    "held": ("Copy from an origin that holds each connection to 4 MB/s", "B/s", [
        ("Copy, each connection held", "64 MiB"),
        ("Copy, each connection held … the next file", "the next 64 MiB of the host"),
    ]),
    "memory": ("Peak memory", "B", [
        ("32 players on a line … peak memory", "32 players"),
        ("Cold sequential … peak memory", "a fast copy"),
    ]),
}
# What README shows: of each chart these rows, one chart below the other.
SUMMARY = [("start", [0]), ("seeks", [0, 3]), ("stalls", [0, 1, 2, 3]), ("memory", [0])]

WIDTH = 760
LABEL = 250  # columns of the rows' names, right-aligned before the bars
VALUE = 80  # room behind the longest bar for its value
BAR, GAP, GROUP = 11, 2, 11
STRIP = 60  # a row of a chart over time

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #737b85; }
  .title { font-weight: 600; font-size: 14px; }
  .value { font-size: 12px; }
  .mediafs { fill: #2f7fd6; } .rclone { fill: #9a9fa8; } .rclone-tuned { fill: #9a9fa8; fill-opacity: 0.5; }
  .axis { stroke: #9a9fa8; stroke-width: 1; }
  @media (prefers-color-scheme: light) { text { fill: #1f2328; } .value { fill: #59636e; } }
  @media (prefers-color-scheme: dark) {
    text { fill: #d1d7e0; }
    .mediafs { fill: #4f9bf0; }  .axis { stroke: #565d66; }
  }
"""

STYLE_OF_STRIPS = """  .fleet { fill: #2f7fd6; } .origin { fill: #d9822b; }
"""


def number(cell):
    """The first figure of a cell, without its spread: `52.2 ms (53.3 ms, 71.1 ms)`; None for an empty one."""
    match = re.match(r"([\d.]+) ?(µs|ms|s|KiB|MiB|GiB|MB/s|GB/s)?(?![\w/])", cell.strip())
    if not match:
        return None
    # "6.5, 9" and "81, 86 ms" are two figures with one unit: the median is the first.
    unit = match.group(2) or (re.search(r", [\d.]+ (µs|ms|s)", cell) or [None, ""])[1]
    return float(match.group(1)) * UNITS[unit]


def read(document):
    """The rows of all tables of the document: a title, and the figure of each system."""
    rows = {}
    names, before = None, ""
    with open(document) as file:
        for line in file:
            if not line.startswith("|"):
                names = None
                continue
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if names is None:
                names = cells
                continue
            if cells[0].startswith("---"):
                continue
            title = cells[0]
            if title.startswith("…"):
                title = f"{before} {title}"
            else:
                before = title
            found = {name: number(cell) for name, cell in zip(names, cells) if name in SYSTEMS}
            # A later table of the document does not take the place of the first.
            if found.get("mediafs") is not None:
                rows.setdefault(title, found)
    return rows


def of(rows, beginning):
    """The row whose title begins so, each part of it."""
    parts = beginning.split(" … ")
    for title, found in rows.items():
        titles = title.split(" … ")
        if len(titles) == len(parts) and all(one.startswith(part) for one, part in zip(titles, parts)):
            return found
    return None


def figure(value, unit):
    if unit == "s":
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
    if unit == "B":
        return f"{value / (1 << 20):.0f} MiB"
    if unit == "B/s":
        return f"{value / 1e6:.0f} MB/s" if value < 1e9 else f"{value / 1e9:.1f} GB/s"
    return f"{value:g}"


def panel(rows, name, only, top):
    """The marks of one chart below `top`, and where they end."""
    title, unit, entries = CHARTS[name]
    if only is not None:
        entries = [entries[index] for index in only]
    groups = [(label, found) for beginning, label in entries if (found := of(rows, beginning))]
    values = [value for _, found in groups for value in found.values() if value is not None]
    scale = (WIDTH - LABEL - VALUE) / (max(values, default=0) or 1)
    marks = [f'<text class="title" x="0" y="{top + 14}">{escape(title)}</text>']
    y = top + 28
    start = y
    for label, found in groups:
        shown = [(system, found[system]) for system in SYSTEMS if found.get(system) is not None]
        height = len(shown) * (BAR + GAP) - GAP
        marks.append(f'<text x="{LABEL - 10}" y="{y + height / 2 + 4.5:g}" text-anchor="end">{escape(label)}</text>')
        for system, value in shown:
            length = max(value * scale, 1)
            marks.append(f'<rect class="{system.replace(" ", "-")}" x="{LABEL}" y="{y}" width="{length:.1f}" '
                         f'height="{BAR}" rx="1.5"><title>{escape(system)}: {figure(value, unit)}</title></rect>')
            marks.append(f'<text class="value" x="{LABEL + length + 6:.1f}" y="{y + BAR - 1.5}">'
                         f'{figure(value, unit)}</text>')
            y += BAR + GAP
        y += GROUP - GAP
    marks.append(f'<line class="axis" x1="{LABEL - 0.5}" y1="{start - 4}" x2="{LABEL - 0.5}" y2="{y - GROUP + 6}"/>')
    return marks, y, [(label, found) for label, found in groups]


def legend(top, systems):
    """`systems`: what each color is called, by its class."""
    marks, x = [], LABEL
    for system, words in systems.items():
        marks.append(f'<rect class="{system.replace(" ", "-")}" x="{x}" y="{top}" width="12" height="12" rx="1.5"/>')
        marks.append(f'<text x="{x + 18}" y="{top + 11}">{words}</text>')
        x += 40 + 7.2 * len(words)
    return marks


def svg(rows, parts):
    """A chart of some panels: pairs of a chart's name and which of its rows, None for all."""
    marks, y, told = [], 30, []
    for name, only in parts:
        drawn, y, groups = panel(rows, name, only, y)
        marks += drawn
        y += 14
        told += [f"{CHARTS[name][0]}, {label}: " + ", ".join(
            f"{system} {figure(found[system], CHARTS[name][1])}" for system in SYSTEMS if found.get(system) is not None)
            for label, found in groups]
    systems = {system: words for system, words in SYSTEMS.items() if any(system + " " in text for text in told)}
    return picture(y - 14, told, [*legend(4, systems), *marks])


def picture(height, told, marks, style=STYLE):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
        'role="img" aria-labelledby="words">',
        f"<desc id=\"words\">{escape('. '.join(told))}.</desc>", f"<style>{style}</style>", *marks, "</svg>", ""])


def area(floor, top, across, bottom, scale):
    """What a path encloses between two lines of steps, each `across` wide."""
    def line(values, order):
        return [f"{LABEL + (number + side) * across:.1f},{bottom - values[number] * scale:.1f}"
                for number in order(range(len(values))) for side in order((0, 1))]
    return "M" + "L".join(line(top, list) + line(floor, lambda values: list(reversed(values)))) + "Z"


def strips(title, unit, sources, rows, step):
    """A chart over time: of each row a name and, for each step of so many seconds, how much there was by then of each of
    `sources` (what a color is called, by its class). A step's values are stacked."""
    width = WIDTH - LABEL - VALUE
    steps = max(len(values) for _, values in rows)
    most = max((sum(values) for _, series in rows for values in series), default=0) or 1
    marks, y, told = [f'<text class="title" x="0" y="14">{escape(title)}</text>', *legend(28, sources)], 54, []
    for name, series in rows:
        marks.append(f'<text x="{LABEL - 10}" y="{y + 16}" text-anchor="end">{escape(name)}</text>')
        totals = list(zip(sources.values(), series[-1]))
        for index, (words, total) in enumerate(totals):
            marks.append(f'<text class="value" x="{LABEL - 10}" y="{y + 32 + 15 * index}" text-anchor="end">'
                         f'{escape(words)} {figure(total, unit)}</text>')
        told.append(f"{name}: " + ", ".join(f"{words} {figure(total, unit)}" for words, total in totals))
        floor = [0] * len(series)
        for index, source in enumerate(sources):
            top = [under + values[index] for under, values in zip(floor, series)]
            marks.append(f'<path class="{source}" d="{area(floor, top, width / steps, y + STRIP, STRIP / most)}"/>')
            floor = top
        marks.append(f'<line class="axis" x1="{LABEL}" y1="{y + STRIP + 0.5}" x2="{LABEL + width}" '
                     f'y2="{y + STRIP + 0.5}"/>')
        y += STRIP + 14
    marks.append(f'<line class="axis" x1="{LABEL + width + 4}" y1="54" x2="{LABEL + width + 4}" y2="{54 + STRIP}"/>')
    marks.append(f'<text class="value" x="{LABEL + width + 9}" y="{54 + STRIP / 2 + 4:g}">'
                 f'{figure(most, unit)}</text>')
    for second in range(0, int(steps * step) + 1, 5):
        x = LABEL + second / step * width / steps
        marks.append(f'<text class="value" x="{x:.1f}" y="{y + 4}" text-anchor="middle">{second} s</text>')
    return picture(y + 14, told, marks, STYLE + STYLE_OF_STRIPS)


def draw(document, folder):
    """Draws all charts into `folder`; the names of those that the document has rows for."""
    rows = read(document)
    os.makedirs(folder, exist_ok=True)
    drawn = []
    for name, parts in [*((name, [(name, None)]) for name in CHARTS), ("summary", SUMMARY)]:
        if not any(of(rows, beginning) for part, _ in parts for beginning, _ in CHARTS[part][2]):
            continue
        with open(os.path.join(folder, f"{name}.svg"), "w") as file:
            file.write(svg(rows, parts))
        drawn.append(name)
    return drawn


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.split(":")[0])
    print(*draw(sys.argv[1], sys.argv[2]))
    known = read(sys.argv[1])
    if missing := [start for _, _, entries in CHARTS.values() for start, _ in entries if not of(known, start)]:
        sys.exit(f"no row of {sys.argv[1]} begins with: " + "; ".join(missing))
