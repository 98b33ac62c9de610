// SPDX-License-Identifier: Apache-2.0
#include "tests/opencl/fake_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/device/fake_kernel.hpp"

namespace tandem::test {

using device::Access;
using device::Binding;
using device::Technique;

namespace {

struct Storage {
  std::vector<std::uint8_t> bytes;
};

using Command = FakeCommand;

struct Object {
  const char *kind;
  int references = 1;
  virtual ~Object() = default;
};

struct FakeContext : Object {};
struct FakeQueue : Object {
  FakeContext *context;
  cl_device_id device;
  bool is_in_order = true;
  std::vector<std::shared_ptr<Command>> pending;  // in order: the last one alone
};
struct FakeBuffer : Object {
  FakeContext *context;
  cl_mem_flags flags;
  std::shared_ptr<Storage> storage;
  bool on_device = true;
};
struct FakeProgram : Object {
  std::string text;
  bool is_built = false;
};
struct FakeKernel : Object {
  std::string text;
  std::vector<std::vector<std::uint8_t>> arguments;
};
struct FakeEvent : Object {
  std::shared_ptr<Command> command;
};

constexpr cl_device_info kSubGroupSizes = 0x4108;
constexpr cl_kernel_work_group_info kSpilledBytes = 0x4109;
constexpr const char *kBinaryMark = "binary:";

int platform_object, device_objects[8];

}  // namespace

struct FakeDriver::State {
  FakeDriverScript script;
  std::string build_options;

