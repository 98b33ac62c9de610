#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the comments of a public header into comments of Doxygen, for site/Doxyfile: doxygen_filter.py HEADER, result to standard
output. The headers themselves stay free of markup. A comment before a declaration documents it, one behind a field the field.
Indented lines "name  text" become a list, and the slots of CONTRIBUTING.md paragraphs. Lines keep their numbers as far as possible."""
import pathlib
import re
import sys

SLOTS = ("Ownership", "Status", "On failure", "Threads", "Memory", "Example")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)


def escaped(text):
    text = re.sub(r"([\\@<>#&])", r"\\\1", text)
    return re.sub(r"(?<![\w*])([*_])(?=\w)", r"\\\1", text)


def body(text):
    """The lines of a comment without their stars, as Markdown."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in text[2:-2].lstrip("*").removeprefix("<").split("\n")]
    out, in_list, in_code = [], 0, False
    for line in (line.rstrip() for line in lines):
        words = line.strip()
        indent = len(line) - len(line.lstrip())
        if not words:
            out.append("")
            in_list, in_code = 0, False
            continue
        item = re.match(r"(\S+(?:, \S+)*)\s{2,}(\S.*)$", words)
        if indent >= 4 and (in_code or (out and not out[-1] and not in_list)):
            out.append(line if indent >= 4 else "    " + line)
            in_code = True
            continue
        in_code = False
        if indent >= 2 and item and (not in_list or indent <= in_list):
            if not in_list:
                out.append("")
            in_list = indent
            out.append(f"- `{item.group(1)}` {escaped(item.group(2))}")
        elif in_list and indent > in_list:
            out.append("  " + escaped(words))
        else:
            slot = next((slot for slot in SLOTS if words.startswith(slot + ":")), None)
            if (in_list or slot) and out and out[-1]:
                out.append("")
            in_list = 0
            out.append(escaped(words) if slot is None else f"<b>{slot}:</b>{escaped(words[len(slot) + 1:])}")
    return "\n".join(out).strip("\n")


def main(path):
    text = path.read_text()
    is_first = True

    def change(found):
        nonlocal is_first
        comment = found.group()
        if comment[0] == '"' or comment.startswith("//") or re.match(r"/\* (----|SPDX)", comment):
            return comment
        if is_first:
            is_first = False
            return f"/** @file\n\n{body(comment)}\n*/"
        behind = text[text.rfind("\n", 0, found.start()) + 1:found.start()].strip()
        if behind.startswith("#"):  # of #endif and the like
            return comment
        return f"/**{'<' if behind else ''} {body(comment)} */"

    sys.stdout.write(COMMENT.sub(change, text))


main(pathlib.Path(sys.argv[1]))
