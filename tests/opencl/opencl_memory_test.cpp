// SPDX-License-Identifier: Apache-2.0
// cl_mem shards through the C API, from a program that uses OpenCL itself: its own context and queue; one buffer for
// all shards, one for each, and sub-buffers. Without a device it prints NOT RUN, or fails if TANDEM_TEST_REQUIRE_OPENCL
// is set.
#include <CL/cl.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tandem/device.h"
#include "tandem/diagnose.h"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

constexpr unsigned kK = 5, kM = 3, kCount = kK + kM;
constexpr std::size_t kBytes = 40'003;

// The program's side: the first device of the first platform.
class OwnOpencl {
 public:
  OwnOpencl() {
    cl_uint count = 0;
    cl_platform_id platform = nullptr;
    if (clGetPlatformIDs(1, &platform, &count) != CL_SUCCESS || count == 0) return;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, &count) != CL_SUCCESS || count == 0) return;
    cl_int error = CL_SUCCESS;
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error);
    if (error == CL_SUCCESS) queue = clCreateCommandQueue(context, device, 0, &error);
    is_there = error == CL_SUCCESS;
  }
  ~OwnOpencl() {
    for (const cl_mem buffer : buffers) clReleaseMemObject(buffer);
    if (queue != nullptr) clReleaseCommandQueue(queue);
    if (context != nullptr) clReleaseContext(context);
  }
  OwnOpencl(const OwnOpencl &) = delete;
  OwnOpencl &operator=(const OwnOpencl &) = delete;

  cl_mem buffer(std::size_t bytes) {
    cl_int error = CL_SUCCESS;
    buffers.push_back(clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, &error));
    EXPECT_EQ(error, CL_SUCCESS);
    return buffers.back();
  }
  cl_mem part(cl_mem whole, std::size_t from, std::size_t bytes) {
    const cl_buffer_region region = {from, bytes};
    cl_int error = CL_SUCCESS;
    buffers.push_back(clCreateSubBuffer(whole, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &error));
    EXPECT_EQ(error, CL_SUCCESS);
    return buffers.back();
  }

  cl_device_id device = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  std::vector<cl_mem> buffers;
  bool is_there = false;
};

enum class Layout { one_buffer, one_buffer_skewed, own_buffers, own_buffers_skewed, sub_buffers };

class OpenclMemory : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    if (!own_.is_there) {
      if (std::getenv("TANDEM_TEST_REQUIRE_OPENCL") != nullptr) FAIL() << "no OpenCL device";
      GTEST_SKIP() << "NOT RUN: no OpenCL device";
    }
    tandem_context_options options = context_options("", 0);
    options.backend = "opencl:0:0";
    context_ = make_context(options);
    codec_ = make_codec(kK, kM);
    place();
  }

  void place() {
    const bool skewed = GetParam() == Layout::one_buffer_skewed || GetParam() == Layout::own_buffers_skewed;
    const std::size_t pitch = (kBytes + 4095) / 4096 * 4096 + (skewed ? 3 : 0);
    const bool one = GetParam() == Layout::one_buffer || GetParam() == Layout::one_buffer_skewed;
    const std::size_t all = (kCount + 1) * pitch + 16;
    const cl_mem whole = one || GetParam() == Layout::sub_buffers ? own_.buffer(all) : nullptr;
    for (unsigned i = 0; i <= kCount; ++i) {  // the last: new data of an update
      cl_mem handle = whole;
      std::uint64_t offset = i * pitch + (skewed ? 1 : 0);
      if (!one) {
        offset = skewed ? 1 + i : 0;
        handle = whole != nullptr ? own_.part(whole, i * pitch, kBytes) : own_.buffer(kBytes + offset);
      }
      handles_.push_back(handle);
      offsets_.push_back(offset);
    }
  }

  void put(unsigned i, const Bytes &bytes) {
    ASSERT_EQ(clEnqueueWriteBuffer(own_.queue, handles_[i], CL_FALSE, offsets_[i], bytes.size(), bytes.data(), 0,
                                   nullptr, nullptr),
              CL_SUCCESS);
  }
  Bytes get(unsigned i) {
    Bytes bytes(kBytes);
    EXPECT_EQ(
        clEnqueueReadBuffer(own_.queue, handles_[i], CL_TRUE, offsets_[i], kBytes, bytes.data(), 0, nullptr, nullptr),
        CL_SUCCESS);
    return bytes;
  }
  void put_all(const Shards &shards) {
    for (unsigned i = 0; i < kCount; ++i) put(i, shards[i]);
  }

  Plan plan(int32_t operation, const std::uint8_t *present = nullptr, std::uint32_t index = 0) {
    return make_plan(context_.get(), codec_.get(), operation, present, nullptr, index, TANDEM_MEMORY_OPENCL);
  }
  tandem_plan_arguments arguments() {
    tandem_plan_arguments made = {};
    made.struct_bytes = sizeof made;
    made.shards = reinterpret_cast<void *const *>(handles_.data());
    made.shard_bytes = kBytes;
    made.queue = own_.queue;
    made.offsets = offsets_.data();
    return made;
  }

  OwnOpencl own_;
  Context context_;
  Codec codec_;
  std::vector<cl_mem> handles_;
  std::vector<std::uint64_t> offsets_;
};

