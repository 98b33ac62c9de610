# SPDX-License-Identifier: Apache-2.0
"""Common code of the tests in this folder: runs of `tandem` with faults (fault.c), trees of files as values, and the trees
that a power loss may leave."""
import copy
import os
import shutil
import signal
import subprocess
import tempfile

CHANGES = ("create", "write", "rename", "renameat2", "link", "unlink", "mkdir", "rmdir", "ftruncate", "fallocate")
SYNCS = ("fsync",)


class Call:
    """A line of the log."""

    def __init__(self, line):
        name, result, error, offset, length, self.path, self.second_path = line.split("\t")
        self.name, self.result, self.errno = name, int(result), int(error)
        self.offset, self.length = int(offset), int(length)

    def __repr__(self):
        return f"{self.name} {self.path} {self.second_path} @{self.offset}+{self.length} = {self.result}"


class Done:
    """A run that ended."""

    def until(self, count):
        """The same run, ended after so many of its calls."""
        part = copy.copy(self)
        part.calls = self.calls[:count]
        return part

    def __init__(self, process, calls, data):
        self.status, self.stdout, self.stderr = process.returncode, process.stdout, process.stderr.decode()
        self.calls, self.data = calls, data

    @property
    def killed(self):
        return self.status == -signal.SIGKILL


class Sandbox:
    """A folder to work in, where memory serves as disk if the machine has that."""

    def __init__(self, tandem, library):
        self.tandem, self.library = os.path.abspath(tandem), os.path.abspath(library)
        shared = "/dev/shm"
        in_memory = os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 32 << 20
        self.base = tempfile.mkdtemp(prefix="tandem-fault-", dir=shared if in_memory else None)
        self.root = os.path.join(self.base, "root")
        os.mkdir(self.root)

    def close(self):
        shutil.rmtree(self.base, True)

    def path(self, name):
        return os.path.join(self.root, name)

    def run(self, *arguments, calls=(), action="", at=0, count=1, step=1, errno=0, path=None, log=False, stdin=None):
        """Runs the command inside the sandbox. With `log`, or an action, the calls of the library are counted."""
        environment = dict(os.environ)
        log_path = os.path.join(self.base, "log")
        if action or log:
            environment.update(LD_PRELOAD=self.library, TANDEM_FAULT_PATH=path or self.root,
                               TANDEM_FAULT_CALLS=",".join(calls), TANDEM_FAULT_ACTION=action, TANDEM_FAULT_AT=str(at),
                               TANDEM_FAULT_COUNT=str(count), TANDEM_FAULT_STEP=str(step),
                               TANDEM_FAULT_ERRNO=str(errno), TANDEM_FAULT_LOG=log_path)
        process = subprocess.run([self.tandem, *map(str, arguments)], env=environment, cwd=self.root, input=stdin,
                                 stdin=subprocess.DEVNULL if stdin is None else None, capture_output=True, timeout=120)
        logged, data = [], b""
        if action or log:
            with open(log_path) as file:
                logged = [Call(line.rstrip("\n")) for line in file]
            with open(log_path + ".data", "rb") as file:
                data = file.read()
            os.remove(log_path)
            os.remove(log_path + ".data")
        return Done(process, logged, data)

    def tree(self):
        """The sandbox as {path: bytes of a file, or None for a folder}."""
        found = {}
        for folder, folders, files in os.walk(self.root):
            for name in folders:
                found[os.path.relpath(os.path.join(folder, name), self.root)] = None
            for name in files:
                with open(os.path.join(folder, name), "rb") as file:
                    found[os.path.relpath(os.path.join(folder, name), self.root)] = file.read()
        return found

    def restore(self, tree):
        shutil.rmtree(self.root)
        os.mkdir(self.root)
        for path in sorted(tree):  # a folder before what is in it
            if tree[path] is None:
                os.mkdir(self.path(path))
            else:
                with open(self.path(path), "wb") as file:
                    file.write(tree[path])


