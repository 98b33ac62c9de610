// SPDX-License-Identifier: Apache-2.0
// Every operation, by every call, of every kind of code, with every kernel and executor, is what the slow reference
// says. The cases are random: codes, lengths, places in memory, which shards are lost, wanted and damaged.
#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include "tandem/diagnose.h"
#include "tandem/tools.h"
#include "tests/support/calls.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/reference16.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using reference::Numbers;

// A code, and what is true of it by its definition.
struct Code {
  std::string name;
  tandem_codec_options options;
  Numbers rows;
  std::size_t unit_bytes, group_bytes;  // a shard may have any multiple of units; groups are coded apart
  bool is_mds;

  unsigned k() const { return options.k; }
  unsigned m() const { return options.m; }
  unsigned word_bits() const {
    return options.word_bits != 0 ? options.word_bits : options.field == TANDEM_FIELD_GF16 ? 16 : 8;
  }
  bool has_packets() const { return options.layout == TANDEM_LAYOUT_PACKETS; }

  Codec make() const {
    tandem_codec_options with = options;
    Bytes bytes;
    std::vector<std::uint16_t> words;
    for (const auto &row : rows) {
      bytes.insert(bytes.end(), row.begin(), row.end());
      words.insert(words.end(), row.begin(), row.end());
    }
    const bool is_wide = options.field == TANDEM_FIELD_GF16;
    if (with.matrix == TANDEM_MATRIX_CUSTOM)
      with.coefficients = is_wide ? static_cast<const void *>(words.data()) : bytes.data();
    Codec codec = make_codec(with);
    std::vector<std::uint16_t> wide_cells(words.size());
    Bytes cells(bytes.size());
    EXPECT_EQ(is_wide ? tandem_codec_coefficients(codec.get(), wide_cells.data(), 2 * words.size())
                      : tandem_codec_coefficients(codec.get(), cells.data(), bytes.size()),
              TANDEM_OK);
    EXPECT_TRUE(is_wide ? wide_cells == words : cells == bytes) << name << ": the matrix of the reference";
    return codec;  // the coefficients were copied
  }

  Shards parity(const Shards &data) const {
    if (has_packets()) return reference::apply_packets(word_bits(), options.packet_bytes, rows, data);
    if (options.field == TANDEM_FIELD_GF16) {
      reference16::Rows16 wide;
      for (const auto &row : rows) wide.emplace_back(row.begin(), row.end());
      return reference16::apply(tandem_matrix_name(options.matrix), wide, data);
    }
    Bytes cells;
    std::vector<const std::uint8_t *> inputs;
    for (const auto &row : rows) cells.insert(cells.end(), row.begin(), row.end());
    for (const Bytes &shard : data) inputs.push_back(shard.data());
    return expected(cells.data(), m(), k(), inputs.data(), data[0].size());
  }

  bool is_recoverable(const Bytes &present) const {
    if (is_mds) return std::ranges::count(present, 1) >= k();
    Numbers left;
    for (unsigned i = 0; i < k() + m(); ++i) {
      if (present[i] == 0) continue;
      left.push_back(i < k() ? std::vector<unsigned>(k()) : rows[i - k()]);
      if (i < k()) left.back()[i] = 1;
    }
    return reference::packet_rank(word_bits(), left) == k();
  }
};

Code of_bytes(std::int32_t matrix, unsigned k, unsigned m) {
  const std::string name = tandem_matrix_name(matrix);
  Code code{name, codec_options(k, m, matrix), {}, 1, 1, true};
  code.options.allow_non_mds = 1;
  if (tandem_matrix_traits(matrix) & TANDEM_MATRIX_IS_GF16) code.options.field = TANDEM_FIELD_GF16;
  code.is_mds = name != "par1" && name != "par2" && name != "isal-vandermonde";
  if (code.options.field == TANDEM_FIELD_GF16) {
    for (const auto &row : reference16::parity_rows(name, k, m)) code.rows.emplace_back(row.begin(), row.end());
    code.unit_bytes = code.group_bytes = 2;
    if (name == "leopard16" || name == "reed-solomon-simd") code.group_bytes = 64;
  } else {
    for (const auto &row : reference::parity_rows(name, k, m)) code.rows.emplace_back(row.begin(), row.end());
  }
  return code;
}

