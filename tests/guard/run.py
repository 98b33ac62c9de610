#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The promises P1 to P3 of docs/production.md as one property: what could be restored before a command can be restored after it.
Random histories of documented commands, edits, losses and damage; three models that know nothing of the library.

    run.py FOLDER-OF-TANDEM FAULT-LIBRARY|none --model tree|set|volume [--seed N] [--count N] [--steps N] [--keep-going]

The histories have the seeds N, N + 1, ... A failure prints its seed and its history; `--seed N` repeats it. Without --seed it is
TANDEM_TEST_SEED, or random. TANDEM_TEST_ALL=1 runs 20 times as many."""
import argparse
import collections
import glob
import os
import random
import shutil
import sys
import tempfile
import time
import traceback

import kit
import sets
import tree
import volume

# Model, and histories of a slice: about 13 processor seconds each.
MODELS = {"tree": (tree.Tree, 15), "set": (sets.Sets, 8), "volume": (volume.Volume, 20)}


class Tools:
    """The programs, where an ordinary user can run them: root may read each file, so a test as root would prove nothing of P3."""

    def __init__(self, folder, faults):
        self.folder, self.faults, self.place = os.path.abspath(folder), os.path.abspath(faults) if faults != "none" else "", None
        if os.geteuid() == 0:
            self.place = tempfile.mkdtemp(prefix="tandem-guard-tools-")
            names = [f"{self.folder}/tandem", *glob.glob(f"{self.folder}/libtandem*.so*"), *([self.faults] if faults != "none" else [])]
            for name in names:
                shutil.copy(name, self.place)
            self.faults = self.faults and os.path.join(self.place, os.path.basename(self.faults))
            self.folder = self.place
            os.environ["LD_LIBRARY_PATH"] = self.place  # the programs know the folder where they were built
            os.chown(self.place, 65534, 65534)
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
        self.tandem = os.path.join(self.folder, "tandem")

    def close(self):
        if self.place:
            shutil.rmtree(self.place, True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("faults")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--keep-going", action="store_true", help="to the last history, and count the failures by their kind")
    parser.add_argument("--show", action="store_true", help="the history also if it is right")
    parser.add_argument("--without", nargs="*", default=[], metavar="METHOD", help="steps or checks of the model that are left out, so that what they find hides nothing else")
    options = parser.parse_args()
    model, count = MODELS[options.model]
    count = options.count or (1 if options.seed is not None else count * (20 if os.environ.get("TANDEM_TEST_ALL") else 1))
    first = options.seed if options.seed is not None else int(os.environ.get("TANDEM_TEST_SEED", random.randrange(1 << 32)))
    print(f"guard: model {options.model}, seeds {first} to {first + count - 1} (TANDEM_TEST_SEED={first} repeats this run)", flush=True)
    tools = Tools(options.folder, options.faults)
    kinds, start = collections.Counter(), time.process_time()
    for seed in range(first, first + count):
        history = model(tools, seed, options.steps)
        for name in options.without:
            setattr(history, name, lambda *arguments, **more: None)
        try:
            history.run()
        except kit.Broken as broken:
            rule, text = broken.rule, str(broken)
        except Exception:
            rule, text = "error of the test", traceback.format_exc()
        else:
            rule = None
        finally:
            history.close()
        if options.show and not rule:
            print("\n".join(history.log))
        if not rule:
            continue
        kinds[rule] += 1
        print(f"--- {options.model}, seed {seed}, step {len(history.log)}\n    " + "\n    ".join(history.log) + f"\nFAILED (--model {options.model} --seed {seed}) {text}", flush=True)
        if not options.keep_going:
            break
    tools.close()
    used = os.times()
    print(f"guard: {options.model}: {sum(kinds.values())} failures in {seed - first + 1} histories, {sum(used[:4]):.1f} processor seconds",
          *(f"\n  {number} x {rule}" for rule, number in kinds.most_common()), flush=True)
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
