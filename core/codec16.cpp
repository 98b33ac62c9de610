// SPDX-License-Identifier: Apache-2.0
#include "core/codec16.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "core/presets.hpp"

namespace tandem::core {
namespace {

// PAR2 and liberasurecode: input slices have 16-bit constants of order 65535; EC_MAX_FRAGMENTS.
constexpr unsigned kMostPar2Data = 32768, kMostLiberasurecodeShards = 32;

Indices indices_from_0(unsigned count) {
  Indices indices(count);
  std::iota(indices.begin(), indices.end(), std::uint16_t{0});
  return indices;
}

template <class... Parts>
[[noreturn]] void refuse(const Parts &...why) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, why...);
}

// The first rows, from a column on.
std::vector<std::byte *> rows_of(Matrix16 &matrix, unsigned count, unsigned column = 0) {
  std::vector<std::byte *> rows;
  for (unsigned r = 0; r < count; ++r) rows.push_back(reinterpret_cast<std::byte *>(&matrix.at(r, column)));
  return rows;
}

void multiply_rows(const Matrix16 &factors, const std::byte *const *inputs, std::byte *const *outputs,
                   std::size_t columns) {
  for (unsigned r = 0; r < factors.rows(); ++r)
    for (unsigned i = 0; i < factors.columns(); ++i)
      gf16::multiply_add(gf16::Field::words(), {reinterpret_cast<std::uint16_t *>(outputs[r]), columns},
                         factors.at(r, i), {reinterpret_cast<const std::uint16_t *>(inputs[i]), columns});
}

}  // namespace

Codec16::Codec16(const tandem_codec_options &options) : Codec(options) {
  if (options.matrix == TANDEM_MATRIX_CUSTOM) {
    make_custom(options);
    return;
  }
  const Preset *const preset = find_preset(options.matrix);
  if (preset == nullptr) refuse("codec options: unknown matrix ", options.matrix);
  if (!preset->is_gf16() && !(packets_ && has_packets(options.matrix)))
    refuse("codec options: matrix ", preset->name, " is over GF(2^8), but field is ", int{TANDEM_FIELD_GF16},
           " (GF(2^16))");
  check_no_coefficients(options, preset->name);
  switch (options.matrix) {
    case TANDEM_MATRIX_LEOPARD16:
      make_leopard(preset->name, false);
      break;
    case TANDEM_MATRIX_REED_SOLOMON_SIMD:
      make_leopard(preset->name, true);
      break;
    case TANDEM_MATRIX_PAR2:
      make_par2(options);
      break;
    case TANDEM_MATRIX_LIBERASURECODE_RS_VAND:
      make_liberasurecode();
      break;
    default:
      cells_ = std::make_shared<const Matrix16>(make_jerasure16(options.matrix, k_, m_));
      break;
  }
}

// High rate: parity has the points from 0 on, data those from the next power of two on. Low rate: the other way round.
void Codec16::make_leopard(const char *name, bool may_be_low_rate) {
  const unsigned data_span = std::bit_ceil(k_), parity_span = std::bit_ceil(std::max(m_, 1u));
  is_low_rate_ = may_be_low_rate && (data_span < parity_span || (data_span == parity_span && k_ > m_));
  const unsigned group = is_low_rate_ ? data_span : parity_span, others = is_low_rate_ ? m_ : k_;
  if (group + others > gf16::kFieldSize)
    refuse("matrix ", name, ": k = ", k_, ", m = ", m_, " need ", group, " + ", others,
           " points of the field (one of the two counts is rounded up to a power of two), it has ", gf16::kFieldSize);
  kind_ = Kind::leopard;
  gf_ = &gf16::Field::cantor();
  layout_ = Layout::leopard;
  group_log2_ = static_cast<unsigned>(std::countr_zero(group));
}

