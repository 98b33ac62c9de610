#include "core/operator.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "core/gf.hpp"
#include "core/subspaces.hpp"

namespace tandem::core {
namespace {

using Slots = std::vector<std::uint32_t>;
constexpr unsigned kFieldSize = 256;

unsigned count_of(const std::vector<Element> &list) { return static_cast<unsigned>(list.size()); }

std::uint8_t scale_of(const std::vector<Element> &scales, std::size_t i) {
  return scales.empty() ? std::uint8_t{1} : static_cast<std::uint8_t>(scales[i]);
}

[[noreturn]] void refuse(const std::string &why) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a Cauchy transform: " + why);
}

void check(const CauchyTransform &form) {
  if (!std::has_single_bit(form.group_size) || form.group_size > CauchyTransform::kMostGroupSize)
    refuse(base::format("groups of {} points, not a power of two up to {}", form.group_size,
                        CauchyTransform::kMostGroupSize));
  for (const auto &[points, scales, name] : {std::tuple{&form.input_points, &form.input_scales, "input"},
                                             std::tuple{&form.output_points, &form.output_scales, "output"}}) {
    if (std::ranges::adjacent_find(*points, std::ranges::greater_equal{}) != points->end())
      refuse(base::format("the {} {} points do not ascend", points->size(), name));
    if (!points->empty() && points->back() >= kFieldSize)
      refuse(base::format("{} point {} is not in GF(2^8)", name, points->back()));
    if (!scales->empty() && scales->size() != points->size())
      refuse(base::format("{} {} scales for {} points", scales->size(), name, points->size()));
    for (const Element scale : *scales)
      if (scale == 0 || scale >= kFieldSize) refuse(base::format("{} scale {} is not from 1 to 255", name, scale));
  }
  for (const Element point : form.output_points)
    if (std::ranges::binary_search(form.input_points, point))
      refuse(base::format("point {} is of an input and of an output", point));
}

void check(const SyndromeDecode &form) {
  check(form.syndromes);
  check(form.solve);
  for (const Element point : form.solve.input_points)
    if (!std::ranges::binary_search(form.syndromes.output_points, point))
      refuse(base::format("the chosen parity point {} has no syndrome", point));
  for (const Element point : form.syndromes.output_points)
    if (!std::ranges::binary_search(form.solve.input_points, point) &&
        !std::ranges::binary_search(form.solve.output_points, point))
      refuse(base::format("the syndrome of point {} is not used", point));
}

// Makes the steps of transforms. The slots from `free_slot` on are not used yet.
class StepWriter {
 public:
  explicit StepWriter(std::uint32_t free_slot) : free_slot_(free_slot) {}

  Slots new_slots(std::size_t count) {
    Slots slots(count);
    std::iota(slots.begin(), slots.end(), free_slot_);
    free_slot_ += static_cast<std::uint32_t>(count);
    return slots;
  }

  void add(Matrix coefficients, Slots from, Slots to) {
    steps.push_back({std::move(coefficients), std::move(from), std::move(to)});
  }

  // target += source
  void add_to(std::uint32_t target, std::uint32_t source) {
    Matrix sum(1, 2);
    sum.at(0, 0) = sum.at(0, 1) = 1;
    add(std::move(sum), {target, source}, {target});
  }

