// SPDX-License-Identifier: Apache-2.0
#include "mpi/verify.hpp"

#include <fmt/format.h>

#include <memory>

#include "mpi/error.hpp"
#include "mpi/rounds.hpp"
#include "mpi/structs.hpp"

namespace tandem::mpi {
namespace {

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

using Arguments = std::vector<std::pair<const char *, std::string>>;

// `arguments`: the values that must be equal on all ranks, besides the paths. call(search): of libtandem.
template <class Options, class Call>
void run(const World &world, const char *const *paths, std::size_t path_count, const Options *given, const char *name,
         const std::function<Arguments(const Options &)> &arguments, Call call) {
  Options options = {};
  std::string path_list;
  world.together([&] {
    options = read_options(given, name);
    if (options.team != nullptr)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "team is set: the ranks of the communicator are the team");
    path_list = listed(paths, path_count, "paths");
  });
  Arguments equal = {{"paths", path_list},
                     {"set_id_prefix", options.set_id_prefix != nullptr ? options.set_id_prefix : "none"}};
  world.together([&] {
    for (auto &argument : arguments(options)) equal.push_back(std::move(argument));
  });
  world.require_equal(equal);
  std::unique_ptr<tandem_files_search, Destroy> search;
  world.together([&] {
    tandem_files_search *found = nullptr;
    check(tandem_files_search_create(paths, path_count, &found));
    search.reset(found);
  });
  auto team = sized<tandem_files_team>();
  team.process = static_cast<std::uint32_t>(world.rank());
  team.process_count = static_cast<std::uint32_t>(world.size());
  team.agree = agree;
  team.gather = gather;
  team.broadcast = broadcast;
  team.user = const_cast<World *>(&world);
  options.team = &team;
  // Its ranks have agreed, and the message already names one.
  const tandem_status status = call(search.get(), options);
  if (status != TANDEM_OK) fail(status, tandem_last_error_message());
}

}  // namespace

tandem_files_verify_result verify(const World &world, tandem_context *context, const char *const *paths,
                                  std::size_t path_count, const tandem_files_verify_options *given) {
  auto result = sized<tandem_files_verify_result>();
  run<tandem_files_verify_options>(
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
  run<tandem_files_repair_options>(
      world, paths, path_count, given, "tandem_files_repair_options",
      [](const tandem_files_repair_options &options) {
        return Arguments{
            {"folders",
             options.folders != nullptr ? listed(options.folders, options.folder_count, "folders") : "where they were"},
            {"force", std::to_string(options.force != 0)},
            {"no_sync", std::to_string(options.no_sync != 0)},
            {"dry_run", std::to_string(options.dry_run != 0)}};
      },
      [&](const tandem_files_search *search, const tandem_files_repair_options &options) {
        return tandem_files_repair(context, search, &options, &result);
      });
  return result;
}

}  // namespace tandem::mpi
