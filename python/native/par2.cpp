// SPDX-License-Identifier: Apache-2.0
// tandem_ec.par2 in native code: PAR2 sets.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec.hpp"
#include "file_calls.hpp"
#include "tandem/par2.h"

namespace tandem_ec {
namespace {

nb::object hexadecimal(const std::uint8_t (&id)[16]) { return nb::bytes(id, sizeof id).attr("hex")(); }

nb::tuple create(const std::optional<std::string> &backend, std::int64_t threads, const Path &path,
                 const std::optional<Path> &base, const std::vector<Path> &sources, std::uint64_t slice_bytes,
                 std::int64_t slice_count, double percent, std::int64_t recovery_slice_count,
                 std::int64_t first_exponent, std::int32_t volumes, std::int64_t volume_count,
                 std::uint64_t memory_bytes, bool force, bool sync, nb::handle progress) {
  const Context context = shared_context(context_choice(backend, threads, std::nullopt));
  const std::string path_of_set = path_text(path, "path"), folder = base ? path_text(*base, "base") : "";
  const PathList list(sources, "sources");
  Callbacks callbacks{progress, {}, {}, {}};
  auto options = sized<tandem_par2_create_options>();
  options.path = path_of_set.c_str();
  options.base_path = base ? folder.c_str() : nullptr;
  options.source_paths = list.pointers.data();
  options.source_count = list.pointers.size();
  options.slice_bytes = slice_bytes;
  options.slice_count = number(slice_count, "slice_count", kMostNumber);
  options.recovery_slice_count = number(recovery_slice_count, "recovery_slices", kMostNumber);
  options.recovery_percent = percent;
  options.first_exponent = number(first_exponent, "first_exponent", kMostNumber);
  options.volumes = volumes;
  options.volume_count = number(volume_count, "volume_count", kMostNumber);
  options.thread_count = number(threads, "threads", kMostNumber);
  options.memory_bytes = memory_bytes;
  options.force = force;
  options.no_sync = !sync;
  set_callbacks(options, callbacks);
  auto result = sized<tandem_par2_create_result>();
  run(callbacks, [&] { return tandem_par2_create(context.get(), &options, &result); });
  return nb::make_tuple(hexadecimal(result.set_id), result.slice_bytes, result.file_count, result.slice_count,
                        result.recovery_slice_count, result.packet_file_count, result.source_bytes,
                        result.packet_file_bytes);
}

template <class Struct>
std::vector<Struct> list_of(const tandem_par2_report *report, std::int32_t which) {
  std::size_t count = 0;
  check(tandem_par2_report_list(report, which, nullptr, 0, 0, &count));
  std::vector<Struct> list(count);
  check(tandem_par2_report_list(report, which, list.data(), count, sizeof(Struct), &count));
  return list;
}

nb::tuple tuple_of(const tandem_par2_report *report) {
  auto summary = sized<tandem_par2_summary>();
  check(tandem_par2_report_query(report, &summary));
  nb::list files, packet_files;
  for (const auto &file : list_of<tandem_par2_file>(report, TANDEM_PAR2_FILES)) {
    nb::object found_as = nb::none();
    if (file.found_as != nullptr) found_as = path_bytes(file.found_as);
    files.append(nb::make_tuple(path_bytes(file.name), file.state, found_as, file.bytes, file.slice_count,
                                file.found_slice_count, file.repaired != 0));
  }
  for (const auto &file : list_of<tandem_par2_packet_file>(report, TANDEM_PAR2_PACKET_FILES))
    packet_files.append(nb::make_tuple(path_bytes(file.path), file.bytes, file.damaged_bytes, file.recovery_slice_count,
                                       file.is_lost != 0));
  return nb::make_tuple(hexadecimal(summary.set_id), summary.slice_bytes, summary.slice_count,
                        summary.found_slice_count, summary.recovery_slice_count, summary.repair_needed != 0,
                        summary.repair_possible != 0, summary.damaged_packet_bytes, files, packet_files);
}

using Report = std::unique_ptr<tandem_par2_report, void (*)(tandem_par2_report *)>;

Report verified(const Path &path, const std::optional<Path> &base, const std::vector<Path> &extra, std::int64_t threads,
                Callbacks &callbacks, std::int32_t scope = TANDEM_PAR2_ALL) {
  const std::string path_of_set = path_text(path, "path"), folder = base ? path_text(*base, "base") : "";
  const PathList list(extra, "extra");
  auto options = sized<tandem_par2_verify_options>();
  options.path = path_of_set.c_str();
  options.base_path = base ? folder.c_str() : nullptr;
  options.extra_paths = list.pointers.data();
  options.extra_count = list.pointers.size();
  options.thread_count = number(threads, "threads", kMostNumber);
  options.scope = scope;
  set_callbacks(options, callbacks);
  tandem_par2_report *report = nullptr;
  run(callbacks, [&] { return tandem_par2_verify(&options, &report); });
  return {report, tandem_par2_report_destroy};
}

nb::tuple verify(std::int64_t threads, const Path &path, const std::optional<Path> &base,
                 const std::vector<Path> &extra, bool packets, nb::handle progress) {
  Callbacks callbacks{progress, {}, {}, {}};
  const std::int32_t scope = packets ? TANDEM_PAR2_PACKETS : TANDEM_PAR2_ALL;
  return tuple_of(verified(path, base, extra, threads, callbacks, scope).get());
}

nb::tuple repair(const std::optional<std::string> &backend, std::int64_t threads, const Path &path,
                 const std::optional<Path> &base, const std::vector<Path> &extra, std::uint64_t memory_bytes,
                 bool packets, bool rename_only, bool keep_replaced, bool sync, nb::handle progress) {
  const Context context = shared_context(context_choice(backend, threads, std::nullopt));
  Callbacks callbacks{progress, {}, {}, {}};
  const Report report = verified(path, base, extra, threads, callbacks);
  auto options = sized<tandem_par2_repair_options>();
  options.memory_bytes = memory_bytes;
  options.thread_count = number(threads, "threads", kMostNumber);
  options.packets = packets;
  options.rename_only = rename_only;
  options.keep_replaced = keep_replaced;
  options.no_sync = !sync;
  set_callbacks(options, callbacks);
  run(callbacks, [&] { return tandem_par2_repair(context.get(), report.get(), &options); });
  return tuple_of(report.get());
}

// What a call says of each event, and its severity.
nb::tuple tree(bool is_sync, const std::optional<std::string> &backend, std::int64_t threads, const Path &path,
               const std::vector<Path> &excluded, const std::vector<Path> &accepted, double percent,
               std::int64_t lock_wait, std::uint64_t memory_bytes, std::uint64_t rate, bool one_file_system, bool sync,
               bool repair, bool dry_run, bool force, bool verify, bool accept_removed, bool accept_many,
               nb::handle progress) {
  const Context context = shared_context(context_choice(backend, threads, std::nullopt));
  const std::string root = path_text(path, "path");
  const PathList globs(excluded, "exclude"), meant(accepted, "accept");
  struct Hearer : Callbacks {
    nb::list events;
  } hearer{{progress, {}, {}, {}}, {}};
  auto options = sized<tandem_par2_tree_options>();
  options.action = is_sync ? TANDEM_PAR2_SYNC : TANDEM_PAR2_SCRUB;
  options.path = root.c_str();
  options.excluded_globs = globs.pointers.data();
  options.excluded_count = globs.pointers.size();
  options.accepted_paths = meant.pointers.data();
  options.accepted_count = meant.pointers.size();
  options.recovery_percent = percent;
  options.thread_count = number(threads, "threads", kMostNumber);
  options.lock_wait_seconds = number(lock_wait, "lock_wait", kMostNumber);
  options.memory_bytes = memory_bytes;
  options.rate_bytes_per_second = rate;
  options.one_file_system = one_file_system;
  options.no_sync = !sync;
  options.repair = repair;
  options.dry_run = dry_run;
  options.force = force;
  options.no_verify = !verify;
  options.accept_removed = accept_removed;
  options.accept_many = accept_many;
  options.report = [](void *user, const tandem_par2_event *event) {
    auto &self = *static_cast<Hearer *>(user);
    const bool go_on = self.guarded([&] {
      nb::object message = nb::none();
      if (event->message != nullptr) message = path_bytes(event->message);
      self.events.append(nb::make_tuple(event->what, path_bytes(event->path), message, event->severity, event->bytes,
                                        event->file_count, event->slice_count, event->lost_slice_count,
                                        event->recovery_slice_count, event->recovery_percent));
      return true;
    });
    return go_on ? std::int32_t{0} : std::int32_t{-1};
  };
  options.report_user = &hearer;
  set_callbacks(options, hearer);
  std::int32_t severity = 0;
  run(hearer, [&] { return tandem_par2_tree(context.get(), &options, &severity); });
  return nb::make_tuple(severity, hearer.events);
}

}  // namespace

void bind_par2(nb::module_ &module) {
  module.def("par2_create", &create, nb::arg("backend").none(), nb::arg("threads"), nb::arg("path"),
             nb::arg("base").none(), nb::arg("sources"), nb::arg("slice_bytes"), nb::arg("slice_count"),
             nb::arg("percent"), nb::arg("recovery_slice_count"), nb::arg("first_exponent"), nb::arg("volumes"),
             nb::arg("volume_count"), nb::arg("memory_bytes"), nb::arg("force"), nb::arg("sync"),
             nb::arg("progress").none());
  module.def("par2_verify", &verify, nb::arg("threads"), nb::arg("path"), nb::arg("base").none(), nb::arg("extra"),
             nb::arg("packets"), nb::arg("progress").none());
  module.def("par2_repair", &repair, nb::arg("backend").none(), nb::arg("threads"), nb::arg("path"),
             nb::arg("base").none(), nb::arg("extra"), nb::arg("memory_bytes"), nb::arg("packets"),
             nb::arg("rename_only"), nb::arg("keep_replaced"), nb::arg("sync"), nb::arg("progress").none());
  module.def("par2_tree", &tree, nb::arg("is_sync"), nb::arg("backend").none(), nb::arg("threads"), nb::arg("path"),
             nb::arg("excluded"), nb::arg("accepted"), nb::arg("percent"), nb::arg("lock_wait"),
             nb::arg("memory_bytes"), nb::arg("rate"), nb::arg("one_file_system"), nb::arg("sync"), nb::arg("repair"),
             nb::arg("dry_run"), nb::arg("force"), nb::arg("verify"), nb::arg("accept_removed"), nb::arg("accept_many"),
             nb::arg("progress").none());
}

}  // namespace tandem_ec
