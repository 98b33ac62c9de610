// SPDX-License-Identifier: Apache-2.0
// Fuzzer of the codec through the C API. The oracle is an independent computation: do the remaining shards determine
// the wanted ones? A decode must succeed if and only if they do, and then every byte must be right. Narrow codes over
// GF(2^8), wide codes by both techniques, codes over GF(2^16), codes in packets. Damage within the guarantee must be
// located and repaired.
//
//     clang++: cmake -DTANDEM_FUZZ=ON ..., then codec_fuzzer tests/fuzz/corpus
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/diagnose.h"
#include "tandem/tandem.h"
#include "tandem/tools.h"
#include "tests/reference.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/random.hpp"
#include "tests/support/reference16.hpp"
#include "tests/support/structs.hpp"

namespace tandem::test {
namespace {

constexpr unsigned kMostShards = 40;  // the oracle's elimination is slow on purpose
constexpr std::size_t kMostBytes = 5000, kLargeBytes = 40'000;
constexpr std::uint64_t kMostProducts = 200'000;  // of the slow reference of GF(2^16)
constexpr unsigned kMostShards16 = 4096, kMostPacketShards = 18;

// The input, read byte by byte; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t *data, std::size_t size) : data_(data), end_(data + size) {}
  std::uint8_t byte() { return data_ != end_ ? *data_++ : std::uint8_t{0}; }
  unsigned number() {
    const unsigned high = byte();
    return high << 8 | byte();
  }
  unsigned below(unsigned end) { return number() % end; }

 private:
  const std::uint8_t *data_, *end_;
};

[[noreturn]] void wrong(const std::string &what) {
  std::fprintf(stderr, "WRONG: %s (last message: %s)\n", what.c_str(), tandem_last_error_message());
  std::abort();
}

struct ContextDelete {
  void operator()(tandem_context *context) const { tandem_context_destroy(context); }
};
using Context = std::unique_ptr<tandem_context, ContextDelete>;

// The context of an available kernel, on one thread or on two, and with a technique. Made once.
tandem_context *context_of(unsigned number, const char *technique = "") {
  static const std::vector<std::string> names = [] {
    tandem_kernel kernels[32];
    std::size_t count = 0;
    if (tandem_kernels(kernels, 32, sizeof kernels[0], &count) != TANDEM_OK) wrong("tandem_kernels");
    std::vector<std::string> available;
    for (std::size_t i = 0; i < count; ++i)
      if (kernels[i].available) available.push_back(kernels[i].name);
    return available;
  }();
  static std::map<std::tuple<unsigned, unsigned, std::string>, Context> made;
  number %= 2 * static_cast<unsigned>(names.size());
  const unsigned kernel = number / 2, is_serial = number % 2;
  Context &context = made[{kernel, is_serial, technique}];
  if (context == nullptr) {
    auto options = sized<tandem_context_options>();
    options.kernel = names[kernel].c_str();
    std::string expert = is_serial != 0 ? "executor=serial" : "executor=pthread";
    if (*technique != 0) expert += std::string(",technique=") + technique;
    options.expert = expert.c_str();
    options.thread_count = 2;
    tandem_context *raw = nullptr;
    if (tandem_context_create(&options, &raw) != TANDEM_OK) wrong("tandem_context_create");
    context.reset(raw);
  }
  return context.get();
}

// k identity rows over the rows of parity.
template <class Rows>
Rows generator(unsigned k, const Rows &parity) {
  Rows rows(k, typename Rows::value_type(k));
  for (unsigned i = 0; i < k; ++i) rows[i][i] = 1;
  rows.insert(rows.end(), parity.begin(), parity.end());
  return rows;
}

template <class Row>
std::vector<Row> rows_of(const Row &cells, unsigned k) {
  std::vector<Row> rows;
  for (auto at = cells.begin(); at != cells.end(); at += k) rows.emplace_back(at, at + k);
  return rows;
}

// By plain elimination.
std::size_t rank16(const std::string &preset, reference16::Rows16 rows) {
  std::size_t rank = 0;
  for (std::size_t column = 0; !rows.empty() && column < rows[0].size(); ++column) {
    const auto pivot = std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(rank), rows.end(),
                                    [&](const auto &row) { return row[column] != 0; });
    if (pivot == rows.end()) continue;
    std::swap(rows[rank], *pivot);
    const std::uint16_t inverse = reference16::inverse(preset, rows[rank][column]);
    for (std::size_t r = rank + 1; r < rows.size(); ++r) {
      if (rows[r][column] == 0) continue;
      const std::uint16_t factor = reference16::multiply(preset, rows[r][column], inverse);
      for (std::size_t c = column; c < rows[r].size(); ++c)
        rows[r][c] ^= reference16::multiply(preset, factor, rows[rank][c]);
    }
    ++rank;
  }
  return rank;
}

