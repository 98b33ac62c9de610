// SPDX-License-Identifier: Apache-2.0
// Several processes encode, decode, verify and repair one set together (tandem_files_team). The test uses threads as
// processes: the calls share only the functions of the team.
#include <barrier>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <tuple>
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
    const auto ends = by(count, [&](std::uint32_t process, const tandem_files_team *team) {
      Outcome<Result> &outcome = outcomes[process];
      const auto search = searched(process == blind);
      Options options = given;
      options.team = team;
      options.report = collect;
      options.report_user = &outcome.told;
      return call(context_, *search, &options, &outcome.result);
    });
    for (std::size_t process = 0; process < ends.size(); ++process) {
      std::tie(outcomes[process].status, outcomes[process].message) = ends[process];
      outcomes[process].result.seconds = 0;
    }
    return outcomes;
  }
  // It may have all the memory that it wants.
  std::unique_ptr<Search> searched(bool blind = false) const {
    const std::uint64_t left = std::exchange(allocations_left, kUnlimited);
    auto search = std::make_unique<Search>(blind ? elsewhere() : shards_);
    allocations_left = left;
    return search;
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

  // work(process, team) by `count` processes. 0: one without a team. Returns the statuses and messages.
  template <class Work>
  std::vector<std::pair<tandem_status, std::string>> by(std::uint32_t count, const Work &work) {
    std::vector<std::pair<tandem_status, std::string>> ends(std::max(count, 1u));
    Meeting meeting(std::max(count, 1u));
    std::vector<std::thread> threads;
    for (std::uint32_t process = 0; process < ends.size(); ++process)
      threads.emplace_back([&, process] {
        std::pair<Meeting *, std::uint32_t> user;
        const tandem_files_team team = meeting.team(process, &user);
        if (process == starved_) allocations_left = memory_;
        const tandem_status status = work(process, count != 0 ? &team : nullptr);
        if (process == starved_) memory_ = std::exchange(allocations_left, kUnlimited);
        ends[process] = {status, status != TANDEM_OK ? tandem_last_error_message() : ""};
      });
    for (std::thread &thread : threads) thread.join();
    return ends;
  }
  // Of root_/source, to shards_. change: of the options of each process.
  template <class Change>
  auto encode_by(std::uint32_t count, std::uint32_t block_bytes, std::vector<tandem_files_result> *results,
                 const Change &change) {
    tandem_files_encode_options given = encode_options(root_ / "source", 3, 2, block_bytes);
    given.set_id = kId;
    results->assign(std::max(count, 1u), sized<tandem_files_result>());
    return by(count, [&, given](std::uint32_t process, const tandem_files_team *team) {
      tandem_files_encode_options options = given;
      options.team = team;
      change(process, options);
      return tandem_files_encode(context_, &options, &(*results)[process]);
    });
  }
  // Of shards_, to root_/output.
  template <class Change>
  auto decode_by(std::uint32_t count, std::vector<tandem_files_result> *results, const Change &change) {
    const std::string output = (root_ / "output").string();
    results->assign(std::max(count, 1u), sized<tandem_files_result>());
    return by(count, [&](std::uint32_t process, const tandem_files_team *team) {
      const auto search = searched();
      auto options = sized<tandem_files_decode_options>();
      options.output_path = output.c_str();
      options.no_sync = options.force = 1;
      options.team = team;
      change(process, options);
      return tandem_files_decode(context_, *search, &options, &(*results)[process]);
    });
  }
  static constexpr auto kAsGiven = [](std::uint32_t, auto &) {};
  static constexpr std::uint8_t kId[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  static std::uint64_t sum(const std::vector<tandem_files_result> &results, std::uint64_t tandem_files_result::*field) {
    std::uint64_t all = 0;
    for (const tandem_files_result &each : results) all += each.*field;
    return all;
  }
  template <class Ends>
  static void expect_all(const Ends &ends, tandem_status status, const std::string &words = "") {
    for (const auto &[each, message] : ends) {
      EXPECT_EQ(each, status) << message;
      EXPECT_NE(message.find(words), std::string::npos) << message;
    }
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

  // Calls in which a process may allocate 0 times, once, ..., until it may often enough: call(process) says so.
  template <class Call>
  void starve(const char *what, const Call &call) {
    for (const std::uint32_t process : {0u, 1u}) {
      starved_ = process;
      std::uint64_t given = 0;
      for (bool enough = false; !enough; given += 1 + given / 16) {
        SCOPED_TRACE(testing::Message() << what << ", process " << process << " allocates " << given << " times");
        ASSERT_LT(given, 100'000u);
        memory_ = given;
        enough = call(process);
      }
      EXPECT_GT(given, 20u);
    }
  }

  // For `by`: the thread of process `starved_` may allocate memory_ times; afterwards memory_ is what is left of that.
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
  std::vector<tandem_files_result> results;
  for (const std::uint32_t count : {0u, 3u}) {
    for (const auto &outcome : verify_by(count)) {
      EXPECT_EQ(outcome.status, TANDEM_ERROR_DAMAGED);
      EXPECT_NE(outcome.message.find("every data block of set"), std::string::npos) << outcome.message;
    }
    expect_all(decode_by(count, &results, kAsGiven), TANDEM_ERROR_DAMAGED, "digest");
    EXPECT_FALSE(fs::exists(root_ / "output"));
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
  const auto has_agreed = [&](const auto &outcomes, const auto &alone) {
    const bool enough = memory_ != 0;
    for (const auto &each : outcomes) {
      EXPECT_EQ(each.status, outcomes[0].status) << each.message;
      EXPECT_TRUE(each.status == TANDEM_OK || each.status == TANDEM_ERROR_OUT_OF_MEMORY) << each.message;
    }
    if (enough) expect_like(outcomes, alone);
    return enough;
  };
  starve("verify", [&](std::uint32_t) {
    again();
    return has_agreed(verify_by(3), found);
  });
  starve("repair", [&](std::uint32_t) {
    again();
    const bool enough = has_agreed(repair_by(3), mended);
    memory_ = kUnlimited;
    EXPECT_EQ(repair_by(2)[0].status, TANDEM_OK);
    EXPECT_EQ(contents(shards_), repaired);
    return enough;
  });
}

TEST_F(Team, EncodesAndDecodesWhatOneProcessDoes) {
  std::vector<tandem_files_result> alone, each;
  for (const auto &[content_bytes, block_bytes] :
       {std::pair{300'001u, 4096u}, {300'001u, 64u}, {1u, 4096u}, {0u, 4096u}, {0u, 0u}}) {
    const std::vector<char> content = paint(content_bytes, 3);
    spill(root_ / "source", content);
    fs::permissions(root_ / "source", fs::perms{0640});
    expect_all(encode_by(0, block_bytes, &alone, kAsGiven), TANDEM_OK);
    const Contents expected = contents(shards_);
    for (const std::uint32_t count : {1u, 2u, 5u}) {
      SCOPED_TRACE(testing::Message() << count << " processes, " << content_bytes << " bytes");
      fs::remove_all(shards_);
      expect_all(encode_by(count, block_bytes, &each, kAsGiven), TANDEM_OK);
      EXPECT_EQ(contents(shards_), expected);
      EXPECT_EQ(sum(each, &tandem_files_result::read_bytes), alone[0].read_bytes);
      EXPECT_EQ(sum(each, &tandem_files_result::written_bytes), alone[0].written_bytes);
      for (const auto &entry : fs::directory_iterator(shards_))
        EXPECT_EQ(entry.status().permissions(), fs::perms{0640}) << entry;
      for (const tandem_files_result &result : each)
        EXPECT_EQ(std::memcmp(result.digest, alone[0].digest, sizeof result.digest), 0);
      fs::remove(shard(1));
      if (content_bytes > 1) damage(2, 4096 + 5, 1);
      expect_all(decode_by(count, &each, kAsGiven), TANDEM_OK);
      EXPECT_EQ(slurp(root_ / "output"), content);
      EXPECT_EQ(fs::status(root_ / "output").permissions(), fs::perms{0640});
      EXPECT_EQ(sum(each, &tandem_files_result::written_bytes), content_bytes);
      EXPECT_EQ(sum(each, &tandem_files_result::bad_block_count), content_bytes > 1 ? 1u : 0u);
      fs::remove(root_ / "output");
    }
    fs::remove_all(shards_);
  }
}

// 2^54 rounds of stripes: the calls must not count them one by one.
TEST_F(Team, RefusesStripesThatAHeaderOnlyClaims) {
  encode(paint(1000), 1, 1, 64);
  for (const auto &entry : fs::directory_iterator(shards_)) forge(entry.path(), 64, 1ull << 60, 8);
  std::vector<tandem_files_result> results;
  expect_all(decode_by(3, &results, kAsGiven), TANDEM_ERROR_NOT_RECOVERABLE);
  EXPECT_FALSE(fs::exists(root_ / "output"));
}

TEST_F(Team, RefusesWhatOnlyOneProcessCan) {
  encode(paint(100'000), 3, 2, 4096);
  fs::rename(shards_, root_ / "kept");
  std::vector<tandem_files_result> results;
  const auto encode_with = [&](auto change) { return encode_by(3, 4096, &results, change); };
  const auto expect_nothing = [&] { EXPECT_FALSE(fs::exists(shards_)); };
  const auto of_2 = [](auto change) {
    return [change](std::uint32_t process, auto &options) {
      if (process == 2) change(options);
    };
  };
  using Encode = tandem_files_encode_options;
  for (const auto &change : std::vector<std::function<void(Encode &)>>{
           [](Encode &o) { o.k = 2; }, [](Encode &o) { o.m = 1; }, [](Encode &o) { o.block_bytes = 512; },
           [](Encode &o) { o.mode = 0600; }, [](Encode &o) { o.matrix = TANDEM_MATRIX_JERASURE_VANDERMONDE; },
           [](Encode &o) { o.source_path = "/etc/hostname"; }}) {
    expect_all(encode_with(of_2(change)), TANDEM_ERROR_INVALID_ARGUMENT, "process 2: k, m, matrix");
    expect_nothing();
  }
  expect_all(encode_with([](std::uint32_t, Encode &o) { o.source_path = nullptr; }), TANDEM_ERROR_INVALID_ARGUMENT,
             "no stream");
  expect_all(encode_with([](std::uint32_t, Encode &o) { o.source_path = "/proc/cpuinfo"; }),
             TANDEM_ERROR_INVALID_ARGUMENT, "one process can encode it");
  const std::string other = elsewhere().string();
  const char *const other_folder = other.c_str();
  expect_all(encode_with(of_2([&](Encode &o) { o.folders = &other_folder; })), TANDEM_ERROR_IO, "process 2: ");
  EXPECT_FALSE(fs::exists(elsewhere()));
  expect_nothing();
  fs::rename(root_ / "kept", shards_);
  using Decode = tandem_files_decode_options;
  for (const auto &change : std::vector<std::function<void(Decode &)>>{[](Decode &o) { o.salvage = 1; },
                                                                       [](Decode &o) { o.output_path = nullptr; },
                                                                       [](Decode &o) { o.output_path = "/dev/null"; }})
    expect_all(decode_by(3, &results, [&](std::uint32_t, Decode &o) { change(o); }), TANDEM_ERROR_INVALID_ARGUMENT,
               "no stream");
  EXPECT_FALSE(fs::exists(root_ / "output"));
}

TEST_F(Team, CancelsForAll) {
  std::vector<tandem_files_result> results;
  spill(root_ / "source", paint(300'000));
  const auto cancel = [](std::uint32_t process, auto &options) {
    if (process == 1) options.progress = [](void *, std::uint64_t, std::uint64_t) { return 1; };
  };
  expect_all(encode_by(3, 4096, &results, cancel), TANDEM_ERROR_CANCELLED, "process 1: cancelled");
  EXPECT_FALSE(fs::exists(shards_));
  expect_all(encode_by(3, 4096, &results, kAsGiven), TANDEM_OK);
  expect_all(decode_by(3, &results, cancel), TANDEM_ERROR_CANCELLED, "process 1: cancelled");
  EXPECT_EQ(entries(root_), 2u);  // the source and the shards
}

TEST_F(Team, WritesASetFromMemory) {
  constexpr std::size_t kStripe = 3 * (4096 - 16);
  const std::vector<char> content = paint(20 * kStripe + 77, 5);
  spill(root_ / "source", content);
  std::vector<tandem_files_result> results;
  expect_all(encode_by(0, 4096, &results, kAsGiven), TANDEM_OK);
  const Contents expected = contents(shards_);
  tandem_files_encode_options given = encode_options(root_ / "source", 3, 2, 4096);
  given.source_path = nullptr;
  given.name = "source";
  given.mode = static_cast<std::uint32_t>(fs::status(root_ / "source").permissions());
  given.set_id = kId;
  // Stripe `twice` by two processes; stripe `late` only after a commit that it lacks in.
  const auto write = [&](std::uint32_t count, std::uint64_t twice, std::uint64_t late) {
    fs::remove_all(shards_);
    return by(count, [&](std::uint32_t process, const tandem_files_team *team) {
      tandem_files_encode_options options = given;
      options.team = team;
      tandem_files_writer *writer = nullptr;
      tandem_status status = tandem_files_writer_begin(context_, &options, content.size(), nullptr, &writer);
      const auto put = [&](std::uint64_t stripe) {
        const std::size_t from = stripe * kStripe;
        if (status == TANDEM_OK)
          status = tandem_files_writer_write(writer, stripe, 1, content.data() + from,
                                             std::min(kStripe, content.size() - from));
      };
      for (std::uint64_t stripe = 21; stripe-- > 0;)
        if (stripe != late && (stripe % team->process_count == process || stripe == twice)) put(stripe);
      if (late < 21) {
        EXPECT_EQ(tandem_files_writer_commit(writer, nullptr), TANDEM_ERROR_INVALID_ARGUMENT);
        expect_message("1 of 21 stripes are not written, the first of them is " + std::to_string(late));
        if (process == count - 1) {
          EXPECT_EQ(tandem_files_writer_write(writer, process + 5 * count, 1, content.data(), kStripe),
                    TANDEM_ERROR_INVALID_ARGUMENT)
              << "its own one, a second time";
          put(late);
        }
      }
      if (status == TANDEM_OK) status = tandem_files_writer_commit(writer, nullptr);
      const std::string why = status != TANDEM_OK ? tandem_last_error_message() : "";
      tandem_files_writer_destroy(writer);
      return status == TANDEM_OK ? status : tandem_set_last_error(status, why.c_str());
    });
  };
  for (const std::uint32_t count : {1u, 2u, 5u}) {
    expect_all(write(count, 99, 99), TANDEM_OK);
    EXPECT_EQ(contents(shards_), expected);
    expect_all(write(count, 99, 0), TANDEM_OK);
    EXPECT_EQ(contents(shards_), expected);
  }
  expect_all(write(3, 7, 99), TANDEM_ERROR_INVALID_ARGUMENT, "stripe 7 was written before");
  EXPECT_FALSE(fs::exists(shards_));
}

TEST_F(Team, AgreesOnAnEncodeAndADecodeWithoutMemory) {
  const std::vector<char> content = paint(200'000, 4);
  spill(root_ / "source", content);
  std::vector<tandem_files_result> results(3);
  starve("encode", [&](std::uint32_t process) {
    fs::remove_all(shards_);
    const auto ends = encode_by(3, 4096, &results, kAsGiven);
    const bool enough = ends[0].first == TANDEM_OK;
    if (enough || process != 0) {  // without memory the leading process may leave its files for a later clean-up
      expect_all(ends, enough ? TANDEM_OK : TANDEM_ERROR_OUT_OF_MEMORY);
      EXPECT_EQ(fs::exists(shards_), enough);
    } else {
      expect_all(ends, ends[0].first);
    }
    return enough;
  });
  starve("decode", [&](std::uint32_t) {
    fs::remove(root_ / "output");
    const auto ends = decode_by(3, &results, kAsGiven);
    const bool enough = ends[0].first == TANDEM_OK;
    expect_all(ends, enough ? TANDEM_OK : TANDEM_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(fs::exists(root_ / "output"), enough);
    return enough;
  });
  EXPECT_EQ(slurp(root_ / "output"), content);
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
