#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem volume` with real processes: nbdkit serves, libnbd reads and writes, processes are killed.
Usage: serve_test.py PATH_OF_TANDEM [unittest arguments]. Ends with status 77 if a package is missing."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

SYSTEM_PYTHON = "/usr/bin/python3"  # Debian's python3-libnbd is for this one
SKIPPED = 77


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(SKIPPED)


for program in ("nbdkit", "nbdinfo", "nbdcopy"):
    if shutil.which(program) is None:
        skip(f"{program} is not installed (Debian, Ubuntu: apt-get install nbdkit libnbd-bin)")
try:
    import nbd
except ImportError:
    if os.path.realpath(sys.executable) == os.path.realpath(SYSTEM_PYTHON) or \
            subprocess.run([SYSTEM_PYTHON, "-c", "import nbd"], capture_output=True, check=False).returncode != 0:
        skip("Python has no module nbd (Debian, Ubuntu: apt-get install python3-libnbd)")
    os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])

TANDEM = os.path.abspath(sys.argv.pop(1))
LIMIT_SECONDS = 60  # of every wait
TEST_SECONDS = 240
BLOCK, UNIT, MEMBER = 4096, 65536, 8 << 20
STATUS_OK, UNAVAILABLE = 0, 3
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}


def wait_for(condition, what):
    until = time.monotonic() + LIMIT_SECONDS
    while not (result := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"waited {LIMIT_SECONDS} seconds for {what}")
        time.sleep(0.005)
    return result


def has_ended(pid):
    try:
        return "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it may go at any moment
        return True


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT_SECONDS,
                          env=ENVIRONMENT, check=False, **more)


class Server:
    """`tandem volume serve`, up when this returns."""

    def __init__(self, case, members, *more, path=None):
        self.case, self.path = case, path or case.path("s")
        self.errors = open(case.path("serve.err"), "ab+")
        case.addCleanup(self.errors.close)
        words = [TANDEM, "volume", "serve", *members, "--socket", self.path, "--json", *more]
        self.process = case.start(words, stdout=subprocess.PIPE, stderr=self.errors)
        self.ready = case.read_object(self.process)
        case.assertEqual(self.ready.get("event"), "serving", self.ready)
        self.uri = self.ready["uri"]
        self.pid = self.ask({"command": "info"})["pid"]

    def connect(self):
        handle = nbd.NBD()
        handle.connect_uri(self.uri)
        return handle

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LIMIT_SECONDS)
            connection.connect(self.path + ".control")
            connection.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))

    def command(self, *words, status=0):
        done = run(TANDEM, "volume", *words, "--socket", self.path, "--json")
        self.case.assertEqual(done.returncode, status, (words, done.stdout, done.stderr))
        answer = json.loads(done.stdout)
        self.case.assertEqual(answer["schema_version"], 1)
        return answer

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.case.assertEqual(self.process.wait(LIMIT_SECONDS), 0, self.error_text())
        self.case.assertFalse(os.path.exists(self.path) or os.path.exists(self.path + ".control"))

    def crash(self):
        os.kill(self.pid, signal.SIGKILL)
        self.case.assertEqual(self.process.wait(LIMIT_SECONDS), 3, self.error_text())

    def error_text(self):
        return pathlib.Path(self.errors.name).read_text()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tandem-serve-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.random = random.Random(self.id())
        self.processes = []
        # libnbd and pipes wait for ever for a server that hangs; not for one that is dead.
        watchdog = threading.Timer(TEST_SECONDS, self.kill_all)
        watchdog.daemon = True
        watchdog.start()
        self.addCleanup(watchdog.cancel)

    def kill_all(self):
        print(f"{self.id()}: not done after {TEST_SECONDS} seconds; its processes are killed", file=sys.stderr)
        for process in self.processes:
            self.kill(process)

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)  # nbdkit too, which is in its group
        except ProcessLookupError:
            pass

    def read_object(self, process):
        """What a process prints with --json; nothing if it ends."""
        lines = []
        for line in process.stdout:
            lines.append(line.decode())
            if line == b"}\n":
                break
        return json.loads("".join(lines) or "{}")

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, words, **more):
        process = subprocess.Popen([str(word) for word in words], start_new_session=True, env=ENVIRONMENT,
                                   stdin=subprocess.DEVNULL, **more)

        self.processes.append(process)

        def end():
            self.kill(process)
            process.wait(LIMIT_SECONDS)
            if process.stdout:
                process.stdout.close()

        self.addCleanup(end)
        return process

    def ok(self, *words, status=0):
        done = run(TANDEM, "volume", *words)
        self.assertEqual(done.returncode, status, (words, done.stdout, done.stderr))
        return done

    def make(self, k=4, m=2):
        """Creates a volume; its members."""
        made = [self.path(f"m{i}") for i in range(k + m)]
        self.ok("create", *made, "-k", k, "-m", m, "--member-bytes", MEMBER)
        return made

    def serve(self, members, *more, path=None):
        return Server(self, members, *more, path=path)

    def bytes(self, count):
        return self.random.randbytes(count)

    def compare(self, handle, model, piece=1 << 20):
        for at in range(0, len(model), piece):
            end = min(at + piece, len(model))
            self.assertEqual(bytes(handle.pread(end - at, at)), bytes(model[at:end]), f"bytes {at} to {end}")

    def scribble(self, handle, model, count, most=200_000):
        for _ in range(count):
            at = self.random.randrange(len(model))
            data = self.bytes(self.random.randrange(1, min(most, len(model) - at) + 1))
            handle.pwrite(data, at)
            model[at:at + len(data)] = data


