// SPDX-License-Identifier: Apache-2.0
#include "core/operator.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/gf.hpp"

namespace tandem::core {
namespace {

using Positions = std::vector<std::uint32_t>;

unsigned count_of(const std::vector<Element> &list) { return static_cast<unsigned>(list.size()); }

std::uint8_t scale_of(const std::vector<Element> &scales, std::size_t i) {
  return scales.empty() ? std::uint8_t{1} : static_cast<std::uint8_t>(scales[i]);
}

[[noreturn]] void refuse_form(const std::string &why) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a Cauchy transform: " + why);
}

void check(const CauchyTransform &form) {
  for (const auto &[points, scales, name] : {std::tuple{&form.input_points, &form.input_scales, "input"},
                                             std::tuple{&form.output_points, &form.output_scales, "output"}}) {
    if (std::ranges::adjacent_find(*points, std::ranges::greater_equal{}) != points->end())
      refuse_form(base::text("the ", points->size(), " ", name, " points do not ascend"));
    if (!points->empty() && points->back() >= gf::kFieldSize)
      refuse_form(base::text(name, " point ", points->back(), " is not in GF(2^8)"));
    if (!scales->empty() && scales->size() != points->size())
      refuse_form(base::text(scales->size(), " ", name, " scales for ", points->size(), " points"));
    for (const Element scale : *scales)
      if (scale == 0 || scale >= gf::kFieldSize)
        refuse_form(base::text(name, " scale ", scale, " is not from 1 to 255"));
  }
  for (const Element point : form.output_points)
    if (std::ranges::binary_search(form.input_points, point))
      refuse_form(base::text("point ", point, " is of an input and of an output"));
}

void check(const SyndromeDecode &form) {
  check(form.syndromes);
  check(form.solve);
  for (const Element point : form.solve.input_points)
    if (!std::ranges::binary_search(form.syndromes.output_points, point))
      refuse_form(base::text("the chosen parity point ", point, " has no syndrome"));
  for (const Element point : form.syndromes.output_points)
    if (!std::ranges::binary_search(form.solve.input_points, point) &&
        !std::ranges::binary_search(form.solve.output_points, point))
      refuse_form(base::text("the syndrome of point ", point, " is not used"));
  for (const Element point : form.solve.output_points)
    if (std::ranges::binary_search(form.syndromes.input_points, point))
      refuse_form(base::text("point ", point, " is of present data and of an output"));
}

// Where each of some points is in the list that has them.
Positions positions_of(const std::vector<Element> &points, const std::vector<Element> &in) {
  Positions positions;
  for (const Element point : points)
    positions.push_back(static_cast<std::uint32_t>(std::ranges::lower_bound(in, point) - in.begin()));
  return positions;
}

// (output, syndrome) of each lost parity shard.
std::vector<std::pair<std::uint32_t, std::uint32_t>> lost_parity_of(const SyndromeDecode &form) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::uint32_t r = 0; r < form.solve.output_points.size(); ++r) {
    const auto found = std::ranges::lower_bound(form.syndromes.output_points, form.solve.output_points[r]);
    if (found == form.syndromes.output_points.end() || *found != form.solve.output_points[r]) continue;
    pairs.emplace_back(r, static_cast<std::uint32_t>(found - form.syndromes.output_points.begin()));
  }
  return pairs;
}

unsigned input_count_of(const Dense &form) { return form.coefficients.columns(); }
unsigned output_count_of(const Dense &form) { return form.coefficients.rows(); }
unsigned input_count_of(const CauchyTransform &form) { return count_of(form.input_points); }
unsigned output_count_of(const CauchyTransform &form) { return count_of(form.output_points); }
unsigned input_count_of(const SyndromeDecode &form) {
  return input_count_of(form.syndromes) + input_count_of(form.solve);
}
unsigned output_count_of(const SyndromeDecode &form) { return output_count_of(form.solve); }

void check(const Dense &) {}

