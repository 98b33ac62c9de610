// SPDX-License-Identifier: Apache-2.0
// tandem_cuda_summarise: verify's records with a difference, found on the device. The CUDA runtime is linked
// statically, and uses the current primary context.
#include <thrust/system/cuda/execution_policy.h>
#include <thrust/system_error.h>

#include <cstdio>
#include <exception>
#include <new>

#include "gpu/device_code/summarise_template.hpp"

namespace {

using namespace tandem::gpu;

void check(cudaError_t status, const char *what) {
  if (status != cudaSuccess) throw thrust::system_error(status, thrust::cuda_category(), what);
}

static_assert(TANDEM_CUDA_SUMMARISE_NO_MEMORY == static_cast<int>(cudaErrorMemoryAllocation));

// Memory for Thrust and for the arrays: from the caller, because it counts in the caller's budget.
class CallersMemory {
 public:
  using value_type = char;
  explicit CallersMemory(const tandem_cuda_summary &summary) : summary_(summary) {}
  char *allocate(std::ptrdiff_t bytes) {
    void *memory = summary_.allocate(summary_.memory, bytes > 0 ? static_cast<std::uint64_t>(bytes) : 1);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<char *>(memory);
  }
  void deallocate(char *memory, std::size_t) noexcept { summary_.release(summary_.memory, memory); }

 private:
  const tandem_cuda_summary &summary_;
};

class Device {
 public:
  explicit Device(const tandem_cuda_summary &summary)
      : stream_(static_cast<cudaStream_t>(summary.stream)), memory_(summary) {}
  auto policy() { return thrust::cuda::par(memory_).on(stream_); }
  void *allocate(std::uint64_t bytes) { return memory_.allocate(static_cast<std::ptrdiff_t>(bytes)); }
  void release(void *memory) noexcept { memory_.deallocate(static_cast<char *>(memory), 0); }
  void fetch(void *to, const void *from, std::uint64_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  cudaStream_t stream_;
  CallersMemory memory_;
};

int failed(const tandem_cuda_summary &summary, int status, const char *why) {
  if (summary.message_out != nullptr && summary.message_bytes != 0)
    std::snprintf(summary.message_out, summary.message_bytes, "%s", why);
  return status != 0 ? status : static_cast<int>(cudaErrorUnknown);
}

}  // namespace

extern "C" int tandem_cuda_summarise(const tandem_cuda_summary *given) {
  const tandem_cuda_summary &summary = *given;
  if (summary.struct_bytes != sizeof summary || summary.allocate == nullptr || summary.release == nullptr)
    return failed(summary, cudaErrorInvalidValue, "a summary that makes no sense");
  try {
    Device device(summary);
    *summary.found_count_out =
        summarise::run(device, summary.records, summary.record_count, summary.found_out, summary.capacity);
    check(cudaStreamSynchronize(static_cast<cudaStream_t>(summary.stream)), "cudaStreamSynchronize");
    return 0;
  } catch (const thrust::system_error &error) {
    cudaGetLastError();  // clears the error, which the runtime would report to the next caller
    return failed(summary, error.code().value(), error.what());
  } catch (const std::bad_alloc &) {
    return failed(summary, TANDEM_CUDA_SUMMARISE_NO_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    return failed(summary, cudaErrorUnknown, error.what());
  } catch (...) {
    return failed(summary, cudaErrorUnknown, "unknown");
  }
}
