# SPDX-License-Identifier: Apache-2.0
"""Figures of the studies as SVG, without matplotlib: lines, bars, and timelines of recorded spans."""
import collections
import math
import pathlib
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gantt import FAINT, Svg, TEXT, merged  # noqa: E402
from heat_map import color  # noqa: E402

COLORS = ("#1f5fa8", "#c8863a", "#3a8f5c", "#a03c3c", "#8a4fa0", "#5a6b7a", "#2f9c95", "#b0a030", "#7a4a2b", "#c26fa5")
GRID = "#dddddd"
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 560, 300, 80, 60, 370, 112


def number_text(value, axis=""):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if "bytes" in axis and value >= unit and value % unit == 0:
            return f"{value // unit:g} {name}"
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:.4g}"


class Scale:
    """From values to pixels, linear or logarithmic."""

    def __init__(self, values, logarithmic, first, last, from_zero):
        self.logarithmic, self.first, self.last = logarithmic, first, last
        if logarithmic:  # zeros, such as a count of misses, lie at the lower edge
            values = [math.log10(value) for value in values if value > 0] or [0]
        self.low, self.high = min(values), max(values)
        if from_zero and not logarithmic:
            self.low = min(0, self.low)
        if self.high == self.low:
            self.high += 1

    def place(self, value):
        if self.logarithmic:
            value = math.log10(value) if value > 0 else self.low
        return self.first + (value - self.low) / (self.high - self.low) * (self.last - self.first)

    def ticks(self):
        if self.logarithmic:
            powers = [10.0 ** p for p in range(math.floor(self.low), math.ceil(self.high) + 1)]
            for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8), [i / 10 for i in range(10, 100)]):
                found = [s * power for power in powers for s in steps if self.low - 1e-9 <= math.log10(s * power) <= self.high + 1e-9]
                if len(found) >= 4:
                    return found[::math.ceil(len(found) / 8)]
            return found
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(s for s in (1, 2, 5, 10) if (self.high - self.low) / (step * s) <= 6)
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, int(self.high / step + 1e-9) + 1)]


def frame(svg, figure, y):
    svg.text(LEFT - 60, 24, figure["title"], size=15)
    for tick in y.ticks():
        svg.box(LEFT, y.place(tick), WIDTH, 0.5, GRID)
        svg.text(LEFT - 6, y.place(tick) + 4, number_text(tick, figure["y"]), "end", size=11)
    svg.text(LEFT - 60, TOP - 14, figure["y"], color=FAINT)
    svg.text(LEFT + WIDTH / 2, TOP + HEIGHT + 58, figure["x"], "middle")
    below(svg, figure, TOP + HEIGHT + 78)


def below(svg, figure, top):
    """Under a picture: how it was measured, and what the document shows."""
    for line, text in enumerate(filter(None, (figure["note"], figure.get("says")))):
        svg.text(LEFT - 60, top + 15 * line, text, color=FAINT, size=10)


def finish(svg, figure, y, names, path):
    """Marks over lines and bars, and the legend."""
    for text, value in figure["marks"]:
        at = y.place(value)
        svg.line([(LEFT, at), (LEFT + WIDTH, at)], "#999999", dashed=True)
        is_crowded = any(0 < at - y.place(other) < 15 for _, other in figure["marks"])  # then its text is below the line
        svg.text(LEFT + WIDTH - 4, at + 11 if is_crowded else at - 4, text, "end", color=FAINT, size=10, halo=True)
    legend(svg, names)
    svg.write(path)


def legend(svg, names, left=LEFT):
    for row, (name, color) in enumerate(names):
        y = TOP + 8 + 18 * row
        svg.box(left + WIDTH + 14, y - 5, 14, 8, color)
        svg.text(left + WIDTH + 34, y + 3, name, size=11)


