// SPDX-License-Identifier: Apache-2.0
// The engine behind the commands that measure: a request goes in, tables are printed while it runs, JSON comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tandem/tandem.h"

namespace tandem::bench {

// An impossible request (TANDEM_ERROR_INVALID_ARGUMENT), or a failed call of the library.
struct EngineFailure : std::runtime_error {
  EngineFailure(tandem_status failed, const std::string &message) : std::runtime_error(message), status(failed) {}
  tandem_status status;
};

struct RequestedContext {
  tandem_context_options options = {};  // its strings live until the call returns
  bool is_pinned = false;
};

// Every combination of the lists is measured, beside a peer and the memory roof. The texts are those of the flags.
struct CodesRequest {
  std::vector<RequestedContext> contexts = {{}};
  std::vector<std::string> operations = {"encode"};
  std::vector<std::string> codes;  // "10+4", or "all"; none: k and m
  unsigned k = 10, m = 4;
  std::vector<std::string> matrices = {"isal-cauchy"};
  std::string layout = "bytes";  // or "packets"
  std::uint32_t word_bits = 0;   // packets: 4, 8 or 16; 0 = 8
  std::size_t packet_bytes = 0;
  std::vector<std::size_t> sizes, shard_sizes;  // none: 512 KiB and 4 MiB
  std::size_t rotate_bytes = std::size_t{256} << 20;
  std::vector<std::string> placements = {"contiguous"};
  bool odd = false;
  std::string lost = "first";
  std::string peer, peer_function;  // "": the libisal.so.2 that the loader finds; "none"
  std::string clock = "wall";
  unsigned repeats = 51;
  double seconds = 0.25;
  std::uint64_t seed = 1;
  bool energy = false;  // also joules
  std::string sysfs = "/sys";
};

// Several devices as one: each alone, and the policies of a hybrid backend.
struct HybridRequest {
  std::string devices = "cpu+opencl:0:0";
  unsigned k = 10, m = 4;
  std::vector<std::size_t> sizes = {std::size_t{4} << 20, std::size_t{32} << 20, std::size_t{256} << 20};
  std::vector<std::string> operations = {"encode", "decode"};
  std::string kernel, resources;  // empty: those of a context without options
  std::uint32_t thread_count = 0;
  std::uint64_t warm_up_bytes = 0;
  unsigned repeats = 15;
  double slice_seconds = 0.05, saturation_seconds = 1;
};

// Many stripes of one code in the memory of a device.
struct BatchRequest {
  std::string backend, technique = "compiled";
  unsigned k = 10, m = 4;
  std::vector<std::string> operations = {"encode", "decode"};
  std::vector<std::size_t> shard_sizes = {std::size_t{64} << 10};
  std::size_t stripe_count = 1000;
  unsigned repeats = 15;
  double seconds = 1;
};

// show: print tables on standard output. Returns the whole run; bench/README.md lists the fields.
// Throw EngineFailure, or std::runtime_error for a result that differs from the peer's.
nlohmann::ordered_json measure_codes(const CodesRequest &request, bool show);
nlohmann::ordered_json measure_hybrid(const HybridRequest &request, bool show);
nlohmann::ordered_json measure_batch(const BatchRequest &request, bool show);

}  // namespace tandem::bench
