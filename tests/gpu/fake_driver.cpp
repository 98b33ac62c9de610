// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/fake_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "device/kernel_chooser.hpp"
#include "gpu/device_code/names.hpp"
#include "gpu/driver.hpp"
#include "tests/device/fake_kernel.hpp"
#include "tests/gpu/real_nvrtc.hpp"

namespace tandem::test {

using core::Mode;
using device::Technique;

namespace {

constexpr int kSharedBytes = 48 << 10;  // of a block
constexpr const char *kBinaryMark = "cubin:";
const unsigned char kImage[] = "the kernels of technique tables";

struct Made : MadeText {
  std::shared_ptr<const std::string> ptx;  // of a module that was loaded
  bool has_carveout = false;               // prefers shared memory
};

// The texts of what NVRTC made. Of the process, as made_texts().
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::string> text_of_binary;
};
Registry &registry() {
  static Registry all;
  return all;
}

using Command = FakeCommand;

struct FakeContext {
  int device;
};
struct FakeStream {
  FakeContext *context;
  std::shared_ptr<Command> last;
  bool is_capturing = false;
  std::thread::id capturer;         // the thread that began it
  bool is_capture_invalid = false;  // ended by a call of another thread
};
struct FakeEvent {
  std::shared_ptr<Command> command;
  bool waits_asleep = false;
};
struct FakePool {};
struct FakeModule {
  bool is_image;
  Made made;
  std::list<Made> functions;
};
struct FakeProgram {
  std::string text;
  RealNvrtc::Made made{};
};
struct Range {
  std::uint64_t bytes;
  int device;
  bool is_ours;  // a test's, not the backend's
  // Of a pool: there from `made` on, in the order of streams, until `freed`.
  std::shared_ptr<Command> made{}, freed{};
  std::vector<std::shared_ptr<Command>> uses{};
};

// What a command reads or writes on the device.
struct Use {
  CUdeviceptr first;
  std::uint64_t bytes;
};

// Contexts of a thread, one over the other. They are there to its very end, when it gives back its plans.
thread_local CUcontext current[16];
thread_local std::size_t depth = 0;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

}  // namespace

std::size_t fake_context_depth() { return depth; }
bool is_fake_capture_mode_global() { return capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL; }

