// SPDX-License-Identifier: Apache-2.0
// `tandem volume ... --socket`: asks the server of a volume.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/descriptor.hpp"
#include "cli/volume.hpp"
#include "volume/control.hpp"

namespace tandem::cli {
namespace {

constexpr std::size_t kMostAnswerBytes = 4 << 20;

class Connection {
 public:
  explicit Connection(const std::string &path) : path_(path) {
    sockaddr_un address = {};
    if (path.size() >= sizeof address.sun_path)
      fail(kExitWrongUsage, path, ": the path of a socket has at most ", sizeof address.sun_path - 1,
           " bytes, this one has ", path.size());
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    socket_ = base::Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket_) fail(kExitInputOutput, path, ": cannot make a socket: ", std::strerror(errno));
    if (connect(socket_.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
      fail(kExitInputOutput, path, ": cannot reach the server of a volume there: ", std::strerror(errno));
  }

  // A server may refuse a request before it has read all of it. Its answer says why.
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t now = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (now < 0 && errno == EINTR && caught_signal() == 0) continue;
      if (now <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(now));
    }
  }

  // False: a signal came.
  bool receive_line(std::string &line) {
    for (;;) {
      if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return true;
      }
      if (buffer_.size() > kMostAnswerBytes)
        fail(kExitInputOutput, path_, ": an answer of over ", kMostAnswerBytes, " bytes");
      // A signal just before poll does not end poll. So poll ends from time to time, to look for signals.
      pollfd waiting = {socket_.get(), POLLIN, 0};
      const int ready = poll(&waiting, 1, 200);
      if (caught_signal() != 0) return false;
      if (ready <= 0) continue;
      char part[4096];
      const ssize_t now = recv(socket_.get(), part, sizeof part, 0);
      if (now < 0 && errno == EINTR) continue;
      if (now <= 0) fail(kExitInputOutput, path_, ": the server ended before it answered");
      buffer_.append(part, static_cast<std::size_t>(now));
    }
  }

 private:
  std::string path_, buffer_;
  base::Descriptor socket_;
};

}  // namespace

std::string control_path(const std::string &socket) { return socket + ".control"; }

Json ask_server(const std::string &socket, const Json &request, Progress &progress) {
  const std::string path = control_path(socket);
  Connection connection(path);
  connection.send(request.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
  std::string line;
  while (connection.receive_line(line)) {
    Json answer;
    try {
      answer = Json::parse(line);
    } catch (const Json::exception &error) {
      fail(kExitInputOutput, path, ": the server's answer is no JSON: ", error.what());
    }
    if (!answer.is_object()) fail(kExitInputOutput, path, ": the server's answer is no JSON object");
    if (answer.contains("status")) return answer;
    Progress::callback(&progress, answer.at("done_bytes"), answer.at("total_bytes"));
  }
  return volume::failure(TANDEM_ERROR_CANCELLED, "interrupted");  // the end of the connection cancels the call
}

}  // namespace tandem::cli
