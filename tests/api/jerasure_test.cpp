// SPDX-License-Identifier: Apache-2.0
// Compares bytes with other programs: Debian's libJerasure, and fragments of liberasurecode's jerasure_rs_cauchy. What
// has the same bytes decodes there too.
#include <jerasure.h>
#include <jerasure/cauchy.h>

#include <algorithm>
#include <string>

#include "tandem/diagnose.h"
#include "tests/support/api.hpp"
#include "tests/support/slice.hpp"
#if defined(TANDEM_TEST_WITH_ERASURECODE)
#include <liberasurecode/erasurecode.h>
#endif

namespace {

using namespace tandem::test;

constexpr std::uint64_t kSeed = 4404;

struct Free {
  void operator()(int *matrix) const { std::free(matrix); }
};
using Ints = std::unique_ptr<int, Free>;

struct Code {
  bool is_good;
  unsigned word_bits, k, m;
};

std::string text(const Code &code, std::size_t packet_bytes) {
  return (code.is_good ? "good " : "orig ") + std::to_string(code.k) + "+" + std::to_string(code.m) + ", " +
         std::to_string(code.word_bits) + " packets of " + std::to_string(packet_bytes);
}

Codec codec_of(const Code &code, std::size_t packet_bytes) {
  tandem_codec_options options = codec_options(
      code.k, code.m, code.is_good ? TANDEM_MATRIX_JERASURE_CAUCHY_GOOD : TANDEM_MATRIX_JERASURE_CAUCHY_ORIG);
  options.field = code.word_bits == 16 ? TANDEM_FIELD_GF16 : TANDEM_FIELD_GF8;
  options.layout = TANDEM_LAYOUT_PACKETS;
  options.word_bits = code.word_bits;
  options.packet_bytes = packet_bytes;
  return make_codec(options);
}

// Their code, and its bit matrix.
class Theirs {
 public:
  explicit Theirs(const Code &code)
      : k_(static_cast<int>(code.k)),
        m_(static_cast<int>(code.m)),
        w_(static_cast<int>(code.word_bits)),
        matrix_(code.is_good ? cauchy_good_general_coding_matrix(k_, m_, w_)
                             : cauchy_original_coding_matrix(k_, m_, w_)),
        bits_(matrix_ == nullptr ? nullptr : jerasure_matrix_to_bitmatrix(k_, m_, w_, matrix_.get())) {}

  bool exists() const { return bits_ != nullptr; }
  int coefficient(unsigned i) const { return matrix_.get()[i]; }

  // By the bit matrix, or by a schedule: 1 = dumb, 2 = smart.
  void encode(Shards &shards, std::size_t packet_bytes, unsigned way) const {
    std::vector<char *> all = pointers(shards);
    const int size = static_cast<int>(shards[0].size()), packet = static_cast<int>(packet_bytes);
    if (way == 0) return jerasure_bitmatrix_encode(k_, m_, w_, bits_.get(), all.data(), all.data() + k_, size, packet);
    int **schedule = way == 1 ? jerasure_dumb_bitmatrix_to_schedule(k_, m_, w_, bits_.get())
                              : jerasure_smart_bitmatrix_to_schedule(k_, m_, w_, bits_.get());
    jerasure_schedule_encode(k_, m_, w_, schedule, all.data(), all.data() + k_, size, packet);
    jerasure_free_schedule(schedule);
  }

