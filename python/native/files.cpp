// SPDX-License-Identifier: Apache-2.0
// tandem_ec.files in native code: shard sets on disk.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calls.hpp"
#include "codec.hpp"
#include "file_calls.hpp"
#include "memory.hpp"
#include "raise.hpp"
#include "tandem/files.h"
#include "tandem/results.hpp"
#include "tandem/tools.h"

namespace nb = nanobind;

namespace tandem_ec {
namespace {

void on_report(void *user, const tandem_files_finding *finding) {
  auto &self = *static_cast<Callbacks *>(user);
  self.guarded([&] {
    nb::list ranges;
    for (std::size_t i = 0; i < finding->bad_range_count; ++i)
      ranges.append(nb::make_tuple(finding->bad_ranges[i].first, finding->bad_ranges[i].count));
    self.report(path_bytes(finding->path), finding->index, finding->condition, finding->file_bytes,
                finding->bad_block_count, finding->lost_block_count, nb::tuple(ranges), finding->action,
                finding->left_bad_count);
    return true;
  });
}

std::string matrix_name(std::int32_t matrix) {
  const char *name = tandem_matrix_name(matrix);
  return name == nullptr ? text(matrix) : name;
}

// A field of a result as Python has it.
template <class Value>
nb::object object_of(const Value &value, tandem::results::Unit unit) {
  using tandem::results::Unit;
  if constexpr (std::is_array_v<Value>) {
    return nb::bytes(value, sizeof value).attr("hex")();
  } else if constexpr (sizeof value == sizeof(std::int32_t)) {
    constexpr const char *kStates[] = {"intact", "recoverable", "lost"};
    if (unit == Unit::matrix) return nb::cast(matrix_name(static_cast<std::int32_t>(value)));
    if (unit == Unit::mode && value == static_cast<Value>(UINT32_MAX)) return nb::none();
    if (unit == Unit::flag) return nb::bool_(value != 0);
    if (unit == Unit::state) return nb::str(kStates[value]);
  }
  return nb::cast(value);
}

template <class Result>
nb::dict dict_of(const Result &result) {
  nb::dict all;
  tandem::results::each_row(result, [&](const auto &row) { all[row.name] = object_of(result.*row.member, row.unit); });
  return all;
}

class Search {
 public:
  explicit Search(const std::vector<Path> &paths) {
    const PathList list(paths, "paths");
    tandem_files_search *made = nullptr;
    Callbacks none;
    run(none, [&] { return tandem_files_search_create(list.pointers.data(), list.pointers.size(), &made); });
    search_.reset(made, tandem_files_search_destroy);
  }

  tandem_files_search *get() const { return search_.get(); }

  nb::list sets() const {
    nb::list all;
    for (std::size_t s = 0; s < tandem_files_search_set_count(get()); ++s) {
      auto set = sized<tandem_files_set>();
      check(tandem_files_search_set(get(), s, &set));
      nb::list files;
      for (std::size_t f = 0; f < set.file_count; ++f) {
        auto shard = sized<tandem_files_shard>();
        check(tandem_files_search_shard(get(), s, f, &shard));
        files.append(nb::make_tuple(path_bytes(shard.path), shard.index, shard.condition, shard.file_bytes));
      }
      nb::dict one = dict_of(set);
      one["files"] = files;
      all.append(one);
    }
    return all;
  }

  nb::list ignored() const {
    nb::list all;
    for (std::size_t i = 0; const char *why = tandem_files_search_left_out(get(), TANDEM_FILES_IGNORED, i); ++i)
      all.append(path_bytes(why));
    return all;
  }

  std::size_t choose(const std::optional<std::string> &set_id) const {
    std::size_t index = 0;
    check(tandem_files_search_choose(get(), set_id ? set_id->c_str() : nullptr, nullptr, &index));
    return index;
  }

