#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws results: of `tandem-bench run -o FILE.json` (throughput per code, and over the working set's size), of
`tandem autotune`, `tandem-bench hybrid`, `tandem-bench simulate storage` and `bench/cluster.py`; and timelines.

    bench/plot.py RESULTS.json... -o FOLDER
    bench/plot.py autotune LOG -o FOLDER
    bench/plot.py timeline TRACE.json... -o FOLDER
    bench/plot.py hybrid RESULTS.json... -o FOLDER
    bench/plot.py storage RESULTS.json... -o FOLDER
    bench/plot.py cluster RESULTS.json... -o FOLDER

The first needs matplotlib (Debian: python3-matplotlib). Results of several codes have one figure for each operation and
placement, in cache or out of cache. Results of several sizes have one figure for each code.

The others:
  autotune   heat maps over local sizes (heat_map.py)
  timeline   which worker did what when, all files in one picture (gantt.py)
  hybrid     throughput over the budget, and over the size of a job (hybrid_plot.py)
  storage    the write rate of storage systems (storage_plot.py); always SVG
  cluster    how protect and encode scale over nodes and ranks (cluster_plot.py); always SVG
autotune, timeline and hybrid draw SVG where matplotlib is missing.
"""
import argparse
import collections
import json
import pathlib
import sys

import cluster_plot
import gantt
import heat_map
import hybrid_plot
import storage_plot
from heat_map import plt

TANDEM, PEER, ROOF = "#1f5fa8", "#c8863a", "#444444"


def rate(entry):
    return entry["gb_per_second"]["median"]


def error_bars(entries):
    """Distances from the medians to the slowest and to the fastest repeat."""
    speeds = [entry["gb_per_second"] for entry in entries]
    return [[s["median"] - s["min"] for s in speeds], [s["max"] - s["median"] for s in speeds]]


def code(result):
    return f"{result['k']}+{result['m']}"


def size_text(size_bytes):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:g} {name}"
    return f"{size_bytes} B"


def peer_text(run):
    peer = run["peer"]
    if peer is None:
        return "peer"
    if peer["function"].startswith("jerasure_"):
        return "Jerasure"
    version = f" {peer['version']}" if peer["version"] else ""
    function = "" if peer["function"] == "ec_encode_data" else f", {peer['function']}"
    return f"ISA-L{version}{function}"


def tandem_text(run):
    threads = run["tandem"]["threads"]
    return f"Tandem, {run['tandem']['kernel']}" + (f", {threads} threads" if threads > 1 else "")


def footnote(figure, run):
    machine, settings = run["machine"], run["settings"]
    figure.text(0.01, 0.01, f"{machine['cpu']}, L2 {size_text(machine['l2_bytes'])} a core; {run['tandem']['threads']} "
                f"thread(s); medians of {settings['repeats']} alternating repeats, {settings['clock']} clock; "
                f"bars: slowest to fastest; {run['date'][:10]}", fontsize=7.5, color="#666666")


def finish(figure, axes, run, path):
    axes.set_ylabel("GB/s of data")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    footnote(figure, run)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(path)


def draw_codes(run, results, title, path):
    """Bars for each code: Tandem and the peer. The roof is a mark over both; the ratio stands above."""
    figure, axes = plt.subplots(figsize=(10, 4.6))
    places = list(range(len(results)))
    with_peer = all("peer" in result for result in results)
    width = 0.38 if with_peer else 0.6
    bar = {"capsize": 2, "error_kw": {"elinewidth": 0.8, "ecolor": "#333333", "alpha": 0.7}}
    own = [result["tandem"] for result in results]
    axes.bar([x - width / 2 if with_peer else x for x in places], [rate(e) for e in own], width, color=TANDEM,
             yerr=error_bars(own), label=tandem_text(run), **bar)
    if with_peer:
        other = [result["peer"] for result in results]
        axes.bar([x + width / 2 for x in places], [rate(e) for e in other], width, color=PEER,
                 yerr=error_bars(other), label=peer_text(run), **bar)
    axes.hlines([rate(result["roof"]) for result in results], [x - 0.44 for x in places], [x + 0.44 for x in places],
                color=ROOF, linewidth=1.6, label="memory roof")
    top = max(max(rate(r["roof"]), r["tandem"]["gb_per_second"]["max"]) for r in results)
    for x, result in zip(places, results):
        if with_peer:
            height = max(rate(result["roof"]), *(result[who]["gb_per_second"]["max"] for who in ("tandem", "peer")))
            axes.text(x, height + 0.015 * top, f"{result['over_peer']:.2f}x", ha="center", va="bottom", fontsize=8.5)
    axes.set_xticks(places, [code(result) for result in results])
    axes.set_xlabel("code: data + parity shards" + ("; the number is Tandem over the peer" if with_peer else ""))
    axes.set_title(title, loc="left", fontsize=11, pad=26)
    axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(-0.01, 0.995), fontsize=9)
    finish(figure, axes, run, path)


def draw_sizes(run, results, title, path):
    """Lines over the working set's size, with bands from the slowest to the fastest repeat."""
    results = sorted(results, key=lambda result: result["size_bytes"])
    sizes = [result["size_bytes"] for result in results]
    figure, axes = plt.subplots(figsize=(8, 4.6))
    lines = [("tandem", TANDEM, tandem_text(run), "o-"), ("peer", PEER, peer_text(run), "s-"),
             ("roof", ROOF, "memory roof", "--")]
    for who, color, label, style in lines:
        if any(who not in result for result in results):
            continue
        speeds = [result[who]["gb_per_second"] for result in results]
        axes.plot(sizes, [s["median"] for s in speeds], style, color=color, label=label, markersize=4.5, linewidth=1.5)
        if who != "roof":
            axes.fill_between(sizes, [s["min"] for s in speeds], [s["max"] for s in speeds], color=color, alpha=0.15,
                              linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [size_text(size) for size in sizes], fontsize=8.5)
    axes.minorticks_off()
    cached = [result["size_bytes"] for result in results if result["in_cache"]]
    beyond = [result["size_bytes"] for result in results if not result["in_cache"]]
    if cached and beyond:
        border = (max(cached) * min(beyond)) ** 0.5
        axes.axvline(border, color="#aaaaaa", linewidth=0.8, linestyle=":")
        for text, side in (("in place  ", "right"), ("  rotating", "left")):
            axes.text(border, 0.02, text, ha=side, fontsize=8.5, color="#777777", transform=axes.get_xaxis_transform())
    axes.set_xlabel("working set of a stripe, data and parity")
    axes.set_title(title, loc="left", fontsize=11, pad=26)
    axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(-0.01, 0.995), fontsize=9)
    finish(figure, axes, run, path)


