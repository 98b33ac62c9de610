# SPDX-License-Identifier: Apache-2.0
"""Draws results of `tandem-bench simulate storage`: the write rate relative to STD-RAID, as in Figure 13 of Mont-Blanc's report
D4.6. a and b are weak scaling, c and d strong scaling; RAID-5 is on the left, RAID-6 on the right. Call:
`bench/plot.py storage RESULTS.json...`. SVG, without matplotlib, one picture for each placement."""
import argparse
import json
import math
import pathlib
import sys

from gantt import FAINT, Svg

LINES = {"raid0": ("RAID-0", "#444444"), "avoid": ("WCL", "#c8863a"), "delayed": ("Delayed", "#1f5fa8"),
         "delayed-move": ("Delayed, moved", "#3a8f5c")}
PANELS = [("a", 1, False), ("b", 2, False), ("c", 1, True), ("d", 2, True)]
# The report gives no figures for its axes. It states: STD-RAID loses up to 85 % (section 2); WCL wins 2x and 1.18x (2.4);
# below 80,000 clients delayed is no better than WCL on HDD (2.3.1).
REPORT_LOSS, REPORT_WCL, REPORT_CLIENTS = 1 / 0.15, {1: 2.0, 2: 1.18}, 80_000
WIDTH, HEIGHT, LEFT, TOP, GAP_X, GAP_Y, BOTTOM = 430, 280, 70, 95, 70, 80, 90
SCHEMA_VERSION = 1


def size_text(size_bytes):
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


class Axes:
    """Axes, both logarithmic."""

    def __init__(self, svg, left, top, xs, ys):
        self.svg, self.left, self.top = svg, left, top
        self.x = math.log10(min(xs)) - 0.05, math.log10(max(xs)) + 0.05
        self.y = math.log2(min(ys)), math.log2(max(ys))

    def place(self, x, y):
        return (self.left + WIDTH * (math.log10(x) - self.x[0]) / (self.x[1] - self.x[0]),
                self.top + HEIGHT * (1 - (math.log2(y) - self.y[0]) / (self.y[1] - self.y[0])))

    def frame(self, title, ticks):
        svg = self.svg
        svg.text(self.left - 40, self.top - 12, title, size=13)
        for power in range(math.ceil(self.y[0]), math.floor(self.y[1]) + 1):
            y = self.place(10 ** self.x[0], 2 ** power)[1]
            svg.box(self.left, y, WIDTH, 1 if power == 0 else 0.5, "#888888" if power == 0 else "#dddddd")
            svg.text(self.left - 6, y + 4, f"{2 ** power:g}", "end")
        for x, *texts in ticks:
            for row, text in enumerate(texts):
                svg.text(self.place(x, 1)[0], self.top + HEIGHT + 16 + 13 * row, text, "middle", size=10)

    def note(self, y, text):
        place = self.place(10 ** self.x[0], y)
        self.svg.line([place, (self.left + WIDTH, place[1])], "#bbbbbb", dashed=True)
        self.svg.text(self.left + WIDTH - 4, place[1] - 4, text, "end", color=FAINT, size=9)


def points_of(runs, **wanted):
    """(clients, ratio, sizes and intervals) in the order of clients."""
    chosen = [run for run in runs if all(run[name] == value for name, value in wanted.items())]
    return sorted(((run["clients"], run["over_standard"], run) for run in chosen), key=lambda point: point[0])


