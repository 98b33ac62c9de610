// SPDX-License-Identifier: Apache-2.0
// Operators on packets on the CPU: a kernel sums tiles of packets. If packets are short or are added often, tiles are
// first copied side by side into scratch memory, and summed there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/kernels/kernel.hpp"
#include "cpu/prepared.hpp"

namespace tandem::cpu {

class PacketOperator final : public CpuPrepared {
 public:
  PacketOperator(const Kernel &kernel, const core::Operator &what, bool shares_sums, const KnownOfModes &known,
                 std::shared_ptr<const Known> tuned);

  std::vector<core::TechniqueCost> techniques() const override;
  std::size_t least_range_bytes() const noexcept override;
  std::size_t scratch_bytes(const OperatorCall &call) const noexcept override;
  void apply(const OperatorCall &call, std::byte *scratch, core::Mismatch *found) const noexcept override;

 private:
  // Sums of some outputs over some inputs, in the kernel's form. Blocks after the first one add to the outputs.
  struct Block {
    std::vector<std::uint32_t> sums;
    std::uint32_t sum_count = 0;
  };
  struct Tile;
  void take_inputs(const Tile &tile, unsigned first_input, unsigned input_count) const noexcept;
  void gather(const Tile &tile, unsigned first_input, unsigned input_count) const noexcept;
  void scatter(const Tile &tile, unsigned first_output, unsigned output_count) const noexcept;

  const Kernel &kernel_;
  unsigned word_bits_;
  std::uint64_t packet_bytes_;
  unsigned inputs_at_once_, outputs_at_once_;  // shards of a block, at most
  std::vector<Block> blocks_;                  // of the first outputs for all inputs, then of the next outputs
  std::uint32_t slot_count_ = 1;               // of outputs, inputs, and the largest block's shared sums
  std::uint64_t plain_additions_ = 0, additions_ = 0;
  std::size_t slot_bytes_ = 0, piece_bytes_ = 0;  // of a packet, in a slot
  std::uint64_t groups_at_once_ = 1;              // more than one: whole packets, of so many groups, in a slot
  bool in_place_ = false;                         // pieces are whole vectors
  bool reads_in_place_ = false;                   // and packets are seldom added twice
};

}  // namespace tandem::cpu
