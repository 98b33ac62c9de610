// SPDX-License-Identifier: Apache-2.0
#include "core/tuning.hpp"

#include <cstdint>
#include <utility>

#include "base/text.hpp"
#include "core/backend.hpp"

namespace tandem::core {
namespace {

constexpr std::pair<TunedOperation, const char *> kOperations[] = {{TunedOperation::encode, "encode"},
                                                                   {TunedOperation::decode, "decode"},
                                                                   {TunedOperation::verify, "verify"},
                                                                   {TunedOperation::update, "update"}};

}  // namespace

const char *tuned_operation_name(TunedOperation operation) noexcept {
  for (const auto &[known, name] : kOperations)
    if (known == operation) return name;
  return "?";
}

std::optional<TunedOperation> tuned_operation_from_name(std::string_view name) noexcept {
  for (const auto &[known, its_name] : kOperations)
    if (name == its_name) return known;
  return std::nullopt;
}

Mode tuned_operation_mode(TunedOperation operation) noexcept {
  if (operation == TunedOperation::verify) return Mode::compare;
  return operation == TunedOperation::update ? Mode::accumulate : Mode::assign;
}

std::string tuning_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return base::text(base::digits(hash, 16, 16));
}

std::string tuning_values_text(const TuningValues &values) {
  std::string text;
  for (const auto &[name, value] : values) text += base::text(text.empty() ? "" : ", ", name, "=", value);
  return text;
}

}  // namespace tandem::core
