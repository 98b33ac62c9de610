#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem durability` against exact arithmetic. Usage: durability_cli_test.py PATH_OF_TANDEM"""
import decimal
import json
import math
import os
import random
import subprocess
import sys
import unittest
from decimal import Decimal

TANDEM = os.path.abspath(sys.argv.pop(1))
YEAR = 365 * 86400
decimal.getcontext().prec = 200  # losses of 1e-60 a year, from a sum of numbers near 1


def run(*arguments):
    return subprocess.run([TANDEM, "durability", *map(str, arguments)], capture_output=True, timeout=120)


def rates(afr, rebuild_seconds):
    """Failures and rebuilds of a disk, per year."""
    return -(1 - Decimal(afr)).ln(), Decimal(YEAR) / rebuild_seconds


def multiply(a, b):
    return [[sum((x * y for x, y in zip(row, column) if x and y), Decimal(0)) for column in zip(*b)] for row in a]


def rates_of_states(k, m, afr, rebuild_seconds, batch=0, share=0, spoiled=0, site=0):
    """Cell (i, j): the rate per year from i disks that are down to j; m + 1 is the loss."""
    failure, rebuild = rates(afr, rebuild_seconds)
    batches, share, spoiled = rates(batch, 1)[0], Decimal(share), Decimal(spoiled)
    cells = [[Decimal(0)] * (m + 2) for _ in range(m + 2)]
    for i in range(m + 1):
        working = k + m - i
        cells[i][i + 1] += working * failure
        for hit in range(1, working + 1 if batch else 0):
            cells[i][min(i + hit, m + 1)] += batches * math.comb(working, hit) * share**hit * (1 - share)**(working - hit)
        if i:
            cells[i][i - 1] += i * rebuild
        if i < m:
            cells[i][m + 1] += cells[i][m] * spoiled
            cells[i][m] *= 1 - spoiled
        cells[i][m + 1] += rates(site, 1)[0]
    return cells


def exact(k, m, afr, rebuild_seconds, **causes):
    """Probability of loss within a year, and mean years to loss, in decimal arithmetic of 200 digits."""
    size = m + 2
    cells = rates_of_states(k, m, afr, rebuild_seconds, **causes)
    halvings = 20 if rebuild_seconds >= 3600 else 46
    step = [[cell / 2**halvings for cell in row] for row in cells]
    for i in range(m + 1):
        step[i][i] = -sum(step[i])
    unit = [[Decimal(int(i == j)) for j in range(size)] for i in range(size)]
    total, term = unit, unit
    for i in range(1, 60):
        term = [[cell / i for cell in row] for row in multiply(term, step)]
        total = [[a + b for a, b in zip(one, other)] for one, other in zip(total, term)]
    for _ in range(halvings):
        total = multiply(total, total)
    # sum(rates) * time from i = 1 + sum over j (rate to j * time from j), by elimination.
    rows = [[sum(cells[i]) if i == j else -cells[i][j] for j in range(m + 1)] + [Decimal(1)] for i in range(m + 1)]
    for i in reversed(range(1, m + 1)):
        for row in rows[:i]:
            factor = row[i] / rows[i][i]
            row[:] = [a - factor * b for a, b in zip(row, rows[i])]
    return total[0][m + 1], rows[0][-1] / rows[0][0]


def survives(generator, k, m, afr, rebuild_seconds, batch, share, spoiled, site):
    """Whether the data of one set, disk by disk, is there after a year."""
    failure, rebuild = (float(rate) for rate in rates(afr, rebuild_seconds))
    batches, sites = (-math.log1p(-part) for part in (batch, site))
    is_down, now = [False] * (k + m), 0.0
    while True:
        each = [rebuild if down else failure for down in is_down]
        total = sum(each) + batches + sites
        now += generator.expovariate(total)
        if now > 1:
            return True
        before, drawn = sum(is_down), generator.random() * total
        for disk, rate in enumerate(each):
            drawn -= rate
            if drawn < 0:
                is_down[disk] = not is_down[disk]
                break
        else:
            if drawn >= batches:
                return False
            is_down = [down or generator.random() < share for down in is_down]
        if sum(is_down) > m or (before < m == sum(is_down) and generator.random() < spoiled):
            return False


