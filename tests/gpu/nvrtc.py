#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVRTC through ctypes: CUDA C to machine code, without a GPU. With ctypes, other threads run meanwhile.

    nvrtc.py FOLDER     takes the oldest and the newest supported NVRTC from PyPI, for wheels_in(FOLDER). Without a
                        network it says so, and its status is 0.
"""

import ctypes
import ctypes.util
import glob
import os
import subprocess
import sys

WHEELS = {"oldest": "nvidia-cuda-nvrtc-cu11==11.7.99", "newest": "nvidia-cuda-nvrtc>=13,<14"}


class CompileError(Exception):
    """What NVRTC says of a text."""


def find():
    """The library, or None."""
    found = ctypes.util.find_library("nvrtc")
    places = [found] if found else []
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        places += sorted(glob.glob(f"{home}/lib64/libnvrtc.so*")) if home else []
    places += sorted(glob.glob("/usr/lib/x86_64-linux-gnu/libnvrtc.so*"))
    for place in places:
        if "builtins" in place or ".alt." in place:
            continue
        try:
            return Nvrtc(ctypes.CDLL(place))
        except OSError:
            continue
    return None


def wheels_in(folder):
    """What lies there of WHEELS: {"oldest": library, "newest": library}."""
    found = {name: glob.glob(f"{folder}/{name}/nvidia/*/lib/libnvrtc.so.*") for name in WHEELS}
    return {name: Nvrtc(ctypes.CDLL(place)) for name, places in found.items() for place in places}


class Nvrtc:
    def __init__(self, library):
        self._library = library

    def _call(self, name, *arguments):
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: error {status}")

    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def architectures(self):
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", known)
        return sorted(known)

    def compile(self, text, architecture, *options):
        """(result, log). architecture: "sm_90" gives machine code, "compute_90" PTX. Raises CompileError with the log."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text, b"kernel.cu", 0, None, None)
        try:
            options = [option.encode() for option in (f"--gpu-architecture={architecture}", *options)]
            status = self._library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
            log = self._take(program, "nvrtcGetProgramLog").decode(errors="replace").rstrip("\0")
            if status != 0:
                raise CompileError(log)
            kind = "CUBIN" if architecture.startswith("sm_") else "PTX"
            return self._take(program, f"nvrtcGet{kind}"), log
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _take(self, program, name):
        size = ctypes.c_size_t()
        self._call(name + "Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(name, program, data)
        return data.raw


if __name__ == "__main__":
    for name, wheel in WHEELS.items():
        folder = os.path.join(sys.argv[1], name)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--retries", "2", "--no-deps",
                   "--target", folder, wheel]  # fmt: skip
        if not os.path.isdir(folder) and subprocess.run(command).returncode != 0:
            print(f"Continuing without {wheel}: PyPI did not give it")