// The Vandermonde matrix of the points 0, 1, 2, ... made systematic, its columns scaled so that parity row 0 is ones.
void Codec16::make_liberasurecode() {
  if (k_ + m_ > kMostLiberasurecodeShards)
    refuse("matrix liberasurecode-rs-vand: k + m = ", k_ + m_, ", at most ", kMostLiberasurecodeShards,
           " shards are possible");
  Matrix16 cells(m_, k_);
  for (unsigned r = 0; r < m_; ++r) {
    const auto log_of = [&](unsigned point, unsigned c) { return gf_->log(static_cast<std::uint16_t>(point ^ c)); };
    std::uint64_t log = 0;  // of the ratio of the products of differences, of this row and row 0
    for (unsigned c = 0; c < k_; ++c) log += log_of(k_ + r, c) + gf16::kOrder - log_of(k_, c);
    for (unsigned c = 0; c < k_; ++c) cells.at(r, c) = gf_->exp(log + log_of(k_, c) + gf16::kOrder - log_of(k_ + r, c));
  }
  cells_ = std::make_shared<const Matrix16>(std::move(cells));
}

// Constants are the powers of 2 that have order 65535 (Parity Volume Set Specification 2.0).
void Codec16::make_par2(const tandem_codec_options &options) {
  kind_ = Kind::powers;
  first_exponent_ = options.first_exponent;
  if (k_ > kMostPar2Data) refuse("matrix par2: k = ", k_, ", it has at most ", kMostPar2Data, " data shards");
  if (first_exponent_ > gf16::kOrder - m_)
    refuse("matrix par2: m = ", m_, " parity shards from first_exponent = ", first_exponent_,
           " on, exponents are below ", gf16::kOrder);
  // As for PAR1: rows 1 ; a ; a^2 of distinct a, or two columns of ratio 2^n with powers that do not repeat.
  is_mds_ = m_ <= 3 || k_ <= 2;
  if (!is_mds_ && options.allow_non_mds == 0)
    base::fail(TANDEM_ERROR_NOT_MDS, "matrix par2 with k = ", k_, ", m = ", m_,
               " is not known to recover from every loss of ", m_,
               " shards (it is for m <= 3, or k <= 2): use leopard16, or set allow_non_mds to read what exists");
  for (unsigned exponent = 1; logs_.size() < k_; ++exponent)
    if (std::gcd(exponent, gf16::kOrder) == 1) logs_.push_back(static_cast<std::uint16_t>(exponent));
}

void Codec16::make_custom(const tandem_codec_options &options) {
  check_cells(m_, k_, "a custom matrix");
  if (m_ != 0 && options.coefficients == nullptr)
    refuse("codec options: a custom matrix needs coefficients (", m_, " x ", k_, " of 2 bytes), got NULL");
  Matrix16 given(m_, k_);
  if (m_ != 0) std::memcpy(given.row(0).data(), options.coefficients, std::size_t{m_} * k_ * sizeof(std::uint16_t));
  cells_ = std::make_shared<const Matrix16>(std::move(given));
  if (m_ == 0) return;
  if (options.allow_non_mds != 0) {
    is_mds_ = false;
    return;
  }
  check_proof(prove_mds(*gf_, *cells_), k_, m_);
}

void Codec16::check_cells(std::uint64_t rows, std::uint64_t columns, const char *what, std::uint64_t most_bytes) const {
  if (rows * columns * sizeof(std::uint16_t) <= most_bytes) return;
  base::fail(TANDEM_ERROR_TOO_LARGE, what, " with k = ", k_, ", m = ", m_, ": ", rows, " x ", columns,
             " coefficients are ", rows * columns * sizeof(std::uint16_t), " bytes, at most ", most_bytes,
             " are possible");
}

std::uint16_t Codec16::point(unsigned shard) const {
  const unsigned group = 1u << group_log2_;
  if (shard < k_) return static_cast<std::uint16_t>(is_low_rate_ ? shard : group + shard);
  return static_cast<std::uint16_t>(is_low_rate_ ? group + shard - k_ : shard - k_);
}

// A coefficient is scale[output] / scale[input] / (point[output] + point[input]). Leopard's factor is the subspace
// polynomial of the first group at the point that lies outside of it.
unsigned Codec16::log_scale(unsigned shard) const {
  if ((shard < k_) == is_low_rate_) return 0;
  const unsigned log = gf_->log(static_cast<std::uint16_t>(point(shard) >> group_log2_));
  return is_low_rate_ ? log : (gf16::kOrder - log) % gf16::kOrder;
}