 private:
  static std::vector<char *> pointers(Shards &shards) {
    std::vector<char *> all;
    for (Bytes &shard : shards) all.push_back(reinterpret_cast<char *>(shard.data()));
    return all;
  }
  int k_, m_, w_;
  Ints matrix_, bits_;
};

std::vector<void *> pointers_to(Shards &shards) {
  std::vector<void *> pointers;
  for (Bytes &shard : shards) pointers.push_back(shard.data());
  return pointers;
}

void compare_encode(const Code &code, std::size_t packet_bytes, std::size_t groups, unsigned way,
                    tandem_context *context, Random &random) {
  SCOPED_TRACE(text(code, packet_bytes) + ", groups " + std::to_string(groups));
  const Theirs theirs(code);
  ASSERT_TRUE(theirs.exists());
  const Codec codec = codec_of(code, packet_bytes);
  Shards want;
  for (unsigned i = 0; i < code.k + code.m; ++i) want.push_back(random.bytes(code.word_bits * packet_bytes * groups));
  Shards shards = want;
  theirs.encode(want, packet_bytes, way);
  const auto pointers = pointers_to(shards);
  ASSERT_EQ(tandem_encode(context, codec.get(), pointers.data(), pointers.data() + code.k, shards[0].size()), TANDEM_OK)
      << tandem_last_error_message();
  ASSERT_TRUE(shards == want);
}

TEST(Jerasure, MatricesOfEverySize) {
  for (const unsigned word_bits : {4u, 8u, 16u}) {
    const unsigned most = word_bits == 4 ? 16 : word_bits == 8 ? 256 : 300;
    Slice slice(word_bits == 4 ? 1 : 700, word_bits);
    for (unsigned k = 1; k < most; ++k) {
      for (unsigned m = 1; k + m <= most; ++m) {
        if (k + m > 12 && !slice.takes()) continue;
        if (std::uint64_t{k} * m * word_bits * word_bits > 1 << 24) continue;
        for (const bool is_good : {false, true}) {
          if (is_good && k * k * m > 100'000) continue;  // theirs takes long
          const Code code{is_good, word_bits, k, m};
          SCOPED_TRACE(text(code, 8));
          const Theirs theirs(code);
          ASSERT_TRUE(theirs.exists());
          const Codec codec = codec_of(code, 8);
          std::vector<std::uint16_t> wide(std::size_t{k} * m);
          Bytes narrow(wide.size());
          ASSERT_EQ(
              tandem_codec_coefficients(codec.get(), word_bits == 16 ? static_cast<void *>(wide.data()) : narrow.data(),
                                        2 * wide.size()),
              TANDEM_OK);
          for (unsigned i = 0; i < k * m; ++i)
            ASSERT_EQ(word_bits == 16 ? wide[i] : narrow[i], theirs.coefficient(i)) << "cell " << i;
        }
      }
    }
  }
}

TEST(Jerasure, EncodesTheSameBytes) {
  Random random(kSeed);
  const Context context = make_context();
  const std::pair<unsigned, unsigned> shapes[] = {{1, 1}, {2, 2}, {4, 2}, {6, 3}, {10, 4}, {8, 8}, {20, 4}, {30, 12}};
  for (const unsigned word_bits : {4u, 8u, 16u})
    for (const bool is_good : {false, true})
      for (const auto &[k, m] : shapes)
        for (const auto &[packet_bytes, groups] :
             {std::pair<std::size_t, std::size_t>{8, 13}, {16, 1}, {72, 5}, {256, 3}, {1000, 1}, {1024, 7}, {4096, 1}})
          if (k + m <= 1u << word_bits) {
            compare_encode({is_good, word_bits, k, m}, packet_bytes, groups, static_cast<unsigned>(random.below(3)),
                           context.get(), random);
            if (HasFatalFailure()) return;
          }
}

#if defined(TANDEM_TEST_WITH_ERASURECODE)
// It takes the original matrix and packets of 1024 bytes; a fragment is a header of 80 bytes and a shard.
TEST(Jerasure, FragmentsOfLiberasurecode) {
  constexpr std::size_t kHeaderBytes = 80, kPacketBytes = 1024;
  if (liberasurecode_backend_available(EC_BACKEND_JERASURE_RS_CAUCHY) != 1)
    GTEST_SKIP() << "NOT RUN: liberasurecode finds no libJerasure.so (apt-get install libjerasure-dev)";
  Random random(kSeed + 2);
  const Context context = make_context();
  for (const int word_bits : {4, 8}) {
    for (const auto &[k, m] : {std::pair{2, 1}, {4, 2}, {8, 3}, {10, 4}, {10, 6}}) {
      struct ec_args arguments = {};
      arguments.k = k;
      arguments.m = m;
      arguments.w = word_bits;
      arguments.hd = m + 1;
      arguments.ct = CHKSUM_NONE;
      const int descriptor = liberasurecode_instance_create(EC_BACKEND_JERASURE_RS_CAUCHY, &arguments);
      ASSERT_GT(descriptor, 0);
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'000}, std::size_t{1} << 20}) {
        SCOPED_TRACE(std::to_string(k) + "+" + std::to_string(m) + ", w = " + std::to_string(word_bits) + ", " +
                     std::to_string(bytes) + " bytes");
        const Bytes content = random.bytes(bytes);
        char **data = nullptr, **parity = nullptr;
        std::uint64_t fragment_bytes = 0;
        ASSERT_EQ(liberasurecode_encode(descriptor, reinterpret_cast<const char *>(content.data()), bytes, &data,
                                        &parity, &fragment_bytes),
                  0);
        Shards want;
        for (int i = 0; i < k + m; ++i) {
          const auto *fragment = reinterpret_cast<const std::uint8_t *>(i < k ? data[i] : parity[i - k]);
          want.emplace_back(fragment + kHeaderBytes, fragment + fragment_bytes);
        }
        const Codec codec =
            codec_of({false, static_cast<unsigned>(word_bits), static_cast<unsigned>(k), static_cast<unsigned>(m)},
                     kPacketBytes);
        Shards shards = want;
        Bytes present(want.size(), 1);
        for (int i = k > m ? k - m : 0; i < k; ++i) {  // m of data
          present[static_cast<std::size_t>(i)] = 0;
          shards[static_cast<std::size_t>(i)].assign(want[0].size(), 0);
        }
        const auto pointers = pointers_to(shards);
        EXPECT_EQ(tandem_decode(context.get(), codec.get(), pointers.data(), present.data(), want[0].size()), TANDEM_OK)
            << tandem_last_error_message();
        EXPECT_TRUE(shards == want);
        liberasurecode_encode_cleanup(descriptor, data, parity);
      }
      liberasurecode_instance_destroy(descriptor);
    }
  }
}
#endif

}  // namespace