  // Out of order: what was put in last is done first.
  static void execute_all(std::vector<std::shared_ptr<Command>> queued) {
    for (auto each = queued.rbegin(); each != queued.rend(); ++each) (*each)->execute();
  }
};

namespace {

FakeDriver::State *state = nullptr;
DriverCounts *counts = nullptr;
using Lock = DriverCounts::Lock;

template <class Made>
Made *make_object(const char *kind) {
  auto *made = new Made;
  made->kind = kind;
  ++counts->objects[kind];
  return made;
}

template <class Handle>
cl_int release_object(Handle handle) {
  auto *object = reinterpret_cast<Object *>(handle);
  if (--object->references > 0) return CL_SUCCESS;
  if (auto *buffer = dynamic_cast<FakeBuffer *>(object); buffer != nullptr && buffer->on_device)
    counts->alive_bytes -= buffer->storage->bytes.size();
  if (auto *queue = dynamic_cast<FakeQueue *>(object)) state->execute_all(std::exchange(queue->pending, {}));
  --counts->objects[object->kind];
  delete object;
  return CL_SUCCESS;
}

template <class Handle>
cl_int retain_object(Handle handle) {
  ++reinterpret_cast<Object *>(handle)->references;
  return CL_SUCCESS;
}

// Counts a call; whether the script wants it to fail.
bool fails(const char *function) {
  ++counts->calls_by_name[function];
  return counts->fails(function, state->script.common);
}

cl_int write_value(const void *value, std::size_t bytes, std::size_t room, void *out, std::size_t *needed) {
  if (needed != nullptr) *needed = bytes;
  if (out == nullptr) return CL_SUCCESS;
  if (room < bytes) return CL_INVALID_VALUE;
  std::memcpy(out, value, bytes);
  return CL_SUCCESS;
}
template <class Value>
cl_int write_number(Value value, std::size_t room, void *out, std::size_t *needed) {
  return write_value(&value, sizeof value, room, out, needed);
}
cl_int write_text(const std::string &text, std::size_t room, void *out, std::size_t *needed) {
  return write_value(text.c_str(), text.size() + 1, room, out, needed);
}

FakeBuffer *as(cl_mem buffer) { return reinterpret_cast<FakeBuffer *>(buffer); }
FakeQueue *as(cl_command_queue queue) { return reinterpret_cast<FakeQueue *>(queue); }

// Puts a command into a queue.
cl_int enqueue(cl_command_queue queue, cl_uint wait_count, const cl_event *waits, cl_event *event, bool blocking,
               std::function<void()> action) {
  auto command = std::make_shared<Command>();
  command->action = std::move(action);
  command->fails_by_script = counts->begin_command(state->script.common);
  auto &pending = as(queue)->pending;
  if (as(queue)->is_in_order) command->before = std::exchange(pending, {});
  for (cl_uint i = 0; i < wait_count; ++i) command->waits.push_back(reinterpret_cast<FakeEvent *>(waits[i])->command);
  pending.push_back(command);
  if (event != nullptr) {
    auto *made = make_object<FakeEvent>("event");
    made->command = command;
    *event = reinterpret_cast<cl_event>(made);
  }
  if (!blocking) return CL_SUCCESS;
  command->execute();
  return command->has_failed ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

bool inside(const Storage &storage, std::uint64_t offset, std::uint64_t bytes, const char *who) {
  if (offset <= storage.bytes.size() && bytes <= storage.bytes.size() - offset) return true;
  counts->violate(fmt::format("{}: {} bytes at {} of a buffer of {}", who, bytes, offset, storage.bytes.size()));
  return false;
}

template <class Value>
Value value_of(const std::vector<std::uint8_t> &argument) {
  Value value{};
  if (argument.size() != sizeof value) {
    counts->violate(fmt::format("an argument of {} bytes where {} belong", argument.size(), sizeof value));
    return value;
  }
  std::memcpy(&value, argument.data(), sizeof value);
  return value;
}

// What the kernel's arguments name, taken at the time of the call.
struct Call {
  KernelRun run;
  std::vector<std::shared_ptr<Storage>> shards;
  std::shared_ptr<Storage> offsets, records, tables;

  std::uint8_t *find(KernelRun::Part part, unsigned shard, std::uint64_t start, std::uint64_t bytes) const {
    const bool is_own = run.made.spec.binding == Binding::arguments;
    Storage &storage = part == KernelRun::words     ? *offsets
                       : part == KernelRun::records ? *records
                       : part == KernelRun::tables
                           ? *tables
                           : *shards[is_own ? shard : static_cast<unsigned>(shard >= run.columns)];
    return inside(storage, start, bytes, KernelRun::kNames[part]) ? storage.bytes.data() + start : nullptr;
  }
};

// ---- the driver ------------------------------------------------------------------------------------

// By the names of the table.
namespace fake {

cl_int CL_API_CALL clGetPlatformIDs(cl_uint room, cl_platform_id *out, cl_uint *count) {
  double seconds = 0;
  {
    const Lock lock(counts->mutex);
    if (fails("clGetPlatformIDs")) return CL_OUT_OF_HOST_MEMORY;
    seconds = state->script.listing_seconds;
  }
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  if (count != nullptr) *count = 1;
  if (room != 0) *out = reinterpret_cast<cl_platform_id>(&platform_object);
  return CL_SUCCESS;
}

cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id, cl_platform_info, std::size_t room, void *out,
                                     std::size_t *needed) {
  const Lock lock(counts->mutex);
  if (fails("clGetPlatformInfo")) return CL_OUT_OF_HOST_MEMORY;
  return write_text("Fake Platform", room, out, needed);
}

cl_int CL_API_CALL clGetDeviceIDs(cl_platform_id, cl_device_type, cl_uint room, cl_device_id *out, cl_uint *count) {
  const Lock lock(counts->mutex);
  if (fails("clGetDeviceIDs")) return CL_OUT_OF_RESOURCES;
  const auto there = static_cast<cl_uint>(state->script.devices.size());
  if (there == 0) return CL_DEVICE_NOT_FOUND;
  if (count != nullptr) *count = there;
  for (cl_uint i = 0; i < std::min(room, there); ++i) out[i] = reinterpret_cast<cl_device_id>(&device_objects[i]);
  return CL_SUCCESS;
}

const FakeDevice &device_of(cl_device_id id) {
  return state->script.devices.at(static_cast<std::size_t>(reinterpret_cast<int *>(id) - device_objects));
}

cl_int CL_API_CALL clGetDeviceInfo(cl_device_id id, cl_device_info what, std::size_t room, void *out,
                                   std::size_t *needed) {
  const Lock lock(counts->mutex);
  if (fails("clGetDeviceInfo")) return CL_OUT_OF_RESOURCES;
  const FakeDevice &device = device_of(id);
  const auto bytes_of = [](auto value) { return std::string(reinterpret_cast<const char *>(&value), sizeof value); };
  const auto text = [](const std::string &value) { return value + '\0'; };
  const std::array<std::size_t, 3> sizes = {device.most_group_items, device.most_group_items, 64};
  const std::map<cl_device_info, std::string> values = {
      {CL_DEVICE_TYPE, bytes_of(device.type)},
      {CL_DEVICE_NAME, text(device.name)},
      {CL_DEVICE_VENDOR, text(device.vendor)},
      {CL_DRIVER_VERSION, text("1.0")},
      {CL_DEVICE_EXTENSIONS, text(device.sub_groups.empty() ? "" : "cl_khr_fp64 cl_intel_required_subgroup_size")},
      {kSubGroupSizes, std::string(reinterpret_cast<const char *>(device.sub_groups.data()),
                                   device.sub_groups.size() * sizeof(std::size_t))},
      {CL_DEVICE_GLOBAL_MEM_SIZE, bytes_of(cl_ulong{device.memory_bytes})},
      {CL_DEVICE_MAX_MEM_ALLOC_SIZE, bytes_of(cl_ulong{device.most_buffer_bytes})},
      {CL_DEVICE_LOCAL_MEM_SIZE, bytes_of(cl_ulong{device.local_bytes})},
      {CL_DEVICE_MAX_PARAMETER_SIZE, bytes_of(device.parameter_bytes)},
      {CL_DEVICE_MAX_WORK_GROUP_SIZE, bytes_of(device.most_group_items)},
      {CL_DEVICE_MAX_COMPUTE_UNITS, bytes_of(device.compute_units)},
      {CL_DEVICE_MEM_BASE_ADDR_ALIGN, bytes_of(cl_uint{8 * device.base_alignment_bytes})},
      {CL_DEVICE_AVAILABLE, bytes_of(cl_bool{device.is_available})},
      {CL_DEVICE_COMPILER_AVAILABLE, bytes_of(cl_bool{device.has_compiler})},
      {CL_DEVICE_ENDIAN_LITTLE, bytes_of(cl_bool{CL_TRUE})},
      {CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, bytes_of(cl_uint{3})},
      {CL_DEVICE_MAX_WORK_ITEM_SIZES, bytes_of(sizes)}};
  const auto found = values.find(what);
  return found != values.end() ? write_value(found->second.data(), found->second.size(), room, out, needed)
                               : CL_INVALID_VALUE;
}

cl_context CL_API_CALL clCreateContext(const cl_context_properties *, cl_uint, const cl_device_id *,
                                       void(CL_CALLBACK *)(const char *, const void *, std::size_t, void *), void *,
                                       cl_int *error) {
  const Lock lock(counts->mutex);
  *error = fails("clCreateContext") ? CL_DEVICE_NOT_AVAILABLE : CL_SUCCESS;
  return *error != CL_SUCCESS ? nullptr : reinterpret_cast<cl_context>(make_object<FakeContext>("context"));
}

cl_command_queue CL_API_CALL clCreateCommandQueue(cl_context context, cl_device_id device,
                                                  cl_command_queue_properties properties, cl_int *error) {
  const Lock lock(counts->mutex);
  *error = fails("clCreateCommandQueue") ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
  if (*error != CL_SUCCESS) return nullptr;
  auto *queue = make_object<FakeQueue>("queue");
  queue->context = reinterpret_cast<FakeContext *>(context);
  queue->device = device;
  queue->is_in_order = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
  return reinterpret_cast<cl_command_queue>(queue);
}

cl_int CL_API_CALL clGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info what, std::size_t room,
                                         void *out, std::size_t *needed) {
  const Lock lock(counts->mutex);
  if (fails("clGetCommandQueueInfo")) return CL_OUT_OF_RESOURCES;
  if (what == CL_QUEUE_CONTEXT) return write_number(as(queue)->context, room, out, needed);
  if (what == CL_QUEUE_DEVICE) return write_number(as(queue)->device, room, out, needed);
  return CL_INVALID_VALUE;
}

cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags, std::size_t bytes, void *host,
                                  cl_int *error) {
  const Lock lock(counts->mutex);
  const bool on_device = (flags & CL_MEM_ALLOC_HOST_PTR) == 0;
  *error = fails("clCreateBuffer") ? CL_MEM_OBJECT_ALLOCATION_FAILURE
           : bytes == 0            ? CL_INVALID_BUFFER_SIZE
                                   : CL_SUCCESS;
  if (*error == CL_SUCCESS && on_device && counts->alive_bytes + bytes > state->script.devices.front().memory_bytes)
    *error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  if (*error != CL_SUCCESS) return nullptr;
  auto *buffer = make_object<FakeBuffer>("buffer");
  buffer->context = reinterpret_cast<FakeContext *>(context);
  buffer->flags = flags;
  buffer->on_device = on_device;
  buffer->storage = std::make_shared<Storage>();
  buffer->storage->bytes.assign(bytes, kOldByte);
  if (host != nullptr) std::memcpy(buffer->storage->bytes.data(), host, bytes);
  if (on_device) counts->account(bytes);
  return reinterpret_cast<cl_mem>(buffer);
}

cl_int CL_API_CALL clGetMemObjectInfo(cl_mem mem, cl_mem_info what, std::size_t room, void *out, std::size_t *needed) {
  const Lock lock(counts->mutex);
  if (fails("clGetMemObjectInfo")) return CL_OUT_OF_RESOURCES;
  switch (what) {
    case CL_MEM_TYPE:
      return write_number(cl_mem_object_type{CL_MEM_OBJECT_BUFFER}, room, out, needed);
    case CL_MEM_CONTEXT:
      return write_number(as(mem)->context, room, out, needed);
    case CL_MEM_SIZE:
      return write_number(as(mem)->storage->bytes.size(), room, out, needed);
    case CL_MEM_ASSOCIATED_MEMOBJECT:
      return write_number(cl_mem{nullptr}, room, out, needed);
    case CL_MEM_OFFSET:
      return write_number(std::size_t{0}, room, out, needed);
    case CL_MEM_FLAGS:
      return write_number(as(mem)->flags, room, out, needed);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_program CL_API_CALL clCreateProgramWithSource(cl_context, cl_uint, const char **text, const std::size_t *bytes,
                                                 cl_int *error) {
  const Lock lock(counts->mutex);
  *error = fails("clCreateProgramWithSource") ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
  if (*error != CL_SUCCESS) return nullptr;
  auto *program = make_object<FakeProgram>("program");
  program->text.assign(text[0], bytes[0]);
  return reinterpret_cast<cl_program>(program);
}

cl_program CL_API_CALL clCreateProgramWithBinary(cl_context, cl_uint, const cl_device_id *, const std::size_t *bytes,
                                                 const unsigned char **binary, cl_int *status, cl_int *error) {
  const Lock lock(counts->mutex);
  *status = CL_SUCCESS;
  *error = fails("clCreateProgramWithBinary") ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
  const std::string all(reinterpret_cast<const char *>(binary[0]), bytes[0]);
  if (state->script.common.refuses_binaries || !all.starts_with(kBinaryMark)) *error = *status = CL_INVALID_BINARY;
  if (*error != CL_SUCCESS) return nullptr;
  auto *program = make_object<FakeProgram>("program");
  program->text = all.substr(std::strlen(kBinaryMark));
  return reinterpret_cast<cl_program>(program);
}

cl_int CL_API_CALL clBuildProgram(cl_program program, cl_uint, const cl_device_id *, const char *options,
                                  void(CL_CALLBACK *)(cl_program, void *), void *) {
  const Lock lock(counts->mutex);
  if (fails("clBuildProgram")) return CL_OUT_OF_HOST_MEMORY;
  if (state->script.common.refuses_text) return CL_BUILD_PROGRAM_FAILURE;
  (state->build_options += options) += ';';
  reinterpret_cast<FakeProgram *>(program)->is_built = true;
  return CL_SUCCESS;
}

cl_int CL_API_CALL clGetProgramInfo(cl_program program, cl_program_info what, std::size_t room, void *out,
                                    std::size_t *needed) {
  const Lock lock(counts->mutex);
  if (fails("clGetProgramInfo")) return CL_OUT_OF_RESOURCES;
  const std::string binary = kBinaryMark + reinterpret_cast<FakeProgram *>(program)->text;
  if (what == CL_PROGRAM_BINARY_SIZES) return write_number(binary.size(), room, out, needed);
  if (what != CL_PROGRAM_BINARIES) return CL_INVALID_VALUE;
  std::memcpy(*static_cast<unsigned char **>(out), binary.data(), binary.size());
  return CL_SUCCESS;
}

cl_int CL_API_CALL clGetProgramBuildInfo(cl_program, cl_device_id, cl_program_build_info, std::size_t room, void *out,
                                         std::size_t *needed) {
  const Lock lock(counts->mutex);
  if (fails("clGetProgramBuildInfo")) return CL_OUT_OF_RESOURCES;
  return write_text("fake: no", room, out, needed);
}

cl_kernel CL_API_CALL clCreateKernel(cl_program program, const char *, cl_int *error) {
  const Lock lock(counts->mutex);
  *error = fails("clCreateKernel") ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
  if (!reinterpret_cast<FakeProgram *>(program)->is_built) *error = CL_INVALID_PROGRAM_EXECUTABLE;
  if (*error != CL_SUCCESS) return nullptr;
  auto *kernel = make_object<FakeKernel>("kernel");
  kernel->text = reinterpret_cast<FakeProgram *>(program)->text;
  return reinterpret_cast<cl_kernel>(kernel);
}

cl_int CL_API_CALL clSetKernelArg(cl_kernel kernel, cl_uint index, std::size_t bytes, const void *value) {
  const Lock lock(counts->mutex);
  if (fails("clSetKernelArg")) return CL_OUT_OF_RESOURCES;
  auto &arguments = reinterpret_cast<FakeKernel *>(kernel)->arguments;
  if (arguments.size() <= index) arguments.resize(index + 1);
  arguments[index].assign(bytes, 0);
  if (value != nullptr) std::memcpy(arguments[index].data(), value, bytes);
  return CL_SUCCESS;
}

cl_int CL_API_CALL clGetKernelWorkGroupInfo(cl_kernel, cl_device_id id, cl_kernel_work_group_info what,
                                            std::size_t room, void *out, std::size_t *needed) {
  const Lock lock(counts->mutex);
  if (fails("clGetKernelWorkGroupInfo")) return CL_OUT_OF_RESOURCES;
  const FakeDevice &device = device_of(id);
  if (what != kSpilledBytes) return write_number(device.kernel_group_items, room, out, needed);
  const bool has_256 = state->build_options.ends_with("-cl-intel-256-GRF-per-thread;");
  return write_number(has_256 ? 0 : device.spilled_bytes, room, out, needed);
}

cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint, const std::size_t *,
                                          const std::size_t *global, const std::size_t *local, cl_uint wait_count,
                                          const cl_event *waits, cl_event *event) {
  const Lock lock(counts->mutex);
  if (fails("clEnqueueNDRangeKernel")) return CL_OUT_OF_RESOURCES;
  const FakeDevice &device = device_of(as(queue)->device);
  if (local[0] * local[1] * local[2] > std::min(device.most_group_items, device.kernel_group_items))
    return CL_INVALID_WORK_GROUP_SIZE;
  const auto &arguments = reinterpret_cast<FakeKernel *>(kernel)->arguments;
  auto call = std::make_shared<Call>();
  KernelRun &run = call->run;
  run.made = *made_from(reinterpret_cast<FakeKernel *>(kernel)->text);
  run.columns = run.made.matrix.columns();
  run.rows = run.made.matrix.rows();
  device::KernelSpec &spec = run.made.spec;
  if (spec.access == Access::aligned && device.base_alignment_bytes < 64)
    counts->violate("an aligned kernel, and buffers that are not");
  std::size_t at = 0;
  const auto next = [&]() -> const std::vector<std::uint8_t> & {
    static const std::vector<std::uint8_t> nothing;
    return at < arguments.size() ? arguments[at++] : nothing;
  };
  const auto storage = [&]() -> std::shared_ptr<Storage> {
    const auto mem = value_of<cl_mem>(next());
    return mem != nullptr ? as(mem)->storage : nullptr;
  };
  const unsigned shard_count = spec.binding != Binding::arguments ? 2 : run.rows + run.columns;
  for (unsigned i = 0; i < shard_count; ++i) call->shards.push_back(storage());
  call->offsets = storage();
  if (spec.binding != Binding::table) {
    run.range.begin = value_of<cl_ulong>(next());
    run.range.end = value_of<cl_ulong>(next());
    run.range.length = value_of<cl_ulong>(next());
  }
  call->records = storage();
  for (unsigned d = 0; d < 3; ++d) spec.tuning.local[d] = static_cast<unsigned>(local[d]);
  if (spec.technique == Technique::tables) {
    call->tables = storage();
    run.columns = value_of<cl_uint>(next());
    run.rows = value_of<cl_uint>(next());
    if (next().size() != std::size_t{run.columns} * 128)
      counts->violate("local space has another size than columns * 128");
  }
  if (spec.technique == Technique::transform && next().size() < std::size_t{local[0]} * local[1] * 8 * 8 * 4)
    counts->violate("local space has no room for the planes of a group for each row of work-items");
  if (at != arguments.size()) counts->violate(fmt::format("{} arguments, {} belong", arguments.size(), at));
  const std::uint64_t tile = tile_bytes_of(spec), tiles = (run.range.end - run.range.begin + tile - 1) / tile;
  if (spec.binding == Binding::table) {
    run.range.group_count = global[0] / local[0];
    run.row_count = global[1] / local[1] * (global[2] / local[2]);
    if (run.row_count == 0 || run.range.group_count == 0) counts->violate("a table without rows");
  } else if (global[0] / local[0] != (tiles + local[2] - 1) / local[2] + 1 || global[1] != local[1] ||
             global[2] != local[2])
    counts->violate(fmt::format("{} work-items for {} tiles", global[0], tiles));
  run.find = [call = call.get()](auto... where) { return call->find(where...); };
  return enqueue(queue, wait_count, waits, event, false, [call] { call->run.run(*counts, state->script.common); });
}

cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, std::size_t offset,
                                       std::size_t bytes, void *out, cl_uint wait_count, const cl_event *waits,
                                       cl_event *event) {
  const Lock lock(counts->mutex);
  if (fails("clEnqueueReadBuffer")) return CL_OUT_OF_RESOURCES;
  if (!inside(*as(mem)->storage, offset, bytes, "read")) return CL_INVALID_VALUE;
  return enqueue(queue, wait_count, waits, event, blocking != CL_FALSE,
                 [=, storage = as(mem)->storage] { std::memcpy(out, storage->bytes.data() + offset, bytes); });
}

cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, std::size_t offset,
                                        std::size_t bytes, const void *from, cl_uint wait_count, const cl_event *waits,
                                        cl_event *event) {
  const Lock lock(counts->mutex);
  if (fails("clEnqueueWriteBuffer")) return CL_OUT_OF_RESOURCES;
  if (!inside(*as(mem)->storage, offset, bytes, "write")) return CL_INVALID_VALUE;
  return enqueue(queue, wait_count, waits, event, blocking != CL_FALSE,
                 [=, storage = as(mem)->storage] { std::memcpy(storage->bytes.data() + offset, from, bytes); });
}