Code of_packets(const char *preset, unsigned word_bits, std::uint64_t packet_bytes, unsigned k, unsigned m) {
  Code code{preset, codec_options(k, m), {}, word_bits * packet_bytes, word_bits * packet_bytes, true};
  code.name += ", " + std::to_string(word_bits) + " packets of " + std::to_string(packet_bytes);
  EXPECT_EQ(tandem_matrix_from_name(preset, &code.options.matrix), TANDEM_OK);
  code.options.field = word_bits == 16 ? TANDEM_FIELD_GF16 : TANDEM_FIELD_GF8;
  code.options.layout = TANDEM_LAYOUT_PACKETS;
  code.options.word_bits = word_bits;
  code.options.packet_bytes = packet_bytes;
  code.rows = reference::jerasure_rows(preset, word_bits, k, m);
  return code;
}

// The same place and layout with this matrix, of which some survivors are not enough.
Code custom(Code code, Numbers rows) {
  code.name = "custom, as " + code.name;
  code.options.matrix = TANDEM_MATRIX_CUSTOM;
  code.options.allow_non_mds = 1;
  code.options.k = static_cast<std::uint32_t>(rows[0].size());
  code.options.m = static_cast<std::uint32_t>(rows.size());
  code.rows = std::move(rows);
  code.is_mds = false;
  return code;
}

std::vector<Code> small_codes() {
  const Code wide = of_bytes(TANDEM_MATRIX_PAR2, 2, 2);
  const Numbers singular = {{1, 1, 1, 0}, {1, 7, 0, 5}};
  return {of_bytes(TANDEM_MATRIX_ISAL_CAUCHY, 4, 3),
          of_bytes(TANDEM_MATRIX_ISAL_CAUCHY, 5, 2),
          of_bytes(TANDEM_MATRIX_ISAL_CAUCHY, 1, 4),
          of_bytes(TANDEM_MATRIX_ISAL_CAUCHY, 6, 1),
          of_bytes(TANDEM_MATRIX_LEOPARD16, 4, 3),
          of_bytes(TANDEM_MATRIX_REED_SOLOMON_SIMD, 3, 4),
          of_bytes(TANDEM_MATRIX_PAR2, 5, 3),
          of_packets("jerasure-cauchy-good", 8, 16, 4, 3),
          of_packets("jerasure-cauchy-orig", 4, 16, 5, 3),
          of_packets("jerasure-cauchy-good", 16, 16, 3, 3),
          custom(of_bytes(TANDEM_MATRIX_ISAL_CAUCHY, 4, 2), {{1, 1, 0, 0}, {0, 0, 1, 1}}),
          custom(wide, {{1, 2, 3}, {1, 0, 517}}),
          custom(of_packets("jerasure-cauchy-orig", 4, 24, 4, 2), singular),
          custom(of_packets("jerasure-cauchy-orig", 8, 24, 4, 2), singular),
          custom(of_packets("jerasure-cauchy-orig", 16, 24, 4, 2), singular)};
}

// Each matrix, narrow and wide, in the lengths and packets that kernels treat apart.
std::vector<Code> all_codes() {
  std::vector<Code> codes = small_codes();
  for (std::int32_t matrix = 0; tandem_matrix_name(matrix) != nullptr; ++matrix) {
    if (matrix == TANDEM_MATRIX_CUSTOM) continue;
    for (const auto &[k, m] : {std::pair{1u, 1u}, {2u, 2u}, {9u, 4u}, {17u, 3u}, {6u, 29u}, {20u, 1u}, {40u, 12u}}) {
      tandem_codec_options options = codec_options(k, m, matrix);
      options.allow_non_mds = 1;
      tandem_codec *codec = nullptr;
      if (tandem_codec_create(&options, &codec) == TANDEM_OK) codes.push_back(of_bytes(matrix, k, m));
      tandem_codec_destroy(codec);
    }
  }
  EXPECT_GE(codes.size(), 70u);
  for (const auto &[k, m] : {std::pair{1u, 0u}, {7u, 0u}, {1u, 255u}, {255u, 1u}, {200u, 56u}})
    codes.push_back(of_bytes(TANDEM_MATRIX_ISAL_CAUCHY, k, m));
  for (const std::uint64_t packet_bytes : {8, 24, 64, 104, 256, 1032, 2048}) {
    codes.push_back(of_packets("jerasure-cauchy-good", 8, packet_bytes, 10, 4));
    codes.push_back(of_packets("jerasure-cauchy-orig", 4, packet_bytes, 11, 5));
    if (packet_bytes < 200) codes.push_back(of_packets("jerasure-cauchy-good", 16, packet_bytes, 20, 5));
    if (packet_bytes < 200) codes.push_back(of_packets("jerasure-cauchy-good", 8, packet_bytes, 37, 9));
  }
  codes.push_back(of_packets("jerasure-cauchy-orig", 8, 8, 1, 1));
  codes.push_back(of_packets("jerasure-cauchy-good", 8, 72, 5, 1));
  return codes;
}

