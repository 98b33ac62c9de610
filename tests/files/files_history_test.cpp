// SPDX-License-Identifier: Apache-2.0
// Shard sets against a model, over random histories of calls, kills, losses of power and damage. A read must give the
// old content or the new one as a whole, as long as enough of it is left. Repair makes nothing worse, and what verify
// says is what is damaged. model.hpp says what must hold.
#include <fcntl.h>

#include "tests/files/faults.hpp"
#include "tests/files/kit.hpp"
#include "tests/files/model.hpp"
#include "tests/support/slice.hpp"

namespace model {
namespace {

constexpr std::uint32_t kNoRecord = TANDEM_FILES_START_DAMAGED | TANDEM_FILES_END_DAMAGED;  // it may be of no set

Bytes slurp(const fs::path &path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}
void spill(const fs::path &path, const Bytes &bytes) { std::ofstream(path, std::ios::binary) << bytes; }

struct Told {
  std::string path;
  std::uint32_t index, condition;
  std::vector<bool> good;
  std::int32_t action;
  bool operator==(const Told &) const = default;
};

class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) {
    std::string pattern =
        (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path().string()) + "/tandem-history-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error(pattern);
    base_ = pattern;
    root_ = base_ / "root";
    for (const fs::path &folder : {root_, base_ / "away", base_ / "out"}) fs::create_directory(folder);
    auto options = sized<tandem_context_options>();
    options.expert = "executor=serial";
    options.thread_count = 1;
    EXPECT_EQ(tandem_context_create(&options, &context_), TANDEM_OK);
    for (std::uint64_t i = 0, count = 1 + below(5); i < count; ++i) disks_.push_back("d" + std::to_string(i));
    for (const std::string &disk : disks_) fs::create_directory(root_ / disk);
    generations_.reserve(kSteps + 1);
    generations_.push_back(plan("other"));
    if (chance(3)) {
      EXPECT_EQ(encode(generations_[0], {}), TANDEM_OK) << tandem_last_error_message();
    }
    if (chance(3)) spill(root_ / disks_[0] / "notes.txt", random_bytes(5000));
  }
  ~History() {
    tandem_context_destroy(context_);
    fs::remove_all(base_);
  }
  History(const History &) = delete;
  History &operator=(const History &) = delete;

  void run() {
    look();
    for (int step = 0; step < kSteps && !::testing::Test::HasFailure(); ++step) {
      const std::uint64_t kind = below(23);
      if (kind < 5) {
        write_set();
        while (!is_clean(tree()) && disks_.size() > 1 && !chance(3) && !::testing::Test::HasFailure()) {
          if (chance(2))
            recover(true);
          else
            lose_disk(pick(disks_));
          look();
        }
      } else if (kind < 8)
        repair();
      else if (kind < 10)
        recover();
      else if (kind < 11)
        decode_to_file();
      else if (kind < 13)
        change_disks();
      else if (kind < 16)
        resize();
      else
        damage();
      if (!::testing::Test::HasFailure()) look();
    }
  }
  const std::string &text() const { return text_; }

 private:
  static constexpr int kSteps = 24;
  enum { kFile, kPipe, kWriter };
  struct Encoding {
    bool force = false, dry_run = false;
    int way = kFile;
  };

  // ---- small things

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool chance(unsigned one_in) { return below(one_in) == 0; }
  template <class Item>
  const Item &pick(const std::vector<Item> &list) {
    return list[below(list.size())];
  }
  Bytes random_bytes(std::size_t count) {
    Bytes bytes(count, 0);
    for (char &c : bytes) c = static_cast<char>(random_());
    return bytes;
  }
  void say(const std::string &what) { text_ += what + "; "; }

  Tree tree() const {
    Tree found;
    for (const auto &disk : fs::directory_iterator(root_)) {
      found[disk.path().filename()] = std::nullopt;
      for (const auto &entry : fs::directory_iterator(disk))
        found[disk.path().filename().string() + "/" + entry.path().filename().string()] = slurp(entry.path());
    }
    return found;
  }
  void restore(const Tree &wanted) {
    fs::remove_all(root_);
    fs::create_directory(root_);
    for (const auto &[path, bytes] : wanted)
      if (bytes)
        spill(root_ / path, *bytes);
      else
        fs::create_directory(root_ / path);
  }
  static std::string names(const Tree &of) {
    std::string all;
    for (const auto &[path, bytes] : of) all += path + " ";
    return all;
  }
  World world(const Tree &now) const { return World(now, generations_); }
  // No temporaries of a run that died.
  static bool is_tidy(const Tree &now) {
    return std::none_of(now.begin(), now.end(), [](const auto &entry) { return name_in(entry.first)[0] == '.'; });
  }
  // Nor a shard with its set's id for a name, which the next call may give its own.
  bool is_clean(const Tree &now) const {
    return is_tidy(now) && std::none_of(now.begin(), now.end(), [&](const auto &entry) {
             return std::any_of(generations_.begin(), generations_.end(), [&](const Generation &each) {
               return name_in(entry.first).starts_with(each.id + ".");
             });
           });
  }
  std::vector<std::string> here() const {
    std::vector<std::string> disks;
    for (const std::string &disk : disks_)
      if (fs::exists(root_ / disk)) disks.push_back(disk);
    return disks;
  }
  std::vector<std::string> some(std::vector<std::string> disks) {
    std::shuffle(disks.begin(), disks.end(), random_);
    disks.resize(1 + below(disks.size()));
    return disks;
  }

  // ---- calls

  std::vector<fs::path> paths(const std::vector<std::string> &folders) const {
    std::vector<fs::path> all;
    for (const std::string &folder : folders) all.push_back(root_ / folder);
    return all;
  }
  tandem_status decode(const std::string &id, tandem_files_decode_options options = {}) const {
    const std::string output = (base_ / "out" / "copy").string();
    options.struct_bytes = sizeof options;
    options.set_id_prefix = id.empty() ? nullptr : id.c_str();
    options.output_path = output.c_str();
    options.force = 1;
    return tandem_files_decode(context_, Search(paths(here())), &options, nullptr);
  }
  static void collect(void *user, const tandem_files_finding *finding) {
    Told told{finding->path, finding->index, finding->condition, {}, finding->action};
    for (std::size_t i = 0; i < finding->bad_range_count; ++i) {
      const auto &range = finding->bad_ranges[i];
      told.good.resize(range.first, true);
      told.good.resize(range.first + range.count, false);
    }
    static_cast<std::vector<Told> *>(user)->push_back(told);
  }

