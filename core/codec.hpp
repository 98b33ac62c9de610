// Computes operators: a codec turns (which shards are present, which are wanted) into the operator to apply.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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

class Codec16;  // core/codec16.hpp

// Shards in packets: see BitMatrix.
struct PacketLayout {
  unsigned word_bits;
  std::uint64_t packet_bytes;
};

class Codec {
 public:
  static constexpr unsigned kCachedPatterns = 64;
  static constexpr std::size_t kCachedBytes = std::size_t{64} << 20;  // of all patterns, or of a single larger one

  // Checks the options as tandem_codec_create promises; throws Error. Reads options.struct_bytes bytes.
  explicit Codec(const tandem_codec_options &options);
  ~Codec();
  Codec(const Codec &) = delete;
  Codec &operator=(const Codec &) = delete;

  unsigned k() const noexcept { return k_; }
  unsigned m() const noexcept { return m_; }
  unsigned shard_count() const noexcept { return k_ + m_; }
  Field field() const noexcept { return codec16_ == nullptr ? Field::gf8 : Field::gf16; }
  const Codec16 *codec16() const noexcept { return codec16_.get(); }  // null unless the field is GF(2^16)
  // nothing: the layout is that of the field
  const std::optional<PacketLayout> &packets() const noexcept { return packets_; }
  std::uint64_t id() const noexcept { return id_; }  // unique in the process, never reused: a cache key
  // m x k; empty in GF(2^16). Packets of GF(2^4): as elements of GF(2^8), see gf::Subfield4.
  const Matrix &parity() const noexcept { return parity_; }
  // Whether every loss of m shards is known to be recoverable.
  bool is_mds() const noexcept { return is_mds_; }
  const std::optional<LocalGroups> &local_groups() const noexcept { return groups_; }
  const std::optional<CauchyForm> &cauchy_form() const noexcept { return cauchy_; }
  // Whether decoding needs no elimination. Found from the coefficients, so it works for custom matrices too.
  bool is_cauchy() const noexcept;

  // The wanted parity rows from all k data shards: a CauchyTransform if is_wide says so and the points lie in runs,
  // else Dense. A wanted data shard is INVALID_ARGUMENT.
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
  // w) (Operator::dense() of these comes to e * k * w).
  std::shared_ptr<const Application> decode(const ShardSet &present, const ShardSet &wanted) const;
  // The same for a pattern that will hardly come again: nothing is kept. costs: of reading each shard. The cheapest set
  // that is found is read. Empty: all are 1. Throws Error, also UNSUPPORTED for costs in GF(2^16).
  std::shared_ptr<const Application> solve(const ShardSet &present, const ShardSet &wanted,
                                           std::span<const std::uint32_t> costs = {}) const;
  // Those of these shards, in this order, that do not depend on earlier ones. In GF(2^8).
  std::vector<std::uint16_t> independent(std::span<const std::uint16_t> shards) const;

  // parity[r] ^= coefficients[r][0] * in, for the wanted parity rows and one data shard.
  Application column(unsigned index, const ShardSet &wanted) const;

  // The operator of rows made from parity(), in the layout of the codec's shards.
  Operator operator_of(Matrix coefficients) const;

  // The one shard that explains a non-zero syndrome by its damage. The syndrome has m elements: stored parity minus
  // recomputed parity at one place, in GF(2^8). Returns its index, or TANDEM_SHARD_NONE if no shard or several could
  // (always with m = 1 and no zero coefficient).
  std::uint32_t locate(std::span<const Element> syndrome) const;

 private:
  class DecodeCache;
  void check_wanted_parity(const ShardSet &wanted) const;
  void interpolate(std::vector<std::uint16_t> lost, std::vector<std::uint16_t> parity, Application &application) const;
  void eliminate(const std::vector<std::uint16_t> &lost_data, std::vector<std::uint16_t> present_parity,
                 Application &application) const;
  void solve_cheapest(const ShardSet &present, std::span<const std::uint32_t> costs, Application &application) const;
  bool express(std::span<const std::uint16_t> shards, Application &application) const;
  [[noreturn]] void fail_groups(const ShardSet &present) const;

  unsigned k_, m_;
  std::uint64_t id_;
  bool is_mds_;
  std::optional<PacketLayout> packets_;
  Matrix parity_;
  std::optional<CauchyForm> cauchy_;
  std::optional<LocalGroups> groups_;
  const char *name_ = "custom";  // of the matrix
  bool has_runs_ = false;        // the points of cauchy_ are the preset's own
  std::unique_ptr<const Codec16> codec16_;
  std::unique_ptr<DecodeCache> cache_;
};

}  // namespace tandem::core
