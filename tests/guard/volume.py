# SPDX-License-Identifier: Apache-2.0
"""A volume through the C API. The model knows what was written to each block. What can be restored: a block that some choice of members,
without at most m of them, reads right."""
import ctypes
import itertools
import os
import shutil
import signal
import traceback
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, sizeof

from kit import Broken, History, digest

BLOCK = 4096
ZERO = digest(bytes(BLOCK))
NOTE = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)
PROGRESS = ctypes.CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)


def struct(*fields):
    class Struct(ctypes.Structure):
        _fields_ = [("struct_bytes", c_size_t), *fields]

        def __init__(self, *values):
            super().__init__(0, *values)
            self.struct_bytes = sizeof(self)
    return Struct


def many(kind, names):
    return [(name, kind) for name in names.split()]


Create = struct(("members", POINTER(c_char_p)), ("count", c_size_t), *many(c_uint32, "k m"), *many(c_int32, "matrix non_mds"), ("unit", c_uint32), ("force", c_int32),
                *many(c_uint64, "member_bytes log_bytes"), ("id", c_void_p), ("reserved", c_uint64))
Open = struct(("members", POINTER(c_char_p)), ("count", c_size_t), ("read_only", c_int32), ("threads", c_uint32), ("cache", c_uint64), ("note", NOTE), ("user", c_void_p),
              ("reserved", c_uint64))
Info = struct(("id", c_uint8 * 16), *many(c_uint32, "k m"), ("matrix", c_int32), ("unit", c_uint32), *many(c_uint64, "volume_bytes stripes log epoch sequence"),
              *many(c_uint32, "lost rebuilding windows"), ("read_only", c_int32), ("position", c_uint64))
Member = struct(("index", c_uint32), ("state", c_int32), *many(c_uint64, "size errors bad"), ("name", c_char * 256), ("why", c_char * 256))
Care = struct(("rate", c_uint64), ("progress", PROGRESS), ("user", c_void_p), *many(c_int32, "repair restart"))
Result = struct(*many(c_uint64, "stripes blocks bad bad_parity mended lost unprotected left"))
Replace = struct(("index", c_uint32), ("force", c_int32), ("member", c_char_p))


class Refused(Exception):
    def __init__(self, call, status, message):
        super().__init__(f"{call}: status {status}: {message}")
        self.status = status


class Library:
    def __init__(self, folder):
        self.core = ctypes.CDLL(f"{folder}/libtandem.so", mode=ctypes.RTLD_GLOBAL)
        self.volume = ctypes.CDLL(f"{folder}/libtandem_volume.so")
        self.core.tandem_last_error_message.restype = c_char_p

    def __call__(self, name, *arguments):
        if status := getattr(self.volume, f"tandem_volume_{name}")(*arguments):
            raise Refused(name, status, self.core.tandem_last_error_message().decode(errors="replace"))


def array(paths):
    return (c_char_p * len(paths))(*map(os.fsencode, paths))


class Session:
    def __init__(self, library, paths, read_only=False):
        self.library, self.notes = library, []
        self.heard = NOTE(lambda user, note: self.notes.append(note.decode(errors="replace")))
        self.handle, info = c_void_p(), Info()
        library("open", None, byref(Open(array(paths), len(paths), read_only, 2, 0, self.heard)), byref(self.handle))
        library("query", self.handle, byref(info))
        self.blocks, self.members = info.volume_bytes // BLOCK, info.k + info.m

    def __call__(self, name, *arguments):
        self.library(name, self.handle, *arguments)

    def close(self):
        handle, self.handle = self.handle, None
        self.library("close", handle)

    def read(self, block, count=1):
        data = ctypes.create_string_buffer(count * BLOCK)
        self("read", c_uint64(block * BLOCK), data, c_size_t(count * BLOCK))
        return data.raw

    def contents(self):
        """Of each block; None: an error."""
        try:
            data = self.read(0, self.blocks)
            return [digest(data[at:at + BLOCK]) for at in range(0, len(data), BLOCK)]
        except Refused:
            return [self.content(block) for block in range(self.blocks)]

    def content(self, block):
        try:
            return digest(self.read(block))
        except Refused:
            return None

    def write(self, block, data):
        self("write", c_uint64(block * BLOCK), data, c_size_t(len(data)))

    def states(self):
        found = []
        for index in range(self.members):
            member = Member(index)
            self("member_query", c_uint32(index), byref(member))
            found.append(("crls"[member.state], member.why.decode(errors="replace")))
        return found

    def care(self, name, repair=0, restart=0, stop_after=None):
        done, result = itertools.count(), Result()
        progress = PROGRESS(lambda user, at, total: int(stop_after is not None and next(done) >= stop_after))
        self(name, byref(Care(0, progress, None, repair, restart)), byref(result))
        return result


