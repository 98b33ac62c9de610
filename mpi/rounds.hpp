// SPDX-License-Identifier: Apache-2.0
// The division of a set's stripes into rounds, and of each round into parts, one for each rank. So rank 0 learns the
// hashes of stripes in order, and a round's parts are contiguous in the source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "mpi/world.hpp"
#include "tandem/mpi.h"

namespace tandem::mpi {

struct Part {
  std::uint64_t first = 0, count = 0;  // stripes
};

class Rounds {
 public:
  Rounds(const tandem_files_set &set, int rank_count);

  std::uint64_t count() const { return round_count_; }
  Part part(std::uint64_t round, int rank) const;
  std::uint64_t first_byte(std::uint64_t round) const;
  std::uint64_t first_byte(const Part &part) const { return part.first * stripe_bytes_; }
  std::size_t byte_count(const Part &part) const;         // of the content
  std::size_t hash_bytes(const Part &part) const;         // of its data blocks
  std::size_t most_bytes() const { return most_bytes_; }  // of a part
  // As hash_bytes, of each rank's part.
  std::vector<std::size_t> hash_bytes_of(std::uint64_t round) const;

 private:
  std::uint64_t stripe_bytes_, content_bytes_, stripe_count_, round_count_ = 0;
  std::uint32_t k_;
  std::size_t most_bytes_ = 0;
  int rank_count_;
};

// Calls the caller's progress with the content of all ranks.
class Progress {
 public:
  Progress(tandem_files_progress call, void *user, int rank_count, std::uint64_t total_bytes)
      : call_(call), user_(user), rank_count_(static_cast<std::uint64_t>(rank_count)), total_bytes_(total_bytes) {}

  void begin_round(const Rounds &rounds, std::uint64_t round);
  void check_cancelled();  // throws
  tandem_files_progress callback() const { return call_ != nullptr ? hear : nullptr; }

 private:
  static std::int32_t hear(void *user, std::uint64_t done_bytes, std::uint64_t);

  tandem_files_progress call_;
  void *user_;
  std::uint64_t rank_count_, total_bytes_, base_bytes_ = 0, round_bytes_ = 0, told_bytes_ = 0;
};

struct Destroy {
  void operator()(tandem_files_writer *writer) const noexcept { tandem_files_writer_destroy(writer); }
  void operator()(tandem_files_reader *reader) const noexcept { tandem_files_reader_destroy(reader); }
  void operator()(tandem_files_search *search) const noexcept { tandem_files_search_destroy(search); }
};

// The total of all ranks, from each rank's work.
tandem_files_result add_up(const World &world, tandem_files_result of_rank_0, const tandem_files_result &mine);
tandem_mpi_work work_of(const World &world, std::uint64_t read_bytes);
// Collective.
std::uint32_t count_nodes(const World &world);

}  // namespace tandem::mpi