Element Codec16::coefficient(unsigned row, unsigned column) const {
  if (kind_ == Kind::matrix) return cells_->at(row, column);
  if (kind_ == Kind::powers) return gf_->exp(std::uint64_t{logs_[column]} * (first_exponent_ + row));
  const std::uint16_t difference = point(k_ + row) ^ point(column);
  return gf_->exp(std::uint64_t{log_scale(k_ + row)} + 2 * gf16::kOrder - log_scale(column) - gf_->log(difference));
}

Operator Codec16::encode_of(std::span<const std::uint16_t> outputs) const {
  if (kind_ == Kind::leopard && outputs.size() > 1) {
    Leopard16 form;
    form.group_log2 = group_log2_;
    for (unsigned c = 0; c < k_; ++c) form.data_points.push_back(point(c));
    for (const std::uint16_t shard : outputs) form.parity_points.push_back(point(shard));
    return Operator(std::move(form));
  }
  if (kind_ == Kind::powers) return Operator(powers_of(indices_from_0(k_), outputs));
  if (kind_ == Kind::matrix && outputs.size() == m_ && !packets_) return Operator(Dense16{gf_, layout_, cells_});
  check_cells(outputs.size(), k_, "an encode");
  Matrix16 rows(static_cast<unsigned>(outputs.size()), k_);
  for (unsigned r = 0; r < rows.rows(); ++r)
    for (unsigned c = 0; c < k_; ++c) rows.at(r, c) = coefficient(outputs[r] - k_, c);
  return dense(std::move(rows));
}

Operator Codec16::column_of(unsigned index, std::span<const std::uint16_t> outputs) const {
  Matrix16 cells(static_cast<unsigned>(outputs.size()), 1);
  for (unsigned r = 0; r < cells.rows(); ++r) cells.at(r, 0) = coefficient(outputs[r] - k_, index);
  return dense(std::move(cells));
}

void Codec16::solve_for(const ShardSet &present, std::span<const std::uint32_t> costs, const SetupWork &work,
                        Application &application) const {
  if (!costs.empty())
    base::fail(TANDEM_ERROR_UNSUPPORTED, "read_costs: a code over GF(2^16) always reads the present data shards");
  const Indices lost = indices_of(present, 0, k_, false);
  Indices parity = indices_of(present, k_, shard_count());
  application.inputs = indices_of(present, 0, k_);
  if (is_mds_) {
    if (parity.size() < lost.size()) fail_too_few(lost.size(), parity.size());
    parity.resize(lost.size());
  }
  if (kind_ == Kind::powers) return solve_powers(present, lost, parity, work, application);
  if (kind_ == Kind::matrix) return eliminate(present, parity, application);
  application.inputs.insert(application.inputs.end(), parity.begin(), parity.end());
  // A row of a matrix is one product for each input, the transforms are about one for each input and level.
  const bool is_narrow = application.outputs.size() <= std::max(1u, group_log2_ / 2);
  application.what = is_narrow ? interpolate(lost, parity, application) : transform(lost, parity, application);
}

// As Codec8::interpolate: exchanging the lost data for the chosen parity multiplies each scale by a ratio of products.
Operator Codec16::interpolate(std::span<const std::uint16_t> lost, std::span<const std::uint16_t> chosen,
                              const Application &application) const {
  const auto points_of = [&](std::span<const std::uint16_t> shards) {
    Indices points;
    for (const std::uint16_t shard : shards) points.push_back(point(shard));
    return points;
  };
  check_cells(application.outputs.size(), application.inputs.size(), "a decode");
  const Indices lost_points = points_of(lost), chosen_points = points_of(chosen);
  const Indices in = points_of(application.inputs), out = points_of(application.outputs);
  const Indices in_ratios = gf16::log_ratios(*gf_, in, chosen_points, lost_points);
  const Indices out_ratios = gf16::log_ratios(*gf_, out, chosen_points, lost_points);
  Matrix16 cells(static_cast<unsigned>(out.size()), static_cast<unsigned>(in.size()));
  for (unsigned r = 0; r < cells.rows(); ++r) {
    const std::uint64_t log = std::uint64_t{log_scale(application.outputs[r])} + out_ratios[r] + 3 * gf16::kOrder;
    for (unsigned c = 0; c < cells.columns(); ++c)
      cells.at(r, c) = gf_->exp(log - log_scale(application.inputs[c]) - in_ratios[c] - gf_->log(out[r] ^ in[c]));
  }
  return dense(std::move(cells));
}