TEST_P(OpenclMemory, EncodeDecodeVerifyUpdate) {
  Random random(99);
  Stripe stripe(random, kK, kM, kBytes);
  Shards shards = stripe.truth;
  for (unsigned i = kK; i < kCount; ++i) shards[i].assign(kBytes, 0xee);
  put_all(shards);
  tandem_plan_arguments given = arguments();
  const Plan encode = plan(TANDEM_OPERATION_ENCODE);
  ASSERT_EQ(tandem_plan_run(encode.get(), &given, nullptr), TANDEM_OK) << tandem_last_error_message();
  for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(get(i), stripe.truth[i]) << i;

  // Lost: 1, 4 and 6; the run is submitted, and the bytes put in just before it, without a wait, are those it reads.
  std::uint8_t present[kCount] = {1, 0, 1, 1, 0, 1, 0, 1};
  const Plan decode = plan(TANDEM_OPERATION_DECODE, present);
  const Bytes trash(kBytes, 0x11);
  for (unsigned i = 0; i < kCount; ++i) put(i, present[i] != 0 ? stripe.truth[i] : trash);
  tandem_job *raw = nullptr;
  ASSERT_EQ(tandem_plan_run(decode.get(), &given, &raw), TANDEM_OK) << tandem_last_error_message();
  const Job job(raw);
  ASSERT_EQ(tandem_job_wait(job.get()), TANDEM_OK) << tandem_last_error_message();
  ASSERT_EQ(tandem_job_wait(job.get()), TANDEM_OK);
  for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(get(i), stripe.truth[i]) << i;

  const Plan verify = plan(TANDEM_OPERATION_VERIFY);
  tandem_verify_result result = {};
  result.struct_bytes = sizeof result;
  given.verify_result = &result;
  ASSERT_EQ(tandem_plan_run(verify.get(), &given, nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result.consistent, 1);
  Bytes damaged = stripe.truth[2];
  damaged[kBytes - 2] ^= 0x40;
  put(2, damaged);
  ASSERT_EQ(tandem_plan_run(verify.get(), &given, nullptr), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(result.consistent, 0);
  EXPECT_EQ(result.mismatch_byte_count, kM);
  EXPECT_EQ(result.first_mismatch_bytes, kBytes - 2);
  EXPECT_EQ(result.suspect_shard, 2u) << "found by reading the column from the device";

  Bytes damaged_twice = damaged;
  damaged_twice[100] ^= 1;
  put(2, damaged_twice);
  tandem_shard_range ranges[2 * kM] = {};
  tandem_verify_ranges found = {sizeof found, ranges, 2 * kM, 0};
  given.verify_ranges = &found;
  ASSERT_EQ(tandem_plan_run(verify.get(), &given, nullptr), TANDEM_OK) << tandem_last_error_message();
  ASSERT_EQ(found.count, 2 * kM);
  for (unsigned i = 0; i < 2 * kM; ++i) {
    EXPECT_EQ(ranges[i].shard, kK + i / 2) << i;
    EXPECT_EQ(ranges[i].begin_bytes, i % 2 == 0 ? 100 : kBytes - 2) << i;
    EXPECT_EQ(ranges[i].end_bytes, ranges[i].begin_bytes + 1) << i;
  }
  given = arguments();

  // Update: shard 2 becomes `damaged`; parity must be what encode makes of that.
  put(2, stripe.truth[2]);
  put(kCount, damaged);
  const Plan update = plan(TANDEM_OPERATION_UPDATE, nullptr, 2);
  given.new_data = handles_[kCount];
  given.new_data_offset = offsets_[kCount];
  ASSERT_EQ(tandem_plan_run(update.get(), &given, nullptr), TANDEM_OK) << tandem_last_error_message();
  Shards parity;
  for (unsigned i = kK; i < kCount; ++i) parity.push_back(get(i));
  put(2, damaged);
  given.new_data = nullptr;
  given.new_data_offset = 0;
  ASSERT_EQ(tandem_plan_run(encode.get(), &given, nullptr), TANDEM_OK) << tandem_last_error_message();
  for (unsigned i = kK; i < kCount; ++i) EXPECT_EQ(get(i), parity[i - kK]) << i;
  EXPECT_GT(kernel_calls(context_.get()), 4u);
}

// What a plan refuses: DeviceLayer of device/driver_suite.cpp, and api_bad_input_test.

// Many stripes of different lengths through one launch for each matrix: a slice of the fixture's shards is a stripe.
class OpenclBatch : public OpenclMemory {
 protected:
  void SetUp() override {
    OpenclMemory::SetUp();
    if (IsSkipped() || HasFatalFailure() || GetParam() == Layout::one_buffer) return;
    tandem_context_options options = context_options("", 0);
    const bool is_hybrid = GetParam() == Layout::own_buffers;
    options.backend = is_hybrid ? "hybrid:cpu+opencl:0:0" : "opencl:0:0";
    if (!is_hybrid) options.expert = "device_technique=compiled";  // the others run technique tables
    context_ = make_context(options);
  }

  // Where shards lie in one buffer a launch takes all that are aligned.
  bool is_one_buffer() const { return GetParam() == Layout::one_buffer || GetParam() == Layout::one_buffer_skewed; }

  void cut(const std::vector<std::size_t> &ends) {
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      std::vector<std::uint64_t> &own = slice_offsets_.emplace_back(offsets_.begin(), offsets_.begin() + kCount);
      for (std::uint64_t &each : own) each += begin;
      tandem_stripe stripe = {};
      stripe.shards = reinterpret_cast<void *const *>(handles_.data());
      stripe.offsets = own.data();
      stripe.shard_bytes = end - begin;
      stripe.memory = TANDEM_MEMORY_OPENCL;
      stripes_.push_back(stripe);
      begin = end;
    }
  }
  tandem_status run(std::int32_t operation) {
    tandem_job *raw = nullptr;
    const tandem_status status = tandem_code_batch(context_.get(), codec_.get(), operation, stripes_.data(),
                                                   stripes_.size(), sizeof(tandem_stripe), own_.queue, &raw);
    if (status != TANDEM_OK) return status;
    const Job job(raw);
    return tandem_job_wait(job.get());
  }

  std::vector<std::vector<std::uint64_t>> slice_offsets_;
  std::vector<tandem_stripe> stripes_;
};

TEST_P(OpenclBatch, EncodesAndDecodes) {
  Random random(77);
  Stripe stripe(random, kK, kM, kBytes);
  Shards shards = stripe.truth;
  for (unsigned i = kK; i < kCount; ++i) shards[i].assign(kBytes, 0xee);
  put_all(shards);
  slice_offsets_.reserve(8);
  cut({64, 128, 1152, 1216, 20'032, 20'096, 39'936, kBytes});
  const std::uint64_t before = kernel_calls(context_.get());
  ASSERT_EQ(run(TANDEM_OPERATION_ENCODE), TANDEM_OK) << tandem_last_error_message();
  for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(get(i), stripe.truth[i]) << i;
  if (is_one_buffer()) {
    EXPECT_EQ(kernel_calls(context_.get()) - before, 1u);
  }

  // Two patterns of erasures, by turns; one stripe has lost nothing. A shard that is missing and not wanted has no
  // handle.
  const std::uint8_t presents[2][kCount] = {{1, 0, 1, 1, 0, 1, 0, 1}, {0, 1, 1, 1, 1, 1, 1, 0}};
  const std::uint8_t whole[kCount] = {1, 1, 1, 1, 1, 1, 1, 1};
  const Bytes trash(kBytes, 0x11);
  std::vector<cl_mem> without = handles_;
  without[7] = nullptr;
  for (unsigned i = 0; i < stripes_.size(); ++i) {
    stripes_[i].present = i == 3 ? whole : presents[i % 2];
    stripes_[i].status = TANDEM_ERROR_INTERNAL;
    if (i == 5) stripes_[i].shards = reinterpret_cast<void *const *>(without.data());
  }
  Shards damaged = stripe.truth;
  std::size_t begin = 0;
  for (const tandem_stripe &each : stripes_) {
    for (unsigned i = 0; i < kCount; ++i)
      if (each.present[i] == 0) std::memset(&damaged[i][begin], 0x11, each.shard_bytes);
    begin += each.shard_bytes;
  }
  put_all(damaged);
  const std::uint64_t calls = kernel_calls(context_.get());
  ASSERT_EQ(run(TANDEM_OPERATION_DECODE), TANDEM_OK) << tandem_last_error_message();
  for (const tandem_stripe &each : stripes_) EXPECT_EQ(each.status, TANDEM_OK);
  Shards want = stripe.truth;
  std::memset(&want[7][20'032], 0x11, 64);
  for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(get(i), want[i]) << i;
  if (is_one_buffer()) {
    EXPECT_EQ(kernel_calls(context_.get()) - calls, 3u) << "two patterns, and one without shard 7";
  }
}

TEST_P(OpenclBatch, WrongStripesAreRefused) {
  cut({1000, 2000, 3000, 4000});
  const auto encode = [&](const char *part, tandem_status want = TANDEM_ERROR_INVALID_ARGUMENT) {
    EXPECT_TRUE(refused(run(TANDEM_OPERATION_ENCODE), want, {part}));
  };
  stripes_[2].shard_bytes = 0;
  encode("stripe 2 of 4");
  stripes_[2].shard_bytes = SIZE_MAX / 4;
  encode("stripe 2 of 4", TANDEM_ERROR_TOO_LARGE);
  stripes_[2].shard_bytes = 1 << 26;
  encode("stripe 2 of 4: OpenCL: input 0 has 67108864 bytes");
  stripes_[2].shard_bytes = 1000;
  stripes_[1].memory = TANDEM_MEMORY_CUDA;
  encode("stripe 1 of 4: memory kind is 1, but that of the stripes before it is 2");
  stripes_[0].memory = TANDEM_MEMORY_CUDA;
  EXPECT_TRUE(refused(run(TANDEM_OPERATION_ENCODE), TANDEM_ERROR_UNSUPPORTED, {"memory kind 1"}));
  stripes_[0].memory = TANDEM_MEMORY_HOST;
  encode("stripe 0: memory kind 0 is not of a device");
  stripes_[0].memory = stripes_[1].memory = TANDEM_MEMORY_OPENCL;
  std::vector<cl_mem> without = handles_;
  without[2] = nullptr;
  stripes_[3].shards = reinterpret_cast<void *const *>(without.data());
  encode("stripe 3 of 4: the pointer to data shard 2 is NULL");
  stripes_[3].shards = nullptr;
  encode("stripe 3 of 4: shards is NULL");
  stripes_[3].shards = stripes_[0].shards;
  const std::uint8_t present[kCount] = {1, 0, 1, 1, 0, 1, 1, 1}, few[kCount] = {1, 0, 1, 1, 0, 0, 0, 1};
  for (tandem_stripe &each : stripes_) each.present = present;
  stripes_[1].present = few;
  stripes_[2].present = nullptr;
  EXPECT_TRUE(refused(run(TANDEM_OPERATION_DECODE), TANDEM_ERROR_NOT_RECOVERABLE, {"stripe 1 of 4"}));
  EXPECT_EQ(stripes_[0].status, TANDEM_OK);
  EXPECT_EQ(stripes_[1].status, TANDEM_ERROR_NOT_RECOVERABLE);
  EXPECT_EQ(stripes_[2].status, TANDEM_ERROR_INVALID_ARGUMENT);
  stripes_[1].present = stripes_[2].present = present;
  for (tandem_stripe &each : stripes_) each.memory = 77;
  EXPECT_TRUE(refused(run(TANDEM_OPERATION_DECODE), TANDEM_ERROR_INVALID_ARGUMENT, {"memory kind 77"}));
  for (tandem_stripe &each : stripes_) {
    EXPECT_EQ(each.status, TANDEM_ERROR_CANCELLED) << "not looked at";
    each.memory = TANDEM_MEMORY_OPENCL;
  }

  tandem_job *job = nullptr;
  const auto call = [&](tandem_context *context, tandem_stripe *stripes, std::size_t count, std::size_t stride,
                        void *queue, tandem_job **out) {
    return tandem_code_batch(context, codec_.get(), TANDEM_OPERATION_ENCODE, stripes, count, stride, queue, out);
  };
  const std::size_t size = sizeof(tandem_stripe);
  tandem_stripe *const some = stripes_.data();
  tandem_context *const context = context_.get();
  EXPECT_TRUE(refused(call(nullptr, some, 4, size, own_.queue, &job), TANDEM_ERROR_UNSUPPORTED, {"memory kind 2"}));
  EXPECT_TRUE(refused(call(context, nullptr, 4, size, own_.queue, &job), TANDEM_ERROR_INVALID_ARGUMENT, {"stripes"}));
  EXPECT_TRUE(refused(call(context, some, 4, size - 8, own_.queue, &job), TANDEM_ERROR_INVALID_ARGUMENT, {"stride"}));
  EXPECT_TRUE(refused(call(context, some, 4, size, nullptr, &job), TANDEM_ERROR_INVALID_ARGUMENT, {"queue is NULL"}));
  EXPECT_TRUE(refused(call(context, some, 4, size, own_.queue, nullptr), TANDEM_ERROR_INVALID_ARGUMENT, {"job_out"}));
  EXPECT_TRUE(refused(call(context, some, std::size_t{1} << 32, size, own_.queue, &job), TANDEM_ERROR_TOO_LARGE,
                      {"4294967296 stripes", "16777216"}));
  EXPECT_TRUE(refused(call(context, some, SIZE_MAX / 8, size, own_.queue, &job), TANDEM_ERROR_TOO_LARGE));
  EXPECT_EQ(job, nullptr);
  ASSERT_EQ(call(context, nullptr, 0, size, own_.queue, &job), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(tandem_job_wait(job), TANDEM_OK);
  tandem_job_destroy(job);

  tandem_codec_options wide = codec_options(kK, kM, TANDEM_MATRIX_PAR2);
  wide.field = TANDEM_FIELD_GF16;
  const Codec gf16 = make_codec(wide);
  EXPECT_TRUE(refused(
      tandem_code_batch(context, gf16.get(), TANDEM_OPERATION_ENCODE, stripes_.data(), 4, size, own_.queue, &job),
      TANDEM_ERROR_UNSUPPORTED, {"GF(2^16)"}));
  const Context cpu = make_context();
  EXPECT_TRUE(refused(call(cpu.get(), some, 4, size, own_.queue, &job), TANDEM_ERROR_UNSUPPORTED, {"memory kind 2"}));
}

// A program without a driver of its own: memory from Tandem, many stripes in it by one call, and the bytes of the CPU.
TEST(OpenclOwnMemory, ABatchInIt) {
  {
    const OwnOpencl opencl;
    if (!opencl.is_there && std::getenv("TANDEM_TEST_REQUIRE_OPENCL") != nullptr) FAIL() << "no OpenCL device";
    if (!opencl.is_there) GTEST_SKIP() << "NOT RUN: no OpenCL device";
  }
  tandem_context_options options = context_options("", 0);
  options.backend = "opencl:0:0";
  const Context context = make_context(options);
  const Codec codec = make_codec(kK, kM);
  constexpr std::size_t kStripes = 7, kLength = 5000, kPitch = 5056;
  const tandem_device_memory *raw = nullptr;
  ASSERT_EQ(tandem_device_memory_create(context.get(), kStripes * kCount * kPitch, &raw), TANDEM_OK)
      << tandem_last_error_message();
  const std::unique_ptr<const tandem_device_memory, void (*)(const tandem_device_memory *)> memory(
      raw, tandem_device_memory_destroy);
  const tandem_device_memory &info = *memory;
  EXPECT_EQ(info.memory, TANDEM_MEMORY_OPENCL);
  EXPECT_EQ(info.bytes, kStripes * kCount * kPitch);

  Random random(7);
  std::vector<Shards> truth;
  std::vector<std::vector<std::uint64_t>> offsets(kStripes);
  const std::vector<void *> handles(kCount, info.shards);
  std::vector<tandem_stripe> stripes(kStripes);
  for (std::size_t s = 0; s < kStripes; ++s) {
    truth.push_back(Stripe(random, kK, kM, kLength).truth);
    for (unsigned i = 0; i < kCount; ++i) {
      offsets[s].push_back((s * kCount + i) * kPitch);
      if (i >= kK) continue;
      ASSERT_EQ(tandem_device_memory_write(memory.get(), offsets[s][i], truth[s][i].data(), kLength), TANDEM_OK);
    }
    stripes[s].shards = handles.data();
    stripes[s].offsets = offsets[s].data();
    stripes[s].shard_bytes = kLength;
    stripes[s].memory = info.memory;
  }
  tandem_job *job = nullptr;
  ASSERT_EQ(tandem_code_batch(context.get(), codec.get(), TANDEM_OPERATION_ENCODE, stripes.data(), kStripes,
                              sizeof stripes[0], info.queue, &job),
            TANDEM_OK)
      << tandem_last_error_message();
  EXPECT_EQ(tandem_job_wait(job), TANDEM_OK) << tandem_last_error_message();
  tandem_job_destroy(job);
  for (std::size_t s = 0; s < kStripes; ++s) {
    for (unsigned i = kK; i < kCount; ++i) {
      Bytes parity(kLength);
      ASSERT_EQ(tandem_device_memory_read(memory.get(), offsets[s][i], parity.data(), kLength), TANDEM_OK);
      EXPECT_EQ(parity, truth[s][i]) << s << ", " << i;
    }
  }

  std::uint8_t byte = 0;
  const auto write = [&](std::uint64_t offset, std::uint64_t bytes) {
    return tandem_device_memory_write(memory.get(), offset, &byte, bytes);
  };
  EXPECT_TRUE(refused(write(info.bytes, 1), TANDEM_ERROR_INVALID_ARGUMENT, {"1 bytes at 283136"}));
  EXPECT_TRUE(refused(write(UINT64_MAX, 2), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(write(1, UINT64_MAX), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_device_memory_read(memory.get(), 0, nullptr, 1), TANDEM_ERROR_INVALID_ARGUMENT, {"to"}));
  raw = nullptr;
  EXPECT_TRUE(refused(tandem_device_memory_create(context.get(), 0, &raw), TANDEM_ERROR_INVALID_ARGUMENT, {"bytes"}));
  EXPECT_TRUE(refused(tandem_device_memory_create(context.get(), std::uint64_t{1} << 60, &raw),
                      TANDEM_ERROR_OUT_OF_MEMORY, {"1152921504606846976"}));
  const Context cpu = make_context();
  EXPECT_TRUE(refused(tandem_device_memory_create(cpu.get(), 1, &raw), TANDEM_ERROR_UNSUPPORTED, {"cpu"}));
  EXPECT_EQ(raw, nullptr);
  tandem_device_memory_destroy(nullptr);
}

// What a device computes is compared with the CPU: the first answer of a kernel, or each.
TEST(OpenclOwnMemory, AContextChecksItsDevice) {
  if (const OwnOpencl opencl; !opencl.is_there) GTEST_SKIP() << "NOT RUN: no OpenCL device";
  const Codec codec = make_codec(kK, kM);
  for (const bool checks_all : {false, true}) {
    if (checks_all) setenv("TANDEM_CHECK_DEVICES", "all", 1);
    unsigned checks = 0;
    tandem_context_options options = context_options("", 0);
    options.backend = "opencl:0:0";
    options.log_user = &checks;
    options.log_callback = [](void *user, std::int32_t, const char *message) {
      if (std::strstr(message, "are those of the CPU") != nullptr) ++*static_cast<unsigned *>(user);
    };
    const Context context = make_context(options);
    unsetenv("TANDEM_CHECK_DEVICES");
    Random random(8);
    Stripe stripe(random, kK, kM, kBytes);
    for (unsigned i = 0; i < 2; ++i)
      ASSERT_EQ(tandem_encode(context.get(), codec.get(), stripe.data(), stripe.parity(), kBytes), TANDEM_OK)
          << tandem_last_error_message();
    EXPECT_EQ(checks, checks_all ? 2u : 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, OpenclBatch,
                         testing::Values(Layout::one_buffer, Layout::one_buffer_skewed, Layout::own_buffers));
INSTANTIATE_TEST_SUITE_P(Layouts, OpenclMemory,
                         testing::Values(Layout::one_buffer, Layout::one_buffer_skewed, Layout::own_buffers,
                                         Layout::own_buffers_skewed, Layout::sub_buffers));

}  // namespace
}  // namespace tandem::test
