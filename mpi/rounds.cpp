// SPDX-License-Identifier: Apache-2.0
#include "mpi/rounds.hpp"

#include <algorithm>
#include <type_traits>

#include "mpi/error.hpp"
#include "mpi/structs.hpp"
#include "tandem/results.hpp"

namespace tandem::mpi {
namespace {

// `index` of `count` parts of `total`, as equal as can be.
Part share(std::uint64_t total, std::uint64_t index, std::uint64_t count) {
  const std::uint64_t each = total / count, more = total % count;
  return {index * each + std::min(index, more), each + (index < more ? 1 : 0)};
}

}  // namespace

Rounds::Rounds(const tandem_files_set &set, int rank_count)
    : stripe_bytes_(std::uint64_t{set.k} * (set.block_bytes - 16)),  // a block ends with 16 bytes of checksum
      content_bytes_(set.content_bytes),
      stripe_count_(set.stripe_count),
      k_(set.k),
      rank_count_(rank_count) {
  constexpr std::uint64_t kPartBytes = std::uint64_t{4} << 20;
  const std::uint64_t part_stripes = std::max<std::uint64_t>(kPartBytes / stripe_bytes_, 1);
  const std::uint64_t round_stripes = part_stripes * static_cast<std::uint64_t>(rank_count);
  round_count_ = stripe_count_ / round_stripes + (stripe_count_ % round_stripes != 0);
  most_bytes_ = static_cast<std::size_t>(std::min(part_stripes, stripe_count_) * stripe_bytes_);
}

Part Rounds::part(std::uint64_t round, int rank) const {
  const Part all = share(stripe_count_, round, round_count_);
  // Each round begins with another rank, so that the larger parts rotate.
  const auto ranks = static_cast<std::uint64_t>(rank_count_);
  const Part mine = share(all.count, (static_cast<std::uint64_t>(rank) + round) % ranks, ranks);
  return {all.first + mine.first, mine.count};
}

std::uint64_t Rounds::first_byte(std::uint64_t round) const {
  return share(stripe_count_, round, round_count_).first * stripe_bytes_;
}

std::size_t Rounds::byte_count(const Part &part) const {
  const std::uint64_t first = part.first * stripe_bytes_;
  return static_cast<std::size_t>(
      std::min(part.count * stripe_bytes_, content_bytes_ - std::min(first, content_bytes_)));
}

std::size_t Rounds::hash_bytes(const Part &part) const { return static_cast<std::size_t>(part.count * k_ * 16); }

std::vector<std::size_t> Rounds::hash_bytes_of(std::uint64_t round) const {
  std::vector<std::size_t> bytes;
  for (int rank = 0; rank < rank_count_; ++rank) bytes.push_back(hash_bytes(part(round, rank)));
  return bytes;
}

std::int32_t Progress::hear(void *user, std::uint64_t done_bytes, std::uint64_t) {
  Progress &self = *static_cast<Progress *>(user);
  // The other ranks have done about as much of this round as this rank.
  const std::uint64_t of_round = std::min(done_bytes, self.round_bytes_ / self.rank_count_) * self.rank_count_;
  self.told_bytes_ = std::max(self.told_bytes_, self.base_bytes_ + of_round);  // a commit counts from 0 again
  return self.call_(self.user_, self.told_bytes_, self.total_bytes_);
}

void Progress::begin_round(const Rounds &rounds, std::uint64_t round) {
  base_bytes_ = std::min(rounds.first_byte(round), total_bytes_);
  round_bytes_ = std::min(rounds.first_byte(round + 1), total_bytes_) - base_bytes_;
}

void Progress::check_cancelled() {
  if (call_ != nullptr && hear(this, 0, 0) != 0) fail(TANDEM_ERROR_CANCELLED, "cancelled");
}

tandem_files_result add_up(const World &world, tandem_files_result all, const tandem_files_result &mine) {
  constexpr double kMicro = 1e6;
  world.broadcast(&all, sizeof all);
  results::each_row(mine, [&](const auto &row) {
    if (row.unit != results::Unit::sum) return;
    const auto &value = mine.*row.member;
    if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(value)>>)
      all.*row.member = static_cast<double>(world.sum(static_cast<std::uint64_t>(value * kMicro))) / kMicro;
    else if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(value)>>)
      all.*row.member = static_cast<std::remove_cvref_t<decltype(value)>>(world.sum(value));
  });
  all.shards_read = static_cast<std::uint32_t>(world.most(mine.shards_read));
  return all;
}

tandem_mpi_work work_of(const World &world, std::uint64_t read_bytes) {
  auto work = sized<tandem_mpi_work>();
  work.rank_count = static_cast<std::uint32_t>(world.size());
  work.node_count = count_nodes(world);
  work.read_bytes = read_bytes;
  work.least_read_bytes = world.least(read_bytes);
  work.most_read_bytes = world.most(read_bytes);
  return work;
}

std::uint32_t count_nodes(const World &world) {
  return static_cast<std::uint32_t>(world.sum(world.node().leads() ? 1 : 0));
}

}  // namespace tandem::mpi