// The syndrome of a chosen parity shard x is sum over lost y of scale_x / scale_y * lost_y / (x + y). The inverse is
//     lost_y = scale_y * B_y * sum over x of A_x / scale_x * syndrome_x / (x + y),
// A_x = prod_y (x + y) / prod_x' (x + x'), B_y = prod_x (x + y) / prod_y' (y + y'). Transforms between group 0 and
// another multiply by the number of that group: it is divided out.
Operator Codec16::transform(std::span<const std::uint16_t> lost, std::span<const std::uint16_t> chosen,
                            const Application &application) const {
  Leopard16 form;
  form.group_log2 = group_log2_;
  for (const std::uint16_t shard : application.inputs) {
    if (shard >= k_) break;
    form.data_points.push_back(point(shard));
  }
  for (const std::uint16_t shard : chosen) form.chosen_points.push_back(point(shard));
  for (const std::uint16_t shard : lost) {
    form.lost_points.push_back(point(shard));
    form.is_wanted.push_back(std::ranges::binary_search(application.outputs, shard));
  }
  for (const std::uint16_t shard : application.outputs)
    if (shard >= k_) form.parity_points.push_back(point(shard));
  const Indices a = gf16::log_ratios(*gf_, form.chosen_points, form.lost_points, form.chosen_points);
  const Indices b = gf16::log_ratios(*gf_, form.lost_points, form.chosen_points, form.lost_points);
  const auto scale = [&](std::uint64_t log, std::uint16_t at) {
    return gf_->exp(log + 3 * gf16::kOrder - gf_->log(static_cast<std::uint16_t>(at >> group_log2_)));
  };
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::uint64_t log = std::uint64_t{a[i]} + gf16::kOrder - log_scale(chosen[i]);
    form.chosen_scales.push_back(scale(log, is_low_rate_ ? form.chosen_points[i] : std::uint16_t{0}));
  }
  for (std::size_t i = 0; i < lost.size(); ++i) {
    const std::uint64_t log = std::uint64_t{b[i]} + log_scale(lost[i]);
    form.lost_scales.push_back(scale(log, is_low_rate_ ? std::uint16_t{0} : form.lost_points[i]));
  }
  return Operator(std::move(form));
}

Operator Codec16::dense(Matrix16 cells) const {
  if (packets_)
    return packet_operator(cells.rows(), cells.columns(), [&](unsigned r, unsigned c, unsigned i) {
      return gf_->multiply(cells.at(r, c), static_cast<std::uint16_t>(1u << i));
    });
  return Operator(Dense16{gf_, layout_, std::make_shared<const Matrix16>(std::move(cells))});
}

Powers16 Codec16::powers_of(std::span<const std::uint16_t> data, std::span<const std::uint16_t> parity) const {
  Powers16 form;
  for (const std::uint16_t shard : data) form.logs.push_back(logs_[shard]);
  for (const std::uint16_t shard : parity)
    form.exponents.push_back(static_cast<std::uint16_t>(first_exponent_ + shard - k_));
  return form;
}

