# SPDX-License-Identifier: Apache-2.0
"""scikit-build-core, and an sdist that carries the C++ tree.

The sources of libtandem lie outside this folder, where an sdist cannot reach. While one is made, they are copied to tandem_source/,
and with them xxHash's header, which libtandem is compiled with: an sdist needs nothing but a compiler.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess

from scikit_build_core.build import (build_editable, build_wheel, get_requires_for_build_editable,  # noqa: F401
                                     get_requires_for_build_sdist, get_requires_for_build_wheel,
                                     prepare_metadata_for_build_editable, prepare_metadata_for_build_wheel)
from scikit_build_core.build import build_sdist as _build_sdist

HERE = pathlib.Path(__file__).resolve().parent.parent
COPY = HERE / "tandem_source"

# What a build as part of another project reads.
FOLDERS = ["api", "base", "cmake", "core", "cpu", "device", "files", "gpu", "hybrid", "include", "opencl", "par2", "tuning"]
FILES = ["CMakeLists.txt", "LICENSE", "NOTICE"]

# xxHash, which libtandem is compiled with, as headers.
HEADERS = ["xxhash.h", "xxh3.h"]
INCLUDE_FOLDERS = ["/usr/local/include", "/usr/include"]


def _tracked(tree, folder):
    """The files of a folder that git knows, or all of them where there is no git."""
    try:
        listed = subprocess.run(["git", "-C", str(tree), "ls-files", "-z", "--", folder], capture_output=True, check=True)
        files = [name for name in os.fsdecode(listed.stdout).split("\0") if name]
        if files:
            return [name for name in files if (tree / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        pass
    return [file.relative_to(tree).as_posix() for file in sorted((tree / folder).rglob("*")) if file.is_file()]


def _copy_headers(target):
    (target / "include").mkdir(parents=True)
    for name in HEADERS:
        found = [path for folder in INCLUDE_FOLDERS if (path := pathlib.Path(folder) / name).exists()]
        if not found:
            raise RuntimeError(f"{name} is not in {' or '.join(INCLUDE_FOLDERS)}: the sdist carries it "
                               "(Debian, Ubuntu: apt-get install libxxhash-dev)")
        shutil.copyfile(found[0], target / "include" / name)


@contextlib.contextmanager
def _carried_tree():
    tree = HERE.parent
    if not (tree / "include" / "tandem" / "tandem.h").exists():
        yield  # this is an unpacked sdist, which carries it already
        return
    shutil.rmtree(COPY, ignore_errors=True)
    try:
        for folder in FOLDERS:
            for name in _tracked(tree, folder):
                (COPY / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(tree / name, COPY / name)
        for name in FILES:
            shutil.copyfile(tree / name, COPY / name)
        _copy_headers(COPY / "third_party")
        yield
    finally:
        shutil.rmtree(COPY, ignore_errors=True)


def build_sdist(sdist_directory, config_settings=None):
    with _carried_tree():
        return _build_sdist(sdist_directory, config_settings)
