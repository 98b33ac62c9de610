# SPDX-License-Identifier: Apache-2.0
# Two commands to start with: make demo, make test. Everything else is CMake: see CMakeLists.txt and CMakePresets.json.

BUILD ?= build
JOBS ?= $(shell nproc)
CMAKE_FLAGS ?=

.PHONY: help demo demo-volume demo-ceph studies docs test test-all release build configure deps deps-demo deps-docs deps-volume deps-ceph format clean
.DEFAULT_GOAL := help
.NOTPARALLEL:

help:
	@echo "make demo     encode a real file, delete four shards, get it back; damage all, repair (FILE=..., DEMO_DIR=...)"
	@echo "make demo-volume  serve a volume over NBD, put ext4 on it, lose members, get all back (DEMO_DIR=...)"
	@echo "make demo-ceph  a Ceph cluster on this machine, half of it with Tandem: kill OSDs, swap their libraries, read all back (as root)"
	@echo "make studies  rerun the experiments behind this project, write docs/internals/studies.md (STUDIES_FLAGS=\"--quick A\")"
	@echo "make docs     build the site of docs/ with a reference of the C and C++ interfaces, into $(BUILD)/site"
	@echo "make test     build and run every test; of thousands of like cases a random slice"
	@echo "make test-all build and run every test with every case, demo-ceph where Ceph is installed, other systems"
	@echo "make release  make the files of a release from the last commit, test them, upload nothing (KEY=... signs them)"
	@echo "make build    build everything that this machine can build, into $(BUILD)/"
	@echo "make deps     install missing packages for building and testing"
	@echo "make format   format the sources with clang-format 14, rustfmt and gofmt"
	@echo "make clean    remove $(BUILD)/"
	@echo
	@echo "demo, demo-volume, demo-ceph, docs and test install missing packages with apt; INSTALL=0 only names them."

demo: deps-demo configure
	cmake --build $(BUILD) --parallel $(JOBS) --target tandem_cli openmp_modules
	scripts/demo $(BUILD)/bin/tandem

demo-volume: deps-volume configure
	cmake --build $(BUILD) --parallel $(JOBS) --target tandem_cli tandem_nbdkit_plugin
	scripts/demo-volume $(BUILD)/bin/tandem

demo-ceph: deps-ceph configure
	cmake --build $(BUILD) --parallel $(JOBS) --target tandem_isal_standalone
	scripts/demo-ceph $(BUILD)/lib/tandem/isal/standalone/libisal.so.2

studies: deps-demo configure
	cmake --build $(BUILD) --parallel $(JOBS) --target studies_contenders
	bench/studies/run.py --build $(BUILD) $(STUDIES_FLAGS)

docs: deps-docs
	scripts/build-docs $(BUILD)

test: deps configure
	cmake --build $(BUILD) --parallel $(JOBS)
	scripts/run-tests $(BUILD) -j2

test-all: export TANDEM_TEST_ALL = 1
test-all: test
	scripts/demo-ceph $(BUILD)/lib/tandem/isal/standalone/libisal.so.2 || [ $$? = 77 ]
	scripts/check-systems $(BUILD)/systems || [ $$? = 77 ]

release:
	JOBS=$(JOBS) scripts/release

build: configure
	cmake --build $(BUILD) --parallel $(JOBS)

configure:
	@command -v cmake >/dev/null || { echo "cmake is missing: make deps" >&2; exit 1; }
	cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_BATCHES=ON $(CMAKE_FLAGS)

deps:
	@scripts/install-deps test

deps-demo:
	@scripts/install-deps demo

deps-docs:
	@scripts/install-deps docs

deps-volume:
	@scripts/install-deps demo volume

deps-ceph:
	@scripts/install-deps demo ceph

format:
	git ls-files -co --exclude-standard '*.c' '*.h' '*.cpp' '*.hpp' '*.inc' | xargs clang-format-14 -i
	if command -v rustfmt >/dev/null; then rustfmt --edition 2021 --config-path rust rust/build.rs rust/src/lib.rs rust/tests/*.rs; fi
	if command -v gofmt >/dev/null; then gofmt -w go; fi

clean:
	rm -rf $(BUILD)
