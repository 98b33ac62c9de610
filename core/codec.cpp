#include "core/codec.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/format.hpp"
#include "base/options.hpp"
#include "core/codec16.hpp"
#include "core/gf.hpp"
#include "core/presets.hpp"
#include "core/wide.hpp"

namespace tandem::core {
namespace {

using Indices = std::vector<std::uint16_t>;

std::string count_of(std::size_t count, const char *what) {
  return base::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "3, 7, 12"; a long list is cut, the message has 511 bytes.
std::string list_of(std::span<const std::uint16_t> indices) {
  constexpr std::size_t kShown = 16;
  const std::size_t shown = std::min(indices.size(), kShown);
  std::string text = base::join(std::span(indices).first(shown), ", ");
  if (indices.size() > shown) text += base::format(" and {} more", indices.size() - shown);
  return text;
}

void check_shape(const tandem_codec_options &options) {
  if (options.k == 0)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: k = 0, at least 1 data shard is needed");
  if (options.field != TANDEM_FIELD_GF8 && options.field != TANDEM_FIELD_GF16) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("codec options: unknown field {}, known are {} (GF(2^8)) and {} (GF(2^16))", options.field,
                            int{TANDEM_FIELD_GF8}, int{TANDEM_FIELD_GF16}));
  }
  const bool is_gf16 = options.field == TANDEM_FIELD_GF16;
  const unsigned limit = is_gf16 ? kMaxShards16 : kMaxShards;
  if (options.k > limit || options.m > limit - options.k) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("codec options: k = {}, m = {}, but k + m must be at most {} in GF(2^{})", options.k,
                            options.m, limit, is_gf16 ? 16 : 8));
  }
}

[[noreturn]] void refuse_layout(const std::string &why) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: " + why);
}

// Nothing: each element in bytes of its own.
std::optional<PacketLayout> packet_layout(const tandem_codec_options &options) {
  if (options.layout == TANDEM_LAYOUT_BYTES) {
    if (options.word_bits != 0 || options.packet_bytes != 0)
      refuse_layout(base::format("word_bits = {} and packet_bytes = {} are for layout {} (packets), but layout is {}",
                                 options.word_bits, options.packet_bytes, int{TANDEM_LAYOUT_PACKETS}, options.layout));
    return std::nullopt;
  }
  if (options.layout != TANDEM_LAYOUT_PACKETS)
    refuse_layout(base::format("unknown layout {}, known are {} (bytes) and {} (packets)", options.layout,
                               int{TANDEM_LAYOUT_BYTES}, int{TANDEM_LAYOUT_PACKETS}));
  const bool is_gf16 = options.field == TANDEM_FIELD_GF16;
  const unsigned word_bits = options.word_bits != 0 ? options.word_bits : is_gf16 ? 16 : 8;
  if (is_gf16 ? word_bits != 16 : word_bits != 4 && word_bits != 8)
    refuse_layout(base::format("word_bits = {}, but packets have {} in GF(2^{})", word_bits, is_gf16 ? "16" : "4 or 8",
                               is_gf16 ? 16 : 8));
  constexpr std::uint64_t kUnit = BitMatrix::kPacketUnitBytes;
  const std::uint64_t most = Operator::kMostGranularityBytes / word_bits;
  if (options.packet_bytes == 0 || options.packet_bytes % kUnit != 0 || options.packet_bytes > most)
    refuse_layout(base::format("packet_bytes = {}, but with word_bits = {} it must be a multiple of {} from {} to {}",
                               options.packet_bytes, word_bits, kUnit, kUnit, most));
  const char *name = "";
  if (const Preset *preset = find_preset(options.matrix); preset != nullptr) name = preset->name;
  for (const Preset16 &each : presets16())
    if (each.value == options.matrix) name = each.name;
  if (const LocalPreset *local = find_local_preset(options.matrix); local != nullptr) name = local->name;
  if (*name != '\0' && !has_packets(options.matrix))
    refuse_layout(
        base::format("matrix {} is not stored in packets: jerasure-cauchy-orig, jerasure-cauchy-good and "
                     "custom matrices can be",
                     name));
  const std::uint64_t cells = std::uint64_t{options.k} * options.m * word_bits * word_bits;
  if (cells > BitMatrix::kMostCells)
    base::fail(TANDEM_ERROR_TOO_LARGE,
               base::format("codec options: k = {}, m = {} and word_bits = {} are a matrix of {} bits, packets have at "
                            "most {}",
                            options.k, options.m, word_bits, cells, BitMatrix::kMostCells));
  return PacketLayout{word_bits, options.packet_bytes};
}

// Numbers of GF(2^4) become elements of GF(2^8).
void take_subfield(Matrix &matrix) {
  for (unsigned r = 0; r < matrix.rows(); ++r) {
    for (unsigned c = 0; c < matrix.columns(); ++c) {
      if (matrix.at(r, c) >= gf::kSubfield4.element.size())
        refuse_layout(
            base::format("coefficient {} of parity row {}, column {} is not in GF(2^4), which word_bits = 4 asks "
                         "for",
                         matrix.at(r, c), r, c));
      matrix.at(r, c) = gf::kSubfield4.element[matrix.at(r, c)];
    }
  }
}