# ---- loss of power ----
#
# What the model covers: bytes written to a file are safe when a later fsync of that file returned 0, and a name (made,
# renamed, removed) is safe when a later fsync of its folder did. Of the rest anything may be lost:
#   files    each write since the last sync survives, is lost (the old bytes are back, the file as short as it was), or
#            left zeros; each by itself
#   names    in each folder by itself, either the first so many of its changes survive, as a journal would have it, or any
#            of them, as long as those that it builds on (changes of the same names) survive too. A rename is one change.
# What it leaves out: modes and times, parts of one write, and disks that lie about a sync.


class _File:
    def __init__(self, content=b""):
        self.safe, self.writes = bytes(content), []  # writes since the last sync: (offset, bytes), or (length, None)

    @staticmethod
    def _apply(content, offset, data):
        if data is None:  # ftruncate
            del content[offset:]
            content.extend(bytes(offset - len(content)))
            return
        content.extend(bytes(max(0, offset + len(data) - len(content))))
        content[offset:offset + len(data)] = data

    def content(self, fate):
        content = bytearray(self.safe)
        for offset, data in self.writes:
            kept = fate()
            if kept == "keep" or data is None:
                self._apply(content, offset, data)
            elif kept == "zero":
                self._apply(content, offset, bytes(len(data)))
        return bytes(content)

    def sync(self):
        self.safe, self.writes = self.content(lambda: "keep"), []


class _Change:
    """Of names: {path: what it is afterwards}, a file, "folder" or None."""

    def __init__(self, names, after):
        self.after, self.safe = after, False
        self.folders = {os.path.dirname(path) for path in after}
        self.before = {path: names.get(path) for path in after}


def after_power_loss(root, start, done, random):
    """One of the trees that the run `done`, begun with the tree `start`, may leave when the power goes at its end. Without
    `random` the tree that it leaves when it is killed there."""
    names, changes, data_at = {root: "folder"}, [], 0
    for path, content in start.items():
        names[os.path.join(root, path)] = "folder" if content is None else _File(content)
    at_first = dict(names)

    def change(after):
        changes.append(_Change(names, after))
        names.update(after)

    for call in done.calls:
        if call.result < 0:
            continue
        path, second, thing = call.path.rstrip("/."), call.second_path, names.get(call.path)
        if call.name == "create":
            if call.offset & 1:
                change({call.path: _File()})
            elif call.offset & 2:
                thing.writes.append((0, None))
        elif call.name == "write":
            data = done.data[data_at:data_at + call.result]
            data_at += call.result
            if isinstance(thing, _File):
                thing.writes.append((call.offset, data))
        elif call.name == "ftruncate":
            thing.writes.append((call.length, None))
        elif call.name in ("rename", "renameat2"):
            change({call.path: None, second: thing})
        elif call.name == "link":
            change({second: thing})
        elif call.name in ("unlink", "rmdir"):
            change({call.path: None})
        elif call.name == "mkdir":
            change({path: "folder"})
        elif call.name == "fsync" and isinstance(thing, _File):
            thing.sync()
        elif call.name == "fsync":
            for each in changes:
                each.safe = each.safe or path in each.folders
        elif call.name == "fallocate":
            raise NotImplementedError("the model knows no fallocate")

    survival, as_journal = (random.choice((0, 0.3, 0.7, 1)), random.random() < 0.5) if random else (1, False)
    lost_folders, lost_names, left = set(), set(), dict(at_first)
    for each in changes:
        lost = random and not each.safe and (random.random() >= survival or lost_names & set(each.after)
                                  or as_journal and lost_folders & each.folders)
        if lost:
            lost_folders |= each.folders
            lost_names |= set(each.after)
        else:
            left.update(each.after)

    fates = () if not random else random.choice((("keep",), ("drop",), ("zero",), ("keep", "drop", "zero")))
    tree, contents = {}, {}
    for path, thing in sorted(left.items(), key=lambda entry: entry[0]):
        name = os.path.relpath(path, root)
        if thing is None or path == root:
            continue
        if os.path.dirname(name) and os.path.dirname(name) not in tree:
            continue  # its folder was never there
        if thing != "folder" and thing not in contents:  # once for all names of a file
            contents[thing] = thing.content(lambda: random.choice(fates) if random else "keep")
        tree[name] = contents.get(thing)
    return tree
