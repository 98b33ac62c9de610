#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program `par2`: exit statuses, files, and the lines that SABnzbd reads. Usage: par2_personality_test.py PATH_OF_TANDEM"""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "par2"))
from reference import Set, packet, par1_entry, par1_set, par1_volume  # noqa: E402

TANDEM = os.path.abspath(sys.argv.pop(1))
FILES = {"a": 10000, "b [1]": 5000, "sub/c": 3000, "empty": 0}


class Sabnzbd:
    """What SABnzbd's newsunpack.py concludes from the lines of `par2 r`."""

    TARGET = re.compile(r'^(?:File|Target): "(.+)" -')
    BLOCKS = re.compile(r'File: "([^"]+)" - found \d+ of \d+ data blocks from "([^"]+)"')
    MATCH = re.compile(r'File: "([^"]+)" - is a match for "([^"]+)"')

    def __init__(self, output):
        self.finished = self.failed = self.bad_options = self.other_packet_file = False
        self.renames, self.searched, self.targets, self.reverified, self.to_verify = {}, set(), 0, 0, 0
        self.needed = self.percent = None
        part, required = "", False
        for line in filter(None, map(str.strip, re.split("[\r\n]", output))):
            if line.startswith(("Invalid option specified", "Invalid thread option", "Cannot specify recovery file count")):
                self.bad_options = True
            elif line.startswith(("All files are correct", "Repair complete")):
                self.finished = True
            elif line.startswith("Repair is required"):
                required = True
            elif line.startswith("Main packet not found") or "The recovery file does not exist" in line:
                self.other_packet_file = True
            elif line.startswith("You need "):
                self.needed = int(line.split()[2])
            elif line.startswith(("Repairing:", "Processing:")):
                self.percent = float(line.split()[-1][:-1])
            elif required and line.endswith(("are missing.", "exist but are damaged.")):
                self.to_verify += int(line.split()[0])
            elif line.startswith(("Verifying source files:", "Scanning extra files:", "Verifying repaired files")):
                part = line
            elif line.startswith("Repair Failed."):
                self.failed = True
            elif part.startswith("Verifying repaired") and line.startswith("Target"):
                self.reverified += 1
            elif part.startswith("Verifying source") and self.TARGET.match(line):
                self.targets += 1
            elif part.startswith("Scanning extra"):
                self.searched.update(re.findall('File: "(.*)" - found', line))
                for pattern in (self.MATCH, self.BLOCKS):
                    if found := pattern.search(line):
                        self.renames[found.group(2)] = found.group(1)


