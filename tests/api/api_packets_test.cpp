// SPDX-License-Identifier: Apache-2.0
// Plans of codes in Jerasure's packets.
#include <string>

#include "tandem/diagnose.h"
#include "tandem/tools.h"
#include "tests/support/api.hpp"

namespace {

using namespace tandem::test;
using tandem::reference::Numbers;

constexpr std::uint64_t kSeed = 20260;

struct Code {
  const char *preset;
  unsigned word_bits, k, m;
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

}  // namespace
