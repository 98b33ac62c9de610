#include "files/recoverable.hpp"

#include <algorithm>

namespace tandem::files {
namespace {

bool is_mds(const SetHeader &header) {
  try {
    make_codec(header, false);
    return true;
  } catch (const Error &error) {
    if (error.status() != TANDEM_ERROR_NOT_MDS) throw;
    return false;
  }
}

}  // namespace

Recoverability::Recoverability(tandem_context *context, const SetHeader &header)
    : context_(context),
      k_(header.k),
      shard_count_(header.shard_count()),
      codec_(make_codec(header, true)),  // what exists already may be read, whatever its matrix
      mds_(is_mds(header)) {}

bool Recoverability::holds(const std::vector<std::uint8_t> &present) const {
  const auto good = static_cast<std::uint32_t>(std::count(present.begin(), present.end(), 1));
  if (good < k_) return false;
  if (mds_ || good == shard_count_) return true;
  tandem_plan_options options = {};
  options.struct_bytes = sizeof options;
  options.operation = TANDEM_OPERATION_DECODE;
  options.present = present.data();
  tandem_plan *plan = nullptr;
  const tandem_status status = tandem_plan_create(context_, codec_.get(), &options, &plan);
  tandem_plan_destroy(plan);
  if (status != TANDEM_OK && status != TANDEM_ERROR_NOT_RECOVERABLE) check(status);
  return status == TANDEM_OK;
}

}  // namespace tandem::files
