// SPDX-License-Identifier: Apache-2.0
// results.hpp - a table {name, member, unit} for each result of files.h, in the order of the command's JSON.
#pragma once

#include <tuple>
#include "tandem/files.h"

namespace tandem::results {

enum class Unit {
  plain,   // a number
  sum,     // a number that is added up over sets or MPI ranks
  id,      // 16 bytes
  matrix,  // enum tandem_matrix_value
  mode,    // permission bits; UINT32_MAX: unknown
  flag,    // 0: false
  state    // enum tandem_files_state_value
};

template <class Member>
struct Row {
  const char *name;
  Member member;
  Unit unit;
  bool is_everywhere;  // false: JSON has it under another name, or not always
};

template <class Member>
constexpr Row<Member> row(const char *name, Member member, Unit unit = Unit::plain, bool is_everywhere = true) {
  return {name, member, unit, is_everywhere};
}

constexpr auto table(const tandem_files_result &) {
  using Of = tandem_files_result;
  return std::tuple(row("set_id", &Of::set_id, Unit::id), row("digest", &Of::digest, Unit::id), row("k", &Of::k),
                    row("m", &Of::m), row("matrix", &Of::matrix, Unit::matrix), row("block_bytes", &Of::block_bytes),
                    row("content_bytes", &Of::content_bytes), row("stripe_count", &Of::stripe_count),
                    row("read_bytes", &Of::read_bytes, Unit::sum), row("written_bytes", &Of::written_bytes, Unit::sum),
                    row("seconds", &Of::seconds), row("coding_seconds", &Of::coding_seconds, Unit::sum, false),
                    row("threads", &Of::thread_count, Unit::sum, false),
                    row("shards_read", &Of::shards_read, Unit::plain, false),
                    row("rebuilt_block_count", &Of::rebuilt_block_count, Unit::sum, false),
                    row("bad_block_count", &Of::bad_block_count, Unit::sum, false));
}

constexpr auto table(const tandem_files_set &) {
  using Of = tandem_files_set;
  return std::tuple(row("set_id", &Of::set_id, Unit::id), row("digest", &Of::digest, Unit::id), row("k", &Of::k),
                    row("m", &Of::m), row("matrix", &Of::matrix, Unit::matrix), row("block_bytes", &Of::block_bytes),
                    row("content_bytes", &Of::content_bytes), row("stripe_count", &Of::stripe_count),
                    row("shard_file_bytes", &Of::shard_file_bytes), row("mode", &Of::mode, Unit::mode),
                    row("shard_count", &Of::shard_count), row("any_k_suffice", &Of::any_k_suffice, Unit::flag),
                    row("shards_suffice", &Of::shards_suffice, Unit::flag, false),
                    row("replaced_by", &Of::replaced_by, Unit::id));
}

constexpr auto table(const tandem_files_verify_result &) {
  using Of = tandem_files_verify_result;
  return std::tuple(row("state", &Of::state, Unit::state),
                    row("missing_shard_count", &Of::missing_shard_count, Unit::sum, false),
                    row("damaged_file_count", &Of::damaged_file_count, Unit::sum),
                    row("bad_block_count", &Of::bad_block_count, Unit::sum),
                    row("worst_bad_count", &Of::worst_bad_count), row("lost_stripe_count", &Of::lost_stripe_count),
                    row("crowded_folder_count", &Of::crowded_folder_count, Unit::sum),
                    row("read_bytes", &Of::read_bytes, Unit::sum), row("seconds", &Of::seconds, Unit::sum));
}

constexpr auto table(const tandem_files_repair_result &) {
  using Of = tandem_files_repair_result;
  return std::tuple(row("state", &Of::state, Unit::state), row("mended_file_count", &Of::mended_file_count, Unit::sum),
                    row("mended_block_count", &Of::mended_block_count),
                    row("rebuilt_file_count", &Of::rebuilt_file_count, Unit::sum),
                    row("moved_file_count", &Of::moved_file_count, Unit::sum),
                    row("crowded_folder_count", &Of::crowded_folder_count, Unit::sum),
                    row("removed_file_count", &Of::removed_file_count), row("left_block_count", &Of::left_block_count),
                    row("left_shard_count", &Of::left_shard_count), row("lost_stripe_count", &Of::lost_stripe_count),
                    row("read_bytes", &Of::read_bytes, Unit::sum), row("written_bytes", &Of::written_bytes, Unit::sum),
                    row("seconds", &Of::seconds, Unit::sum));
}

// Calls use(row) for each row of a struct's table, in order.
template <class Struct, class Use>
void each_row(const Struct &value, const Use &use) {
  std::apply([&](const auto &...rows) { (use(rows), ...); }, table(value));
}

}  // namespace tandem::results
