// SPDX-License-Identifier: Apache-2.0
#include "volume/control.hpp"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/bytes.hpp"
#include "tandem/tools.h"
#include "volume/bytes.hpp"

namespace tandem::volume {
namespace {

using Json = nlohmann::ordered_json;

template <class... Parts>
[[noreturn]] void refuse(const Parts &...parts) {
  fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text(parts...));
}

// The fields of a request. Each is read once, and none may be left over.
class Request {
 public:
  explicit Request(const Json &object) {
    if (!object.is_object()) refuse("a request is a JSON object, not ", object.type_name());
    fields_ = object;
  }

  std::uint64_t number(const char *name, std::uint64_t otherwise, std::uint64_t most = UINT64_MAX) {
    const Json value = take(name);
    if (value.is_null()) return otherwise;
    if (!value.is_number_unsigned()) refuse("\"", name, "\" is not a whole number from 0 to ", most);
    const auto number = value.get<std::uint64_t>();
    if (number > most) refuse("\"", name, "\" is ", number, ": at most ", most);
    return number;
  }
  bool flag(const char *name) {
    const Json value = take(name);
    if (!value.is_null() && !value.is_boolean()) refuse("\"", name, "\" is neither true nor false");
    return value.is_boolean() && value.get<bool>();
  }
  std::string text(const char *name) {
    const Json value = take(name);
    if (!value.is_string()) refuse("\"", name, "\" is missing, or is no string");
    std::string text = value.get<std::string>();
    if (text.find('\0') != std::string::npos) refuse("\"", name, "\" has a zero byte");
    return text;
  }
  bool has(const char *name) const { return fields_.contains(name); }
  void must_have(const char *name) const {
    if (!has(name)) refuse("\"", name, "\" is missing");
  }
  // Before any effect.
  void end() const {
    if (!fields_.empty()) refuse("unknown field \"", fields_.begin().key(), "\"");
  }

 private:
  Json take(const char *name) {
    const auto found = fields_.find(name);
    if (found == fields_.end()) return nullptr;
    if (found->is_null()) refuse("\"", name, "\" is null");
    Json value = *found;
    fields_.erase(found);
    return value;
  }

