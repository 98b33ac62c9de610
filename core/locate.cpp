// SPDX-License-Identifier: Apache-2.0
#include "core/locate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "core/gf.hpp"
#include "core/registered_memory.hpp"

namespace tandem::core {
namespace {

using Column = std::vector<std::uint8_t>;  // one byte of each check

// The most sets of shards that the search of a code without polynomials tries for one column.
constexpr double kMostSets = 1e6;
// The syndromes of a tile fit the cache, and a run on a tile is large enough for threads.
constexpr std::uint64_t kTileBytes = 128 << 10, kLeastTileBytes = 4 << 10, kSyndromeBytes = 512 << 10;
constexpr std::uint64_t kPieceBytes = 4 << 10;  // damage is counted by pieces
constexpr std::uint64_t kColumnsByHand = 64;    // solved one by one if a set of shards no longer explains them
constexpr std::size_t kRecentSets = 8;

double sets_of(unsigned size, unsigned count) {
  double sets = 1;
  for (unsigned i = 0; i < count; ++i) sets = sets * (size - i) / (i + 1);
  return sets;
}

// The code's points and scales, if it is a generalised Reed-Solomon code. A repetition code has any points.
std::optional<CauchyForm> form_of(const Codec &codec) {
  if (codec.cauchy_form()) return codec.cauchy_form();
  if (codec.k() != 1 || !codec.is_mds()) return std::nullopt;
  std::vector<std::uint16_t> points(codec.shard_count());
  std::iota(points.begin(), points.end(), std::uint16_t{0});
  return cauchy_form_at(codec.parity(), std::move(points));
}

// The stripe's checks: stored outputs plus computed outputs. And the effect of damage of each shard.
struct Checks {
  Indices shards;               // inputs, then outputs
  std::vector<Column> effects;  // of a damage of 1 in each shard
  unsigned count;               // of checks
};

Checks checks_with_effects(const Application &application) {
  Checks checks;
  checks.shards = application.inputs;
  checks.shards.insert(checks.shards.end(), application.outputs.begin(), application.outputs.end());
  const Matrix &matrix = application.what.dense();
  checks.count = matrix.rows();
  for (unsigned c = 0; c < matrix.columns(); ++c) {
    Column &effect = checks.effects.emplace_back(checks.count);
    for (unsigned r = 0; r < checks.count; ++r) effect[r] = matrix.at(r, c);
  }
  for (unsigned r = 0; r < checks.count; ++r) checks.effects.emplace_back(checks.count)[r] = 1;
  return checks;
}

using Places = std::vector<unsigned>;  // of Checks::shards, ascending

// How a set of shards explains a syndrome: checks of its pivot rows give the damage, and the damage gives the other
// rows.
struct Explanation {
  Indices pivots, others;  // rows
  Matrix damage;           // of the shards, from the pivot rows
  Matrix rest;             // the other rows, from the pivot rows

  // The set's effects must be independent: then there are as many pivots as shards.
  Explanation(const Checks &checks, const Places &places) {
    const auto effect = [&](unsigned check, unsigned place) { return checks.effects[places[place]][check]; };
    const unsigned size = static_cast<unsigned>(places.size());
    Indices all(size + checks.count);  // the damage of each shard, then the checks that are sums of it
    std::iota(all.begin(), all.end(), std::uint16_t{0});
    const Elimination elimination(gf::kField, effect, size, std::span(all).subspan(size));
    if (elimination.rank() < size) return;  // is_possible reports it
    const auto express = [&](const Indices &outputs) { return elimination.express(outputs, false); };
    auto [inputs, cells, none] = express(Indices(all.begin(), all.begin() + size));
    damage = std::move(cells);
    std::ranges::set_difference(std::span(all).subspan(size), inputs, std::back_inserter(others));
    rest = express(others).cells;
    pivots = std::move(inputs);
    for (Indices *each : {&pivots, &others})
      for (std::uint16_t &check : *each) check = static_cast<std::uint16_t>(check - size);
  }

