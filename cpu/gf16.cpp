// SPDX-License-Identifier: Apache-2.0
#include "cpu/gf16.hpp"

#include <algorithm>
#include <cstring>

namespace tandem::cpu {
namespace {

using core::Mismatch;
using core::Mode;
using core::Task;

// Scratch of a transform stays in the L2 cache if the code is narrow enough.
constexpr std::size_t kGroupBytes = 256 << 10, kMostLaneBytes = 1024;
constexpr std::size_t kCompareBytes = 64 << 10;

// The bytes of each output that compare recomputes at once.
std::size_t compare_tile(unsigned rows) {
  return std::clamp(kCompareBytes / std::max(rows, 1u) / kCacheLine * kCacheLine, kCacheLine, std::size_t{4096});
}

const std::uint8_t *bytes_of(const std::byte *shard) { return reinterpret_cast<const std::uint8_t *>(shard); }

}  // namespace

AlignedMemory gf16_tables(const Gf16Kernel &kernel, const core::gf16::Field &field) {
  AlignedMemory tables = aligned_memory(kernel.tables_bytes);
  std::uint16_t products[16][16];
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned b = 0; b < 16; ++b)
      products[i][b] = field.multiply(static_cast<std::uint16_t>(1u << i), static_cast<std::uint16_t>(1u << b));
  kernel.prepare(products, tables.get());
  return tables;
}

// A piece of all shards, and scratch memory for lanes that are as long, in whole cache lines.
struct Gf16Operator::Range {
  const Task &task;
  Mismatch *found;
  std::uint64_t at;
  std::size_t bytes, lane_bytes, group_bytes;
  std::uint8_t *sum;       // group: of data in the domain of coefficients
  std::uint8_t *work;      // group
  std::uint8_t *solution;  // group, of a decode: of the lost data
  std::uint8_t *piece;     // lane, of a compare
};

Gf16Operator::Gf16Operator(const Gf16Kernel &kernel, const core::Operator &what, const KnownOfModes &known,
                           std::shared_ptr<const Known> tuned)
    : CpuPrepared(what, known, std::move(tuned)), kernel_(kernel), form_(what.form()) {
  if (const auto *powers = std::get_if<core::Powers16>(&form_)) form_ = core::matrix_of(*powers);
  dense_ = std::get_if<core::Dense16>(&form_);
  leopard_ = std::get_if<core::Leopard16>(&form_);
  tables_ = gf16_tables(kernel, dense_ != nullptr ? *dense_->field : core::gf16::Field::cantor());
  if (leopard_ == nullptr) return;
  const unsigned log2 = leopard_->group_log2;
  lane_bytes_ = std::clamp(kGroupBytes >> log2, kCacheLine, kMostLaneBytes);
  data_ = groups_of(leopard_->data_points, log2);
  chosen_ = groups_of(leopard_->chosen_points, log2);
  lost_ = groups_of(leopard_->lost_points, log2);
  parity_ = groups_of(leopard_->parity_points, log2);
}

std::vector<Gf16Operator::PointGroup> Gf16Operator::groups_of(const std::vector<core::Element> &points, unsigned log2) {
  std::vector<PointGroup> groups;
  for (unsigned i = 0; i < points.size(); ++i) {
    const unsigned first = static_cast<unsigned>(points[i]) >> log2 << log2;
    if (groups.empty() || groups.back().first_point != first) groups.push_back({first, i, i});
    groups.back().end = i + 1;
  }
  return groups;
}

std::size_t Gf16Operator::scratch_bytes(const OperatorCall &call) const noexcept {
  if (leopard_ != nullptr) {
    const std::size_t lane = rounded_up(std::min<std::uint64_t>(lane_bytes_, call.length_bytes));
    return ((std::size_t{chosen_.empty() ? 2u : 3u} << leopard_->group_log2) + 1) * lane;
  }
  if (call.task->mode != Mode::compare) return 0;
  return rounded_up(rows() * sizeof(std::uint8_t *)) + rows() * compare_tile(rows());
}

void Gf16Operator::apply(const OperatorCall &call, std::byte *scratch, Mismatch *found) const noexcept {
  if (dense_ != nullptr) return apply_dense(call, scratch, found);
  auto *const memory = reinterpret_cast<std::uint8_t *>(scratch);
  for (std::uint64_t done = 0; done < call.length_bytes;) {
    const std::size_t bytes = std::min<std::uint64_t>(lane_bytes_, call.length_bytes - done);
    const std::size_t lane = rounded_up(bytes), group = lane << leopard_->group_log2;
    std::uint8_t *const solution = memory + 2 * group;
    const Range range{*call.task, found,  call.offset_bytes + done, bytes,    lane,
                      group,      memory, memory + group,           solution, solution + (chosen_.empty() ? 0 : group)};
    done += bytes;
    read_data(range);
    if (!chosen_.empty()) {
      solve(range);
      write_lost(range);
    }
    write_parity(range);
  }
}

Gf16Lanes Gf16Operator::lanes(const Range &range, std::uint8_t *at, unsigned point) const noexcept {
  return {tables_.get(), at, range.lane_bytes, leopard_->group_log2, point};
}

