// SPDX-License-Identifier: Apache-2.0
// Scrub, rebuild, replace.

#include <algorithm>

#include "base/pace.hpp"
#include "volume/engine.hpp"
#include "volume/log_record.hpp"

namespace tandem::volume {
namespace {

std::unique_lock<std::mutex> alone(std::mutex &mutex) {
  std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock) fail(TANDEM_ERROR_UNAVAILABLE, "another scrub, rebuild or replace runs");
  return lock;
}

}  // namespace

void Volume::survey(View &view, tandem_volume_care_result *result) {
  const bool delayed = is_delayed(view.stripe);
  std::vector<Part> parts;
  for (std::uint32_t column = 0; column < (delayed ? geometry().k : members_->count()); ++column)
    if (members_->is_usable(member_of(view, column))) parts.push_back({column, 0, view.count});
  crew_->run(parts.size(), [&](std::size_t i) { fetch_part(view, parts[i]); });
  ++result->stripe_count;
  result->unprotected_stripe_count += delayed;
  for (std::uint32_t column = 0; delayed && column < geometry().k; ++column)
    if (!members_->is_usable(member_of(view, column))) result->lost_block_count += view.count;
  for (std::size_t i = 0; i < view.have.size(); ++i) {
    if (view.have[i] == Have::none) continue;
    result->block_count += !is_zeros(view.entries[i].generation);
    result->bad_block_count += is_wrong(view, i);
    result->left_block_count += is_wrong(view, i);
  }
}

bool Volume::is_wrong(const View &view, std::size_t at) {
  return view.have[at] >= Have::bad || (view.have[at] != Have::none && view.entries[at].generation == kUnknown);
}

std::vector<bool> Volume::wrong_blocks(const View &view) {
  std::vector<bool> wrong(view.have.size());
  for (std::size_t at = 0; at < wrong.size(); ++at) wrong[at] = is_wrong(view, at);
  return wrong;
}

void Volume::tell_once(const View &view, std::uint32_t row, const char *why) {
  if (told_.insert(why).second)
    settings_.note(text("stripe ", view.stripe, ", row ", row,
                        ": checksums are right but the blocks contradict each other, for example because members are "
                        "old copies: ",
                        why));
}

void Volume::check_parity(View &view, tandem_volume_care_result *result) {
  const std::uint32_t k = geometry().k, m = geometry().m;
  if (is_delayed(view.stripe)) return;
  for (std::uint32_t row = 0; row < view.count; ++row)
    if (view.contradicts[row]) tell_once(view, row, "their generations do not fit together");
  const auto is_whole = [&](std::uint32_t row) {
    for (std::uint32_t column = 0; column < k; ++column)
      if (view.have[view.at(column, row)] != Have::good) return false;
    return true;
  };
  for (std::uint32_t begin = 0, end; begin < view.count; begin = end) {
    end = begin + 1;
    if (!is_whole(begin)) continue;
    while (end < view.count && is_whole(end)) ++end;
    std::vector<const void *> data;
    std::vector<void *> computed;
    Buffer right(std::size_t{m} * (end - begin) * kBlockBytes);
    for (std::uint32_t column = 0; column < k; ++column) data.push_back(view.block(column, begin));
    for (std::uint32_t i = 0; i < m; ++i)
      computed.push_back(right.data() + std::size_t{i} * (end - begin) * kBlockBytes);
    check(tandem_encode(settings_.context, codec_.get(), data.data(), computed.data(), (end - begin) * kBlockBytes));
    for (std::uint32_t row = begin; row < end; ++row) {
      std::uint64_t mismatches = 0;
      for (std::uint32_t i = 0; i < m; ++i)
        mismatches += view.have[view.at(k + i, row)] == Have::good &&
                      std::memcmp(static_cast<std::byte *>(computed[i]) + std::size_t{row - begin} * kBlockBytes,
                                  view.block(k + i, row), kBlockBytes) != 0;
      if (mismatches == 0) continue;
      result->bad_parity_count += mismatches;
      result->lost_block_count += mismatches;
      result->left_block_count += mismatches;
      tell_once(view, row, "parity does not match");
      // What was computed from a wrong block is wrong too.
      for (std::uint32_t column = 0; column < members_->count(); ++column)
        if (Have &have = view.have[view.at(column, row)];
            have != Have::none && view.entries[view.at(column, row)].generation == kUnknown)
          have = Have::lost;
    }
  }
}

bool Volume::names_old(const View &view, std::uint32_t row) const {
  for (std::uint32_t column = 0; column < members_->count(); ++column)
    if (view.stale[view.at(column, row)]) return true;
  return false;
}