  bool is_possible() const noexcept { return damage.rows() != 0; }

  // The damage of each shard, or nothing.
  std::optional<Column> operator()(const Column &syndrome) const {
    const auto sum = [&](std::span<const std::uint8_t> row) {
      std::uint8_t value = 0;
      for (unsigned i = 0; i < pivots.size(); ++i) value ^= gf::multiply(row[i], syndrome[pivots[i]]);
      return value;
    };
    for (unsigned i = 0; i < others.size(); ++i)
      if (sum(rest.row(i)) != syndrome[others[i]]) return std::nullopt;
    Column values(damage.rows());
    for (unsigned i = 0; i < values.size(); ++i) values[i] = sum(damage.row(i));
    return values;
  }
};

// Finds the smallest set of at most `most` shards that explains a non-zero syndrome by its damage.
class Solver {
 public:
  virtual ~Solver() = default;
  virtual Places solve(const Column &syndrome) const = 0;  // empty: no set explains it
};

// Peterson's decoder in projective coordinates, for generalised Reed-Solomon codes. A syndrome is converted to the form
// s_i = sum over damaged shards of damage * v_j * x_j^i. Take a polynomial of degree `most_` with coefficients
// orthogonal to each run of most_ + 1 of the s_i. All damaged points are among its roots (infinity if its leading
// coefficient is 0). So there are at most as many as shards may be named. Either their damage solves the checks, or no
// set does.
class PolynomialSolver final : public Solver {
 public:
  PolynomialSolver(const Codec &codec, const CauchyForm &form, const Checks &checks, unsigned most)
      : checks_(checks), most_(most), to_powers_(checks.count, checks.count) {
    const unsigned k = codec.k();
    const auto difference = [&](unsigned a, unsigned b) -> std::uint8_t {
      const unsigned x = form.points[a] ^ form.points[b];
      return x >= 256 ? std::uint8_t{1} : static_cast<std::uint8_t>(x);
    };
    for (unsigned place = 0; place < checks.shards.size(); ++place) {
      const unsigned shard = checks.shards[place];
      points_.push_back(form.points[shard]);
      if (place + checks.count < checks.shards.size()) continue;
      // A code word is u_j * f(x_j), where u_j is the shard's scale over the product of its differences with the other
      // data shards; the dual code has 1 / (u_j * the product of its differences with the other shards that are here).
      std::uint8_t product = form.scales[shard];
      for (unsigned c = 0; c < k; ++c)
        if (c != shard) product = gf::divide(product, difference(shard, c));
      for (const std::uint16_t other : checks.shards)
        if (other != shard) product = gf::multiply(product, difference(shard, other));
      const std::uint8_t v = gf::inverse(product);
      const unsigned output = place + checks.count - static_cast<unsigned>(checks.shards.size());
      for (unsigned i = 0; i < checks.count; ++i) {
        const bool is_infinite = form.points[shard] == CauchyForm::kInfinity;
        to_powers_.at(i, output) = is_infinite
                                       ? (i + 1 == checks.count ? v : std::uint8_t{0})
                                       : gf::multiply(v, gf::power(static_cast<std::uint8_t>(form.points[shard]), i));
      }
    }
  }

  Places solve(const Column &syndrome) const override {
    Column powers(checks_.count);
    for (unsigned i = 0; i < checks_.count; ++i)
      for (unsigned r = 0; r < checks_.count; ++r) powers[i] ^= gf::multiply(to_powers_.at(i, r), syndrome[r]);
    const Column locator = orthogonal_to_runs(powers);
    if (locator.empty()) return {};
    Places roots;
    for (unsigned place = 0; place < points_.size(); ++place)
      if (value_at(locator, points_[place]) == 0) roots.push_back(place);
    if (roots.empty()) return {};
    const Explanation explanation(checks_, roots);
    const auto damage = explanation.is_possible() ? explanation(syndrome) : std::nullopt;
    if (!damage) return {};
    Places damaged;
    for (unsigned i = 0; i < roots.size(); ++i)
      if ((*damage)[i] != 0) damaged.push_back(roots[i]);
    return damaged;
  }

