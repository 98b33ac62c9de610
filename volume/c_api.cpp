// SPDX-License-Identifier: Apache-2.0
// tandem/volume.h over the engine: arguments in, statuses out.

#include <algorithm>

#include "base/options.hpp"
#include "tandem/tools.h"
#include "volume/engine.hpp"

struct tandem_volume {
  tandem::volume::Volume engine;
};

namespace {

using tandem::base::check_result;
using tandem::base::read_options;
using tandem::base::write_result;
using tandem::volume::check;
using tandem::volume::Error;
using tandem::volume::fail;
using tandem::volume::Given;
using tandem::volume::guarded;
using tandem::volume::MemberError;
using tandem::volume::MemberProblem;

void check_given(const void *pointer, const char *name) {
  if (pointer == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, name, " is NULL");
}

tandem_status status_of(MemberProblem problem) {
  switch (problem) {
    case MemberProblem::locked:
      return TANDEM_ERROR_UNAVAILABLE;
    case MemberProblem::unsupported:
      return TANDEM_ERROR_UNSUPPORTED;
    default:
      return TANDEM_ERROR_IO;
  }
}

// Exceptions of members outside of an open volume.
template <class Body>
auto with_members(Body &&body) {
  try {
    return body();
  } catch (const MemberError &error) {
    throw Error(status_of(error.problem()), error.what());
  }
}

std::vector<std::string> read_names(const char *const *members, std::size_t count) {
  check_given(members, "members");
  if (count == 0 || count > 2 * TANDEM_VOLUME_MAX_MEMBERS)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "member_count is ", count);
  std::vector<std::string> names, identities;
  for (std::size_t i = 0; i < count; ++i) {
    if (members[i] == nullptr || *members[i] == 0) fail(TANDEM_ERROR_INVALID_ARGUMENT, "members[", i, "] is empty");
    names.emplace_back(members[i]);
    identities.push_back(tandem::volume::identity_of(names.back()));
    for (std::size_t j = 0; j < i; ++j)
      if (identities[j] == identities[i])
        fail(TANDEM_ERROR_INVALID_ARGUMENT, names[j], " and ", names[i],
             " are the same member; it is in the list twice");
  }
  return names;
}

tandem::volume::VolumeId read_id(const std::uint8_t *given) {
  tandem::volume::VolumeId id;
  if (given)
    std::copy_n(given, id.size(), id.begin());
  else
    tandem::base::random_bytes(id);
  return id;
}

tandem::volume::CareSettings read_care(const tandem_volume_care_options *options,
                                       const tandem_volume_care_result *result) {
  check_result(result, "tandem_volume_care_result");
  const tandem_volume_care_options ours = read_options(options, "tandem_volume_care_options");
  return {ours.rate_bytes_per_second, ours.progress, ours.progress_user, ours.repair != 0, ours.restart != 0};
}

template <class Body>
tandem_status care(tandem_volume *volume, const tandem_volume_care_options *options,
                   tandem_volume_care_result *result_out, Body &&body) {
  return guarded({{"volume", volume}}, [&] {
    const auto settings = read_care(options, result_out);
    tandem_volume_care_result result{};
    const tandem_status status = body(settings, &result);
    write_result(result, result_out, "tandem_volume_care_result");
    if (status == TANDEM_ERROR_CANCELLED)
      fail(TANDEM_ERROR_CANCELLED, "cancelled after ", result.stripe_count, " stripes");
  });
}

// Fills a caller's struct. index: of a member.
template <class Struct, class... Index>
void answer(const tandem_volume &volume, Struct *out, const char *name, Index... index) {
  check_result(out, name);
  Struct ours{};
  volume.engine.query(index..., &ours);
  write_result(ours, out, name);
}

}  // namespace

