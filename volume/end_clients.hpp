// nbdkit, asked to end, waits until its clients have gone, and an idle one may stay for ever. So they are sent away.
#pragma once

#include <signal.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

namespace tandem::volume {

// From its making on, SIGINT, SIGTERM and SIGQUIT also end the reading side of each connection that this process
// accepted at a socket on which it listened then. Requests that have arrived are still answered. One at a time.
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
