# SPDX-License-Identifier: Apache-2.0
"""Draws results of `tandem-bench hybrid`: throughput over the budget of CPU tasks, as in Figure 2 of Mont-Blanc's report
D4.6, and over the size of a job. Call: `bench/plot.py hybrid RESULTS.json`."""
import argparse
import json
import math
import pathlib
import sys

from gantt import FAINT, TEXT, Svg

COLORS = {"auto": "#1f5fa8", "auto-first": "#6f9fd0", "budget": "#c8863a", "free": "#a03c3c", "all": "#bbbbbb"}
ALONE = ("#444444", "#8a8a8a", "#3a8f5c", "#8a4fa0")
LEFT, TOP, WIDTH, HEIGHT, RIGHT, BOTTOM = 60, 60, 620, 300, 230, 60


def size_text(size_bytes):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:g} {name}"
    return f"{size_bytes} B"


def of_kind(result, kind):
    return [entry for entry in result["entries"] if entry["kind"] == kind]


def best_budget(result):
    return next(entry for entry in of_kind(result, "budget") if entry["amount"] == result["best_budget"])


class Line:
    """Points (x, rates) of one colour; rates have a median, min and max. `marked` points are drawn large."""

    def __init__(self, name, color, points, dashed=False, marked=()):
        self.name, self.color, self.points, self.dashed, self.marked = name, color, points, dashed, marked


def level(name, color, xs, entry, dashed=True):
    """A line with the same value at all budgets."""
    return Line(name, color, [(x, entry["gb_per_second"]) for x in xs], dashed)


def alone(result):
    return [(f"{entry['name']} alone", ALONE[i % len(ALONE)], entry) for i, entry in enumerate(of_kind(result, "alone"))]


def saturation(result):
    rate = result["saturation_gb_per_second"]
    return {"median": rate, "min": rate, "max": rate}


def of_budgets(result):
    budgets = of_kind(result, "budget")
    xs = [entry["amount"] for entry in budgets]
    best, auto = best_budget(result), of_kind(result, "auto")[0]
    lines = [Line(f"budget; best: cpu={best['amount']}", COLORS["budget"],
                  [(entry["amount"], entry["gb_per_second"]) for entry in budgets], marked=(best["amount"],)),
             level(f"auto: {auto['over_best_budget']:.2f} of the best's time", COLORS["auto"], xs, auto, dashed=False),
             level("auto, first call", COLORS["auto-first"], xs, of_kind(result, "auto-first")[0]),
             level("free", COLORS["free"], xs, of_kind(result, "free")[0])]
    lines += [level(name, color, xs, entry) for name, color, entry in alone(result)]
    lines.append(Line("all, without an end", COLORS["all"], [(x, saturation(result)) for x in xs]))
    return lines, [(x, str(x)) for x in xs], "budget: tasks of the CPU at once"


def of_sizes(results):
    xs = [math.log2(result["size_bytes"]) for result in results]

    def line(name, color, entries, **more):
        return Line(name, color, [(x, entry["gb_per_second"]) for x, entry in zip(xs, entries)], **more)

    lines = [line("auto", COLORS["auto"], [of_kind(r, "auto")[0] for r in results], marked=xs),
             line("auto, first call", COLORS["auto-first"], [of_kind(r, "auto-first")[0] for r in results], dashed=True),
             line("free", COLORS["free"], [of_kind(r, "free")[0] for r in results], dashed=True)]
    if all("best_budget" in r for r in results):
        lines.append(line("best budget", COLORS["budget"], [best_budget(r) for r in results], marked=xs))
    for i, (name, color, _) in enumerate(alone(results[0])):
        lines.append(line(name, color, [of_kind(r, "alone")[i] for r in results], dashed=True))
    lines.append(Line("all, without an end", COLORS["all"], [(x, saturation(r)) for x, r in zip(xs, results)]))
    return lines, [(x, size_text(r["size_bytes"])) for x, r in zip(xs, results)], "data of a job"


def about(run):
    threads = f", {run['kernel']}, {run['threads']} threads" if "kernel" in run else ""
    return (f"{run['machine']['cpu']}{threads}; {' + '.join(run['devices'])}; medians of {run['repeats']} repeats in turns, "
            f"bars: slowest to fastest; {run['date'][:10]}")


def round_up(value):
    """The next larger number with few digits."""
    step = 10 ** math.floor(math.log10(value)) / 2
    return math.ceil(value / step) * step


