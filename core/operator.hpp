// SPDX-License-Identifier: Apache-2.0
// The one operation: a linear map from input shards to output shards. A codec produces operators, a backend prepares
// and runs them. Encode, decode, repair, update and verify differ only in the operator and in the use of its outputs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "core/gf16.hpp"
#include "core/matrix.hpp"
#include "tandem/tandem.h"

namespace tandem::core {

enum class Field : std::int32_t {
  gf8 = TANDEM_FIELD_GF8,
  gf16 = TANDEM_FIELD_GF16,
  gf2  // of operators alone: packets are only added
};

// Bytes of one element of the field.
constexpr unsigned element_bytes(Field field) noexcept { return field == Field::gf16 ? 2 : 1; }
using Element = std::uint16_t;  // one of any field, as a number

// The forms that an operator can have. The set is closed: a backend handles each form, or refuses it by name.
struct Dense {
  Matrix coefficients;  // output_count x input_count
};

//     outputs[r] = output_scales[r] * sum over c of input_scales[c] * inputs[c] / (output_points[r] + input_points[c])
// Points in aligned groups of 2^i share work (docs/internals/TRANSFORM.md): n * log n products instead of n * n.
struct CauchyTransform {
  std::vector<Element> input_points, output_points;  // each list ascending; no point occurs twice
  std::vector<Element> input_scales, output_scales;  // one for each point, not 0; empty: all are 1
};
// The same map as a matrix.
Matrix matrix_of(const CauchyTransform &form);

// Decode by syndromes. The inputs are the present data shards, then the chosen parity shards. As many parity shards are
// chosen as data shards are lost. A syndrome is the part of a parity shard that the lost data contributes: the stored
// parity plus the parity of the present data. `solve` computes lost data from the syndromes of the chosen shards. It
// also computes the lost data's part of a lost parity shard; the present data's part is a syndrome row.
struct SyndromeDecode {
  CauchyTransform syndromes;  // present data -> chosen parity shards and lost parity shards that are wanted
  CauchyTransform solve;      // the chosen of these (syndromes.output_points has them too) -> outputs, which are lost
};

// How elements of GF(2^16) lie in a shard.
enum class Layout {
  words,   // little-endian words
  leopard  // for each 64 bytes the 32 low bytes, then the 32 high ones; of a last piece of n bytes n/2 and n/2
};
constexpr unsigned granularity_of(Layout layout) noexcept { return layout == Layout::words ? 2 : 64; }

// A matrix over GF(2^16).
struct Dense16 {
  const gf16::Field *field;
  Layout layout;
  std::shared_ptr<const Matrix16> coefficients;  // output_count x input_count; may be large: copies share it
};

// Sums of inputs times powers of their constants, over GF(2^16) in words (PAR2):
//     sum i = sum over c of 2^(logs[c] * exponents[i]) * inputs[c]
// A decode has more inputs, the chosen parity shards. Input logs.size() + i is added to sum i, and the outputs are
// `solve` times the sums.
struct Powers16 {
  std::vector<Element> logs;              // ascending, below 65535
  std::vector<Element> exponents;         // below 65535; in any order
  unsigned chosen_count = 0;              // at most as many as sums
  std::shared_ptr<const Matrix16> solve;  // null: the outputs are the sums
};
// The same map as a matrix.
Dense16 matrix_of(const Powers16 &form);

// Leopard's code over GF(2^16) in coordinates of the Cantor basis (docs/matrices.md). Each shard has a point. Points of
// data and of parity lie in different groups of 2^group_log2 points, and one of the two kinds lies in group 0 alone. An
// encode has no chosen and no lost shards. A decode chooses as many parity shards as data shards are lost. It computes
// all lost data, even if few shards are wanted.
struct Leopard16 {
  unsigned group_log2;
  std::vector<Element> data_points;    // of the first inputs, ascending
  std::vector<Element> chosen_points;  // of the next inputs, ascending
  std::vector<Element> chosen_scales;
  std::vector<Element> lost_points;  // of lost data, ascending
  std::vector<Element> lost_scales;
  std::vector<bool> is_wanted;         // of lost data: the wanted ones are the first outputs
  std::vector<Element> parity_points;  // of the next outputs, ascending
};

// Sums of packets. A shard is a row of groups, and a group has word_bits packets. Packet i of a group has bit i of its
// elements. So one bit of a packet, with the bits at the same place of the group's other packets, is an element of
// GF(2^word_bits).
struct BitMatrix {
  unsigned word_bits;
  std::uint64_t packet_bytes;          // a multiple of kPacketUnitBytes
  std::shared_ptr<const Matrix> bits;  // 0 and 1; word_bits rows an output, word_bits columns an input. Copies share it

