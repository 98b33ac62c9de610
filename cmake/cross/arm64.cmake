# SPDX-License-Identifier: Apache-2.0
# Cross-compiles for 64-bit Arm with Debian's g++-aarch64-linux-gnu; qemu-user-static runs the programs. `cmake --preset
# arm64` uses this file. It needs no packages of another dpkg architecture (`:arm64`).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
include(${CMAKE_CURRENT_LIST_DIR}/headers.cmake)
list(APPEND CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
