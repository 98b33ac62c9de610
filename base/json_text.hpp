// SPDX-License-Identifier: Apache-2.0
// Pieces of JSON text, for writers that assemble the rest themselves.
#pragma once

#include <string>
#include <string_view>

namespace tandem::base {

std::string json_text(std::string_view text);  // in quotes; bytes that are no UTF-8 become U+FFFD
std::string json_text(double number);          // with a point or an exponent; null where it is not finite

}  // namespace tandem::base
