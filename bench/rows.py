#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes JSON of measured results with one row a line, so that a diff shows which rows changed.

    bench/rows.py FILE.json...           rewrites these files
    bench/rows.py --check FOLDER         fails if a .json file in there is written in another way"""

import json
import pathlib
import sys


def has_rows(value):
    """Whether a list of objects is somewhere in the value: such a value takes more than one line."""
    if isinstance(value, dict):
        return any(has_rows(item) for item in value.values())
    return isinstance(value, list) and any(isinstance(item, dict) or has_rows(item) for item in value)


def lines(value, indent):
    """The text of a value that has rows, or of the whole document."""
    inner = indent + " "
    if isinstance(value, dict):
        items = [f"{inner}{json.dumps(key)}: {text(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + text(item, inner) for item in value) + f"\n{indent}]"


def text(value, indent):
    return lines(value, indent) if has_rows(value) else json.dumps(value)


def dumps(document):
    return lines(document, "") + "\n"


def main(arguments):
    if arguments[:1] == ["--check"] and len(arguments) == 2:
        files = sorted(pathlib.Path(arguments[1]).rglob("*.json"))
        other = [file for file in files if file.read_text() != dumps(json.loads(file.read_text()))]
        for file in other:
            print(f"{file}: not one row a line; bench/rows.py {file} mends it", file=sys.stderr)
        print(f"rows: {len(files)} files, {len(other)} to be rewritten")
        return 1 if other or not files else 0
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__)
    for name in arguments:
        file = pathlib.Path(name)
        file.write_text(dumps(json.loads(file.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
