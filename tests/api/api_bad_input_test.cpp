// SPDX-License-Identifier: Apache-2.0
// Wrong arguments of every call: each must give its status and a message with the numbers, and write nothing.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "tandem/device.h"
#include "tandem/diagnose.h"
#include "tandem/tools.h"
#include "tests/support/api.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kSeed = 4711;
const std::string kMaxSize = std::to_string(SIZE_MAX);

class BadCodec : public testing::Test {
 protected:
  testing::AssertionResult refused_with(tandem_codec_options options, tandem_status status,
                                        std::initializer_list<const char *> parts) {
    tandem_codec *const untouched = reinterpret_cast<tandem_codec *>(this);
    tandem_codec *codec = untouched;
    const auto result = refused(tandem_codec_create(&options, &codec), status, parts);
    if (codec != untouched) return testing::AssertionFailure() << "codec_out was written";
    return result;
  }
};

TEST_F(BadCodec, ShardCounts) {
  EXPECT_TRUE(refused_with(codec_options(0, 2), TANDEM_ERROR_INVALID_ARGUMENT, {"k", "0"}));
  EXPECT_TRUE(refused_with(codec_options(0, 0), TANDEM_ERROR_INVALID_ARGUMENT, {"k", "0"}));
  EXPECT_TRUE(refused_with(codec_options(253, 4), TANDEM_ERROR_INVALID_ARGUMENT, {"253", "4", "256"}));
  EXPECT_TRUE(refused_with(codec_options(257, 0), TANDEM_ERROR_INVALID_ARGUMENT, {"257", "256"}));
  EXPECT_TRUE(refused_with(codec_options(UINT32_MAX, 1), TANDEM_ERROR_INVALID_ARGUMENT, {"4294967295", "256"}));
  EXPECT_TRUE(refused_with(codec_options(1, UINT32_MAX), TANDEM_ERROR_INVALID_ARGUMENT, {"4294967295", "256"}));
  EXPECT_TRUE(refused_with(codec_options(UINT32_MAX, UINT32_MAX), TANDEM_ERROR_INVALID_ARGUMENT, {"4294967295"}));
  EXPECT_TRUE(refused_with(codec_options(128, UINT32_MAX - 127), TANDEM_ERROR_INVALID_ARGUMENT, {"128"}));
}

TEST_F(BadCodec, MatrixAndField) {
  EXPECT_TRUE(refused_with(codec_options(4, 2, 20), TANDEM_ERROR_INVALID_ARGUMENT, {"20"}));
  EXPECT_TRUE(refused_with(codec_options(4, 2, -1), TANDEM_ERROR_INVALID_ARGUMENT, {"-1"}));
  EXPECT_TRUE(refused_with(codec_options(4, 2, 999), TANDEM_ERROR_INVALID_ARGUMENT, {"999"}));
  tandem_codec_options options = codec_options(4, 2);
  options.field = 7;
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_INVALID_ARGUMENT, {"7"}));
  options = codec_options(4, 2, TANDEM_MATRIX_CUSTOM);
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_INVALID_ARGUMENT, {"NULL"}));
  EXPECT_TRUE(refused_with(codec_options(4, 3, TANDEM_MATRIX_RAID6), TANDEM_ERROR_INVALID_ARGUMENT, {"2"}));
  const std::uint8_t coefficients[8] = {};
  options = codec_options(4, 2);
  options.coefficients = coefficients;
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_INVALID_ARGUMENT, {"coefficients"}));
}

TEST_F(BadCodec, MatricesThatCouldLoseData) {
  EXPECT_TRUE(refused_with(codec_options(100, 5, TANDEM_MATRIX_ISAL_VANDERMONDE), TANDEM_ERROR_NOT_MDS, {"100", "5"}));
  EXPECT_TRUE(refused_with(codec_options(10, 4, TANDEM_MATRIX_PAR1), TANDEM_ERROR_NOT_MDS, {"10", "4"}));
  const std::uint8_t singular[] = {1, 1, 1, 1, 1, 1};
  tandem_codec_options options = codec_options(3, 2, TANDEM_MATRIX_CUSTOM);
  options.coefficients = singular;
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_NOT_MDS, {"3", "2"}));
  const std::uint8_t with_zero[] = {1, 0, 1};
  options = codec_options(3, 1, TANDEM_MATRIX_CUSTOM);
  options.coefficients = with_zero;
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_NOT_MDS, {"3", "1"}));
  // Too many minors to check: unproven.
  Random random(kSeed);
  const Bytes large = random.bytes(40 * 20);
  options = codec_options(40, 20, TANDEM_MATRIX_CUSTOM);
  options.coefficients = large.data();
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_NOT_MDS, {"40", "20"}));
  options.allow_non_mds = 1;
  EXPECT_NE(make_codec(options), nullptr);
}

TEST_F(BadCodec, StructSizes) {
  tandem_codec_options options = codec_options(4, 2);
  options.struct_bytes = 0;
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_INVALID_ARGUMENT, {"0", "64"}));
  options.struct_bytes = 7;
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_INVALID_ARGUMENT, {"7"}));
  options.struct_bytes = SIZE_MAX;
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_INVALID_ARGUMENT, {kMaxSize.c_str()}));
  options = codec_options(4, 2);
  options.reserved = 9;
  EXPECT_NE(options.reserved, 0);
  EXPECT_TRUE(refused_with(options, TANDEM_ERROR_UNSUPPORTED, {"9"}));
}

struct FutureCodecOptions {
  tandem_codec_options known;
  std::uint8_t more[24];
};

TEST_F(BadCodec, TrailingOptionsOfALaterVersion) {
  FutureCodecOptions options = {codec_options(4, 2), {}};
  options.known.struct_bytes = sizeof options;
  tandem_codec *codec = nullptr;
  ASSERT_EQ(tandem_codec_create(&options.known, &codec), TANDEM_OK) << "zeros mean default";
  tandem_codec_destroy(codec);
  codec = nullptr;
  for (const std::size_t set : {std::size_t{0}, sizeof options.more - 1}) {
    options.more[set] = 1;
    const std::string position = std::to_string(sizeof options.known + set);
    EXPECT_TRUE(refused(tandem_codec_create(&options.known, &codec), TANDEM_ERROR_UNSUPPORTED, {position.c_str()}));
    EXPECT_EQ(codec, nullptr);
    options.more[set] = 0;
  }
}