  Json fields_;
};

Json to_json(const tandem_volume_window &window) {
  return {{"offset_bytes", window.begin_bytes}, {"bytes", window.end_bytes - window.begin_bytes}};
}

Json to_json(const tandem_volume_io_count &count) {
  return {{"reads", count.reads},
          {"writes", count.writes},
          {"read_bytes", count.read_bytes},
          {"write_bytes", count.write_bytes}};
}

const char *state_name(std::int32_t state) {
  constexpr const char *kNames[] = {"current", "rebuilding", "lost", "stale"};  // by value
  return state >= 0 && static_cast<std::size_t>(state) < std::size(kNames) ? kNames[state] : "?";
}

tandem_volume_info query(tandem_volume *volume) {
  auto info = sized<tandem_volume_info>();
  check(tandem_volume_query(volume, &info));
  return info;
}

// The bounded one as a whole.
std::vector<tandem_volume_window> windows_of(tandem_volume *volume) {
  const tandem_volume_info info = query(volume);
  std::vector<tandem_volume_window> found(info.windows, info.windows + info.window_count);
  if (info.bounded.end_bytes == 0) return found;
  std::erase_if(found, [&](const tandem_volume_window &each) {
    return each.begin_bytes >= info.bounded.begin_bytes && each.end_bytes <= info.bounded.end_bytes;
  });
  found.push_back(info.bounded);
  return found;
}

// What info, delay-begin and delay-list tell of delayed parity.
void tell_delay(const tandem_volume_info &info, Json &answer) {
  answer["windows"] = Json::array();
  for (std::uint32_t i = 0; i < info.window_count; ++i) answer["windows"].push_back(to_json(info.windows[i]));
  answer["unprotected_bytes"] = info.unprotected_bytes;
  answer["bounded"] = nullptr;
  if (info.bounded.end_bytes == 0) return;
  answer["bounded"] = to_json(info.bounded);
  answer["bounded"].update({{"bound_bytes", info.bound_bytes}, {"bound_seconds", info.bound_seconds}});
}

Json statistics_json(const tandem_volume_info &statistics) {
  return {{"data", to_json(statistics.data)},
          {"parity", to_json(statistics.parity)},
          {"log", to_json(statistics.log)},
          {"checksum", to_json(statistics.checksum)},
          {"superblock", to_json(statistics.superblock)},
          {"sync_count", statistics.syncs},
          {"full_stripe_count", statistics.ways[TANDEM_VOLUME_FULL_STRIPE]},
          {"reconstruct_count", statistics.ways[TANDEM_VOLUME_RECONSTRUCT]},
          {"modify_count", statistics.ways[TANDEM_VOLUME_MODIFY]},
          {"avoid_count", statistics.ways[TANDEM_VOLUME_AVOID]},
          {"delay_count", statistics.ways[TANDEM_VOLUME_DELAY]},
          {"transaction_count", statistics.transaction_count},
          {"degraded_read_count", statistics.degraded_read_count},
          {"mended_block_count", statistics.mended_block_count},
          {"avoided_block_count", statistics.avoided_block_count}};
}

Json answer_info(tandem_volume *volume, Request &request) {
  request.end();
  const tandem_volume_info info = query(volume);
  const char *matrix = tandem_matrix_name(info.matrix);
  Json members = Json::array();
  for (std::uint32_t i = 0; i < info.k + info.m; ++i) {
    auto member = sized<tandem_volume_member>();
    check(tandem_volume_member_query(volume, i, &member));
    members.push_back({{"index", member.index},
                       {"state", state_name(member.state)},
                       {"name", member.name},
                       {"why", member.why},
                       {"size_bytes", member.size_bytes},
                       {"read_error_count", member.read_error_count},
                       {"bad_block_count", member.bad_block_count},
                       {"slow", member.is_slow != 0}});
  }
  Json answer = {{"volume_id", base::hexadecimal(info.volume_id)},
                 {"k", info.k},
                 {"m", info.m},
                 {"matrix", matrix != nullptr ? matrix : base::text("unknown (", info.matrix, ")")},
                 {"unit_bytes", info.unit_bytes},
                 {"volume_bytes", info.volume_bytes},
                 {"stripe_count", info.stripe_count},
                 {"log_bytes", info.log_bytes},
                 {"epoch", info.epoch},
                 {"sequence", info.sequence},
                 {"read_only", info.read_only != 0},
                 {"lost_count", info.lost_count},
                 {"rebuilding_count", info.rebuilding_count},
                 {"old_count", info.old_count},
                 {"scrub_position_bytes", info.scrub_position_bytes},
                 {"pid", getpid()}};
  tell_delay(info, answer);
  answer["members"] = members;
  answer["statistics"] = statistics_json(info);
  return answer;
}

Json answer_delay_begin(tandem_volume *volume, Request &request) {
  const std::uint64_t volume_bytes = query(volume).volume_bytes;
  const std::uint64_t offset = request.number("offset_bytes", 0, volume_bytes);
  const std::uint64_t bytes = request.number("bytes", volume_bytes - offset, volume_bytes - offset);
  const bool is_bounded = request.has("bound_bytes") || request.has("bound_seconds");
  const std::uint64_t bound_bytes = request.number("bound_bytes", 0),
                      bound_seconds = request.number("bound_seconds", 0);
  request.end();
  tandem_volume_window window = {};
  check(is_bounded ? tandem_volume_delay_bounded(volume, offset, bytes, bound_bytes, bound_seconds, &window)
                   : tandem_volume_delay_begin(volume, offset, bytes, &window));
  Json answer = {{"window", to_json(window)}};
  tell_delay(query(volume), answer);
  return answer;
}

// Without a range: all open windows. After a failure, "ended" lists those that are closed nevertheless.
Json answer_delay_end(tandem_volume *volume, Request &request) {
  std::vector<tandem_volume_window> windows;
  if (request.has("offset_bytes") || request.has("bytes")) {
    request.must_have("offset_bytes");
    request.must_have("bytes");
    const std::uint64_t begin = request.number("offset_bytes", 0);
    windows.push_back({.begin_bytes = begin, .end_bytes = begin + request.number("bytes", 0, UINT64_MAX - begin)});
  } else {
    windows = windows_of(volume);
  }
  const bool accept_loss = request.flag("accept_loss");
  request.end();
  Json ended = Json::array();
  for (const tandem_volume_window &window : windows) {
    const tandem_status status = tandem_volume_delay_end(volume, &window, accept_loss);
    if (status != TANDEM_OK) {
      Json failed = failure(status, tandem_last_error_message());
      failed["ended"] = ended;
      return failed;
    }
    ended.push_back(to_json(window));
  }
  return {{"ended", ended}};
}

Json answer_delay_list(tandem_volume *volume, Request &request) {
  request.end();
  Json answer = Json::object();
  tell_delay(query(volume), answer);
  return answer;
}

Json to_json(const tandem_volume_care_result &result) {
  return {{"stripe_count", result.stripe_count},
          {"block_count", result.block_count},
          {"bad_block_count", result.bad_block_count},
          {"bad_parity_count", result.bad_parity_count},
          {"mended_block_count", result.mended_block_count},
          {"lost_block_count", result.lost_block_count},
          {"unprotected_stripe_count", result.unprotected_stripe_count},
          {"left_block_count", result.left_block_count}};
}

using Care = tandem_status (*)(tandem_volume *, const tandem_volume_care_options *, tandem_volume_care_result *);

Json answer_care(tandem_volume *volume, Request &request, const ControlProgress &progress, Care care, bool is_scrub) {
  auto options = sized<tandem_volume_care_options>();
  options.rate_bytes_per_second = request.number("rate_bytes_per_second", 0);
  if (is_scrub) {
    options.repair = request.flag("repair");
    options.restart = request.flag("restart");
  }
  request.flag("progress");  // handled by the socket
  request.end();
  if (progress) {
    options.progress_user = const_cast<ControlProgress *>(&progress);
    options.progress = [](void *user, std::uint64_t done_bytes, std::uint64_t total_bytes) -> std::int32_t {
      return (*static_cast<const ControlProgress *>(user))(done_bytes, total_bytes) ? 1 : 0;
    };
  }
  auto result = sized<tandem_volume_care_result>();
  const tandem_status status = care(volume, &options, &result);
  Json answer = status == TANDEM_OK ? Json::object() : failure(status, tandem_last_error_message());
  if (status == TANDEM_OK || status == TANDEM_ERROR_CANCELLED) answer.update(to_json(result));
  const tandem_volume_info info = query(volume);
  if (is_scrub) answer["scrub_position_bytes"] = info.scrub_position_bytes;
  answer["lost_count"] = info.lost_count;
  answer["rebuilding_count"] = info.rebuilding_count;
  answer["old_count"] = info.old_count;
  return answer;
}

Json answer_replace(tandem_volume *volume, Request &request) {
  request.must_have("index");
  const auto index = static_cast<std::uint32_t>(request.number("index", 0, UINT32_MAX));
  const std::string member = request.text("member");
  const bool force = request.flag("force");
  request.end();
  // The server's working folder differs from the caller's.
  if (!member.starts_with('/') && member.find("://") == std::string::npos)
    refuse("\"member\" is neither an absolute path nor a URI");
  check(tandem_volume_replace(volume, index, member.c_str(), force));
  return Json::object();
}

Json answer_request(tandem_volume *volume, const Json &object, const ControlProgress &progress) {
  Request request(object);
  const std::string command = request.text("command");
  if (command == "info") return answer_info(volume, request);
  if (command == "delay-begin") return answer_delay_begin(volume, request);
  if (command == "delay-end") return answer_delay_end(volume, request);
  if (command == "delay-list") return answer_delay_list(volume, request);
  if (command == "scrub") return answer_care(volume, request, progress, tandem_volume_scrub, true);
  if (command == "rebuild") return answer_care(volume, request, progress, tandem_volume_rebuild, false);
  if (command == "replace") return answer_replace(volume, request);
  refuse("unknown command \"", command.substr(0, 64),
         "\"; there are info, delay-begin, delay-end, delay-list, scrub, rebuild, replace");
}

}  // namespace

