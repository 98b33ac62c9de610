// SPDX-License-Identifier: Apache-2.0
// nlohmann-json as the oracle of base::parse_json: for tests and for the fuzzer of the tuning file.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.hpp"

namespace tandem::test {

// Accepts what base::parse_json should. It differs from nlohmann-json alone in three points: it has a limit of the
// depth, it refuses a zero byte, which nlohmann-json takes for the end, and it refuses numbers that round to 0.
class JsonOracle final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonOracle(std::size_t most_depth) : most_depth_(most_depth) {}

  static bool accepts(std::string_view text, std::size_t most_depth) {
    JsonOracle oracle(most_depth);
    return text.find('\0') == std::string_view::npos && nlohmann::json::sax_parse(text, &oracle);
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t number, const string_t &text) override {
    return number != 0 || text.substr(0, text.find_first_of("eE")).find_first_of("123456789") == std::string::npos;
  }
  bool string(string_t &) override { return true; }
  bool binary(binary_t &) override { return false; }
  bool key(string_t &) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ <= most_depth_; }
  bool start_array(std::size_t) override { return ++depth_ <= most_depth_; }
  bool end_object() override { return end_array(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t, const std::string &, const nlohmann::json::exception &) override { return false; }

 private:
  std::size_t most_depth_, depth_ = 0;
};

inline bool same_json(const base::Json &ours, const nlohmann::json &theirs) {
  using base::Json;
  const auto same_number = [&](double number) { return ours.as<double>() != nullptr && *ours.as<double>() == number; };
  switch (theirs.type()) {
    case nlohmann::json::value_t::number_unsigned:
      return ours.as<std::uint64_t>() != nullptr && *ours.as<std::uint64_t>() == theirs.get<std::uint64_t>();
    case nlohmann::json::value_t::number_integer:
      return same_number(static_cast<double>(theirs.get<std::int64_t>()));
    case nlohmann::json::value_t::number_float:
      return same_number(theirs.get<double>());
    case nlohmann::json::value_t::string:
      return ours.as<std::string>() != nullptr && *ours.as<std::string>() == theirs.get_ref<const std::string &>();
    case nlohmann::json::value_t::array: {
      const Json::List *list = ours.as<Json::List>();
      if (list == nullptr || list->size() != theirs.size()) return false;
      for (std::size_t i = 0; i < list->size(); ++i)
        if (!same_json((*list)[i], theirs[i])) return false;
      return true;
    }
    case nlohmann::json::value_t::object: {
      const Json::Object *object = ours.as<Json::Object>();
      if (object == nullptr) return false;
      for (std::size_t i = 0; i < object->list.size(); i += 2)
        if (!theirs.contains(*object->list[i].as<std::string>())) return false;
      for (const auto &[name, value] : theirs.items()) {
        const Json *member = ours.member(name);
        if (member == nullptr || !same_json(*member, value)) return false;
      }
      return true;
    }
    default:
      return ours.as<std::monostate>() != nullptr;
  }
}

// "" if base::parse_json does with the text what the oracle says, else the difference.
inline std::string json_difference(std::string_view text, std::size_t most_depth) {
  const std::optional<base::Json> ours = base::parse_json(text, most_depth);
  const bool is_json = JsonOracle::accepts(text, most_depth);
  if (ours.has_value() != is_json) return is_json ? "refused, but it is JSON" : "accepted, but it is no JSON";
  if (is_json && !same_json(*ours, nlohmann::json::parse(text))) return "read as another value";
  return "";
}

}  // namespace tandem::test