// Shards in pieces, each cut at places of its own, with gaps between the pieces.
class Pieces {
 public:
  Pieces(Random &random, const Code &code, const Call &call, std::size_t bytes) : call_(call), bytes_(bytes) {
    const unsigned n = code.k() + code.m();
    storage_.resize(n);
    segments_.resize(n);
    for (unsigned i = 0; i < n; ++i) {
      if (call.pointers[i] == nullptr) continue;
      std::vector<std::size_t> cuts = {0, bytes};
      for (auto j = random.below(i % 4 == 0 ? 30 : 4); j > 0; --j)  // pieces of 0 bytes too
        cuts.push_back(random.below(bytes / code.group_bytes + 1) * code.group_bytes);
      std::sort(cuts.begin(), cuts.end());
      storage_[i].assign(bytes + kGap * (cuts.size() + 1), kCanary);
      for (std::size_t j = 0; j + 1 < cuts.size(); ++j) {
        const std::size_t length = cuts[j + 1] - cuts[j];
        segments_[i].push_back({length == 0 ? nullptr : storage_[i].data() + cuts[j] + kGap * (j + 1), length});
      }
    }
    move(true);
    for (const auto &list : segments_) shards.push_back({list.empty() ? nullptr : list.data(), list.size()});
  }

  void gather() {
    move(false);
    for (const Bytes &each : storage_)
      EXPECT_EQ(std::ranges::count(each, kCanary), static_cast<std::ptrdiff_t>(each.size())) << "a gap was written";
  }

  std::vector<tandem_scattered_shard> shards;

 private:
  static constexpr std::size_t kGap = 5;
  static constexpr std::uint8_t kCanary = 0xc3;

  void move(bool out) {
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      std::size_t done = 0;
      for (const tandem_segment &segment : segments_[i]) {
        auto *const there = static_cast<std::uint8_t *>(call_.pointers[i]) + done;
        done += segment.bytes;
        if (segment.bytes == 0) continue;
        if (out) std::memcpy(segment.address, there, segment.bytes);
        if (out) continue;
        if (std::memcmp(there, segment.address, segment.bytes) != 0) std::memcpy(there, segment.address, segment.bytes);
        std::memset(segment.address, kCanary, segment.bytes);
      }
      EXPECT_TRUE(segments_[i].empty() || done == bytes_);
    }
  }

  const Call &call_;
  std::size_t bytes_;
  std::vector<Bytes> storage_;
  std::vector<std::vector<tandem_segment>> segments_;
};

struct Place {
  std::string name;
  tandem_context_options options;
  std::string kernel{}, expert{}, backend{"cpu"}, technique{};
  const char *policy = nullptr;
  Context context{};
};

bool has_opencl() {
  std::vector<tandem_device> devices(64);
  std::size_t count = 0;
  EXPECT_EQ(tandem_devices(devices.data(), devices.size(), sizeof devices[0], &count), TANDEM_OK);
  devices.resize(std::min(count, devices.size()));
  return std::ranges::any_of(devices, [](const tandem_device &each) { return each.name == std::string("opencl:0:0"); });
}

// Each kernel of this machine with each technique, each executor, and hybrids: of the CPU, and with a real device.
std::vector<Place> places() {
  std::vector<tandem_kernel> kernels(32);
  std::size_t count = 0;
  EXPECT_EQ(tandem_kernels(kernels.data(), kernels.size(), sizeof kernels[0], &count), TANDEM_OK);
  std::vector<Place> all;
  for (std::size_t i = 0; i < count; ++i) {
    if (!kernels[i].available) {
      std::printf("NOT RUN: kernel %s needs %s\n", kernels[i].name, kernels[i].needs);
      tandem_context_options options = context_options();
      options.kernel = kernels[i].name;
      tandem_context *context = nullptr;
      EXPECT_TRUE(
          refused(tandem_context_create(&options, &context), TANDEM_ERROR_UNAVAILABLE, {kernels[i].name, "scalar"}));
      continue;
    }
    for (const std::string technique : {"", "matrix", "transform"})
      all.push_back({kernels[i].name + (" " + technique), context_options("", 3), kernels[i].name,
                     "executor=pthread" + (technique.empty() ? "" : ",technique=" + technique), "cpu", technique});
  }
  for (const std::string &executor : executors())
    all.push_back({executor, context_options(executor), "", "executor=" + executor});
  for (const char *policy : {"auto", "budget"}) {
    all.push_back({std::string("hybrid, ") + policy, context_options("", 3), "", "", "hybrid:cpu", "", policy});
    all.back().options.resources = "cpu=1";
  }
  for (const char *backend : {"hybrid:cpu+opencl:0:0", "hybrid:opencl:0:0"})
    if (has_opencl()) {
      all.push_back({backend, context_options("", 0), "", "", backend, "", "budget"});
    } else {
      std::printf("NOT RUN: %s: there is no such device\n", backend);
    }
  for (Place &place : all) {
    place.options.backend = place.backend.c_str();
    place.options.policy = place.policy;
    place.options.kernel = place.kernel.empty() ? nullptr : place.kernel.c_str();
    place.options.expert = place.expert.empty() ? nullptr : place.expert.c_str();
    place.context = make_context(place.options);
    tandem_context_info info = {};
    info.struct_bytes = sizeof info;
    EXPECT_EQ(tandem_context_query(place.context.get(), &info), TANDEM_OK);
    if (!place.kernel.empty()) {
      EXPECT_EQ(info.kernel, place.kernel);
    }
    EXPECT_EQ(info.kernel_calls, 0u);
  }
  return all;
}

