# SPDX-License-Identifier: Apache-2.0
"""What the models share: a folder to work in, the command as a user runs it, content by its hash, a history that can be replayed."""
import hashlib
import os
import random
import shutil
import subprocess
import tempfile


class Broken(Exception):
    """A promise does not hold. `rule` is a short name that is the same for each failure of one kind."""

    def __init__(self, rule, what):
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


def read(path):
    """Also of a file that its owner may not read: the model looks past permissions, the command may not."""
    mode = os.lstat(path).st_mode
    if not mode & 0o400:
        os.chmod(path, 0o600)
    try:
        with open(path, "rb") as file:
            return file.read()
    finally:
        if not mode & 0o400:
            os.chmod(path, mode & 0o7777)


def copy(source, target):
    """A tree with its times and modes. The copy may be read."""
    os.makedirs(target)
    for folder, folders, files in os.walk(source):
        here = os.path.join(target, os.path.relpath(folder, source))
        for name in folders:
            os.mkdir(os.path.join(here, name))
        for name in files:
            path, new = os.path.join(folder, name), os.path.join(here, name)
            if os.path.islink(path):
                os.symlink(os.readlink(path), new)
                continue
            with open(new, "wb") as file:
                file.write(read(path))
            times = os.stat(path)
            os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))


class Done:
    def __init__(self, status, out, text):
        self.status, self.out, self.text, self.killed = status, out, text, status == -9


class History:
    """One random history. A model has `start`, and `steps`: pairs of a weight and a function that does one step."""

    def __init__(self, tools, seed, length):
        self.tools, self.seed, self.length = tools, seed, length
        self.draw = random.Random(seed)
        self.log = []
        self.base = tempfile.mkdtemp(prefix="tandem-guard-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.root = os.path.join(self.base, "root")
        os.mkdir(self.root)

    def close(self):
        for folder, folders, _ in os.walk(self.base):
            for name in folders:
                if not os.path.islink(os.path.join(folder, name)):
                    os.chmod(os.path.join(folder, name), 0o700)
        shutil.rmtree(self.base, True)

    def run(self):
        self.start()
        for number in range(self.length):
            weights, functions = zip(*self.steps)
            self.draw.choices(functions, weights)[0]()
            self.after()

    def after(self):
        """After each step."""

    def note(self, *words):
        self.log.append(" ".join(map(str, words)))

    def command(self, *arguments, kill=0, quiet=False, cwd=None):
        """Runs `tandem`. With `kill` it is killed before that call that changes a file."""
        environment = dict(os.environ, TANDEM_TUNING="", TANDEM_THREADS="1", XDG_STATE_HOME=os.path.join(self.base, "state"))
        log = os.path.join(self.base, "calls")
        if kill:
            environment.update(LD_PRELOAD=self.tools.faults, TANDEM_FAULT_PATH=self.root, TANDEM_FAULT_ACTION="kill",
                               TANDEM_FAULT_AT=str(kill), TANDEM_FAULT_LOG=log)
        done = subprocess.run([self.tools.tandem, *map(str, arguments)], env=environment, cwd=cwd or self.root, timeout=120,
                              stdin=subprocess.DEVNULL, capture_output=True)
        out = done.stdout.decode(errors="backslashreplace")
        text = out + done.stderr.decode(errors="backslashreplace")
        if not quiet:
            self.note("tandem", *arguments, f"(killed at call {kill})" if kill else "", "->", done.returncode)
            self.log += ["      | " + line for line in text.splitlines()[:12]]
        is_choice = "choose one" in text or "no set is called" in text  # of several sets
        if done.returncode not in (0, 1, 2, 3, 4, -9) or (done.returncode == 2 and not quiet and not is_choice):
            raise Broken("command", f"{arguments}: exit status {done.returncode}: {text[-800:]}")
        return Done(done.returncode, out, text)

    def scratch(self, name="scratch"):
        """The path of an empty place beside the root."""
        path = os.path.join(self.base, name)
        shutil.rmtree(path, True)
        return path

    @staticmethod
    def flip(path, offset, count=1):
        """Rot: other bytes, as old as before."""
        times = os.stat(path)
        with open(path, "r+b") as file:
            file.seek(offset)
            data = file.read(count)
            file.seek(offset)
            file.write(bytes(byte ^ 0x5A for byte in data))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    @staticmethod
    def cut(path, size):
        times = os.stat(path)
        os.truncate(path, size)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
