// SPDX-License-Identifier: Apache-2.0
// What the files of `tandem volume` share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.hpp"

namespace tandem::cli {

// MEMBER..., or --socket of a volume that is being served.
struct VolumeTarget {
  std::vector<std::string> members;
  std::string socket;
};

// {"schema_version": 1, "command": "volume NAME"}.
Json volume_report(const std::string &name);

// The control socket beside the one of NBD clients.
std::string control_path(const std::string &socket);

// Sends a request, shows the progress and returns the answer. Throws Failure without an answer. After a signal it makes
// an answer with the status TANDEM_ERROR_CANCELLED.
Json ask_server(const std::string &socket, const Json &request, Progress &progress);

struct ServeFlags {
  std::vector<std::string> members;
  std::string socket = "tandem-volume.socket", address = "127.0.0.1", pid_file;
  std::uint32_t port = 0;
  bool read_only = false;
  OutputFlags output;
};
// Runs nbdkit until a signal ends it.
int serve_volume(const ServeFlags &flags);

}  // namespace tandem::cli
