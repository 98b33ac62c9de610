// SPDX-License-Identifier: Apache-2.0
#include "files/names.hpp"

#include <charconv>

#include "base/text.hpp"

namespace tandem::files {
namespace {

constexpr std::string_view kTemporary = ".tandem-tmp", kShardFile = ".tandem";

std::string index_text(std::uint32_t index) { return base::digits(index, 10, 3); }

bool take(std::string_view &text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// ".013" or ".1013" at the end of `text`: three digits, or more and the first is not 0.
std::optional<std::uint32_t> take_index(std::string_view &text) {
  const std::size_t point = text.find_last_of('.');
  if (point == std::string_view::npos) return {};
  const std::string_view digits = text.substr(point + 1);
  std::uint32_t index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || index >= kMaxShardCount || digits != index_text(index)) return {};
  text.remove_suffix(digits.size() + 1);
  return index;
}

std::optional<SetId> parse_set_id(std::string_view text) {
  SetId id;
  return base::parse_hexadecimal(text, id) ? std::optional(id) : std::nullopt;
}

}  // namespace

std::optional<OwnName> parse_own_name(std::string_view name) {
  if (!name.starts_with('.')) return {};
  name.remove_prefix(1);
  OwnName own{};
  if (take(name, ".tandem-pending") || take(name, ".tandem-commit")) {
    own.kind = OwnKind::old_record;
  } else if (!take(name, kTemporary)) {
    return {};
  } else if (const auto index = take_index(name)) {
    own.kind = OwnKind::set_temporary;
    own.index = *index;
  } else {
    own.kind = OwnKind::lone_temporary;
  }
  const auto id = parse_set_id(name);
  if (!id) return {};
  own.set_id = *id;
  return own;
}

std::string own_name(const OwnName &name) {
  const std::string id = hexadecimal(name.set_id);
  return name.kind == OwnKind::set_temporary ? base::text(".", id, ".", index_text(name.index), kTemporary)
                                             : base::text(".", id, kTemporary);
}

std::string new_temporary_name() {
  OwnName name{OwnKind::lone_temporary};
  random_bytes(name.set_id);
  return own_name(name);
}

std::string shard_file_name(std::string_view set_name, std::uint32_t index) {
  return base::text(set_name, ".", index_text(index), kShardFile);
}

std::optional<std::pair<std::string, std::uint32_t>> parse_shard_file_name(const std::string &name) {
  std::string_view left = name;
  if (!take(left, kShardFile)) return {};
  const auto index = take_index(left);
  if (!index || left.empty()) return {};
  return std::pair(std::string(left), *index);
}

bool is_called(const std::string &file_name, std::string_view set_name) {
  const auto parts = parse_shard_file_name(file_name);
  return parts && parts->first == set_name;
}

std::size_t max_set_name_bytes(std::uint32_t shard_count) { return 255 - shard_file_name("", shard_count - 1).size(); }

bool is_set_name(std::string_view name, std::uint32_t shard_count) {
  return !name.empty() && name.size() <= max_set_name_bytes(shard_count) && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace tandem::files
