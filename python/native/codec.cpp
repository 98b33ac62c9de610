// SPDX-License-Identifier: Apache-2.0
#include "codec.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "raise.hpp"
#include "tandem/device.h"
#include "tandem/diagnose.h"
#include "tandem/tools.h"

namespace nb = nanobind;

namespace tandem_ec {
namespace {

// Calls with at least so many products of one byte by a coefficient let other threads run. They take some microseconds.
// Releasing and taking the GIL costs a tenth of one if no other thread wants it.
constexpr std::size_t kLongCall = 512 << 10;

// Below this size the library does not check for overlaps.
constexpr std::size_t kOverlapChecked = 4 << 10;

std::size_t product(std::size_t a, std::size_t b) {
  std::size_t result;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<std::size_t>::max() : result;
}

std::uint32_t count_of(std::int64_t value, const char *name, std::int64_t least) {
  if (value < least || value > 65536) refuse(name, " is ", value, "; it must be ", least, " to 65536");
  return static_cast<std::uint32_t>(value);
}

void same_length(const Shards &a, const char *name_a, const Shards &b, const char *name_b) {
  if (a.shard_bytes != 0 && b.shard_bytes != 0 && a.shard_bytes != b.shard_bytes)
    refuse(name_a, " has shards of ", a.shard_bytes, " bytes, ", name_b, " of ", b.shard_bytes);
}

}  // namespace

std::int32_t matrix_of(const std::string &name) {
  std::int32_t matrix = 0;
  check(tandem_matrix_from_name(name.c_str(), &matrix));
  return matrix;
}

ContextChoice context_choice(const std::optional<std::string> &backend, std::int64_t threads,
                             const std::optional<std::string> &kernel) {
  if (threads < 0 || threads > 4096) refuse("threads is ", threads, "; it must be 1 to 4096, or 0 for all cores");
  return {backend.value_or(""), kernel.value_or(""), static_cast<std::uint32_t>(threads)};
}

Context shared_context(const ContextChoice &choice) {
  // Only threads that hold the GIL run this. Never freed: codecs may outlive static objects.
  static auto &contexts = *new std::map<ContextChoice, std::weak_ptr<tandem_context>>;
  std::weak_ptr<tandem_context> &known = contexts[choice];
  if (Context context = known.lock()) return context;
  tandem_context_options options{};
  options.struct_bytes = sizeof options;
  options.backend = choice.backend.empty() ? nullptr : choice.backend.c_str();
  options.kernel = choice.kernel.empty() ? nullptr : choice.kernel.c_str();
  options.thread_count = choice.threads;
  tandem_context *made = nullptr;
  check(tandem_context_create(&options, &made));
  Context context(made, [](tandem_context *c) {
    WithoutGil other_threads_run;
    tandem_context_destroy(c);
  });
  known = context;
  return context;
}

// ---- jobs -------------------------------------------------------------------------------------------

Job::Job(Plan plan, Memory memory, tandem_job *job) : plan_(std::move(plan)), memory_(std::move(memory)), job_(job) {}

Job::~Job() {
  WithoutGil other_threads_run;
  tandem_job_destroy(job_);
}

void Job::wait() {
  tandem_status status;
  {
    WithoutGil other_threads_run;
    status = tandem_job_wait(job_);
  }
  const std::string message = status == TANDEM_OK ? "" : tandem_last_error_message();
  memory_.release();
  if (status != TANDEM_OK) raise(status, message);
}

void Job::cancel() { check(tandem_job_cancel(job_)); }

// ---- codec ------------------------------------------------------------------------------------------

// One operation on k+m shards, as plans take it.
struct Codec::Call {
  std::int32_t operation;
  std::vector<void *> shards;
  std::vector<std::uint8_t> present, wanted;
  std::size_t shard_bytes = 0;
  std::size_t output_count = 0;
  std::uint32_t index = 0;
  bool first = false;
  const void *new_data = nullptr;
  Memory memory;