// Sums of the present data for the chosen parity shards and for the wanted ones. With the chosen shards added, their
// sums are those of the lost data. Lost data and its part of wanted parity is a matrix times these.
void Codec16::solve_powers(const ShardSet &present, std::span<const std::uint16_t> lost,
                           std::span<const std::uint16_t> parity, const SetupWork &work,
                           Application &application) const {
  const Indices &outputs = application.outputs;
  const std::span wanted_parity(std::ranges::lower_bound(outputs, k_), outputs.end());
  if (lost.empty()) {
    application.what = Operator(powers_of(application.inputs, wanted_parity));
    return;
  }
  const std::size_t count = lost.size();
  check_cells(std::max(outputs.size(), count), count + wanted_parity.size(), "a decode", kMostSolveBytes16);
  ParityRun run{lost, k_, {}, {}};  // of which most are present
  std::span<const std::uint16_t> chosen_of_run;
  const auto size = static_cast<unsigned>(count), end_of_parity = parity.empty() ? k_ : parity.back() + 1u;
  const unsigned last = std::max(end_of_parity, k_ + size) - size;
  for (const std::uint16_t shard : parity) {
    const unsigned first_here = std::min<unsigned>(shard, last);
    const auto begin = std::ranges::lower_bound(parity, first_here);
    const auto end = std::lower_bound(begin, parity.end(), first_here + size);
    if (static_cast<std::size_t>(end - begin) <= chosen_of_run.size()) continue;
    chosen_of_run = {begin, end};
    run.first = first_here;
    if (chosen_of_run.size() == count) break;
  }
  Indices chosen(chosen_of_run.begin(), chosen_of_run.end());
  // Seconds with AVX-512, a minute or two with plain loops. It also keeps the matrices of fill_run small.
  constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 36;
  const std::size_t missing = count - chosen.size();
  if (std::uint64_t{count} * count * missing > kMostSteps)
    base::fail(TANDEM_ERROR_TOO_LARGE, count, " lost shards, and ", missing,
               " of as many neighbouring parity shards are missing");
  for (const std::uint16_t shard : lost) run.constants.push_back(gf_->exp(logs_[shard]));
  run.polynomial = polynomial_of(run.constants, work);
  Matrix16 solved = solve_run(run, outputs, work);  // outputs from the chosen shards
  if (chosen.size() < count) {
    Sums<std::uint16_t> sums = fill_run(run, chosen_of_run, parity, std::move(solved), work);
    if (!sums.undetermined.empty()) {
      for (std::uint16_t &output : sums.undetermined) output = outputs[output];
      fail_undetermined(present, sums.undetermined, static_cast<unsigned>(sums.inputs.size()));
    }
    chosen = std::move(sums.inputs);
    solved = std::move(sums.cells);
  }
  Indices sums = chosen;
  sums.insert(sums.end(), wanted_parity.begin(), wanted_parity.end());
  Powers16 form = powers_of(application.inputs, sums);
  form.chosen_count = static_cast<unsigned>(chosen.size());
  if (!wanted_parity.empty()) {
    Matrix16 wide(solved.rows(), static_cast<unsigned>(sums.size()));
    for (unsigned r = 0; r < solved.rows(); ++r) std::ranges::copy(solved.row(r), wide.row(r).begin());
    for (unsigned i = 1; i <= wanted_parity.size(); ++i) wide.at(wide.rows() - i, wide.columns() - i) = 1;
    solved = std::move(wide);
  }
  form.solve = std::make_shared<const Matrix16>(std::move(solved));
  application.inputs.insert(application.inputs.end(), chosen.begin(), chosen.end());
  application.what = Operator(std::move(form));
}

// With the constants a_j of lost data and exponents s, s + 1, ..: syndrome i is the sum over j of a_j^(s+i) * lost_j,
// a Vandermonde matrix. Lagrange's formula inverts it: with P(x) = product over j of (x + a_j) and Q_j(x) = P(x) / (x +
// a_j), lost_j is the sum over i of (coefficient i of Q_j) * syndrome i, divided by a_j^s * Q_j(a_j).
Matrix16 Codec16::solve_run(const ParityRun &run, std::span<const std::uint16_t> outputs, const SetupWork &work) const {
  const auto &[lost, first, constants, polynomial] = run;
  const Indices differences = gf16::log_ratios(*gf_, constants, constants, {});
  Matrix16 solved(static_cast<unsigned>(outputs.size()), static_cast<unsigned>(lost.size()));
  std::vector<std::uint16_t> row(lost.size());
  unsigned next_output = 0;
  for (std::size_t j = 0; j < lost.size(); ++j) {
    const bool is_wanted = next_output < outputs.size() && outputs[next_output] == lost[j];
    if (!is_wanted && (outputs.empty() || outputs.back() < k_)) continue;
    if (work.check_cancelled) work.check_cancelled();
    const std::uint64_t log = differences[j] + std::uint64_t{first_exponent_ + first - k_} * logs_[lost[j]];
    const std::uint16_t scale = gf_->exp(gf16::kOrder - log % gf16::kOrder);
    std::uint16_t coefficient_of_q = 1;
    for (std::size_t i = lost.size(); i-- != 0;) {
      row[i] = gf_->multiply(scale, coefficient_of_q);
      coefficient_of_q = polynomial[i] ^ gf_->multiply(constants[j], coefficient_of_q);
    }
    if (is_wanted) std::ranges::copy(row, solved.row(next_output++).begin());
    for (unsigned r = solved.rows(); r-- != 0 && outputs[r] >= k_;)
      gf16::multiply_add(*gf_, solved.row(r), coefficient(outputs[r] - k_, lost[j]), row);
  }
  return solved;
}

