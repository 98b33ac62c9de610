// SPDX-License-Identifier: Apache-2.0
#include "files/repair.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "base/format.hpp"
#include "base/options.hpp"
#include "files/commit.hpp"
#include "files/error.hpp"
#include "files/placement.hpp"
#include "files/recoverable.hpp"
#include "files/stripe_source.hpp"
#include "files/verify.hpp"
#include "files/workers.hpp"

namespace tandem::files {
namespace {

using Clock = std::chrono::steady_clock;

// A shard file that is mended in place, or written anew.
struct Target {
  explicit Target(std::size_t most_ranges) : written(most_ranges) {}

  std::size_t file = kNoFile;  // place in FoundSet::files
  std::uint32_t shard = 0;
  std::int32_t action = TANDEM_FILES_NOTHING;
  Place place;                         // rebuild
  Descriptor opened;                   // mend
  std::shared_ptr<Folder> folder;      // rebuild
  std::optional<PendingFile> pending;  // rebuild
  Ranges written;                      // blocks
  std::uint64_t left_count = 0;        // bad blocks that were not written
  std::string failure;
  std::uint32_t failed_process = 0;  // the process that failed, or that would fail next
  std::uint64_t written_count = 0;   // blocks, of all processes; set when everything is done

  int descriptor() const { return pending ? pending->descriptor() : opened.get(); }
};

class Repair {
 public:
  Repair(tandem_context *context, const Search &search, const FoundSet &set, const tandem_files_repair_options &options,
         const Team &team)
      : context_(context),
        timeline_(base::timeline_of(context)),
        search_(search),
        set_(set),
        header_(set.header),
        options_(options),
        team_(team),
        recoverability_(context, header_),
        source_(context, recoverability_.codec(), set) {
    if (options.folders == nullptr) return;
    for (const std::string_view folder : base::read_strings(options.folders, options.folder_count, "folders"))
      given_.emplace_back(folder);
  }

  ~Repair() {
    targets_.clear();
    for (const std::string &folder : made_) rmdir(folder.c_str());  // a folder with a file in it stays
  }
  Repair(const Repair &) = delete;
  Repair &operator=(const Repair &) = delete;

  tandem_files_repair_result run() {
    findings_ = inspect(context_, set_, options_.thread_count, options_.progress, options_.progress_user, team_);
    team_.together([&] {
      if (!team_.leads()) return;
      plan();
      if (options_.dry_run == 0) open_pending();
    });
    if (!team_.is_alone()) share_targets();
    if (options_.dry_run == 0 && !targets_.empty()) {
      team_.together([&] { write_blocks(); });
      share_failures();
      team_.together([&] {
        if (team_.leads()) write_records();
        for (Target &target : targets_) attempt(target, [&] { finish(target); });
        read_back();
      });
      share_failures();
      team_.together([&] {
        if (!team_.leads()) return;
        waits_since_ = std::chrono::steady_clock::now();
        for (Target &target : targets_) attempt(target, [&] { give_name(target); });
        sync_parents();
      });
      share_failures();
    }
    add_up();
    tandem_files_repair_result result = {};
    team_.together([&] {
      result = tell();
      const auto failed =
          std::find_if(targets_.begin(), targets_.end(), [](const Target &t) { return !t.failure.empty(); });
      if (failed != targets_.end() && failed->failed_process == team_.process()) fail(TANDEM_ERROR_IO, failures());
    });
    return result;
  }

 private:
  // ---- the plan ----

  void note(const std::string &text) const {
    if (options_.note != nullptr) options_.note(options_.note_user, text.c_str());
  }

  // Headers may claim any length, and a rebuilt file gets that length. So k shards must have a file of at least half of
  // it.
  bool is_length_credible() const {
    std::vector<bool> agrees(header_.shard_count(), false);
    for (const ShardFile &file : set_.files)
      if (file.file_bytes >= header_.shard_file_bytes() / 2) agrees[file.index] = true;
    const auto count = static_cast<std::uint32_t>(std::count(agrees.begin(), agrees.end(), true));
    if (count >= header_.k) return true;
    note(base::format(
        "nothing is written: {} shard{} a file of at least half of the {} bytes that the headers claim, {} "
        "are needed",
        count, count == 1 ? " has" : "s have", header_.shard_file_bytes(), header_.k));
    return false;
  }