cl_int CL_API_CALL clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, std::size_t from_offset,
                                       std::size_t to_offset, std::size_t bytes, cl_uint wait_count,
                                       const cl_event *waits, cl_event *event) {
  const Lock lock(counts->mutex);
  if (fails("clEnqueueCopyBuffer")) return CL_OUT_OF_RESOURCES;
  if (!inside(*as(from)->storage, from_offset, bytes, "copy") || !inside(*as(to)->storage, to_offset, bytes, "copy"))
    return CL_INVALID_VALUE;
  return enqueue(queue, wait_count, waits, event, false, [=, source = as(from)->storage, target = as(to)->storage] {
    std::memcpy(target->bytes.data() + to_offset, source->bytes.data() + from_offset, bytes);
  });
}

void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, cl_map_flags,
                                     std::size_t offset, std::size_t bytes, cl_uint wait_count, const cl_event *waits,
                                     cl_event *event, cl_int *error) {
  const Lock lock(counts->mutex);
  *error = fails("clEnqueueMapBuffer") ? CL_MAP_FAILURE : CL_SUCCESS;
  if (*error != CL_SUCCESS || !inside(*as(mem)->storage, offset, bytes, "map")) return nullptr;
  *error = enqueue(queue, wait_count, waits, event, blocking != CL_FALSE, [] {});
  if (*error != CL_SUCCESS) return nullptr;
  ++counts->objects["mapping"];
  return as(mem)->storage->bytes.data() + offset;
}