// Whether the present shards determine the wanted ones.
using Oracle = std::function<bool(const Bytes &present, const Bytes &wanted)>;

// By the ranks of the rows of the present shards, without and with the wanted ones.
template <class Rows, class Rank>
bool spans(const Rows &rows, const Rank &rank, const Bytes &present, const Bytes &wanted) {
  Rows left;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (present[i]) left.push_back(rows[i]);
  Rows with_wanted = left;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (wanted[i]) with_wanted.push_back(rows[i]);
  return rank(left) == rank(with_wanted);
}

// Any k shards of an MDS code determine the others, fewer determine none.
bool has_k_shards(unsigned k, const Bytes &present, const Bytes &wanted) {
  return std::count(present.begin(), present.end(), 1) >= k || std::count(wanted.begin(), wanted.end(), 1) == 0;
}

// Whether every loss of m shards can be recovered from; by trying all, so for small codes only.
template <class Rows, class Rank>
bool every_loss_is_recoverable(const Rows &rows, const Rank &rank, unsigned k) {
  const auto n = static_cast<unsigned>(rows.size());
  for (unsigned kept = 0; kept < 1u << n; ++kept) {
    Rows left;
    for (unsigned i = 0; i < n; ++i)
      if (kept >> i & 1) left.push_back(rows[i]);
    if (left.size() == k && rank(left) != k) return false;
  }
  return true;
}

struct CodecDelete {
  void operator()(tandem_codec *codec) const { tandem_codec_destroy(codec); }
};
using Codec = std::unique_ptr<tandem_codec, CodecDelete>;

struct Loss {
  Bytes present, wanted;
  bool by_plan;
};

// The seed of the shards comes with it.
Loss read_loss(Input &input, unsigned count, bool by_plan, Random *random_out) {
  Loss loss{Bytes(count), Bytes(count), by_plan};
  const unsigned percent = input.below(101);
  Random &random = *random_out = Random(input.number());
  for (unsigned i = 0; i < count; ++i) {
    loss.present[i] = !random.chance(percent);
    loss.wanted[i] = !loss.present[i] && !random.chance(20);
  }
  // The last bytes of the input, where there are any, say it shard by shard.
  for (unsigned i = 0; i < count; ++i) {
    const std::uint8_t change = input.byte();
    if (change & 1) loss.present[i] = !loss.present[i];
    if (change & 2) loss.wanted[i] = !loss.wanted[i];
    if (loss.present[i]) loss.wanted[i] = 0;
  }
  return loss;
}

