// SPDX-License-Identifier: Apache-2.0
// Measures what a GPU can do, and what Tandem does on it. scripts/gpu-check runs it. JSON on standard output.
//     cuda_bench device            its name
//     cuda_bench micro             rates of operations; memory and PCIe bandwidth; roofs of k reads and m writes
//     cuda_bench code K M BYTES    one code through the C API, with its roof, all in this run. BYTES: of all shards
//     cuda_bench tables K M BYTES  the same by technique tables
//     cuda_bench host K M BYTES    encode and decode of pinned host memory, end to end
//     cuda_bench first K M         the first use of a matrix, and its next one
#include <cuda_runtime.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/equal.h>
#include <thrust/tabulate.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tandem/tandem.h"

namespace {

constexpr int kRepeats = 9;
constexpr unsigned kMostShards = 256;

[[noreturn]] void fail(const std::string &why) { throw std::runtime_error(why); }
void check(cudaError_t status, const char *what) {
  if (status != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(status));
}
void check(tandem_status status, const char *what) {
  if (status != TANDEM_OK) fail(std::string(what) + ": " + tandem_last_error_message());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds that the stream spends on `work`: the median of several, after an uncounted one. Each begins behind another
// `work`. On an idle stream the start would be recorded at once, and the host's time to submit the work would count as
// the stream's time.
double seconds_of(cudaStream_t stream, const std::function<void()> &work) {
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&stop), "cudaEventCreate");
  std::vector<double> seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    work();
    check(cudaEventRecord(start, stream), "cudaEventRecord");
    work();
    check(cudaEventRecord(stop, stream), "cudaEventRecord");
    check(cudaEventSynchronize(stop), "cudaEventSynchronize");
    check(cudaGetLastError(), "a kernel");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start, stop), "cudaEventElapsedTime");
    if (i != 0) seconds.push_back(milliseconds / 1e3);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  return median(seconds);
}

// The same by the wall clock, for work that waits itself.
double wall_seconds_of(const std::function<void()> &work) {
  std::vector<double> seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    if (i != 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return median(seconds);
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) { check(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;
  std::uint8_t *get() const { return static_cast<std::uint8_t *>(data_); }

 private:
  void *data_ = nullptr;
};

class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes) { check(cudaHostAlloc(&data_, bytes, cudaHostAllocPortable), "cudaHostAlloc"); }
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(const PinnedMemory &) = delete;
  PinnedMemory &operator=(const PinnedMemory &) = delete;
  std::uint8_t *get() const { return static_cast<std::uint8_t *>(data_); }

 private:
  void *data_ = nullptr;
};

// Word i of the shards.
struct Content {
  std::uint64_t seed;
  __device__ std::uint64_t operator()(std::uint64_t i) const {
    std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u ^ seed;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 27;
  }
};

// ---- rates of operations: eight chains that mix, so that the compiler can simplify none

constexpr int kChains = 8, kTurns = 4096;
enum class Operation { lop3, prmt, shf, imad, lop3_and_imad };

template <Operation operation>
__global__ void operations(std::uint32_t *out) {
  std::uint32_t x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = threadIdx.x * 77 + i + blockIdx.x;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      std::uint32_t &a = x[i];
      [[maybe_unused]] const std::uint32_t b = x[(i + 1) % kChains], c = x[(i + 3) % kChains];
      if constexpr (operation == Operation::lop3)
        asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(a) : "r"(b), "r"(c));
      if constexpr (operation == Operation::prmt)
        asm volatile("prmt.b32 %0, %0, %1, 0x6521;" : "+r"(a) : "r"(b));
      if constexpr (operation == Operation::shf)
        asm volatile("shf.l.wrap.b32 %0, %0, %1, %2;" : "+r"(a) : "r"(b), "r"(c));
      if constexpr (operation == Operation::imad)
        asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(a) : "r"(b), "r"(c));
      if constexpr (operation == Operation::lop3_and_imad) {
        if (i % 2 == 0)
          asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(a) : "r"(b), "r"(c));
        else
          asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(a) : "r"(b), "r"(c));
      }
    }
  }
  std::uint32_t sum = 0;
  for (const std::uint32_t each : x) sum ^= each;
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// The clocks of an idle GPU are low and rise slowly.
void raise_clocks(int multiprocessors) {
  const int blocks = multiprocessors * 8, threads = 256;
  const DeviceMemory out(std::size_t{4} * blocks * threads);
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(200)) {
    operations<Operation::lop3><<<blocks, threads>>>(reinterpret_cast<std::uint32_t *>(out.get()));
    check(cudaDeviceSynchronize(), "a kernel");
  }
}

