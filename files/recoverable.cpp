// SPDX-License-Identifier: Apache-2.0
#include "files/recoverable.hpp"

#include <algorithm>
#include <memory>

namespace tandem::files {

bool has_code(const SetHeader &header, bool allow_non_mds) {
  try {
    make_codec(header, allow_non_mds);
    return true;
  } catch (const Error &error) {
    if (error.status() == TANDEM_ERROR_OUT_OF_MEMORY) throw;
    return false;
  }
}

bool shards_suffice(const SetHeader &header, std::vector<std::uint8_t> present) {
  for (std::uint32_t shard = 0; shard < header.k; ++shard)
    if (header.is_padding(shard)) present[shard] = 1;
  const auto good = static_cast<std::uint32_t>(std::ranges::count(present, 1));
  if (good < header.k || any_k_suffice(header)) return good >= header.k;
  auto options = base::sized<tandem_context_options>();
  options.backend = "cpu";
  options.expert = "executor=serial";
  options.thread_count = 1;
  tandem_context *context = nullptr;
  check(tandem_context_create(&options, &context));
  const std::unique_ptr<tandem_context, void (*)(tandem_context *)> owner(context, tandem_context_destroy);
  try {
    return Recoverability(context, header).holds(present);
  } catch (const Error &error) {
    if (error.status() == TANDEM_ERROR_OUT_OF_MEMORY) throw;
    return false;  // the code does not exist
  }
}

Recoverability::Recoverability(tandem_context *context, const SetHeader &header)
    : context_(context),
      k_(header.k),
      shard_count_(header.shard_count()),
      codec_(make_codec_to_read(header)),
      mds_(any_k_suffice(header)) {}

bool Recoverability::holds(const std::vector<std::uint8_t> &present) const {
  const auto good = static_cast<std::uint32_t>(std::ranges::count(present, 1));
  if (good < k_) return false;
  if (mds_ || good == shard_count_) return true;
  auto options = base::sized<tandem_plan_options>();
  options.operation = TANDEM_OPERATION_DECODE;
  options.present = present.data();
  tandem_plan *plan = nullptr;
  const tandem_status status = tandem_plan_create(context_, codec_.get(), &options, &plan);
  tandem_plan_destroy(plan);
  if (status != TANDEM_OK && status != TANDEM_ERROR_NOT_RECOVERABLE) check(status);
  return status == TANDEM_OK;
}

}  // namespace tandem::files