tandem_status decode_by_plan(tandem_context *context, const tandem_codec *codec, std::vector<void *> pointers,
                             const Loss &loss, std::size_t bytes, const Oracle &determined) {
  auto options = sized<tandem_plan_options>();
  options.operation = TANDEM_OPERATION_DECODE;
  options.present = loss.present.data();
  options.wanted = loss.wanted.data();
  tandem_plan *plan = nullptr;
  if (const tandem_status status = tandem_plan_create(context, codec, &options, &plan); status != TANDEM_OK)
    return status;
  auto info = sized<tandem_plan_info>();
  if (tandem_plan_query(plan, &info) != TANDEM_OK) wrong("tandem_plan_query");
  const Bytes read(info.shards_read, info.shards_read + pointers.size());
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    if (read[i] && !loss.present[i]) wrong("reads a missing shard");
    if (!read[i] && !loss.wanted[i]) pointers[i] = nullptr;
  }
  if (!determined(read, loss.wanted)) wrong("shards_read do not suffice");
  auto arguments = plan_arguments(pointers.data(), bytes);
  const tandem_status status = tandem_plan_run(plan, &arguments, nullptr);
  tandem_plan_destroy(plan);
  return status;
}

// truth: all shards. may_refuse: a technique is forced, which some operations lack.
void encode_and_decode(tandem_context *context, bool may_refuse, const tandem_codec *codec, const Shards &truth,
                       unsigned k, const Loss &loss, const Oracle &determined) {
  const std::size_t count = truth.size(), bytes = truth[0].size();
  Shards shards(truth.begin(), truth.begin() + k);
  shards.resize(count, Bytes(bytes, 0xdd));
  std::vector<void *> pointers;
  for (Bytes &shard : shards) pointers.push_back(shard.data());
  const tandem_status encoded = tandem_encode(context, codec, pointers.data(), pointers.data() + k, bytes);
  const bool is_refused = may_refuse && encoded == TANDEM_ERROR_UNSUPPORTED;
  if (encoded != TANDEM_OK && !is_refused) wrong("encode failed");
  for (std::size_t i = k; i < count; ++i) {
    if (shards[i] != (is_refused ? Bytes(bytes, 0xdd) : truth[i])) wrong("encode wrote shard " + std::to_string(i));
    std::copy(truth[i].begin(), truth[i].end(), shards[i].begin());
  }

  for (std::size_t i = 0; i < count; ++i) {
    if (loss.present[i]) continue;
    std::fill(shards[i].begin(), shards[i].end(), std::uint8_t{0xcc});
    if (!loss.wanted[i]) pointers[i] = nullptr;
  }
  const tandem_status status = loss.by_plan
                                   ? decode_by_plan(context, codec, pointers, loss, bytes, determined)
                                   : tandem_decode(context, codec, pointers.data(), loss.present.data(), bytes);
  const bool is_recoverable = determined(loss.present, loss.wanted);
  if (!(may_refuse && status == TANDEM_ERROR_UNSUPPORTED)) {
    if (is_recoverable && status != TANDEM_OK) wrong("recoverable, but decode failed");
    if (!is_recoverable && status != TANDEM_ERROR_NOT_RECOVERABLE) wrong("not recoverable, but decode did not say so");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_right = loss.present[i] || (status == TANDEM_OK && loss.wanted[i]);
    if (shards[i] != (is_right ? truth[i] : Bytes(bytes, 0xcc)))
      wrong("shard " + std::to_string(i) + " has wrong bytes");
  }
}

Shards random_data(Random &random, unsigned k, std::size_t bytes) {
  Shards shards;
  for (unsigned i = 0; i < k; ++i) shards.push_back(random.bytes(bytes));
  return shards;
}

// All shards over GF(2^8).
Shards stripe_of(Random &random, unsigned k, unsigned m, const Bytes &coefficients, std::size_t bytes) {
  Shards shards = random_data(random, k, bytes);
  std::vector<const std::uint8_t *> data;
  for (const Bytes &shard : shards) data.push_back(shard.data());
  for (Bytes &parity : expected(coefficients.data(), m, k, data.data(), bytes)) shards.push_back(std::move(parity));
  return shards;
}

constexpr unsigned kByPlan = 4, kLarge = 8, kWide = 0x10, kGf16 = 0x20, kPackets = kWide | kGf16, kGroups = 0x40,
                   kLocate = 0x80;  // flags

