// SPDX-License-Identifier: Apache-2.0
// Wrong arguments of every call: each must give its status and a message with the numbers, and write nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "tandem/device.h"
#include "tandem/diagnose.h"
#include "tandem/tools.h"
#include "tests/support/calls.hpp"

namespace tandem::test {
namespace {

constexpr std::uint64_t kSeed = 4711;
constexpr auto kBad = TANDEM_ERROR_INVALID_ARGUMENT;
using Words = std::vector<std::string>;

// ---- codecs

tandem_codec_options wide_options(std::int32_t matrix, std::uint32_t k, std::uint32_t m) {
  tandem_codec_options options = codec_options(k, m, matrix);
  options.field = TANDEM_FIELD_GF16;
  return options;
}

tandem_codec_options packet_options(std::uint64_t packet_bytes = 1024, std::uint32_t word_bits = 8) {
  tandem_codec_options options = codec_options(4, 2, TANDEM_MATRIX_JERASURE_CAUCHY_GOOD);
  options.layout = TANDEM_LAYOUT_PACKETS;
  options.field = word_bits == 16 ? TANDEM_FIELD_GF16 : TANDEM_FIELD_GF8;
  options.word_bits = word_bits;
  options.packet_bytes = packet_bytes;
  return options;
}

tandem_codec_options with(tandem_codec_options options, const std::function<void(tandem_codec_options &)> &change) {
  change(options);
  return options;
}

TEST(BadCodec, OptionsAreRefusedWithTheirNumbers) {
  Random random(kSeed);
  const Bytes singular(6, 1), with_zero = {1, 0, 1}, large = random.bytes(40 * 20), high = {1, 1, 1, 1, 1, 2, 3, 16};
  const std::vector<std::uint16_t> ones16(4, 1);
  const auto custom = [](std::uint32_t k, std::uint32_t m, const void *coefficients) {
    tandem_codec_options options = codec_options(k, m, TANDEM_MATRIX_CUSTOM);
    options.coefficients = coefficients;
    return options;
  };
  const auto not_mds = TANDEM_ERROR_NOT_MDS;
  constexpr auto kLeopard = TANDEM_MATRIX_LEOPARD16, kPar2 = TANDEM_MATRIX_PAR2;
  const auto narrow = codec_options(4, 2);
  const auto wide_custom = wide_options(TANDEM_MATRIX_CUSTOM, 2, 2);
  const auto packets = packet_options(), packets4 = packet_options(1024, 4), packets16 = packet_options(1024, 16);
  const std::tuple<tandem_codec_options, tandem_status, Words> wrong[] = {
      {codec_options(0, 2), kBad, {"k", "0"}},
      {codec_options(0, 0), kBad, {"k", "0"}},
      {codec_options(253, 4), kBad, {"253", "4", "256"}},
      {codec_options(257, 0), kBad, {"257", "256"}},
      {codec_options(UINT32_MAX, 1), kBad, {"4294967295", "256"}},
      {codec_options(1, UINT32_MAX), kBad, {"4294967295", "256"}},
      {codec_options(UINT32_MAX, UINT32_MAX), kBad, {"4294967295"}},
      {codec_options(128, UINT32_MAX - 127), kBad, {"128"}},
      {codec_options(4, 2, 20), kBad, {"20"}},
      {codec_options(4, 2, -1), kBad, {"-1"}},
      {codec_options(4, 2, 999), kBad, {"999"}},
      {codec_options(4, 3, TANDEM_MATRIX_RAID6), kBad, {"raid6", "m = 3", "2"}},
      {codec_options(252, 2, TANDEM_MATRIX_SNAPRAID_CAUCHY), kBad, {"252", "251"}},
      {codec_options(200, 56, TANDEM_MATRIX_HDFS_RS_LEGACY), kBad, {"256", "255"}},
      {with(narrow, [](auto &o) { o.field = 7; }), kBad, {"7"}},
      {with(narrow, [&](auto &o) { o.coefficients = large.data(); }), kBad, {"coefficients", "isal-cauchy"}},
      {custom(4, 2, nullptr), kBad, {"NULL", "2 x 4"}},
      // Matrices that could lose data. The last has too many minors to check, so it is unproven.
      {codec_options(100, 5, TANDEM_MATRIX_ISAL_VANDERMONDE), not_mds, {"100", "5"}},
      {codec_options(10, 4, TANDEM_MATRIX_PAR1), not_mds, {"par1", "10", "4", "m <= 3, or k <= 2", "allow_non_mds"}},
      {custom(3, 2, singular.data()), not_mds, {"3", "2"}},
      {custom(3, 1, with_zero.data()), not_mds, {"3", "1"}},
      {custom(40, 20, large.data()), not_mds, {"40", "20"}},
      {with(narrow, [](auto &o) { o.struct_bytes = 0; }), kBad, {"0", "64"}},
      {with(narrow, [](auto &o) { o.struct_bytes = 7; }), kBad, {"7"}},
      {with(narrow, [](auto &o) { o.struct_bytes = offsetof(tandem_codec_options, m); }), kBad, {"struct_bytes is 12"}},
      {with(narrow, [](auto &o) { o.struct_bytes = 4097; }), kBad, {"struct_bytes is 4097"}},
      {with(narrow, [](auto &o) { o.struct_bytes = SIZE_MAX; }), kBad, {std::to_string(SIZE_MAX)}},
      {with(narrow, [](auto &o) { o.reserved = 9; }), TANDEM_ERROR_UNSUPPORTED, {"9"}},
      // GF(2^16).
      {wide_options(kLeopard, 40000, 25537), kBad, {"40000", "25537", "65536"}},
      {wide_options(kLeopard, UINT32_MAX, 2), kBad, {"4294967295"}},
      {wide_options(kLeopard, 40000, 20000), kBad, {"40000", "20000", "32768", "65536"}},
      {wide_options(kLeopard, 100, 40000), kBad, {"65536 + 100"}},
      {wide_options(kLeopard, 0, 4), kBad, {"k = 0"}},
      {wide_options(TANDEM_MATRIX_ISAL_CAUCHY, 10, 4), kBad, {"isal-cauchy", "GF(2^8)"}},
      {wide_options(77, 10, 4), kBad, {"77"}},
      {with(codec_options(10, 4, kLeopard), [](auto &o) { o.field = 2; }), kBad, {"field 2"}},
      {wide_options(kPar2, 10, 4), not_mds, {"par2", "m = 4"}},
      {wide_options(kPar2, 32769, 2), kBad, {"32769", "32768"}},
      {wide_options(TANDEM_MATRIX_LIBERASURECODE_RS_VAND, 29, 4), kBad, {"33", "32"}},
      {wide_options(TANDEM_MATRIX_CUSTOM, 8192, 4097), TANDEM_ERROR_TOO_LARGE, {"67125248 bytes", "67108864"}},
      {wide_custom, kBad, {"NULL"}},
      {with(wide_custom, [&](auto &o) { o.coefficients = ones16.data(); }), not_mds, {"cannot recover"}},
      // Packets.
      {packet_options(0), kBad, {"packet_bytes = 0", "multiple of 8"}},
      {packet_options(1023), kBad, {"packet_bytes = 1023", "multiple of 8"}},
      {packet_options(4), kBad, {"packet_bytes = 4"}},
      {packet_options((1ull << 29) + 8), kBad, {"536870920", "536870912"}},
      {packet_options(UINT64_MAX - 7), kBad, {"18446744073709551608"}},
      {packet_options(1024, 5), kBad, {"word_bits = 5", "4 or 8"}},
      {with(packets, [](auto &o) { o.word_bits = 16; }), kBad, {"word_bits = 16", "GF(2^8)"}},
      {with(packets, [](auto &o) { o.field = TANDEM_FIELD_GF16; }), kBad, {"word_bits = 8", "GF(2^16)"}},
      {with(packets, [](auto &o) { o.layout = 2; }), kBad, {"layout 2"}},
      {with(packets, [](auto &o) { o.layout = TANDEM_LAYOUT_BYTES; }), kBad, {"word_bits = 8", "1024"}},
      {with(packets, [](auto &o) { o.matrix = TANDEM_MATRIX_ISAL_CAUCHY; }), kBad, {"isal-cauchy"}},
      {with(packets, [](auto &o) { o.matrix = 77; }), kBad, {"77"}},
      {with(packet_options(1024, 16), [](auto &o) { o.matrix = 77, o.word_bits = 0; }), kBad, {"77"}},
      {with(packets16, [](auto &o) { o.matrix = TANDEM_MATRIX_PAR2; }), kBad, {"par2"}},
      {with(packets4, [](auto &o) { o.k = 15; }), kBad, {"k + m = 17", "16"}},
      {with(packets, [](auto &o) { o.k = 255; }), kBad, {"k = 255", "256"}},
      {with(packets16, [](auto &o) { o.k = 1000, o.m = 70; }),
       TANDEM_ERROR_TOO_LARGE,
       {"1000", "70", "17920000", "16777216"}},
      {with(packets4, [&](auto &o) { o.coefficients = high.data(); }), kBad, {"NULL"}},
      {with(packets16, [&](auto &o) { o.coefficients = high.data(); }), kBad, {"NULL"}},
      {with(packets4, [&](auto &o) { o.matrix = TANDEM_MATRIX_CUSTOM, o.coefficients = high.data(); }),
       kBad,
       {"coefficient 16", "row 1", "column 3"}},
  };
  std::size_t row = 0;
  for (const auto &[options, status, words] : wrong) {
    tandem_codec *const untouched = reinterpret_cast<tandem_codec *>(&row);
    tandem_codec *codec = untouched;
    EXPECT_TRUE(refused(tandem_codec_create(&options, &codec), status, words)) << "row " << row;
    EXPECT_EQ(codec, untouched) << "row " << row;
    ++row;
  }
  EXPECT_NE(make_codec(with(custom(40, 20, large.data()), [](auto &o) { o.allow_non_mds = 1; })), nullptr);
  EXPECT_NE(make_codec(with(packets, [](auto &o) { o.word_bits = 0; })), nullptr) << "a default";
}

TEST(BadCodec, StructsOfOtherVersionsAreTakenWhereTheyAreUnderstood) {
  struct {
    tandem_codec_options known;
    std::uint8_t more[24];
  } later = {codec_options(4, 2), {}};
  later.known.struct_bytes = sizeof later;
  EXPECT_NE(make_codec(later.known), nullptr) << "zeros mean default";
  for (const std::size_t set : {std::size_t{0}, sizeof later.more - 1}) {
    later.more[set] = 1;
    tandem_codec *codec = nullptr;
    EXPECT_TRUE(refused(tandem_codec_create(&later.known, &codec), TANDEM_ERROR_UNSUPPORTED,
                        {std::to_string(sizeof later.known + set)}));
    EXPECT_EQ(codec, nullptr);
    later.more[set] = 0;
  }
  tandem_codec_options older = codec_options(4, 2);
  std::memset(&older.matrix, 0xff, sizeof older - offsetof(tandem_codec_options, matrix));
  older.struct_bytes = offsetof(tandem_codec_options, matrix);
  EXPECT_NE(make_codec(older), nullptr);
}

TEST(BadCodec, NullPointersAreRefused) {
  const tandem_codec_options options = codec_options(4, 2);
  tandem_codec *codec = nullptr;
  tandem_codec_destroy(nullptr);
  const Codec good = make_codec(4, 2);
  std::uint8_t coefficients[8] = {9, 9, 9, 9, 9, 9, 9, 9};
  std::int32_t matrix = 55;
  for (const tandem_status status :
       {tandem_codec_coefficients(nullptr, coefficients, 8), tandem_codec_coefficients(good.get(), nullptr, 8),
        tandem_matrix_from_name(nullptr, &matrix), tandem_matrix_from_name("raid6", nullptr)})
    EXPECT_EQ(status, kBad);
  EXPECT_TRUE(refused(tandem_codec_create(nullptr, &codec), kBad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_codec_create(&options, nullptr), kBad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_codec_coefficients(good.get(), coefficients, 7), kBad, {"7", "8"}));
  EXPECT_TRUE(refused(tandem_matrix_from_name("no-such", &matrix), kBad, {"no-such", "isal-cauchy"}));
  EXPECT_EQ(coefficients[0], 9);
  EXPECT_EQ(matrix, 55);
}

// ---- contexts

testing::AssertionResult context_refused(tandem_context_options options, tandem_status status, const Words &parts) {
  tandem_context *const untouched = reinterpret_cast<tandem_context *>(&options);
  tandem_context *context = untouched;
  const auto result = refused(tandem_context_create(&options, &context), status, parts);
  if (context != untouched) return testing::AssertionFailure() << "context_out was written";
  return result;
}

TEST(BadContext, UnknownChoicesAreRefusedWithThoseThatAreKnown) {
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
    Words words;
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
TEST(BadContext, OptionsWithoutEffectAreRefused) {
  struct Option {
    std::string words;
    std::function<void(tandem_context_options &)> give;
  };
  const auto expert_option = [](const char *text) {
    return Option{text, [text](tandem_context_options &options) { options.expert = text; }};
  };
  const Option policy = {"policy \"budget\"", [](auto &options) { options.policy = "budget"; }};
  const Option kernel = {"kernel \"scalar\"", [](auto &options) { options.kernel = "scalar"; }};
  const Option pinned = expert_option("pin=1"), of_device = expert_option("device_technique=tables");
  std::vector<Option> of_cpu_threads = {{"thread_count 1", [](auto &options) { options.thread_count = 1; }},
                                        {"thread_count 3", [](auto &options) { options.thread_count = 3; }},
                                        kernel};
  for (const char *text : {"executor=serial", "executor=pthread", "executor=openmp", "technique=matrix", "pin=1"})
    of_cpu_threads.push_back(expert_option(text));
  const auto with = [](const char *backend, const Option &option) {
    tandem_context_options options = context_options("", 0);
    options.backend = backend;
    option.give(options);
    return options;
  };
  const auto expect_refused = [&](const char *backend, const Option &option) {
    const std::string named = std::string("backend \"") + backend + '"';
    EXPECT_TRUE(
        context_refused(with(backend, option), TANDEM_ERROR_INVALID_ARGUMENT, {option.words, named, "has no effect"}))
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
  EXPECT_NE(make_context(with("hybrid:cpu", expert_option("executor=serial"))), nullptr);
  EXPECT_NE(make_context(with("cpu", {"", [](auto &given) { given.expert = "pin=1", given.thread_count = 2; }})),
            nullptr);
  EXPECT_NE(
      make_context(with("hybrid:cpu", {"", [](auto &given) { given.expert = "pin=0", given.policy = "budget"; }})),
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
  // What only the CPU uses is checked all the same.
  setenv("TANDEM_EXPERT", "executor=bogus", 1);
  EXPECT_TRUE(context_refused(with("opencl:0:0", nothing), TANDEM_ERROR_INVALID_ARGUMENT, {"bogus"}));
  setenv("TANDEM_EXPERT", "", 1);
  setenv("TANDEM_THREADS", "x", 1);
  EXPECT_TRUE(context_refused(with("opencl:0:0", nothing), TANDEM_ERROR_INVALID_ARGUMENT, {}));
  unsetenv("TANDEM_POLICY");
  unsetenv("TANDEM_THREADS");
  unsetenv("TANDEM_EXPERT");
}

TEST(Hybrid, BadNamesAreRefused) {
  tandem_context_options options = context_options("", 2);
  for (const char *name :
       {"hybrid:", "hybrid:gpu", "hybrid:cpu+", "hybrid:cpu+disk", "hybrid+cpu", "hybrid:opencl:0"}) {
    options.backend = name;
    EXPECT_TRUE(context_refused(options, TANDEM_ERROR_UNAVAILABLE, {})) << name;
  }
  options.backend = "hybrid:cpu+cpu";
  EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, {}));
  options.backend = "hybrid:cpu";
  options.policy = "fair";
  EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, {"known are budget, auto"}));
}

TEST(BadContext, ResourcesThatWouldLimitNothingAreRefused) {
  for (const char *text : {"cpu", "cpu=", "cpu=0", "cpu=-1", "cpu=1x", "=3", "di sk=1", "cpu=1,", ",", "cpu=1,cpu=2",
                           "cpu=99999999999999999999999", " cpu=1", "cpu =1"}) {
    tandem_context_options options = context_options();
    options.resources = text;
    EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, {})) << text;
  }
  const Context context = make_context();
  // A typing error would limit nothing.
  const Words known = {"\"cpus\" is unknown", "cpu, gpu, pinned_mib, opencl_mib, cuda_mib", "with a dot"};
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

