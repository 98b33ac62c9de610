#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills `tandem` at every call that changes files, or simulates a power loss there. The next commands must leave the old set
or the new set, complete, and no other files.

Usage: kill_test.py TANDEM FAULT_LIBRARY [--points N] [--seed S] [--scenario NAME] [--only ROUND:POINT]
"""
import argparse
import copy
import random
import sys
import time

from kit import CHANGES, SYNCS, Sandbox, after_power_loss

MOST_FAILURES = 10  # then it ends early
POINTS_PER_ROUND = 48  # then the scenario is set up anew, with another geometry


class Wrong(Exception):
    pass


def shard(folder, name, index):
    return f"{folder}/{name}.{index:03}.tandem"


class Geometry:
    """Of one shard set: small, and different in each round."""

    def __init__(self, rng, name, folders):
        self.k, self.m = rng.choice(((2, 1), (3, 2), (1, 1), (4, 2)))
        self.folders = folders
        self.name = name
        self.block_bytes = rng.choice((64, 512, 4096))
        self.content = rng.randbytes(rng.choice((0, 1, 700, 2500, 6000)) if self.block_bytes > 64 else 500)
        self.source = f"source-{rng.getrandbits(32):08x}"
        self.slashes = rng.choice(("", "/", "//"))

    @property
    def shard_count(self):
        return self.k + self.m

    def encode(self, *more):
        outputs = [word for folder in self.folders for word in ("-o", folder + self.slashes)]
        return ("encode", self.source, "-k", self.k, "-m", self.m, "--block-bytes", self.block_bytes, "--name", self.name,
                "--threads", 1, *outputs, *more)

    def files(self):
        return {shard(self.folders[i % len(self.folders)], self.name, i) for i in range(self.shard_count)}


class Scenario:
    """What is there, the command that is disturbed, and what may be there afterwards."""

    def __init__(self, sandbox, rng):
        self.sandbox, self.rng = sandbox, rng
        sandbox.restore({})
        self.foreign = {}  # files that nothing may touch
        self.prepare()
        self.foreign = {path: content for path, content in sandbox.tree().items() if self.is_foreign(path)}
        self.start = sandbox.tree()

    def begin(self):
        pass

    def disturbed(self, command, ended_well):
        """Is told of each command that changes something."""

    # To be given by each scenario: prepare(), which sets .command and .folders; check(before_recovery).

    def is_foreign(self, path):
        return self.start_content(path) is not None and not path.endswith(".tandem")

    def start_content(self, path):
        return self.sandbox.tree().get(path)

    def write(self, path, content):
        self.sandbox.restore({**self.sandbox.tree(), path: content})

    def must(self, *arguments, status=0):
        done = self.sandbox.run(*arguments)
        if done.status != status:
            raise Wrong(f"{' '.join(map(str, arguments))}: exit {done.status}, not {status}: {done.stderr.strip()}")
        return done

    def decode(self, paths):
        """The exit status, and the content if that is 0."""
        done = self.sandbox.run("decode", *paths, "-o", "../decoded", "--force", "--no-sync", "--threads", 1)
        if done.status != 0:
            return done.status, done.stderr.strip()
        with open(self.sandbox.path("../decoded"), "rb") as file:
            return 0, file.read()

    def listing(self):
        """What lies in the folders, but for foreign files."""
        tree = self.sandbox.tree()
        for path, content in self.foreign.items():
            if tree.get(path) != content:
                raise Wrong(f"{path} was changed")
        return {path: content for path, content in tree.items() if content is not None and path not in self.foreign}

    def existing(self, folders):
        return [folder for folder in folders if folder in self.sandbox.tree()]


class SetScenario(Scenario):
    """Ends with one of several generations of a set, or, where that was so, none."""

    old = None
    is_written_over = True  # by later commands

    def begin(self):
        self.next = None
        self.foreign = {path: content for path, content in self.foreign.items() if path in self.start}
        self.possible, self.encodes, self.in_fewer_folders = [self.old], {self.command: self.new}, False

    def disturbed(self, command, ended_well):
        if made := self.encodes.get(command):
            self.possible = [made] if ended_well else self.possible + [made]
            self.in_fewer_folders |= made.folders != self.new.folders

    def encode_over(self, rng):
        if self.next is None:
            self.next = Geometry(rng, self.new.name, self.new.folders)
            self.next.content = b"next" + self.next.content
        again = copy.copy(self.next)
        if len(again.folders) > 1 and rng.random() < 0.5:
            again.folders = [rng.choice(again.folders)]
        with open(self.sandbox.path(again.source), "wb") as file:
            file.write(again.content)
        self.foreign[again.source] = again.content
        command = again.encode("--force")
        self.encodes[command] = again
        return command

    def follow_up(self, rng):
        """A next command, any one."""
        if self.is_written_over and rng.random() < 0.4:
            return self.encode_over(rng)
        folders = self.existing(self.new.folders)
        if not folders:
            return None
        if len(folders) > 1 and rng.random() < 0.3:
            folders = [rng.choice(folders)]
        return rng.choice((("info", *folders), ("verify", *folders), ("repair", *folders, "--dry-run"),
                           ("repair", *self.existing(self.new.folders)),
                           ("decode", *folders, "-o", "../decoded", "--force", "--no-sync")))

    def check_at_once(self, finished):
        """A reader that comes right after the disturbance, and may be kept from changing anything."""
        folders = self.existing(self.new.folders)
        status, content = self.decode(folders) if folders else (4, "no folder")
        generations = self.possible
        if self.in_fewer_folders:  # beside parts of other sets: their own folders alone have them
            if None not in generations and not any(self.decodes(g) for g in generations):
                raise Wrong("none of the sets that may be there decodes")
            return
        if status == 0 and content not in [g.content for g in generations if g is not None]:
            raise Wrong("exit 0 with wrong bytes")
        if status != 0 and None not in generations:
            raise Wrong(f"neither old nor new: decode says {status}: {content}")

    def decodes(self, generation):
        folders = self.existing(generation.folders)
        return bool(folders) and self.decode(folders) == (0, generation.content)

    def check(self, finished):
        self.check_at_once(finished)
        folders = self.existing(self.new.folders)
        if folders:
            done = self.sandbox.run(*self.rng.choice((("info", *folders), ("verify", *folders))))
            bad = done.status == 4 and None not in self.possible or done.status not in (0, 4)
            if bad and not self.in_fewer_folders:
                raise Wrong(f"the next command: exit {done.status}: {done.stdout.decode()}{done.stderr}")
        listing = set(self.listing())
        for generation in self.possible:
            if generation is None and not listing:
                return
            if generation is None or not self.decodes(generation):
                continue
            if listing == generation.files():
                self.must("verify", *folders)
                return
            if self.in_fewer_folders and generation.files() <= listing and not any("/." in path for path in listing):
                return
        raise Wrong(f"left in the folders: {sorted(listing)}; decode says {self.decode(folders) if folders else None}")


class EncodeNewFolder(SetScenario):
    def prepare(self):
        self.new = Geometry(self.rng, "set", ["out"])
        self.write(self.new.source, self.new.content)
        self.command = self.new.encode()


class EncodeExistingFolder(SetScenario):
    """Another set and a foreign file lie there and stay as they are."""

    is_written_over = False

    def prepare(self):
        self.new = Geometry(self.rng, "set", ["out"])
        other = Geometry(self.rng, "another", ["out"])
        self.write(other.source, other.content)
        self.must(*other.encode())
        tree = self.sandbox.tree()
        tree.update({self.new.source: self.new.content, "out/notes.txt": b"mine"})
        self.sandbox.restore(tree)
        self.command = self.new.encode()
        self.other = other

    def is_foreign(self, path):
        return self.start_content(path) is not None

    def decode(self, paths):
        named = [path for path in self.listing() if path.startswith("out/set.")]
        return super().decode(named) if named else (4, "no file")

    def check(self, finished):
        # Named together, the folder holds two sets; the names tell them apart.
        done = self.sandbox.run("info", "out")
        if done.status != 0:
            raise Wrong(f"info: exit {done.status}: {done.stderr}")
        listing = set(self.listing())
        if listing not in ([self.new.files()] if finished else [set(), self.new.files()]):
            raise Wrong(f"left in the folder: {sorted(listing)}")
        if listing:
            self.must("verify", *sorted(listing))
            if self.decode(["out"]) != (0, self.new.content):
                raise Wrong("the new set is there and does not decode")


class EncodeForce(SetScenario):
    """Over a set of the same name, k and m."""

    same_shape = True
    folder_names = ["out"]

    def prepare(self):
        self.old = Geometry(self.rng, "set", self.folder_names)
        self.new = Geometry(self.rng, "set", self.folder_names)
        if self.same_shape:
            self.new.k, self.new.m = self.old.k, self.old.m
        self.old.content = b"old" + self.old.content
        self.write(self.old.source, self.old.content)
        self.must(*self.old.encode())
        self.write(self.new.source, self.new.content)
        self.command = self.new.encode("--force")


class EncodeForceOtherShape(EncodeForce):
    same_shape = False


class EncodeTwoFolders(SetScenario):
    def prepare(self):
        self.new = Geometry(self.rng, "set", ["disk-a", "disk-b"])
        self.write(self.new.source, self.new.content)
        if self.rng.random() < 0.5:  # one of them is there already
            tree = self.sandbox.tree()
            tree["disk-a"] = None
            self.sandbox.restore(tree)
        self.command = self.new.encode()


class EncodeForceTwoFolders(EncodeForce):
    same_shape = False
    folder_names = ["disk-a", "disk-b"]


class Decode(Scenario):
    """To a new file, or over an old one."""

    def prepare(self):
        self.set = Geometry(self.rng, "set", ["shards"])
        self.set.content = self.set.content + b"!"
        self.write(self.set.source, self.set.content)
        self.must(*self.set.encode())
        tree = self.sandbox.tree()
        del tree[self.set.source], tree[shard("shards", "set", 0)]
        tree["to"] = None
        self.old = None
        if self.rng.random() < 0.5:
            self.old = tree["to/copy"] = b"an older file"
        self.sandbox.restore(tree)
        self.command = ("decode", "shards", "-o", "to/copy", "--force", "--threads", 1)

    def is_foreign(self, path):
        return path.endswith(".tandem")

    def follow_up(self, rng):
        return self.command

    def check_at_once(self, finished):
        if (content := self.sandbox.tree().get("to/copy")) not in ([] if finished else [self.old]) + [self.set.content]:
            raise Wrong(f"the output is neither old nor new: {content if content is None else content[:20]}")

    def check(self, finished):
        self.check_at_once(finished)
        self.must(*self.command)
        if self.listing() != {"to/copy": self.set.content}:
            raise Wrong(f"left in the folder: {sorted(self.listing())}")


class Repair(Scenario):
    """Of bad blocks in every file, a missing one, a cut one and a damaged record, as far as m goes."""

    def prepare(self):
        self.set = Geometry(self.rng, "set", self.rng.choice((["out"], ["disk-a", "disk-b"])))
        self.set.k, self.set.m, self.set.block_bytes = 3, 2, 64
        self.set.content = self.rng.randbytes(3 * 48 * 10 + 7)
        self.write(self.set.source, self.set.content)
        self.must(*self.set.encode())
        self.whole = {p: c for p, c in self.sandbox.tree().items() if p.endswith(".tandem")}
        tree = self.sandbox.tree()
        order = self.rng.sample(sorted(self.set.files()), self.set.shard_count)
        missing = self.rng.random() < 0.7
        for place, path in enumerate(order):  # block b of file b is bad, so that with a missing one no stripe has lost 3
            tree[path] = self.flip(tree[path], 4096 + 64 * place + self.rng.randrange(64))
        if self.rng.random() < 0.5:
            tree[order[1]] = self.flip(tree[order[1]], self.rng.choice((10, len(tree[order[1]]) - 10)))
        if missing:
            del tree[order[0]]
        elif self.rng.random() < 0.5:
            tree[order[0]] = tree[order[0]][:4096 + 64 * 7 + 5]
        self.sandbox.restore(tree)
        self.command = ("repair", *self.set.folders, "--threads", 1)

    @staticmethod
    def flip(content, offset):
        return content[:offset] + bytes([content[offset] ^ 0x55]) + content[offset + 1:]

    def is_foreign(self, path):
        return path == self.set.source

    def follow_up(self, rng):
        return rng.choice((self.command, ("info", *self.set.folders), ("verify", *self.set.folders)))

    def check_at_once(self, finished):
        if self.decode(self.set.folders) != (0, self.set.content):
            raise Wrong("what could be decoded before repair cannot any more")
        if finished and {p: c for p, c in self.listing().items()} != self.whole:
            raise Wrong("repair ended well and not all files are whole")

    def check(self, finished):
        self.check_at_once(finished)
        done = self.sandbox.run("verify", *self.set.folders)
        if done.status not in (0, 1):
            raise Wrong(f"verify: exit {done.status}: {done.stderr}")
        if left := [path for path in self.listing() if path.rpartition("/")[2].startswith(".")]:
            raise Wrong(f"left in the folders: {left}")
        self.must(*self.command)
        if self.listing() != self.whole:
            raise Wrong("the files are not as they were before they were damaged")


SCENARIOS = (EncodeNewFolder, EncodeExistingFolder, EncodeForce, EncodeForceOtherShape, EncodeTwoFolders,
             EncodeForceTwoFolders, Decode, Repair)


class Round:
    """One scenario with one geometry, disturbed at many points."""

    def __init__(self, sandbox, kind, seed, number):
        self.sandbox, self.kind, self.seed, self.number = sandbox, kind, seed, number
        self.scenario = kind(sandbox, random.Random(f"{seed}/{kind.__name__}/{number}"))
        done = sandbox.run(*self.scenario.command, calls=CHANGES + SYNCS, log=True)
        if done.status != 0:
            raise Wrong(f"undisturbed: exit {done.status}: {done.stderr}")
        self.call_count = len(done.calls)
        order = list(range(1, self.call_count + 2))  # the last: after the run's end
        random.Random(seed).shuffle(order)
        self.order = order
        self.kills = 0

    def disturb(self, command, rng, at, story):
        """Runs the command until it is killed or loses its power at the call `at`. True when it ended well before."""
        power, half = rng.random() < 0.5, rng.random() < 0.3
        start = self.sandbox.tree()
        done = self.sandbox.run(*command, calls=CHANGES + SYNCS, action="kill-half" if half else "kill", at=at)
        how = ("power lost" if power else "killed") + (" half-way through" if half else " before")
        story.append(f"`{' '.join(map(str, command))}` {how} call {at} "
                     f"({done.calls[-1] if done.calls else 'none'} was the last; exit {done.status})")
        if done.killed or power:
            self.kills += 1
        if power:
            self.sandbox.restore(after_power_loss(self.sandbox.root, start, done, rng))
        return done.status == 0

    def run_point(self, point):
        rng = random.Random(f"{self.seed}/{self.kind.__name__}/{self.number}/{point}")
        self.scenario.rng = rng
        story = []
        try:
            self.sandbox.restore(self.scenario.start)
            self.scenario.begin()
            finished = self.disturb(self.scenario.command, rng, self.order[point % len(self.order)], story)
            self.scenario.disturbed(self.scenario.command, finished)
            while rng.random() < 0.4:  # what comes next dies too, or not
                if rng.random() < 0.3:
                    self.scenario.check_at_once(finished)
                if command := self.scenario.follow_up(rng):
                    at = 1 + int(rng.expovariate(0.2)) if rng.random() < 0.6 else 1000
                    finished = self.disturb(command, rng, at, story) and command[0] == "encode" or finished
                    self.scenario.disturbed(command, story[-1].endswith("exit 0)"))
            self.scenario.check(finished)
        except Wrong as wrong:
            print(f"WRONG: {self.kind.__name__}, --scenario {self.kind.__name__} --seed {self.seed} "
                  f"--only {self.number}:{point}\n  " + "\n  ".join(story) + f"\n  {wrong}\n"
                  f"  there is: {', '.join(sorted(self.sandbox.tree()))}", flush=True)
            return False
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tandem")
    parser.add_argument("library")
    parser.add_argument("--points", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario")
    parser.add_argument("--only")
    flags = parser.parse_args()
    kinds = [kind for kind in SCENARIOS if flags.scenario in (None, kind.__name__)]
    sandbox = Sandbox(flags.tandem, flags.library)
    started, points, kills, failures, number, calls = time.time(), 0, 0, 0, 0, {}
    try:
        if flags.only:
            number, point = map(int, flags.only.split(":"))
            return 0 if Round(sandbox, kinds[0], flags.seed, number).run_point(point) else 1
        while points < flags.points and failures < MOST_FAILURES:
            for kind in kinds:
                one = Round(sandbox, kind, flags.seed, number)
                calls[kind.__name__] = max(calls.get(kind.__name__, 0), one.call_count)
                share = -(-(flags.points - points) // len(kinds)) if flags.points < POINTS_PER_ROUND * len(kinds) else 0
                for point in range(min(share or POINTS_PER_ROUND, flags.points - points)):
                    if failures >= MOST_FAILURES:
                        break
                    failures += not one.run_point(point)
                    points += 1
                kills += one.kills
            number += 1
    finally:
        sandbox.close()
    for name, count in calls.items():
        print(f"{name}: up to {count} changes and syncs in a run")
    print(f"{kills:,} kill points in {points:,} runs, seed {flags.seed}, {time.time() - started:.0f} s: "
          f"{failures} failures")
    return 1 if failures or points == 0 else 0


sys.exit(main())