TEST_F(BadCodec, OlderCallersStructIsEnough) {
  tandem_codec_options options = codec_options(4, 2);
  std::memset(&options.matrix, 0xff, sizeof options - offsetof(tandem_codec_options, matrix));
  options.struct_bytes = offsetof(tandem_codec_options, matrix);
  EXPECT_NE(make_codec(options), nullptr);
}

TEST_F(BadCodec, NullPointers) {
  tandem_codec_options options = codec_options(4, 2);
  tandem_codec *codec = nullptr;
  EXPECT_TRUE(refused(tandem_codec_create(nullptr, &codec), TANDEM_ERROR_INVALID_ARGUMENT, {"NULL"}));
  EXPECT_TRUE(refused(tandem_codec_create(&options, nullptr), TANDEM_ERROR_INVALID_ARGUMENT, {"NULL"}));
  tandem_codec_destroy(nullptr);
  const Codec good = make_codec(4, 2);
  std::uint8_t coefficients[8] = {9, 9, 9, 9, 9, 9, 9, 9};
  EXPECT_TRUE(refused(tandem_codec_coefficients(nullptr, coefficients, 8), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_codec_coefficients(good.get(), nullptr, 8), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(
      refused(tandem_codec_coefficients(good.get(), coefficients, 7), TANDEM_ERROR_INVALID_ARGUMENT, {"7", "8"}));
  EXPECT_EQ(coefficients[0], 9);
  int32_t matrix = 55;
  EXPECT_TRUE(refused(tandem_matrix_from_name(nullptr, &matrix), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_matrix_from_name("raid6", nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(
      refused(tandem_matrix_from_name("no-such", &matrix), TANDEM_ERROR_INVALID_ARGUMENT, {"no-such", "isal-cauchy"}));
  EXPECT_EQ(matrix, 55);
}

// ---- contexts

testing::AssertionResult context_refused(tandem_context_options options, tandem_status status,
                                         std::initializer_list<const char *> parts) {
  tandem_context *const untouched = reinterpret_cast<tandem_context *>(&options);
  tandem_context *context = untouched;
  const auto result = refused(tandem_context_create(&options, &context), status, parts);
  if (context != untouched) return testing::AssertionFailure() << "context_out was written";
  return result;
}

TEST(BadContext, UnknownChoices) {
  tandem_context_options options = context_options();
  options.kernel = "avx1024";
  EXPECT_TRUE(context_refused(options, TANDEM_ERROR_UNAVAILABLE, {"avx1024", "scalar"}));
#if defined(__aarch64__)  // those of the other processors
  for (const char *kernel : {"ssse3", "avx2", "avx512-gfni"}) {
#else
  for (const char *kernel : {"neon", "neon-eor3"}) {
#endif
    options.kernel = kernel;
    EXPECT_TRUE(context_refused(options, TANDEM_ERROR_UNAVAILABLE, {kernel, "this CPU runs: ", "scalar"}));
  }
  options = context_options();
  options.backend = "abacus";
  EXPECT_TRUE(context_refused(options, TANDEM_ERROR_UNAVAILABLE, {"abacus", "cpu"}));
  // The message has the text, what is wrong in it, and what is known.
  const struct {
    const char *expert;
    std::initializer_list<const char *> words;
  } wrong[] = {
      {"executor=fibers", {"executor is \"fibers\"", "serial, pthread, openmp"}},
      {"schedule=dynamic", {"no key is called \"schedule\"", "executor, pin, technique, device_technique"}},
      {"pin", {"pin has no value", "pin=0"}},
      {"pin=", {"pin is \"\"", "0, 1"}},
      {"pin=1,pin=1", {"pin stands twice"}},
      {"pin=1,", {"\"pin=1,\"", "last comma"}},
      {",", {"no key is called \"\""}},
      {"pin=1;executor=serial", {"1;executor=serial"}},
      {"technique=tables", {"technique is \"tables\"", "matrix, transform"}},
      {"device_technique=matrix", {"device_technique is \"matrix\"", "compiled, tables, transform"}},
  };
  for (const auto &[expert, words] : wrong) {
    options = context_options();
    options.expert = expert;
    EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, words)) << expert;
  }
  options = context_options("pthread", UINT32_MAX);
  EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, {"4294967295"}));
  const std::string long_name(5000, 'x');  // the message is cut, not the memory behind it
  options = context_options();
  options.kernel = long_name.c_str();
  EXPECT_TRUE(context_refused(options, TANDEM_ERROR_UNAVAILABLE, {"xxxx"}));
  EXPECT_LE(std::strlen(tandem_last_error_message()), 511u);
}

// By kind of backend, option by option. The message names both.
TEST(BadContext, OptionsWithoutEffect) {
  using Change = void (*)(tandem_context_options &);
  struct Option {
    const char *words;
    Change give;
  };
  const Option policy = {"policy \"budget\"", [](auto &options) { options.policy = "budget"; }};
  const Option kernel = {"kernel \"scalar\"", [](auto &options) { options.kernel = "scalar"; }};
  const Option pinned = {"pin=1", [](auto &options) { options.expert = "pin=1"; }};
  const Option of_device = {"device_technique=tables",
                            [](auto &options) { options.expert = "device_technique=tables"; }};
  const std::vector<Option> of_cpu_threads = {
      {"thread_count 1", [](auto &options) { options.thread_count = 1; }},
      {"thread_count 3", [](auto &options) { options.thread_count = 3; }},
      {"executor=serial", [](auto &options) { options.expert = "executor=serial"; }},
      {"executor=pthread", [](auto &options) { options.expert = "executor=pthread"; }},
      {"executor=openmp", [](auto &options) { options.expert = "executor=openmp"; }},
      {"technique=matrix", [](auto &options) { options.expert = "technique=matrix"; }},
      kernel,
      pinned};
  const auto with = [](const char *backend, const Option &option) {
    tandem_context_options options = context_options("", 0);
    options.backend = backend;
    option.give(options);
    return options;
  };
  const auto expect_refused = [&](const char *backend, const Option &option) {
    const std::string named = std::string("backend \"") + backend + '"';
    EXPECT_TRUE(context_refused(with(backend, option), TANDEM_ERROR_INVALID_ARGUMENT,
                                {option.words, named.c_str(), "has no effect"}))
        << backend << ", " << option.words;
  };
  expect_refused("cpu", policy);
  expect_refused("cpu", of_device);
  expect_refused("hybrid:cpu", of_device);
  for (const char *device : {"opencl", "opencl:0:0", "cuda", "cuda:1"}) {
    expect_refused(device, policy);
    for (const Option &option : of_cpu_threads) expect_refused(device, option);
  }
  tandem_context_options options = context_options("", 0);
  options.backend = "hybrid:opencl:0:0";
  tandem_context *there = nullptr;
  if (tandem_context_create(&options, &there) == TANDEM_OK) {  // touches no device
    for (const Option &option : of_cpu_threads) expect_refused(options.backend, option);
  } else {
    printf("NOT RUN: a hybrid without the CPU: %s\n", tandem_last_error_message());
  }
  tandem_context_destroy(there);

  // Where the executor has no use for it. Off is the default.
  for (const char *expert : {"executor=serial,pin=1", "pin=1,executor=openmp"}) {
    options = with("cpu", pinned);
    options.expert = expert;
    EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, {"pin=1", "executor is not pthread"}));
  }
  for (const char *expert : {"pin=1", "executor=pthread,pin=1"}) {
    options.expert = expert;
    options.thread_count = 1;
    EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, {"pin=1", "one thread"}));
    options.thread_count = 0;
  }
  options.expert = "executor=serial,pin=0";
  EXPECT_NE(make_context(options), nullptr);

  // With an effect: the same options elsewhere. An empty text, and zero, are defaults.
  EXPECT_NE(make_context(with("hybrid:cpu", policy)), nullptr);
  EXPECT_NE(make_context(with("hybrid:cpu", kernel)), nullptr);
  EXPECT_NE(make_context(with("hybrid:cpu", of_cpu_threads[1])), nullptr);
  EXPECT_NE(make_context(with("hybrid:cpu", of_cpu_threads[2])), nullptr);
  EXPECT_NE(make_context(with("cpu", {"", [](auto &given) { given.expert = "pin=1", given.thread_count = 2; }})),
            nullptr);
  EXPECT_NE(make_context(with("hybrid:cpu", {"", [](auto &given) { given.expert = "pin=0", given.policy = "free"; }})),
            nullptr);
  EXPECT_NE(make_context(with("cpu", {"", [](auto &given) { given.policy = ""; }})), nullptr);
  // What the environment says holds for all programs of the machine.
  setenv("TANDEM_POLICY", "budget", 1);
  setenv("TANDEM_THREADS", "2", 1);
  setenv("TANDEM_EXPERT", "executor=pthread,device_technique=tables", 1);
  const Option nothing = {"", [](auto &) {}};
  EXPECT_NE(make_context(with("cpu", nothing)), nullptr);
  options = with("opencl:0:0", nothing);
  if (tandem_context_create(&options, &there) == TANDEM_ERROR_INVALID_ARGUMENT)
    ADD_FAILURE() << tandem_last_error_message();
  tandem_context_destroy(there);
  unsetenv("TANDEM_POLICY");
  unsetenv("TANDEM_THREADS");
  unsetenv("TANDEM_EXPERT");
}

