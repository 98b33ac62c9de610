// SPDX-License-Identifier: Apache-2.0
// When nbdkit is asked to end, it waits until its clients have gone. An idle client may stay for ever, so this
// disconnects all clients.
#pragma once

#include <sys/socket.h>

#include <thread>
#include <vector>

namespace tandem::volume {

// While it exists, SIGINT, SIGTERM and SIGQUIT also end the reading side of connections. These are connections that
// this process accepted at sockets on which it listened at construction. Requests that have arrived are still answered.
// Only one may exist at a time.
class EndClientsOnSignal {
 public:
  EndClientsOnSignal();
  ~EndClientsOnSignal();
  EndClientsOnSignal(const EndClientsOnSignal &) = delete;
  EndClientsOnSignal &operator=(const EndClientsOnSignal &) = delete;

 private:
  void watch();

  std::vector<sockaddr_storage> listeners_;
  int stop_ = -1;
  std::thread watcher_;
};

}  // namespace tandem::volume
