// SPDX-License-Identifier: Apache-2.0
// Computes operators: a codec turns (which shards are present, which are wanted) into the operator to apply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/elimination.hpp"
#include "core/local_groups.hpp"
#include "core/operator.hpp"
#include "core/shard_set.hpp"
#include "tandem/tandem.h"

namespace tandem::core {

inline constexpr unsigned kMaxShards = 256;  // of a stripe in GF(2^8)

// An operator on shards of the stripe.
struct Application {
  Operator what = Matrix();
  std::vector<std::uint16_t> inputs;  // shard indices, ascending
  std::vector<std::uint16_t> outputs;
};

// Shards in packets: see BitMatrix.
struct PacketLayout {
  unsigned word_bits;
  std::uint64_t packet_bytes;
};

// What the set-up of a large decode over GF(2^16) uses.
struct SetupWork {
  // outputs ^= factors * inputs, on rows of `columns` elements in words. Empty: plain loops on this thread.
  std::function<void(const Matrix16 &factors, const std::byte *const *inputs, std::byte *const *outputs,
                     std::size_t columns)>
      multiply;
  std::function<void()> check_cancelled;  // throws to end the set-up; empty: nothing ends it
};

class Codec {
 public:
  static constexpr unsigned kCachedPatterns = 64;
  static constexpr std::size_t kCachedBytes = std::size_t{64} << 20;  // of all patterns, or of a single larger one

  virtual ~Codec();
  Codec(const Codec &) = delete;
  Codec &operator=(const Codec &) = delete;

  unsigned k() const noexcept { return k_; }
  unsigned m() const noexcept { return m_; }
  unsigned shard_count() const noexcept { return k_ + m_; }
  Field field() const noexcept { return field_; }
  virtual Layout layout() const noexcept { return Layout::words; }  // of elements of GF(2^16)
  // nothing: the layout is that of the field
  const std::optional<PacketLayout> &packets() const noexcept { return packets_; }
  std::uint64_t id() const noexcept { return id_; }  // unique in the process, never reused: a cache key
  // Whether every loss of m shards is known to be recoverable.
  bool is_mds() const noexcept { return is_mds_; }

  // Arithmetic of the field. Packets of GF(2^4): with elements of GF(2^8), see gf::Subfield4.
  virtual Element coefficient(unsigned row, unsigned column) const = 0;  // of parity shard k + row
  virtual Element multiply(Element a, Element b) const = 0;
  virtual Element inverse(Element a) const = 0;

  // These are empty in GF(2^16).
  const Matrix &parity() const noexcept { return parity_; }  // m x k
  const std::optional<LocalGroups> &local_groups() const noexcept { return groups_; }
  // With it, decoding needs no elimination. Found from the coefficients, so it works for custom matrices too.
  const std::optional<CauchyForm> &cauchy_form() const noexcept { return cauchy_; }

  // The wanted parity rows from all k data shards. A wanted data shard is INVALID_ARGUMENT.
  Application encode(const ShardSet &wanted) const;

  // The wanted missing shards, data and parity together. Reads the fewest present shards that suffice: k for an MDS
  // code (fewer never do). For other codes a search that begins with the sparsest parity rows finds them. Throws Error:
  // INVALID_ARGUMENT for a wanted shard that is present or does not exist; NOT_RECOVERABLE with the counts, or, for a
  // matrix that is not MDS, with the pattern.
  // Solved matrices are kept: those of the kCachedPatterns latest patterns, within kCachedBytes. A repeated call
  // returns the same object. A wide code gives a SyndromeDecode.
  // Cost of a new pattern of e lost data shards and w wanted ones, in multiply-adds: at most 2 * e * e * (k + e) if w
  // <= e (w * e * k and one e x e elimination), plus 2 * e * e for each dependent parity row that the search for an
  // invertible set drops. Cauchy codes need no elimination and at most 2 * e * (k + w) + k * w, wide ones 2 * e * (e +
  // w) (Operator::dense() of these comes to (e + w) * k + e * w).
  std::shared_ptr<const Application> decode(const ShardSet &present, const ShardSet &wanted,
                                            const SetupWork &work = {}) const;
  // The same for a pattern that will hardly come again: nothing is kept. costs: of reading each shard. The cheapest set
  // that is found is read. Empty: all are 1. Throws Error, also UNSUPPORTED for costs in GF(2^16).
  std::shared_ptr<const Application> solve(const ShardSet &present, const ShardSet &wanted,
                                           std::span<const std::uint32_t> costs = {}, const SetupWork &work = {}) const;

  // parity[r] ^= coefficients[r][0] * in, for the wanted parity rows and one data shard.
  Application column(unsigned index, const ShardSet &wanted) const;

  // The one shard that explains a non-zero syndrome by its damage: for some parity rows, stored parity minus recomputed
  // parity at one place. Returns its index, or TANDEM_SHARD_NONE if no shard or several could (always with m = 1 and no
  // zero coefficient).
  std::uint32_t locate(std::span<const std::uint16_t> rows, std::span<const Element> syndromes) const;

 protected:
  // Checks the shape and the layout.
  explicit Codec(const tandem_codec_options &options);

  // The number that stands for a coefficient times 2^i, of (row, column, i).
  using Products = std::function<unsigned(unsigned, unsigned, unsigned)>;
  Operator packet_operator(unsigned rows, unsigned columns, const Products &products) const;
  [[noreturn]] void fail_too_few(std::size_t lost_count, std::size_t parity_count) const;
  // rank: of the present parity rows.
  [[noreturn]] void fail_undetermined(const ShardSet &present, const Indices &undetermined, unsigned rank) const;

  const unsigned k_, m_;
  bool is_mds_ = true;
  std::optional<PacketLayout> packets_;
  Matrix parity_;
  std::optional<CauchyForm> cauchy_;
  std::optional<LocalGroups> groups_;

 private:
  class DecodeCache;
  void check_wanted_parity(const ShardSet &wanted) const;
  virtual Operator encode_of(std::span<const std::uint16_t> outputs) const = 0;
  virtual Operator column_of(unsigned index, std::span<const std::uint16_t> outputs) const = 0;
  // Fills inputs and what. There are outputs, all missing.
  virtual void solve_for(const ShardSet &present, std::span<const std::uint32_t> costs, const SetupWork &work,
                         Application &application) const = 0;

  const Field field_;
  std::uint64_t id_;
  std::unique_ptr<DecodeCache> cache_;
};

// Checks the options as tandem_codec_create promises; throws Error. Reads options.struct_bytes bytes.
std::shared_ptr<const Codec> make_codec(const tandem_codec_options &options);

// For codecs. Throws Error if a preset is given coefficients; if a custom matrix is not proven to be MDS.
void check_no_coefficients(const tandem_codec_options &options, const char *matrix);
enum class MdsProof;  // core/presets.hpp
void check_proof(MdsProof proof, unsigned k, unsigned m);
// For codecs: the shards from begin to end that are in the set (or are not), and texts for messages.
Indices indices_of(const ShardSet &set, unsigned begin, unsigned end, bool in = true);
std::string count_of(std::size_t count, const char *what);
std::string list_of(std::span<const std::uint16_t> indices);

}  // namespace tandem::core
