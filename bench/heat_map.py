# SPDX-License-Identifier: Apache-2.0
"""Draws heat maps of measurements by `tandem autotune`: throughput over local sizes, X against Y, as in Figure 5 of
Mont-Blanc's report on OmpSs' OpenCL profiler. Call: `tandem autotune --log 2> LOG; bench/plot.py autotune LOG`."""
import argparse
import collections
import html
import pathlib
import re
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    plt = None

KEY = ("backend", "device", "operation", "k", "m", "shard_bytes")
# What `tandem autotune --log` says of each candidate (api/tuning.cpp).
TRIED = re.compile(r"autotune: (\S+) \((.*)\): (\w+) \((\d+), (\d+)\), (\d+) bytes a shard: (.*?)( \(built-in\))?: "
                   r"(?:([\d.]+) GB/s of data|refused|wrong bytes)$")
CELL, LEFT, TOP = 64, 90, 70


def read_log(lines):
    """({case: {values: rate in bytes/s, or the failure}}, {case: the built-in values}) of a log of autotune."""
    cases, built_in = collections.defaultdict(dict), {}
    for line in lines:
        found = TRIED.search(line)
        if not found:
            continue
        *case, text, is_built_in, rate = found.groups()
        values = tuple((name, int(value)) for name, value in (each.split("=") for each in text.split(", ")))
        cases[tuple(case)][values] = float(rate) * 1e9 if rate else line.rsplit(": ", 1)[1].split()[0]
        if is_built_in:
            built_in[tuple(case)] = values
    return cases, built_in


def choose_axes(measured, x, y):
    """The requested axes; else the local sizes; else the two values with the most tried settings."""
    tried = collections.defaultdict(set)
    for values in measured:
        for name, value in values:
            tried[name].add(value)
    for name in (x, y):
        if name and name not in tried:
            sys.exit(f"plot.py: no value is called {name}; there are {', '.join(sorted(tried))}")
    by_count = sorted(tried, key=lambda name: (name not in ("local_x", "local_y"), -len(tried[name]), name))
    x = x or next(name for name in by_count if name != y)
    y = y or next((name for name in by_count if name != x), x)
    return x, y


class Grid:
    """The best rate over all other values for each (x, y); None where nothing was measured, else a failure's name."""

    def __init__(self, measured, x, y):
        self.x_name, self.y_name = x, y
        cells = {}
        for values, rate in measured.items():
            named = dict(values)
            if x not in named or y not in named:
                continue
            place = named[x], named[y]
            known = cells.get(place)
            if known is None or isinstance(known, str) or (not isinstance(rate, str) and rate > known):
                cells[place] = rate
        self.xs = sorted({place[0] for place in cells})
        self.ys = sorted({place[1] for place in cells})
        self.cells = cells
        self.rates = [rate for rate in cells.values() if not isinstance(rate, str)]

    def at(self, x, y):
        return self.cells.get((x, y))

    def text(self, x, y):
        cell = self.at(x, y)
        return "" if cell is None else cell if isinstance(cell, str) else f"{cell / 1e9:.2f}"


def title_of(case):
    named = dict(zip(KEY, case))
    return (f"{named['operation']} {named['k']}+{named['m']}, shards of {named['shard_bytes']} bytes: GB/s of data",
            f"{named['backend']}: {named['device']}")


def color(part):
    """From dark blue (0) to yellow (1)."""
    stops = ((38, 44, 92), (52, 118, 140), (108, 186, 110), (246, 220, 70))
    place = min(max(part, 0), 1) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    return tuple(round(a + (b - a) * (place - low)) for a, b in zip(stops[low], stops[low + 1]))


