// SPDX-License-Identifier: Apache-2.0
#include "cpu/transforms.hpp"

#include <algorithm>
#include <cstring>

namespace tandem::cpu {
namespace {

constexpr std::size_t kMostShards = 256;  // a transform has at most as many points as the field
// Tiles of the syndromes of a decode. Together they stay in the L1 cache, or in the L2 cache if there are many.
constexpr std::size_t kLeastTileBytes = 512, kMostTransformTileBytes = 4096, kTilesBytes = 32 << 10;

// The places of a decode's syndromes in scratch memory, `bytes` of each. Long ones are a cache line apart, so that they
// use different sets of the L1 cache.
std::size_t syndrome_step(std::size_t bytes) { return rounded_up(bytes) + (bytes >= kLeastTileBytes ? kCacheLine : 0); }

std::size_t tile_bytes(std::size_t syndrome_count) {
  return std::clamp(kTilesBytes / syndrome_count / kCacheLine * kCacheLine, kLeastTileBytes, kMostTransformTileBytes);
}

}  // namespace

void Transforms::Stage::apply(KernelCall call, std::byte *scratch) const noexcept {
  call.tables = tables.get();
  call.rows = rows;
  call.columns = columns;
  is_transform ? kernel->apply_transform(call, scratch) : kernel->apply(call);
}

std::size_t Transforms::Stage::scratch_bytes(std::size_t length_bytes, bool out_of_cache) const noexcept {
  return is_transform ? rounded_up(kernel->transform_scratch_bytes(tables.get(), length_bytes, out_of_cache)) : 0;
}

Transforms::Stage Transforms::transform_stage(const Kernel &kernel, const core::CauchyTransform &form) {
  const ShapeBytes bytes(form);
  const TransformShape shape = bytes.shape();
  Stage stage{&kernel, aligned_memory(kernel.transform_bytes(shape)), shape.output_count, shape.input_count, true};
  kernel.prepare_transform(shape, stage.tables.get());
  return stage;
}

Transforms::Stage Transforms::matrix_stage(const Kernel &kernel, const core::Matrix &matrix) {
  Stage stage{&kernel, aligned_memory(kernel.tables_bytes(matrix.rows(), matrix.columns())), matrix.rows(),
              matrix.columns(), false};
  kernel.prepare(matrix.data(), matrix.rows(), matrix.columns(), stage.tables.get());
  return stage;
}

Transforms::Transforms(const Kernel &kernel, const core::CauchyTransform &form)
    : first_(transform_stage(kernel, form)) {}

Transforms::Transforms(const Kernel &kernel, const core::SyndromeDecode &form, bool solve_by_transform)
    : syndrome_count_(static_cast<std::uint32_t>(form.syndromes.output_points.size())) {
  if (!form.syndromes.input_points.empty()) first_ = transform_stage(kernel, form.syndromes);
  const auto syndrome_of = [&](core::Element point) {
    const auto found = std::ranges::lower_bound(form.syndromes.output_points, point);
    const bool is_one = found != form.syndromes.output_points.end() && *found == point;
    return is_one ? static_cast<std::uint32_t>(found - form.syndromes.output_points.begin()) : UINT32_MAX;
  };
  chosen_.reserve(form.solve.input_points.size());
  for (const core::Element point : form.solve.input_points) chosen_.push_back(syndrome_of(point));
  for (std::uint32_t r = 0; r < form.solve.output_points.size(); ++r) {
    const std::uint32_t syndrome = syndrome_of(form.solve.output_points[r]);
    if (syndrome != UINT32_MAX) lost_parity_.emplace_back(r, syndrome);
  }
  if (solve_by_transform) {
    solve_ = transform_stage(kernel, form.solve);
    return;
  }
  // From all syndromes, so that a lost parity shard takes its own.
  const core::Matrix of_chosen = core::matrix_of(form.solve);
  core::Matrix of_all(of_chosen.rows(), syndrome_count_);
  for (unsigned r = 0; r < of_all.rows(); ++r)
    for (unsigned i = 0; i < chosen_.size(); ++i) of_all.at(r, chosen_[i]) = of_chosen.at(r, i);
  for (const auto &[output, syndrome] : lost_parity_) of_all.at(output, syndrome) = 1;
  solve_ = matrix_stage(kernel, of_all);
}

std::size_t Transforms::scratch_bytes(std::size_t length_bytes, bool out_of_cache) const noexcept {
  if (syndrome_count_ == 0) return first_.scratch_bytes(length_bytes, out_of_cache);
  const std::size_t tile = std::min(length_bytes, tile_bytes(syndrome_count_));
  return syndrome_count_ * syndrome_step(tile) +
         std::max(first_.scratch_bytes(tile, out_of_cache), solve_.scratch_bytes(tile, out_of_cache));
}

void Transforms::apply(const KernelCall &call, std::byte *scratch) const noexcept {
  syndrome_count_ == 0 ? first_.apply(call, scratch) : decode(call, scratch);
}

void Transforms::decode(const KernelCall &call, std::byte *scratch) const noexcept {
  const std::size_t tile = std::min(call.length_bytes, tile_bytes(syndrome_count_));
  const std::size_t step = syndrome_step(tile);
  std::byte *const rest = scratch + syndrome_count_ * step;
  const std::uint32_t data_count = first_.columns;
  std::uint8_t *syndromes[kMostShards];
  const std::uint8_t *solved[kMostShards];
  const std::uint32_t solved_count = solve_.columns;
  KernelCall part = call;
  const std::size_t end = call.offset_bytes + call.length_bytes;
  for (; part.offset_bytes < end; part.offset_bytes += part.length_bytes) {
    part.length_bytes = std::min(tile, end - part.offset_bytes);
    for (std::uint32_t i = 0; i < syndrome_count_; ++i)
      syndromes[i] = moved(reinterpret_cast<std::uint8_t *>(scratch) + i * step, part.offset_bytes);

    for (const auto &[output, syndrome] : lost_parity_) std::memset(scratch + syndrome * step, 0, part.length_bytes);
    for (std::uint32_t i = 0; i < chosen_.size(); ++i)
      std::memcpy(scratch + chosen_[i] * step, call.inputs[data_count + i] + part.offset_bytes, part.length_bytes);
    KernelCall stage = part;
    if (data_count != 0) {
      stage.outputs = syndromes;
      stage.accumulate = true;
      first_.apply(stage, rest);
    }

    for (std::uint32_t i = 0; i < solved_count; ++i) solved[i] = syndromes[solve_.is_transform ? chosen_[i] : i];
    const bool adds_lost_parity = solve_.is_transform && !lost_parity_.empty();
    stage.inputs = solved;
    stage.outputs = call.outputs;
    stage.accumulate = call.accumulate;
    stage.out_of_cache = call.out_of_cache && !adds_lost_parity;
    solve_.apply(stage, rest);
    if (!adds_lost_parity) continue;
    for (const auto &[output, syndrome] : lost_parity_) {
      std::uint8_t *to = call.outputs[output] + part.offset_bytes;
      const auto *from = reinterpret_cast<const std::uint8_t *>(scratch + syndrome * step);
      for (std::size_t i = 0; i < part.length_bytes; ++i) to[i] ^= from[i];
    }
  }
}

}  // namespace tandem::cpu