  Generation plan(const std::string &name) {
    Generation made;
    made.number = static_cast<unsigned>(generations_.size());
    made.name = name;
    made.k = 1 + static_cast<std::uint32_t>(below(4));
    made.m = static_cast<std::uint32_t>(below(4));
    made.block_bytes = std::array{64u, 128u, 256u}[below(3)];
    if (made.m != 0 && chance(4)) made.matrix = TANDEM_MATRIX_LEOPARD16;  // over GF(2^16)
    const std::size_t stripe = made.k * (made.block_bytes - 16);
    made.content = random_bytes(chance(4)   ? below(made.k + 2)
                                : chance(3) ? stripe * below(4) + below(3)
                                            : below((chance(2) ? 12 : 2) * stripe));
    made.folders = disks_;
    std::shuffle(made.folders.begin(), made.folders.end(), random_);
    made.folders.resize(1 + below(std::min<std::uint64_t>(made.folders.size(), made.k + made.m)));
    for (int i = 0; i < 16; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(below(256)));
      made.id += digits;
    }
    make_files(made);
    return made;
  }

  // What it must look like: an encode that nothing disturbs, elsewhere.
  void make_files(Generation &made) {
    made.files.clear();
    const auto root = std::exchange(root_, base_ / "aside");
    fs::create_directory(root_);
    EXPECT_EQ(encode(made, {}), TANDEM_OK) << tandem_last_error_message();
    for (unsigned i = 0; i < made.k + made.m; ++i)
      made.files.push_back(with_replaced(slurp(root_ / made.place(i)), made.replaced));
    fs::remove_all(root_);
    root_ = root;
  }

  // The same shard, with records that list these sets.
  static Bytes with_replaced(Bytes file, const std::set<Bytes> &replaced) {
    for (const std::size_t at : {std::size_t{0}, file.size() - kRecord}) {
      file[at + 92] = static_cast<char>(replaced.size());
      Bytes ids;
      for (const Bytes &id : replaced) ids += id;
      file.replace(at + 352, ids.size(), ids);
      std::array<std::byte, kRecord> record;
      std::memcpy(record.data(), file.data() + at, kRecord);
      reseal(record);
      std::memcpy(file.data() + at, record.data(), kRecord);
    }
    return file;
  }

  // What the set replaced is known from the records that it has written.
  void learn_replaced(Generation &made, const Tree &now) const {
    for (const auto &[path, bytes] : now)
      for (unsigned i = 0; i < made.files.size() && bytes; ++i) {
        if (bytes->size() != made.files[i].size()) continue;
        for (const std::size_t at : {std::size_t{0}, bytes->size() - kRecord}) {
          std::set<Bytes> replaced;
          for (std::size_t id = 0; id < static_cast<unsigned char>((*bytes)[at + 92]) && id < 233; ++id)
            replaced.insert(bytes->substr(at + 352 + 16 * id, 16));
          const Bytes file = with_replaced(made.files[i], replaced);
          if (replaced.empty() || bytes->compare(at, kRecord, file, at, kRecord) != 0) continue;
          made.replaced = replaced;
          for (Bytes &each : made.files) each = with_replaced(each, replaced);
          return;
        }
      }
  }

  // A generation with another m.
  const Generation *resized(const Generation &of, std::uint32_t m) {
    for (const Generation &each : generations_)
      if (each.number == of.number && each.m == m) return &each;
    Generation made = of;
    made.m = m;
    make_files(made);
    generations_.push_back(std::move(made));
    return &generations_.back();
  }

  tandem_status encode(const Generation &of, Encoding how) const {
    const Paths folders(paths(of.folders));
    auto options = sized<tandem_files_encode_options>();
    options.k = of.k;
    options.m = of.m;
    options.matrix = of.matrix;
    options.block_bytes = of.block_bytes;
    options.folders = folders.data();
    options.folder_count = folders.size();
    options.name = of.name.c_str();
    options.force = how.force;
    options.dry_run = how.dry_run;
    options.mode = 0644;
    std::uint8_t id[16];
    for (std::size_t i = 0; i < 16; ++i)
      id[i] = static_cast<std::uint8_t>(std::stoul(of.id.substr(2 * i, 2), nullptr, 16));
    options.set_id = id;
    if (how.way == kWriter && !how.dry_run) return write_in_parts(of, options);
    const std::string source = (base_ / "source").string();
    int pipes[2] = {-1, -1};
    if (how.way == kPipe) {
      if (pipe(pipes) != 0 || ::write(pipes[1], of.content.data(), of.content.size()) < 0) return TANDEM_ERROR_INTERNAL;
      ::close(pipes[1]);
      options.source_descriptor = pipes[0];
    } else {
      spill(source, of.content);
      options.source_path = source.c_str();
    }
    const tandem_status status = tandem_files_encode(context_, &options, nullptr);
    if (how.way == kPipe) ::close(pipes[0]);
    return status;
  }

  // A writer writes parts of some stripes, in any order.
  tandem_status write_in_parts(const Generation &of, const tandem_files_encode_options &options) const {
    std::mt19937 random(of.number);
    tandem_files_writer *writer = nullptr;
    tandem_status status = tandem_files_writer_begin(context_, &options, of.content.size(), nullptr, &writer);
    const std::size_t stripe = of.k * (of.block_bytes - 16), stripe_count = (of.content.size() + stripe - 1) / stripe;
    std::vector<tandem_files_range> parts;
    for (std::uint64_t first = 0; first < stripe_count; first += parts.back().count)
      parts.push_back({first, std::min<std::uint64_t>(1 + random() % 3, stripe_count - first)});
    std::shuffle(parts.begin(), parts.end(), random);
    for (const auto &[first, count] : parts) {
      const std::string_view bytes = std::string_view(of.content).substr(first * stripe, count * stripe);
      if (status == TANDEM_OK) status = tandem_files_writer_write(writer, first, count, bytes.data(), bytes.size());
    }
    if (status == TANDEM_OK) status = tandem_files_writer_commit(writer, nullptr);
    tandem_files_writer_destroy(writer);
    return status;
  }

  // A call that may be killed, lose its power or meet errors: at one of its first calls, or about where it matters
  // most. Nothing that is not of the set may change.
  Ended disturb(const std::string &what, const std::function<tandem_status()> &call,
                [[maybe_unused]] std::uint64_t at_least = 1, [[maybe_unused]] std::uint64_t range = 40) {
    const Tree before = tree();
    Ended ended;
#ifdef TANDEM_TEST_WITH_FAULTS
    if (chance(2)) {
      const std::string action = pick<std::string>({"kill", "kill", "kill-half", "fail"});
      const std::uint64_t at = chance(3) ? 1 + below(12) : at_least + below(range);
      ended = call_with_fault(call, action, at, chance(2), root_.string());
      ended.power_lost = action != "fail" && chance(2);
      ended.call_failed = action == "fail";
      ended.killed = ended.killed || (ended.call_failed && ended.status != TANDEM_OK);
      say(what + " " + action + " at " + std::to_string(at) + " = " + std::to_string(ended.status) +
          (ended.power_lost ? ", POWER CUT" : ""));
      if (ended.power_lost) restore(PowerLoss(root_.string(), before, ended, random_).tree());
    } else
#endif
    {
      ended.status = call();
      say(what + " = " + std::to_string(ended.status));
    }
    message_ = ended.status != TANDEM_OK && !ended.killed ? tandem_last_error_message() : "";
    const Tree after = tree();
    const World old = world(before);
    for (const auto &[path, bytes] : before) {
      const File *const file = old.file(path);
      if (!bytes || name_in(path)[0] == '.' || (file != nullptr && file->of->number != 0) || is_set_name(path))
        continue;
      EXPECT_TRUE(after.contains(path) && after.at(path) == bytes) << path << " is not of the set, and has changed";
    }
    return ended;
  }
  static bool is_set_name(const std::string &path) {
    return name_in(path).starts_with("set.") && name_in(path).ends_with(".tandem");
  }

  // What can be had of the set must not become less.
  void expect_no_worse(const World &before, const World &after) {
    const Generation *const old = before.expected() != nullptr ? before.expected() : before.newest();
    const Generation *const now = after.expected() != nullptr ? after.expected() : after.newest();
    if (old == nullptr || has_come_back_) return;
    ASSERT_NE(now, nullptr) << "the set is gone";
    if (now->number > old->number && after.expected() != nullptr) return;
    for (std::uint64_t block = 0; block < old->stripe_count(); ++block)
      ASSERT_GE(after.state(*old).good_count(block), before.state(*old).good_count(block))
          << "stripe " << block << " of set " << old->number;
  }

  void write_set() {
    generations_.push_back(plan("set"));
    Generation &made = generations_.back();
    const Encoding how{.force = !chance(4), .dry_run = chance(8), .way = static_cast<int>(below(3))};
    const Tree before = tree();
    const World old = world(before);
    std::string what = "encode " + std::to_string(made.number) + ": " + std::to_string(made.k) + "+" +
                       std::to_string(made.m) + " x " + std::to_string(made.block_bytes) + ", " +
                       std::to_string(made.content.size()) + " bytes ->";
    for (const std::string &folder : made.folders) what += " " + folder;
    const std::uint64_t folder_count = made.folders.size();
    const Ended ended = disturb(
        what + (how.force ? " --force" : "") + (how.dry_run ? " --dry-run" : "") + " way " + std::to_string(how.way),
        [&] { return encode(made, how); },
        made.files.size() * (made.stripe_count() + 3),  // the records and what follows
        8 * made.files.size() + 6 * folder_count + 20);
    const Tree after = tree();
    learn_replaced(made, after);
    const World now = world(after);
    const bool clean = is_clean(before);
    is_divided_ = is_divided_ || (!clean && made.folders.size() < disks_.size());
    if (ended.status == TANDEM_OK && !how.dry_run) {
      ASSERT_EQ(now.expected(), &made) << "it ended well";
      for (const std::string &folder : made.folders)
        for (const auto &[path, bytes] : after) {
          const File *const file = now.file(path);
          if (!how.force || folder_in(path) != folder || !is_set_name(path) || file == nullptr || file->of == &made)
            continue;
          ASSERT_EQ(file->condition & kNoRecord, kNoRecord) << path << " is left";
        }
      for (unsigned i = 0; i < made.files.size(); ++i) {
        ASSERT_TRUE(after.contains(made.place(i))) << i << ": " << names(after);
        ASSERT_TRUE(after.at(made.place(i)) == made.files[i]) << i;
      }
    } else {
      if (now.expected() != &made) expect_no_worse(old, now);
    }
    if (ended.killed || (ended.status != TANDEM_OK && !clean) || ended.power_lost) return;
    bool taken = false;
    for (unsigned i = 0; i < made.files.size(); ++i) taken = taken || before.contains(made.place(i));
    for (const std::string &folder : made.folders)
      for (const auto &[path, bytes] : before) {
        const File *const file = old.file(path);
        taken = taken || (folder_in(path) == folder && name_in(path).ends_with(".tandem") && file != nullptr &&
                          file->of->number != 0 && (file->condition & kNoRecord) != kNoRecord);
      }
    if (clean) {
      ASSERT_EQ(ended.status, taken && !how.force ? TANDEM_ERROR_IO : TANDEM_OK) << message_;
    }
    if (clean && (how.dry_run || ended.status != TANDEM_OK)) {
      ASSERT_TRUE(after == before) << "it changed something";
    }
  }

  void recover(bool of_some = false) {
    if (here().empty()) return;
    const std::vector<std::string> named = of_some || chance(3) ? some(here()) : here();
    const Tree before = tree();
    std::string what = "recover";
    for (const std::string &disk : named) what += " " + disk;
    const bool dry_run = chance(4);
    const Ended ended = disturb(what + (dry_run ? " --dry-run" : ""), [&] {
      const Paths names(paths(named));
      auto options = sized<tandem_files_recover_options>();
      options.dry_run = dry_run;
      return tandem_files_recover(names.data(), names.size(), &options, nullptr);
    });
    const Tree after = tree();
    expect_no_worse(world(before), world(after));
    if (ended.killed) return;
    ASSERT_EQ(ended.status, TANDEM_OK) << message_;
    if (dry_run) {
      ASSERT_TRUE(after == before);
    }
    is_divided_ = is_divided_ || (named.size() < disks_.size() && !is_clean(before));
    if (!dry_run && !ended.power_lost && !ended.call_failed && !is_divided_) {
      ASSERT_TRUE(is_tidy(after)) << "remains stay: " << names(after);
    }
  }

  void repair() {
    const Tree before = tree();
    const World old = world(before);
    const Generation *const of = old.newest();
    if (of == nullptr) return;
    std::vector<std::string> named = of->folders;
    for (const std::string &disk : here())
      if (std::find(named.begin(), named.end(), disk) == named.end()) named.push_back(disk);
    std::erase_if(named, [&](const std::string &disk) { return !fs::exists(root_ / disk); });
    const bool dry_run = chance(3);
    std::vector<Told> told;
    auto result = sized<tandem_files_repair_result>();
    const auto call = [&](bool dry) {
      told.clear();
      auto options = sized<tandem_files_repair_options>();
      options.set_id_prefix = of->id.c_str();
      options.dry_run = dry;
      options.report = collect;
      options.report_user = &told;
      return tandem_files_repair(context_, Search(paths(named)), &options, &result);
    };
    const bool tidy = is_tidy(before);
    std::vector<Told> planned;
    if (tidy) {
      ASSERT_EQ(call(true), TANDEM_OK) << tandem_last_error_message();
      ASSERT_TRUE(tree() == before) << "a dry run wrote";
      planned = std::exchange(told, {});
      result = sized<tandem_files_repair_result>();
    }
    const Ended ended =
        disturb("repair " + std::to_string(of->number) + (dry_run ? " --dry-run" : ""), [&] { return call(dry_run); });
    const Tree after = tree();
    const World now = world(after);
    expect_no_worse(old, now);
    if (::testing::Test::HasFailure() || ended.killed || !tidy) return;
    ASSERT_EQ(ended.status, TANDEM_OK) << message_;
    if (dry_run) {
      ASSERT_TRUE(after == before) << "a dry run wrote";
      return;
    }
    expect_repaired(*of, old.state(*of), before, after, named);
    if (!told.empty()) {  // not in a child
      ASSERT_TRUE(told == planned) << "the dry run said something else";
      for (const Told &each : told) {
        if (each.condition == TANDEM_FILES_OTHER_M) continue;
        const bool anew = (each.condition & (TANDEM_FILES_WRONG_LENGTH | TANDEM_FILES_MISSING)) != 0;
        if (each.action == TANDEM_FILES_MEND || each.action == TANDEM_FILES_REBUILD) {
          ASSERT_EQ(each.action, anew ? TANDEM_FILES_REBUILD : TANDEM_FILES_MEND) << each.path;
        }
      }
      const bool decodable = old.state(*of).is_decodable();
      const bool is_whole = std::none_of(old.state(*of).files.begin(), old.state(*of).files.end(),
                                         [](const File &f) { return (f.condition & TANDEM_FILES_OTHER_M) != 0; });
      ASSERT_EQ(result.state, !decodable ? TANDEM_FILES_LOST
                              : is_whole ? TANDEM_FILES_INTACT
                                         : TANDEM_FILES_RECOVERABLE);
      ASSERT_EQ(result.lost_stripe_count, old.state(*of).lost_count());
      ASSERT_EQ(result.left_shard_count, of->k + of->m - now.state(*of).shard_count());
      std::uint64_t left = 0;
      for (const File &file : now.state(*of).files)
        left += static_cast<std::uint64_t>(std::count(file.good.begin(), file.good.end(), false));
      ASSERT_EQ(result.left_block_count, left);
    }
  }

  // Everything that can be computed is there afterwards, and nothing else has changed.
  void expect_repaired(const Generation &of, const State &old, const Tree &before, const Tree &after,
                       const std::vector<std::string> &named) {
    const std::size_t whole_bytes = of.files[0].size();
    std::set<unsigned> long_enough;
    bool in_its_place =
        named.size() >= of.folders.size() && std::equal(of.folders.begin(), of.folders.end(), named.begin());
    int votes = 0;  // files with the set's name; less those that an earlier repair has named by the id
    for (const File &file : old.files) {
      if (before.at(file.path)->size() >= whole_bytes / 2) long_enough.insert(file.index);
      in_its_place = in_its_place && folder_in(file.path) == folder_in(of.place(file.index));
      votes += name_in(file.path) == shard_name(of.name, file.index);
      votes -= name_in(file.path).starts_with(of.id);
    }
    Tree expected = before;
    for (unsigned i = 0; i < of.k; ++i)
      if (of.is_padding(i)) long_enough.insert(i);
    const bool is_credible = long_enough.size() >= of.k;
    std::uint32_t least = of.m;
    for (const File &file : old.files) least = std::min(least, file.m);
    const auto mend = [&](const std::string &path, unsigned index, bool anew, std::uint32_t m) {
      ASSERT_TRUE(after.contains(path)) << path << " is gone";
      Bytes bytes = resized(of, m)->files[index];
      for (std::uint64_t block = 0; block < of.stripe_count(); ++block)  // what is lost stays as it was
        if (old.is_lost(block) && !old.has(index, block) && !of.is_padding(index, block))
          bytes.replace(of.offset(block), of.bytes(block),
                        (anew ? after : before).at(path)->substr(of.offset(block), of.bytes(block)));
      expected[path] = bytes;
    };
    for (const File &file : old.files) {
      bool wanted = (file.condition & ~TANDEM_FILES_OTHER_M) != 0;
      for (std::uint64_t block = 0; block < of.stripe_count(); ++block)
        wanted = wanted || (!file.good[block] && !old.is_lost(block));
      if (is_credible && wanted) mend(file.path, file.index, (file.condition & TANDEM_FILES_WRONG_LENGTH) != 0, file.m);
    }
    const bool is_worth_it =
        is_credible && (of.stripe_count() == 0 ? old.is_decodable() : old.lost_count() < of.stripe_count());
    const State now = world(after).state(of);
    for (unsigned i = 0; i < of.k + least && is_worth_it; ++i) {
      if (old.has(i)) continue;
      const auto made =
          std::find_if(now.files.begin(), now.files.end(), [&](const File &file) { return file.index == i; });
      ASSERT_TRUE(made != now.files.end()) << "shard " << i << " is still missing";
      ASSERT_FALSE(before.contains(made->path)) << made->path << " was replaced";
      if (in_its_place && votes > 0 && !before.contains(of.place(i))) {
        ASSERT_EQ(made->path, of.place(i));
      }
      mend(made->path, i, true, of.m);
    }
    // A shard of a folder with too many may have moved, whole, to one with fewer.
    const auto shards_in = [](const State &state, const std::string &folder) {
      return std::ranges::count(state.files, folder, [](const File &file) { return folder_in(file.path); });
    };
    for (const auto &[path, bytes] : after) {
      if (expected.contains(path)) continue;
      const auto from = std::find_if(expected.begin(), expected.end(), [&](const auto &each) {
        return each.second == bytes && !after.contains(each.first);
      });
      ASSERT_TRUE(from != expected.end()) << path;
      ASSERT_LT(shards_in(now, folder_in(path)), shards_in(old, folder_in(from->first))) << path;
      expected.erase(from);
      expected.emplace(path, bytes);
    }
    for (const auto &[path, bytes] : expected) ASSERT_TRUE(after.contains(path) && after.at(path) == bytes) << path;
    ASSERT_EQ(after.size(), expected.size()) << "other files";
  }

  void resize() {
    const Tree before = tree();
    const World old = world(before);
    const Generation *const of = old.newest();
    if (of == nullptr || !is_tidy(before) || old.state(*of).files.empty()) return;
    const auto folder_count = static_cast<std::uint32_t>(of->folders.size());
    const std::uint32_t m = (folder_count > of->k ? folder_count - of->k : 0) + static_cast<std::uint32_t>(below(5));
    const bool can_resize = m == of->m || of->matrix == TANDEM_MATRIX_ISAL_CAUCHY;  // its rows do not depend on m
    const Generation *const goal = can_resize ? resized(*of, m) : nullptr;
    const bool dry_run = chance(6);
    auto result = sized<tandem_files_repair_result>();
    const auto call = [&] {
      auto options = sized<tandem_files_repair_options>();
      options.set_id_prefix = of->id.c_str();
      options.dry_run = dry_run;
      return tandem_files_resize(context_, Search(paths(here())), m, &options, &result);
    };
    const Ended ended = disturb("resize " + std::to_string(of->number) + " from " + std::to_string(of->m) + " to " +
                                    std::to_string(m) + (dry_run ? " --dry-run" : ""),
                                call);
    const Tree after = tree();
    const World now = world(after);
    expect_kept(old.state(*of), now.state(*of), of->k + std::min(of->m, m));
    if (::testing::Test::HasFailure() || ended.killed) return;
    const tandem_status expected =
        can_resize ? may_resize(old.state(*of), m, dry_run) : tandem_status{TANDEM_ERROR_UNSUPPORTED};
    ASSERT_EQ(ended.status, expected) << message_;
    if (dry_run || expected != TANDEM_OK) {
      ASSERT_TRUE(after == before || ended.power_lost) << "it wrote";  // temporaries may come back
    } else {
      expect_resized(*goal, old.state(*of), before, after);
    }
  }

  // What the smaller of two sizes needs is there as before.
  static void expect_kept(const State &before, const State &after, unsigned shard_count) {
    for (unsigned i = 0; i < shard_count; ++i) {
      ASSERT_LE(before.has(i), after.has(i)) << "shard " << i << " is gone";
      for (std::uint64_t block = 0; block < before.of->stripe_count(); ++block)
        ASSERT_LE(before.has(i, block), after.has(i, block)) << "block " << block << " of shard " << i << " is gone";
    }
  }

  static tandem_status may_resize(const State &state, std::uint32_t m, bool dry_run) {
    const Generation &of = *state.of;
    if (!state.has_enough_shards()) return TANDEM_ERROR_NOT_RECOVERABLE;
    std::uint32_t least = std::min(of.m, m);
    for (const File &file : state.files) least = std::min(least, file.m);
    for (unsigned i = 0; i < of.k + least; ++i)
      if (!state.has(i)) return TANDEM_ERROR_DAMAGED;
    for (const File &file : state.files) {
      if (file.index >= of.k + m) continue;
      if ((file.condition & TANDEM_FILES_WRONG_LENGTH) != 0) return TANDEM_ERROR_DAMAGED;
    }
    for (const File &file : state.files)
      if (m < of.m && file.index < of.k + m && std::find(file.good.begin(), file.good.end(), false) != file.good.end())
        return state.lost_count() == 0 ? TANDEM_ERROR_DAMAGED : TANDEM_ERROR_NOT_RECOVERABLE;
    bool is_complete = true;
    for (unsigned i = 0; i < of.k + m; ++i) is_complete = is_complete && state.has(i);
    return is_complete || dry_run || state.lost_count() == 0 ? TANDEM_OK : TANDEM_ERROR_NOT_RECOVERABLE;
  }

  // Only records of old files have changed.
  void expect_resized(const Generation &goal, const State &old, const Tree &before, const Tree &after) {
    Tree expected = before;
    for (const File &file : old.files) {
      if (file.index >= goal.files.size()) {
        expected.erase(file.path);
      } else if (old.of != &goal || file.condition != 0) {
        const Bytes &right = goal.files[file.index];
        Bytes &bytes = *expected.at(file.path);
        bytes.replace(0, kRecord, right.substr(0, kRecord));
        bytes.replace(bytes.size() - kRecord, kRecord, right.substr(right.size() - kRecord));
      }
    }
    const State now = world(after).state(goal);
    for (unsigned i = 0; i < goal.files.size(); ++i) {
      if (old.has(i)) continue;
      const auto made =
          std::find_if(now.files.begin(), now.files.end(), [&](const File &file) { return file.index == i; });
      ASSERT_TRUE(made != now.files.end()) << "shard " << i << " was not made";
      ASSERT_FALSE(before.contains(made->path)) << made->path << " was replaced";
      expected[made->path] = goal.files[i];
    }
    for (const auto &[path, bytes] : expected) ASSERT_TRUE(after.contains(path) && after.at(path) == bytes) << path;
    ASSERT_EQ(after.size(), expected.size()) << "other files";
  }

  void decode_to_file() {
    const Tree before = tree();
    const World now = world(before);
    const Generation *const of = now.expected();
    if (of == nullptr) return;
    const Bytes older = random_bytes(300);
    fs::remove(base_ / "out" / "copy.partial");
    spill(base_ / "out" / "copy", older);
    const std::string id = of->id;
    Ended ended;
#ifdef TANDEM_TEST_WITH_FAULTS
    const std::uint64_t at = 1 + below(12);
    const std::string action = pick<std::string>({"kill", "kill-half", "fail"});
    ended = call_with_fault([&] { return decode(id); }, action, at, chance(2), (base_ / "out").string());
    ended.killed = ended.killed || (action == "fail" && ended.status != TANDEM_OK);
    say("decode " + action + " at " + std::to_string(at) + " = " + std::to_string(ended.status));
    if (action != "fail" && chance(2)) {
      const Tree start{{"copy", older}};
      const Tree left = PowerLoss((base_ / "out").string(), start, ended, random_).tree();
      fs::remove_all(base_ / "out");
      fs::create_directory(base_ / "out");
      for (const auto &[name, bytes] : left) spill(base_ / "out" / name, *bytes);
    }
#else
    ended.status = decode(id);
#endif
    const Bytes found = slurp(base_ / "out" / "copy");
    EXPECT_TRUE(found == of->content || (ended.killed && found == older)) << "the output is neither old nor new";
    EXPECT_TRUE(tree() == before);
    EXPECT_EQ(decode(id), TANDEM_OK) << tandem_last_error_message();
    EXPECT_EQ(std::distance(fs::directory_iterator(base_ / "out"), {}), 1) << "temporaries stay";
  }

  // ---- the look of a reader, which changes nothing

  void look() {
    if (here().empty()) return;
    const Tree now = tree();
    const World there = world(now);
    is_divided_ = is_divided_ && !is_clean(now);
    has_come_back_ = has_come_back_ && !is_clean(now);
    look_decode(there, is_tidy(now));
    if (is_tidy(now) && there.newest() != nullptr && !::testing::Test::HasFailure()) {
      const State &state = there.state(*there.newest());
      look_verify(state);
      look_salvage(state);
      look_range(state);
    }
    ASSERT_TRUE(tree() == now) << "a reader wrote";
  }

  void look_decode(const World &there, bool tidy) {
    const fs::path output = base_ / "out" / "copy";
    fs::remove(output);
    tandem_status status = decode("");
    const Generation *const of = there.expected();
    if (of != nullptr && ((status == TANDEM_ERROR_INVALID_ARGUMENT && (!tidy || there.sets_with_enough_shards() > 1)) ||
                          (status == TANDEM_ERROR_NOT_RECOVERABLE && there.has_lost_successor(*of))))
      status = decode(of->id);
    if (of != nullptr) {
      ASSERT_EQ(status, TANDEM_OK) << "set " << of->number << ": " << tandem_last_error_message();
      ASSERT_TRUE(slurp(output) == of->content) << "not the content of set " << of->number;
      return;
    }
    if (status == TANDEM_OK) {
      const Bytes found = slurp(output);
      ASSERT_TRUE(std::any_of(generations_.begin(), generations_.end(), [&](const Generation &each) {
        return each.content == found;
      })) << "a mixture";
      return;
    }
    ASSERT_FALSE(fs::exists(output));
    const bool is_nothing_there = std::string_view(tandem_last_error_message()).starts_with("no shard file found");
    ASSERT_TRUE(status == TANDEM_ERROR_NOT_RECOVERABLE || status == TANDEM_ERROR_INVALID_ARGUMENT ||
                (status == TANDEM_ERROR_IO && is_nothing_there))
        << status << " " << tandem_last_error_message();
  }

  void look_verify(const State &state) {
    std::vector<Told> told;
    auto result = sized<tandem_files_verify_result>();
    auto options = sized<tandem_files_verify_options>();
    options.set_id_prefix = state.of->id.c_str();
    options.report = collect;
    options.report_user = &told;
    ASSERT_EQ(tandem_files_verify(context_, Search(paths(here())), &options, &result), TANDEM_OK)
        << tandem_last_error_message();
    std::vector<Told> expected;
    std::uint64_t bad_blocks = 0;
    std::uint32_t damaged = 0, worst = 0;
    for (const File &file : state.files) {
      const auto bad = static_cast<std::uint64_t>(std::count(file.good.begin(), file.good.end(), false));
      expected.push_back({(root_ / file.path).string(), file.index, file.condition, file.good, 0});
      bad_blocks += bad;
      damaged += file.condition != 0 || bad != 0;
    }
    const std::uint32_t shards = state.of->k + state.of->m;
    for (unsigned i = 0; i < shards; ++i)
      if (!state.has(i)) expected.push_back({"", i, TANDEM_FILES_MISSING, {}, 0});
    for (std::uint64_t block = 0; block < state.of->stripe_count(); ++block)
      worst = std::max(worst, shards - state.good_count(block));
    if (state.of->stripe_count() == 0) worst = shards - state.shard_count();
    const auto by_shard = [](const Told &a, const Told &b) {
      return std::pair(a.index, a.path) < std::pair(b.index, b.path);
    };
    std::sort(expected.begin(), expected.end(), by_shard);
    std::sort(told.begin(), told.end(), by_shard);
    for (Told &each : told)
      if (each.condition != TANDEM_FILES_MISSING) each.good.resize(state.of->stripe_count(), true);
    ASSERT_EQ(told.size(), expected.size());
    for (std::size_t i = 0; i < told.size(); ++i)
      ASSERT_TRUE(told[i] == expected[i])
          << expected[i].path << ": condition " << told[i].condition << " for " << expected[i].condition << ", "
          << testing::PrintToString(told[i].good) << " for " << testing::PrintToString(expected[i].good);
    ASSERT_EQ(result.missing_shard_count, shards - state.shard_count());
    ASSERT_EQ(result.damaged_file_count, damaged);
    ASSERT_EQ(result.bad_block_count, bad_blocks);
    ASSERT_EQ(result.worst_bad_count, worst);
    ASSERT_EQ(result.lost_stripe_count, state.lost_count());
    ASSERT_EQ(result.state, !state.is_decodable()                             ? TANDEM_FILES_LOST
                            : damaged != 0 || result.missing_shard_count != 0 ? TANDEM_FILES_RECOVERABLE
                                                                              : TANDEM_FILES_INTACT);
  }

  void look_salvage(const State &state) {
    const auto [content, holes] = state.salvaged();
    const fs::path whole = base_ / "out" / "copy", partial = base_ / "out" / "copy.partial";
    fs::remove(whole);
    fs::remove(partial);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> told;
    tandem_files_decode_options options = {};
    options.salvage = 1;
    options.hole_user = &told;
    options.hole = [](void *user, std::uint64_t first, std::uint64_t count) {
      static_cast<std::vector<std::pair<std::uint64_t, std::uint64_t>> *>(user)->emplace_back(first, count);
    };
    const tandem_status status = decode(state.of->id, options);
    std::uint64_t lost = 0;
    for (const auto &hole : holes) lost += hole.second;
    if (lost == content.size() && lost != 0) {
      ASSERT_EQ(status, TANDEM_ERROR_NOT_RECOVERABLE);
      ASSERT_FALSE(fs::exists(whole) || fs::exists(partial));
      return;
    }
    ASSERT_EQ(status, TANDEM_OK) << tandem_last_error_message();
    ASSERT_EQ(told, holes);
    ASSERT_NE(fs::exists(whole), fs::exists(partial));
    ASSERT_TRUE(slurp(holes.empty() ? whole : partial) == content);
  }

  // Some bytes, of which the set may have lost others.
  void look_range(const State &state) {
    const Generation &of = *state.of;
    const std::uint64_t stripe = of.k * (of.block_bytes - 16), first = below(of.content.size() + 1);
    Bytes found(below(std::min<std::uint64_t>(of.content.size() - first, 3 * stripe) + 1), 0);
    bool is_there = true;
    for (std::uint64_t at = first; at < first + found.size(); ++at) {
      const std::uint64_t block = at / stripe, index = at % stripe / (of.bytes(block) - 16);
      is_there = is_there && (!state.is_lost(block) || state.has(static_cast<unsigned>(index), block));
    }
    tandem_files_reader *reader = nullptr;
    ASSERT_EQ(tandem_files_reader_create(context_, Search(paths(here())), of.id.c_str(), &reader), TANDEM_OK);
    const tandem_status status = tandem_files_reader_read(reader, first, found.data(), found.size());
    tandem_files_reader_destroy(reader);
    ASSERT_EQ(status, is_there ? TANDEM_OK : TANDEM_ERROR_NOT_RECOVERABLE) << tandem_last_error_message();
    if (is_there) {
      ASSERT_TRUE(found == of.content.substr(first, found.size())) << first << " + " << found.size();
    }
  }

  // ---- what happens to files and disks

  // Takes it back if the set would be lost by it, in most cases.
  void happen(const std::string &what, const std::function<void()> &change, bool always = false) {
    const Tree before = tree();
    const World old = world(before);
    change();
    const Tree after = tree();
    const World now = world(after);
    const bool is_kept =
        old.expected() == nullptr || (now.expected() != nullptr && now.expected()->number == old.expected()->number);
    if (!is_kept && !always && !chance(12)) return restore(before);
    say(what);
    is_divided_ = is_divided_ || !is_clean(before) || !is_clean(after);
  }

  void damage() {
    const Tree now = tree();
    const World there = world(now);
    const Generation *const of = there.newest();
    if (of == nullptr || !is_tidy(now) || there.state(*of).files.empty()) return;
    for (std::uint64_t hits = 1 + below(4); hits != 0; --hits) {
      const World still = world(tree());
      if (still.newest() != of || still.state(*of).files.empty()) return;
      const File file = pick(still.state(*of).files);
      hit(*of, file, below(13));
    }
    if (chance(12)) {
      happen(
          "cut all files",
          [&] {
            for (const File &file : there.state(*of).files)
              if (fs::exists(root_ / file.path) && of->stripe_count() != 0)
                fs::resize_file(root_ / file.path, of->offset(below(of->stripe_count())) + below(20));
          },
          chance(2));
    }
  }
  void hit(const Generation &of, const File &file, std::uint64_t kind) {
    const fs::path path = root_ / file.path;
    Bytes bytes = slurp(path);
    const auto put = [&] { spill(path, bytes); };
    const auto flip = [&](std::size_t at) {
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1 + below(255)));
    };
    const std::uint64_t block = of.stripe_count() == 0 ? 0 : below(of.stripe_count());
    const unsigned index = static_cast<unsigned>(below(of.k + of.m));
    const std::string where = " " + file.path + " ";
    if (kind < 5 && of.stripe_count() != 0) {
      const std::size_t at = of.offset(block) + below(of.bytes(block));
      happen("rot" + where + std::to_string(at), [&] { flip(at), put(); });
    } else if (kind == 5) {
      happen("rot of a record" + where, [&] {
        flip(chance(2) ? below(kRecord) : bytes.size() - 1 - below(std::min<std::size_t>(kRecord, bytes.size()))),
            put();
      });
    } else if (kind == 6 && bytes.size() > 2) {
      happen("cut" + where,
             [&] { bytes.resize(chance(2) ? below(bytes.size()) : bytes.size() - 1 - below(2)), put(); });
    } else if (kind == 7) {
      happen("insert or remove" + where, [&] {
        const std::size_t at = chance(2) ? 0 : below(bytes.size() + 1);
        if (chance(2))
          bytes.insert(at, random_bytes(1 + below(300)));
        else
          bytes.erase(at, 1 + below(chance(2) ? 300 : bytes.size() + 1));
        put();
      });
    } else if (kind == 8) {
      happen("extend" + where, [&] { bytes += random_bytes(1 + below(chance(2) ? 6000 : 20)), put(); });
    } else if (kind == 9) {
      happen("lose" + where, [&] { fs::remove(path); });
    } else if (kind == 10) {
      const std::string to =
          chance(2) ? folder_in(file.path) + "/moved " + std::to_string(below(1000)) : of.place(index);
      happen("swap" + where + to, [&] {
        if (!fs::exists(root_ / folder_in(to))) return;
        if (fs::exists(root_ / to)) fs::rename(root_ / to, base_ / "swap");
        if (fs::exists(path)) fs::rename(path, root_ / to);
        if (fs::exists(base_ / "swap")) fs::rename(base_ / "swap", path);
      });
    } else if (kind == 11) {
      happen("a block of another shard" + where + std::to_string(block), [&] {
        if (of.stripe_count() == 0 || bytes.size() != of.files[0].size()) return;
        bytes.replace(of.offset(block), of.bytes(block), of.block(index, chance(2) ? block : of.stripe_count() - 1));
        bytes.resize(of.files[0].size());
        put();
      });
    } else if (kind == 12) {
      const Generation &older = pick(generations_);
      if (older.number == 0 || chance(2)) return happen("copy" + where, [&] { spill(path.string() + " copy", bytes); });
      const unsigned of_older = static_cast<unsigned>(below(older.files.size()));
      happen("put back " + std::to_string(older.number) + where, [&] { spill(path, older.files[of_older]); });
    }
  }

  void lose_disk(const std::string &disk, bool always = true) {
    happen(
        "lose disk " + disk,
        [&] {
          if (!fs::exists(root_ / disk)) return;
          fs::remove_all(base_ / "away" / disk);
          fs::rename(root_ / disk, base_ / "away" / disk);
        },
        always);
  }
  void change_disks() {
    const std::string disk = pick(disks_);
    const fs::path away = base_ / "away" / disk;
    switch (below(3)) {
      case 0:
        return lose_disk(disk, chance(4));
      case 1:
        return happen("a new disk " + disk, [&] {
          if (!fs::exists(root_ / disk)) fs::create_directory(root_ / disk);
        });
      default:
        return happen("disk " + disk + " as it was", [&] {
          if (!fs::exists(away)) return;
          fs::remove_all(root_ / disk);
          fs::copy(away, root_ / disk);
          has_come_back_ = has_come_back_ || !is_clean(tree());
        });
    }
  }

  std::mt19937_64 random_;
  fs::path base_, root_;
  tandem_context *context_ = nullptr;
  std::vector<std::string> disks_;
  Generations generations_;
  bool is_divided_ = false;  // a call or a loss has seen only a part of the folders of an unfinished set
  // A disk that was away during an encode is back, with an unfinished older set: when that is finished, its files
  // replace those that repair has put there.
  bool has_come_back_ = false;
  std::string text_, message_;
};

