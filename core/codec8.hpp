// SPDX-License-Identifier: Apache-2.0
// Codes over GF(2^8): presets, codes with local groups, custom matrices; in bytes and in packets.
#pragma once

#include "core/codec.hpp"
#include "core/gf.hpp"

namespace tandem::core {

class Codec8 final : public Codec {
 public:
  explicit Codec8(const tandem_codec_options &options);

  Element coefficient(unsigned row, unsigned column) const override { return parity_.at(row, column); }
  Element multiply(Element a, Element b) const override {
    return gf::multiply(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b));
  }
  Element inverse(Element a) const override { return gf::inverse(static_cast<std::uint8_t>(a)); }

 private:
  struct Findings {
    Indices undetermined;
    unsigned rank;  // of the parity rows
  };

  // A CauchyTransform if is_wide says so and the points lie in runs, else Dense.
  Operator encode_of(std::span<const std::uint16_t> outputs) const override;
  Operator column_of(unsigned index, std::span<const std::uint16_t> outputs) const override;
  void solve_for(const ShardSet &present, std::span<const std::uint32_t> costs, const SetupWork &work,
                 Application &application) const override;
  // In the layout of the shards.
  Operator operator_of(Matrix coefficients) const;
  void interpolate(std::span<std::uint16_t> lost, std::span<std::uint16_t> parity, Application &application) const;
  void eliminate(const ShardSet &present, Indices parity, Application &application) const;
  Findings express(const Indices &order, Application &application) const;
  void solve_cheapest(const ShardSet &present, std::span<const std::uint32_t> costs, Application &application) const;
  [[noreturn]] void fail_groups(const ShardSet &present) const;

  const char *name_ = "custom";  // of the matrix
  bool has_runs_ = false;        // the points of cauchy_ are the preset's own
};

}  // namespace tandem::core
