"""Energy meters of Linux: the counters of powercap (RAPL). If there is none, a study says NOT MEASURED."""
import math
import pathlib

import study as st


class Domain:
    def __init__(self, folder):
        self.folder = folder
        self.name = (folder / "name").read_text().strip()
        self.range_uj = int((folder / "max_energy_range_uj").read_text())

    def read(self):
        return int((self.folder / "energy_uj").read_text())

    def joules(self, before, after):
        """Energy between two readings. The counter wraps around at its range; between readings at most once."""
        return ((after - before) if after >= before else (after - before + self.range_uj)) / 1e6


def domains(root):
    """The counters of packages and of memory. core and uncore are parts of a package; psys contains all packages. These are
    omitted. Throws Unavailable with the reason."""
    found = []
    for folder in sorted(pathlib.Path(root).glob("intel-rapl:*")):
        name = (folder / "name").read_text().strip() if (folder / "name").exists() else ""
        if name.startswith("package") or name == "dram":
            found.append(folder)
    if not found:
        raise st.Unavailable(f"{root} has no energy counter of a package: no RAPL, or a virtual machine that hides it")
    try:
        found = [Domain(folder) for folder in found]
        for domain in found:
            domain.read()
    except PermissionError as error:
        raise st.Unavailable(f"{error.filename} is readable by root alone (since CVE-2020-8694)") from error
    except (OSError, ValueError) as error:
        raise st.Unavailable(f"a counter of {root} cannot be read: {error}") from error
    return found


def correlation(xs, ys):
    """Pearson's r and its 95 % interval by Fisher's transformation. None where one of the two does not vary."""
    n = len(xs)
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    var_x, var_y = sum((x - mean_x) ** 2 for x in xs), sum((y - mean_y) ** 2 for y in ys)
    if n < 4 or var_x == 0 or var_y == 0:
        return None
    r = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / math.sqrt(var_x * var_y)
    if abs(r) >= 1:
        return r, r, r
    z, half = math.atanh(r), 1.96 / math.sqrt(n - 3)
    return r, math.tanh(z - half), math.tanh(z + half)