// sum = the sum of the inverse transforms of all groups of data. There the encode of a group of parity is a transform.
void Gf16Operator::read_data(const Range &range) const noexcept {
  if (data_.empty()) std::memset(range.sum, 0, range.group_bytes);
  for (const PointGroup &group : data_) {
    const bool is_first = &group == data_.data();
    std::uint8_t *const target = is_first ? range.sum : range.work;
    std::uint8_t *lane = target;
    for (unsigned i = group.begin; i < group.end; ++i) {
      std::uint8_t *const next = target + (leopard_->data_points[i] - group.first_point) * range.lane_bytes;
      std::memset(lane, 0, static_cast<std::size_t>(next - lane));
      kernel_.enter(tables_.get(), next, bytes_of(range.task.inputs[i]) + range.at, range.bytes, 1);
      lane = next + range.lane_bytes;
    }
    std::memset(lane, 0, range.group_bytes - static_cast<std::size_t>(lane - target));
    kernel_.inverse(lanes(range, target, group.first_point),
                    leopard_->data_points[group.end - 1] - group.first_point + 1);
    if (!is_first) kernel_.add(range.sum, range.work, range.group_bytes);
  }
}

// solution = the sum of the inverse transforms of the scaled syndromes.
void Gf16Operator::solve(const Range &range) const noexcept {
  const std::size_t data_count = leopard_->data_points.size();
  for (const PointGroup &group : chosen_) {
    const bool is_first = &group == chosen_.data();
    std::uint8_t *const target = is_first ? range.solution : range.work;
    const unsigned used = leopard_->chosen_points[group.end - 1] - group.first_point + 1;
    std::memcpy(target, range.sum, range.group_bytes);
    kernel_.forward(lanes(range, target, group.first_point), used);
    std::uint8_t *lane = target;
    for (unsigned i = group.begin; i < group.end; ++i) {
      std::uint8_t *const next = target + (leopard_->chosen_points[i] - group.first_point) * range.lane_bytes;
      std::memset(lane, 0, static_cast<std::size_t>(next - lane));
      kernel_.syndrome(tables_.get(), next, bytes_of(range.task.inputs[data_count + i]) + range.at, range.bytes,
                       leopard_->chosen_scales[i]);
      lane = next + range.lane_bytes;
    }
    std::memset(lane, 0, range.group_bytes - static_cast<std::size_t>(lane - target));
    kernel_.inverse(lanes(range, target, group.first_point), used);
    if (!is_first) kernel_.add(range.solution, range.work, range.group_bytes);
  }
}

// Lost data, and what it adds to `sum` where parity is wanted.
void Gf16Operator::write_lost(const Range &range) const noexcept {
  std::size_t output = 0;
  for (const PointGroup &group : lost_) {
    const unsigned used = leopard_->lost_points[group.end - 1] - group.first_point + 1;
    std::memcpy(range.work, range.solution, range.group_bytes);
    kernel_.forward(lanes(range, range.work, group.first_point), used);
    std::uint8_t *lane = range.work;
    for (unsigned i = group.begin; i < group.end; ++i) {
      std::uint8_t *const next = range.work + (leopard_->lost_points[i] - group.first_point) * range.lane_bytes;
      std::memset(lane, 0, static_cast<std::size_t>(next - lane));
      kernel_.enter(tables_.get(), next, next, range.lane_bytes, leopard_->lost_scales[i]);
      if (leopard_->is_wanted[i]) write(range, output++, next);
      lane = next + range.lane_bytes;
    }
    if (parity_.empty()) continue;
    std::memset(lane, 0, range.group_bytes - static_cast<std::size_t>(lane - range.work));
    kernel_.inverse(lanes(range, range.work, group.first_point), used);
    kernel_.add(range.sum, range.work, range.group_bytes);
  }
}

void Gf16Operator::write_parity(const Range &range) const noexcept {
  const std::size_t first_output = rows() - leopard_->parity_points.size();
  for (const PointGroup &group : parity_) {
    const bool is_last = &group == &parity_.back();
    std::uint8_t *const target = is_last ? range.sum : range.work;
    if (!is_last) std::memcpy(target, range.sum, range.group_bytes);
    kernel_.forward(lanes(range, target, group.first_point),
                    leopard_->parity_points[group.end - 1] - group.first_point + 1);
    for (unsigned i = group.begin; i < group.end; ++i)
      write(range, first_output + i, target + (leopard_->parity_points[i] - group.first_point) * range.lane_bytes);
  }
}

void Gf16Operator::write(const Range &range, std::size_t output, const std::uint8_t *lane) const noexcept {
  auto *const shard = reinterpret_cast<std::uint8_t *>(range.task.outputs[output]) + range.at;
  if (range.task.mode != Mode::compare)
    return kernel_.leave(shard, lane, range.bytes, range.task.mode == Mode::accumulate);
  kernel_.leave(range.piece, lane, range.bytes, false);
  merge_differences(shard, range.piece, range.bytes, range.at, &range.found[output]);
}

void Gf16Operator::apply_dense(const OperatorCall &call, std::byte *scratch, Mismatch *found) const noexcept {
  const Task &task = *call.task;
  Gf16Call kernel_call;
  kernel_call.tables = tables_.get();
  kernel_call.coefficients = dense_->coefficients->data();
  kernel_call.inputs = reinterpret_cast<const std::uint8_t *const *>(task.inputs);
  kernel_call.outputs = reinterpret_cast<std::uint8_t *const *>(task.outputs);
  kernel_call.offset_bytes = call.offset_bytes;
  kernel_call.length_bytes = call.length_bytes;
  kernel_call.rows = rows();
  kernel_call.columns = columns();
  kernel_call.accumulate = task.mode == Mode::accumulate;
  kernel_call.is_words = dense_->layout == core::Layout::words;
  if (task.mode != Mode::compare) return kernel_.apply(kernel_call);
  auto **const outputs = reinterpret_cast<std::uint8_t **>(scratch);
  auto *const computed = reinterpret_cast<std::uint8_t *>(scratch) + rounded_up(rows() * sizeof *outputs);
  compare_tiles(kernel_call, compare_tile(rows()), computed, outputs, found, kernel_.apply);
}

}  // namespace tandem::cpu