  // Inverse transforms of the groups of inputs, one small matrix for each lane, transforms of the groups of outputs. If
  // a group has inputs and outputs, its own part of the map is a direct matrix.
  void transform(const CauchyTransform &form, const Slots &inputs, const Slots &outputs) {
    const auto from = groups_of(form.input_points, form.group_size);
    const auto to = groups_of(form.output_points, form.group_size);
    std::map<unsigned, Slots> in_lanes, out_lanes;

    for (const auto &[first, members] : from) {
      const Slots &lanes = in_lanes[first] = new_slots(form.group_size);
      Matrix place(form.group_size, count_of(members));
      for (unsigned c = 0; c < place.columns(); ++c)
        place.at(form.input_points[members[c]] - first, c) = scale_of(form.input_scales, members[c]);
      add(std::move(place), pick(inputs, members), lanes);
      for (unsigned half = 1; half < form.group_size; half *= 2)
        butterflies(first, half, lanes, [](std::uint8_t t) { return std::array{std::uint8_t(1 ^ t), t, one, one}; });
    }

    for (const auto &[first, members] : to) out_lanes[first] = new_slots(form.group_size);
    Matrix small(static_cast<unsigned>(to.size()), static_cast<unsigned>(from.size()));
    unsigned r = 0;
    for (const auto &[target, lanes] : out_lanes) {
      unsigned c = 0;
      for (const auto &[source, other] : in_lanes) {
        if (source != target)
          small.at(r, c) = gf::kSubspaces.between_groups(level_of(form.group_size), std::uint8_t(source ^ target));
        ++c;
      }
      ++r;
    }
    for (unsigned lane = 0; lane < form.group_size; ++lane)
      add(small, lane_of(in_lanes, lane), lane_of(out_lanes, lane));

    for (const auto &[first, members] : to) {
      const Slots &lanes = out_lanes[first];
      for (unsigned half = form.group_size / 2; half != 0; half /= 2)
        butterflies(first, half, lanes, [](std::uint8_t t) { return std::array{one, t, one, std::uint8_t(1 ^ t)}; });
      const auto beside = from.find(first);
      const Indices corner = beside == from.end() ? Indices() : beside->second;
      Matrix leave(count_of(members), form.group_size + count_of(corner));
      for (unsigned o = 0; o < leave.rows(); ++o) {
        const Element point = form.output_points[members[o]];
        const std::uint8_t scale = scale_of(form.output_scales, members[o]);
        leave.at(o, point - first) = scale;
        for (unsigned c = 0; c < corner.size(); ++c)
          leave.at(o, form.group_size + c) =
              gf::divide(gf::multiply(scale, scale_of(form.input_scales, corner[c])),
                         static_cast<std::uint8_t>(point ^ form.input_points[corner[c]]));
      }
      Slots sources = lanes;
      for (const Element c : corner) sources.push_back(inputs[c]);
      add(std::move(leave), std::move(sources), pick(outputs, members));
    }
  }

  std::vector<Step> steps;

 private:
  using Indices = std::vector<Element>;
  static constexpr std::uint8_t one = 1;

  static unsigned level_of(unsigned group_size) { return static_cast<unsigned>(std::countr_zero(group_size)); }

  // The first point of each group that has points, and which they are.
  static std::map<unsigned, Indices> groups_of(const std::vector<Element> &points, unsigned group_size) {
    std::map<unsigned, Indices> groups;
    for (std::size_t i = 0; i < points.size(); ++i)
      groups[points[i] / group_size * group_size].push_back(static_cast<Element>(i));
    return groups;
  }

  static Slots pick(const Slots &slots, const Indices &which) {
    Slots picked;
    for (const Element i : which) picked.push_back(slots[i]);
    return picked;
  }

  static Slots lane_of(const std::map<unsigned, Slots> &groups, unsigned lane) {
    Slots slots;
    for (const auto &[first, lanes] : groups) slots.push_back(lanes[lane]);
    return slots;
  }

  // In place, on all pairs of lanes that are `half` apart: (u, v) becomes cells(twiddle) * (u, v).
  template <class Cells>
  void butterflies(unsigned first, unsigned half, const Slots &lanes, const Cells &cells) {
    for (unsigned o = 0; o < lanes.size(); o += 2 * half) {
      const std::uint8_t t = gf::kSubspaces.twiddle(level_of(half), static_cast<std::uint8_t>(first ^ o));
      Matrix pair(2, 2);
      std::ranges::copy(cells(t), pair.row(0).data());
      for (unsigned j = o; j < o + half; ++j) add(pair, {lanes[j], lanes[j + half]}, {lanes[j], lanes[j + half]});
    }
  }

