// SPDX-License-Identifier: Apache-2.0
// The control socket of a volume that is being served. A connection carries one request, a line of JSON. If the request
// asks for progress, lines {"done_bytes": ..., "total_bytes": ...} follow. The answer is a line of JSON.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <thread>

#include "base/descriptor.hpp"
#include "tandem/volume.h"

namespace tandem::volume {

// Removes a Unix socket that no process listens on. Throws std::runtime_error if another kind of file has the name.
void remove_dead_socket(const std::string &path);

class ControlServer {
 public:
  static constexpr std::size_t kMostRequestBytes = 64 << 10;
  static constexpr std::size_t kMostConnections = 16;
  static constexpr int kRequestSeconds = 30;  // for a request to arrive

  // Listens at `path`, with permissions 0600. Throws std::runtime_error.
  ControlServer(tandem_volume *volume, const std::string &path);
  // Cancels scrub and rebuild, waits for other calls, removes the socket.
  ~ControlServer();
  ControlServer(const ControlServer &) = delete;
  ControlServer &operator=(const ControlServer &) = delete;

 private:
  struct Connection;

  void accept_all();
  void serve(Connection &connection);
  bool receive(Connection &connection, std::string &request, std::string &problem);
  bool send(const Connection &connection, const std::string &line) const;
  bool is_stopping() const;

  tandem_volume *volume_;
  std::string path_;
  base::Descriptor listener_, stop_;                    // stop_: an eventfd that becomes readable at the end
  std::list<std::unique_ptr<Connection>> connections_;  // owned by the acceptor until it has ended
  std::thread acceptor_;
};

}  // namespace tandem::volume
