// SPDX-License-Identifier: Apache-2.0
// An open volume. docs/internals/VOLUME.md says how it works, and why nothing is lost.
//
//   open.cpp      superblocks, which members are current, replay of the log
//   read.cpp      blocks from members, checked, or computed from others
//   write.cpp     the ways of a write; trim
//   commit.cpp    a transaction to its end
//   delay.cpp     windows of delayed parity
//   bound.cpp     windows that begin and end by themselves
//   generations.cpp  which blocks of a row belong together
//   care.cpp      scrub, rebuild, replace
//   create.cpp    a new volume, and the parts of it that a new member of an old one needs
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/crew.hpp"
#include "volume/gate.hpp"
#include "volume/generations.hpp"
#include "volume/members.hpp"
#include "volume/pending.hpp"
#include "volume/table.hpp"
#include "volume/view.hpp"

namespace tandem::volume {

// A member that was opened, or the reason why it could not be.
struct Given {
  std::string name;
  std::unique_ptr<Member> member;
  std::string why{};
};

struct CreateSettings {
  Geometry geometry;  // without stripe_count
  VolumeId id{};
  bool force = false;
};
void create_volume(std::vector<Given> members, CreateSettings settings);
std::unique_ptr<tandem_codec, void (*)(tandem_codec *)> make_codec(const Geometry &geometry);
// Throws if it holds something that must not be lost.
void check_overwritable(const Given &given, bool force);
// A table of equal entries, and a log without a record.
void write_tables(Member &member, const Geometry &geometry, const Seed &seed, std::uint32_t index, const Entry &entry,
                  std::uint64_t sequence);

struct OpenSettings {
  tandem_context *context = nullptr;  // nullptr: one of the volume's own
  bool read_only = false;
  std::size_t thread_count = 0;  // beside the callers' own
  std::uint64_t cache_bytes = 64 << 20;
  std::chrono::seconds settle_after{600};  // see Volume::settle
  bool moves_windows = true;               // a thread calls Volume::move_windows; false: only the caller
  std::function<void(const std::string &)> note = [](const std::string &) {};
};

struct CareSettings {
  std::uint64_t rate_bytes_per_second = 0;
  tandem_volume_progress progress = nullptr;
  void *progress_user = nullptr;
  bool repair = false, restart = false;
};

class Volume {
 public:
  Volume(std::vector<Given> members, OpenSettings settings);
  ~Volume();
  Volume(const Volume &) = delete;
  Volume &operator=(const Volume &) = delete;

  const Geometry &geometry() const { return superblock_.geometry; }
  void query(tandem_volume_info *out) const;
  void query(std::uint32_t index, tandem_volume_member *out) const;
  // As Member::identity(); "" of a member that is not open.
  std::string identity(std::uint32_t index) const;

  void read(std::uint64_t offset, std::byte *to, std::uint64_t bytes);
  void write(std::uint64_t offset, const std::byte *from, std::uint64_t bytes);
  void flush();
  void close();  // the last call: flushes, and settles what was committed
  void trim(std::uint64_t offset, std::uint64_t bytes);
  void zero(std::uint64_t offset, std::uint64_t bytes);
  std::vector<tandem_volume_extent> extents(std::uint64_t offset, std::uint64_t bytes, std::size_t most);

  tandem_volume_window delay_begin(std::uint64_t offset, std::uint64_t bytes);
  void delay_end(const tandem_volume_window &window, bool accept_loss);
  std::vector<tandem_volume_window> windows() const;
  // Windows in this range begin and end by themselves, with at most so many bytes together, each after this time.
  tandem_volume_window delay_bounded(std::uint64_t offset, std::uint64_t bytes, std::uint64_t bound_bytes,
                                     std::chrono::milliseconds bound_time);
  // Ends bounded windows that are too old, and begins one that a write has asked for. Returns whether one was ended.
  bool move_windows();

