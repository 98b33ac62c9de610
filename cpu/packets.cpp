// SPDX-License-Identifier: Apache-2.0
#include "cpu/packets.hpp"

#include <algorithm>
#include <cstring>

#include "base/rounding.hpp"
#include "cpu/memory.hpp"
#include "cpu/sums.hpp"

namespace tandem::cpu {
namespace {

using core::Mismatch;
using core::Mode;

// The slots of a block together stay in the L1 cache.
constexpr std::size_t kPacketTileBytes = 32 << 10, kLeastSlotBytes = 256, kMostSlotBytes = 1024;
// Packets that are added at least so often on average are copied first, because packets that are a power of two apart
// do not stay in the L1 cache together.
constexpr std::uint64_t kReadsToGather = 4;

core::Matrix part_of(const core::Matrix &bits, unsigned first_row, unsigned rows, unsigned first_column,
                     unsigned columns) {
  core::Matrix part(rows, columns);
  for (unsigned r = 0; r < rows; ++r)
    std::ranges::copy(bits.row(first_row + r).subspan(first_column, columns), part.row(r).begin());
  return part;
}

// Copies of a few words are loads and stores in place, not a call.
void copy(std::uint8_t *to, const std::uint8_t *from, std::size_t bytes) {
  switch (bytes) {
    case 8:
      std::memcpy(to, from, 8);
      break;
    case 16:
      std::memcpy(to, from, 16);
      break;
    case 32:
      std::memcpy(to, from, 32);
      break;
    case 64:
      std::memcpy(to, from, 64);
      break;
    default:
      std::memcpy(to, from, bytes);
  }
}

// bytes: a multiple of 8.
void add(std::uint8_t *to, const std::uint8_t *from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::uint64_t a, b;
    std::memcpy(&a, to + i, 8);
    std::memcpy(&b, from + i, 8);
    a ^= b;
    std::memcpy(to + i, &a, 8);
  }
}

}  // namespace

// The same piece of the packets of some groups of all shards.
struct PacketOperator::Tile {
  const core::Task &task;
  Mismatch *found;
  std::uint8_t **slots;  // where each slot is, and memory for all
  std::uint8_t *memory;
  std::uint64_t first_byte;  // of the first packet of the first group
  std::uint64_t next_byte;   // the same of the next tile; first_byte: there is none
  std::uint64_t group_count;
  std::size_t bytes;  // of each packet
};

