#include "cli/file_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"

namespace tandem::cli {

namespace {

using CodecOwner = std::unique_ptr<tandem_codec, Destroy>;

tandem_status make_codec(std::uint32_t k, std::uint32_t m, std::int32_t matrix, bool allow_non_mds, CodecOwner *out) {
  auto options = sized<tandem_codec_options>();
  options.k = k;
  options.m = m;
  options.matrix = matrix;
  options.allow_non_mds = allow_non_mds;
  tandem_codec *codec = nullptr;
  const tandem_status status = tandem_codec_create(&options, &codec);
  out->reset(codec);
  return status;
}

}  // namespace

bool any_k_are_enough(std::uint32_t k, std::uint32_t m, std::int32_t matrix) {
  CodecOwner codec;
  return make_codec(k, m, matrix, false, &codec) == TANDEM_OK;
}

bool are_enough(const tandem_files_set &set, const std::vector<tandem_files_shard> &shards) {
  std::vector<std::uint8_t> present(set.k + set.m, 0);
  for (const tandem_files_shard &shard : shards) present[shard.index] = 1;
  if (std::count(present.begin(), present.end(), 1) < static_cast<std::ptrdiff_t>(set.k)) return false;
  std::vector<std::uint8_t> wanted(present.size(), 0);
  for (std::uint32_t i = 0; i < set.k; ++i) wanted[i] = present[i] == 0;
  if (any_k_are_enough(set.k, set.m, set.matrix) || std::count(wanted.begin(), wanted.end(), 1) == 0) return true;
  CodecOwner codec;
  if (make_codec(set.k, set.m, set.matrix, true, &codec) != TANDEM_OK)
    return false;  // a matrix that nothing here decodes
  ContextFlags flags;
  flags.backend = "cpu";
  const ContextOwner context = make_context(flags);
  auto options = sized<tandem_plan_options>();
  options.operation = TANDEM_OPERATION_DECODE;
  options.present = present.data();
  options.wanted = wanted.data();
  tandem_plan *plan = nullptr;
  const tandem_status status = tandem_plan_create(context.get(), codec.get(), &options, &plan);
  tandem_plan_destroy(plan);
  if (status != TANDEM_ERROR_NOT_RECOVERABLE) check(status);
  return status == TANDEM_OK;
}

std::string matrix_name(std::int32_t matrix) {
  const char *name = tandem_matrix_name(matrix);
  return name != nullptr ? name : fmt::format("unknown ({})", matrix);
}

nlohmann::ordered_json report(const char *command, const tandem_files_result &result, const tandem_context_info &info) {
  const double data_bytes = static_cast<double>(result.content_bytes);
  return {{"command", command},
          {"set_id", hexadecimal(result.set_id)},
          {"digest_xxh3_128", hexadecimal(result.digest)},
          {"k", result.k},
          {"m", result.m},
          {"matrix", matrix_name(result.matrix)},
          {"block_bytes", result.block_bytes},
          {"content_bytes", result.content_bytes},
          {"stripe_count", result.stripe_count},
          {"read_bytes", result.read_bytes},
          {"written_bytes", result.written_bytes},
          {"seconds", result.seconds},
          {"bytes_per_second", result.seconds > 0 ? data_bytes / result.seconds : 0.0},
          {"coding_seconds", result.coding_seconds},
          {"backend", info.backend},
          {"kernel", info.kernel},
          {"executor", info.executor},
          {"threads", result.thread_count}};
}

std::string speed(const tandem_files_result &result, const tandem_context_info &info) {
  std::string text = fmt::format("{:.2f} s, {} of data", result.seconds, rate(result.content_bytes, result.seconds));
  if (result.coding_seconds > 0)
    text += fmt::format(" (coding alone: {} a thread)", rate(result.content_bytes, result.coding_seconds));
  return text + fmt::format(", kernel {}, {}", info.kernel, plural(result.thread_count, "thread"));
}

}  // namespace tandem::cli