// One code at one place, and a stripe of it.
class Model {
 public:
  Model(Random &random, const Place &place, const Code &code, std::size_t bytes)
      : random_(random), context_(place.context.get()), code_(code), codec_(code.make()), bytes_(bytes) {
    // Long shards repeat themselves, so that the slow reference ends.
    const std::size_t groups = bytes / code.group_bytes, period = bytes > 5000 ? std::min<std::size_t>(groups, 97) : 0;
    Shards data;
    for (unsigned c = 0; c < k(); ++c) data.push_back(random.bytes(period == 0 ? bytes : period * code.group_bytes));
    if (k() > 2 && random.chance(30)) data[k() - 1] = data[0];  // given once: inputs may alias
    truth_ = data;
    for (Bytes &each : code.parity(data)) truth_.push_back(std::move(each));
    if (period == 0) return;
    for (Bytes &shard : truth_)
      while (shard.size() < bytes)
        shard.insert(shard.end(), shard.begin(), shard.begin() + std::min(shard.size(), bytes - shard.size()));
  }

  // What is wide enough for a transform.
  void run_transforms(Way way) {
    encode(way, m());
    decode(way, random_.pick(static_cast<unsigned>(random_.between(m() - 2, m())), n()), false);
    if (way != Way::stripes && way != Way::scattered) verify(way);
  }

  void run(Way way) {
    if (m() != 0) encode(way, random_.chance(60) ? m() : some(m()));
    for (unsigned round = 0; round < 3; ++round) decode(way, losses());
    if (way == Way::stripes || way == Way::scattered) return;
    verify(way);
    update(way);
    accumulate(way);
  }

  // Parity shards with a NULL pointer are left alone, and so are missing shards with one.
  void encode(Way way, unsigned count) {
    std::set<unsigned> wanted;
    for (const unsigned r : random_.pick(count, m())) wanted.insert(k() + r);
    expect_writes(way, call_of(TANDEM_OPERATION_ENCODE), wanted, truth_);
  }

  void decode(Way way, const std::vector<unsigned> &lost, bool may_leave_out = true) {
    Call call = call_of(TANDEM_OPERATION_DECODE, Bytes(n(), 1));
    std::set<unsigned> wanted(lost.begin(), lost.end());
    for (const unsigned i : lost) call.present[i] = 0;
    if (!code_.is_recoverable(call.present)) {
      expect_writes(way, call, wanted, {}, TANDEM_ERROR_NOT_RECOVERABLE);
      return;
    }
    if (may_leave_out && lost.size() > 1 && random_.chance(30)) wanted.erase(lost[random_.below(lost.size())]);
    if (lost.empty() && (way == Way::plan || way == Way::job)) return;  // a plan has something to do
    expect_writes(way, call, wanted, truth_);
  }

  std::vector<unsigned> losses() {
    const bool too_many = random_.chance(10);
    const unsigned most = std::min(m() + (too_many ? 1 : 0), n());
    return random_.pick(random_.chance(30) ? most : static_cast<unsigned>(random_.below(most + 1)), n());
  }

  // Against the parity of the damaged data. One damaged shard is named where the code can tell.
  void verify(Way way) {
    expect_verify(way, truth_, {});
    for (unsigned damaged = 1; damaged <= 2 && damaged <= n(); ++damaged) {
      Shards shards = truth_;
      const std::vector<unsigned> bad = random_.pick(damaged, n());
      std::set<std::size_t> places;
      for (const unsigned i : bad)
        for (unsigned j = 0; j < 5; ++j) {
          const std::size_t at = places.empty() || j != 0 ? random_.below(bytes_) : *places.begin();
          if (shards[i][at] == truth_[i][at]) shards[i][at] ^= static_cast<std::uint8_t>(1 + random_.below(255));
          places.insert(at);
        }
      expect_verify(way, shards, bad, places);
    }
  }

