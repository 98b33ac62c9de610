// The one operation: a linear map from input shards to output shards. A codec produces operators, a backend prepares
// and runs them. Encode, decode, repair, update and verify differ only in the operator and in what happens to its
// outputs.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "core/matrix.hpp"
#include "tandem/tandem.h"

namespace tandem::core {

enum class Field : std::int32_t { gf8 = TANDEM_FIELD_GF8 };

// Bytes of one element of the field.
constexpr unsigned element_bytes(Field) noexcept { return 1; }
using Element = std::uint16_t;  // one of any field, as a number

// The forms that an operator can have. The set is closed: a backend handles each form, or refuses it by name.
struct Dense {
  Matrix coefficients;  // output_count x input_count
};
using Form = std::variant<Dense>;

// slots[to[r]] = sum over c of coefficients[r][c] * slots[from[c]]. Slots are vectors as long as a shard.
struct Step {
  Matrix coefficients;
  std::vector<std::uint32_t> from, to;
};

class Operator {
 public:
  // Splitters compute with a granularity up to this without overflow. Real codes have 1, 64 or a few packets.
  static constexpr std::uint64_t kMostGranularityBytes = std::uint64_t{1} << 32;

  // A matrix over GF(2^8) is an operator as it is. Columns of shards are independent at multiples of granularity_bytes:
  // code that cuts ranges cuts there and nowhere else. A backend that runs Dense may cut anywhere, because Dense is the
  // same map for each element. Throws Error (INVALID_ARGUMENT): a granularity of 0, or of more than
  // kMostGranularityBytes.
  Operator(Matrix coefficients, std::uint64_t granularity_bytes = 1);

  Field field() const noexcept { return Field::gf8; }
  std::uint64_t granularity_bytes() const noexcept { return granularity_bytes_; }
  unsigned input_count() const noexcept { return input_count_; }
  unsigned output_count() const noexcept { return output_count_; }
  const Form &form() const noexcept { return form_; }

  // The meaning of every form: steps over slots, to be run in order. Slots 0 to input_count - 1 hold the inputs, the
  // next output_count slots the outputs; further slots are scratch.
  std::vector<Step> expand() const;

  // The same map as one matrix, output_count x input_count.
  const Matrix &dense() const noexcept { return std::get<Dense>(form_).coefficients; }

 private:
  Form form_;
  std::uint64_t granularity_bytes_;
  unsigned input_count_, output_count_;
};

}  // namespace tandem::core
