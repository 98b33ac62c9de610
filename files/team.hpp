// The processes that do one call together (tandem_files_team), or this process alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "files/ranges.hpp"
#include "tandem/files.h"

namespace tandem::files {

// What one process tells another of the same program: numbers and texts, one after the other.
class Words {
 public:
  Words() = default;
  explicit Words(std::string_view bytes) : bytes_(bytes) {}

  void put(std::uint64_t number);
  void put(std::string_view text);
  void put(const Ranges &ranges);
  std::uint64_t number();    // throws INTERNAL where there is none
  std::string text();        // the same
  void add_to(Ranges &all);  // those that were put
  const std::string &bytes() const { return bytes_; }

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

  // By all processes, as all below. Runs `body`, which calls no function of this class. If it throws in any of them,
  // all throw what the first of those threw.
  void together(const std::function<void()> &body) const;
  // Process 0 hears what each process has to tell, in their order.
  void gather(const Words &mine, const std::function<void(std::uint32_t process, Words &theirs)> &hear) const;
  // What process 0 has to tell.
  Words broadcast(const Words &of_process_0) const;

 private:
  tandem_files_team team_ = {};
};

struct Part {
  std::uint64_t first, count;
};
// Of `total` numbers, part `index` of `count` that are as equal as can be.
inline Part part_of(std::uint64_t total, std::uint64_t index, std::uint64_t count) {
  const std::uint64_t each = total / count, more = total % count;
  return {index * each + std::min(index, more), each + (index < more ? 1 : 0)};
}

}  // namespace tandem::files