unsigned input_count_of(const Dense16 &form) { return form.coefficients->columns(); }
unsigned output_count_of(const Dense16 &form) { return form.coefficients->rows(); }
unsigned input_count_of(const Leopard16 &form) { return count_of(form.data_points) + count_of(form.chosen_points); }
unsigned output_count_of(const Leopard16 &form) {
  return static_cast<unsigned>(std::ranges::count(form.is_wanted, true)) + count_of(form.parity_points);
}
unsigned input_count_of(const Powers16 &form) { return count_of(form.logs) + form.chosen_count; }
unsigned output_count_of(const Powers16 &form) {
  return form.solve == nullptr ? count_of(form.exponents) : form.solve->rows();
}
void check(const Dense16 &) {}
void check(const Powers16 &form) {
  const auto fail = [](const auto &...why) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "sums of powers: ", why...); };
  if (std::ranges::adjacent_find(form.logs, std::ranges::greater_equal{}) != form.logs.end())
    fail("the logarithms do not ascend");
  if (std::ranges::find(form.logs, gf16::kOrder) != form.logs.end() ||
      std::ranges::find(form.exponents, gf16::kOrder) != form.exponents.end())
    fail("a logarithm or an exponent is ", gf16::kOrder);
  const std::size_t columns = form.solve == nullptr ? form.exponents.size() : form.solve->columns();
  if (columns != form.exponents.size() || form.chosen_count > (form.solve == nullptr ? 0 : columns))
    fail(form.exponents.size(), " sums with ", form.chosen_count, " chosen shards, a matrix of ", columns);
}
void check(const Leopard16 &) {}

unsigned input_count_of(const BitMatrix &form) { return form.bits->columns() / form.word_bits; }
unsigned output_count_of(const BitMatrix &form) { return form.bits->rows() / form.word_bits; }
void check(const BitMatrix &form) {
  const auto fail = [](const auto &...why) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a bit matrix: ", why...); };
  const Matrix &bits = *form.bits;
  if (bits.rows() % form.word_bits != 0 || bits.columns() % form.word_bits != 0)
    fail(bits.rows(), " x ", bits.columns(), " bits are not of elements of ", form.word_bits);
  for (unsigned r = 0; r < bits.rows(); ++r)
    for (const std::uint8_t bit : bits.row(r))
      if (bit > 1) fail("a bit of row ", r, " is ", bit);
}

std::uint64_t granularity_of(const BitMatrix &form) {
  constexpr std::uint64_t kUnit = BitMatrix::kPacketUnitBytes;
  if (form.word_bits == 0 || form.word_bits > BitMatrix::kMostWordBits)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a bit matrix: ", form.word_bits, " bits of an element, not 1 to ",
               BitMatrix::kMostWordBits);
  if (form.packet_bytes == 0 || form.packet_bytes % kUnit != 0 ||
      form.packet_bytes > Operator::kMostGranularityBytes / form.word_bits)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a bit matrix: packets of ", form.packet_bytes,
               " bytes are not a multiple of ", kUnit, ", or ", form.word_bits, " of them are more than ",
               Operator::kMostGranularityBytes);
  return form.word_bits * form.packet_bytes;
}

// A caller that wants bytes looks at field() first.
[[noreturn]] void fail_gf16() {
  base::fail(TANDEM_ERROR_UNSUPPORTED, "an operator over GF(2^16) has no matrix over GF(2^8)");
}

[[noreturn]] void fail_packets() {
  base::fail(TANDEM_ERROR_UNSUPPORTED, "an operator on packets has no matrix over GF(2^8)");
}

Matrix dense_of(const Dense &form) { return form.coefficients; }
Matrix dense_of(const Dense16 &) { fail_gf16(); }
Matrix dense_of(const Powers16 &) { fail_gf16(); }
Matrix dense_of(const Leopard16 &) { fail_gf16(); }
Matrix dense_of(const BitMatrix &) { fail_packets(); }

using Logs = std::array<std::uint8_t, gf::kFieldSize>;  // of as many numbers as there are points in a form

unsigned log_of_scale(const std::vector<Element> &scales, std::size_t i) {
  return gf::kTables.log[scale_of(scales, i)];
}