// Damages columns of a stripe within the guarantee: exactly that damage must be named and put right. losses: any so
// many can be rebuilt; 0: not known.
void damage_and_locate(Input &input, tandem_context *context, const tandem_codec *codec, unsigned k, unsigned m,
                       const Bytes &coefficients, unsigned losses) {
  const std::size_t bytes = 1 + input.below(300);
  Random random(input.number());
  const Shards truth = stripe_of(random, k, m, coefficients, bytes);
  Shards shards = truth;
  std::vector<void *> pointers;
  for (Bytes &shard : shards) pointers.push_back(shard.data());
  Bytes present(k + m, 1);
  const unsigned absent = std::min(input.below(3), m);
  for (unsigned i = 0; i < absent; ++i) {
    present[i] = 0;
    pointers[i] = nullptr;
  }
  const unsigned most = losses > absent ? (losses - absent) / 2 : 0;
  std::vector<std::uint64_t> damaged(k + m), named(k + m);
  for (std::size_t j = 0; j < bytes && most != 0; ++j) {
    for (const unsigned i : random.pick(input.below(most + 1), k + m)) {
      if (!present[i]) continue;
      shards[i][j] ^= static_cast<std::uint8_t>(1 + random.below(255));
      ++damaged[i];
    }
  }
  auto options = sized<tandem_locate_options>();
  options.present = present.data();
  options.repair = 1;
  options.damaged_bytes_out = named.data();
  auto result = sized<tandem_locate_result>();
  const tandem_status status = tandem_locate(context, codec, pointers.data(), bytes, &options, &result);
  if (status == TANDEM_ERROR_UNSUPPORTED || status == TANDEM_ERROR_NOT_RECOVERABLE) {
    if (status == TANDEM_ERROR_NOT_RECOVERABLE && absent < losses) wrong("shards that suffice do not");
    double sets = 1;
    for (unsigned i = 0; i + 1 < most; ++i) sets = sets * (k + m - absent - i) / (i + 1);
    if (status == TANDEM_ERROR_UNSUPPORTED && losses != 0 && sets <= 1e6)
      wrong("a code that can be located is refused");
    return;
  }
  if (status != TANDEM_OK) wrong("status of tandem_locate");
  if (losses == 0 || absent >= losses) return;
  if (result.most_damaged_shards != most) wrong("the guarantee");
  if (named != damaged || result.beyond_byte_count != 0) wrong("damage was not located");
  for (unsigned i = absent; i < k + m; ++i)
    if (shards[i] != truth[i]) wrong("damage was not repaired");
}

// The numbers of the presets over GF(2^8) without local groups, and one that no preset has.
const std::vector<std::int32_t> &plain_matrices() {
  static const std::vector<std::int32_t> all = [] {
    std::vector<std::int32_t> found;
    std::int32_t matrix = 0;
    for (; tandem_matrix_name(matrix) != nullptr; ++matrix)
      if (tandem_matrix_traits(matrix) == 0) found.push_back(matrix);
    found.push_back(matrix);
    return found;
  }();
  return all;
}

