// SPDX-License-Identifier: Apache-2.0
// Codes in Jerasure's packets through the C API: every operation against the slow reference, every kernel, and wrong
// lengths and options.
#include <algorithm>
#include <string>

#include "tandem/diagnose.h"
#include "tandem/tools.h"
#include "tests/support/api.hpp"
#include "tests/support/guarded.hpp"

namespace {

using namespace tandem::test;
using tandem::reference::Numbers;

constexpr std::uint64_t kSeed = 20260;

struct Code {
  const char *preset;
  unsigned word_bits, k, m;
};
constexpr Code kCodes[] = {
    {"jerasure-cauchy-good", 8, 10, 4}, {"jerasure-cauchy-orig", 8, 4, 3},  {"jerasure-cauchy-good", 8, 3, 2},
    {"jerasure-cauchy-good", 8, 5, 1},  {"jerasure-cauchy-good", 4, 10, 4}, {"jerasure-cauchy-orig", 4, 11, 5},
    {"jerasure-cauchy-good", 4, 6, 2},  {"jerasure-cauchy-good", 16, 4, 3}, {"jerasure-cauchy-orig", 16, 3, 2},
    {"jerasure-cauchy-orig", 8, 1, 1},  {"jerasure-cauchy-good", 8, 37, 9}, {"jerasure-cauchy-good", 16, 20, 5},
};

tandem_codec_options options_of(const Code &code, std::uint64_t packet_bytes) {
  tandem_codec_options options = codec_options(code.k, code.m);
  EXPECT_EQ(tandem_matrix_from_name(code.preset, &options.matrix), TANDEM_OK);
  options.field = code.word_bits == 16 ? TANDEM_FIELD_GF16 : TANDEM_FIELD_GF8;
  options.layout = TANDEM_LAYOUT_PACKETS;
  options.word_bits = code.word_bits;
  options.packet_bytes = packet_bytes;
  return options;
}

Numbers rows_of(const Code &code) {
  return tandem::reference::jerasure_rows(code.preset, code.word_bits, code.k, code.m);
}

// A stripe with its parity by the reference.
Shards stripe_of(const Code &code, std::size_t packet_bytes, std::size_t groups, Random &random) {
  Shards shards;
  for (unsigned c = 0; c < code.k; ++c) shards.push_back(random.bytes(code.word_bits * packet_bytes * groups));
  for (Bytes &parity : tandem::reference::apply_packets(code.word_bits, packet_bytes, rows_of(code), shards))
    shards.push_back(std::move(parity));
  return shards;
}

std::vector<void *> pointers_to(Shards &shards) {
  std::vector<void *> pointers;
  for (Bytes &shard : shards) pointers.push_back(shard.data());
  return pointers;
}

std::string text(const Code &code, std::size_t packet_bytes) {
  return std::string(code.preset) + " " + std::to_string(code.k) + "+" + std::to_string(code.m) + ", " +
         std::to_string(code.word_bits) + " packets of " + std::to_string(packet_bytes);
}

std::vector<Context> contexts_of_all_kernels() {
  std::vector<tandem_kernel> all(32);
  size_t count = 0;
  EXPECT_EQ(tandem_kernels(all.data(), all.size(), sizeof(tandem_kernel), &count), TANDEM_OK);
  std::vector<Context> contexts;
  for (size_t i = 0; i < count; ++i) {
    if (!all[i].available) {
      std::printf("NOT RUN: kernel %s\n", all[i].name);
      continue;
    }
    for (const char *expert : {"executor=pthread", "executor=pthread,technique=matrix"}) {
      tandem_context_options options = context_options();
      options.backend = "cpu";
      options.kernel = all[i].name;
      options.expert = expert;
      contexts.push_back(make_context(options));
    }
  }
  return contexts;
}

TEST(Packets, EncodeByEveryKernel) {
  Random random(kSeed);
  const std::vector<Context> contexts = contexts_of_all_kernels();
  for (const Code &code : kCodes) {
    for (const auto &[packet_bytes, groups] : {std::pair<std::size_t, std::size_t>{8, 1},
                                               {8, 41},
                                               {24, 9},
                                               {32, 8},
                                               {64, 5},
                                               {104, 2},
                                               {200, 3},
                                               {256, 1},
                                               {1032, 1},
                                               {2048, 1}}) {
      if (code.k > 12 && packet_bytes * groups > 400) continue;
      SCOPED_TRACE(text(code, packet_bytes));
      const Shards want = stripe_of(code, packet_bytes, groups, random);
      const Codec codec = make_codec(options_of(code, packet_bytes));
      for (const Context &context : contexts) {
        Shards shards = want;
        for (unsigned r = 0; r < code.m; ++r) shards[code.k + r] = random.bytes(want[0].size());
        const auto pointers = pointers_to(shards);
        ASSERT_EQ(tandem_encode(context.get(), codec.get(), pointers.data(), pointers.data() + code.k, want[0].size()),
                  TANDEM_OK)
            << tandem_last_error_message();
        ASSERT_TRUE(shards == want);
      }
    }
  }
}

// Shards at odd addresses and beside pages that cannot be touched; data that cannot be written.
TEST(Packets, GuardPagesAndOddAddresses) {
  Random random(kSeed + 7);
  const std::vector<Context> contexts = contexts_of_all_kernels();
  for (const Code &code : {kCodes[0], kCodes[4], kCodes[7]}) {
    for (const auto &[packet_bytes, groups] :
         {std::pair<std::size_t, std::size_t>{8, 5}, {64, 3}, {72, 1}, {256, 2}, {1024, 1}, {1088, 1}}) {
      SCOPED_TRACE(text(code, packet_bytes));
      const Shards want = stripe_of(code, packet_bytes, groups, random);
      const Codec codec = make_codec(options_of(code, packet_bytes));
      const std::size_t bytes = want[0].size();
      for (const auto against : {Guarded::Against::front, Guarded::Against::back}) {
        std::vector<Guarded> memory;
        std::vector<void *> pointers;
        for (unsigned i = 0; i < want.size(); ++i) {
          // At the front page every second shard begins at an odd address.
          const std::size_t room = bytes + (against == Guarded::Against::front ? i % 2 : 0);
          memory.emplace_back(room, against);
          std::uint8_t *const shard = memory.back().data() + (room - bytes);
          if (i < code.k) {
            std::copy(want[i].begin(), want[i].end(), shard);
            memory.back().make_read_only();
          }
          pointers.push_back(shard);
        }
        for (const Context &context : contexts) {
          for (unsigned r = 0; r < code.m; ++r) random.fill(pointers[code.k + r], bytes);
          ASSERT_EQ(tandem_encode(context.get(), codec.get(), pointers.data(), pointers.data() + code.k, bytes),
                    TANDEM_OK)
              << tandem_last_error_message();
          for (unsigned r = 0; r < code.m; ++r)
            ASSERT_EQ(std::memcmp(pointers[code.k + r], want[code.k + r].data(), bytes), 0) << "parity " << r;
          tandem_verify_result result = {};
          result.struct_bytes = sizeof result;
          ASSERT_EQ(tandem_verify(context.get(), codec.get(), pointers.data(), bytes, &result), TANDEM_OK);
          ASSERT_EQ(result.consistent, 1);
        }
      }
    }
  }
}

TEST(Packets, CoefficientsAreNumbersOfTheField) {
  for (const Code &code : kCodes) {
    const Codec codec = make_codec(options_of(code, 8));
    const unsigned size = code.word_bits == 16 ? 2 : 1;
    Bytes cells(std::size_t{size} * code.k * code.m);
    ASSERT_EQ(tandem_codec_coefficients(codec.get(), cells.data(), cells.size()), TANDEM_OK);
    const Numbers rows = rows_of(code);
    for (unsigned i = 0; i < code.k * code.m; ++i) {
      const unsigned cell = size == 1 ? cells[i] : static_cast<unsigned>(cells[2 * i] | cells[2 * i + 1] << 8);
      ASSERT_EQ(cell, rows[i / code.k][i % code.k]) << text(code, 8) << ", cell " << i;
    }
  }
}

// Every loss; fewer present shards than k are refused, and nothing is written.
TEST(Packets, EveryLossOfSmallCodes) {
  Random random(kSeed + 1);
  const Context context = make_context("serial", 1);
  for (const Code &code : {Code{"jerasure-cauchy-good", 8, 4, 3}, Code{"jerasure-cauchy-orig", 4, 5, 3},
                           Code{"jerasure-cauchy-good", 16, 3, 3}, Code{"jerasure-cauchy-good", 4, 5, 2}}) {
    const unsigned n = code.k + code.m;
    const Codec codec = make_codec(options_of(code, 16));
    const Shards want = stripe_of(code, 16, 3, random);
    for (unsigned lost = 1; lost < 1u << n; ++lost) {
      Shards shards = want;
      Bytes present(n, 1);
      unsigned count = 0;
      for (unsigned i = 0; i < n; ++i) {
        if ((lost >> i & 1) == 0) continue;
        present[i] = 0;
        shards[i].assign(shards[i].size(), 0x5a);
        ++count;
      }
      const Shards before = shards;
      const auto pointers = pointers_to(shards);
      const tandem_status status =
          tandem_decode(context.get(), codec.get(), pointers.data(), present.data(), want[0].size());
      ASSERT_EQ(status, count <= code.m ? TANDEM_OK : TANDEM_ERROR_NOT_RECOVERABLE) << tandem_last_error_message();
      ASSERT_TRUE(shards == (count <= code.m ? want : before)) << text(code, 16) << ", lost " << lost;
    }
  }
}

// A large stripe is cut for several threads: the same bytes as stripe by stripe of one group.
TEST(Packets, ManyGroupsOnSeveralThreads) {
  Random random(kSeed + 2);
  const Context one = make_context("serial", 1), three = make_context("pthread", 3);
  for (const Code &code : {kCodes[0], kCodes[4], kCodes[7]}) {
    for (const std::size_t packet_bytes : {std::size_t{8}, std::size_t{328}, std::size_t{4096}}) {
      SCOPED_TRACE(text(code, packet_bytes));
      const std::size_t group_bytes = code.word_bits * packet_bytes, groups = 600'000 / group_bytes + 3;
      const Codec codec = make_codec(options_of(code, packet_bytes));
      Shards shards;
      for (unsigned i = 0; i < code.k + code.m; ++i) shards.push_back(random.bytes(groups * group_bytes));
      Shards want = shards;
      for (std::size_t group = 0; group < groups; ++group) {
        std::vector<void *> pointers;
        for (Bytes &shard : want) pointers.push_back(shard.data() + group * group_bytes);
        ASSERT_EQ(tandem_encode(one.get(), codec.get(), pointers.data(), pointers.data() + code.k, group_bytes),
                  TANDEM_OK);
      }
      const auto pointers = pointers_to(shards);
      ASSERT_EQ(tandem_encode(three.get(), codec.get(), pointers.data(), pointers.data() + code.k, shards[0].size()),
                TANDEM_OK);
      ASSERT_TRUE(shards == want);
      Bytes present(code.k + code.m, 1);
      for (unsigned i = 0; i < code.m; ++i) {
        present[2 * i] = 0;
        shards[2 * i].assign(shards[2 * i].size(), 0);
      }
      ASSERT_EQ(tandem_decode(three.get(), codec.get(), pointers.data(), present.data(), shards[0].size()), TANDEM_OK)
          << tandem_last_error_message();
      ASSERT_TRUE(shards == want);
    }
  }
}

// Verify finds what was changed, and the shard that it was changed in; update and accumulate keep parity right.
TEST(Packets, VerifyUpdateAccumulate) {
  Random random(kSeed + 3);
  const Context context = make_context();
  for (const Code &code : kCodes) {
    for (const std::size_t packet_bytes : {std::size_t{8}, std::size_t{72}, std::size_t{512}}) {
      SCOPED_TRACE(text(code, packet_bytes));
      const std::size_t groups = code.k > 12 ? 1 : 2;
      const Codec codec = make_codec(options_of(code, packet_bytes));
      const Shards want = stripe_of(code, packet_bytes, groups, random);
      Shards shards = want;
      const auto pointers = pointers_to(shards);
      const std::size_t bytes = want[0].size();
      const auto verify = [&] {
        tandem_verify_result result = {};
        result.struct_bytes = sizeof result;
        EXPECT_EQ(tandem_verify(context.get(), codec.get(), pointers.data(), bytes, &result), TANDEM_OK);
        return result;
      };
      EXPECT_EQ(verify().consistent, 1u);
      for (const unsigned bad : {0u, code.k - 1, code.k, code.k + code.m - 1}) {
        const std::size_t at = random.below(bytes);
        shards[bad][at] ^= static_cast<std::uint8_t>(1 + random.below(255));
        const tandem_verify_result result = verify();
        EXPECT_EQ(result.consistent, 0u);
        if (code.m > 1) {
          EXPECT_EQ(result.suspect_shard, bad) << "byte " << at;
        }
        if (bad >= code.k) {
          EXPECT_EQ(result.first_bad_shard, bad);
          EXPECT_EQ(result.first_mismatch_bytes, at);
          EXPECT_EQ(result.mismatch_byte_count, 1u);
        }
        shards[bad] = want[bad];
      }

      const auto index = static_cast<unsigned>(random.below(code.k));
      const Bytes changed = random.bytes(bytes);
      Shards data(want.begin(), want.begin() + code.k);
      data[index] = changed;
      const Shards parity = tandem::reference::apply_packets(code.word_bits, packet_bytes, rows_of(code), data);
      ASSERT_EQ(tandem_update(context.get(), codec.get(), index, shards[index].data(), changed.data(),
                              pointers.data() + code.k, bytes),
                TANDEM_OK)
          << tandem_last_error_message();
      EXPECT_TRUE(Shards(shards.begin() + code.k, shards.end()) == parity);
      for (unsigned c = 0; c < code.k; ++c)
        ASSERT_EQ(
            tandem_accumulate(context.get(), codec.get(), c, data[c].data(), pointers.data() + code.k, bytes, c == 0),
            TANDEM_OK);
      EXPECT_TRUE(Shards(shards.begin() + code.k, shards.end()) == parity);
    }
  }
}

// Plans, jobs, stripes and pieces; lengths that are not of whole groups are refused before anything is written.
TEST(Packets, GroupsAreNotCut) {
  Random random(kSeed + 4);
  const Context context = make_context();
  const Code code = {"jerasure-cauchy-good", 8, 4, 2};
  const std::size_t packet_bytes = 40, group_bytes = 320;
  const Codec codec = make_codec(options_of(code, packet_bytes));
  const Shards want = stripe_of(code, packet_bytes, 3, random);
  Shards shards = want;
  for (unsigned r = 0; r < code.m; ++r) shards[code.k + r].assign(want[0].size(), 0);
  const Shards before = shards;
  const auto pointers = pointers_to(shards);
  const auto expect_refused = [&](tandem_status status, std::size_t bytes) {
    EXPECT_EQ(status, TANDEM_ERROR_INVALID_ARGUMENT);
    const std::string message = tandem_last_error_message();
    EXPECT_NE(message.find(std::to_string(bytes)), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(group_bytes)), std::string::npos) << message;
    EXPECT_TRUE(shards == before) << "something was written";
  };
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{40}, group_bytes - 8, group_bytes + 40}) {
    expect_refused(tandem_encode(context.get(), codec.get(), pointers.data(), pointers.data() + code.k, bytes), bytes);
    const Bytes present = {0, 1, 1, 1, 1, 1};
    expect_refused(tandem_decode(context.get(), codec.get(), pointers.data(), present.data(), bytes), bytes);
    expect_refused(tandem_accumulate(context.get(), codec.get(), 0, pointers[0], pointers.data() + code.k, bytes, 0),
                   bytes);
    expect_refused(
        tandem_update(context.get(), codec.get(), 0, pointers[0], pointers[1], pointers.data() + code.k, bytes), bytes);
    tandem_verify_result result = {};
    result.struct_bytes = sizeof result;
    expect_refused(tandem_verify(context.get(), codec.get(), pointers.data(), bytes, &result), bytes);
    tandem_stripe stripe = {};
    stripe.shards = pointers.data();
    stripe.shard_bytes = bytes;
    expect_refused(tandem_encode_stripes(context.get(), codec.get(), &stripe, 1, sizeof stripe), bytes);
    const Plan plan = make_plan(context.get(), codec.get(), TANDEM_OPERATION_ENCODE);
    tandem_plan_arguments arguments = {};
    arguments.struct_bytes = sizeof arguments;
    arguments.shards = pointers.data();
    arguments.shard_bytes = bytes;
    expect_refused(tandem_plan_run(plan.get(), &arguments), bytes);
    tandem_job *job = nullptr;
    expect_refused(tandem_plan_submit(plan.get(), &arguments, &job), bytes);
  }

  std::vector<std::vector<tandem_segment>> segments(shards.size());
  std::vector<tandem_scattered_shard> scattered;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    segments[i] = {{shards[i].data(), group_bytes * (i % 3)},
                   {shards[i].data() + group_bytes * (i % 3), want[0].size() - group_bytes * (i % 3)}};
    scattered.push_back({segments[i].data(), 2});
  }
  segments[1] = {{shards[1].data(), 40}, {shards[1].data() + 40, want[0].size() - 40}};
  expect_refused(tandem_encode_scattered(context.get(), codec.get(), scattered.data(), want[0].size()), 40);
  segments[1] = {{shards[1].data(), group_bytes}, {shards[1].data() + group_bytes, want[0].size() - group_bytes}};
  ASSERT_EQ(tandem_encode_scattered(context.get(), codec.get(), scattered.data(), want[0].size()), TANDEM_OK)
      << tandem_last_error_message();
  EXPECT_TRUE(shards == want);

  for (unsigned r = 0; r < code.m; ++r) std::fill(shards[code.k + r].begin(), shards[code.k + r].end(), 0x11);
  const Plan plan = make_plan(context.get(), codec.get(), TANDEM_OPERATION_ENCODE);
  tandem_plan_arguments arguments = {};
  arguments.struct_bytes = sizeof arguments;
  arguments.shards = pointers.data();
  arguments.shard_bytes = want[0].size();
  tandem_job *raw = nullptr;
  ASSERT_EQ(tandem_plan_submit(plan.get(), &arguments, &raw), TANDEM_OK) << tandem_last_error_message();
  const Job job(raw);
  ASSERT_EQ(tandem_job_wait(raw), TANDEM_OK);
  EXPECT_TRUE(shards == want);
}

