# SPDX-License-Identifier: Apache-2.0
"""A tree of files with PAR2 sets. The model knows what the user wrote and docs/par2.md, and asks `tandem par2 repair` in copies what can be
restored."""
import os
import re
import shutil
import time

from kit import Broken, History, copy, digest, read

SET, LIST = ".tandem.par2", ".tandem.par2-sets"
BLOCK = 4096  # docs/par2.md: slices have at least 4 KiB, unless all files are smaller
FOLDERS = ("", "a", "a/b", "many")
OLD = 1_600_000_000
UNCLEAR = ("edited", "hopeless", "renamed")  # a command may end with 0 or 1


class Tree(History):
    def start(self):
        self.wanted = {}  # path: content that must stay restorable, until the user gives it up
        self.also = {}  # content: path. What a rewrite of many files at once replaced; only --accept-many gives it up
        self.how = {}  # path: what happened to it and is not settled
        self.new = {}  # path: "no" = in no set yet; "maybe" = a sync saw it while its folder had trouble
        self.rate, self.since = {}, {}  # of each folder: its rate; what happened to its set: "lost", "damaged", "empty"
        self.watched = {}  # path: (content, the damaged set that held it)
        self.maybe = False  # a command was killed, or trouble is settled half: no alarm is expected or excluded
        self.gone = set()  # folders that are lost with their sets
        self.listed = False  # the root has a list of its sets
        self.number, self.known = 0, {}
        self.flags = set(re.findall(r"--[a-z-]+", self.command("par2", "sync", "--help", quiet=True).text))
        for folder in FOLDERS:
            os.makedirs(self.at(folder), exist_ok=True)
            for _ in range(13 if folder == "many" else self.draw.randrange(2, 6)):
                self.add(folder)
        self.sync(first=True)
        self.steps = [(3, self.add), (3, self.edit), (2, self.remove), (3, self.rot), (2, self.cut), (1, self.older_copy), (1, self.touch),
                      (.5, self.rename), (.8, self.unreadable), (1.5, self.readable), (.5, self.lose_set), (1.2, self.damage_set), (.3, self.lose_folder),
                      (.3, self.lose_list), (.5, self.rewrite_many), (6, self.sync), (2, self.scrub), (4, lambda: self.scrub(True)), (.5, self.reset)]

    # ---- the tree ----

    def at(self, path):
        return os.path.join(self.root, path)

    def files(self, folder=None):
        """Paths of the user's files."""
        return [path for each in ([folder] if folder is not None else FOLDERS) if os.path.isdir(self.at(each))
                for name in sorted(os.listdir(self.at(each))) if not name.startswith(".") and not os.path.isdir(self.at(path := os.path.join(each, name)))]

    def pick(self, settled=True):
        paths = [path for path in self.files() if path in self.wanted and not (settled and path in self.how)]
        return self.draw.choice(paths) if paths else None

    def put(self, path, size, when=None):
        content = self.draw.randbytes(size)
        with open(self.at(path), "wb") as file:
            file.write(content)
        when = time.time_ns() if when is None else when * 10**9
        os.utime(self.at(path), ns=(when, when))
        return digest(content)

    def size(self):
        return self.draw.choice((0, 100, 4096, 8192, 12288, 30000, self.draw.randrange(1, 40000)))

    def after(self):
        self.prune()

    # ---- what can be restored ----

    def valued(self):
        return {**{content: path for path, content in self.wanted.items()}, **self.also}

    def sets(self, folder):
        if not os.path.isdir(self.at(folder)):
            return []
        names = [name for name in sorted(os.listdir(self.at(folder))) if os.path.isfile(self.at(os.path.join(folder, name)))]
        return [name for name in names if name.startswith(SET) or (name.startswith(".") and name.endswith(".par2"))]

    def repaired(self, folder, harm=None):
        """The contents of a folder after `harm`, and those that its sets bring back."""
        entries = [entry for entry in os.scandir(self.at(folder)) if not entry.is_dir(follow_symlinks=False)]
        now = sorted((entry.name, *entry.stat(follow_symlinks=False)[1:7], entry.stat(follow_symlinks=False).st_ctime_ns) for entry in entries)
        if not harm and self.known.get(folder, (None,))[0] == now:
            return self.known[folder][1]
        found = set()
        for name in [None, *self.sets(folder)]:
            place = self.scratch()
            os.mkdir(place)
            for each in os.listdir(self.at(folder)):
                path = self.at(os.path.join(folder, each))
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(os.path.join(place, each), "wb") as file:
                        file.write(read(path))
            if harm:
                harm(place)
            if name:
                self.command("par2", "repair", "--no-sync", "-q", os.path.join(place, name), quiet=True)
            found |= {digest(read(os.path.join(place, each))) for each in os.listdir(place) if os.path.isfile(os.path.join(place, each))}
        if not harm:
            self.known[folder] = now, found
        return found

    def restorable(self):
        """Which valued contents exist in the tree, or come back by a set."""
        wanted = self.valued()
        found = set()
        for folder, _, names in os.walk(self.root):
            found |= {digest(read(os.path.join(folder, name))) for name in names if not os.path.islink(os.path.join(folder, name))}
        for folder in {os.path.dirname(wanted[content]) for content in wanted.keys() - found}:
            if os.path.isdir(self.at(folder)):
                found |= self.repaired(folder)
        return wanted.keys() & found

    def forget(self, path):
        for table in (self.wanted, self.how, self.new, self.watched):
            table.pop(path, None)

    def prune(self):
        """After damage, what it destroyed is promised no more. A file that nothing can mend waits for the user."""
        kept = self.restorable()
        for content, path in self.valued().items():
            if content not in kept:
                self.also.pop(content, None)
                state = self.since.get(os.path.dirname(path))
                if state in ("damaged", "empty") and self.how.get(path) in ("rot", "cut"):
                    self.watched[path] = (content, digest(read(self.at(os.path.join(os.path.dirname(path), SET)))))
                if self.wanted.get(path) == content:
                    self.note("     ", path, "cannot be restored any more")
                    self.wanted.pop(path)
                    self.how[path] = "hopeless"

    def check(self, what, done, excused=()):
        kept = self.restorable()
        for content, path in self.valued().items():
            if content in kept or content in excused or path in excused:
                continue
            if done.status not in (0, -9) and os.path.basename(path) in done.text and what != "scrub --repair":
                self.prune()
                continue
            kind = "many rewritten" if content in self.also else self.how.get(path, "bystander")
            raise Broken(f"P1: {what} gives up a file ({kind})", f"{path}, content {content}, exit status {done.status}")
        for path in [path for path, how in self.how.items() if how == "unreadable"]:
            here = os.lstat(self.at(path)) if os.path.lexists(self.at(path)) else None
            if here is None or here.st_ino != self.inode[path] or here.st_mode & 0o777:
                raise Broken(f"P3: {what} replaces a file that may not be read", path)
            if re.search(re.escape(os.path.basename(path)) + r"[^;,\n]*\b(damaged|missing)", done.text):
                raise Broken(f"P3: {what} calls a file damaged or missing that may not be read", f"{path}: {done.text}")

    def protects(self, what, folder, paths, blocks):
        """A loss within the promise comes back: so many blocks of these files."""
        paths = [path for path in paths if os.path.getsize(self.at(path))]
        harmed = {}
        while paths and blocks:
            path = self.draw.choice(paths)
            left = -(-os.path.getsize(self.at(path)) // BLOCK)
            if left <= blocks and self.draw.randrange(2):
                harmed[path], blocks = None, blocks - left
            else:
                harmed[path], blocks = self.draw.randrange(left) * BLOCK, blocks - 1
            paths.remove(path)

        def harm(place):
            for path, offset in harmed.items():
                file = os.path.join(place, os.path.basename(path))
                if offset is None:
                    os.unlink(file)
                else:
                    self.flip(file, offset)
        if harmed:
            found = self.repaired(folder, harm)
            lost = [path for path in harmed if self.wanted[path] not in found]
            if lost:
                raise Broken(f"P1: {what}", f"{folder or '.'}: {lost} do not come back after {harmed} (None: deleted; else the offset of a bad block)")

    # ---- edits ----

    def add(self, folder=None):
        folder = self.draw.choice([each for each in FOLDERS if each not in self.gone]) if folder is None else folder
        os.makedirs(self.at(folder), exist_ok=True)
        path = os.path.join(folder, f"f{self.number:04}.jpg")
        self.number += 1
        size = self.draw.choice((100, 3000, 4096)) if folder == "many" else self.size()
        self.wanted[path] = self.put(path, size, self.draw.choice((None, None, OLD + self.number)))
        self.new[path] = "no"
        self.note("write", path, size)

    def edit(self, path=None):
        path = path or self.pick(settled=False)
        if path and self.how.get(path) != "unreadable":
            self.forget(path)
            self.wanted[path] = self.put(path, self.draw.choice((os.path.getsize(self.at(path)), self.size())))
            self.how[path], self.new[path] = "edited", "no"
            self.note("edit", path)

    def touch(self):
        if path := self.pick():
            os.utime(self.at(path))
            self.how[path] = "edited"
            self.note("touch", path)

    def remove(self):
        if path := self.pick():
            os.unlink(self.at(path))
            self.note("rm", path)
            self.how[path] = "removed"
            self.prune()
            if path in self.new and path not in self.wanted:  # it was in no set
                self.maybe |= self.new[path] == "maybe"
                self.forget(path)

    def rename(self):
        if (path := self.pick()) and path not in self.new:
            other = os.path.join(os.path.dirname(path), f"f{self.number:04}.jpg")
            self.number += 1
            os.rename(self.at(path), self.at(other))
            self.wanted[other] = self.wanted.pop(path)
            self.new[other], self.how[path] = "maybe", "renamed"
            self.note("mv", path, other)

    def older_copy(self):
        """cp -p of an older version. Until it is accepted, it is not to be told from damage."""
        if (path := self.pick()) and path not in self.new and os.path.getsize(self.at(path)):
            self.put(path, self.draw.choice((os.path.getsize(self.at(path)), self.size())), OLD - 1000)
            self.how[path] = "older copy"
            self.note("cp -p an older version to", path)

    def rewrite_many(self):
        paths = [path for path in self.files("many") if path in self.wanted and path not in self.how and path not in self.new]
        if len(paths) > 10:
            before = {self.wanted[path]: path for path in paths}
            for path in paths:
                self.edit(path)
                self.how[path] = "many"
            self.also |= before
            self.note("all of these at once:", *paths)

    def unreadable(self):
        if (path := self.pick()) and os.geteuid():
            os.chmod(self.at(path), 0)
            self.how[path] = "unreadable"
            self.inode = {**getattr(self, "inode", {}), path: os.lstat(self.at(path)).st_ino}
            self.note("chmod 0", path)

    def readable(self):
        for path in [path for path, how in self.how.items() if how == "unreadable"]:
            os.chmod(self.at(path), 0o644)
            self.how.pop(path)
            self.note("chmod 644", path)

    # ---- damage ----

    def rot(self):
        if (path := self.pick()) and path not in self.new and os.path.getsize(self.at(path)):
            self.flip(self.at(path), self.draw.randrange(os.path.getsize(self.at(path))), self.draw.choice((1, 1, 5000)))
            self.how[path] = "rot"
            self.note("rot in", path)

    def cut(self):
        if (path := self.pick()) and path not in self.new and os.path.getsize(self.at(path)):
            size = self.draw.randrange(os.path.getsize(self.at(path)))
            self.cut_file(path, size)

    def cut_file(self, path, size):
        History.cut(self.at(path), size)
        self.how[path] = "cut"
        self.note("cut", path, "to", size, "bytes, its time stays")

    def set_of(self, folder):
        path = self.at(os.path.join(folder, SET))
        return path if os.path.isfile(path) and folder in self.rate else None

    def lose_set(self):
        folder = self.draw.choice(FOLDERS)
        if path := self.set_of(folder):
            os.unlink(path)
            self.since[folder] = "lost"
            self.watched = {path: held for path, held in self.watched.items() if os.path.dirname(path) != folder}
            self.note("lose", os.path.join(folder, SET))

    def damage_set(self):
        folder = self.draw.choice(FOLDERS)
        if path := self.set_of(folder):
            data, kind = read(path), self.draw.choice(("main", "main", "any", "empty"))
            if not data:
                return
            self.since[folder] = "damaged"
            if kind == "empty":
                self.cut_set(path, folder)
            else:
                at = data.find(b"PAR 2.0\0Main") + 20 if kind == "main" else self.draw.randrange(len(data))
                self.flip(path, at)
            self.watched.update({each: (content, digest(read(path))) for each, (content, _) in self.watched.items() if os.path.dirname(each) == folder})
            self.note("damage", os.path.join(folder, SET), kind)

    def cut_set(self, path, folder):
        History.cut(path, 0)
        self.since[folder] = "empty"

    def lose_folder(self):
        folder = self.draw.choice(("a/b", "many"))
        if os.path.isdir(self.at(folder)) and self.set_of(folder):
            shutil.rmtree(self.at(folder))
            for path in [path for path in {**self.wanted, **self.how} if os.path.dirname(path) == folder]:
                self.forget(path)
            self.also = {content: path for content, path in self.also.items() if os.path.dirname(path) != folder}
            for table in (self.rate, self.since):
                table.pop(folder, None)
            self.gone.add(folder)
            self.note("lose the folder", folder)

    def lose_list(self):
        if os.path.exists(self.at(LIST)):
            os.unlink(self.at(LIST))
            self.listed = False
            self.gone.clear()
            self.since.update({folder: "unknown" for folder, state in self.since.items() if state == "lost"})
            self.note("lose", LIST)

    # ---- the commands ----

    def trouble(self, folder=None, unreadable=True):
        """What a command may not pass over in silence."""
        found = {f"{how} {path}" for path, how in self.how.items()
                 if (folder is None or os.path.dirname(path) == folder) and (how not in (*UNCLEAR, "unreadable") or (unreadable and how == "unreadable"))}
        if folder is None and self.listed:
            found |= {f"gone {each}" for each in self.gone}
        return found

    def settle(self):
        """After a command: what is right on the disk is no trouble."""
        for path in list(self.how):
            if self.how[path] not in ("edited", "many", "unreadable") and path in self.wanted and os.path.isfile(self.at(path)) and digest(read(self.at(path))) == self.wanted[path]:
                self.how.pop(path)
        self.listed |= os.path.isfile(self.at(LIST))
        self.since.update({folder: "unknown" for folder, state in self.since.items() if state == "lost" and os.path.exists(self.at(os.path.join(folder, SET)))})

    def sync(self, first=False, force=False):
        flags, excused = [], set()
        if (rate := self.draw.choice((10, 30, 60, 100))) and (first or self.draw.random() < .15):
            flags += ["-r", f"{rate}%"]
        else:
            rate = None
        removed = {path for path, how in self.how.items() if how == "removed"} | {path for path, how in self.how.items() if how == "hopeless" and not os.path.exists(self.at(path))}
        removed |= {path for path, how in self.how.items() if how == "renamed"}
        may = lambda flag, chance: flag in self.flags and (force or self.draw.random() < chance)  # noqa: E731
        if (removed or self.gone or force) and may("--accept-removed", .4):
            flags.append("--accept-removed")
            excused |= removed
        for path in [path for path, how in self.how.items() if how == "older copy"]:
            if may("--accept", .5):
                flags += ["--accept", self.at(path)]
                excused.add(path)
        many = {path for path, how in self.how.items() if how == "many"}
        if (many or force) and may("--accept-many", .4):
            flags.append("--accept-many")
            excused |= self.also.keys()
        if force:
            flags.append("--force")
            excused |= {path for path in self.wanted if self.since.get(os.path.dirname(path)) in ("damaged", "empty")}
        for path in [path for path, how in self.how.items() if how in ("rot", "cut") and force and "--accept" in self.flags]:
            flags += ["--accept", self.at(path)]
            excused.add(path)
        if self.draw.random() < .3:
            flags.append("--quiet")
        kill = self.draw.randrange(1, 60) if self.tools.faults and not first and self.draw.random() < .12 else 0
        before = {folder: digest(read(self.at(os.path.join(folder, SET)))) for folder in FOLDERS if os.path.isfile(self.at(os.path.join(folder, SET)))}
        done = self.command("par2", "sync", ".", "--no-sync", *flags, kill=kill)
        what = "sync " + " ".join(flag for flag in flags if flag.startswith("--")) if force else "sync"
        after = {folder: digest(read(self.at(os.path.join(folder, SET)))) for folder in FOLDERS if os.path.isfile(self.at(os.path.join(folder, SET)))}
        self.check(what, done, excused)
        if not force:
            for path, (content, old) in list(self.watched.items()):
                folder = os.path.dirname(path)
                if path not in excused and after.get(folder) != old and content not in self.repaired(folder):
                    raise Broken("P2: sync replaces a damaged set while a file of it is wrong", path)
            for folder, state in self.since.items():
                if state == "empty" and before.get(folder) == digest(b"") != after.get(folder) and not done.killed:
                    raise Broken("B9: sync replaces an empty set", folder)
            if many and "--accept-many" not in flags and before.get("many") != after.get("many") and self.since.get("many") is None:
                raise Broken("B3: sync takes many rewritten files", f"exit status {done.status}")
        if done.killed:
            self.maybe = True
        if rate:
            self.rate.update({folder: min(rate, old) for folder, old in self.rate.items()})
        for path in excused:
            if path in self.wanted:
                if done.killed:  # the user has to say it again
                    self.forget(path)
                    self.how[path] = "hopeless"
                elif os.path.isfile(self.at(path)):
                    self.wanted[path] = digest(read(self.at(path)))
                    self.how.pop(path, None)
                else:
                    self.forget(path)
            elif path in self.how:
                self.forget(path)
            self.also.pop(path, None)
        if "--accept-removed" in flags:
            self.gone.clear()
        if "--accept-many" in flags:
            self.how.update({path: "edited" for path in many})
        if not done.killed:
            self.synced(done, rate, force, {folder for folder in after if after[folder] != before.get(folder)})
        self.settle()

    def synced(self, done, rate, force, changed):
        loud = {each for each in self.trouble(unreadable=False) if not each.startswith(("rot", "older"))}
        loud |= {f"unreadable and new {path}" for path, how in self.how.items() if how == "unreadable" and path in self.new}
        if done.status == 0 and loud:
            raise Broken(f"silence of sync: {sorted(loud)[0].rsplit(' ', 1)[0]}", f"{sorted(loud)}: {done.text}")
        unclear = {"hopeless", "renamed"} & set(self.how.values())
        if done.status != 0 and not (self.trouble() or unclear or self.maybe or self.since or self.gone or not self.listed):
            raise Broken("alarm of sync without a cause", f"exit status {done.status}: {done.text}")
        if force or done.status == 0:
            self.maybe &= bool(unclear) and not force
            for path in [path for path, how in self.how.items() if how == "renamed"]:
                self.forget(path)
        for folder in FOLDERS:
            if not os.path.isdir(self.at(folder)):
                continue
            inside = [path for path in self.files(folder) if path in self.wanted]
            trouble = {each.rsplit(" ", 1)[0] for each in self.trouble(folder)}
            lost = any(os.path.dirname(path) == folder for path, how in self.how.items() if how in ("hopeless", "renamed"))
            remade = self.since.get(folder) == "damaged" and folder in changed and done.status == 0
            if not trouble and not lost and (done.status == 0 or not self.maybe) and (force or remade or self.since.get(folder) in (None, "lost", "unknown")):
                made = folder not in self.rate or force or any(path in self.new or path in self.how for path in inside) or self.since.get(folder)
                old = self.rate.get(folder, 5)  # with -r: not more than that
                self.rate[folder] = (rate or (old if not self.since.get(folder) else 5)) if made else old
                for path in inside:
                    self.new.pop(path, None)
                    self.how.pop(path, None)
                self.since.pop(folder, None)
                if inside and self.draw.random() < .5:
                    blocks = sum(-(-os.path.getsize(self.at(path)) // BLOCK) for path in inside)
                    self.protects("after sync, a loss within the rate does not come back", folder, inside, self.draw.randrange(1, max(1, blocks * self.rate[folder] // 100) + 1))
                continue
            fresh = [path for path in inside if self.new.get(path) == "no" and path not in self.how]
            if trouble <= {"removed", "unreadable"} and trouble and not lost and not self.since.get(folder) and not self.maybe and self.draw.random() < .7:
                self.protects(f"sync leaves new files unprotected ({' and '.join(sorted(trouble))} in the folder)", folder, fresh, 1)
                if all(how == "unreadable" for path, how in self.how.items() if os.path.dirname(path) == folder):
                    self.protects("sync gives up protection of a folder with an unreadable file", folder, [path for path in inside if path not in self.new and self.how.get(path) != "edited"], 1)
            for path in inside:
                if path in self.new:
                    self.new[path] = "maybe"

    def scrub(self, repair=False):
        kill = self.draw.randrange(1, 40) if self.tools.faults and repair and self.draw.random() < .12 else 0
        done = self.command("par2", "scrub", ".", "--no-sync", *(["--repair"] if repair else []), *(["--quiet"] if self.draw.random() < .3 else []), kill=kill)
        what = "scrub --repair" if repair else "scrub"
        before = self.trouble()
        self.check(what, done)
        self.settle()
        if done.killed:
            return
        trouble = self.trouble() if repair else before
        trouble |= {f"in no set: {path}" for path, state in self.new.items() if state == "no" and path not in self.how}
        if self.listed:
            trouble |= {f"set {state} {folder}" for folder, state in self.since.items() if state in ("lost", "empty")}
        if done.status == 0 and trouble:
            raise Broken(f"silence of {what}: {sorted(trouble)[0].rsplit(' ', 1)[0]}", f"{sorted(trouble)}: {done.text}")
        unreadable = [path for path, how in self.how.items() if how == "unreadable" and path not in self.new and not self.since.get(os.path.dirname(path))]
        if unreadable and done.status < 3:
            raise Broken(f"P3: {what} of a file that may not be read does not end with 3", f"{done.status}: {done.text}")
        doubt = self.maybe or self.since or self.gone or self.new or set(UNCLEAR) & set(self.how.values()) or not self.listed
        if done.status != 0 and not trouble and not doubt and not before:
            raise Broken(f"alarm of {what} without a cause", f"exit status {done.status}: {done.text}")

    def reset(self):
        """The user looks, mends what can be mended, and takes the rest as it is."""
        self.readable()
        self.scrub(True)
        for path in [path for path, how in self.how.items() if how == "hopeless"]:
            if os.path.isfile(self.at(path)):
                self.edit(path)
        self.sync(force=True)