void run_narrow(Input &input, unsigned flags) {
  const bool custom = (flags & 1) && !(flags & kGroups), allow_non_mds = flags & 2;
  const unsigned k = 1 + input.below(kMostShards - 1), m = input.below(kMostShards - k + 1);
  const unsigned context = input.number();

  tandem_codec_options options = codec_options(
      k, m,
      custom ? TANDEM_MATRIX_CUSTOM : plain_matrices()[input.below(static_cast<unsigned>(plain_matrices().size()))]);
  if (flags & kGroups) {
    options.matrix = TANDEM_MATRIX_LRC_AZURE + options.matrix % 2;
    options.local_groups = input.below(std::min(k, m) + 2);
  }
  options.allow_non_mds = allow_non_mds;
  Bytes coefficients(std::size_t{k} * m);
  if (custom) {
    for (std::uint8_t &cell : coefficients) cell = input.byte();
    options.coefficients = coefficients.data();
  }
  tandem_codec *raw = nullptr;
  const tandem_status made = tandem_codec_create(&options, &raw);
  const Codec codec(raw);
  if (made != TANDEM_OK) {
    if (raw != nullptr) wrong("a codec and an error");
    if (made != TANDEM_ERROR_NOT_MDS && made != TANDEM_ERROR_INVALID_ARGUMENT) wrong("status of tandem_codec_create");
    if (custom && made != TANDEM_ERROR_NOT_MDS) wrong("a custom matrix was refused for another reason");
    if (made == TANDEM_ERROR_NOT_MDS && allow_non_mds) wrong("NOT_MDS though it was allowed");
    if (custom && k + m <= 9 && every_loss_is_recoverable(generator(k, rows_of(coefficients, k)), reference::rank, k))
      wrong("an MDS matrix was refused");
    return;
  }
  Bytes read_back(coefficients.size());
  if (tandem_codec_coefficients(codec.get(), read_back.data(), read_back.size()) != TANDEM_OK) wrong("coefficients");
  if (custom && read_back != coefficients) wrong("the custom matrix came back changed");
  coefficients = read_back;
  const reference::Rows parity = rows_of(coefficients, k), rows = generator(k, parity);
  if (flags & kLocate) {
    const unsigned losses = flags & kGroups ? m - options.local_groups + 1 : allow_non_mds ? 0 : m;
    return damage_and_locate(input, context_of(context), codec.get(), k, m, coefficients, losses);
  }
  if (!custom && !(flags & kGroups) && parity != reference::parity_rows(tandem_matrix_name(options.matrix), k, m))
    wrong("coefficients of a preset");
  if (!allow_non_mds && !(flags & kGroups) && k + m <= 9 && !every_loss_is_recoverable(rows, reference::rank, k))
    wrong("a matrix that is not MDS was accepted");

  const std::size_t bytes = 1 + input.below(kMostBytes) + (flags & kLarge ? kLargeBytes : 0);
  Random random(0);
  const Loss loss = read_loss(input, k + m, flags & kByPlan, &random);
  encode_and_decode(
      context_of(context), false, codec.get(), stripe_of(random, k, m, coefficients, bytes), k, loss,
      [&](const Bytes &present, const Bytes &wanted) { return spans(rows, reference::rank, present, wanted); });
}

// A Cauchy code of any width: by its matrix, by transforms and by whichever costs less, all with the bytes of the
// formula.
void run_wide(Input &input, unsigned flags) {
  const unsigned k = 1 + input.below(255), m = 1 + input.below(256 - k), context = input.number();
  const tandem_codec_options options = codec_options(k, m, TANDEM_MATRIX_ISAL_CAUCHY);
  tandem_codec *raw = nullptr;
  if (tandem_codec_create(&options, &raw) != TANDEM_OK) wrong("a Cauchy code was refused");
  const Codec codec(raw);
  Bytes coefficients;
  for (unsigned r = 0; r < m; ++r)
    for (unsigned c = 0; c < k; ++c) coefficients.push_back(reference::inverse(static_cast<std::uint8_t>((k + r) ^ c)));
  const std::size_t bytes = 1 + input.below(flags & kLarge ? 3000 : 300);
  Random random(0);
  const Loss loss = read_loss(input, k + m, flags & kByPlan, &random);
  const Shards truth = stripe_of(random, k, m, coefficients, bytes);
  for (const char *technique : {"matrix", "transform", ""})
    encode_and_decode(context_of(context, technique), *technique == 't', codec.get(), truth, k, loss,
                      [&](const Bytes &present, const Bytes &wanted) { return has_k_shards(k, present, wanted); });
}