class Crash(Case):
    def test_flushed_bytes_survive_kill_and_loss(self):
        members = self.make()
        server = self.serve(members)
        handle = server.connect()
        flushed = bytearray(handle.get_size())
        self.scribble(handle, flushed, 30)
        handle.flush()
        maybe = bytearray(flushed)
        self.scribble(handle, maybe, 15)
        server.crash()

        server = self.serve(members)  # over the dead sockets of the first
        handle = server.connect()
        found = b"".join(bytes(handle.pread(min(1 << 20, len(flushed) - at), at))
                         for at in range(0, len(flushed), 1 << 20))
        for at in range(0, len(found), BLOCK):  # of others, overlapping writes leave more than two states
            if flushed[at:at + BLOCK] == maybe[at:at + BLOCK]:
                self.assertEqual(found[at:at + BLOCK], flushed[at:at + BLOCK], f"block at {at}")
        server.crash()

        for lost in self.random.sample(members, 2):
            os.remove(lost)
        handle = self.serve(members).connect()
        self.compare(handle, found)

    def test_fua_is_safe_without_a_flush(self):
        members = self.make()
        server = self.serve(members)
        handle = server.connect()
        data = self.bytes(150_001)
        handle.pwrite(data, 77_777, nbd.CMD_FLAG_FUA)
        handle.pwrite(b"\xff" * 3 * BLOCK, 1 << 20, nbd.CMD_FLAG_FUA)
        handle.trim(BLOCK, 1 << 20, nbd.CMD_FLAG_FUA)
        handle.zero(BLOCK, (1 << 20) + BLOCK, nbd.CMD_FLAG_FUA)
        server.crash()
        handle = self.serve(members[:1] + members[3:]).connect()
        self.assertEqual(bytes(handle.pread(len(data), 77_777)), data)
        self.assertEqual(bytes(handle.pread(3 * BLOCK, 1 << 20)), bytes(2 * BLOCK) + b"\xff" * BLOCK)

    def test_flush_on_one_connection_covers_the_others(self):
        members = self.make()
        server = self.serve(members)
        handles = [server.connect() for _ in range(4)]
        self.assertTrue(all(handle.can_multi_conn() for handle in handles))
        part = handles[0].get_size() // 4
        models = [self.bytes(part) for _ in handles]
        failures = []

        def write(index):
            try:
                for at in range(0, part, 60_000):
                    handles[index].pwrite(models[index][at:at + 60_000], index * part + at)
            except nbd.Error as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_SECONDS)
        self.assertEqual(failures, [])
        handles[2].flush()
        server.crash()
        self.compare(self.serve(members[2:]).connect(), b"".join(models))

    def test_signals_end_with_a_flush(self):
        members = self.make(2, 1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            server = self.serve(members)
            data = self.bytes(100_000)
            server.connect().pwrite(data, int(number) * 100_000)
            server.stop(number)
            server = self.serve(members[1:])  # the log has nothing left that only the lost one knew
            self.assertEqual(bytes(server.connect().pread(100_000, int(number) * 100_000)), data)
            server.stop()
            self.ok("rebuild", *members)  # the one that was away
        # The command itself is killed: nbdkit ends, and flushes.
        server = self.serve(members)
        server.connect().pwrite(data, 0)
        server.process.kill()
        wait_for(lambda: has_ended(server.pid), "the end of nbdkit")
        self.assertEqual(bytes(self.serve(members).connect().pread(100_000, 0)), data)


class Export(Case):
    def extents(self, server):
        done = run("nbdinfo", "--map", "--json", server.uri)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(each["offset"], each["length"], each["type"]) for each in json.loads(done.stdout)]

    def test_trim_zero_and_extents(self):
        server = self.serve(self.make())
        handle = server.connect()
        size = handle.get_size()
        self.assertEqual(self.extents(server), [(0, size, 3)])
        handle.pwrite(b"\xff" * 32 * BLOCK, 0)
        self.assertEqual(self.extents(server), [(0, 32 * BLOCK, 0), (32 * BLOCK, size - 32 * BLOCK, 3)])
        handle.trim(2 * BLOCK + 100, 4 * BLOCK - 50)  # blocks 4 and 5 are whole
        handle.zero(2 * BLOCK, 10 * BLOCK + 1)        # block 11, and parts
        handle.zero(2 * BLOCK, 20 * BLOCK, nbd.CMD_FLAG_NO_HOLE)
        with self.assertRaises(nbd.Error):
            handle.zero(BLOCK, 0, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
        handle.zero(BLOCK, 30 * BLOCK, nbd.CMD_FLAG_FAST_ZERO)
        expected = bytearray(b"\xff" * 32 * BLOCK)
        for begin, end in ((4 * BLOCK, 6 * BLOCK), (10 * BLOCK + 1, 12 * BLOCK + 1), (20 * BLOCK, 22 * BLOCK),
                           (30 * BLOCK, 31 * BLOCK)):
            expected[begin:end] = bytes(end - begin)
        self.compare(handle, expected)
        holes = [(offset // BLOCK, length // BLOCK) for offset, length, kind in self.extents(server) if kind == 3]
        self.assertEqual(holes, [(4, 2), (11, 1), (30, 1), (32, size // BLOCK - 32)])

    def test_what_the_server_offers(self):
        server = self.serve(self.make())
        handle = server.connect()
        self.assertEqual(handle.get_size(), server.command("info")["volume_bytes"])
        for offer in ("can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero", "can_multi_conn"):
            self.assertTrue(getattr(handle, offer)(), offer)
        self.assertFalse(handle.is_read_only())
        self.assertEqual((handle.get_block_size(nbd.SIZE_MINIMUM), handle.get_block_size(nbd.SIZE_PREFERRED)), (1, BLOCK))

    def test_nbdcopy_in_and_out(self):
        server = self.serve(self.make())
        size = server.connect().get_size()
        source, copy = self.path("source"), self.path("copy")
        with open(source, "wb") as file:
            file.truncate(size)
            file.seek(1 << 20)
            file.write(self.bytes(5_000_000))
        for words in ((source, server.uri), (server.uri, copy)):
            done = run("nbdcopy", "--flush", *words)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(run("cmp", source, copy).returncode, 0)
        self.assertIn(3, [kind for _, _, kind in self.extents(server)])

    def test_read_only_servers_write_nothing(self):
        members = self.make(2, 1)
        server = self.serve(members)
        data = self.bytes(300_000)
        server.connect().pwrite(data, 5)
        server.stop()
        before = [pathlib.Path(member).read_bytes() for member in members]
        servers = [self.serve(members, "--read-only", path=self.path(f"r{i}")) for i in range(2)]
        for server in servers:
            handle = server.connect()
            self.assertTrue(handle.is_read_only())
            self.assertEqual(bytes(handle.pread(300_000, 5)), data)
            handle.set_strict_mode(0)
            with self.assertRaises(nbd.Error):
                handle.pwrite(b"x", 0)
            self.assertEqual(server.ask({"command": "delay-begin"})["status"], UNAVAILABLE)
            self.assertEqual(server.ask({"command": "scrub", "repair": True})["status"], UNAVAILABLE)
        self.assertEqual(run(TANDEM, "volume", "serve", *members, "--socket", self.path("w")).returncode, 2)
        for server in servers:
            server.stop()
        self.assertEqual([pathlib.Path(member).read_bytes() for member in members], before)

    def test_tcp(self):
        members = self.make(2, 1)
        for _ in range(10):  # another process may take the port in between
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            words = [TANDEM, "volume", "serve", *members, "--port", port, "--socket", self.path("s"), "--json"]
            process = self.start(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            ready = self.read_object(process)
            if ready["event"] == "serving":
                break
            process.wait(LIMIT_SECONDS)
        self.assertEqual(ready["uri"], f"nbd://127.0.0.1:{port}")
        handle = nbd.NBD()
        handle.connect_uri(ready["uri"])
        handle.pwrite(b"over tcp", 3)
        self.assertEqual(bytes(handle.pread(8, 3)), b"over tcp")
        handle.shutdown()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(LIMIT_SECONDS), 0)


class Care(Case):
    def test_degraded_replace_and_rebuild_while_serving(self):
        members = self.make()
        server = self.serve(members)
        handle = server.connect()
        model = bytearray(self.bytes(handle.get_size()))
        for at in range(0, len(model), 1 << 20):
            handle.pwrite(model[at:at + (1 << 20)], at)
        server.stop()
        os.remove(members[0])
        os.remove(members[3])
        server = self.serve(members)
        self.assertEqual(server.command("info")["lost_count"], 2)
        handle = server.connect()
        self.compare(handle, model)
        self.scribble(handle, model, 10)

        done, failures = threading.Event(), []
        writer = server.connect()

        def write():
            try:
                while True:
                    self.scribble(writer, model, 1, 30_000)
                    if done.is_set():
                        return
            except nbd.Error as error:
                failures.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for index, new in ((0, "n0"), (3, "n3")):
                server.command("replace", "--index", index, "--new", self.path(new))
            rebuilt = server.command("rebuild")
        finally:
            done.set()
            thread.join(LIMIT_SECONDS)
        self.assertEqual(failures, [])
        self.assertGreater(rebuilt["mended_block_count"], 0)
        info = server.command("info")
        self.assertEqual((info["lost_count"], info["rebuilding_count"]), (0, 0))
        self.compare(handle, model)
        scrubbed = server.command("scrub")
        self.assertEqual((scrubbed["bad_block_count"], scrubbed["bad_parity_count"]), (0, 0))
        server.stop()
        members = [self.path("n0"), *members[1:3], self.path("n3"), *members[4:]]
        for lost in (1, 4):  # the new ones count
            os.remove(members[lost])
        self.compare(self.serve(members).connect(), model)

    def test_scrub_finds_and_mends(self):
        members = self.make()
        server = self.serve(members)
        handle = server.connect()
        model = self.bytes(8 * UNIT * 4)
        handle.pwrite(model, 0)
        server.stop()
        info = json.loads(self.ok("info", *members, "--json").stdout)
        data_at = data_offset(info)
        with open(members[2], "r+b") as file:
            for unit in range(3):  # of the first three stripes, data or parity
                file.seek(data_at + unit * UNIT + 5)
                file.write(self.bytes(10))
        report = json.loads(self.ok("scrub", *members, "--restart", "--json", status=1).stdout)
        self.assertEqual((report["bad_block_count"], report["mended_block_count"]), (3, 0))
        server = self.serve(members)
        self.assertEqual(server.command("scrub", "--repair")["mended_block_count"], 3)
        self.assertEqual(server.command("scrub")["bad_block_count"], 0)
        self.compare(server.connect(), model)
        server.stop()
        report = json.loads(self.ok("scrub", *members[1:], "--restart", "--json", status=1).stdout)
        self.assertEqual((report["left_block_count"], report["lost_count"]), (0, 1))

    def slow_scrub(self, server):
        """A scrub over the socket that takes half a minute, when it runs."""
        server.connect().pwrite(self.bytes(4 << 20), 0)
        # Seen by its reads: to ask for another scrub would keep this one out.
        reads = lambda: server.ask({"command": "info"})["statistics"]["data"]["reads"]
        before = reads()
        scrub = self.start([TANDEM, "volume", "scrub", "--socket", server.path, "--rate", 1_000_000, "--json"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        wait_for(lambda: reads() > before, "the scrub to run")
        self.assertIsNone(scrub.poll())
        return scrub

    def test_interrupted_scrub_goes_on(self):
        server = self.serve(self.make())
        scrub = self.slow_scrub(server)
        scrub.send_signal(signal.SIGINT)
        self.assertEqual(scrub.wait(LIMIT_SECONDS), 130)
        self.assertEqual(json.loads(scrub.stdout.read())["exit_status"], 130)
        # The server hears that its caller went away, and lets the next one in.
        answer = wait_for(lambda: (lambda it: it["status"] == STATUS_OK and it)(server.ask({"command": "scrub"})),
                          "the end of the first scrub")
        self.assertEqual(answer["scrub_position_bytes"], 0)

    def test_end_of_the_server_cancels_a_slow_scrub(self):
        server = self.serve(self.make())
        scrub = self.slow_scrub(server)
        server.stop()
        self.assertNotEqual(scrub.wait(LIMIT_SECONDS), 0)


class Supervised(Case):
    def test_a_supervisor_hears_when_the_volume_is_served(self):
        members = self.make(2, 1)
        for name in (self.path("notify"), "@tandem-test-%d" % os.getpid()):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.addCleanup(listener.close)
            listener.settimeout(LIMIT_SECONDS)
            listener.bind(name.replace("@", "\0"))
            pid_file = pathlib.Path(self.path("pid"))
            with unittest.mock.patch.dict(ENVIRONMENT, NOTIFY_SOCKET=name):
                server = self.serve(members, "--pid-file", pid_file)
            self.assertEqual(listener.recv(100), b"READY=1")
            self.assertEqual(int(pid_file.read_text()), server.pid)
            server.stop()
            self.assertFalse(pid_file.exists())
        pid_file.write_text("of another program")
        self.ok("serve", members[0], "--pid-file", pid_file, status=3)
        self.assertEqual(pid_file.read_text(), "of another program")


class Delay(Case):
    def test_window_over_the_control_socket(self):
        members = self.make()
        server = self.serve(members)
        handle = server.connect()
        stripe = 4 * UNIT
        begun = server.command("delay", "begin", "--offset", stripe - 1, "--bytes", 3 * stripe)
        window = {"offset_bytes": stripe, "bytes": 2 * stripe}
        self.assertEqual(begun["window"], window)
        self.assertEqual(server.command("delay", "list")["windows"], [window])
        before = server.command("info")["statistics"]
        data = self.bytes(2 * stripe)
        for at in range(0, len(data), UNIT):
            handle.pwrite(data[at:at + UNIT], stripe + at)
        handle.flush()
        after = server.command("info")["statistics"]
        self.assertEqual(after["parity"]["writes"], before["parity"]["writes"])
        self.assertEqual(after["delay_count"] - before["delay_count"], 8)
        server.command("delay", "end", "--offset", stripe, "--bytes", stripe, status=2)
        self.assertEqual(server.command("delay", "end", "--offset", stripe, "--bytes", 2 * stripe)["ended"], [window])
        self.assertEqual(server.command("delay", "list")["windows"], [])
        self.assertEqual(server.command("scrub")["bad_parity_count"], 0)
        server.crash()
        handle = self.serve(members[:2] + members[4:]).connect()
        self.assertEqual(bytes(handle.pread(2 * stripe, stripe)), data)

    def test_a_bounded_window_over_the_control_socket(self):
        members = self.make()
        server = self.serve(members)
        handle = server.connect()
        stripe = 4 * UNIT
        begun = server.command("delay", "begin", "--bound", 4 * stripe, "--seconds", 3600)
        bounded = {**begun["window"], "bound_bytes": 4 * stripe, "bound_seconds": 3600}
        self.assertEqual(begun["bounded"], bounded)
        self.assertEqual(server.command("info")["bounded"], bounded)
        data = self.bytes(BLOCK)
        deadline = time.monotonic() + 60
        for at in [0, 9, 3, 12, 5, 7]:
            while not server.ask({"command": "info"})["unprotected_bytes"] or not any(
                    window["offset_bytes"] == at * stripe for window in server.ask({"command": "delay-list"})["windows"]):
                self.assertLess(time.monotonic(), deadline, "no window has begun")
                handle.pwrite(data, at * stripe)
            handle.pwrite(data, at * stripe)
            listed = server.command("delay", "list")
            self.assertLessEqual(sum(window["bytes"] for window in listed["windows"]), 4 * stripe)
        shown = self.ok("info", "--socket", server.path).stdout
        self.assertIn("bounded window: --offset 0", shown)
        self.assertIn("unprotected now: ", shown)
        handle.flush()
        server.crash()
        server = self.serve(members)
        left = server.command("delay", "list")
        self.assertEqual((left["bounded"], left["unprotected_bytes"]), (None, 4 * stripe))
        self.assertEqual(len(server.command("delay", "end")["ended"]), 4)
        server.command("delay", "begin", "--bound", 4 * stripe)
        self.assertEqual(server.command("delay", "end")["ended"], [begun["window"]])
        server.stop()
        handle = self.serve(members[2:]).connect()
        for at in [0, 9, 3, 12, 5, 7]:
            self.assertEqual(bytes(handle.pread(BLOCK, at * stripe)), data)

    def test_crash_inside_a_window(self):
        members = self.make()
        server = self.serve(members)
        handle = server.connect()
        stripe = 4 * UNIT
        outside, inside = self.bytes(stripe), self.bytes(stripe)
        server.command("delay", "begin", "--offset", 2 * stripe, "--bytes", 4 * stripe)
        handle.pwrite(outside, 0)
        handle.pwrite(inside, 3 * stripe)
        handle.flush()
        server.crash()
        server = self.serve(members)
        self.assertEqual(server.command("delay", "list")["windows"],
                         [{"offset_bytes": 2 * stripe, "bytes": 4 * stripe}])
        self.assertEqual(bytes(server.connect().pread(stripe, 3 * stripe)), inside)
        server.stop()
        # What was protected stays so; what was not is an error and no wrong bytes.
        server = self.serve(members[2:])
        handle = server.connect()
        self.assertEqual(bytes(handle.pread(stripe, 0)), outside)
        with self.assertRaises(nbd.Error):
            handle.pread(stripe, 3 * stripe)
        refused = server.command("delay", "end", status=4)
        self.assertEqual(refused["ended"], [])
        server.command("delay", "end", "--accept-loss")
        self.assertEqual(len(handle.pread(stripe, 3 * stripe)), stripe)


def data_offset(info):
    """Where the data area of a member begins: superblocks and log, a page of checksums for every 170 blocks."""
    blocks = info["stripe_count"] * (info["unit_bytes"] // BLOCK)
    end_of_table = 65536 + info["log_bytes"] + -(-blocks // 170) * BLOCK
    return -(-end_of_table // 65536) * 65536


class BadInput(Case):
    def refused(self, *words, status, sentence):
        done = self.ok(*words, status=status)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_arguments(self):
        members = self.make(2, 1)
        self.refused("info", status=2, sentence="name the members, or with --socket")
        self.refused("info", *members, "--socket", "x", status=2, sentence="not both")
        self.refused("info", "--socket", self.path("none"), status=3, sentence="cannot reach the server")
        self.refused("create", *members, "-k", 2, "-m", 1, status=2, sentence="holds a volume already")
        self.refused("create", *members, "-k", 3, "-m", 1, status=2, sentence="member_count is 3")
        self.refused("delay", "end", *members, "--offset", 0, status=2, sentence="--offset and --bytes")
        self.refused("delay", "begin", *members, "--bound", "1G", status=2, sentence="give --socket")
        self.refused("scrub", *members, "--rate", "fast", status=2, sentence="--rate")
        report = json.loads(self.ok("info", members[0], "--json", status=4).stdout)
        self.assertEqual((report["schema_version"], report["command"], report["exit_status"]), (1, "volume info", 4))
        self.assertTrue(report["message"])

    def test_serve_refuses(self):
        members = self.make(2, 1)
        self.refused("serve", *members, "--socket", "x" * 200, status=3, sentence="bytes")
        self.refused("serve", *members, "--socket", members[0], status=3, sentence="is no socket")
        self.assertEqual(run(TANDEM, "volume", "serve", members[0], "--socket", self.path("s")).returncode, 4)
        done = subprocess.run([TANDEM, "volume", "serve", *members, "--socket", self.path("s")], capture_output=True,
                              text=True, timeout=LIMIT_SECONDS, env={"PATH": self.folder}, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("apt-get install nbdkit", done.stderr)
        server = self.serve(members)
        self.refused("serve", *members, "--socket", server.path, status=3, sentence="another process listens")
        done = run(TANDEM, "volume", "serve", *members, "--socket", self.path("other"), "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["event"]), (2, "failed"))
        self.assertIn("locked", done.stderr)
        self.refused("scrub", *members, status=2, sentence="--socket")
        self.assertEqual(bytes(server.connect().pread(4, 0)), bytes(4))  # it goes on

    def test_plugin_alone(self):
        plugin = pathlib.Path(TANDEM).parent.parent / "lib" / "tandem" / "nbdkit-tandem-plugin.so"
        members = self.make(2, 1)
        words = [f"member={member}" for member in members]
        for more, sentence in ((["no=1"], "unknown parameter no"), (["report=99"], "report=99"),
                               (["read-only=maybe"], "maybe")):
            done = run("nbdkit", "-f", "-U", self.path("p"), plugin, *words, *more)
            self.assertEqual(done.returncode, 1)
            self.assertIn(sentence, done.stderr)
        done = run("nbdkit", "-f", "-U", self.path("p"), plugin)
        self.assertIn("no member is named", done.stderr)
        done = run("nbdkit", "-U", "-", plugin, *words, "--run", 'nbdinfo --size "$uri"', cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(int(done.stdout), json.loads(self.ok("info", *members, "--json").stdout)["volume_bytes"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
