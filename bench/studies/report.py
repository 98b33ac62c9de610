# SPDX-License-Identifier: Apache-2.0
"""Writes docs/internals/studies.md and its pictures from the JSON of the studies and the texts of bench/studies/text."""
import json
import pathlib
import re

import charts
import documents
import study as st

TEXT = pathlib.Path(__file__).resolve().parent / "text"
LETTERS = "ABCDEF"
HEAD = "<!-- DO NOT EDIT: bench/studies/run.py --report writes this from bench/results/studies and bench/studies/text. -->\n\n"


def cell(text):
    return text.replace("|", "\\|")


def table_text(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]) + "\n"


def measured_text(parts):
    """Where and when, once for parts that share it; and how busy the machine was. A part without a machine awaits its run."""
    parts = [part for part in parts if "machine" in part]
    if not parts:
        return ""
    scales = {"quick": "sizes of --quick", "full": "full sizes", "tiny": "sizes of --tiny, which mean nothing"}
    text, places = "", {}
    for part in parts:
        machine = part["machine"]
        clock = ", ".join(f"{name}: {machine.get(name, 'not recorded')}" for name in st.CLOCK)
        places.setdefault((part["date"][:10], machine["cpu"], machine["cores"], machine["system"], part["scale"], clock), []).append(part)
    for (date, cpu, cores, system, scale, clock), found in places.items():
        which = "" if len(places) == 1 else f" ({', '.join(part['name'] for part in found)})"
        text += f"Measured on {date}{which}: {cpu}, {cores} cores, {system}; {clock}; {scales[scale]}.\n"
    shares = [100 * part["others_share"] for part in parts]
    text += "Other programs took " + " to ".join(dict.fromkeys(f"{each:.1f}" for each in (min(shares), max(shares)))) + " % of these cores.\n"
    busy = [part["name"] for part in parts if part["others_share"] > st.LIMIT["others"]]
    if busy:
        text += (f"**The machine was busy with other programs during {', '.join(busy)}.** Counts are exact; times are an indication, those of "
                 "several threads least of all.\n")
    slowest = [f"{part['slowest_over_median']:.2f} ({part['name']})" for part in parts if part.get("slowest_over_median")]
    if slowest:
        text += f"The slowest repeat of a run took at most {', '.join(slowest)} times its median.\n"
    again = sum(part.get("measured_again", 0) for part in parts)
    text += f"Points measured again, because they were impossible or far from their repeats: {again}.\n" if again else ""
    for name, meaning in (("unsteady", "Still far"), ("doubts", "**Still impossible**")):
        found = [each for part in parts for each in part.get(name, ())]
        text += f"{meaning} after {st.MOST_TRIES} tries: {'; '.join(found)}.\n" if found else ""
    checks = sum(part["bytes_checks"] for part in parts)
    return text + (f"In {checks} runs the contenders' bytes were Tandem's.\n" if checks else "")


def needs_text(figure, cores):
    """For a picture with more threads than cores."""
    most = max([int(number) for series in figure["series"] for number in re.findall(r"(\d+) [^,]*\(oversubscribed\)", series["label"])], default=0)
    return st.needs_cores(most, cores)


def pictures_text(figures):
    """One picture a line, with its sentence under it if it has one: what a claim says stands in the table alone."""
    lines = []
    for title, path, result in figures:
        lines += [f"![{title}]({path})", *(["", result, ""] if result else [])]
    return "\n".join(lines).rstrip("\n") + "\n"


def section(result, pictures, folder):
    parts = result["parts"]
    written = [measured_text(parts)]
    every = {name: [each for part in parts for each in part[name]] for name in ("claims", "tables", "not_measured")}
    for of, first, stated in (("reports", "claim", "the document"), ("targets", "Tandem's own target", "target")):
        claims = [c for c in every["claims"] if c["of"] == of]
        if claims:
            written.append(table_text([first, stated, "here", "", "why, and what differs"],
                                      [[c["claim"], c["stated"], c["measured"], c["verdict"], c["why"]] for c in claims]))
    drawn = []
    for figure, cores in ((figure, part["machine"]["cores"]) for part in parts for figure in part["figures"]):
        path = pictures / f"{result['study'].lower()}-{figure['name']}.svg"
        note = " ".join(filter(None, (figure["note"], needs_text(figure, cores))))
        charts.draw(documents.drawn(path.stem, {**figure, "note": note}), path)
        drawn.append((figure["title"], path.relative_to(folder), figure["result"]))
    if drawn:
        written.append(pictures_text(drawn))
    for table in every["tables"]:
        written.append(f"**{table['title']}**\n\n{table_text(table['columns'], table['rows'])}"
                       + (f"\n{table['note']}\n" if table["note"] else ""))
    if every["not_measured"]:
        reasons = {}
        for each in every["not_measured"]:
            reasons.setdefault(each["reason"], []).append(each["what"])
        written.append("\n".join(f"- {', '.join(found)}: NOT MEASURED: {reason}" for reason, found in reasons.items()) + "\n")
    return "\n".join(written)


def limits():
    """How claims are judged: study.TOLERANCES."""
    return table_text(["words of a document, and what is measured", "limit"], [[meaning, f"{limit:g}x" if limit >= 1 else f"{100 * limit:g} %"] for limit, meaning in st.TOLERANCES.values()])


def headlines(results, path):
    """The picture at the top: the claims of documents.HEADLINES, as they are stored."""
    stored = {path.stem: {claim["claim"]: claim for part in json.loads(path.read_text())["parts"] for claim in part["claims"]} for path in results.glob("?.json")}
    rows = [documents.headline(label, stored[letter][claim], stated, written) for label, letter, claim, stated, written in documents.HEADLINES
            if claim in stored.get(letter, ())]
    if not rows:
        return ""
    charts.headlines(rows, path)
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in dict.fromkeys(row["verdict"] for row in rows)}
    return (f"![The documents' headlines]({path.relative_to(path.parent.parent)})\n\n{len(rows)} headlines: "
            + ", ".join(f"{verdict} {count}" for verdict, count in counts.items()) + ".\n")


def write(results, docs):
    pictures = docs / "studies"
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.svg"):
        old.unlink()
    head, places = (TEXT / "head.md").read_text().split("\n## Documents\n")
    parts = [HEAD + head, limits(), headlines(results, pictures / "headlines.svg"), "## Documents\n" + places]
    for letter in LETTERS:
        text, path = TEXT / f"{letter}.md", results / f"{letter}.json"
        parts.append(text.read_text())
        if path.exists():
            parts.append(section(json.loads(path.read_text()), pictures, docs))
    parts.append((TEXT / "G.md").read_text())
    (docs / "studies.md").write_text("\n".join(parts))
    print(docs / "studies.md")