cl_int CL_API_CALL clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem, void *, cl_uint wait_count,
                                           const cl_event *waits, cl_event *event) {
  const Lock lock(counts->mutex);
  --counts->objects["mapping"];
  if (fails("clEnqueueUnmapMemObject")) return CL_OUT_OF_RESOURCES;
  return enqueue(queue, wait_count, waits, event, false, [] {});
}

// As cuEventQuery of the CUDA fake.
cl_int CL_API_CALL clGetEventInfo(cl_event event, cl_event_info what, std::size_t bytes, void *value, std::size_t *) {
  const Lock lock(counts->mutex);
  ++counts->calls_by_name["clGetEventInfo"];
  if (what != CL_EVENT_COMMAND_EXECUTION_STATUS || bytes != sizeof(cl_int)) return CL_INVALID_VALUE;
  const auto &command = reinterpret_cast<FakeEvent *>(event)->command;
  if (state->script.common.is_done_when_asked) command->execute();
  *static_cast<cl_int *>(value) = !command->is_done ? CL_SUBMITTED : command->has_failed ? -1 : CL_COMPLETE;
  return CL_SUCCESS;
}

cl_int CL_API_CALL clWaitForEvents(cl_uint count, const cl_event *events) {
  const Lock lock(counts->mutex);
  if (fails("clWaitForEvents")) return CL_OUT_OF_RESOURCES;
  bool failed = false;
  for (cl_uint i = count; i-- > 0;) {  // the last one first: order comes from waits, or from the queue
    const auto &command = reinterpret_cast<FakeEvent *>(events[i])->command;
    counts->sleeps += !command->is_done;
    command->execute();
    failed |= command->has_failed;
  }
  return failed ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS;
}