template <Operation operation>
double lanes_per_second(int multiprocessors) {
  const int blocks = multiprocessors * 8, threads = 256;
  const DeviceMemory out(std::size_t{4} * blocks * threads);
  const double seconds = seconds_of(
      nullptr, [&] { operations<operation><<<blocks, threads>>>(reinterpret_cast<std::uint32_t *>(out.get())); });
  return double{kTurns} * kChains * blocks * threads / seconds;
}

// ---- memory

struct Pointers {
  uint4 *shards[kMostShards];
};

// Reads k, writes their XOR to m: the traffic of an encode with almost no computation.
__global__ void read_and_write(const __grid_constant__ Pointers pointers, unsigned k, unsigned m, std::uint64_t count) {
  const std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  uint4 sum = {};
#pragma unroll 8
  for (unsigned j = 0; j < k; ++j) {
    const uint4 x = __ldcs(pointers.shards[j] + i);
    sum.x ^= x.x, sum.y ^= x.y, sum.z ^= x.z, sum.w ^= x.w;
  }
#pragma unroll 4
  for (unsigned j = 0; j < m; ++j) __stcs(pointers.shards[k + j] + i, sum);
  if (m == 0 && (sum.x & sum.y & sum.z & sum.w) == 0xffffffff) asm volatile("trap;");  // the reads are needed
}

double roof_seconds(std::uint8_t *base, std::size_t shard_bytes, unsigned k, unsigned m) {
  Pointers pointers = {};
  for (unsigned i = 0; i < k + m; ++i) pointers.shards[i] = reinterpret_cast<uint4 *>(base + i * shard_bytes);
  const std::uint64_t count = shard_bytes / 16;
  double best = 1e9;
  for (const unsigned threads : {128u, 256u, 512u}) {
    best = std::min(best, seconds_of(nullptr, [&] {
                      read_and_write<<<static_cast<unsigned>((count + threads - 1) / threads), threads>>>(pointers, k, m,
                                                                                                          count);
                    }));
  }
  return best;
}

void micro(const cudaDeviceProp &device) {
  const int count = device.multiProcessorCount;
  int kilohertz = 0;
  check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0), "cudaDeviceGetAttribute");
  const double per_cycle = 1.0 / (kilohertz * 1e3) / count;
  const std::pair<const char *, double> rates[] = {{"LOP3", lanes_per_second<Operation::lop3>(count)},
                                                   {"PRMT", lanes_per_second<Operation::prmt>(count)},
                                                   {"SHF", lanes_per_second<Operation::shf>(count)},
                                                   {"IMAD", lanes_per_second<Operation::imad>(count)},
                                                   {"LOP3 and IMAD", lanes_per_second<Operation::lop3_and_imad>(count)}};
  std::printf("{\"lanes_per_second\": {");
  for (const auto &[name, rate] : rates) std::printf("%s\"%s\": %.4g", name == rates[0].first ? "" : ", ", name, rate);
  std::printf("}, \"lanes_per_multiprocessor_and_cycle_of_the_highest_clock\": {");
  for (const auto &[name, rate] : rates)
    std::printf("%s\"%s\": %.1f", name == rates[0].first ? "" : ", ", name, rate * per_cycle);
  std::printf("}, ");

  const std::size_t bytes = std::size_t{1} << 30;
  const DeviceMemory from(bytes), to(bytes);
  const double copy = seconds_of(nullptr, [&] {
    check(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, nullptr), "cudaMemcpyAsync");
  });
  std::printf("\"device_copy_bytes_per_second\": %.4g, ", 2.0 * bytes / copy);

  const std::size_t piece = std::size_t{256} << 20;
  const PinnedMemory up(piece), down(piece);
  cudaStream_t streams[2];
  for (cudaStream_t &stream : streams) check(cudaStreamCreate(&stream), "cudaStreamCreate");
  const auto upload = [&] { check(cudaMemcpyAsync(to.get(), up.get(), piece, cudaMemcpyHostToDevice, streams[0]), "upload"); };
  const auto download = [&] {
    check(cudaMemcpyAsync(down.get(), from.get(), piece, cudaMemcpyDeviceToHost, streams[1]), "download");
  };
  const double both = wall_seconds_of([&] {
    upload();
    download();
    for (cudaStream_t stream : streams) check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  });
  std::printf("\"pcie_bytes_per_second\": {\"to_device\": %.4g, \"to_host\": %.4g, \"each_way_at_once\": %.4g}}\n",
              piece / seconds_of(streams[0], upload), piece / seconds_of(streams[1], download), piece / both);
}