class Volume(History):
    def start(self):
        self.library = Library(self.tools.folder)
        self.k, self.m = self.draw.choice(((4, 2), (3, 3), (2, 2), (5, 2), (2, 1), (3, 1), (1, 1), (1, 2), (4, 3)))
        self.all = [os.path.join(self.root, f"m{i}") for i in range(self.k + self.m)]
        unit = self.draw.choice((4096, 16384))
        self.library("create", byref(Create(array(self.all), len(self.all), self.k, self.m, 0, 0, unit, 0, self.draw.choice((1, 2)) << 20)))
        self.note(f"volume {self.k}+{self.m}, unit {unit}")
        session = self.open()
        self.right = [{ZERO} for _ in range(session.blocks)]  # what a read may return
        self.ever = [{ZERO} for _ in range(session.blocks)]
        self.old, self.lost, self.rotten, self.beyond = set(), set(), set(), False
        self.saved = []  # (member, path of its copy, whether the session was killed)
        self.fresh = set()  # old members that are copies of a killed session
        session.close()
        self.serve()
        self.steps = [(5, self.serve), (1.5, self.crash), (5, self.put_back), (1, self.lose), (1, self.rot), (3, self.scrub), (3, self.rebuild), (1.5, self.replace),
                      (1, lambda: self.scrub(repair=False)), (.5, self.unreadable), (.3, self.write_apart)]

    # ---- what can be restored ----

    def given(self):
        return [path for path in self.all if os.path.exists(path)]

    def open(self, paths=None, read_only=False):
        return Session(self.library, paths if paths is not None else self.given(), read_only)

    def trouble(self):
        return len(self.old | self.lost | self.rotten)

    def reads(self, paths):
        try:
            session = self.open(paths, read_only=True)
        except Refused:
            return [None] * len(self.right)
        try:
            return session.contents()
        finally:
            session.close()

    def restorable(self, without=()):
        """Blocks that some choice of members reads right."""
        found = set()
        paths = [path for index, path in enumerate(self.all) if os.path.exists(path) and index not in without]
        for count in range(min(self.m, len(paths) - self.k) + 1):
            for away in itertools.combinations(paths, count):
                found |= {block for block, content in enumerate(self.reads([path for path in paths if path not in away])) if content in self.right[block]}
                if len(found) == len(self.right):
                    return found
        return found

    def judge(self, what, contents, away=()):
        """A read of the whole volume without `away`, P2. Nothing can tell that a copy is old if no other member is there. A copy of a session that was
        killed looks like the others: only the parity that is left can tell."""
        out = self.lost | {*away}
        if self.beyond or len(out | self.old) == len(self.all) or len(self.old) > self.m or (self.old & self.fresh and len(out | self.old | self.rotten) > self.m):
            return
        wrong = {"never": [], "old": [], "error": []}
        for block, content in enumerate(contents):
            if content not in self.right[block]:
                wrong["error" if content is None else "old" if content in self.ever[block] else "never"].append(block)
        old, troubles = len(self.old), len(out | self.old | self.rotten)
        cause = f"{old} old copies, {len(out)} lost, {len(self.rotten)} rotten, m {'= 1' if self.m == 1 else '>= 2'}"
        for kind, blocks in wrong.items():
            text = f"{what}: {len(blocks)} of {len(contents)} blocks ({self.k}+{self.m}; old {self.old}, lost {self.lost}, rotten {self.rotten}, {away} away), the first is {blocks[:1]}"
            if not blocks:
                continue
            if kind == "never":
                raise Broken(f"P2: a read returns bytes that were never written ({cause})", text)
            if kind == "old":
                raise Broken(f"P2: a read returns old content ({cause})", text)
            if troubles <= self.m and not (self.m == 1 and old):
                raise Broken(f"P1: a read fails within the promise ({cause})", text)

    def compare(self, what, before):
        if self.beyond:  # an old copy may have held right blocks by chance
            return
        after = self.restorable()
        if lost := before - after:
            cause = f"{len(self.old)} old copies, {len(self.lost)} lost, {len(self.rotten)} rotten, m {'= 1' if self.m == 1 else '>= 2'}"
            raise Broken(f"P1: {what} destroys blocks ({cause})", f"{len(lost)} of {len(before)} blocks ({self.k}+{self.m}; old {self.old}, lost {self.lost}, rotten {self.rotten})")

    def whole(self, what):
        """Any m members may be lost."""
        away = self.draw.sample(range(len(self.all)), self.m)
        paths = [path for index, path in enumerate(self.all) if index not in away]
        wrong = [block for block, content in enumerate(self.reads(paths)) if content not in self.right[block]]
        if wrong and not self.beyond:
            raise Broken(f"P1: {what}, and m members cannot be lost", f"{len(wrong)} blocks without {away}, the first is {wrong[0]}")

    # ---- a server's life ----

    def change(self, session, parts=True):
        """One write, trim or flush of a session. An error leaves old or new. parts: also of a part of a block."""
        kind = self.draw.choice(("write",) * 6 + ("trim", "flush"))
        if kind == "flush":
            session("flush")
            return
        block = self.draw.randrange(len(self.right))
        count = min(self.draw.choice((1, 1, 3, 20)), len(self.right) - block)
        sort = self.draw.choice(("random", "same", "half") if parts else ("random", "same"))
        if kind == "trim":
            data = bytes(count * BLOCK)
        elif sort == "half":  # a part of a block
            data = None
        else:
            data = self.draw.randbytes(count * BLOCK) if sort == "random" else bytes([self.draw.randrange(4)]) * (count * BLOCK)
        if data is None:
            now = session.content(block)
            if now is None or now not in self.right[block]:
                return
            half, count = self.draw.randbytes(BLOCK // 2), 1
            data = session.read(block)[:BLOCK // 2] + half
            new = [digest(data)]
        else:
            new = [digest(data[at:at + BLOCK]) for at in range(0, len(data), BLOCK)]
        for at, content in enumerate(new):
            self.ever[block + at].add(content)
        try:
            if kind == "trim":
                session("trim", c_uint64(block * BLOCK), c_uint64(count * BLOCK))
            elif sort == "half":
                session("write", c_uint64(block * BLOCK + BLOCK // 2), half, c_size_t(BLOCK // 2))
            else:
                session.write(block, data)
        except Refused as refused:
            self.note("     ", refused)
            for at, content in enumerate(new):
                self.right[block + at] = self.right[block + at] | {content}
            return
        for at, content in enumerate(new):
            self.right[block + at] = {content}

    def begin(self, what):
        if self.trouble() > self.m:  # more than the promise covers, and what follows is made from it: the end of this history
            self.beyond, self.steps = True, [(1, lambda: None)]
        try:
            session = self.open()
        except Refused as refused:
            if self.trouble() <= self.m:
                raise Broken("P1: open refuses a volume within the promise", str(refused))
            self.note(what, refused)
            return None
        states = session.states()
        self.note(what, "".join(state for state, _ in states))
        for index, (state, why) in enumerate(states):
            if state == "c" and index in self.lost:
                raise Broken("P3: a member that missed writes is taken for current", f"member {index}")
            if state == "l" and os.path.exists(self.all[index]):
                self.note("      member", index, why)
        return session

    def finish(self, session):
        try:
            session.close()
        except Refused as refused:
            if self.trouble() <= self.m:
                raise Broken("P1: close fails within the promise", str(refused))
        self.log += ["      | " + note for note in session.notes[:6]]

    def serve(self):
        """A session, and copies of members while it lasts."""
        if session := self.begin("serve"):
            self.judge("first read", session.contents())
            count = self.draw.randrange(1, 60)
            self.note("     ", count, "writes, trims and flushes")
            for _ in range(count):
                self.change(session)
                if self.draw.random() < .08:
                    self.save()
            self.judge("last read", session.contents())
            self.finish(session)
            if not self.trouble():
                self.whole("after a close")

    def save(self, killed=False):
        index = self.draw.randrange(len(self.all))
        if index not in self.old | self.lost | self.rotten and os.path.exists(self.all[index]):
            path = os.path.join(self.base, f"saved{len(self.saved)}")
            if not os.path.exists(path):  # else the process that was killed made it
                shutil.copyfile(self.all[index], path)
            self.saved.append((index, path, killed))
            self.note("      copy of member", index)

    def crash(self):
        """A server is killed. What was flushed is there; the rest of each block is old or new."""
        if self.trouble():
            return
        seed, count = self.draw.randrange(1 << 32), self.draw.randrange(1, 60)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                session = self.open()
                self.draw.seed(seed)
                for _ in range(count):
                    self.step_of_a_crash(session)
                    os.write(writer, b".")
                os.write(writer, b"e")
                signal.pause()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(writer)
        done = 0
        while (byte := os.read(reader, 1)) == b".":
            done += 1
        if byte != b"e":
            raise Broken("P1: a session ends without a cause", f"after {done} calls")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        # The same calls again on a model that keeps each content since the last flush.
        self.draw.seed(seed)
        replay = Replay(self)
        for _ in range(count):
            self.step_of_a_crash(replay)
        self.draw.seed(seed + 1)
        self.right = [replay.since.get(block, set()) | {*right} for block, right in enumerate(self.right)]
        self.note("killed after", done, "calls")
        if session := self.begin("open"):
            contents = session.contents()
            self.judge("read after a crash", contents)
            self.right = [{content} for content in contents]
            self.finish(session)
            self.whole("after a crash")

    def step_of_a_crash(self, session):
        self.change(session, parts=False)
        if self.draw.random() < .06:
            self.save(killed=True)

    # ---- damage ----

    def put_back(self):
        if self.saved and self.trouble() <= self.m:
            index, path, killed = self.draw.choice(self.saved[-3:] if self.draw.randrange(4) else self.saved)  # a late copy is harder to tell
            shutil.copyfile(path, self.all[index])
            (self.fresh.add if killed else self.fresh.discard)(index)
            self.lost.discard(index)
            self.rotten.discard(index)
            self.old.add(index)
            self.note("an old copy of member", index, "is put back")
            contents = self.reads(self.given())
            self.judge("read", contents)
            others = [other for other in range(len(self.all)) if other != index and other not in self.lost]
            if others and self.draw.randrange(2):
                away = self.draw.choice(others)
                self.judge("read without one more", self.reads([other for other in self.given() if other != self.all[away]]), away=[away])

    def lose(self):
        index = self.draw.randrange(len(self.all))
        if self.trouble() < self.m or (index in self.lost | self.old and self.trouble() <= self.m):
            if os.path.exists(self.all[index]):
                os.unlink(self.all[index])
            self.old.discard(index)
            self.rotten.discard(index)
            self.lost.add(index)
            self.note("member", index, "is lost")

    def rot(self):
        index = self.draw.randrange(len(self.all))
        if self.trouble() < self.m and index not in self.lost | self.old:
            size = os.path.getsize(self.all[index])
            at = self.draw.randrange(size)
            self.flip(self.all[index], at, self.draw.choice((1, 100, 5000)))
            self.rotten.add(index)
            self.note("rot in member", index, "at", at, "of", size)

    # ---- care ----

    def scrub(self, repair=True):
        before = self.restorable()
        session = self.begin("scrub --restart --repair" if repair else "scrub")
        if session:
            stop = self.draw.randrange(1, 5) if self.draw.random() < .15 else None
            try:
                result, error = session.care("scrub", repair, 1, stop), None
            except Refused as refused:
                result, error = None, refused
            states = [state for state, _ in session.states()]
            self.note("     ", error or " ".join(f"{name} {getattr(result, name)}" for name, _ in Result._fields_[1:] if getattr(result, name)))
            if result:
                self.judge(f"read after scrub{' --repair' if repair else ''}", session.contents())
            self.finish(session)
            self.compare("scrub --repair" if repair else "scrub", before)
            if result and repair and not result.lost and not result.left and set(states) == {"c"}:
                self.old.clear()
                self.rotten.clear()
                self.whole("scrub --repair finds nothing left to do")
            if result and not repair and not result.bad and not result.bad_parity and not result.lost and set(states) == {"c"} and not self.old:
                self.whole("scrub finds nothing")

    def rebuild(self):
        before = self.restorable()
        if session := self.begin("rebuild"):
            wait = {index for index, (state, _) in enumerate(session.states()) if state in "rs"}
            try:
                result = session.care("rebuild", stop_after=self.draw.randrange(1, 5) if self.draw.random() < .15 else None)
                self.note("      rebuilt", sorted(wait), "mended", result.mended)
                done = True
            except Refused as refused:
                self.note("     ", refused)
                done = False
            if done:
                self.old -= wait
                self.lost -= wait
                self.rotten -= wait
            states = {state for state, _ in session.states()}
            self.judge("read after rebuild", session.contents())
            self.finish(session)
            self.compare("rebuild", before)
            if done and states == {"c"} and not self.trouble():
                self.whole("rebuild is done")

    def replace(self):
        away = sorted(self.lost | self.old) or list(range(len(self.all)))
        index = self.draw.choice(away) if self.draw.randrange(3) else self.draw.randrange(len(self.all))
        if len(self.lost | self.old | self.rotten | {index}) > self.m:
            return
        before = self.restorable(without=[index])
        if session := self.begin(f"replace {index}"):
            new = os.path.join(self.base, "new")
            try:
                session("replace", byref(Replace(index, 0, os.fsencode(new))))
            except Refused as refused:
                self.note("     ", refused)
                self.finish(session)
                if os.path.exists(new):
                    os.unlink(new)
                return
            if not self.draw.randrange(3):
                self.judge("read after replace", session.contents())
            self.finish(session)
            os.replace(new, self.all[index])
            self.old.discard(index)
            self.rotten.discard(index)
            self.lost.add(index)
            self.compare("replace", before)
            if self.draw.randrange(2):
                self.rebuild()

    def unreadable(self):
        """A member that may not be opened is not told to be missing or damaged."""
        index = self.draw.randrange(len(self.all))
        if self.trouble() < self.m and index not in self.lost | self.old | self.rotten and os.geteuid():
            os.chmod(self.all[index], 0)
            self.note("chmod 0 member", index)
            try:
                session = self.open()
                state, why = session.states()[index]
                session.close()
                told = f"{state} {why}"
                self.lost.add(index)
            except Refused as refused:
                told = str(refused)
            os.chmod(self.all[index], 0o600)
            self.note("     ", told)
            if "ermission" not in told:
                raise Broken("P3: a member that may not be opened is called something else", told)

    def write_apart(self):
        """Two halves of a mirror, written apart, are refused together, however many sessions each had."""
        if self.m < self.k or self.trouble():
            return
        half = self.all[:self.k], self.all[self.k:self.k * 2]
        for paths, sessions in ((half[1], 1), (half[0], self.draw.choice((1, 2, 31, 33, 40)))):
            for _ in range(sessions):
                session = self.open(paths)
                session.write(self.draw.randrange(len(self.right)), self.draw.randbytes(BLOCK))
                session.close()
            self.note(*[os.path.basename(path) for path in paths], "alone:", sessions, "sessions")
        try:
            session = self.open(self.all)
        except Refused as refused:
            self.note("together:", refused)
        else:
            states = "".join(state for state, _ in session.states())
            session.close()
            raise Broken("P1: halves that were written apart are opened together", states)
        self.steps = [(1, lambda: None)]  # the end of this history


class Replay:
    """The calls of a session that was killed, on the model alone."""

    def __init__(self, history):
        self.history, self.since = history, {}

    def write(self, block, data):
        for each in range(block, block + len(data) // BLOCK):
            self.since[each] = self.since.get(each, set()) | self.history.right[each]

    def __call__(self, name, *arguments):
        if name == "flush":
            self.since.clear()
        else:
            offset, size = (each.value for each in arguments)
            self.write(offset // BLOCK, bytes(size))
