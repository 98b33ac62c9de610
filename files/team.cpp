// SPDX-License-Identifier: Apache-2.0
#include "files/team.hpp"

#include <cstring>
#include <exception>

#include "base/options.hpp"
#include "base/text.hpp"

namespace tandem::files {

void Words::put(std::uint64_t number) { bytes_.append(reinterpret_cast<const char *>(&number), sizeof number); }

void Words::put(std::string_view text) {
  put(text.size());
  bytes_ += text;
}

void Words::put(const Ranges &ranges) {
  put(ranges.count());
  put(ranges.is_exact() ? 1 : 0);
  put(ranges.ends().size());
  for (const auto &[first, end] : ranges.ends()) {
    put(first);
    put(end);
  }
}

void Words::put(std::span<const Hash128> hashes) {
  put(std::string_view(reinterpret_cast<const char *>(hashes.data()), hashes.size_bytes()));
}

std::uint64_t Words::number() {
  std::uint64_t number = 0;
  if (bytes_.size() - at_ < sizeof number) fail(TANDEM_ERROR_INTERNAL, "another process told less than it should");
  std::memcpy(&number, bytes_.data() + at_, sizeof number);
  at_ += sizeof number;
  return number;
}

std::string Words::text() {
  const std::uint64_t length = number();
  if (bytes_.size() - at_ < length) fail(TANDEM_ERROR_INTERNAL, "another process told less than it should");
  at_ += length;
  return bytes_.substr(at_ - length, length);
}

std::vector<Hash128> Words::hashes() {
  const std::string bytes = text();
  std::vector<Hash128> hashes(bytes.size() / sizeof(Hash128));
  if (!hashes.empty()) std::memcpy(hashes.data(), bytes.data(), hashes.size() * sizeof(Hash128));
  return hashes;
}

void Words::add_to(Ranges &all) {
  const std::uint64_t count = number();
  const bool exact = number() != 0;
  Ranges::Ends ends;
  for (std::uint64_t left = number(); left != 0; --left) {
    const std::uint64_t first = number();
    ends.emplace_back(first, number());
  }
  all.merge(ends, count, exact);
}

Team::Team(const tandem_files_team *given) {
  team_.process_count = 1;
  if (given == nullptr) return;
  team_ = base::read_options(given, "tandem_files_team");
  if (team_.process >= team_.process_count)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "team: process is ", team_.process, " of process_count ", team_.process_count);
  if (team_.agree == nullptr || team_.gather == nullptr || team_.broadcast == nullptr)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "team: agree, gather or broadcast is NULL");
}

void Team::gather(const Tell &tell, const std::function<void(std::uint32_t, Words &)> &hear) const {
  Words mine;
  together([&] { tell(mine); });
  struct Hearer {
    const std::function<void(std::uint32_t, Words &)> &hear;
    std::exception_ptr failure;
  } hearer{hear, {}};
  const auto take = [](void *taker, std::uint32_t process, const void *bytes, std::size_t byte_count) {
    auto &self = *static_cast<Hearer *>(taker);
    if (self.failure) return;
    try {
      Words theirs(std::string(static_cast<const char *>(bytes), byte_count));
      self.hear(process, theirs);
    } catch (...) {
      self.failure = std::current_exception();
    }
  };
  if (is_alone()) {
    take(&hearer, 0, mine.bytes().data(), mine.bytes().size());
    if (hearer.failure) std::rethrow_exception(hearer.failure);
    return;
  }
  const tandem_status gathered = team_.gather(team_.user, mine.bytes().data(), mine.bytes().size(), take, &hearer);
  together([&] {
    check(gathered);
    if (hearer.failure) std::rethrow_exception(hearer.failure);
  });
}

Words Team::broadcast(const Tell &tell) const {
  Words told;
  together([&] {
    if (leads()) tell(told);
  });
  if (is_alone()) return told;
  std::string bytes = std::move(told).bytes();
  std::uint64_t byte_count = bytes.size();
  check(team_.broadcast(team_.user, &byte_count, sizeof byte_count));
  together([&] { bytes.resize(byte_count); });
  check(team_.broadcast(team_.user, bytes.data(), bytes.size()));
  return Words(std::move(bytes));
}

void Team::merge(const Tell &tell, const std::function<void()> &forget,
                 const std::function<void(Words &theirs)> &hear) const {
  if (is_alone()) return;
  gather(tell, [&](std::uint32_t process, Words &theirs) {
    if (process != 0) hear(theirs);
  });
  Words all = broadcast(tell);
  together([&] {
    if (leads()) return;
    forget();
    hear(all);
  });
}

Rounds::Rounds(const Team &team, const SetHeader &header, std::uint64_t stripe_count)
    : stripe_count_(stripe_count), process_(team.process()), process_count_(team.process_count()) {
  if (team.is_alone()) return;
  constexpr std::uint64_t kRoundBytes = 64u << 20;  // of shard files, for each process
  const std::uint64_t stripe_bytes = std::uint64_t{header.shard_count()} * header.block_bytes;
  const std::uint64_t stripes = std::max<std::uint64_t>(kRoundBytes / stripe_bytes, 1) * process_count_;
  count_ = stripe_count / stripes + (stripe_count % stripes != 0 ? 1 : 0);
}

tandem_files_range Rounds::range(std::uint64_t round) const {
  const tandem_files_range all = range_of(stripe_count_, round, count_);
  const tandem_files_range mine = range_of(all.count, process_, process_count_);
  return {all.first + mine.first, mine.count};
}

std::uint64_t Rounds::stripe_count() const {
  if (count_ == 0) return 0;
  const auto mine = [this](std::uint64_t stripes) { return range_of(stripes, process_, process_count_).count; };
  const std::uint64_t each = stripe_count_ / count_, longer = stripe_count_ % count_;  // rounds with each + 1
  return longer * mine(each + 1) + (count_ - longer) * mine(each);
}

void SharedDigest::add(std::span<const Hash128> payload_hashes) {
  if (team_.is_alone())
    digest_.add(payload_hashes);
  else
    hashes_.insert(hashes_.end(), payload_hashes.begin(), payload_hashes.end());
}

void SharedDigest::end_round() {
  if (team_.is_alone()) return;
  team_.gather([this](Words &words) { words.put(hashes_); },
               [this](std::uint32_t, Words &theirs) { digest_.add(theirs.hashes()); });
  hashes_.clear();
}

Hash128 SharedDigest::value(std::uint64_t content_bytes) const {
  Hash128 value = digest_.value(content_bytes);
  team_.share(value);
  return value;
}

}  // namespace tandem::files
