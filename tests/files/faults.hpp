// SPDX-License-Identifier: Apache-2.0
// Calls in a child that is killed, loses its power or gets an error at one of its calls that change files.
// fault/fault.c is part of the program, and counts and logs these calls.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <sstream>

#include "tests/files/model.hpp"

extern "C" void read_fault_settings(void);

namespace model {

struct Call {
  std::string name, path, second_path;
  std::int64_t result, offset, length;
};
struct Ended {
  bool killed = false;  // or it ended with an error that was made
  bool power_lost = false, call_failed = false;
  tandem_status status = TANDEM_OK;
  std::vector<Call> calls;
  Bytes data;  // of all writes, in order
};

// The call in a child. `action` is that of fault.c for its n-th call on paths below `root`, or for each from there on.
// The child returns the status.
inline Ended call_with_fault(const std::function<tandem_status()> &call, const std::string &action, std::uint64_t n,
                             bool each, const std::string &root) {
  const std::string log = root + ".log";
  const pid_t child = fork();
  if (child == 0) {
    setenv("TANDEM_FAULT_PATH", root.c_str(), 1);
    setenv("TANDEM_FAULT_CALLS", "create,write,rename,renameat2,link,unlink,mkdir,rmdir,ftruncate,fsync", 1);
    setenv("TANDEM_FAULT_ACTION", action.c_str(), 1);
    setenv("TANDEM_FAULT_COUNT", each ? "100000" : "1", 1);
    setenv("TANDEM_FAULT_ERRNO", std::to_string(n % 2 == 0 ? ENOSPC : EIO).c_str(), 1);
    setenv("TANDEM_FAULT_AT", std::to_string(n).c_str(), 1);
    setenv("TANDEM_FAULT_LOG", log.c_str(), 1);
    read_fault_settings();
    _exit(call());
  }
  int status = 0;
  waitpid(child, &status, 0);
  Ended ended;
  ended.killed = WIFSIGNALED(status);
  ended.status = ended.killed ? TANDEM_ERROR_INTERNAL : static_cast<tandem_status>(WEXITSTATUS(status));
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    Call one;
    std::string error;
    std::istringstream words(line);
    std::getline(words, one.name, '\t');
    words >> one.result >> error >> one.offset >> one.length >> std::ws;
    std::getline(words, one.path, '\t');
    std::getline(words, one.second_path);
    ended.calls.push_back(std::move(one));
  }
  std::ostringstream data;
  data << std::ifstream(log + ".data", std::ios::binary).rdbuf();
  ended.data = data.str();
  unlink(log.c_str());
  unlink((log + ".data").c_str());
  return ended;
}

// ---- loss of power ----
//
// Bytes written to a file are safe when a later fsync of that file returned 0, and a name (made, renamed, removed) is
// safe when a later fsync of its folder did. Of the rest anything may be lost:
//   files    each write since the last sync survives, is lost (the old bytes are back, the file as short as it was), or
//            left zeros; each by itself
//   names    in each folder by itself, either the first so many of its changes survive, as a journal would have it, or
//   any
//            of them, as long as those that it builds on (changes of the same names) survive too. A rename is one
//            change.
// Left out: modes and times, parts of one write, and disks that lie about a sync.

class PowerLoss {
 public:
  PowerLoss(const std::string &root, const Tree &start, const Ended &ended, std::mt19937_64 &random)
      : root_(root), random_(random) {
    for (const auto &[path, bytes] : start) names_[path] = bytes ? std::make_shared<Inode>(Inode{*bytes, {}}) : folder_;
    const Names at_first = names_;
    for (const Call &call : ended.calls)
      if (call.result >= 0) replay(call, ended.data);
    settle(at_first);
  }
  const Tree &tree() const { return tree_; }

 private:
  struct Write {
    std::size_t offset;
    std::optional<Bytes> data;  // none: the file gets the length `offset`
  };
  struct Inode {
    Bytes safe;
    std::vector<Write> writes;  // since the last sync
  };
  using Thing = std::shared_ptr<Inode>;  // folder_: a folder
  using Names = std::map<std::string, Thing>;
  struct Change {
    Names after;  // null: no such name
    bool is_safe = false;
  };