void check_local_groups(const LocalPreset &preset, const tandem_codec_options &options) {
  if (options.local_groups == 0 || options.local_groups > std::min(options.k, options.m)) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("codec options: local_groups is {}, matrix {} with k = {}, m = {} has 1 to {}",
                            options.local_groups, preset.name, options.k, options.m, std::min(options.k, options.m)));
  }
  if (options.coefficients != nullptr) {
    base::fail(
        TANDEM_ERROR_INVALID_ARGUMENT,
        base::format("codec options: coefficients are for a custom matrix, with {} they must be NULL", preset.name));
  }
}

Matrix custom_matrix(const tandem_codec_options &options) {
  Matrix matrix(options.m, options.k);
  if (options.m == 0) return matrix;
  if (options.coefficients == nullptr) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("codec options: a custom matrix needs coefficients ({} x {} bytes), got NULL", options.m,
                            options.k));
  }
  std::memcpy(matrix.row(0).data(), options.coefficients, std::size_t{options.m} * options.k);
  return matrix;
}

[[noreturn]] void refuse_preset(const Preset &preset, unsigned k, unsigned m) {
  base::fail(
      TANDEM_ERROR_NOT_MDS,
      base::format(
          "matrix {} with k = {}, m = {} cannot recover from every loss of {} (it can for {}): use isal-cauchy, or "
          "set allow_non_mds to read what exists",
          preset.name, k, m, count_of(m, "shard"), preset.mds_limit));
}

[[noreturn]] void refuse_custom(MdsProof proof, unsigned k, unsigned m) {
  const char *reason = proof == MdsProof::refuted ? "cannot recover from every loss of"
                                                  : "has too many minors to check that it recovers from every loss of";
  base::fail(TANDEM_ERROR_NOT_MDS,
             base::format("the custom matrix with k = {}, m = {} {} {}: set allow_non_mds to use it", k, m, reason,
                          count_of(m, "shard")));
}

// The indices in the set.
Indices indices_of(const ShardSet &set, unsigned begin, unsigned end) {
  Indices indices;
  indices.reserve(end - begin);
  for (unsigned i = begin; i < end; ++i) {
    if (set[i]) indices.push_back(static_cast<std::uint16_t>(i));
  }
  return indices;
}

// Drops inputs that no output needs. A code that is not MDS may need fewer.
void drop_unused_inputs(Matrix &all, Indices &inputs) {
  Indices used;
  for (unsigned c = 0; c < all.columns(); ++c) {
    for (unsigned r = 0; r < all.rows(); ++r) {
      if (all.at(r, c) != 0) {
        used.push_back(static_cast<std::uint16_t>(c));
        break;
      }
    }
  }
  if (used.size() == all.columns()) return;
  Matrix kept(all.rows(), static_cast<unsigned>(used.size()));
  for (unsigned r = 0; r < kept.rows(); ++r) {
    for (unsigned c = 0; c < kept.columns(); ++c) kept.at(r, c) = all.at(r, used[c]);
  }
  for (std::uint16_t &c : used) c = inputs[c];
  all = std::move(kept);
  inputs = std::move(used);
}

// Logarithm of the XOR of two points of a CauchyForm. That of a point with itself and with infinity is 0, so that both
// drop out of a product. In a table of bytes the whole set-up of a decode stays in the L1 cache.
constexpr std::array<std::uint8_t, 512> make_difference_logs() {
  std::array<std::uint8_t, 512> logs{};
  for (unsigned i = 1; i < 256; ++i) logs[i] = gf::kTables.log[i];
  return logs;
}

// 2^i for sums of three logarithms.
constexpr std::array<std::uint8_t, 3 * 255> make_long_exp() {
  std::array<std::uint8_t, 3 * 255> exp{};
  for (unsigned i = 0; i < exp.size(); ++i) exp[i] = gf::kTables.exp[i % 255];
  return exp;
}

constexpr auto kDifferenceLogs = make_difference_logs();
constexpr auto kLongExp = make_long_exp();

}  // namespace

// The latest patterns. A new one replaces the least recently used one. A scan of 64 hashes costs less than one small
// allocation.
class Codec::DecodeCache {
 public:
  static std::size_t hash_of(const ShardSet &present, const ShardSet &wanted) {
    return present.hash() * 31 + wanted.hash();
  }

  // insert_count_out: of all patterns so far, for insert.
  std::shared_ptr<const Application> find(const ShardSet &present, const ShardSet &wanted, std::size_t hash,
                                          std::uint64_t *insert_count_out) {
    State &state = state_.get();
    const std::lock_guard lock(state.mutex);
    *insert_count_out = state.insert_count;
    Entry *entry = state.find(present, wanted, hash);
    if (entry == nullptr) return nullptr;
    state.use(entry);
    return entry->application;
  }

