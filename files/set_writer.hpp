// SPDX-License-Identifier: Apache-2.0
// Writes a set, in one process or a team: codes stripes, puts checksums behind their blocks, and commits. Encode and
// the writer of files.h are built on it.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/coder.hpp"
#include "files/handles.hpp"
#include "files/new_set.hpp"
#include "files/team.hpp"
#include "files/written_stripes.hpp"
#include "tandem/files.h"

namespace tandem::files {

class SetWriter {
 public:
  // Checks the options and opens nothing. Keeps no pointer into them except the callbacks.
  //   content_bytes     TANDEM_FILES_UNKNOWN_BYTES: see commit()
  //   mode              of the source; options.mode has priority
  //   check_cancelled   throws; called while a call waits
  SetWriter(tandem_context *context, const tandem_files_encode_options &options, std::uint64_t content_bytes,
            std::uint32_t mode, std::function<void()> check_cancelled);

  const SetHeader &header() const { return header_; }
  const Team &team() const { return team_; }

  // Checks the folders as far as possible without writing to them. Throws as begin() would.
  void check_folders();
  // Called by all processes of the team, as commit(). Process 0 makes the records and the files, the others open them.
  void begin();

  // Pads the data payloads of stripes in `buffers`, first .. , with content_bytes in all; returns their hashes. Any
  // thread.
  std::vector<Hash128> hash_data(std::uint64_t first, std::uint64_t content_bytes, const BatchBuffers &buffers) const;
  // Encodes such stripes and writes their blocks. Any thread. piece_bytes: see workers.hpp.
  void write_stripes(std::uint64_t first, std::uint64_t content_bytes, std::span<const Hash128> hashes,
                     const BatchBuffers &buffers, std::uint64_t piece_bytes);
  // The stripes that the digest has. Any thread.
  WrittenStripes &written() { return written_; }

  // The functions of files.h.
  void write_range(std::uint64_t first_stripe, std::uint64_t stripe_count, std::span<const std::byte> content);
  void commit_ranges();

  // Syncs everything, then writes and syncs the records, then renames. Processes that do not lead sync their part.
  //   content_bytes   of the set, if it was unknown before
  //   check_source    throws if the content changed
  void commit(std::uint64_t content_bytes, const std::function<void()> &check_source);

  tandem_files_result result() const;

 private:
  void hash_payloads(std::uint64_t stripe, std::uint64_t content_bytes, const ShardBuffers &buffers,
                     std::span<Hash128> hashes_out) const;
  void write_blocks(std::uint64_t stripe, std::uint64_t payload_bytes, std::span<const Hash128> hashes,
                    const ShardBuffers &buffers);
  void check_open() const;
  void write_records(std::uint32_t shard);
  void finish_files(const std::function<void()> &check_source);
  void let_go(std::vector<Descriptor> replaced) const;

  using Clock = std::chrono::steady_clock;

  tandem_context *context_;
  Team team_;
  SetHeader header_;
  OwnedCodec codec_;
  bool any_k_suffice_ = false;
  NewSet::Options options_;
  std::vector<std::string> folders_;  // by shard
  std::uint32_t thread_count_;
  tandem_files_progress progress_;
  void *progress_user_;
  bool is_stream_;
  const char *over_ = nullptr;  // why nothing more can be written
  std::optional<NewSet> files_;
  WrittenStripes written_;
  SpareBuffers spare_buffers_;  // of write_range
  Coder coder_;
  std::atomic<std::uint64_t> content_bytes_{0}, written_bytes_{0};
  Clock::time_point began_ = Clock::now();
};

}  // namespace tandem::files
