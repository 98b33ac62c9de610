#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills `encode --force` at every call that changes files, or simulates a power loss there. Then it removes one of its folders
and asks the next commands for the content. They must decode all that can be decoded, after every sequence of runs.

One run of each encode is recorded. The test replays its calls up to each point on a copy of the tree, so a point needs no run
of encode. The commands that clean up after it are recorded and cut off in the same way.

Usage: loss_test.py TANDEM FAULT_LIBRARY [--points N] [--seed S] [--only ROUND:POINT]
With TANDEM_TEST_ALL=1 in the environment: every point of 16 rounds.
"""
import argparse
import os
import random
import sys
import time

from kit import CHANGES, SYNCS, Sandbox, after_power_loss

MOST_FAILURES = 10  # then it ends early
POINTS_PER_ROUND = 120  # of a slice
ROUNDS_OF_ALL = 16


class Wrong(Exception):
    pass


class Generation:
    """One content of the set, and what its shard files hold."""

    def __init__(self, rng, folders, content):
        self.folders, self.content = folders, content + rng.randbytes(rng.choice((0, 1, 700, 2500)))
        # Most shapes survive the loss of any one folder.
        self.k, self.m = rng.choice([(k, m) for k in range(1, 7) for m in range(0, 5) if k + m >= len(folders)
                                     and (m >= -(-(k + m) // len(folders)) or rng.random() < 0.2)] or [(10, 4)])
        self.shards = {}  # bytes: index

    def encode(self, sandbox, *more, **how):
        with open(sandbox.path("source"), "wb") as file:
            file.write(self.content)
        outputs = [word for folder in self.folders for word in ("-o", folder)]
        done = sandbox.run("encode", "source", "-k", self.k, "-m", self.m, "--name", "set", "--block-bytes", 512,
                           "--threads", 1, *outputs, *more, **how)
        if done.status != 0:
            raise Wrong(f"encode: exit {done.status}: {done.stderr}")
        self.shards = {content: path for path, content in sandbox.tree().items() if path.endswith(".tandem")}
        os.remove(sandbox.path("source"))
        return done

    def set_id(self):
        return next(iter(self.shards))[16:32].hex()

    def left(self, tree):
        """How many of its shards lie there, whole, under either name."""
        return len({self.shards[content] for path, content in tree.items() if content in self.shards})


class Round:
    """One encode over an older set, killed at many points."""

    def __init__(self, sandbox, seed, number):
        self.sandbox, self.seed, self.number = sandbox, seed, number
        rng = random.Random(f"{seed}/{number}")
        folder_count = 14 if number % 8 == 7 else rng.choice((2, 3, 3, 4, 5))
        self.folders = [f"disk{i}" for i in range(folder_count)]
        sandbox.restore({})
        self.old = Generation(rng, self.folders, b"old")
        self.new = Generation(rng, self.folders, b"new")
        if rng.random() < 0.6:
            self.new.k, self.new.m = self.old.k, self.old.m
        self.old.encode(sandbox)
        self.start = sandbox.tree()
        self.run = self.new.encode(sandbox, "--force", calls=CHANGES + SYNCS, log=True)
        self.commit_at = next(i for i, call in enumerate(self.run.calls, 1) if call.second_path.endswith("-commit"))
        # Runs that clean up what encode left after so many calls, and are killed in their turn.
        self.cleanups = []
        for _ in range(4):
            at = rng.randrange(self.commit_at - 3, len(self.run.calls))
            tree = after_power_loss(sandbox.root, self.start, self.run.until(at), None)
            sandbox.restore(tree)
            named = self.folders if rng.random() < 0.6 else rng.sample(self.folders, rng.randrange(1, folder_count))
            command = rng.choice((("verify", *named), ("info", *named), ("repair", *named)))
            self.cleanups.append((at, tree, command, sandbox.run(*command, calls=CHANGES + SYNCS, log=True)))
        # (run, calls before the kill, lost folder)
        self.points = [(run, at, lost) for run, count in enumerate(len(one.calls) for one in self.runs())
                       for at in range(count + 1) for lost in range(folder_count)]
        rng.shuffle(self.points)

    def runs(self):
        return [self.run] + [done for _, _, _, done in self.cleanups]

    def tree_at(self, run, at, rng):
        """The files after a kill, or a loss of power, and how it came about."""
        start = self.start if run == 0 else self.cleanups[run - 1][1]
        power = rng.random() < 0.4
        tree = after_power_loss(self.sandbox.root, start, self.runs()[run].until(at), rng if power else None)
        end = f"{'loses its power' if power else 'is killed'} after call {at} of {len(self.runs()[run].calls)}"
        if run == 0:
            return tree, f"encode --force {end}"
        before, _, command, _ = self.cleanups[run - 1]
        return tree, f"encode --force is killed after call {before}; `{' '.join(command)}` {end}"

    def expected(self, tree):
        """What decode has to find: the new set where it is known to count and can be decoded, else the old one."""
        counts = any(path.endswith("-commit") for path in tree) or any(
            path.endswith(".tandem") and content in self.new.shards for path, content in tree.items())
        if counts and self.new.left(tree) >= self.new.k:
            return self.new
        return self.old if self.old.left(tree) >= self.old.k else None

    def first_command(self, rng, folders):
        some = rng.sample(folders, rng.randrange(1, len(folders) + 1))
        return rng.choice((None, ("info", *some), ("verify", *some), ("repair", *some), ("repair", *folders),
                           ("decode", *some, "-o", "../other", "--force", "--no-sync")))

    def run_point(self, point):
        rng = random.Random(f"{self.seed}/{self.number}/{point}")
        run, at, lost = self.points[point % len(self.points)]
        tree, story = self.tree_at(run, at, rng)
        lost = self.folders[lost]
        tree = {path: content for path, content in tree.items() if path.split("/")[0] != lost}
        folders = sorted({path for path, content in tree.items() if content is None})
        self.sandbox.restore(tree)
        generation, story = self.expected(tree), [f"{story}; {lost} is lost"]
        try:
            if command := self.first_command(rng, folders):
                done = self.sandbox.run(*command)
                story.append(f"`{' '.join(command)}`: exit {done.status} {done.stderr.strip()}")
                if done.status not in (0, 1, 2, 3, 4):
                    raise Wrong("crashed")
            done = self.sandbox.run("decode", *folders, "-o", "../decoded", "--force", "--no-sync", "--threads", 1)
            story.append(f"decode: exit {done.status} {done.stderr.strip()}")
            if done.status == 2 and any("`repair " in line for line in story) and generation is not None:
                # Repair mended the old set in some folders, where the new one was held back: now there are both, whole,
                # and one is to be chosen.
                done = self.sandbox.run("decode", *folders, "--set", generation.set_id(), "-o", "../decoded", "--force",
                                        "--no-sync")
                story.append(f"decode --set: exit {done.status} {done.stderr.strip()}")
            content = None
            if done.status == 0:
                with open(self.sandbox.path("../decoded"), "rb") as file:
                    content = file.read()
            if content is not None and content not in (self.old.content, self.new.content):
                raise Wrong("exit 0 with wrong bytes")
            # Proof came to light, or repair made more shards: the newer set may take the older one's place.
            if generation is not None and content not in (generation.content, self.new.content):
                raise Wrong(f"{'new' if generation is self.new else 'old'} set has {generation.left(tree)} shards, "
                            f"{generation.k} are needed, and it is not decoded")
        except Wrong as wrong:
            print(f"WRONG: --seed {self.seed} --only {self.number}:{point}, old {self.old.k}+{self.old.m}, "
                  f"new {self.new.k}+{self.new.m}, {len(self.folders)} folders\n  " + "\n  ".join(story) + f"\n  {wrong}\n"
                  f"  there was: {', '.join(sorted(tree))}\n  there is: {', '.join(sorted(self.sandbox.tree()))}", flush=True)
            return False, generation
        return True, generation


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tandem")
    parser.add_argument("library")
    parser.add_argument("--points", type=int, default=2400)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only")
    flags = parser.parse_args()
    everything = os.environ.get("TANDEM_TEST_ALL") == "1"
    seed = flags.seed if flags.seed is not None else 1 if everything else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    sandbox = Sandbox(flags.tandem, flags.library)
    started, points, failures, number, asked = time.time(), 0, 0, 0, {"old": 0, "new": 0, "none": 0}
    try:
        if flags.only:
            number, point = map(int, flags.only.split(":"))
            return 0 if Round(sandbox, seed, number).run_point(point)[0] else 1
        while failures < MOST_FAILURES and (number < ROUNDS_OF_ALL if everything else points < flags.points):
            one = Round(sandbox, seed, number)
            for point in range(len(one.points) if everything else min(POINTS_PER_ROUND, flags.points - points)):
                good, generation = one.run_point(point)
                failures += not good
                points += 1
                asked["none" if generation is None else "old" if generation is one.old else "new"] += 1
                if failures >= MOST_FAILURES:
                    break
            number += 1
    finally:
        sandbox.close()
    print(f"{points:,} points in {number} rounds, seed {seed}, {time.time() - started:.0f} s: the old set had to be decoded at "
          f"{asked['old']:,}, the new one at {asked['new']:,}, none could at {asked['none']:,}: {failures} failures")
    return 1 if failures or asked["old"] == 0 or asked["new"] == 0 else 0


sys.exit(main())
