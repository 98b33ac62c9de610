// SPDX-License-Identifier: Apache-2.0
#include "volume/control_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/text.hpp"
#include "volume/control.hpp"

namespace tandem::volume {
namespace {

using Clock = std::chrono::steady_clock;

using base::Descriptor;

[[noreturn]] void fail(const std::string &path, const char *what) {
  throw std::runtime_error(base::text(path, ": ", what, ": ", std::strerror(errno)));
}

sockaddr_un address_of(const std::string &path) {
  sockaddr_un address = {};
  if (path.empty() || path.size() >= sizeof address.sun_path)
    throw std::runtime_error(base::text(path, ": the path of a socket has 1 to ", sizeof address.sun_path - 1,
                                        " bytes, this one has ", path.size()));
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Descriptor unix_socket(const std::string &path) {
  Descriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made) fail(path, "cannot make a socket");
  return made;
}

}  // namespace

void remove_dead_socket(const std::string &path) {
  const sockaddr_un address = address_of(path);
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    fail(path, "cannot be looked at");
  }
  if (!S_ISSOCK(status.st_mode)) throw std::runtime_error(base::text(path, ": is there already, and is no socket"));
  const Descriptor probe = unix_socket(path);
  if (connect(probe.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0)
    throw std::runtime_error(base::text(path, ": another process listens there"));
  if (errno != ECONNREFUSED) fail(path, "a socket that cannot be asked");
  if (unlink(path.c_str()) != 0 && errno != ENOENT) fail(path, "cannot remove an old socket");
}

struct ControlServer::Connection {
  explicit Connection(int number) : descriptor(number) {}
  const Descriptor descriptor;
  std::atomic<bool> done = false;
  std::thread thread;
};

ControlServer::ControlServer(tandem_volume *volume, const std::string &path) : volume_(volume), path_(path) {
  remove_dead_socket(path);
  const sockaddr_un address = address_of(path);
  stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  if (!stop_) fail(path, "eventfd");
  listener_ = unix_socket(path);
  // On Linux a socket's own mode becomes that of its name, so other users can never connect.
  if (fchmod(listener_.get(), 0600) != 0) fail(path, "cannot set the permissions");
  if (bind(listener_.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
    fail(path, "cannot listen");
  if (listen(listener_.get(), static_cast<int>(kMostConnections)) != 0) {
    const int error = errno;
    unlink(path.c_str());
    errno = error;
    fail(path, "cannot listen");
  }
  acceptor_ = std::thread([this] { accept_all(); });
}

ControlServer::~ControlServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof one);  // an eventfd of 0 accepts it
  acceptor_.join();
  for (const auto &each : connections_) shutdown(each->descriptor.get(), SHUT_RD);
  for (const auto &each : connections_) each->thread.join();
  unlink(path_.c_str());
}

bool ControlServer::is_stopping() const {
  pollfd waiting = {stop_.get(), POLLIN, 0};
  return poll(&waiting, 1, 0) == 1;
}

void ControlServer::accept_all() {
  for (;;) {
    pollfd waiting[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(waiting, 2, -1) < 0 && errno != EINTR) return;
    if (waiting[1].revents != 0) return;
    if (waiting[0].revents == 0) continue;
    const int number = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (number < 0) {
      // Out of descriptors: the waiting connection stays readable.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) poll(&waiting[1], 1, 100);
      continue;
    }
    try {
      auto connection = std::make_unique<Connection>(number);
      for (auto each = connections_.begin(); each != connections_.end();) {
        if ((*each)->done.load(std::memory_order_acquire)) {
          (*each)->thread.join();
          each = connections_.erase(each);
        } else {
          ++each;
        }
      }
      if (connections_.size() >= kMostConnections) {
        send(*connection, json_line(failure(TANDEM_ERROR_UNAVAILABLE,
                                            base::text(kMostConnections, " connections are open already"))));
        continue;
      }
      Connection &kept = *connection;
      connections_.push_back(std::move(connection));
      try {
        kept.thread = std::thread([this, &kept] { serve(kept); });
      } catch (...) {
        connections_.pop_back();
        throw;
      }
    } catch (const std::exception &) {
      // No memory or no thread for one more connection: it is closed, and the others continue.
    }
  }
}

// False: it is gone, or `problem` has the reason.
bool ControlServer::receive(Connection &connection, std::string &request, std::string &problem) {
  const Clock::time_point until = Clock::now() + std::chrono::seconds(kRequestSeconds);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) {
      problem = base::text("no whole line within ", kRequestSeconds, " seconds");
      return false;
    }
    pollfd waiting[] = {{connection.descriptor.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    const int ready = poll(waiting, 2, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    if (waiting[1].revents != 0) return false;
    char part[4096];
    const ssize_t now = recv(connection.descriptor.get(), part, sizeof part, MSG_DONTWAIT);
    if (now < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (now < 0) return false;
    if (now == 0) {
      problem = base::text("the request ended after ", request.size(), " bytes, without an end of line");
      return false;
    }
    request.append(part, static_cast<std::size_t>(now));
    const std::size_t end = request.find('\n');
    if (std::min(end, request.size()) > kMostRequestBytes) {
      problem = base::text("a request has at most ", kMostRequestBytes, " bytes");
      return false;
    }
    if (end == std::string::npos) continue;
    if (end + 1 != request.size()) {
      problem = base::text(request.size() - end - 1, " bytes follow the request; a connection carries one");
      return false;
    }
    request.pop_back();
    return true;
  }
}

bool ControlServer::send(const Connection &connection, const std::string &line) const {
  const std::string text = line + '\n';
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t now = ::send(connection.descriptor.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now > 0) {
      rest.remove_prefix(static_cast<std::size_t>(now));
    } else if (errno == EAGAIN) {  // a caller that does not read must not delay the end
      pollfd waiting[] = {{connection.descriptor.get(), POLLOUT, 0}, {stop_.get(), POLLIN, 0}};
      if (poll(waiting, 2, kRequestSeconds * 1000) <= 0 || waiting[0].revents == 0) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void ControlServer::serve(Connection &connection) {
  try {
    std::string request, problem;
    if (receive(connection, request, problem)) {
      Clock::time_point told = {};
      const auto make_progress = [&](bool wanted) -> ControlProgress {
        return [&, wanted](std::uint64_t done_bytes, std::uint64_t total_bytes) {
          // POLLHUP: closed. A caller that only closed its own side (socat) still waits for the answer.
          pollfd caller = {connection.descriptor.get(), 0, 0};
          if (is_stopping() || (poll(&caller, 1, 0) > 0 && (caller.revents & (POLLHUP | POLLERR)) != 0)) return true;
          const Clock::time_point now = Clock::now();
          if (!wanted || now - told < std::chrono::milliseconds(100)) return false;
          told = now;
          return !send(connection, json_line({{"done_bytes", done_bytes}, {"total_bytes", total_bytes}}));
        };
      };
      send(connection, control_answer_line(volume_, request, make_progress));
    } else if (!problem.empty()) {
      send(connection, json_line(failure(TANDEM_ERROR_INVALID_ARGUMENT, problem)));
    }
  } catch (const std::exception &) {
    // Out of memory: the caller gets no answer, only the end of the connection.
  }
  // In this order: when a caller sees the end, its place is free. The number stays taken until the thread is joined.
  connection.done.store(true, std::memory_order_release);
  shutdown(connection.descriptor.get(), SHUT_RDWR);
}

}  // namespace tandem::volume
