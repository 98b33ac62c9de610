// Fuzzer of the codec through the C API, with an oracle: a decode succeeds if and only if an independent computation of
// ranks says that the wanted shards are determined by those that are left, and then every byte is right.
//
//     clang++: cmake -DTANDEM_FUZZ=ON ..., then codec_fuzzer tests/fuzz/corpus
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tandem/tandem.h"
#include "tandem/tools.h"
#include "tests/reference.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

constexpr unsigned kMostShards = 40;  // the oracle's elimination is slow on purpose
constexpr std::size_t kMostBytes = 5000, kLargeBytes = 40'000;

// The input, read byte by byte; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t *data, std::size_t size) : data_(data), end_(data + size) {}
  std::uint8_t byte() { return data_ != end_ ? *data_++ : std::uint8_t{0}; }
  unsigned below(unsigned end) { return (byte() << 8 | byte()) % end; }

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

// Contexts for every available kernel, serial and with threads; made once.
const std::vector<Context> &contexts() {
  static const std::vector<Context> all = [] {
    tandem_kernel kernels[32];
    std::size_t count = 0;
    if (tandem_kernels(kernels, 32, sizeof kernels[0], &count) != TANDEM_OK) wrong("tandem_kernels");
    std::vector<Context> made;
    for (std::size_t i = 0; i < count; ++i) {
      if (!kernels[i].available) continue;
      for (const int32_t executor : {TANDEM_EXECUTOR_SERIAL, TANDEM_EXECUTOR_PTHREAD}) {
        tandem_context_options options = {};
        options.struct_bytes = sizeof options;
        options.kernel = kernels[i].name;
        options.executor = executor;
        options.thread_count = 2;
        options.partition = static_cast<int32_t>(i % 2) + 1;
        tandem_context *context = nullptr;
        if (tandem_context_create(&options, &context) != TANDEM_OK) wrong("tandem_context_create");
        made.emplace_back(context);
      }
    }
    return made;
  }();
  return all;
}

reference::Rows generator(unsigned k, const Bytes &parity_rows) {
  reference::Rows rows(k, Bytes(k));
  for (unsigned i = 0; i < k; ++i) rows[i][i] = 1;
  for (std::size_t at = 0; at < parity_rows.size(); at += k)
    rows.emplace_back(parity_rows.begin() + static_cast<std::ptrdiff_t>(at),
                      parity_rows.begin() + static_cast<std::ptrdiff_t>(at + k));
  return rows;
}

// Whether the present rows span the wanted ones.
bool determined(const reference::Rows &rows, const Bytes &present, const Bytes &wanted) {
  reference::Rows left, with_wanted;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (present[i]) left.push_back(rows[i]);
  with_wanted = left;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (wanted[i]) with_wanted.push_back(rows[i]);
  return reference::rank(left) == reference::rank(with_wanted);
}

// Whether every loss of m shards can be recovered from; by trying all, so for small codes only.
bool every_loss_is_recoverable(const reference::Rows &rows, unsigned k) {
  const auto n = static_cast<unsigned>(rows.size());
  for (unsigned kept = 0; kept < 1u << n; ++kept) {
    reference::Rows left;
    for (unsigned i = 0; i < n; ++i)
      if (kept >> i & 1) left.push_back(rows[i]);
    if (left.size() == k && reference::rank(left) != k) return false;
  }
  return true;
}

struct CodecDelete {
  void operator()(tandem_codec *codec) const { tandem_codec_destroy(codec); }
};