TEST(History, ReadsGiveTheOldContentOrTheNewOneAndRepairMakesNothingWorse) {
  const std::uint64_t count = tandem::test::rounds(120, 10000);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = tandem::test::slice_seed() + i;
    History history(seed);
    history.run();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "TANDEM_TEST_SEED=" << seed << ": " << history.text();
  }
}

class Overlap : public Files {};

// Killed at any call, it leaves one of the two as a whole, or none.
TEST_F(Overlap, OfTwoEncodesOfOneNameTheLastToCommitReplacesTheOther) {
  const auto call = [&] {
    auto options = encode_options("", 1, 2, 64);
    options.source_path = nullptr;
    options.name = "source";
    options.force = 1;
    tandem_files_writer *writer = nullptr;
    tandem_status status = tandem_files_writer_begin(context_, &options, 0, nullptr, &writer);
    encode(paint(50), 1, 4, 64);
    if (status == TANDEM_OK) status = tandem_files_writer_commit(writer, nullptr);
    tandem_files_writer_destroy(writer);
    return status;
  };
  ASSERT_EQ(call(), TANDEM_OK) << tandem_last_error_message();
  EXPECT_EQ(entries(shards_), 3u);
#ifdef TANDEM_TEST_WITH_FAULTS
  std::set<std::size_t> left;
  bool killed = true;
  for (std::uint64_t at = 1; killed; ++at) {
    fs::remove_all(shards_);
    killed = call_with_fault(call, "kill", at, false, shards_.string()).killed;
    if (!fs::exists(shards_)) continue;
    const Paths folder({shards_});
    EXPECT_EQ(tandem_files_recover(folder.data(), folder.size(), nullptr, nullptr), TANDEM_OK);
    left.insert(entries(shards_));
    EXPECT_LE(tandem_files_search_set_count(Search(shards_)), 1u) << at;
  }
  EXPECT_EQ(left, (std::set<std::size_t>{0, 3, 5}));
#endif
}

