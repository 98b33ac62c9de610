"""NVRTC through ctypes: CUDA C to machine code, without a GPU. With ctypes, other threads run meanwhile."""

import ctypes
import ctypes.util
import glob
import os


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