def draw(placement, files, path):
    height = len(files) * (HEIGHT + GAP_Y) - GAP_Y
    svg = Svg(2 * (WIDTH + GAP_X) + 130, TOP + height + BOTTOM)
    first = next(iter(files.values()))
    svg.text(LEFT - 40, 24, f"Write rate relative to STD-RAID, {placement} writes", size=16)
    svg.text(LEFT - 40, 42, f"{first['servers']} servers, rows of {first['width']}, units of {size_text(first['unit_bytes'])}, "
             f"applications of {first['clients_per_application']} clients; simulated (docs/internals/STORAGE.md), form of Mont-Blanc D4.6, "
             "Figure 13", color=FAINT)
    every = [run for found in files.values() for run in found["runs"] if run["strategy"] in LINES]
    ratios = [run["over_standard"] for run in every] + [REPORT_LOSS, 1]
    limits = 2 ** math.floor(math.log2(min(ratios)) - 0.01), 2 ** math.ceil(math.log2(max(ratios)) + 0.01)
    for number, (letter, parity, strong) in enumerate(PANELS):
        if strong not in files:
            continue
        runs = [run for run in files[strong]["runs"] if run["strategy"] in LINES and run["parity"] == parity]
        if not runs:
            continue
        axes = Axes(svg, LEFT + number % 2 * (WIDTH + GAP_X), TOP + sorted(files).index(strong) * (HEIGHT + GAP_Y),
                    [run["clients"] for run in runs], limits)
        sizes = {run["clients"]: run["size_bytes"] for run in runs}
        what = "strong scaling" if strong else f"weak scaling, {size_text(runs[0]['size_bytes'])} a write"
        axes.frame(f"{letter}  RAID-{4 + parity}, {what}",
                   [(clients, f"{clients:,}", size_text(size)) if strong else (clients, f"{clients:,}")
                    for clients, size in sorted(sizes.items())])
        axes.note(REPORT_LOSS, "report: STD-RAID loses up to 85 %")
        axes.note(REPORT_WCL[parity], f"report: WCL {REPORT_WCL[parity]:g}x")
        if not strong and min(sizes) < REPORT_CLIENTS < max(sizes):
            x, bottom = axes.place(REPORT_CLIENTS, limits[0])
            svg.line([(x, axes.top), (x, bottom)], "#bbbbbb", dashed=True)
            svg.text(x - 4, axes.top + 12, "report, HDD: below, Delayed no better than WCL", "end", color=FAINT, size=9)
        for strategy, (name, color) in LINES.items():
            for device in dict.fromkeys(run["device"] for run in runs):
                points = points_of(runs, strategy=strategy, device=device)
                if not points:
                    continue
                svg.line([axes.place(clients, ratio) for clients, ratio, _ in points], color, dashed=device != "hdd")
                for clients, ratio, run in points:
                    svg.dot(*axes.place(clients, ratio), 3, color,
                            f"{name}, {device}, {clients:,} clients of {size_text(run['size_bytes'])}: {ratio:.2f}, "
                            f"{run['bytes_per_second'] / 1e6:.0f} MB/s, {run['seeds'][0]['simulated_seconds']:.1f} s simulated")
    x, y = LEFT + 2 * WIDTH + GAP_X + 15, TOP + 10
    for strategy, (name, color) in LINES.items():
        if any(run["strategy"] == strategy for run in every):
            svg.line([(x, y), (x + 22, y)], color)
            svg.text(x + 28, y + 4, name)
            y += 20
    devices = list(dict.fromkeys(run["device"] for run in every))
    for device in devices:
        svg.line([(x, y + 10), (x + 22, y + 10)], "#888888", dashed=device != "hdd")
        svg.text(x + 28, y + 14, device.upper())
        y += 20
    seeds = [seed for run in every for seed in run["seeds"]]
    shortest = min(seed["simulated_seconds"] for seed in seeds)
    longest = max(seed["simulated_seconds"] for seed in seeds)
    widest = 100 * max(seed["confidence"] for seed in seeds)
    svg.text(LEFT - 40, TOP + height + 55, f"Clients. Each point: {len(every[0]['seeds'])} seed(s). 95 % intervals of the rates: at "
             f"most {widest:.1f} % to either side. {shortest:.1f} to {longest:.0f} s were simulated.", color=FAINT, size=10)
    svg.write(path)


def read(path):
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"plot.py: {path}: {error}")
    if not isinstance(found, dict) or found.get("command") != "simulate storage":
        sys.exit(f"plot.py: {path} is no output of tandem-bench simulate storage --json")
    if found["schema_version"] != SCHEMA_VERSION:
        sys.exit(f"plot.py: {path} has the schema version {found['schema_version']}, known is {SCHEMA_VERSION}")
    if any(run["over_standard"] is None for run in found["runs"]):
        sys.exit(f"plot.py: {path} has runs without a run of the strategy standard to compare with")
    return found


def main(arguments):
    parser = argparse.ArgumentParser(prog="plot.py storage", description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="output of tandem-bench simulate storage --json")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."), help="folder for the SVG files")
    parsed = parser.parse_args(arguments)
    parsed.output.mkdir(parents=True, exist_ok=True)
    pictures = {}
    for path in parsed.results:
        found = read(path)
        files, strong = pictures.setdefault(found["placement"], {}), found["total_bytes"] != 0
        known = files.setdefault(strong, found)
        if known is not found:
            differ = [name for name in found if name not in ("runs", "devices", "confidence") and found[name] != known.get(name)]
            if differ:
                sys.exit(f"plot.py: {path} differs from another file of the same scaling and placement in {', '.join(differ)}")
            known["runs"] += found["runs"]
    for placement, files in pictures.items():
        draw(placement, files, parsed.output / f"storage-{placement}.svg")