PacketOperator::PacketOperator(const Kernel &kernel, const core::Operator &what, bool shares_sums,
                               const KnownOfModes &known, std::shared_ptr<const Known> tuned)
    : CpuPrepared(what, known, std::move(tuned)), kernel_(kernel) {
  const auto &form = std::get<core::BitMatrix>(what.form());
  word_bits_ = form.word_bits;
  packet_bytes_ = form.packet_bytes;
  const unsigned most_at_once = kMostScheduledBits / word_bits_;
  const auto evenly = [&](unsigned count) {
    return base::divide_up(count, std::max(1u, base::divide_up(count, most_at_once)));
  };
  inputs_at_once_ = std::max(1u, evenly(columns()));
  outputs_at_once_ = std::max(1u, evenly(rows()));

  std::vector<Schedule> schedules;
  for (unsigned row = 0; row < rows(); row += outputs_at_once_) {
    const unsigned rows = std::min(outputs_at_once_, this->rows() - row);
    unsigned column = 0;
    do {  // without inputs: zeros
      const unsigned columns = std::min(inputs_at_once_, this->columns() - column);
      const core::Matrix bits =
          part_of(*form.bits, row * word_bits_, rows * word_bits_, column * word_bits_, columns * word_bits_);
      const Schedule plain = plain_schedule(bits);
      plain_additions_ += plain.addition_count();
      Schedule &schedule = schedules.emplace_back(shares_sums ? shared_schedule(bits) : plain);
      additions_ += schedule.addition_count();
      const std::uint32_t first_output = columns * word_bits_;
      if (column != 0)
        for (Sum &sum : schedule.sums)
          if (sum.to >= first_output && sum.to < first_output + rows * word_bits_) sum.from.push_back(sum.to);
      // Outputs and inputs have the same slots in all blocks.
      const std::uint32_t first_shared = first_output + rows * word_bits_;
      const std::uint32_t first_shared_slot = (outputs_at_once_ + inputs_at_once_) * word_bits_;
      const auto moved_slot = [&](std::uint32_t slot) {
        if (slot < first_output) return outputs_at_once_ * word_bits_ + slot;
        if (slot < first_shared) return slot - first_output;
        return first_shared_slot + slot - first_shared;
      };
      slot_count_ = std::max(slot_count_, first_shared_slot + schedule.slot_count - first_shared);
      for (Sum &sum : schedule.sums) {
        sum.to = moved_slot(sum.to);
        for (std::uint32_t &slot : sum.from) slot = moved_slot(slot);
      }
      column += columns;
    } while (column < this->columns());
  }

  slot_bytes_ = std::clamp(kPacketTileBytes / std::max(1u, slot_count_) / kCacheLine * kCacheLine, kLeastSlotBytes,
                           kMostSlotBytes);
  if (packet_bytes_ * 2 <= slot_bytes_) {
    groups_at_once_ = slot_bytes_ / packet_bytes_;
    piece_bytes_ = packet_bytes_;
    slot_bytes_ = rounded_up(groups_at_once_ * packet_bytes_);
  } else {
    const std::uint64_t pieces = base::divide_up(packet_bytes_, slot_bytes_);
    slot_bytes_ = rounded_up(base::divide_up(packet_bytes_, pieces));
    piece_bytes_ = slot_bytes_;
  }
  in_place_ = groups_at_once_ == 1 && packet_bytes_ % kCacheLine == 0;
  std::uint64_t read_count = 0;
  for (const Schedule &schedule : schedules) {
    Block &block = blocks_.emplace_back();
    for (const Sum &sum : schedule.sums) {
      if (sum.from.size() == 1 && sum.from[0] == sum.to) continue;  // the packet already holds the sum
      ++block.sum_count;
      block.sums.push_back(static_cast<std::uint32_t>(sum.from.size()));
      block.sums.push_back(sum.to);
      block.sums.insert(block.sums.end(), sum.from.begin(), sum.from.end());
      read_count += sum.from.size();
    }
  }
  reads_in_place_ = in_place_ && read_count < kReadsToGather * word_bits_ * columns();
}

std::vector<core::TechniqueCost> PacketOperator::techniques() const {
  const bool is_shared = additions_ != plain_additions_;
  const auto technique = [](const char *name, std::uint64_t additions, bool is_used) -> core::TechniqueCost {
    const auto cost = static_cast<double>(additions);
    return {name,   static_cast<std::uint32_t>(std::min<std::uint64_t>(additions, UINT32_MAX)), cost, cost, is_used,
            is_used};
  };
  if (!is_shared) return {technique("matrix", plain_additions_, true)};
  return {technique("matrix", plain_additions_, false), technique("shared sums", additions_, true)};
}

std::size_t PacketOperator::least_range_bytes() const noexcept { return groups_at_once_ * word_bits_ * packet_bytes_; }

std::size_t PacketOperator::scratch_bytes(const OperatorCall &) const noexcept {
  return rounded_up(slot_count_ * sizeof(std::uint8_t *)) + slot_count_ * slot_bytes_;
}