def title_of(result, *parts):
    operation = result["operation"].capitalize()
    if result["operation"] == "decode":
        operation += ", first m data shards lost" if result["lost"] == "first" else ", m random shards lost"
    odd = ["odd lengths"] if result["odd"] else []
    return ", ".join([operation, *parts, result["placement"] + " shards", *odd])


def other_than(matrix, default="isal-cauchy"):
    return "" if matrix == default else matrix


def file_name(*parts):
    return "-".join(str(part).replace(" ", "") for part in parts if part) + ".png"


def draw(run, stem, folder):
    results = [result for result in run["results"] if "roof" in result]
    per_place, per_code = collections.defaultdict(list), collections.defaultdict(list)
    for result in results:
        kind = (result["operation"], result["matrix"], result["placement"], result["odd"])
        per_place[(*kind, result["size_bytes"])].append(result)
        per_code[(*kind, code(result))].append(result)
    for (operation, matrix, placement, odd, size_bytes), group in per_place.items():
        if len(group) < 3:
            continue
        where = "in cache" if group[0]["in_cache"] else "out of cache"
        name = file_name(stem, operation, other_than(matrix), size_text(size_bytes), placement, "odd" if odd else "")
        draw_codes(run, group, title_of(group[0], f"{size_text(size_bytes)} a stripe, {where}"), folder / name)
    for (operation, matrix, placement, odd, of_code), group in per_code.items():
        if len(group) < 4:
            continue
        name = file_name(stem, operation, other_than(matrix), of_code, placement, "odd" if odd else "", "sizes")
        draw_sizes(run, group, title_of(group[0], of_code), folder / name)


def main():
    if sys.argv[1:2] == ["autotune"]:
        return heat_map.main(sys.argv[2:])
    if sys.argv[1:2] == ["timeline"]:
        return gantt.main(sys.argv[2:], plt)
    if sys.argv[1:2] == ["hybrid"]:
        return hybrid_plot.main(sys.argv[2:], plt)
    if sys.argv[1:2] == ["storage"]:
        return storage_plot.main(sys.argv[2:])
    if sys.argv[1:2] == ["cluster"]:
        return cluster_plot.main(sys.argv[2:])
    if plt is None:
        sys.exit("plot.py needs matplotlib: apt install python3-matplotlib")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="JSON files of tandem-bench run")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."), help="folder for the PNG files")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for path in arguments.results:
        draw(json.loads(path.read_text()), path.stem, arguments.output)


if __name__ == "__main__":
    main()
