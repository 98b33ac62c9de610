// SPDX-License-Identifier: Apache-2.0
// One member: a range of bytes that can be read, written and synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace tandem::volume {

enum class MemberProblem { missing, locked, denied, unsupported, failed };

class MemberError : public std::runtime_error {
 public:
  // The message begins with the name of the member.
  MemberError(MemberProblem problem, const std::string &message) : std::runtime_error(message), problem_(problem) {}
  MemberProblem problem() const { return problem_; }

 private:
  MemberProblem problem_;
};

// Calls may come from several threads at once. All but trim throw MemberError; a short read or write is one.
class Member {
 public:
  virtual ~Member() = default;
  virtual std::uint64_t size_bytes() const = 0;
  virtual void read(std::uint64_t offset, std::byte *to, std::size_t bytes) = 0;
  virtual void write(std::uint64_t offset, const std::byte *from, std::size_t bytes) = 0;
  virtual void sync() = 0;
  // Writes end in the memory of this machine. They take a processor, and sync() waits for the rest.
  virtual bool is_cached() const = 0;
  // The bytes are not needed any more: a hint, without promise about later reads.
  virtual void trim(std::uint64_t offset, std::uint64_t bytes) noexcept = 0;
  // Makes a member that can grow at least this large; others fail.
  virtual void grow(std::uint64_t bytes) = 0;
  // The same for two names of one member; "" if unknown.
  virtual std::string identity() const = 0;
};

struct MemberAccess {
  bool write = false;
  bool create = false;  // a regular file that does not exist is made
};

bool is_nbd_uri(const std::string &name);
// A file or device by its path, locked; or an NBD URI.
std::unique_ptr<Member> open_member(const std::string &name, const MemberAccess &access);
std::unique_ptr<Member> open_nbd_member(const std::string &uri, const MemberAccess &access);

// The identity of the file that open_member would open and lock, to find duplicates in a list; "" if unknown.
std::string identity_of(const std::string &name);

}  // namespace tandem::volume
