// SPDX-License-Identifier: Apache-2.0
// Opening: finds the members that belong together and are current, and replays the log.

#include <algorithm>
#include <tuple>

#include "volume/engine.hpp"
#include "volume/log_record.hpp"

namespace tandem::volume {
namespace {

struct Found {
  Superblock superblock;
  std::uint8_t copy = 0;
  bool is_overtaken = false;
};

// The newer of the two copies; nothing if there is none.
std::optional<Found> read_superblock(Given &given) {
  if (!given.member) return {};
  Buffer buffer(2 * kBlockBytes);
  try {
    if (given.member->size_bytes() < 2 * kBlockBytes)
      throw MemberError(MemberProblem::failed, text(given.name, ": has only ", given.member->size_bytes(), " bytes"));
    given.member->read(0, buffer.data(), 2 * kBlockBytes);
  } catch (const MemberError &error) {
    given.why = error.what();
    return {};
  }
  std::optional<Found> newest;
  bool other = false, damaged = false;
  for (std::uint8_t copy = 0; copy < 2; ++copy) {
    Superblock found;
    const std::span<const std::byte, kBlockBytes> bytes(buffer.data() + copy * kBlockBytes, kBlockBytes);
    const SuperblockResult result = parse_superblock(bytes, &found);
    other = other || result == SuperblockResult::other_version;
    damaged = damaged || result == SuperblockResult::damaged;
    if (result == SuperblockResult::superblock && (!newest || found.counter > newest->superblock.counter))
      newest = Found{std::move(found), copy};
  }
  if (other) fail(TANDEM_ERROR_UNSUPPORTED, given.name, ": its superblock was written by another version of Tandem");
  if (!newest) given.why = given.name + (damaged ? ": its superblocks are damaged" : ": holds no volume");
  return newest;
}

// Whether its session surely did not begin: a member that its first writing should have reached has the first writing
// of another session. That one may have begun, and a member that is not here may know it.
bool is_overtaken(const Superblock &its, const std::vector<std::optional<Found>> &found) {
  const std::size_t tag = its.session % kSessionsKept;
  return !its.is_of_a_begun_session() && std::ranges::any_of(found, [&](const auto &each) {
    if (!each || each->superblock.is_of_a_begun_session() || !(each->superblock.geometry == its.geometry)) return false;
    const Superblock &other = each->superblock;
    if (other.settled != its.settled) return false;
    return its.standings[other.index] != Standing::lost && its.session_tags[tag] != other.session_tags[tag] &&
           its.member_tags[other.index] == other.member_tags[other.index];
  });
}

bool is_newer(const Found &a, const Found &b) {
  const auto rank = [](const Found &each) {
    const Superblock &its = each.superblock;
    return std::make_tuple(its.settled, !each.is_overtaken, its.epoch, its.counter);
  };
  return rank(a) > rank(b);
}

}  // namespace

Volume::Volume(std::vector<Given> given, OpenSettings settings) : settings_(std::move(settings)) {
  const Behind behind = choose_superblock(given);
  // Stripes are small, so the thread that works on one codes it.
  auto options = sized<tandem_context_options>();
  options.backend = "cpu";
  options.expert = "executor=serial";
  tandem_context *own = nullptr;
  check(tandem_context_create(&options, &own));
  own_context_.reset(own);
  if (settings_.context == nullptr) settings_.context = own;
  if (most_log_items(geometry().log_bytes) < geometry().most_items(geometry().rows()))
    fail(TANDEM_ERROR_DAMAGED, "a log of ", geometry().log_bytes, " bytes cannot hold what one stripe needs");
  codec_ = make_codec(geometry());
  zeros_ = Buffer(geometry().unit_bytes);
  std::memset(zeros_.data(), 0, geometry().unit_bytes);
  seed_ = std::make_unique<Seed>(superblock_.id);
  table_ = std::make_unique<Table>(*members_, geometry(), *seed_, settings_.cache_bytes);
  generations_ = std::make_unique<Generations>(geometry(), own);
  crew_ = std::make_unique<base::Crew>(settings_.thread_count);
  spares_ = std::make_unique<Spares>(std::uint64_t{geometry().member_count()} * geometry().unit_bytes);
  gate_ = std::make_unique<Gate>(most_log_items(geometry().log_bytes),
                                 [this] { return pending_.size() + table_->dirty_count(); });
  epoch_ = superblock_.epoch;
  scrub_stripe_ = superblock_.scrub_stripe;
  for (const Window &window : superblock_.windows) {
    windows_.emplace_back(window, true, false);
    settings_.note(text("a window of delayed parity is open, bytes ", window.first_stripe * geometry().stripe_bytes(),
                        " to ", window.end() * geometry().stripe_bytes() - 1,
                        ": they are unprotected until it is ended"));
  }
  replay();
  // Or later, without the members that know better, a window that is not listed now would be open. If a session would
  // make members stale, the others get what the dead process did not write to them.
  if (behind.members.empty() || settings_.read_only) return;
  if (!session_would_make_stale()) {
    begin_session();
    return;
  }
  for (const auto &[index, counter] : behind.members) {
    // A session that did not begin may have left a greater counter there. It must not become smaller: a later session
    // may count on it.
    Superblock told = behind.superblock;
    if (told.counter <= counter) told.counter = ++superblock_.counter;
    write_superblock_of(index, told);
  }
}

Volume::~Volume() { stop_moving_windows(); }

bool Volume::session_would_make_stale() {
  if (session_is_durable_) return false;
  const Gate::Exclusive exclusive(*gate_);
  return !session_is_durable_ && members_->standings() != superblock_.standings;
}

Volume::Behind Volume::choose_superblock(std::vector<Given> &given) {
  std::vector<std::optional<Found>> found;
  const Found *newest = nullptr;
  std::string problems;
  for (Given &each : given) {
    found.push_back(read_superblock(each));
    if (!found.back()) problems += "; " + each.why;
  }
  const Given *newest_given = nullptr;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!found[i]) continue;
    if (newest && found[i]->superblock.id != newest->superblock.id)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, newest_given->name, " and ", given[i].name,
           " are members of two different volumes");
    found[i]->is_overtaken = is_overtaken(found[i]->superblock, found);
    if (newest && !is_newer(*found[i], *newest)) continue;
    newest = &*found[i];
    newest_given = &given[i];
  }
  if (newest == nullptr) fail(TANDEM_ERROR_NOT_RECOVERABLE, "no member of a volume was found", problems);
  superblock_ = newest->superblock;
  const std::uint32_t n = geometry().member_count();
  members_ = std::make_unique<Members>(n, geometry().k, settings_.read_only, settings_.note);
  for (std::uint32_t i = 0; i < n; ++i)
    members_->put(i, "", nullptr, TANDEM_VOLUME_MEMBER_LOST,
                  problems.empty() ? "it was not given" : "it was not found" + problems);

  // If the session did not begin, the record of the one before may not be in its place.
  oldest_session_ = superblock_.is_of_a_begun_session() ? superblock_.session : 0;
  Behind behind{superblock_, {}};
  std::vector<bool> seen(n);
  good_copies_.assign(n, 0);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!found[i]) continue;
    const Superblock &own = found[i]->superblock;
    const std::string &name = given[i].name;
    if (!(own.geometry == geometry()))
      fail(TANDEM_ERROR_DAMAGED, newest_given->name, " and ", name, " have the id of one volume, but not its shape");
    if (own.is_of_a_begun_session() && own.epoch == superblock_.epoch && own.counter == superblock_.counter) {
      Superblock same = own;
      same.index = superblock_.index;
      if (!(same == superblock_))
        fail(TANDEM_ERROR_DAMAGED, newest_given->name, " and ", name, " were written apart from each other");
    }
    const std::uint64_t own_tag = own.session_tags[own.session % kSessionsKept];
    const bool is_remembered = own.session <= superblock_.session && superblock_.session - own.session < kSessionsKept;
    if (is_remembered && own.is_of_a_begun_session() &&
        superblock_.session_tags[own.session % kSessionsKept] != own_tag)
      fail(TANDEM_ERROR_DAMAGED, newest_given->name, " and ", name, " were written apart from each other in session ",
           own.session, ": leave out the members with unwanted writes");
    if (own.member_tags[own.index] != superblock_.member_tags[own.index]) {
      settings_.note(text(name, ": another member has taken its place as member ", own.index));
      continue;
    }
    // A session that is not remembered may have been one of this volume's past, or apart from it. It was apart if it
    // wrote without a member that this volume calls current.
    if (!is_remembered && own.is_of_a_begun_session())
      for (std::uint32_t other = 0; other < n; ++other)
        if (own.standings[other] == Standing::lost && superblock_.standings[other] == Standing::current &&
            own.member_tags[other] == superblock_.member_tags[other])
          fail(TANDEM_ERROR_DAMAGED, newest_given->name, " and ", name,
               " may have been written apart from each other: session ", own.session, " of ", name,
               " wrote without member ", other, ", which is current. Leave out ", name, ", or replace it");
    if (seen[own.index])
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "member ", own.index, " is there twice, the second time as ", name);
    seen[own.index] = true;
    good_copies_[own.index] = found[i]->copy;
    if (given[i].member->size_bytes() < geometry().member_bytes()) {
      members_->put(own.index, name, nullptr, TANDEM_VOLUME_MEMBER_LOST,
                    text(name, ": has ", given[i].member->size_bytes(), " bytes, its superblock says at least ",
                         geometry().member_bytes()));
      continue;
    }
    const Standing standing = superblock_.standings[own.index];
    std::string why;
    if (standing == Standing::lost)
      why = text(name, " missed writes: its epoch is ", own.epoch, ", the volume's is ", superblock_.epoch);
    else if (own.counter < superblock_.settled)
      why = text(name, " is an old copy: its superblock is number ", own.counter, ", all current members had number ",
                 superblock_.settled);
    members_->put(own.index, name, std::move(given[i].member),
                  !why.empty()                       ? TANDEM_VOLUME_MEMBER_STALE
                  : standing == Standing::rebuilding ? TANDEM_VOLUME_MEMBER_REBUILDING
                                                     : TANDEM_VOLUME_MEMBER_CURRENT,
                  why);
    if (why.empty() && own.windows != superblock_.windows) behind.members.emplace_back(own.index, own.counter);
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    tandem_volume_member member{};
    members_->query(i, &member);
    if (member.state < TANDEM_VOLUME_MEMBER_LOST) continue;
    settings_.note(text("member ", i, " is not used: ", member.why));
    if (members_->usable_count() < geometry().k && problems.find(member.why) == std::string::npos)
      problems += text("; member ", i, ": ", member.why);
  }
  if (members_->usable_count() < geometry().k)
    fail(TANDEM_ERROR_NOT_RECOVERABLE, members_->usable_count(), " of ", n, " members are current, ", geometry().k,
         " are needed", problems);
  // The next writing must be the newest on each member, also where one lies that does not decide.
  for (const auto &each : found)
    if (each) superblock_.counter = std::max(superblock_.counter, each->superblock.counter);
  return behind;
}