  // Keeps `application`, or returns the one that another thread inserted after `find` had read `insert_count`.
  std::shared_ptr<const Application> insert(const ShardSet &present, const ShardSet &wanted, std::size_t hash,
                                            std::uint64_t insert_count,
                                            std::shared_ptr<const Application> application) {
    std::shared_ptr<const Application> evicted;  // freed after the lock
    State &state = state_.get();
    const std::lock_guard lock(state.mutex);
    if (state.insert_count != insert_count)
      if (Entry *entry = state.find(present, wanted, hash)) return entry->application;
    Entry &oldest = state.entries[state.latest_first.back()];
    ShardSet own_present = present, own_wanted = wanted;  // may throw: before the entry changes
    evicted = std::exchange(oldest.application, application);
    oldest.present = std::move(own_present);
    oldest.wanted = std::move(own_wanted);
    state.bytes -= std::exchange(oldest.bytes, application->what.memory_bytes());
    state.bytes += oldest.bytes;
    state.hashes[state.latest_first.back()] = hash;
    state.use(&oldest);
    ++state.insert_count;
    state.fit();
    return application;
  }

 private:
  struct Entry {
    ShardSet present, wanted;
    std::shared_ptr<const Application> application;
    std::size_t bytes = 0;
  };

  struct State {
    std::mutex mutex;
    std::uint64_t insert_count = 0;
    std::size_t bytes = 0;  // of all entries
    std::array<Entry, kCachedPatterns> entries;
    std::array<std::size_t, kCachedPatterns> hashes{};       // of the entries, side by side for the search
    std::array<std::uint8_t, kCachedPatterns> latest_first;  // places of entries

    State() { std::iota(latest_first.begin(), latest_first.end(), std::uint8_t{0}); }

    void use(const Entry *entry) {
      const auto place = static_cast<std::uint8_t>(entry - entries.data());
      const auto *at = static_cast<std::uint8_t *>(std::memchr(latest_first.data(), place, latest_first.size()));
      std::memmove(&latest_first[1], &latest_first[0], static_cast<std::size_t>(at - latest_first.data()));
      latest_first.front() = place;
    }

    // Drops the entries that were used least recently, but never the latest one.
    void fit() {
      for (std::size_t i = kCachedPatterns; bytes > kCachedBytes && --i != 0;) {
        Entry &entry = entries[latest_first[i]];
        entry.application = nullptr;
        bytes -= std::exchange(entry.bytes, 0);
      }
    }

    Entry *find(const ShardSet &present, const ShardSet &wanted, std::size_t hash) {
      for (std::size_t i = 0; i < kCachedPatterns; ++i) {
        if (hashes[i] != hash) continue;
        Entry &entry = entries[i];
        if (entry.application != nullptr && entry.present == present && entry.wanted == wanted) return &entry;
      }
      return nullptr;
    }
  };

  base::ForkLocal<State> state_;
};

Codec::Codec(const tandem_codec_options &given) {
  const tandem_codec_options options = base::read_options(&given, "tandem_codec_options");
  check_shape(options);
  const bool allow_non_mds = options.allow_non_mds != 0;
  k_ = options.k;
  m_ = options.m;
  packets_ = packet_layout(options);
  const bool is_subfield = packets_ && packets_->word_bits == 4;
  if (options.local_groups != 0 && find_local_preset(options.matrix) == nullptr) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("codec options: local_groups is {}, but matrix {} has no local groups",
                            options.local_groups, options.matrix));
  }

  if (options.field == TANDEM_FIELD_GF16) {
    codec16_ = std::make_unique<const Codec16>(options);
    is_mds_ = codec16_->is_mds();
  } else if (const LocalPreset *local = find_local_preset(options.matrix)) {
    check_local_groups(*local, options);
    groups_ = {k_, options.local_groups, m_ - options.local_groups, local->are_globals_first};
    name_ = local->name;
    parity_ = local->make(*groups_);
    is_mds_ = false;
  } else if (options.matrix == TANDEM_MATRIX_CUSTOM) {
    parity_ = custom_matrix(options);
    if (is_subfield) take_subfield(parity_);
    cauchy_ = find_cauchy_form(parity_);
    is_mds_ = cauchy_.has_value();
    if (!is_mds_ && !allow_non_mds) {  // allow_non_mds makes the proof unnecessary
      const MdsProof proof = prove_mds(parity_);
      if (proof != MdsProof::proven) refuse_custom(proof, options.k, options.m);
      is_mds_ = true;
    }
  } else {
    const Preset *preset = find_preset(options.matrix);
    if (preset == nullptr) {
      for (const Preset16 &each : presets16())
        if (each.value == options.matrix)
          base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                     base::format("codec options: matrix {} is over GF(2^16): field must be {} (TANDEM_FIELD_GF16)",
                                  each.name, int{TANDEM_FIELD_GF16}));
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::format("codec options: unknown matrix {}", options.matrix));
    }
    if (options.coefficients != nullptr) {
      base::fail(
          TANDEM_ERROR_INVALID_ARGUMENT,
          base::format("codec options: coefficients are for a custom matrix, with {} they must be NULL", preset->name));
    }
    parity_ = is_subfield ? make_jerasure4(options.matrix, options.k, options.m) : preset->make(options.k, options.m);
    if (preset->points != nullptr && options.m != 0 && !packets_) {
      std::vector<std::uint16_t> points = preset->points(options.k, options.m);
      has_runs_ = !points.empty();
      if (has_runs_) cauchy_ = cauchy_form_at(parity_, std::move(points));
    }
    if (!has_runs_) cauchy_ = find_cauchy_form(parity_);
    name_ = preset->name;
    is_mds_ = preset->is_mds(options.k, options.m);
    if (!is_mds_ && !allow_non_mds) refuse_preset(*preset, options.k, options.m);
  }

  static std::atomic<std::uint64_t> next_id{1};
  id_ = next_id.fetch_add(1, std::memory_order_relaxed);
  cache_ = std::make_unique<DecodeCache>();
}

