// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/gpu_program.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <future>

namespace tandem::test {
namespace {

// Names in cuda.h; its macros turn them into names of symbols.
#define FUNCTIONS(X)             \
  X(cuInit)                      \
  X(cuDeviceGet)                 \
  X(cuDevicePrimaryCtxRetain)    \
  X(cuDevicePrimaryCtxRelease)   \
  X(cuCtxPushCurrent)            \
  X(cuCtxPopCurrent)             \
  X(cuCtxSynchronize)            \
  X(cuMemAlloc)                  \
  X(cuMemFree)                   \
  X(cuMemcpyHtoD)                \
  X(cuMemcpyDtoH)                \
  X(cuStreamCreate)              \
  X(cuStreamDestroy)             \
  X(cuStreamSynchronize)         \
  X(cuStreamBeginCapture)        \
  X(cuStreamEndCapture)          \
  X(cuGraphInstantiateWithFlags) \
  X(cuGraphLaunch)               \
  X(cuGraphExecDestroy)          \
  X(cuGraphDestroy)              \
  X(cuLaunchHostFunc)            \
  X(cuModuleLoadData)            \
  X(cuModuleGetFunction)         \
  X(cuLaunchKernel)

#define TEXT(name) #name
#define EXPANDED_TEXT(name) TEXT(name)

struct Functions {
#define DECLARE(name) decltype(&::name) name = nullptr;
  FUNCTIONS(DECLARE)
#undef DECLARE

  Functions() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define TAKE(name) take(library, EXPANDED_TEXT(name), name);
    FUNCTIONS(TAKE)
#undef TAKE
  }
  template <class Function>
  static void take(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(library != nullptr ? dlsym(library, name) : nullptr);
    if (function != nullptr) return;
    std::fprintf(stderr, "libcuda.so.1 has no %s\n", name);
    std::abort();  // a test without it is none
  }
};

const Functions &cuda() {
  static const Functions functions;
  return functions;
}

void check(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", call, static_cast<int>(result));
  std::abort();
}
#define CHECK(call) check(cuda().call, #call)

// A kernel that fails where its argument is not 0.
constexpr const char *kFailing = R"(
.version 6.4
.target sm_75
.address_size 64
.visible .entry fail_if(.param .u32 wanted) {
  .reg .pred %p;
  .reg .u32 %r;
  ld.param.u32 %r, [wanted];
  setp.ne.u32 %p, %r, 0;
  @%p trap;
  ret;
}
)";

class GpuProgram final : public CudaProgram {
 public:
  GpuProgram() {
    CHECK(cuInit(0));
    const auto backend = gpu::make_backend(options("tables"), log());
    backend->prepare(core::Matrix(1, 1));
    int ordinal = 0;
    std::sscanf(backend->traits().name.c_str(), "cuda:%d", &ordinal);
    CHECK(cuDeviceGet(&device_, ordinal));
    CHECK(cuDevicePrimaryCtxRetain(&context_, device_));
    CHECK(cuCtxPushCurrent(context_));
  }
  ~GpuProgram() override {
    EXPECT_FALSE(fell_back(heard_));
    end_graph();
    CHECK(cuCtxPopCurrent(&context_));
    CHECK(cuDevicePrimaryCtxRelease(device_));
  }

  gpu::Options options(const char *technique) const override {
    gpu::Options options;
    options.technique = technique;
    return options;
  }
  std::uint64_t large_bytes() const override { return (3 << 20) + 13; }

  CUdeviceptr allocate(std::uint64_t bytes) override {
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, bytes));
    return memory;
  }
  void free(CUdeviceptr memory) override { CHECK(cuMemFree(memory)); }
  void write(CUdeviceptr to, const void *from, std::uint64_t bytes) override {
    CHECK(cuMemcpyHtoD(to, from, bytes));
    CHECK(cuCtxSynchronize());  // it may be on its way still, and other streams do not wait for it
  }
  void read(void *to, CUdeviceptr from, std::uint64_t bytes) override { CHECK(cuMemcpyDtoH(to, from, bytes)); }

  CUstream make_stream() override {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
  }
  void destroy(CUstream stream) override { CHECK(cuStreamDestroy(stream)); }
  void synchronize(CUstream stream) override { CHECK(cuStreamSynchronize(stream)); }

  void begin_capture(CUstream stream) override { CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)); }
  void end_capture(CUstream stream) override {
    end_graph();
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&graph_, graph, 0));
    CHECK(cuGraphDestroy(graph));
  }
  void launch_graph(CUstream stream) override { CHECK(cuGraphLaunch(graph_, stream)); }

  void break_stream(CUstream stream) override {
    CUmodule module = nullptr;
    CUfunction fail_if = nullptr;
    CHECK(cuModuleLoadData(&module, kFailing));
    CHECK(cuModuleGetFunction(&fail_if, module, "fail_if"));
    const auto launch = [&](unsigned wanted) {
      void *parameters[] = {&wanted};
      CHECK(cuLaunchKernel(fail_if, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    };
    launch(0);  // ends the slow first launch before the stream is held
    CHECK(cuStreamSynchronize(stream));
    const auto wait = [](void *gate) { static_cast<std::promise<void> *>(gate)->get_future().wait(); };
    CHECK(cuLaunchHostFunc(stream, wait, &gate_));
    launch(1);
  }
  void let_fail() override { gate_.set_value(); }

 private:
  void end_graph() {
    if (graph_ != nullptr) CHECK(cuGraphExecDestroy(graph_));
    graph_ = nullptr;
  }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUgraphExec graph_ = nullptr;
  std::promise<void> gate_;
};

}  // namespace

std::unique_ptr<CudaProgram> make_gpu_program() { return std::make_unique<GpuProgram>(); }

}  // namespace tandem::test
