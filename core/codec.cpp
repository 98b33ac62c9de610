// SPDX-License-Identifier: Apache-2.0
#include "core/codec.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/options.hpp"
#include "base/text.hpp"
#include "core/codec16.hpp"
#include "core/codec8.hpp"
#include "core/presets.hpp"

namespace tandem::core {
namespace {

void check_shape(const tandem_codec_options &options) {
  if (options.k == 0)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: k = 0, at least 1 data shard is needed");
  if (options.field != TANDEM_FIELD_GF8 && options.field != TANDEM_FIELD_GF16) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: unknown field ", options.field, ", known are ",
               int{TANDEM_FIELD_GF8}, " (GF(2^8)) and ", int{TANDEM_FIELD_GF16}, " (GF(2^16))");
  }
  const bool is_gf16 = options.field == TANDEM_FIELD_GF16;
  const unsigned limit = is_gf16 ? kMaxShards16 : kMaxShards;
  if (options.k > limit || options.m > limit - options.k) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: k = ", options.k, ", m = ", options.m,
               ", but k + m must be at most ", limit, " in GF(2^", is_gf16 ? 16 : 8, ")");
  }
}

[[noreturn]] void refuse_layout(const std::string &why) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: " + why);
}

// Nothing: each element in bytes of its own.
std::optional<PacketLayout> packet_layout(const tandem_codec_options &options) {
  if (options.layout == TANDEM_LAYOUT_BYTES) {
    if (options.word_bits != 0 || options.packet_bytes != 0)
      refuse_layout(base::text("word_bits = ", options.word_bits, " and packet_bytes = ", options.packet_bytes,
                               " are for layout ", int{TANDEM_LAYOUT_PACKETS}, " (packets), but layout is ",
                               options.layout));
    return std::nullopt;
  }
  if (options.layout != TANDEM_LAYOUT_PACKETS)
    refuse_layout(base::text("unknown layout ", options.layout, ", known are ", int{TANDEM_LAYOUT_BYTES},
                             " (bytes) and ", int{TANDEM_LAYOUT_PACKETS}, " (packets)"));
  const bool is_gf16 = options.field == TANDEM_FIELD_GF16;
  const unsigned word_bits = options.word_bits != 0 ? options.word_bits : is_gf16 ? 16 : 8;
  if (is_gf16 ? word_bits != 16 : word_bits != 4 && word_bits != 8)
    refuse_layout(base::text("word_bits = ", word_bits, ", but packets have ", is_gf16 ? "16" : "4 or 8", " in GF(2^",
                             is_gf16 ? 16 : 8, ")"));
  constexpr std::uint64_t kUnit = BitMatrix::kPacketUnitBytes;
  const std::uint64_t most = Operator::kMostGranularityBytes / word_bits;
  if (options.packet_bytes == 0 || options.packet_bytes % kUnit != 0 || options.packet_bytes > most)
    refuse_layout(base::text("packet_bytes = ", options.packet_bytes, ", but with word_bits = ", word_bits,
                             " it must be a multiple of ", kUnit, " from ", kUnit, " to ", most));
  const Preset *const preset = find_preset(options.matrix);
  if (preset != nullptr && !has_packets(options.matrix))
    refuse_layout(
        base::text("matrix ", preset->name,
                   " is not stored in packets: jerasure-cauchy-orig, jerasure-cauchy-good and custom matrices can be"));
  const std::uint64_t cells = std::uint64_t{options.k} * options.m * word_bits * word_bits;
  if (cells > BitMatrix::kMostCells)
    base::fail(TANDEM_ERROR_TOO_LARGE, "codec options: k = ", options.k, ", m = ", options.m,
               " and word_bits = ", word_bits, " are a matrix of ", cells, " bits, packets have at most ",
               BitMatrix::kMostCells);
  return PacketLayout{word_bits, options.packet_bytes};
}

}  // namespace

void check_no_coefficients(const tandem_codec_options &options, const char *matrix) {
  if (options.coefficients == nullptr) return;
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: coefficients are for a custom matrix, with ", matrix,
             " they must be NULL");
}

