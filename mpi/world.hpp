// SPDX-License-Identifier: Apache-2.0
// The ranks of one call: a duplicate of the caller's communicator, agreement, and messages. Only this file knows
// mpi.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/gate.hpp"
#include "base/io_error.hpp"
#include "base/options.hpp"
#include "base/text.hpp"

namespace tandem::mpi {

using namespace base;

class World {
 public:
  // Collective. Throws Error if MPI is not running or the communicator is invalid.
  explicit World(std::int32_t communicator);
  ~World();
  World(World &&other) noexcept;
  World &operator=(World &&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool leads() const noexcept { return rank_ == 0; }
  std::int32_t handle() const noexcept { return handle_; }  // MPI_Comm_c2f of the duplicate

  // Collective. Runs `body`, which calls no function of this class, on every rank. If it throws on any rank, all ranks
  // throw the exception of the lowest of those: the same status and message.
  template <class Body>  // std::function could run out of memory before it is called
  void together(const Body &body) const {
    agree(guarded(body), false);
  }
  // Collective. As together(), for a status that a part of these ranks has agreed on: the message names the rank.
  void together_after(tandem_status of_part) const;
  // Collective. Throws on all ranks if one has another value than rank 0.
  void require_equal(const std::vector<std::pair<const char *, std::string>> &arguments) const;

  // Collective, like all below. They work like MPI's functions.
  void broadcast(void *bytes, std::size_t byte_count) const;  // from rank 0
  std::string broadcast(const std::string &of_rank_0) const;
  std::uint64_t sum(std::uint64_t mine) const;
  std::uint64_t least(std::uint64_t mine) const;
  std::uint64_t most(std::uint64_t mine) const;
  std::vector<std::string> all_gather(const std::string &mine) const;
  // The same for structs, as their bytes: all ranks run the same program.
  template <class Struct>
  std::vector<std::vector<Struct>> all_gather(const std::vector<Struct> &mine) const {
    static_assert(std::is_trivially_copyable_v<Struct>);
    const auto *const bytes = reinterpret_cast<const char *>(mine.data());
    std::vector<std::vector<Struct>> all;
    for (const std::string &theirs : all_gather(std::string(bytes, mine.size() * sizeof(Struct)))) {
      all.emplace_back(theirs.size() / sizeof(Struct));
      if (!theirs.empty()) std::memcpy(all.back().data(), theirs.data(), theirs.size());
    }
    return all;
  }
  // Rank 0 calls `take` with the bytes of each rank, one after the other. It holds the bytes of one rank at a time.
  void collect(std::span<const std::byte> mine,
               const std::function<void(int rank, std::span<const std::byte> bytes)> &take) const;
  // The ranks with the same colour, in the order of `key`.
  World split(int colour, int key) const;
  // The ranks of this node.
  World node() const;

 private:
  struct OfHandle {};
  World(OfHandle, std::int32_t handle);
  void agree(tandem_status mine, bool named) const;

  std::int32_t handle_;
  bool owned_ = true;
  int rank_ = 0, size_ = 0;
  std::vector<int> numbers_;  // of a part: the numbers of its ranks in the whole
};

// Messages under way. Between two ranks they arrive in the order in which they were sent.
class Messages {
 public:
  explicit Messages(const World &world);
  ~Messages();  // waits for them: every partner must have posted its side
  Messages(const Messages &) = delete;
  Messages &operator=(const Messages &) = delete;

  void send(int rank, std::span<const std::byte> bytes);
  void receive(int rank, std::span<std::byte> bytes);
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::mpi