 private:
  // From the first column of the runs that depends on those before it.
  Column orthogonal_to_runs(const Column &powers) const {
    const auto run = [&](unsigned column, unsigned row) { return powers[row + column]; };
    const unsigned rows = checks_.count - most_;
    Indices columns(most_ + 1);
    std::iota(columns.begin(), columns.end(), static_cast<std::uint16_t>(rows));
    const Elimination elimination(gf::kField, run, rows, columns);
    const auto free = std::ranges::mismatch(columns, elimination.chosen()).in1;
    if (free == columns.end()) return {};
    const Sums<std::uint8_t> sums = elimination.express({free, free + 1}, true);
    Column orthogonal(columns.size());
    orthogonal[*free - rows] = 1;
    for (unsigned i = 0; i < sums.inputs.size(); ++i) orthogonal[sums.inputs[i] - rows] = sums.cells.at(0, i);
    return orthogonal;
  }

  static std::uint8_t value_at(const Column &polynomial, std::uint16_t point) {
    if (point == CauchyForm::kInfinity) return polynomial.back();
    std::uint8_t value = 0;
    for (std::size_t i = polynomial.size(); i-- != 0;)
      value = gf::multiply(value, static_cast<std::uint8_t>(point)) ^ polynomial[i];
    return value;
  }

  const Checks &checks_;
  const unsigned most_;
  Matrix to_powers_;
  std::vector<std::uint16_t> points_;
};

// For any code: tries all sets of one shard, of two, ... The last shard of a set is found by comparison. So sets of
// `most` shards cost the number of sets of most - 1, times all effects.
class SetSolver final : public Solver {
 public:
  SetSolver(const Checks &checks, unsigned most) : checks_(checks), most_(most) {}

  Places solve(const Column &syndrome) const override {
    for (unsigned size = 1; size <= most_; ++size) {
      Places found;
      if (search(checks_.effects, syndrome, 0, size, found)) return found;
    }
    return {};
  }

 private:
  // effects, syndrome: with the shards taken so far eliminated. found: filled from the last one to the first.
  bool search(const std::vector<Column> &effects, const Column &syndrome, unsigned begin, unsigned size,
              Places &found) const {
    if (size == 1) return search_last(effects, syndrome, begin, Column(checks_.count), 0, found);
    for (unsigned place = begin; place < effects.size(); ++place) {
      const Column &effect = effects[place];
      const auto pivot = std::ranges::find_if(effect, [](std::uint8_t cell) { return cell != 0; });
      if (pivot == effect.end()) continue;
      const auto at = static_cast<std::size_t>(pivot - effect.begin());
      const auto without = [&](const Column &of) {
        Column result = of;
        multiply_add(result, gf::divide(of[at], *pivot), effect);
        return result;
      };
      if (size == 2) {
        if (!search_last(effects, without(syndrome), place + 1, effect, at, found)) continue;
      } else {
        std::vector<Column> rest = effects;
        for (unsigned later = place + 1; later < rest.size(); ++later) rest[later] = without(effects[later]);
        if (!search(rest, without(syndrome), place + 1, size - 1, found)) continue;
      }
      found.insert(found.begin(), place);
      return true;
    }
    return false;
  }

