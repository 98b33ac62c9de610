#include "core/operator.hpp"

#include <numeric>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace tandem::core {

Operator::Operator(Matrix coefficients, std::uint64_t granularity_bytes)
    : granularity_bytes_(granularity_bytes), input_count_(coefficients.columns()), output_count_(coefficients.rows()) {
  if (granularity_bytes == 0 || granularity_bytes > kMostGranularityBytes)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "an operator's granularity of " + std::to_string(granularity_bytes) +
                                                  " bytes is not from 1 to " + std::to_string(kMostGranularityBytes));
  form_ = Dense{std::move(coefficients)};
}

std::vector<Step> Operator::expand() const {
  Step step{dense(), std::vector<std::uint32_t>(input_count_), std::vector<std::uint32_t>(output_count_)};
  std::iota(step.from.begin(), step.from.end(), 0u);
  std::iota(step.to.begin(), step.to.end(), input_count_);
  return {std::move(step)};
}

}  // namespace tandem::core
