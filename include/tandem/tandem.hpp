// SPDX-License-Identifier: Apache-2.0
/* Tandem for C++17 and later: the C headers with owning classes, spans and exceptions.
 *
 * Header only: a program links libtandem and nothing else. A call that fails throws tandem::Error. If the wrapper
 * itself finds no memory, it throws std::bad_alloc. Statuses, alignment, lengths and the thread rules are those of the
 * C headers. The comments here tell the differences. struct_bytes of an options struct is filled in if it is 0.
 *
 *     tandem::Codec codec(10, 4);
 *     tandem::Context context;
 *     tandem::Shards shards(codec.shard_count(), 1 << 20);   // 10 of data, then 4 of parity
 *     read(file, shards[0]), ...
 *     tandem::encode(context, codec, shards);
 */
#ifndef TANDEM_TANDEM_HPP
#define TANDEM_TANDEM_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "tandem.hpp needs C++17; tandem.h is for C and older C++"
#endif

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <ranges>
#endif

#include "tandem/device.h"
#include "tandem/diagnose.h"
#include "tandem/files.h"
#include "tandem/tandem.h"
#include "tandem/tools.h"

namespace tandem {

/* A call failed. what() is the sentence of tandem_last_error_message(). */
class Error : public std::runtime_error {
 public:
  Error(tandem_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
  tandem_status status() const noexcept { return status_; }

 private:
  tandem_status status_;
};

/* Throws the calling thread's last failure, unless the status is TANDEM_OK. For your own calls of the C API. */
inline void check(tandem_status status) {
  if (status == TANDEM_OK) return;
  const char *const message = tandem_last_error_message();
  throw Error(status, *message != '\0' ? message : tandem_status_name(status));
}

namespace detail {

template <auto destroy>
struct Destroy {
  template <class Object>
  void operator()(Object *object) const noexcept {
    destroy(object);
  }
};

template <class Object, auto destroy>
using Owner = std::unique_ptr<Object, Destroy<destroy>>;

/* A struct of the C API: its size is set, the rest is zero, or as given. */
template <class Struct>
Struct sized(Struct made = {}) {
  if (made.struct_bytes == 0) made.struct_bytes = sizeof made;
  return made;
}

constexpr const char *kShardCount = "the number of shards is not k + m of the codec";
constexpr const char *kFlagCount = "`present` does not have a flag for each shard";
inline void require(bool holds, const char *message) {
  if (!holds) throw Error(TANDEM_ERROR_INVALID_ARGUMENT, message);
}

}  // namespace detail

/* The elements of an array: C++20's std::span as far as it is needed here. The two convert to each other, and every
 * container with data() and size() converts to it. */
template <class Element>
class Span {
 public:
  Span() = default;
  Span(Element *data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <class Range, class Found = std::remove_pointer_t<decltype(std::data(std::declval<Range &>()))>,
            class = std::enable_if_t<std::is_convertible_v<Found (*)[], Element (*)[]>>>
  Span(Range &&range) noexcept : data_(std::data(range)), size_(std::size(range)) {}

  Element *data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  Element *begin() const noexcept { return data_; }
  Element *end() const noexcept { return data_ + size_; }
  Element &operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  Element *data_ = nullptr;
  std::size_t size_ = 0;
};

/* What to compute. Immutable; threads and contexts may share it. Movable. */
class Codec {
 public:
  /* k data and m parity shards of a preset over GF(2^8); isal-cauchy by default. */
  Codec(std::uint32_t k, std::uint32_t m, std::int32_t matrix = TANDEM_MATRIX_ISAL_CAUCHY)
      : Codec(options_of(k, m, matrix)) {}
  /* Everything else: custom matrices, GF(2^16). */
  explicit Codec(tandem_codec_options options) : k_(options.k), m_(options.m) {
    options = detail::sized(options);
    tandem_codec *made = nullptr;
    check(tandem_codec_create(&options, &made));
    codec_.reset(made);
  }