  std::uint32_t free_slot_;
};

Slots slots_from(std::uint32_t first, unsigned count) {
  Slots slots(count);
  std::iota(slots.begin(), slots.end(), first);
  return slots;
}

// Where each of some points is in the list that has them.
Slots positions_of(const std::vector<Element> &points, const std::vector<Element> &in) {
  Slots positions;
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
void check(const Dense16 &) {}
void check(const Leopard16 &) {}

unsigned input_count_of(const BitMatrix &form) { return form.bits->columns() / form.word_bits; }
unsigned output_count_of(const BitMatrix &form) { return form.bits->rows() / form.word_bits; }
void check(const BitMatrix &form) {
  const auto fail = [](const std::string &why) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a bit matrix: " + why); };
  const Matrix &bits = *form.bits;
  if (bits.rows() % form.word_bits != 0 || bits.columns() % form.word_bits != 0)
    fail(base::format("{} x {} bits are not of elements of {}", bits.rows(), bits.columns(), form.word_bits));
  for (unsigned r = 0; r < bits.rows(); ++r)
    for (const std::uint8_t bit : bits.row(r))
      if (bit > 1) fail(base::format("a bit of row {} is {}", r, bit));
}

std::uint64_t granularity_of(const BitMatrix &form) {
  constexpr std::uint64_t kUnit = BitMatrix::kPacketUnitBytes;
  if (form.word_bits == 0 || form.word_bits > BitMatrix::kMostWordBits)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::format("a bit matrix: {} bits of an element, not 1 to {}",
                                                           form.word_bits, BitMatrix::kMostWordBits));
  if (form.packet_bytes == 0 || form.packet_bytes % kUnit != 0 ||
      form.packet_bytes > Operator::kMostGranularityBytes / form.word_bits)
    base::fail(
        TANDEM_ERROR_INVALID_ARGUMENT,
        base::format("a bit matrix: packets of {} bytes are not a multiple of {}, or {} of them are more than {}",
                     form.packet_bytes, kUnit, form.word_bits, Operator::kMostGranularityBytes));
  return form.word_bits * form.packet_bytes;
}

// A caller that wants bytes looks at field() first.
[[noreturn]] void fail_gf16() {
  base::fail(TANDEM_ERROR_UNSUPPORTED, "an operator over GF(2^16) has no steps and no matrix over GF(2^8)");
}

[[noreturn]] void fail_packets() {
  base::fail(TANDEM_ERROR_UNSUPPORTED, "an operator on packets has no matrix over GF(2^8)");
}

std::vector<Step> expand_form(const Dense &form) {
  const unsigned inputs = input_count_of(form);
  return {{form.coefficients, slots_from(0, inputs), slots_from(inputs, output_count_of(form))}};
}

std::vector<Step> expand_form(const CauchyTransform &form) {
  const unsigned inputs = input_count_of(form), outputs = output_count_of(form);
  StepWriter writer(inputs + outputs);
  writer.transform(form, slots_from(0, inputs), slots_from(inputs, outputs));
  return std::move(writer.steps);
}

std::vector<Step> expand_form(const SyndromeDecode &form) {
  const unsigned inputs = input_count_of(form), outputs = output_count_of(form);
  const unsigned data_count = input_count_of(form.syndromes);
  StepWriter writer(inputs + outputs);
  const Slots syndromes = writer.new_slots(form.syndromes.output_points.size());
  writer.transform(form.syndromes, slots_from(0, data_count), syndromes);
  Slots chosen = positions_of(form.solve.input_points, form.syndromes.output_points);
  for (std::uint32_t i = 0; i < chosen.size(); ++i) {
    chosen[i] = syndromes[chosen[i]];
    writer.add_to(chosen[i], data_count + i);
  }
  writer.transform(form.solve, chosen, slots_from(inputs, outputs));
  for (const auto &[output, syndrome] : lost_parity_of(form)) writer.add_to(inputs + output, syndromes[syndrome]);
  return std::move(writer.steps);
}

std::vector<Step> expand_form(const BitMatrix &form) {
  return {{*form.bits, slots_from(0, form.bits->columns()), slots_from(form.bits->columns(), form.bits->rows())}};
}

std::vector<Step> expand_form(const Dense16 &) { fail_gf16(); }
std::vector<Step> expand_form(const Leopard16 &) { fail_gf16(); }

Matrix dense_of(const Dense &form) { return form.coefficients; }
Matrix dense_of(const Dense16 &) { fail_gf16(); }
Matrix dense_of(const Leopard16 &) { fail_gf16(); }
Matrix dense_of(const BitMatrix &) { fail_packets(); }

Matrix dense_of(const CauchyTransform &form) {
  Matrix matrix(output_count_of(form), input_count_of(form));
  for (unsigned r = 0; r < matrix.rows(); ++r)
    for (unsigned c = 0; c < matrix.columns(); ++c)
      matrix.at(r, c) = gf::divide(gf::multiply(scale_of(form.output_scales, r), scale_of(form.input_scales, c)),
                                   static_cast<std::uint8_t>(form.output_points[r] ^ form.input_points[c]));
  return matrix;
}

Matrix dense_of(const SyndromeDecode &form) {
  const Matrix syndromes = dense_of(form.syndromes), solve = dense_of(form.solve);
  const Slots chosen = positions_of(form.solve.input_points, form.syndromes.output_points);
  Matrix matrix(output_count_of(form), input_count_of(form));
  for (unsigned r = 0; r < matrix.rows(); ++r) {
    const auto data = matrix.row(r).first(syndromes.columns());
    for (unsigned i = 0; i < solve.columns(); ++i) {
      multiply_add(data, solve.at(r, i), syndromes.row(chosen[i]));
      matrix.at(r, syndromes.columns() + i) = solve.at(r, i);
    }
  }
  for (const auto &[output, syndrome] : lost_parity_of(form))
    multiply_add(matrix.row(output).first(syndromes.columns()), 1, syndromes.row(syndrome));
  return matrix;
}

}  // namespace

