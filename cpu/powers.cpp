// SPDX-License-Identifier: Apache-2.0
#include "cpu/powers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "core/codec16.hpp"
#include "core/gf.hpp"
#include "cpu/costs.hpp"
#include "cpu/gf16.hpp"

namespace tandem::cpu {
namespace {

using core::Mode;
namespace gf16 = core::gf16;

constexpr unsigned kClasses = 257;  // of 255 points: their product is the order of the field's group
// The matrix of a decode is a product of two, made before the first byte. This takes some milliseconds at most.
constexpr std::uint64_t kMostPreparation = 1u << 24;
constexpr std::size_t kTileBytes = 256 << 10, kMostTileBytes = 4096;

std::uint8_t low(unsigned pair) { return static_cast<std::uint8_t>(pair); }

// The subfield of 256 elements with the arithmetic of GF(2^8) modulo 0x11d, and words as pairs of its bytes.
struct Pairs {
  PowersMaps maps = {};
  std::array<std::uint8_t, 256> number;  // of a byte
  std::vector<std::uint16_t> of_word = std::vector<std::uint16_t>(gf16::kFieldSize);
  std::uint8_t product;  // number of t^2 + t

  Pairs() {
    const gf16::Field &field = gf16::Field::words();
    // Cantor's basis: 1, then a root of x^2 + x = the one before.
    std::uint8_t element = 0;
    number[0] = 0;
    for (unsigned span = 1; span < 256; span *= 2) {
      unsigned root = 1;
      while (span != 1 && (core::gf::multiply(low(root), low(root)) ^ root) != element) ++root;
      element = low(root);
      for (unsigned i = span; i < 2 * span; ++i) {
        maps.bytes[i] = element ^ maps.bytes[i - span];
        number[maps.bytes[i]] = low(i);
      }
    }
    unsigned root = kClasses;  // logarithm of an element with the polynomial 0x11d
    while ((field.exp(8 * root) ^ field.exp(4 * root) ^ field.exp(3 * root) ^ field.exp(2 * root)) != 1)
      root += kClasses;
    std::uint16_t t = 2;  // conjugates over the subfield differ by 1
    while ((field.exp(256 * field.log(t)) ^ t) != 1) ++t;
    for (unsigned i = 0; i < 8; ++i) {
      maps.to_words[i] = field.exp(i * root);
      maps.to_words[8 + i] = field.multiply(maps.to_words[i], t);
    }
    std::vector<std::uint16_t> word_of(gf16::kFieldSize);
    for (unsigned pair = 1; pair < gf16::kFieldSize; ++pair) {
      word_of[pair] = word_of[pair & (pair - 1)] ^ maps.to_words[std::countr_zero(pair)];
      of_word[word_of[pair]] = static_cast<std::uint16_t>(pair);
    }
    for (unsigned i = 0; i < 16; ++i) maps.to_pairs[i] = of_word[std::size_t{1} << i];
    product = number[low(of_word[field.multiply(t, t) ^ t])];
  }
};

// Coefficients of the polynomial of a class, as a power of two.
unsigned log2_of(const core::Powers16 &form) {
  const unsigned most = form.logs.empty() ? 0u : form.logs.back() / kClasses;
  return std::max(3u, static_cast<unsigned>(std::bit_width(most)));
}

std::vector<std::uint16_t> classes_of(const core::Powers16 &form) {
  std::array<bool, kClasses> is_used{};
  for (const core::Element log : form.logs) is_used[log % kClasses] = true;
  std::vector<std::uint16_t> classes;
  for (unsigned i = 0; i < kClasses; ++i)
    if (is_used[i]) classes.push_back(static_cast<std::uint16_t>(i));
  return classes;
}

}  // namespace

bool runs_transforms(const Kernel &kernel, const core::Powers16 &form, RunBy technique) {
  if (technique != RunBy::cost) return technique == RunBy::transform;
  const std::size_t sums = form.exponents.size(), outputs = form.solve == nullptr ? sums : form.solve->rows();
  const std::size_t inputs = form.logs.size() + form.chosen_count;
  if (outputs * inputs * sizeof(core::Element) > core::kMostMatrixBytes16) return true;
  if (form.solve != nullptr && outputs * sums * form.logs.size() > kMostPreparation) return true;
  const PowersSteps steps = {.butterflies = classes_of(form).size() * 128 * log2_of(form),
                             .products = classes_of(form).size() * sums,
                             .solved = form.solve == nullptr ? 0 : outputs * sums,
                             .inputs = inputs};
  return cost_of(steps, kernel) < static_cast<double>(outputs * inputs);
}

PowersOperator::PowersOperator(const Gf16Kernel &kernel, const core::Operator &what, const KnownOfModes &known,
                               std::shared_ptr<const Known> tuned)
    : CpuPrepared(what, known, std::move(tuned)),
      kernel_(kernel),
      form_(std::get<core::Powers16>(what.form())),
      tables_(aligned_memory(kernel.powers_tables_bytes)) {
  if (form_.solve != nullptr) solve_tables_ = gf16_tables(kernel, gf16::Field::words());
  const Pairs pairs;
  kernel.prepare_powers(pairs.maps, tables_.get());
  shape_.tables = tables_.get();
  shape_.product = pairs.product;

  const unsigned log2 = shape_.log2 = log2_of(form_);
  std::vector<std::uint16_t> classes = classes_of(form_);
  std::array<std::uint16_t, kClasses> place{};
  for (std::size_t i = 0; i < classes.size(); ++i) place[classes[i]] = static_cast<std::uint16_t>(i);
  while (classes.size() % kClassesAtOnce != 0) classes.push_back(0);  // without inputs
  shape_.class_count = static_cast<std::uint32_t>(classes.size());
  class_inputs_.assign(classes.size() << log2, kNoInput);
  for (std::size_t c = 0; c < form_.logs.size(); ++c)
    class_inputs_[(std::size_t{place[form_.logs[c] % kClasses]} << log2) + form_.logs[c] / kClasses] =
        static_cast<std::uint32_t>(c);
  shape_.class_inputs = class_inputs_.data();

  // Sum e takes the values at 2^(257 * e), times 2^(class * e).
  const gf16::Field &field = gf16::Field::words();
  std::vector<std::uint8_t> point(form_.exponents.size());
  sums_at_.assign(256, 0);
  for (std::size_t i = 0; i < point.size(); ++i) {
    point[i] = pairs.number[low(pairs.of_word[field.exp(std::uint64_t{kClasses} * form_.exponents[i])])];
    ++sums_at_[point[i]];
  }
  sum_outputs_.resize(point.size());
  std::iota(sum_outputs_.begin(), sum_outputs_.end(), 0u);
  std::ranges::stable_sort(sum_outputs_, {}, [&](std::uint32_t i) { return point[i]; });
  shape_.sums_at = sums_at_.data();
  shape_.sum_count = static_cast<std::uint32_t>(point.size());
  shape_.sum_outputs = sum_outputs_.data();
  factors_.reserve(2 * classes.size() * point.size());
  for (std::size_t first = 0; first < classes.size(); first += kClassesAtOnce) {
    for (const std::uint32_t sum : sum_outputs_) {
      for (unsigned q = 0; q < kClassesAtOnce; ++q) {
        const unsigned pair = pairs.of_word[field.exp(std::uint64_t{classes[first + q]} * form_.exponents[sum])];
        factors_.push_back(pairs.number[low(pair)]);
        factors_.push_back(pairs.number[pair >> 8]);
      }
    }
  }
  shape_.factors = factors_.data();
}

std::size_t PowersOperator::Tile::all_bytes() const noexcept {
  return rounded_up((sum_rows + output_rows) * sizeof(std::uint8_t *)) + (sum_rows + output_rows) * bytes;
}

PowersOperator::Tile PowersOperator::tile_of(const OperatorCall &call) const noexcept {
  const bool compares = call.task->mode == Mode::compare, solves = form_.solve != nullptr;
  Tile tile = {solves || compares ? form_.exponents.size() : 0, solves && compares ? rows() : 0, 0};
  const std::size_t strip = kernel_.powers_strip_bytes, all = tile.sum_rows + tile.output_rows;
  if (all != 0) tile.bytes = std::clamp(kTileBytes / all / strip * strip, strip, kMostTileBytes);
  return tile;
}

std::size_t PowersOperator::scratch_bytes(const OperatorCall &call) const noexcept {
  return rounded_up(kernel_.powers_scratch_bytes(shape_.log2, shape_.sum_count)) + tile_of(call).all_bytes();
}

void PowersOperator::apply(const OperatorCall &call, std::byte *scratch, core::Mismatch *found) const noexcept {
  const core::Task &task = *call.task;
  PowersCall sums = shape_;
  sums.inputs = reinterpret_cast<const std::uint8_t *const *>(task.inputs);
  sums.outputs = reinterpret_cast<std::uint8_t *const *>(task.outputs);
  sums.offset_bytes = call.offset_bytes;
  sums.length_bytes = call.length_bytes;
  sums.accumulate = task.mode == Mode::accumulate;
  sums.scratch = reinterpret_cast<std::uint8_t *>(scratch);
  const Tile tile = tile_of(call);
  if (tile.bytes == 0) return kernel_.apply_powers(sums);

  scratch += rounded_up(kernel_.powers_scratch_bytes(shape_.log2, shape_.sum_count));
  auto **const at = reinterpret_cast<std::uint8_t **>(scratch);
  auto *const row =
      reinterpret_cast<std::uint8_t *>(scratch) + (tile.all_bytes() - (tile.sum_rows + tile.output_rows) * tile.bytes);
  std::uint8_t **const computed = tile.output_rows != 0 ? at + tile.sum_rows : at;
  Gf16Call solve = {};
  solve.tables = solve_tables_.get();
  solve.inputs = at;
  solve.outputs = tile.output_rows != 0 ? computed : sums.outputs;
  solve.accumulate = sums.accumulate;
  solve.is_words = true;
  if (form_.solve != nullptr) {
    solve.coefficients = form_.solve->data();
    solve.rows = form_.solve->rows();
    solve.columns = form_.solve->columns();
  }
  sums.outputs = at;
  sums.accumulate = form_.chosen_count != 0;
  const std::size_t data_count = form_.logs.size(), end = call.offset_bytes + call.length_bytes;
  for (; sums.offset_bytes < end; sums.offset_bytes += sums.length_bytes) {
    const std::size_t offset = sums.offset_bytes, bytes = sums.length_bytes = std::min(tile.bytes, end - offset);
    for (std::size_t i = 0; i < tile.sum_rows + tile.output_rows; ++i) at[i] = moved(row + i * tile.bytes, offset);
    if (sums.accumulate)
      for (std::size_t i = 0; i < tile.sum_rows; ++i)
        i < form_.chosen_count ? std::memcpy(row + i * tile.bytes, task.inputs[data_count + i] + offset, bytes)
                               : std::memset(row + i * tile.bytes, 0, bytes);
    kernel_.apply_powers(sums);
    if (form_.solve != nullptr) {
      solve.offset_bytes = offset;
      solve.length_bytes = bytes;
      kernel_.apply(solve);
    }
    if (task.mode != Mode::compare) continue;
    for (std::size_t r = 0; r < rows(); ++r)
      merge_differences(reinterpret_cast<const std::uint8_t *>(task.outputs[r]) + offset, computed[r] + offset, bytes,
                        offset, &found[r]);
  }
}

}  // namespace tandem::cpu