  void update(Way way) {
    Call call = call_of(TANDEM_OPERATION_UPDATE, {}, static_cast<unsigned>(random_.below(k())));
    Shards data(truth_.begin(), truth_.begin() + k());
    const Bytes changed = random_.chance(20) ? truth_[call.index] : repeated(random_.bytes(1 + random_.below(90)));
    call.new_data = changed.data();
    data[call.index] = changed;
    Shards after = truth_;
    if (bytes_ > 5000) {  // the change alone, of a few groups
      return expect_update_of_a_long_shard(way, call, changed);
    }
    Shards parity = code_.parity(data);
    std::move(parity.begin(), parity.end(), after.begin() + k());
    std::set<unsigned> wanted;
    for (const unsigned r : random_.pick(m() == 0 ? 0 : some(m()), m())) wanted.insert(k() + r);
    if (!wanted.empty()) expect_writes(way, call, wanted, after, TANDEM_OK, true);
  }

  void accumulate(Way way) {
    if (m() == 0) return;
    Shards parity(m(), Bytes(bytes_));
    bool first = random_.chance(50);
    if (first) parity.assign(m(), repeated({0x5a}));
    std::vector<void *> pointers;
    for (Bytes &shard : truth_) pointers.push_back(shard.data());
    for (unsigned r = 0; r < m(); ++r) pointers[k() + r] = parity[r].data();
    for (const unsigned index : random_.pick(k(), k())) {
      Call call = call_of(TANDEM_OPERATION_ACCUMULATE, {}, index);
      call.first = first;
      call.pointers.resize(n());
      call.pointers[index] = pointers[index];  // the others are ignored
      std::copy(pointers.begin() + k(), pointers.end(), call.pointers.begin() + k());
      ASSERT_EQ(perform(way, call), TANDEM_OK) << tandem_last_error_message();
      first = false;
    }
    for (unsigned r = 0; r < m(); ++r) ASSERT_TRUE(parity[r] == truth_[k() + r]) << "parity " << r;
  }

 private:
  unsigned k() const { return code_.k(); }
  unsigned m() const { return code_.m(); }
  unsigned n() const { return k() + m(); }
  unsigned some(unsigned most) { return static_cast<unsigned>(random_.between(1, most)); }

  Bytes repeated(const Bytes &text) const {
    Bytes all(bytes_);
    for (std::size_t i = 0; i < bytes_; ++i) all[i] = text[i % text.size()];
    return all;
  }

  // There and back: parity changes, and is as before.
  void expect_update_of_a_long_shard(Way way, Call call, const Bytes &changed) {
    Shards parity(truth_.begin() + k(), truth_.end());
    call.pointers.assign(n(), nullptr);
    for (unsigned r = 0; r < m(); ++r) call.pointers[k() + r] = parity[r].data();
    call.pointers[call.index] = truth_[call.index].data();
    ASSERT_EQ(perform(way, call), TANDEM_OK) << tandem_last_error_message();
    for (const std::size_t group : {std::size_t{0}, bytes_ / code_.group_bytes / 2, (bytes_ - 1) / code_.group_bytes}) {
      Shards data = slice(truth_, group);
      data.resize(k());
      data[call.index] = slice({changed}, group)[0];
      ASSERT_TRUE(slice(parity, group) == code_.parity(data)) << "group " << group;
    }
    Bytes old = changed;
    call.pointers[call.index] = old.data();
    call.new_data = truth_[call.index].data();
    ASSERT_EQ(perform(way, call), TANDEM_OK) << tandem_last_error_message();
    for (unsigned r = 0; r < m(); ++r) ASSERT_TRUE(parity[r] == truth_[k() + r]) << "parity " << r;
  }

  Shards slice(const Shards &shards, std::size_t group) const {
    Shards part;
    const std::size_t begin = group * code_.group_bytes, end = std::min(begin + code_.group_bytes, bytes_);
    for (const Bytes &shard : shards) part.emplace_back(shard.begin() + begin, shard.begin() + end);
    return part;
  }