TEST(BadPlan, ResourcesThatItMayNotHoldAreRefused) {
  const Context context = make_context();
  const Codec codec = make_codec(4, 2);
  ASSERT_EQ(tandem_context_set_resource(context.get(), "app.widgets", 3), TANDEM_OK);
  auto options = sized<tandem_plan_options>();
  tandem_plan *plan = nullptr;
  const auto is_refused = [&](const char *resources, const Words &parts) {
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

TEST(BadContext, NullPointersAndWrongSizesAreRefused) {
  EXPECT_TRUE(refused(tandem_context_create(nullptr, nullptr), TANDEM_ERROR_INVALID_ARGUMENT, {"NULL"}));
  tandem_context_destroy(nullptr);
  tandem_context_options options = context_options();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, SIZE_MAX}) {
    options.struct_bytes = bytes;
    EXPECT_TRUE(context_refused(options, TANDEM_ERROR_INVALID_ARGUMENT, {std::to_string(bytes)}));
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
  auto info = sized<tandem_context_info>();
  EXPECT_TRUE(refused(tandem_context_query(good.get(), nullptr), TANDEM_ERROR_INVALID_ARGUMENT));
  info.struct_bytes = 3;
  EXPECT_TRUE(refused(tandem_context_query(good.get(), &info), TANDEM_ERROR_INVALID_ARGUMENT, {"3"}));
  EXPECT_EQ(info.kernel, nullptr);
}

// ---- operations

// One NULL among a stripe's pointers, at every place of codes of every size up to 9+6: found, named, nothing written.
TEST(BadPlan, EachNullShardIsNamed) {
  constexpr std::size_t kBytes = 64;
  const Context context = make_context();
  std::vector<std::uint8_t> byte(15 * kBytes, 0x5a);
  auto options = sized<tandem_plan_options>();
  auto arguments = sized<tandem_plan_arguments>();
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
        EXPECT_TRUE(refused(tandem_plan_run(plan, &arguments, nullptr), TANDEM_ERROR_INVALID_ARGUMENT, {name, "NULL"}))
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

  // All fourteen shards as they were, however the calls went.
  void TearDown() override {
    EXPECT_TRUE(stripe_.intact()) << "something was written";
    EXPECT_EQ(result_.consistent, 0);
  }

  // The calls with these operations, by these ways, are refused after `change`.
  void refuse(const char *what, const std::vector<std::int32_t> &operations, const std::function<void(Call &)> &change,
              tandem_status status, const Words &words,
              const std::vector<Way> &ways = {kWays[0], kWays[1], kWays[2], kWays[3], kWays[4]}) {
    for (const std::int32_t operation : operations) {
      for (const Way way : ways) {
        if (!has_way(operation, way)) continue;
        result_ = {};
        result_.struct_bytes = sizeof result_;
        Call call{context_.get(), codec_.get(), operation, kBytes, stripe_.pointers, {}};
        if (operation == TANDEM_OPERATION_DECODE) {
          call.present = stripe_.present;
          call.present[1] = 0;
        }
        call.new_data = stripe_.pointers[1];
        call.result = operation == TANDEM_OPERATION_VERIFY ? &result_ : nullptr;
        call.k = kK;
        change(call);
        EXPECT_TRUE(refused(perform(way, call), status, words)) << what << ": " << name_of(operation, way);
      }
    }
  }

  tandem_status encode(std::size_t bytes = kBytes) {
    return tandem_encode(context_.get(), codec_.get(), stripe_.data(), stripe_.parity(), bytes);
  }

  Random random_;
  Context context_ = make_context();
  Codec codec_ = make_codec(kK, kM);
  Stripe stripe_;
  tandem_verify_result result_ = {};
};

constexpr auto kEncode = TANDEM_OPERATION_ENCODE, kDecode = TANDEM_OPERATION_DECODE, kVerify = TANDEM_OPERATION_VERIFY,
               kUpdate = TANDEM_OPERATION_UPDATE, kAccumulate = TANDEM_OPERATION_ACCUMULATE;
const std::vector<std::int32_t> kAll = {kEncode, kDecode, kVerify, kUpdate, kAccumulate};

TEST_F(BadCall, EveryCallRefusesWhatIsWrong) {
  const std::vector<Way> with_pointers = {Way::plain, Way::plan, Way::job, Way::stripes}, plain = {Way::plain};
  const auto overlap = TANDEM_ERROR_OVERLAP, lost = TANDEM_ERROR_NOT_RECOVERABLE;
  refuse("no codec", kAll, [](Call &c) { c.codec = nullptr; }, kBad, {"NULL"});
  refuse("no shards", kAll, [](Call &c) { c.has_shards = false; }, kBad, {"NULL"});
  refuse(
      "no parity", {kEncode, kUpdate, kAccumulate}, [](Call &c) { c.has_parity = false; }, kBad, {"NULL"}, plain);
  refuse("no flags", {kDecode}, [](Call &c) { c.present.clear(); }, kBad, {"present"});
  refuse("no result", {kVerify}, [](Call &c) { c.result = nullptr; }, kBad, {"NULL"});
  refuse("no old data", {kUpdate, kAccumulate}, [](Call &c) { c.pointers[0] = nullptr; }, kBad, {"NULL"});
  refuse("no new data", {kUpdate}, [](Call &c) { c.new_data = nullptr; }, kBad, {"NULL"});
  refuse(
      "a NULL among data", {kEncode, kDecode, kVerify}, [](Call &c) { c.pointers[3] = nullptr; }, kBad,
      {"data shard 3", "NULL"}, with_pointers);
  refuse("a NULL in pieces", {kEncode, kDecode}, [](Call &c) { c.pointers[3] = nullptr; }, kBad, {"shard 3"},
         {Way::scattered});
  refuse("a NULL among parity", {kVerify}, [](Call &c) { c.pointers[kK + 2] = nullptr; }, kBad,
         {"parity shard 2", "NULL"});
  refuse("no bytes", kAll, [](Call &c) { c.shard_bytes = 0; }, kBad, {"0"});
  refuse(
      "no bytes and no loss", {kDecode}, [](Call &c) { c.shard_bytes = 0, c.present[1] = 1; }, kBad, {}, plain);
  const std::size_t most = PTRDIFF_MAX;
  for (const std::size_t bytes :
       {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, most, most / 13, SIZE_MAX / 14 + 1, (std::size_t{1} << 47) + 64})
    refuse("size", kAll, [&](Call &c) { c.shard_bytes = bytes; }, TANDEM_ERROR_TOO_LARGE, {std::to_string(bytes)});
  for (const std::uint32_t index : {kK, UINT32_MAX})
    refuse("index", {kUpdate, kAccumulate}, [&](Call &c) { c.index = index; }, kBad, {std::to_string(index), "10"});
  refuse("too few are left", {kDecode}, [](Call &c) { c.present = {0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0}; }, lost,
         {"3 of 10", "2 parity shards present"});
  refuse("none is left", {kDecode}, [](Call &c) { std::ranges::fill(c.present, 0); }, lost,
         {"10 of 10", "0 parity shards"});
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, SIZE_MAX})
    refuse("size of the result", {kVerify}, [&](Call &c) { c.result->struct_bytes = bytes; }, kBad,
           {std::to_string(bytes)});
  refuse(
      "parity is data", {kEncode}, [](Call &c) { c.pointers[kK] = c.pointers[2]; }, overlap,
      {"parity shard 0", "data shard 2", "20000"}, with_pointers);
  refuse("parity is parity", {kEncode}, [](Call &c) { c.pointers[kK + 3] = c.pointers[kK + 1]; }, overlap, {});
  refuse(
      "what is lost is data", {kDecode}, [](Call &c) { c.pointers[1] = c.pointers[5]; }, overlap,
      {"data shard 1", "data shard 5"}, with_pointers);
  refuse("what is lost is data", {kDecode}, [](Call &c) { c.pointers[1] = c.pointers[5]; }, overlap, {});
  refuse("parity is old data", {kUpdate, kAccumulate}, [](Call &c) { c.pointers[kK] = c.pointers[0]; }, overlap, {});
  refuse("parity is new data", {kUpdate}, [](Call &c) { c.pointers[kK] = c.pointers[1]; }, overlap, {});
}