  // Finds the last shard of a set. `taken` has a non-zero cell `at`. It is eliminated from each effect here, because
  // two or three cells tell most shards apart. If `taken` is all zeros, nothing is eliminated.
  bool search_last(const std::vector<Column> &effects, const Column &syndrome, unsigned begin, const Column &taken,
                   std::size_t at, Places &found) const {
    for (unsigned place = begin; place < effects.size(); ++place) {
      const Column &effect = effects[place];
      const std::uint8_t share = gf::divide(effect[at], taken[at]);
      std::uint8_t factor = 0;
      unsigned r = 0;
      for (; r < checks_.count; ++r) {
        const std::uint8_t cell = effect[r] ^ gf::multiply(share, taken[r]);
        if (factor == 0 && cell != 0) factor = gf::divide(syndrome[r], cell);
        if (gf::multiply(factor, cell) != syndrome[r] || (factor == 0 && cell != 0)) break;
      }
      if (r < checks_.count || factor == 0) continue;
      found = {place};
      return true;
    }
    return false;
  }

  const Checks &checks_;
  const unsigned most_;
};

// Damaged bytes of one shard, or columns beyond the guarantee, in ascending order.
struct Trail {
  std::uint64_t byte_count = 0;
  std::vector<DamageRange> ranges;  // without the shard

  void add(std::uint64_t begin_bytes, std::uint64_t end_bytes, std::uint64_t count) {
    byte_count += count;
    if (!ranges.empty() && begin_bytes <= ranges.back().end_bytes + kDamageGapBytes) {
      ranges.back().end_bytes = std::max(ranges.back().end_bytes, end_bytes);
      ranges.back().byte_count += count;
    } else {
      ranges.push_back({0, begin_bytes, end_bytes, count});
    }
  }

  // Merges two trails over different columns.
  void merge(const Trail &other) {
    std::vector<DamageRange> all(ranges.size() + other.ranges.size());
    std::ranges::merge(ranges, other.ranges, all.begin(), {}, &DamageRange::begin_bytes, &DamageRange::begin_bytes);
    byte_count = 0;
    ranges.clear();
    for (const DamageRange &each : all) add(each.begin_bytes, each.end_bytes, each.byte_count);
  }
};

// For at most kPieceBytes. Counts in lanes of bytes, so that compilers use vectors.
std::uint32_t count_nonzero(const std::uint8_t *piece, std::uint64_t length) {
  constexpr std::uint64_t kLanes = 32;
  static_assert(kPieceBytes / kLanes < 256);
  std::uint8_t lanes[kLanes] = {};
  std::uint64_t i = 0;
  for (; i + kLanes <= length; i += kLanes)
    for (std::uint64_t j = 0; j < kLanes; ++j) lanes[j] = static_cast<std::uint8_t>(lanes[j] + (piece[i + j] != 0));
  std::uint32_t count = 0;
  for (const std::uint8_t lane : lanes) count += lane;
  for (; i < length; ++i) count += piece[i] != 0;
  return count;
}

// Adds where `bytes`, which begin at `at_bytes` of the shards, are not 0.
void add_nonzero(const std::uint8_t *bytes, std::uint64_t length_bytes, std::uint64_t at_bytes, Trail *trail) {
  for (std::uint64_t done = 0; done < length_bytes; done += kPieceBytes) {
    const std::uint64_t length = std::min(kPieceBytes, length_bytes - done);
    const std::uint8_t *piece = bytes + done;
    const std::uint32_t count = count_nonzero(piece, length);
    if (count == 0) continue;
    std::uint64_t first = 0, last = length - 1;
    while (piece[first] == 0) ++first;
    while (piece[last] == 0) --last;
    trail->add(at_bytes + done + first, at_bytes + done + last + 1, count);
  }
}

// The first byte from `begin` on that is not 0, or `end`.
std::uint64_t first_nonzero(const std::uint8_t *bytes, std::uint64_t begin, std::uint64_t end) {
  while (begin < end) {
    const std::uint64_t length = std::min(kPieceBytes, end - begin);
    if (count_nonzero(bytes + begin, length) != 0) {
      while (bytes[begin] == 0) ++begin;
      return begin;
    }
    begin += length;
  }
  return end;
}

// A set of shards, and the columns that it explains.
struct Suspects {
  Places places;
  Explanation explanation;
  std::vector<Trail> trails;                     // of each shard
  Trail columns;                                 // with damage in any of them
  std::shared_ptr<const Prepared> rest, damage;  // of the explanation; made when a run needs them