TEST(BadContext, Resources) {
  for (const char *text : {"cpu", "cpu=", "cpu=0", "cpu=-1", "cpu=1x", "=3", "di sk=1", "cpu=1,", ",", "cpu=1,cpu=2",
                           "cpu=99999999999999999999999", " cpu=1", "cpu =1"}) {
    tandem_context_options options = context_options();
    options.resources = text;
    EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, {})) << text;
  }
  const Context context = make_context();
  // A typing error would limit nothing.
  const auto known = {"\"cpus\" is unknown", "cpu, gpu, pinned_mib, opencl_mib, cuda_mib", "with a dot"};
  tandem_context_options options = context_options();
  options.resources = "cpus=2";
  EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, known));
  EXPECT_TRUE(refused(tandem_context_set_resource(context.get(), "cpus", 2), TANDEM_ERROR_INVALID_ARGUMENT, known));
  options.resources = "app.cpus=2,cuda_mib=64";
  EXPECT_NE(make_context(options), nullptr);
  EXPECT_TRUE(refused(tandem_context_set_resource(context.get(), nullptr, 1), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_context_set_resource(context.get(), "cpu", 0), TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  EXPECT_TRUE(refused(tandem_context_set_resource(context.get(), "", 1), TANDEM_ERROR_INVALID_ARGUMENT, {"0", "63"}));
  EXPECT_TRUE(refused(tandem_context_set_resource(context.get(), "w\xc3\xa4lder", 1), TANDEM_ERROR_INVALID_ARGUMENT,
                      {"character 2"}));
  const std::string name = "app." + std::string(59, 'x');
  EXPECT_EQ(tandem_context_set_resource(context.get(), name.c_str(), 1), TANDEM_OK);
  EXPECT_TRUE(refused(tandem_context_set_resource(context.get(), (name + "x").c_str(), 1),
                      TANDEM_ERROR_INVALID_ARGUMENT, {"64 characters", "63"}));
}

TEST(BadPlan, Resources) {
  const Context context = make_context();
  const Codec codec = make_codec(4, 2);
  ASSERT_EQ(tandem_context_set_resource(context.get(), "app.widgets", 3), TANDEM_OK);
  tandem_plan_options options = {};
  options.struct_bytes = sizeof options;
  tandem_plan *plan = nullptr;
  const auto is_refused = [&](const char *resources, std::initializer_list<const char *> parts) {
    options.resources = resources;
    return refused(tandem_plan_create(context.get(), codec.get(), &options, &plan), TANDEM_ERROR_INVALID_ARGUMENT,
                   parts);
  };
  for (const char *fixed : {"cpu", "gpu", "pinned_mib", "opencl_mib", "cuda_mib"})
    EXPECT_TRUE(is_refused((std::string("app.disk=1,") + fixed + "=2").c_str(), {fixed, "=2", "fixed"}));
  EXPECT_TRUE(is_refused("app.widgets=0", {"app.widgets", "0"}));
  EXPECT_TRUE(is_refused("app.widgets", {"app.widgets"}));
  EXPECT_TRUE(is_refused("app.widgets=1,", {"character 1"}));
  EXPECT_TRUE(is_refused("app.widgets=1,app.disk=1,app.widgets=2", {"twice", "1 and 2"}));
  EXPECT_TRUE(is_refused("wid gets=1", {"character 4"}));
  EXPECT_TRUE(is_refused("cpus=1", {"\"cpus\" is unknown", "with a dot"}));
  EXPECT_TRUE(is_refused("app.disk=1,app.widgets=4", {"4", "app.widgets", "3"}));
  EXPECT_EQ(plan, nullptr);
}

TEST(BadContext, NullPointersAndSizes) {
  EXPECT_TRUE(refused(tandem_context_create(nullptr, nullptr), TANDEM_ERROR_INVALID_ARGUMENT, {"NULL"}));
  tandem_context_destroy(nullptr);
  tandem_context_options options = context_options();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, SIZE_MAX}) {
    options.struct_bytes = bytes;
    EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, {std::to_string(bytes).c_str()}));
  }
  struct {
    tandem_context_options known;
    std::uint64_t more;
  } future = {context_options(), 0};
  future.known.struct_bytes = sizeof future;
  EXPECT_NE(make_context(future.known), nullptr);
  future.more = 1;
  tandem_context *context = nullptr;
  EXPECT_TRUE(refused(tandem_context_create(&future.known, &context), TANDEM_ERROR_UNSUPPORTED));
  EXPECT_EQ(context, nullptr);
  const Context good = make_context();
  tandem_context_info info = {};
  info.struct_bytes = sizeof info;
  EXPECT_TRUE(refused(tandem_context_query(good.get(), nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  info.struct_bytes = 3;
  EXPECT_TRUE(refused(tandem_context_query(good.get(), &info), TANDEM_ERROR_INVALID_ARGUMENT, {"3"}));
  EXPECT_EQ(info.kernel, nullptr);
}

// ---- operations

// One NULL among a stripe's pointers, at every place of codes of every size up to 9+6: found, named, nothing written.
TEST(BadPlan, EachNullShard) {
  constexpr std::size_t kBytes = 64;
  const Context context = make_context();
  std::vector<std::uint8_t> byte(15 * kBytes, 0x5a);
  tandem_plan_options options = {};
  options.struct_bytes = sizeof options;
  tandem_plan_arguments arguments = {};
  arguments.struct_bytes = sizeof arguments;
  arguments.shard_bytes = kBytes;
  for (unsigned k = 1; k <= 9; ++k) {
    for (unsigned m = 1; m <= 6; ++m) {
      const Codec codec = make_codec(k, m);
      tandem_plan *plan = nullptr;
      ASSERT_EQ(tandem_plan_create(context.get(), codec.get(), &options, &plan), TANDEM_OK);
      for (unsigned i = 0; i < k + m; ++i) {
        void *shards[15];
        for (unsigned s = 0; s < k + m; ++s) shards[s] = s == i ? nullptr : byte.data() + s * kBytes;
        arguments.shards = shards;
        const std::string name = i < k ? "data shard " + std::to_string(i) : "parity shard " + std::to_string(i - k);
        EXPECT_TRUE(refused(tandem_plan_run(plan, &arguments), TANDEM_ERROR_INVALID_ARGUMENT, {name.c_str(), "NULL"}))
            << k << "+" << m;
      }
      tandem_plan_destroy(plan);
    }
  }
  EXPECT_EQ(byte, std::vector<std::uint8_t>(15 * kBytes, 0x5a));
}

class BadCall : public testing::Test {
 protected:
  static constexpr unsigned kK = 10, kM = 4, kBytes = 20'000;  // 14 * 20,000 > 4 KiB: overlap is looked for

  BadCall() : random_(kSeed), stripe_(random_, kK, kM, kBytes) {}

  // All fourteen shards as they were, however the call went.
  void TearDown() override { EXPECT_TRUE(stripe_.intact()) << "something was written"; }

  tandem_status encode(std::size_t bytes = kBytes) {
    return tandem_encode(context_.get(), codec_.get(), stripe_.data(), stripe_.parity(), bytes);
  }
  tandem_status decode(std::size_t bytes = kBytes) {
    return tandem_decode(context_.get(), codec_.get(), stripe_.all(), stripe_.present.data(), bytes);
  }

  Random random_;
  Context context_ = make_context();
  Codec codec_ = make_codec(kK, kM);
  Stripe stripe_;
};

TEST_F(BadCall, NullPointers) {
  const auto bad = TANDEM_ERROR_INVALID_ARGUMENT;
  tandem_context *x = context_.get();
  const tandem_codec *c = codec_.get();
  void *const *all = stripe_.all();
  const std::uint8_t *present = stripe_.present.data();
  tandem_verify_result result = {};
  result.struct_bytes = sizeof result;
  EXPECT_TRUE(refused(tandem_encode(x, nullptr, all, all + kK, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_encode(x, c, nullptr, all + kK, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_encode(x, c, all, nullptr, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_decode(x, nullptr, all, present, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_decode(x, c, nullptr, present, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_decode(x, c, all, nullptr, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_verify(x, nullptr, all, kBytes, &result), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_verify(x, c, nullptr, kBytes, &result), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_verify(x, c, all, kBytes, nullptr), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_update(x, nullptr, 0, all[0], all[1], all + kK, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_update(x, c, 0, nullptr, all[1], all + kK, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_update(x, c, 0, all[0], nullptr, all + kK, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_update(x, c, 0, all[0], all[1], nullptr, kBytes), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_accumulate(x, nullptr, 0, all[0], all + kK, kBytes, 0), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_accumulate(x, c, 0, nullptr, all + kK, kBytes, 0), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_accumulate(x, c, 0, all[0], nullptr, kBytes, 1), bad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_shards_allocate(3, 3, nullptr), bad, {"NULL"}));
  EXPECT_EQ(result.consistent, 0);
}

TEST_F(BadCall, NullShards) {
  stripe_.pointers[3] = nullptr;
  EXPECT_TRUE(refused(encode(), TANDEM_ERROR_INVALID_ARGUMENT, {"data shard 3", "NULL"}));
  stripe_.present[0] = 0;
  EXPECT_TRUE(refused(decode(), TANDEM_ERROR_INVALID_ARGUMENT, {"data shard 3", "NULL"}));
  tandem_verify_result result = {};
  result.struct_bytes = sizeof result;
  EXPECT_TRUE(refused(tandem_verify(context_.get(), codec_.get(), stripe_.data(), kBytes, &result),
                      TANDEM_ERROR_INVALID_ARGUMENT, {"data shard 3", "NULL"}));
  stripe_.restore();
  stripe_.pointers[kK + 2] = nullptr;
  EXPECT_TRUE(refused(tandem_verify(context_.get(), codec_.get(), stripe_.data(), kBytes, &result),
                      TANDEM_ERROR_INVALID_ARGUMENT, {"parity shard 2", "NULL"}));
}

TEST_F(BadCall, ZeroLength) {
  EXPECT_TRUE(refused(encode(0), TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  EXPECT_TRUE(refused(decode(0), TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  stripe_.present[1] = 0;
  EXPECT_TRUE(refused(decode(0), TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  tandem_verify_result result = {};
  result.struct_bytes = sizeof result;
  EXPECT_TRUE(refused(tandem_verify(context_.get(), codec_.get(), stripe_.data(), 0, &result),
                      TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  EXPECT_TRUE(refused(
      tandem_update(context_.get(), codec_.get(), 0, stripe_.pointers[0], stripe_.pointers[1], stripe_.parity(), 0),
      TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  EXPECT_TRUE(refused(tandem_accumulate(context_.get(), codec_.get(), 0, stripe_.pointers[0], stripe_.parity(), 0, 0),
                      TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  void *shards[2] = {&shards, nullptr};
  EXPECT_TRUE(refused(tandem_shards_allocate(2, 0, shards), TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  EXPECT_TRUE(refused(tandem_shards_allocate(0, 2, shards), TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  EXPECT_EQ(shards[0], &shards);
}

TEST_F(BadCall, AbsurdSizes) {
  const std::size_t most = PTRDIFF_MAX;
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, most, most / 13, SIZE_MAX / 14 + 1}) {
    const std::string number = std::to_string(bytes);
    EXPECT_TRUE(refused(encode(bytes), TANDEM_ERROR_TOO_LARGE, {number.c_str(), "14"}));
    stripe_.present[2] = 0;
    EXPECT_TRUE(refused(decode(bytes), TANDEM_ERROR_TOO_LARGE, {number.c_str()}));
    stripe_.present[2] = 1;
    tandem_verify_result result = {};
    result.struct_bytes = sizeof result;
    EXPECT_TRUE(refused(tandem_verify(context_.get(), codec_.get(), stripe_.data(), bytes, &result),
                        TANDEM_ERROR_TOO_LARGE, {number.c_str()}));
    EXPECT_TRUE(refused(tandem_update(context_.get(), codec_.get(), 0, stripe_.pointers[0], stripe_.pointers[1],
                                      stripe_.parity(), bytes),
                        TANDEM_ERROR_TOO_LARGE, {number.c_str()}));
    EXPECT_TRUE(
        refused(tandem_accumulate(context_.get(), codec_.get(), 0, stripe_.pointers[0], stripe_.parity(), bytes, 0),
                TANDEM_ERROR_TOO_LARGE, {number.c_str()}));
    void *shards[1] = {&shards};
    EXPECT_TRUE(refused(tandem_shards_allocate(14, bytes, shards), TANDEM_ERROR_TOO_LARGE, {number.c_str()}));
    EXPECT_TRUE(refused(tandem_shards_allocate(bytes, 64, shards), TANDEM_ERROR_TOO_LARGE, {number.c_str()}));
    EXPECT_EQ(shards[0], &shards);
  }
}

TEST_F(BadCall, MoreMissingThanCanBeRecovered) {
  for (const unsigned i : {0u, 4u, 9u}) stripe_.present[i] = 0;
  for (const unsigned i : {10u, 13u}) stripe_.present[i] = 0;
  EXPECT_TRUE(refused(decode(), TANDEM_ERROR_NOT_RECOVERABLE, {"3 of 10", "2 parity shards present"}));
  stripe_.present.assign(kK + kM, 0);
  EXPECT_TRUE(refused(decode(), TANDEM_ERROR_NOT_RECOVERABLE, {"10 of 10", "0 parity shards"}));
}

TEST_F(BadCall, IndexOutOfRange) {
  for (const uint32_t index : {kK, UINT32_MAX}) {
    const std::string number = std::to_string(index);
    EXPECT_TRUE(refused(tandem_update(context_.get(), codec_.get(), index, stripe_.pointers[0], stripe_.pointers[1],
                                      stripe_.parity(), kBytes),
                        TANDEM_ERROR_INVALID_ARGUMENT, {number.c_str(), "10"}));
    EXPECT_TRUE(refused(
        tandem_accumulate(context_.get(), codec_.get(), index, stripe_.pointers[0], stripe_.parity(), kBytes, 0),
        TANDEM_ERROR_INVALID_ARGUMENT, {number.c_str(), "10"}));
  }
}

TEST_F(BadCall, OverlapWhole) {
  stripe_.pointers[kK] = stripe_.pointers[2];
  EXPECT_TRUE(refused(encode(), TANDEM_ERROR_OVERLAP, {"parity shard 0", "data shard 2", "20000"}));
  stripe_.restore();
  stripe_.pointers[kK + 3] = stripe_.pointers[kK + 1];
  EXPECT_TRUE(refused(encode(), TANDEM_ERROR_OVERLAP, {"parity shard"}));
  stripe_.restore();
  stripe_.present[0] = 0;
  stripe_.pointers[0] = stripe_.pointers[5];
  EXPECT_TRUE(refused(decode(), TANDEM_ERROR_OVERLAP, {"data shard 0", "data shard 5"}));
  stripe_.restore();
  stripe_.pointers[kK] = stripe_.pointers[0];
  EXPECT_TRUE(refused(tandem_update(context_.get(), codec_.get(), 0, stripe_.pointers[0], stripe_.pointers[1],
                                    stripe_.parity(), kBytes),
                      TANDEM_ERROR_OVERLAP));
  EXPECT_TRUE(refused(tandem_update(context_.get(), codec_.get(), 0, stripe_.pointers[1], stripe_.pointers[0],
                                    stripe_.parity(), kBytes),
                      TANDEM_ERROR_OVERLAP));
  EXPECT_TRUE(
      refused(tandem_accumulate(context_.get(), codec_.get(), 0, stripe_.pointers[0], stripe_.parity(), kBytes, 0),
              TANDEM_ERROR_OVERLAP));
}

// By one byte, at either end, inside, and around; side by side is no overlap.
TEST_F(BadCall, OverlapPartial) {
  Bytes arena(4 * kBytes, 0x44);
  const std::uint8_t *const begin = arena.data() + kBytes;
  const Bytes before = arena;
  for (const unsigned output : {kK, kK + kM - 1}) {
    for (const unsigned other : {0u, kK - 1, kK + 1}) {
      for (const std::ptrdiff_t distance :
           {std::ptrdiff_t{0}, std::ptrdiff_t{1}, std::ptrdiff_t{kBytes / 2}, std::ptrdiff_t{kBytes - 1}}) {
        for (const int sign : {-1, 1}) {
          stripe_.pointers[other] = const_cast<std::uint8_t *>(begin);
          stripe_.pointers[output] = const_cast<std::uint8_t *>(begin) + sign * distance;
          EXPECT_TRUE(refused(encode(), TANDEM_ERROR_OVERLAP)) << output << " " << other << " " << sign * distance;
          stripe_.restore();
        }
      }
    }
  }
  EXPECT_EQ(arena, before);
  stripe_.pointers[0] = arena.data() + kBytes;
  stripe_.pointers[kK] = arena.data();
  stripe_.pointers[kK + 1] = arena.data() + 2 * kBytes;
  EXPECT_EQ(encode(), TANDEM_OK) << tandem_last_error_message();
  stripe_.restore();
}

TEST_F(BadCall, OverlapFromFourKibibytes) {
  const Codec two = make_codec(1, 1);
  Bytes shard = random_.bytes(2 << 10);
  const Bytes before = shard;
  void *const shards[2] = {shard.data(), shard.data()};
  const void *data[1] = {shard.data()};
  const std::uint8_t present[2] = {1, 0};
  tandem_stripe stripe = {shards, nullptr, shard.size(), TANDEM_MEMORY_HOST, TANDEM_OK};
  const tandem_segment segment = {shard.data(), shard.size()};
  const tandem_scattered_shard scattered[2] = {{&segment, 1}, {&segment, 1}};
  const Plan plan = make_plan(context_.get(), two.get(), TANDEM_OPERATION_ENCODE);
  tandem_plan_arguments arguments = {};
  arguments.struct_bytes = sizeof arguments;
  arguments.shards = shards;
  arguments.shard_bytes = shard.size();
  tandem_job *job = nullptr;
  const std::size_t bytes = shard.size();
  const std::pair<const char *, std::function<tandem_status()>> calls[] = {
      {"encode", [&] { return tandem_encode(context_.get(), two.get(), data, shards + 1, bytes); }},
      {"decode", [&] { return tandem_decode(context_.get(), two.get(), shards, present, bytes); }},
      {"update",
       [&] { return tandem_update(context_.get(), two.get(), 0, before.data(), data[0], shards + 1, bytes); }},
      {"accumulate", [&] { return tandem_accumulate(context_.get(), two.get(), 0, data[0], shards + 1, bytes, 0); }},
      {"stripes", [&] { return tandem_encode_stripes(context_.get(), two.get(), &stripe, 1, sizeof stripe); }},
      {"scattered", [&] { return tandem_encode_scattered(context_.get(), two.get(), scattered, bytes); }},
      {"plan", [&] { return tandem_plan_run(plan.get(), &arguments); }},
      {"job", [&] { return tandem_plan_submit(plan.get(), &arguments, &job); }}};
  for (const auto &[name, call] : calls) {
    EXPECT_TRUE(refused(call(), TANDEM_ERROR_OVERLAP)) << name;
    EXPECT_EQ(shard, before) << name;
  }
}

TEST_F(BadCall, VerifyResultSize) {
  tandem_verify_result result = {};
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, SIZE_MAX}) {
    result.struct_bytes = bytes;
    EXPECT_TRUE(refused(tandem_verify(context_.get(), codec_.get(), stripe_.data(), kBytes, &result),
                        TANDEM_ERROR_INVALID_ARGUMENT, {std::to_string(bytes).c_str()}));
    EXPECT_EQ(result.consistent, 0);
  }
}

TEST_F(BadCall, Plans) {
  tandem_plan_options options = {};
  options.struct_bytes = sizeof options;
  tandem_plan *plan = nullptr;
  const auto refused_plan = [&](tandem_status status, std::initializer_list<const char *> parts) {
    const auto result = refused(tandem_plan_create(context_.get(), codec_.get(), &options, &plan), status, parts);
    EXPECT_EQ(plan, nullptr);
    options = {};
    options.struct_bytes = sizeof options;
    return result;
  };
  options.operation = 5;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"5"}));
  options.operation = -1;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"-1"}));
  options.memory = TANDEM_MEMORY_CUDA;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_UNSUPPORTED, {"1"}));
  options.operation = TANDEM_OPERATION_DECODE;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"present"}));
  options.operation = TANDEM_OPERATION_UPDATE;
  options.index = kK;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"10"}));
  options.struct_bytes = 4;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"4"}));
  options.wait_for_kernel = 2;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"wait_for_kernel is 2"}));
  options.reserved = 1;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_UNSUPPORTED, {"reserved"}));
  const Bytes all_but_one = [] {
    Bytes flags(kK + kM, 1);
    flags[0] = 0;
    return flags;
  }();
  options.operation = TANDEM_OPERATION_DECODE;
  options.present = all_but_one.data();
  options.struct_bytes = offsetof(tandem_plan_options, present) + sizeof options.present / 2;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"struct_bytes is 20"}));
  options.first = 1;
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"first"}));
  Bytes flags(kK + kM, 1);
  options.operation = TANDEM_OPERATION_DECODE;
  options.present = options.wanted = flags.data();
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"present"}));
  options.wanted = flags.data();  // encode: data shards are not parity
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  Bytes few(kK + kM, 0);
  few[0] = 1;
  options.operation = TANDEM_OPERATION_DECODE;
  options.present = few.data();
  EXPECT_TRUE(refused_plan(TANDEM_ERROR_NOT_RECOVERABLE, {"9 of 10"}));
  EXPECT_TRUE(refused(tandem_plan_create(context_.get(), nullptr, &options, &plan), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_plan_create(context_.get(), codec_.get(), nullptr, &plan), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(
      refused(tandem_plan_create(context_.get(), codec_.get(), &options, nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_EQ(plan, nullptr);
  tandem_plan_destroy(nullptr);
}

TEST_F(BadCall, PlanArguments) {
  const Plan plan = make_plan(context_.get(), codec_.get(), TANDEM_OPERATION_ENCODE);
  const Plan verify = make_plan(context_.get(), codec_.get(), TANDEM_OPERATION_VERIFY);
  const Plan update = make_plan(context_.get(), codec_.get(), TANDEM_OPERATION_UPDATE);
  tandem_plan_arguments arguments = {};
  arguments.struct_bytes = sizeof arguments;
  arguments.shards = stripe_.all();
  arguments.shard_bytes = kBytes;
  tandem_job *job = nullptr;
  const auto both = [&](const tandem_plan *which, const tandem_plan_arguments *given, tandem_status status) {
    EXPECT_TRUE(refused(tandem_plan_run(which, given), status));
    EXPECT_TRUE(refused(tandem_plan_submit(which, given, &job), status));
    EXPECT_EQ(job, nullptr);
  };
  both(nullptr, &arguments, TANDEM_ERROR_INVALID_ARGUMENT);
  both(plan.get(), nullptr, TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(refused(tandem_plan_submit(plan.get(), &arguments, nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  both(verify.get(), &arguments, TANDEM_ERROR_INVALID_ARGUMENT);  // no verify_result
  both(update.get(), &arguments, TANDEM_ERROR_INVALID_ARGUMENT);  // no new_data
  tandem_plan_arguments bad = arguments;
  bad.shards = nullptr;
  both(plan.get(), &bad, TANDEM_ERROR_INVALID_ARGUMENT);
  bad = arguments;
  bad.shard_bytes = 0;
  both(plan.get(), &bad, TANDEM_ERROR_INVALID_ARGUMENT);
  bad.shard_bytes = SIZE_MAX;
  both(plan.get(), &bad, TANDEM_ERROR_TOO_LARGE);
  bad = arguments;
  bad.struct_bytes = 1;
  both(plan.get(), &bad, TANDEM_ERROR_INVALID_ARGUMENT);
  tandem_verify_result result = {};
  result.struct_bytes = sizeof result;
  tandem_verify_ranges ranges = {sizeof ranges, nullptr, 1, 0};
  bad = arguments;
  bad.verify_result = &result;
  bad.verify_ranges = &ranges;
  both(verify.get(), &bad, TANDEM_ERROR_INVALID_ARGUMENT);  // room for one, but no array
  ranges = {1, nullptr, 0, 0};
  both(verify.get(), &bad, TANDEM_ERROR_INVALID_ARGUMENT);  // a wrong size
  const tandem_device_arguments device = {sizeof device, nullptr, nullptr, 0};
  bad = arguments;
  bad.device = &device;
  both(plan.get(), &bad, TANDEM_ERROR_INVALID_ARGUMENT);  // the plan is for host memory
  stripe_.pointers[kK] = stripe_.pointers[0];
  both(plan.get(), &arguments, TANDEM_ERROR_OVERLAP);
  stripe_.pointers[kK] = nullptr;
  both(plan.get(), &arguments, TANDEM_ERROR_INVALID_ARGUMENT);
  stripe_.restore();
  std::uint8_t read[kK + kM];
  EXPECT_TRUE(refused(tandem_plan_shards_to_read(nullptr, read), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_plan_shards_to_read(plan.get(), nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_job_wait(nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_job_cancel(nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  tandem_job_destroy(nullptr);
}

TEST_F(BadCall, Stripes) {
  tandem_stripe stripes[3] = {};
  Stripe other(random_, kK, kM, 100), third(random_, kK, kM, 100);
  stripes[0] = {other.all(), other.present.data(), 100, 0, 77};
  stripes[1] = {stripe_.all(), stripe_.present.data(), kBytes, 0, 77};
  stripes[2] = {third.all(), third.present.data(), 100, 0, 77};
  const auto encode_all = [&](std::size_t count = 3, std::size_t stride = sizeof(tandem_stripe)) {
    return tandem_encode_stripes(context_.get(), codec_.get(), stripes, count, stride);
  };
  other.lose_parity();
  third.lose_parity();
  const Shards before = other.shards, third_before = third.shards;
  EXPECT_TRUE(refused(encode_all(3, sizeof(tandem_stripe) - 8), TANDEM_ERROR_INVALID_ARGUMENT, {"24", "32"}));
  EXPECT_TRUE(refused(encode_all(3, sizeof(tandem_stripe) + 1), TANDEM_ERROR_INVALID_ARGUMENT, {"33"}));
  EXPECT_TRUE(refused(encode_all(SIZE_MAX), TANDEM_ERROR_TOO_LARGE, {kMaxSize.c_str()}));
  EXPECT_TRUE(refused(tandem_encode_stripes(context_.get(), codec_.get(), nullptr, 1, sizeof(tandem_stripe)),
                      TANDEM_ERROR_INVALID_ARGUMENT, {"NULL"}));
  EXPECT_TRUE(refused(tandem_decode_stripes(context_.get(), nullptr, stripes, 1, sizeof(tandem_stripe)),
                      TANDEM_ERROR_INVALID_ARGUMENT, {"NULL"}));
  stripes[1].shard_bytes = 0;
  EXPECT_TRUE(refused(encode_all(), TANDEM_ERROR_INVALID_ARGUMENT, {"stripe 1 of 3"}));
  stripes[1].shard_bytes = SIZE_MAX / 2;
  EXPECT_TRUE(refused(encode_all(), TANDEM_ERROR_TOO_LARGE, {"stripe 1 of 3"}));
  stripes[1].shard_bytes = kBytes;
  stripes[1].memory = TANDEM_MEMORY_OPENCL;
  EXPECT_TRUE(refused(encode_all(), TANDEM_ERROR_UNSUPPORTED, {"stripe 1 of 3", "2"}));
  stripes[1].memory = 0;
  stripes[1].shards = nullptr;
  EXPECT_TRUE(refused(encode_all(), TANDEM_ERROR_INVALID_ARGUMENT, {"stripe 1 of 3", "NULL"}));
  stripes[1].shards = stripe_.all();
  stripe_.pointers[kK + 1] = stripe_.pointers[4];
  EXPECT_TRUE(refused(encode_all(), TANDEM_ERROR_OVERLAP, {"stripe 1 of 3"}));
  stripe_.pointers[kK + 1] = stripe_.shards[kK + 1].data();
  stripe_.pointers[4] = nullptr;
  EXPECT_TRUE(refused(encode_all(), TANDEM_ERROR_INVALID_ARGUMENT, {"stripe 1 of 3", "data shard 4"}));
  stripe_.restore();
  EXPECT_EQ(other.shards, before) << "a stripe was written before all were checked";
  EXPECT_EQ(third.shards, third_before);
}

TEST_F(BadCall, Scattered) {
  std::vector<tandem_segment> segments(kK + kM);
  std::vector<tandem_scattered_shard> shards(kK + kM);
  const auto reset = [&] {
    for (unsigned i = 0; i < kK + kM; ++i) {
      segments[i] = {stripe_.shards[i].data(), kBytes};
      shards[i] = {&segments[i], 1};
    }
  };
  const auto encode_scattered = [&](std::size_t bytes = kBytes) {
    return tandem_encode_scattered(context_.get(), codec_.get(), shards.data(), bytes);
  };
  reset();
  EXPECT_TRUE(refused(encode_scattered(kBytes + 1), TANDEM_ERROR_INVALID_ARGUMENT, {"20000", "20001"}));
  EXPECT_TRUE(refused(encode_scattered(kBytes - 1), TANDEM_ERROR_INVALID_ARGUMENT, {"19999"}));
  EXPECT_TRUE(refused(encode_scattered(0), TANDEM_ERROR_INVALID_ARGUMENT, {"0"}));
  EXPECT_TRUE(refused(encode_scattered(SIZE_MAX), TANDEM_ERROR_TOO_LARGE, {kMaxSize.c_str()}));
  segments[2].bytes = SIZE_MAX;
  EXPECT_TRUE(refused(encode_scattered(), TANDEM_ERROR_INVALID_ARGUMENT, {"shard 2"}));
  reset();
  segments[kK].address = nullptr;
  EXPECT_TRUE(refused(encode_scattered(), TANDEM_ERROR_INVALID_ARGUMENT, {"shard 10", "NULL"}));
  reset();
  shards[3].segments = nullptr;
  EXPECT_TRUE(refused(encode_scattered(), TANDEM_ERROR_INVALID_ARGUMENT, {"shard 3"}));
  reset();
  shards[3].segment_count = 0;
  EXPECT_TRUE(refused(encode_scattered(), TANDEM_ERROR_INVALID_ARGUMENT, {"shard 3"}));
  reset();
  segments[kK + 1].address = stripe_.shards[1].data() + 1;
  EXPECT_TRUE(refused(encode_scattered(), TANDEM_ERROR_OVERLAP, {"11"}));
  reset();
  const tandem_segment twice[] = {{stripe_.shards[kK].data(), kBytes / 2}, {stripe_.shards[kK].data(), kBytes / 2}};
  shards[kK] = {twice, 2};
  EXPECT_TRUE(refused(encode_scattered(), TANDEM_ERROR_OVERLAP, {"10"})) << "a shard overlaps itself";
  reset();
  EXPECT_TRUE(
      refused(tandem_encode_scattered(context_.get(), codec_.get(), nullptr, kBytes), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_decode_scattered(context_.get(), codec_.get(), shards.data(), nullptr, kBytes),
                      TANDEM_ERROR_INVALID_ARGUMENT));
  for (unsigned i = 0; i < 5; ++i) stripe_.present[i] = 0;
  EXPECT_TRUE(
      refused(tandem_decode_scattered(context_.get(), codec_.get(), shards.data(), stripe_.present.data(), kBytes),
              TANDEM_ERROR_NOT_RECOVERABLE, {"5 of 10", "4 parity"}));
}

TEST(BadTools, Lists) {
  std::size_t count = 99;
  tandem_device device = {};
  EXPECT_TRUE(refused(tandem_devices(&device, 1, sizeof device, nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_devices(nullptr, 1, sizeof device, &count), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_devices(&device, 1, 8, &count), TANDEM_ERROR_INVALID_ARGUMENT, {"8"}));
  tandem_kernel kernel = {};
  EXPECT_TRUE(refused(tandem_kernels(&kernel, 1, sizeof kernel, nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_kernels(nullptr, 1, sizeof kernel, &count), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_kernels(&kernel, 1, 8, &count), TANDEM_ERROR_INVALID_ARGUMENT, {"8"}));
  EXPECT_EQ(count, 99u);
  tandem_missing_device missing = {};
  EXPECT_TRUE(refused(tandem_missing_devices(&missing, 1, sizeof missing, nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  EXPECT_TRUE(refused(tandem_missing_devices(nullptr, 1, sizeof missing, &count), TANDEM_ERROR_INVALID_ARGUMENT));
  ASSERT_EQ(tandem_devices(nullptr, 0, 0, &count), TANDEM_OK);
  EXPECT_GE(count, 1u);
  ASSERT_EQ(tandem_devices(&device, 1, sizeof device, &count), TANDEM_OK);
  EXPECT_STREQ(device.name, "cpu");
}

}  // namespace
}  // namespace tandem::test