// Lengths of layouts that have units are refused with the unit.
TEST_F(BadCall, UnitsAreNotCut) {
  for (const char *preset : {"leopard16", "reed-solomon-simd", "par2", "liberasurecode-rs-vand"}) {
    tandem_codec_options options = wide_options(0, kK, kM);
    ASSERT_EQ(tandem_matrix_from_name(preset, &options.matrix), TANDEM_OK);
    options.allow_non_mds = 1;
    codec_ = make_codec(options);
    refuse(preset, kAll, [](Call &c) { c.shard_bytes = 65; }, kBad, {"65", "multiple of 2"});
  }
  codec_ = make_codec(with(packet_options(40), [](auto &o) { o.k = kK, o.m = kM; }));
  for (const std::size_t bytes : {1, 40, 312, 360})
    refuse("packets", kAll, [&](Call &c) { c.shard_bytes = bytes; }, kBad, {std::to_string(bytes), "320"});
}

TEST_F(BadCall, WhatAContextCannotRunIsNamed) {
  tandem_context_options options = context_options("", 2);
  options.expert = "technique=transform";
  context_ = make_context(options);
  codec_ = make_codec(with(packet_options(8), [](auto &o) { o.k = kK, o.m = kM; }));
  refuse("packets", {kEncode, kDecode}, [](Call &c) { c.shard_bytes = 128; }, TANDEM_ERROR_UNSUPPORTED, {"packets"});
  codec_ = make_codec(wide_options(TANDEM_MATRIX_LEOPARD16, kK, kM));
  for (const char *device : {"opencl:0:0", "cuda:0"}) {
    options = context_options("", 0);
    options.backend = device;
    tandem_context *made = nullptr;
    if (tandem_context_create(&options, &made) != TANDEM_OK) {
      std::printf("NOT RUN: %s: %s\n", device, tandem_last_error_message());
      continue;
    }
    context_.reset(made);
    refuse(device, {kEncode}, [](Call &) {}, TANDEM_ERROR_UNSUPPORTED, {"GF(2^16)", "CPU"});
  }
}