// What is shared is summed once: fewer additions, and the plan says how many.
TEST(Packets, PlansCountAdditions) {
  const Code code = {"jerasure-cauchy-orig", 8, 10, 6};
  const Codec codec = make_codec(options_of(code, 1024));
  unsigned ones = 0;
  for (const auto &row : rows_of(code))
    for (const unsigned cell : row)
      for (unsigned i = 0; i < 8; ++i)
        ones += static_cast<unsigned>(__builtin_popcount(tandem::reference::multiply(8, cell, 1u << i)));
  for (const char *expert : {"", "technique=matrix"}) {
    tandem_context_options options = context_options("", 1);
    options.backend = "cpu";
    options.expert = expert;
    const Context context = make_context(options);
    const Plan plan = make_plan(context.get(), codec.get(), TANDEM_OPERATION_ENCODE);
    tandem_plan_info info = {};
    info.struct_bytes = sizeof info;
    ASSERT_EQ(tandem_plan_query(plan.get(), &info), TANDEM_OK);
    EXPECT_EQ(info.matrix_products, ones - 8 * code.m) << "an output of n packets is n - 1 additions";
    if (*expert != 0) {
      EXPECT_STREQ(info.technique, "matrix");
      EXPECT_EQ(info.products, info.matrix_products);
    } else {
      EXPECT_STREQ(info.technique, "shared sums");
      EXPECT_LT(info.products * 3, info.matrix_products * 2);
    }
  }
}