void Volume::check_stripe(std::uint64_t stripe, Mends mends, tandem_volume_care_result *result) {
  const std::shared_lock lock(lock_of(stripe));
  View view(*spares_, geometry(), stripe, 0, geometry().rows());
  load_entries(view);
  survey(view, result);
  check_parity(view, result);
  const std::vector<bool> wrong = wrong_blocks(view);
  recover(view, WriteBack::no);
  for (std::size_t at = 0; at < view.have.size(); ++at)
    result->lost_block_count +=
        view.have[at] == Have::lost ||
        (mends == Mends::known && wrong[at] && names_old(view, static_cast<std::uint32_t>(at % view.count)));
}

void Volume::repair_stripe(std::uint64_t stripe, Mends mends, tandem_volume_care_result *result) {
  const Change changing(*this, geometry().most_items(geometry().rows()));
  const std::unique_lock lock(lock_of(stripe));
  View view(*spares_, geometry(), stripe, 0, geometry().rows());
  load_entries(view);
  survey(view, result);
  const std::vector<bool> before = wrong_blocks(view);
  recover(view, WriteBack::yes);
  if (mends != Mends::missing) check_parity(view, result);

  whole([&] {
    std::vector<Stored> stored;
    for (std::uint32_t column = 0; column < members_->count(); ++column)
      for (std::uint32_t row = 0; row < view.count; ++row) {
        const std::size_t at = view.at(column, row);
        if (!before[at]) continue;
        if (view.have[at] == Have::lost) {
          ++result->lost_block_count;
          continue;
        }
        if (!members_->is_usable(member_of(view, column))) continue;
        if (mends == Mends::known && names_old(view, row)) {
          ++result->lost_block_count;
          continue;
        }
        if (mends == Mends::missing && view.stale[at]) continue;
        --result->left_block_count;
        result->mended_block_count += !is_zeros(view.generations[at]) || view.stale[at];
        if (view.entries[at].generation != kUnknown) continue;  // recover() has written it
        // With the generation that its row says it has, so that the words of the row stay right.
        const Part part{column, row, row + 1};
        if (is_zeros(view.generations[at])) {
          clear(view, part);
          continue;
        }
        ++mended_;
        if (!stored.empty() && stored.back().part.column == column && stored.back().part.end == row)
          ++stored.back().part.end;
        else
          stored.push_back({part, view.block(column, row)});
      }
    store(view, stored);
  });
  check_enough_members();
}

tandem_status Volume::walk(const CareSettings &settings, std::uint64_t first_stripe,
                           const std::function<void(std::uint64_t)> &visit) {
  const base::Pace pace(settings.rate_bytes_per_second);
  bool is_cancelled = false;
  const std::uint64_t stripe_bytes = geometry().stripe_bytes();
  for (std::uint64_t stripe = first_stripe; stripe < geometry().stripe_count; ++stripe) {
    visit(stripe);
    const std::uint64_t done = (stripe + 1) * stripe_bytes;
    const auto ask = [&] {
      is_cancelled =
          settings.progress && settings.progress(settings.progress_user, done, geometry().volume_bytes()) != 0;
      return is_cancelled;
    };
    if (!ask()) pace.wait(done - first_stripe * stripe_bytes, ask);
    if (is_cancelled) return TANDEM_ERROR_CANCELLED;
  }
  return TANDEM_OK;
}

void Volume::keep_scrub_position(std::uint64_t stripe, bool repairs) {
  scrub_stripe_ = stripe;
  if (settings_.read_only) return;
  const Gate::Exclusive exclusive(*gate_);
  // A scrub that only looks does not make a missing member stale.
  if (repairs || members_->standings() == superblock_.standings) write_superblocks();
}

void Volume::end_left_over_windows() {
  std::vector<Window> left_over;
  {
    const std::shared_lock lock(windows_mutex_);
    for (const OpenWindow &each : windows_)
      if (each.is_left_over && !each.ending) left_over.push_back(each.window);
  }
  const std::uint64_t stripe_bytes = geometry().stripe_bytes();
  for (const Window &each : left_over) {
    try {
      delay_end({each.first_stripe * stripe_bytes, each.end() * stripe_bytes}, false);
    } catch (const Error &error) {
      if (error.status() != TANDEM_ERROR_NOT_RECOVERABLE) throw;
      settings_.note(text("a window of delayed parity stays open: ", error.what()));
    }
  }
}

// Looks at the tables of all stripes, once in a session, so that what one row tells of a member is known for all rows.
tandem_status Volume::look_for_old_members(const CareSettings &settings) {
  if (has_looked_) return TANDEM_OK;
  const base::Pace pace(settings.rate_bytes_per_second);
  const std::uint64_t table_bytes = sizeof(Entry) * geometry().rows() * members_->count();  // of a stripe
  bool is_cancelled = false;
  for (std::uint64_t stripe = 0; stripe < geometry().stripe_count; ++stripe) {
    check_enough_members();
    look_at_rows(stripe);
    const auto ask = [&] {
      is_cancelled = settings.progress && settings.progress(settings.progress_user, 0, geometry().volume_bytes()) != 0;
      return is_cancelled;
    };
    if (!ask()) pace.wait((stripe + 1) * table_bytes, ask);
    if (is_cancelled) return TANDEM_ERROR_CANCELLED;
  }
  has_looked_ = true;
  return TANDEM_OK;
}

