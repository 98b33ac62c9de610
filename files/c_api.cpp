// extern "C" of files.h: structs that travel with their size, and exceptions turned into status codes.
#include <fmt/format.h>

#include <cstring>
#include <new>

#include "base/gate.hpp"
#include "files/decode.hpp"
#include "files/encode.hpp"
#include "files/error.hpp"
#include "files/recovery.hpp"
#include "files/repair.hpp"
#include "files/search.hpp"
#include "files/verify.hpp"
#include "tandem/files.h"

struct tandem_files_search {
  tandem::files::Search found;
};

namespace tandem::files {
namespace {

using base::guarded;

// Whoever only reads can do so without cleaning up.
constexpr std::uint32_t kRecoverLockSeconds = 2;
constexpr std::size_t kMostStructBytes = 65536;  // anything larger is an uninitialised size

template <class Struct>
std::size_t size_of(const Struct *given, const char *name) {
  if (given == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} is NULL", name));
  std::size_t bytes = 0;
  std::memcpy(&bytes, given, sizeof bytes);
  if (bytes <= sizeof bytes || bytes > kMostStructBytes) {
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         fmt::format("{0}.struct_bytes is {1}; set it to sizeof({0}), {2}", name, bytes, sizeof(Struct)));
  }
  return bytes;
}

template <class Options>
Options read_options(const Options *given, const char *name) {
  const std::size_t bytes = size_of(given, name);
  const auto *raw = reinterpret_cast<const unsigned char *>(given);
  for (std::size_t i = sizeof(Options); i < bytes; ++i)
    if (raw[i] != 0)
      fail(TANDEM_ERROR_UNSUPPORTED, fmt::format("{}: byte {} belongs to an option newer than this library", name, i));
  Options ours = {};
  std::memcpy(&ours, given, std::min(bytes, sizeof ours));
  return ours;
}

template <class Result>
void write_result(const Result &ours, Result *given, std::size_t given_bytes) {
  std::memcpy(reinterpret_cast<char *>(given) + sizeof given_bytes,
              reinterpret_cast<const char *>(&ours) + sizeof given_bytes,
              std::min(given_bytes, sizeof ours) - sizeof given_bytes);
}

void require(const void *pointer, const char *name) {
  if (pointer == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} is NULL", name));
}

std::vector<std::string> read_paths(const char *const *paths, std::size_t path_count) {
  if (path_count == 0) fail(TANDEM_ERROR_INVALID_ARGUMENT, "no path is given");
  require(paths, "paths");
  std::vector<std::string> list;
  for (std::size_t i = 0; i < path_count; ++i) {
    require(paths[i], "a path");
    list.emplace_back(paths[i]);
  }
  return list;
}

template <class Struct>
void describe(const SetHeader &set, Struct *out) {
  const auto digest = printed_order(set.digest);
  std::memcpy(out->set_id, set.set_id.data(), set.set_id.size());
  std::memcpy(out->digest, digest.data(), digest.size());
  out->k = set.k;
  out->m = set.m;
  out->matrix = set.matrix;
  out->block_bytes = set.block_bytes;
  out->content_bytes = set.content_bytes;
  out->stripe_count = set.stripe_count();
}

tandem_files_result result_of(const Outcome &outcome) {
  tandem_files_result result = {};
  describe(outcome.set, &result);
  result.read_bytes = outcome.read_bytes;
  result.written_bytes = outcome.written_bytes;
  result.bad_block_count = outcome.bad_block_count;
  result.rebuilt_block_count = outcome.rebuilt_block_count;
  result.shards_read = outcome.shards_read;
  result.thread_count = outcome.thread_count;
  result.seconds = outcome.seconds;
  result.coding_seconds = outcome.coding_seconds;
  return result;
}

const ShardSet &set_at(const tandem_files_search *search, std::size_t index) {
  require(search, "search");
  if (index >= search->found.sets.size())
    fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("set {} of {}", index, search->found.sets.size()));
  return search->found.sets[index];
}

}  // namespace
}  // namespace tandem::files

using namespace tandem::files;