def draw_svg(lines, ticks, x_name, title, run, path):
    svg = Svg(LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM)
    svg.text(LEFT - 40, 24, title, size=15)
    most = round_up(max(rates["max"] for line in lines for _, rates in line.points))
    first, last = ticks[0][0], ticks[-1][0]
    margin = 20

    def place(x, rate):
        part = (x - first) / (last - first) if last > first else 0.5
        return LEFT + margin + part * (WIDTH - 2 * margin), TOP + HEIGHT * (1 - rate / most)

    for i in range(6):
        y = place(first, most * i / 5)[1]
        svg.box(LEFT, y, WIDTH, 0.5, "#dddddd")
        svg.text(LEFT - 6, y + 4, f"{most * i / 5:g}", "end")
    for x, text in ticks:
        svg.text(place(x, 0)[0], TOP + HEIGHT + 18, text, "middle")
    svg.text(LEFT + WIDTH / 2, TOP + HEIGHT + 36, x_name, "middle")
    svg.text(LEFT - 40, TOP - 12, "GB/s of data", color=FAINT)
    svg.text(LEFT - 40, TOP + HEIGHT + 54, about(run), color=FAINT, size=9)
    for row, line in enumerate(lines):
        svg.line([place(x, rates["median"]) for x, rates in line.points], line.color, line.dashed)
        for x, rates in line.points:
            left, top = place(x, rates["max"])
            svg.box(left - 0.5, top, 1, place(x, rates["min"])[1] - top, line.color)
            svg.dot(*place(x, rates["median"]), 5 if x in line.marked else 2.5, line.color,
                    f"{line.name}: {rates['median']:.2f} GB/s, {rates['min']:.2f} to {rates['max']:.2f}")
        y = TOP + 8 + 20 * row
        svg.line([(LEFT + WIDTH + 12, y), (LEFT + WIDTH + 34, y)], line.color, line.dashed)
        svg.text(LEFT + WIDTH + 40, y + 4, line.name)
    svg.write(path)


def draw_png(plt, lines, ticks, x_name, title, run, path):
    figure, axes = plt.subplots(figsize=(9, 4.4))
    for line in lines:
        xs, rates = zip(*line.points)
        errors = [[r["median"] - r["min"] for r in rates], [r["max"] - r["median"] for r in rates]]
        axes.errorbar(xs, [r["median"] for r in rates], yerr=errors, fmt="o--" if line.dashed else "o-", color=line.color,
                      markersize=3, capsize=2, linewidth=1.5, label=line.name)
        marked = [(x, r["median"]) for x, r in line.points if x in line.marked]
        axes.plot([x for x, _ in marked], [y for _, y in marked], "o", color=line.color, markersize=8)
    axes.set_xticks([x for x, _ in ticks], [text for _, text in ticks])
    axes.set_xlabel(x_name)
    axes.set_ylabel("GB/s of data")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.text(0.01, 0.01, about(run), fontsize=7, color="#666666")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(path)


def main(arguments, plt):
    parser = argparse.ArgumentParser(prog="plot.py hybrid", description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="JSON files of tandem-bench hybrid")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."),
                        help="folder for the figures (PNG with matplotlib, else SVG)")
    parser.add_argument("--svg", action="store_true", help="SVG also with matplotlib")
    parsed = parser.parse_args(arguments)
    parsed.output.mkdir(parents=True, exist_ok=True)

    def draw(picture, title, run, stem):
        if plt is None or parsed.svg:
            draw_svg(*picture, title, run, parsed.output / f"{stem}.svg")
        else:
            draw_png(plt, *picture, title, run, parsed.output / f"{stem}.png")

    for path in parsed.results:
        try:
            run = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            sys.exit(f"plot.py: {path}: {error}")
        if not isinstance(run, dict) or run.get("benchmark") != "hybrid":
            sys.exit(f"plot.py: {path} is no result of tandem-bench hybrid")
        code = f"{run['k']}+{run['m']}"
        for operation in dict.fromkeys(result["operation"] for result in run["results"]):
            results = [result for result in run["results"] if result["operation"] == operation]
            title = f"{operation.capitalize()} {code}"
            for result in results:
                if "best_budget" in result:
                    size = size_text(result["size_bytes"])
                    draw(of_budgets(result), f"{title}, {size} of data", run,
                         f"{path.stem}-{operation}-budget-{size.replace(' ', '')}")
            if len(results) > 1:
                draw(of_sizes(sorted(results, key=lambda result: result["size_bytes"])), f"{title} over the size of a job",
                     run, f"{path.stem}-{operation}-sizes")
