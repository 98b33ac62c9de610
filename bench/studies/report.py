# SPDX-License-Identifier: Apache-2.0
"""Writes docs/internals/studies.md and its pictures from the JSON of the studies and the texts of bench/studies/text."""
import json
import pathlib

import charts
import study as st

TEXT = pathlib.Path(__file__).resolve().parent / "text"
LETTERS = "ABCDEF"
HEAD = "<!-- DO NOT EDIT: bench/studies/run.py --report writes this from bench/results/studies and bench/studies/text. -->\n\n"


def cell(text):
    return text.replace("|", "\\|")


def table_text(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]) + "\n"


def measured_text(result):
    machine = result["machine"]
    scale = {"quick": "sizes of --quick", "full": "full sizes", "tiny": "sizes of --tiny, which mean nothing"}[result["scale"]]
    text = (f"Measured on {result['date'][:10]}: {machine['cpu']}, {machine['cores']} cores, {machine['system']}; {scale}. "
            f"Other programs took {100 * result['others_share']:.1f} % of these cores.")
    if result["others_share"] > st.MOST_OTHERS_SHARE:
        text += (" **The machine was busy with other programs.** Counts are exact; times are an indication, those of several "
                 "threads least of all.")
    if result["bytes_checks"]:
        text += f" In {result['bytes_checks']} runs the contenders' bytes were Tandem's."
    return text + "\n"


def section(result, pictures, folder):
    parts = [measured_text(result)]
    if result["claims"]:
        parts.append(table_text(["the document says", "here", "", "why, and what differs"],
                                [[c["claim"], c["measured"], c["verdict"], c["why"]] for c in result["claims"]]))
    for figure in result["figures"]:
        path = pictures / f"{result['study'].lower()}-{figure['name']}.svg"
        charts.draw(figure, path)
        parts.append(f"![{figure['title']}]({path.relative_to(folder)})\n")
    for table in result["tables"]:
        parts.append(f"**{table['title']}**\n\n{table_text(table['columns'], table['rows'])}"
                     + (f"\n{table['note']}\n" if table["note"] else ""))
    if result["not_measured"]:
        parts.append("\n".join(f"- {each['what']}: NOT MEASURED: {each['reason']}" for each in result["not_measured"]) + "\n")
    return "\n".join(parts)


def write(results, docs):
    pictures = docs / "studies"
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.svg"):
        old.unlink()
    parts = [HEAD + (TEXT / "head.md").read_text()]
    for letter in LETTERS:
        text, path = TEXT / f"{letter}.md", results / f"{letter}.json"
        parts.append(text.read_text())
        if path.exists():
            parts.append(section(json.loads(path.read_text()), pictures, docs))
    parts.append((TEXT / "G.md").read_text())
    (docs / "studies.md").write_text("\n".join(parts))
    print(docs / "studies.md")