#ifdef TANDEM_TEST_WITH_FAULTS
// Also where the old set has lost shards, so that some of the names are free. Killed at any call.
TEST_F(Overlap, TheNextCommandLeavesOneSet) {
  const auto call = [&] {
    auto options = encode_options((root_ / "source").string(), 1, 2, 64);
    options.force = 1;
    return tandem_files_encode(context_, &options, nullptr);
  };
  bool killed = true;
  for (std::uint64_t at = 1; killed; ++at) {
    fs::remove_all(shards_);
    encode(paint(50), 1, 4, 64);
    for (const unsigned lost : {0, 2}) fs::remove(shard(lost));
    killed = call_with_fault(call, "kill", at, false, shards_.string()).killed;
    const Paths folder({shards_});
    EXPECT_EQ(tandem_files_recover(folder.data(), folder.size(), nullptr, nullptr), TANDEM_OK);
    EXPECT_EQ(tandem_files_search_set_count(Search(shards_)), 1u) << at;
    EXPECT_EQ(entries(shards_), 3u) << at;
  }
}

class Resize : public Files {
 protected:
  void SetUp() override {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);  // syncs of a disk take minutes
    Files::SetUp();
  }
  tandem_status resize(std::uint32_t m) const {
    const auto options = sized<tandem_files_repair_options>();
    auto result = sized<tandem_files_repair_result>();
    return tandem_files_resize(context_, Search(shards_), m, &options, &result);
  }
  void put_back(const Contents &files) const {
    fs::remove_all(shards_);
    fs::create_directory(shards_);
    for (const auto &[name, bytes] : files) ::spill(shards_ / name, bytes);
  }
  Contents clean() const {
    const Paths folder({shards_});
    EXPECT_EQ(tandem_files_recover(folder.data(), folder.size(), nullptr, nullptr), TANDEM_OK);
    return contents(shards_);
  }
};