Logs logs_of_input_scales(const CauchyTransform &form) {
  Logs logs;
  for (std::size_t c = 0; c < form.input_points.size(); ++c)
    logs[c] = static_cast<std::uint8_t>(log_of_scale(form.input_scales, c));
  return logs;
}

// All in logarithms; `row` aliases nothing.
void write_row(const CauchyTransform &form, unsigned r, const Logs &logs_of_input_scales, std::uint8_t *row) {
  const Element *points = form.input_points.data(), point = form.output_points[r];
  const unsigned log = log_of_scale(form.output_scales, r) + 255;
  for (std::size_t c = 0, count = form.input_points.size(); c < count; ++c)
    row[c] = gf::kLongExp[log + logs_of_input_scales[c] - gf::kTables.log[point ^ points[c]]];
}

Matrix dense_of(const CauchyTransform &form) { return matrix_of(form); }

// With f(x) = sum over chosen shards i of (both scales of i) / (x + point i), partial fractions make the sum over i of
// solve[r][i] * syndromes[i][c]
//     output scale r * input scale c * (f(output point r) + f(input point c)) / (output point r + input point c).
// So every point costs a product for each chosen shard, and not every coefficient. A lost parity shard's own syndrome
// has the same denominator.
Matrix dense_of(const SyndromeDecode &form) {
  const CauchyTransform &syndromes = form.syndromes, &solve = form.solve;
  const std::size_t data_count = syndromes.input_points.size(), chosen_count = solve.input_points.size();
  const Logs data_logs = logs_of_input_scales(syndromes), chosen_logs = logs_of_input_scales(solve);
  const Positions chosen = positions_of(solve.input_points, syndromes.output_points);
  Logs both_logs;
  for (std::size_t i = 0; i < chosen_count; ++i)
    both_logs[i] = static_cast<std::uint8_t>((chosen_logs[i] + log_of_scale(syndromes.output_scales, chosen[i])) % 255);
  const auto f = [&](Element point) {
    unsigned sum = 0;
    for (std::size_t i = 0; i < chosen_count; ++i)
      sum ^= gf::kTables.exp[255u + both_logs[i] - gf::kTables.log[point ^ solve.input_points[i]]];
    return static_cast<std::uint8_t>(sum);
  };
  std::array<std::uint8_t, gf::kFieldSize> f_of_data, f_of_outputs;
  for (std::size_t c = 0; c < data_count; ++c) f_of_data[c] = f(syndromes.input_points[c]);
  for (std::size_t r = 0; r < solve.output_points.size(); ++r) f_of_outputs[r] = f(solve.output_points[r]);
  for (const auto &[r, syndrome] : lost_parity_of(form))
    f_of_outputs[r] ^= gf::divide(scale_of(syndromes.output_scales, syndrome), scale_of(solve.output_scales, r));

  Matrix matrix(output_count_of(form), input_count_of(form));
  for (unsigned r = 0; r < matrix.rows(); ++r) {
    std::uint8_t *const row = matrix.row(r).data();
    const Element *points = syndromes.input_points.data(), point = solve.output_points[r];
    const unsigned log = log_of_scale(solve.output_scales, r) + 255;
    for (std::size_t c = 0; c < data_count; ++c) {
      const unsigned sum = f_of_outputs[r] ^ f_of_data[c];
      const unsigned log_of_cell = log + data_logs[c] + gf::kTables.log[sum] - gf::kTables.log[point ^ points[c]];
      row[c] = sum == 0 ? std::uint8_t{0} : gf::kLongExp[log_of_cell];
    }
    write_row(solve, r, chosen_logs, row + data_count);
  }
  multiply_add_count() += chosen_count * (data_count + matrix.rows()) + matrix.rows() * input_count_of(form);
  return matrix;
}

}  // namespace

Matrix matrix_of(const CauchyTransform &form) {
  Matrix matrix(output_count_of(form), input_count_of(form));
  const Logs logs = logs_of_input_scales(form);
  for (unsigned r = 0; r < matrix.rows(); ++r) write_row(form, r, logs, matrix.row(r).data());
  return matrix;
}