  Suspects(const Checks &checks, Places of)
      : places(std::move(of)), explanation(checks, places), trails(places.size()) {}
};

class DamageSearch {
 public:
  DamageSearch(Backend &backend, const Codec &codec, const Application &application, const Prepared &prepared,
               unsigned most, std::byte *const *shards, std::uint64_t shard_bytes, Control &control)
      : backend_(backend),
        control_(control),
        prepared_(prepared),
        most_(most),
        shards_(shards),
        shard_bytes_(shard_bytes),
        checks_(checks_with_effects(application)),
        input_count_(application.inputs.size()) {
    if (const auto form = form_of(codec)) {
      solver_ = std::make_unique<PolynomialSolver>(codec, *form, checks_, most_);
    } else {
      solver_ = std::make_unique<SetSolver>(checks_, most_);
    }
    tile_bytes_ =
        std::max(kLeastTileBytes, std::min(kTileBytes, kSyndromeBytes / checks_.count / kPieceBytes * kPieceBytes));
    tile_bytes_ = std::min(tile_bytes_, shard_bytes);
    const std::uint64_t rows = std::uint64_t{checks_.count} + std::max(most_, 1u);
    memory_ = std::make_unique_for_overwrite<std::uint8_t[]>(rows * tile_bytes_);
    for (std::uint64_t r = 0; r < rows; ++r) rows_.push_back(memory_.get() + r * tile_bytes_);
  }

  // Continues at the first byte that differs. repairs: the explained damage is repaired after a pass.
  void pass(std::uint64_t begin_bytes, bool repairs) {
    repairs_ = repairs;
    for (at_ = begin_bytes; at_ < shard_bytes_; at_ += length_) {
      length_ = std::min(tile_bytes_, shard_bytes_ - at_);
      if (control_.cancelled()) base::fail(TANDEM_ERROR_CANCELLED, "cancelled");
      compute_syndromes();
      take_tile();
    }
  }

  // Drops the sets that may be chance, then tells what is left.
  void report(DamageReport *out) {
    // A column beyond the guarantee has a random syndrome, and one set of shards explains 256^size of 256^checks
    // syndromes. So a set may explain some column by chance. If that is likely, a set counts only if it explains far
    // more columns than chance would. The same holds for a shard's damage: chance adds another shard to a damaged one.
    const auto beyond = static_cast<double>(beyond_.byte_count);
    for (auto &[places, each] : sets_) {
      const auto size = static_cast<unsigned>(each.places.size());
      const double chance = beyond * std::pow(256.0, static_cast<double>(size) - checks_.count);
      const bool is_likely = chance * sets_of(static_cast<unsigned>(checks_.shards.size()), size) > 1e-3;
      const auto is_chance = [&](const Trail &trail) {
        return is_likely && static_cast<double>(trail.byte_count) < 8 + 8 * chance;
      };
      if (is_chance(each.columns)) {
        beyond_.merge(each.columns);
        continue;
      }
      const Trail *longest = nullptr;  // of the sets that are not named: mostly they share their columns
      for (unsigned i = 0; i < size; ++i) {
        if (is_chance(each.trails[i])) {
          if (longest == nullptr || longest->byte_count < each.trails[i].byte_count) longest = &each.trails[i];
          continue;
        }
        const std::uint16_t shard = checks_.shards[each.places[i]];
        if (trails_.size() <= shard) trails_.resize(shard + 1u);
        trails_[shard].merge(each.trails[i]);
      }
      if (longest != nullptr) beyond_.merge(*longest);
    }
    for (std::uint32_t shard = 0; shard < trails_.size(); ++shard) {
      out->damaged_bytes[shard] = trails_[shard].byte_count;
      for (const DamageRange &range : trails_[shard].ranges)
        out->ranges.push_back({shard, range.begin_bytes, range.end_bytes, range.byte_count});
    }
    for (const DamageRange &range : beyond_.ranges)
      out->ranges.push_back({TANDEM_SHARD_NONE, range.begin_bytes, range.end_bytes, range.byte_count});
    out->beyond_byte_count = beyond_.byte_count;
  }

