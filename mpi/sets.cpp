// SPDX-License-Identifier: Apache-2.0
#include "mpi/calls.hpp"

#include <chrono>
#include <memory>
#include <type_traits>

#include "base/bytes.hpp"
#include "tandem/results.hpp"

namespace tandem::mpi {
namespace {

using Clock = std::chrono::steady_clock;

const World &world_of(void *user) { return *static_cast<const World *>(user); }

tandem_status agree(void *user, tandem_status status) {
  return guarded([&] { world_of(user).together([&] { check(status); }); });
}

tandem_status gather(void *user, const void *bytes, std::size_t byte_count, tandem_files_take take, void *taker) {
  return guarded([&] {
    world_of(user).collect({static_cast<const std::byte *>(bytes), byte_count},
                           [&](int rank, std::span<const std::byte> theirs) {
                             take(taker, static_cast<std::uint32_t>(rank), theirs.data(), theirs.size());
                           });
  });
}

tandem_status broadcast(void *user, void *bytes, std::size_t byte_count) {
  return guarded([&] { world_of(user).broadcast(bytes, byte_count); });
}

// A caller's strings joined, for World::require_equal.
std::string listed(const char *const *strings, std::size_t count, const char *name) {
  if (strings == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, name, " is NULL");
  return base::join(base::read_strings(strings, count, name), ", ");
}

using Arguments = std::vector<std::pair<const char *, std::string>>;

// Runs a call of libtandem with all ranks as its team.
//   arguments(options)   checks them; the values that must be equal on all ranks
template <class Options, class Check, class Call>
void run(const World &world, const Options *given, const char *name, const Check &arguments, const Call &call) {
  Options options = {};
  Arguments equal;
  world.together([&] {
    options = read_needed_options(given, name);
    if (options.team != nullptr)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "team is set: the ranks of the communicator are the team");
    equal = arguments(options);
  });
  world.require_equal(equal);
  auto team = sized<tandem_files_team>();
  team.process = static_cast<std::uint32_t>(world.rank());
  team.process_count = static_cast<std::uint32_t>(world.size());
  team.agree = agree;
  team.gather = gather;
  team.broadcast = broadcast;
  team.user = const_cast<World *>(&world);
  options.team = &team;
  // Its ranks have agreed, and the message already names one.
  const tandem_status status = call(options);
  if (status != TANDEM_OK) fail(status, tandem_last_error_message());
}

struct DestroySearch {
  void operator()(tandem_files_search *search) const noexcept { tandem_files_search_destroy(search); }
};

// The same for a set that is searched first. `arguments`: besides the paths and the prefix. call(search, options).
template <class Options, class Check, class Call>
void run_on_set(const World &world, const char *const *paths, std::size_t path_count, const Options *given,
                const char *name, const Check &arguments, const Call &call) {
  const auto all_arguments = [&](const Options &options) {
    Arguments all = {{"paths", listed(paths, path_count, "paths")},
                     {"set_id_prefix", options.set_id_prefix != nullptr ? options.set_id_prefix : "none"}};
    for (auto &each : arguments(options)) all.push_back(std::move(each));
    return all;
  };
  run(world, given, name, all_arguments, [&](const Options &options) {
    std::unique_ptr<tandem_files_search, DestroySearch> search;
    const tandem_status searched = guarded([&] {
      world.together([&] {
        tandem_files_search *found = nullptr;
        check(tandem_files_search_create(paths, path_count, &found));
        search.reset(found);
      });
    });
    return searched != TANDEM_OK ? searched : call(search.get(), options);
  });
}

std::string flag(std::int32_t value) { return value != 0 ? "1" : "0"; }

// The sums over all ranks.
tandem_files_result add_up(const World &world, const tandem_files_result &mine, Clock::time_point began) {
  tandem_files_result all = mine;
  constexpr double kMicro = 1e6;
  results::each_row(mine, [&](const auto &row) {
    if (row.unit != results::Unit::sum) return;
    const auto &value = mine.*row.member;
    if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(value)>>)
      all.*row.member = static_cast<double>(world.sum(static_cast<std::uint64_t>(value * kMicro))) / kMicro;
    else if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(value)>>)
      all.*row.member = static_cast<std::remove_cvref_t<decltype(value)>>(world.sum(value));
  });
  all.shards_read = static_cast<std::uint32_t>(world.most(mine.shards_read));
  all.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  return all;
}

}  // namespace

