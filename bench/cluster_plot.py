# SPDX-License-Identifier: Apache-2.0
"""Draws how protect scales over nodes, with the ideal line, from results of `bench/cluster.py simulate`. Draws the measured
encode of `bench/cluster.py measure` beside it. Call: `bench/plot.py cluster RESULTS.json...`. SVG, without matplotlib."""
import argparse
import json
import math
import pathlib
import sys

from gantt import FAINT, Svg

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 520, 360, 80, 80, 70, 90
SIMULATED, MEASURED, IDEAL = "#1f5fa8", "#c8863a", "#888888"


def rate_text(bytes_per_second):
    for unit, name in ((1e12, "TB/s"), (1e9, "GB/s")):
        if bytes_per_second >= unit:
            return f"{bytes_per_second / unit:g} {name}"
    return f"{bytes_per_second / 1e6:g} MB/s"


def panel(svg, left, title, subtitle, unit, points, ideal_from, color):
    """points: (number, bytes a second). The ideal line goes through the point of number ideal_from."""
    reference = dict(points)[ideal_from] / ideal_from
    ideal = [(number, number * reference) for number, _ in points]
    rates = [rate for _, rate in points + ideal]
    xs = math.log2(points[0][0]) - 0.2, math.log2(points[-1][0]) + 0.2
    ys = math.floor(math.log10(min(rates)) * 2) / 2, math.ceil(math.log10(max(rates)) * 2) / 2

    def place(number, rate):
        return (left + WIDTH * (math.log2(number) - xs[0]) / (xs[1] - xs[0]),
                TOP + HEIGHT * (1 - (math.log10(rate) - ys[0]) / (ys[1] - ys[0])))

    svg.text(left, TOP - 36, title, size=14)
    svg.text(left, TOP - 20, subtitle, color=FAINT, size=10)
    for half in range(round(ys[0] * 2), round(ys[1] * 2) + 1):
        rate = 10 ** (half / 2) if half % 2 == 0 else 3 * 10 ** ((half - 1) // 2)
        if not ys[0] - 0.001 <= math.log10(rate) <= ys[1] + 0.001:
            continue
        y = place(1, rate)[1]
        svg.box(left, y, WIDTH, 0.5, "#dddddd")
        svg.text(left - 6, y + 4, rate_text(rate), "end", size=10)
    for number, _ in points:
        svg.text(place(number, rates[0])[0], TOP + HEIGHT + 16, f"{number:,}", "middle", size=10)
    svg.text(left + WIDTH / 2, TOP + HEIGHT + 34, unit, "middle")
    svg.line([place(*point) for point in ideal], IDEAL, dashed=True)
    svg.text(place(*ideal[-1])[0] - 8, place(*ideal[-1])[1] - 4, f"ideal, from {ideal_from}", "end", color=IDEAL, size=10)
    svg.line([place(*point) for point in points], color)
    for number, rate in points:
        svg.dot(*place(number, rate), 3.5, color, f"{number:,} {unit}: {rate_text(float(f'{rate:.4g}'))}, "
                f"{rate / number / reference:.1%} of ideal")


def read(path):
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"plot.py: {path}: {error}")
    if not isinstance(found, dict) or found.get("kind") != "cluster":
        sys.exit(f"plot.py: {path} is no result of bench/cluster.py")
    if not found.get("points" if found["simulated"] else "encode"):
        sys.exit(f"plot.py: {path} has no points")
    return found


def panel_of(svg, left, found):
    if found["simulated"]:
        points = [(point["nodes"], point["bytes_per_second"]) for point in found["points"]]
        # With fewer nodes than members of a group, a part of the exchange stays in memory and measures no network.
        across = [point["nodes"] for point in found["points"] if point["most_on_a_node"] == 1]
        panel(svg, left, f"{found['operation']} {found['k']}+{found['m']}: simulated",
              f"{found['simulator']}; {found['ranks_per_node']} ranks a node, {found['data_bytes_per_rank'] / 2**20:.0f} MiB each",
              "nodes (simulated)", points, across[0] if across else points[0][0], SIMULATED)
    else:
        encode = found["encode"]
        ranks = sorted((int(name.split()[0]), each["median"]) for name, each in encode["seconds"].items() if name.endswith(" ranks"))
        points = [(count, encode["content_bytes"] / seconds) for count, seconds in ranks]
        panel(svg, left, f"encode {encode['k']}+{encode['m']}: measured", f"{found['cpu']}, {found['cores']} cores; one thread a rank",
              "ranks on one machine", points, 1, MEASURED)


def main(arguments):
    parser = argparse.ArgumentParser(prog="plot.py cluster", description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="of bench/cluster.py")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."), help="folder for cluster.svg")
    parsed = parser.parse_args(arguments)
    parsed.output.mkdir(parents=True, exist_ok=True)
    results = [read(path) for path in parsed.results]
    svg = Svg(LEFT + len(results) * (WIDTH + GAP), TOP + HEIGHT + BOTTOM)
    svg.text(LEFT, 22, "Bytes protected or encoded a second, all ranks together", size=16)
    for number, found in enumerate(results):
        panel_of(svg, LEFT + number * (WIDTH + GAP), found)
    svg.write(parsed.output / "cluster.svg")
