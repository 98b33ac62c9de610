# SPDX-License-Identifier: Apache-2.0
"""The command in a folder of its own. The first argument of the program is the path of the command."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

TANDEM = os.path.abspath(sys.argv.pop(1))
os.environ["TANDEM_TUNING"] = ""  # what this machine was tuned to is not asked


class Command(unittest.TestCase):
    def setUp(self):
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="tandem-cli-"))
        self.addCleanup(shutil.rmtree, self.root, True)

    def path(self, *names):
        return os.path.join(self.root, *names)

    def ok(self, *arguments, status=0, **more):
        done = subprocess.run([TANDEM, *map(str, arguments)], capture_output=True, timeout=120, **more)
        self.assertEqual(done.returncode, status, (done.stdout[-2000:], done.stderr))
        return done

    def json(self, *arguments, status=0):
        found = json.loads(self.ok(*arguments, "--json", status=status).stdout)
        self.assertEqual((next(iter(found)), found["schema"]), ("schema", 1))
        return found

    def write(self, path, content):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def contents(self, folder):
        return {name: self.read(os.path.join(folder, name)) for name in os.listdir(folder)}

    def damage(self, path, offset):
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 0xFF]))

    def as_another_user(self):
        """For subprocess: root may read and write everything. The user gets a copy of the command, as it may lie in a folder of root."""
        if os.geteuid() != 0:
            return {}
        built, copied = os.path.dirname(TANDEM), tempfile.mkdtemp(prefix="tandem-cli-")
        self.addCleanup(shutil.rmtree, copied, True)
        for name in os.listdir(built):
            if name == os.path.basename(TANDEM) or name.startswith("libtandem"):
                shutil.copy(os.path.join(built, name), copied, follow_symlinks=False)
        for folder in copied, self.root:
            os.chmod(folder, 0o755)
        other = {"user": 65534, "group": 65534, "extra_groups": [], "executable": os.path.join(copied, os.path.basename(TANDEM)),
                 "env": {**os.environ, "LD_LIBRARY_PATH": copied}}
        try:
            subprocess.run([TANDEM, "info", self.root], capture_output=True, timeout=120, **other)
        except OSError as error:
            self.skipTest(f"user 65534 can either not run {copied}/tandem or not enter {self.root}: {error}")
        return other
