// SPDX-License-Identifier: Apache-2.0
#include "tests/cpu/counted_kernel.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "cpu/kernels/kernel.hpp"

namespace tandem::cpu {
extern const Kernel kKernelScalar;
}

namespace tandem::test {
namespace {

std::atomic<unsigned> in_flight{0}, most{0}, meeting_of{1};
std::atomic<std::uint64_t> calls{0};
std::atomic<void (*)(unsigned)> hook_of{nullptr};

void counted_apply(const cpu::KernelCall &call) {
  const unsigned now = in_flight.fetch_add(1) + 1;
  unsigned seen = most.load();
  while (seen < now && !most.compare_exchange_weak(seen, now)) {
  }
  // Others get the time to do what they must not.
  if (calls.fetch_add(1) % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (const auto hook = hook_of.load()) hook(now);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (most.load() < meeting_of.load() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  cpu::kKernelScalar.apply(call);
  in_flight.fetch_sub(1);
}

const cpu::Kernel &counted_kernel() {
  static const cpu::Kernel kernel = [] {
    cpu::Kernel counted = cpu::kKernelScalar;
    counted.apply = counted_apply;
    return counted;
  }();
  return kernel;
}

}  // namespace

void count_kernel_calls(unsigned meeting) {
  most = 0;
  calls = 0;
  meeting_of = meeting;
}
void let_kernel_calls_meet(unsigned meeting) { meeting_of = meeting; }
std::uint64_t kernel_calls_so_far() { return calls.load(); }
unsigned most_kernel_calls_at_once() { return most.load(); }
void set_kernel_hook(void (*hook)(unsigned)) { hook_of = hook; }

}  // namespace tandem::test

namespace tandem::cpu {

KernelTable kernel_table() {
  static const Kernel *const kernels[] = {&test::counted_kernel()};
  return {kernels, 1};
}

const Kernel *select_kernel(const CpuFeatures &, const char *name) {
  const Kernel &kernel = test::counted_kernel();
  return name == nullptr || std::strcmp(name, kernel.name) == 0 ? &kernel : nullptr;
}

}  // namespace tandem::cpu
