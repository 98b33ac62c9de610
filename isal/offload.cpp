// SPDX-License-Identifier: Apache-2.0
#include "isal/offload.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "isal/tables.hpp"
#include "tandem/tandem.h"

namespace tandem::isal {
namespace {

// Calls that move less stay on the calling thread. Waking other threads, and making a codec once for each matrix, would
// cost more than they save.
constexpr std::uint64_t kLeastMovedBytes = 8 << 20;
constexpr unsigned kMostCodecs = 64;  // that are kept; others are made for one call
constexpr std::uint32_t kMostShards = 256;

// From this library's folder, lib/tandem/isal/<build>/, to libtandem.
constexpr char kPathToTandem[] = "/../../../libtandem.so." TANDEM_SOVERSION;

// The functions of libtandem that are used. The first large call that needs it opens it.
struct Library {
  decltype(&tandem_context_create) context_create;
  decltype(&tandem_codec_create) codec_create;
  decltype(&tandem_codec_destroy) codec_destroy;
  decltype(&tandem_encode) encode;
  decltype(&tandem_accumulate) accumulate;
};

template <class Function>
bool find(void *library, const char *name, Function *function_out) {
  *function_out = reinterpret_cast<Function>(dlsym(library, name));
  return *function_out != nullptr;
}

bool open_library(Library *out) {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void *>(&open_library), &self) == 0 || self.dli_fname == nullptr) return false;
  if (self.dli_fname[0] != '/') return false;  // a relative name would depend on the program's present folder
  const char *slash = std::strrchr(self.dli_fname, '/');
  char path[4096];
  const auto folder_bytes = slash == nullptr ? 0 : static_cast<std::size_t>(slash - self.dli_fname);
  if (folder_bytes == 0 || folder_bytes + sizeof kPathToTandem > sizeof path) return false;
  std::memcpy(path, self.dli_fname, folder_bytes);
  std::memcpy(path + folder_bytes, kPathToTandem, sizeof kPathToTandem);
  // Both stay loaded, even if the program closes this library: libtandem is linked so that it is never unloaded, and
  // `state` points to it.
  if (dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) == nullptr) return false;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return library != nullptr && find(library, "tandem_context_create", &out->context_create) &&
         find(library, "tandem_codec_create", &out->codec_create) &&
         find(library, "tandem_codec_destroy", &out->codec_destroy) && find(library, "tandem_encode", &out->encode) &&
         find(library, "tandem_accumulate", &out->accumulate);
}

// A codec and its matrix. Complete before it is counted; never changed or destroyed after that.
struct Entry {
  std::uint32_t columns, rows;
  std::uint8_t *coefficients;
  tandem_codec *codec;

  bool is_for(std::uint32_t wanted_columns, std::uint32_t wanted_rows, const std::uint8_t *tables) const {
    if (columns != wanted_columns || rows != wanted_rows) return false;
    for (std::size_t i = 0; i < std::size_t{columns} * rows; ++i) {
      if (coefficients[i] != coefficient_of(tables + i * kTableBytes)) return false;
    }
    return true;
  }
};

// The state of one process. A child of fork makes its own in the same place, and abandons the parent's, because the
// parent's threads do not exist there.
struct State {
  std::atomic<pid_t> process{0};  // the owner; set when everything else is ready
  bool works = false, library_is_open = false;
  Library library = {};
  tandem_context *context = nullptr;
  Entry entries[kMostCodecs] = {};
  std::atomic<unsigned> entry_count{0};
};

State state;

enum Wish : int { kUnknown, kNo, kYes };

std::atomic<int> wish{kUnknown};
std::atomic<pid_t> builder{0};  // the process in which a thread changes `state`; 0 = none

