#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tandem durability` against exact arithmetic. Usage: durability_cli_test.py PATH_OF_TANDEM"""
import decimal
import json
import math
import os
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


def exact(k, m, afr, rebuild_seconds):
    """Probability of loss within a year, and mean years to loss, in decimal arithmetic of 200 digits."""
    failure, rebuild = rates(afr, rebuild_seconds)
    n, size = k + m, m + 2
    halvings = 20 if rebuild_seconds >= 3600 else 46
    step = [[Decimal(0)] * size for _ in range(size)]
    for i in range(m + 1):
        up, down = (n - i) * failure, i * rebuild
        step[i][i + 1] = up / 2**halvings
        step[i][i] = -(up + down) / 2**halvings
        if i:
            step[i][i - 1] = down / 2**halvings
    unit = [[Decimal(int(i == j)) for j in range(size)] for i in range(size)]
    total, term = unit, unit
    for i in range(1, 60):
        term = [[cell / i for cell in row] for row in multiply(term, step)]
        total = [[a + b for a, b in zip(one, other)] for one, other in zip(total, term)]
    for _ in range(halvings):
        total = multiply(total, total)
    mean = forward = Decimal(0)
    for i in range(m + 1):
        forward = (1 + i * rebuild * forward) / ((n - i) * failure)
        mean += forward
    return total[0][m + 1], mean


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

    def test_probabilities_beyond_a_double(self):
        found = self.one("-k", 200, "-m", 255, "--afr", "0.1%", "--rebuild", "1h")
        self.assertEqual(found["annual_loss_probability"], 0)
        self.assertIsNone(found["mttdl_years"])
        self.assertGreater(found["log10_mttdl_years"], 1000)
        # Once the chain has settled, within hours, losses come at a constant rate.
        self.assertLess(abs(found["log10_mttdl_years"] + found["log10_annual_loss_probability"]), 0.01)
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
        ):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(text, done.stderr.decode())
            self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