Codec::~Codec() = default;

bool Codec::is_cauchy() const noexcept { return codec16_ != nullptr ? codec16_->is_cauchy() : cauchy_.has_value(); }

void Codec::check_wanted_parity(const ShardSet &wanted) const {
  for (std::size_t i = 0; i < wanted.end(); ++i) {
    if (wanted[i] && (i < k_ || i >= shard_count())) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
                 base::format("shard {} is wanted, but it is not one of the {} after data shard {}", i,
                              count_of(m(), "parity shard"), k_ - 1));
    }
  }
}

Application Codec::encode(const ShardSet &wanted) const {
  check_wanted_parity(wanted);
  Application application;
  application.outputs = indices_of(wanted, k_, shard_count());
  application.inputs.resize(k_);
  for (unsigned c = 0; c < k_; ++c) application.inputs[c] = static_cast<std::uint16_t>(c);
  if (codec16_ != nullptr) {
    application.what = codec16_->encode(application.outputs);
    return application;
  }
  if (has_runs_ && is_wide(k_, application.outputs.size())) {
    application.what = Operator(encode_transform(*cauchy_, application.inputs, application.outputs));
    return application;
  }
  Matrix rows(static_cast<unsigned>(application.outputs.size()), k_);
  for (unsigned i = 0; i < rows.rows(); ++i)
    std::ranges::copy(parity_.row(application.outputs[i] - k_), rows.row(i).begin());
  application.what = operator_of(std::move(rows));
  return application;
}

// Bit l of element * 2^i is the bit of row l and column i.
Operator Codec::operator_of(Matrix coefficients) const {
  if (!packets_) return Operator(std::move(coefficients));
  const unsigned bits = packets_->word_bits;
  const auto number = [&](std::uint8_t element) { return bits == 4 ? gf::kSubfield4.number[element] : element; };
  Matrix expanded(bits * coefficients.rows(), bits * coefficients.columns());
  for (unsigned r = 0; r < coefficients.rows(); ++r) {
    for (unsigned c = 0; c < coefficients.columns(); ++c) {
      for (unsigned i = 0; i < bits; ++i) {
        const std::uint8_t two_to_i = bits == 4 ? gf::kSubfield4.element[1u << i] : static_cast<std::uint8_t>(1u << i);
        const unsigned column = number(gf::multiply(coefficients.at(r, c), two_to_i));
        for (unsigned l = 0; l < bits; ++l) expanded.at(r * bits + l, c * bits + i) = column >> l & 1;
      }
    }
  }
  return Operator(BitMatrix{bits, packets_->packet_bytes, std::make_shared<const Matrix>(std::move(expanded))});
}

Application Codec::column(unsigned index, const ShardSet &wanted) const {
  if (index >= k_) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::format("data shard {} does not exist, there are {}", index, k_));
  }
  check_wanted_parity(wanted);
  Application application;
  application.outputs = indices_of(wanted, k_, shard_count());
  application.inputs = {static_cast<std::uint16_t>(index)};
  if (codec16_ != nullptr) {
    application.what = codec16_->column(index, application.outputs);
    return application;
  }
  Matrix cells(static_cast<unsigned>(application.outputs.size()), 1);
  for (unsigned i = 0; i < cells.rows(); ++i) cells.at(i, 0) = parity_.at(application.outputs[i] - k_, index);
  application.what = operator_of(std::move(cells));
  return application;
}

std::shared_ptr<const Application> Codec::decode(const ShardSet &present, const ShardSet &wanted) const {
  const std::size_t hash = DecodeCache::hash_of(present, wanted);
  std::uint64_t insert_count = 0;
  if (auto known = cache_->find(present, wanted, hash, &insert_count)) return known;
  return cache_->insert(present, wanted, hash, insert_count, solve(present, wanted));
}