Json failure(tandem_status status, const std::string &message) {
  return {{"status", status}, {"status_name", tandem_status_name(status)}, {"message", message}};
}

Json control_answer(tandem_volume *volume, const Json &request, const ControlProgress &progress) {
  try {
    Json answer = answer_request(volume, request, progress);
    if (answer.contains("status")) return answer;
    Json whole = {{"status", TANDEM_OK}, {"status_name", tandem_status_name(TANDEM_OK)}};
    whole.update(answer);
    return whole;
  } catch (const Error &refused) {
    return failure(refused.status(), refused.what());
  } catch (const Json::exception &error) {
    return failure(TANDEM_ERROR_INTERNAL, error.what());
  }
}

std::string control_answer_line(tandem_volume *volume, const std::string &request,
                                const std::function<ControlProgress(bool wanted)> &make_progress) {
  Json object;
  try {
    object = Json::parse(request);
  } catch (const Json::exception &error) {
    return json_line(failure(TANDEM_ERROR_INVALID_ARGUMENT, base::text("not a line of JSON: ", error.what())));
  }
  const bool wanted = object.is_object() && object.contains("progress") && object["progress"] == true;
  return json_line(control_answer(volume, object, make_progress(wanted)));
}

std::string json_line(const Json &object) { return object.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace tandem::volume
