#include "isal/offload.hpp"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "isal/tables.hpp"
#include "tandem/tandem.h"

namespace tandem::isal {
namespace {

// Calls that move less stay on the calling thread: waking others and, once for each matrix, making a codec would cost
// more than they could save.
constexpr std::uint64_t kLeastMovedBytes = 8 << 20;
constexpr unsigned kMostCodecs = 64;
constexpr std::uint32_t kMostShards = 256;

// From this library's folder, lib/tandem/isal/<build>/, to libtandem.
constexpr char kPathToTandem[] = "/../../../libtandem.so." TANDEM_SOVERSION;

// What is used of libtandem, which is opened by the first large call that wants it.
struct Library {
  decltype(&tandem_context_create) context_create;
  decltype(&tandem_codec_create) codec_create;
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
  const char *slash = std::strrchr(self.dli_fname, '/');
  char path[4096];
  const auto folder_bytes = slash == nullptr ? 0 : static_cast<std::size_t>(slash - self.dli_fname);
  if (folder_bytes == 0 || folder_bytes + sizeof kPathToTandem > sizeof path) return false;
  std::memcpy(path, self.dli_fname, folder_bytes);
  std::memcpy(path + folder_bytes, kPathToTandem, sizeof kPathToTandem);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);  // stays: it is linked never to be unloaded
  return library != nullptr && find(library, "tandem_context_create", &out->context_create) &&
         find(library, "tandem_codec_create", &out->codec_create) && find(library, "tandem_encode", &out->encode) &&
         find(library, "tandem_accumulate", &out->accumulate);
}

// A codec and the matrix that it is for. Complete before it is counted, never changed or ended after.
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

// All that one process has; a child of fork makes its own in the same place, and leaves what the parent had: the
// parent's threads are not there.
struct State {
  std::atomic<pid_t> process{0};  // whose it is; set when all else is ready
  bool works = false;
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

// One thread of a process at a time may build; nobody waits. A holder that was lost in a fork (it exists in the parent
// only) is known by its process.
class Building {
 public:
  explicit Building(pid_t process) {
    pid_t holder = builder.load(std::memory_order_relaxed);
    mine_ = holder != process && builder.compare_exchange_strong(holder, process, std::memory_order_acquire);
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
    if (*end != '\0' || count > UINT32_MAX) return false;  // refused, rather than taken for another number
    options.thread_count = static_cast<std::uint32_t>(count);
  }
  return open_library(&state.library) && state.library.context_create(&options, &state.context) == TANDEM_OK;
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

const tandem_codec *codec_for(std::uint32_t columns, std::uint32_t rows, const std::uint8_t *tables) {
  const auto known = [&](unsigned count) -> const tandem_codec * {
    for (unsigned i = 0; i < count; ++i) {
      if (state.entries[i].is_for(columns, rows, tables)) return state.entries[i].codec;
    }
    return nullptr;
  };
  if (const tandem_codec *codec = known(state.entry_count.load(std::memory_order_acquire))) return codec;

  const Building building(getpid());
  if (!building) return nullptr;
  const unsigned count = state.entry_count.load(std::memory_order_acquire);
  if (const tandem_codec *codec = known(count)) return codec;
  if (count == kMostCodecs) return nullptr;
  Entry &entry = state.entries[count];
  const std::size_t cell_count = std::size_t{columns} * rows;
  entry.coefficients = static_cast<std::uint8_t *>(std::malloc(cell_count));
  if (entry.coefficients == nullptr) return nullptr;
  for (std::size_t i = 0; i < cell_count; ++i) entry.coefficients[i] = coefficient_of(tables + i * kTableBytes);
  tandem_codec_options options = {};
  options.struct_bytes = sizeof options;
  options.k = columns;
  options.m = rows;
  options.matrix = TANDEM_MATRIX_CUSTOM;
  options.coefficients = entry.coefficients;
  options.allow_non_mds = 1;
  if (state.library.codec_create(&options, &entry.codec) != TANDEM_OK) {
    std::free(entry.coefficients);
    return nullptr;
  }
  entry.columns = columns;
  entry.rows = rows;
  state.entry_count.store(count + 1, std::memory_order_release);
  return entry.codec;
}

// The codec for a call that is large enough and wanted elsewhere; else null.
const tandem_codec *prepare(std::uint64_t moved_bytes, std::uint32_t columns, std::uint32_t rows,
                            const std::uint8_t *tables) {
  if (moved_bytes < kLeastMovedBytes || !wanted() || columns + rows > kMostShards || !state_works()) return nullptr;
  return codec_for(columns, rows, tables);
}

}  // namespace

// Any status but OK is no loss: libtandem has then written nothing, or (encode) what the caller writes again. Host
// memory has a commit point, also where a device fails.
bool offload_encode(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows, const std::uint8_t *tables,
                    const std::uint8_t *const *data, std::uint8_t *const *coding) noexcept {
  const tandem_codec *codec = prepare(std::uint64_t{length_bytes} * (columns + rows), columns, rows, tables);
  return codec != nullptr && state.library.encode(state.context, codec, reinterpret_cast<const void *const *>(data),
                                                  reinterpret_cast<void *const *>(coding), length_bytes) == TANDEM_OK;
}

bool offload_update(std::size_t length_bytes, std::uint32_t columns, std::uint32_t rows, std::uint32_t column,
                    const std::uint8_t *tables, const std::uint8_t *data, std::uint8_t *const *coding) noexcept {
  const tandem_codec *codec = prepare(std::uint64_t{length_bytes} * (rows + 1), columns, rows, tables);
  return codec != nullptr &&
         state.library.accumulate(state.context, codec, column, data, reinterpret_cast<void *const *>(coding),
                                  length_bytes, 0) == TANDEM_OK;
}

}  // namespace tandem::isal
