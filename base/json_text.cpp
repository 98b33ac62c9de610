#include "base/json_text.hpp"

#include <nlohmann/json.hpp>

namespace tandem::base {

using nlohmann::json;

std::string json_text(std::string_view text) { return json(text).dump(-1, ' ', false, json::error_handler_t::replace); }
std::string json_text(double number) { return json(number).dump(); }

}  // namespace tandem::base
