// SPDX-License-Identifier: Apache-2.0
// Memory of a device, for programs that use no driver themselves.

#include <memory>

#include "api/objects.hpp"
#include "base/error.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"
#include "tandem/device.h"

struct tandem_device_memory {
  std::shared_ptr<tandem::core::DeviceMemory> memory;
  std::uint64_t bytes;
};

namespace tandem::api {
namespace {

void check_range(const tandem_device_memory &memory, std::uint64_t offset_bytes, std::uint64_t bytes) {
  if (offset_bytes <= memory.bytes && bytes <= memory.bytes - offset_bytes) return;
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, bytes, " bytes at ", offset_bytes, " are not all in the ", memory.bytes,
             " bytes of the memory");
}

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_device_memory_create(tandem_context *context, uint64_t bytes, tandem_device_memory **memory_out) {
  return base::guarded({{"memory_out", memory_out}}, [&] {
    if (bytes == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "bytes is 0");
    auto memory = std::make_unique<tandem_device_memory>();
    memory->memory = api::context_or_default(context).backend->device_memory(bytes);
    memory->bytes = bytes;
    *memory_out = memory.release();
  });
}

void tandem_device_memory_destroy(tandem_device_memory *memory) { delete memory; }

tandem_status tandem_device_memory_query(const tandem_device_memory *memory, tandem_device_memory_info *info_out) {
  return base::guarded({{"memory", memory}, {"info_out", info_out}}, [&] {
    tandem_device_memory_info info = {};
    info.shards = memory->memory->shards();
    info.queue = memory->memory->queue();
    info.bytes = memory->bytes;
    info.memory = static_cast<std::int32_t>(memory->memory->kind());
    base::write_result(info, info_out, "tandem_device_memory_info");
  });
}

tandem_status tandem_device_memory_write(tandem_device_memory *memory, uint64_t offset_bytes, const void *from,
                                         uint64_t bytes) {
  return base::guarded({{"memory", memory}, {"from", from}}, [&] {
    api::check_range(*memory, offset_bytes, bytes);
    memory->memory->write(offset_bytes, static_cast<const std::byte *>(from), bytes);
  });
}

tandem_status tandem_device_memory_read(tandem_device_memory *memory, uint64_t offset_bytes, void *to, uint64_t bytes) {
  return base::guarded({{"memory", memory}, {"to", to}}, [&] {
    api::check_range(*memory, offset_bytes, bytes);
    memory->memory->read(offset_bytes, static_cast<std::byte *>(to), bytes);
  });
}

}  // extern "C"
