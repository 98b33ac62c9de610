#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the studies and writes docs/internals/studies.md: `make studies`.

    bench/studies/run.py [--quick | --tiny] [A B ...]     # default: all of them, about 30 minutes on 2 cores
    bench/studies/run.py A --part figure-15               # one part of a study; the others stay as they are stored
    bench/studies/run.py --report                         # only writes the document again, from the stored JSON

Results go to bench/results/studies, one JSON file for each study. The document and its pictures are made from these files
alone."""
import importlib
import pathlib
import sys

import report
import study as st

MODULES = {"A": "a_student_report", "B": "b_jerasure", "C": "c_placement", "D": "d_runtimes_energy",
           "E": "e_tasks", "F": "f_budget_profiler"}


def main():
    parser = st.parse(__doc__.split("\n")[0])
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"which: {' '.join(MODULES)}")
    parser.add_argument("--docs", type=pathlib.Path, default=st.SOURCE / "docs/internals",
                        help="folder of studies.md; default: docs/internals/")
    parser.add_argument("--report", action="store_true", help="measure nothing; write the document from the stored results")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.studies if name not in MODULES]
    if unknown:
        parser.error(f"no study is called {', '.join(unknown)}; there are {' '.join(MODULES)}")
    if arguments.part and len(arguments.studies) != 1:
        parser.error("--part needs one study")
    failed = []
    if not arguments.report:
        for letter in arguments.studies or MODULES:
            module = importlib.import_module(MODULES[letter])
            try:
                st.run(letter, module.TITLE, module.PARTS, arguments)
            except st.Failed as error:  # the others still run
                print(f"study {letter}: {error}", file=sys.stderr)
                failed.append(letter)
    report.write(arguments.output, arguments.docs)
    if failed:
        sys.exit(f"failed: study {', '.join(failed)}")


if __name__ == "__main__":
    main()