  // They point into this object.
  tandem_plan_arguments arguments(tandem_verify_result *result) {
    tandem_plan_arguments all{};
    all.struct_bytes = sizeof all;
    all.shards = shards.data();
    all.new_data = new_data;
    all.shard_bytes = shard_bytes;
    all.verify_result = result;
    if (memory.place().memory != TANDEM_MEMORY_HOST) all.queue = memory.place().stream;
    return all;
  }
};

Codec::Codec(std::int64_t k, std::int64_t m, const std::string &matrix, const std::optional<std::string> &field,
             std::int64_t threads, const std::optional<std::string> &backend, const std::optional<std::string> &kernel,
             nb::handle coefficients, bool allow_non_mds)
    : k_(count_of(k, "k", 1)), m_(count_of(m, "m", 0)), choice_(context_choice(backend, threads, kernel)) {
  tandem_codec_options options{};
  options.struct_bytes = sizeof options;
  options.k = k_;
  options.m = m_;
  options.allow_non_mds = allow_non_mds;
  if (field && *field != "gf8" && *field != "gf16")
    refuse("field is '", *field, "'; it must be 'gf8' or 'gf16', or None for that of the matrix");
  Memory memory;
  if (coefficients.is_none()) {
    options.matrix = matrix_of(matrix);
    if ((tandem_matrix_traits(options.matrix) & TANDEM_MATRIX_IS_GF16) != 0) options.field = TANDEM_FIELD_GF16;
  } else {
    options.matrix = TANDEM_MATRIX_CUSTOM;
  }
  if (field) options.field = *field == "gf16" ? TANDEM_FIELD_GF16 : TANDEM_FIELD_GF8;
  field_ = options.field == TANDEM_FIELD_GF16 ? "gf16" : "gf8";
  if (!coefficients.is_none()) {
    const Shards given = memory.take_one(coefficients, "coefficients", Access::read);
    const std::size_t needed = product(product(k_, m_), options.field == TANDEM_FIELD_GF16 ? 2 : 1);
    if (given.shard_bytes != needed)
      refuse("coefficients has ", given.shard_bytes, " bytes; ", m_, " x ", k_, " elements of ", field_, " have ",
             needed);
    options.coefficients = given.pointers[0];
  }
  tandem_codec *made = nullptr;
  call_library(k_ * m_ > 256, [&] { return tandem_codec_create(&options, &made); });
  codec_.reset(made, tandem_codec_destroy);
  context_ = shared_context(choice_);
}

bool Codec::is_long(std::size_t shard_bytes, std::size_t outputs) const {
  return product(product(shard_bytes, outputs), k_) >= kLongCall;
}

std::uint32_t Codec::index_of(std::int64_t index) const {
  if (index < 0 || index >= k_) refuse("index is ", index, "; there are ", k_, " data shards, 0 to ", k_ - 1);
  return static_cast<std::uint32_t>(index);
}

Context Codec::context_for(const Place &place) const {
  if (place.memory == TANDEM_MEMORY_HOST || !(choice_.backend.empty() || choice_.backend == "auto")) return context_;
  return shared_context({text("cuda:", place.device), "", 0});
}

Plan Codec::plan_for(const Call &call) const {
  const Place &place = call.memory.place();
  tandem_plan_options options{};
  options.struct_bytes = sizeof options;
  options.operation = call.operation;
  options.memory = place.memory;
  options.present = call.operation == TANDEM_OPERATION_DECODE ? call.present.data() : nullptr;
  options.wanted = call.wanted.empty() ? nullptr : call.wanted.data();
  options.index = call.index;
  options.first = call.first;
  const Context context = context_for(place);
  tandem_plan *made = nullptr;
  call_library(place.memory != TANDEM_MEMORY_HOST || k_ * m_ > 256,
               [&] { return tandem_plan_create(context.get(), codec_.get(), &options, &made); });
  return Plan(made, [context](tandem_plan *plan) { tandem_plan_destroy(plan); });
}

void Codec::run_host(Call &call, tandem_verify_result *result) const {
  tandem_context *context = context_.get();
  const tandem_codec *codec = codec_.get();
  void *const *shards = call.shards.data();
  void *const *parity = shards + k_;
  call_library(is_long(call.shard_bytes, call.output_count), [&] {
    switch (call.operation) {
      case TANDEM_OPERATION_ENCODE:
        return tandem_encode(context, codec, shards, parity, call.shard_bytes);
      case TANDEM_OPERATION_DECODE:
        return tandem_decode(context, codec, shards, call.present.data(), call.shard_bytes);
      case TANDEM_OPERATION_VERIFY:
        return tandem_verify(context, codec, shards, call.shard_bytes, result);
      case TANDEM_OPERATION_UPDATE:
        return tandem_update(context, codec, call.index, shards[call.index], call.new_data, parity, call.shard_bytes);
      default:
        return tandem_accumulate(context, codec, call.index, shards[call.index], parity, call.shard_bytes, call.first);
    }
  });
}

void Codec::run(Call &call, tandem_verify_result *result) const {
  if (call.memory.place().memory == TANDEM_MEMORY_HOST) return run_host(call, result);
  const Plan plan = plan_for(call);
  const tandem_plan_arguments arguments = call.arguments(result);
  call_library(true, [&] { return tandem_plan_run(plan.get(), &arguments, nullptr); });
}

std::unique_ptr<Job> Codec::submit(Call &call) const {
  Plan plan = plan_for(call);
  const tandem_plan_arguments arguments = call.arguments(nullptr);
  tandem_job *job = nullptr;
  call_library(true, [&] { return tandem_plan_run(plan.get(), &arguments, &job); });
  return std::make_unique<Job>(std::move(plan), std::move(call.memory), job);
}

Codec::Call Codec::encode_call(nb::handle data, nb::handle out, nb::object &out_given) {
  Call call{};
  call.operation = TANDEM_OPERATION_ENCODE;
  call.output_count = m_;
  Shards read = call.memory.take(data, "data", k_, Access::read, false);
  call.shard_bytes = read.shard_bytes;
  if (out.is_none()) {
    if (call.memory.place().memory != TANDEM_MEMORY_HOST)
      refuse("data lies in the memory of a device: give out, with ", m_, " shards of ", read.shard_bytes,
             " bytes there");
    if (m_ == 0) refuse("m is 0: there is no parity to encode");
    out_given = empty(m_, static_cast<std::int64_t>(read.shard_bytes));
  } else {
    out_given = nb::borrow(out);
  }
  const Shards written = call.memory.take(out_given, "out", m_, Access::write, true);
  same_length(written, "out", read, "data");
  for (const void *shard : written.pointers)
    if (shard == nullptr) call.wanted.assign(k_ + m_, 0);
  if (!call.wanted.empty())
    for (std::size_t i = 0; i < m_; ++i) call.wanted[k_ + i] = written.pointers[i] != nullptr;
  if (product(k_ + m_, call.shard_bytes) < kOverlapChecked)
    refuse_overlap(read.pointers, written.pointers, call.shard_bytes);
  call.shards = std::move(read.pointers);
  call.shards.insert(call.shards.end(), written.pointers.begin(), written.pointers.end());
  return call;
}

Codec::Call Codec::decode_call(nb::handle shards, nb::handle present) {
  Call call{};
  call.operation = TANDEM_OPERATION_DECODE;
  call.present = read_flags(present, "present", k_ + m_);
  Shards all = call.memory.take(shards, "shards", k_ + m_, Access::write_missing, false, call.present.data());
  if (all.shard_bytes == 0) refuse("shards: all ", k_ + m_, " are None");
  call.shard_bytes = all.shard_bytes;
  call.shards = std::move(all.pointers);
  call.wanted.resize(k_ + m_);
  std::vector<void *> read, written;
  for (std::size_t i = 0; i < call.shards.size(); ++i) {
    call.wanted[i] = call.present[i] == 0 && call.shards[i] != nullptr;
    call.output_count += call.wanted[i];
    (call.present[i] ? read : written).push_back(call.shards[i]);
  }
  if (product(k_ + m_, call.shard_bytes) < kOverlapChecked) refuse_overlap(read, written, call.shard_bytes);
  return call;
}

nb::object Codec::encode(nb::handle data, nb::handle out) {
  nb::object given;
  Call call = encode_call(data, out, given);
  run(call, nullptr);
  return given;
}

void Codec::decode(nb::handle shards, nb::handle present) {
  Call call = decode_call(shards, present);
  run(call, nullptr);
}

nb::tuple Codec::submit_encode(nb::handle data, nb::handle out) {
  nb::object given;
  Call call = encode_call(data, out, given);
  return nb::make_tuple(given, submit(call));
}

std::unique_ptr<Job> Codec::submit_decode(nb::handle shards, nb::handle present) {
  Call call = decode_call(shards, present);
  return submit(call);
}

nb::tuple Codec::verify(nb::handle shards) {
  Call call{};
  call.operation = TANDEM_OPERATION_VERIFY;
  call.output_count = m_;
  Shards all = call.memory.take(shards, "shards", k_ + m_, Access::read, false);
  call.shard_bytes = all.shard_bytes;
  call.shards = std::move(all.pointers);
  tandem_verify_result result{};
  result.struct_bytes = sizeof result;
  run(call, &result);
  const auto shard_or_none = [](std::uint32_t shard) -> nb::object {
    if (shard == TANDEM_SHARD_NONE) return nb::none();
    return nb::int_(shard);
  };
  return nb::make_tuple(result.consistent != 0, result.bad_parity_count, result.mismatch_byte_count,
                        result.first_mismatch_bytes, shard_or_none(result.first_bad_shard),
                        shard_or_none(result.suspect_shard));
}

Codec::Call Codec::update_call(std::int64_t index, nb::handle old_data, nb::handle new_data, nb::handle parity) {
  Call call{};
  call.operation = new_data.is_valid() ? TANDEM_OPERATION_UPDATE : TANDEM_OPERATION_ACCUMULATE;
  call.index = index_of(index);
  call.output_count = m_;
  const char *name = new_data.is_valid() ? "old" : "data";
  const Shards old_shard = call.memory.take_one(old_data, name, Access::read);
  const Shards written = call.memory.take(parity, "parity", m_, Access::write, true);
  same_length(written, "parity", old_shard, name);
  std::vector<void *> read = old_shard.pointers;
  if (new_data.is_valid()) {
    const Shards new_shard = call.memory.take_one(new_data, "new", Access::read);
    if (new_shard.shard_bytes != old_shard.shard_bytes)
      refuse("new has ", new_shard.shard_bytes, " bytes, old has ", old_shard.shard_bytes);
    call.new_data = new_shard.pointers[0];
    read.push_back(new_shard.pointers[0]);
  }
  call.shard_bytes = old_shard.shard_bytes;
  if (product(m_ + 2, call.shard_bytes) < kOverlapChecked) refuse_overlap(read, written.pointers, call.shard_bytes);
  call.shards.resize(k_ + m_);
  call.shards[call.index] = old_shard.pointers[0];
  call.wanted.resize(k_ + m_);
  for (std::size_t i = 0; i < m_; ++i) {
    call.shards[k_ + i] = written.pointers[i];
    call.wanted[k_ + i] = written.pointers[i] != nullptr;
  }
  return call;
}

void Codec::update(std::int64_t index, nb::handle old_data, nb::handle new_data, nb::handle parity) {
  Call call = update_call(index, old_data, new_data, parity);
  run(call, nullptr);
}

void Codec::accumulate(std::int64_t index, nb::handle data, nb::handle parity, bool first) {
  Call call = update_call(index, data, nb::handle(), parity);
  call.first = first;
  run(call, nullptr);
}

void Codec::stripes_call(nb::handle stripes, nb::handle present, bool is_decode) {
  const nb::object given = nb::steal(PySequence_Tuple(stripes.ptr()));
  if (!given.is_valid()) throw nb::python_error();
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(given.ptr()));
  std::vector<std::vector<std::uint8_t>> flags(count);
  std::vector<Shards> shards(count);
  std::vector<tandem_stripe> calls(count);
  Memory memory;
  nb::object presents;
  if (is_decode) {
    presents = nb::steal(PySequence_Tuple(present.ptr()));
    if (!presents.is_valid()) throw nb::python_error();
    if (static_cast<std::size_t>(PyTuple_GET_SIZE(presents.ptr())) != count)
      refuse("present has ", PyTuple_GET_SIZE(presents.ptr()), " entries, stripes has ", count);
  } else {  // the data shards are read, parity is written
    flags.assign(1, std::vector<std::uint8_t>(k_, 1));
    flags[0].resize(k_ + m_, 0);
  }
  std::size_t work = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    if (is_decode)
      flags[i] = read_flags(PyTuple_GET_ITEM(presents.ptr(), at), text("present[", i, "]").c_str(), k_ + m_);
    const std::vector<std::uint8_t> &is_present = flags[is_decode ? i : 0];
    shards[i] = memory.take(PyTuple_GET_ITEM(given.ptr(), at), text("stripes[", i, "]").c_str(), k_ + m_,
                            Access::write_missing, false, is_present.data());
    if (product(k_ + m_, shards[i].shard_bytes) < kOverlapChecked) {
      std::vector<void *> read, written;
      for (std::size_t s = 0; s < k_ + m_; ++s) (is_present[s] ? read : written).push_back(shards[i].pointers[s]);
      refuse_overlap(read, written, shards[i].shard_bytes);
    }
    calls[i].shards = shards[i].pointers.data();
    if (is_decode) calls[i].present = flags[i].data();
    calls[i].shard_bytes = shards[i].shard_bytes;
    if (__builtin_add_overflow(work, shards[i].shard_bytes, &work)) work = std::numeric_limits<std::size_t>::max();
  }
  if (memory.place().memory != TANDEM_MEMORY_HOST)
    raise(TANDEM_ERROR_UNSUPPORTED, "stripes in the memory of a device: encode or decode them one by one");
  if (count == 0) return;
  call_library(is_long(work, m_), [&] {
    return is_decode ? tandem_decode_stripes(context_.get(), codec_.get(), calls.data(), count, sizeof calls[0])
                     : tandem_encode_stripes(context_.get(), codec_.get(), calls.data(), count, sizeof calls[0]);
  });
}