def draw_svg(grid, case, path):
    most, least = max(grid.rates), min(grid.rates)
    width, height = LEFT + CELL * len(grid.xs) + 20, TOP + CELL * len(grid.ys) + 60
    width = max(width, 640)
    title, machine = (html.escape(text) for text in title_of(case))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="10" y="24" font-size="16">{title}</text>',
           f'<text x="10" y="44" font-size="11" fill="#555">{machine}</text>']
    for row, y in enumerate(reversed(grid.ys)):
        top = TOP + CELL * row
        out.append(f'<text x="{LEFT - 8}" y="{top + CELL / 2 + 4}" font-size="12" text-anchor="end">{y}</text>')
        for column, x in enumerate(grid.xs):
            left, cell = LEFT + CELL * column, grid.at(x, y)
            if cell is None:
                continue
            rate = not isinstance(cell, str)
            part = (cell - least) / (most - least) if rate and most > least else 1
            red, green, blue = color(part) if rate else (225, 225, 225)
            ink = "white" if rate and part < 0.55 else "black"
            out.append(f'<rect x="{left}" y="{top}" width="{CELL - 1}" height="{CELL - 1}" fill="rgb({red},{green},{blue})"/>')
            out.append(f'<text x="{left + CELL / 2}" y="{top + CELL / 2 + 4}" font-size="{13 if rate else 11}" fill="{ink}" '
                       f'text-anchor="middle">{html.escape(grid.text(x, y))}</text>')
    bottom = TOP + CELL * len(grid.ys)
    for column, x in enumerate(grid.xs):
        out.append(f'<text x="{LEFT + CELL * (column + 0.5)}" y="{bottom + 18}" font-size="12" text-anchor="middle">{x}</text>')
    out.append(f'<text x="{LEFT + CELL * len(grid.xs) / 2}" y="{bottom + 42}" font-size="13" text-anchor="middle">'
               f'{html.escape(grid.x_name)}</text>')
    middle = TOP + CELL * len(grid.ys) / 2
    out.append(f'<text x="18" y="{middle}" font-size="13" text-anchor="middle" transform="rotate(-90 18 {middle})">'
               f'{html.escape(grid.y_name)}</text></svg>')
    path.write_text("\n".join(out) + "\n")


def draw_matplotlib(grid, case, path):
    rates = [[grid.at(x, y) for x in grid.xs] for y in grid.ys]
    shown = [[cell / 1e9 if isinstance(cell, float) else float("nan") for cell in row] for row in rates]
    figure, axes = plt.subplots(figsize=(2 + 0.8 * len(grid.xs), 1.8 + 0.7 * len(grid.ys)))
    image = axes.imshow(shown, origin="lower", aspect="auto")
    middle = (max(grid.rates) + min(grid.rates)) / 2e9
    for row, y in enumerate(grid.ys):
        for column, x in enumerate(grid.xs):
            dark = shown[row][column] < middle
            axes.text(column, row, grid.text(x, y), ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.set_xticks(range(len(grid.xs)), grid.xs)
    axes.set_yticks(range(len(grid.ys)), grid.ys)
    axes.set_xlabel(grid.x_name)
    axes.set_ylabel(grid.y_name)
    axes.set_title("\n".join(title_of(case)), fontsize=9, loc="left")
    figure.colorbar(image, label="GB/s of data")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def print_table(grid, case):
    print("\n".join(title_of(case)))
    width = max(9, *(len(str(x)) + 2 for x in grid.xs))
    print(f"{grid.y_name + ' / ' + grid.x_name:>24}" + "".join(f"{x:>{width}}" for x in grid.xs))
    for y in reversed(grid.ys):
        print(f"{y:>24}" + "".join(f"{grid.text(x, y) or '.':>{width}}" for x in grid.xs))


def main(arguments):
    parser = argparse.ArgumentParser(prog="plot.py autotune", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=pathlib.Path, help="what `tandem autotune --log` wrote to standard error")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."),
                        help="folder for the figures (PNG with matplotlib, else SVG)")
    parser.add_argument("--x", help="value of the horizontal axis; default: local_x, else the value with the most tried settings")
    parser.add_argument("--y", help="value of the vertical axis")
    parser.add_argument("--svg", action="store_true", help="SVG also with matplotlib")
    options = parser.parse_args(arguments)
    try:
        cases, _ = read_log(options.file.read_text(errors="replace").splitlines())
    except OSError as error:
        sys.exit(f"plot.py: {error}")
    options.output.mkdir(parents=True, exist_ok=True)
    svg = options.svg or plt is None
    drawn = collections.Counter()
    for case, measured in cases.items():
        grid = Grid(measured, *choose_axes(measured, options.x, options.y))
        if not grid.rates:
            continue
        named = dict(zip(KEY, case))
        stem = f"autotune-{named['backend']}-{named['operation']}-{named['k']}+{named['m']}"
        drawn[stem] += 1
        stem += f"-{drawn[stem]}" if drawn[stem] > 1 else ""
        path = options.output / f"{stem}.{'svg' if svg else 'png'}"
        print_table(grid, case)
        (draw_svg if svg else draw_matplotlib)(grid, case, path)
        print(path)
    if not drawn:
        sys.exit(f"plot.py: {options.file} holds no measurement")