std::shared_ptr<const Application> Codec::solve(const ShardSet &present, const ShardSet &wanted,
                                                std::span<const std::uint32_t> costs) const {
  const unsigned n = shard_count();
  if (present.end() > n || wanted.end() > n) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("a shard from {} up is present or wanted, there are {}", n, n));
  }
  auto application = std::make_shared<Application>();
  Indices &outputs = application->outputs = indices_of(wanted, 0, n);
  if (std::ranges::any_of(outputs, [&](std::uint16_t shard) { return present[shard]; })) {
    std::erase_if(outputs, [&](std::uint16_t shard) { return !present[shard]; });
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::format("shards {} are both present and wanted", list_of(outputs)));
  }
  if (outputs.empty()) return application;
  if (codec16_ != nullptr) {
    if (!costs.empty())
      base::fail(TANDEM_ERROR_UNSUPPORTED, "read_costs: a code over GF(2^16) always reads the present data shards");
    codec16_->decode(present, *application);
    return application;
  }
  if (groups_ || !costs.empty()) {
    solve_cheapest(present, costs, *application);
    return application;
  }

  Indices &inputs = application->inputs;
  Indices lost_data, parity;
  inputs.reserve(k_);
  lost_data.reserve(m());
  parity.reserve(m());
  for (unsigned i = 0; i < k_; ++i) (present[i] ? inputs : lost_data).push_back(static_cast<std::uint16_t>(i));
  for (unsigned i = k_; i < n && (!is_mds_ || parity.size() < lost_data.size()); ++i)
    if (present[i]) parity.push_back(static_cast<std::uint16_t>(i));
  if (is_mds_ && parity.size() < lost_data.size()) {
    base::fail(TANDEM_ERROR_NOT_RECOVERABLE,
               base::format("{} of {} data shards missing, only {} present", lost_data.size(), k_,
                            count_of(parity.size(), "parity shard")));
  }

  if (has_runs_ && is_wide(k_, outputs.size()) && points_ascend(*cauchy_, outputs)) {
    if (lost_data.empty()) {
      application->what = Operator(encode_transform(*cauchy_, inputs, outputs));
    } else {
      application->what = Operator(syndrome_decode(*cauchy_, k_, lost_data, parity, inputs, outputs));
      inputs.insert(inputs.end(), parity.begin(), parity.end());
    }
  } else if (cauchy_ && lost_data.size() > 1) {  // for one shard the general way is cheaper: a division
    inputs.insert(inputs.end(), parity.begin(), parity.end());
    interpolate(std::move(lost_data), std::move(parity), *application);
  } else {
    eliminate(lost_data, std::move(parity), *application);
  }
  return application;
}

// Closed form. The k inputs determine a polynomial, and an output is its value at the output's point: Lagrange's
// formula. For the k data shards it is the CauchyForm of the parity rows. Now replace the lost data shards by as many
// parity shards. The scale of each shard is multiplied by the product of (its point - a new point), and divided by the
// product of (its point - a lost point). The form stays the same:
//     coefficient[output][input] = scale[output] / scale[input] / (point[output] + point[input]).
// Lost parity comes out the same way as lost data. All of it in logarithms. `lost`: data shards; `parity`: as many.
void Codec::interpolate(Indices lost, Indices parity, Application &application) const {
  const std::size_t lost_count = lost.size();
  const std::size_t input_count = application.inputs.size();
  for (Indices *each : {&lost, &parity})
    for (std::uint16_t &shard : *each) shard = cauchy_->points[shard];  // from here on the points
  const auto log_of_scale = [&](unsigned shard) {
    const unsigned point = cauchy_->points[shard];
    int log = gf::kTables.log[cauchy_->scales[shard]];
    for (std::size_t i = 0; i < lost_count; ++i) {
      log += kDifferenceLogs[point ^ parity[i]] - kDifferenceLogs[point ^ lost[i]];
    }
    log %= 255;
    return static_cast<unsigned>(log < 0 ? log + 255 : log);
  };

  Matrix coefficients(static_cast<unsigned>(application.outputs.size()), static_cast<unsigned>(input_count));
  // The last row holds what all rows need, until it is written itself.
  std::uint8_t *const logs_of_inverse_scales = coefficients.row(coefficients.rows() - 1).data();
  for (std::size_t c = 0; c < input_count; ++c)
    logs_of_inverse_scales[c] = static_cast<std::uint8_t>(255 - log_of_scale(application.inputs[c]));
  for (unsigned r = 0; r < application.outputs.size(); ++r) {
    const unsigned shard = application.outputs[r];
    const unsigned point = cauchy_->points[shard];
    const unsigned log = log_of_scale(shard) + 255;
    std::uint8_t *row = coefficients.row(r).data();
    for (std::size_t c = 0; c < input_count; ++c) {
      const unsigned input_point = cauchy_->points[application.inputs[c]];
      row[c] = kLongExp[log + logs_of_inverse_scales[c] - kDifferenceLogs[point ^ input_point]];
    }
  }
  multiply_add_count() +=
      2 * lost_count * (input_count + application.outputs.size()) + input_count * application.outputs.size();
  application.what = operator_of(std::move(coefficients));
}