  // Return TANDEM_OK or TANDEM_ERROR_CANCELLED; the result is written in both cases.
  tandem_status scrub(const CareSettings &settings, tandem_volume_care_result *result);
  tandem_status rebuild(const CareSettings &settings, tandem_volume_care_result *result);
  void replace(std::uint32_t index, Given given, bool force);
  // Closes a lost member, because that member may be the replacement.
  void let_go(std::uint32_t index) { members_->let_go(index); }

 private:
  using Lock = std::shared_mutex;
  static constexpr std::uint64_t kNoStripe = UINT64_MAX;
  // A call that changes blocks: no commit runs while it exists.
  class Change {
   public:
    Change(Volume &volume, std::uint64_t items);
    ~Change();
    Change(const Change &) = delete;
    Change &operator=(const Change &) = delete;

   private:
    Volume &volume_;
    std::uint64_t items_;
  };

  // open.cpp
  // Members with other windows than the deciding superblock: the process died while a window began or ended.
  struct Behind {
    Superblock superblock;                                         // the deciding one
    std::vector<std::pair<std::uint32_t, std::uint64_t>> members;  // and the counters of their own
  };
  Behind choose_superblock(std::vector<Given> &members);
  void replay();
  struct Record {
    std::uint64_t sequence = 0;
    std::vector<std::byte> bytes;
    std::vector<bool> holders;  // the members that have it
    std::uint32_t copies() const { return static_cast<std::uint32_t>(std::ranges::count(holders, true)); }
  };
  Record newest_record();
  void complete(Record &record);
  // Writes to their places what replay() left in memory.
  void play();
  void check_inside(std::uint64_t offset, std::uint64_t bytes) const;
  void check_writable() const;
  void check_enough_members() const;
  // Whether a session that begins now makes members stale that were current.
  bool session_would_make_stale();

  // read.cpp
  Lock &lock_of(std::uint64_t stripe) { return locks_[stripe % std::size(locks_)]; }
  std::uint32_t member_of(const View &view, std::uint32_t column) const {
    return geometry().member_of(view.stripe, column);
  }
  std::uint64_t block_of(const View &view, std::uint32_t row) const {
    return geometry().first_block(view.stripe) + view.first + row;
  }
  IoKind kind_of(std::uint32_t column) const { return column < geometry().k ? IoKind::data : IoKind::parity; }
  void load_entries(View &view);
  // Reads the blocks of the parts that are not there yet, and computes bad ones from others. The caller handles blocks
  // that stay `lost`. Bad blocks with a known checksum are written back.
  void fetch(View &view, std::span<const Part> parts);
  void fetch_part(View &view, const Part &part);
  void fetch_around_slow(View &view, std::span<const Part> parts);
  enum class WriteBack { no, yes };
  void recover(View &view, WriteBack write_back);
  void decode_rows(View &view, std::uint32_t begin, std::uint32_t end, WriteBack write_back);
  void require(const View &view, std::span<const Part> parts) const;
  void read_stripe(std::uint64_t stripe, std::uint64_t begin, std::uint64_t end, std::byte *to);

  // write.cpp
  struct Span {  // bytes begin .. end-1 of a column's unit
    std::uint32_t column, begin, end;
    const std::byte *from;
  };
  struct Stored {
    Part part;
    const std::byte *from;
  };
  // from: nullptr clears the bytes.
  void change(std::uint64_t offset, std::uint64_t bytes, const std::byte *from);
  void change_stripe(std::uint64_t stripe, std::uint64_t begin, std::uint64_t end, const std::byte *from);
  // False: nothing was changed, and the session must begin first.
  bool change_rows(std::uint64_t stripe, std::uint32_t first, std::uint32_t count, std::span<const Span> spans,
                   bool clear);
  struct Edit;
  void take_spans(Edit &edit, std::span<const Span> spans);
  bool plan_parity(Edit &edit);
  void encode_parity(Edit &edit);
  void update_parity(Edit &edit);
  void change_generations(Edit &edit);
  void change_generations(View &view, std::span<const std::uint64_t> next);
  std::uint64_t word_of(const View &view, std::uint32_t column, std::uint32_t row) const;
  void apply_edit(Edit &edit);
  void store_or_clear_parity(const View &view, std::vector<Stored> &stored);
  // Gives blocks their new content and entries, in place or pending. False: a member was lost meanwhile, or before.
  bool store(const View &view, std::span<const Stored> parts);
  void clear(const View &view, const Part &part);
  void change_entries(const View &view, std::uint32_t column, std::uint32_t row, std::uint32_t count,
                      const Entry *entries);

