// SPDX-License-Identifier: Apache-2.0
#include "files/verify.hpp"

#include <algorithm>
#include <chrono>

#include "base/text.hpp"
#include "files/placement.hpp"
#include "files/recoverable.hpp"
#include "files/set_reader.hpp"
#include "files/workers.hpp"

namespace tandem::files {
namespace {

using Clock = std::chrono::steady_clock;

class Inspector {
 public:
  Inspector(tandem_context *context, const FoundSet &set, const tandem_files_verify_options &options, const Team &team)
      : context_(context),
        set_(set),
        header_(set.header),
        reader_(set, base::timeline_of(context)),
        recoverability_(context, header_),
        found_(nothing_found(set)),
        stripes_(found_.readable),
        thread_count_(options.thread_count),
        team_(team),
        rounds_(team, header_, stripes_.count()),
        digest_(team),
        meter_(options.progress, options.progress_user, total_bytes(), options.rate_bytes_per_second) {}

  Findings run() {
    for (std::uint64_t round = 0; round < rounds_.count(); ++round) {
      team_.together([&] { look_at(rounds_.range(round)); });
      digest_.end_round();
    }
    team_.together([&] { reader_.check_all_read(); });
    found_.read_bytes = reader_.read_bytes();
    team_.merge([this](Words &words) { tell(words); }, [this] { found_ = nothing_found(set_); },
                [this](Words &theirs) { hear(theirs); });
    team_.together([&] { lose_the_rest(); });
    if (header_.stripe_count() == 0) team_.together([&] { look_at_empty_content(); });
    if (data_is_intact_ && found_.recoverable) found_.digest = digest_.value(header_.content_bytes);
    found_.read_bytes += 2 * kRecordBytes * set_.files.size();
    return std::move(found_);
  }

 private:
  static Findings nothing_found(const FoundSet &set) {
    Findings found;
    found.bad.resize(set.files.size(), Ranges(share_of_ranges(set.files.size())));
    found.lost_count.resize(set.files.size());
    found.readable = readable_stripes(set);
    return found;
  }

  // For progress. With several processes: of this one's part.
  std::uint64_t total_bytes() const {
    const std::uint64_t stripe_count = header_.stripe_count();
    if (!team_.is_alone()) return set_.files.size() * rounds_.stripe_count() * header_.block_bytes;
    std::uint64_t bytes = stripes_.count() * header_.block_bytes;
    if (stripes_.count() != 0 && stripes_.at(stripes_.count() - 1) == stripe_count - 1)
      bytes -= header_.payload_bytes() - header_.payload_bytes_of(stripe_count - 1);
    return set_.files.size() * bytes;
  }

  void lose_the_rest() {
    std::uint64_t from = 0;
    const auto lose = [&](std::uint64_t end) {
      if (from >= end) return;
      found_.lost.add(from, end);
      found_.worst_bad_count = header_.shard_count();
      found_.recoverable = false;
      for (std::size_t file = 0; file < set_.files.size(); ++file) {
        found_.bad[file].add(from, end);
        found_.lost_count[file] += end - from;
      }
    };
    for (const auto &[first, end] : found_.readable.ends()) {
      lose(first);
      from = end;
    }
    lose(header_.stripe_count());
  }

  void look_at_empty_content() {
    std::vector<std::uint8_t> present(header_.shard_count(), 0);
    for (const ShardFile &file : set_.files) present[file.index] = 1;
    found_.worst_bad_count = header_.shard_count() - set_.shard_count;
    found_.recoverable = recoverability_.holds(present);
  }

  // Places of stripes_.
  void look_at(const tandem_files_range &places) {
    next_ = first_ = places.first;
    end_ = places.first + places.count;
    run_workers(context_, worker_count_for(context_, thread_count_, header_.block_bytes, places.count), meter_, &turns_,
                [this](std::size_t) { work(); });
  }

  void tell(Words &words) const {
    words.put(found_.worst_bad_count);
    words.put(found_.read_bytes);
    words.put(found_.recoverable ? 1 : 0);
    words.put(data_is_intact_ ? 1 : 0);
    words.put(found_.lost);
    for (std::size_t file = 0; file < set_.files.size(); ++file) {
      words.put(found_.bad[file]);
      words.put(found_.lost_count[file]);
    }
  }

  void hear(Words &theirs) {
    found_.worst_bad_count = std::max(found_.worst_bad_count, static_cast<std::uint32_t>(theirs.number()));
    found_.read_bytes += theirs.number();
    if (theirs.number() == 0) found_.recoverable = false;
    if (theirs.number() == 0) data_is_intact_ = false;
    theirs.add_to(found_.lost);
    for (std::size_t file = 0; file < set_.files.size(); ++file) {
      theirs.add_to(found_.bad[file]);
      found_.lost_count[file] += theirs.number();
    }
  }