  std::uint32_t k() const noexcept { return k_; }
  std::uint32_t m() const noexcept { return m_; }
  std::uint32_t shard_count() const noexcept { return k_ + m_; }
  /* For calls of the C API; nullptr after a move. */
  const tandem_codec *get() const noexcept { return codec_.get(); }

 private:
  static tandem_codec_options options_of(std::uint32_t k, std::uint32_t m, std::int32_t matrix) {
    auto options = detail::sized<tandem_codec_options>();
    options.k = k;
    options.m = m;
    options.matrix = matrix;
    return options;
  }

  std::uint32_t k_, m_;
  detail::Owner<tandem_codec, tandem_codec_destroy> codec_;
};

/* Where to run. Threads may share it. Movable; plans and jobs must end before it. */
class Context {
 public:
  /* All defaults, or options. Strings are copied. */
  explicit Context(tandem_context_options options = {}) {
    options = detail::sized(options);
    tandem_context *made = nullptr;
    check(tandem_context_create(&options, &made));
    context_.reset(made);
  }
  /* A named backend: "cpu", "hybrid", "cuda:0". */
  explicit Context(const char *backend) : Context(options_of(backend)) {}

  void set_resource(const std::string &name, std::uint64_t amount) {
    check(tandem_context_set_resource(get(), name.c_str(), amount));
  }
  tandem_context_info info() const {
    auto found = detail::sized<tandem_context_info>();
    check(tandem_context_query(context_.get(), &found));
    return found;
  }
  tandem_context *get() const noexcept { return context_.get(); }

 private:
  static tandem_context_options options_of(const char *backend) {
    auto options = detail::sized<tandem_context_options>();
    options.backend = backend;
    return options;
  }

  detail::Owner<tandem_context, tandem_context_destroy> context_;
};

/* Shards in one allocation, placed so that they do not collide in the cache (tandem_shards_allocate). Their
 * content is undefined at first. Movable. */
class Shards {
 public:
  /* flags: of enum tandem_shards_flag_value. */
  Shards(std::size_t count, std::size_t shard_bytes, std::uint32_t flags = 0)
      : pointers_(count), shard_bytes_(shard_bytes) {
    check(tandem_shards_allocate(count, shard_bytes, flags, pointers_.data()));
    if (count != 0) memory_.reset(pointers_[0]);
  }

  std::size_t count() const noexcept { return pointers_.size(); }
  std::size_t shard_bytes() const noexcept { return shard_bytes_; }
  /* Not checked, as std::vector's. */
  Span<std::byte> operator[](std::size_t shard) noexcept {
    return {static_cast<std::byte *>(pointers_[shard]), shard_bytes_};
  }
  Span<const std::byte> operator[](std::size_t shard) const noexcept {
    return {static_cast<const std::byte *>(pointers_[shard]), shard_bytes_};
  }
  /* As the C API takes them. */
  void *const *pointers() const noexcept { return pointers_.data(); }

 private:
  std::vector<void *> pointers_;
  detail::Owner<void, tandem_shards_free> memory_;
  std::size_t shard_bytes_;
};

/* Shards of the caller: pointers to k+m shards, data first, of the same length. */
class ShardView {
 public:
  ShardView(Span<void *const> pointers, std::size_t shard_bytes) : pointers_(pointers), shard_bytes_(shard_bytes) {}
  ShardView(const Shards &shards) : ShardView({shards.pointers(), shards.count()}, shards.shard_bytes()) {}

  std::size_t count() const noexcept { return pointers_.size(); }
  std::size_t shard_bytes() const noexcept { return shard_bytes_; }
  void *const *pointers() const noexcept { return pointers_.data(); }