// False: rows of it contradict themselves.
bool Volume::look_at_rows(std::uint64_t stripe) {
  const std::shared_lock lock(lock_of(stripe));
  View view(*spares_, geometry(), stripe, 0, geometry().rows());
  load_entries(view);
  return std::ranges::find(view.contradicts, true) == view.contradicts.end();
}

std::string Volume::old_members() const {
  std::string names;
  for (std::uint32_t i = 0; i < members_->count(); ++i)
    if (members_->is_usable(i) && members_->is_old(i)) names += (names.empty() ? "" : ", ") + std::to_string(i);
  return names;
}

// If rows name more members as old than the parity that is left can stand for, some rows are mistaken, and the evidence
// is worth nothing.
bool Volume::old_members_are_plausible() const {
  const std::uint32_t old = members_->old_count(), current = members_->count_of(TANDEM_VOLUME_MEMBER_CURRENT),
                      k = geometry().k;
  if (old == 0 || old + k <= current) return true;
  settings_.note(text("old blocks are not mended: rows name ", old, " members (", old_members(),
                      ") as old, too many for the parity that is left: leave out those that you put back"));
  return false;
}

tandem_status Volume::scrub(const CareSettings &settings, tandem_volume_care_result *result) {
  if (settings.repair) check_writable();
  const auto lock = alone(care_mutex_);
  told_.clear();
  const std::uint64_t continues_at = settings.restart ? 0 : scrub_stripe_.load();
  if (settings.repair || continues_at == 0)
    if (const tandem_status looked = look_for_old_members(settings); looked != TANDEM_OK) return looked;
  if (settings.repair) end_left_over_windows();
  // A repair makes a missing member stale. That member may have the only copy of data of an open window.
  const bool repairs = settings.repair && (window_list().empty() || !session_would_make_stale());
  if (settings.repair && !repairs)
    settings_.note(
        "nothing is mended: a window of delayed parity is open, and a missing member may have data of it. Give that "
        "member, or end the window first");
  if (repairs) begin_session();
  const Mends mends = old_members_are_plausible() ? Mends::all : Mends::known;
  constexpr std::uint64_t kBytesPerNote = 1 << 30;
  const std::uint64_t stripes_per_note = std::max<std::uint64_t>(1, kBytesPerNote / geometry().stripe_bytes());
  const std::uint64_t first = repairs && members_->old_count() != 0 ? 0 : continues_at;  // old blocks are anywhere
  std::uint64_t next = first;
  const tandem_status status = walk(settings, first, [&](std::uint64_t stripe) {
    check_enough_members();
    if (repairs)
      repair_stripe(stripe, mends, result);
    else
      check_stripe(stripe, mends, result);
    next = stripe + 1;
    if ((next - first) % stripes_per_note == 0) keep_scrub_position(next, repairs);
  });
  keep_scrub_position(next == geometry().stripe_count ? 0 : next, repairs);
  if (repairs) flush();
  if (repairs && first == 0 && next == geometry().stripe_count && result->left_block_count == 0)
    for (std::uint32_t i = 0; i < members_->count(); ++i) members_->set_old(i, false);
  return status;
}

bool Volume::lacks_blocks(std::uint64_t stripe) {
  const std::shared_lock lock(lock_of(stripe));
  std::vector<Entry> entries(geometry().rows());
  for (std::uint32_t i = 0; i < members_->count(); ++i) {
    if (members_->state(i) != TANDEM_VOLUME_MEMBER_REBUILDING) continue;
    table_->get(i, geometry().first_block(stripe), entries.size(), entries.data());
    if (std::ranges::any_of(entries, [](const Entry &entry) { return entry.generation == kUnknown; })) return true;
  }
  return false;
}