  // commit.cpp For changes that must be complete or not happen: if memory runs out in between, nothing more is written.
  template <class Body>
  void whole(Body &&body) {
    try {
      body();
    } catch (const Error &) {  // too few members are left, which is permanent
      throw;
    } catch (...) {
      broken_ = true;
      throw;
    }
  }
  void check_not_broken() const;
  void begin_session();
  void commit();
  void commit_exclusively();
  void commit_transaction();
  void write_superblocks();
  void settle();
  void write_superblock_of(std::uint32_t index, const Superblock &superblock);
  void record_losses();
  void sync_members();
  void write_log(const std::byte *bytes, std::size_t count);
  std::vector<struct LogItem> items_of(std::span<const Pending::Block> blocks,
                                       std::span<const Table::Dirty> pages) const;
  void apply(std::span<const struct LogItem> items);

  // delay.cpp
  struct OpenWindow {
    Window window;
    std::vector<bool> lacks_parity;  // of each stripe: it was written to since, or maybe by a process before
    std::uint64_t lacking_count = 0;
    bool ending = false;
    bool is_left_over = false;  // of a process that did not end it
    bool is_bounded = false;
    std::chrono::steady_clock::time_point begun_at = std::chrono::steady_clock::now();

    OpenWindow(const Window &given, bool left_over, bool bounded)
        : window(given),
          lacks_parity(given.stripe_count, left_over),
          lacking_count(left_over ? given.stripe_count : 0),
          is_left_over(left_over),
          is_bounded(bounded) {}
    bool holds(std::uint64_t stripe) const { return stripe >= window.first_stripe && stripe < window.end(); }
    bool is_delayed(std::uint64_t stripe) const { return holds(stripe) && lacks_parity[stripe - window.first_stripe]; }
    void set_delayed(std::uint64_t stripe, bool delayed) {
      lacking_count = lacking_count - is_delayed(stripe) + delayed;
      lacks_parity[stripe - window.first_stripe] = delayed;
    }
  };
  bool is_delayed(std::uint64_t stripe) const;
  bool is_in_window(std::uint64_t stripe) const;
  // Whether a change leaves the parity of its stripe to the end of a window.
  bool delays(const View &view);
  std::vector<Window> window_list() const;
  Window full_stripes(std::uint64_t offset, std::uint64_t bytes) const;
  tandem_volume_window bytes_of(const Window &window) const {
    return {window.first_stripe * geometry().stripe_bytes(), window.end() * geometry().stripe_bytes()};
  }
  void check_can_delay() const;
  void check_no_window(const Window &range, bool is_bounded) const;
  void begin_window(const Window &window, bool is_bounded);
  void end_window(const tandem_volume_window &window, bool is_bounded, bool accept_loss);
  void check_windows();
  void end_stripe(std::uint64_t stripe, bool accept_loss);

  // bound.cpp
  struct Bounded {
    Window range{};
    std::uint64_t most_stripes = 0, window_stripes = 0;
    std::chrono::milliseconds most_time{};
  };
  void ask_for_window(std::uint64_t stripe);
  bool move_windows_of(const Bounded &bounded);
  void end_bounded(bool accept_loss);
  void keep_moving_windows();
  void stop_moving_windows();

