# SPDX-License-Identifier: Apache-2.0
"""Draws timelines: which worker did what when, as in Figure 3 of Mont-Blanc's report D4.6. Several files are drawn below
each other on one time axis, with one colour for each kind of worker. Call: `bench/plot.py timeline TRACE.json...`."""
import argparse
import collections
import html
import itertools
import json
import pathlib
import sys

# These kinds have the same colour in every picture. Other kinds share the remaining colours.
KNOWN = {"cpu": "#1f5fa8", "gpu": "#c8863a", "opencl": "#c8863a", "cuda": "#3a8f5c", "read": "#8fb8de", "hash": "#8a4fa0",
         "write": "#a03c3c", "sync": "#d98c8c"}
OTHERS = ("#5a6b7a", "#2f9c95", "#b0a030", "#7a4a2b", "#c26fa5")
LOST, IDLE, TEXT, FAINT = "#d9d9d9", "#f4f4f4", "#333333", "#666666"
LEFT, TOP, HEAD, WIDTH, RIGHT, BOTTOM, MOST_ROWS = 150, 34, 40, 900, 150, 40, 128


class Trace:
    """One file: rows (name, boxes, what is known of the worker); a box is (start, seconds, kind, committed)."""

    def __init__(self, path):
        trace = json.loads(path.read_text())
        events = trace["traceEvents"]
        names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        boxes = {worker: [] for worker in names}
        for e in events:
            if e["ph"] == "X":
                boxes[e["tid"]].append((e["ts"] / 1e6, e["dur"] / 1e6, e["cat"], e["args"]["committed"]))
        # A task that is split into inner tasks counts once, by its parent part (docs/internals/FIGURE3.md).
        self.task_counts = collections.Counter(e["cat"] for e in events if e["ph"] == "X" and e["name"] != "inner")
        self.title = path.stem
        self.whole = trace["otherData"]
        self.seconds = self.whole["makespan_seconds"]
        self.kinds = [each["kind"] for each in self.whole["kinds"]]
        rows = [(names[worker], boxes[worker], self.whole["workers"][worker]) for worker in names]
        self.rows, self.hidden_count = rows[:MOST_ROWS], len(rows[MOST_ROWS:])

    def summary(self):
        parts = [time_text(self.seconds)]
        if "efficiency" in self.whole:
            parts.append(f"efficiency {self.whole['efficiency']:.3f}")
        kinds = dict.fromkeys(each["kind"] for each in self.whole["workers"])
        parts.append("tasks: " + ", ".join(f"{kind} {self.task_counts[kind]}" for kind in kinds))
        if self.hidden_count:
            parts.append(f"{self.hidden_count} more workers")
        return "; ".join(parts)


def colors_of(traces):
    """The colour of each kind that occurs, in all pictures together."""
    others = itertools.cycle(OTHERS)
    colors = {}
    for kind in itertools.chain.from_iterable(trace.kinds for trace in traces):
        if kind not in colors:
            colors[kind] = KNOWN.get(kind) or next(others)
    return colors


def time_text(seconds):
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.4g} {name}"
    return f"{seconds / 1e-6:.4g} us"


def about_text(about):
    return f"{about['tasks']} tasks, {100 * about['share']:.1f}%"


class Svg:
    def __init__(self, width, height):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                      f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']

    def box(self, x, y, width, height, color, title="", edge=""):
        stroke = f' stroke="{edge}" stroke-width="0.5"' if edge else ""
        tip = f"<title>{html.escape(title)}</title>" if title else ""
        self.parts.append(f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.1):.2f}" height="{height:.2f}" '
                          f'fill="{color}"{stroke}>{tip}</rect>')

    def boxes(self, boxes, y, height, color):
        """Boxes (x, width) of one row as one path: far shorter than a rect for each."""
        self.parts.append(f'<path fill="{color}" d="' + "".join(f"M{x:.2f} {y}h{width:.2f}v{height}h-{width:.2f}z"
                                                                 for x, width in boxes) + '"/>')

    def line(self, points, color, dashed=False):
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.5"{dash} points="'
                          + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')

    def dot(self, x, y, radius, color, title):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{color}">'
                          f"<title>{html.escape(title)}</title></circle>")

    def text(self, x, y, text, anchor="start", color=TEXT, size=12, halo=False):
        """With a halo it can be read before lines and bars."""
        over = ' paint-order="stroke" stroke="white" stroke-width="4"' if halo else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" '
                          f'font-size="{size}"{over}>{html.escape(text)}</text>')

    def write(self, path):
        path.write_text("\n".join(self.parts + ["</svg>\n"]))
        print(path)


def row_height(trace):
    return 30 if len(trace.rows) <= 8 else 14 if len(trace.rows) <= 40 else 7


