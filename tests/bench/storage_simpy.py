# SPDX-License-Identifier: Apache-2.0
"""A second implementation of the storage system of docs/internals/STORAGE.md, on SimPy: 8 servers, written from that page, not from the
C++. `python3 storage_simpy.py` runs every case and prints a JSON object; storage_simpy.json is its output.

SimPy: https://pypi.org/project/simpy/ (storage_simpy_requirements.txt has the version)."""
import json
import random

KIB, MIB = 1 << 10, 1 << 20
SERVERS, SECONDS, WARM_UP = 8, 120.0, 30.0

# What every case has, and what differs. `arguments` of the command follow from these (storage_simpy_test.py).
COMMON = {"clients": 48, "application": 12, "window": 2, "size": 128 * KIB, "unit": MIB, "service": 0.005, "channels": 1,
          "link": 0.125e9, "client_link": 0.25e9, "latency": 0.0005, "parity": 1, "strategy": "standard"}
# Several applications keep the places in the row that they began with, relative to each other, so that the rate depends
# on the seed by a tenth. One of 29 clients goes through all places.
ONE = {"clients": 29, "application": 29, "window": 1}
CASES = {
    "raid0": {"strategy": "raid0", "parity": 0},
    "standard, RAID-5": {},
    "standard, RAID-6": {"parity": 2},
    "standard, few clients": {"clients": 3},
    "avoid, RAID-5": {"strategy": "avoid"},
    "avoid, RAID-6, two channels": {"strategy": "avoid", "parity": 2, "channels": 2},
    "delayed, RAID-5": {"strategy": "delayed", **ONE},
    "delayed, RAID-6, slow links": {"strategy": "delayed", "parity": 2, "link": 0.02e9, **ONE, "window": 5},
    "delayed-move, RAID-5": {"strategy": "delayed-move", **ONE},
}


