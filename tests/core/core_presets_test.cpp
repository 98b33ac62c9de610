// SPDX-License-Identifier: Apache-2.0
// Every preset must reproduce the bytes of the program in its name, on its whole range. It must be MDS exactly where it
// says so.
#include "core/presets.hpp"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "tandem/tandem.h"
#include "tests/core/plain_presets.hpp"
#include "tests/core/rows.hpp"
#include "tests/support/slice.hpp"
#include "tests/support/structs.hpp"

namespace tandem::core {
namespace {

using reference::Bytes;
using reference::Rows;

std::string hex(const std::uint8_t *bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

// OpenSSL's libcrypto, in this test only: the one MD5 that every distribution has and keeps.
std::string md5(const Bytes &bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned digest_bytes = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &digest_bytes, EVP_md5(), nullptr) != 1) return "no MD5";
  return hex(digest, digest_bytes);
}

nlohmann::json golden_vectors() {
  std::ifstream file(std::string(TANDEM_TEST_DATA_DIR) + "/golden.json");
  return nlohmann::json::parse(file).at("vectors");
}

const Preset *golden_preset(const std::string &golden_name) {
  if (golden_name == "raid6-pq") return find_preset("raid6");
  if (golden_name == "zfs-raidz3") return find_preset("zfs-raidz");
  return find_preset(golden_name);
}

// The largest range that each preset accepts; PEERS' limits.
bool is_in_range(const std::string &name, unsigned k, unsigned m) {
  const unsigned total = name == "liberasurecode-isal-vand-inv" || name == "hdfs-rs-legacy" ? 255 : 256;
  if (k + m > total) return false;
  if (name == "raid6") return m <= 2;
  if (name == "zfs-raidz" || name == "snapraid-vandermonde") return m <= 3;
  if (name == "snapraid-cauchy") return m <= 6 && k <= 251;
  return true;
}

Rows encoded_in_packets(std::int32_t matrix, unsigned k, unsigned m, const Rows &data) {
  tandem_codec_options options = test::codec_options(k, m, matrix);
  options.layout = TANDEM_LAYOUT_PACKETS;
  options.packet_bytes = 8;
  tandem_codec *codec = nullptr;
  EXPECT_EQ(tandem_codec_create(&options, &codec), TANDEM_OK) << tandem_last_error_message();
  Rows parity(m, Bytes(data[0].size()));
  std::vector<const void *> inputs;
  std::vector<void *> outputs;
  for (const Bytes &shard : data) inputs.push_back(shard.data());
  for (Bytes &shard : parity) outputs.push_back(shard.data());
  tandem_context *context = nullptr;
  EXPECT_EQ(tandem_context_create(nullptr, &context), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(tandem_encode(context, codec, inputs.data(), outputs.data(), data[0].size()), TANDEM_OK)
      << tandem_last_error_message();
  tandem_codec_destroy(codec);
  tandem_context_destroy(context);
  return parity;
}

TEST(GoldenVectors, MatricesAndParityBytes) {
  std::map<std::string, unsigned> vector_count;
  for (const auto &vector : golden_vectors()) {
    const auto golden_name = vector.at("preset").get<std::string>();
    const unsigned k = vector.at("k"), m = vector.at("m");
    SCOPED_TRACE(golden_name + " k = " + std::to_string(k) + " m = " + std::to_string(m));
    const Preset *preset = golden_preset(golden_name);
    ASSERT_NE(preset, nullptr);
    ++vector_count[preset->name];

    const Matrix matrix = preset->make(k, m);
    ASSERT_EQ(rows_of(matrix), vector.at("matrix").get<Rows>());

    Rows data(k, Bytes(64));
    for (unsigned i = 0; i < k; ++i) {
      for (unsigned j = 0; j < 64; ++j) data[i][j] = static_cast<std::uint8_t>(17 * i + 5 * j + 3 * i * j + 1);
    }
    // Those of Jerasure's Cauchy codes are packets of 8 bytes.
    const bool is_packets = golden_name.starts_with("jerasure-cauchy-");
    const Rows parity = is_packets
                            ? reference::apply_packets(8, 8, reference::jerasure_rows(golden_name, 8, k, m), data)
                            : reference::apply(matrix.data(), m, k, data, 64);
    if (is_packets) {
      EXPECT_EQ(encoded_in_packets(preset->value, k, m, data), parity);
    }
    Bytes all;
    for (const Bytes &shard : parity) all.insert(all.end(), shard.begin(), shard.end());
    EXPECT_EQ(md5(all), vector.at("parity_md5").get<std::string>());
    EXPECT_EQ(hex(parity.front().data(), 16), vector.at("first_parity_16").get<std::string>());
    EXPECT_EQ(hex(parity.back().data(), 16), vector.at("last_parity_16").get<std::string>());
  }
  for (const Preset &preset : test::plain_presets())
    EXPECT_GE(vector_count[preset.name], 3u) << preset.name << " has no vectors";
}

// Also the largest codes; definitions that invert k x k matrices are slow in the reference, so these have small k.
TEST(Presets, FollowTheirDefinitionToTheEndOfTheirRange) {
  for (const Preset &preset : test::plain_presets()) {
    const std::string name = preset.name;
    const bool has_few = name == "raid6" || name == "zfs-raidz" || name.starts_with("snapraid-");
    unsigned m = !has_few ? 252 : name == "raid6" ? 2 : name == "snapraid-cauchy" ? 5 : 3;
    const unsigned k = has_few ? 256 - m : 4;
    if (!is_in_range(name, k, m)) --m;
    ASSERT_TRUE(is_in_range(name, k, m)) << name;
    for (const auto &[data, parity] : {std::pair{k, m}, {1u, 0u}, {1u, 4u}, {5u, 3u}, {7u, 2u}, {17u, 30u}})
      if (is_in_range(name, data, parity)) {
        ASSERT_EQ(rows_of(preset.make(data, parity)), reference::parity_rows(name, data, parity))
            << name << " k = " << data << " m = " << parity;
      }
  }
}

TEST(Presets, RefuseWhatTheirFormulaDoesNotHave) {
  for (const Preset &preset : test::plain_presets()) {
    for (const auto &[k, m] :
         {std::pair{0u, 1u}, {1u, 255u}, {1u, 256u}, {255u, 1u}, {255u, 2u}, {254u, 2u},        {251u, 5u},
          {252u, 4u},        {253u, 3u}, {250u, 6u}, {249u, 7u}, {10u, 3u},  {10u, 4u},         {10u, 6u},
          {10u, 7u},         {256u, 0u}, {255u, 0u}, {252u, 0u}, {257u, 0u}, {4294967295u, 2u}, {2u, 4294967295u}}) {
      const bool expected = k >= 1 && k <= 256 && m <= 256 && is_in_range(preset.name, k, m);
      bool accepted = true;
      try {
        const Matrix matrix = preset.make(k, m);
        EXPECT_EQ(matrix.rows(), m);
        EXPECT_EQ(matrix.columns(), k);
      } catch (const base::Error &error) {
        accepted = false;
        EXPECT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(error.what()).find(preset.name), std::string::npos) << error.what();
      }
      EXPECT_EQ(accepted, expected) << preset.name << " k = " << k << " m = " << m;
    }
  }
}

// is_mds against every minor, on all codes small enough.
TEST(MdsLimits, AgreeWithEveryMinorOfSmallCodes) {
  for (const Preset &preset : test::plain_presets()) {
    for (unsigned k = 1; k <= 24; ++k) {
      for (unsigned m = 1; m <= 24; ++m) {
        if (!is_in_range(preset.name, k, m)) continue;
        const MdsProof proof = prove_mds(preset.make(k, m), 30'000);
        if (proof == MdsProof::too_large) continue;
        ASSERT_EQ(preset.is_mds(k, m), proof == MdsProof::proven) << preset.name << " k = " << k << " m = " << m;
      }
    }
  }
}

TEST(MdsLimits, OfIsalVandermondeAreExact) {
  const Preset &preset = *find_preset("isal-vandermonde");
  // The smallest codes outside the limits: each larger code contains one of them.
  for (const auto &[k, m] : {std::pair{4u, 22u}, {5u, 6u}, {6u, 5u}, {22u, 4u}}) {
    EXPECT_EQ(prove_mds(preset.make(k, m)), MdsProof::refuted) << k << ", " << m;
    EXPECT_FALSE(preset.is_mds(k, m)) << k << ", " << m;
  }
  // The largest inside.
  for (const auto &[k, m] : {std::pair{4u, 21u}, {5u, 5u}, {21u, 4u}, {253u, 3u}, {3u, 253u}}) {
    EXPECT_EQ(prove_mds(preset.make(k, m), 3'000'000), MdsProof::proven) << k << ", " << m;
    EXPECT_TRUE(preset.is_mds(k, m)) << k << ", " << m;
  }
  for (unsigned k = 1; k < 256; ++k) {
    for (unsigned m = 1; k + m <= 256; ++m) {
      const bool contains_a_bad_one =
          (k >= 4 && m >= 22) || (k >= 5 && m >= 6) || (k >= 6 && m >= 5) || (k >= 22 && m >= 4);
      ASSERT_EQ(preset.is_mds(k, m), !contains_a_bad_one) << k << ", " << m;
    }
  }
}

TEST(MdsLimits, OfPar1AreExact) {
  const Preset &preset = *find_preset("par1");
  EXPECT_EQ(prove_mds(preset.make(3, 4)), MdsProof::refuted);
  EXPECT_EQ(prove_mds(preset.make(2, 254)), MdsProof::proven);
  EXPECT_EQ(prove_mds(preset.make(253, 3), 3'000'000), MdsProof::proven);
  for (unsigned k = 1; k < 256; ++k) {
    for (unsigned m = 1; k + m <= 256; ++m) ASSERT_EQ(preset.is_mds(k, m), !(k >= 3 && m >= 4)) << k << ", " << m;
  }
}

TEST(MdsLimits, OfThePresetsWithFewParitiesHoldAtTheirLargest) {
  EXPECT_EQ(prove_mds(find_preset("raid6")->make(254, 2)), MdsProof::proven);
  EXPECT_EQ(prove_mds(find_preset("zfs-raidz")->make(253, 3), 3'000'000), MdsProof::proven);
  EXPECT_EQ(prove_mds(find_preset("snapraid-vandermonde")->make(253, 3), 3'000'000), MdsProof::proven);
  EXPECT_EQ(prove_mds(find_preset("snapraid-cauchy")->make(251, 3), 3'000'000), MdsProof::proven);
  EXPECT_EQ(prove_mds(find_preset("jerasure-cauchy-good")->make(254, 2)), MdsProof::proven);
}

// find_cauchy_form proves MDS without counting minors, so it carries the claim to the largest codes.
TEST(MdsLimits, OfCauchyPresetsHoldUpToTheEndOfTheirRange) {
  for (const Preset &preset : test::plain_presets()) {
    for (const auto &[k, m] : {std::pair{2u, 2u},
                               {10u, 4u},
                               {128u, 128u},
                               {127u, 128u},
                               {2u, 254u},
                               {254u, 2u},
                               {2u, 253u},
                               {253u, 2u},
                               {250u, 6u},
                               {251u, 5u},
                               {249u, 6u},
                               {253u, 3u},
                               {252u, 3u}}) {
      if (!is_in_range(preset.name, k, m)) continue;
      const bool found = find_cauchy_form(preset.make(k, m)).has_value();
      if (test::is_cauchy(preset)) {
        ASSERT_TRUE(found) << preset.name << " k = " << k << " m = " << m;
        ASSERT_TRUE(preset.is_mds(k, m));
      } else if (m > 2 && k > 2) {
        ASSERT_FALSE(found) << preset.name << " k = " << k << " m = " << m;
      }
    }
  }
}

// The natural points of a preset and the scales that one row and one column give describe every cell.
TEST(NaturalPoints, GiveTheWholeMatrix) {
  test::Slice slice(20);
  unsigned presets_with_points = 0;
  for (const Preset &preset : test::plain_presets()) {
    if (preset.points == nullptr) continue;
    ++presets_with_points;
    for (unsigned k = 1; k < 256; ++k) {
      for (const unsigned m : {1u, 2u, 3u, 4u, 256 - k}) {
        if (k + m > 256 || !slice.takes()) continue;
        const std::vector<std::uint16_t> points = preset.points(k, m);
        if (points.empty()) continue;
        ASSERT_EQ(points.size(), k + m);
        ASSERT_TRUE(std::is_sorted(points.begin(), points.begin() + k));
        ASSERT_TRUE(std::is_sorted(points.begin() + k, points.end()));
        const Matrix matrix = preset.make(k, m);
        const CauchyForm form = cauchy_form_at(matrix, points);
        for (unsigned r = 0; r < m; ++r)
          for (unsigned c = 0; c < k; ++c)
            ASSERT_EQ(reference::multiply(reference::multiply(matrix.at(r, c), form.scales[c]),
                                          static_cast<std::uint8_t>(points[k + r] ^ points[c])),
                      form.scales[k + r])
                << preset.name << " (" << k << ", " << m << ") at " << r << ", " << c;
      }
    }
  }
  EXPECT_EQ(presets_with_points, 4u);
}

}  // namespace
}  // namespace tandem::core