void Codec::encode_stripes(nb::handle stripes) { stripes_call(stripes, nb::handle(), false); }

void Codec::decode_stripes(nb::handle stripes, nb::handle present) { stripes_call(stripes, present, true); }

nb::object Codec::split(nb::handle data) const {
  Memory memory;
  const Shards content = memory.take_one(data, "data", Access::read);
  std::size_t shard_bytes = 0;
  check(tandem_split_bytes(codec_.get(), content.shard_bytes, &shard_bytes));
  const nb::object made = empty(k_, static_cast<std::int64_t>(shard_bytes));
  const Shards shards = memory.take(made, "shards", k_, Access::write, false);  // refuses memory of a device beside it
  call_library(is_long(shard_bytes, 1), [&] {
    return tandem_split(codec_.get(), content.pointers[0], content.shard_bytes, shards.pointers.data(), shard_bytes);
  });
  return made;
}

nb::bytes Codec::join(nb::handle shards, std::int64_t length) const {
  const Py_ssize_t given = PyObject_Size(shards.ptr());
  PyErr_Clear();
  const std::size_t count = given == k_ + m_ ? k_ + m_ : k_;
  Memory memory;
  const Shards all = memory.take(shards, "shards", count, Access::read, true);
  if (memory.place().memory != TANDEM_MEMORY_HOST)
    raise(TANDEM_ERROR_UNSUPPORTED, "shards lie in the memory of a device: copy them to the host first");
  if (length < 0 || static_cast<std::size_t>(length) > product(k_, all.shard_bytes))
    refuse("length is ", length, "; ", k_, " data shards of ", all.shard_bytes, " bytes have 0 to ",
           product(k_, all.shard_bytes));
  for (std::size_t i = 0; i < k_; ++i)
    if (all.pointers[i] == nullptr && product(i, all.shard_bytes) < static_cast<std::size_t>(length))
      refuse("shards[", i, "] is None: reconstruct the lost data shards first");
  nb::bytes content = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(length)));
  if (!content.is_valid()) throw nb::python_error();
  char *const out = PyBytes_AS_STRING(content.ptr());
  call_library(is_long(all.shard_bytes, 1), [&] {
    return tandem_join(codec_.get(), all.pointers.data(), all.shard_bytes, out, static_cast<std::size_t>(length));
  });
  return content;
}

