#!/usr/bin/python3
"""picture_top.py BUILT FILE: writes a picture (SVG) of `mediafs top` while a film plays and an album is fetched, from a
real run in the namespaces of walk_guide.py: what tmux captured of the terminal, with its colors."""

import os
import re
import sys
import time
from xml.sax.saxutils import escape

sys.dont_write_bytecode = True
import walk_guide as walk  # noqa: E402

COLUMNS, ROWS = 100, 18
# The size of a character's cell, in the picture's units.
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14
COLORS = ["#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#c9d1d9"]
BOLD = ' font-weight="bold"'
FOREGROUND, BACKGROUND = "#c9d1d9", "#0d1117"

def picture(built, path):
    # Before the namespace covers folders.
    with open(path, "w") as file:
        # An origin that is slow itself: with --limit-rate there is mostly no transfer to show, but a wait for the next.
        walk.CONFIGURATION = walk.CONFIGURATION.replace("root {files};", "root {files}; limit_rate 900k;")
        walk.prepare(built)
        file.write(svg(played()))


def played():
    """The screen of `top`, with its escapes, in the middle of a film."""
    files = f"{walk.SCRATCH}/origin/files"
    walk.film(f"{files}/film.mp4", 120, 90_000_000)
    os.makedirs(f"{files}/album")
    for number in range(1, 6):
        walk.song(f"{files}/album/{number:02} A song.flac", 12_000_000)
    shell = walk.Shell(walk.USER)
    for command in (
        "printf 'https://media.example.org/film.mp4\\nhttps://media.example.org/album/\\n' > urls.txt",
        "mediafs mount ~/media --manifest urls.txt --max-connections 8",
        "mediafs fetch ~/media/album >/dev/null; mediafs keep ~/media/album >/dev/null",
        "mpv --no-config --vo=null --ao=null --really-quiet --start=20 ~/media/film.mp4 </dev/null >/dev/null 2>&1 &",
        f"unset TMUX; tmux -L picture new-session -d -x {COLUMNS} -y {ROWS} 'LC_ALL=C.UTF-8 mediafs top ~/media'",
    ):
        said, status = shell.run(command)
        if status:
            sys.exit(f"{command}: {said}")
    time.sleep(12)  # until rates are what they stay
    for _ in range(40):
        screen, status = shell.run("tmux -L picture capture-pane -e -p -t 0")
        words = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(screen))
        if " 0 transfers" not in words and " waiting" not in words and "downloads" in words:
            break
        time.sleep(0.3)  # between two requests there is a moment without any
    else:
        sys.exit(f"no transfer was to be seen beside a film that plays:\n{words}")
    shell.run("tmux -L picture kill-server; kill %%; mediafs unmount --lazy ~/media")
    return screen


def runs(line):
    """The parts of a line that look alike: column, text, foreground, background, whether it is bold."""
    column, state = 0, {"color": None, "ground": None, "bold": False, "turned": False}
    for escapes, text in re.findall(r"((?:\x1b\[[\d;]*m|\x1b\(B|\x0f)*)([^\x1b\x0f]*)", line):
        for codes in re.findall(r"\x1b\[([\d;]*)m", escapes):
            for code in map(int, codes.split(";")) if codes else [0]:
                if code == 0:
                    state = {"color": None, "ground": None, "bold": False, "turned": False}
                elif code in (1, 22):
                    state["bold"] = code == 1
                elif code in (7, 27):
                    state["turned"] = code == 7
                elif 30 <= code <= 37 or 90 <= code <= 97:
                    state["color"] = COLORS[code % 10]
                elif 40 <= code <= 47:
                    state["ground"] = COLORS[code % 10]
                elif code in (39, 49):
                    state["color" if code == 39 else "ground"] = None
        if text:
            color, ground = state["color"] or FOREGROUND, state["ground"]
            if state["turned"]:
                color, ground = ground or BACKGROUND, color
            yield column, text, color, ground, state["bold"]
            column += len(text)


def svg(lines):
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    marks = []
    for number, line in enumerate(lines):
        for column, text, color, ground, bold in runs(line):
            x, y = MARGIN + column * WIDTH, MARGIN + number * HEIGHT
            if ground:
                marks.append(f'<rect x="{x:.1f}" y="{y}" width="{len(text) * WIDTH:.1f}" height="{HEIGHT}" '
                             f'fill="{ground}"/>')
            # Each word at its column: a font of another width moves nothing.
            for word in re.finditer(r"\S+(?: \S+)*", text):
                marks.append(
                    f'<text x="{x + word.start() * WIDTH:.1f}" y="{y + 13.5}" fill="{color}" '
                    f'textLength="{len(word.group()) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
                    f'{BOLD if bold else ""} xml:space="preserve">{escape(word.group())}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img">', "<title>mediafs top while a film plays</title>",
        '<style>text { font: 14px ui-monospace, SFMono-Regular, "DejaVu Sans Mono", Menlo, monospace; }</style>',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>', *marks, "</svg>", ""])


if "--within" in sys.argv:
    picture(*(argument for argument in sys.argv[1:] if argument != "--within"))
else:
    built, path = map(os.path.abspath, sys.argv[1:])
    sys.exit(walk.within(os.path.abspath(__file__), [built, path]))