struct FakeCuda::State {
  std::set<std::thread::id> compilers;
  tandem_cuda_module table{};
  FakeCudaScript script;
  std::uint64_t pinned_bytes = 0;
  CUresult death = CUDA_SUCCESS;
  FakeContext contexts[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
  FakeContext other_contexts[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
  std::map<std::uintptr_t, Range> device_memory, pinned_memory;
  std::set<FakeStream *> streams;
  std::map<void *, std::function<void()>> left;  // objects not released: a dead device's never are
  std::vector<std::function<void()>> graph;
  FakeStream legacy{&contexts[0], nullptr, false, {}, false};

  static void execute(const std::shared_ptr<Command> &command) {
    if (command != nullptr) command->execute();
  }
  // Whether a capture is in the way of this thread, its own or, all captures being of mode GLOBAL, another's, which is
  // invalid from now on: unless the thread has stepped out of it (cuThreadExchangeStreamCaptureMode: in mode RELAXED it
  // is not prohibited from potentially unsafe calls, but from those that conflict with the captured stream itself).
  bool is_capturing() {
    if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    bool is_in_the_way = false;
    for (FakeStream *each : streams) {
      if (!each->is_capturing) continue;
      if (each->capturer != std::this_thread::get_id()) each->is_capture_invalid = true;
      is_in_the_way = true;
    }
    return is_in_the_way;
  }
};

namespace {

FakeCuda::State *state = nullptr;
DriverCounts *counts = nullptr;
using Lock = DriverCounts::Lock;

enum Needs : unsigned { kNothing = 0, kContext = 1, kNoCapture = 2 };

CUresult error_of(Failure failure) {
  switch (failure) {
    case Failure::kills:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case Failure::out_of_memory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case Failure::of_capture:
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    default:
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
}

// Counts a call, and says how it fails; CUDA_SUCCESS: it does not.
CUresult begin(const char *function, unsigned needs) {
  ++counts->calls_by_name[function];
  if ((needs & kContext) != 0 && depth == 0) {
    counts->violate(fmt::format("{} without a context", function));
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if ((needs & kNoCapture) != 0 && state->is_capturing()) {
    counts->violate(fmt::format("{} while a stream is captured", function));
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (state->death != CUDA_SUCCESS) return state->death;
  const DriverScript &script = state->script.common;
  const bool fails_on = script.failure == Failure::of_capture && !counts->failed.empty() && (needs & kNoCapture) != 0;
  if (!counts->fails(function, script) && !fails_on) return CUDA_SUCCESS;
  const CUresult error = error_of(script.failure);
  if (gpu::is_sticky(error)) state->death = error;
  return error;
}
// Of what releases: it is done in any case.
void begin_release(const char *function) {
  ++counts->calls_by_name[function];
  if (state->is_capturing()) counts->violate(fmt::format("{} while a stream is captured", function));
}
#define BEGIN(function, needs)    \
  const Lock lock(counts->mutex); \
  if (const CUresult failure = begin(#function, needs); failure != CUDA_SUCCESS) return failure

template <class Made>
Made *keep(Made *made) {
  state->left[made] = [made] { delete made; };
  return made;
}
template <class Made>
void end(Made *made) {
  state->left.erase(made);
  delete made;
}

FakeStream *as(CUstream stream) {
  return stream == CU_STREAM_LEGACY ? &state->legacy : reinterpret_cast<FakeStream *>(stream);
}
FakeEvent *as(CUevent event) { return reinterpret_cast<FakeEvent *>(event); }

// The allocation that holds all of [first, first + bytes).
template <class Ranges>
auto *holder(Ranges &ranges, std::uintptr_t first, std::uint64_t bytes) {
  auto found = ranges.upper_bound(first);
  if (found == ranges.begin()) return static_cast<decltype(&*found)>(nullptr);
  --found;
  const std::uint64_t skip = first - found->first;
  return skip < found->second.bytes && bytes <= found->second.bytes - skip ? &*found : nullptr;
}

// Whether `command` cannot begin before `first` is over: by their streams and events, or because the program had waited
// for `first` before it put `command` into its stream.
bool comes_after(const Command &command, const Command &first) {
  std::vector<const Command *> left = {&command};
  std::set<const Command *> seen;
  while (!left.empty() && !first.is_done) {
    const Command *each = left.back();
    left.pop_back();
    if (each == &first) return true;
    if (!seen.insert(each).second) continue;
    for (const auto &before : each->before) left.push_back(before.get());
  }
  return first.is_done;
}

// Memory of a pool may be used by what comes after its allocation and before its release.
void note_uses(const std::shared_ptr<Command> &command, const std::vector<Use> &uses, const char *who) {
  for (const Use &use : uses) {
    auto *found = holder(state->device_memory, use.first, use.bytes);
    if (found == nullptr || found->second.is_ours) continue;
    Range &range = found->second;
    if (range.freed != nullptr) counts->violate(fmt::format("{}: memory that was freed before", who));
    if (!comes_after(*command, *range.made))
      counts->violate(fmt::format("{}: memory that may not be allocated yet", who));
    std::erase_if(range.uses, [](const std::shared_ptr<Command> &each) { return each->is_done; });
    range.uses.push_back(command);
  }
}

CUresult put(CUstream to, std::function<void()> action, std::shared_ptr<Command> also_before = nullptr,
             std::shared_ptr<Command> *made = nullptr, bool is_work = true, const std::vector<Use> &uses = {},
             const char *who = "") {
  FakeStream *stream = as(to);
  if (stream != &state->legacy && !state->streams.contains(stream)) {
    counts->violate("a command for a stream that is not there");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  auto command = std::make_shared<Command>();
  command->action = [action = std::move(action), kills = is_work && counts->begin_command(state->script.common)] {
    if (kills && state->death == CUDA_SUCCESS) state->death = CUDA_ERROR_LAUNCH_FAILED;
    if (state->death == CUDA_SUCCESS && action) action();
  };
  if (stream->is_capturing) {
    for (const Use &use : uses) {  // the graph may run any time
      const auto *found = holder(state->device_memory, use.first, use.bytes);
      if (found != nullptr && found->second.made != nullptr && !found->second.made->is_done)
        counts->violate(fmt::format("{}: captured with memory that may not be there yet", who));
    }
    state->graph.push_back(std::move(command->action));
    return CUDA_SUCCESS;
  }
  if (stream->last != nullptr) command->before.push_back(stream->last);
  if (also_before != nullptr) command->before.push_back(std::move(also_before));
  stream->last = command;
  note_uses(command, uses, who);
  if (made != nullptr) *made = command;
  return CUDA_SUCCESS;
}

CUresult put_work(CUstream to, const char *who, const std::vector<Use> &uses, std::function<void()> action) {
  return put(to, std::move(action), nullptr, nullptr, true, uses, who);
}

bool on_device(CUdeviceptr first, std::uint64_t bytes, const char *who) {
  if (holder(state->device_memory, first, bytes) != nullptr) return true;
  counts->violate(fmt::format("{}: {} bytes at {:#x} are not in device memory", who, bytes, first));
  return false;
}

CUdeviceptr make_memory(std::uint64_t bytes, int device, bool is_ours) {
  void *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, kOldByte, bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  state->device_memory[address] = {bytes, device, is_ours, {}, {}, {}};
  return address;
}

// ---- kernels -----------------------------------------------------------------------------------------

struct Call {
  Made made;
  device::KernelArguments arguments;
  device::KernelRange range;
  std::array<unsigned, 3> grid;
  unsigned shared_bytes;
};

void run_ptx(const Call &call) {
  const auto is_on_device = [](std::uint64_t first, std::uint64_t bytes) { return on_device(first, bytes, "kernel"); };
  const std::string wrong = state->script.run_ptx(
      {*call.made.ptx, call.made.spec, call.arguments, call.grid, call.shared_bytes, is_on_device});
  if (!wrong.empty()) counts->violate(wrong);
}

void compute(const Call &call) {
  if (state->script.run_ptx) return run_ptx(call);
  const device::KernelArguments &arguments = call.arguments;
  const bool is_batch = call.made.spec.binding == device::Binding::table;
  const std::uint64_t rows = is_batch ? std::uint64_t{call.grid[1]} * call.grid[2] : 0;
  const auto find = [&](KernelRun::Part part, unsigned, std::uint64_t start, std::uint64_t bytes) -> std::uint8_t * {
    const void *at = reinterpret_cast<const void *>(start);
    if (part == KernelRun::words) at = is_batch ? arguments.shards[0] : &arguments.shards;
    if (part == KernelRun::records) at = arguments.records;
    if (part == KernelRun::tables) at = arguments.tables;
    const bool is_argument = part == KernelRun::words && !is_batch;
    if (!is_argument && !on_device(reinterpret_cast<CUdeviceptr>(at), bytes, KernelRun::kNames[part])) return nullptr;
    return static_cast<std::uint8_t *>(const_cast<void *>(at));
  };
  KernelRun{call.made, arguments.columns, arguments.rows, call.range, rows, find}.run(*counts, state->script.common);
}

// ---- the driver ----------------------------------------------------------------------------------------

// By the names of the table.
namespace fake {

CUresult cuInit(unsigned) {
  BEGIN(cuInit, kNothing);
  return state->script.init_error;
}
CUresult cuDriverGetVersion(int *out) {
  BEGIN(cuDriverGetVersion, kNothing);
  *out = state->script.driver_version;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char **out) {
  *out = error == CUDA_ERROR_OUT_OF_MEMORY             ? "CUDA_ERROR_OUT_OF_MEMORY"
         : error == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
         : error == CUDA_ERROR_ILLEGAL_ADDRESS         ? "CUDA_ERROR_ILLEGAL_ADDRESS"
         : error == CUDA_ERROR_LAUNCH_FAILED           ? "CUDA_ERROR_LAUNCH_FAILED"
         : error == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
                                                       : "CUDA_ERROR_OF_THE_FAKE";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **out) {
  *out = "by script";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *out) {
  BEGIN(cuDeviceGetCount, kNothing);
  *out = static_cast<int>(state->script.devices.size());
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *out, int ordinal) {
  BEGIN(cuDeviceGet, kNothing);
  *out = ordinal;
  return CUDA_SUCCESS;
}
const FakeGpu &gpu_of(CUdevice device) { return state->script.devices.at(static_cast<std::size_t>(device)); }

CUresult cuDeviceGetName(char *out, int room, CUdevice device) {
  BEGIN(cuDeviceGetName, kNothing);
  std::strncpy(out, gpu_of(device).name.c_str(), static_cast<std::size_t>(room));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute what, CUdevice device) {
  BEGIN(cuDeviceGetAttribute, kNothing);
  const FakeGpu &gpu = gpu_of(device);
  const std::map<CUdevice_attribute, int> values = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu.major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu.minor},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, gpu.compute_mode},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, gpu.has_pools},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, gpu.is_integrated},
      {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, gpu.reads_pageable},
      {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, gpu.uses_host_page_tables},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, kSharedBytes}};
  const auto found = values.find(what);
  if (found == values.end()) return CUDA_ERROR_INVALID_VALUE;
  *out = found->second;
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t *out, CUdevice device) {
  BEGIN(cuDeviceTotalMem, kNothing);
  *out = gpu_of(device).memory_bytes;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  BEGIN(cuDevicePrimaryCtxRetain, kNoCapture);
  ++counts->objects["primary context"];
  *out = reinterpret_cast<CUcontext>(&state->contexts[device]);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  const Lock lock(counts->mutex);
  begin_release("cuDevicePrimaryCtxRelease");
  --counts->objects["primary context"];
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  BEGIN(cuCtxPushCurrent, kNothing);
  current[depth++] = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext *out) {
  if (depth == 0) {
    counts->violate("cuCtxPopCurrent without a context");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *out = current[--depth];
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}
int current_device() { return reinterpret_cast<FakeContext *>(current[depth - 1])->device; }

CUresult cuMemGetInfo(std::size_t *free, std::size_t *total) {
  BEGIN(cuMemGetInfo, kContext | kNoCapture);
  *free = gpu_of(current_device()).free_bytes;
  *total = gpu_of(current_device()).memory_bytes;
  return CUDA_SUCCESS;
}
bool may_pin(std::uint64_t bytes) {
  const std::uint64_t limit = state->script.pinned_limit_bytes;
  return bytes <= limit - std::min(state->pinned_bytes, limit);
}
void note_pinned(void *memory, std::uint64_t bytes, bool is_ours) {
  state->pinned_bytes += bytes;
  ++counts->objects[is_ours ? "registered memory" : "pinned memory"];
  state->pinned_memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, 0, is_ours};
}
// As the driver does: not before all that may use it is over. Whether it was there.
bool unpin(void *memory, const char *function) {
  begin_release(function);
  for (FakeStream *each : state->streams) state->execute(each->last);
  const auto found = state->pinned_memory.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == state->pinned_memory.end()) {
    counts->violate(fmt::format("{} of what is not there", function));
    return false;
  }
  state->pinned_bytes -= found->second.bytes;
  --counts->objects[found->second.is_ours ? "registered memory" : "pinned memory"];
  state->pinned_memory.erase(found);
  return true;
}

CUresult cuMemHostAlloc(void **out, std::size_t bytes, unsigned flags) {
  BEGIN(cuMemHostAlloc, kContext | kNoCapture);
  if ((flags & CU_MEMHOSTALLOC_PORTABLE) == 0) counts->violate("pinned memory that is not portable");
  if (!may_pin(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*out == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(*out, kOldByte, bytes);
  note_pinned(*out, bytes, false);
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *memory) {
  const Lock lock(counts->mutex);
  if (!unpin(memory, "cuMemFreeHost")) return CUDA_ERROR_INVALID_VALUE;
  std::free(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void *memory, std::size_t bytes, unsigned flags) {
  BEGIN(cuMemHostRegister, kContext | kNoCapture);
  if ((flags & CU_MEMHOSTREGISTER_PORTABLE) == 0) counts->violate("memory registered for one context alone");
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  for (const auto &[address, range] : state->pinned_memory)
    if (address < begin + bytes && begin < address + range.bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (!may_pin(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  note_pinned(memory, bytes, true);
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void *memory) {
  const Lock lock(counts->mutex);
  return unpin(memory, "cuMemHostUnregister") ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *) {
  BEGIN(cuMemPoolCreate, kNoCapture);
  ++counts->objects["pool"];
  *out = reinterpret_cast<CUmemoryPool>(keep(new FakePool));
  return CUDA_SUCCESS;
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const Lock lock(counts->mutex);
  begin_release("cuMemPoolDestroy");
  --counts->objects["pool"];
  end(reinterpret_cast<FakePool *>(pool));
  return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void *) {
  BEGIN(cuMemPoolSetAttribute, kNothing);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool, std::size_t) {
  const Lock lock(counts->mutex);
  begin_release("cuMemPoolTrimTo");
  return CUDA_SUCCESS;
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, std::size_t bytes, CUmemoryPool, CUstream stream) {
  BEGIN(cuMemAllocFromPoolAsync, kContext | kNoCapture);
  const FakeGpu &gpu = gpu_of(as(stream)->context->device);
  if (bytes > gpu.available_bytes - std::min(counts->alive_bytes, gpu.available_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  counts->account(bytes);
  ++counts->objects["device memory"];
  *out = make_memory(bytes, as(stream)->context->device, false);
  return put(stream, nullptr, nullptr, &state->device_memory[*out].made, false);
}
CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream) {
  const Lock lock(counts->mutex);
  begin_release("cuMemFreeAsync");
  const auto found = state->device_memory.find(memory);
  if (found == state->device_memory.end() || found->second.is_ours) {
    counts->violate("cuMemFreeAsync of what is not there");
    return CUDA_ERROR_INVALID_VALUE;
  }
  counts->alive_bytes -= found->second.bytes;
  --counts->objects["device memory"];
  // In the order of the stream, and no earlier.
  std::shared_ptr<Command> freed;
  const CUresult result = put(
      stream,
      [memory] {
        state->device_memory.erase(memory);
        std::free(reinterpret_cast<void *>(memory));
      },
      nullptr, &freed, false);
  if (freed == nullptr) return result;
  if (!comes_after(*freed, *found->second.made)) counts->violate("cuMemFreeAsync: before the allocation");
  for (const auto &use : std::exchange(found->second.uses, {}))
    if (!comes_after(*freed, *use)) counts->violate("cuMemFreeAsync: of memory that may still be used");
  found->second.freed = std::move(freed);
  return result;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, std::size_t bytes, CUstream stream) {
  BEGIN(cuMemcpyHtoDAsync, kContext);
  return put_work(stream, "cuMemcpyHtoDAsync", {{to, bytes}}, [=] {
    if (on_device(to, bytes, "cuMemcpyHtoDAsync")) std::memcpy(reinterpret_cast<void *>(to), from, bytes);
  });
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  BEGIN(cuMemcpyDtoHAsync, kContext);
  counts->calls_by_name["bytes to the host"] += bytes;
  return put_work(stream, "cuMemcpyDtoHAsync", {{from, bytes}}, [=] {
    if (on_device(from, bytes, "cuMemcpyDtoHAsync")) std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
  });
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  BEGIN(cuMemsetD32Async, kContext);
  return put_work(stream, "cuMemsetD32Async", {{to, count * 4}}, [=] {
    if (on_device(to, count * 4, "cuMemsetD32Async")) std::fill_n(reinterpret_cast<std::uint32_t *>(to), count, value);
  });
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *what, void **out, CUdeviceptr pointer) {
  BEGIN(cuPointerGetAttributes, kNothing);
  const auto *device = holder(state->device_memory, pointer, 1), *pinned = holder(state->pinned_memory, pointer, 1);
  const auto *found = device != nullptr ? device : pinned;
  for (unsigned i = 0; i < count; ++i) {
    switch (what[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned *>(out[i]) = device != nullptr   ? unsigned{CU_MEMORYTYPE_DEVICE}
                                           : pinned != nullptr ? unsigned{CU_MEMORYTYPE_HOST}
                                                               : 0u;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(out[i]) = found != nullptr ? found->second.device : -2;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<unsigned *>(out[i]) = 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr *>(out[i]) = found != nullptr ? found->first : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t *>(out[i]) = found != nullptr ? found->second.bytes : 0;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream *out, unsigned) {
  BEGIN(cuStreamCreate, kContext | kNoCapture);
  ++counts->objects["stream"];
  auto *stream = new FakeStream{reinterpret_cast<FakeContext *>(current[depth - 1]), nullptr, false, {}, false};
  state->streams.insert(stream);
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  const Lock lock(counts->mutex);
  begin_release("cuStreamDestroy");
  --counts->objects["stream"];
  state->execute(as(stream)->last);
  state->streams.erase(as(stream));
  delete as(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  BEGIN(cuStreamSynchronize, kContext | kNoCapture);
  if (as(stream)->is_capturing) {
    counts->violate("cuStreamSynchronize of a stream that is captured");
    as(stream)->is_capture_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  state->execute(as(stream)->last);
  return state->death;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  BEGIN(cuStreamWaitEvent, kContext | kNoCapture);
  return put(stream, nullptr, as(event)->command, nullptr, false);
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *out) {
  BEGIN(cuStreamIsCapturing, kNothing);
  *out = as(stream)->is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext *out) {
  BEGIN(cuStreamGetCtx, kNothing);
  if (as(stream) != &state->legacy && !state->streams.contains(as(stream))) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUcontext>(as(stream)->context);
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *out, unsigned flags) {
  BEGIN(cuEventCreate, kContext | kNoCapture);
  ++counts->objects["event"];
  *out = reinterpret_cast<CUevent>(keep(new FakeEvent{nullptr, (flags & CU_EVENT_BLOCKING_SYNC) != 0}));
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  const Lock lock(counts->mutex);
  begin_release("cuEventDestroy");
  --counts->objects["event"];
  end(as(event));
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  BEGIN(cuEventRecord, kContext | kNoCapture);
  if (as(stream)->is_capturing) counts->violate("cuEventRecord in a captured stream, for a wait outside of it");
  return put(stream, nullptr, nullptr, &as(event)->command, false);
}
// Done at a query, or not before a wait. The number of queries depends on time, so scripts do not count them among the
// calls that fail.
CUresult cuEventQuery(CUevent event) {
  const Lock lock(counts->mutex);
  ++counts->calls_by_name["cuEventQuery"];
  if (depth == 0) counts->violate("cuEventQuery without a context");
  if (state->is_capturing()) counts->violate("cuEventQuery while a stream is captured");
  if (state->script.query_error != CUDA_SUCCESS) return state->script.query_error;
  if (state->script.common.is_done_when_asked) state->execute(as(event)->command);
  if (state->death != CUDA_SUCCESS) return state->death;
  const auto &command = as(event)->command;
  return command == nullptr || command->is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent event) {
  BEGIN(cuEventSynchronize, kContext | kNoCapture);
  if (!as(event)->waits_asleep) counts->violate("cuEventSynchronize turns a core");
  counts->sleeps += as(event)->command != nullptr && !as(event)->command->is_done;
  state->execute(as(event)->command);
  return state->death;
}

// A cubin says itself how long it is.
std::string binary_of(const void *image) {
  const char *bytes = static_cast<const char *>(image);
  if (std::memcmp(bytes, "\177ELF", 4) != 0) return bytes;  // a text: the fake's, or PTX
  std::uint64_t sections = 0;
  std::uint16_t entry_bytes = 0, entries = 0;
  std::memcpy(&sections, bytes + 0x28, 8);
  std::memcpy(&entry_bytes, bytes + 0x3a, 2);
  std::memcpy(&entries, bytes + 0x3c, 2);
  std::uint64_t segments = 0;
  std::uint16_t segment_bytes = 0, segment_count = 0;
  std::memcpy(&segments, bytes + 0x20, 8);
  std::memcpy(&segment_bytes, bytes + 0x36, 2);
  std::memcpy(&segment_count, bytes + 0x38, 2);
  return {bytes, std::max(sections + std::uint64_t{entry_bytes} * entries,
                          segments + std::uint64_t{segment_bytes} * segment_count)};
}

CUresult cuModuleLoadData(CUmodule *out, const void *image) {
  BEGIN(cuModuleLoadData, kContext | kNoCapture);
  auto module = std::make_unique<FakeModule>();
  module->is_image = image == kImage;
  if (module->is_image) {
    if (state->script.refuses_image) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  } else {
    if (state->script.common.refuses_binaries) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    std::string text = binary_of(image);
    const auto ptx = std::make_shared<const std::string>(text);
    Registry &all = registry();
    const std::lock_guard also(all.mutex);
    if (text.starts_with(kBinaryMark)) {
      text = text.substr(std::strlen(kBinaryMark));
    } else {
      const auto found = all.text_of_binary.find(text);
      if (found == all.text_of_binary.end()) return CUDA_ERROR_INVALID_IMAGE;
      text = found->second;
    }
    const auto made = made_from(text);
    if (!made.has_value()) return CUDA_ERROR_INVALID_IMAGE;
    static_cast<MadeText &>(module->made) = *made;
    module->made.ptx = ptx;
  }
  ++counts->objects["module"];
  *out = reinterpret_cast<CUmodule>(keep(module.release()));
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  const Lock lock(counts->mutex);
  begin_release("cuModuleUnload");
  --counts->objects["module"];
  end(reinterpret_cast<FakeModule *>(module));
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *out, CUmodule from, const char *name) {
  BEGIN(cuModuleGetFunction, kContext | kNoCapture);
  auto *module = reinterpret_cast<FakeModule *>(from);
  Made made = module->made;
  bool is_there = !module->is_image && made.spec.name == name;
  if (module->is_image) {
    for (const device::KernelSpec &spec : gpu::tables_kernels()) {
      if (spec.name != name) continue;
      made.spec = spec;
      is_there = true;
    }
  }
  if (!is_there) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUfunction>(&module->functions.emplace_back(made));
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *out, CUfunction_attribute, CUfunction) {
  BEGIN(cuFuncGetAttribute, kContext | kNoCapture);
  *out = gpu_of(current_device()).most_threads;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute what, int value) {
  BEGIN(cuFuncSetAttribute, kContext | kNoCapture);
  if (what != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT || value != CU_SHAREDMEM_CARVEOUT_MAX_SHARED)
    counts->violate("an attribute that no kernel needs");
  reinterpret_cast<Made *>(function)->has_carveout = true;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y,
                        unsigned z, unsigned shared_bytes, CUstream stream, void **parameters, void **) {
  BEGIN(cuLaunchKernel, kContext);
  Call call{*reinterpret_cast<Made *>(function),
            *static_cast<device::KernelArguments *>(parameters[0]),
            {},
            {grid, grid_y, grid_z},
            shared_bytes};
  device::KernelSpec &spec = call.made.spec;
  spec.tuning.local = {x, y, z};
  device::KernelRange &range = call.range;
  const bool is_batch = spec.binding == device::Binding::table;
  if (!is_batch) {
    range = device::cut_kernel_range(spec, call.arguments.length,
                                     reinterpret_cast<CUdeviceptr>(call.arguments.shards[call.arguments.columns]));
    if (grid != range.group_count || grid_y != 1 || grid_z != 1)
      counts->violate(fmt::format("a grid of {} groups where {} belong", grid, range.group_count));
    if (range.begin != call.arguments.begin || range.end != call.arguments.end)
      counts->violate("a range that the kernel does not have");
  } else if (grid == 0 || grid_y == 0 || grid_z == 0 || grid_y > 65'535 || grid_z > 65'535) {
    counts->violate(fmt::format("a grid of {} x {} x {} groups", grid, grid_y, grid_z));
  }
  if (is_batch) range.group_count = grid;
  if (std::uint64_t{x} * y * z > static_cast<std::uint64_t>(gpu_of(current_device()).most_threads))
    return CUDA_ERROR_INVALID_VALUE;
  if (const std::uint64_t wanted = device::kernel_shared_bytes(spec, call.arguments.columns); shared_bytes != wanted)
    counts->violate(fmt::format("{} bytes of shared memory where {} belong", shared_bytes, wanted));
  if (shared_bytes > unsigned{kSharedBytes}) return CUDA_ERROR_INVALID_VALUE;
  if (call.made.has_carveout != (spec.technique == Technique::transform))
    counts->violate("shared memory is preferred by technique transform alone");
  const device::KernelArguments &arguments = call.arguments;
  std::vector<Use> uses;
  const unsigned shards = arguments.columns + arguments.rows;
  const std::uint64_t table_bytes = std::uint64_t{grid_y} * grid_z * (3 + shards) * 8;
  if (is_batch) uses.push_back({reinterpret_cast<CUdeviceptr>(arguments.shards[0]), table_bytes});
  for (unsigned i = 0; i < shards && !is_batch; ++i)
    uses.push_back({reinterpret_cast<CUdeviceptr>(arguments.shards[i]), arguments.length});
  if (spec.mode == Mode::compare)
    uses.push_back({reinterpret_cast<CUdeviceptr>(arguments.records), range.record_bytes(arguments.rows)});
  if (spec.technique == Technique::tables) uses.push_back({reinterpret_cast<CUdeviceptr>(arguments.tables), 4});
  return put_work(stream, "cuLaunchKernel", uses, [call] { compute(call); });
}

// ---- NVRTC -----------------------------------------------------------------------------------------------

const RealNvrtc &real() {
  static const RealNvrtc found = [] {
    for (const char *file : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
      if (RealNvrtc each(file); each.is_there) return each;
    return RealNvrtc("/usr/local/cuda/lib64/libnvrtc.so");
  }();
  return found;
}

nvrtcResult rtc(const char *function) {
  ++counts->calls_by_name[function];
  if (state->is_capturing()) counts->violate(fmt::format("{} while a stream is captured", function));
  return counts->fails(function, state->script.common) ? NVRTC_ERROR_INTERNAL_ERROR : NVRTC_SUCCESS;
}
#define BEGIN_RTC(function)       \
  const Lock lock(counts->mutex); \
  if (const nvrtcResult failure = rtc(#function); failure != NVRTC_SUCCESS) return failure

nvrtcResult nvrtcVersion(int *major, int *minor) {
  BEGIN_RTC(nvrtcVersion);
  if (state->script.real_nvrtc) return real().nvrtcVersion(major, minor);
  *major = state->script.nvrtc_version / 1000;
  *minor = state->script.nvrtc_version % 1000 / 10;
  return NVRTC_SUCCESS;
}
const char *nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_ERROR_COMPILATION ? "compilation" : "by script";
}
nvrtcResult nvrtcGetNumSupportedArchs(int *out) {
  BEGIN_RTC(nvrtcGetNumSupportedArchs);
  *out = static_cast<int>(state->script.architectures.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int *out) {
  BEGIN_RTC(nvrtcGetSupportedArchs);
  std::copy(state->script.architectures.begin(), state->script.architectures.end(), out);
  return NVRTC_SUCCESS;
}
FakeProgram *as(nvrtcProgram program) { return reinterpret_cast<FakeProgram *>(program); }

nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *text, const char *, int, const char *const *,
                               const char *const *) {
  BEGIN_RTC(nvrtcCreateProgram);
  ++counts->objects["program"];
  *out = reinterpret_cast<nvrtcProgram>(keep(new FakeProgram{text}));
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
  const Lock lock(counts->mutex);
  --counts->objects["program"];
  end(as(*program));
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options) {
  BEGIN_RTC(nvrtcCompileProgram);
  state->compilers.insert(std::this_thread::get_id());
  const std::string &text = as(program)->text;
  RealNvrtc::Made &made = as(program)->made;
  made = {NVRTC_SUCCESS, "fake: no", kBinaryMark + text + '\0'};
  if (state->script.common.refuses_text) return NVRTC_ERROR_COMPILATION;
  if (!state->script.real_nvrtc) return NVRTC_SUCCESS;
  made = real().compile(text, {options, options + count});
  Registry &all = registry();
  const std::lock_guard also(all.mutex);
  if (made.result == NVRTC_SUCCESS) all.text_of_binary[binary_of(made.binary.data())] = text;
  return made.result;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t *out) {
  BEGIN_RTC(nvrtcGetProgramLogSize);
  *out = as(program)->made.log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *out) {
  BEGIN_RTC(nvrtcGetProgramLog);
  std::strcpy(out, as(program)->made.log.c_str());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t *out) {
  BEGIN_RTC(nvrtcGetCUBINSize);
  *out = as(program)->made.binary.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *out) {
  BEGIN_RTC(nvrtcGetCUBIN);
  std::memcpy(out, as(program)->made.binary.data(), as(program)->made.binary.size());
  return NVRTC_SUCCESS;
}

// PTX, as far as the fake is concerned, is the same.
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, std::size_t *out) {
  const Lock lock(counts->mutex);
  ++counts->calls_by_name["nvrtcGetPTXSize"];
  return fake::nvrtcGetCUBINSize(program, out);
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *out) { return fake::nvrtcGetCUBIN(program, out); }

}  // namespace fake

}  // namespace

device::KernelText fake_cuda_generate(const core::Matrix &matrix, const device::KernelSpec &spec) {
  return note_text(device::generate_kernel(matrix, spec), matrix, spec);
}

bool has_real_nvrtc() { return fake::real().is_there; }

FakeCuda::FakeCuda(const FakeCudaScript &script) {
  state = new State;
  counts = this;
  state->script = script;
  tandem_cuda_module &table = state->table;
  table.version = TANDEM_CUDA_VERSION;
  table.struct_bytes = sizeof table;
  table.problem = script.problem;
  table.nvrtc_problem = script.nvrtc_problem;
  if (script.has_image) {
    table.tables_image = kImage;
    table.tables_image_bytes = sizeof kImage;
  }
#define TAKE(name) table.name = fake::name;
  if (script.problem == nullptr) {
    TANDEM_CUDA_FUNCTIONS(TAKE)
  }
  if (script.nvrtc_problem == nullptr) {
    TANDEM_NVRTC_FUNCTIONS(TAKE)
  }
#undef TAKE
}

FakeCuda::~FakeCuda() {
  gpu::forget_given_up(state->table);
  for (const auto &[address, range] : state->device_memory) std::free(reinterpret_cast<void *>(address));
  for (const auto &[address, range] : state->pinned_memory)
    if (!range.is_ours) std::free(reinterpret_cast<void *>(address));
  for (FakeStream *each : state->streams) delete each;
  for (const auto &[object, end_of] : state->left) end_of();
  delete std::exchange(state, nullptr);
}

const tandem_cuda_module *FakeCuda::table() const noexcept { return &state->table; }

void FakeCuda::set_script(const FakeCudaScript &script) {
  const Lock lock(mutex);
  state->script = script;
  begin_again();
}
bool FakeCuda::has_called_nvrtc(std::thread::id thread) const {
  const Lock lock(counts->mutex);
  return state->compilers.contains(thread);
}
bool FakeCuda::is_dead() const {
  const Lock lock(counts->mutex);
  return state->death != CUDA_SUCCESS;
}

CUcontext FakeCuda::context(int device) { return reinterpret_cast<CUcontext>(&state->contexts[device]); }
CUdeviceptr FakeCuda::allocate(std::uint64_t bytes, int device) {
  const Lock lock(counts->mutex);
  return make_memory(bytes, device, true);
}
void FakeCuda::free(CUdeviceptr memory) {
  const Lock lock(counts->mutex);
  state->device_memory.erase(memory);
  std::free(reinterpret_cast<void *>(memory));
}
CUstream FakeCuda::make_stream(int device, bool in_primary_context) {
  const Lock lock(counts->mutex);
  auto *stream = new FakeStream{
      in_primary_context ? &state->contexts[device] : &state->other_contexts[device], nullptr, false, {}, false};
  state->streams.insert(stream);
  return reinterpret_cast<CUstream>(stream);
}
void FakeCuda::destroy(CUstream stream) {
  const Lock lock(counts->mutex);
  state->execute(as(stream)->last);
  state->streams.erase(as(stream));
  delete as(stream);
}
void FakeCuda::synchronize(CUstream stream) {
  const Lock lock(counts->mutex);
  state->execute(as(stream)->last);
}
void FakeCuda::register_host(const void *memory, std::uint64_t bytes) {
  const Lock lock(counts->mutex);
  state->pinned_memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, 0, true};
}
void FakeCuda::unregister_host(const void *memory) {
  const Lock lock(counts->mutex);
  state->pinned_memory.erase(reinterpret_cast<std::uintptr_t>(memory));
}
void FakeCuda::begin_capture(CUstream stream) {
  const Lock lock(counts->mutex);
  state->graph.clear();
  as(stream)->is_capturing = true;
  as(stream)->is_capture_invalid = false;
  as(stream)->capturer = std::this_thread::get_id();
}
std::size_t FakeCuda::end_capture(CUstream stream) {
  const Lock lock(counts->mutex);
  as(stream)->is_capturing = false;
  return state->graph.size();
}
bool FakeCuda::is_capture_invalid(CUstream stream) const {
  const Lock lock(counts->mutex);
  return as(stream)->is_capture_invalid;
}
void FakeCuda::launch_graph() {
  const Lock lock(counts->mutex);
  for (const auto &each : state->graph) {
    auto again = each;
    again();
  }
}

}  // namespace tandem::test