  bool chance(double probability) { return static_cast<double>(random_() >> 11) * 0x1p-53 < probability; }
  std::string relative(std::string path) const {
    while (!path.empty() && (path.back() == '/' || path.back() == '.')) path.pop_back();
    return path.size() <= root_.size() ? "" : path.substr(root_.size() + 1);
  }
  static std::string folder_of(const std::string &path) {
    return path.find('/') == std::string::npos ? "" : folder_in(path);
  }
  void change(const Names &after) {
    changes_.push_back({after});
    for (const auto &[name, thing] : after) names_[name] = thing;
  }
  static void apply(Bytes &bytes, const Write &write, bool zeros) {
    if (!write.data) return bytes.resize(write.offset);
    bytes.resize(std::max(bytes.size(), write.offset + write.data->size()));
    bytes.replace(write.offset, write.data->size(), zeros ? Bytes(write.data->size(), 0) : *write.data);
  }

  void replay(const Call &call, const Bytes &data) {
    const std::string path = relative(call.path), second = relative(call.second_path);
    const Thing thing = names_[path];
    if (call.name == "create") {
      if ((call.offset & 1) != 0)
        change({{path, std::make_shared<Inode>()}});
      else if ((call.offset & 2) != 0)
        thing->writes.push_back({0, std::nullopt});
    } else if (call.name == "write") {
      const auto bytes = static_cast<std::size_t>(call.result);
      if (thing != nullptr)
        thing->writes.push_back({static_cast<std::size_t>(call.offset), data.substr(data_at_, bytes)});
      data_at_ += bytes;
    } else if (call.name == "ftruncate") {
      thing->writes.push_back({static_cast<std::size_t>(call.length), std::nullopt});
    } else if (call.name == "rename" || call.name == "renameat2") {
      change({{path, nullptr}, {second, thing}});
    } else if (call.name == "link") {
      change({{second, thing}});
    } else if (call.name == "unlink" || call.name == "rmdir") {
      change({{path, nullptr}});
    } else if (call.name == "mkdir") {
      change({{path, folder_}});
    } else if (call.name == "fsync" && thing != nullptr && thing != folder_) {
      for (const Write &write : thing->writes) apply(thing->safe, write, false);
      thing->writes.clear();
    } else if (call.name == "fsync") {
      for (Change &each : changes_)
        for (const auto &[name, after] : each.after) each.is_safe = each.is_safe || folder_of(name) == path;
    }
  }

  void settle(Names left) {
    const double survival = std::array{0.0, 0.3, 0.7, 1.0}[random_() % 4];
    const bool as_journal = chance(0.5);
    std::set<std::string> lost_folders, lost_names;
    for (const Change &each : changes_) {
      const auto builds_on = [&](const auto &entry) {
        return lost_names.contains(entry.first) || (as_journal && lost_folders.contains(folder_of(entry.first)));
      };
      const bool lost =
          !each.is_safe && (!chance(survival) || std::any_of(each.after.begin(), each.after.end(), builds_on));
      for (const auto &[name, thing] : each.after) {
        if (lost) {
          lost_folders.insert(folder_of(name));
          lost_names.insert(name);
        } else {
          left[name] = thing;
        }
      }
    }
    enum { keep, drop, zero, mixed };
    const auto fate = random_() % 4;
    std::map<Thing, Bytes> contents;  // once for all names of a file
    for (const auto &[name, thing] : left) {
      if (thing == nullptr || (!folder_of(name).empty() && !tree_.contains(folder_of(name)))) continue;
      if (thing == folder_) {
        tree_[name] = std::nullopt;
        continue;
      }
      if (!contents.contains(thing)) {
        Bytes bytes = thing->safe;
        for (const Write &write : thing->writes) {
          const auto now = fate == mixed ? random_() % 3 : fate;
          if (now != drop || !write.data) apply(bytes, write, now == zero);
        }
        contents[thing] = bytes;
      }
      tree_[name] = contents[thing];
    }
  }

  const std::string root_;
  std::mt19937_64 &random_;
  const Thing folder_ = std::make_shared<Inode>();
  Names names_;
  std::vector<Change> changes_;
  std::size_t data_at_ = 0;
  Tree tree_;
};

}  // namespace model