void check_proof(MdsProof proof, unsigned k, unsigned m) {
  if (proof == MdsProof::proven) return;
  base::fail(TANDEM_ERROR_NOT_MDS, "the custom matrix with k = ", k, ", m = ", m,
             proof == MdsProof::refuted ? " cannot recover" : " has too many minors to check that it recovers",
             " from every loss of ", count_of(m, "shard"), ": set allow_non_mds to use it");
}

std::string count_of(std::size_t count, const char *what) {
  return base::text(count, " ", what, count == 1 ? "" : "s");
}

// "3, 7, 12"; a long list is cut, the message has 511 bytes.
std::string list_of(std::span<const std::uint16_t> indices) {
  constexpr std::size_t kShown = 16;
  const std::size_t shown = std::min(indices.size(), kShown);
  std::string text = base::join(std::span(indices).first(shown), ", ");
  if (indices.size() > shown) text += base::text(" and ", indices.size() - shown, " more");
  return text;
}

Indices indices_of(const ShardSet &set, unsigned begin, unsigned end, bool in) {
  Indices indices;
  indices.reserve(end - begin);
  for (unsigned i = begin; i < end; ++i)
    if (set[i] == in) indices.push_back(static_cast<std::uint16_t>(i));
  return indices;
}

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

std::shared_ptr<const Codec> make_codec(const tandem_codec_options &given) {
  tandem_codec_options options = base::read_options(&given, "tandem_codec_options");
  const Preset *const preset = find_preset(options.matrix);
  if (preset != nullptr && preset->is_gf16() && options.field == 0) options.field = TANDEM_FIELD_GF16;
  if (options.field == TANDEM_FIELD_GF16) return std::make_shared<const Codec16>(options);
  return std::make_shared<const Codec8>(options);
}

Codec::Codec(const tandem_codec_options &options)
    : k_(options.k), m_(options.m), field_(Field{options.field}), cache_(std::make_unique<DecodeCache>()) {
  check_shape(options);
  packets_ = packet_layout(options);
  const Preset *const preset = find_preset(options.matrix);
  if (options.local_groups != 0 && (preset == nullptr || preset->make_groups == nullptr)) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: local_groups is ", options.local_groups, ", but matrix ",
               options.matrix, " has no local groups");
  }
  if (options.first_exponent != 0 && options.matrix != TANDEM_MATRIX_PAR2) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "codec options: first_exponent is ", options.first_exponent,
               ", but matrix ", options.matrix, " has none");
  }
  static std::atomic<std::uint64_t> next_id{1};
  id_ = next_id.fetch_add(1, std::memory_order_relaxed);
}

Codec::~Codec() = default;

void Codec::check_wanted_parity(const ShardSet &wanted) const {
  for (std::size_t i = 0; i < wanted.end(); ++i) {
    if (wanted[i] && (i < k_ || i >= shard_count())) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shard ", i, " is wanted, but it is not one of the ",
                 count_of(m(), "parity shard"), " after data shard ", k_ - 1);
    }
  }
}

Application Codec::encode(const ShardSet &wanted) const {
  check_wanted_parity(wanted);
  Application application;
  application.outputs = indices_of(wanted, k_, shard_count());
  application.inputs.resize(k_);
  std::iota(application.inputs.begin(), application.inputs.end(), std::uint16_t{0});
  application.what = encode_of(application.outputs);
  return application;
}

Application Codec::column(unsigned index, const ShardSet &wanted) const {
  if (index >= k_) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "data shard ", index, " does not exist, there are ", k_);
  check_wanted_parity(wanted);
  Application application;
  application.outputs = indices_of(wanted, k_, shard_count());
  application.inputs = {static_cast<std::uint16_t>(index)};
  application.what = column_of(index, application.outputs);
  return application;
}

