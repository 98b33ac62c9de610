// SPDX-License-Identifier: Apache-2.0
#include "volume/end_clients.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/text.hpp"

namespace tandem::volume {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGQUIT};

struct sigaction before[3];  // nbdkit's own handlers, which are called first
volatile sig_atomic_t quit_event = -1;

void on_signal(int number, siginfo_t *information, void *context) {
  const int error = errno;
  for (std::size_t i = 0; i < 3; ++i) {
    if (kSignals[i] != number) continue;
    if ((before[i].sa_flags & SA_SIGINFO) != 0)
      before[i].sa_sigaction(number, information, context);
    else if (before[i].sa_handler != SIG_DFL && before[i].sa_handler != SIG_IGN)
      before[i].sa_handler(number);
  }
  const std::uint64_t one = 1;
  if (quit_event >= 0) {
    [[maybe_unused]] const ssize_t written = write(quit_event, &one, sizeof one);  // full: it is readable already
  }
  errno = error;
}

std::vector<int> descriptors() {
  std::vector<int> list;
  DIR *folder = opendir("/proc/self/fd");
  if (folder == nullptr) return list;
  while (const dirent *entry = readdir(folder)) {
    const auto number = base::number_in<int>(entry->d_name);
    if (number && *number != dirfd(folder)) list.push_back(*number);
  }
  closedir(folder);
  return list;
}

bool local_address(int socket, sockaddr_storage &address) {
  address = {};
  socklen_t bytes = sizeof address;
  return getsockname(socket, reinterpret_cast<sockaddr *>(&address), &bytes) == 0;
}

bool listens(int socket) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &value, &bytes) == 0 && value != 0;
}

// A listener at any address of the machine accepts at one of them, so only the port is compared.
bool is_accepted_at(const sockaddr_storage &connection, const sockaddr_storage &listener) {
  if (connection.ss_family != listener.ss_family) return false;
  const void *own = &connection, *other = &listener;
  switch (connection.ss_family) {
    case AF_UNIX: {
      const char *path = static_cast<const sockaddr_un *>(own)->sun_path;
      return path[0] != '\0' &&
             std::strncmp(path, static_cast<const sockaddr_un *>(other)->sun_path, sizeof(sockaddr_un::sun_path)) == 0;
    }
    case AF_INET:
      return static_cast<const sockaddr_in *>(own)->sin_port == static_cast<const sockaddr_in *>(other)->sin_port;
    case AF_INET6:
      return static_cast<const sockaddr_in6 *>(own)->sin6_port == static_cast<const sockaddr_in6 *>(other)->sin6_port;
    default:
      return false;
  }
}

void end_connections(const std::vector<sockaddr_storage> &listeners) {
  for (const int number : descriptors()) {
    // A copy refers to the same connection, even if the number is reused.
    const int copy = fcntl(number, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) continue;
    sockaddr_storage address;
    if (!listens(copy) && local_address(copy, address) &&
        std::ranges::any_of(listeners, [&](const sockaddr_storage &each) { return is_accepted_at(address, each); }))
      shutdown(copy, SHUT_RD);
    close(copy);
  }
}

}  // namespace

EndClientsOnSignal::EndClientsOnSignal() {
  for (const int number : descriptors()) {
    sockaddr_storage address;
    if (listens(number) && local_address(number, address)) listeners_.push_back(address);
  }
  stop_ = eventfd(0, EFD_CLOEXEC);
  quit_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_ < 0 || quit_event < 0) throw std::runtime_error(std::string("eventfd: ") + std::strerror(errno));
  watcher_ = std::thread([this] { watch(); });
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < 3; ++i) {
    sigaction(kSignals[i], nullptr, &before[i]);
    const bool ignored = (before[i].sa_flags & SA_SIGINFO) == 0 && before[i].sa_handler == SIG_IGN;
    if (!ignored) sigaction(kSignals[i], &action, nullptr);
  }
}

EndClientsOnSignal::~EndClientsOnSignal() {
  for (std::size_t i = 0; i < 3; ++i) sigaction(kSignals[i], &before[i], nullptr);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof one);  // an eventfd of 0 accepts it
  watcher_.join();
  close(stop_);
  close(static_cast<int>(quit_event));
  quit_event = -1;
}

void EndClientsOnSignal::watch() {
  pollfd waiting[] = {{stop_, POLLIN, 0}, {quit_event, POLLIN, 0}};
  while (poll(waiting, 2, -1) < 0 || (waiting[0].revents == 0 && waiting[1].revents == 0)) {
  }
  // Repeated, because one may have been accepted just now.
  while (waiting[0].revents == 0) {
    end_connections(listeners_);
    poll(waiting, 1, 50);
  }
}

}  // namespace tandem::volume
