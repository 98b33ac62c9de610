// SPDX-License-Identifier: Apache-2.0
#include "mpi/world.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <exception>

namespace tandem::mpi {
namespace {

constexpr std::size_t kMostAtOnce = INT_MAX;  // what MPI counts with

MPI_Comm comm_of(std::int32_t handle) { return MPI_Comm_f2c(handle); }

void check_mpi(int code, const char *what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(TANDEM_ERROR_IO, what, ": ", std::string(text, static_cast<std::size_t>(length)));
}

std::int32_t duplicate(std::int32_t communicator) {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (!initialised || finalised)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, initialised ? "MPI has been finalized" : "MPI has not been initialized");
  const MPI_Comm given = comm_of(communicator);
  if (given == MPI_COMM_NULL || given == MPI_Comm{})  // the second: Open MPI's result for an invalid number
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "communicator ", communicator, " is none");
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(given, &copy), "MPI_Comm_dup");
  return MPI_Comm_c2f(copy);
}

std::uint64_t reduced(std::int32_t communicator, std::uint64_t mine, MPI_Op how) {
  std::uint64_t all = 0;
  check_mpi(MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, how, comm_of(communicator)), "MPI_Allreduce");
  return all;
}

}  // namespace

World::World(std::int32_t communicator) : World(OfHandle{}, duplicate(communicator)) {}

World::World(OfHandle, std::int32_t handle) : handle_(handle) {
  MPI_Comm_set_errhandler(comm_of(handle), MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_of(handle), &rank_);
  MPI_Comm_size(comm_of(handle), &size_);
}

World::World(World &&other) noexcept
    : handle_(other.handle_),
      owned_(other.owned_),
      rank_(other.rank_),
      size_(other.size_),
      numbers_(std::move(other.numbers_)) {
  other.owned_ = false;
}

World::~World() {
  if (!owned_) return;
  MPI_Comm comm = comm_of(handle_);
  MPI_Comm_free(&comm);
}

void World::together_after(tandem_status of_part) const { agree(of_part, true); }

void World::agree(tandem_status mine, bool named) const {
  int failed = mine == TANDEM_OK ? size_ : rank_, lowest = size_;
  check_mpi(MPI_Allreduce(&failed, &lowest, 1, MPI_INT, MPI_MIN, comm_of(handle_)), "MPI_Allreduce");
  if (lowest == size_) return;
  struct {
    std::int32_t status;
    char message[512];
  } why = {};
  if (rank_ == lowest) {
    why.status = mine;
    std::strncpy(why.message, tandem_last_error_message(), sizeof why.message - 1);
  }
  check_mpi(MPI_Bcast(&why, sizeof why, MPI_BYTE, lowest, comm_of(handle_)), "MPI_Bcast");
  if (named || (size_ == 1 && numbers_.empty())) fail(why.status, why.message);
  const int number = numbers_.empty() ? lowest : numbers_[static_cast<std::size_t>(lowest)];
  fail(why.status, "rank ", number, ": ", why.message);
}

void World::require_equal(const std::vector<std::pair<const char *, std::string>> &arguments) const {
  std::string mine;
  for (const auto &[name, value] : arguments) mine += value + '\0';
  const std::string leading = broadcast(mine);
  together([&] {
    const char *at = leading.c_str();
    for (const auto &[name, value] : arguments) {
      const std::string theirs = at < leading.c_str() + leading.size() ? at : "";
      if (theirs != value) fail(TANDEM_ERROR_INVALID_ARGUMENT, name, " is ", value, " here and ", theirs, " on rank 0");
      at += theirs.size() + 1;
    }
    if (mine != leading) fail(TANDEM_ERROR_INVALID_ARGUMENT, "the arguments here differ from those of rank 0");
  });
}

void World::broadcast(void *bytes, std::size_t byte_count) const {
  for (std::size_t at = 0; at < byte_count;) {
    const std::size_t now = std::min(byte_count - at, kMostAtOnce);
    check_mpi(MPI_Bcast(static_cast<char *>(bytes) + at, static_cast<int>(now), MPI_BYTE, 0, comm_of(handle_)),
              "MPI_Bcast");
    at += now;
  }
}

std::string World::broadcast(const std::string &of_rank_0) const {
  std::uint64_t bytes = of_rank_0.size();
  broadcast(&bytes, sizeof bytes);
  std::string text = rank_ == 0 ? of_rank_0 : std::string(bytes, '\0');
  broadcast(text.data(), bytes);
  return text;
}

