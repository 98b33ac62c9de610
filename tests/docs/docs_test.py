#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ against the command. Usage: docs_test.py PATH_OF_TANDEM PATH_OF_TANDEM_BENCH [unittest arguments]

Every block ```sh of the pages in RUN is run, all blocks of a page as one script in an empty folder. It must print the blocks ```text
of the page. docs/json.md must have every key that --json prints, docs/troubleshooting.md only messages that the sources have, and docs/pictures what bench/draw_pictures.py draws. Lists of names that stand in several places must be whole in each."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TANDEM, BENCH = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
# Page: exit statuses that it shows with `|| echo "exit status $?"`.
RUN = {"README.md": [], "docs/index.md": [], "docs/tutorial.md": [1, 1, 4, 4, 1], "docs/which-k-and-m.md": []}


def blocks_of(page):
    """(line, text) of each block ```sh."""
    text = (ROOT / page).read_text()
    return [(text.count("\n", 0, found.start()) + 2, found.group(1))
            for found in re.finditer(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


class InEmptyFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tandem-docs-")
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        self.folder, programs = root / "work", root / "bin"
        self.folder.mkdir()
        programs.mkdir()
        (programs / "tandem").symlink_to(TANDEM)
        (programs / "tandem-bench").symlink_to(BENCH)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
        self.environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(root), "TANDEM_TUNING": ""}

    def run_script(self, script):
        return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, env=self.environment, timeout=300,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def tandem(self, *arguments, statuses=(0,), program="tandem"):
        done = subprocess.run([program, *map(str, arguments)], cwd=self.folder, env=self.environment, timeout=300,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertIn(done.returncode, statuses, f"{arguments}: {done.stderr}")
        return done.stdout


class Commands(InEmptyFolder):
    def check(self, page):
        blocks = blocks_of(page)
        self.assertTrue(blocks, f"{page} has no block of commands")
        script = "".join(f"echo '== {page}, line {line}'\n{text}" for line, text in blocks)
        done = self.run_script(script)
        self.assertEqual(done.returncode, 0, f"the last command of this failed:\n{done.stdout}")
        self.assertEqual([int(status) for status in re.findall(r"^exit status (\d+)$", done.stdout, re.MULTILINE)], RUN[page], done.stdout)
        # Blocks ```text are parts of what the commands print. Ids differ, and totals end with bytes and seconds.
        printed, shown = (re.sub(r"\b[0-9a-f]{32}\b", "ID", text) for text in (done.stdout, (ROOT / page).read_text()))
        printed = re.sub(r", [0-9.]+ [kM]?B read in .*", "", printed)
        for text in re.findall(r"^```text\n(.*?)^```$", shown, re.MULTILINE | re.DOTALL):
            self.assertIn(text, printed)

    def test_readme_and_which_k_and_m(self):
        self.check("README.md")
        self.check("docs/which-k-and-m.md")

    def test_front_page(self):
        (self.folder / "video.mp4").write_bytes(os.urandom(1 << 20))
        self.check("docs/index.md")

    def test_tutorial(self):
        self.check("docs/tutorial.md")

    def test_no_other_page_has_commands_that_are_not_run(self):
        self.assertEqual({page for page in ("README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))) if blocks_of(page)}, set(RUN))


class Flags(unittest.TestCase):
    PROGRAMS = {"tandem": TANDEM, "tandem-bench": BENCH}
    CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
    CALL = re.compile(r"(?:^|[`\s(;|])(?<!mail -s )(tandem(?:-bench)?) ([^`\n#|&;>()]+)", re.MULTILINE)

    def setUp(self):
        self.helps = {}

    def help_of(self, *words):
        if words not in self.helps:
            self.helps[words] = subprocess.run([self.PROGRAMS[words[0]], *words[1:], "--help-all"], capture_output=True, text=True).stdout
        return self.helps[words]

    def is_word(self, word, text):
        return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)

    def test_commands_and_flags_of_the_pages_exist(self):
        wrong, calls = [], 0
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            for program, rest in self.CALL.findall("\n".join(self.CODE.findall(page.read_text()))):
                words, tokens = (program,), rest.split()
                while tokens and re.fullmatch(r"[a-z][a-z0-9-]*", tokens[0]) and re.search(rf"^  {tokens[0]} ", self.help_of(*words), re.MULTILINE):
                    words += (tokens.pop(0),)
                if len(words) == 1 and re.match("[a-z]", rest):
                    wrong.append(f"{page.name}: no command: {program} {rest}")
                if words[-1] == "isal-env" and tokens and not tokens[0].startswith("-"):
                    continue  # the flags of another program
                for flag in (token.split("=")[0].strip(",'\"") for token in tokens if re.match(r"--?[a-z]", token)):
                    if not self.is_word(flag, self.help_of(*words)):
                        wrong.append(f"{page.name}: no {flag} of {' '.join(words)}")
                calls += 1
        self.assertEqual(wrong, [])
        self.assertGreater(calls, 100)


class Json(InEmptyFolder):
    FREE = {"devices", "values"}  # their own keys are names

    def keys_of(self, value):
        if isinstance(value, list):
            return set().union(*map(self.keys_of, value))
        if not isinstance(value, dict):
            return set()
        own = set(value)
        for name, inner in value.items():
            own |= set().union(*map(self.keys_of, inner.values())) if name in self.FREE and isinstance(inner, dict) \
                else self.keys_of(inner)
        return own

    def test_every_key_is_described(self):
        (self.folder / "file").write_bytes(bytes(range(256)) * 4000)
        shard = self.folder / "set/file.002.tandem"
        printed = []

        def run(*arguments, statuses=(0,), program="tandem"):
            printed.append(((program, *arguments), self.tandem(*arguments, "--json", statuses=statuses, program=program)))

        def bench(*arguments):
            run(*arguments, program="tandem-bench")

        run("encode", "file", "-k", 4, "-m", 2, "-o", "set", "--block-bytes", 4096)
        run("info", "set")
        run("verify", "set")
        run("resize", "set", "-m", 3)
        run("resize", "set", "-m", 2)
        damaged = bytearray(shard.read_bytes())
        damaged[0:10] = damaged[20000:20010] = b"0123456789"
        shard.write_bytes(damaged)
        (self.folder / "set/file.000.tandem").unlink()
        (self.folder / "set/file.003.tandem").rename(self.folder / "set/file.000.tandem")
        run("verify", "set", statuses=(1,))
        run("repair", "set", "--dry-run", statuses=(1,))
        run("decode", "set", "-o", "copy")
        run("repair", "set", "-o", "more")
        run("encode", "file", "-k", 3, "-m", 1, "-o", "set", "--name", "other")
        (self.folder / "set/other.000.tandem").unlink()
        run("verify", "-r", "set", "more", statuses=(1,))
        for i in (1, 2):
            (self.folder / f"set/other.00{i}.tandem").unlink()
        run("repair", "-r", "set", "more", statuses=(4,))
        run("decode", "set/other.003.tandem", "-o", "rest", "--salvage", statuses=(4,))
        run("verify", "nothing", statuses=(3,))
        run("encode", "file", "-k", 3, statuses=(2,))
        run("encode", "set", "-k", 3, "-m", 1, "-o", "more", statuses=(3,))
        run("durability", "-k", 10, "-m", 4, "--afr", "1.5%", "--rebuild", "24h")
        run("durability", "-k", 4, "-m", 2, "--afr", "1.5%", "--rebuild", "24h", "--batch", "0.1%", "--batch-share", "20%", "--unreadable", "1e-15",
            "--disk-size", "20TB", "--site", "0.01%")
        run("durability", "-k", 200, "-m", 255, "--afr", "0.1%", "--rebuild", "1h")
        run("devices")
        bench("kernels", "-k", 10, "-m", 4)
        bench("techniques", "scalar", "-k", 64, "-m", 16)
        bench("simulate", "--worker", "cpu:2x1", "--worker", "gpu:1x4:latency=1ms", "--work", "64MiB")
        bench("simulate", "storage", "--servers", 8, "--clients", 147, "--device", "hdd,ssd", "--parity", 1, "--seconds", 1)
        raw = [self.folder / f"raw.{i}" for i in range(6)]
        for i, path in enumerate(raw):
            path.write_bytes(bytes([i if i == 3 else 0]) * 1000)  # parity of zeros is zeros: shard 3 is damaged
        run("verify", "--locate", "-k", 3, "-m", 3, *raw, statuses=(1,))
        run("autotune", "--show", statuses=(0, 2, 3))
        if subprocess.run(["tandem", "par2", "--help-all"], env=self.environment, capture_output=True).returncode == 0:
            run("par2", "create", "recovery", "file")
            run("par2", "verify", "recovery")
            (self.folder / "file").rename(self.folder / "moved")
            run("par2", "verify", "recovery", "moved", statuses=(1,))
            run("par2", "create", "recovery", "moved", statuses=(3,))
            run("par2", "repair", "recovery", "moved")
            tree = self.folder / "tree"
            tree.mkdir()
            (tree / "old").write_bytes(bytes(5000))
            os.utime(tree / "old", (1, 1))
            run("par2", "sync", "tree")
            run("par2", "scrub", "tree")
            (tree / "old").write_bytes(b"1" * 5000)
            os.utime(tree / "old", (1, 1))
            (tree / "new").touch()
            run("par2", "sync", "tree", statuses=(1, 4))
            run("par2", "scrub", "tree", statuses=(1, 4))
            (tree / ".tandem.par2").write_bytes(b"")
            run("par2", "scrub", "tree", statuses=(4,))
        if subprocess.run(["tandem", "volume", "--help-all"], env=self.environment, capture_output=True).returncode == 0:
            members = [self.folder / f"member{i}" for i in range(3)]
            run("volume", "create", *members, "-k", 2, "-m", 1, "--member-bytes", "4M")
            for command in (["info"], ["scrub"], ["delay", "list"], ["delay", "begin"], ["delay", "end"]):
                run("volume", *command, *members)
            run("volume", "create", *members, "-k", 2, "-m", 1, "--member-bytes", "4M", statuses=(2, 3))

        page = (ROOT / "docs/json.md").read_text()
        described = set(re.findall(r"`([a-z_0-9]+)`", page))
        for arguments, text in printed:
            call = f"{' '.join(map(str, arguments))} --json"
            value = json.loads(text)  # there is one object, on failure too
            self.assertEqual(value.get("schema"), 1, call)
            self.assertIn("command", value, call)
            self.assertEqual(sorted(self.keys_of(value) - described), [], call)


class Messages(unittest.TestCase):
    # What stands for a number, a name or other text in a message of the page.
    PLACE = re.compile(r"\.\.\.|\b(?:N|DIR|FILE|NAME|ID|OPTIONS?)\b")

    def test_every_message_is_of_the_sources(self):
        literals = []
        for folder in ("api", "base", "cli", "core", "cpu", "device", "files"):
            for path in sorted((ROOT / folder).rglob("*.cpp")):
                joined = re.sub(r"\"\s*\n\s*\"", "", path.read_text())  # a literal over several lines
                joined = re.sub(r"\",\s*[^\"]*\? \"\" : \"s\",\s*\"", "s", joined)  # a plural between two literals
                literals += [text.replace('\\"', '"') for text in re.findall(r"\"((?:[^\"\\\n]|\\.)*)\"", joined)]
        sources = re.sub(r"(\w)\{\}", r"\1s", "\n".join(literals))  # the "s" of a plural
        rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
        self.assertGreater(len(rows), 20)
        for row in rows:
            parts = [part.strip(' "') for part in self.PLACE.split(row)]
            parts = [part for part in parts if len(part) >= 8]
            self.assertTrue(parts, row)
            for part in parts:
                self.assertTrue(part in sources, f"no message of the sources has \"{part}\" of: {row}")


def names_in(sources, pattern):
    """What the pattern's group finds in these sources, in their order, without repetitions."""
    found = [name for glob in sources.split() for path in sorted(ROOT.glob(glob)) for name in re.findall(pattern, path.read_text())]
    return list(dict.fromkeys(found))


class Lists(unittest.TestCase):
    """A list of names that stands in several places is whole in each. The key says what, and from where the names come."""
    LISTS = {
        "statuses": (("include/tandem/tandem.h", r"^  (TANDEM_ERROR_\w+) = \d+"),
                     ["api/status.cpp", "tests/api/c_header_test.c"]),
        "numbers of matrices": (("include/tandem/tandem.h", r"^  (TANDEM_MATRIX_\w+) = \d+"), ["tests/api/c_header_test.c"]),
        "exit statuses": (("cli/commands.hpp", r"^  kExit\w+ = (\d+)"), ["cli/program.cpp"]),
        "numbers of statuses": (("include/tandem/tandem.h", r"^  TANDEM_ERROR_\w+ = (\d+)"), ["python/tandem_ec/errors.py"]),
        "classes of errors in Python": (("python/tandem_ec/errors.py", r"^class (\w+)\((?!Exception)"), ["docs/python.md"]),
        "matrices": (("core/presets.cpp", r"TANDEM_MATRIX_\w+,\s*(?:\.name = )?\"([\w-]+)\""), ["docs/matrices.md"]),
        "CPU kernels": (("cpu/kernels/*.cpp cpu/kernels/*.inc", r"^constinit const Kernel kKernel\w+ =\s+entry\(\"([\w-]+)\""), ["tests/CMakeLists.txt", "cpu/costs.cpp"]),
        "backends": (("api/backends.cpp", r"\{\.name = \"(\w+)\""),
                     ["include/tandem/tandem.h", "docs/environment.md"]),
        "keys of the JSON of tandem-bench run": (("bench/report.cpp", r"(?:\{|json\[)\"(\w+)\"(?:,|\])"), ["bench/README.md"]),
        "modules": (("cmake/*.cmake", r"tandem_package\((\w+) [^)]*the (?:executor|backend) "),
                    ["cmake/TandemInstall.cmake"]),
        "files of modules": (("cpu/executors/*.cpp gpu/*.cpp opencl/*.cpp", r"\"(libtandem_\w+\.so)\""),
                             ["scripts/check-exports", "docs/internals/ARCHITECTURE.md"]),
        "resources": (("core/budget.cpp", r"Resource\(\"(\w+)\"\)"), ["include/tandem/tools.h", "docs/environment.md", "docs/hybrid.md"]),
        "environment variables": (("api/*.cpp base/*.cpp cpu/*.cpp device/*.cpp files/*.cpp isal/*.cpp tuning/*.cpp cli/*.cpp",
                                   r"(?:getenv\([^;]*?|environment\(|&Texts::\w+, )\"(TANDEM_\w+)\""), ["docs/environment.md"]),
        "variables and keys of contexts": (("api/options.cpp", r"(?:environment\(|&Texts::\w+, |^    \{(?=.*nullptr, nullptr))\"(\w+)\""),
                                           ["docs/environment.md", "include/tandem/tandem.h"]),
    }

    def test_each_list_is_whole(self):
        for what, ((sources, pattern), pages) in self.LISTS.items():
            names = names_in(sources, re.compile(pattern, re.MULTILINE))
            self.assertGreater(len(names), 2, what)
            for page in pages:
                text = (ROOT / page).read_text()
                self.assertEqual([name for name in names if not re.search(rf"(?<![\w-]){name}(?![\w-])", text)], [], f"{what} not in {page}")


    def test_enumerations_are_pinned(self):
        enumerations = names_in("include/tandem/*.h", re.compile(r"^enum (\w+ \{.*?\});", re.MULTILINE | re.DOTALL))
        self.assertGreater(len(enumerations), 10)
        for each in enumerations:
            self.assertRegex(re.sub(r"/\*.*?\*/", "", each, flags=re.DOTALL), r"\A\w+_value \{(\s*TANDEM_\w+ = \d+,?)+\s*\}\Z")

    def test_each_struct_with_a_size_starts_with_it(self):
        bodies = names_in("include/tandem/*.h", re.compile(r"^typedef (struct tandem_\w+ \{.*?^\})", re.MULTILINE | re.DOTALL))
        self.assertGreater(len(bodies), 30)
        for body in bodies:
            if re.search(r"\bsize_t struct_bytes\b", body):
                self.assertRegex(body, r"\A[^{]*\{\s*(/\*.*?\*/\s*)?size_t struct_bytes;")

    def test_options_of_contexts_are_documented_and_have_flags(self):
        source = (ROOT / "api/options.cpp").read_text()
        words = {name: re.findall(r"\"(\w+)\"", text) for name, text in re.findall(r"\*(k\w+)\[\] = \{([^}]*)\}", source)}
        rows = re.findall(r"^    \{\"(\w+)\", [\w |]+, &Texts::\w+, (?:\"(TANDEM_\w+)\"|nullptr, nullptr, (k\w+))", source, re.MULTILINE)
        self.assertEqual(len(rows), source.count("&Texts::"))
        page = (ROOT / "docs/environment.md").read_text().splitlines()
        shown = subprocess.run([TANDEM, "encode", "--help-all"], capture_output=True, text=True).stdout
        for name, variable, values in rows:
            (line,) = [line for line in page if line.startswith(f"| `{variable or name}` |")]
            self.assertIn(f"`{name}`", line)
            if values:
                cells = line.split(" | ")
                self.assertEqual(re.findall(r"`(\w+)`", cells[1]), words[values], name)
                (flag,) = re.findall(r"`(--[\w-]+)`", cells[-1])
                help_text = " ".join(shown[shown.index(f" {flag} "):].split()[:60])
                self.assertTrue(words[values] == ["0", "1"] or f"(one of: {', '.join(words[values])})" in help_text, help_text)

    def test_each_kind_of_device_passes_the_conformance_suite(self):
        for backend in names_in("api/backends.cpp", re.compile(r"\{\.name = \"(\w+)\"")):
            text = (ROOT / f"tests/conformance/conformance_{backend}_test.cpp").read_text()
            self.assertIn("INSTANTIATE_TEST_SUITE_P", text)

    def test_each_option_is_read(self):
        folders = ("api", "core", "files", "mpi", "par2", "tuning", "volume")
        sources = "\n".join(path.read_text() for folder in folders for path in (ROOT / folder).glob("*.?pp"))
        bodies = names_in("include/tandem/*.h", re.compile(r"^typedef struct tandem_\w+_(?:options|arguments) \{(.*?)^\}", re.MULTILINE | re.DOTALL))
        self.assertGreater(len(bodies), 15)
        for body in bodies:
            for field in re.findall(r"(\w+)(?:\[\w+\])?(?=\s*[,;])", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)):
                is_known = field in ("reserved", "reserved2")  # base::read_options refuses them
                self.assertTrue(is_known or re.search(rf"(\.|->|::){field}\b", sources), f"{field} is not read")

    # Options of each rank; those that ranks may not give; counts, which are compared with their lists.
    NOT_EQUAL = {"struct_bytes", "reserved", "reserved2", "files", "file_count", "folder", "restored", "restored_user",
                 "progress", "progress_user", "note", "note_user", "report", "report_user", "thread_count", "lock_wait_seconds",
                 "rate_bytes_per_second", "team", "source_descriptor", "output_descriptor", "salvage", "hole", "hole_user",
                 "folder_count", "new_folder_count"}

    def test_options_are_equal_on_all_ranks(self):
        sets = (ROOT / "mpi/sets.cpp").read_text()
        common = re.search(r"^void run_on_set\(.*?^\}", sets, re.MULTILINE | re.DOTALL).group(0)
        for call in ("mpi_protect", "mpi_recover", "files_encode", "files_decode", "files_verify", "files_repair"):
            header, name = call.split("_")
            (body,) = names_in(f"include/tandem/{header}.h", re.compile(rf"^typedef struct tandem_{call}_options \{{(.*?)^\}}", re.MULTILINE | re.DOTALL))
            fields = set(re.findall(r"(\w+)(?=\s*[,;])", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)))
            if header == "mpi":
                compared = re.search(r"require_equal\(\{(.*?)\}\);", (ROOT / f"mpi/{name}.cpp").read_text(), re.DOTALL).group(1)
            else:
                compared = common + re.search(rf"^\w+ {name}\(const World.*?^\}}", sets, re.MULTILINE | re.DOTALL).group(0)
            self.assertEqual(fields - self.NOT_EQUAL - set(re.findall(r"\{\"(\w+)\"", compared)), set(), call)

    def test_flags_of_the_command_are_used_and_decimal(self):
        sources = "\n".join(path.read_text() for folder in ("cli", "bench") for path in (ROOT / folder).glob("*.?pp"))
        groups = re.findall(r"^struct (\w*Flags)\b[^{;]*\{(.*?)^\};", sources, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(groups), 12)
        for name, body in groups:
            declarations = re.findall(r"^  ([\w:<>]+) ([^;()]*);", re.sub(r"//.*", "", body), re.MULTILINE)
            for kind, names in declarations:
                # CLI11 reads other integers as C does: 010 is 8.
                self.assertNotRegex(kind, r"^(int|long|unsigned|std::(size_t|u?int(8|16)_t|int\d+_t))$", name)
                for field in re.findall(r"(\w+)(?: = [^,]*)?(?:,|$)", names):
                    uses = re.findall(rf"(?:\.|->|::){field}\b", sources)
                    self.assertGreater(len(uses), 1, f"{name}::{field} is parsed and not used")

    def test_comments_of_groups_of_flags_list_them(self):
        header, source = ((ROOT / f"cli/{name}").read_text() for name in ("commands.hpp", "common.cpp"))
        groups = re.findall(r"((?:^//.*\n)+)struct (\w+Flags) \{", header, re.MULTILINE)
        self.assertEqual(len(groups), 4)
        for comment, name in groups:
            added = re.search(rf"^void add_\w+\(CLI::App &command, {name} &flags.*?^\}}", source, re.MULTILINE | re.DOTALL).group(0)
            self.assertEqual(set(re.findall(r"--[a-z-]+", comment)), set(re.findall(r"[\",](--[a-z-]+)", added)), name)

    # Fields that only some reports have.
    IN_NO_TABLE = {"tandem_files_result": {"any_k_suffice", "hole_bytes"}, "tandem_files_set": {"file_count"}}

    def test_each_field_of_a_result_is_in_its_table(self):
        tables = (ROOT / "include/tandem/results.hpp").read_text().split("constexpr auto table(const ")[1:]
        self.assertGreater(len(tables), 3)
        for table in tables:
            struct, rows = table.split(" &")[0], set(re.findall(r"&Of::(\w+)", table))
            (body,) = names_in("include/tandem/files.h", re.compile(rf"^typedef struct {struct} \{{(.*?)^\}}", re.MULTILINE | re.DOTALL))
            body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
            fields = {name for names in re.findall(r"^\s*\w+ ([\w, \[\]]+);", body, re.MULTILINE) for name in re.findall(r"[a-z]\w*", names)}
            self.assertEqual(fields - {"struct_bytes", "reserved"} - self.IN_NO_TABLE.get(struct, set()), rows, struct)


class Pictures(unittest.TestCase):
    def test_pictures_and_tables_are_what_the_script_makes(self):
        with tempfile.TemporaryDirectory(prefix="tandem-pictures-") as folder:
            done = subprocess.run([sys.executable, ROOT / "bench/draw_pictures.py", TANDEM, "-o", folder], capture_output=True, text=True,
                                  timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            made = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
            self.assertGreaterEqual(len(made), 5)
            for path in made:
                name = path.relative_to(folder)
                self.assertEqual(path.read_bytes(), (ROOT / name).read_bytes(), f"{name} is not up to date: bench/draw_pictures.py build/bin/tandem")


if __name__ == "__main__":
    unittest.main()