 private:
  Span<void *const> pointers_;
  std::size_t shard_bytes_;
};

namespace detail {

inline void require_shards_of(const Codec &codec, const ShardView &shards) {
  require(shards.count() == codec.shard_count(), kShardCount);
}
inline const void *const *reading(void *const *pointers) { return const_cast<const void *const *>(pointers); }

}  // namespace detail

/* The least length of shards that hold content_bytes, and that the code can take. */
inline std::size_t split_bytes(const Codec &codec, std::size_t content_bytes) {
  std::size_t shard_bytes = 0;
  check(tandem_split_bytes(codec.get(), content_bytes, &shard_bytes));
  return shard_bytes;
}
/* Cuts content into the data shards, with zeros after its end; and joins it again. */
inline void split(const Codec &codec, Span<const std::byte> content, const ShardView &shards) {
  detail::require_shards_of(codec, shards);
  check(tandem_split(codec.get(), content.data(), content.size(), shards.pointers(), shards.shard_bytes()));
}
inline void join(const Codec &codec, const ShardView &shards, Span<std::byte> content) {
  detail::require_shards_of(codec, shards);
  check(tandem_join(codec.get(), detail::reading(shards.pointers()), shards.shard_bytes(), content.data(),
                    content.size()));
}

/* Computes the parity shards of the data shards. */
inline void encode(const Context &context, const Codec &codec, const ShardView &shards) {
  detail::require_shards_of(codec, shards);
  check(tandem_encode(context.get(), codec.get(), detail::reading(shards.pointers()), shards.pointers() + codec.k(),
                      shards.shard_bytes()));
}

/* Rebuilds the shards with flag 0 in `present`. */
inline void decode(const Context &context, const Codec &codec, const ShardView &shards,
                   Span<const std::uint8_t> present) {
  detail::require_shards_of(codec, shards);
  detail::require(present.size() == shards.count(), detail::kFlagCount);
  check(tandem_decode(context.get(), codec.get(), shards.pointers(), present.data(), shards.shard_bytes()));
}

/* Whether parity matches data, and where it does not. A mismatch is a result, not an exception. */
inline tandem_verify_result verify(const Context &context, const Codec &codec, const ShardView &shards) {
  detail::require_shards_of(codec, shards);
  auto found = detail::sized<tandem_verify_result>();
  check(tandem_verify(context.get(), codec.get(), detail::reading(shards.pointers()), shards.shard_bytes(), &found));
  return found;
}

/* Updates parity. `shards` hold the old data of shard `index`; the caller replaces it afterwards. */
inline void update(const Context &context, const Codec &codec, const ShardView &shards, std::uint32_t index,
                   Span<const std::byte> new_data) {
  detail::require_shards_of(codec, shards);
  detail::require(index < codec.k(), "`index` is not a data shard");
  detail::require(new_data.size() == shards.shard_bytes(), "the new data is not as long as a shard");
  check(tandem_update(context.get(), codec.get(), index, shards.pointers()[index], new_data.data(),
                      shards.pointers() + codec.k(), shards.shard_bytes()));
}

/* Adds the data shard `index` to parity. `first`: the old bytes of parity are ignored. */
inline void accumulate(const Context &context, const Codec &codec, const ShardView &shards, std::uint32_t index,
                       bool first) {
  detail::require_shards_of(codec, shards);
  detail::require(index < codec.k(), "`index` is not a data shard");
  check(tandem_accumulate(context.get(), codec.get(), index, shards.pointers()[index], shards.pointers() + codec.k(),
                          shards.shard_bytes(), first ? 1 : 0));
}

/* Names the damaged shards of a stripe without checksums, and repairs them if options.repair is 1. */
inline tandem_locate_result locate(const Context &context, const Codec &codec, const ShardView &shards,
                                   tandem_locate_options options = {}) {
  detail::require_shards_of(codec, shards);
  options = detail::sized(options);
  auto found = detail::sized<tandem_locate_result>();
  check(tandem_locate(context.get(), codec.get(), shards.pointers(), shards.shard_bytes(), &options, &found));
  return found;
}

/* Encodes or decodes many stripes in one call. If a stripe cannot be decoded, the others are, and its `status` tells;
 * then Error is thrown. */
inline void encode_stripes(const Context &context, const Codec &codec, Span<const tandem_stripe> stripes) {
  check(tandem_encode_stripes(context.get(), codec.get(), stripes.data(), stripes.size(), sizeof(tandem_stripe)));
}
inline void decode_stripes(const Context &context, const Codec &codec, Span<tandem_stripe> stripes) {
  check(tandem_decode_stripes(context.get(), codec.get(), stripes.data(), stripes.size(), sizeof(tandem_stripe)));
}

/* Encodes or decodes shards that lie in pieces: k+m entries, data first. */
inline void encode_scattered(const Context &context, const Codec &codec, Span<const tandem_scattered_shard> shards,
                             std::size_t shard_bytes) {
  detail::require(shards.size() == codec.shard_count(), detail::kShardCount);
  check(
      tandem_code_scattered(context.get(), codec.get(), TANDEM_OPERATION_ENCODE, shards.data(), nullptr, shard_bytes));
}
inline void decode_scattered(const Context &context, const Codec &codec, Span<const tandem_scattered_shard> shards,
                             Span<const std::uint8_t> present, std::size_t shard_bytes) {
  detail::require(shards.size() == codec.shard_count(), detail::kShardCount);
  detail::require(present.size() == shards.size(), detail::kFlagCount);
  check(tandem_code_scattered(context.get(), codec.get(), TANDEM_OPERATION_DECODE, shards.data(), present.data(),
                              shard_bytes));
}

/* A run beside the calling thread. The destructor waits for it. Movable. */
class Job {
 public:
  explicit Job(tandem_job *owned) noexcept : job_(owned) {}
  /* Throws if the run failed, or was cancelled (TANDEM_ERROR_CANCELLED). */
  void wait() const { check(tandem_job_wait(job_.get())); }
  void cancel() const { check(tandem_job_cancel(job_.get())); }
  tandem_job *get() const noexcept { return job_.get(); }

