#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""conformance_opencl_test on Intel's OpenCL runtime for CPUs, a fourth compiler. PyPI has it (275 MB), so only TANDEM_TEST_ALL=1 runs it.

    intel_cpu_test.py CONFORMANCE_OPENCL_TEST FOLDER     FOLDER: keeps the runtime. NOT RUN (status 77) without it
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGES = ("intel-opencl-rt==2026.2.0", "intel-cmplr-lib-rt==2026.2.0")


def fetch(folder):
    """The folder of its libraries, or None."""
    library = folder / "lib"
    if not (library / "libintelocl.so").exists():
        with tempfile.TemporaryDirectory() as wheels:
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--retries", "2", "-d", wheels, *PACKAGES]
            if subprocess.run(command).returncode != 0:
                return None
            library.mkdir(parents=True, exist_ok=True)
            for wheel in pathlib.Path(wheels).glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    for name in archive.namelist():
                        if "/data/lib/" in name and not name.endswith("/") and "libOpenCL" not in name:  # the loader is the system's
                            (library / pathlib.Path(name).name).write_bytes(archive.read(name))
    return library


def main(program, folder):
    if "TANDEM_TEST_ALL" not in os.environ:
        print("NOT RUN: it is for TANDEM_TEST_ALL=1")
        return 77
    library = fetch(pathlib.Path(folder))
    if library is None:
        print(f"NOT RUN: PyPI did not give {PACKAGES}")
        return 77
    with tempfile.TemporaryDirectory() as vendors:
        pathlib.Path(vendors, "intel-cpu.icd").write_text(str(library / "libintelocl.so"))
        environment = {**os.environ, "TANDEM_TUNING": "", "TANDEM_TEST_REQUIRE_OPENCL": "1", "OCL_ICD_VENDORS": vendors,
                       "LD_LIBRARY_PATH": str(library)}  # fmt: skip
        environment.pop("TANDEM_TEST_ALL")  # a slice of the cases
        return subprocess.run([program], env=environment).returncode


sys.exit(main(*sys.argv[1:]))
