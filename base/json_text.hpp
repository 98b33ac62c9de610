// Pieces of JSON text, for writers that assemble the rest themselves. A tree of nlohmann-json values (3.11.2) needs
// memory in its destructor, which must not throw. A process without memory would end.
#pragma once

#include <string>
#include <string_view>

namespace tandem::base {

std::string json_text(std::string_view text);  // in quotes; bytes that are no UTF-8 are replaced
std::string json_text(double number);          // null where it is not finite

}  // namespace tandem::base