extern "C" tandem_status tandem_volume_create(const tandem_volume_create_options *options) {
  return guarded({{"options", options}}, [&] {
    const auto given = read_options(options, "tandem_volume_create_options");
    tandem::volume::CreateSettings settings;
    settings.geometry = {.k = given.k,
                         .m = given.m,
                         .matrix = given.matrix,
                         .allow_non_mds = given.allow_non_mds,
                         .unit_bytes = given.unit_bytes ? given.unit_bytes : 65536,
                         .stripe_count = 1,
                         .log_bytes = 4096};
    if (given.k < 1 || given.m < 1 || std::uint64_t{given.k} + given.m > TANDEM_VOLUME_MAX_MEMBERS)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "k is ", given.k, " and m is ", given.m,
           ": each must be at least 1, and k + m at most ", TANDEM_VOLUME_MAX_MEMBERS);
    if (!is_in_limits(settings.geometry))
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "unit_bytes is ", given.unit_bytes,
           ": it must be a multiple of 4096, at most 16777216");
    if (given.matrix == TANDEM_MATRIX_CUSTOM)
      fail(TANDEM_ERROR_UNSUPPORTED, "a custom matrix cannot be kept on members");
    if ((tandem_matrix_traits(given.matrix) & TANDEM_MATRIX_HAS_LOCAL_GROUPS) != 0)
      fail(TANDEM_ERROR_UNSUPPORTED, "matrix ", tandem_matrix_name(given.matrix),
           " has local groups, and members do not keep their number");
    settings.geometry.log_bytes = given.log_bytes;
    settings.id = read_id(given.volume_id);
    settings.force = given.force != 0;
    if (given.member_bytes > tandem::volume::kMostMemberBytes)
      fail(TANDEM_ERROR_TOO_LARGE, "member_bytes is ", given.member_bytes);
    if (given.member_count != given.k + given.m)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "member_count is ", given.member_count, ", k + m is ", given.k + given.m);
    const auto names = read_names(given.members, given.member_count);
    tandem::volume::make_codec(settings.geometry);  // before a file is made
    with_members([&] {
      std::vector<Given> members;
      for (const std::string &name : names)
        members.push_back(
            {name, tandem::volume::open_member(name, {.write = true, .create = given.member_bytes != 0})});
      for (const Given &each : members) tandem::volume::check_overwritable(each, settings.force);  // before one grows
      for (Given &each : members) each.member->grow(given.member_bytes);
      tandem::volume::create_volume(std::move(members), settings);
    });
  });
}

extern "C" tandem_status tandem_volume_open(tandem_context *context, const tandem_volume_open_options *options,
                                            tandem_volume **volume_out) {
  return guarded({{"options", options}, {"volume_out", volume_out}}, [&] {
    const auto given = read_options(options, "tandem_volume_open_options");
    const auto names = read_names(given.members, given.member_count);
    tandem::volume::OpenSettings settings;
    settings.context = context;
    settings.read_only = given.read_only != 0;
    settings.thread_count = given.thread_count ? given.thread_count : std::min<std::size_t>(32, 2 * names.size());
    if (settings.thread_count > 1024) fail(TANDEM_ERROR_INVALID_ARGUMENT, "thread_count is ", given.thread_count);
    if (given.cache_bytes) settings.cache_bytes = given.cache_bytes;
    if (given.note)
      settings.note = [note = given.note, user = given.note_user](const std::string &text) {
        note(user, text.c_str());
      };
    *volume_out = with_members([&] {
      std::vector<Given> members;
      for (const std::string &name : names) {
        Given member{name, nullptr};
        try {
          member.member = tandem::volume::open_member(name, {.write = !settings.read_only});
        } catch (const MemberError &error) {
          if (error.problem() != MemberProblem::missing) throw;
          member.why = error.what();
        }
        members.push_back(std::move(member));
      }
      return new tandem_volume{{std::move(members), std::move(settings)}};
    });
  });
}

extern "C" tandem_status tandem_volume_close(tandem_volume *volume) {
  if (volume == nullptr) return TANDEM_OK;
  const tandem_status status = guarded([&] { volume->engine.close(); });
  delete volume;
  return status;
}

extern "C" tandem_status tandem_volume_query(const tandem_volume *volume, tandem_volume_info *info_out) {
  return guarded({{"volume", volume}, {"info_out", info_out}},
                 [&] { answer(*volume, info_out, "tandem_volume_info"); });
}

extern "C" tandem_status tandem_volume_member_query(const tandem_volume *volume, uint32_t index,
                                                    tandem_volume_member *member_out) {
  return guarded({{"volume", volume}, {"member_out", member_out}},
                 [&] { answer(*volume, member_out, "tandem_volume_member", index); });
}

extern "C" tandem_status tandem_volume_read(tandem_volume *volume, uint64_t offset_bytes, void *data, size_t bytes) {
  return guarded({{"volume", volume}}, [&] {
    if (bytes != 0) check_given(data, "data");
    volume->engine.read(offset_bytes, static_cast<std::byte *>(data), bytes);
  });
}

