// SPDX-License-Identifier: Apache-2.0
// Codes over GF(2^16): presets and custom matrices; in words, in the layout of Leopard and in packets.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/codec.hpp"
#include "core/gf16.hpp"
#include "core/operator.hpp"

namespace tandem::core {

inline constexpr unsigned kMaxShards16 = gf16::kFieldSize;  // of a stripe in GF(2^16)
// Matrices that must be kept whole, to encode or to decode, have at most this many bytes of coefficients; those that
// solve sums of powers at most these.
inline constexpr std::uint64_t kMostMatrixBytes16 = std::uint64_t{64} << 20, kMostSolveBytes16 = std::uint64_t{2} << 30;

class Codec16 final : public Codec {
 public:
  explicit Codec16(const tandem_codec_options &options);

  Layout layout() const noexcept override { return layout_; }
  Element coefficient(unsigned row, unsigned column) const override;
  Element multiply(Element a, Element b) const override { return gf_->multiply(a, b); }
  Element inverse(Element a) const override { return gf_->inverse(a); }

 private:
  enum class Kind {
    leopard,  // points and scales; groups
    powers,   // row r is the (first_exponent_ + r)-th powers of constants
    matrix    // no further structure is known
  };
  void make_leopard(const char *name, bool may_be_low_rate);
  void make_liberasurecode();
  void make_par2(const tandem_codec_options &options);
  void make_custom(const tandem_codec_options &options);
  void check_cells(std::uint64_t rows, std::uint64_t columns, const char *what,
                   std::uint64_t most_bytes = kMostMatrixBytes16) const;
  std::uint16_t point(unsigned shard) const;
  unsigned log_scale(unsigned shard) const;
  Operator encode_of(std::span<const std::uint16_t> outputs) const override;
  Operator column_of(unsigned index, std::span<const std::uint16_t> outputs) const override;
  void solve_for(const ShardSet &present, std::span<const std::uint32_t> costs, const SetupWork &work,
                 Application &application) const override;
  Operator interpolate(std::span<const std::uint16_t> lost, std::span<const std::uint16_t> chosen,
                       const Application &application) const;
  Operator transform(std::span<const std::uint16_t> lost, std::span<const std::uint16_t> chosen,
                     const Application &application) const;
  Powers16 powers_of(std::span<const std::uint16_t> data, std::span<const std::uint16_t> parity) const;
  // Lost data, and a run of as many neighbouring parity shards.
  struct ParityRun {
    std::span<const std::uint16_t> lost;
    unsigned first;
    Indices constants, polynomial;  // of the lost data; the product of (x + constant), the highest power last
  };
  void solve_powers(const ShardSet &present, std::span<const std::uint16_t> lost, std::span<const std::uint16_t> parity,
                    const SetupWork &work, Application &application) const;
  Matrix16 solve_run(const ParityRun &run, std::span<const std::uint16_t> outputs, const SetupWork &work) const;
  Sums<std::uint16_t> fill_run(const ParityRun &run, std::span<const std::uint16_t> present,
                               std::span<const std::uint16_t> parity, Matrix16 outputs, const SetupWork &work) const;
  std::vector<std::uint16_t> polynomial_of(std::span<const std::uint16_t> points, const SetupWork &work) const;
  void eliminate(const ShardSet &present, const Indices &parity, Application &application) const;
  Operator dense(Matrix16 cells) const;

  Kind kind_ = Kind::matrix;
  const gf16::Field *gf_ = &gf16::Field::words();
  Layout layout_ = Layout::words;
  // leopard
  unsigned group_log2_ = 0;
  bool is_low_rate_ = false;
  std::shared_ptr<const Matrix16> cells_;  // matrix: m x k
  Indices logs_;                           // powers: of the constants
  unsigned first_exponent_ = 0;
};

}  // namespace tandem::core
