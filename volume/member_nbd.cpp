// SPDX-License-Identifier: Apache-2.0
// Members that an NBD server serves, through libnbd.

#include "volume/member.hpp"

#if defined(TANDEM_VOLUME_HAVE_LIBNBD)
#include <libnbd.h>

#include <algorithm>

#include "volume/bytes.hpp"

namespace tandem::volume {
namespace {

constexpr std::size_t kMostNbdBytes = std::size_t{32} << 20;  // the size that every server accepts

class NbdMember : public Member {
 public:
  NbdMember(const std::string &uri, const MemberAccess &access) : uri_(uri), handle_(nbd_create()) {
    if (handle_ == nullptr) throw MemberError(MemberProblem::failed, last_error());
    try {
      if (nbd_connect_uri(handle_, uri.c_str()) != 0) throw MemberError(MemberProblem::missing, last_error());
      const std::int64_t size = nbd_get_size(handle_);
      if (size < 0) throw MemberError(MemberProblem::failed, last_error());
      size_bytes_ = static_cast<std::uint64_t>(size);
      if (access.write && nbd_is_read_only(handle_) != 0)
        throw MemberError(MemberProblem::denied, uri + ": the server allows no writing");
      can_flush_ = nbd_can_flush(handle_) == 1;
      if (access.write && !can_flush_)
        throw MemberError(MemberProblem::denied,
                          uri + ": the server does not support flush, so no write would be safe");
      can_trim_ = nbd_can_trim(handle_) == 1;
    } catch (...) {
      nbd_close(handle_);
      throw;
    }
  }
  ~NbdMember() override {
    static_cast<void>(nbd_shutdown(handle_, 0));
    nbd_close(handle_);
  }
  NbdMember(const NbdMember &) = delete;
  NbdMember &operator=(const NbdMember &) = delete;

  std::uint64_t size_bytes() const override { return size_bytes_; }
  std::string identity() const override { return uri_; }
  bool is_cached() const override { return false; }

  void read(std::uint64_t offset, std::byte *to, std::size_t bytes) override {
    for (; bytes != 0; advance(offset, to, bytes))
      check(nbd_pread(handle_, to, std::min(bytes, kMostNbdBytes), offset, 0));
  }
  void write(std::uint64_t offset, const std::byte *from, std::size_t bytes) override {
    for (; bytes != 0; advance(offset, from, bytes))
      check(nbd_pwrite(handle_, from, std::min(bytes, kMostNbdBytes), offset, 0));
  }
  void sync() override { check(nbd_flush(handle_, 0)); }
  void trim(std::uint64_t offset, std::uint64_t bytes) noexcept override {
    if (!can_trim_) return;
    constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
    for (std::uint64_t done = 0; done < bytes; done += kMost)
      if (nbd_trim(handle_, std::min(kMost, bytes - done), offset + done, 0) != 0) return;
  }
  void grow(std::uint64_t bytes) override {
    if (bytes > size_bytes_)
      throw MemberError(MemberProblem::denied, text(uri_, ": has ", size_bytes_, " bytes, ", bytes, " are needed"));
  }

 private:
  template <class Byte>
  static void advance(std::uint64_t &offset, Byte *&at, std::size_t &bytes) {
    const std::size_t done = std::min(bytes, kMostNbdBytes);
    offset += done;
    at += done;
    bytes -= done;
  }
  std::string last_error() const {
    const char *text = nbd_get_error();
    return base::text(uri_, ": ", text == nullptr ? "an unknown error of libnbd" : text);
  }
  void check(int result) const {
    if (result != 0) throw MemberError(MemberProblem::failed, last_error());
  }

  std::string uri_;
  nbd_handle *handle_;
  std::uint64_t size_bytes_ = 0;
  bool can_flush_ = false, can_trim_ = false;
};

}  // namespace

std::unique_ptr<Member> open_nbd_member(const std::string &uri, const MemberAccess &access) {
  return std::make_unique<NbdMember>(uri, access);
}

}  // namespace tandem::volume

#else

namespace tandem::volume {

std::unique_ptr<Member> open_nbd_member(const std::string &uri, const MemberAccess &) {
  throw MemberError(MemberProblem::unsupported, uri + ": this library was built without libnbd");
}

}  // namespace tandem::volume

#endif