void expect_refused(const tandem_codec_options &options, tandem_status status,
                    std::initializer_list<const char *> parts) {
  tandem_codec *codec = nullptr;
  EXPECT_EQ(tandem_codec_create(&options, &codec), status);
  EXPECT_EQ(codec, nullptr);
  const std::string message = tandem_last_error_message();
  for (const char *part : parts) EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
}

TEST(Packets, OptionsThatThereAreNot) {
  const Code code = {"jerasure-cauchy-good", 8, 4, 2};
  const auto with = [&](auto change) {
    tandem_codec_options options = options_of(code, 1024);
    change(options);
    return options;
  };
  const auto bad = TANDEM_ERROR_INVALID_ARGUMENT;
  expect_refused(with([](auto &o) { o.packet_bytes = 0; }), bad, {"packet_bytes = 0", "multiple of 8"});
  expect_refused(with([](auto &o) { o.packet_bytes = 1023; }), bad, {"packet_bytes = 1023", "multiple of 8"});
  expect_refused(with([](auto &o) { o.packet_bytes = 4; }), bad, {"packet_bytes = 4"});
  expect_refused(with([](auto &o) { o.packet_bytes = (1ull << 29) + 8; }), bad, {"536870920", "536870912"});
  expect_refused(with([](auto &o) { o.packet_bytes = UINT64_MAX - 7; }), bad, {"18446744073709551608"});
  expect_refused(with([](auto &o) { o.word_bits = 5; }), bad, {"word_bits = 5", "4 or 8"});
  expect_refused(with([](auto &o) { o.word_bits = 16; }), bad, {"word_bits = 16", "GF(2^8)"});
  expect_refused(with([](auto &o) { o.field = TANDEM_FIELD_GF16; }), bad, {"word_bits = 8", "GF(2^16)"});
  expect_refused(with([](auto &o) { o.layout = 2; }), bad, {"layout 2"});
  expect_refused(with([](auto &o) { o.layout = TANDEM_LAYOUT_BYTES; }), bad, {"word_bits = 8", "1024"});
  expect_refused(with([](auto &o) { o.matrix = TANDEM_MATRIX_ISAL_CAUCHY; }), bad, {"isal-cauchy"});
  expect_refused(with([](auto &o) { o.matrix = 77; }), bad, {"77"});
  expect_refused(with([](auto &o) {
                   o.matrix = 77;
                   o.field = TANDEM_FIELD_GF16;
                   o.word_bits = 0;
                 }),
                 bad, {"77"});
  expect_refused(with([](auto &o) {
                   o.matrix = TANDEM_MATRIX_PAR2;
                   o.field = TANDEM_FIELD_GF16;
                   o.word_bits = 16;
                 }),
                 bad, {"par2"});
  expect_refused(with([](auto &o) {
                   o.word_bits = 4;
                   o.k = 15;
                 }),
                 bad, {"k + m = 17", "16"});
  expect_refused(with([](auto &o) { o.k = 255; }), bad, {"k = 255", "256"});
  expect_refused(with([](auto &o) {
                   o.field = TANDEM_FIELD_GF16;
                   o.word_bits = 16;
                   o.k = 1000;
                   o.m = 70;
                 }),
                 TANDEM_ERROR_TOO_LARGE, {"1000", "70", "17920000", "16777216"});
  const std::uint8_t coefficients[] = {1, 1, 1, 1, 1, 2, 3, 16};
  expect_refused(with([&](auto &o) {
                   o.coefficients = coefficients;
                   o.word_bits = 4;
                 }),
                 bad, {"NULL"});
  expect_refused(with([&](auto &o) {
                   o.coefficients = coefficients;
                   o.word_bits = 16;
                   o.field = TANDEM_FIELD_GF16;
                 }),
                 bad, {"NULL"});
  expect_refused(with([&](auto &o) {
                   o.matrix = TANDEM_MATRIX_CUSTOM;
                   o.coefficients = coefficients;
                   o.word_bits = 4;
                 }),
                 bad, {"coefficient 16", "row 1", "column 3"});

  tandem_codec_options defaults = options_of(code, 1024);
  defaults.word_bits = 0;
  EXPECT_NE(make_codec(defaults), nullptr);
  tandem_context_options context = context_options();
  context.backend = "cpu";
  context.expert = "technique=transform";
  const Context transform = make_context(context);
  const Codec codec = make_codec(options_of(code, 8));
  Random random(kSeed + 5);
  Shards shards = stripe_of(code, 8, 2, random);
  const Shards before = shards;
  const auto pointers = pointers_to(shards);
  EXPECT_EQ(tandem_encode(transform.get(), codec.get(), pointers.data(), pointers.data() + code.k, before[0].size()),
            TANDEM_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(tandem_last_error_message()).find("packets"), std::string::npos) << tandem_last_error_message();
  EXPECT_TRUE(shards == before);
}