def lines(figure, path):
    points = [point for series in figure["series"] for point in series["points"]]
    x = Scale([p[0] for p in points], figure["log_x"], LEFT + 14, LEFT + WIDTH - 14, False)
    y = Scale([value for p in points for value in p[1:]] + [mark[1] for mark in figure["marks"]], figure["log_y"], TOP + HEIGHT, TOP, True)
    svg = Svg(LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM)
    frame(svg, figure, y)
    places = sorted({p[0] for p in points})
    for tick in places if len(places) <= 10 else x.ticks():
        svg.box(x.place(tick), TOP + HEIGHT, 0.7, 5, TEXT)
        svg.text(x.place(tick), TOP + HEIGHT + 19, number_text(tick, figure["x"]), "middle", size=11)
    names = []
    for i, series in enumerate(figure["series"]):
        color = COLORS[i % len(COLORS)]
        svg.line([(x.place(a), y.place(b)) for a, b, *_ in series["points"]], color, dashed=i >= len(COLORS))
        for a, b, *spread in series["points"]:
            if spread:
                svg.line([(x.place(a), y.place(each)) for each in spread], color)
            svg.dot(x.place(a), y.place(b), 3, color, f"{series['label']}: {number_text(a)}, {b:.4g}")
        names.append((series["label"], color))
    for text, value in figure.get("x_marks", ()):
        if not LEFT <= x.place(value) <= LEFT + WIDTH:
            continue
        svg.line([(x.place(value), TOP), (x.place(value), TOP + HEIGHT)], "#999999", dashed=True)
        svg.text(x.place(value) + 4, TOP + 8, text, color=FAINT, size=10, halo=True)
    finish(svg, figure, y, names, path)


def bars(figure, path):
    """x are names here; each series has a bar at each of its names, and a line from its least to its most."""
    names = list(dict.fromkeys(p[0] for series in figure["series"] for p in series["points"]))
    values = [value for series in figure["series"] for p in series["points"] for value in p[1:]] + [mark[1] for mark in figure["marks"]]
    y = Scale([0, *values, 1.06 * max(values)], False, TOP + HEIGHT, TOP, True)  # room for the numbers over the bars
    svg = Svg(LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM)
    frame(svg, figure, y)
    step = WIDTH / len(names)
    width = 0.84 * step / len(figure["series"])
    for place, name in enumerate(names):
        for line, words in enumerate(textwrap.wrap(name, max(8, int(step / 6)), break_long_words=False)):
            svg.text(LEFT + step * (place + 0.5), TOP + HEIGHT + 15 + 12 * line, words, "middle", size=10)
    for i, series in enumerate(figure["series"]):
        for name, value, *spread in series["points"]:
            left = LEFT + step * names.index(name) + 0.08 * step + i * width
            svg.box(left, min(y.place(value), y.place(0)), width * 0.94, abs(y.place(0) - y.place(value)), COLORS[i % len(COLORS)],
                    f"{series['label']}, {name}: {value:.4g}")
            if spread:
                svg.line([(left + width / 2, y.place(each)) for each in spread], TEXT)
            if width > 24:
                svg.text(left + width / 2, y.place(max(value, *spread, 0)) - 4, number_text(float(f"{value:.3g}")), "middle", size=10)
    finish(svg, figure, y, [(series["label"], COLORS[i % len(COLORS)]) for i, series in enumerate(figure["series"])], path)


def gantt(figure, path):
    """Each series is a panel; a point is (row, start seconds, seconds, kind)."""
    kinds = list(dict.fromkeys(p[3] for series in figure["series"] for p in series["points"]))
    colors = {kind: COLORS[i % len(COLORS)] for i, kind in enumerate(kinds)}
    end = max(p[1] + p[2] for series in figure["series"] for p in series["points"])
    rows = [1 + max(p[0] for p in series["points"]) for series in figure["series"]]
    height = 26
    left = max(LEFT, *(16 + 6 * len(name) for names in figure.get("rows", {}).values() for name in names), 0)
    svg = Svg(left + WIDTH + RIGHT, TOP + sum(40 + height * count for count in rows) + BOTTOM)
    svg.text(LEFT - 60, 24, figure["title"], size=15)
    top = TOP - 10
    for series, count in zip(figure["series"], rows):
        svg.text(LEFT - 60, top + 16, series["label"], size=13)
        top += 26
        for row in range(count):
            svg.box(left, top + row * height, WIDTH, height - 2, "#f4f4f4")
            name = figure["rows"][series["label"]][row] if "rows" in figure else f"thread {row}"
            svg.text(left - 6, top + row * height + 17, name, "end", size=11)
        places = collections.defaultdict(list)
        for row, start, seconds, kind in series["points"]:
            places[row, kind].append((left + start / end * WIDTH, max(seconds / end * WIDTH, 0.05)))
        for (row, kind), boxes in places.items():
            svg.boxes(merged(sorted(boxes)), top + row * height, height - 2, colors[kind])
        top += height * count + 14
    for i in range(6):
        svg.text(left + WIDTH * i / 5, top + 14, f"{end * i / 5 * 1e3:.4g}", "middle", size=11)
    svg.text(left + WIDTH / 2, top + 34, figure["x"], "middle")
    below(svg, figure, top + 56)
    legend(svg, list(colors.items()), left)
    svg.write(path)