tandem_files_result encode(const World &world, tandem_context *context, const tandem_files_encode_options *given) {
  const Clock::time_point began = Clock::now();
  auto result = sized<tandem_files_result>();
  run(
      world, given, "tandem_files_encode_options",
      [](const tandem_files_encode_options &options) {
        if (options.source_path == nullptr || options.source_descriptor != 0)
          fail(TANDEM_ERROR_INVALID_ARGUMENT, "ranks encode the file that source_path names, and no descriptor");
        return Arguments{{"source_path", options.source_path},
                         {"k", text(options.k)},
                         {"m", text(options.m)},
                         {"matrix", text(options.matrix)},
                         {"allow_non_mds", flag(options.allow_non_mds)},
                         {"block_bytes", text(options.block_bytes)},
                         {"folders", listed(options.folders, options.folder_count, "folders")},
                         {"name", options.name != nullptr ? options.name : "that of source_path"},
                         {"force", flag(options.force)},
                         {"no_sync", flag(options.no_sync)},
                         {"dry_run", flag(options.dry_run)},
                         {"mode", text(options.mode)},
                         {"set_id", options.set_id != nullptr ? base::hexadecimal({options.set_id, 16}) : "random"}};
      },
      [&](const tandem_files_encode_options &options) { return tandem_files_encode(context, &options, &result); });
  return add_up(world, result, began);
}

tandem_files_result decode(const World &world, tandem_context *context, const char *const *paths,
                           std::size_t path_count, const tandem_files_decode_options *given) {
  const Clock::time_point began = Clock::now();
  auto result = sized<tandem_files_result>();
  run_on_set(
      world, paths, path_count, given, "tandem_files_decode_options",
      [](const tandem_files_decode_options &options) {
        if (options.output_path == nullptr || options.output_descriptor != 0)
          fail(TANDEM_ERROR_INVALID_ARGUMENT, "ranks write the file that output_path names, and no descriptor");
        if (options.salvage != 0)
          fail(TANDEM_ERROR_INVALID_ARGUMENT, "salvage is for one process: use tandem_files_decode");
        return Arguments{{"output_path", options.output_path},
                         {"force", flag(options.force)},
                         {"no_sync", flag(options.no_sync)},
                         {"dry_run", flag(options.dry_run)}};
      },
      [&](const tandem_files_search *search, const tandem_files_decode_options &options) {
        return tandem_files_decode(context, search, &options, &result);
      });
  return add_up(world, result, began);
}

tandem_files_verify_result verify(const World &world, tandem_context *context, const char *const *paths,
                                  std::size_t path_count, const tandem_files_verify_options *given) {
  auto result = sized<tandem_files_verify_result>();
  run_on_set(
      world, paths, path_count, given, "tandem_files_verify_options",
      [](const tandem_files_verify_options &) { return Arguments(); },
      [&](const tandem_files_search *search, const tandem_files_verify_options &options) {
        return tandem_files_verify(context, search, &options, &result);
      });
  return result;
}

tandem_files_repair_result repair(const World &world, tandem_context *context, const char *const *paths,
                                  std::size_t path_count, const tandem_files_repair_options *given) {
  auto result = sized<tandem_files_repair_result>();
  run_on_set(
      world, paths, path_count, given, "tandem_files_repair_options",
      [](const tandem_files_repair_options &options) {
        return Arguments{
            {"folders",
             options.folders != nullptr ? listed(options.folders, options.folder_count, "folders") : "where they were"},
            {"new_folders", options.new_folders != nullptr
                                ? listed(options.new_folders, options.new_folder_count, "new_folders")
                                : "those of the set"},
            {"force", flag(options.force)},
            {"no_sync", flag(options.no_sync)},
            {"dry_run", flag(options.dry_run)}};
      },
      [&](const tandem_files_search *search, const tandem_files_repair_options &options) {
        return tandem_files_repair(context, search, &options, &result);
      });
  return result;
}

}  // namespace tandem::mpi