std::uint64_t World::sum(std::uint64_t mine) const { return reduced(handle_, mine, MPI_SUM); }
std::uint64_t World::least(std::uint64_t mine) const { return reduced(handle_, mine, MPI_MIN); }
std::uint64_t World::most(std::uint64_t mine) const { return reduced(handle_, mine, MPI_MAX); }

std::vector<std::string> World::all_gather(const std::string &mine) const {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::uint64_t total = sum(mine.size());
  if (total > kMostAtOnce)
    fail(TANDEM_ERROR_TOO_LARGE, size_, " ranks exchange ", total, " bytes at once; at most ", kMostAtOnce);
  int length = static_cast<int>(mine.size());
  std::vector<int> lengths(ranks), offsets(ranks);
  check_mpi(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_of(handle_)), "MPI_Allgather");
  for (std::size_t i = 1; i < ranks; ++i) offsets[i] = offsets[i - 1] + lengths[i - 1];
  std::string all(total, '\0');
  check_mpi(MPI_Allgatherv(mine.data(), length, MPI_BYTE, all.data(), lengths.data(), offsets.data(), MPI_BYTE,
                           comm_of(handle_)),
            "MPI_Allgatherv");
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks; ++i)
    parts.push_back(all.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(lengths[i])));
  return parts;
}

void World::collect(std::span<const std::byte> mine,
                    const std::function<void(int, std::span<const std::byte>)> &take) const {
  constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
  const MPI_Comm comm = comm_of(handle_);
  std::uint64_t byte_count = mine.size();
  if (!leads()) {
    check_mpi(MPI_Send(&byte_count, 1, MPI_UINT64_T, 0, 0, comm), "MPI_Send");
    for (; !mine.empty(); mine = mine.subspan(std::min(mine.size(), kPieceBytes)))
      check_mpi(MPI_Send(mine.data(), static_cast<int>(std::min(mine.size(), kPieceBytes)), MPI_BYTE, 0, 0, comm),
                "MPI_Send");
    return;
  }
  // Without memory, messages of the others are received and dropped: they must not wait.
  std::exception_ptr failure;
  const auto attempt = [&](const auto &body) {
    try {
      if (!failure) body();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  attempt([&] { take(0, mine); });
  std::array<std::byte, kPieceBytes> piece;
  std::vector<std::byte> theirs;
  for (int rank = 1; rank < size_; ++rank) {
    check_mpi(MPI_Recv(&byte_count, 1, MPI_UINT64_T, rank, 0, comm, MPI_STATUS_IGNORE), "MPI_Recv");
    theirs.clear();
    while (byte_count != 0) {
      const std::size_t now = std::min<std::uint64_t>(byte_count, kPieceBytes);
      check_mpi(MPI_Recv(piece.data(), static_cast<int>(now), MPI_BYTE, rank, 0, comm, MPI_STATUS_IGNORE), "MPI_Recv");
      attempt([&] { theirs.insert(theirs.end(), piece.begin(), piece.begin() + now); });
      byte_count -= now;
    }
    attempt([&] { take(rank, theirs); });
  }
  if (failure) std::rethrow_exception(failure);
}

World World::split(int colour, int key) const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_of(handle_), colour, key, &part), "MPI_Comm_split");
  World world(OfHandle{}, MPI_Comm_c2f(part));
  world.numbers_.resize(static_cast<std::size_t>(world.size_));
  check_mpi(MPI_Allgather(&rank_, 1, MPI_INT, world.numbers_.data(), 1, MPI_INT, part), "MPI_Allgather");
  return world;
}

World World::node() const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm_of(handle_), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part),
            "MPI_Comm_split_type");
  return World(OfHandle{}, MPI_Comm_c2f(part));
}

struct Messages::State {
  MPI_Comm comm;
  std::vector<MPI_Request> requests;
};

Messages::Messages(const World &world) : state_(new State{comm_of(world.handle()), {}}) {}

Messages::~Messages() {
  auto &requests = state_->requests;
  if (!requests.empty()) MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

void Messages::send(int rank, std::span<const std::byte> bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, rank, 0, state_->comm, &request),
            "MPI_Isend");
  state_->requests.push_back(request);
}

void Messages::receive(int rank, std::span<std::byte> bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, rank, 0, state_->comm, &request),
            "MPI_Irecv");
  state_->requests.push_back(request);
}

void Messages::wait() {
  auto &requests = state_->requests;
  const int code = MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  requests.clear();
  check_mpi(code, "MPI_Waitall");
}

}  // namespace tandem::mpi