  void plan() {
    if (!is_length_credible()) return;
    const std::size_t most_ranges = share_of_ranges(set_.files.size() + header_.shard_count());
    for (std::size_t file = 0; file < set_.files.size(); ++file) {
      const ShardFile &shard = set_.files[file];
      if (shard.condition == 0 && findings_.bad[file].count() == findings_.lost_count[file]) continue;
      Target target(most_ranges);
      target.file = file;
      target.shard = shard.index;
      target.action = TANDEM_FILES_REBUILD;
      target.place = {folder_of(shard.path), name_of(shard.path)};
      targets_.push_back(std::move(target));
    }
    plan_missing(most_ranges);
    check_files_to_open();
    for (Target &target : targets_)
      if (target.file != kNoFile && open_in_place(set_.files[target.file], &target.opened))
        target.action = TANDEM_FILES_MEND;
  }

  void plan_missing(std::size_t most_ranges) {
    const std::uint64_t stripe_count = header_.stripe_count();
    const bool worth_it = stripe_count == 0 ? findings_.recoverable : findings_.lost.count() < stripe_count;
    const std::vector<std::uint32_t> missing = missing_shards(set_);
    if (!worth_it || missing.empty()) return;
    const Places places = places_for(search_, set_, missing, given_, options_.force != 0);
    if (!places.note.empty()) note(places.note);
    for (std::size_t i = 0; i < missing.size(); ++i) {
      Target target(most_ranges);
      target.shard = missing[i];
      target.action = TANDEM_FILES_REBUILD;
      target.place = places.of[i];
      targets_.push_back(std::move(target));
    }
  }

  // Checked before anything is written.
  void check_files_to_open() const {
    if (targets_.empty()) return;
    std::set<std::string> folders;
    for (const Target &target : targets_) folders.insert(target.place.folder);
    check_open_files(targets_.size() + folders.size(),
                     base::format("{} shard files to be mended or rebuilt in {} folder{}", targets_.size(),
                                  folders.size(), folders.size() == 1 ? "" : "s"));
  }

