// SPDX-License-Identifier: Apache-2.0
// The requests to an open volume, from the command and, through its control socket, from others: one JSON object there,
// one back. docs/volume.md lists the requests.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/volume.h"

namespace tandem::volume {

// Receives the progress of scrub or rebuild; true: stop.
using ControlProgress = std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

// The answer to a request that failed: "status", "status_name" and "message".
nlohmann::ordered_json failure(tandem_status status, const std::string &message);

// Always has "status" (a number of tandem_status_value) and "status_name"; "message" if the status is not 0. Throws
// only std::bad_alloc. A request with an unknown part has no effect.
nlohmann::ordered_json control_answer(tandem_volume *volume, const nlohmann::ordered_json &request,
                                      const ControlProgress &progress);

// The same for a request as text.
std::string control_answer_line(tandem_volume *volume, const std::string &request,
                                const std::function<ControlProgress(bool wanted)> &make_progress);

// One line, without its end, of any bytes: invalid UTF-8 is replaced.
std::string json_line(const nlohmann::ordered_json &object);

}  // namespace tandem::volume
