// SPDX-License-Identifier: Apache-2.0
// Memory of a device, for programs that use no driver themselves.

#include <memory>
#include <utility>

#include "api/objects.hpp"
#include "base/error.hpp"
#include "base/gate.hpp"
#include "tandem/device.h"

namespace tandem::api {
namespace {

struct OwnedMemory : tandem_device_memory {
  std::shared_ptr<core::DeviceMemory> own;
};

core::DeviceMemory &own(const tandem_device_memory &memory) { return *static_cast<const OwnedMemory &>(memory).own; }

void check_range(const tandem_device_memory &memory, std::uint64_t offset_bytes, std::uint64_t bytes) {
  if (offset_bytes <= memory.bytes && bytes <= memory.bytes - offset_bytes) return;
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, bytes, " bytes at ", offset_bytes, " are not all in the ", memory.bytes,
             " bytes of the memory");
}

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_device_memory_create(tandem_context *context, uint64_t bytes,
                                          const tandem_device_memory **memory_out) {
  return base::guarded({{"memory_out", memory_out}}, [&] {
    if (bytes == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "bytes is 0");
    std::shared_ptr<core::DeviceMemory> made = api::context_or_default(context).backend->device_memory(bytes);
    *memory_out = new api::OwnedMemory{{made->shards(), made->queue(), bytes, static_cast<std::int32_t>(made->kind())},
                                       std::move(made)};
  });
}

void tandem_device_memory_destroy(const tandem_device_memory *memory) {
  delete static_cast<const api::OwnedMemory *>(memory);
}

tandem_status tandem_device_memory_write(const tandem_device_memory *memory, uint64_t offset_bytes, const void *from,
                                         uint64_t bytes) {
  return base::guarded({{"memory", memory}, {"from", from}}, [&] {
    api::check_range(*memory, offset_bytes, bytes);
    api::own(*memory).write(offset_bytes, static_cast<const std::byte *>(from), bytes);
  });
}

tandem_status tandem_device_memory_read(const tandem_device_memory *memory, uint64_t offset_bytes, void *to,
                                        uint64_t bytes) {
  return base::guarded({{"memory", memory}, {"to", to}}, [&] {
    api::check_range(*memory, offset_bytes, bytes);
    api::own(*memory).read(offset_bytes, static_cast<std::byte *>(to), bytes);
  });
}

}  // extern "C"
