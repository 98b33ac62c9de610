// SPDX-License-Identifier: Apache-2.0
// What must hold for shard sets in folders, by the bytes that lie there. It knows docs/format.md and the files that an
// undisturbed encode made, and nothing of the library.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/files.h"

namespace model {

using Bytes = std::string;
using Tree = std::map<std::string, std::optional<Bytes>>;  // "folder/name": its bytes; a folder has none

constexpr std::size_t kRecord = 4096;

inline std::string name_in(const std::string &path) { return path.substr(path.rfind('/') + 1); }
inline std::string folder_in(const std::string &path) { return path.substr(0, path.rfind('/')); }
inline std::string shard_name(const std::string &name, unsigned index) {
  char number[24];
  std::snprintf(number, sizeof number, ".%03u.tandem", index);
  return name + number;
}

// One encode of the set: the newer one has the higher number. 0: another set, which nothing may change. If it is
// resized, there is one for each m, with the same number and id. If files say different m, that of the set is the
// smallest one that no file with a larger m is outside of.
struct Generation {
  unsigned number = 0;
  std::string name, id;  // 32 hexadecimal digits
  Bytes content;
  std::uint32_t k = 0, m = 0, block_bytes = 0;
  std::int32_t matrix = TANDEM_MATRIX_ISAL_CAUCHY;
  std::vector<std::string> folders;
  std::vector<Bytes> files;  // by shard
  std::set<Bytes> replaced;  // ids of sets, of 16 bytes each, as its records say

  std::uint64_t stripe_count() const { return (files[0].size() - 2 * kRecord + block_bytes - 1) / block_bytes; }
  std::size_t offset(std::uint64_t block) const { return kRecord + block * block_bytes; }
  std::size_t bytes(std::uint64_t block) const {
    return std::min<std::size_t>(block_bytes, files[0].size() - kRecord - offset(block));
  }
  std::string_view block(unsigned index, std::uint64_t block) const {
    return std::string_view(files[index]).substr(offset(block), bytes(block));
  }
  // The block has no content, only the zeros behind it: it is known without a file.
  bool is_padding(unsigned index, std::uint64_t block) const {
    const std::uint64_t first = block * k * (block_bytes - 16) + index * (bytes(block) - 16);
    return index < k && first >= content.size();
  }
  bool is_padding(unsigned index) const { return stripe_count() == 1 && is_padding(index, 0); }
  std::string place(unsigned index) const { return folders[index % folders.size()] + "/" + shard_name(name, index); }
  std::string temporary(unsigned index) const { return shard_name("." + id, index) + "-tmp"; }
  Bytes id_bytes() const { return files[0].substr(16, 16); }
};
using Generations = std::vector<Generation>;

struct File {
  std::string path;
  const Generation *of;
  unsigned index;
  std::uint32_t condition;
  std::vector<bool> good;  // by block
  std::uint32_t m = 0;     // according to its record; without one, that of the set
};

// What there is of a generation.
struct State {
  const Generation *of = nullptr;
  std::vector<File> files;