 private:
  detail::Owner<tandem_job, tandem_job_destroy> job_;
};

/* An operation that is prepared once and run often. It may outlive its codec, but not its context. Movable. */
class Plan {
 public:
  Plan(const Context &context, const Codec &codec, tandem_plan_options options) : shard_count_(codec.shard_count()) {
    options = detail::sized(options);
    tandem_plan *made = nullptr;
    check(tandem_plan_create(context.get(), codec.get(), &options, &made));
    plan_.reset(made);
  }
  static Plan encode(const Context &context, const Codec &codec) {
    return Plan(context, codec, options_of(TANDEM_OPERATION_ENCODE));
  }
  static Plan decode(const Context &context, const Codec &codec, Span<const std::uint8_t> present) {
    detail::require(present.size() == codec.shard_count(), detail::kFlagCount);
    auto options = options_of(TANDEM_OPERATION_DECODE);
    options.present = present.data();
    return Plan(context, codec, options);
  }

  void run(const ShardView &shards) const { run(arguments_of(shards)); }
  void run(const tandem_plan_arguments &arguments) const { check(tandem_plan_run(get(), &arguments, nullptr)); }
  /* The memory of the shards must stay until the job is over. */
  [[nodiscard]] Job submit(const ShardView &shards) const { return submit(arguments_of(shards)); }
  [[nodiscard]] Job submit(const tandem_plan_arguments &arguments) const {
    tandem_job *made = nullptr;
    check(tandem_plan_run(get(), &arguments, &made));
    return Job(made);
  }
  /* A flag for each of the k+m shards: whether a run reads it. */
  std::vector<std::uint8_t> shards_to_read() const {
    auto found = detail::sized<tandem_plan_info>();
    check(tandem_plan_query(get(), &found));
    return {found.shards_read, found.shards_read + shard_count_};
  }
  const tandem_plan *get() const noexcept { return plan_.get(); }

 private:
  static tandem_plan_options options_of(std::int32_t operation) {
    auto options = detail::sized<tandem_plan_options>();
    options.operation = operation;
    return options;
  }
  tandem_plan_arguments arguments_of(const ShardView &shards) const {
    detail::require(shards.count() == shard_count_, "the number of shards is not k + m of the plan's codec");
    auto arguments = detail::sized<tandem_plan_arguments>();
    arguments.shards = shards.pointers();
    arguments.shard_bytes = shards.shard_bytes();
    return arguments;
  }