// What tandem.h says of each preset over GF(2^16).
tandem_status allowed16(std::int32_t matrix, std::uint64_t k, std::uint64_t m, bool allow_non_mds) {
  if (k == 0 || k + m > 65536) return TANDEM_ERROR_INVALID_ARGUMENT;
  const std::uint64_t data = std::bit_ceil(k), parity = std::bit_ceil(std::max<std::uint64_t>(m, 1));
  const bool is_low = matrix == TANDEM_MATRIX_REED_SOLOMON_SIMD && (data < parity || (data == parity && k > m));
  switch (matrix) {
    case TANDEM_MATRIX_PAR2:
      if (k > 32768) return TANDEM_ERROR_INVALID_ARGUMENT;
      if (m > 3 && k > 2 && !allow_non_mds) return TANDEM_ERROR_NOT_MDS;
      return TANDEM_OK;
    case TANDEM_MATRIX_LIBERASURECODE_RS_VAND:
      return k + m > 32 ? TANDEM_ERROR_INVALID_ARGUMENT : TANDEM_OK;
    default:
      return (is_low ? data + m : k + parity) > 65536 ? TANDEM_ERROR_INVALID_ARGUMENT : TANDEM_OK;
  }
}

void run_gf16(Input &input, unsigned flags) {
  const bool custom = flags & 1, allow_non_mds = flags & 2, any_size = flags & kLarge;
  std::uint32_t k, m;
  if (any_size) {
    k = input.number() << (input.byte() % 17);
    m = input.number() << (input.byte() % 17);
  } else {
    k = 1 + input.below(kMostShards - 1);
    m = input.below(kMostShards - k + 1);
  }
  const unsigned context = input.number();
  tandem_codec_options options = codec_options(
      k, m, custom ? TANDEM_MATRIX_CUSTOM : TANDEM_MATRIX_LEOPARD16 + static_cast<std::int32_t>(input.below(4)));
  options.field = TANDEM_FIELD_GF16;
  options.allow_non_mds = allow_non_mds;
  std::vector<std::uint16_t> cells(any_size ? 0 : std::size_t{k} * m);
  if (custom) {
    for (std::uint16_t &cell : cells) cell = static_cast<std::uint16_t>(input.number());
    options.coefficients = cells.empty() ? nullptr : cells.data();
  }
  tandem_codec *raw = nullptr;
  const tandem_status made = tandem_codec_create(&options, &raw);
  const Codec codec(raw);
  if ((made == TANDEM_OK) != (raw != nullptr)) wrong("a codec and an error, or neither");
  const std::string preset = custom ? "custom" : tandem_matrix_name(options.matrix);
  const auto rank = [&](const reference16::Rows16 &rows) { return rank16(preset, rows); };
  if (!custom && made != allowed16(options.matrix, k, m, allow_non_mds)) wrong("status of tandem_codec_create");
  if (custom && !any_size && made != TANDEM_OK) {
    if (made != TANDEM_ERROR_NOT_MDS || allow_non_mds) wrong("a custom matrix was refused for another reason");
    if (k + m <= 9 && every_loss_is_recoverable(generator(k, rows_of(cells, k)), rank, k))
      wrong("an MDS matrix was refused");
  }
  const std::uint64_t bytes = 1 + input.below(200), products = std::uint64_t{k} * m * bytes / 2;
  if (made != TANDEM_OK || products > kMostProducts || k + m > kMostShards16) return;

  const reference16::Rows16 parity = custom ? rows_of(cells, k) : reference16::parity_rows(preset, k, m);
  std::vector<std::uint16_t> read_back(std::size_t{k} * m);
  if (tandem_codec_coefficients(codec.get(), read_back.data(), 2 * read_back.size()) != TANDEM_OK)
    wrong("coefficients");
  if (rows_of(read_back, k) != parity) wrong("coefficients of " + preset);
  const bool by_rank = k + m <= kMostShards;
  const reference16::Rows16 rows = by_rank ? generator(k, parity) : reference16::Rows16();
  if (custom && !allow_non_mds && k + m <= 9 && !every_loss_is_recoverable(rows, rank, k))
    wrong("a matrix that is not MDS was accepted");

  if (!by_rank && preset == "par2" && m > 3) return;  // not MDS
  Random random(0);
  const Loss loss = read_loss(input, k + m, flags & kByPlan, &random);
  Shards truth = random_data(random, k, bytes);
  if (bytes % 2 != 0) {
    truth.resize(k + m, Bytes(bytes, 0xdd));
    std::vector<void *> pointers;
    for (Bytes &shard : truth) pointers.push_back(shard.data());
    const tandem_status status =
        tandem_encode(context_of(context), codec.get(), pointers.data(), pointers.data() + k, bytes);
    if (m != 0 && status != TANDEM_ERROR_INVALID_ARGUMENT) wrong("half an element was taken");
    for (std::size_t i = k; i < k + m; ++i)
      if (truth[i] != Bytes(bytes, 0xdd)) wrong("a refused encode wrote");
    return;
  }
  for (Bytes &each : reference16::apply(preset, parity, truth)) truth.push_back(std::move(each));
  encode_and_decode(context_of(context), false, codec.get(), truth, k, loss,
                    [&](const Bytes &present, const Bytes &wanted) {
                      return by_rank ? spans(rows, rank, present, wanted) : has_k_shards(k, present, wanted);
                    });
}

