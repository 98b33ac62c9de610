// SPDX-License-Identifier: Apache-2.0
// The steps of a repair: plan which files are mended or written anew, write them, and give new files their names
// (repair.cpp). With several processes each writes blocks of its own; process 0 does the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/pending_file.hpp"
#include "files/placement.hpp"
#include "files/recoverable.hpp"
#include "files/stripe_source.hpp"
#include "files/verify.hpp"

namespace tandem::files {

// A shard file that is mended in place, or written anew.
struct Target {
  explicit Target(std::size_t most_ranges) : written(most_ranges) {}

  std::size_t file = kNoFile;   // place in FoundSet::files
  std::size_t moved = kNoFile;  // the same: a file that goes when this one, in another folder, is complete
  std::uint32_t shard = 0;
  std::int32_t action = TANDEM_FILES_REBUILD;
  Place place;
  Descriptor opened;                   // mend; a resize opens one after the other
  std::shared_ptr<Folder> folder;      // rebuild
  std::optional<PendingFile> pending;  // rebuild
  Ranges written;                      // blocks
  std::uint64_t left_count = 0;        // bad blocks that were not written
  std::string failure;
  std::uint32_t failed_process = 0;  // the process that failed, or that would fail next
  std::uint64_t written_count = 0;   // blocks, of all processes; set when everything is done

  int descriptor() const { return pending ? pending->descriptor() : opened.get(); }
  std::string path() const { return place.folder + "/" + place.name; }
};

// The strings of an option; none if it is NULL.
std::vector<std::string> strings_of(const char *const *list, std::size_t count, const char *name);

// What the steps share. The first five are given.
struct RepairTask {
  tandem_context *const context;
  const Search &search;
  const FoundSet &set;
  const tandem_files_repair_options &options;
  const Team &team;

  const SetHeader &header = set.header;
  const std::vector<std::string> folders = strings_of(options.folders, options.folder_count, "folders");
  const std::vector<std::string> new_folders = strings_of(options.new_folders, options.new_folder_count, "new_folders");
  base::Timeline *const timeline = base::timeline_of(context);  // null: none is asked for
  Recoverability recoverability{context, header};
  StripeSource source{context, recoverability.codec(), set};
  Findings findings = Findings();
  std::vector<Target> targets{};
  std::size_t crowded_count = 0;  // folders, when all targets are written
  std::mutex mutex{};             // the counters, and of targets: written, left_count, failure
  std::uint64_t read_bytes = 0, written_bytes = 0;

  std::size_t most_ranges() const { return share_of_ranges(set.files.size() + header.shard_count()); }
  template <class... Parts>
  void note(const Parts &...parts) const {
    if (options.note != nullptr) options.note(options.note_user, base::text(parts...).c_str());
  }
  // A failure of one file does not stop the repair of the others.
  template <class Step>
  static void attempt(Target &target, Step step) {
    if (!target.failure.empty()) return;
    try {
      step(target);
    } catch (const Error &error) {
      if (error.status() != TANDEM_ERROR_IO) throw;
      target.failure = error.what();
    }
  }
  template <class Step>
  void attempt_each(Step step) {
    for (Target &target : targets) attempt(target, step);
  }
};

// ---- plan (repair_plan.cpp) ----

// Fills in task.targets from its findings, and opens files that are mended in place.
void plan_repair(RepairTask &task);
// The same for a set with the header and the conditions that resize gives it. A file that cannot be written to is
// refused.
void plan_resize(RepairTask &task);
// False if the file must be written anew: it has another length, cannot be written to, or was replaced since the
// search.
bool open_in_place(const ShardFile &shard, Descriptor *file_out);

// ---- write (repair_write.cpp) ----

void write_blocks(RepairTask &task);
void write_new_records(RepairTask &task);  // of files that are written anew
void sync_targets(RepairTask &task);       // also drops them from memory, so that they are read back from the disk
void read_back(RepairTask &task);          // and compares with the checksums
// Writes the records of files that are mended. Each record is synced before the next is written. So each file has an
// intact record if the power fails, and at most one file is in danger.
void mend_records(RepairTask &task);

// ---- all of it (repair.cpp) ----

void check_placement(const tandem_files_repair_options &options);  // throws INVALID_ARGUMENT
LockWait lock_wait(const tandem_files_repair_options &options);    // for all folders from now on

// Called by all processes of the team. Process 0 has planned. lock_all: given by resize; called before a file gets its
// name or a new record. Then a failure of one file ends the call before the next step.
void write_targets(RepairTask &task, const std::function<void()> &lock_all = {});
// What was done, for the report and the result. Throws if a target has failed.
tandem_files_repair_result tell(RepairTask &task);
// For inspect.
tandem_files_verify_options reading_options(const tandem_files_repair_options &options);

}  // namespace tandem::files