Dense16 matrix_of(const Powers16 &form) {
  const gf16::Field &field = gf16::Field::words();
  const unsigned data_count = count_of(form.logs), sum_count = count_of(form.exponents);
  const bool solves = form.solve != nullptr;
  const unsigned columns = data_count + form.chosen_count;
  Matrix16 sums(sum_count, solves ? data_count : columns);
  for (unsigned r = 0; r < sum_count; ++r) {
    for (unsigned c = 0; c < data_count; ++c)
      sums.at(r, c) = field.exp(std::uint64_t{form.logs[c]} * form.exponents[r]);
    if (!solves && r < form.chosen_count) sums.at(r, data_count + r) = 1;
  }
  if (!solves) return {&field, Layout::words, std::make_shared<const Matrix16>(std::move(sums))};
  Matrix16 whole(form.solve->rows(), columns);
  for (unsigned r = 0; r < whole.rows(); ++r) {
    const auto [of_data, of_chosen] = std::pair(whole.row(r).first(data_count), whole.row(r).subspan(data_count));
    for (unsigned i = 0; i < sum_count; ++i) gf16::multiply_add(field, of_data, form.solve->at(r, i), sums.row(i));
    std::ranges::copy(form.solve->row(r).first(form.chosen_count), of_chosen.begin());
  }
  return {&field, Layout::words, std::make_shared<const Matrix16>(std::move(whole))};
}

Operator::Operator(Form form, std::uint64_t granularity_bytes)
    : form_(std::move(form)), granularity_bytes_(granularity_bytes) {
  if (const Dense16 *dense = std::get_if<Dense16>(&form_)) granularity_bytes_ = granularity_of(dense->layout);
  if (std::holds_alternative<Powers16>(form_)) granularity_bytes_ = granularity_of(Layout::words);
  if (std::holds_alternative<Leopard16>(form_)) granularity_bytes_ = granularity_of(Layout::leopard);
  if (const BitMatrix *packets = std::get_if<BitMatrix>(&form_)) granularity_bytes_ = granularity_of(*packets);
  if (granularity_bytes_ == 0 || granularity_bytes_ > kMostGranularityBytes)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "an operator's granularity of ", granularity_bytes_,
               " bytes is not from 1 to ", kMostGranularityBytes);
  std::visit([](const auto &each) { check(each); }, form_);
  input_count_ = std::visit([](const auto &each) { return input_count_of(each); }, form_);
  output_count_ = std::visit([](const auto &each) { return output_count_of(each); }, form_);
  if (!std::holds_alternative<Dense>(form_)) made_ = std::make_shared<Made>();
}

Field Operator::field() const noexcept {
  if (std::holds_alternative<BitMatrix>(form_)) return Field::gf2;
  const bool is_gf16 = std::holds_alternative<Dense16>(form_) || std::holds_alternative<Powers16>(form_) ||
                       std::holds_alternative<Leopard16>(form_);
  return is_gf16 ? Field::gf16 : Field::gf8;
}

std::size_t Operator::memory_bytes() const noexcept {
  if (std::holds_alternative<Leopard16>(form_))
    return 4 * sizeof(Element) *
           (std::size_t{input_count_} + output_count_);  // points and scales, of lost data as well
  if (const Powers16 *powers = std::get_if<Powers16>(&form_))
    return sizeof(Element) * (powers->logs.size() +
                              powers->exponents.size() * (powers->solve == nullptr ? 1 : 1 + powers->solve->rows()));
  if (const BitMatrix *packets = std::get_if<BitMatrix>(&form_))
    return std::size_t{packets->bits->rows()} * packets->bits->columns();
  return std::size_t{input_count_} * output_count_ * element_bytes(field());
}

// Without a lock, so that a fork at any time leaves none held. If several threads compute it at once, the first result
// is kept.
const Matrix &Operator::made_dense() const {
  if (const Matrix *known = made_->matrix.load(std::memory_order_acquire)) return *known;
  auto made = std::make_unique<const Matrix>(std::visit([](const auto &each) { return dense_of(each); }, form_));
  const Matrix *known = nullptr;
  if (made_->matrix.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *known;
}

}  // namespace tandem::core
