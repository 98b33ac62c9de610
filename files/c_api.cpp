// SPDX-License-Identifier: Apache-2.0
// extern "C" of files.h.

#include <memory>

#include "base/gate.hpp"
#include "base/options.hpp"
#include "base/text.hpp"
#include "files/calls.hpp"
#include "files/range_reader.hpp"
#include "files/recoverable.hpp"
#include "files/search.hpp"
#include "files/set_writer.hpp"
#include "files/unfinished.hpp"
#include "files/verify.hpp"
#include "tandem/files.h"

struct tandem_files_search {
  tandem::files::Search found;
};

struct tandem_files_writer {
  tandem::files::SetWriter set;
};

struct tandem_files_reader {
  tandem::files::RangeReader range;
};

namespace tandem::files {
namespace {

using base::check_result;
using base::guarded;
using base::read_needed_options;
using base::write_result;

// Calls that only read work without cleaning up.
constexpr std::uint32_t kRecoverLockSeconds = 2;

void require(const void *pointer, const char *name) {
  if (pointer == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, name, " is NULL");
}

// Reads the options, refuses a result of a wrong size before the work, runs the call, and writes the result.
template <class Options, class Result, class Call>
void run(const Options *options, const char *options_name, Result *result_out, const char *result_name,
         const Call &call) {
  const Options ours = read_needed_options(options, options_name);
  check_result(result_out, result_name);
  write_result(call(ours), result_out, result_name);
}

// tandem_files_repair and tandem_files_resize.
template <class Call>
tandem_status run_repair(const tandem_files_search *search, const tandem_files_repair_options *options,
                         tandem_files_repair_result *result_out, const Call &call) {
  constexpr const char *kResult = "tandem_files_repair_result";
  return guarded({{"search", search}, {kResult, result_out}},
                 [&] { run(options, "tandem_files_repair_options", result_out, kResult, call); });
}

std::vector<std::string> read_paths(const char *const *paths, std::size_t path_count) {
  if (path_count == 0) fail(TANDEM_ERROR_INVALID_ARGUMENT, "no path is given");
  const std::vector<std::string_view> list = base::read_strings(paths, path_count, "paths");
  return {list.begin(), list.end()};
}

tandem_files_set set_of(const SetHeader &header) {
  auto set = description_of<tandem_files_set>(header, any_k_suffice(header));
  set.shard_file_bytes = header.shard_file_bytes();
  set.mode = header.mode;
  set.name = header.name.c_str();
  return set;
}

const FoundSet &set_at(const tandem_files_search *search, std::size_t index) {
  if (index >= search->found.sets.size())
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "set ", index, " of ", search->found.sets.size());
  return search->found.sets[index];
}

std::unique_ptr<tandem_files_writer> new_writer(tandem_context *context, const tandem_files_encode_options &options,
                                                std::uint64_t content_bytes) {
  if (options.source_path != nullptr || options.source_descriptor != 0 || options.dry_run != 0)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "a writer has no source and no dry_run: its content comes by calls");
  require(options.name, "name");
  if (content_bytes > kMaxContentBytes)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "the content has ", content_bytes, " bytes; at most ", kMaxContentBytes,
         " are possible");
  const auto check_cancelled = [progress = options.progress, user = options.progress_user] {
    if (progress != nullptr && progress(user, 0, 0) != 0) fail(TANDEM_ERROR_CANCELLED, "cancelled");
  };
  return std::unique_ptr<tandem_files_writer>(
      new tandem_files_writer{{context, options, content_bytes, kModeUnknown, check_cancelled}});
}

}  // namespace
}  // namespace tandem::files

using namespace tandem::files;