  // False if the file must be written anew: it has another length, cannot be written to, or was replaced since the
  // search.
  bool open_in_place(const ShardFile &shard, Descriptor *file_out) const {
    if ((shard.condition & TANDEM_FILES_WRONG_LENGTH) != 0) return false;
    Descriptor file;
    do {
      file = Descriptor(open(shard.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    } while (!file && errno == EINTR);
    if (!file && is_out_of_resources(errno)) fail_io("open", shard.path, errno);
    struct stat status;
    if (!file || fstat(file.get(), &status) != 0 || status.st_dev != shard.identity.first ||
        status.st_ino != shard.identity.second)
      return false;
    *file_out = std::move(file);
    return true;
  }

  // Ranges may cover more than the bad blocks, and a read may have failed once. A good block is never written to.
  bool wants(const Target &target, std::uint64_t stripe, std::byte *scratch) {
    if (target.action == TANDEM_FILES_REBUILD) return true;
    return findings_.bad[target.file].contains(stripe) &&
           !source_.reader().read_block_of_file(target.file, stripe, scratch);
  }

  // ---- several processes ----

  // Process 0 has planned, and made the files that are written anew. The others open the files that it names.
  void share_targets() {
    Words leading = team_.broadcast([this](Words &plan) {
      plan.put(targets_.size());
      for (const Target &target : targets_) {
        plan.put(target.file);
        plan.put(target.shard);
        plan.put(static_cast<std::uint64_t>(target.action));
        plan.put(target.place.folder);
        plan.put(target.place.name);
        plan.put(target.pending ? target.pending->path() : "");
        plan.put(target.failure);
      }
    });
    team_.together([&] {
      if (team_.leads()) return;
      const std::size_t most_ranges = share_of_ranges(set_.files.size() + header_.shard_count());
      for (std::uint64_t left = leading.number(); left != 0; --left) {
        Target target(most_ranges);
        target.file = leading.number();
        target.shard = static_cast<std::uint32_t>(leading.number());
        target.action = static_cast<std::int32_t>(leading.number());
        target.place.folder = leading.text();
        target.place.name = leading.text();
        const std::string temporary = leading.text();
        target.failure = leading.text();
        if (target.failure.empty()) target.failed_process = team_.process();
        if (options_.dry_run == 0) attempt(target, [&] { join(target, temporary); });
        targets_.push_back(std::move(target));
      }
    });
  }

  void join(Target &target, const std::string &temporary) const {
    if (target.action == TANDEM_FILES_REBUILD) {
      target.opened = Descriptor(open(temporary.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
      if (!target.opened) fail_io("open", temporary, errno);
    } else if (!open_in_place(set_.files[target.file], &target.opened)) {
      fail(TANDEM_ERROR_IO, base::format("process 0 can write to {}, but this process cannot", path_of(target)));
    }
  }

  // A file that failed in one process is left alone in all.
  void share_failures() {
    if (team_.is_alone()) return;
    const auto tell = [this](Words &words) {
      for (const Target &target : targets_) {
        words.put(target.failed_process);
        words.put(target.failure);
      }
    };
    const auto hear = [&](Words &theirs) {
      for (Target &target : targets_) {
        const auto process = static_cast<std::uint32_t>(theirs.number());
        const std::string failure = theirs.text();
        if (!target.failure.empty() || failure.empty()) continue;
        target.failure = failure;
        target.failed_process = process;
      }
    };
    team_.gather(tell, [&](std::uint32_t, Words &theirs) { hear(theirs); });
    Words all = team_.broadcast(tell);
    team_.together([&] {
      for (Target &target : targets_) target.failure.clear();
      hear(all);
    });
  }

  // The combined work of all processes.
  void add_up() {
    read_bytes_ += source_.reader().read_bytes();
    for (Target &target : targets_) target.written_count = target.written.count();
    if (team_.is_alone()) return;
    const auto tell = [this](Words &words) {
      words.put(read_bytes_);
      words.put(written_bytes_);
      for (const Target &target : targets_) {
        words.put(target.written_count);
        words.put(target.left_count);
      }
    };
    const auto hear = [&](Words &theirs) {
      read_bytes_ += theirs.number();
      written_bytes_ += theirs.number();
      for (Target &target : targets_) {
        target.written_count += theirs.number();
        target.left_count += theirs.number();
      }
    };
    team_.gather(tell, [&](std::uint32_t process, Words &theirs) {
      if (process != 0) hear(theirs);
    });
    Words all = team_.broadcast(tell);
    team_.together([&] {
      read_bytes_ = written_bytes_ = 0;
      for (Target &target : targets_) target.written_count = target.left_count = 0;
      hear(all);
    });
  }

  // ---- the work ----

  // A failure of one file does not stop the repair of the others.
  template <class Step>
  void attempt(Target &target, Step step) {
    if (!target.failure.empty()) return;
    try {
      step();
    } catch (const Error &error) {
      if (error.status() != TANDEM_ERROR_IO) throw;
      target.failure = error.what();
    }
  }

  LockWait lock_wait() const {
    LockWait wait{.check_cancelled = [this] {
      if (options_.progress != nullptr && options_.progress(options_.progress_user, 0, 0) != 0)
        fail(TANDEM_ERROR_CANCELLED, "cancelled");
    }};
    if (options_.lock_wait_seconds != 0) wait.seconds = options_.lock_wait_seconds;
    wait.began = waits_since_;
    return wait;
  }

  std::string path_of(const Target &target) const { return target.place.folder + "/" + target.place.name; }

  void open_pending() {
    waits_since_ = std::chrono::steady_clock::now();
    for (Target &target : targets_) {
      if (target.action != TANDEM_FILES_REBUILD) continue;
      attempt(target, [&] {
        if (target.file == kNoFile && mkdir(target.place.folder.c_str(), 0777) == 0)
          made_.push_back(target.place.folder);
        target.folder = folders_[add_folder(folders_, target.place.folder)];
        const FoldersLock lock({target.folder}, lock_wait());
        OwnName name{OwnKind::lone_temporary};
        random_bytes(name.set_id);
        const std::string &model = set_.files[target.file != kNoFile ? target.file : 0].path;
        struct stat status;
        if (stat(model.c_str(), &status) != 0) fail_io("stat", model, errno);
        target.pending.emplace(target.folder, own_name(name), status.st_mode & 0777);
        // Without the right to change the owner, the file keeps this process' owner.
        [[maybe_unused]] const int owned = fchown(target.pending->descriptor(), status.st_uid, status.st_gid);
        if (!set_length(target.pending->descriptor(), header_.shard_file_bytes()))
          fail_io("extend", target.pending->path(), errno);
      });
    }
  }

  // work(stripes, buffers): of each of these stripes.
  void run_workers(const std::function<void(std::span<const std::uint64_t>, const BatchBuffers &)> &work) {
    const RangeList stripes(findings_.readable);
    const Part part = part_of(stripes.count(), team_.process(), team_.process_count());
    const std::uint64_t stripe_count = part.count, end = part.first + part.count;
    Workers workers(context_, options_.progress, options_.progress_user, stripe_count * header_.stripe_data_bytes());
    std::atomic<std::uint64_t> next{part.first};
    const Division division = divide(context_, options_.thread_count, header_, stripe_count);
    source_.set_piece_bytes(division.piece_bytes);
    workers.check_cancelled();  // the bytes are counted anew
    workers.run(division.worker_count, [&](unsigned) {
      const BatchBuffers buffers = make_buffers(header_, division.batch_stripes);
      std::vector<std::uint64_t> batch;
      while (!workers.stopped().load(std::memory_order_relaxed)) {
        const std::uint64_t first = next.fetch_add(buffers.size());
        batch.clear();
        for (std::uint64_t place = first; place < end && batch.size() < buffers.size(); ++place)
          batch.push_back(stripes.at(place));
        if (batch.empty()) return;
        work(batch, buffers);
        workers.add_done(batch.size() * header_.stripe_data_bytes());
      }
    });
  }

  void write_blocks() {
    run_workers([this](std::span<const std::uint64_t> numbers, const BatchBuffers &buffers) {
      std::vector<StripeSource::Stripe> stripes;
      std::vector<std::vector<Target *>> targets;  // of each of them
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        std::vector<std::uint8_t> wanted(header_.shard_count(), 0);
        std::vector<Target *> now;
        for (Target &target : targets_) {
          if (!wants(target, numbers[i], buffers[i].at(target.shard))) continue;
          now.push_back(&target);
          wanted[target.shard] = 1;
        }
        if (now.empty()) continue;
        stripes.push_back({numbers[i], std::move(wanted), &buffers[i]});
        targets.push_back(std::move(now));
      }
      source_.bring(stripes);
      for (std::size_t i = 0; i < stripes.size(); ++i) write_blocks(stripes[i], targets[i]);
    });
  }

  void write_blocks(const StripeSource::Stripe &got, std::span<Target *const> targets) {
    const ShardBuffers &buffers = *got.buffers;
    const std::uint64_t stripe = got.number, payload_bytes = header_.payload_bytes_of(stripe);
    for (std::uint32_t i = 0; i < header_.shard_count(); ++i)
      if (got.wanted[i] != 0 && got.present[i] == 0 && got.complete)
        write_check(check_of(i, stripe, buffers.at(i)), buffers.at(i) + payload_bytes);
    for (Target *target : targets) {
      if (got.complete || got.present[target->shard] != 0) {
        write_block(*target, stripe, buffers.at(target->shard), payload_bytes + kCheckBytes);
      } else {
        leave_block(*target, stripe);
        if (target->action == TANDEM_FILES_REBUILD && target->file != kNoFile)
          keep_block(*target, stripe, buffers.at(target->shard));
      }
    }
  }

  Hash128 check_of(std::uint32_t shard, std::uint64_t stripe, const std::byte *block) const {
    const std::uint64_t payload_bytes = header_.payload_bytes_of(stripe);
    base::TimedStep step = step_of(timeline_, "hash", header_, stripe);
    step.add_bytes(payload_bytes);
    return block_check(header_.set_id, shard, stripe, block, payload_bytes);
  }

  // As write_at and read_at, with spans in the timeline.
  bool put_block(int descriptor, const std::byte *block, std::uint64_t bytes, std::uint64_t stripe) const {
    base::TimedStep step = step_of(timeline_, "write", header_, stripe);
    if (!write_at(descriptor, block, bytes, header_.block_offset(stripe))) return false;
    step.add_bytes(bytes);
    return true;
  }

  bool get_block(int descriptor, std::byte *block_out, std::uint64_t bytes, std::uint64_t stripe) const {
    base::TimedStep step = step_of(timeline_, "read", header_, stripe);
    if (read_at(descriptor, block_out, bytes, header_.block_offset(stripe)) != static_cast<std::int64_t>(bytes))
      return false;
    step.add_bytes(bytes);
    return true;
  }

  void write_block(Target &target, std::uint64_t stripe, const std::byte *block, std::uint64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (!target.failure.empty()) return;
    }
    const bool good = put_block(target.descriptor(), block, bytes, stripe);
    const int error = errno;
    const std::lock_guard lock(mutex_);
    if (good) {
      target.written.add(stripe, stripe + 1);
      written_bytes_ += bytes;
    } else if (target.failure.empty()) {
      target.failure = base::format("cannot write block {} of {}: {}", stripe, path_of(target), error_text(error));
    }
  }

  // A rebuilt file does not replace the old one if it lacks a stripe that was recoverable a moment ago.
  void leave_block(Target &target, std::uint64_t stripe) {
    const std::lock_guard lock(mutex_);
    ++target.left_count;
    if (!findings_.lost.contains(stripe) && target.failure.empty())
      target.failure =
          base::format("block {} of {} cannot be computed: other blocks of its stripe cannot be read any more", stripe,
                       path_of(target));
  }

  // A block of the old file that cannot be recovered: its bytes may still be of use.
  void keep_block(Target &target, std::uint64_t stripe, std::byte *block) {
    const std::uint64_t bytes = header_.payload_bytes_of(stripe) + kCheckBytes;
    errno = 0;
    const bool is_read = source_.reader().read_raw_block(target.file, stripe, block);
    if (is_read && put_block(target.descriptor(), block, bytes, stripe)) return;
    const int error = errno;
    const std::lock_guard lock(mutex_);
    if (target.failure.empty())
      target.failure =
          base::format("block {} of {}, which cannot be computed, cannot be {}{}; the file is left alone", stripe,
                       path_of(target), is_read ? "copied" : "read", error != 0 ? ": " + error_text(error) : "");
  }

  std::vector<RecordEnd> ends_to_write(const Target &target) const {
    if (target.action == TANDEM_FILES_REBUILD) return {RecordEnd::end, RecordEnd::start};
    std::vector<RecordEnd> ends;
    const std::uint32_t condition = set_.files[target.file].condition;
    if ((condition & TANDEM_FILES_END_DAMAGED) != 0) ends.push_back(RecordEnd::end);
    if ((condition & TANDEM_FILES_START_DAMAGED) != 0) ends.push_back(RecordEnd::start);
    return ends;
  }

  std::uint64_t offset_of(RecordEnd end) const {
    return end == RecordEnd::start ? 0 : header_.shard_file_bytes() - kRecordBytes;
  }

  void write_records() {
    std::array<std::byte, kRecordBytes> bytes;
    for (Target &target : targets_)
      attempt(target, [&] {
        for (const RecordEnd end : ends_to_write(target)) {
          write_record({header_, target.shard, end}, bytes);
          if (!write_at(target.descriptor(), bytes.data(), bytes.size(), offset_of(end)))
            fail_io("write", path_of(target), errno);
          written_bytes_ += bytes.size();
        }
      });
  }

  void finish(Target &target) {
    const base::TimedStep step(options_.no_sync != 0 ? nullptr : timeline_, "sync", 0, header_.content_bytes);
    if (target.pending) {
      target.pending->finish(options_.no_sync != 0);
    } else if (options_.no_sync == 0 && fsync(target.descriptor()) != 0) {
      fail_io("sync", path_of(target), errno);
    }
    // The file is read back from the disk, not from memory.
    posix_fadvise(target.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  }

  void read_back() {
    run_workers([this](std::span<const std::uint64_t> stripes, const BatchBuffers &buffers) {
      for (const std::uint64_t stripe : stripes) read_back(stripe, buffers[0]);
    });
    for (Target &target : targets_)
      attempt(target, [&] {
        std::array<std::byte, kRecordBytes> bytes;
        if (!team_.leads()) return;
        for (const RecordEnd end : ends_to_write(target)) {
          Record record;
          if (read_at(target.descriptor(), bytes.data(), bytes.size(), offset_of(end)) !=
                  static_cast<std::int64_t>(bytes.size()) ||
              parse_record(bytes, &record) != ParseResult::record || record != Record{header_, target.shard, end})
            fail(TANDEM_ERROR_IO, base::format("a record of {} was written and does not read back", path_of(target)));
        }
      });
  }

  void read_back(std::uint64_t stripe, const ShardBuffers &buffers) {
    const std::uint64_t payload_bytes = header_.payload_bytes_of(stripe), bytes = payload_bytes + kCheckBytes;
    std::byte *block = buffers.at(0);
    for (Target &target : targets_) {
      if (!target.written.contains(stripe)) continue;
      const bool good = get_block(target.descriptor(), block, bytes, stripe) &&
                        check_of(target.shard, stripe, block) == read_check(block + payload_bytes);
      const bool failed = !good && (target.written.is_exact() || is_computable(target, stripe, buffers));
      const std::lock_guard lock(mutex_);
      read_bytes_ += bytes;
      if (failed && target.failure.empty())
        target.failure = base::format("block {} of {} was written and does not read back", stripe, path_of(target));
    }
  }

  // With too many ranges to know each, a bad block may be one that was lost and never written.
  bool is_computable(const Target &target, std::uint64_t stripe, const ShardBuffers &buffers) {
    std::vector<std::uint8_t> wanted(header_.shard_count(), 0);
    wanted[target.shard] = 1;
    StripeSource::Stripe computed = {stripe, std::move(wanted), &buffers};
    source_.bring({&computed, 1});
    return computed.complete;
  }

  void give_name(Target &target) {
    if (!target.pending) return;
    const FoldersLock lock({target.folder}, lock_wait());
    if (target.file != kNoFile && !is_still_there(target))
      fail(TANDEM_ERROR_IO,
           base::format("{} was replaced since it was read; the new file is left alone", path_of(target)));
    const bool may_replace = target.file != kNoFile || options_.force != 0;
    target.pending->rename(target.place.name, may_replace, options_.no_sync != 0);
  }

  // A shard in a new folder is on the disk when the folder's own name is.
  void sync_parents() {
    if (options_.no_sync != 0) return;
    for (const std::string &folder : made_) Folder(folder + "/..").sync();
  }

  // A newer set may have this name by now, or the file may have been removed with its set.
  bool is_still_there(const Target &target) const {
    const ShardFile &shard = set_.files[target.file];
    struct stat status;
    return fstatat(target.folder->descriptor(), target.place.name.c_str(), &status, 0) == 0 &&
           std::pair(status.st_dev, status.st_ino) == shard.identity &&
           static_cast<std::uint64_t>(status.st_size) == shard.file_bytes;
  }

  // ---- the report ----

  std::uint64_t left_in(const Target &target) const {
    // Blocks outside every file were not tried.
    if (options_.dry_run == 0 && target.failure.empty())
      return target.left_count + header_.stripe_count() - RangeList(findings_.readable).count();
    if (options_.dry_run != 0)
      return target.file != kNoFile ? findings_.lost_count[target.file] : findings_.lost.count();
    return target.file != kNoFile ? findings_.bad[target.file].count() : 0;
  }

  const Target *target_of(const Finding &finding) const {
    for (const Target &target : targets_)
      if (target.file == finding.file && target.shard == finding.report.index) return &target;
    return nullptr;
  }

  tandem_files_repair_result tell() {
    tandem_files_repair_result result = {};
    result.left_shard_count = header_.shard_count() - set_.shard_count;
    for (std::size_t file = 0; file < set_.files.size(); ++file) result.left_block_count += findings_.bad[file].count();
    bool all_done = true;
    for (const Target &target : targets_) {
      all_done = all_done && options_.dry_run == 0 && target.failure.empty();
      if (!target.failure.empty()) continue;
      if (target.file != kNoFile) {
        result.left_block_count -= findings_.bad[target.file].count();
      } else {
        --result.left_shard_count;
      }
      result.left_block_count += left_in(target);
      if (target.action == TANDEM_FILES_MEND) {
        ++result.mended_file_count;
        result.mended_block_count +=
            options_.dry_run != 0 ? findings_.bad[target.file].count() - left_in(target) : target.written_count;
      } else {
        ++result.rebuilt_file_count;
      }
    }
    result.lost_stripe_count = findings_.lost.count();
    result.state = !findings_.recoverable ? TANDEM_FILES_LOST
                   : all_done && result.left_block_count == 0 && result.left_shard_count == 0
                       ? TANDEM_FILES_INTACT
                       : TANDEM_FILES_RECOVERABLE;
    if (targets_.empty() && result.left_block_count == 0 && result.left_shard_count == 0 && findings_.recoverable)
      result.state = TANDEM_FILES_INTACT;
    result.read_bytes = findings_.read_bytes + read_bytes_;
    result.written_bytes = written_bytes_;
    std::string path;
    report(set_, findings_, team_.leads() ? options_.report : nullptr, options_.report_user, [&](Finding &finding) {
      finding.report.left_bad_count = finding.report.bad_block_count;
      const Target *target = target_of(finding);
      if (target != nullptr && target->failure.empty()) {
        finding.report.action = target->action;
        finding.report.left_bad_count = left_in(*target);
        path = path_of(*target);
        if (finding.file == kNoFile) finding.report.path = path.c_str();
      } else if (finding.report.condition != 0 || finding.report.bad_block_count != 0) {
        finding.report.action = TANDEM_FILES_GIVE_UP;
      }
    });
    return result;
  }

  std::string failures() const {
    std::string first;
    std::size_t count = 0;
    for (const Target &target : targets_) {
      if (target.failure.empty()) continue;
      if (first.empty()) first = target.failure;
      ++count;
    }
    return count == 1 ? first : base::format("{} (and {} more shard files could not be mended)", first, count - 1);
  }

  tandem_context *context_;
  base::Timeline *const timeline_;  // null: none is asked for
  const Search &search_;
  const FoundSet &set_;
  const SetHeader header_;
  const tandem_files_repair_options &options_;
  const Team &team_;
  Recoverability recoverability_;
  StripeSource source_;
  Findings findings_;
  std::vector<std::string> given_;
  std::vector<std::string> made_;
  Folders folders_;                                      // of what is rebuilt
  std::chrono::steady_clock::time_point waits_since_{};  // for locks of folders, one after the other
  std::vector<Target> targets_;
  std::mutex mutex_;  // targets' progress, and:
  std::uint64_t read_bytes_ = 0, written_bytes_ = 0;
};

}  // namespace

tandem_files_repair_result repair(tandem_context *context, const Search &search,
                                  const tandem_files_repair_options &options) {
  const Clock::time_point started = Clock::now();
  const Team team(options.team);
  std::size_t set = 0;
  team.together([&] { set = search.choose_to_code(options.set_id_prefix != nullptr ? options.set_id_prefix : ""); });
  check_same(team, search.sets[set]);
  std::optional<Repair> call;
  team.together([&] { call.emplace(context, search, search.sets[set], options, team); });
  tandem_files_repair_result result = call->run();
  result.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  return result;
}

}  // namespace tandem::files