class Durability(unittest.TestCase):
    def codes(self, *arguments):
        done = run(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)["codes"]

    def one(self, *arguments):
        codes = self.codes(*arguments)
        self.assertEqual(len(codes), 1)
        return codes[0]

    def near(self, value, expected, relative=1e-6):
        self.assertLess(abs(float(Decimal(value) / Decimal(expected)) - 1), relative, (value, expected))

    def test_against_exact_arithmetic(self):
        for k, m, afr, seconds in ((10, 4, "0.015", 86400), (6, 2, "0.7", 30 * 86400), (17, 3, "0.0001", 3600),
                                   (20, 20, "0.02", 3 * 86400), (3, 9, "0.999", 200 * 86400), (6, 3, "0.02", 1), (14, 0, "0.015", 86400),
                                   (1, 1, "0.00001", 3600), (8, 1, "0.95", 700 * 3600)):
            found = self.one("-k", k, "-m", m, "--afr", f"{float(afr) * 100:.6g}%", "--rebuild", f"{seconds}s")
            loss, mean = exact(k, m, afr, seconds)
            self.near(10 ** Decimal(found["log10_annual_loss_probability"]), loss)
            self.near(10 ** Decimal(found["log10_mttdl_years"]), mean)
            self.near(found["annual_loss_probability"], loss)
            self.near(found["mttdl_years"], mean)
            self.near(found["nines"], -loss.log10())

    CAUSES = ("--batch", "2%", "--batch-share", "35%", "--unreadable", "1e-15", "--disk-size", "20TB", "--site", "0.5%")

    def test_common_causes_against_exact_arithmetic(self):
        spoiled = -math.expm1(8 * 20e12 * 10 * math.log1p(-1e-15))
        every = dict(zip(("batch", "share", "spoiled", "site"), ("0.02", "0.35", spoiled, "0.005")))
        for arguments, names in ((self.CAUSES, every), (self.CAUSES[:4], ("batch", "share")), (self.CAUSES[4:8], ("spoiled",)),
                                 (self.CAUSES[8:], ("site",))):
            codes = ((4, "0.015", 86400), (0, "0.015", 86400), (1, "0.015", 86400), (9, "0.3", 30 * 86400))
            for m, afr, seconds in codes if names is every else codes[:1]:
                found = self.one("-k", 10, "-m", m, "--afr", f"{float(afr) * 100}%", "--rebuild", f"{seconds}s", *arguments)
                loss, mean = exact(10, m, afr, seconds, **{name: every[name] for name in names})
                self.near(10 ** Decimal(found["log10_annual_loss_probability"]), loss)
                self.near(10 ** Decimal(found["log10_mttdl_years"]), mean)

    def test_common_causes_against_disks_drawn_one_by_one(self):
        generator, draws = random.Random(7), 20000
        arguments = ("-k", 3, "-m", 2, "--afr", "30%", "--rebuild", "20d", "--batch", "20%", "--batch-share", "30%", "--unreadable", "1e-14",
                     "--disk-size", "1TB", "--site", "1%")
        spoiled = -math.expm1(8 * 1e12 * 3 * math.log1p(-1e-14))
        lost = sum(not survives(generator, 3, 2, "0.3", 20 * 86400, 0.2, 0.3, spoiled, 0.01) for _ in range(draws)) / draws
        expected = self.one(*arguments)["annual_loss_probability"]
        self.assertLess(abs(lost - expected), 4 * math.sqrt(expected * (1 - expected) / draws), (lost, expected))

    def test_the_cause_that_decides_is_named(self):
        rates_given = ("--afr", "1.5%", "--rebuild", "24h")
        found = self.codes("--disks", 6, *rates_given, *self.CAUSES)
        self.assertEqual([each["most_by"] for each in found], ["disks", "unreadable", "batch", "site", "site", "site"])
        self.assertEqual(self.one("-k", 4, "-m", 2, *rates_given)["most_by"], "disks")
        alone = self.one("-k", 4, "-m", 1, *rates_given, "--batch", "0.01%", "--batch-share", "20%", "--site", "0.0025%")
        self.assertEqual(alone["most_by"], "several")  # batches 3.5e-5, the site 2.5e-5, disks 1.3e-5: none is half of it
        certain = self.one("-k", 4, "-m", 2, *rates_given, "--batch", "99%", "--batch-share", "99%", "--site", "10%")
        self.assertEqual(certain["most_by"], "batch")
        table = run("--disks", 6, *rates_given, *self.CAUSES).stdout.decode()
        self.assertIn("MOST BY", table)
        self.assertNotIn("Left out", table)
        self.assertIn("because it was not given: --batch, --site;",
                      run("-k", 4, "-m", 2, *rates_given, *self.CAUSES[4:8]).stdout.decode())

    def test_probabilities_beyond_a_double(self):
        found = self.one("-k", 200, "-m", 255, "--afr", "0.1%", "--rebuild", "1h")
        self.assertEqual(found["annual_loss_probability"], 0)
        self.assertIsNone(found["mttdl_years"])
        self.assertGreater(found["log10_mttdl_years"], 1000)
        # Once the chain has settled, within hours, losses come at a constant rate.
        self.assertLess(abs(found["log10_mttdl_years"] + found["log10_annual_loss_probability"]), 0.01)
        # A batch leaves hardly ever more than 2 disks of 102: states between are less likely than any double.
        found = self.one("-k", 2, "-m", 100, "--afr", "0.00001%", "--rebuild", "1s", "--batch", "1%", "--batch-share", "99.9999%")
        self.near(found["annual_loss_probability"], 0.01, 1e-5)
        table = run("-k", 200, "-m", 255, "--afr", "0.1%", "--rebuild", "1h").stdout.decode()
        self.assertRegex(table, r"e-1\d\d\d\b")
        self.assertRegex(table, r"e\+1\d\d\d\b")

    def test_sets(self):
        one = self.one("-k", 4, "-m", 1, "--afr", "5%", "--rebuild", "2d")["annual_loss_probability"]
        found = self.one("-k", 4, "-m", 1, "--afr", "5%", "--rebuild", "48h", "--sets", 1000)
        self.near(found["annual_loss_probability"], one)
        self.near(found["annual_loss_probability_of_any_set"], -math.expm1(1000 * math.log1p(-one)))
        found = self.one("-k", 10, "-m", 9, "--afr", "1%", "--rebuild", "1h", "--sets", 1000000)
        self.near(found["log10_annual_loss_probability_of_any_set"] - found["log10_annual_loss_probability"], 6)

    def test_a_list_of_parities(self):
        found = self.codes("--disks", 14, "--afr", "1.5%", "--rebuild", "24h")
        self.assertEqual([(each["k"], each["m"]) for each in found], [(14 - m, m) for m in range(14)])
        nines = [each["nines"] for each in found]
        self.assertEqual(nines, sorted(nines))
        self.near(found[4]["stored_over_data"], 1.4)
        self.assertEqual(len(self.codes("--disks", 300, "--afr", "1.5%", "--rebuild", "24h")), 17)
        table = run("--disks", 14, "--afr", "1.5%", "--rebuild", "24h").stdout.decode()
        self.assertEqual(len([line for line in table.splitlines() if line[:5].strip().isdigit()]), 14, table)
        by_k, by_m = (self.one("--disks", 14, *code, "--afr", "1.5%", "--rebuild", "24h") for code in (("-k", 10), ("-m", 4)))
        self.assertEqual(by_k, by_m)

    def test_refused(self):
        code, rates_given = ("-k", 4, "-m", 2), ("--afr", "1%", "--rebuild", "24h")
        for text, *arguments in (
            ("--afr is required", *code, "--rebuild", "24h"),
            ("1.5 is not a percentage: write it as 1.5%", *code, "--afr", "1.5", "--rebuild", "24h"),
            ("0% is not between", *code, "--afr", "0%", "--rebuild", "24h"),
            ("100% is not between", *code, "--afr", "100%", "--rebuild", "24h"),
            ("-1% is not a percentage", *code, "--afr", "-1%", "--rebuild", "24h"),
            ("24 is no time such as", *code, "--afr", "1%", "--rebuild", "24"),
            ("nan is no time", *code, "--afr", "1%", "--rebuild", "nan"),
            ("366d is not between 1s and 365d", *code, "--afr", "1%", "--rebuild", "366d"),
            ("0s is not between", *code, "--afr", "1%", "--rebuild", "0s"),
            ("--sets is 0", *code, *rates_given, "--sets", 0),
            ("-k is 0", "-k", 0, "-m", 2, *rates_given),
            ("-m is 256, at most 255", "-k", 1, "-m", 256, *rates_given),
            ("give -k and -m, or --disks", *rates_given),
            ("give -k and -m, or --disks", "-k", 4, *rates_given),
            ("give -k and -m, or --disks", *code, "--disks", 6, *rates_given),
            ("of 4 disks 4 cannot hold parity", "--disks", 4, "-m", 4, *rates_given),
            ("of 4 disks 5 cannot hold data", "--disks", 4, "-k", 5, *rates_given),
            ("--disks 0 is not in range", "--disks", 0, *rates_given),
            ("are more than 65536", "-k", 65536, "-m", 1, *rates_given),
            ("--batch works only with --batch-share", *code, *rates_given, "--batch", "1%"),
            ("--batch-share: 100% must be above 0% and below 100%", *code, *rates_given, "--batch", "1%", "--batch-share", "100%"),
            ("--unreadable works only with --disk-size", *code, *rates_given, "--unreadable", "1e-15"),
            ("--unreadable: 1 is not between 0 and 1", *code, *rates_given, "--unreadable", 1, "--disk-size", "1TB"),
            ("--disk-size is 0", *code, *rates_given, "--unreadable", "1e-15", "--disk-size", 0),
            ("--site: 0% must be above 0%", *code, *rates_given, "--site", "0%"),
        ):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(text, done.stderr.decode())
            self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