  bool has(unsigned index) const {
    return std::any_of(files.begin(), files.end(), [&](const File &file) { return file.index == index; });
  }
  bool has(unsigned index, std::uint64_t block) const {
    return std::any_of(files.begin(), files.end(),
                       [&](const File &file) { return file.index == index && file.good[block]; });
  }
  unsigned shard_count() const {
    unsigned count = 0;
    for (unsigned i = 0; i < of->k + of->m; ++i) count += has(i);
    return count;
  }
  unsigned good_count(std::uint64_t block) const {
    unsigned count = 0;
    for (unsigned i = 0; i < of->k + of->m; ++i) count += has(i, block);
    return count;
  }
  bool is_lost(std::uint64_t block) const {
    unsigned known = good_count(block);
    for (unsigned i = 0; i < of->k; ++i) known += of->is_padding(i, block) && !has(i, block);
    return known < of->k;
  }
  std::uint64_t lost_count() const {
    std::uint64_t count = 0;
    for (std::uint64_t block = 0; block < of->stripe_count(); ++block) count += is_lost(block);
    return count;
  }
  bool has_enough_shards() const {
    unsigned known = shard_count();
    for (unsigned i = 0; i < of->k; ++i) known += of->is_padding(i) && !has(i);
    return known >= of->k;
  }
  bool is_decodable() const { return has_enough_shards() && lost_count() == 0; }
  // The content with zeros for what is lost, and the places of that.
  std::pair<Bytes, std::vector<std::pair<std::uint64_t, std::uint64_t>>> salvaged() const {
    Bytes content = of->content;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> holes;
    const std::uint64_t stripe_bytes = std::uint64_t{of->k} * (of->block_bytes - 16);
    for (std::uint64_t block = 0; block < of->stripe_count(); ++block)
      for (unsigned i = 0; i < of->k && is_lost(block); ++i) {
        const std::uint64_t payload = of->bytes(block) - 16, first = block * stripe_bytes + i * payload;
        const std::uint64_t end = std::min({first + payload, (block + 1) * stripe_bytes, content.size()});
        if (has(i, block) || first >= end) continue;
        std::fill(content.begin() + static_cast<std::ptrdiff_t>(first),
                  content.begin() + static_cast<std::ptrdiff_t>(end), 0);
        if (!holes.empty() && holes.back().first + holes.back().second == first)
          holes.back().second += end - first;
        else
          holes.emplace_back(first, end - first);
      }
    return {content, holes};
  }
};

// Which shard of which generation the records say that a file is; without one, which one most of three blocks are.
struct Owner {
  const Generation *of = nullptr;
  unsigned index = 0;
  bool start = false, end = false;
};
inline Owner owner_by_records(const Bytes &file, const Generations &all) {
  Owner by_start, by_end;
  if (file.size() < kRecord) return by_start;
  const std::string_view start = std::string_view(file).substr(0, kRecord),
                         end = std::string_view(file).substr(file.size() - kRecord);
  for (const Generation &each : all)
    for (unsigned i = 0; i < each.files.size(); ++i) {
      if (each.files[i].starts_with(start)) by_start = {&each, i, true, false};
      if (each.files[i].ends_with(end)) by_end = {&each, i, false, true};
    }
  if (by_start.of == nullptr) return by_end;
  by_start.end = by_end.of == by_start.of && by_end.index == by_start.index;
  return by_start;
}
inline Owner owner_by_blocks(const Bytes &file, const std::vector<const Generation *> &found) {
  Owner best;
  unsigned most = 0;
  for (const Generation *one : found) {
    const Generation &each = *one;
    if (file.size() != each.files[0].size() || each.stripe_count() == 0) continue;
    for (unsigned i = 0; i < each.files.size(); ++i) {
      unsigned votes = 0;
      for (const std::uint64_t block : std::set{std::uint64_t{0}, each.stripe_count() / 2, each.stripe_count() - 1})
        votes += std::string_view(file).substr(each.offset(block), each.bytes(block)) == each.block(i, block);
      if (votes == 0 || votes < most || (votes == most && best.of->id <= each.id)) continue;
      most = votes;
      best = {&each, i, false, false};
    }
  }
  return best;
}

class World {
 public:
  // A temporary with a record is a shard. It counts if a shard of its set has a name.
  World(const Tree &tree, const Generations &all) {
    build(tree, all);
    for (const unsigned number : counting_)
      for (const Generation &each : all)
        if (states_.at(number).has_enough_shards() && states_.at(number).of->replaced.contains(each.id_bytes()))
          replaced_.insert(each.number);
  }