// Some shards of the run are missing. Syndrome s is the sum over j of a_j^s * lost_j, so a syndrome is made of those of
// the run as x^s is made of their powers modulo P. This gives a row for each other shard. An elimination of Gauss and
// Jordan, in blocks of rows, makes of these a row for each missing shard: what it is as a sum of present ones. The
// outputs come in as sums of the run, and out as sums of present shards, or undetermined: as indices of `outputs`; then
// the inputs are as many shards as are independent.
Sums<std::uint16_t> Codec16::fill_run(const ParityRun &run, std::span<const std::uint16_t> present,
                                      std::span<const std::uint16_t> parity, Matrix16 outputs,
                                      const SetupWork &work) const {
  constexpr unsigned kBlock = 32;
  const auto multiply = work.multiply ? work.multiply : multiply_rows;
  const auto count = static_cast<unsigned>(run.lost.size()), missing = count - static_cast<unsigned>(present.size());
  // Columns: the missing shards of the run, its present ones, the other ones that are chosen.
  std::vector<unsigned> column_of;  // of a shard of the run
  for (unsigned i = 0, next[2] = {0, missing}; i < count; ++i)
    column_of.push_back(next[std::ranges::binary_search(present, run.first + i)]++);
  Matrix16 reduced(missing, count + missing), block(kBlock, count + missing);
  std::vector<unsigned> pivots;  // columns, by row of `reduced`: it is 1 there, and all other rows are 0
  Indices chosen(present.begin(), present.end()), waiting;  // waiting: shards of the block

  const auto factors_of = [&](const Matrix16 &rows, unsigned row_count, unsigned first_pivot) {
    Matrix16 factors(row_count, static_cast<unsigned>(pivots.size()) - first_pivot);
    for (unsigned r = 0; r < row_count; ++r)
      for (unsigned i = 0; i < factors.columns(); ++i) factors.at(r, i) = rows.at(r, pivots[first_pivot + i]);
    return factors;
  };
  const auto take_block = [&] {
    const auto rank = static_cast<unsigned>(pivots.size()), waiting_count = static_cast<unsigned>(waiting.size());
    multiply(factors_of(block, waiting_count, 0), rows_of(reduced, rank).data(), rows_of(block, waiting_count).data(),
             count + rank);
    std::vector<std::span<std::uint16_t>> added;
    for (unsigned i = 0; i < waiting_count && pivots.size() < missing; ++i) {
      const auto row = block.row(i);
      for (unsigned n = 0; n < added.size(); ++n) gf16::multiply_add(*gf_, row, row[pivots[rank + n]], added[n]);
      const auto pivot = std::find_if(row.begin(), row.begin() + missing, [](std::uint16_t cell) { return cell != 0; });
      if (pivot == row.begin() + missing) continue;  // it depends on those before it
      row[count + pivots.size()] = 1;
      const std::uint16_t inverse = gf_->inverse(*pivot);
      for (std::uint16_t &cell : row) cell = gf_->multiply(cell, inverse);
      pivots.push_back(static_cast<unsigned>(pivot - row.begin()));
      for (const std::span each : added) gf16::multiply_add(*gf_, each, each[pivots.back()], row);
      added.push_back(row);
      chosen.push_back(waiting[i]);
    }
    std::vector<std::byte *> rows;
    for (const std::span each : added) rows.push_back(reinterpret_cast<std::byte *>(each.data()));
    multiply(factors_of(reduced, rank, rank), rows.data(), rows_of(reduced, rank).data(), count + pivots.size());
    for (unsigned n = 0; n < added.size(); ++n) std::ranges::copy(added[n], reduced.row(rank + n).begin());
    waiting.clear();
    block = Matrix16(kBlock, count + missing);
  };

  // The nearest shards after the run, then those before it.
  const auto polynomial = std::span(run.polynomial);
  for (const bool is_after : {true, false}) {
    if (parity.size() == present.size()) break;  // there are none
    std::vector<std::uint16_t> power(count);     // modulo P
    power[is_after ? count - 1 : 0] = 1;
    unsigned shard = is_after ? run.first + count - 1 : run.first;
    while (pivots.size() < missing && (is_after ? shard < parity.back() : shard > parity.front())) {
      shard += is_after ? 1 : -1;
      const std::uint16_t factor = is_after ? power.back() : gf_->divide(power.front(), polynomial.front());
      std::rotate(power.begin(), is_after ? power.end() - 1 : power.begin() + 1, power.end());
      (is_after ? power.front() : power.back()) = 0;
      gf16::multiply_add(*gf_, power, factor, polynomial.subspan(is_after ? 0 : 1, count));
      if (!std::ranges::binary_search(parity, shard)) continue;
      const auto row = block.row(static_cast<unsigned>(waiting.size()));
      for (unsigned i = 0; i < count; ++i) row[column_of[i]] = power[i];
      waiting.push_back(static_cast<std::uint16_t>(shard));
      if (waiting.size() == std::min<std::size_t>(kBlock, missing - pivots.size())) take_block();
    }
  }
  if (!waiting.empty()) take_block();

  const auto rank = static_cast<unsigned>(pivots.size()), row_count = outputs.rows();
  const unsigned zeros = rank == missing ? missing : 0;  // first columns that would become 0
  Matrix16 cells(row_count, count + rank - zeros), factors(row_count, rank);
  std::vector<unsigned> place_of(count);  // of a column, in the run
  for (unsigned i = 0; i < count; ++i) place_of[column_of[i]] = i;
  for (unsigned r = 0; r < row_count; ++r) {
    for (unsigned c = zeros; c < count; ++c) cells.at(r, c - zeros) = outputs.at(r, place_of[c]);
    for (unsigned i = 0; i < rank; ++i) factors.at(r, i) = outputs.at(r, place_of[pivots[i]]);
  }
  outputs = {};
  multiply(factors, rows_of(reduced, rank, zeros).data(), rows_of(cells, row_count).data(), cells.columns());
  Sums<std::uint16_t> sums{std::move(chosen), std::move(cells), {}};
  if (zeros == 0) {
    Matrix16 narrow(row_count, count + rank - missing);
    for (unsigned r = 0; r < row_count; ++r) {
      const auto row = sums.cells.row(r);
      if (std::ranges::any_of(row.first(missing), [](std::uint16_t cell) { return cell != 0; }))
        sums.undetermined.push_back(static_cast<std::uint16_t>(r));
      std::ranges::copy(row.subspan(missing), narrow.row(r).begin());
    }
    sums.cells = std::move(narrow);
  }
  sums.sort(false);
  return sums;
}

