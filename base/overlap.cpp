// SPDX-License-Identifier: Apache-2.0
#include "base/overlap.hpp"

#include <algorithm>

namespace tandem::base {

namespace {

std::uintptr_t address(const std::byte *at) { return reinterpret_cast<std::uintptr_t>(at); }

// Whether the outputs lie in order, none on the next, and no input reaches into the range from the first to the last.
bool are_apart(std::span<const std::byte *const> inputs, std::span<std::byte *const> outputs,
               std::size_t bytes) noexcept {
  bool apart = true;
  for (std::size_t i = 1; i < outputs.size(); ++i)
    apart &= address(outputs[i]) > address(outputs[i - 1]) && address(outputs[i]) - address(outputs[i - 1]) >= bytes;
  if (!apart || outputs.empty()) return apart;
  const std::uintptr_t before = address(outputs.front()) - (bytes - 1);
  const std::uintptr_t reach = address(outputs.back()) + bytes - before;
  for (const std::byte *input : inputs) apart &= address(input) - before >= reach;
  return apart;
}

}  // namespace

bool any_overlap(std::span<const std::byte *const> inputs, std::span<std::byte *const> outputs,
                 std::size_t bytes) noexcept {
  if (are_apart(inputs, outputs, bytes)) return false;
  bool any = false;
  const auto compare = [&any, bytes](const std::byte *a, const std::byte *b) {
    any |= address(a) - address(b) + (bytes - 1) < 2 * bytes - 1;  // from -(bytes - 1) to bytes - 1
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (const std::byte *input : inputs) compare(input, outputs[i]);
    for (std::size_t j = i + 1; j < outputs.size(); ++j) compare(outputs[j], outputs[i]);
  }
  return any;
}

bool find_overlap(std::span<Extent> extents, Overlap *found) {
  std::ranges::sort(extents, [](const Extent &a, const Extent &b) { return address(a.begin) < address(b.begin); });
  // Sweep by address. An output is compared with the earlier buffer that reaches furthest, an input only with outputs.
  const Extent *furthest = nullptr, *furthest_output = nullptr;
  std::uintptr_t end = 0, end_output = 0;
  for (const Extent &e : extents) {
    const std::uintptr_t begin = address(e.begin);
    const Extent *other = nullptr;
    if (e.is_output && furthest != nullptr && begin < end) other = furthest;
    if (!e.is_output && furthest_output != nullptr && begin < end_output) other = furthest_output;
    if (other != nullptr) {
      const Extent &output = e.is_output ? e : *other;
      const Extent &rest = e.is_output ? *other : e;
      *found = {output.index, rest.index, rest.is_output};
      return true;
    }
    if (begin + e.bytes > end) {
      end = begin + e.bytes;
      furthest = &e;
    }
    if (e.is_output && begin + e.bytes > end_output) {
      end_output = begin + e.bytes;
      furthest_output = &e;
    }
  }
  return false;
}

}  // namespace tandem::base