// What tandem.h says of packets.
tandem_status allowed_packets(const tandem_codec_options &options, unsigned word_bits) {
  const unsigned most = options.field == TANDEM_FIELD_GF16 ? 65536 : 256;
  if (options.k + options.m > most) return TANDEM_ERROR_INVALID_ARGUMENT;
  const bool is_wide = options.field == TANDEM_FIELD_GF16;
  if (is_wide ? word_bits != 16 : word_bits != 4 && word_bits != 8) return TANDEM_ERROR_INVALID_ARGUMENT;
  if (options.packet_bytes == 0 || options.packet_bytes % 8 != 0 ||
      options.packet_bytes > (std::uint64_t{1} << 32) / word_bits)
    return TANDEM_ERROR_INVALID_ARGUMENT;
  if (options.matrix != TANDEM_MATRIX_JERASURE_CAUCHY_ORIG && options.matrix != TANDEM_MATRIX_JERASURE_CAUCHY_GOOD &&
      options.matrix != TANDEM_MATRIX_CUSTOM)
    return TANDEM_ERROR_INVALID_ARGUMENT;
  if (options.matrix != TANDEM_MATRIX_CUSTOM && word_bits == 4 && options.k + options.m > 16)
    return TANDEM_ERROR_INVALID_ARGUMENT;
  return TANDEM_OK;
}