TEST_F(BadCall, AllocationsOfNothingOrTooMuchAreRefused) {
  void *shards[2] = {&shards, nullptr};
  EXPECT_TRUE(refused(tandem_shards_allocate(3, 3, 0, nullptr), kBad, {"NULL"}));
  EXPECT_TRUE(refused(tandem_shards_allocate(2, 0, 0, shards), kBad, {"0"}));
  EXPECT_TRUE(refused(tandem_shards_allocate(0, 2, 0, shards), kBad, {"0"}));
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2, std::size_t{PTRDIFF_MAX}, SIZE_MAX / 14 + 1}) {
    EXPECT_TRUE(refused(tandem_shards_allocate(14, bytes, 0, shards), TANDEM_ERROR_TOO_LARGE, {std::to_string(bytes)}));
    EXPECT_TRUE(refused(tandem_shards_allocate(bytes, 64, 0, shards), TANDEM_ERROR_TOO_LARGE, {std::to_string(bytes)}));
  }
  EXPECT_EQ(shards[0], &shards);
}

TEST_F(BadCall, SplitAndJoinWriteNothingThatTheyRefuse) {
  const Codec codec = make_codec(3, 2);
  Bytes memory(40, 0x55);
  const Bytes before = memory;
  std::uint8_t *const content = memory.data();
  void *shards[] = {content + 20, content + 26, content + 32};
  const auto split = [&](std::size_t bytes) { return tandem_split(codec.get(), content, bytes, shards, 6); };
  const auto join = [&](std::size_t bytes) { return tandem_join(codec.get(), shards, 6, content, bytes); };
  std::size_t shard_bytes = 77;
  EXPECT_TRUE(refused(tandem_split_bytes(nullptr, 5, &shard_bytes), kBad, {"codec is NULL"}));
  EXPECT_TRUE(refused(tandem_split_bytes(codec.get(), 5, nullptr), kBad, {"shard_bytes_out is NULL"}));
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 3})
    EXPECT_TRUE(refused(tandem_split_bytes(codec.get(), bytes, &shard_bytes), TANDEM_ERROR_TOO_LARGE, {"5 shards"}));
  EXPECT_EQ(shard_bytes, 77u);
  for (const auto &call : {std::function<tandem_status(std::size_t)>(split), {join}}) {
    EXPECT_TRUE(refused(call(19), kBad, {"3 shards of 6 bytes cannot hold 19 bytes"}));
    shards[0] = nullptr;
    EXPECT_TRUE(refused(call(18), kBad, {"data shard 0 is NULL"}));
    for (const int place : {0, 5, 17}) {
      shards[0] = content + place;
      EXPECT_TRUE(refused(call(18), TANDEM_ERROR_OVERLAP, {"data shard 0 overlaps"}));
    }
    shards[0] = content + 20;
  }
  shards[2] = content + 31;  // two shards that are written may not overlap, two that are read may
  EXPECT_TRUE(refused(split(18), TANDEM_ERROR_OVERLAP, {"data shard 2 overlaps"}));
  EXPECT_TRUE(refused(tandem_split(codec.get(), nullptr, 1, shards, 6), kBad, {"content is NULL"}));
  EXPECT_TRUE(refused(tandem_join(codec.get(), shards, 0, content, 0), kBad, {"shard_bytes is 0"}));
  EXPECT_EQ(memory, before);
}