// The newest complete record of any member. Sequence 0: there is none, or all of it is in its place.
Volume::Record Volume::newest_record() {
  Record newest;
  newest.holders.resize(members_->count());
  std::vector<std::pair<LogHead, std::uint32_t>> heads;
  Buffer block(kBlockBytes);
  const std::span<const std::byte, kBlockBytes> bytes(block.data(), kBlockBytes);
  for (std::uint32_t i = 0; i < members_->count(); ++i) {
    if (!members_->read(i, IoKind::log, kLogOffset, block.data(), kBlockBytes)) {
      if (members_->is_usable(i))
        settings_.note(text("the log of member ", i, " cannot be read: the last flush may be missing"));
      continue;
    }
    // Blocks of a session are in their places before the next session writes anything.
    const auto head = parse_log_head(superblock_.id, geometry(), bytes);
    if (!head && std::ranges::any_of(bytes, [](std::byte each) { return each != std::byte{0}; }))
      settings_.note(text("the log of member ", i, " is damaged: the last flush may be missing"));
    if (head && head->sequence >> kSessionShift >= oldest_session_) heads.emplace_back(*head, i);
  }
  std::ranges::sort(heads, [](const auto &a, const auto &b) { return a.first.sequence > b.first.sequence; });
  std::vector<std::byte> bytes_of_one;
  std::uint64_t torn = 0;
  for (const auto &[head, member] : heads) {
    if (newest.sequence != 0 && head.sequence != newest.sequence) break;
    bytes_of_one.resize(head.bytes);
    if (!members_->read(member, IoKind::log, kLogOffset, bytes_of_one.data(), head.bytes)) continue;
    if (!parse_log_record(superblock_.id, geometry(), bytes_of_one)) {
      torn = std::max(torn, head.sequence);
      continue;
    }
    newest.holders[member] = true;
    if (newest.sequence != 0) continue;
    newest.sequence = head.sequence;
    newest.bytes.swap(bytes_of_one);
  }
  // A record is written only when everything that earlier records describe is synced in its place.
  return torn > newest.sequence ? Record{} : newest;
}