class Personality(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = self.folder / "data"
        (self.data / "sub").mkdir(parents=True)
        for program in ("par2", "par2create", "par2verify", "par2repair"):
            (self.folder / program).symlink_to(TANDEM)
        self.content = {name: os.urandom(size) for name, size in FILES.items()}
        for name, content in self.content.items():
            (self.data / name).write_bytes(content)

    def run_par2(self, *words, status=0, program="par2", **options):
        done = subprocess.run([self.folder / program, *map(str, words)], cwd=self.data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=60, **options)
        self.assertEqual(done.returncode, status, (words, done.stdout))
        return done.stdout

    def made(self):
        return sorted(path.name for path in self.data.glob("*.par2"))

    def check_content(self, *names):
        for name in names or FILES:
            self.assertEqual((self.data / name).read_bytes(), self.content[name], name)

    def write_at(self, name, offset, content):
        with open(self.data / name, "r+b") as file:
            file.seek(offset)
            file.write(content)

    def test_what_sabnzbd_reads(self):
        self.run_par2("c", "-q", "-R", "-s1000", "-c6", "set.par2", *FILES)
        packets = {name: (self.data / name).read_bytes() for name in self.made()}

        def rename(source, target):
            return lambda: (self.data / source).rename(self.data / target)

        def lose(*names):
            return lambda: [(self.data / name).unlink() for name in names]

        def join():
            (self.data / "joined").write_bytes(b"".join(self.content[name] for name in ("sub/c", "b [1]")))
            lose("sub/c", "b [1]")()

        def split():
            (self.data / "joined").write_bytes(self.content["a"][2000:7000])
            (self.data / "a").write_bytes(self.content["a"][:2000])

        def lose_packets(*kinds):
            for name in packets:
                content = (self.data / name).read_bytes()
                for kind in kinds:
                    content = content.replace(b"PAR 2.0\0" + kind, b"PAR 2.0\0" + kind.lower())
                (self.data / name).write_bytes(content)

        extra = (self.data / "*",)  # SABnzbd deletes files from which it sees data come: files of the set must not be among them
        for damage, status_of_verify, status_of_repair, expected in (
            (lambda: None, 0, 0, {"finished": True, "targets": 4, "renames": {}, "needed": None}),
            (lambda: self.write_at("a", 2500, b"damage"), 1, 0, {"finished": True, "targets": 4, "to_verify": 1, "reverified": 1, "percent": 100,
                                                                        "searched": set()}),
            (lose("sub/c", "empty"), 1, 0, {"finished": True, "to_verify": 2, "reverified": 2}),
            (rename("a", "moved"), 1, 0, {"finished": True, "renames": {"a": "moved"}, "needed": None}),
            (split, 1, 0, {"finished": True, "renames": {"a": "joined"}}),
            (join, 1, 0, {"finished": True, "renames": {}, "searched": {"joined"}}),
            (lose("a"), 2, 2, {"finished": False, "needed": 4, "to_verify": 1, "failed": False}),
            (lambda: lose_packets(b"Main"), 0, 0, {"finished": True}),
            (lambda: lose_packets(b"Main", b"FileDesc"), 4, 4, {"finished": False, "other_packet_file": True}),
            (lose(*packets), 3, 3, {"finished": False, "other_packet_file": True}),
        ):
            for name, content in {**packets, **self.content}.items():
                (self.data / name).parent.mkdir(exist_ok=True)
                (self.data / name).write_bytes(content)
            damage()
            self.run_par2("v", "-B", self.data, "set.par2", *extra, status=status_of_verify)
            found = vars(Sabnzbd(self.run_par2("r", "-B", self.data, self.data / "set.par2", *extra, status=status_of_repair)))
            self.assertEqual({key: found[key] for key in expected}, expected)
            if status_of_repair == 0:
                self.check_content()
        help_text, version = self.run_par2("-h"), self.run_par2("-V")
        self.assertEqual((help_text, version), (self.run_par2("--help"), self.run_par2("--version")))
        self.assertIn("Set the basepath", help_text)
        self.assertNotIn("No data skipping", help_text)
        self.assertIn("par2cmdline-turbo", version)

    def test_wrong_usage(self):
        for words, line in (
            ((), "Not enough"), (("x", "set"), "Invalid operation"), (("v",), "Not enough"), (("v", "-q"), "You must specify a Recovery file"),
            (("v", "-z", "set"), "Invalid option specified: -z"), (("v", "-Rx", "set"), "Cannot specify -R unless creating"),
            (("c", "-p", "set", "a"), "Cannot specify -p when creating"), (("c", "-t0", "set", "a"), "Invalid thread option: -t0"),
            (("c", "-n32", "set", "a"), "1 to 31"), (("c", "-r", "12.5", "set", "a"), "-r: 12.5"), (("c", "-rkx", "set", "a"), "-r: x"),
            (("c", "-r0", "set", "a"), "-r: 0"), (("v", "a"), "You must specify a Recovery file: a is none."),
            (("c", "-rm1e2", "set", "a"), "-r: 1e2"), (("c", "-rg1.5.5", "set", "a"), "-r: 1.5.5"), (("c", "-r1001", "-s1", "set", "a"), "-s: 1"),
            (("c", "-r60000", "-b200", "set", "a"), "recovery slices"),
            (("c", "-c", "set", "a"), "-c: set"), (("c", "-n2", "-l", "set", "a"), "Cannot specify recovery file count"),
            (("c", "-u", "-l", "set", "a"), "Cannot specify"), (("c", "-b4", "-s4", "set", "a"), "Cannot specify"),
            (("c", "-r4", "-c4", "set", "a"), "Cannot specify"), (("c", "-s6", "set", "a"), "multiple of 4"),
            (("c", "-b1", "set", "a", "b [1]"), "smaller than the number of files"), (("c", "-f65530", "-c9", "set", "a"), "65530"),
            (("c", "-s4", "-rk0", "set", "a"), "No recovery block"), (("c", "-c2", "-n3", "set", "a"), "Too many recovery files"), (("c", "set"), "list of files"), (("c", "set", "none"), "list of files"),
            (("c", "set", "@none"), "none"), (("c", "-Bnone", "set", "a"), "basepath"), (("v", "set.par"), "The recovery file does not exist"),
        ):
            with self.subTest(words=words):
                self.assertIn(line, self.run_par2(*words, status=3))
                self.assertEqual(self.made(), [])

    def test_options_of_create(self):
        def volumes(*counts, width=1):
            first = [sum(counts[:i]) for i in range(len(counts))]
            return ["set.par2", *(f"set.vol{at:0{width}}+{count}.par2" for at, count in zip(first, counts))]

        for words, blocks, made in (
            (("-s1000", "-c6", "set", "a"), 10, volumes(1, 2, 3)),
            (("-s", "1000", "-c", "6", "-aset", "a", "a", "empty"), 10, volumes(1, 2, 3)),
            (("-b5", "-r40", "-a", "set", "--", "a"), 5, volumes(1, 1)),
            (("-b5", "-c0", "set", "a"), 5, volumes()),
            (("-s1000", "-u", "-c6", "set", "a"), 10, volumes(2, 2, 2)),
            (("-s1000", "-n2", "-u", "-c6", "set", "a"), 10, volumes(3, 3)),
            (("-s1000", "-n2", "-c6", "set", "a"), 10, volumes(3, 3)),
            (("-s1000", "-n3", "-c10", "set", "a"), 10, volumes(4, 3, 3, width=2)),
            (("-c7", "-n7", "set", "*"), 1875, volumes(*7 * [1])),
            (("-s3000", "-l", "-c9", "set", "a"), 4, volumes(1, 2, 4, 2)),
            (("-s1000", "-f7", "-c1", "set", "a"), 10, ["set.par2", "set.vol7+1.par2"]),
            (("-s1000", "-c1", "-t1", "-T4", "-m1", "-R", "set.par2", "a", "sub", "empty"), 13, volumes(1)),
            (("-s1000", "-c1", "set", "?"), 10, volumes(1)),
            (("-s1000", "-c1", "set", "*"), 15, volumes(1)),
            (("-s1000", "-c1", "set", "? [?]"), 5, volumes(1)),
            (("-s1000", "-c1", "set", "@../list", "empty"), 8, volumes(1)),
            (("-s1000", "-c1", "set", "link", "sub", "../list", "a"), 10, volumes(1)),
            (("-s1000", "-c1", "-L", "set", "link"), 5, volumes(1)),
            (("-s1000", "-c1", "-B", "..", "set", "a", "../list"), 11, volumes(1)),
            (("-s1000", "-c1", "link"), 5, ["link.par2", "link.vol0+1.par2"]),
        ):
            with self.subTest(words=words):
                (self.folder / "list").write_text("b [1]\r\nsub/c\n")
                (self.data / "link").symlink_to("b [1]")
                output = self.run_par2("c", *words)
                self.assertEqual(self.made(), sorted(made))
                self.assertIn(f"Source block count: {blocks}\n", output)
                verified = self.run_par2("v", *(("-B", "..") if "-B" in words else ()), made[0])
                self.assertIn(f"There are a total of {blocks} data blocks.", verified)
                self.assertIn("Par2 file already exists", self.run_par2("c", *words, status=3))
                (self.data / made[0]).unlink()
                if len(made) > 1:
                    self.run_par2("c", *words, status=6)  # others exist
                for name in [*self.made(), "link"]:
                    (self.data / name).unlink()
        for words, count in ((("-rk30",), 30 * 1024 // 1068), (("-r", "m1"), 1024 ** 2 // 1068), (("-rg2000", "-f65530"), 5), (("-r7",), 1),
                             (("-rk10.7",), 10), (("-r", "m0.25"), 2 ** 18 // 1068), (("-r100",), 10), (("-r101",), 10), (("-r1000",), 100)):
            output = self.run_par2("c", "-s1000", *words, "set", "a")
            self.assertIn(f"Recovery block count: {count}\n", output)
            self.assertEqual("WARNING: Creating recovery file(s) with " in output, words[0] in ("-r101", "-r1000"))
            for name in self.made():
                (self.data / name).unlink()

    def test_names_of_the_program_and_quiet_output(self):
        self.assertEqual(self.run_par2("-qq", "set", "a", "-s1000", "-c3", program="par2create"), "")
        for program in ("par2verify", "par2repair"):
            self.assertEqual(self.run_par2("-q", "-q", "set", program=program), "")
            self.assertEqual(self.run_par2("-q", "set.vol1+2", program=program).splitlines()[-1], "All files are correct, repair is not required.")
        self.write_at("a", 10, b"damage")
        quiet = self.run_par2("-q", "set", program="par2verify", status=1)
        self.assertIn('Target: "a" - damaged. Found 9 of 10 data blocks.', quiet)
        self.assertNotIn("ing: ", quiet)
        self.assertEqual(self.run_par2("-qq", "set", program="par2repair"), "")
        self.check_content("a")
        self.assertNotEqual(self.run_par2("-qq", "set", "a", program="par2create", status=3), "")
        self.run_par2("-qq", "set", "@", program="par2create", status=3, stdin=subprocess.DEVNULL)

    def test_names_from_windows(self):
        (self.data / "sub/c").rename(self.data / "sub\\c")
        self.run_par2("c", "-q", "-s1000", "-c0", "set", "sub\\c")
        (self.data / "sub\\c").rename(self.data / "sub/c")
        self.assertIn('Target: "sub/c" - found.', self.run_par2("v", "set"))
        (self.data / "sub/c").rename(self.data / "sub\\c")
        self.assertIn('Target: "sub\\c" - found.', self.run_par2("v", "set"))
        (self.data / "sub\\c").rename(self.data / "moved")
        self.run_par2("r", "set", "moved")
        self.check_content("sub/c")

    def test_extra_files_that_repeat_data(self):
        self.run_par2("c", "-q", "-s1000", "-c2", "set", "a")
        (self.data / "copies").write_bytes(self.content["a"][:3000] + b"more" + self.content["a"][4000:6000])
        self.write_at("a", 9000, b"damage")
        output = self.run_par2("v", "set", "copies", "b [1]", status=1)
        self.assertIn('File: "copies" - found 5 duplicate data blocks.\nFile: "b [1]" - no data found.\n', output)
        (self.data / "copies").write_bytes(self.content["a"][8000:])
        self.assertIn('File: "copies" - found 1 of 10 data blocks from "a".\n', self.run_par2("v", "set", "copies", status=1))

    def test_distance_of_data_skipping(self):
        self.run_par2("c", "-q", "-s1000", "-c1", "set", "a")
        (self.data / "a").write_bytes(self.content["a"][100:])
        for words, status in ((("-N", "-S99"), 2), (("-N", "-S", "100"), 1), (("-N",), 1), (("-S99",), 1)):
            self.run_par2("v", *words, "set", status=status)
        self.run_par2("r", "-N", "-S100", "set")
        self.check_content("a")

    def test_par1(self):
        volumes = {f"set.p{number:02}" if number else "set.par": data
                   for number, data in par1_set({name: self.content[name] for name in ("a", "b [1]", "empty")}, [0, 1, 2]).items()}
        for given in ("set.par", "set", "set.p02"):
            for name, data in {**volumes, "set.b.par": b"", "sit.par": volumes["set.par"]}.items():
                (self.data / name).write_bytes(data)
            self.assertIn("All files are correct", self.run_par2("v", given))
            (self.data / "a").rename(self.data / "moved")
            self.write_at("b [1]", 10, b"damage")
            (self.data / "empty").unlink()
            output = self.run_par2("v", given, "moved", *volumes, status=1)
            for line in ("There are 3 recoverable files", 'Target: "b [1]" - damaged.', 'File: "moved" - is a match for "a".', "1 recovery blocks will be used"):
                self.assertIn(line, output)
            self.assertNotIn("no data found", output)
            self.run_par2("v", given, status=1)
            (self.data / "set.p01").unlink()
            (self.data / "moved").rename(self.data / "sub/moved")  # beside the set it would be found
            self.assertIn("You need 1 more", self.run_par2("r", given, status=2))
            self.assertIn("Repair complete.", self.run_par2("r", "-p", given, "sub/moved"))
            self.check_content("a", "b [1]", "empty")
            self.assertEqual(sorted(path.name for path in self.data.glob("s*.p*")), ["set.b.par", "sit.par"])

    def test_sets_that_cannot_be_used(self):
        lost = Set({"a": b"123"}, 4, [])
        wrong = par1_volume(1, [par1_entry("a", b"123")], b"xyz")
        for name, content, status, line in (
            ("set.par2", b"", 4, "Main packet not found: "), ("set.par", b"", 4, "Main packet not found: "),
            ("set.par2", lost.main, 4, "No details available for recoverable file: the descriptions of 1 of 1 files"),
            ("set.par2", Set({"a": bytes(4 * 32768 + 1)}, 4, []).critical, 4, "Too many source blocks in recovery set: "),
            ("set.par2", Set({"../a": b"123"}, 4, []).critical, 6, 'Target: "../a" - cannot be read'), ("set.par", wrong, 5, "Repair Failed."),
        ):
            with self.subTest(line=line):
                (self.data / name).write_bytes(content)
                self.assertIn(line, self.run_par2("r", name, status=status))
        self.check_content("a")

    def test_unreadable_files(self):
        self.run_par2("c", "-q", "-s1000", "-c13", "set", "a", "sub/c")
        (self.data / "a").unlink()
        (self.data / "a").symlink_to("a")
        line = 'Target: "a" - cannot be read: Too many levels of symbolic links.\n'
        for command in "vr":
            output = self.run_par2(command, "set", status=6)
            self.assertIn(line, output)
            self.assertNotIn("epair", output.replace("repaired", ""))
        self.write_at("sub/c", 10, b"damage")
        output = self.run_par2("v", "set", status=6)
        self.assertIn("Repair is possible.\n", output)
        output = self.run_par2("r", "-p", "set", status=6)
        self.assertIn("1 file(s) cannot be read, and stay as they are.\n", output)
        self.assertTrue((self.data / "a").is_symlink() and self.made())
        self.check_content("sub/c")

    def test_repair_in_part(self):
        """SABnzbd fetches more blocks then: it must not read of a failure."""
        self.run_par2("c", "-q", "-s1000", "-c2", "set", "a", "b [1]")
        (self.data / "a").unlink()
        (self.data / "b [1]").rename(self.data / "moved")
        output = self.run_par2("r", "set", "moved", status=2)
        for line in ("Repair is not possible.\n", "You need 8 more recovery blocks", 'Target: "b [1]" - found.\n'):
            self.assertIn(line, output)
        self.assertNotIn("Repair Failed", output)
        self.check_content("b [1]")

    def test_list_of_repaired_files_after_a_failure(self):
        contents = {"a": self.content["a"], "b [1]": self.content["b [1]"]}
        the_set = Set(contents, 1000, range(1))
        wrong = packet(the_set.id, b"PAR 2.0\0RecvSlic", struct.pack("<I", 0) + os.urandom(1000))
        (self.data / "set.par2").write_bytes(the_set.critical + wrong)
        self.write_at("a", 10, b"damage")
        (self.data / "b [1]").rename(self.data / "moved")
        output = self.run_par2("r", "set", "moved", status=5)
        self.assertRegex(output, r'Verifying repaired files:\n\nTarget: "b \[1\]" - found\.\n\nRepair Failed\.\n.*is wrong: a recovery slice of')
        self.assertTrue(Sabnzbd(output).failed)
        self.check_content("b [1]")

    def test_purge_leaves_what_may_be_more_than_packets(self):
        self.run_par2("c", "-q", "-s1000", "-c3", "set", "a")
        packets = {name: (self.data / name).read_bytes() for name in self.made()}
        (self.data / "set.vol1+2.par2").rename(self.data / "unlike")
        self.write_at("a", 10, b"damage")
        self.assertIn("3 recovery blocks available", self.run_par2("v", "set", status=1))
        self.assertIn('Remove "set.par2".', self.run_par2("r", "-p", "set"))
        self.assertEqual((self.made(), (self.data / "unlike").read_bytes()), ([], packets["set.vol1+2.par2"]))
        with open(self.data / "a", "ab") as file:
            file.write(b"".join(packets.values()))
        self.run_par2("r", "-p", "a")
        self.check_content("a")

    def test_purge_leaves_what_nobody_named(self):
        self.run_par2("c", "-q", "-s1000", "-c3", "set", "a")
        packets = b"".join((self.data / name).read_bytes() for name in self.made())
        (self.data / "backup.par2").write_bytes(packets)
        self.run_par2("r", "-p", "set")
        self.assertEqual(self.made(), ["backup.par2"])
        (self.data / "set.par2").write_bytes(packets)
        self.run_par2("r", "-p", "set", "./backup.par2")
        self.assertEqual(self.made(), [])
        # An old file with the only packets gives its name to the right one.
        (self.data / "a").write_bytes(b"x" + self.content["a"] + packets)
        self.run_par2("r", "-p", "a")
        self.check_content("a")
        self.assertEqual((self.data / "a.1").read_bytes(), b"x" + self.content["a"] + packets)

    def test_purge_leaves_what_the_set_protects(self):
        """A file with a name of the set, by that name or by another one."""
        name = "set.vol9+9.par2"
        for protected, link in ((name, None), ("x", os.symlink), ("x", os.link)):
            contents = {"a": self.content["a"], protected: b"no packets"}
            (self.data / "set.par2").write_bytes(Set(contents, 1000, ()).critical)
            (self.data / name).write_bytes(b"no packets")
            if link is not None:
                (self.data / "x").unlink(missing_ok=True)
                link(self.data / name, self.data / "x")
            self.assertNotIn(name, self.run_par2("r", "-p", "set.par2").split("Purge")[1])
            self.assertEqual((self.made(), (self.data / protected).read_bytes()), ([name], b"no packets"))

    def test_purge_rename_only_and_links(self):
        self.run_par2("c", "-q", "-s1000", "-c3", "set", "a", "sub/c")
        self.run_par2("c", "-q", "-s1000", "-c3", "set.other", "b [1]")
        (self.data / "a").rename(self.data / "moved")
        self.write_at("moved", 10, b"damage")
        self.run_par2("r", "-O", "set", "moved", status=1)
        self.assertFalse((self.data / "a").exists())
        (self.data / "a").symlink_to("nothing")
        self.run_par2("r", "set", "moved", status=6)
        self.assertFalse((self.data / "nothing").exists())
        (self.data / "a").unlink()
        self.write_at("moved", 10, self.content["a"][10:16])
        self.write_at("sub/c", 10, b"damage")
        self.assertNotIn("Repair complete", self.run_par2("r", "-O", "set", "moved", status=1))
        self.check_content("a")
        self.assertEqual((self.data / "sub/c").read_bytes()[10:16], b"damage")
        (self.data / "set.par2").rename(self.data / "SET.PAR2")
        (self.data / "set.vol1+2.par2").write_bytes(b"no packet")
        self.assertIn('Remove "set.vol0+1.par2".', self.run_par2("r", "-p", "set.vol0+1.par2", "*"))
        self.check_content("a", "sub/c")
        self.assertEqual(self.made(), ["set.other.par2", "set.other.vol0+1.par2", "set.other.vol1+2.par2"])


unittest.main()
