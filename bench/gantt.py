"""The timeline of a run as a picture: who did which range when, as in Figure 3 of Mont-Blanc's report D4.6. Called as
`bench/plot.py timeline TRACE.json`. With --together several runs on one time axis."""
import argparse
import html
import json
import math
import pathlib
import sys

COLORS = ("#1f5fa8", "#c8863a", "#3a8f5c", "#8a4fa0", "#a03c3c", "#5a6b7a")
LOST, IDLE, TEXT = "#d9d9d9", "#f4f4f4", "#333333"
LEFT, TOP, WIDTH, MOST_ROWS = 150, 60, 900, 128


def read(path):
    """(names of workers, their spans (start, duration, committed, what) in seconds, what is known of the whole)."""
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("ph") == "M" and e["name"] == "thread_name"}
    spans = {worker: [] for worker in names}
    for e in events:
        if e.get("ph") == "X":
            spans[e["tid"]].append((e["ts"] / 1e6, e["dur"] / 1e6, e["args"]["committed"], e["name"]))
    return names, spans, trace["otherData"]


def kind_of(name):
    """"cpu 3" is a cpu."""
    return name.rsplit(" ", 1)[0] if name.rsplit(" ", 1)[-1].isdigit() else name


def colors_of(names):
    """One color for each kind of worker."""
    kinds = list(dict.fromkeys(map(kind_of, names)))
    return lambda name: COLORS[kinds.index(kind_of(name)) % len(COLORS)]


def time_text(seconds):
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.4g} {name}"
    return f"{seconds / 1e-6:.4g} us"


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
        self.parts.append(f'<path fill="{color}" d="' + "".join(f"M{x:.2f} {y}h{width:.2f}v{height}h-{width:.3g}z"
                                                                 for x, width in boxes) + '"/>')

    def text(self, x, y, text, anchor="start", color=TEXT, size=12):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" '
                          f'font-size="{size}">{html.escape(text)}</text>')

    def write(self, path):
        path.write_text("\n".join(self.parts + ["</svg>\n"]))
        print(path)


def draw_svg(names, spans, whole, title, path):
    rows = list(names)[:MOST_ROWS]
    row = 30 if len(rows) <= 8 else 14 if len(rows) <= 40 else 7
    svg = Svg(LEFT + WIDTH + 150, TOP + row * len(rows) + 60)
    end, color = whole["makespan_seconds"] or 1, colors_of(names.values())
    svg.text(LEFT, 22, title, size=14)
    svg.text(LEFT, 42, f"{time_text(whole['makespan_seconds'])}, efficiency {whole['efficiency']:.3f}; "
             "grey: done by somebody else before, or never finished", color="#666666")
    for i, worker in enumerate(rows):
        y = TOP + i * row
        about = whole["workers"][worker]
        svg.box(LEFT, y + 1, WIDTH, row - 2, IDLE)
        for start, seconds, committed, _ in spans[worker]:
            # An edge around each, but not where that would be all that is seen.
            edge = "white" if seconds / end * WIDTH > 3 else ""
            svg.box(LEFT + start / end * WIDTH, y + 1, seconds / end * WIDTH, row - 2,
                    color(names[worker]) if committed else LOST, f"{names[worker]}: {time_text(seconds)}", edge)
        if row >= 14:
            svg.text(LEFT - 8, y + row / 2 + 4, names[worker], "end")
            svg.text(LEFT + WIDTH + 8, y + row / 2 + 4, f"{about['tasks']} tasks, {100 * about['share']:.1f}%")
    if len(rows) < len(names):
        svg.text(LEFT, TOP + row * len(rows) + 50, f"and {len(names) - len(rows)} more workers", color="#666666")
    for i in range(6):
        x = LEFT + WIDTH * i / 5
        svg.box(x, TOP + row * len(rows), 0.7, 5, TEXT)
        svg.text(x, TOP + row * len(rows) + 20, time_text(end * i / 5) if i else "0", "middle", size=11)
    svg.write(path)