  // Runs `call` on the stripe: the shards that it writes hold other bytes, those that it reads cannot be written, and
  // a page on either side cannot be touched. Afterwards `wanted` are as in `after`, and all else is as before.
  void expect_writes(Way way, Call call, const std::set<unsigned> &wanted, const Shards &after,
                     tandem_status status = TANDEM_OK, bool adds = false) {
    std::vector<Guarded> memory;
    Shards before = truth_;
    const bool from_front = random_.chance(50);
    const bool reads_only_one = call.operation == TANDEM_OPERATION_UPDATE;
    for (unsigned i = 0; i < n(); ++i) {
      const bool is_written = call.operation == TANDEM_OPERATION_DECODE ? call.present[i] == 0 : i >= k();
      if (is_written && !adds) before[i] = repeated({static_cast<std::uint8_t>(0xd7 + i), 3});
      const std::size_t odd = from_front ? random_.below(2) : 0;
      memory.emplace_back(bytes_ + odd, from_front ? Guarded::Against::front : Guarded::Against::back);
      std::uint8_t *const shard = memory[i].data() + odd;
      std::memcpy(shard, before[i].data(), bytes_);
      if (!is_written) memory[i].make_read_only();
      const bool is_given = is_written ? wanted.contains(i) : !reads_only_one || i == call.index;
      call.pointers.push_back(is_given ? shard : nullptr);
    }
    if (!reads_only_one && k() > 2 && truth_[k() - 1] == truth_[0] && call.pointers[0] != nullptr &&
        call.operation == TANDEM_OPERATION_ENCODE)
      call.pointers[k() - 1] = call.pointers[0];
    const tandem_status got = perform(way, call);
    ASSERT_EQ(got, status) << tandem_last_error_message();
    if (status == TANDEM_OK && !wanted.empty()) {
      EXPECT_GT(kernel_calls(context_), 0u);  // all small calls count as one
    }
    for (unsigned i = 0; i < n(); ++i) {
      const Bytes &want = status == TANDEM_OK && wanted.contains(i) ? after[i] : before[i];
      const auto *const shard = static_cast<const std::uint8_t *>(call.pointers[i]);
      if (shard != nullptr) {
        ASSERT_EQ(std::memcmp(shard, want.data(), bytes_), 0) << "shard " << i;
      }
    }
  }

  void expect_verify(Way way, Shards shards, const std::vector<unsigned> &bad,
                     const std::set<std::size_t> &places = {}) {
    tandem_verify_result result = {};
    result.struct_bytes = sizeof result;
    Call call = call_of(TANDEM_OPERATION_VERIFY);
    call.result = &result;
    std::vector<Guarded> memory;
    for (const Bytes &shard : shards) {
      memory.emplace_back(bytes_);
      std::memcpy(memory.back().data(), shard.data(), bytes_);
      memory.back().make_read_only();
      call.pointers.push_back(memory.back().data());
    }
    ASSERT_EQ(perform(way, call), TANDEM_OK) << tandem_last_error_message();
    std::set<std::size_t> groups;
    for (const std::size_t at : places) groups.insert(at / code_.group_bytes);
    std::uint64_t count = 0;
    std::pair<std::uint64_t, unsigned> first(bytes_, 0);  // the column, and the first parity that differs there
    std::set<unsigned> parities;
    for (const std::size_t group : groups) {
      const Shards part = slice(shards, group);
      const Shards parity = code_.parity(Shards(part.begin(), part.begin() + k()));
      for (unsigned r = 0; r < m(); ++r)
        for (std::size_t i = 0; i < parity[r].size(); ++i) {
          if (parity[r][i] == part[k() + r][i]) continue;
          ++count;
          parities.insert(k() + r);
          first = std::min(first, {group * code_.group_bytes + i, k() + r});
        }
    }
    EXPECT_EQ(result.consistent, count == 0);
    EXPECT_EQ(result.mismatch_byte_count, count);
    EXPECT_EQ(result.bad_parity_count, parities.size());
    EXPECT_EQ(result.first_bad_shard, count == 0 ? TANDEM_SHARD_NONE : first.second);
    EXPECT_EQ(result.first_mismatch_bytes, count == 0 ? 0 : first.first);
    // Two damaged shards never look like one other if there are three parities; one parity cannot tell.
    if (!code_.is_mds) return;
    if (bad.size() == 1 && m() > 1) {
      EXPECT_EQ(result.suspect_shard, bad[0]);
    }
    if (bad.size() != 1 && m() > 2) {
      EXPECT_EQ(result.suspect_shard, TANDEM_SHARD_NONE);
    }
    if (m() < 2) {
      EXPECT_EQ(result.suspect_shard, TANDEM_SHARD_NONE);
    }
  }

  tandem_status perform(Way way, Call &call) {
    if (way == Way::scattered) {
      Pieces pieces(random_, code_, call, bytes_);
      const std::uint8_t *const present = call.operation == TANDEM_OPERATION_DECODE ? call.present.data() : nullptr;
      const tandem_status status =
          tandem_code_scattered(context_, codec_.get(), call.operation, pieces.shards.data(), present, bytes_);
      pieces.gather();
      return status;
    }
    call.wanted.resize(call.operation == TANDEM_OPERATION_VERIFY ? 0 : n());
    for (unsigned i = 0; i < call.wanted.size(); ++i)
      call.wanted[i] = call.pointers[i] != nullptr && (call.present.empty() ? i >= k() : call.present[i] == 0);
    return test::perform(way, call);
  }

