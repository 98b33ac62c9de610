# SPDX-License-Identifier: Apache-2.0
"""Common code of the studies: scales, contenders, results as JSON. bench/studies/README.md describes a result."""
import argparse
import datetime
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import rows  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
NOT_MEASURED = "NOT MEASURED"
VERDICTS = {"reports": ("reproduced", "not reproduced"), "targets": ("met", "not met")}  # of the documents' claims, and of Tandem's
FITTED = "fitted"  # reproduced, by a model with parameters from the same figures
JERASURE = "libJerasure.so.2"
# How claims of a document are judged. The page prints this table, and says before it what is judged otherwise.
TOLERANCES = {
    "figure": (0.05, "a figure: the same when rounded to the digits that the document prints, or within this part of it; of a gain, more counts as well"),
    "alike": (0.1, '"no difference", "almost the same", "comparable", "negligible", "no faster": within this part'),
    "faster": (0.02, '"faster", "better", "grows", "falls" without a figure: by more than this part'),
    "much": (2, '"much faster", "very limited": by at least this factor'),
    "place": (1.5, "where two lines cross: within this factor of the document's place"),
    "others": (0.1, "more of the cores' time taken by other programs: no time is judged"),
    "possible": (1.25, "more than the threads' number (or the cores', if they are fewer) times this: an impossible speed-up, measured again"),
    "repeats": (2, "a median of more than the fastest repeat times this: far from its repeats, measured again"),
}
LIMIT = {name: limit for name, (limit, _) in TOLERANCES.items()}
MOST_TRIES = 3  # of a point that is impossible or far from its repeats; if it stays impossible, no time of its part is judged
PASSES = 3  # over all points of some lines
CLOCK = {"governor": "cpu0/cpufreq/scaling_governor", "boost": "cpufreq/boost", "no_turbo": "intel_pstate/no_turbo",
         "C-states": "cpuidle/current_driver"}


class Unavailable(Exception):
    """A reason why something cannot be measured on this machine."""


class Failed(Exception):
    """A contender failed, or its bytes differ from Tandem's."""


def rounded(value, stated):
    """The value with the digits of a figure as it is printed: 2.9986 beside "3" is 3."""
    shift = 10 ** len(stated.partition(".")[2])
    return math.floor(value * shift + 0.5) / shift


def matches(value, stated):
    return rounded(value, stated) == float(stated) or abs(value / float(stated) - 1) <= LIMIT["figure"]


def reaches(value, stated):
    """At least as much as the document's figure."""
    return matches(value, stated) or value > float(stated)


def alike(*values):
    return max(values) <= (1 + LIMIT["alike"]) * min(values)


def no_faster(ratio):
    return ratio <= 1 + LIMIT["alike"]


def faster(ratio):
    return ratio > 1 + LIMIT["faster"]


def grows(values):
    return sorted(values) == list(values) and faster(values[-1] / values[0])


def is_place(value, stated):
    """Where two lines cross; None: nowhere."""
    return value is not None and 1 / LIMIT["place"] <= value / stated <= LIMIT["place"]


def core_count():
    return len(os.sched_getaffinity(0))


def thread_counts():
    """1, 2, 4, ... and every core that this process may use."""
    counts = [1 << i for i in range(core_count().bit_length()) if 1 << i < core_count()]
    return counts + [core_count()]


def oversubscribed(threads):
    """The remark in a label for more threads than cores."""
    return " (oversubscribed)" if threads > core_count() else ""


def needs_cores(count, here=None):
    """The one wording for what needs more cores than the machine has; empty if it has them."""
    here = here or core_count()
    return f"Needs {count} cores; this machine has {here}." if count > here else ""


