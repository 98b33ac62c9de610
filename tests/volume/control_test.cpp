// SPDX-License-Identifier: Apache-2.0
// The control socket of a volume and the end of idle clients, inside one process. Unlike nbdkit, it runs under
// sanitizers.
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "volume/control.hpp"
#include "volume/control_server.hpp"
#include "volume/end_clients.hpp"

namespace {

using Json = nlohmann::ordered_json;
using tandem::volume::ControlServer;

constexpr int kLimitMilliseconds = 60000;

class Socket {
 public:
  explicit Socket(int number) : number_(number) {
    const timeval limit = {kLimitMilliseconds / 1000, 0};
    setsockopt(number_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Socket() { close(number_); }
  Socket(const Socket &) = delete;
  Socket &operator=(const Socket &) = delete;
  int get() const { return number_; }
  // Up to the end.
  std::string receive() const {
    std::string text;
    char part[4096];
    for (ssize_t now; (now = recv(number_, part, sizeof part, 0)) > 0;)
      text.append(part, static_cast<std::size_t>(now));
    return text;
  }

 private:
  int number_;
};

sockaddr_un address_of(const std::string &path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

int unix_socket(const std::string &path, bool listens) {
  const int number = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  const auto *plain = reinterpret_cast<const sockaddr *>(&address);
  const bool works = listens ? bind(number, plain, sizeof address) == 0 && listen(number, 8) == 0
                             : connect(number, plain, sizeof address) == 0;
  if (!works) throw std::runtime_error(path + ": " + std::strerror(errno));
  return number;
}

class Control : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tandem-control-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    std::vector<std::string> members;
    std::vector<const char *> list;
    for (int i = 0; i < 3; ++i) members.push_back(path("m" + std::to_string(i)));
    for (const std::string &each : members) list.push_back(each.c_str());
    tandem_volume_create_options create = {};
    create.struct_bytes = sizeof create;
    create.members = list.data();
    create.member_count = list.size();
    create.k = 2;
    create.m = 1;
    create.member_bytes = 4 << 20;
    ASSERT_EQ(tandem_volume_create(&create), TANDEM_OK) << tandem_last_error_message();
    tandem_volume_open_options open = {};
    open.struct_bytes = sizeof open;
    open.members = list.data();
    open.member_count = list.size();
    ASSERT_EQ(tandem_volume_open(nullptr, &open, &volume_), TANDEM_OK) << tandem_last_error_message();
  }
  void TearDown() override {
    tandem_volume_close(volume_);
    std::filesystem::remove_all(folder_);
  }

  std::string path(const std::string &name) const { return folder_ + '/' + name; }
  std::string answer_to(const std::string &request, bool half_close = false) const {
    const Socket caller(unix_socket(path("s"), false));
    send(caller.get(), request.data(), request.size(), MSG_NOSIGNAL);
    if (half_close) shutdown(caller.get(), SHUT_WR);
    return caller.receive();
  }
  Json ask(const std::string &request) const { return Json::parse(answer_to(request)); }

  std::string folder_;
  tandem_volume *volume_ = nullptr;
};

TEST_F(Control, SocketIsTheOwnersAndGoesWithTheServer) {
  {
    const ControlServer server(volume_, path("s"));
    struct stat status;
    ASSERT_EQ(lstat(path("s").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
    EXPECT_THROW(ControlServer(volume_, path("s")), std::runtime_error);
    EXPECT_EQ(ask("{\"command\": \"info\"}\n").at("k"), 2);
  }
  EXPECT_FALSE(std::filesystem::exists(path("s")));
  { const Socket dead(unix_socket(path("s"), true)); }  // its name stays
  const ControlServer server(volume_, path("s"));
  EXPECT_EQ(ask("{\"command\": \"info\"}\n").at("status"), TANDEM_OK);
  EXPECT_THROW(ControlServer(volume_, path("m0")), std::runtime_error);
  EXPECT_THROW(ControlServer(volume_, std::string(200, 'x')), std::runtime_error);
}

TEST_F(Control, AnyBytesGetAnAnswer) {
  const ControlServer server(volume_, path("s"));
  const std::string whole = R"({"command": "delay-end", "offset_bytes": 0, "bytes": 131072, "accept_loss": false})";
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string request = whole;
    for (std::uint32_t change = random() % 4; change-- > 0;)
      request[random() % request.size()] = static_cast<char>(random());
    request.resize(random() % (request.size() + 1));
    std::erase(request, '\n');
    const Json answer = ask(request + '\n');
    EXPECT_EQ(answer.at("status"), TANDEM_ERROR_INVALID_ARGUMENT) << request << '\n' << answer;
    EXPECT_FALSE(answer.at("message").get<std::string>().empty());
  }
  EXPECT_EQ(ask(std::string(ControlServer::kMostRequestBytes + 1, 'x')).at("status"), TANDEM_ERROR_INVALID_ARGUMENT);
  // As long as may be.
  std::string longest = R"({"command": "info"})";
  longest.append(ControlServer::kMostRequestBytes - longest.size(), ' ');
  EXPECT_EQ(ask(longest + '\n').at("status"), TANDEM_OK);
  EXPECT_EQ(ask(longest + " \n").at("status"), TANDEM_ERROR_INVALID_ARGUMENT);
}

TEST_F(Control, RequestsThatMakeNoSenseHaveNoEffect) {
  const ControlServer server(volume_, path("s"));
  // Each line is one.
  std::istringstream requests(R"({}
[]
null
7
"info"
{"command": 7}
{"command": null}
{"command": "format"}
{"command": "\ud800"}
{"command": "info", "x": 1}
{"command": "info"} {"command": "info"}
{"command": "scrub", "repair": 1}
{"command": "scrub", "rate_bytes_per_second": -1}
{"command": "scrub", "rate_bytes_per_second": 1.5}
{"command": "scrub", "rate_bytes_per_second": 99999999999999999999}
{"command": "delay-begin", "offset_bytes": 18446744073709551615}
{"command": "delay-begin", "bytes": 18446744073709551615}
{"command": "delay-begin", "bytes": 1}
{"command": "delay-begin", "bound_bytes": 1}
{"command": "delay-begin", "bound_seconds": -1}
{"command": "delay-end", "offset_bytes": 1}
{"command": "delay-end", "offset_bytes": 1, "bytes": 18446744073709551615}
{"command": "delay-end", "offset_bytes": 0, "bytes": 65536}
{"command": "replace"}
{"command": "replace", "index": 4294967296, "member": "/x"}
{"command": "replace", "index": 99, "member": "/x"}
{"command": "replace", "index": 0, "member": "relative"}
{"command": "replace", "index": 0, "member": "/a\u0000b"})");
  for (std::string request; std::getline(requests, request);) {
    const Json answer = ask(request + '\n');
    EXPECT_EQ(answer.at("status_name"), "TANDEM_ERROR_INVALID_ARGUMENT") << request << '\n' << answer;
  }
  for (const std::string &request : {std::string(60'000, '['), std::string("{\"command\": \"info\"}\n{}")})
    EXPECT_EQ(ask(request + '\n').at("status"), TANDEM_ERROR_INVALID_ARGUMENT);
  const Json info = ask("{\"command\": \"info\"}\n");
  EXPECT_EQ(info.at("lost_count"), 0);
  EXPECT_TRUE(info.at("windows").empty());
}

TEST_F(Control, CallersThatSayNothingTakeUpPlacesUntilTheyGo) {
  const ControlServer server(volume_, path("s"));
  const std::string info = "{\"command\": \"info\"}\n";
  const auto is_full = [&] { return answer_to(info).find("16 connections") != std::string::npos; };
  std::vector<std::unique_ptr<Socket>> silent;
  while (silent.size() < 100 && !is_full()) silent.push_back(std::make_unique<Socket>(unix_socket(path("s"), false)));
  EXPECT_GE(silent.size(), ControlServer::kMostConnections);
  EXPECT_TRUE(is_full());
  silent.clear();
  for (int tries = 0; tries < 6000 && is_full(); ++tries) usleep(10000);
  EXPECT_FALSE(is_full());
  EXPECT_EQ(Json::parse(answer_to(info, true)).at("status"), TANDEM_OK);
  EXPECT_NE(answer_to("{\"command\"", true).find("without an end of line"), std::string::npos);
}

TEST_F(Control, EndDoesNotWaitForCallers) {
  std::vector<std::unique_ptr<Socket>> callers;
  {
    const ControlServer server(volume_, path("s"));
    for (const char *request :
         {"", "{\"comm", "{\"command\": \"scrub\", \"rate_bytes_per_second\": 1, \"progress\": true}\n"}) {
      callers.push_back(std::make_unique<Socket>(unix_socket(path("s"), false)));
      send(callers.back()->get(), request, std::strlen(request), MSG_NOSIGNAL);
    }
    char first;
    ASSERT_EQ(recv(callers.back()->get(), &first, 1, MSG_PEEK), 1);  // a line of progress: the scrub runs
  }
  const std::string text = callers.back()->receive();
  EXPECT_TRUE(Json::parse(text.substr(0, text.find('\n'))).contains("total_bytes")) << text;
  const std::size_t last = text.rfind('\n', text.size() - 2);
  EXPECT_EQ(Json::parse(text.substr(last + 1)).at("status"), TANDEM_ERROR_CANCELLED) << text;
}

TEST_F(Control, CallersAtTheSameTime) {
  const ControlServer server(volume_, path("s"));
  std::vector<std::thread> threads;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 20; ++turn)
        answered +=
            ask(turn % 2 == 0 ? "{\"command\": \"info\"}\n" : "{\"command\": \"delay-list\"}\n").contains("windows");
    });
  for (std::thread &each : threads) each.join();
  EXPECT_EQ(answered, 160);
}

std::atomic<int> heard = 0;

TEST(EndClients, OnlyThoseThatWereAcceptedHere) {
  char name[] = "/tmp/tandem-control-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string folder = name;
  const Socket listener(unix_socket(folder + "/l", true));
  const Socket client(unix_socket(folder + "/l", false));
  const Socket accepted(accept(listener.get(), nullptr, nullptr));
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Socket other(pair[0]), other_end(pair[1]);
  struct sigaction own = {}, before = {};
  own.sa_handler = [](int) { ++heard; };
  sigaction(SIGTERM, &own, &before);
  {
    const tandem::volume::EndClientsOnSignal ends;
    const Socket late_listener(unix_socket(folder + "/late", true));
    const Socket late_client(unix_socket(folder + "/late", false));
    const Socket late(accept(late_listener.get(), nullptr, nullptr));
    raise(SIGTERM);
    EXPECT_EQ(heard, 1);
    char byte;
    EXPECT_EQ(recv(accepted.get(), &byte, 1, 0), 0);           // the end, without the client's doing
    EXPECT_EQ(send(accepted.get(), "x", 1, MSG_NOSIGNAL), 1);  // answers still go out
    EXPECT_EQ(recv(client.get(), &byte, 1, 0), 1);
    for (const Socket *each : {&other, &late}) {
      EXPECT_EQ(recv(each->get(), &byte, 1, MSG_DONTWAIT), -1);
      EXPECT_EQ(errno, EAGAIN);
    }
  }
  raise(SIGTERM);
  EXPECT_EQ(heard, 2);  // the handler from before is back
  sigaction(SIGTERM, &before, nullptr);
  std::filesystem::remove_all(folder);
}

}  // namespace