 private:
  std::byte *shard(unsigned place) const { return shards_[checks_.shards[place]]; }

  void run(const Prepared &prepared, const std::vector<const std::byte *> &inputs,
           const std::vector<std::byte *> &outputs, std::uint64_t offset_bytes, std::uint64_t length_bytes, Mode mode,
           Mismatch *mismatches = nullptr) {
    Task task{&prepared, inputs.data(), outputs.data(), offset_bytes, length_bytes, mode};
    task.mismatches = mismatches;
    backend_.run({&task, 1}, control_);
  }

  // Writes to the first rows: stored bytes plus the bytes computed from the inputs.
  void compute_syndromes() {
    std::vector<const std::byte *> inputs;
    std::vector<std::byte *> outputs;
    for (unsigned place = 0; place < input_count_; ++place) inputs.push_back(shard(place) + at_);
    for (unsigned r = 0; r < checks_.count; ++r) {
      std::memcpy(rows_[r], shard(static_cast<unsigned>(input_count_) + r) + at_, length_);
      outputs.push_back(reinterpret_cast<std::byte *>(rows_[r]));
    }
    run(prepared_, inputs, outputs, 0, length_, Mode::accumulate);
  }

  void take_tile() {
    if (most_ == 0) {
      for (unsigned r = 1; r < checks_.count; ++r)
        for (std::uint64_t j = 0; j < length_; ++j) rows_[0][j] |= rows_[r][j];
      add_nonzero(rows_[0], length_, at_, &beyond_);
      return;
    }
    std::uint64_t begin = 0;
    while (begin < length_) {
      const std::uint64_t end = explained_by(current_, begin);
      if (current_ != nullptr && end != begin) take(*current_, begin, end);
      begin = end;
      if (begin == length_) return;
      const std::uint64_t last = std::min(length_, begin + kColumnsByHand);
      for (; begin < last; ++begin) take_column(begin);
    }
  }

  // The end of the columns that a set (null: the empty one) explains.
  std::uint64_t explained_by(Suspects *set, std::uint64_t begin) {
    std::uint64_t end = length_;
    if (set == nullptr) {
      for (unsigned r = 0; r < checks_.count; ++r) end = first_nonzero(rows_[r], begin, end);
      return end;
    }
    const Explanation &explanation = set->explanation;
    if (set->rest == nullptr) {
      set->rest = backend_.prepare(explanation.rest);
      set->damage = backend_.prepare(explanation.damage);
    }
    std::vector<Mismatch> found(explanation.others.size());
    run(*set->rest, rows_at<const std::byte *>(explanation.pivots), rows_at<std::byte *>(explanation.others), begin,
        length_ - begin, Mode::compare, found.data());
    for (const Mismatch &each : found) end = std::min(end, each.first_bytes);
    return end;
  }

  template <class Pointer>
  std::vector<Pointer> rows_at(const Indices &indices) const {
    std::vector<Pointer> pointers;
    for (const std::uint16_t r : indices) pointers.push_back(reinterpret_cast<std::byte *>(rows_[r]));
    return pointers;
  }