extern "C" tandem_status tandem_volume_write(tandem_volume *volume, uint64_t offset_bytes, const void *data,
                                             size_t bytes) {
  return guarded({{"volume", volume}}, [&] {
    if (bytes != 0) check_given(data, "data");
    volume->engine.write(offset_bytes, static_cast<const std::byte *>(data), bytes);
  });
}

extern "C" tandem_status tandem_volume_flush(tandem_volume *volume) {
  return guarded({{"volume", volume}}, [&] { volume->engine.flush(); });
}

extern "C" tandem_status tandem_volume_trim(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                            int32_t zero_ends) {
  return guarded({{"volume", volume}}, [&] {
    if (zero_ends != 0)
      volume->engine.zero(offset_bytes, bytes);
    else
      volume->engine.trim(offset_bytes, bytes);
  });
}

extern "C" tandem_status tandem_volume_extents(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                               tandem_volume_extent *extents_out, size_t capacity, size_t *count_out) {
  return guarded({{"volume", volume}, {"extents_out", extents_out}, {"count_out", count_out}}, [&] {
    if (capacity == 0 || bytes == 0)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "capacity is ", capacity, " and bytes is ", bytes,
           ": both must be at least 1");
    const auto found = volume->engine.extents(offset_bytes, bytes, capacity);
    std::ranges::copy(found, extents_out);
    *count_out = found.size();
  });
}

extern "C" tandem_status tandem_volume_delay_begin(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                                   tandem_volume_window *window_out) {
  return guarded({{"volume", volume}, {"window_out", window_out}},
                 [&] { *window_out = volume->engine.delay_begin(offset_bytes, bytes); });
}

extern "C" tandem_status tandem_volume_delay_bounded(tandem_volume *volume, uint64_t offset_bytes, uint64_t bytes,
                                                     uint64_t bound_bytes, uint64_t bound_seconds,
                                                     tandem_volume_window *window_out) {
  return guarded({{"volume", volume}, {"window_out", window_out}}, [&] {
    constexpr std::uint64_t kBytes = 1 << 30, kSeconds = 60, kMostSeconds = 1000000000;
    const std::chrono::seconds time(std::min(bound_seconds == 0 ? kSeconds : bound_seconds, kMostSeconds));
    *window_out = volume->engine.delay_bounded(offset_bytes, bytes, bound_bytes == 0 ? kBytes : bound_bytes, time);
  });
}

extern "C" tandem_status tandem_volume_delay_end(tandem_volume *volume, const tandem_volume_window *window,
                                                 int32_t accept_loss) {
  return guarded({{"volume", volume}, {"window", window}},
                 [&] { volume->engine.delay_end(*window, accept_loss != 0); });
}

extern "C" tandem_status tandem_volume_scrub(tandem_volume *volume, const tandem_volume_care_options *options,
                                             tandem_volume_care_result *result_out) {
  return care(volume, options, result_out, [&](const auto &settings, tandem_volume_care_result *result) {
    return volume->engine.scrub(settings, result);
  });
}

extern "C" tandem_status tandem_volume_rebuild(tandem_volume *volume, const tandem_volume_care_options *options,
                                               tandem_volume_care_result *result_out) {
  return care(volume, options, result_out, [&](const auto &settings, tandem_volume_care_result *result) {
    return volume->engine.rebuild(settings, result);
  });
}

extern "C" tandem_status tandem_volume_replace(tandem_volume *volume, uint32_t index, const char *member,
                                               int32_t force) {
  return guarded({{"volume", volume}, {"member", member}}, [&] {
    tandem_volume_info info{};
    volume->engine.query(&info);
    if (info.read_only) fail(TANDEM_ERROR_UNAVAILABLE, "the volume is open for reading only");
    if (index < info.k + info.m) volume->engine.let_go(index);
    const std::string identity = tandem::volume::identity_of(member);
    for (std::uint32_t i = 0; i < info.k + info.m; ++i)
      if (volume->engine.identity(i) == identity)
        fail(TANDEM_ERROR_INVALID_ARGUMENT, member, ": is member ", i, " of this volume");
    with_members([&] {
      Given given{member, tandem::volume::open_member(member, {.write = true, .create = true})};
      volume->engine.replace(index, std::move(given), force != 0);
    });
  });
}
