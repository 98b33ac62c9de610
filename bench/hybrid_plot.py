"""What `tandem bench hybrid` measured: throughput over the budget of CPU tasks, as in Figure 2 of Mont-Blanc's report
D4.6, and over the size of a job. Called as `bench/plot.py hybrid RESULTS.json`."""
import argparse
import json
import pathlib
import sys

COLORS = {"auto": "#1f5fa8", "budget": "#c8863a", "free": "#a03c3c"}
ALONE = ("#444444", "#8a8a8a", "#3a8f5c", "#8a4fa0")


def size_text(size_bytes):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:g} {name}"
    return f"{size_bytes} B"


def of_kind(result, kind):
    return [entry for entry in result["entries"] if entry["kind"] == kind]


def finish(plt, figure, axes, run, title, path):
    axes.set_ylabel("GB/s of data")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.text(0.01, 0.01, f"{run['machine']['cpu']}; {' + '.join(run['devices'])}; medians of {run['repeats']} "
                f"alternating repeats, bars: slowest to fastest; {run['date'][:10]}", fontsize=7.5, color="#666666")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(path)


def bars(entries):
    rates = [entry["gb_per_second"] for entry in entries]
    return [[r["median"] - r["min"] for r in rates], [r["max"] - r["median"] for r in rates]]


def medians(entries):
    return [entry["gb_per_second"]["median"] for entry in entries]


def draw_budgets(plt, run, result, path):
    budgets = of_kind(result, "budget")
    figure, axes = plt.subplots(figsize=(8.5, 4.4))
    amounts = [entry["amount"] for entry in budgets]
    axes.errorbar(amounts, medians(budgets), yerr=bars(budgets), fmt="o-", color=COLORS["budget"], capsize=3,
                  label="budget")
    levels = [("auto", COLORS["auto"], "-", of_kind(result, "auto")[0]),
              ("free", COLORS["free"], "--", of_kind(result, "free")[0])]
    levels += [(f"{entry['name']} alone", ALONE[i % len(ALONE)], ":", entry)
               for i, entry in enumerate(of_kind(result, "alone"))]
    for name, color, style, entry in levels:
        axes.axhline(entry["gb_per_second"]["median"], color=color, linestyle=style, linewidth=1.6, label=name)
    axes.axhline(result["saturation_gb_per_second"], color="#cccccc", linewidth=1.2, label="all, without an end")
    axes.set_xticks(amounts)
    axes.set_xlabel("budget: tasks of the CPU at once")
    title = f"Encode {run['k']}+{run['m']}, {size_text(result['size_bytes'])} of data"
    finish(plt, figure, axes, run, title, path)


def draw_sizes(plt, run, path):
    results = sorted(run["results"], key=lambda result: result["size_bytes"])
    sizes = [result["size_bytes"] for result in results]
    figure, axes = plt.subplots(figsize=(8.5, 4.4))
    lines = [("auto", COLORS["auto"], "o-", [of_kind(r, "auto")[0] for r in results]),
             ("free", COLORS["free"], "s--", [of_kind(r, "free")[0] for r in results])]
    if all(of_kind(r, "budget") for r in results):
        best = [max(of_kind(r, "budget"), key=lambda e: e["gb_per_second"]["median"]) for r in results]
        lines.append(("best budget", COLORS["budget"], "^--", best))
    for i, device in enumerate(run["devices"]):
        entries = [next(e for e in of_kind(r, "alone") if e["name"] == device) for r in results]
        lines.append((f"{device} alone", ALONE[i % len(ALONE)], "x:", entries))
    for name, color, style, entries in lines:
        axes.errorbar(sizes, medians(entries), yerr=bars(entries), fmt=style, color=color, capsize=2, markersize=4.5,
                      linewidth=1.5, label=name)
    axes.plot(sizes, [r["saturation_gb_per_second"] for r in results], color="#cccccc", linewidth=1.2,
              label="all, without an end")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [size_text(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("data of a job")
    finish(plt, figure, axes, run, f"Encode {run['k']}+{run['m']} over the size of a job", path)


def main(arguments, plt):
    if plt is None:
        sys.exit("plot.py hybrid needs matplotlib: apt install python3-matplotlib")
    parser = argparse.ArgumentParser(prog="plot.py hybrid", description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="JSON files of tandem bench hybrid")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."), help="folder for the PNG files")
    parsed = parser.parse_args(arguments)
    parsed.output.mkdir(parents=True, exist_ok=True)
    for path in parsed.results:
        run = json.loads(path.read_text())
        if run.get("benchmark") != "hybrid":
            sys.exit(f"plot.py: {path} is not of tandem bench hybrid")
        for result in run["results"]:
            if of_kind(result, "budget"):
                name = f"{path.stem}-budget-{size_text(result['size_bytes']).replace(' ', '')}.png"
                draw_budgets(plt, run, result, parsed.output / name)
        if len(run["results"]) > 1:
            draw_sizes(plt, run, parsed.output / f"{path.stem}-sizes.png")