  // Columns that the set explains: records the damage, or repairs it.
  void take(Suspects &set, std::uint64_t begin, std::uint64_t end) {
    const std::size_t size = set.places.size();
    std::vector<std::byte *> outputs;
    for (std::size_t i = 0; i < size; ++i) outputs.push_back(reinterpret_cast<std::byte *>(rows_[checks_.count + i]));
    run(*set.damage, rows_at<const std::byte *>(set.explanation.pivots), outputs, begin, end - begin, Mode::assign);
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint8_t *damage = rows_[checks_.count + i];
      if (repairs_) {
        auto *bytes = reinterpret_cast<std::uint8_t *>(shard(set.places[i])) + at_;
        for (std::uint64_t j = begin; j < end; ++j) bytes[j] ^= damage[j];
      } else {
        add_nonzero(damage + begin, end - begin, at_ + begin, &set.trails[i]);
      }
    }
    if (repairs_) return;
    std::uint8_t *any = rows_[checks_.count];
    for (std::size_t i = 1; i < size; ++i) {
      const std::uint8_t *damage = rows_[checks_.count + i];
      for (std::uint64_t j = begin; j < end; ++j) any[j] |= damage[j];
    }
    add_nonzero(any + begin, end - begin, at_ + begin, &set.columns);
  }

  void take_column(std::uint64_t at) {
    Column &syndrome = syndrome_;
    syndrome.resize(checks_.count);
    for (unsigned r = 0; r < checks_.count; ++r) syndrome[r] = rows_[r][at];
    if (std::ranges::count(syndrome, 0) == checks_.count) return;
    Suspects *set = nullptr;
    std::optional<Column> damage;
    for (auto recent = recent_.begin(); recent != recent_.end() && !damage; ++recent)
      if ((damage = (*recent)->explanation(syndrome))) set = *recent;
    if (!damage) {
      const Places places = solver_->solve(syndrome);
      if (!places.empty()) {
        set = &set_of(places);
        damage = set->explanation(syndrome);
      }
    }
    if (!damage) {
      if (!repairs_) beyond_.add(at_ + at, at_ + at + 1, 1);
      return;
    }
    use(set);
    for (std::size_t i = 0; i < damage->size(); ++i) {
      if ((*damage)[i] == 0) continue;
      if (repairs_) {
        shard(set->places[i])[at_ + at] ^= std::byte{(*damage)[i]};
      } else {
        set->trails[i].add(at_ + at, at_ + at + 1, 1);
      }
    }
    if (!repairs_) set->columns.add(at_ + at, at_ + at + 1, 1);
  }

  Suspects &set_of(const Places &places) {
    const auto found = sets_.find(places);
    return found != sets_.end() ? found->second : sets_.try_emplace(places, checks_, places).first->second;
  }

  // The next columns are tried with this set and the previous one together, if so many shards may be damaged. Otherwise
  // columns in which only some of the damaged shards differ would change the set all the time.
  void use(Suspects *set) {
    if (current_ != nullptr && current_ != set) {
      Places both;
      std::ranges::set_union(current_->places, set->places, std::back_inserter(both));
      if (both.size() <= most_) set = &set_of(both);
    }
    current_ = set;
    std::erase(recent_, set);
    recent_.insert(recent_.begin(), set);
    if (recent_.size() > kRecentSets) recent_.pop_back();
  }

  Backend &backend_;
  Control &control_;
  const Prepared &prepared_;
  const unsigned most_;
  std::byte *const *const shards_;
  const std::uint64_t shard_bytes_;
  const Checks checks_;
  const std::size_t input_count_;
  std::unique_ptr<const Solver> solver_;
  std::uint64_t tile_bytes_, at_ = 0, length_ = 0;  // the tile
  std::unique_ptr<std::uint8_t[]> memory_;
  std::vector<std::uint8_t *> rows_;  // of a tile: syndromes, then damage
  Column syndrome_;                   // of the column at hand
  bool repairs_ = false;
  std::map<Places, Suspects> sets_;
  Suspects *current_ = nullptr;
  std::vector<Suspects *> recent_;
  std::vector<Trail> trails_;  // of each shard
  Trail beyond_;
};

}  // namespace

