// SPDX-License-Identifier: Apache-2.0
// Writing: chooses the cheapest way for the rows of a stripe, and the places of the new blocks.

#include <algorithm>

#include "volume/engine.hpp"
#include "volume/write_plan.hpp"

namespace tandem::volume {
namespace {

constexpr std::uint32_t kPieceBytes = 240 << 10, kLeastPieceRows = 4;  // encoded in one call

}  // namespace

void Volume::write(std::uint64_t offset, const std::byte *from, std::uint64_t bytes) { change(offset, bytes, from); }

void Volume::trim(std::uint64_t offset, std::uint64_t bytes) {
  check_inside(offset, bytes);
  const std::uint64_t begin = round_up(offset, kBlockBytes), end = (offset + bytes) / kBlockBytes * kBlockBytes;
  change(offset, 0, nullptr);
  if (begin < end) change(begin, end - begin, nullptr);
}

void Volume::zero(std::uint64_t offset, std::uint64_t bytes) {
  check_inside(offset, bytes);
  const std::uint64_t end = offset + bytes, first = std::min(round_up(offset, kBlockBytes), end),
                      last = std::max(first, end / kBlockBytes * kBlockBytes);
  change(offset, first - offset, zeros_.data());
  change(first, last - first, nullptr);
  change(last, end - last, zeros_.data());
}

void Volume::change(std::uint64_t offset, std::uint64_t bytes, const std::byte *from) {
  check_inside(offset, bytes);
  check_writable();
  const std::uint64_t stripe_bytes = geometry().stripe_bytes();
  while (bytes != 0) {
    const std::uint64_t begin = offset % stripe_bytes, here = std::min(bytes, stripe_bytes - begin);
    change_stripe(offset / stripe_bytes, begin, begin + here, from);
    offset += here;
    if (from != nullptr) from += here;
    bytes -= here;
  }
}

// Touched rows: one run, or two if there is a gap between the end of one column and the beginning of the next.
void Volume::change_stripe(std::uint64_t stripe, std::uint64_t begin, std::uint64_t end, const std::byte *from) {
  const std::uint64_t unit = geometry().unit_bytes;
  std::vector<Span> spans;
  for (auto column = static_cast<std::uint32_t>(begin / unit); column * unit < end; ++column) {
    const std::uint64_t start = column * unit, first = std::max(begin, start), last = std::min(end, start + unit);
    spans.push_back({column, static_cast<std::uint32_t>(first - start), static_cast<std::uint32_t>(last - start),
                     from == nullptr ? nullptr : from + (first - begin)});
  }
  const auto first_row = [](const Span &span) { return static_cast<std::uint32_t>(span.begin / kBlockBytes); };
  const auto end_row = [](const Span &span) { return static_cast<std::uint32_t>((span.end - 1) / kBlockBytes + 1); };
  // What fails is found before the session begins, so a call that fails makes no member stale. The exception: a held
  // record that fills the log begins a session (Change).
  const auto change_in_session = [&](std::uint32_t first, std::uint32_t count, std::span<const Span> some) {
    if (change_rows(stripe, first, count, some, from == nullptr)) return;
    begin_session();
    change_rows(stripe, first, count, some, from == nullptr);
  };
  if (spans.size() == 2 && end_row(spans[1]) <= first_row(spans[0])) {
    for (const Span &span : spans) change_in_session(first_row(span), end_row(span) - first_row(span), {&span, 1});
  } else if (spans.size() == 1) {
    change_in_session(first_row(spans[0]), end_row(spans[0]) - first_row(spans[0]), spans);
  } else {
    change_in_session(0, geometry().rows(), spans);
  }
}

// A change of some rows of a stripe.
struct Volume::Edit {
  View view;
  bool clears, delayed = false;
  std::vector<Stored> fresh{};   // the new content of whole blocks; nullptr: it is cleared
  std::vector<Buffer> copies{};  // blocks of `fresh` that keep a part of their old content
  std::vector<WriteColumn> columns{};
  std::vector<void *> parity{};  // of usable members, else nullptr
  bool leaves = false;           // data that the change does not touch stays in these rows

