#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--help, messages, manual pages and completion. Usage: help_cli_test.py PROGRAM LIBRARY_PAGE Help (of tandem) | Structure (of tandem-bench)"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

TANDEM = os.path.abspath(sys.argv.pop(1))
LIBRARY_PAGE = os.path.abspath(sys.argv.pop(1))
SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.basename(TANDEM)


def tandem(*arguments, **more):
    return subprocess.run([TANDEM, *map(str, arguments)], capture_output=True, timeout=120, **more)


def help_of(*command):
    return tandem(*command, "--help-all").stdout.decode()


def section(text, title):
    """The rows below "title:", as far as the next empty line: the first words of each row, and its text."""
    rows = []
    lines = text.split("\n" + title + ":\n", 1)[1].split("\n\n")[0].splitlines() if "\n" + title + ":\n" in text else []
    for line in lines:
        if re.match(r" {2,6}\S", line):
            rows.append(line)
        else:
            rows[-1] += " " + line.strip()
    return rows


def all_commands(command=()):
    yield command
    for row in section(help_of(*command), "Commands"):
        name = row.split()[0]
        if name != "help":
            yield from all_commands((*command, name))


COMMANDS = list(all_commands())


def options(command):
    """Names of all options that --help lists."""
    names = []
    for line in help_of(*command).splitlines():
        if match := re.match(r" {2,6}(-{1,2}[a-zA-Z][\w-]*(?:, --?[\w-]+)*)", line):
            names += match[1].split(", ")
    return names


class Structure(unittest.TestCase):
    """Of every program."""
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tandem-help-")
        self.addCleanup(shutil.rmtree, self.root, True)

    def test_help_fits_a_terminal(self):
        for command in COMMANDS:
            # Footers have lines that stand as they are.
            for part in help_of(*command).split("\n\n"):
                if part.startswith("Usage:") or re.match(r"(Arguments|Options|Expert|Raw shards|Commands):\n", part):
                    for line in part.splitlines():
                        if len(line) > 80:
                            self.assertEqual(len(line.split()), 1, (command, line))  # one long word

    def pages(self):
        if not shutil.which("help2man"):
            self.skipTest("help2man is not installed (apt-get install help2man)")
        subprocess.run([os.path.join(SOURCES, "cmake", "man-pages"), self.root, "1.2.3", TANDEM], check=True, timeout=120)
        return {name: os.path.join(self.root, name) for name in sorted(os.listdir(self.root))}

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_pages_have_every_command_and_option(self):
        pages = self.pages()
        self.assertEqual(set(pages), {"-".join((PROGRAM, *command)) + ".1" for command in COMMANDS})
        for command in COMMANDS:
            page = self.read(pages["-".join((PROGRAM, *command)) + ".1"]).replace("\\-", "-")
            names = options(command)
            self.assertGreater(len(names), 0, command)
            for name in names:
                self.assertIn(f"\\fB{name}\\fR", page, command)

    def test_pages_have_no_warnings(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed (apt-get install groff-base)")
        for path in (*self.pages().values(), LIBRARY_PAGE):
            done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", path], capture_output=True, timeout=120)
            self.assertEqual((done.returncode, done.stderr), (0, b""), path)
            self.assertGreater(len(done.stdout), 500, path)

    def bash(self, *words):
        """What bash offers for the last word."""
        function = "_" + PROGRAM.replace("-", "_")
        template = self.read(os.path.join(SOURCES, "packaging", "completion.bash.in"))
        script = (f"set -eu\n{template.replace('@program@', PROGRAM).replace('@function@', function)}\n"
                  f"COMP_WORDS=({' '.join(map(shlex.quote, (PROGRAM, *words)))}); COMP_CWORD={len(words)}; {function} {shlex.quote(TANDEM)}\n"
                  f"printf '%s\\n' \"${{COMPREPLY[@]-}}\"; complete -p {PROGRAM}")
        done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""), words)
        *offers, registered = done.stdout.decode().splitlines()
        self.assertIn(f"-F {function} {PROGRAM}", registered)
        return [offer for offer in offers if offer]

    def test_bash_offers_every_command_and_option(self):
        self.assertEqual(set(self.bash("")), {command[0] for command in COMMANDS if len(command) == 1} | {"help"})
        for command in COMMANDS:
            self.assertEqual(set(self.bash(*command, "-")), set(options(command)), command)