// ---- codes, through the C API

class Code {
 public:
  Code(unsigned k, unsigned m, const char *technique) : k(k), m(m) {
    tandem_context_options options = {};
    options.struct_bytes = sizeof options;
    options.backend = "cuda";
    const std::string expert = std::string("device_technique=") + technique;
    if (*technique != 0) options.expert = expert.c_str();
    options.tuning_file = "";
    check(tandem_context_create(&options, &context), "tandem_context_create");
    tandem_codec_options codec_options = {};
    codec_options.struct_bytes = sizeof codec_options;
    codec_options.k = k;
    codec_options.m = m;
    codec_options.allow_non_mds = 1;
    check(tandem_codec_create(&codec_options, &codec), "tandem_codec_create");
  }
  ~Code() {
    tandem_codec_destroy(codec);
    tandem_context_destroy(context);
  }
  Code(const Code &) = delete;
  Code &operator=(const Code &) = delete;

  const unsigned k, m;
  tandem_context *context = nullptr;
  tandem_codec *codec = nullptr;
};

class Plan {
 public:
  Plan(const Code &code, std::int32_t operation, const std::uint8_t *present) {
    tandem_plan_options options = {};
    options.struct_bytes = sizeof options;
    options.operation = operation;
    options.memory = TANDEM_MEMORY_CUDA;
    options.present = present;
    options.wait_for_kernel = 1;
    check(tandem_plan_create(code.context, code.codec, &options, &plan_), "tandem_plan_create");
  }
  ~Plan() { tandem_plan_destroy(plan_); }
  Plan(const Plan &) = delete;
  Plan &operator=(const Plan &) = delete;

  void run(const tandem_plan_arguments &arguments) const {
    check(tandem_plan_run(plan_, &arguments, nullptr), "tandem_plan_run");
  }
  // Puts the work into the stream. The caller waits for the stream's events.
  void submit(const tandem_plan_arguments &arguments, std::vector<tandem_job *> &jobs) const {
    tandem_job *job = nullptr;
    check(tandem_plan_run(plan_, &arguments, &job), "tandem_plan_run");
    jobs.push_back(job);
  }

 private:
  tandem_plan *plan_ = nullptr;
};

void finish(std::vector<tandem_job *> &jobs) {
  for (tandem_job *job : jobs) {
    check(tandem_job_wait(job), "tandem_job_wait");
    tandem_job_destroy(job);
  }
  jobs.clear();
}