const char *setting(const char *name) {
  const char *value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool wanted() {
  int known = wish.load(std::memory_order_relaxed);
  if (known == kUnknown) {
    known = setting("TANDEM_ISAL_BACKEND") != nullptr || setting("TANDEM_ISAL_THREADS") != nullptr ? kYes : kNo;
    wish.store(known, std::memory_order_relaxed);
  }
  return known == kYes;
}

// One thread of a process at a time may build; the others do not wait. In a child that was forked meanwhile the builder
// is lost. Its work, above all in the loader, is half done, so such a child never builds.
class Building {
 public:
  explicit Building(pid_t process) {
    pid_t holder = 0;
    mine_ = builder.compare_exchange_strong(holder, process, std::memory_order_acquire);
  }
  ~Building() {
    if (mine_) builder.store(0, std::memory_order_release);
  }
  Building(const Building &) = delete;
  Building &operator=(const Building &) = delete;
  explicit operator bool() const { return mine_; }

 private:
  bool mine_;
};

bool start_context() {
  tandem_context_options options = {};
  options.struct_bytes = sizeof options;
  const char *backend = setting("TANDEM_ISAL_BACKEND"), *threads = setting("TANDEM_ISAL_THREADS");
  options.backend = backend != nullptr ? backend : "cpu";
  if (threads != nullptr) {
    char *end = nullptr;
    const unsigned long count = std::strtoul(threads, &end, 10);
    if (*end != '\0' || count > UINT32_MAX) return false;  // refused, not read as another number
    options.thread_count = static_cast<std::uint32_t>(count);
  }
  state.library_is_open = state.library_is_open || open_library(&state.library);  // a parent's is the child's too
  return state.library_is_open && state.library.context_create(&options, &state.context) == TANDEM_OK;
}

bool state_works() {
  const pid_t process = getpid();
  if (state.process.load(std::memory_order_acquire) != process) {
    const Building building(process);
    if (!building) return false;
    if (state.process.load(std::memory_order_acquire) != process) {
      state.entry_count.store(0, std::memory_order_relaxed);
      state.works = start_context();
      state.process.store(process, std::memory_order_release);
    }
  }
  return state.works;
}

tandem_codec *make_codec(std::uint32_t columns, std::uint32_t rows, const std::uint8_t *coefficients) {
  tandem_codec_options options = {};
  options.struct_bytes = sizeof options;
  options.k = columns;
  options.m = rows;
  options.matrix = TANDEM_MATRIX_CUSTOM;
  options.coefficients = coefficients;
  options.allow_non_mds = 1;
  tandem_codec *codec = nullptr;
  return state.library.codec_create(&options, &codec) == TANDEM_OK ? codec : nullptr;
}

// The codec for one call, or none if libtandem cannot be used. It is one of the kept codecs. If there are many, or
// another thread is adding one, it belongs to this call alone.
class CallCodec {
 public:
  CallCodec(std::uint32_t columns, std::uint32_t rows, const std::uint8_t *tables) {
    if (!state_works()) return;
    codec_ = kept(columns, rows, tables);
    if (codec_ != nullptr) return;
    const std::size_t cell_count = std::size_t{columns} * rows;
    auto *coefficients = static_cast<std::uint8_t *>(std::malloc(cell_count));
    if (coefficients == nullptr) return;
    for (std::size_t i = 0; i < cell_count; ++i) coefficients[i] = coefficient_of(tables + i * kTableBytes);
    codec_ = own_ = make_codec(columns, rows, coefficients);
    if (own_ == nullptr || !keep(columns, rows, tables, coefficients)) std::free(coefficients);
  }
  ~CallCodec() {
    if (own_ != nullptr) state.library.codec_destroy(own_);
  }
  CallCodec(const CallCodec &) = delete;
  CallCodec &operator=(const CallCodec &) = delete;

  const tandem_codec *get() const { return codec_; }

 private:
  static const tandem_codec *kept(std::uint32_t columns, std::uint32_t rows, const std::uint8_t *tables) {
    const unsigned count = state.entry_count.load(std::memory_order_acquire);
    for (unsigned i = 0; i < count; ++i) {
      if (state.entries[i].is_for(columns, rows, tables)) return state.entries[i].codec;
    }
    return nullptr;
  }

  bool keep(std::uint32_t columns, std::uint32_t rows, const std::uint8_t *tables, std::uint8_t *coefficients) {
    const Building building(getpid());
    if (!building) return false;
    const unsigned count = state.entry_count.load(std::memory_order_relaxed);  // no other thread changes it now
    if (count == kMostCodecs || kept(columns, rows, tables) != nullptr) return false;
    state.entries[count] = {columns, rows, coefficients, own_};
    own_ = nullptr;
    state.entry_count.store(count + 1, std::memory_order_release);
    return true;
  }

  const tandem_codec *codec_ = nullptr;
  tandem_codec *own_ = nullptr;  // destroyed with the call
};

bool fits(std::uint64_t moved_bytes, std::uint32_t shard_count) {
  return moved_bytes >= kLeastMovedBytes && shard_count <= kMostShards && wanted();
}

// libtandem, and the loader that opens it, may need much stack, so they run on a thread of their own for the time of
// the call. It receives no signals, and is joined even if the caller is cancelled.
constexpr std::size_t kStackBytes = 1 << 20;

template <class Body>
bool on_own_stack(const Body &body) {
  struct Call {
    const Body &body;
    bool done;
  } call = {body, false};
  const auto run = [](void *argument) -> void * {
    auto *const here = static_cast<Call *>(argument);
    here->done = here->body();
    return nullptr;
  };
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  sigset_t every, before;
  sigfillset(&every);
  pthread_t thread;
  int error = pthread_attr_setstacksize(&attributes, kStackBytes);
  if (error == 0) error = pthread_sigmask(SIG_SETMASK, &every, &before);
  if (error == 0) {
    error = pthread_create(&thread, &attributes, run, &call);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  pthread_attr_destroy(&attributes);
  if (error != 0) return false;
  int cancel_state = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  pthread_join(thread, nullptr);
  pthread_setcancelstate(cancel_state, &cancel_state);
  return call.done;
}

}  // namespace

// A status other than OK loses nothing. encode: the caller writes all of it again. update: a libtandem with CPU
// backends fails before it writes; a device that fails in the middle of host memory must not have written either.
bool offload_encode(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows, const std::uint8_t *tables,
                    const std::uint8_t *const *data, std::uint8_t *const *coding) noexcept {
  if (!fits(std::uint64_t{length_bytes} * (std::uint64_t{columns} + rows), columns + rows)) return false;
  return on_own_stack([&] {
    const CallCodec codec(columns, rows, tables);
    return codec.get() != nullptr &&
           state.library.encode(state.context, codec.get(), reinterpret_cast<const void *const *>(data),
                                reinterpret_cast<void *const *>(coding), length_bytes) == TANDEM_OK;
  });
}

bool offload_update(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows, std::uint32_t column,
                    const std::uint8_t *tables, const std::uint8_t *data, std::uint8_t *const *coding) noexcept {
  if (!fits(std::uint64_t{length_bytes} * (std::uint64_t{rows} + 1), columns + rows)) return false;
  return on_own_stack([&] {
    const CallCodec codec(columns, rows, tables);
    return codec.get() != nullptr &&
           state.library.accumulate(state.context, codec.get(), column, data, reinterpret_cast<void *const *>(coding),
                                    length_bytes, 0) == TANDEM_OK;
  });
}

}  // namespace tandem::isal
