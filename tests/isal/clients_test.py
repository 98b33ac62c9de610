#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real users of ISA-L on Tandem's libisal: clients_test.py TANDEM CLIENTS CLASS, where TANDEM is the command and CLIENTS the
folder of the programs built here. A client that this machine lacks is NOT RUN; with CI=true that is a failure."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

TANDEM, CLIENTS = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
REQUIRED = os.environ.get("CI") == "true"
# The system's libisal unless a test says otherwise, and no variables of Tandem.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "TANDEM_"))}


def run(*command, environment=None, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120,
                          env={**CLEAN, **(environment or {})}, **more)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-isal-"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def ok(self, *command, status=0, **more):
        done = run(*command, **more)
        self.assertEqual(done.returncode, status, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done

    def isal_env(self, *arguments, **more):
        return self.ok(TANDEM, "isal-env", *arguments, **more)

    def standalone(self):
        """The path of the standalone library."""
        return self.isal_env("--status").stdout.split()[1]

    def need(self, there, what, package):
        if there:
            return
        sentence = f"NOT RUN: {what} is not installed ({package})"
        print(sentence, file=sys.stderr)
        self.fail(sentence) if REQUIRED else self.skipTest(sentence)

    def need_client(self, name, package):
        self.need((CLIENTS / name).exists(), f"what {name} is built with", package)
        return CLIENTS / name

    def chained(self):
        """A chained build of this test's own. Returns the options that choose it, and its library."""
        found = run(TANDEM, "isal-env", "--install", "--to", self.folder / "chained")
        self.need("loader finds no libisal" not in found.stderr, "libisal", "apt-get install libisal2")
        self.assertEqual(found.returncode, 0, found.stderr)
        return ("--to", self.folder / "chained"), str(self.folder / "chained" / "libisal.so.2")

    def served_by(self, done):
        return {line.split("served by ")[1] for line in done.stderr.splitlines() if line.startswith("served by ")}


class Command(Case):
    """What `tandem isal-env` does by itself."""

    def test_command_gets_its_arguments_and_gives_its_status(self):
        words = ["--help", "[a,b]", "", "{}", "--", "-x", "a b"]
        done = self.isal_env("--standalone", sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(41)", *words,
                             status=41)
        self.assertEqual(done.stdout.strip(), str(words))
        self.isal_env("--standalone", "sh", "-c", "kill -TERM $$", status=-signal.SIGTERM)
        self.isal_env("--standalone", "no-such-command-anywhere", status=127)
        self.isal_env("--standalone", HERE, status=126)
        # main() ignores SIGPIPE for itself; the command starts as this program was started.
        done = self.isal_env("--standalone", "grep", "SigIgn", "/proc/self/status")
        self.assertEqual(int(done.stdout.split()[1], 16) & 1 << (signal.SIGPIPE - 1), 0)

    def test_dashes_before_the_command(self):
        show = (sys.executable, "-c", "import sys; print(sys.argv[1:])")
        for before in [("--",), ("--preload", "--standalone", "--")]:
            for words in [[], ["--help", "--status", "x"], ["--", "y", "--"]]:
                self.assertEqual(self.isal_env(*before, *show, *words).stdout.strip(), str(words), before)
        self.assertEqual(self.isal_env("--standalone", *show, "--", "x").stdout.strip(), str(["--", "x"]))  # COMMAND's own

    def test_environment(self):
        library = self.standalone()
        folder = os.path.dirname(library)
        show = ("sh", "-c", 'echo "$LD_LIBRARY_PATH|$LD_PRELOAD"')
        self.assertEqual(self.isal_env("--standalone", *show).stdout, f"{folder}|\n")
        self.assertEqual(self.isal_env("--standalone", "--preload", *show).stdout, f"|{library}\n")
        before = {"LD_LIBRARY_PATH": "/somewhere:/else"}
        self.assertEqual(self.isal_env("--standalone", *show, environment=before).stdout, f"{folder}:/somewhere:/else|\n")
        self.assertEqual(self.isal_env("--standalone", "--print", environment=before).stdout,
                         f"export LD_LIBRARY_PATH='{folder}:/somewhere:/else'\nexport LD_BIND_NOW='1'\n")
        printed = f'eval "$({TANDEM} isal-env --standalone --print)"; eval "$({TANDEM} isal-env --standalone --print)"; '
        self.assertEqual(self.ok("sh", "-c", printed + show[2]).stdout, f"{folder}|\n")

    def test_wrong_usage(self):
        for wrong in [[], ["--bogus"], ["--status", "ls"], ["--print", "--install"], ["--standalone", "--to", "x", "ls"],
                      ["--preload", "--status"], ["--"], ["--print", "--", "ls"], ["--bogus", "--", "ls"], ["--", "-x"]]:
            self.assertEqual(len(self.isal_env(*wrong, status=2).stderr.splitlines()), 1, wrong)

    def test_chained_is_made(self):
        folder = self.folder / "chained"
        missing = f"is missing; `tandem isal-env --install --to '{folder}'`"
        self.assertIn(missing, self.isal_env("--to", folder, "true", status=3).stderr)
        _, library = self.chained()
        self.assertEqual(os.readlink(folder / "libisal-pyeclib.so.2"), "libisal.so.2")
        for path in folder.iterdir():  # nothing is copied, so an upgrade of either library needs nothing
            self.assertTrue(path.is_symlink() and path.exists(), path)
        real = os.readlink(folder / "libisal-real.so.2")
        self.assertTrue(real.endswith("/libisal.so.2"), real)  # not the file of this version
        self.assertIn(f"in front of {real}\ndefault     chained", self.isal_env("--status", "--to", folder).stdout)
        self.assertEqual(self.isal_env("--to", folder, "sh", "-c", "echo $LD_LIBRARY_PATH").stdout.strip(), str(folder))

        # Another library, as root with a strict umask. It is named when it is gone.
        other = self.folder / "other"
        other.mkdir()
        shutil.copy(real, other / "libisal.so.2")
        shutil.rmtree(folder)
        self.isal_env("--install", "--to", folder, environment={"LD_LIBRARY_PATH": str(other)}, umask=0o077)
        self.assertEqual(folder.stat().st_mode & 0o777, 0o755)
        self.assertEqual(os.readlink(folder / "libisal-real.so.2"), f"{other}/libisal.so.2")
        shutil.rmtree(other)
        for command, status in [(("true",), 3), (("--status",), 0)]:
            done = self.isal_env("--to", folder, *command, status=status)
            self.assertIn(f"{other}/libisal.so.2 {missing}", done.stdout + done.stderr)
        self.isal_env("--install", "--to", folder)
        self.isal_env("--to", folder, "true")

    def test_files_of_others_are_left_alone(self):
        self.chained()
        for name, stranger in [("libisal.so.2", "libisal.so.2.0.30"), ("libisal-pyeclib.so.2", "libisal.so.2.0.30"),
                               ("libisal-pyeclib.so.2", None), ("libisal-real.so.2", None)]:
            path = self.folder / "chained" / name
            path.unlink()
            path.symlink_to(stranger) if stranger else path.write_bytes(b"of others")
            done = self.isal_env("--install", "--to", path.parent, status=2)
            self.assertIn(f"{path} was not made by this command", done.stderr)
            self.assertTrue(os.readlink(path) == stranger if stranger else path.read_bytes() == b"of others")
            path.unlink()
            self.isal_env("--install", "--to", path.parent)

    def test_refuses_what_is_no_libisal(self):
        (self.folder / "libisal.so.2").write_text("no library")
        ours = [(os.path.dirname(library), 2) for library in (self.chained()[1], self.standalone())]
        for found, status in [(str(self.folder), 3), *ours]:
            self.isal_env("--install", "--to", self.folder / "new", status=status, environment={"LD_LIBRARY_PATH": found})
            self.assertFalse((self.folder / "new").exists())


class Compiled(Case):
    """A C program compiled with Debian's headers and linked with -lisal."""

    def setUp(self):
        super().setUp()
        self.client = self.need_client("isal_client", "apt-get install libisal-dev")
        self.library = self.standalone()

    def test_same_output_whoever_serves(self):
        plain = self.ok(self.client)
        self.assertEqual(len(self.served_by(plain)), 1)
        self.assertNotIn("/tandem/isal/", plain.stderr)
        recovered = re.findall(r"inverted 0 recovered (\d+) of (\d+)", plain.stdout)
        self.assertGreater(len(recovered), 60)
        self.assertTrue(all(int(back) == int(lost) > 0 for back, lost in recovered))
        chained, chained_library = self.chained()
        for options, library in [(("--standalone",), self.library), (("--standalone", "--preload"), self.library),
                                 (chained, chained_library), (chained + ("--preload",), chained_library)]:
            ours = self.isal_env(*options, self.client)
            self.assertEqual(self.served_by(ours), {library})
            self.assertEqual(ours.stdout, plain.stdout)

    def test_copy_of_its_own(self):
        host = self.need_client("isal_plugin_host", "a C compiler")
        plugin = CLIENTS / "libisal_plugin.so"
        plain = self.ok(host, plugin)
        self.assertEqual((plain.stdout, self.served_by(plain)), ("eeee\n", {str(plugin)}))
        ours = self.isal_env("--standalone", "--preload", host, plugin)
        self.assertEqual((ours.stdout, self.served_by(ours)), ("0c0c\n", {self.library}))  # 0x11 + 2 * 0x80

    def test_can_be_closed_and_opened_again(self):
        _, chained = self.chained()
        for library in (self.library, chained):
            self.assertEqual(self.ok(self.client, "reopen", library).stdout, "unloaded\n")
            self.assertEqual(self.ok(self.client, "namespaces", library).stdout, "40 of 40\n")

    def test_program_with_rpath(self):
        client = self.need_client("isal_rpath_client", "apt-get install libisal-dev")
        done = self.isal_env("--standalone", client)
        (real,) = self.served_by(done)
        self.assertNotIn("/tandem/isal/", real)
        self.assertIn(f"note: {client} gets {real} by a DT_RPATH", done.stderr)
        self.assertIn("--preload", done.stderr)
        self.assertEqual(self.isal_env("--standalone", "isal_rpath_client", environment={
            "PATH": f"/nowhere:{CLIENTS}:{os.environ['PATH']}"}).stderr.count("DT_RPATH"), 1)
        ours = self.isal_env("--standalone", "--preload", client)
        self.assertNotIn("DT_RPATH", ours.stderr)
        self.assertEqual((self.served_by(ours), ours.stdout), ({self.library}, done.stdout))
        for without in (self.client, "true", "sh", HERE / "clients_test.py"):  # DT_RUNPATH, or none, or a script
            self.assertNotIn("note", run(TANDEM, "isal-env", "--standalone", without, "-c").stderr)


class Pyeclib(Case):
    """pyeclib opens libisal by its name, through liberasurecode."""

    def check(self, python, theirs, ours, not_ours, environment=None):
        """Each library writes folders of fragments, also in children of a fork, and reads those of the other."""

        def go(work, name, *more):
            is_ours = name.startswith("ours") == (work == "write")
            prefix, expected, forbidden = ((TANDEM, "isal-env", "--standalone"), ours, not_ours) if is_ours else ((), theirs, "/tandem/isal/")
            (self.folder / name).mkdir(exist_ok=True)
            done = self.ok(*prefix, python, HERE / "pyeclib_client.py", work, self.folder / name, *more, environment=environment)
            served = self.served_by(done)
            self.assertTrue(any(expected in library for library in served), served)
            self.assertFalse(any(forbidden in library for library in served), served)
            self.assertGreaterEqual(int(done.stdout.split()[0]), 40)
            return {file.name: file.read_bytes() for file in (self.folder / name).iterdir()}

        real = go("write", "real")
        self.assertGreater(len(real), 400)
        self.assertTrue(real == go("write", "ours") == go("write", "ours-forked", "fork"))  # byte for byte
        go("read", "real")
        go("read", "real", "fork")
        go("read", "ours")

    def test_of_debian(self):
        there = run("/usr/bin/python3", "-c", "import pyeclib.ec_iface").returncode == 0
        self.need(there, "pyeclib", "apt-get install python3-pyeclib libisal2")
        self.check("/usr/bin/python3", "/libisal.so.2", self.standalone(), "-linux-gnu/libisal")

    def test_of_pypi(self):
        """Against the wheel's own libisal. Installed into this build, once."""
        packages = CLIENTS / "pyeclib"
        wanted = (HERE / "pyeclib_requirements.txt").read_text()
        marker = packages / "tandem-installed"
        if not marker.exists() or marker.read_text() != wanted:
            shutil.rmtree(packages, True)
            environment = self.folder / "venv"
            done = run(sys.executable, "-m", "venv", environment)
            self.need(done.returncode == 0, "Python's venv", "apt-get install python3-venv")
            done = run(environment / "bin" / "pip", "install", "--only-binary=:all:", "--no-deps", "--target", packages, "-r",
                       HERE / "pyeclib_requirements.txt")
            self.need(done.returncode == 0, "pyeclib", f"pip install: {done.stderr.strip()[-500:]}")
            marker.write_text(wanted)
        self.check(sys.executable, "/pyeclib.libs/libisal-pyeclib.so.2", f"{os.path.dirname(self.standalone())}/libisal",
                   "/pyeclib.libs/", environment={"PYTHONPATH": str(packages)})


class Igzip(Case):
    """A program that needs much more of ISA-L than we have."""

    def setUp(self):
        super().setUp()
        self.igzip = shutil.which("igzip")
        self.need(self.igzip, "igzip", "apt-get install isal")

    def test_chained_passes_it_through(self):
        content = b"".join(b"%d squared is %d\n" % (i, i * i) for i in range(100_000)) + os.urandom(100_003)
        source = self.folder / "source"
        source.write_bytes(content)
        chained, library = self.chained()
        self.isal_env(*chained, self.igzip, "-k", "-f", source)
        source.unlink()
        self.assertLess((self.folder / "source.gz").stat().st_size, len(content) / 2)
        unpacked = subprocess.run(["gunzip", "-c", self.folder / "source.gz"], capture_output=True, check=True).stdout
        self.assertEqual(unpacked, content)
        self.isal_env(*chained, self.igzip, "-d", "-k", "-f", self.folder / "source.gz")
        self.assertEqual(source.read_bytes(), content)
        # Ours was there, and the real one behind it.
        loaded = self.isal_env(*chained, self.igzip, "--version", environment={"LD_DEBUG": "files"}).stderr
        self.assertIn(f"calling init: {library}", loaded)
        self.assertIn(f"calling init: {self.folder}/chained/libisal-real.so.2", loaded)
        # The same preloaded, though both libraries have the SONAME that the program asks for.
        source.unlink()
        self.isal_env(*chained, "--preload", self.igzip, "-d", "-k", "-f", self.folder / "source.gz")
        self.assertEqual(source.read_bytes(), content)

    def test_standalone_fails_at_load(self):
        """Before main, also where it was linked to look symbols up when they are first called."""
        lazy = self.need_client("isal_lazy_client", "apt-get install libisal-dev")
        self.assertEqual(self.ok(lazy).stdout, "started\ncrc32 cbf43926\n")
        self.assertEqual(self.isal_env(*self.chained()[0], lazy).stdout, "started\ncrc32 cbf43926\n")
        for options in (("--standalone",), ("--standalone", "--preload")):
            done = self.isal_env(*options, lazy, status=127)
            self.assertEqual(done.stdout, "")
            self.assertIn("undefined symbol: crc32_gzip_refl", done.stderr)


if __name__ == "__main__":
    print(f"{TANDEM} in CI: a client that is missing is a failure" if REQUIRED else TANDEM, file=sys.stderr)
    result = unittest.TextTestRunner(verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromTestCase({c.__name__: c for c in (
            Command, Compiled, Pyeclib, Igzip)}[sys.argv[3]]))
    if result.skipped and result.wasSuccessful():
        print(f"NOT RUN: {len(result.skipped)} of {result.testsRun} tests")
    sys.exit(not result.wasSuccessful())
