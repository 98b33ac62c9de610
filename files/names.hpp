// SPDX-License-Identifier: Apache-2.0
// Names of shard files and of their temporaries (docs/format.md, section 8).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "files/format.hpp"

namespace tandem::files {

// old_record: of a Tandem that committed sets by records. It is left alone.
enum class OwnKind { set_temporary, lone_temporary, old_record };

struct OwnName {
  OwnKind kind;
  SetId set_id{};           // lone_temporary: a random number
  std::uint32_t index = 0;  // set_temporary: the shard's
};

std::optional<OwnName> parse_own_name(std::string_view name);
std::string own_name(const OwnName &name);  // of a temporary
std::string new_temporary_name();           // of a lone one
std::string shard_file_name(std::string_view set_name, std::uint32_t index);
// "video.mp4.003.tandem" -> {"video.mp4", 3}.
std::optional<std::pair<std::string, std::uint32_t>> parse_shard_file_name(const std::string &name);
bool is_called(const std::string &file_name, std::string_view set_name);  // with any index

// A file's name has at most 255 bytes.
std::size_t max_set_name_bytes(std::uint32_t shard_count);
bool is_set_name(std::string_view name, std::uint32_t shard_count);

}  // namespace tandem::files
