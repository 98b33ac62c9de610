// SPDX-License-Identifier: Apache-2.0
// The processes that make one call together (tandem_files_team), or this process alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/gate.hpp"
#include "files/format.hpp"
#include "files/ranges.hpp"
#include "tandem/files.h"

namespace tandem::files {

// A message from one process to another of the same program: numbers and texts, one after the other.
class Words {
 public:
  Words() = default;
  explicit Words(std::string bytes) : bytes_(std::move(bytes)) {}

  void put(std::uint64_t number);
  void put(std::string_view text);
  void put(const Ranges &ranges);
  void put(std::span<const Hash128> hashes);
  std::uint64_t number();  // throws INTERNAL if there is none
  std::string text();      // the same
  std::vector<Hash128> hashes();
  void add_to(Ranges &all);  // those that were put
  const std::string &bytes() const & { return bytes_; }
  std::string bytes() && { return std::move(bytes_); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

class Team {
 public:
  // NULL: alone. Throws INVALID_ARGUMENT.
  explicit Team(const tandem_files_team *given);

  bool is_alone() const { return team_.process_count == 1; }
  bool leads() const { return team_.process == 0; }
  std::uint32_t process() const { return team_.process; }
  std::uint32_t process_count() const { return team_.process_count; }

  // Called by all processes, like all functions below. Runs `body`, which calls no function of this class. If it throws
  // in any process, all processes throw the exception of the first of those. Between these calls nothing may throw,
  // because the other processes would wait.
  template <class Body>  // std::function could run out of memory before it is called
  void together(const Body &body) const {
    if (is_alone()) return body();
    check(team_.agree(team_.user, base::guarded(body)));
  }
  // Process 0 receives the messages of all processes, in their order. `tell` and `hear` run as a body of together().
  using Tell = std::function<void(Words &)>;
  void gather(const Tell &tell, const std::function<void(std::uint32_t process, Words &theirs)> &hear) const;
  // All get the value of process 0.
  template <class Value>
  void share(Value &value) const {
    static_assert(std::is_trivially_copyable_v<Value>);
    if (!is_alone()) check(team_.broadcast(team_.user, &value, sizeof value));
  }
  // A message of process 0 to all.
  Words broadcast(const Tell &tell) const;
  // Combines what all processes tell: process 0 hears the others, then they forget their own and hear process 0.
  void merge(const Tell &tell, const std::function<void()> &forget,
             const std::function<void(Words &theirs)> &hear) const;

 private:
  tandem_files_team team_ = {};
};

// Number `index` of `count` ranges of `total` numbers, as equal as can be.
inline tandem_files_range range_of(std::uint64_t total, std::uint64_t index, std::uint64_t count) {
  const std::uint64_t each = total / count, more = total % count;
  return {index * each + std::min(index, more), each + (index < more ? 1 : 0)};
}

// How processes divide stripes. Hashes of data blocks wait for the end of a round, so rounds bound the memory. One
// process has one round.
class Rounds {
 public:
  Rounds(const Team &team, const SetHeader &header, std::uint64_t stripe_count);

  std::uint64_t count() const { return count_; }
  tandem_files_range range(std::uint64_t round) const;  // of this process
  std::uint64_t stripe_count() const;                   // of this process, in all rounds

 private:
  std::uint64_t stripe_count_, process_, process_count_, count_ = 1;
};

// The digest of a content of which each process reads its range of each round.
class SharedDigest {
 public:
  explicit SharedDigest(const Team &team) : team_(team) {}

  void add(std::span<const Hash128> payload_hashes);  // in the order of this process's stripes
  void end_round();                                   // collective
  Hash128 value(std::uint64_t content_bytes) const;   // collective

 private:
  const Team &team_;
  ContentDigest digest_;         // of process 0
  std::vector<Hash128> hashes_;  // of this round
};

}  // namespace tandem::files