// The record that is replayed next must be found again after a crash during the replay.
void Volume::complete(Record &record) {
  for (std::uint32_t i = 0; i < members_->count() && record.copies() < geometry().m + 1; ++i)
    if (!record.holders[i])
      record.holders[i] =
          members_->write(i, IoKind::log, kLogOffset, record.bytes.data(), record.bytes.size()) && members_->sync(i);
}

void Volume::replay() {
  Record record = newest_record();
  const std::uint64_t newest = record.sequence;
  if (newest != 0) {
    const auto items = parse_log_record(superblock_.id, geometry(), record.bytes);
    // A page that a later transaction changed was in its place before that transaction's record was written. Then this
    // record is an old one, and all its blocks are in place.
    std::vector<LogItem> wanted;
    std::vector<std::uint64_t> pages;
    const auto key = [](std::uint32_t member, std::uint64_t page) { return std::uint64_t{member} << 48 | page; };
    Page page;
    for (const LogItem &each : *items) {
      if (each.kind != ItemKind::page || !members_->is_usable(each.member)) continue;
      const bool is_whole = members_->read(each.member, IoKind::checksum, geometry().page_offset(each.number),
                                           reinterpret_cast<std::byte *>(&page), sizeof page) &&
                            check_page(*seed_, each.member, each.number, page);
      if (is_whole && page.sequence > newest) continue;
      pages.push_back(key(each.member, each.number));
      wanted.push_back(each);
    }
    std::ranges::sort(pages);
    for (const LogItem &each : *items)
      if (each.kind == ItemKind::block && members_->is_usable(each.member) &&
          std::ranges::binary_search(pages, key(each.member, each.number / kEntriesPerPage)))
        wanted.push_back(each);
    if (!settings_.read_only) {
      sync_members();
      complete(record);
    }
    // If at most m members hold the record, it is not applied yet. Those m could be lost and the others come back: a
    // row would be half new. It is kept in memory until a session begins.
    if (!settings_.read_only && (record.copies() > geometry().m || !session_would_make_stale())) {
      apply(wanted);
      sync_members();
      check_enough_members();
    } else {
      for (const LogItem &each : wanted) {
        if (each.kind == ItemKind::block) {
          pending_.put(each.member, each.number, each.payload);
          continue;
        }
        std::memcpy(&page, each.payload, sizeof page);
        check_page(*seed_, each.member, each.number, page);
        table_->overlay(each.member, each.number, page);
      }
    }
  }
  // A session has its own sequence numbers, greater than all before, including those of torn records.
  const std::uint64_t session = std::max(superblock_.session, newest >> kSessionShift) + 1;
  if (session >= kMostSessions) fail(TANDEM_ERROR_UNSUPPORTED, "the volume was opened ", session, " times");
  sequence_ = (session << kSessionShift) + 1;
  superblock_.session = session;
  superblock_.session_tags[session % kSessionsKept] = base::random_number<std::uint64_t>();
}