def heat(figure, path):
    """A cell for each (x, y, rate) of the one series; marks are (text, x, y)."""
    cells = {(x, y): rate for x, y, rate in figure["series"][0]["points"]}
    xs, ys = sorted({x for x, _ in cells}), sorted({y for _, y in cells}, reverse=True)
    most, least, size = max(cells.values()), min(cells.values()), 74
    width = max(LEFT + size * len(xs) + RIGHT, LEFT + 8 * len(figure["title"]))  # wide enough for the title
    svg = Svg(width, TOP + size * len(ys) + BOTTOM)
    svg.text(LEFT - 60, 24, figure["title"], size=15)
    svg.text(LEFT - 60, 44, figure["y"] + ", upwards; in the cells: " + figure["series"][0]["label"], color=FAINT, size=11)
    marks = {}
    for text, x, y in figure["marks"]:
        marks.setdefault((x, y), []).append(text)
    for row, y in enumerate(ys):
        svg.text(LEFT - 8, TOP + size * (row + 0.5) + 4, str(y), "end")
        for column, x in enumerate(xs):
            if (x, y) not in cells:
                continue
            part = (cells[x, y] - least) / (most - least) if most > least else 1
            left, top = LEFT + size * column, TOP + size * row
            svg.box(left, top, size - 2, size - 2, "#{:02x}{:02x}{:02x}".format(*color(part)))
            ink = "white" if part < 0.55 else "black"
            svg.text(left + size / 2, top + size / 2 + 2, f"{cells[x, y]:.3g}", "middle", ink, 13)
            for line, text in enumerate(marks.get((x, y), [])):
                svg.text(left + size / 2, top + size / 2 + 16 + 12 * line, text, "middle", ink, 11)
    for column, x in enumerate(xs):
        svg.text(LEFT + size * (column + 0.5), TOP + size * len(ys) + 18, str(x), "middle")
    svg.text(LEFT + size * len(xs) / 2, TOP + size * len(ys) + 38, figure["x"], "middle")
    below(svg, figure, TOP + size * len(ys) + 60)
    svg.write(path)


def headlines(rows, path):
    """A row a headline: the document's figure grey, ours in colour (documents.headline), and the verdict."""
    title, note = "The documents' headlines", "Grey: the document, or its range. Colour: here, from the least to the most; hollow: simulated. A factor, on a log axis."
    left, height = 330, 26
    values = [value for row in rows for value in (*row["stated"], *row["ours"])]
    x = Scale([0.9, 1.1 * max(values), *values], True, left, left + WIDTH, False)
    svg = Svg(left + WIDTH + 190, TOP + height * len(rows) + 70)
    svg.text(20, 24, title, size=15)
    bottom = TOP + height * len(rows)
    for tick in x.ticks():
        svg.line([(x.place(tick), TOP - 8), (x.place(tick), bottom)], GRID)
        svg.text(x.place(tick), bottom + 16, f"{tick:g}x", "middle", size=11)
    for number, row in enumerate(rows):
        y = TOP + height * (number + 0.5)
        svg.text(20, y + 4, row["label"], size=12)
        first, last = x.place(min(row["stated"])), x.place(max(row["stated"]))
        svg.box(first - 4, y - 9, last - first + 8, 18, "#bbbbbb", f"{row['label']}, the document: " + " to ".join(f"{value:.3g}x" for value in row["stated"]))
        color = COLORS[0] if row["verdict"] in ("reproduced", "fitted") else COLORS[3]
        if row["ours"]:
            svg.line([(x.place(value), y) for value in row["ours"]], color)
        for value in row["ours"]:
            svg.dot(x.place(value), y, 5, color, f"{row['label']}, here: {value:.3g}x")
            if row["hollow"]:
                svg.dot(x.place(value), y, 3, "#ffffff", "simulated")
        svg.text(left + WIDTH + 14, y + 4, row["verdict"], color=color if row["ours"] else FAINT, size=12)
    svg.text(20, bottom + 44, note, color=FAINT, size=10)
    svg.write(path)


def draw(figure, path):
    {"lines": lines, "bars": bars, "gantt": gantt, "heat": heat}[figure["kind"]](figure, path)