class System:
    def __init__(self, simpy, case, seed):
        self.simpy, self.random = simpy, random.Random(seed)
        self.env = simpy.Environment()
        for name, value in {**COMMON, **case}.items():
            setattr(self, name, value)
        self.columns = SERVERS - self.parity
        self.disks = [simpy.Resource(self.env, self.channels) for _ in range(SERVERS)]
        self.inward = [simpy.Resource(self.env, 1) for _ in range(SERVERS)]
        self.outward = [simpy.Resource(self.env, 1) for _ in range(SERVERS)]
        self.writes = self.operations = 0
        self.response = 0.0

    def below(self, limit):
        return int(self.random.random() * limit)

    def operation(self):
        self.operations += self.env.now >= WARM_UP
        return self.env.timeout(self.service)

    # Each generator below ends when its part is done.

    def into(self, server, size):
        """A message of `size` bytes that reached the server's port."""
        with self.inward[server].request() as turn:
            yield turn
            yield self.env.timeout(size / self.link)

    def from_client(self, server, size, position):
        """The position-th message that a client sends at once."""
        yield self.env.timeout((position + 1) * size / self.client_link + self.latency)
        yield from self.into(server, size)

    def between(self, source, target, size):
        with self.outward[source].request() as turn:
            yield turn
            yield self.env.timeout(size / self.link)
        yield self.env.timeout(self.latency)
        yield from self.into(target, size)

    def serve(self, server, reads_first, after_read=None):
        with self.disks[server].request() as turn:
            yield turn
            if reads_first:
                yield self.operation()
                if after_read:
                    after_read.succeed()
            yield self.operation()

    def all_of(self, parts):
        return self.env.all_of([self.env.process(part) for part in parts])

    def scattered_write(self):
        row, column = self.below(1 << 30), self.below(self.columns)
        data = (row + column) % SERVERS
        parities = [(row + self.columns + i) % SERVERS for i in range(self.parity)]
        old_data = self.strategy == "standard"
        was_read = self.env.event()

        def write_data():
            yield from self.from_client(data, self.size, 0)
            yield from self.serve(data, old_data, was_read)

        def update(parity, number):
            if old_data:
                yield was_read
                yield from self.between(data, parity, self.size)
            else:
                yield from self.from_client(parity, self.size, 1 + number)
            yield from self.serve(parity, True)

        yield self.all_of([write_data()] + [update(parity, number) for number, parity in enumerate(parities)])
        yield self.env.timeout(self.latency)

    def done(self, since):
        if self.env.now >= WARM_UP:
            self.writes += 1
            self.response += self.env.now - since

    def client(self, start):
        yield self.env.timeout(start)
        while True:
            since = self.env.now
            yield from self.scattered_write()
            self.done(since)

    def file_write(self, first_server, offset):
        unit = offset // self.unit
        server = (first_server + unit // self.columns + unit % self.columns) % SERVERS
        since = self.env.now
        yield from self.from_client(server, self.size, 0)
        yield from self.serve(server, False)
        yield self.env.timeout(self.latency)
        self.done(since)

    def client_in_window(self, first_server, base, number):
        for turn in range(self.window):
            yield from self.file_write(first_server, base + (turn * self.application + number) * self.size)

    def row_end(self, first_server, row, begin, end):
        """Bytes begin to end of a row get their parity."""
        place = lambda column: (first_server + row + column) % SERVERS
        first, last = begin // self.unit, (end - 1) // self.unit
        fresh = list(range(first, last + 1))
        span = min(end - begin, self.unit) if first == last else self.unit  # bytes of each unit that the parity covers
        size = {}
        for column in fresh:
            size[column] = min(end, (column + 1) * self.unit) - max(begin, column * self.unit)
        # What the window left of the file in the covered bytes.
        older = list(range(first))
        partial = [first] if last > first and begin > first * self.unit else []
        reads_parity = False
        if older or partial:
            if len(older) + len(partial) <= self.parity:
                for column in partial:
                    size[column] = self.unit
                for column in older:
                    size[column] = span
            else:
                reads_parity, older = True, []
        arrivals = {i: [] for i in range(self.parity)}

        def read(column):
            server = place(column)
            yield self.env.timeout(self.latency)
            with self.disks[server].request() as turn:
                yield turn
                yield self.operation()
            for i in range(self.parity):
                self.env.process(send(server, column, i))
            if self.strategy == "delayed-move" and column in fresh:
                yield from self.serve(server, False)

        sent = {(column, i): self.env.event() for column in fresh + older for i in range(self.parity)}

        def send(server, column, i):
            yield from self.between(server, place(self.columns + i), size[column])
            sent[column, i].succeed()

        def update(i):
            yield self.env.all_of([sent[column, i] for column in fresh + older])
            yield from self.serve(place(self.columns + i), reads_parity)

        yield self.all_of([read(column) for column in fresh + older] + [update(i) for i in range(self.parity)])
        yield self.env.timeout(self.latency)

    def run_application(self, start):
        yield self.env.timeout(start)
        row_bytes = self.columns * self.unit
        base = self.below(row_bytes // self.size) * self.size
        first_server = self.below(SERVERS)
        while True:
            yield self.all_of([self.client_in_window(first_server, base, i) for i in range(self.application)])
            yield self.env.timeout(self.latency)
            stop, rows = base + self.window * self.application * self.size, []
            while base < stop:
                row = base // row_bytes
                end = min(stop, (row + 1) * row_bytes)
                rows.append(self.row_end(first_server, row, base - row * row_bytes, end - row * row_bytes))
                base = end
            yield self.all_of(rows)

    def run(self):
        if self.strategy.startswith("delayed"):
            for i in range(self.clients // self.application):
                self.env.process(self.run_application(0.01 * i))
        else:
            for i in range(self.clients):
                self.env.process(self.client(0.001 * i))
        self.env.run(until=SECONDS)
        return {"writes_per_second": self.writes / (SECONDS - WARM_UP), "write_seconds": self.response / self.writes,
                "operations_per_write": self.operations / self.writes}


def run_all(simpy):
    return {name: {**COMMON, **case, **System(simpy, case, 1).run()} for name, case in CASES.items()}


if __name__ == "__main__":
    import simpy
    print(json.dumps(run_all(simpy), indent=2))