def machine():
    model = "unknown CPU"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break

    def cache_bytes(level):
        for index in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
            if (index / "level").read_text().strip() == str(level) and "Inst" not in (index / "type").read_text():
                number, unit = re.match(r"(\d+)([KM]?)", (index / "size").read_text()).groups()
                return int(number) << {"": 0, "K": 10, "M": 20}[unit]
        return 0

    def setting(path):
        place = pathlib.Path("/sys/devices/system/cpu", path)
        return place.read_text().strip() if place.exists() else "not shown"

    return {"cpu": model, "cores": core_count(), "l1d_bytes": cache_bytes(1), "l2_bytes": cache_bytes(2),
            "l3_bytes": cache_bytes(3), "system": " ".join((os.uname().sysname, os.uname().release)),
            **{name: setting(path) for name, path in CLOCK.items()}}


def median(values):
    return statistics.median(values)


def mb(size_bytes):
    """4000000 -> "4 MB", the documents' units."""
    return f"{size_bytes / 1e6:g} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:g} KB"


def processor_seconds():
    """Seconds that have passed, that this program's cores were busy, and that this program and the programs it ran took."""
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        name, *times = line.split()
        if name in mine:
            user, nice, system, _, _, irq, softirq, steal = map(int, times[:8])
            ticks += user + nice + system + irq + softirq + steal
    own = os.times()
    return time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), own.user + own.system + own.children_user + own.children_system


def with_runtime(library, answer):
    """The answer of a contender, if the one OpenMP runtime in its process is this one; None: if there was none."""
    mapped = [path.rsplit("/", 1)[1] for path in answer["openmp_runtimes"]]
    if library is None and mapped or library is not None and not (len(mapped) == 1 and mapped[0].startswith(library)):
        raise Unavailable(f"expected {library or 'no OpenMP runtime'} in the process, and there is {', '.join(mapped) or 'none'}")
    return answer