Operator::Operator(Form form, std::uint64_t granularity_bytes)
    : form_(std::move(form)), granularity_bytes_(granularity_bytes) {
  if (const Dense16 *dense = std::get_if<Dense16>(&form_)) granularity_bytes_ = granularity_of(dense->layout);
  if (std::holds_alternative<Leopard16>(form_)) granularity_bytes_ = granularity_of(Layout::leopard);
  if (const BitMatrix *packets = std::get_if<BitMatrix>(&form_)) granularity_bytes_ = granularity_of(*packets);
  if (granularity_bytes_ == 0 || granularity_bytes_ > kMostGranularityBytes)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::format("an operator's granularity of {} bytes is not from 1 to {}",
                                                           granularity_bytes_, kMostGranularityBytes));
  std::visit([](const auto &each) { check(each); }, form_);
  input_count_ = std::visit([](const auto &each) { return input_count_of(each); }, form_);
  output_count_ = std::visit([](const auto &each) { return output_count_of(each); }, form_);
  if (!std::holds_alternative<Dense>(form_)) made_ = std::make_shared<Made>();
}

Field Operator::field() const noexcept {
  if (std::holds_alternative<BitMatrix>(form_)) return Field::gf2;
  return std::holds_alternative<Dense16>(form_) || std::holds_alternative<Leopard16>(form_) ? Field::gf16 : Field::gf8;
}

std::size_t Operator::memory_bytes() const noexcept {
  if (std::holds_alternative<Leopard16>(form_))
    return 4 * sizeof(Element) *
           (std::size_t{input_count_} + output_count_);  // points and scales, of lost data as well
  if (const BitMatrix *packets = std::get_if<BitMatrix>(&form_))
    return std::size_t{packets->bits->rows()} * packets->bits->columns();
  return std::size_t{input_count_} * output_count_ * element_bytes(field());
}

std::vector<Step> Operator::expand() const {
  return std::visit([](const auto &each) { return expand_form(each); }, form_);
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