// By one byte, at either end, inside, and around; side by side is no overlap.
TEST_F(BadCall, AnOverlapOfOneByteIsRefused) {
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

TEST_F(BadCall, OverlapIsLookedForFrom4096Bytes) {
  codec_ = make_codec(1, 1);
  Bytes shard = random_.bytes(2 << 10);
  const Bytes before = shard;
  refuse("one shard twice", {kEncode, kDecode, kUpdate, kAccumulate},
         [&](Call &c) {
           c.pointers = {shard.data(), shard.data()};
           if (!c.present.empty()) c.present = {1, 0};
           c.k = 1;
           c.shard_bytes = shard.size();
         },
         TANDEM_ERROR_OVERLAP, {});
  EXPECT_EQ(shard, before);
}

TEST_F(BadCall, OptionsOfPlansAreCheckedOneByOne) {
  Bytes all_but_one(kK + kM, 1), every(kK + kM, 1), few(kK + kM, 0);
  all_but_one[0] = 0;
  few[0] = 1;
  using Options = tandem_plan_options;
  static const std::uint32_t kCosts[kK + kM] = {};
  const std::tuple<const char *, std::function<void(Options &)>, tandem_status, Words> wrong[] = {
      {"operation", [](Options &o) { o.operation = 5; }, kBad, {"5"}},
      {"operation", [](Options &o) { o.operation = -1; }, kBad, {"-1"}},
      {"memory", [](Options &o) { o.memory = TANDEM_MEMORY_CUDA; }, TANDEM_ERROR_UNSUPPORTED, {"1"}},
      {"no flags", [](Options &o) { o.operation = TANDEM_OPERATION_DECODE; }, kBad, {"present"}},
      {"index", [](Options &o) { o.operation = TANDEM_OPERATION_UPDATE, o.index = kK; }, kBad, {"10"}},
      {"size", [](Options &o) { o.struct_bytes = 4; }, kBad, {"4"}},
      {"wait", [](Options &o) { o.wait_for_kernel = 2; }, kBad, {"wait_for_kernel is 2"}},
      {"reserved", [](Options &o) { o.reserved = 1; }, TANDEM_ERROR_UNSUPPORTED, {"reserved"}},
      {"half a field",
       [&](Options &o) {
         o.operation = TANDEM_OPERATION_DECODE;
         o.present = all_but_one.data();
         o.struct_bytes = offsetof(Options, present) + sizeof o.present / 2;
       },
       kBad,
       {"struct_bytes is 20"}},
      {"first of an encode", [](Options &o) { o.first = 1; }, kBad, {"first"}},
      {"a cancel of an encode", [](Options &o) { o.cancelled = [](void *) { return 0; }; }, kBad, {"cancelled is set"}},
      {"costs of an encode", [](Options &o) { o.read_costs = kCosts; }, kBad, {"read_costs are set"}},
      {"wants what is present",
       [&](Options &o) { o.operation = TANDEM_OPERATION_DECODE, o.present = o.wanted = every.data(); },
       kBad,
       {"present"}},
      {"encode wants data", [&](Options &o) { o.wanted = every.data(); }, kBad, {"0"}},
      {"too few",
       [&](Options &o) { o.operation = TANDEM_OPERATION_DECODE, o.present = few.data(); },
       TANDEM_ERROR_NOT_RECOVERABLE,
       {"9 of 10"}},
  };
  Options options = {};
  tandem_plan *plan = nullptr;
  for (const auto &[what, change, status, words] : wrong) {
    options = {};
    options.struct_bytes = sizeof options;
    change(options);
    EXPECT_TRUE(refused(tandem_plan_create(context_.get(), codec_.get(), &options, &plan), status, words)) << what;
    EXPECT_EQ(plan, nullptr);
  }
  EXPECT_TRUE(refused(tandem_plan_create(context_.get(), nullptr, &options, &plan), kBad));
  EXPECT_TRUE(refused(tandem_plan_create(context_.get(), codec_.get(), nullptr, &plan), kBad));
  EXPECT_TRUE(refused(tandem_plan_create(context_.get(), codec_.get(), &options, nullptr), kBad));
  EXPECT_EQ(plan, nullptr);
  tandem_plan_destroy(nullptr);
}

TEST_F(BadCall, ArgumentsOfPlansAreCheckedOneByOne) {
  const Plan plan = make_plan(context_.get(), codec_.get(), TANDEM_OPERATION_ENCODE);
  const Plan verify = make_plan(context_.get(), codec_.get(), TANDEM_OPERATION_VERIFY);
  auto good = stripe_.arguments();
  tandem_job *job = nullptr;
  const auto both = [&](const char *what, const tandem_plan *which, const tandem_plan_arguments *given) {
    EXPECT_TRUE(refused(tandem_plan_run(which, given, nullptr), kBad)) << what;
    EXPECT_TRUE(refused(tandem_plan_run(which, given, &job), kBad)) << what;
    EXPECT_EQ(job, nullptr) << what;
  };
  both("no plan", nullptr, &good);
  both("no arguments", plan.get(), nullptr);
  tandem_plan_arguments bad = good;
  bad.struct_bytes = 1;
  both("size", plan.get(), &bad);
  auto result = sized<tandem_verify_result>();
  tandem_verify_ranges ranges = {sizeof ranges, nullptr, 1, 0};
  bad = good;
  bad.verify_result = &result;
  bad.verify_ranges = &ranges;
  both("room for one range, but no array", verify.get(), &bad);
  ranges = {1, nullptr, 0, 0};
  both("size of the ranges", verify.get(), &bad);
  bad = good;
  bad.queue = &ranges;
  both("a queue for host memory", plan.get(), &bad);
  const std::uint64_t offsets[kK + kM] = {};
  bad = good;
  bad.offsets = offsets;
  both("offsets for host memory", plan.get(), &bad);
  bad = good;
  bad.new_data_offset = 1;
  both("an offset of new data for host memory", plan.get(), &bad);
  auto info = sized<tandem_plan_info>();
  for (const tandem_status status : {tandem_plan_query(nullptr, &info), tandem_job_wait(nullptr),
                                     tandem_plan_query(plan.get(), nullptr), tandem_job_cancel(nullptr)})
    EXPECT_EQ(status, kBad);
  tandem_job_destroy(nullptr);
}

TEST_F(BadCall, AWrongStripeIsNamedAndNoneIsWritten) {
  Stripe other(random_, kK, kM, 100), third(random_, kK, kM, 100);
  tandem_stripe good[] = {{other.all(), other.present.data(), 100, 0, 77, nullptr},
                          {stripe_.all(), stripe_.present.data(), kBytes, 0, 77, nullptr},
                          {third.all(), third.present.data(), 100, 0, 77, nullptr}};
  constexpr std::size_t kSize = sizeof good[0];
  other.lose_parity();
  third.lose_parity();
  const Shards before = other.shards, third_before = third.shards;
  const std::uint64_t offsets[kK + kM] = {};
  tandem_context *const x = context_.get();
  const tandem_codec *const c = codec_.get();
  EXPECT_TRUE(refused(tandem_encode_stripes(x, c, good, 3, kSize - 8), kBad, {"32", "40"}));
  EXPECT_TRUE(refused(tandem_encode_stripes(x, c, good, 3, kSize + 1), kBad, {"41"}));
  EXPECT_TRUE(
      refused(tandem_encode_stripes(x, c, good, SIZE_MAX, kSize), TANDEM_ERROR_TOO_LARGE, {std::to_string(SIZE_MAX)}));
  EXPECT_TRUE(refused(tandem_encode_stripes(x, c, nullptr, 1, kSize), kBad, {"NULL"}));
  const std::tuple<std::function<void(tandem_stripe &)>, tandem_status, Words> wrong[] = {
      {[](auto &s) { s.shard_bytes = 0; }, kBad, {}},
      {[](auto &s) { s.shard_bytes = SIZE_MAX / 2; }, TANDEM_ERROR_TOO_LARGE, {}},
      {[](auto &s) { s.memory = TANDEM_MEMORY_OPENCL; }, TANDEM_ERROR_UNSUPPORTED, {"2"}},
      {[](auto &s) { s.shards = nullptr; }, kBad, {"NULL"}},
      {[&](auto &s) { s.offsets = offsets; }, kBad, {"offsets"}},
      {[&](auto &) { stripe_.pointers[kK + 1] = stripe_.pointers[4]; }, TANDEM_ERROR_OVERLAP, {}},
      {[&](auto &) { stripe_.pointers[4] = nullptr; }, kBad, {"data shard 4"}},
  };
  for (const auto &[change, status, words] : wrong) {
    std::vector<tandem_stripe> stripes(good, good + 3);
    change(stripes[1]);
    const tandem_status got = tandem_encode_stripes(x, c, stripes.data(), 3, kSize);
    EXPECT_TRUE(refused(got, status, {"stripe 1 of 3"}));
    EXPECT_TRUE(refused(got, status, words));
    stripe_.restore();
  }
  EXPECT_EQ(other.shards, before) << "a stripe was written before all were checked";
  EXPECT_EQ(third.shards, third_before);
}

TEST_F(BadCall, AWrongPieceIsNamed) {
  using Segments = std::vector<tandem_segment>;
  using Shards = std::vector<tandem_scattered_shard>;
  const auto encode = [&](const tandem_codec *codec, const Shards &shards, std::size_t bytes) {
    return tandem_code_scattered(context_.get(), codec, TANDEM_OPERATION_ENCODE, shards.data(), nullptr, bytes);
  };
  const tandem_segment twice[] = {{stripe_.shards[kK].data(), kBytes / 2}, {stripe_.shards[kK].data(), kBytes / 2}};
  const std::tuple<std::function<void(Segments &, Shards &)>, tandem_status, Words> wrong[] = {
      {[](auto &segments, auto &) { segments[0].bytes -= 1; }, kBad, {"20000", "19999"}},
      {[](auto &segments, auto &) { segments[0].bytes += 1; }, kBad, {"shard 0", "20000"}},
      {[](auto &segments, auto &) { segments[2].bytes = SIZE_MAX; }, kBad, {"shard 2"}},
      {[](auto &segments, auto &) { segments[kK].address = nullptr; }, kBad, {"shard 10", "NULL"}},
      {[](auto &, auto &shards) { shards[3].segments = nullptr; }, kBad, {"shard 3"}},
      {[](auto &, auto &shards) { shards[3].segment_count = 0; }, kBad, {"shard 3"}},
      {[&](auto &segments, auto &) { segments[kK + 1].address = stripe_.shards[1].data() + 1; },
       TANDEM_ERROR_OVERLAP,
       {"11"}},
      {[&](auto &, auto &shards) {
         shards[kK] = {twice, 2};
       },
       TANDEM_ERROR_OVERLAP,
       {"10"}},
  };
  for (const auto &[change, status, words] : wrong) {
    Segments segments;
    Shards shards;
    for (Bytes &shard : stripe_.shards) segments.push_back({shard.data(), kBytes});
    for (const tandem_segment &segment : segments) shards.push_back({&segment, 1});
    change(segments, shards);
    EXPECT_TRUE(refused(encode(codec_.get(), shards, kBytes), status, words));
  }
  // Pieces are cut at groups only.
  const Codec packets = make_codec(with(packet_options(40), [](auto &o) { o.k = kK, o.m = kM; }));
  Segments segments;
  Shards shards;
  for (Bytes &shard : stripe_.shards) {
    segments.push_back({shard.data(), 40});
    segments.push_back({shard.data() + 40, 920});
  }
  for (unsigned i = 0; i < kK + kM; ++i) shards.push_back({&segments[2 * i], 2});
  EXPECT_TRUE(refused(encode(packets.get(), shards, 960), kBad, {"40", "320"}));
  EXPECT_TRUE(refused(
      tandem_code_scattered(context_.get(), packets.get(), TANDEM_OPERATION_VERIFY, shards.data(), nullptr, 960), kBad,
      {"operation is 2"}));
}

TEST(BadTools, ListsOfAWrongSizeAreNotWritten) {
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
  ASSERT_EQ(tandem_devices(nullptr, 0, 0, &count), TANDEM_OK);
  EXPECT_GE(count, 1u);
  ASSERT_EQ(tandem_devices(&device, 1, sizeof device, &count), TANDEM_OK);
  EXPECT_STREQ(device.name, "cpu");
  EXPECT_STREQ(device.missing, "");
}

}  // namespace
}  // namespace tandem::test