extern "C" {

tandem_status tandem_files_encode(tandem_context *context, const tandem_files_encode_options *options,
                                  tandem_files_result *result_out) {
  return guarded([&] {
    run(options, "tandem_files_encode_options", result_out, "tandem_files_result",
        [&](const auto &ours) { return encode(context, ours); });
  });
}

tandem_status tandem_files_search_create(const char *const *paths, size_t path_count,
                                         tandem_files_search **search_out) {
  return guarded({{"search_out", search_out}},
                 [&] { *search_out = new tandem_files_search{search(read_paths(paths, path_count))}; });
}

void tandem_files_search_destroy(tandem_files_search *search) { delete search; }

size_t tandem_files_search_set_count(const tandem_files_search *search) {
  return search != nullptr ? search->found.sets.size() : 0;
}

tandem_status tandem_files_search_set(const tandem_files_search *search, size_t set_index, tandem_files_set *set_out) {
  return guarded({{"search", search}, {"tandem_files_set", set_out}}, [&] {
    const FoundSet &set = set_at(search, set_index);
    tandem_files_set ours = set_of(set.header);
    ours.shard_count = set.shard_count;
    ours.file_count = set.files.size();
    ours.shards_suffice = has_enough_shards(set) ? 1 : 0;
    std::ranges::copy(set.replaced_by, ours.replaced_by);
    ours.name = set.name.c_str();
    write_result(ours, set_out, "tandem_files_set");
  });
}

tandem_status tandem_files_search_shard(const tandem_files_search *search, size_t set_index, size_t file_index,
                                        tandem_files_shard *shard_out) {
  return guarded({{"search", search}, {"tandem_files_shard", shard_out}}, [&] {
    const FoundSet &set = set_at(search, set_index);
    if (file_index >= set.files.size())
      fail(TANDEM_ERROR_INVALID_ARGUMENT, tandem::base::text("shard file ", file_index, " of ", set.files.size()));
    const ShardFile &file = set.files[file_index];
    tandem_files_shard ours = {};
    ours.path = file.path.c_str();
    ours.index = file.index;
    ours.condition = file.condition;
    ours.file_bytes = file.file_bytes;
    write_result(ours, shard_out, "tandem_files_shard");
  });
}

const char *tandem_files_search_left_out(const tandem_files_search *search, int32_t reason, size_t index) {
  if (search == nullptr || (reason != TANDEM_FILES_IGNORED && reason != TANDEM_FILES_UNREAD)) return nullptr;
  const std::vector<std::string> &list = reason == TANDEM_FILES_IGNORED ? search->found.ignored : search->found.unread;
  return index < list.size() ? list[index].c_str() : nullptr;
}

tandem_status tandem_files_search_check(const tandem_files_search *search) {
  return guarded({{"search", search}}, [&] { check_current(search->found); });
}

tandem_status tandem_files_search_choose(const tandem_files_search *search, const char *set_id_prefix, const char *name,
                                         size_t *set_index_out) {
  return guarded({{"search", search}, {"set_index_out", set_index_out}}, [&] {
    *set_index_out = search->found.choose(set_id_prefix != nullptr ? set_id_prefix : "", name != nullptr ? name : "");
  });
}

tandem_status tandem_files_decode(tandem_context *context, const tandem_files_search *search,
                                  const tandem_files_decode_options *options, tandem_files_result *result_out) {
  return guarded({{"search", search}}, [&] {
    run(options, "tandem_files_decode_options", result_out, "tandem_files_result",
        [&](const auto &ours) { return decode(context, search->found, ours); });
  });
}

tandem_status tandem_files_writer_begin(tandem_context *context, const tandem_files_encode_options *options,
                                        uint64_t content_bytes, tandem_files_set *set_out,
                                        tandem_files_writer **writer_out) {
  return guarded({{"writer_out", writer_out}}, [&] {
    check_result(set_out, "tandem_files_set");
    const tandem_files_encode_options ours = read_needed_options(options, "tandem_files_encode_options");
    const Team team(ours.team);
    std::unique_ptr<tandem_files_writer> writer;
    team.together([&] { writer = new_writer(context, ours, content_bytes); });
    writer->set.begin();
    write_result(set_of(writer->set.header()), set_out, "tandem_files_set");
    *writer_out = writer.release();
  });
}

tandem_status tandem_files_writer_write(tandem_files_writer *writer, uint64_t first_stripe, uint64_t stripe_count,
                                        const void *content, size_t content_bytes) {
  return guarded({{"writer", writer}}, [&] {
    if (content_bytes != 0) require(content, "content");
    writer->set.write_range(first_stripe, stripe_count, {static_cast<const std::byte *>(content), content_bytes});
  });
}

tandem_status tandem_files_writer_commit(tandem_files_writer *writer, tandem_files_result *result_out) {
  return guarded({{"writer", writer}}, [&] {
    check_result(result_out, "tandem_files_result");
    writer->set.commit_ranges();
    write_result(writer->set.result(), result_out, "tandem_files_result");
  });
}

void tandem_files_writer_destroy(tandem_files_writer *writer) { delete writer; }

tandem_status tandem_files_reader_create(tandem_context *context, const tandem_files_search *search,
                                         const char *set_id_prefix, tandem_files_reader **reader_out) {
  return guarded({{"search", search}, {"reader_out", reader_out}}, [&] {
    const std::size_t set = search->found.choose_to_code(set_id_prefix != nullptr ? set_id_prefix : "");
    *reader_out = new tandem_files_reader{{context, search->found.sets[set]}};
  });
}

tandem_status tandem_files_reader_read(tandem_files_reader *reader, uint64_t offset, void *content_out,
                                       size_t content_bytes) {
  return guarded({{"reader", reader}}, [&] {
    if (content_bytes != 0) require(content_out, "content_out");
    reader->range.read(offset, content_bytes, static_cast<std::byte *>(content_out));
  });
}

void tandem_files_reader_destroy(tandem_files_reader *reader) { delete reader; }

tandem_status tandem_files_verify(tandem_context *context, const tandem_files_search *search,
                                  const tandem_files_verify_options *options, tandem_files_verify_result *result_out) {
  return guarded({{"search", search}, {"tandem_files_verify_result", result_out}}, [&] {
    run(options, "tandem_files_verify_options", result_out, "tandem_files_verify_result",
        [&](const auto &ours) { return verify(context, search->found, ours); });
  });
}

tandem_status tandem_files_repair(tandem_context *context, const tandem_files_search *search,
                                  const tandem_files_repair_options *options, tandem_files_repair_result *result_out) {
  return run_repair(search, options, result_out,
                    [&](const auto &ours) { return repair(context, search->found, ours); });
}

tandem_status tandem_files_resize(tandem_context *context, const tandem_files_search *search, uint32_t m,
                                  const tandem_files_repair_options *options, tandem_files_repair_result *result_out) {
  return run_repair(search, options, result_out,
                    [&](const auto &ours) { return resize(context, search->found, m, ours); });
}

tandem_status tandem_files_recover(const char *const *paths, size_t path_count,
                                   const tandem_files_recover_options *options,
                                   tandem_files_recover_result *result_out) {
  return guarded([&] {
    const std::vector<std::string> list = read_paths(paths, path_count);
    const tandem_files_recover_options ours = tandem::base::read_options(options, "tandem_files_recover_options");
    check_result(result_out, "tandem_files_recover_result");
    const LockWait wait{.seconds = ours.lock_wait_seconds != 0 ? ours.lock_wait_seconds : kRecoverLockSeconds};
    const Recovered recovered = recover(list, ours.dry_run != 0 ? CleanUp::dry_run : CleanUp::real, wait);
    if (ours.note != nullptr)
      for (const std::string &note : recovered.notes) ours.note(ours.note_user, note.c_str());
    tandem_files_recover_result result = {};
    result.finished_set_count = recovered.finished_set_count;
    result.removed_set_count = recovered.removed_set_count;
    result.removed_file_count = recovered.removed_file_count;
    result.left_count = recovered.left_count;
    write_result(result, result_out, "tandem_files_recover_result");
  });
}

}  // extern "C"