def draw_png(plt, names, spans, whole, title, path):
    rows = list(names)[:MOST_ROWS]
    end, color = whole["makespan_seconds"] or 1, colors_of(names.values())
    figure, axes = plt.subplots(figsize=(11, 1.6 + min(0.45 * len(rows), 12)))
    unit, name = (1, "s") if end >= 1 else (1e-3, "ms") if end >= 1e-3 else (1e-6, "us")
    for i, worker in enumerate(rows):
        axes.barh(i, end / unit, color=IDLE, height=0.86, zorder=0)
        for committed in (True, False):
            bars = [(start / unit, seconds / unit) for start, seconds, done, _ in spans[worker] if done == committed]
            narrow = sum(width for _, width in bars) < 0.004 * end / unit * len(bars)
            axes.broken_barh(bars, (i - 0.43, 0.86), facecolors=color(names[worker]) if committed else LOST,
                             edgecolors="none" if narrow else "white", linewidth=0.4)
        about = whole["workers"][worker]
        if len(rows) <= 40:
            axes.text(1.005 * end / unit, i, f"{about['tasks']} tasks, {100 * about['share']:.1f}%", va="center",
                      fontsize=8.5)
    axes.set_yticks(range(len(rows)), [names[worker] for worker in rows] if len(rows) <= 40 else [""] * len(rows))
    axes.invert_yaxis()
    axes.set_xlim(0, end / unit)
    axes.set_xlabel(name)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    more = f"; {len(names) - len(rows)} more workers" if len(rows) < len(names) else ""
    axes.set_title(f"{title}: {time_text(end)}, efficiency {whole['efficiency']:.3f}{more}", loc="left", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(path)


def merged(spans, end):
    """Boxes (x, width) of spans in pixels, with a gap behind each that is wide enough; narrow ones that touch are one."""
    boxes = []
    for start, seconds, *_ in spans:
        x, width = start / end * WIDTH, seconds / end * WIDTH
        if width >= 1:
            boxes.append([x, width - 0.3])
        elif boxes and boxes[-1][1] < 1 and x - sum(boxes[-1]) < 0.1:
            boxes[-1][1] = x + width - boxes[-1][0]
        else:
            boxes.append([x, max(width, 0.1)])
    return boxes


def task_counts(names, spans):
    """Of each kind of worker. A task with inner tasks counts once, by its parent part."""
    counts = {}
    for worker, name in names.items():
        counts.setdefault(kind_of(name), 0)
        counts[kind_of(name)] += sum(what != "inner" for *_, what in spans[worker])
    return counts


def ticks(end):
    """0 and 5 to 10 round times up to `end`."""
    power = 10 ** math.floor(math.log10(end))
    step = next(power * part for part in (1, 0.5, 0.2, 0.1) if end / (power * part) >= 5)
    return [step * i for i in range(int(end / step) + 1)]


def draw_together(traces, path):
    """All on one time axis, one below the other."""
    row, panel_gap = 16, 44
    end = max(whole["makespan_seconds"] for _, _, _, whole in traces) or 1
    color = colors_of(name for _, names, _, _ in traces for name in names.values())
    height = sum(panel_gap + row * len(names) for _, names, _, _ in traces)
    left = 20 + 7 * max(len(name) for _, names, _, _ in traces for name in names.values())
    svg = Svg(left + WIDTH + 90, height + 50)
    y = 0
    for title, names, spans, whole in traces:
        y += panel_gap
        counts = ", ".join(f"{kind} {count}" for kind, count in task_counts(names, spans).items())
        svg.text(left, y - 10, f"{title}: {whole['makespan_seconds']:.1f} s; tasks: {counts}", size=14)
        makespan = whole["makespan_seconds"] or 1
        for worker, name in names.items():
            svg.box(left, y + 1, makespan / end * WIDTH, row - 2, IDLE)
            for done in (True, False):
                boxes = merged([span for span in spans[worker] if span[2] == done], end)
                if boxes:
                    svg.boxes([(left + x, width) for x, width in boxes], y + 1, row - 2, color(name) if done else LOST)
            busy = 100 * whole["workers"][worker]["busy_seconds"] / makespan
            svg.text(left - 8, y + row - 4, name, "end")
            svg.text(left + WIDTH + 8, y + row - 4, f"{busy:.1f}% busy", color="#666666")
            y += row
    for seconds in ticks(end):
        x = left + seconds / end * WIDTH
        svg.box(x, y + 6, 0.7, 5, TEXT)
        svg.text(x, y + 26, time_text(seconds) if seconds else "0", "middle", size=11)
    svg.write(path)


def main(arguments, plt):
    parser = argparse.ArgumentParser(prog="plot.py timeline", description=__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="+", type=pathlib.Path, help="files of --timeline")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."), help="folder for the pictures")
    parser.add_argument("--svg", action="store_true", help="SVG also where matplotlib could make PNG")
    parser.add_argument("--together", type=pathlib.Path, metavar="FILE.svg",
                        help="all on one time axis in this file, each titled with the name of its trace")
    parsed = parser.parse_args(arguments)
    traces = []
    for path in parsed.traces:
        try:
            traces.append((path.stem, *read(path)))
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"plot.py: {path} is no timeline of Tandem: {error!r}")
    if parsed.together is not None:
        draw_together(traces, parsed.together)
        return
    parsed.output.mkdir(parents=True, exist_ok=True)
    for title, names, spans, whole in traces:
        if plt is None or parsed.svg:
            draw_svg(names, spans, whole, title, parsed.output / f"{title}.svg")
        else:
            draw_png(plt, names, spans, whole, title, parsed.output / f"{title}.png")