// The general way. Each parity shard gives an equation for the lost data, parity = A * lost + B * present data; only A,
// as wide as the number of lost data shards, is reduced, recording which combination of parity shards each reduced row
// is. One that depends on those before it is left out; this finds an invertible set of parity shards if there is one.
// Where there is none, what is wanted may still be determined.
void Codec::eliminate(const Indices &lost_data, Indices present_parity, Application &application) const {
  const unsigned lost_count = static_cast<unsigned>(lost_data.size());
  const unsigned data_input_count = static_cast<unsigned>(application.inputs.size());
  const unsigned output_count = static_cast<unsigned>(application.outputs.size());

  if (!is_mds_) {  // a sparse row may spare reading shards
    const auto weight = [&](std::uint16_t shard) { return k_ - std::ranges::count(parity_.row(shard - k_), 0); };
    std::ranges::stable_sort(present_parity, {}, weight);
  }

  // Row i: [reduced equation i | its combination of the chosen parity shards]; pivots[i] is its pivot column.
  Matrix reduced(lost_count, 2 * lost_count);
  Indices chosen, pivots;
  chosen.reserve(lost_count);
  pivots.reserve(lost_count);
  for (const std::uint16_t shard : present_parity) {
    const unsigned rank = static_cast<unsigned>(chosen.size());
    if (rank == lost_count) break;
    const unsigned columns = lost_count + rank + 1;  // beyond these all is zero
    const auto row = reduced.row(rank).first(columns);
    std::ranges::fill(row, 0);
    for (unsigned c = 0; c < lost_count; ++c) row[c] = parity_.at(shard - k_, lost_data[c]);
    row[lost_count + rank] = 1;
    for (unsigned i = 0; i < rank; ++i) multiply_add(row, row[pivots[i]], reduced.row(i).first(columns));
    const auto pivot = std::ranges::find_if(row.first(lost_count), [](std::uint8_t cell) { return cell != 0; });
    const auto column = static_cast<std::uint16_t>(pivot - row.begin());
    if (column == lost_count) continue;
    scale(row, gf::inverse(row[column]));
    for (unsigned i = 0; i < rank; ++i) {
      const auto other = reduced.row(i).first(columns);
      multiply_add(other, other[column], row);
    }
    pivots.push_back(column);
    chosen.push_back(shard);
  }
  const unsigned rank = static_cast<unsigned>(chosen.size());

  // Each wanted row is a combination of reduced equations, hence of the chosen parity shards.
  Matrix combinations(output_count, rank);
  Indices undetermined;
  std::vector<std::uint8_t> target(2 * lost_count);  // as a row of `reduced`; must become zero on the left
  for (unsigned r = 0; r < output_count; ++r) {
    const unsigned shard = application.outputs[r];
    std::ranges::fill(target, 0);
    for (unsigned c = 0; c < lost_count; ++c) {
      target[c] = shard < k_ ? lost_data[c] == shard : parity_.at(shard - k_, lost_data[c]);
    }
    for (unsigned i = 0; i < rank; ++i) {
      if (target[pivots[i]] != 0) multiply_add(target, target[pivots[i]], reduced.row(i));
    }
    const std::span<const std::uint8_t> rest(target.data(), lost_count);
    if (std::ranges::count(rest, 0) != lost_count) undetermined.push_back(static_cast<std::uint16_t>(shard));
    for (unsigned i = 0; i < rank; ++i) combinations.at(r, i) = target[lost_count + i];
  }
  if (!undetermined.empty()) {
    if (present_parity.size() < lost_count) {
      base::fail(TANDEM_ERROR_NOT_RECOVERABLE, base::format("{} of {} data shards missing, only {} present", lost_count,
                                                            k_, count_of(present_parity.size(), "parity shard")));
    }
    Indices missing_parity;
    for (unsigned i = k_; i < shard_count(); ++i) {
      if (std::ranges::find(present_parity, i) == present_parity.end()) {
        missing_parity.push_back(static_cast<std::uint16_t>(i));
      }
    }
    base::fail(
        TANDEM_ERROR_NOT_RECOVERABLE,
        base::format(
            "this matrix is not MDS and cannot rebuild shards {}: with data shards {} and parity shards {} missing, "
            "the {} parity shards left have rank {}, {} needed",
            list_of(undetermined), list_of(lost_data), missing_parity.empty() ? "none" : list_of(missing_parity),
            present_parity.size(), rank, lost_count));
  }

  // Put in the chosen parity shards: known data cancels out of them, and counts where a wanted parity is made of it.
  Indices order = std::move(pivots);  // of the chosen, by shard; the pivots are no longer needed
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  std::ranges::sort(order, {}, [&](std::uint16_t i) { return chosen[i]; });
  Matrix present_cells(rank, data_input_count);
  for (unsigned i = 0; i < rank; ++i) {
    for (unsigned c = 0; c < data_input_count; ++c) {
      present_cells.at(i, c) = parity_.at(chosen[i] - k_, application.inputs[c]);
    }
  }
  Matrix coefficients(output_count, data_input_count + rank);
  for (unsigned r = 0; r < output_count; ++r) {
    const unsigned shard = application.outputs[r];
    const auto data_part = coefficients.row(r).first(data_input_count);
    if (shard >= k_) {
      for (unsigned c = 0; c < data_input_count; ++c) data_part[c] = parity_.at(shard - k_, application.inputs[c]);
    }
    for (unsigned i = 0; i < rank; ++i) multiply_add(data_part, combinations.at(r, i), present_cells.row(i));
    for (unsigned i = 0; i < rank; ++i) coefficients.at(r, data_input_count + i) = combinations.at(r, order[i]);
  }
  for (unsigned i = 0; i < rank; ++i) application.inputs.push_back(chosen[order[i]]);
  if (!is_mds_) drop_unused_inputs(coefficients, application.inputs);
  application.what = operator_of(std::move(coefficients));
}

