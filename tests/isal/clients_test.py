#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real users of ISA-L on Tandem's libisal: clients_test.py TANDEM CLIENTS CLASS, where TANDEM is the command and CLIENTS the
folder of the programs built here. A client that this machine lacks is NOT RUN; with CI=true that is a failure."""

import json
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

    def status(self, *arguments):
        builds = json.loads(self.isal_env("--status", "--json", *arguments).stdout)["builds"]
        return {build["name"]: build for build in builds}

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
        return ("--to", self.folder / "chained", "--chained"), str(self.folder / "chained" / "libisal.so.2")

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
        for before in [("--",), ("--standalone", "--"), ("--preload", "--standalone", "--")]:
            for words in [[], ["--help", "--status", "x"], ["--", "y", "--"]]:
                self.assertEqual(self.isal_env(*before, *show, *words).stdout.strip(), str(words), before)
        # After COMMAND they are its own.
        for words in [["--"], ["x", "--", "y"], ["--", "--", "--standalone"]]:
            self.assertEqual(self.isal_env("--standalone", *show, *words).stdout.strip(), str(words))
        # No option is looked for behind them, nor another command of ours.
        self.isal_env("--standalone", "--", "--no-such-command", status=127)
        self.assertEqual(self.isal_env("--standalone", "--", "sh", "-c", "exit 42", status=42).stdout, "")
        self.assertIn("default", self.isal_env("--status", "--").stdout)

    def test_environment(self):
        library = self.status()["standalone"]["library"]
        folder = os.path.dirname(library)
        show = ("sh", "-c", 'echo "$LD_LIBRARY_PATH|$LD_PRELOAD"')
        self.assertEqual(self.isal_env("--standalone", *show).stdout, f"{folder}|\n")
        self.assertEqual(self.isal_env("--standalone", "--preload", *show).stdout, f"|{library}\n")
        before = {"LD_LIBRARY_PATH": "/somewhere:/else"}
        self.assertEqual(self.isal_env("--standalone", *show, environment=before).stdout, f"{folder}:/somewhere:/else|\n")
        self.assertEqual(self.isal_env("--standalone", "--print", environment=before).stdout,
                         f"export LD_LIBRARY_PATH={folder}:/somewhere:/else\nexport LD_BIND_NOW=1\n")
        printed = f'eval "$({TANDEM} isal-env --standalone --print)"; eval "$({TANDEM} isal-env --standalone --print)"; '
        self.assertEqual(self.ok("sh", "-c", printed + show[2]).stdout, f"{folder}|\n")

    def test_wrong_usage(self):
        for wrong in [[], ["--bogus"], ["--status", "ls"], ["--print", "--install"], ["--json", "ls"], ["--force", "ls"],
                      ["--real", "/x", "ls"], ["--standalone", "--chained", "ls"], ["--preload", "--status"],
                      ["--"], ["--standalone", "--"], ["--print", "--", "ls"], ["--bogus", "--", "ls"], ["--to", "--", "ls"]]:
            done = self.isal_env(*wrong, status=2)
            self.assertEqual(len(done.stderr.splitlines()), 1, wrong)
            self.assertEqual(done.stdout.startswith('{\n  "schema": 1'), wrong[:1] == ["--json"], wrong)
        done = run(TANDEM, "isal-env", "--standalone", "/nonexistent/program", "--json")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")

    def test_chained_is_made_and_removed(self):
        folder = self.folder / "chained"
        to = ("--to", folder)
        self.assertFalse(self.status(*to)["chained"]["installed"])
        self.assertIn(f"isal-env --install --to {folder}`", self.isal_env(*to, "--chained", "true", status=3).stderr)
        self.assertIn("nothing to remove", self.isal_env("--uninstall", *to).stdout)
        _, library = self.chained()
        self.assertEqual(os.readlink(folder / "libisal-pyeclib.so.2"), "libisal.so.2")
        for path in folder.iterdir():  # nothing is copied, so an upgrade of either library needs nothing
            self.assertTrue(path.is_symlink() and path.exists(), path)
        chained = self.status(*to)["chained"]
        self.assertEqual((chained["installed"], chained["library"]), (True, library))
        self.assertTrue(chained["real_library_exists"])
        self.assertTrue(chained["real_library"].endswith("/libisal.so.2"), chained)  # not the file of this version
        before = os.lstat(library)
        self.assertIn("is there already", self.isal_env("--install", *to).stdout)
        self.assertEqual(os.lstat(library).st_ino, before.st_ino)
        self.assertEqual(self.isal_env(*to, "sh", "-c", "echo $LD_LIBRARY_PATH").stdout.strip(), str(folder))

        # An upgrade that leaves the name is no matter, also where --real named the file of a version. The library stays
        # the same in a further --install, and is named when it is gone.
        real = self.folder / "real"
        real.mkdir()
        shutil.copy(chained["real_library"], real / "libisal.so.2.0.99")
        (real / "libisal.so.2").symlink_to("libisal.so.2.0.99")
        self.assertIn(f"{real}/libisal.so.2,", self.isal_env("--install", *to, "--real", real / "libisal.so.2.0.99").stdout)
        self.assertIn("is there already", self.isal_env("--install", *to).stdout)
        self.assertEqual(self.status(*to)["chained"]["real_library"], f"{real}/libisal.so.2")
        shutil.rmtree(real)
        self.assertFalse(self.status(*to)["chained"]["real_library_exists"])
        self.assertIn(f"{real}/libisal.so.2 is gone; `tandem isal-env --install --to {folder}`", self.isal_env(*to, "true", status=3).stderr)
        self.assertIn(f"{real}/libisal.so.2 is gone", self.isal_env("--status", *to).stdout)
        self.isal_env("--install", *to)
        self.isal_env(*to, "true")

        # A link to our own library is relative, and is named in full.
        os.remove(library)
        os.symlink("gone/libisal-chained.so", library)
        self.assertIn(f"{folder}/gone/libisal-chained.so is gone", self.isal_env(*to, "true", status=3).stderr)
        self.isal_env("--uninstall", *to)
        self.assertFalse(folder.exists())

    def test_umask_is_no_matter(self):
        def strict():
            os.umask(0o077)
            if os.getuid() == 0:  # as root: what others find
                os.chmod(self.folder, 0o755)

        made = self.folder / "a" / "b" / "chained"
        done = run(TANDEM, "isal-env", "--install", "--to", made, preexec_fn=strict)
        self.need("loader finds no libisal" not in done.stderr, "libisal", "apt-get install libisal2")
        self.assertEqual(done.returncode, 0, done.stderr)
        model = os.stat(os.path.dirname(os.path.dirname(self.status()["standalone"]["library"]))).st_mode & 0o777
        for folder in (made, made.parent, made.parent.parent):
            self.assertEqual(os.stat(folder).st_mode & 0o777, model, folder)
        if os.getuid() != 0:
            return
        made.parent.chmod(0o700)
        done = run(TANDEM, "isal-env", "--to", made, "true", user="nobody")
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (3, 1), done.stderr)
        self.assertIn(f"cannot look for {made}/libisal.so.2: Permission denied", done.stderr)

    def test_files_of_others_are_left_alone(self):
        self.chained()
        folder = self.folder / "chained"
        ours = {path.name: os.readlink(path) for path in folder.iterdir()}
        self.assertEqual(sorted(ours), ["libisal-pyeclib.so.2", "libisal-real.so.2", "libisal.so.2"])

        def seen():
            return {path.name: (os.readlink(path) if path.is_symlink() else path.read_bytes()) for path in folder.iterdir()}

        strangers = {"libisal.so.2": ("file", "/lib/libisal.so.2.0.30"), "libisal-pyeclib.so.2": ("file", "libisal.so.2.0.30"),
                     "libisal-real.so.2": ("file",)}
        for name, kinds in strangers.items():
            for kind in kinds:
                for alone in (False, True):
                    for path in folder.iterdir():
                        if alone or path.name == name:
                            path.unlink()
                    stranger = folder / name
                    stranger.write_bytes(b"of others") if kind == "file" else stranger.symlink_to(kind)
                    before = seen()
                    for action in ("--install", "--uninstall"):
                        error = self.isal_env(action, "--to", folder, status=2).stderr
                        self.assertIn(f"{stranger} was not made by this command; --force", error)
                        self.assertEqual(seen(), before)
                    self.isal_env("--install", "--to", folder, "--force")
                    self.assertEqual(seen(), ours)
                    stranger.unlink()
                    stranger.write_bytes(b"of others")
                    self.isal_env("--uninstall", "--to", folder, "--force")
                    self.assertFalse(folder.exists())
                    self.isal_env("--install", "--to", folder)

    def test_refuses_what_is_no_libisal(self):
        _, ours = self.chained()
        real = pathlib.Path(self.status("--to", self.folder / "chained")["chained"]["real_library"])
        content = real.read_bytes()
        cut, wrong_class, text = (self.folder / name for name in ("cut", "class", "text"))
        text.write_text("not a library, but a text that is longer than the header of one. " * 10)
        cut.write_bytes(content[:100])
        wrong_class.write_bytes(content[:4] + bytes([content[4] ^ 3]) + content[5:])
        user = self.need_client("libisal_user.so", "apt-get install libisal-dev")
        libc = next(line.split()[-1] for line in open("/proc/self/maps") if "/libc.so.6" in line or "/libc-" in line)
        for path, status, sentence in [
                (text, 2, "invalid ELF header"), (cut, 2, "cannot be used"), (wrong_class, 2, "wrong ELF class"),
                (libc, 2, "has no isal_deflate"), (user, 2, "is not its own"), (ours, 2, "Tandem's own"),
                (self.status()["standalone"]["library"], 2, "Tandem's own"), (self.folder, 2, "cannot read file data"),
                ("/dev/zero", 2, "cannot be used"), (self.folder / "missing", 3, "does not exist")]:
            done = self.isal_env("--install", "--to", self.folder / "other", "--real", path, status=status)
            self.assertIn(sentence, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertFalse((self.folder / "other").exists())
        # Damaged anywhere: refused or, where the damage does no harm, taken; never a crash.
        broken = self.folder / "broken"
        headers = [content[64 + 56 * i:64 + 56 * (i + 1)] for i in range(content[56])]  # of a 64-bit ELF file
        dynamic = next(int.from_bytes(header[8:16], "little") for header in headers if header[0] == 2)
        ends = set()
        for step in [*range(0, 512, 8), *range(dynamic, dynamic + 320, 8)]:
            broken.write_bytes(content[:step] + b"\xff" * 8 + content[step + 8:])
            done = run(TANDEM, "isal-env", "--install", "--to", self.folder / "other", "--real", broken)
            self.assertIn(done.returncode, (0, 2), (step, done.stderr))
            ends.add("loading it ends a process with signal" in done.stderr)
        self.assertEqual(ends, {False, True})  # some of these crash the loader
        odd = self.folder / "a (b):c.so"
        shutil.copy(real, odd)
        self.isal_env("--install", "--to", self.folder / "other", "--real", odd)
        self.isal_env("--to", self.folder / "other", "true")


class Compiled(Case):
    """A C program compiled with Debian's headers and linked with -lisal."""

    def setUp(self):
        super().setUp()
        self.client = self.need_client("isal_client", "apt-get install libisal-dev")
        self.standalone = self.status()["standalone"]["library"]

    def test_same_output_whoever_serves(self):
        plain = self.ok(self.client)
        self.assertEqual(len(self.served_by(plain)), 1)
        self.assertNotIn("/tandem/", plain.stderr)
        recovered = re.findall(r"inverted 0 recovered (\d+) of (\d+)", plain.stdout)
        self.assertGreater(len(recovered), 60)
        self.assertTrue(all(int(back) == int(lost) > 0 for back, lost in recovered))
        chained, chained_library = self.chained()
        for options, library in [(("--standalone",), self.standalone), (("--standalone", "--preload"), self.standalone),
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
        self.assertEqual((ours.stdout, self.served_by(ours)), ("0c0c\n", {self.standalone}))  # 0x11 + 2 * 0x80

    def test_can_be_closed_and_opened_again(self):
        _, chained = self.chained()
        for library in (self.standalone, chained):
            self.assertEqual(self.ok(self.client, "reopen", library).stdout, "unloaded\n")
            self.assertEqual(self.ok(self.client, "namespaces", library).stdout, "40 of 40\n")

    def test_program_with_rpath(self):
        client = self.need_client("isal_rpath_client", "apt-get install libisal-dev")
        done = self.isal_env("--standalone", client)
        (real,) = self.served_by(done)
        self.assertNotIn("/tandem/", real)
        self.assertIn(f"note: {client} gets {real} by a DT_RPATH", done.stderr)
        self.assertIn("--preload", done.stderr)
        self.assertEqual(self.isal_env("--standalone", "isal_rpath_client", environment={
            "PATH": f"/nowhere:{CLIENTS}:{os.environ['PATH']}"}).stderr.count("DT_RPATH"), 1)
        ours = self.isal_env("--standalone", "--preload", client)
        self.assertNotIn("DT_RPATH", ours.stderr)
        self.assertEqual((self.served_by(ours), ours.stdout), ({self.standalone}, done.stdout))
        for without in (self.client, "true", "sh", HERE / "clients_test.py"):  # DT_RUNPATH, or none, or a script
            self.assertNotIn("note", run(TANDEM, "isal-env", "--standalone", without, "-c").stderr)


class Fragments(Case):
    """Not a test: what the two users of liberasurecode have in common. client() writes and reads folders of fragments."""

    def check(self, write_and_read, real, ours):
        """real, ours: (command before the client's, which library must be in memory, which must not)."""
        sides = {"real": real, "ours": ours}

        def go(side, work, folder, *more):
            prefix, expected, forbidden = sides[side]
            done = self.ok(*prefix, *write_and_read, work, folder, *more, environment=self.environment)
            served = self.served_by(done)
            self.assertTrue(any(expected in library for library in served), served)
            self.assertFalse(any(forbidden in library for library in served), served)
            return done.stdout

        folders = {}
        for name, side, more in [("real", "real", ()), ("ours", "ours", ()), ("ours-forked", "ours", ("fork",))]:
            folders[name] = self.folder / name
            folders[name].mkdir()
            cases = go(side, "write", folders[name], *more)
            self.assertGreaterEqual(int(cases.split()[0]), 40)
        files = {name: {file.name: file.read_bytes() for file in folder.iterdir()} for name, folder in folders.items()}
        self.assertGreater(len(files["real"]), 400)
        self.assertEqual(set(files["real"]), set(files["ours"]))
        for name in files["real"]:
            self.assertEqual(files["real"][name], files["ours"][name], name)  # byte for byte
        self.assertTrue(files["ours"] == files["ours-forked"])
        go("real", "read", folders["ours"])
        go("ours", "read", folders["real"])
        go("ours", "read", folders["real"], "fork")


class Liberasurecode(Fragments):
    environment = None

    def test_fragments_of_either_are_read_by_both(self):
        client = self.need_client("erasurecode_client", "apt-get install liberasurecode-dev libisal2")
        standalone = self.status()["standalone"]["library"]
        self.check([client], ((), "/libisal.so.2", "/tandem/"),
                   ((TANDEM, "isal-env", "--standalone"), standalone, "-linux-gnu/libisal"))


class Pyeclib(Fragments):
    def test_fragments_of_either_are_read_by_both(self):
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
        self.environment = {"PYTHONPATH": str(packages)}
        folder = os.path.dirname(self.status()["standalone"]["library"])
        self.check([sys.executable, HERE / "pyeclib_client.py"], ((), "/pyeclib.libs/libisal-pyeclib.so.2", "/tandem/"),
                   ((TANDEM, "isal-env", "--standalone"), f"{folder}/libisal", "/pyeclib.libs/"))


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

        source = self.folder / "source"
        source.write_bytes(b"content")
        done = self.isal_env("--standalone", self.igzip, "-k", source, status=127)
        self.assertIn("undefined symbol", done.stderr)
        self.assertEqual(list(self.folder.glob("source*")), [source])


if __name__ == "__main__":
    print(f"{TANDEM} in CI: a client that is missing is a failure" if REQUIRED else TANDEM, file=sys.stderr)
    result = unittest.TextTestRunner(verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromTestCase({c.__name__: c for c in (
            Command, Compiled, Liberasurecode, Pyeclib, Igzip)}[sys.argv[3]]))
    if result.skipped and result.wasSuccessful():
        print(f"NOT RUN: {len(result.skipped)} of {result.testsRun} tests")
    sys.exit(not result.wasSuccessful())
