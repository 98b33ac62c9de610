// SPDX-License-Identifier: Apache-2.0
// Several processes verify and repair one set together (tandem_files_team). The test uses threads as processes: the
// calls share only the functions of the team.
#include <barrier>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>

#include "tandem/tools.h"
#include "tests/files/kit.hpp"

namespace {

// How often this thread may still allocate before it has no memory left.
constexpr std::uint64_t kUnlimited = UINT64_MAX;
thread_local std::uint64_t allocations_left = kUnlimited;

}  // namespace

[[gnu::noinline]] void *operator new(std::size_t bytes, const std::nothrow_t &) noexcept {
  void *const memory = allocations_left != 0 ? std::malloc(bytes) : nullptr;
  if (memory != nullptr && allocations_left != kUnlimited) --allocations_left;
  return memory;
}
[[gnu::noinline]] void *operator new(std::size_t bytes) {
  void *const memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void *memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

namespace {

// What the functions of a team need between its members.
class Meeting {
 public:
  explicit Meeting(std::uint32_t count) : all_met_(count), statuses_(count), texts_(count), bytes_(count) {}

  tandem_files_team team(std::uint32_t process, std::pair<Meeting *, std::uint32_t> *user) {
    *user = {this, process};
    auto team = sized<tandem_files_team>();
    team.process = process;
    team.process_count = static_cast<std::uint32_t>(statuses_.size());
    team.agree = [](void *of, tandem_status status) { return call(of, &Meeting::agree, status); };
    team.gather = [](void *of, const void *bytes, std::size_t byte_count, tandem_files_take take, void *taker) {
      return call(of, &Meeting::gather, bytes, byte_count, take, taker);
    };
    team.broadcast = [](void *of, void *bytes, std::size_t byte_count) {
      return call(of, &Meeting::broadcast, bytes, byte_count);
    };
    team.user = user;
    return team;
  }

 private:
  template <class Member, class... Arguments>
  static tandem_status call(void *of, Member member, Arguments... arguments) {
    const auto &[meeting, process] = *static_cast<std::pair<Meeting *, std::uint32_t> *>(of);
    return (meeting->*member)(process, arguments...);
  }

  tandem_status agree(std::uint32_t process, tandem_status status) {
    const std::uint64_t left = std::exchange(allocations_left, kUnlimited);  // memory for this test is no matter
    statuses_[process] = status;
    texts_[process] = status != TANDEM_OK ? tandem_last_error_message() : "";
    all_met_.arrive_and_wait();
    tandem_status agreed = TANDEM_OK;
    for (std::size_t i = 0; agreed == TANDEM_OK && i < statuses_.size(); ++i)
      if (statuses_[i] != TANDEM_OK)
        agreed = tandem_set_last_error(statuses_[i], ("process " + std::to_string(i) + ": " + texts_[i]).c_str());
    all_met_.arrive_and_wait();
    allocations_left = left;
    return agreed;
  }

  tandem_status gather(std::uint32_t process, const void *bytes, std::size_t byte_count, tandem_files_take take,
                       void *taker) {
    bytes_[process] = {bytes, byte_count};
    all_met_.arrive_and_wait();
    for (std::uint32_t i = 0; process == 0 && i < bytes_.size(); ++i) take(taker, i, bytes_[i].first, bytes_[i].second);
    all_met_.arrive_and_wait();
    return TANDEM_OK;
  }

  tandem_status broadcast(std::uint32_t process, void *bytes, std::size_t byte_count) {
    bytes_[process] = {bytes, byte_count};
    all_met_.arrive_and_wait();
    if (process != 0 && byte_count != 0) std::memcpy(bytes, bytes_[0].first, byte_count);
    all_met_.arrive_and_wait();
    return TANDEM_OK;
  }

  std::barrier<> all_met_;
  std::vector<tandem_status> statuses_;
  std::vector<std::string> texts_;
  std::vector<std::pair<const void *, std::size_t>> bytes_;
};

struct Told {
  std::vector<std::uint64_t> numbers;
  std::string path;
  bool operator==(const Told &) const = default;
};

void collect(void *user, const tandem_files_finding *finding) {
  Told told{{finding->index, finding->condition, finding->file_bytes, finding->bad_block_count,
             finding->lost_block_count, static_cast<std::uint64_t>(finding->action), finding->left_bad_count},
            finding->path};
  for (std::size_t i = 0; i < finding->bad_range_count; ++i) {
    told.numbers.push_back(finding->bad_ranges[i].first);
    told.numbers.push_back(finding->bad_ranges[i].count);
  }
  static_cast<std::vector<Told> *>(user)->push_back(std::move(told));
}

// What a call has told, by the process that leads, and its result, which all have; all bytes but the time.
template <class Result>
struct Outcome {
  tandem_status status = TANDEM_OK;
  std::string message;
  std::vector<Told> told;
  Result result = sized<Result>();
};

class Team : public Files {
 protected:
  // 0: one process without a team. Process `blind` sees another folder.
  template <class Options, class Result, class Call>
  std::vector<Outcome<Result>> run(std::uint32_t count, Call call, const Options &given,
                                   std::uint32_t blind = UINT32_MAX) {
    std::vector<Outcome<Result>> outcomes(std::max(count, 1u));
    Meeting meeting(std::max(count, 1u));
    const auto work = [&](std::uint32_t process) {
      Outcome<Result> &outcome = outcomes[process];
      const Search search(process == blind ? root_ / "elsewhere" : shards_);
      Options options = given;
      std::pair<Meeting *, std::uint32_t> user;
      const tandem_files_team team = meeting.team(process, &user);
      if (count != 0) options.team = &team;
      options.report = collect;
      options.report_user = &outcome.told;
      if (process == starved_) allocations_left = memory_;
      outcome.status = call(context_, search, &options, &outcome.result);
      if (process == starved_) memory_ = std::exchange(allocations_left, kUnlimited);
      if (outcome.status != TANDEM_OK) outcome.message = tandem_last_error_message();
      outcome.result.seconds = 0;
    };
    std::vector<std::thread> threads;
    for (std::uint32_t process = 0; process < outcomes.size(); ++process) threads.emplace_back(work, process);
    for (std::thread &thread : threads) thread.join();
    return outcomes;
  }

  auto verify_by(std::uint32_t count, std::uint32_t blind = UINT32_MAX) {
    return run<tandem_files_verify_options, tandem_files_verify_result>(count, tandem_files_verify,
                                                                        sized<tandem_files_verify_options>(), blind);
  }
  auto repair_by(std::uint32_t count, bool dry_run = false) {
    auto options = sized<tandem_files_repair_options>();
    options.no_sync = 1;
    options.dry_run = dry_run;
    return run<tandem_files_repair_options, tandem_files_repair_result>(count, tandem_files_repair, options);
  }

  // A set with a missing, a mended, a rebuilt file, and a stripe that is lost.
  void encode_and_damage(std::uint32_t block_bytes) {
    encode(paint(300'000), 3, 2, block_bytes);
    const std::uint64_t blocks = (fs::file_size(shard(0)) - 8192) / block_bytes;
    const auto hit = [&](unsigned index, std::uint64_t stripe) { damage(index, 4096 + stripe * block_bytes + 3, 2); };
    fs::remove(shard(4));
    fs::resize_file(shard(3), 4096 + blocks / 2 * block_bytes);
    for (const std::uint64_t stripe : {std::uint64_t{0}, blocks / 3, blocks - 1}) hit(0, stripe);
    hit(1, blocks - 1);
    damage(2, 0, 10);
    fs::rename(shards_, root_ / "damaged");
  }
  void again() {
    fs::remove_all(shards_);
    fs::copy(root_ / "damaged", shards_);
  }
  template <class Result>
  void expect_like(const std::vector<Outcome<Result>> &ours, const Outcome<Result> &alone) {
    for (const Outcome<Result> &each : ours) {
      EXPECT_EQ(each.status, alone.status) << each.message;
      EXPECT_EQ(std::memcmp(&each.result, &alone.result, sizeof alone.result), 0);
      EXPECT_EQ(each.told, &each == &ours.front() ? alone.told : std::vector<Told>());
    }
  }

  fs::path elsewhere() const { return root_ / "elsewhere"; }

  // For `run`: the thread of process `starved_` may allocate memory_ times; afterwards memory_ is what is left of that.
  std::uint32_t starved_ = UINT32_MAX;
  std::uint64_t memory_ = kUnlimited;
};

TEST_F(Team, FindsAndMendsWhatOneProcessDoes) {
  for (const std::uint32_t block_bytes : {4096u, 64u}) {
    encode_and_damage(block_bytes);
    again();
    const auto found = verify_by(0)[0];
    ASSERT_EQ(found.status, TANDEM_OK) << found.message;
    EXPECT_EQ(found.result.state, TANDEM_FILES_LOST);
    const auto planned = repair_by(0, true)[0], mended = repair_by(0)[0];
    EXPECT_EQ(mended.result.rebuilt_file_count, 2u);
    EXPECT_EQ(mended.result.mended_file_count, 2u);
    const auto repaired = contents(shards_);
    const auto left = verify_by(0)[0];
    for (const std::uint32_t count : {1u, 2u, 5u}) {
      SCOPED_TRACE(count);
      again();
      expect_like(verify_by(count), found);
      expect_like(repair_by(count, true), planned);
      expect_like(repair_by(count), mended);
      EXPECT_EQ(contents(shards_), repaired);
      expect_like(verify_by(count), left);
    }
    fs::remove_all(root_ / "damaged");
    fs::remove_all(shards_);
  }
}

TEST_F(Team, KnowsTheDigestOfAllStripes) {
  encode(paint(300'000, 1), 2, 1, 4096);
  std::vector<std::vector<char>> first;
  for (unsigned i = 0; i < 3; ++i) first.push_back(slurp(shard(i)));
  std::array<std::uint8_t, 16> id;
  std::memcpy(id.data(), result_.set_id, id.size());
  auto options = encode_options(root_ / "source", 2, 1, 4096);
  options.set_id = id.data();
  fs::remove_all(shards_);
  spill(root_ / "source", paint(300'000, 2));
  ASSERT_EQ(tandem_files_encode(context_, &options, &result_), TANDEM_OK) << tandem_last_error_message();
  // One stripe of the first content, with its checksums, under the records of the second.
  for (unsigned i = 0; i < 3; ++i) {
    std::vector<char> mixed = slurp(shard(i));
    std::copy_n(first[i].begin() + 4096 + 20 * 4096, 4096, mixed.begin() + 4096 + 20 * 4096);
    spill(shard(i), mixed);
  }
  for (const std::uint32_t count : {0u, 3u})
    for (const auto &outcome : verify_by(count)) {
      EXPECT_EQ(outcome.status, TANDEM_ERROR_DAMAGED);
      EXPECT_NE(outcome.message.find("every data block of set"), std::string::npos) << outcome.message;
    }
}

TEST_F(Team, ADamagedBlockOfOnePartIsNoWrongDigest) {
  encode(paint(300'000), 3, 1, 4096);
  damage(1, fs::file_size(shard(1)) - 4096 - 50, 2);  // the last stripe
  const auto found = verify_by(0)[0];
  EXPECT_EQ(found.status, TANDEM_OK) << found.message;
  EXPECT_EQ(found.result.bad_block_count, 1u);
  for (const std::uint32_t count : {2u, 4u}) expect_like(verify_by(count), found);
}

TEST_F(Team, AgreesOnAProcessThatSeesOtherFiles) {
  encode(paint(100'000), 2, 1, 4096);
  fs::copy(shards_, elsewhere());
  fs::remove(elsewhere() / "source.001.tandem");
  for (const auto &outcome : verify_by(3, 2)) {
    EXPECT_EQ(outcome.status, TANDEM_ERROR_IO);
    EXPECT_EQ(outcome.message.find("process 2: this process and process 0 find different shard files: 2 of set"), 0u)
        << outcome.message;
  }
}

TEST_F(Team, AgreesOnAProcessWithoutMemory) {
  encode_and_damage(4096);
  again();
  const auto found = verify_by(0)[0];
  const auto mended = repair_by(0)[0];
  const auto repaired = contents(shards_);
  const auto expect_agreement = [&](const auto &outcomes, const auto &alone) {
    const bool enough = memory_ != 0;
    for (const auto &each : outcomes) {
      EXPECT_EQ(each.status, outcomes[0].status) << each.message;
      EXPECT_TRUE(each.status == TANDEM_OK || each.status == TANDEM_ERROR_OUT_OF_MEMORY) << each.message;
    }
    if (enough) expect_like(outcomes, alone);
    return enough;
  };
  for (const std::uint32_t process : {0u, 1u}) {
    starved_ = process;
    for (const bool repairs : {false, true}) {
      std::uint64_t given = 0;
      for (bool enough = false; !enough; given += 1 + given / 16) {
        SCOPED_TRACE(testing::Message() << (repairs ? "repair" : "verify") << ", process " << process << " allocates "
                                        << given << " times");
        again();
        memory_ = given;
        enough = repairs ? expect_agreement(repair_by(3), mended) : expect_agreement(verify_by(3), found);
        if (!repairs) continue;
        memory_ = kUnlimited;
        EXPECT_EQ(repair_by(2)[0].status, TANDEM_OK);
        EXPECT_EQ(contents(shards_), repaired);
      }
      EXPECT_GT(given, 20u);
    }
  }
}

TEST_F(Team, RefusesOneThatIsNone) {
  encode(paint(1000), 2, 1);
  const Search search(shards_);
  Meeting meeting(1);
  std::pair<Meeting *, std::uint32_t> user;
  const auto status = [&](auto change) {
    tandem_files_team team = meeting.team(0, &user);
    change(team);
    auto options = sized<tandem_files_verify_options>();
    options.team = &team;
    auto result = sized<tandem_files_verify_result>();
    return tandem_files_verify(context_, search, &options, &result);
  };
  EXPECT_EQ(status([](tandem_files_team &) {}), TANDEM_OK);
  EXPECT_EQ(status([](tandem_files_team &team) { team.process = 1; }), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status([](tandem_files_team &team) { team.process_count = 0; }), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status([](tandem_files_team &team) { team.gather = nullptr; }), TANDEM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status([](tandem_files_team &team) { team.struct_bytes = 3; }), TANDEM_ERROR_INVALID_ARGUMENT);
}

}  // namespace