extern "C" {

tandem_status tandem_files_encode(tandem_context *context, const tandem_files_encode_options *options,
                                  tandem_files_result *result_out) {
  return guarded([&] {
    require(context, "context");
    const tandem_files_encode_options ours = read_options(options, "tandem_files_encode_options");
    const std::size_t bytes = result_out != nullptr ? size_of(result_out, "tandem_files_result") : 0;
    const Outcome outcome = encode(context, ours);
    if (result_out != nullptr) write_result(result_of(outcome), result_out, bytes);
  });
}

tandem_status tandem_files_search_create(const char *const *paths, size_t path_count,
                                         tandem_files_search **search_out) {
  return guarded([&] {
    require(search_out, "search_out");
    *search_out = new tandem_files_search{search(read_paths(paths, path_count))};
  });
}

void tandem_files_search_destroy(tandem_files_search *search) { delete search; }

size_t tandem_files_search_set_count(const tandem_files_search *search) {
  return search != nullptr ? search->found.sets.size() : 0;
}

size_t tandem_files_search_ignored_count(const tandem_files_search *search) {
  return search != nullptr ? search->found.ignored.size() : 0;
}

tandem_status tandem_files_search_set(const tandem_files_search *search, size_t set_index, tandem_files_set *set_out) {
  return guarded([&] {
    const ShardSet &set = set_at(search, set_index);
    const std::size_t bytes = size_of(set_out, "tandem_files_set");
    tandem_files_set ours = {};
    describe(set.header, &ours);
    ours.shard_file_bytes = set.header.shard_file_bytes();
    ours.mode = set.header.mode;
    ours.shard_count = set.shard_count;
    ours.file_count = set.files.size();
    write_result(ours, set_out, bytes);
  });
}

tandem_status tandem_files_search_shard(const tandem_files_search *search, size_t set_index, size_t file_index,
                                        tandem_files_shard *shard_out) {
  return guarded([&] {
    const ShardSet &set = set_at(search, set_index);
    const std::size_t bytes = size_of(shard_out, "tandem_files_shard");
    if (file_index >= set.files.size())
      fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("shard file {} of {}", file_index, set.files.size()));
    const ShardFile &file = set.files[file_index];
    tandem_files_shard ours = {};
    ours.path = file.path.c_str();
    ours.index = file.index;
    ours.condition = file.condition;
    ours.file_bytes = file.file_bytes;
    write_result(ours, shard_out, bytes);
  });
}

tandem_status tandem_files_search_ignored(const tandem_files_search *search, size_t index, const char **ignored_out) {
  return guarded([&] {
    require(search, "search");
    require(ignored_out, "ignored_out");
    if (index >= search->found.ignored.size())
      fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("ignored file {} of {}", index, search->found.ignored.size()));
    *ignored_out = search->found.ignored[index].c_str();
  });
}

tandem_status tandem_files_search_choose(const tandem_files_search *search, const char *set_id_prefix,
                                         size_t *set_index_out) {
  return guarded([&] {
    require(search, "search");
    require(set_index_out, "set_index_out");
    *set_index_out = search->found.choose(set_id_prefix != nullptr ? set_id_prefix : "");
  });
}

tandem_status tandem_files_decode(tandem_context *context, const tandem_files_search *search,
                                  const tandem_files_decode_options *options, tandem_files_result *result_out) {
  return guarded([&] {
    require(context, "context");
    require(search, "search");
    const tandem_files_decode_options ours = read_options(options, "tandem_files_decode_options");
    const std::size_t bytes = result_out != nullptr ? size_of(result_out, "tandem_files_result") : 0;
    const Outcome outcome = decode(context, search->found, ours);
    if (result_out != nullptr) write_result(result_of(outcome), result_out, bytes);
  });
}

tandem_status tandem_files_verify(tandem_context *context, const tandem_files_search *search,
                                  const tandem_files_verify_options *options, tandem_files_verify_result *result_out) {
  return guarded([&] {
    require(context, "context");
    require(search, "search");
    const tandem_files_verify_options ours = read_options(options, "tandem_files_verify_options");
    const std::size_t bytes = size_of(result_out, "tandem_files_verify_result");
    write_result(verify(context, search->found, ours), result_out, bytes);
  });
}

tandem_status tandem_files_repair(tandem_context *context, const tandem_files_search *search,
                                  const tandem_files_repair_options *options, tandem_files_repair_result *result_out) {
  return guarded([&] {
    require(context, "context");
    require(search, "search");
    const tandem_files_repair_options ours = read_options(options, "tandem_files_repair_options");
    const std::size_t bytes = size_of(result_out, "tandem_files_repair_result");
    write_result(repair(context, search->found, ours), result_out, bytes);
  });
}

tandem_status tandem_files_recover(const char *const *paths, size_t path_count,
                                   const tandem_files_recover_options *options,
                                   tandem_files_recover_result *result_out) {
  return guarded([&] {
    const std::vector<std::string> list = read_paths(paths, path_count);
    tandem_files_recover_options ours = {};
    if (options != nullptr) ours = read_options(options, "tandem_files_recover_options");
    const std::size_t bytes = result_out != nullptr ? size_of(result_out, "tandem_files_recover_result") : 0;
    const LockWait wait{.seconds = ours.lock_wait_seconds != 0 ? ours.lock_wait_seconds : kRecoverLockSeconds};
    const Recovered recovered = recover(list, ours.dry_run != 0, wait);
    if (ours.note != nullptr)
      for (const std::string &note : recovered.notes) ours.note(ours.note_user, note.c_str());
    tandem_files_recover_result result = {};
    result.finished_set_count = recovered.finished_set_count;
    result.removed_set_count = recovered.removed_set_count;
    result.removed_file_count = recovered.removed_file_count;
    result.left_count = recovered.left_count;
    if (result_out != nullptr) write_result(result, result_out, bytes);
  });
}

}  // extern "C"