cl_int CL_API_CALL clFlush(cl_command_queue) {
  const Lock lock(counts->mutex);
  return fails("clFlush") ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

cl_int CL_API_CALL clFinish(cl_command_queue queue) {
  const Lock lock(counts->mutex);
  if (fails("clFinish") || state->script.finish_fails) return CL_OUT_OF_RESOURCES;
  state->execute_all(std::exchange(as(queue)->pending, {}));
  return CL_SUCCESS;
}

template <class Handle>
cl_int CL_API_CALL release(Handle handle) {
  const Lock lock(counts->mutex);
  return release_object(handle);
}
template <class Handle>
cl_int CL_API_CALL retain(Handle handle) {
  const Lock lock(counts->mutex);
  if (fails("clRetain")) return CL_OUT_OF_RESOURCES;
  return retain_object(handle);
}

constexpr auto clRetainContext = retain<cl_context>;
constexpr auto clReleaseContext = release<cl_context>;
constexpr auto clRetainCommandQueue = retain<cl_command_queue>;
constexpr auto clReleaseCommandQueue = release<cl_command_queue>;
constexpr auto clReleaseMemObject = release<cl_mem>;
constexpr auto clReleaseProgram = release<cl_program>;
constexpr auto clReleaseKernel = release<cl_kernel>;
constexpr auto clReleaseEvent = release<cl_event>;

}  // namespace fake

#define ADDRESS(name) fake::name,
const tandem_opencl_module kTable = {TANDEM_OPENCL_VERSION, sizeof(tandem_opencl_module),
                                     TANDEM_OPENCL_FUNCTIONS(ADDRESS)};
#undef ADDRESS

}  // namespace

FakeDriver::FakeDriver(const FakeDriverScript &script) {
  state = new State;
  counts = this;
  state->script = script;
}
FakeDriver::~FakeDriver() { delete std::exchange(state, nullptr); }

const tandem_opencl_module *FakeDriver::table() const noexcept { return &kTable; }

void FakeDriver::set_script(const FakeDriverScript &script) {
  const Lock lock(mutex);
  state->script = script;
  begin_again();
}

std::uint8_t *FakeDriver::address(cl_mem buffer) const { return as(buffer)->storage->bytes.data(); }
const std::string &FakeDriver::build_options() const { return state->build_options; }
void FakeDriver::finish(cl_command_queue queue) {
  const Lock lock(mutex);
  state->execute_all(std::exchange(as(queue)->pending, {}));
}

}  // namespace tandem::test