  // care.cpp
  // Reads the blocks that usable members should have of a stripe, and counts the errors.
  void survey(View &view, tandem_volume_care_result *result);
  static bool is_wrong(const View &view, std::size_t at);  // a block that was read, or should have been
  static std::vector<bool> wrong_blocks(const View &view);
  bool names_old(const View &view, std::uint32_t row) const;
  void tell_once(const View &view, std::uint32_t row, const char *why);
  // Counts parity that does not match, in rows with all data present. No evidence tells which block is wrong there.
  void check_parity(View &view, tandem_volume_care_result *result);
  tandem_status look_for_old_members(const CareSettings &settings);
  bool look_at_rows(std::uint64_t stripe);
  std::string old_members() const;  // their numbers; "" if none is known
  bool old_members_are_plausible() const;
  enum class Mends {
    missing,  // bad blocks, and those without an entry
    known,    // these, and checks parity
    all       // also blocks of old copies
  };
  void check_stripe(std::uint64_t stripe, Mends mends, tandem_volume_care_result *result);
  // Mends blocks that can be mended, in a session that has begun.
  void repair_stripe(std::uint64_t stripe, Mends mends, tandem_volume_care_result *result);
  tandem_status walk(const CareSettings &settings, std::uint64_t first_stripe,
                     const std::function<void(std::uint64_t)> &visit);
  void end_left_over_windows();
  void keep_scrub_position(std::uint64_t stripe, bool repairs);
  void prepare_member(Member &member, std::uint32_t index);
  void join(std::uint32_t index, const std::string &name, std::shared_ptr<Member> member);
  void check_dispensable(std::uint32_t index) const;
  bool lacks_blocks(std::uint64_t stripe);

  OpenSettings settings_;
  std::unique_ptr<tandem_context, void (*)(tandem_context *)> own_context_{nullptr, tandem_context_destroy};
  Superblock superblock_;  // under the exclusive gate once open
  std::unique_ptr<tandem_codec, void (*)(tandem_codec *)> codec_{nullptr, tandem_codec_destroy};
  std::unique_ptr<Members> members_;
  std::unique_ptr<Seed> seed_;
  std::unique_ptr<Table> table_;
  std::unique_ptr<Generations> generations_;
  std::unique_ptr<base::Crew> crew_;
  std::unique_ptr<Spares> spares_;
  Pending pending_;
  std::unique_ptr<Gate> gate_;
  std::atomic<std::uint64_t> sequence_{0};  // of the current transaction; changed under the exclusive gate
  std::atomic<bool> session_is_durable_{false};
  std::atomic<bool> broken_{false};  // see whole()
  bool is_settled_ = true;           // nothing was committed since settle(); under the exclusive gate
  std::chrono::steady_clock::time_point settled_at_ = std::chrono::steady_clock::now();
  std::vector<std::uint8_t> good_copies_;  // which copy of each member's superblock is the last good one
  std::uint64_t oldest_session_ = 0;       // its log record may not be in its place when the volume is opened
  std::atomic<std::uint64_t> epoch_{0}, scrub_stripe_{0};  // as in the superblock, for queries
  mutable std::shared_mutex windows_mutex_;
  std::vector<OpenWindow> windows_;
  std::optional<Bounded> bounded_;                   // under windows_mutex_
  std::atomic<std::uint64_t> asked_for_{kNoStripe};  // a stripe: the window that it would lie in shall begin
  std::mutex moving_mutex_;                          // of calls that begin and end bounded windows
  std::condition_variable_any moving_changed_;       // with windows_mutex_
  bool moving_stops_ = false;                        // under windows_mutex_
  std::thread mover_;
  std::mutex care_mutex_;
  bool has_looked_ = false;     // for old members, at all tables; under care_mutex_
  std::set<std::string> told_;  // what this scrub has noted of blocks that do not fit; under care_mutex_
  Lock locks_[256];
  Buffer zeros_;  // a unit of them

  std::atomic<std::uint64_t> ways_[5]{}, transactions_{0}, degraded_reads_{0}, mended_{0}, avoided_{0};
  std::atomic<std::int64_t> spare_blocks_{0};  // that may be read in place of those of slow members
};

}  // namespace tandem::volume