  void work() {
    std::vector<std::byte> block(header_.block_bytes);
    std::vector<std::uint8_t> present(header_.shard_count());
    std::vector<Hash128> hashes(header_.shard_count());
    std::vector<std::size_t> bad_files;
    while (!meter_.stopped().load(std::memory_order_relaxed)) {
      const std::uint64_t place = next_.fetch_add(1);
      if (place >= end_) return;
      const std::uint64_t stripe = stripes_.at(place);
      std::ranges::fill(present, std::uint8_t{0});
      bad_files.clear();
      for (std::size_t file = 0; file < set_.files.size(); ++file) {
        const std::uint32_t shard = set_.files[file].index;
        if (Hash128 hash; reader_.read_block_of_file(file, stripe, block.data(), &hash)) {
          if (present[shard] == 0) hashes[shard] = hash;  // as decode: the first of several copies
          present[shard] = 1;
        } else {
          bad_files.push_back(file);
        }
      }
      if (!turns_.enter(place - first_)) return;
      digest_.add(std::span(hashes).first(header_.k));
      if (std::count(present.begin(), present.begin() + header_.k, 1) != header_.k) data_is_intact_ = false;
      turns_.leave(place - first_);
      meter_.done(set_.files.size() * (header_.payload_bytes_of(stripe) + kCheckBytes));
      const auto bad_count = static_cast<std::uint32_t>(std::ranges::count(present, 0));
      if (bad_count == 0 && bad_files.empty()) continue;
      for (std::uint32_t shard = 0; shard < header_.k; ++shard)
        if (header_.is_padding(shard, stripe)) present[shard] = 1;
      const bool lost = !recoverability_.holds(present);
      const std::lock_guard lock(mutex_);
      found_.worst_bad_count = std::max(found_.worst_bad_count, bad_count);
      if (lost) {
        found_.lost.add(stripe, stripe + 1);
        found_.recoverable = false;
      }
      for (const std::size_t file : bad_files) {
        found_.bad[file].add(stripe, stripe + 1);
        found_.lost_count[file] += lost ? 1 : 0;
      }
    }
  }