// At any call: the set survives the loss of any shard, and resize finishes it or takes it back.
TEST_F(Resize, KillsAndLossesOfPowerLeaveTheSmallerToleranceAndTheNextCallFinishesIt) {
  std::mt19937_64 random(tandem::test::slice_seed());
  for (const std::size_t content_bytes : {700, 0})
    for (const auto &[from, to] : {std::pair(1u, 3u), std::pair(3u, 1u)}) {
      fs::remove_all(shards_);
      const std::vector<char> content = paint(content_bytes);
      encode(content, 2, from, 128);
      const Contents before = contents(shards_);
      Tree start{{"shards", std::nullopt}};
      for (const auto &[name, bytes] : before) start["shards/" + name] = Bytes(bytes.begin(), bytes.end());
      ASSERT_EQ(resize(to), TANDEM_OK) << tandem_last_error_message();
      const Contents whole = contents(shards_);
      ASSERT_EQ(whole.size(), 2 + to);
      for (const std::string action : {"kill", "kill-half", "power cut"}) {
        std::uint64_t at = 0;
        for (bool killed = true; killed;) {
          put_back(before);
          const Ended ended = call_with_fault([&, to = to] { return resize(to); },
                                              action == "kill-half" ? action : "kill", ++at, false, root_.string());
          killed = ended.killed;
          if (action == "power cut") {
            fs::remove_all(shards_);
            fs::create_directory(shards_);
            const Tree safe = PowerLoss(root_.string(), start, ended, random).tree();
            for (const auto &[path, bytes] : safe)
              if (bytes) spill(root_ / path, {bytes->begin(), bytes->end()});
          }
          SCOPED_TRACE(action + " at " + std::to_string(at) + " of " + std::to_string(to));
          const Contents left = clean();
          for (unsigned i = 0; i < 3; ++i) {
            fs::remove(shard(i));
            ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message();
            ASSERT_EQ(::slurp(root_ / "output"), content);
            put_back(left);
          }
          const auto options = sized<tandem_files_repair_options>();
          auto result = sized<tandem_files_repair_result>();
          if (const tandem_status status = resize(to); status == TANDEM_ERROR_DAMAGED) {
            ASSERT_EQ(action, "power cut");  // the file that was being written
            ASSERT_EQ(tandem_files_repair(context_, Search(shards_), &options, &result), TANDEM_OK);
            ASSERT_EQ(resize(to), TANDEM_OK) << tandem_last_error_message();
          }
          ASSERT_TRUE(contents(shards_) == whole);
          put_back(left);
          ASSERT_EQ(tandem_files_repair(context_, Search(shards_), &options, &result), TANDEM_OK);
          ASSERT_EQ(contents(shards_).size(), left.size());  // repair does not continue it, and does not take it back
          ASSERT_EQ(resize(from), TANDEM_OK) << tandem_last_error_message();
          ASSERT_TRUE(contents(shards_) == before);
        }
        EXPECT_GT(at, 15u);
      }
    }
}