unsigned most_damaged_shards(const Codec &codec, unsigned absent_count) {
  if (codec.field() != Field::gf8)
    base::fail(TANDEM_ERROR_UNSUPPORTED, "locate: codes over GF(2^16) are not supported, only codes over GF(2^8)");
  if (absent_count >= codec.m()) {
    base::fail(TANDEM_ERROR_NOT_RECOVERABLE, absent_count, " of ", codec.shard_count(),
               " shards absent: at most k = ", codec.k(), " are left, so there is nothing to compare them with");
  }
  unsigned most = 0;
  if (codec.is_mds()) {
    most = (codec.m() - absent_count) / 2;
  } else if (codec.local_groups()) {
    const unsigned losses = codec.local_groups()->global_count + 1;  // any so many can be rebuilt
    most = losses > absent_count ? (losses - absent_count) / 2 : 0;
  } else {
    base::fail(
        TANDEM_ERROR_UNSUPPORTED,
        "locate: this matrix is not MDS and has no local groups, so no number of damaged shards can be guaranteed");
  }
  const unsigned shards = codec.shard_count() - absent_count;
  if (most > 1 && !form_of(codec) && sets_of(shards, most - 1) > kMostSets) {
    base::fail(TANDEM_ERROR_UNSUPPORTED, "locate: this matrix has no polynomials, and ", most - 1, " of ", shards,
               " shards have ", base::fixed(sets_of(shards, most - 1), 0), " sets to try; at most ",
               base::fixed(kMostSets, 0), " are tried");
  }
  return most;
}

Application checks_of(const Codec &codec, const ShardSet &present) {
  const Indices shards = indices_of(present, 0, codec.shard_count());
  const auto coefficient = [&](unsigned row, unsigned column) { return codec.parity().at(row, column); };
  const Indices inputs = codec.is_mds() && shards.size() >= codec.k()
                             ? Indices(shards.begin(), shards.begin() + codec.k())
                             : Elimination(gf::kField, coefficient, codec.k(), shards).chosen();
  if (inputs.size() < codec.k()) {
    base::fail(TANDEM_ERROR_NOT_RECOVERABLE, codec.shard_count() - shards.size(), " of ", codec.shard_count(),
               " shards absent: those that are left have rank ", inputs.size(), ", ", codec.k(), " needed");
  }
  ShardSet chosen, rest;
  for (const std::uint16_t shard : shards)
    std::ranges::binary_search(inputs, shard) ? chosen.set(shard) : rest.set(shard);
  return *codec.solve(chosen, rest);
}

DamageReport locate_damage(Backend &backend, const Codec &codec, const Application &checks, const Prepared &prepared,
                           unsigned most_shards, std::byte *const *shards, std::uint64_t shard_bytes, bool repair,
                           Control &control) {
  std::vector<const std::byte *> inputs;
  std::vector<std::byte *> outputs;
  for (const std::uint16_t shard : checks.inputs) inputs.push_back(shards[shard]);
  for (const std::uint16_t shard : checks.outputs) outputs.push_back(shards[shard]);
  std::vector<Mismatch> found(outputs.size());
  Task task{&prepared, inputs.data(), outputs.data(), 0, shard_bytes, Mode::compare};
  task.mismatches = found.data();
  const MemoryHold hold({&task, 1});
  const auto compare = [&] {
    found.assign(outputs.size(), {});
    backend.run({&task, 1}, control);
    return std::ranges::all_of(found, [](const Mismatch &each) { return each.byte_count == 0; });
  };

  DamageReport report;
  report.damaged_bytes.resize(codec.shard_count());
  report.is_consistent = compare();
  if (report.is_consistent) return report;

  Mismatch all;
  for (const Mismatch &each : found) all.merge(each);
  DamageSearch search(backend, codec, checks, prepared, most_shards, shards, shard_bytes, control);
  search.pass(all.first_bytes, false);
  search.report(&report);
  if (!repair || report.beyond_byte_count != 0) return report;
  search.pass(all.first_bytes, true);
  if (!compare()) {
    base::fail(TANDEM_ERROR_DAMAGED,
               "locate: the stripe still does not match after the repair: its shards changed meanwhile");
  }
  report.is_repaired = true;
  return report;
}

}  // namespace tandem::core