nb::bytes Codec::coefficients() const {
  const std::size_t bytes = product(product(k_, m_), field_ == "gf16" ? 2 : 1);
  nb::bytes result = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
  if (!result.is_valid()) throw nb::python_error();
  if (bytes != 0) check(tandem_codec_coefficients(codec_.get(), PyBytes_AS_STRING(result.ptr()), bytes));
  return result;
}

nb::dict Codec::context_info() const {
  tandem_context_info info{};
  info.struct_bytes = sizeof info;
  check(tandem_context_query(context_.get(), &info));
  nb::dict result;
  result["backend"] = info.backend;
  result["kernel"] = info.kernel;
  result["executor"] = info.executor;
  result["thread_count"] = info.thread_count;
  result["kernel_calls"] = info.kernel_calls;
  return result;
}

void bind_codec(nb::module_ &module) {
  nb::class_<Job>(module, "Job", "A call that was submitted.")
      .def("wait", &Job::wait, "Waits until the call is over; raises if it failed or was cancelled.")
      .def("cancel", &Job::cancel, "Asks the call to stop, within one chunk.");
  nb::class_<Codec>(module, "Codec", nb::is_weak_referenceable(),
                    "The code, the context options and the kernel of an RS.")
      .def(nb::init<std::int64_t, std::int64_t, const std::string &, const std::optional<std::string> &, std::int64_t,
                    const std::optional<std::string> &, const std::optional<std::string> &, nb::handle, bool>(),
           nb::arg("k"), nb::arg("m"), nb::arg("matrix"), nb::arg("field").none(), nb::arg("threads"),
           nb::arg("backend").none(), nb::arg("kernel").none(), nb::arg("coefficients").none(),
           nb::arg("allow_non_mds"))
      .def_prop_ro("k", &Codec::k, "The number of data shards.")
      .def_prop_ro("m", &Codec::m, "The number of parity shards.")
      .def_prop_ro("field", &Codec::field, "'gf8' or 'gf16'.")
      .def("encode", &Codec::encode, nb::arg("data"), nb::arg("out").none() = nb::none(),
           nb::sig("def encode(self, data: object, out: object | None = None) -> typing.Any"),
           "Computes the parity of k data shards: into out, or into a new NumPy array of m rows. Returns it.")
      .def("decode", &Codec::decode, nb::arg("shards"), nb::arg("present"),
           "Rebuilds, in place, the shards that are not present. A missing shard that is None is not rebuilt.")
      .def("_verify", &Codec::verify, nb::arg("shards"))
      .def("update", &Codec::update, nb::arg("index"), nb::arg("old"), nb::arg("new"), nb::arg("parity"),
           "Brings parity up to date after data shard `index` changed from old to new.")
      .def("accumulate", &Codec::accumulate, nb::arg("index"), nb::arg("data"), nb::arg("parity"),
           nb::arg("first") = false,
           "Adds one data shard to parity. With first, the old bytes of parity are overwritten.")
      .def("encode_stripes", &Codec::encode_stripes, nb::arg("stripes"),
           "Encodes many stripes in one call. Each has k+m shards; the last m are written.")
      .def("decode_stripes", &Codec::decode_stripes, nb::arg("stripes"), nb::arg("present"),
           "Decodes many stripes in one call; present has the flags of each.")
      .def("split", &Codec::split, nb::arg("data"), nb::sig("def split(self, data: object) -> typing.Any"),
           "Cuts a buffer into k data shards, with zeros after its end: a new NumPy array of k rows, for encode.")
      .def("join", &Codec::join, nb::arg("shards"), nb::arg("length"),
           "The first `length` bytes of the data shards. Parity shards after them are ignored.")
      .def("_submit_encode", &Codec::submit_encode, nb::arg("data"), nb::arg("out").none() = nb::none())
      .def("_submit_decode", &Codec::submit_decode, nb::arg("shards"), nb::arg("present"))
      .def("_coefficients", &Codec::coefficients)
      .def("context_info", &Codec::context_info,
           "What runs the calls: backend, kernel, executor, thread_count, kernel_calls.");
}

}  // namespace tandem_ec
