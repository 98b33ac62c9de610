// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ptx/kernel.hpp"

#include <dlfcn.h>

#include <filesystem>

namespace tandem::test::ptx {

Nvrtc::Nvrtc(const std::string &path) : real_(path) {
  if (!real_.is_there) throw Error("no NVRTC in " + path);
  int major = 0, minor = 0;
  real_.nvrtcVersion(&major, &minor);
  version_ = std::to_string(major) + "." + std::to_string(minor);
}

std::string Nvrtc::compile(const std::string &text, unsigned architecture) const {
  const std::string option = "--gpu-architecture=compute_" + std::to_string(architecture);
  RealNvrtc::Made made = real_.compile(text, {option.c_str(), "--std=c++17"});  // as gpu/programs.cpp
  if (made.result != NVRTC_SUCCESS) throw Error("NVRTC " + version_ + ": " + made.log);
  made.binary.resize(made.binary.find_last_not_of('\0') + 1);
  return made.binary;
}

const std::vector<std::unique_ptr<Nvrtc>> &nvrtcs() {
  static const auto all = [] {
    std::vector<std::unique_ptr<Nvrtc>> found;
    for (const char *each : {"newest", "oldest"}) {
      // NVRTC opens its builtins by name. Under a sanitizer it does not find them in its own folder.
      for (const std::string name : {"libnvrtc-builtins.so.", "libnvrtc.so."}) {
        std::error_code none;
        const std::string folder = TANDEM_TEST_NVRTC "/" + std::string(each);
        for (const auto &entry : std::filesystem::recursive_directory_iterator(folder, none)) {
          if (!entry.path().filename().string().starts_with(name)) continue;
          if (name == "libnvrtc.so.")
            found.push_back(std::make_unique<Nvrtc>(entry.path()));
          else
            dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
        }
      }
    }
    for (const char *each : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"})
      try {
        if (found.empty()) found.push_back(std::make_unique<Nvrtc>(each));
      } catch (const Error &) {
      }
    return found;
  }();
  return all;
}

Launch launch_of(const device::KernelSpec &spec, const device::KernelArguments &arguments,
                 const std::array<unsigned, 3> &grid, std::uint64_t shared_bytes, std::uint64_t seed) {
  Launch launch;
  launch.grid = grid;
  launch.block = spec.tuning.local;
  launch.shared_bytes = shared_bytes;
  launch.parameters = &arguments;
  launch.parameter_bytes = sizeof arguments;
  launch.seed = seed;
  const auto add = [&](const void *first, std::uint64_t bytes, bool is_defined) {
    launch.memory.push_back({reinterpret_cast<std::uint64_t>(first), bytes, is_defined});
  };
  const unsigned columns = arguments.columns, shards = columns + arguments.rows;
  const auto is_defined = [&](unsigned shard) { return shard < columns || spec.mode != core::Mode::assign; };
  if (spec.binding == device::Binding::table) {
    const std::uint64_t words = 3 + shards, rows = std::uint64_t{grid[1]} * grid[2];
    const auto *table = static_cast<const std::uint64_t *>(arguments.shards[0]);
    add(table, rows * words * 8, true);
    for (unsigned i = 0; i < shards; ++i) {
      for (std::uint64_t r = 0; r < rows; ++r) {
        const std::uint64_t *row = table + r * words, first = row[3 + i], length = row[2];
        // A part of a stripe may read beyond its ends, where the next part is.
        Region &last = launch.memory.back();
        if (r > 0 && last.first + last.bytes == first)
          last.bytes += length;
        else
          launch.memory.push_back({first, length, is_defined(i)});
      }
    }
  } else {
    for (unsigned i = 0; i < shards; ++i) add(arguments.shards[i], arguments.length, is_defined(i));
  }
  if (spec.mode == core::Mode::compare) {
    const auto first_output = reinterpret_cast<std::uint64_t>(arguments.shards[columns]);
    const device::KernelRange range = device::cut_kernel_range(spec, arguments.length, first_output);
    add(arguments.records, range.record_bytes(arguments.rows), true);
  }
  if (spec.technique == device::Technique::tables)
    add(arguments.tables, (arguments.rows + 3) / 4 * columns * device::kTableBytesPerColumn, true);
  return launch;
}

}  // namespace tandem::test::ptx