void run(Input input) {
  const unsigned flags = input.byte();
  const bool custom = flags & 1, allow_non_mds = flags & 2, by_plan = flags & 4, large = flags & 8;
  const unsigned k = 1 + input.below(kMostShards - 1), m = input.below(kMostShards - k + 1);
  tandem_context *context = contexts()[input.below(static_cast<unsigned>(contexts().size()))].get();

  tandem_codec_options options = {};
  options.struct_bytes = sizeof options;
  options.k = k;
  options.m = m;
  options.matrix = custom ? TANDEM_MATRIX_CUSTOM : static_cast<int32_t>(input.below(15));
  options.allow_non_mds = allow_non_mds;
  Bytes coefficients(std::size_t{k} * m);
  if (custom) {
    for (std::uint8_t &cell : coefficients) cell = input.byte();
    options.coefficients = coefficients.data();
  }
  tandem_codec *raw = nullptr;
  const tandem_status made = tandem_codec_create(&options, &raw);
  const std::unique_ptr<tandem_codec, CodecDelete> codec(raw);
  if (made != TANDEM_OK) {
    if (raw != nullptr) wrong("a codec and an error");
    if (made != TANDEM_ERROR_NOT_MDS && made != TANDEM_ERROR_INVALID_ARGUMENT) wrong("status of tandem_codec_create");
    if (custom && made != TANDEM_ERROR_NOT_MDS) wrong("a custom matrix was refused for another reason");
    if (made == TANDEM_ERROR_NOT_MDS && allow_non_mds) wrong("NOT_MDS though it was allowed");
    if (custom && k + m <= 9 && every_loss_is_recoverable(generator(k, coefficients), k))
      wrong("an MDS matrix was refused");
    return;
  }
  Bytes read_back(coefficients.size());
  if (tandem_codec_coefficients(codec.get(), read_back.data(), read_back.size()) != TANDEM_OK) wrong("coefficients");
  if (custom && read_back != coefficients) wrong("the custom matrix came back changed");
  coefficients = read_back;
  const reference::Rows rows = generator(k, coefficients);
  if (!custom && generator(k, coefficients) != [&] {
        reference::Rows want = generator(k, {});
        for (Bytes &row : reference::parity_rows(tandem_matrix_name(options.matrix), k, m))
          want.push_back(std::move(row));
        return want;
      }())
    wrong("coefficients of a preset");
  if (!allow_non_mds && k + m <= 9 && !every_loss_is_recoverable(rows, k))
    wrong("a matrix that is not MDS was accepted");

  const std::size_t bytes = 1 + input.below(kMostBytes) + (large ? kLargeBytes : 0);
  Bytes present(k + m), wanted(k + m);
  const unsigned loss_percent = input.below(101);
  Random random(input.byte() << 8 | input.byte());
  for (unsigned i = 0; i < k + m; ++i) {
    present[i] = !random.chance(loss_percent);
    wanted[i] = !present[i] && !random.chance(20);
  }
  // The last bytes of the input, where there are any, say it shard by shard.
  for (unsigned i = 0; i < k + m; ++i) {
    const std::uint8_t change = input.byte();
    if (change & 1) present[i] = !present[i];
    if (change & 2) wanted[i] = !wanted[i];
    if (present[i]) wanted[i] = 0;
  }

  Shards shards;
  std::vector<const std::uint8_t *> data;
  for (unsigned i = 0; i < k; ++i) shards.push_back(random.bytes(bytes));
  for (unsigned i = 0; i < k; ++i) data.push_back(shards[i].data());
  Shards parity = expected(coefficients.data(), m, k, data.data(), bytes);
  for (unsigned r = 0; r < m; ++r) shards.emplace_back(bytes, std::uint8_t{0xdd});
  std::vector<void *> pointers;
  for (Bytes &shard : shards) pointers.push_back(shard.data());
  if (tandem_encode(context, codec.get(), pointers.data(), pointers.data() + k, bytes) != TANDEM_OK)
    wrong("encode failed");
  for (unsigned r = 0; r < m; ++r)
    if (shards[k + r] != parity[r]) wrong("encode wrote parity " + std::to_string(r) + " wrong");

  Shards want = shards;
  bool any_wanted = false;
  for (unsigned i = 0; i < k + m; ++i) {
    if (present[i]) continue;
    std::fill(shards[i].begin(), shards[i].end(), std::uint8_t{0xcc});
    any_wanted = any_wanted || wanted[i];
    if (wanted[i]) continue;
    want[i] = shards[i];
    pointers[i] = nullptr;
  }
  const bool recoverable = determined(rows, present, wanted);
  tandem_status status;
  if (!by_plan) {
    status = tandem_decode(context, codec.get(), pointers.data(), present.data(), bytes);
  } else {
    tandem_plan_options plan_options = {};
    plan_options.struct_bytes = sizeof plan_options;
    plan_options.operation = TANDEM_OPERATION_DECODE;
    plan_options.present = present.data();
    plan_options.wanted = wanted.data();
    tandem_plan *plan = nullptr;
    status = tandem_plan_create(context, codec.get(), &plan_options, &plan);
    if (status == TANDEM_OK) {
      Bytes read(k + m);
      if (tandem_plan_shards_to_read(plan, read.data()) != TANDEM_OK) wrong("shards_to_read");
      for (unsigned i = 0; i < k + m; ++i) {
        if (read[i] && !present[i]) wrong("reads a missing shard");
        if (!read[i] && !wanted[i]) pointers[i] = nullptr;
      }
      if (any_wanted && !determined(rows, read, wanted)) wrong("shards_to_read do not suffice");
      tandem_plan_arguments arguments = {};
      arguments.struct_bytes = sizeof arguments;
      arguments.shards = pointers.data();
      arguments.shard_bytes = bytes;
      status = tandem_plan_run(plan, &arguments);
      tandem_plan_destroy(plan);
    }
  }
  if (recoverable && status != TANDEM_OK) wrong("recoverable, but decode failed");
  if (!recoverable && status != TANDEM_ERROR_NOT_RECOVERABLE) wrong("not recoverable, but decode did not say so");
  for (unsigned i = 0; i < k + m; ++i) {
    const bool rebuilt = recoverable && wanted[i];
    if (rebuilt ? shards[i] != want[i] : present[i] ? shards[i] != want[i] : shards[i] != Bytes(bytes, 0xcc))
      wrong("shard " + std::to_string(i) + " has wrong bytes");
  }
}

}  // namespace
}  // namespace tandem::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  tandem::test::run(tandem::test::Input(data, size));
  return 0;
}