// A custom matrix of each field, one that is not MDS too: what is determined comes back.
TEST(Packets, CustomMatrices) {
  Random random(kSeed + 6);
  const Context context = make_context();
  const std::vector<std::uint8_t> bytes = {1, 1, 1, 0, 1, 7, 0, 5};
  const std::vector<std::uint16_t> words = {1, 1, 1, 0, 1, 7, 0, 5};
  for (const unsigned word_bits : {4u, 8u, 16u}) {
    tandem_codec_options options = options_of({"jerasure-cauchy-orig", word_bits, 4, 2}, 24);
    options.matrix = TANDEM_MATRIX_CUSTOM;
    options.coefficients = word_bits == 16 ? static_cast<const void *>(words.data()) : bytes.data();
    options.allow_non_mds = 1;
    const Codec codec = make_codec(options);
    Shards want;
    for (unsigned c = 0; c < 4; ++c) want.push_back(random.bytes(word_bits * 24 * 2));
    for (Bytes &parity : tandem::reference::apply_packets(word_bits, 24, Numbers{{1, 1, 1, 0}, {1, 7, 0, 5}}, want))
      want.push_back(std::move(parity));
    for (const auto &[lost, other, status] : {std::tuple{0u, 1u, TANDEM_OK},
                                              {2u, 3u, TANDEM_OK},
                                              {3u, 5u, TANDEM_ERROR_NOT_RECOVERABLE},
                                              {1u, 4u, TANDEM_OK}}) {
      Shards shards = want;
      Bytes present(6, 1);
      for (const unsigned i : {lost, other}) {
        present[i] = 0;
        shards[i].assign(want[0].size(), 0);
      }
      const auto pointers = pointers_to(shards);
      EXPECT_EQ(tandem_decode(context.get(), codec.get(), pointers.data(), present.data(), want[0].size()), status)
          << tandem_last_error_message();
      if (status == TANDEM_OK) {
        EXPECT_TRUE(shards == want) << word_bits << " bits, lost " << lost << " and " << other;
      }
    }
  }
}

}  // namespace
