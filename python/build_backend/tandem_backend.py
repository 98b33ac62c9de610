"""scikit-build-core, and an sdist that carries the C++ tree.

The sources of libtandem lie outside this folder, where an sdist cannot reach. While one is made, they are copied to tandem_source/,
and with them the headers of other projects that libtandem is compiled with: an sdist needs nothing but a compiler.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess

from scikit_build_core.build import (build_editable, build_wheel, get_requires_for_build_editable,  # noqa: F401
                                     get_requires_for_build_sdist, get_requires_for_build_wheel,
                                     prepare_metadata_for_build_editable, prepare_metadata_for_build_wheel)
from scikit_build_core.build import build_sdist as _build_sdist

HERE = pathlib.Path(__file__).resolve().parent.parent
COPY = HERE / "tandem_source"

# What a build as part of another project reads.
FOLDERS = ["api", "base", "cmake", "core", "cpu", "device", "files", "gpu", "hybrid", "include", "opencl", "tuning"]
FILES = ["CMakeLists.txt", "LICENSE"]

# Headers of other projects: the header that is looked for, what is copied, the file with its licence in Debian.
HEADERS = [("fmt/format.h", "fmt", "libfmt-dev"), ("nlohmann/json.hpp", "nlohmann", "nlohmann-json3-dev"),
           ("xxhash.h", "xxhash.h", "libxxhash-dev"), ("xxh3.h", "xxh3.h", "libxxhash-dev")]
INCLUDE_FOLDERS = ["/usr/local/include", "/usr/include"]

PACKAGES = {
    "fmt": """if(NOT TARGET fmt::fmt-header-only)
  add_library(fmt::fmt-header-only INTERFACE IMPORTED)
  set_target_properties(fmt::fmt-header-only PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR}/../../include INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
endif()
set(fmt_VERSION @VERSION@)
""",
    "nlohmann_json": """if(NOT TARGET nlohmann_json::nlohmann_json)
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
  set_target_properties(nlohmann_json::nlohmann_json PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR}/../../include)
endif()
""",
}


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


def _header(name):
    for folder in INCLUDE_FOLDERS:
        if (pathlib.Path(folder) / name).exists():
            return pathlib.Path(folder) / name
    return None


def _copy_headers(target):
    include = target / "include"
    for probe, name, package in HEADERS:
        found = _header(probe)
        if found is None:
            raise RuntimeError(f"{probe} is not in {' or '.join(INCLUDE_FOLDERS)}: the sdist carries it "
                               f"(Debian, Ubuntu: apt-get install {package})")
        source = found if "/" not in probe else found.parent
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, include / name, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, include / name)
        licence = pathlib.Path("/usr/share/doc") / package / "copyright"
        if licence.exists():
            shutil.copyfile(licence, target / f"LICENSE.{package}")
    number = int(re.search(r"#define FMT_VERSION (\d+)", (include / "fmt" / "core.h").read_text()).group(1))
    version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    for name, text in PACKAGES.items():
        folder = target / "cmake" / name
        folder.mkdir(parents=True)
        (folder / f"{name}-config.cmake").write_text(text.replace("@VERSION@", version))


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