void PacketOperator::apply(const OperatorCall &call, std::byte *scratch, Mismatch *found) const noexcept {
  const core::Task &task = *call.task;
  const std::uint64_t group_bytes = word_bits_ * packet_bytes_, end = call.offset_bytes + call.length_bytes;
  auto **const slots = reinterpret_cast<std::uint8_t **>(scratch);
  auto *const memory = reinterpret_cast<std::uint8_t *>(scratch) + rounded_up(slot_count_ * sizeof *slots);
  for (std::uint32_t i = 0; i < slot_count_; ++i) slots[i] = memory + i * slot_bytes_;
  const bool writes_in_place = in_place_ && task.mode == Mode::assign;
  for (std::uint64_t group = call.offset_bytes; group < end;) {
    const std::uint64_t group_count = std::min(groups_at_once_, (end - group) / group_bytes);
    const std::uint64_t next_group = group + group_count * group_bytes;
    for (std::uint64_t at = 0; at < packet_bytes_; at += piece_bytes_) {
      const std::uint64_t next_byte = at + piece_bytes_ < packet_bytes_ ? group + at + piece_bytes_
                                      : next_group < end                ? next_group
                                                                        : group + at;
      const Tile tile{task,        found,
                      slots,       memory,
                      group + at,  next_byte,
                      group_count, static_cast<std::size_t>(std::min<std::uint64_t>(piece_bytes_, packet_bytes_ - at))};
      const Block *block = blocks_.data();
      for (unsigned row = 0; row < rows(); row += outputs_at_once_) {
        const unsigned rows = std::min(outputs_at_once_, this->rows() - row);
        if (writes_in_place)
          for (unsigned i = 0; i < rows * word_bits_; ++i)
            slots[i] = reinterpret_cast<std::uint8_t *>(task.outputs[row + i / word_bits_]) + tile.first_byte +
                       i % word_bits_ * packet_bytes_;
        unsigned column = 0;
        do {
          const unsigned columns = std::min(inputs_at_once_, this->columns() - column);
          if (row == 0 || columns != this->columns()) take_inputs(tile, column, columns);
          kernel_.add_packets({slots, rounded_up(group_count * tile.bytes), block->sums.data(), block->sum_count});
          ++block;
          column += columns;
        } while (column < this->columns());
        if (!writes_in_place) scatter(tile, row, rows);
      }
    }
    group = next_group;
  }
}

// The next tile is prefetched meanwhile: with so many packets the CPU does not detect that they are read in order.
void PacketOperator::take_inputs(const Tile &tile, unsigned first_input, unsigned input_count) const noexcept {
  if (tile.next_byte != tile.first_byte && packet_bytes_ >= kCacheLine) {
    for (unsigned c = first_input; c < first_input + input_count; ++c) {
      const std::byte *next = tile.task.inputs[c] + tile.next_byte;
      for (unsigned i = 0; i < word_bits_; ++i, next += packet_bytes_)
        for (std::size_t at = 0; at < tile.bytes; at += kCacheLine) __builtin_prefetch(next + at);
    }
  }
  if (!reads_in_place_) return gather(tile, first_input, input_count);
  std::uint8_t **slot = tile.slots + outputs_at_once_ * word_bits_;
  for (unsigned c = first_input; c < first_input + input_count; ++c)
    for (unsigned i = 0; i < word_bits_; ++i)
      *slot++ = const_cast<std::uint8_t *>(reinterpret_cast<const std::uint8_t *>(tile.task.inputs[c])) +
                tile.first_byte + i * packet_bytes_;
}

void PacketOperator::gather(const Tile &tile, unsigned first_input, unsigned input_count) const noexcept {
  std::uint8_t *slot = tile.memory + outputs_at_once_ * word_bits_ * slot_bytes_;
  for (unsigned c = first_input; c < first_input + input_count; ++c) {
    const auto *from = reinterpret_cast<const std::uint8_t *>(tile.task.inputs[c]) + tile.first_byte;
    for (std::uint64_t group = 0; group < tile.group_count; ++group)
      for (unsigned i = 0; i < word_bits_; ++i, from += packet_bytes_)
        copy(slot + i * slot_bytes_ + group * packet_bytes_, from, tile.bytes);
    slot += word_bits_ * slot_bytes_;
  }
}

void PacketOperator::scatter(const Tile &tile, unsigned first_output, unsigned output_count) const noexcept {
  const std::uint8_t *slot = tile.memory;
  for (unsigned r = first_output; r < first_output + output_count; ++r, slot += word_bits_ * slot_bytes_) {
    std::uint64_t at = tile.first_byte;
    auto *const shard = reinterpret_cast<std::uint8_t *>(tile.task.outputs[r]);
    for (std::uint64_t group = 0; group < tile.group_count; ++group) {
      for (unsigned i = 0; i < word_bits_; ++i, at += packet_bytes_) {
        const std::uint8_t *const from = slot + i * slot_bytes_ + group * packet_bytes_;
        if (tile.task.mode == Mode::assign) {
          copy(shard + at, from, tile.bytes);
        } else if (tile.task.mode == Mode::accumulate) {
          add(shard + at, from, tile.bytes);
        } else {
          merge_differences(shard + at, from, tile.bytes, at, &tile.found[r]);
        }
      }
    }
  }
}

}  // namespace tandem::cpu