// The damaged record is written first. Nothing but the records tells of which set and shard a shard without blocks is.
TEST_F(Resize, LossesOfPowerLeaveEachShardOneRecord) {
  std::mt19937_64 random(tandem::test::slice_seed());
  for (const bool is_start : {false, true}) {
    fs::remove_all(shards_);
    const std::vector<char> content;
    encode(content, 2, 1, 128);
    Contents before = contents(shards_);
    std::vector<char> &bytes = before.at(shard(0).filename().string());
    bytes[is_start ? 100 : bytes.size() - 100] ^= 1;
    Tree start{{"shards", std::nullopt}};
    for (const auto &[name, each] : before) start["shards/" + name] = Bytes(each.begin(), each.end());
    std::uint64_t at = 0;
    for (bool killed = true; killed;) {
      put_back(before);
      const Ended ended = call_with_fault([&] { return resize(3); }, "kill", ++at, false, root_.string());
      killed = ended.killed;
      for (unsigned draw = 0; draw < 8; ++draw) {
        fs::remove_all(shards_);
        fs::create_directory(shards_);
        const Tree safe = PowerLoss(root_.string(), start, ended, random).tree();
        for (const auto &[path, each] : safe)
          if (each) spill(root_ / path, {each->begin(), each->end()});
        for (const auto &[name, each] : contents(shards_))
          if (name != shard(0).filename() && name != shard(1).filename()) fs::remove(shards_ / name);
        ASSERT_EQ(decode(shards_), TANDEM_OK) << tandem_last_error_message() << " at " << at;
        ASSERT_EQ(::slurp(root_ / "output"), content);
      }
    }
    EXPECT_GT(at, 15u);
  }
}
#endif

}  // namespace
}  // namespace model