  std::uint32_t shard_count_;
  detail::Owner<tandem_plan, tandem_plan_destroy> plan_;
};

/* The number of a matrix by the name that the command uses ("isal-cauchy"), and back. */
inline std::int32_t matrix_from_name(const std::string &name) {
  std::int32_t found = 0;
  check(tandem_matrix_from_name(name.c_str(), &found));
  return found;
}
inline std::string matrix_name(std::int32_t matrix) {
  const char *const name = tandem_matrix_name(matrix);
  detail::require(name != nullptr, "there is no such matrix");
  return name;
}

/* ---- files --------------------------------------------------------------------------------------- */

namespace files {

/* The sets that lie in files and folders. Never changes; threads may share it. Movable. */
class Search {
 public:
  explicit Search(Span<const char *const> paths) : search_(made_for(paths.data(), paths.size())) {}
  explicit Search(const char *path) : search_(made_for(&path, 1)) {}

  std::size_t set_count() const noexcept { return tandem_files_search_set_count(get()); }
  tandem_files_set set(std::size_t index) const {
    auto found = detail::sized<tandem_files_set>();
    check(tandem_files_search_set(get(), index, &found));
    return found;
  }
  /* The index of the set with an id that begins so, and files of this name; NULL: of the only set. */
  std::size_t choose(const char *set_id_prefix = nullptr, const char *name = nullptr) const {
    std::size_t index = 0;
    check(tandem_files_search_choose(get(), set_id_prefix, name, &index));
    return index;
  }
  const tandem_files_search *get() const noexcept { return search_.get(); }

 private:
  static tandem_files_search *made_for(const char *const *paths, std::size_t path_count) {
    tandem_files_search *made = nullptr;
    check(tandem_files_search_create(paths, path_count, &made));
    return made;
  }

  detail::Owner<tandem_files_search, tandem_files_search_destroy> search_;
};

/* Writes the shard files of a source. */
inline tandem_files_result encode(const Context &context, tandem_files_encode_options options) {
  options = detail::sized(options);
  auto result = detail::sized<tandem_files_result>();
  check(tandem_files_encode(context.get(), &options, &result));
  return result;
}

/* Writes the content of a set. */
inline tandem_files_result decode(const Context &context, const Search &search, tandem_files_decode_options options) {
  options = detail::sized(options);
  auto result = detail::sized<tandem_files_result>();
  check(tandem_files_decode(context.get(), search.get(), &options, &result));
  return result;
}

/* Reads every block of a set. Damage is a result, not an exception. */
inline tandem_files_verify_result verify(const Context &context, const Search &search,
                                         tandem_files_verify_options options = {}) {
  options = detail::sized(options);
  auto result = detail::sized<tandem_files_verify_result>();
  check(tandem_files_verify(context.get(), search.get(), &options, &result));
  return result;
}

/* Mends damaged blocks and writes missing shard files. */
inline tandem_files_repair_result repair(const Context &context, const Search &search,
                                         tandem_files_repair_options options = {}) {
  options = detail::sized(options);
  auto result = detail::sized<tandem_files_repair_result>();
  check(tandem_files_repair(context.get(), search.get(), &options, &result));
  return result;
}

/* Changes the number of parity shards in place. */
inline tandem_files_repair_result resize(const Context &context, const Search &search, std::uint32_t m,
                                         tandem_files_repair_options options = {}) {
  options = detail::sized(options);
  auto result = detail::sized<tandem_files_repair_result>();
  check(tandem_files_resize(context.get(), search.get(), m, &options, &result));
  return result;
}

}  // namespace files
}  // namespace tandem

#if __cplusplus >= 202002L
template <class Element>
inline constexpr bool std::ranges::enable_borrowed_range<tandem::Span<Element>> = true;
#endif

#endif