  static constexpr unsigned kMostWordBits = 16, kPacketUnitBytes = 8;
  static constexpr std::uint64_t kMostCells = std::uint64_t{1} << 24;  // limit for a codec
};

using Form = std::variant<Dense, CauchyTransform, SyndromeDecode, Dense16, Powers16, Leopard16, BitMatrix>;

class Operator {
 public:
  // Code that splits ranges computes with granularities up to this without overflow. Real codes have 1, 64 or a few
  // packets.
  static constexpr std::uint64_t kMostGranularityBytes = std::uint64_t{1} << 32;

  // Columns of shards are independent at multiples of granularity_bytes. Code that cuts ranges cuts there and nowhere
  // else. A backend may cut anywhere, because the forms over GF(2^8) are the same map for each element. Throws Error
  // (INVALID_ARGUMENT) for a granularity of 0 or above kMostGranularityBytes, and for points or scales that break the
  // rules of their form.
  Operator(Form form, std::uint64_t granularity_bytes = 1);
  // A matrix over GF(2^8) converts to an operator.
  Operator(Matrix coefficients, std::uint64_t granularity_bytes = 1)
      : Operator(Dense{std::move(coefficients)}, granularity_bytes) {}

  // A form over GF(2^16) has the granularity of its layout.
  explicit Operator(Dense16 form) : Operator(Form(std::move(form)), 0) {}
  explicit Operator(Powers16 form) : Operator(Form(std::move(form)), 0) {}
  explicit Operator(Leopard16 form) : Operator(Form(std::move(form)), 0) {}
  // That of packets is a group.
  explicit Operator(BitMatrix form) : Operator(Form(std::move(form)), 0) {}

  Field field() const noexcept;
  std::uint64_t granularity_bytes() const noexcept { return granularity_bytes_; }
  // Lengths of shards are multiples of this. It is less than the granularity if the format defines a shorter last
  // piece.
  std::uint64_t length_unit_bytes() const noexcept {
    return field() == Field::gf16 ? element_bytes(Field::gf16) : granularity_bytes_;
  }
  unsigned input_count() const noexcept { return input_count_; }
  unsigned output_count() const noexcept { return output_count_; }
  const Form &form() const noexcept { return form_; }
  // Approximate memory of the operator: coefficients, also those that dense() makes, and points.
  std::size_t memory_bytes() const noexcept;

  // The meaning of every form over GF(2^8): the same map as one output_count x input_count matrix. For a form that is
  // not Dense the first call computes it. Copies of the operator share it, and any number of threads may call.
  const Matrix &dense() const {
    if (const Dense *dense = std::get_if<Dense>(&form_)) return dense->coefficients;
    return made_dense();
  }

 private:
  struct Made {
    ~Made() { delete matrix.load(); }
    std::atomic<const Matrix *> matrix{nullptr};
  };
  const Matrix &made_dense() const;

  Form form_;
  std::shared_ptr<Made> made_;  // null for Dense
  std::uint64_t granularity_bytes_;
  unsigned input_count_, output_count_;
};

}  // namespace tandem::core