tandem_status Volume::rebuild(const CareSettings &settings, tandem_volume_care_result *result) {
  check_writable();
  const auto lock = alone(care_mutex_);
  check_enough_members();
  if (const tandem_status looked = look_for_old_members(settings); looked != TANDEM_OK) return looked;
  for (std::uint32_t i = 0; i < members_->count(); ++i) {
    tandem_volume_member member{};
    members_->query(i, &member);
    if (member.state == TANDEM_VOLUME_MEMBER_LOST)
      fail(TANDEM_ERROR_UNAVAILABLE, "member ", i, " is lost (", member.why, "): it has to be replaced first");
  }
  for (std::uint32_t i = 0; i < members_->count(); ++i)
    if (members_->state(i) == TANDEM_VOLUME_MEMBER_STALE) check_dispensable(i);
  begin_session();
  for (std::uint32_t i = 0; i < members_->count(); ++i) {
    if (members_->state(i) != TANDEM_VOLUME_MEMBER_STALE) continue;
    tandem_volume_member member{};
    members_->query(i, &member);
    const auto handle = members_->member(i);
    prepare_member(*handle, i);
    join(i, member.name, handle);
  }
  std::uint64_t unfinished = 0;
  const tandem_status status = walk(settings, 0, [&](std::uint64_t stripe) {
    check_enough_members();
    if (!lacks_blocks(stripe)) return;
    repair_stripe(stripe, Mends::missing, result);
    unfinished += lacks_blocks(stripe);
  });
  const Gate::Exclusive exclusive(*gate_);
  commit_exclusively();
  if (status != TANDEM_OK) return status;
  if (unfinished != 0)
    fail(TANDEM_ERROR_NOT_RECOVERABLE, unfinished,
         " stripes have blocks that cannot be rebuilt: too many members lack blocks of one row, or the stripe lies in "
         "a window of delayed parity");
  for (std::uint32_t i = 0; i < members_->count(); ++i)
    if (members_->state(i) == TANDEM_VOLUME_MEMBER_REBUILDING) members_->set_state(i, TANDEM_VOLUME_MEMBER_CURRENT, "");
  write_superblocks();
  return status;
}

// Forgets its content: its blocks count as lost until they are rebuilt. A stale member keeps its superblock, so that it
// is still a stale member after a crash.
void Volume::prepare_member(Member &member, std::uint32_t index) {
  try {
    const SuperblockBytes nothing{};
    for (const std::uint64_t copy : {0u, 1u})
      if (&member != members_->member(index).get()) member.write(copy * kBlockBytes, nothing.data(), kBlockBytes);
    write_tables(member, geometry(), *seed_, index, kLostEntry, sequence_);
    member.sync();
  } catch (const MemberError &error) {
    fail(TANDEM_ERROR_IO, error.what());
  }
}

void Volume::join(std::uint32_t index, const std::string &name, std::shared_ptr<Member> member) {
  const Gate::Exclusive exclusive(*gate_);
  commit_exclusively();
  check_dispensable(index);  // the state may have changed while the new member was prepared
  // The record names pages by the number of the member. Pages of the old member must not be written to the new one.
  sync_members();
  record_losses();  // a member may have failed when the last record's blocks were written to their places
  std::size_t bytes = 0;
  const Buffer nothing = write_log_record(superblock_.id, sequence_, {}, &bytes);
  write_log(nothing.data(), bytes);
  ++sequence_;
  check_dispensable(index);
  ++superblock_.epoch;
  if (member != members_->member(index)) {
    superblock_.member_tags[index] = base::random_number<std::uint32_t>();
    good_copies_[index] = 0;
  }
  // In this order: the drop then invalidates a page of the old member that a thread has just read.
  members_->put(index, name, std::move(member), TANDEM_VOLUME_MEMBER_REBUILDING, "");
  table_->drop(index);
  write_superblocks();
}

// Checks that the volume has all its data without this member.
void Volume::check_dispensable(std::uint32_t index) const {
  check_enough_members();
  const std::int32_t state = members_->state(index);
  std::uint32_t left = 0;
  for (std::uint32_t i = 0; i < members_->count(); ++i)
    left += i != index && members_->state(i) == TANDEM_VOLUME_MEMBER_CURRENT && !members_->is_old(i);
  if (left < geometry().k && (state <= TANDEM_VOLUME_MEMBER_REBUILDING || !old_members().empty()))
    fail(TANDEM_ERROR_NOT_RECOVERABLE, "without member ", index, ", ", left, " of ", members_->count(),
         " current members without old blocks would be left, ", geometry().k, " are needed");
  if (!window_list().empty())
    fail(TANDEM_ERROR_UNAVAILABLE, "a window of delayed parity is open: data of member ", index, " would be lost");
}

void Volume::replace(std::uint32_t index, Given given, bool force) {
  check_writable();
  const auto lock = alone(care_mutex_);
  if (index >= members_->count())
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "index is ", index, ", the volume has ", members_->count(), " members");
  check_enough_members();
  look_for_old_members({});
  check_dispensable(index);
  try {
    check_overwritable(given, force);
  } catch (const MemberError &error) {
    fail(TANDEM_ERROR_IO, error.what());
  }
  try {
    given.member->grow(geometry().member_bytes());
  } catch (const MemberError &error) {
    fail(TANDEM_ERROR_INVALID_ARGUMENT, error.what());
  }
  prepare_member(*given.member, index);
  join(index, given.name, std::move(given.member));
}

}  // namespace tandem::volume