  const State &state(const Generation &of) const { return states_.at(of.number); }
  // The newest that counts, was not replaced and can be decoded: the one that decode must find.
  const Generation *expected() const {
    for (auto each = states_.rbegin(); each != states_.rend(); ++each)
      if (each->first != 0 && counts(each->first) && each->second.is_decodable()) return each->second.of;
    return nullptr;
  }
  // One that replaced it, with too few shards.
  bool has_lost_successor(const Generation &of) const {
    return std::any_of(states_.begin(), states_.end(), [&](const auto &each) {
      return counts(each.first) && each.second.of->replaced.contains(of.id_bytes());
    });
  }
  const Generation *newest() const {
    return counting_.empty() || *counting_.rbegin() == 0 ? nullptr : states_.at(*counting_.rbegin()).of;
  }
  const File *file(const std::string &path) const {
    for (const auto &[number, state] : states_)
      for (const File &file : state.files)
        if (file.path == path) return &file;
    return nullptr;
  }
  unsigned sets_with_enough_shards() const {
    return static_cast<unsigned>(std::count_if(states_.begin(), states_.end(), [this](const auto &each) {
      return each.second.of != nullptr && !each.second.files.empty() && each.second.has_enough_shards() &&
             !replaced_.contains(each.first);
    }));
  }

 private:
  bool counts(unsigned number) const { return counting_.contains(number) && !replaced_.contains(number); }

  void build(const Tree &tree, const Generations &all) {
    std::vector<std::pair<std::string, const Bytes *>> headless;
    std::map<std::string, Owner> owned;
    std::map<unsigned, const Generation *> chosen;
    for (const Generation &each : all)
      if (states_[each.number].of == nullptr) states_[each.number].of = &each;
    std::set<unsigned> named;  // with a file that has its name
    for (const auto &[path, bytes] : tree) {
      if (!bytes || name_in(path)[0] == '.') continue;
      if (const Owner owner = owner_by_records(*bytes, all); owner.of != nullptr) {
        owned[path] = owner;
        named.insert(owner.of->number);
      } else {
        headless.emplace_back(path, &*bytes);
      }
    }
    counting_ = named;
    for (const Generation &each : all)
      for (unsigned i = 0; i < each.files.size() && named.contains(each.number); ++i)
        for (const auto &[path, bytes] : tree)
          if (name_in(path) == each.temporary(i))
            if (const Owner owner = owner_by_records(*bytes, all); owner.of != nullptr) owned[path] = owner;
    std::vector<const Generation *> found;
    std::vector<Owner> by_m;
    for (const auto &[path, owner] : owned) by_m.push_back(owner);
    std::stable_sort(by_m.begin(), by_m.end(), [](const Owner &a, const Owner &b) { return a.of->m < b.of->m; });
    for (const Owner &owner : by_m) {
      const Generation *&of = chosen[owner.of->number];
      if (of == nullptr || owner.index >= of->k + of->m) of = owner.of;
    }
    for (const auto &[number, of] : chosen) {
      states_[number].of = of;
      found.push_back(of);
    }
    for (const auto &[path, owner] : owned) add(path, *tree.at(path), owner);
    for (const auto &[path, bytes] : headless) add(path, *bytes, owner_by_blocks(*bytes, found));
  }

  void add(const std::string &path, const Bytes &bytes, const Owner &owner) {
    if (owner.of == nullptr) return;
    const Generation &of = *states_.at(owner.of->number).of;
    const bool length = bytes.size() == of.files[0].size();
    File file{path, &of, owner.index, 0, {}, owner.of->m};
    if (!owner.start) file.condition |= TANDEM_FILES_START_DAMAGED;
    if (!owner.end) file.condition |= TANDEM_FILES_END_DAMAGED;
    if (!length) file.condition |= TANDEM_FILES_WRONG_LENGTH;
    if (owner.of != &of) file.condition |= TANDEM_FILES_OTHER_M;
    for (std::uint64_t block = 0; block < of.stripe_count(); ++block) {
      const auto is_at = [&](std::size_t at) {
        return at < bytes.size() && std::string_view(bytes).substr(at, of.bytes(block)) == of.block(owner.index, block);
      };
      const std::size_t from_end = bytes.size() - of.files[0].size() + of.offset(block);  // wraps if it is cut off
      file.good.push_back(((owner.start || !owner.end) && is_at(of.offset(block))) || (owner.end && is_at(from_end)));
    }
    states_.at(of.number).files.push_back(std::move(file));
  }

  std::map<unsigned, State> states_;
  std::set<unsigned> counting_, replaced_;
};

}  // namespace model