std::vector<std::uint8_t> first_bytes(const std::uint8_t *device, std::size_t bytes) {
  std::vector<std::uint8_t> host(bytes);
  check(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return host;
}

// Checks the parity's first bytes: the CPU computes them from the data's first bytes.
void compare_with_cpu(const Code &code, std::uint8_t *const *shards, std::size_t shard_bytes) {
  const std::size_t bytes = std::min<std::size_t>(shard_bytes, 100'003);
  std::vector<std::vector<std::uint8_t>> host;
  std::vector<void *> pointers;
  for (unsigned i = 0; i < code.k + code.m; ++i)
    host.push_back(i < code.k ? first_bytes(shards[i], bytes) : std::vector<std::uint8_t>(bytes));
  for (auto &each : host) pointers.push_back(each.data());
  tandem_context_options options = {};
  options.struct_bytes = sizeof options;
  options.backend = "cpu";
  tandem_context *cpu = nullptr;
  check(tandem_context_create(&options, &cpu), "tandem_context_create");
  check(tandem_encode(cpu, code.codec, pointers.data(), pointers.data() + code.k, bytes), "tandem_encode");
  tandem_context_destroy(cpu);
  for (unsigned i = code.k; i < code.k + code.m; ++i)
    if (host[i] != first_bytes(shards[i], bytes)) fail("parity " + std::to_string(i - code.k) + " differs from the CPU's");
}

void print_rate(const char *name, double data_bytes, double seconds, double roof) {
  std::printf("\"%s\": {\"seconds\": %.6g, \"data_bytes_per_second\": %.4g, \"roof_seconds\": %.6g, \"of_roof\": %.3f}", name,
              seconds, data_bytes / seconds, roof, roof / seconds);
}

void code_on_device(unsigned k, unsigned m, std::size_t all_bytes, const char *technique) {
  const std::size_t shard_bytes = all_bytes / (k + m) / 4096 * 4096;
  if (shard_bytes == 0) fail("too few bytes");
  const Code code(k, m, technique);
  const DeviceMemory memory(shard_bytes * (k + m));
  std::vector<std::uint8_t *> shards;
  for (unsigned i = 0; i < k + m; ++i) shards.push_back(memory.get() + i * shard_bytes);
  const double data_bytes = static_cast<double>(shard_bytes) * k;
  const double roof = roof_seconds(memory.get(), shard_bytes, k, m), read_roof = roof_seconds(memory.get(), shard_bytes, k + m, 0);
  const auto words = thrust::device_pointer_cast(reinterpret_cast<std::uint64_t *>(memory.get()));
  thrust::tabulate(words, words + shard_bytes * (k + m) / 8, Content{k * 1000 + m});

  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::vector<void *> pointers(shards.begin(), shards.end());
  tandem_verify_result verified = {};
  verified.struct_bytes = sizeof verified;
  tandem_plan_arguments arguments = {};
  arguments.struct_bytes = sizeof arguments;
  arguments.shards = pointers.data();
  arguments.shard_bytes = shard_bytes;
  arguments.queue = stream;
  std::vector<tandem_job *> jobs;

  const Plan encode(code, TANDEM_OPERATION_ENCODE, nullptr);
  encode.run(arguments);
  compare_with_cpu(code, shards.data(), shard_bytes);
  const double encode_seconds = seconds_of(stream, [&] { encode.submit(arguments, jobs); });
  finish(jobs);

  const Plan verify(code, TANDEM_OPERATION_VERIFY, nullptr);
  arguments.verify_result = &verified;
  verify.run(arguments);
  if (verified.bad_parity_count != 0) fail("verify finds bad parity where there is none");
  const double verify_seconds = wall_seconds_of([&] { verify.run(arguments); });
  arguments.verify_result = nullptr;

  // The first min(k, m) shards are lost. Copies of them stay, to compare.
  const unsigned lost = std::min(k, m);
  std::vector<std::uint8_t> present(k + m, 1);
  const auto first = thrust::device_pointer_cast(memory.get());
  const thrust::device_vector<std::uint8_t> before(first, first + lost * shard_bytes);
  for (unsigned i = 0; i < lost; ++i) present[i] = 0;
  check(cudaMemset(memory.get(), 0xa5, lost * shard_bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // the decode's stream does not wait for them
  const Plan decode(code, TANDEM_OPERATION_DECODE, present.data());
  decode.run(arguments);
  for (unsigned i = 0; i < lost; ++i)
    if (!thrust::equal(first + i * shard_bytes, first + (i + 1) * shard_bytes, before.begin() + i * shard_bytes))
      fail("decode: shard " + std::to_string(i) + " is wrong");
  const double decode_seconds = seconds_of(stream, [&] { decode.submit(arguments, jobs); });
  finish(jobs);
  const double decode_roof = lost == m ? roof : roof_seconds(memory.get(), shard_bytes, k, lost);
  cudaStreamDestroy(stream);

  std::printf("{\"k\": %u, \"m\": %u, \"technique\": \"%s\", \"shard_bytes\": %zu, ", k, m, technique, shard_bytes);
  print_rate("encode", data_bytes, encode_seconds, roof);
  std::printf(", ");
  print_rate("decode", data_bytes, decode_seconds, decode_roof);
  std::printf(", ");
  print_rate("verify", data_bytes, verify_seconds, read_roof);
  std::printf("}\n");
}

// Host to host: data goes to the device while parity comes back. The roof is these copies alone.
void code_on_host(unsigned k, unsigned m, std::size_t all_bytes) {
  const std::size_t shard_bytes = all_bytes / (k + m) / 4096 * 4096;
  if (shard_bytes == 0) fail("too few bytes");
  const Code code(k, m, "compiled");
  const PinnedMemory host(shard_bytes * (k + m));
  const DeviceMemory device(shard_bytes * (k + m));
  std::vector<void *> pointers;
  for (unsigned i = 0; i < k + m; ++i) pointers.push_back(host.get() + i * shard_bytes);
  for (std::size_t i = 0; i < shard_bytes * k; ++i) host.get()[i] = static_cast<std::uint8_t>(i * 131 >> 5);
  cudaStream_t streams[2];
  for (cudaStream_t &stream : streams) check(cudaStreamCreate(&stream), "cudaStreamCreate");
  const double roof = wall_seconds_of([&] {
    check(cudaMemcpyAsync(device.get(), host.get(), shard_bytes * k, cudaMemcpyHostToDevice, streams[0]), "upload");
    check(cudaMemcpyAsync(host.get() + shard_bytes * k, device.get() + shard_bytes * k, shard_bytes * m, cudaMemcpyDeviceToHost,
                          streams[1]),
          "download");
    for (cudaStream_t stream : streams) check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  });
  const double encode =
      wall_seconds_of([&] {
        check(tandem_encode(code.context, code.codec, pointers.data(), pointers.data() + k, shard_bytes), "tandem_encode");
      });
  std::vector<std::uint8_t> present(k + m, 1);
  for (unsigned i = 0; i < std::min(k, m); ++i) present[i] = 0;
  const double decode = wall_seconds_of([&] {
    check(tandem_decode(code.context, code.codec, pointers.data(), present.data(), shard_bytes), "tandem_decode");
  });
  for (std::size_t i = 0; i < shard_bytes * k; ++i)
    if (host.get()[i] != static_cast<std::uint8_t>(i * 131 >> 5)) fail("decode of host memory is wrong");
  std::printf("{\"k\": %u, \"m\": %u, \"shard_bytes\": %zu, ", k, m, shard_bytes);
  print_rate("encode", static_cast<double>(shard_bytes) * k, encode, roof);
  std::printf(", ");
  print_rate("decode", static_cast<double>(shard_bytes) * k, decode, roof);
  std::printf("}\n");
}

void first_use(unsigned k, unsigned m) {
  const std::size_t shard_bytes = std::size_t{1} << 20;
  const DeviceMemory memory(shard_bytes * (k + m));
  std::vector<void *> pointers;
  for (unsigned i = 0; i < k + m; ++i) pointers.push_back(memory.get() + i * shard_bytes);
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  tandem_plan_arguments arguments = {};
  arguments.struct_bytes = sizeof arguments;
  arguments.shards = pointers.data();
  arguments.shard_bytes = shard_bytes;
  arguments.queue = stream;
  const auto seconds = [&](const char *technique) {
    const Code code(k, m, technique);
    const auto start = std::chrono::steady_clock::now();
    const Plan plan(code, TANDEM_OPERATION_ENCODE, nullptr);
    plan.run(arguments);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double tables = seconds("tables"), compiled = seconds("compiled"), again = seconds("compiled");
  std::printf("{\"k\": %u, \"m\": %u, \"tables_seconds\": %.4f, \"compiled_seconds\": %.4f, \"compiled_again_seconds\": %.4f}\n", k, m,
              tables, compiled, again);
}

}  // namespace

int main(int argc, char **argv) {
  try {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0)
      fail(std::string("no GPU: ") + (status != cudaSuccess ? cudaGetErrorString(status) : "there is none"));
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    const std::string what = argc > 1 ? argv[1] : "";
    const auto number = [&](int index) { return std::strtoull(argv[index], nullptr, 10); };
    const auto shards = [&](int index) { return static_cast<unsigned>(std::min<unsigned long long>(number(index), kMostShards)); };
    const bool is_of_device = what == "code" || what == "tables" || what == "transform";
    if (what == "micro" || is_of_device || what == "host") raise_clocks(device.multiProcessorCount);
    if (what == "micro" && argc == 2) {
      micro(device);
    } else if (is_of_device && argc == 5) {
      code_on_device(shards(2), shards(3), number(4), what == "code" ? "compiled" : what.c_str());
    } else if (what == "host" && argc == 5) {
      code_on_host(shards(2), shards(3), number(4));
    } else if (what == "first" && argc == 4) {
      first_use(shards(2), shards(3));
    } else if (what == "device" && argc == 2) {
      std::printf("{\"name\": \"%s\", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, \"memory_bytes\": %zu}\n",
                  device.name, device.major, device.minor, device.multiProcessorCount, device.totalGlobalMem);
    } else {
      std::fputs("usage: cuda_bench device | micro | code K M BYTES | tables K M BYTES | transform K M BYTES | host K M BYTES | "
                 "first K M\n", stderr);
      return 2;
    }
  } catch (const std::exception &error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
