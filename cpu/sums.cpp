// SPDX-License-Identifier: Apache-2.0
#include "cpu/sums.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace tandem::cpu {
namespace {

// A pair that fewer sums share is not worth a packet of its own. The packet costs two loads, a store and the change to
// another sum, and saves one load for each user.
constexpr unsigned kLeastUsers = 5;
constexpr std::size_t kMostShared = 128;

// The outputs that have a packet among their sources.
using Users = std::array<std::uint64_t, kMostScheduledBits / 64>;

unsigned count_of(const Users &users) {
  unsigned count = 0;
  for (const std::uint64_t word : users) count += static_cast<unsigned>(std::popcount(word));
  return count;
}

Users common(const Users &a, const Users &b) {
  Users both;
  for (std::size_t i = 0; i < both.size(); ++i) both[i] = a[i] & b[i];
  return both;
}

void remove(Users &from, const Users &those) {
  for (std::size_t i = 0; i < from.size(); ++i) from[i] &= ~those[i];
}

class PairSearch {
 public:
  explicit PairSearch(const core::Matrix &bits) : bits_(bits), packets_(bits.columns()) {
    for (unsigned c = 0; c < bits.columns(); ++c)
      for (unsigned r = 0; r < bits.rows(); ++r)
        if (bits.at(r, c) != 0) packets_[c].users[r / 64] |= std::uint64_t{1} << r % 64;
    for (std::uint32_t i = 0; i < packets_.size(); ++i) find_partner(i);
    while (packets_.size() < bits.columns() + kMostShared && share_best()) continue;
  }

  Schedule schedule() const {
    const unsigned inputs = bits_.columns(), outputs = bits_.rows();
    // A shared packet with one user becomes a part of that user.
    std::vector<unsigned> uses(packets_.size());
    for (std::size_t i = inputs; i < packets_.size(); ++i) {
      uses[i] += count_of(packets_[i].users);
      for (const std::uint32_t part : packets_[i].parts) ++uses[part];
    }
    Schedule schedule;
    schedule.slot_count = inputs + outputs;
    std::vector<std::vector<std::uint32_t>> sources(packets_.size());  // what to add in place of a packet
    for (std::uint32_t i = 0; i < packets_.size(); ++i) {
      if (i < inputs) {
        sources[i] = {i};
        continue;
      }
      std::vector<std::uint32_t> both;
      for (const std::uint32_t part : packets_[i].parts)
        both.insert(both.end(), sources[part].begin(), sources[part].end());
      if (uses[i] != 1) {
        schedule.sums.push_back({schedule.slot_count, std::move(both)});
        both = {schedule.slot_count++};
      }
      sources[i] = std::move(both);
    }
    std::vector<Sum> last(outputs);
    for (unsigned r = 0; r < outputs; ++r) last[r].to = inputs + r;
    for (std::size_t i = 0; i < packets_.size(); ++i)
      for (unsigned r = 0; r < outputs; ++r)
        if (packets_[i].users[r / 64] >> r % 64 & 1)
          last[r].from.insert(last[r].from.end(), sources[i].begin(), sources[i].end());
    // Loops of equal length beside each other are predicted well.
    std::ranges::stable_sort(last, {}, [](const Sum &sum) { return sum.from.size(); });
    std::ranges::move(last, std::back_inserter(schedule.sums));
    return schedule;
  }

 private:
  struct Packet {
    Users users{};
    std::array<std::uint32_t, 2> parts{};  // of a shared packet
    std::uint32_t partner = 0;             // of the earlier packets, that with the most users in common
    unsigned common_count = 0;
  };

  void find_partner(std::uint32_t i) {
    Packet &packet = packets_[i];
    packet.common_count = 0;
    if (count_of(packet.users) < kLeastUsers) return;
    for (std::uint32_t j = 0; j < i; ++j) {
      const unsigned count = count_of(common(packet.users, packets_[j].users));
      if (count <= packet.common_count) continue;
      packet.common_count = count;
      packet.partner = j;
    }
  }

  bool share_best() {
    const auto best = std::ranges::max_element(packets_, {}, &Packet::common_count);
    if (best == packets_.end() || best->common_count < kLeastUsers) return false;
    const auto a = static_cast<std::uint32_t>(best - packets_.begin()), b = best->partner;
    Packet pair;
    pair.users = common(packets_[a].users, packets_[b].users);
    pair.parts = {a, b};
    remove(packets_[a].users, pair.users);
    remove(packets_[b].users, pair.users);
    packets_.push_back(pair);
    for (std::uint32_t i = 0; i < packets_.size(); ++i) {
      const bool is_changed = i == a || i == b || i + 1 == packets_.size();
      const std::uint32_t partner = packets_[i].partner;
      if (is_changed || (packets_[i].common_count != 0 && (partner == a || partner == b))) find_partner(i);
    }
    return true;
  }

  const core::Matrix &bits_;
  std::vector<Packet> packets_;  // the inputs, then those that are shared
};

}  // namespace

std::uint64_t Schedule::addition_count() const noexcept {
  std::uint64_t count = 0;
  for (const Sum &sum : sums) count += sum.from.empty() ? 0 : sum.from.size() - 1;
  return count;
}

Schedule plain_schedule(const core::Matrix &bits) {
  Schedule schedule;
  schedule.slot_count = bits.columns() + bits.rows();
  for (unsigned r = 0; r < bits.rows(); ++r) {
    Sum &sum = schedule.sums.emplace_back(Sum{bits.columns() + r, {}});
    for (unsigned c = 0; c < bits.columns(); ++c)
      if (bits.at(r, c) != 0) sum.from.push_back(c);
  }
  return schedule;
}

Schedule shared_schedule(const core::Matrix &bits) { return PairSearch(bits).schedule(); }

}  // namespace tandem::cpu