 private:
  std::shared_ptr<tandem_files_search> search_;
};

nb::dict encode(const std::optional<std::string> &backend, std::int64_t threads, const std::optional<Path> &source,
                std::int64_t descriptor, const std::vector<Path> &folders, std::int64_t k, std::int64_t m,
                const std::string &matrix, bool allow_non_mds, std::int64_t block_bytes,
                const std::optional<Path> &name, bool force, bool sync, bool dry_run, std::int64_t lock_wait_seconds,
                nb::handle progress, nb::handle note) {
  const Context context = shared_context(context_choice(backend, threads, std::nullopt));
  const PathList places(folders, "folders");
  const std::string source_text = source ? path_text(*source, "source") : "";
  const std::string name_text = name ? path_text(*name, "name") : "";
  Callbacks callbacks{progress, note, {}, {}};
  auto options = sized<tandem_files_encode_options>();
  options.source_path = source ? source_text.c_str() : nullptr;
  options.source_descriptor = static_cast<std::int32_t>(number(descriptor, "descriptor", INT32_MAX));
  options.k = number(k, "k", 65536);
  options.m = number(m, "m", 65536);
  options.matrix = matrix_of(matrix);
  options.allow_non_mds = allow_non_mds;
  options.block_bytes = number(block_bytes, "block_bytes", kMostNumber);
  options.folders = places.pointers.data();
  options.folder_count = places.pointers.size();
  options.name = name ? name_text.c_str() : nullptr;
  options.force = force;
  options.no_sync = !sync;
  options.dry_run = dry_run;
  set_callbacks(options, callbacks);
  options.lock_wait_seconds = number(lock_wait_seconds, "lock_wait_seconds", kMostNumber);
  auto result = sized<tandem_files_result>();
  run(callbacks, [&] { return tandem_files_encode(context.get(), &options, &result); });
  return dict_of(result);
}

nb::dict decode(const std::optional<std::string> &backend, std::int64_t threads, const Search &search,
                const std::optional<std::string> &set_id, const std::optional<Path> &output, std::int64_t descriptor,
                bool force, bool sync, bool dry_run, std::int64_t lock_wait_seconds, nb::handle progress) {
  const Context context = shared_context(context_choice(backend, threads, std::nullopt));
  const std::string output_text = output ? path_text(*output, "output") : "";
  Callbacks callbacks{progress, {}, {}, {}};
  auto options = sized<tandem_files_decode_options>();
  options.set_id_prefix = set_id ? set_id->c_str() : nullptr;
  options.output_path = output ? output_text.c_str() : nullptr;
  options.output_descriptor = static_cast<std::int32_t>(number(descriptor, "descriptor", INT32_MAX));
  options.force = force;
  options.no_sync = !sync;
  options.dry_run = dry_run;
  set_callbacks(options, callbacks);
  options.lock_wait_seconds = number(lock_wait_seconds, "lock_wait_seconds", kMostNumber);
  auto result = sized<tandem_files_result>();
  run(callbacks, [&] { return tandem_files_decode(context.get(), search.get(), &options, &result); });
  return dict_of(result);
}

nb::dict verify(const std::optional<std::string> &backend, std::int64_t threads, const Search &search,
                const std::optional<std::string> &set_id, std::uint64_t rate, nb::handle report, nb::handle progress) {
  const Context context = shared_context(context_choice(backend, threads, std::nullopt));
  Callbacks callbacks{progress, {}, report, {}};
  auto options = sized<tandem_files_verify_options>();
  options.rate_bytes_per_second = rate;
  options.set_id_prefix = set_id ? set_id->c_str() : nullptr;
  options.report = on_report;
  options.report_user = &callbacks;
  set_callbacks(options, callbacks);
  auto result = sized<tandem_files_verify_result>();
  run(callbacks, [&] { return tandem_files_verify(context.get(), search.get(), &options, &result); });
  return dict_of(result);
}

// m: the new number of parity shards (tandem_files_resize); nothing: repair.
nb::dict repair_or_resize(const std::optional<std::string> &backend, std::int64_t threads, const Search &search,
                          const std::optional<std::string> &set_id, const std::optional<std::int64_t> &m,
                          const std::vector<Path> &folders, bool force, bool sync, bool dry_run,
                          std::int64_t lock_wait_seconds, nb::handle report, nb::handle progress, nb::handle note) {
  const Context context = shared_context(context_choice(backend, threads, std::nullopt));
  const PathList places(folders, "folders");
  Callbacks callbacks{progress, note, report, {}};
  auto options = sized<tandem_files_repair_options>();
  options.set_id_prefix = set_id ? set_id->c_str() : nullptr;
  options.folders = folders.empty() ? nullptr : places.pointers.data();
  options.folder_count = places.pointers.size();
  options.force = force;
  options.no_sync = !sync;
  options.dry_run = dry_run;
  options.report = on_report;
  options.report_user = &callbacks;
  set_callbacks(options, callbacks);
  options.lock_wait_seconds = number(lock_wait_seconds, "lock_wait_seconds", kMostNumber);
  auto result = sized<tandem_files_repair_result>();
  const std::uint32_t new_m = m ? number(*m, "m", 65536) : 0;
  run(callbacks, [&] {
    return m ? tandem_files_resize(context.get(), search.get(), new_m, &options, &result)
             : tandem_files_repair(context.get(), search.get(), &options, &result);
  });
  return dict_of(result);
}

// Any range of a set's content. Calls of several threads share it. `close` does not wait for them, so the last call
// frees it.
class Reader {
 public:
  Reader(const std::optional<std::string> &backend, std::int64_t threads, const Search &search,
         const std::optional<std::string> &set_id)
      : context_(shared_context(context_choice(backend, threads, std::nullopt))) {
    tandem_files_reader *made = nullptr;
    check(tandem_files_reader_create(context_.get(), search.get(), set_id ? set_id->c_str() : nullptr, &made));
    reader_.reset(made, tandem_files_reader_destroy);
  }