  tandem_context *context_;
  const FoundSet &set_;
  const SetHeader header_;
  SetReader reader_;
  Recoverability recoverability_;
  Findings found_;
  RangeList stripes_;
  std::uint32_t thread_count_;
  const Team &team_;
  const Rounds rounds_;
  SharedDigest digest_;  // this and the next: used by the worker that has the turn
  bool data_is_intact_ = true;
  base::Meter meter_;
  Turns turns_{meter_};
  std::atomic<std::uint64_t> next_{0};
  std::uint64_t first_ = 0, end_ = 0;  // places of this round
  std::mutex mutex_;                   // found_, while threads run
};

}  // namespace

Ranges readable_stripes(const FoundSet &set) {
  const SetHeader &header = set.header;
  const auto block_bytes = static_cast<std::int64_t>(header.block_bytes);
  Ranges readable;
  for (const ShardFile &file : set.files)
    for (std::uint32_t i = 0; i < file.base_count; ++i) {
      // Offsets in the file as it would be; what is there starts at -base.
      const std::int64_t first = std::max<std::int64_t>(-file.bases[i] - kRecordBytes, 0) / block_bytes;
      const std::int64_t end = static_cast<std::int64_t>(file.file_bytes - kRecordBytes) - file.bases[i];
      const std::int64_t stripes = static_cast<std::int64_t>(header.stripe_count());
      const std::int64_t last = std::min(end <= 0 ? 0 : end / block_bytes + 1, stripes);
      if (first < last) readable.add(static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(last));
    }
  return readable;
}

Findings inspect(tandem_context *context, const FoundSet &set, const tandem_files_verify_options &options,
                 const Team &team) {
  std::optional<Inspector> inspector;
  team.together([&] { inspector.emplace(context, set, options, team); });
  return inspector->run();
}

const FoundSet &choose_set(const Search &search, const char *set_id_prefix, const Team &team) {
  std::size_t index = 0;
  team.together([&] { index = search.choose_to_code(set_id_prefix != nullptr ? set_id_prefix : ""); });
  const FoundSet &set = search.sets[index];
  if (team.is_alone()) return set;
  const auto tell = [&set](Words &words) {
    words.put(hexadecimal(set.header.set_id));
    words.put(set.files.size());
    words.put(hexadecimal(printed_order(set.header.digest)));
    for (const std::uint64_t number : {std::uint64_t{set.header.k}, std::uint64_t{set.header.m},
                                       std::uint64_t{set.header.block_bytes}, set.header.content_bytes})
      words.put(number);
    for (const ShardFile &file : set.files) {
      words.put(file.path);
      for (const std::uint64_t number :
           {std::uint64_t{file.index}, std::uint64_t{file.condition}, file.file_bytes, std::uint64_t{file.base_count},
            static_cast<std::uint64_t>(file.bases[0]), static_cast<std::uint64_t>(file.bases[1])})
        words.put(number);
    }
  };
  Words leading = team.broadcast(tell);
  team.together([&] {
    Words mine;
    tell(mine);
    if (leading.bytes() == mine.bytes()) return;
    const std::string id = leading.text();
    fail(TANDEM_ERROR_IO, "this process and process 0 find different shard files: ", set.files.size(), " of set ",
         hexadecimal(set.header.set_id), " here, ", leading.number(), " of set ", id, " there");
  });
  return set;
}

void report(const FoundSet &set, const Findings &findings, tandem_files_report tell, void *user,
            const std::function<void(Finding &)> &more) {
  if (tell == nullptr) return;
  const std::vector<std::uint32_t> missing = missing_shards(set);
  auto next_missing = missing.begin();
  for (std::size_t file = 0; file < set.files.size() || next_missing != missing.end();) {
    Finding finding{kNoFile, base::sized<tandem_files_finding>()};
    tandem_files_finding &out = finding.report;
    out.path = "";
    std::vector<tandem_files_range> ranges;
    if (file == set.files.size() || (next_missing != missing.end() && *next_missing < set.files[file].index)) {
      out.index = *next_missing++;
      out.condition = TANDEM_FILES_MISSING;
    } else {
      finding.file = file;
      out.path = set.files[file].path.c_str();
      out.index = set.files[file].index;
      out.condition = set.files[file].condition;
      out.file_bytes = set.files[file].file_bytes;
      out.bad_block_count = findings.bad[file].count();
      out.lost_block_count = findings.lost_count[file];
      for (const auto &[first, end] : findings.bad[file].ends()) ranges.push_back({first, end - first});
      ++file;
    }
    out.bad_ranges = ranges.data();
    out.bad_range_count = ranges.size();
    if (more) more(finding);
    tell(user, &out);
  }
}

tandem_files_verify_result verify(tandem_context *context, const Search &search,
                                  const tandem_files_verify_options &options) {
  const Clock::time_point started = Clock::now();
  const Team team(options.team);
  const FoundSet &set = choose_set(search, options.set_id_prefix, team);
  team.together([&] { check_current(search, set); });
  const Findings findings = inspect(context, set, options, team);
  std::vector<std::string> crowded;
  team.together([&] {
    check_all_read(search, set, findings.recoverable);
    if (team.leads()) report(set, findings, options.report, options.report_user);
    if (findings.digest && findings.digest != set.header.digest)
      fail(TANDEM_ERROR_DAMAGED, "every data block of set ", hexadecimal(set.header.set_id),
           " is intact, but their digest is ", hexadecimal(printed_order(*findings.digest)), " and the set's ",
           hexadecimal(printed_order(set.header.digest)), ": its writer had a defect, or another program changed it");
    if (findings.recoverable) crowded = Layout(search, set).crowded(context);
    if (team.leads() && options.note != nullptr)
      for (const std::string &sentence : crowded) options.note(options.note_user, sentence.c_str());
  });

  tandem_files_verify_result result = {};
  result.missing_shard_count = set.header.shard_count() - set.shard_count;
  for (std::size_t file = 0; file < set.files.size(); ++file) {
    result.bad_block_count += findings.bad[file].count();
    if (set.files[file].condition != 0 || !findings.bad[file].empty()) ++result.damaged_file_count;
  }
  result.worst_bad_count = findings.worst_bad_count;
  result.lost_stripe_count = findings.lost.count();
  result.read_bytes = findings.read_bytes;
  result.crowded_folder_count = static_cast<std::uint32_t>(crowded.size());
  result.state = !findings.recoverable                                               ? TANDEM_FILES_LOST
                 : result.missing_shard_count != 0 || result.damaged_file_count != 0 ? TANDEM_FILES_RECOVERABLE
                                                                                     : TANDEM_FILES_INTACT;
  result.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  return result;
}

}  // namespace tandem::files
