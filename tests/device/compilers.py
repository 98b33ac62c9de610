# SPDX-License-Identifier: Apache-2.0
"""The compilers of three makers of GPUs, without a GPU. Each class has

    find()          the compiler, or None
    table           the name of its table in bench/results/compile
    words(target)   what print_kernel_text takes for DEVICE
    compile(text, target)   (facts for the table, [names of the instructions between two branches])
    ALU             the names that count as operations
"""

import ctypes.util
import glob
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
import cubin  # noqa: E402
import nvrtc  # noqa: E402


class Nvidia:
    ALU = ("LOP3", "PRMT", "SHF", "IADD3", "LEA", "ISETP", "SEL", "MOV")  # one pipe; IMAD has another
    BRANCHES = {0x141, 0x145, 0x147, 0x148, 0x149, 0x14D}  # BSYNC, BSSY, BRA, WARPSYNC, BRX, EXIT
    NAMES = {0x002: "MOV", 0x007: "SEL", 0x00C: "ISETP", 0x011: "LEA", 0x012: "LOP3", 0x016: "PRMT", 0x019: "SHF", 0x024: "IMAD", 0x025: "IMAD", 0x010: "IADD3", 0x035: "IADD3",
             0x181: "LDG", 0x186: "STG", 0x184: "LDS", 0x188: "STS", 0x1AE: "LDGSTS"}  # fmt: skip
    MISSING = "no libnvrtc (it comes with the CUDA toolkit)"

    def __init__(self, library):
        self.library = library
        self.table = f"nvrtc-{library.version()}"
        self.known = {f"sm_{number}" for number in library.architectures()}

    @classmethod
    def find(cls):
        library = nvrtc.find()
        return library and cls(library)

    @staticmethod
    def words(target):
        return target.removeprefix("sm_")

    def compile(self, text, target):
        image, _ = self.library.compile(text, target)
        (kernel,) = cubin.kernels(image).values()
        found = [[]]
        for opcode in kernel.opcodes():
            if opcode in self.BRANCHES:
                found.append([])
            else:
                found[-1].append(self.NAMES.get(opcode, "other"))
        return {"registers": kernel.registers, "spilled_bytes": kernel.frame_bytes, "shared_bytes": kernel.shared_bytes,
                "instructions": kernel.instruction_count()}, found  # fmt: skip


class Amd:
    """clang with the device libraries of ROCm. Their control library for gfx940 serves gfx942, that for gfx1036 gfx1100: they hold
    the number of the architecture, which no kernel asks for."""

    ALU = ("VALU",)
    KINDS = {"v_": "VALU", "global_load": "LDG", "global_store": "STG", "ds_read": "LDS", "ds_load": "LDS", "ds_write": "STS",
             "ds_store": "STS", "s_": "SALU"}  # fmt: skip
    BITCODE = "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode"
    CONTROL = {"gfx90a": "90a", "gfx942": "940", "gfx1100": "1036"}
    MISSING = "no clang-19 with rocm-device-libs"

    def __init__(self):
        version = subprocess.run(["clang-19", "-dumpversion"], check=True, capture_output=True, text=True).stdout
        self.table = "clang-" + ".".join(version.strip().split(".")[:2])
        self.known = set(self.CONTROL)

    @classmethod
    def find(cls):
        return cls() if shutil.which("clang-19") and glob.glob(f"{cls.BITCODE}/ockl.bc") else None

    @staticmethod
    def words(target):
        return "amd"

    def compile(self, text, target):
        wave = "off" if target == "gfx1100" else "on"
        libraries = ("opencl", "ockl", "ocml", f"oclc_isa_version_{self.CONTROL[target]}", "oclc_abi_version_500",
                     f"oclc_wavefrontsize64_{wave}", "oclc_daz_opt_off", "oclc_finite_only_off", "oclc_unsafe_math_off",
                     "oclc_correctly_rounded_sqrt_on")  # fmt: skip
        command = ["clang-19", "-x", "cl", "-cl-std=CL1.2", "-O3", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib"]
        for name in libraries:
            command += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", f"{self.BITCODE}/{name}.bc"]
        run = subprocess.run([*command, "-S", "-o", "-", "-"], input=text, capture_output=True)
        if run.returncode != 0:
            raise RuntimeError(run.stderr.decode())
        code = run.stdout.decode()

        def number(name):
            return int(re.search(rf"^\W*{name}:\s+(\d+)", code, re.M)[1])

        found = [[]]
        for line in code.split(".Lfunc_end0")[0].splitlines():
            opcode = re.match(r"\s+([a-z]\w+)", line)
            if line.startswith(".L") or (opcode and opcode[1].startswith(("s_cbranch", "s_branch", "s_endpgm"))):
                found.append([])
            elif opcode:
                found[-1].append(next((kind for start, kind in self.KINDS.items() if opcode[1].startswith(start)), "other"))
        return {"registers": number("NumVgprs"), "spilled_bytes": number("ScratchSize"), "spilled_scalars": number(r"\.sgpr_spill_count"),
                "waves": number("Occupancy"), "instructions": sum(map(len, found))}, found  # fmt: skip


class Intel:
    """ocloc. As opencl/ does it: 16 items in a sub-group on a device without 8, and 256 registers a thread for a kernel that spills
    with 128."""

    ALU = ()
    OPTIONS = {"dg2": "-cl-std=CL1.2", "pvc": "-cl-std=CL1.2 -DSUB_GROUP=16"}
    MORE_REGISTERS = " -cl-intel-256-GRF-per-thread"
    MISSING = "no ocloc (intel-opencl-icd)"

    def __init__(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["ocloc", "query", "OCL_DRIVER_VERSION"], cwd=folder, check=True, capture_output=True)
            version = pathlib.Path(folder, "OCL_DRIVER_VERSION").read_text()
        self.table = "ocloc-" + ".".join(version.split(".")[:2])
        self.known = set(self.OPTIONS)

    @classmethod
    def find(cls):
        return cls() if shutil.which("ocloc") and ctypes.util.find_library("igc") else None

    @staticmethod
    def words(target):
        return "intel"

    def spilled(self, text, target, options):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "kernel.cl")
            file.write_bytes(text)
            run = subprocess.run(["ocloc", "compile", "-file", file, "-device", target, "-options", options, "-out_dir", folder],
                                 capture_output=True, text=True)  # fmt: skip
        if run.returncode != 0:
            raise RuntimeError(f"ocloc: status {run.returncode}\n{run.stdout}{run.stderr}")
        found = re.search(r"spilled around (\d+)", run.stdout + run.stderr)
        return int(found[1]) if found else 0

    def compile(self, text, target):
        spilled, registers = self.spilled(text, target, self.OPTIONS[target]), 128
        if spilled != 0:
            spilled, registers = self.spilled(text, target, self.OPTIONS[target] + self.MORE_REGISTERS), 256
        return {"registers": registers, "spilled_bytes": spilled}, []


COMPILERS = {"nvrtc": Nvidia, "clang": Amd, "ocloc": Intel}