  // Fills the buffer with the content from `offset` on.
  void read_into(std::uint64_t offset, nb::handle buffer) {
    const std::shared_ptr<tandem_files_reader> reader = reader_;
    if (!reader) refuse("the reader is closed");
    Memory memory;
    const Shards place = memory.take_one(buffer, "buffer", Access::write);
    if (memory.place().memory != TANDEM_MEMORY_HOST) refuse("buffer lies in the memory of a device");
    if (place.shard_bytes == 0) return;
    Callbacks none;
    run(none, [&] { return tandem_files_reader_read(reader.get(), offset, place.pointers[0], place.shard_bytes); });
  }

  void close() { reader_.reset(); }

 private:
  Context context_;
  std::shared_ptr<tandem_files_reader> reader_;
};

}  // namespace

void bind_files(nb::module_ &module) {
  nb::class_<Search>(module, "Search")
      .def(nb::init<const std::vector<Path> &>(), nb::arg("paths"))
      .def("sets", &Search::sets)
      .def("ignored", &Search::ignored)
      .def("choose", &Search::choose, nb::arg("set_id").none());
  nb::class_<Reader>(module, "Reader")
      .def(nb::init<const std::optional<std::string> &, std::int64_t, const Search &,
                    const std::optional<std::string> &>(),
           nb::arg("backend").none(), nb::arg("threads"), nb::arg("search"), nb::arg("set_id").none())
      .def("read_into", &Reader::read_into, nb::arg("offset"), nb::arg("buffer"))
      .def("close", &Reader::close);
  module.def("files_encode", &encode, nb::arg("backend").none(), nb::arg("threads"), nb::arg("source").none(),
             nb::arg("descriptor"), nb::arg("folders"), nb::arg("k"), nb::arg("m"), nb::arg("matrix"),
             nb::arg("allow_non_mds"), nb::arg("block_bytes"), nb::arg("name").none(), nb::arg("force"),
             nb::arg("sync"), nb::arg("dry_run"), nb::arg("lock_wait_seconds"), nb::arg("progress").none(),
             nb::arg("note").none());
  module.def("files_decode", &decode, nb::arg("backend").none(), nb::arg("threads"), nb::arg("search"),
             nb::arg("set_id").none(), nb::arg("output").none(), nb::arg("descriptor"), nb::arg("force"),
             nb::arg("sync"), nb::arg("dry_run"), nb::arg("lock_wait_seconds"), nb::arg("progress").none());
  module.def("files_verify", &verify, nb::arg("backend").none(), nb::arg("threads"), nb::arg("search"),
             nb::arg("set_id").none(), nb::arg("rate"), nb::arg("report"), nb::arg("progress").none());
  module.def("files_repair_or_resize", &repair_or_resize, nb::arg("backend").none(), nb::arg("threads"),
             nb::arg("search"), nb::arg("set_id").none(), nb::arg("m").none(), nb::arg("folders"), nb::arg("force"),
             nb::arg("sync"), nb::arg("dry_run"), nb::arg("lock_wait_seconds"), nb::arg("report"),
             nb::arg("progress").none(), nb::arg("note").none());
}

}  // namespace tandem_ec
