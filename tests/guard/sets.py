# SPDX-License-Identifier: Apache-2.0
"""Shard sets on six disks. The model knows which contents were encoded under which names, and asks `tandem decode` in copies which of them can
be restored: now, and after the loss of a disk."""
import json
import os
import re
import shutil

from kit import Broken, History, copy, digest, read

CODES = ((1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (3, 2), (4, 2), (3, 3))


class Sets(History):
    def start(self):
        self.ever = {}  # content: the name under which it was encoded
        self.hurt = set()  # names with damage that no repair has mended
        self.doubt = False  # a command was killed, or older files came back: no alarm is expected or excluded
        self.parity = {}  # name: (k, m)
        self.saved, self.number = [], 0  # copies of disks
        self.closed = None  # a file or folder that may not be read
        self.disks = [f"disks/d{i}" for i in range(self.draw.randrange(3, 7))]
        for disk in self.disks:
            os.makedirs(self.at(disk))
        self.flags = set(re.findall(r"--[a-z-]+", self.command("verify", "--help", quiet=True).text))
        self.now = set()
        self.encode()
        self.steps = [(1.5, self.encode), (1.5, self.encode_again), (2, self.rot), (1.5, self.lose_shard), (1, self.lose_disk), (1.2, self.save_disk),
                      (1.2, self.return_disk), (1, self.return_shards), (3, self.verify), (5, self.repair), (1.5, lambda: self.repair(force=True)), (1.5, self.resize),
                      (.8, self.output_over_a_file), (.7, self.look_at_one_disk), (.7, self.unreadable)]

    def at(self, path):
        return os.path.join(self.root, path)

    def shards(self, name=""):
        return [os.path.join(disk, each) for disk in self.disks if os.path.isdir(self.at(disk)) for each in sorted(os.listdir(self.at(disk)))
                if each.startswith(name) and each.endswith(".tandem") and not each.startswith(".")]

    def name_of(self, path):
        return os.path.basename(path).split(".")[0]

    # ---- what can be restored ----

    def restorable(self, lost=()):
        """The contents that `decode` gives back in a copy without these disks."""
        place = self.scratch()
        copy(self.root, place)
        for disk in lost:
            shutil.rmtree(os.path.join(place, disk), True)
        found, told = set(), self.command("info", "-r", "disks", "--json", cwd=place, quiet=True).out
        names = {each.get("set_id"): each.get("name") for each in (json.loads(told).get("sets", []) if told.startswith("{") else [])}
        for each, name in names.items():
            if each and self.command("decode", "-r", "disks", "--set", each, "-o", "out", "--no-sync", "-q", cwd=place, quiet=True).status == 0:
                content = digest(read(os.path.join(place, "out")))
                if content not in self.ever:
                    raise Broken("P2: decode returns bytes that were never encoded", f"set {each} ({name})")
                found.add(content)
                os.unlink(os.path.join(place, "out"))
        return found

    def act(self, what, *arguments, kill=(), excused=(), depth=True):
        """One command, and the comparison of before and after."""
        lost = self.draw.sample(self.disks, self.draw.choice((1, 1, 2)))
        before, deep = self.now, self.restorable(lost) if depth else set()
        at = self.draw.randrange(1, kill[1]) if kill and self.tools.faults and self.draw.random() < kill[0] else 0
        done = self.command(*arguments, kill=at)
        self.now = self.restorable()
        gone = {content for content in before - self.now if self.ever[content] not in excused}
        if gone and not (done.status not in (0, -9) and all(self.ever[content] in done.text for content in gone)):
            raise Broken(f"P1: {what} gives up a content", f"{[(each, self.ever[each]) for each in gone]}, exit status {done.status}: {done.text}")
        if depth:
            weak = {content for content in deep - self.restorable(lost) if self.ever[content] not in excused} - gone
            if weak and done.status in (0, -9):
                raise Broken(f"P1: after {what} fewer losses are survived", f"{[(each, self.ever[each]) for each in weak]} without {lost}: {done.text}")
        self.doubt |= done.killed
        return done

    def harm(self, *words, names=(), removed=()):
        self.note(*words)
        self.hurt |= set(names)
        left = {os.path.basename(path) for path in self.shards()}
        for path in removed:  # another disk may have this shard, too
            older = int(path.split(".")[-2]) >= sum(self.parity.get(self.name_of(path), (0, 0)))  # a remnant of a larger set of that name
            if older or os.path.basename(path) in left:
                self.doubt = True
            else:
                self.hurt.add(self.name_of(path))
        self.now = self.restorable()
        self.hurt = {name for name in self.hurt if self.shards(name + ".")}

    # ---- the commands ----

    def encode(self, name=None, force=False):
        fit = [code for code in CODES if sum(code) <= len(self.disks)]
        k, m = self.draw.choice([code for code in fit if self.draw.randrange(2) or sum(code) == len(self.disks)] or fit)
        name = name or f"n{self.number:02}"
        self.number += 1
        content = self.draw.randbytes(self.draw.choice((1, 5000, 70000, self.draw.randrange(1, 300000))))
        with open(self.at("source"), "wb") as file:
            file.write(content)
        earlier = {each for each in self.now if self.ever[each] == name}
        self.ever[digest(content)] = name
        done = self.act("encode --force" if force else "encode", "encode", "source", "--name", name, "-k", k, "-m", m, "-o", "disks/d{i}", "--no-sync", "-q",
                        *(["--force"] if force else []), kill=(.2, 60), excused=[name] if force else [])
        os.unlink(self.at("source"))
        if force and earlier and not self.now & (earlier | {digest(content)}):
            raise Broken("P1: encode --force leaves neither the old set nor the new one", f"{name}: {done.text}")
        if done.status == 0:
            if digest(content) not in self.now:
                raise Broken("P1: encode ends with 0 and the set cannot be decoded", name)
            self.doubt |= force  # shards of the older set may be left
            self.parity[name] = (k, m)
            self.hurt.discard(name)

    def encode_again(self):
        if self.parity:
            self.encode(self.draw.choice(sorted(self.parity)), self.draw.random() < .7)

    def verify(self):
        done = self.act("verify", "verify", "disks", *(["-q"] if self.draw.randrange(2) else []))
        self.judge("verify", done)
        if done.status == 0:
            self.survives("verify ends with 0, and the loss of one disk loses a set")

    def survives(self, rule):
        places = [(os.path.dirname(path), self.name_of(path)) for path in self.shards()]
        disk = max(places, key=places.count)[0] if self.crowded() else self.draw.choice(self.disks)
        if lost := self.now - self.restorable([disk]):
            raise Broken(f"P1: {rule}", f"{[(each, self.ever[each]) for each in lost]} without {disk}: {self.shards()}")

    def judge(self, what, done):
        if self.closed:
            if done.status < 3 or "ermission denied" not in done.text:
                raise Broken(f"P3: {what} passes over what it may not read", f"exit status {done.status}: {done.text}")
        elif done.status == 0 and self.hurt and not self.doubt and not self.remnants():
            raise Broken(f"silence of {what}", f"{self.hurt}: {done.text}")
        elif done.status != 0 and not self.hurt and not self.doubt and not self.crowded() and self.shards():
            raise Broken(f"alarm of {what} without a cause", f"exit status {done.status}: {done.text}")

    def crowded(self):
        """A disk has two shards of a name."""
        places = [(os.path.dirname(path), self.name_of(path)) for path in self.shards()]
        return len(places) != len(set(places))

    def remnants(self):
        """A shard was written anew under another name or on another disk: rot in what is left of the old file is no damage."""
        names = [os.path.basename(path) for path in self.shards()]
        return len(names) != len(set(names)) or any(len(name.split(".")[0]) == 32 for name in names)

    def repair(self, force=False):
        done = self.act("repair --force" if force else "repair", "repair", "disks", "--no-sync", *(["--force"] if force else []), *(["-q"] if self.draw.randrange(2) else []), kill=(.2, 30))
        if done.status == 0 or (self.doubt and not done.killed):  # with several sets of a name, each is mended or not
            self.hurt.clear()

    def resize(self):
        name = self.draw.choice(sorted(self.parity)) if self.parity else None
        if name and self.shards(name + "."):
            k, m = self.parity[name]
            new = self.draw.choice([each for each in (1, 2, 3) if each != m])
            done = self.act("resize", "resize", "disks", "--name", name, "-m", new, "--no-sync", kill=(.3, 40), excused=(), depth=new > m and not self.doubt)
            if done.status == 0:
                self.parity[name] = (k, new)
                if name in self.hurt:  # the damage may have gone with the shards
                    self.hurt.remove(name)
                    self.doubt = True

    def output_over_a_file(self):
        """No output of a command replaces a file, unless --force is given."""
        if not self.shards():
            return
        target = self.draw.choice(self.shards())
        before = digest(read(self.at(target)))
        aim = target
        if self.draw.randrange(2):
            aim = "link"
            os.symlink(target, self.at(aim))
        done = self.act("an output", *self.draw.choice((("verify", "disks", "--timeline", aim), ("repair", "disks", "--no-sync", "--timeline", aim), ("decode", "disks", "--name", self.name_of(target), "-o", aim))))
        if digest(read(self.at(target))) != before and "--timeline" in self.log[-1] + " ".join(self.log[-14:]) and self.name_of(target) not in self.hurt:
            raise Broken("P1: an output replaces a shard without --force", f"{target}: {done.text}")
        if os.path.lexists(self.at("link")):
            os.unlink(self.at("link"))

    def look_at_one_disk(self):
        """What is not there is not lost."""
        os.makedirs(self.at("empty"), exist_ok=True)
        done = self.command("verify", "empty")
        if done.status != 3:
            raise Broken("P3: a folder without a shard file does not give 3", f"exit status {done.status}: {done.text}")
        os.rmdir(self.at("empty"))
        disk = self.draw.choice(self.disks)
        inside = [path for path in self.shards() if os.path.dirname(path) == disk]
        if "--here" in self.flags and inside:
            done = self.command("verify", "--here", disk)
            if done.status != 0 and not self.doubt and not self.hurt & {self.name_of(path) for path in inside}:
                raise Broken("P3: verify --here takes what is elsewhere for lost", f"exit status {done.status}: {done.text}")

    def unreadable(self):
        """A file or folder that may not be read for one command."""
        if not self.shards() or not os.geteuid():
            return
        path = self.draw.choice(self.shards())
        path = self.draw.choice((path, os.path.dirname(path)))
        self.closed, inode, names = path, os.lstat(self.at(path)).st_ino, self.shards()
        mode = os.lstat(self.at(path)).st_mode & 0o777
        self.note("chmod 0", path)
        os.chmod(self.at(path), 0)
        command = self.draw.choice(("verify", "repair"))
        done = self.command(command, "disks", *(["--no-sync"] if command == "repair" else []))
        try:
            self.judge(command, done)
            told = re.search(rf"{re.escape(path)}: [^\n]*(damaged|missing|truncated)" if path.endswith(".tandem") else "$^", done.text)
            if told or (path.endswith(".tandem") and re.search(rf"shard {int(path.split('.')[-2])}: missing", done.text) and len({self.name_of(each) for each in names}) == 1):
                raise Broken(f"P3: {command} calls a shard missing or damaged that may not be read", f"{path}: {done.text}")
            if os.lstat(self.at(path)).st_ino != inode or os.lstat(self.at(path)).st_mode & 0o777:
                raise Broken(f"P3: {command} replaces what it may not read", path)
        finally:
            os.chmod(self.at(path), mode)
            self.closed = None
        self.note("chmod", oct(mode), path)
        closed = {os.path.basename(each) for each in names if each == path or os.path.dirname(each) == path}
        again = [each for each in self.shards() if each not in names and os.path.basename(each) in closed]
        if again:
            raise Broken("P3: repair makes a shard anew that may not be read", f"{path} may not be read, {again} are new: {done.text}")
        before = self.now
        self.now = self.restorable()
        if before - self.now:
            raise Broken(f"P1: {command} gives up a content beside what it may not read", str([(each, self.ever[each]) for each in before - self.now]))

    # ---- damage ----

    def rot(self):
        if self.shards():
            path = self.draw.choice(self.shards())
            size = os.path.getsize(self.at(path))
            if size:
                if self.draw.randrange(4):
                    self.flip(self.at(path), self.draw.randrange(size), self.draw.choice((1, 1, 100)))
                else:
                    self.cut(self.at(path), self.draw.randrange(size))
                self.harm("rot in", path, names=[self.name_of(path)])

    def lose_shard(self):
        if self.shards():
            path = self.draw.choice(self.shards())
            os.unlink(self.at(path))
            self.harm("rm", path, removed=[path])

    def lose_disk(self):
        disk = self.draw.choice(self.disks)
        inside = [path for path in self.shards() if os.path.dirname(path) == disk]
        shutil.rmtree(self.at(disk), True)
        empty = self.draw.randrange(2)
        if empty:
            os.mkdir(self.at(disk))
        self.harm("lose", disk, "an empty one is there" if empty else "", removed=inside)

    def save_disk(self):
        """A backup of a disk, or of all."""
        disks = self.disks if self.draw.randrange(2) else [self.draw.choice(self.disks)]
        made = {}
        for disk in disks:
            if any(os.path.dirname(path) == disk for path in self.shards()):
                made[disk] = os.path.join(self.base, f"saved{len(self.saved)}", os.path.basename(disk))
                copy(self.at(disk), made[disk])
        if made:
            self.saved.append(made)
            self.note("backup", len(self.saved) - 1, "of", *sorted(path for path in self.shards() if os.path.dirname(path) in made))

    def return_disk(self):
        """A disk comes back as it was."""
        if self.saved:
            number = self.draw.randrange(len(self.saved))
            disk, place = self.draw.choice(sorted(self.saved[number].items()))
            names = [self.name_of(path) for path in self.shards() if os.path.dirname(path) == disk]
            shutil.rmtree(self.at(disk), True)
            copy(place, self.at(disk))
            self.doubt = True
            self.harm(disk, "comes back as in backup", number, ":", *sorted(os.listdir(place)))
            self.hurt -= set(names)  # it may have mended them

    def return_shards(self):
        """Shards of an older set of a name are restored from a backup, beside others."""
        if not self.saved:
            return
        number = self.draw.randrange(len(self.saved))
        found = [(disk, place, each) for disk, place in sorted(self.saved[number].items()) for each in sorted(os.listdir(place)) if each.endswith(".tandem")]
        for disk, place, each in self.draw.sample(found, self.draw.randrange(1, len(found) + 1)):
            os.makedirs(self.at(disk), exist_ok=True)
            shutil.copy2(os.path.join(place, each), self.at(os.path.join(disk, each)))
            self.doubt = True
            self.hurt.discard(self.name_of(each))
            self.note("from backup", number, ":", os.path.join(disk, each))
        self.harm("")