namespace {

// Shards as rows of the generator matrix, reduced: each row has a pivot, where the rows before it are not looked at and
// those after it are 0.
class Rows {
 public:
  Rows(const Matrix &parity, unsigned k) : parity_(parity), k_(k), reduced_(k, 2 * k) {}

  unsigned rank() const noexcept { return static_cast<unsigned>(pivots_.size()); }
  // Which shards are the columns of combination().
  const Indices &chosen() const noexcept { return chosen_; }

  // Whether the shard does not depend on those taken before.
  bool take(std::uint16_t shard) {
    if (rank() == k_) return false;
    const auto row = reduced_.row(rank());
    load(shard, row);
    row[k_ + rank()] = 1;
    reduce(row);
    const auto pivot = std::ranges::find_if(row.first(k_), [](std::uint8_t cell) { return cell != 0; });
    if (pivot == row.begin() + k_) {
      std::ranges::fill(row, 0);
      return false;
    }
    scale(row, gf::inverse(*pivot));
    pivots_.push_back(static_cast<std::uint16_t>(pivot - row.begin()));
    chosen_.push_back(shard);
    return true;
  }

  // The shard made of the chosen ones: their coefficients, in `row` from k on. False: they do not determine it.
  bool combine(std::uint16_t shard, std::span<std::uint8_t> row) const {
    load(shard, row);
    reduce(row);
    return std::ranges::count(row.first(k_), 0) == k_;
  }

 private:
  void load(std::uint16_t shard, std::span<std::uint8_t> row) const {
    std::ranges::fill(row, 0);
    if (shard < k_) {
      row[shard] = 1;
    } else {
      std::ranges::copy(parity_.row(shard - k_), row.begin());
    }
  }
  void reduce(std::span<std::uint8_t> row) const {
    for (unsigned i = 0; i < rank(); ++i)
      if (const std::uint8_t factor = row[pivots_[i]]) multiply_add(row, factor, reduced_.row(i));
  }

  const Matrix &parity_;
  const unsigned k_;
  Matrix reduced_;  // [row | its combination of the chosen]
  Indices chosen_, pivots_;
};

}  // namespace

std::vector<std::uint16_t> Codec::independent(std::span<const std::uint16_t> shards) const {
  Rows rows(parity_, k_);
  for (const std::uint16_t shard : shards) rows.take(shard);
  return rows.chosen();
}

// Fills inputs and what, if these shards determine the outputs: of shards in order of cost the cheapest that are
// independent.
bool Codec::express(std::span<const std::uint16_t> shards, Application &application) const {
  Rows rows(parity_, k_);
  for (const std::uint16_t shard : shards) rows.take(shard);
  Indices order(rows.rank());
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  std::ranges::sort(order, {}, [&](std::uint16_t i) { return rows.chosen()[i]; });

  Matrix coefficients(static_cast<unsigned>(application.outputs.size()), rows.rank());
  std::vector<std::uint8_t> row(2 * k_);
  for (unsigned r = 0; r < coefficients.rows(); ++r) {
    if (!rows.combine(application.outputs[r], row)) return false;
    for (unsigned i = 0; i < rows.rank(); ++i) coefficients.at(r, i) = row[k_ + order[i]];
  }
  application.inputs.clear();
  for (const std::uint16_t i : order) application.inputs.push_back(rows.chosen()[i]);
  drop_unused_inputs(coefficients, application.inputs);
  application.what = operator_of(std::move(coefficients));
  return true;
}