  bool holds(std::uint32_t column, std::uint32_t begin, std::uint32_t end) const {
    for (std::uint32_t row = begin; row < end; ++row)
      if (!is_zeros(view.generations[view.at(column, row)])) return true;
    return false;
  }
  bool covers(std::uint32_t column, std::uint32_t row) const {
    return std::ranges::any_of(fresh, [&](const Stored &each) {
      return each.part.column == column && row >= each.part.begin && row < each.part.end;
    });
  }
  bool has_parity() const {
    return std::ranges::any_of(parity, [](const void *each) { return each != nullptr; });
  }
};

bool Volume::change_rows(std::uint64_t stripe, std::uint32_t first, std::uint32_t count, std::span<const Span> spans,
                         bool clears) {
  const Change changing(*this, geometry().most_items(spans.size() + geometry().m, count));
  const std::unique_lock lock(lock_of(stripe));
  Edit edit{.view = {*spares_, geometry(), stripe, first, count}, .clears = clears};
  load_entries(edit.view);
  take_spans(edit, spans);
  if (!plan_parity(edit)) return true;
  if (!session_is_durable_) return false;
  apply_edit(edit);
  return true;
}

// The new content is the caller's memory, or a copy if a span begins or ends inside a block.
void Volume::take_spans(Edit &edit, std::span<const Span> spans) {
  View &view = edit.view;
  for (const Span &span : spans) {
    const auto begin = static_cast<std::uint32_t>(span.begin / kBlockBytes) - view.first,
               end = static_cast<std::uint32_t>((span.end - 1) / kBlockBytes) + 1 - view.first;
    const Part part{span.column, begin, end};
    // Also if the stripe still has its parity: after a crash it counts as if it had not.
    if (!members_->is_usable(member_of(view, span.column)) && is_in_window(view.stripe))
      fail(TANDEM_ERROR_NOT_RECOVERABLE, "stripe ", view.stripe,
           " lies in a window of delayed parity: bytes written for member ", member_of(view, span.column),
           ", which is lost, would be unprotected and lost");
    if (edit.clears || (span.begin % kBlockBytes == 0 && span.end % kBlockBytes == 0)) {
      edit.fresh.push_back({part, span.from});
      continue;
    }
    std::vector<Part> edges;
    if (span.begin % kBlockBytes != 0) edges.push_back({span.column, begin, begin + 1});
    if (span.end % kBlockBytes != 0 && (edges.empty() || end - 1 != begin))
      edges.push_back({span.column, end - 1, end});
    fetch(view, edges);
    require(view, edges);
    std::byte *const copy = edit.copies.emplace_back((end - begin) * kBlockBytes).data();
    for (const Part &edge : edges)
      std::memcpy(copy + (edge.begin - begin) * kBlockBytes, view.block(span.column, edge.begin), kBlockBytes);
    std::memcpy(copy + span.begin % kBlockBytes, span.from, span.end - span.begin);
    edit.fresh.push_back({part, copy});
  }
}

// Computes the new parity in the cheapest way. False: a trim of blocks that were never written changes nothing.
bool Volume::plan_parity(Edit &edit) {
  const std::uint32_t k = geometry().k, m = geometry().m, count = edit.view.count;
  for (std::uint32_t row = 0; row < count; ++row)  // only a change of all its data makes sense of it again
    for (std::uint32_t column = 0; edit.view.contradicts[row] && column < k; ++column)
      if (!edit.covers(column, row)) {
        edit.view.have[edit.view.at(column, row)] = Have::lost;
        const Part part{column, row, row + 1};
        require(edit.view, {&part, 1});
      }
  edit.columns.assign(k, {0, 0, 1, 0});
  for (std::uint32_t column = 0; column < k; ++column)
    edit.columns[column].remaining_old = edit.holds(column, 0, count);
  bool changes = !edit.clears;
  for (const Stored &each : edit.fresh) {
    const auto [column, begin, end] = each.part;
    const bool old = edit.holds(column, begin, end);
    edit.columns[column] = {true, old, begin > 0 || end < count,
                            edit.holds(column, 0, begin) || edit.holds(column, end, count)};
    changes = changes || old;
  }
  if (!changes) return false;
  edit.delayed = delays(edit.view);
  for (const WriteColumn &column : edit.columns) edit.leaves = edit.leaves || column.remaining_old;
  for (std::uint32_t i = 0; i < m; ++i)
    edit.parity.push_back(members_->is_usable(member_of(edit.view, k + i)) ? edit.view.columns[k + i] : nullptr);
  if (edit.clears && (!edit.leaves || edit.delayed)) return true;
  const WritePlan plan = plan_write(edit.columns, m, edit.delayed);
  if (session_is_durable_) ++ways_[plan.way];
  if (plan.way == TANDEM_VOLUME_FULL_STRIPE || plan.way == TANDEM_VOLUME_RECONSTRUCT)
    encode_parity(edit);
  else if (plan.way != TANDEM_VOLUME_DELAY)
    update_parity(edit);
  if (plan.way != TANDEM_VOLUME_FULL_STRIPE && !edit.delayed) ask_for_window(edit.view.stripe);
  return true;
}

// From all data of the rows.
void Volume::encode_parity(Edit &edit) {
  View &view = edit.view;
  std::vector<Part> rest;
  std::vector<const void *> data(view.columns.begin(), view.columns.begin() + geometry().k);
  for (std::uint32_t column = 0; column < geometry().k; ++column) {
    const auto mine = std::ranges::find_if(edit.fresh, [&](const Stored &each) { return each.part.column == column; });
    const auto [_, begin, end] = mine == edit.fresh.end() ? Part{column, view.count, view.count} : mine->part;
    if (begin > 0) rest.push_back({column, 0, begin});
    if (end < view.count) rest.push_back({column, end, view.count});
    if (begin == 0 && end == view.count) data[column] = edit.clears ? zeros_.data() : mine->from;
  }
  fetch(view, rest);
  require(view, rest);
  for (const Stored &each : edit.fresh) {
    const auto [column, begin, end] = each.part;
    if (data[column] != view.columns[column]) continue;
    std::memcpy(view.block(column, begin), edit.clears ? zeros_.data() : each.from, (end - begin) * kBlockBytes);
  }
  if (!edit.has_parity()) return;
  // On the volume's own context in pieces that fit the caches. Parity that a larger call writes past them would be read
  // again from memory.
  const std::uint32_t most = kPieceBytes / kBlockBytes / members_->count();
  const std::uint32_t piece = settings_.context == own_context_.get() ? std::max(most, kLeastPieceRows) : view.count;
  std::vector<void *> parity = edit.parity;
  for (std::uint32_t row = 0; row < view.count; row += piece) {
    const std::size_t step = row == 0 ? 0 : piece * kBlockBytes;
    for (const void *&each : data) each = static_cast<const std::byte *>(each) + step;
    for (void *&each : parity)
      if (each != nullptr) each = static_cast<std::byte *>(each) + step;
    check(tandem_encode(settings_.context, codec_.get(), data.data(), parity.data(),
                        std::min(piece, view.count - row) * kBlockBytes));
  }
}

// From the old data and the old parity.
void Volume::update_parity(Edit &edit) {
  View &view = edit.view;
  const std::uint32_t k = geometry().k, m = geometry().m;
  std::vector<Part> old;
  for (const Stored &each : edit.fresh)
    if (edit.columns[each.part.column].written_old) old.push_back(each.part);
  for (std::uint32_t i = 0; i < m; ++i)
    if (edit.parity[i]) old.push_back({k + i, 0, view.count});
  fetch(view, old);
  require(view, old);
  if (!edit.has_parity()) return;
  for (const Stored &each : edit.fresh) {
    const auto [column, begin, end] = each.part;
    std::vector<void *> changed(m);
    for (std::uint32_t i = 0; i < m; ++i) changed[i] = edit.parity[i] ? view.block(k + i, begin) : nullptr;
    const std::byte *const new_data = edit.clears ? zeros_.data() : each.from;
    const std::size_t bytes = (end - begin) * kBlockBytes;
    check(edit.columns[column].written_old
              ? tandem_update(settings_.context, codec_.get(), column, view.block(column, begin), new_data,
                              changed.data(), bytes)
              : tandem_accumulate(settings_.context, codec_.get(), column, new_data, changed.data(), bytes, 0));
  }
}

// Gives the blocks that change the number of this transaction.
void Volume::change_generations(Edit &edit) {
  View &view = edit.view;
  std::vector<std::uint64_t> next = view.generations;
  for (const Stored &each : edit.fresh)
    for (std::uint32_t row = each.part.begin; row < each.part.end; ++row)
      next[view.at(each.part.column, row)] = edit.clears ? sequence_ | kZeros : sequence_.load();
  if (edit.delayed)
    view.generations = next;
  else
    change_generations(view, next);
}

void Volume::change_generations(View &view, std::span<const std::uint64_t> next) {
  generations_->change(view, next);
  for (std::uint32_t row = 0; row < view.count; ++row) {
    bool all_zeros = true, never_written = true;
    for (std::uint32_t column = 0; column < geometry().k; ++column) {
      all_zeros = all_zeros && is_zeros(next[view.at(column, row)]);
      never_written = never_written && next[view.at(column, row)] == 0;
    }
    for (std::uint32_t column = geometry().k; column < members_->count(); ++column)
      view.generations[view.at(column, row)] = never_written ? 0 : all_zeros ? sequence_ | kZeros : sequence_.load();
  }
}

void Volume::apply_edit(Edit &edit) {
  const View &view = edit.view;
  change_generations(edit);
  bool all_stored = true;
  whole([&] {
    std::vector<Stored> stored;
    if (!edit.clears) stored = edit.fresh;
    if (!edit.delayed) store_or_clear_parity(view, stored);
    all_stored = store(view, stored);
    if (edit.clears)
      for (const Stored &each : edit.fresh) clear(view, each.part);
  });
  check_enough_members();
  if (edit.delayed && !all_stored)
    fail(TANDEM_ERROR_NOT_RECOVERABLE, "a member was lost while stripe ", view.stripe,
         " was written, which lies in a window of delayed parity: its bytes are lost");
}

// Adds the parity of rows that hold data to `stored`, and clears that of the others, which is zeros.
void Volume::store_or_clear_parity(const View &view, std::vector<Stored> &stored) {
  const auto holds_something = [&](std::uint32_t row) {
    return !is_zeros(view.generations[view.at(geometry().k, row)]);
  };
  for (std::uint32_t begin = 0, end; begin < view.count; begin = end) {
    const bool holds = holds_something(begin);
    for (end = begin + 1; end < view.count && holds_something(end) == holds;) ++end;
    for (std::uint32_t column = geometry().k; column < members_->count(); ++column) {
      if (holds)
        stored.push_back({{column, begin, end}, view.block(column, begin)});
      else
        clear(view, {column, begin, end});
    }
  }
}

// If a crash must bring back the old content of a block, the new content goes to its place after the commit. Other
// blocks are written in place at once: after a crash their entries still say that they hold nothing, or what an old
// copy holds.
bool Volume::store(const View &view, std::span<const Stored> parts) {
  std::atomic<bool> all{true};
  const std::uint64_t sequence = sequence_;
  const auto store_part = [&](std::size_t index) {
    const auto [column, begin, end] = parts[index].part;
    const std::byte *const from = parts[index].from;
    const std::uint32_t member = member_of(view, column);
    if (!members_->is_usable(member)) {
      all = false;
      return;
    }
    std::vector<Entry> entries(end - begin);
    std::vector<bool> in_place(end - begin);
    for (std::uint32_t row = begin; row < end; ++row) {
      const std::uint64_t number = block_of(view, row), old = view.entries[view.at(column, row)].generation,
                          generation = view.generations[view.at(column, row)];
      const std::byte *const payload = from + (row - begin) * kBlockBytes;
      entries[row - begin] = {seed_->block(member, number, generation, payload), generation,
                              word_of(view, column, row)};
      in_place[row - begin] = (is_zeros(old) || old == kUnknown || old == sequence) && !pending_.find(member, number);
      if (!in_place[row - begin]) pending_.put(member, number, payload);
    }
    for (std::uint32_t i = 0, next; i < end - begin; i = next) {
      for (next = i + 1; next < end - begin && in_place[next] == in_place[i];) ++next;
      if (in_place[i] && !members_->write(member, kind_of(column), geometry().block_offset(block_of(view, begin + i)),
                                          from + i * kBlockBytes, (next - i) * kBlockBytes))
        all = false;
    }
    change_entries(view, column, begin, end - begin, entries.data());
  };
  crew_->run(parts.size(), store_part, members_->all_cached() ? base::Crew::Tasks::compute : base::Crew::Tasks::wait);
  return all;
}

void Volume::clear(const View &view, const Part &part) {
  const auto [column, begin, end] = part;
  const std::uint32_t member = member_of(view, column);
  if (!members_->is_usable(member)) return;
  std::vector<Entry> entries;
  for (std::uint32_t row = begin; row < end; ++row) {
    const std::uint64_t number = block_of(view, row), old = view.entries[view.at(column, row)].generation;
    entries.push_back({0, view.generations[view.at(column, row)], word_of(view, column, row)});
    if (is_zeros(old) || old == kUnknown) continue;
    if (old != sequence_ || pending_.find(member, number)) pending_.put_hole(member, number);
  }
  if (!std::equal(entries.begin(), entries.end(), &view.entries[view.at(column, begin)]))
    change_entries(view, column, begin, end - begin, entries.data());
}

std::uint64_t Volume::word_of(const View &view, std::uint32_t column, std::uint32_t row) const {
  return column < geometry().k ? 0 : view.words[view.at(column - geometry().k, row)];
}

void Volume::change_entries(const View &view, std::uint32_t column, std::uint32_t row, std::uint32_t count,
                            const Entry *entries) {
  const std::uint32_t member = member_of(view, column);
  if (members_->is_usable(member)) table_->set(member, block_of(view, row), count, entries);
}

}  // namespace tandem::volume