  Call call_of(std::int32_t operation, Bytes present = {}, unsigned index = 0) const {
    Call call{context_, codec_.get(), operation, bytes_, {}, std::move(present)};
    call.index = index;
    call.k = k();
    return call;
  }

  Random &random_;
  tandem_context *context_;
  const Code &code_;
  Codec codec_;
  std::size_t bytes_;
  Shards truth_;
};

// A length that the code allows: small, around a vector or a group, and now and then long enough for several threads.
std::size_t length_of(Random &random, const Code &code, bool is_long) {
  const std::size_t unit = code.unit_bytes;
  if (is_long) return (100'000 + random.below(200'000)) / code.group_bytes * code.group_bytes;
  const std::size_t around[] = {1, 31, 33, 63, 64, 65, 257, 1000, 4095, 4097};
  const std::size_t most = code.k() * code.m() > 500 ? 300 : code.has_packets() ? 3 * unit : 4100;
  const std::size_t bytes = std::min(most, random.chance(60) ? around[random.below(10)] : 1 + random.below(most));
  return std::max<std::size_t>(1, bytes / unit) * unit;
}

TEST(Operations, AreWhatTheReferenceSays) {
  Random random(slice_seed());
  const std::vector<Code> codes = all_codes();
  Slice slice(3 * kThinning), longs(12);
  for (const Place &place : places()) {
    for (const Code &code : codes) {
      const bool is_leopard = code.group_bytes == 64 && !code.has_packets();
      const bool is_cauchy = code.name == "isal-cauchy" && code.k() == 40;
      const bool needs_cpu = code.options.field == TANDEM_FIELD_GF16 || code.has_packets();
      if (place.technique == "transform" ? !is_cauchy : !slice.takes() || (place.technique == "matrix" && is_leopard))
        continue;
      if (place.backend == "hybrid:opencl:0:0" && needs_cpu) continue;
      const std::size_t bytes = length_of(random, code, longs.takes() && code.k() < 64);
      const Way way = kWays[random.below(5)];
      SCOPED_TRACE(testing::Message() << place.name << ", " << code.name << ", " << code.k() << "+" << code.m() << ", "
                                      << bytes << " bytes, way " << static_cast<int>(way));
      Model model(random, place, code, bytes);
      place.technique == "transform" ? model.run_transforms(way) : model.run(way);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Every loss of small codes: rebuilt exactly if it is recoverable, and else nothing is written.
TEST(Operations, EveryLossOfSmallCodes) {
  Random random(slice_seed() + 1);
  Place place{"serial", context_options("serial", 1)};
  place.context = make_context(place.options);
  for (const Code &code : small_codes()) {
    Model model(random, place, code, code.group_bytes == 1 ? 77 : 2 * code.group_bytes);
    for (unsigned lost = 1; lost < 1u << (code.k() + code.m()); ++lost) {
      SCOPED_TRACE(testing::Message() << code.name << ", " << code.k() << "+" << code.m() << ", lost " << lost);
      std::vector<unsigned> list;
      for (unsigned i = 0; i < code.k() + code.m(); ++i)
        if (lost >> i & 1) list.push_back(i);
      model.decode(Way::plain, list);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Callers of other versions: a smaller struct gets what fits, a longer one is not read or written behind what is known,
// and one without room is refused before the work.
TEST(Verify, ResultsOfOtherVersions) {
  struct Later {
    tandem_verify_result known;
    std::uint64_t added[3];
  };
  Random random(8);
  const Context context = make_context();
  const Codec codec = make_codec(2, 2);
  Stripe stripe(random, 2, 2, 10);
  constexpr std::size_t kOlder = offsetof(tandem_verify_result, mismatch_byte_count);
  for (const std::size_t size : {kOlder, sizeof(Later), std::size_t{0}, sizeof(std::size_t), std::size_t{65537}}) {
    Later result;
    std::memset(&result, 0x5a, sizeof result);
    result.known.struct_bytes = size;
    const std::uint64_t before = kernel_calls(context.get());
    const tandem_status status = tandem_verify(context.get(), codec.get(), stripe.data(), 10, &result.known);
    for (const std::uint64_t added : result.added) EXPECT_EQ(added, 0x5a5a5a5a5a5a5a5au);
    if (size == kOlder || size == sizeof(Later)) {
      EXPECT_EQ(status, TANDEM_OK) << tandem_last_error_message();
      EXPECT_EQ(result.known.struct_bytes, size);
      EXPECT_EQ(result.known.consistent, 1);
      EXPECT_EQ(result.known.bad_parity_count, 0u);
      EXPECT_EQ(result.known.mismatch_byte_count, size == kOlder ? 0x5a5a5a5a5a5a5a5au : 0u);
    } else {
      const std::string number = "struct_bytes is " + std::to_string(size);
      EXPECT_TRUE(refused(status, TANDEM_ERROR_INVALID_ARGUMENT, {number.c_str()}));
      EXPECT_EQ(kernel_calls(context.get()), before);
    }
  }
}

TEST(Allocate, AlignedStaggeredAndApart) {
  for (const std::size_t count : {1, 2, 14, 256}) {
    for (const std::size_t bytes : {1, 64, 65, 4096, 8192, 65536, 100'003}) {
      std::vector<void *> shards(count);
      ASSERT_EQ(tandem_shards_allocate(count, bytes, 0, shards.data()), TANDEM_OK);
      for (std::size_t i = 0; i < count; ++i) {
        const auto at = reinterpret_cast<std::uintptr_t>(shards[i]);
        EXPECT_EQ(at % 64, 0u);
        std::memset(shards[i], static_cast<int>(i), bytes);
        if (i == 0) continue;
        const std::uintptr_t distance = at - reinterpret_cast<std::uintptr_t>(shards[i - 1]);
        EXPECT_GE(distance, bytes);
        EXPECT_EQ(distance / 64 % 2, 1u) << "neighbours fall on the same cache sets";
      }
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(static_cast<std::uint8_t *>(shards[i])[bytes - 1], static_cast<std::uint8_t>(i));
      tandem_shards_free(shards[0]);
    }
  }
  tandem_shards_free(nullptr);
}

TEST(Split, ContentOfEveryLengthAndBack) {
  tandem_codec_options packets = codec_options(3, 2, TANDEM_MATRIX_JERASURE_CAUCHY_GOOD);
  packets.layout = TANDEM_LAYOUT_PACKETS;
  packets.packet_bytes = 8;
  tandem_codec_options words = codec_options(5, 2, TANDEM_MATRIX_LEOPARD16);
  words.field = TANDEM_FIELD_GF16;
  const Context context = make_context();
  for (const auto &[options, unit] :
       {std::pair{codec_options(1, 1), 1u}, {codec_options(4, 2), 1u}, {words, 2u}, {packets, 64u}}) {
    const Codec codec = make_codec(options);
    const std::uint32_t k = options.k, m = options.m;
    for (std::size_t bytes = 0; bytes <= 3 * k * unit + 2; ++bytes) {
      const Bytes content = Random(bytes).bytes(bytes);
      std::size_t shard_bytes = 0;
      ASSERT_EQ(tandem_split_bytes(codec.get(), bytes, &shard_bytes), TANDEM_OK);
      EXPECT_EQ(shard_bytes % unit, 0u);
      EXPECT_GE(shard_bytes * k, bytes);
      EXPECT_TRUE(shard_bytes == unit || (shard_bytes - unit) * k < bytes) << "not the least length for " << bytes;
      shard_bytes += bytes % 2 * unit;  // more than the least
      std::vector<Bytes> shards(k + m, Bytes(shard_bytes, 0xee));
      std::vector<void *> pointers;
      for (Bytes &shard : shards) pointers.push_back(shard.data());
      const std::uint8_t *const given = bytes == 0 ? nullptr : content.data();
      ASSERT_EQ(tandem_split(codec.get(), given, bytes, pointers.data(), shard_bytes), TANDEM_OK);
      Bytes padded = content;
      padded.resize(k * shard_bytes);
      for (std::uint32_t i = 0; i < k; ++i)
        EXPECT_TRUE(std::equal(shards[i].begin(), shards[i].end(),
                               padded.begin() + static_cast<std::ptrdiff_t>(i * shard_bytes)));
      EXPECT_EQ(tandem_encode(context.get(), codec.get(), pointers.data(), pointers.data() + k, shard_bytes), TANDEM_OK)
          << tandem_last_error_message();
      for (std::uint32_t i = 0; i < k; ++i)
        if (i * shard_bytes >= bytes) pointers[i] = nullptr;
      Bytes back(bytes + 1, 0xcc);
      ASSERT_EQ(tandem_join(codec.get(), pointers.data(), shard_bytes, back.data(), bytes), TANDEM_OK);
      EXPECT_EQ(back.back(), 0xcc);
      back.pop_back();
      EXPECT_EQ(back, content);
    }
  }
}

}  // namespace
}  // namespace tandem::test