// Take a set that suffices and has no shard too many. It lies in a part of the code in which every shard depends on the
// others. In a code with local groups such a part is a group or the whole code, if coefficients have no accidental
// dependencies. In each such part the greedy choice is the cheapest (it is a matroid). So this tries the groups of the
// wanted shards, and else k shards in order of cost. For other codes that are not MDS it also tries the usual
// elimination.
void Codec::solve_cheapest(const ShardSet &present, std::span<const std::uint32_t> costs,
                           Application &application) const {
  const auto cost_of = [&](std::uint16_t shard) { return costs.empty() ? 1 : costs[shard]; };
  const auto total = [&](const Application &of) {
    std::uint64_t sum = 0;
    for (const std::uint16_t shard : of.inputs) sum += cost_of(shard);
    return sum;
  };
  Indices all = indices_of(present, 0, shard_count());
  std::ranges::stable_sort(all, {}, cost_of);
  const Indices &outputs = application.outputs;

  Application best;
  best.outputs = outputs;
  bool is_found = express(all, best);
  const auto consider = [&](Application &&other) {
    if (is_found && total(other) >= total(best)) return;
    best = std::move(other);
    is_found = true;
  };
  if (groups_ && std::ranges::none_of(outputs, [&](std::uint16_t shard) { return groups_->is_global(shard); })) {
    std::vector<bool> is_wanted(groups_->group_count);
    for (const std::uint16_t shard : outputs) is_wanted[groups_->group_of(shard)] = true;
    std::erase_if(
        all, [&](std::uint16_t shard) { return groups_->is_global(shard) || !is_wanted[groups_->group_of(shard)]; });
    Application local;
    local.outputs = outputs;
    if (express(all, local)) consider(std::move(local));
  } else if (!groups_ && !is_mds_) {
    Application usual;
    usual.inputs = indices_of(present, 0, k_);
    usual.outputs = outputs;
    Indices lost_data;
    for (unsigned i = 0; i < k_; ++i)
      if (!present[i]) lost_data.push_back(static_cast<std::uint16_t>(i));
    eliminate(lost_data, indices_of(present, k_, shard_count()), usual);  // says why if it cannot
    consider(std::move(usual));
  }
  if (!is_found) {
    if (groups_) fail_groups(present);
    const auto parity_count = indices_of(present, k_, shard_count()).size();
    base::fail(TANDEM_ERROR_NOT_RECOVERABLE,
               base::format("{} of {} data shards missing, only {} present", k_ - (all.size() - parity_count), k_,
                            count_of(parity_count, "parity shard")));
  }
  application = std::move(best);
}

void Codec::fail_groups(const ShardSet &present) const {
  const auto lost_of = [&](unsigned begin, unsigned end) {
    return end - begin - indices_of(present, begin, end).size();
  };
  const unsigned first_global = groups_->global_parity(0), all_globals = groups_->global_count;
  const std::size_t globals = all_globals - lost_of(first_global, first_global + all_globals);
  std::size_t beyond = 0;
  std::string list;
  unsigned named = 0, unnamed = 0;
  for (unsigned group = 0; group < groups_->group_count; ++group) {
    const unsigned begin = groups_->begin(group), end = groups_->end(group), parity = groups_->local_parity(group);
    const std::size_t lost = lost_of(begin, end) + (present[parity] ? 0 : 1);
    if (lost < 2) continue;
    beyond += lost - 1;
    if (++named > 3) {
      ++unnamed;
      continue;
    }
    list += base::format("{}group {} (data shards {} to {}, parity shard {}) misses {} of {}", list.empty() ? "" : ", ",
                         group, begin, end - 1, parity, lost, end - begin + 1);
  }
  if (unnamed != 0) list += base::format(" and {} more", count_of(unnamed, "group"));
  if (list.empty()) list = "no group misses two shards";
  base::fail(TANDEM_ERROR_NOT_RECOVERABLE,
             base::format("matrix {}: {}; beyond one for each group that is {}, and {} of {} present{}", name_, list,
                          beyond, globals, count_of(all_globals, "global parity shard"),
                          beyond > globals ? "" : ": enough for most such losses, but not for this one"));
}

std::uint32_t Codec::locate(std::span<const Element> syndrome) const {
  unsigned first = 0;
  while (first < m() && syndrome[first] == 0) ++first;
  if (first == m()) return TANDEM_SHARD_NONE;

  std::uint32_t found = TANDEM_SHARD_NONE;
  if (std::ranges::count(syndrome, 0) + 1 == m()) found = k_ + first;
  for (unsigned c = 0; c < k_; ++c) {
    if (parity_.at(first, c) == 0) continue;
    const std::uint8_t damage = gf::divide(static_cast<std::uint8_t>(syndrome[first]), parity_.at(first, c));
    unsigned r = 0;
    while (r < m() && gf::multiply(damage, parity_.at(r, c)) == syndrome[r]) ++r;
    if (r < m()) continue;
    if (found != TANDEM_SHARD_NONE) return TANDEM_SHARD_NONE;
    found = c;
  }
  return found;
}

}  // namespace tandem::core