std::shared_ptr<const Application> Codec::decode(const ShardSet &present, const ShardSet &wanted,
                                                 const SetupWork &work) const {
  const std::size_t hash = DecodeCache::hash_of(present, wanted);
  std::uint64_t insert_count = 0;
  if (auto known = cache_->find(present, wanted, hash, &insert_count)) return known;
  return cache_->insert(present, wanted, hash, insert_count, solve(present, wanted, {}, work));
}

std::shared_ptr<const Application> Codec::solve(const ShardSet &present, const ShardSet &wanted,
                                                std::span<const std::uint32_t> costs, const SetupWork &work) const {
  const unsigned n = shard_count();
  if (present.end() > n || wanted.end() > n)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a shard from ", n, " up is present or wanted, there are ", n);
  auto application = std::make_shared<Application>();
  Indices &outputs = application->outputs = indices_of(wanted, 0, n);
  if (std::ranges::any_of(outputs, [&](std::uint16_t shard) { return present[shard]; })) {
    std::erase_if(outputs, [&](std::uint16_t shard) { return !present[shard]; });
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shards ", list_of(outputs), " are both present and wanted");
  }
  if (!outputs.empty()) solve_for(present, costs, work, *application);
  return application;
}

// Bit l of element * 2^i is the bit of row l and column i.
Operator Codec::packet_operator(unsigned rows, unsigned columns, const Products &products) const {
  const unsigned bits = packets_->word_bits;
  Matrix expanded(bits * rows, bits * columns);
  for (unsigned r = 0; r < rows; ++r) {
    for (unsigned c = 0; c < columns; ++c) {
      for (unsigned i = 0; i < bits; ++i) {
        const unsigned column = products(r, c, i);
        for (unsigned l = 0; l < bits; ++l) expanded.at(r * bits + l, c * bits + i) = column >> l & 1;
      }
    }
  }
  return Operator(BitMatrix{bits, packets_->packet_bytes, std::make_shared<const Matrix>(std::move(expanded))});
}

void Codec::fail_too_few(std::size_t lost_count, std::size_t parity_count) const {
  base::fail(TANDEM_ERROR_NOT_RECOVERABLE, lost_count, " of ", k_, " data shards missing, only ",
             count_of(parity_count, "parity shard"), " present");
}

void Codec::fail_undetermined(const ShardSet &present, const Indices &undetermined, unsigned rank) const {
  const Indices lost = indices_of(present, 0, k_, false), parity = indices_of(present, k_, shard_count(), false);
  const std::size_t parity_count = m_ - parity.size();
  if (parity_count < lost.size()) fail_too_few(lost.size(), parity_count);
  base::fail(TANDEM_ERROR_NOT_RECOVERABLE, "this matrix is not MDS and cannot rebuild shards ", list_of(undetermined),
             ": with data shards ", list_of(lost), " and parity shards ", parity.empty() ? "none" : list_of(parity),
             " missing, the ", parity_count, " parity shards left have rank ", rank, ", ", lost.size(), " needed");
}

std::uint32_t Codec::locate(std::span<const std::uint16_t> rows, std::span<const Element> syndromes) const {
  const auto nonzero = [](Element each) { return each != 0; };
  const auto first = static_cast<std::size_t>(std::ranges::find_if(syndromes, nonzero) - syndromes.begin());
  if (first == syndromes.size()) return TANDEM_SHARD_NONE;
  std::uint32_t found = std::ranges::count_if(syndromes, nonzero) == 1 ? k_ + rows[first] : TANDEM_SHARD_NONE;
  for (unsigned c = 0; c < k_; ++c) {
    const Element cell = coefficient(rows[first], c);
    if (cell == 0) continue;
    const Element damage = multiply(syndromes[first], inverse(cell));
    std::size_t i = 0;
    while (i < rows.size() && multiply(damage, coefficient(rows[i], c)) == syndromes[i]) ++i;
    if (i < rows.size()) continue;
    if (found != TANDEM_SHARD_NONE) return TANDEM_SHARD_NONE;
    found = c;
  }
  return found;
}

}  // namespace tandem::core