void run_packets(Input &input, unsigned flags) {
  const bool custom = flags & 1, allow_non_mds = flags & 2;
  constexpr unsigned kWordBits[] = {8, 4, 16, 0, 5};
  const unsigned given_bits = kWordBits[input.byte() % 5];
  const unsigned k = 1 + input.below(kMostPacketShards - 1), m = input.below(kMostPacketShards - k + 1);
  const unsigned context = input.number();
  tandem_codec_options options = codec_options(
      k, m,
      custom ? TANDEM_MATRIX_CUSTOM : TANDEM_MATRIX_JERASURE_VANDERMONDE + static_cast<std::int32_t>(input.below(4)));
  options.layout = TANDEM_LAYOUT_PACKETS;
  options.field = given_bits == 16 ? TANDEM_FIELD_GF16 : TANDEM_FIELD_GF8;
  if (flags & kLarge) options.field ^= TANDEM_FIELD_GF16;
  options.word_bits = given_bits;
  const unsigned word_bits = given_bits != 0 ? given_bits : options.field == TANDEM_FIELD_GF16 ? 16 : 8;
  const unsigned packets = input.number();
  options.packet_bytes = packets >= 0xff00 ? std::uint64_t{packets - 0xff00} << 28 : packets % 320;
  options.allow_non_mds = allow_non_mds;
  Bytes bytes_of_cells(std::size_t{k} * m);
  std::vector<std::uint16_t> words_of_cells(bytes_of_cells.size());
  reference::Numbers rows(m, std::vector<unsigned>(k));
  bool is_of_field = true;
  for (std::size_t i = 0; custom && i < bytes_of_cells.size(); ++i) {
    words_of_cells[i] = static_cast<std::uint16_t>(input.number());
    bytes_of_cells[i] = static_cast<std::uint8_t>(word_bits == 4 ? words_of_cells[i] % 17 : words_of_cells[i]);
    is_of_field = is_of_field && (word_bits != 4 || bytes_of_cells[i] < 16);
    rows[i / k][i % k] = word_bits == 16 ? words_of_cells[i] : bytes_of_cells[i];
  }
  if (custom && m != 0)
    options.coefficients = word_bits == 16 ? static_cast<const void *>(words_of_cells.data()) : bytes_of_cells.data();
  tandem_codec *raw = nullptr;
  const tandem_status made = tandem_codec_create(&options, &raw);
  const Codec codec(raw);
  if ((made == TANDEM_OK) != (raw != nullptr)) wrong("a codec and an error, or neither");
  tandem_status allowed = allowed_packets(options, word_bits);
  if (allowed == TANDEM_OK && !is_of_field) allowed = TANDEM_ERROR_INVALID_ARGUMENT;
  if (made != allowed && !(custom && made == TANDEM_ERROR_NOT_MDS && !allow_non_mds && allowed == TANDEM_OK))
    wrong("status of tandem_codec_create for packets");
  const auto rank = [&](const reference::Numbers &of) { return reference::packet_rank(word_bits, of); };
  if (allowed != TANDEM_OK || options.packet_bytes > 320) return;
  if (!custom) rows = reference::jerasure_rows(tandem_matrix_name(options.matrix), word_bits, k, m);
  const reference::Numbers all = generator(k, rows);
  if (custom && k + m <= 9) {
    const bool is_mds = every_loss_is_recoverable(all, rank, k);
    if (made == TANDEM_ERROR_NOT_MDS && is_mds) wrong("an MDS matrix was refused");
    if (made == TANDEM_OK && !allow_non_mds && !is_mds) wrong("a matrix that is not MDS was accepted");
  }
  if (made != TANDEM_OK) return;

  const std::size_t group_bytes = word_bits * options.packet_bytes;
  const std::size_t groups = 1 + input.below(static_cast<unsigned>(1 + kMostBytes / group_bytes));
  const std::size_t bytes = groups * group_bytes;
  Random random(0);
  const Loss loss = read_loss(input, k + m, flags & kByPlan, &random);
  Shards truth = random_data(random, k, bytes);
  for (Bytes &each : reference::apply_packets(word_bits, options.packet_bytes, rows, truth))
    truth.push_back(std::move(each));
  std::vector<void *> pointers;
  for (Bytes &shard : truth) pointers.push_back(shard.data());
  const std::size_t odd = bytes - 1 - random.below(group_bytes - 1);
  if (m != 0 && tandem_encode(context_of(context), codec.get(), pointers.data(), pointers.data() + k, odd) !=
                    TANDEM_ERROR_INVALID_ARGUMENT)
    wrong("a part of a group was taken");
  const char *const technique = flags & kLocate ? "matrix" : "";
  encode_and_decode(context_of(context, technique), false, codec.get(), truth, k, loss,
                    [&](const Bytes &present, const Bytes &wanted) { return spans(all, rank, present, wanted); });
}

void run(Input input) {
  const unsigned flags = input.byte();
  if ((flags & kPackets) == kPackets) {
    run_packets(input, flags);
  } else if (flags & kGf16) {
    run_gf16(input, flags);
  } else if (flags & kWide) {
    run_wide(input, flags);
  } else {
    run_narrow(input, flags);
  }
}

}  // namespace
}  // namespace tandem::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  tandem::test::run(tandem::test::Input(data, size));
  return 0;
}