def merged(boxes):
    """Boxes (x, width) in pixels, with a gap behind each that is wide enough; narrow ones that touch become one."""
    out = []
    for x, width in boxes:
        if width >= 1:
            out.append((x, width - 0.3))
        elif out and out[-1][1] < 1 and x - sum(out[-1]) < 0.1:
            out[-1] = (out[-1][0], x + width - out[-1][0])
        else:
            out.append((x, max(width, 0.1)))
    return out


def draw_svg(traces, colors, end, path):
    svg = Svg(LEFT + WIDTH + RIGHT, TOP + sum(HEAD + row_height(t) * len(t.rows) for t in traces) + BOTTOM)
    x = LEFT
    for kind, color in [*colors.items(), ("not committed", LOST)]:
        svg.box(x, 12, 10, 10, color)
        svg.text(x + 14, 21, kind, color=FAINT)
        x += 34 + 7 * len(kind)
    y = TOP
    for trace in traces:
        svg.text(LEFT, y + 30, f"{trace.title}: {trace.summary()}", size=14)
        y += HEAD
        for name, boxes, about in trace.rows:
            height = row_height(trace)
            svg.box(LEFT, y + 1, trace.seconds / end * WIDTH, height - 2, IDLE)
            narrow = collections.defaultdict(list)  # of each colour
            for start, seconds, kind, committed in boxes:
                color = colors[kind] if committed else LOST
                left, width = LEFT + start / end * WIDTH, seconds / end * WIDTH
                if width > 3:
                    svg.box(left, y + 1, width, height - 2, color, f"{name}, {kind}: {time_text(seconds)}", "white")
                else:
                    narrow[color].append((left, width))
            for color, places in narrow.items():
                svg.boxes(merged(places), y + 1, height - 2, color)
            if height >= 14:
                svg.text(LEFT - 8, y + height / 2 + 4, name, "end")
                svg.text(LEFT + WIDTH + 8, y + height / 2 + 4, about_text(about))
            y += height
    for i in range(6):
        x = LEFT + WIDTH * i / 5
        svg.box(x, y, 0.7, 5, TEXT)
        svg.text(x, y + 20, time_text(end * i / 5) if i else "0", "middle", size=11)
    svg.write(path)


def draw_png(plt, traces, colors, end, path):
    heights = [0.5 + min(0.45 * len(trace.rows), 12) for trace in traces]
    figure, all_axes = plt.subplots(len(traces), figsize=(11, 0.9 + sum(heights)), sharex=True, squeeze=False,
                                    gridspec_kw={"height_ratios": heights})
    unit, unit_name = (1, "s") if end >= 1 else (1e-3, "ms") if end >= 1e-3 else (1e-6, "us")
    for trace, axes in zip(traces, all_axes[:, 0]):
        for i, (_, boxes, about) in enumerate(trace.rows):
            axes.barh(i, trace.seconds / unit, color=IDLE, height=0.86, zorder=0)
            for color in {*colors.values(), LOST}:
                bars = [(start / unit, seconds / unit) for start, seconds, kind, committed in boxes
                        if (colors[kind] if committed else LOST) == color]
                narrow = sum(width for _, width in bars) < 0.004 * end / unit * len(bars)
                axes.broken_barh(bars, (i - 0.43, 0.86), facecolors=color, edgecolors="none" if narrow else "white",
                                 linewidth=0.4)
            if len(trace.rows) <= 40:
                axes.text(1.005 * end / unit, i, about_text(about), va="center", fontsize=8.5)
        axes.set_yticks(range(len(trace.rows)),
                        [name if len(trace.rows) <= 40 else "" for name, _, _ in trace.rows])
        axes.invert_yaxis()
        axes.set_xlim(0, end / unit)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.set_title(f"{trace.title}: {trace.summary()}", loc="left", fontsize=11)
    all_axes[-1, 0].set_xlabel(unit_name)
    entries = [plt.Rectangle((0, 0), 1, 1, color=color) for color in [*colors.values(), LOST]]
    figure.legend(entries, [*colors, "not committed"], loc="lower right", ncols=len(entries), frameon=False, fontsize=8.5)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(path)


def main(arguments, plt):
    parser = argparse.ArgumentParser(prog="plot.py timeline", description=__doc__)
    parser.add_argument("traces", nargs="+", type=pathlib.Path, help="files of --timeline")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."), help="folder for the picture")
    parser.add_argument("--svg", action="store_true", help="SVG also with matplotlib")
    parsed = parser.parse_args(arguments)
    traces = []
    for path in parsed.traces:
        try:
            traces.append(Trace(path))
        except (OSError, ValueError, LookupError, TypeError) as error:
            sys.exit(f"plot.py: {path} is no timeline of Tandem: {error!r}")
    parsed.output.mkdir(parents=True, exist_ok=True)
    name = "-".join(trace.title for trace in traces)
    end = max(trace.seconds for trace in traces) or 1
    if plt is None or parsed.svg:
        draw_svg(traces, colors_of(traces), end, parsed.output / f"{name}.svg")
    else:
        draw_png(plt, traces, colors_of(traces), end, parsed.output / f"{name}.png")