void Volume::check_inside(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t size = geometry().volume_bytes();
  if (offset > size || bytes > size - offset)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, bytes, " bytes at ", offset, " are not inside the volume, which has ", size);
}

void Volume::check_writable() const {
  if (settings_.read_only) fail(TANDEM_ERROR_UNAVAILABLE, "the volume is open for reading only");
}

void Volume::check_enough_members() const {
  const std::uint32_t usable = members_->usable_count();
  if (usable >= geometry().k) return;
  std::string why;
  for (std::uint32_t i = 0; i < members_->count(); ++i) {
    tandem_volume_member member{};
    members_->query(i, &member);
    if (member.state >= TANDEM_VOLUME_MEMBER_LOST) why += text("; member ", i, ": ", member.why);
  }
  fail(TANDEM_ERROR_IO, usable, " of ", members_->count(), " members are left, ", geometry().k, " are needed", why);
}

void Volume::query(tandem_volume_info *out) const {
  std::ranges::copy(superblock_.id, out->volume_id);
  out->k = geometry().k;
  out->m = geometry().m;
  out->matrix = geometry().matrix;
  out->unit_bytes = geometry().unit_bytes;
  out->volume_bytes = geometry().volume_bytes();
  out->stripe_count = geometry().stripe_count;
  out->log_bytes = geometry().log_bytes;
  out->epoch = epoch_;
  out->sequence = sequence_;
  out->lost_count = members_->count() - members_->usable_count();
  out->rebuilding_count = members_->count_of(TANDEM_VOLUME_MEMBER_REBUILDING);
  out->old_count = members_->old_count();
  const std::vector<tandem_volume_window> open = windows();
  out->window_count = static_cast<std::uint32_t>(open.size());
  std::ranges::copy(open, out->windows);
  out->read_only = settings_.read_only;
  out->scrub_position_bytes = scrub_stripe_ * geometry().stripe_bytes();
  out->data = members_->counted(IoKind::data);
  out->parity = members_->counted(IoKind::parity);
  out->log = members_->counted(IoKind::log);
  out->checksum = members_->counted(IoKind::checksum);
  out->superblock = members_->counted(IoKind::superblock);
  out->syncs = members_->syncs();
  std::copy(std::begin(ways_), std::end(ways_), out->ways);
  out->transaction_count = transactions_;
  out->degraded_read_count = degraded_reads_;
  out->mended_block_count = mended_;
  out->avoided_block_count = avoided_;
  const std::shared_lock lock(windows_mutex_);
  for (const OpenWindow &each : windows_) out->unprotected_bytes += each.lacking_count * geometry().stripe_bytes();
  if (!bounded_) return;
  out->bounded = bytes_of(bounded_->range);
  out->bound_bytes = bounded_->most_stripes * geometry().stripe_bytes();
  out->bound_seconds = static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::seconds>(bounded_->most_time).count());
}

void Volume::query(std::uint32_t index, tandem_volume_member *out) const {
  if (index >= members_->count())
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "index is ", index, ", the volume has ", members_->count(), " members");
  members_->query(index, out);
}

std::string Volume::identity(std::uint32_t index) const {
  const auto member = members_->member(index);
  return member ? member->identity() : "";
}

}  // namespace tandem::volume