class Study:
    """One run of one study. Its parts fill it, one after the other; write() stores it."""

    def __init__(self, letter, title, arguments):
        self.scale, self.folder, self.output = arguments.scale, arguments.build / "bin", arguments.output
        self.arguments = arguments
        self.work = arguments.output / ".work"
        self.letter, self.title, self.parts = letter, title, []

    def measure(self, name, function):
        """One part, with its own date, and its own share of other programs: a part can be measured again alone."""
        self.begin = processor_seconds()
        self.part = {"name": name, "scale": self.scale,
                     "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "machine": machine(),
                     "others_share": 0, "slowest_over_median": 0, "bytes_checks": 0, "measured_again": 0, "unsteady": [], "doubts": [], "figures": [], "tables": [], "claims": [], "not_measured": []}
        self.attempt(name, function, self)
        self.part["others_share"] = self.others_share
        self.parts.append(self.part)

    def pick(self, tiny, quick, full):
        return {"tiny": tiny, "quick": quick, "full": full}[self.scale]

    @property
    def meaningless(self):
        return self.scale == "tiny"

    # -- running ---------------------------------------------------------------------------------------------------

    def program(self, name):
        path = self.folder / name
        if not path.exists():
            raise Failed(f"{path} is missing: cmake --build {self.folder.parent} --target studies_contenders")
        return path

    def tool(self, name, package):
        found = shutil.which(name)
        if found is None:
            raise Unavailable(f"{name} is not installed (Debian, Ubuntu: apt-get install {package})")
        return found

    def command(self, *words, env=None, errors=False):
        """Standard output, or standard error, of a program that must succeed."""
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              env={**os.environ, "TANDEM_TUNING": "", **(env or {})}, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(str(word) for word in words)}: status {done.returncode}\n{done.stderr.strip()}")
        return done.stderr if errors else done.stdout

    def contender_command(self, name, **settings):
        words = [self.program(name)]
        for key, value in settings.items():
            words += [f"--{key.replace('_', '-')}", value]
        return words

    def contender(self, name, *, env=None, **settings):
        """Runs a contender. Its bytes must equal Tandem's."""
        def ask():
            answer = json.loads(self.command(*self.contender_command(name, **settings), env=env))
            if "not_measured" in answer:
                raise Unavailable(answer["not_measured"])
            times = [answer[clock] for clock in ("seconds", "cpu_seconds") if answer.get(clock)]
            return answer, max([median(each) / min(each) for each in times if min(each) > 0], default=1)

        what = " ".join([name, *(f"{key}={value}" for key, value in settings.items() if key != "file")])
        answer, _ = self.again(what, ask, lambda found: found[1], LIMIT["repeats"], "unsteady", "its median is {:.1f} times its fastest repeat")
        if len(answer.get("seconds", ())) > 1:
            self.part["slowest_over_median"] = max(self.part["slowest_over_median"], max(answer["seconds"]) / median(answer["seconds"]))
        if "bytes_equal" in answer:
            if answer["bytes_equal"] is not True:
                raise Failed(f"{name} {settings}: its bytes differ from Tandem's")
            self.part["bytes_checks"] += 1
        return answer

    def again(self, what, measure, apart, limit, list_name, defect):
        """measure() again while its answer is apart by more than the limit. The best of MOST_TRIES counts."""
        tries = []
        while not tries or apart(tries[-1]) > limit and len(tries) < MOST_TRIES:
            tries.append(measure())
        self.part["measured_again"] += len(tries) - 1
        best = min(tries, key=apart)
        if apart(best) > limit:
            self.part[list_name].append(f"{what}: {defect.format(apart(best))}")
        return best

    def lines(self, points, measure, passes=PASSES):
        """points: the x by label; measure(label, x): seconds. The fastest of passes over all points, so that a slow minute of the machine does not
        meet all repeats of a point; points of one x follow each other. A line that this machine cannot measure is left out."""
        found = {label: {} for label in points}
        for _ in range(1 if self.meaningless else passes):
            for x in dict.fromkeys(x for xs in points.values() for x in xs):
                for label in [label for label in found if x in points[label]]:
                    took = self.attempt(label, measure, label, x)
                    if took is None:
                        del found[label]
                    else:
                        found[label][x] = min(took, found[label].get(x, took))
        return {label: list(by.items()) for label, by in found.items()}

    def possible(self, series, measure, speed_ups):
        """series: points with seconds, by label; measure(label, x) measures one anew. speed_ups: (one thread, several threads, their number) of
        the same code: an impossible speed-up is measured again, both points."""
        for alone, together, threads in speed_ups:
            cores, one, many = min(threads, core_count()), dict(series[alone]), dict(series[together])
            for x in [x for x in many if x in one]:
                stored = iter([(one[x], many[x])])
                one[x], many[x] = self.again(
                    f"{together} at {x}", lambda x=x, stored=stored: next(stored, None) or tuple(measure(label, x) for label in (alone, together)),
                    lambda pair: pair[0] / pair[1] / cores, LIMIT["possible"], "doubts", f"{{:.1f}} times one thread for each of {cores} cores")
            series[alone], series[together] = list(one.items()), list(many.items())

    def bench(self, *words):
        """JSON of `tandem-bench`."""
        return json.loads(self.command(self.program("tandem-bench"), *words, "--json"))

    # -- results ---------------------------------------------------------------------------------------------------

    def figure(self, name, title, x, y, series, *, kind="lines", log_x=False, log_y=False, note="", result="", marks=(), rows=None):
        """series: (label, [(x, y), ...]), lines and bars also (x, y, least, most); gantt: (row, start, seconds, kind), and rows has the names by
        label; heat: (x, y, rate), and marks (text, x, y). A series without points is a defect of the script. `result` is a sentence
        under the picture, for what no claim says."""
        for label, points in series:
            if not points:
                raise Failed(f"figure {name}: the series {label!r} is empty")
        self.part["figures"].append({"name": name, "title": title, "x": x, "y": y, "kind": kind, "log_x": log_x,
                                     "log_y": log_y, "note": note, "result": result,
                                     "series": [{"label": label, "points": [list(p) for p in points]}
                                                for label, points in series],
                                     "marks": [list(mark) for mark in marks], **({"rows": rows} if rows else {})})

    def table(self, name, title, columns, rows, note=""):
        self.part["tables"].append({"name": name, "title": title, "columns": columns,
                                    "rows": [[str(cell) for cell in row] for row in rows], "note": note})

    @property
    def others_share(self):
        """The part of all cores' time that other programs have taken since the part began."""
        elapsed, busy, own = (now - then for now, then in zip(processor_seconds(), self.begin))
        return min(1.0, max(0.0, busy - own) / max(elapsed * core_count(), 1e-9))  # a tick may be longer than the part

    @property
    def is_busy(self):
        """Whether other programs use the cores that threads would need."""
        return self.others_share > LIMIT["others"]

    def claim(self, claim, stated, measured, holds, why, timed=False, of="reports", fitted=False):
        """stated: the document's figure, or (of="targets") Tandem's own aim. holds: True, False, or None for NOT MEASURED. fitted: by
        a model that was fitted to it. timed: the claim depends on elapsed time, which means nothing on a busy machine."""
        doubts = list(self.part["doubts"])
        if self.is_busy:
            doubts.append(f"other programs took {100 * self.others_share:.0f} % of the cores")
        if timed and holds is not None and doubts:
            holds = None
            why = f"Not judged: {'; '.join(doubts)}. {why}"
        verdict = NOT_MEASURED if holds is None else FITTED if holds and fitted else VERDICTS[of][0 if holds else 1]
        figures = self.part["figures"]
        self.part["claims"].append({"claim": claim, "of": of, "stated": stated, "measured": measured, "verdict": verdict, "why": why,
                                    "figure": figures[-1]["name"] if figures else ""})

    def not_measured(self, what, reason):
        self.part["not_measured"].append({"what": what, "reason": str(reason)})
        print(f"  {what}: NOT MEASURED: {reason}")

    def attempt(self, what, function, *values):
        """Runs a part of a study that a machine may be unable to run. Returns None then."""
        try:
            return function(*values)
        except Unavailable as reason:
            self.not_measured(what, reason)
            return None

    def write(self, names):
        """Parts that were not measured now stay as they are stored."""
        path = self.output / f"{self.letter}.json"
        stored = json.loads(path.read_text())["parts"] if path.exists() else []
        parts = {part["name"]: part for part in stored + self.parts}
        result = {"schema_version": 2, "study": self.letter, "title": self.title,
                  "parts": [parts[name] for name in names if name in parts]}
        # Without more digits than a clock has.
        result = json.loads(json.dumps(result), parse_float=lambda text: float(f"{float(text):.6g}"))
        path.write_text(rows.dumps(result))
        print(f"  {path}: {', '.join(part['name'] for part in self.parts)}")