class Help(Structure):
    """Of the command tandem."""

    def refused(self, expected, *arguments):
        self.refused_as(2, expected, *arguments)

    def refused_as(self, status, expected, *arguments):
        done = tandem(*arguments)
        self.assertEqual(done.returncode, status, (arguments, done.stdout, done.stderr))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(expected, done.stderr.decode())

    def test_the_tree_of_commands(self):
        self.assertIn(("encode",), COMMANDS)
        self.assertIn(("durability",), COMMANDS)
        self.assertIn(("volume", "delay", "begin"), COMMANDS)

    def test_help_is_a_command(self):
        for command in COMMANDS:
            done = tandem("help", *command)
            self.assertEqual((done.returncode, done.stdout.decode()), (0, tandem(*command, "--help").stdout.decode()))
            self.assertTrue(done.stdout.startswith(f"Usage: {' '.join((PROGRAM, *command))}".encode()), done.stdout)
        self.refused('no command "encod"; did you mean encode?', "help", "encod")
        self.refused('has no command "creat"; did you mean create?', "help", "volume", "creat")

    def test_version(self):
        short, long = tandem("-V"), tandem("--version")
        self.assertEqual((short.returncode, short.stdout), (0, long.stdout))
        devices = json.loads(tandem("devices", "--json").stdout)
        text = long.stdout.decode()
        self.assertIn(f"{PROGRAM} {devices['version']}", text.splitlines()[0])
        self.assertRegex(text, r"\nbuild +(GCC|clang) .*\d")
        kernel = next(each["name"] for each in devices["kernels"] if each["available"])
        self.assertRegex(text, rf"\nkernel +{kernel}\n")
        self.assertRegex(text, r"\nbackends +" + ", ".join(re.escape(each["name"]) for each in devices["devices"]))
        for each in devices["missing"]:
            self.assertIn(f"no {each['backend']}: {each['reason']}", text)

    def test_did_you_mean(self):
        for expected, *arguments in (
            (f'{PROGRAM}: there is no command "encod"; did you mean encode?', "encod"),
            ('no command "ecnode"; did you mean encode?', "ecnode", "file", "-k", 4),
            ('no command "dura"; did you mean durability?', "dura"),
            ('volume has no command "crate"; did you mean create?', "volume", "crate"),
            ("encode has no option --matrx; did you mean --matrix?", "encode", "file", "--matrx", "raid6"),
            ("encode has no option --matrx; did you mean --matrix?", "encode", "file", "--matrx=raid6"),
            ("encode has no option --paritty; did you mean --parity?", "encode", "file", "-k", 4, "--paritty", 2, "-o", "x"),
            ("verify has no option --jsno; did you mean --json?", "verify", "folder", "--jsno"),
            ("did you mean pthread?", "encode", "file", "-k", 4, "-m", 2, "-o", "x", "--executor", "pthreads"),
            ("did you mean isal-cauchy?", "encode", "file", "-k", 4, "-m", 2, "-o", "x", "--matrix", "isal-cauchi"),
        ):
            self.refused(expected, *arguments)
        self.refused('there is no command "xyzzyxyzzy"; there are encode, decode', "xyzzyxyzzy")
        done = tandem("encode", "file", "--xyzzyxyzzy")
        self.assertIn(b"has no option --xyzzyxyzzy\n", done.stderr)
        self.refused(f'{PROGRAM}: unexpected argument "other"; usage: {PROGRAM} encode FILE -k N ', "encode", "file", "other", "-k", 4, "-m", 2, "-o", "x")

    def test_words_of_other_programs_get_the_command_line_that_does_it(self):
        source = os.path.join(self.root, "a.jpg")
        with open(source, "wb"):
            pass
        for expected, *arguments in (
            ("par2 sync photos", "sync", "photos"),
            ("par2 sync 'my photos'", "sync", "my photos", "--dry-run"),
            ("par2 sync FOLDER", "protect", "-r", 10, "photos"),
            ("par2 sync FOLDER", "help", "backup"),
            ("par2 scrub photos", "scrub", "photos"),
            (f"encode {source} -k 4 -m 2 -o FOLDER", "backup", source),
            ("--version", "version"),
        ):
            self.refused(f'; did you mean `{PROGRAM} {expected}`?', *arguments)
        for flag in ("-r", "-r10", "--redundancy"):
            self.refused("encode has no option " + flag + "; did you mean -k 10 -m 1, which adds 10%?", "encode", "file", flag, 10)
        self.refused('volume has no command "sync"; there are create', "volume", "sync")

    def test_a_folder_with_par2_sets_gets_the_command_for_it(self):
        tree, single, none = (os.path.join(self.root, name) for name in ("photos", "my set", "none"))
        for folder in (tree, single, none):
            os.mkdir(folder)
        for folder in (tree, single):
            with open(os.path.join(folder, "a.jpg"), "wb") as file:
                file.write(bytes(5000))
        self.assertEqual(tandem("par2", "sync", tree).returncode, 0)
        self.assertEqual(tandem("par2", "create", os.path.join(single, "set"), os.path.join(single, "a.jpg")).returncode, 0)
        for folder, scrub, command in ((tree, f"par2 scrub {tree}", "verify"), (tree, f"par2 scrub --repair {tree}", "repair"),
                                       (single, f"par2 verify '{single}/set.par2'", "verify"), (single, f"par2 repair '{single}/set.par2'", "repair"),
                                       (none, f"par2 scrub {none}", "verify")):
            self.refused_as(3, f"{folder} is a folder, and SET is a file; `{PROGRAM} {scrub}` {'checks' if command == 'verify' else 'repairs'} its sets",
                            "par2", command, folder)
        for command in ("verify", "info"):
            done = tandem(command, tree)
            self.assertEqual((done.returncode, done.stderr.decode().splitlines()[0]),
                             (3, f"{PROGRAM}: note: {tree} has PAR2 sets: `{PROGRAM} par2 scrub {tree}` checks them"))
            self.assertNotIn(b"ignored", done.stderr)
        os.mkdir(beside := tree + "-2")
        with open(os.path.join(beside, "a.000.tandem"), "w"):
            pass
        self.assertIn(f"ignored {beside}/a.000.tandem".encode(), tandem("verify", tree, beside).stderr)
        self.assertIn(f"`{PROGRAM} par2 verify '{single}/set.par2'` checks them", tandem("verify", single).stderr.decode())
        self.assertEqual(tandem("par2", "create", os.path.join(single, "two"), os.path.join(single, "a.jpg")).returncode, 0)
        self.refused_as(3, f"`{PROGRAM} par2 scrub '{single}'` checks its sets", "par2", "verify", single)
        self.assertIn(b"2 sets", tandem("par2", "scrub", single).stdout)
        os.rename(single, single := os.path.join(self.root, "set"))  # beside set.par2, SET is that file
        with open(single + ".par2", "w"):
            pass
        self.refused_as(4, "no file has an intact main packet", "par2", "verify", single)

    def test_the_help_of_encode_is_short_and_has_an_example_that_works(self):
        text = tandem("encode", "--help").stdout.decode()
        self.assertLessEqual(len(text.splitlines()), 35)
        example = next(line for line in text.splitlines() if line.startswith(f"  {PROGRAM} encode "))
        with open(os.path.join(self.root, "video.mp4"), "wb") as file:
            file.write(bytes(1000))
        self.assertEqual(subprocess.run([TANDEM, *shlex.split(example)[1:]], cwd=self.root, capture_output=True).returncode, 0)
        self.assertEqual(len(os.listdir(os.path.join(self.root, "shards"))), 14)

    def test_messages_for_wrong_arguments(self):
        encode = ("encode", "file", "-k", 4, "-m", 2, "-o", "x")
        for expected, *arguments in (
            (f"a command is required, such as `{PROGRAM} encode FILE -k 4 -m 2 -o FOLDER`; see {PROGRAM} --help",),
            (f"a command is required; see {PROGRAM} volume --help", "volume"),
            (f"FILE is required; see {PROGRAM} encode --help", "encode"),
            (f"--data is required; see {PROGRAM} encode --help", "encode", "file", "-m", 2, "-o", "x"),
            ("--matrix needs a value", *encode, "--matrix"),
            ("--name was given 2 times", *encode, "--name", "a", "--name", "b"),
            ("--data: ten is not a", "encode", "file", "-k", "ten", "-m", 2, "-o", "x"),
            ("--groups works only with --locate", "verify", "folder", "--groups", 2),
            ("--set excludes --locate", "verify", "a", "b", "c", "--locate", "-k", 2, "-m", 1, "--set", "12"),
            ("--redundancy: 10 is not a percentage: write it as 10%", "par2", "sync", "x", "-r", 10),
            ("--redundancy: 10x is not a percentage: write it as 1.5%", "par2", "sync", "x", "-r", "10x"),
            ('"fast" is none of serial, pthread, openmp', *encode, "--executor", "fast"),
        ):
            self.refused(expected, *arguments)

    def test_texts_have_the_name_of_the_program(self):
        source, shards = os.path.join(self.root, "source"), os.path.join(self.root, "shards")
        with open(source, "wb") as file:
            file.write(bytes(100_000))
        self.assertEqual(tandem("encode", source, "-k", 4, "-m", 2, "--block-bytes", 4096, "-o", shards).returncode, 0)
        lost = [os.path.join(shards, f"source.{index:03}.tandem") for index in range(3)]
        with open(lost[1], "r+b") as file:
            file.seek(3 * 4096)
            file.write(b"damage")
        os.remove(lost[0])
        for expected, status, *arguments in (
            ("`{} repair` can mend all of it", 1, "verify", shards),
            ("`{} verify` lists the damage", 0, "decode", shards, "-o", os.path.join(self.root, "copy")),
            ("see `{} durability --help`", 0, "durability", "-k", 4, "-m", 2, "--afr", "1.5%", "--rebuild", "24h"),
            ("a name that `{} devices` lists", 0, "encode", "--help"),
        ):
            done = tandem(*arguments)
            text = " ".join((done.stdout + done.stderr).decode().split())
            self.assertEqual(done.returncode, status, text)
            self.assertIn(expected.format(PROGRAM), text)
        for path in lost[1:]:
            os.remove(path)
        self.refused_as(4, f"`{PROGRAM} decode --salvage` writes", "decode", shards, "-o", os.path.join(self.root, "other"))

    def test_matrices_are_listed(self):
        known = re.search(rb"known: (.*)", tandem("encode", "f", "-k", 2, "-m", 1, "-o", "x", "--matrix", "xyzzyxyzzy").stderr)
        names = known[1].decode().split(", ")
        self.assertGreaterEqual(len(names), 20)
        groups = {"lrc-azure", "liberasurecode-isal-lrc"}
        wide = {"leopard16", "reed-solomon-simd", "par2", "liberasurecode-rs-vand"}  # over GF(2^16): locate refuses them
        for command, missing in ((("encode",), groups), (("verify",), wide), (("volume", "create"), groups)):
            row = next(row for title in ("Options", "Raw shards", "Expert") for row in section(help_of(*command), title) if row.split()[0] == "--matrix")
            listed = re.search(r"one of: ([^;)]*)|\(of: ([^;)]*)", row)
            found = (listed[1] or listed[2]).split(", ")
            self.assertEqual(found, [name for name in names if name in found])
            self.assertEqual(set(names) - set(found), missing)

    def test_expert_options_have_a_group(self):
        for command in COMMANDS:
            text = help_of(*command)
            expert, usual = " ".join(section(text, "Expert")), " ".join(section(text, "Options"))
            for name in ("--executor", "--technique", "--policy", "--no-sync", "--lock-wait", "--allow-non-mds", "--log "):
                self.assertNotIn(name, usual, command)
                if name in text and command and command[0] in ("encode", "decode", "repair"):
                    self.assertIn(name, expert, command)
        self.assertIn("--backend", " ".join(section(help_of("encode"), "Options")))

    def test_help_names_the_help_that_has_the_options_for_experts(self):
        for command in COMMANDS:
            usual, all_of_it = tandem(*command, "--help").stdout.decode(), help_of(*command)
            self.assertNotIn("\nExpert:", usual)
            self.assertEqual(" --help-all\n" in usual, "\nExpert:" in all_of_it, command)
            self.assertEqual(section(usual, "Options"), section(all_of_it, "Options"))
        for command in ("create", "sync"):  # PAR2 sets are coded on the CPU alone
            self.assertNotIn("--policy", help_of("par2", command))

    # ---- manual pages ----

    def test_variables_are_those_of_the_document(self):
        table = self.read(os.path.join(SOURCES, "docs", "environment.md")).split("Read by contexts of")[0]
        variables = set(re.findall(r"^\| `(TANDEM_\w+)` \|", table, re.MULTILINE))
        self.assertGreaterEqual(len(variables), 8)
        text = re.search(r"\.SH ENVIRONMENT\n(.*)\n", self.read(LIBRARY_PAGE))[1]
        self.assertEqual(set(re.findall(r"TANDEM_[A-Z]+\b", text)), variables)

    def test_every_function_is_on_the_librarys_page(self):
        page = self.read(LIBRARY_PAGE)
        folder = os.path.join(SOURCES, "include", "tandem")
        names = set()
        for header in os.listdir(folder):
            if header.endswith(".h"):
                text = re.sub(r"/\*.*?\*/", "", self.read(os.path.join(folder, header)), flags=re.DOTALL)
                names |= set(re.findall(r"^TANDEM_API[^;]*?\b(tandem_\w+)\(", text, re.MULTILINE))
        self.assertGreater(len(names), 80)
        self.assertEqual(set(re.findall(r"\\fB(tandem_\w+)\\fR\(\),?$", page.split(".SH FUNCTIONS")[1], re.MULTILINE)), names)

    # ---- completion ----

    def test_bash_completes(self):
        self.assertEqual(self.bash("enc"), ["encode"])
        self.assertEqual(set(self.bash("volume", "delay", "")), {"begin", "end", "list"})
        self.assertEqual(self.bash("encode", "--exec"), ["--executor"])
        self.assertEqual(self.bash("encode", "file", "--executor", "p"), ["pthread"])
        self.assertEqual(self.bash("encode", "file", "--executor", "=", "p"), ["pthread"])  # bash splits at =
        self.assertEqual(set(self.bash("encode", "--executor", "=")), {"serial", "pthread", "openmp"})
        self.assertEqual(self.bash("encode", "--backend", "cuda", ":", "0", "--forc"), ["--force"])  # and at :
        self.assertIn("isal-cauchy", self.bash("encode", "--matrix", "isal"))
        self.assertEqual(self.bash("encode", "-o", "vol"), [])  # names of files are bash's own to complete
        self.assertEqual(self.bash("encode", "file", "-o", "volume", "--forc"), ["--force"])
        self.assertEqual(self.bash("help", "vol"), ["volume"])
        self.assertEqual(self.bash("help", "volume", "cr"), ["create"])


if __name__ == "__main__":
    unittest.main()
