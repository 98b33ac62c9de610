# SPDX-License-Identifier: Apache-2.0
"""Runs of `tandem` with faults (fault.c), and trees of files as values."""
import os
import shutil
import signal
import subprocess
import tempfile

CHANGES = ("create", "write", "rename", "renameat2", "link", "unlink", "mkdir", "rmdir", "ftruncate", "fallocate")


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

    def __init__(self, process, log):
        self.status, self.stdout, self.stderr = process.returncode, process.stdout, process.stderr.decode()
        self.log = log

    @property
    def calls(self):
        return [Call(line) for line in self.log.splitlines()]

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
        logged = ""
        if action or log:
            with open(log_path, errors="surrogateescape") as file:
                logged = file.read()
            os.remove(log_path)
            os.remove(log_path + ".data")
        return Done(process, logged)

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
