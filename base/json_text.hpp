// Pieces of JSON text, for writers that put the rest together themselves. A tree of nlohmann-json values would need
// memory to be destroyed, in a destructor that must not throw (3.11.2): a process that runs out of memory would end.
#pragma once

#include <string>
#include <string_view>

namespace tandem::base {

std::string json_text(std::string_view text);  // in quotes; bytes that are no UTF-8 are replaced
std::string json_text(double number);          // null where it is not finite

}  // namespace tandem::base