def parse(description):
    parser = argparse.ArgumentParser(description=description)
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument("--quick", dest="scale", action="store_const", const="quick", help="about 5 minutes for all studies")
    scale.add_argument("--tiny", dest="scale", action="store_const", const="tiny", help="seconds; sizes without meaning")
    parser.set_defaults(scale="full")
    parser.add_argument("--part", action="append", metavar="NAME", help="measure this part of the study alone; the others stay as they are stored")
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build", help="build folder; default: build/")
    parser.add_argument("--jerasure", default=JERASURE, help="the library of study B; default: the installed one")
    parser.add_argument("--sysfs", type=pathlib.Path, default=pathlib.Path("/sys"), help="folder of the energy counters; default: /sys")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=SOURCE / "bench/results/studies",
                        help="folder of the JSON files; default: bench/results/studies")
    return parser


def run(letter, title, parts, arguments):
    """parts: functions by name."""
    chosen = arguments.part or list(parts)
    unknown = [name for name in chosen if name not in parts]
    if unknown:
        raise Failed(f"no part is called {', '.join(unknown)}; there are {', '.join(parts)}")
    study = Study(letter, title, arguments)
    print(f"study {letter}: {title} ({study.scale})")
    arguments.output.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(study.work, ignore_errors=True)
    study.work.mkdir()
    try:
        for name in chosen:
            study.measure(name, parts[name])
        study.write(parts)
    finally:
        shutil.rmtree(study.work, ignore_errors=True)


def main(letter, title, parts, description):
    """For a script that runs one study alone."""
    try:
        run(letter, title, parts, parse(description.split("\n")[0]).parse_args())
    except Failed as error:
        sys.exit(f"study {letter}: {error}")