// The product over all points of (x + point), the highest power last.
std::vector<std::uint16_t> Codec16::polynomial_of(std::span<const std::uint16_t> points, const SetupWork &work) const {
  std::vector<std::uint16_t> polynomial = {1};
  for (const std::uint16_t point : points) {
    if (work.check_cancelled) work.check_cancelled();
    polynomial.insert(polynomial.begin(), 0);
    for (std::size_t i = 0; i + 1 < polynomial.size(); ++i) polynomial[i] ^= gf_->multiply(point, polynomial[i + 1]);
  }
  return polynomial;
}

// Present data first, then parity in the order of the shards.
void Codec16::eliminate(const ShardSet &present, const Indices &parity, Application &application) const {
  const std::size_t lost_count = k_ - application.inputs.size();
  check_cells(2 * std::uint64_t{lost_count}, lost_count, "a decode");
  check_cells(application.outputs.size(), k_, "a decode");
  Indices order = std::move(application.inputs);
  order.insert(order.end(), parity.begin(), parity.end());
  const auto coefficient = [this](unsigned row, unsigned column) { return cells_->at(row, column); };
  const Elimination elimination(*gf_, coefficient, k_, order);
  Sums<std::uint16_t> sums = elimination.express(application.outputs, !is_mds_);
  if (!sums.undetermined.empty()) fail_undetermined(present, sums.undetermined, elimination.rank());
  application.inputs = std::move(sums.inputs);
  application.what = dense(std::move(sums.cells));
}

}  // namespace tandem::core
