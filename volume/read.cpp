// SPDX-License-Identifier: Apache-2.0
// Reading: blocks from members, checked with the table, or computed from the others of their row.

#include <algorithm>

#include "base/rounding.hpp"
#include "volume/engine.hpp"

namespace tandem::volume {
namespace {

constexpr std::int64_t kMostSpareBlocks = 4096;

}  // namespace

void Volume::load_entries(View &view) {
  const std::uint64_t first = block_of(view, 0);
  std::vector<std::uint32_t> missing;
  for (std::uint32_t column = 0; column < members_->count(); ++column)
    if (!table_->try_get(member_of(view, column), first, view.count, &view.entries[view.at(column, 0)]))
      missing.push_back(column);
  crew_->run(missing.size(), [&](std::size_t i) {
    table_->get(member_of(view, missing[i]), first, view.count, &view.entries[view.at(missing[i], 0)]);
  });
  if (is_delayed(view.stripe)) {  // its parity, and the words there, do not match its data
    for (std::size_t i = 0; i < view.entries.size(); ++i) view.generations[i] = view.entries[i].generation;
    return;
  }
  const auto is_old = [&](std::uint32_t column) { return members_->is_old(member_of(view, column)); };
  if (!generations_->judge(view, is_old)) return;
  for (std::uint32_t column = 0; column < members_->count(); ++column)
    for (std::uint32_t row = 0; row < view.count; ++row)
      if (view.stale[view.at(column, row)]) members_->set_old(member_of(view, column), true);
}

void Volume::fetch(View &view, std::span<const Part> parts) {
  crew_->run(parts.size(), [&](std::size_t i) { fetch_part(view, parts[i]); });
  if (std::ranges::find(view.have, Have::bad) != view.have.end()) recover(view, WriteBack::yes);
}

void Volume::fetch_part(View &view, const Part &part) {
  const std::uint32_t column = part.column, member = member_of(view, column);
  // Blocks of zeros, and blocks still in memory, need no I/O.
  std::vector<std::uint32_t> on_disk;
  for (std::uint32_t row = part.begin; row < part.end; ++row) {
    Have &have = view.have[view.at(column, row)];
    if (have != Have::none) continue;
    const Entry &entry = view.entries[view.at(column, row)];
    if (view.contradicts[row]) {
      have = Have::lost;
    } else if (is_zeros(view.generations[view.at(column, row)])) {
      std::memset(view.block(column, row), 0, kBlockBytes);
      have = Have::good;
    } else if (entry.generation == kUnknown) {
      have = Have::bad;
    } else if (const auto payload = pending_.find(member, block_of(view, row)); payload && *payload) {
      std::memcpy(view.block(column, row), (*payload)->data(), kBlockBytes);
      have = Have::good;
    } else {
      on_disk.push_back(row);
    }
  }
  for (std::size_t i = 0, end; i < on_disk.size(); i = end) {
    for (end = i + 1; end < on_disk.size() && on_disk[end] == on_disk[end - 1] + 1;) ++end;
    const std::uint32_t first = on_disk[i], count = static_cast<std::uint32_t>(end - i);
    const bool is_read = members_->read(member, kind_of(column), geometry().block_offset(block_of(view, first)),
                                        view.block(column, first), std::size_t{count} * kBlockBytes);
    for (std::uint32_t row = first; row < first + count; ++row) {
      const Entry &entry = view.entries[view.at(column, row)];
      const bool good = is_read && entry.checksum == seed_->block(member, block_of(view, row), entry.generation,
                                                                  view.block(column, row));
      if (is_read && !good) members_->count_bad_block(member);
      view.have[view.at(column, row)] = good ? Have::good : Have::bad;
    }
  }
}

// Computes what slow members hold from k others, while that many extra blocks may be read. Nothing is mended or noted.
// What it leaves, fetch() reads as usual.
void Volume::fetch_around_slow(View &view, std::span<const Part> parts) {
  const std::uint32_t n = members_->count(), k = geometry().k;
  const auto is_on_disk = [&](const Part &part) {
    for (std::uint32_t row = part.begin; row < part.end; ++row) {
      const std::uint64_t generation = view.entries[view.at(part.column, row)].generation;
      if (view.contradicts[row] || view.stale[view.at(part.column, row)] || generation == kUnknown ||
          is_zeros(generation) || pending_.find(member_of(view, part.column), block_of(view, row)))
        return false;
    }
    return true;
  };
  std::vector<Part> around, from;
  std::uint32_t begin = view.count, end = 0;
  for (const Part &part : parts) {
    if (!members_->is_slow(member_of(view, part.column)) || !is_on_disk(part)) continue;
    around.push_back(part);
    begin = std::min(begin, part.begin);
    end = std::max(end, part.end);
  }
  if (around.empty() || is_delayed(view.stripe)) return;
  for (std::uint32_t column = 0; column < n && from.size() < k; ++column)
    if (const std::uint32_t member = member_of(view, column); members_->state(member) == TANDEM_VOLUME_MEMBER_CURRENT &&
                                                              !members_->is_slow(member) && !members_->is_old(member))
      from.push_back({column, begin, end});
  const std::int64_t extra = std::int64_t{k} * (end - begin);
  if (from.size() < k || (end - begin) * kBlockBytes > Members::kMostTimedBytes || spare_blocks_ < extra ||
      !members_->avoids(member_of(view, around[0].column)))
    return;
  if (spare_blocks_.fetch_sub(extra) < extra) {  // another read was first
    spare_blocks_ += extra;
    return;
  }
  crew_->run(from.size(), [&](std::size_t i) { fetch_part(view, from[i]); });

  std::vector<void *> shards(n);
  std::vector<std::uint8_t> present(n);
  for (const Part &part : from) {
    for (std::uint32_t row = begin; row < end; ++row)
      if (view.have[view.at(part.column, row)] != Have::good) return;
    shards[part.column] = view.block(part.column, begin);
    present[part.column] = 1;
  }
  for (const Part &part : around) shards[part.column] = view.block(part.column, begin);
  if (tandem_decode(settings_.context, codec_.get(), shards.data(), present.data(), (end - begin) * kBlockBytes) !=
      TANDEM_OK)
    return;
  for (const Part &part : around)
    for (std::uint32_t row = part.begin; row < part.end; ++row) {
      const Entry &entry = view.entries[view.at(part.column, row)];
      if (entry.checksum != seed_->block(member_of(view, part.column), block_of(view, row), entry.generation,
                                         view.block(part.column, row)))
        continue;
      view.have[view.at(part.column, row)] = Have::good;
      ++avoided_;
    }
}

// Computes the bad blocks of every row that has one.
void Volume::recover(View &view, WriteBack write_back) {
  const std::uint32_t n = members_->count();
  const auto row_has_bad = [&](std::uint32_t row) {
    for (std::uint32_t column = 0; column < n; ++column)
      if (view.have[view.at(column, row)] == Have::bad) return true;
    return false;
  };
  if (is_delayed(view.stripe)) {  // its parity does not match its data
    for (Have &have : view.have)
      if (have == Have::bad) have = Have::lost;
    view.unprotected = true;
    return;
  }
  for (std::uint32_t begin = 0, end; begin < view.count; begin = end) {
    end = begin + 1;
    if (!row_has_bad(begin)) continue;
    while (end < view.count && row_has_bad(end)) ++end;
    std::vector<Part> others;
    for (std::uint32_t column = 0; column < n; ++column) others.push_back({column, begin, end});
    crew_->run(others.size(), [&](std::size_t i) { fetch_part(view, others[i]); });
    const auto pattern_is_same = [&](std::uint32_t a, std::uint32_t b) {
      for (std::uint32_t column = 0; column < n; ++column)
        if (view.have[view.at(column, a)] != view.have[view.at(column, b)]) return false;
      return true;
    };
    for (std::uint32_t from = begin, to; from < end; from = to) {
      for (to = from + 1; to < end && pattern_is_same(from, to);) ++to;
      if (row_has_bad(from)) decode_rows(view, from, to, write_back);
    }
  }
}

// Rows with the same bad columns.
void Volume::decode_rows(View &view, std::uint32_t begin, std::uint32_t end, WriteBack write_back) {
  const std::uint32_t n = members_->count();
  std::vector<void *> shards(n);
  std::vector<std::uint8_t> present(n);
  for (std::uint32_t column = 0; column < n; ++column) {
    shards[column] = view.block(column, begin);
    present[column] = view.have[view.at(column, begin)] == Have::good;
  }
  const tandem_status status =
      tandem_decode(settings_.context, codec_.get(), shards.data(), present.data(), (end - begin) * kBlockBytes);
  if (status != TANDEM_OK && status != TANDEM_ERROR_NOT_RECOVERABLE) check(status);
  for (std::uint32_t column = 0; column < n; ++column) {
    if (present[column]) continue;
    const std::uint32_t member = member_of(view, column);
    for (std::uint32_t row = begin; row < end; ++row) {
      Have &have = view.have[view.at(column, row)];
      const Entry &entry = view.entries[view.at(column, row)];
      const std::uint64_t number = block_of(view, row);
      const bool known = entry.generation != kUnknown;
      const bool good =
          status == TANDEM_OK &&
          (!known || entry.checksum == seed_->block(member, number, entry.generation, view.block(column, row)));
      have = good ? Have::good : Have::lost;
      if (status == TANDEM_OK && !good) view.contradicts[row] = true;
      if (!good) continue;
      ++degraded_reads_;
      if (known && write_back == WriteBack::yes && !settings_.read_only &&
          members_->write(member, kind_of(column), geometry().block_offset(number), view.block(column, row),
                          kBlockBytes))
        ++mended_;
    }
  }
  // A block that does not have its checksum was computed from a wrong one. So were the others of its row.
  for (std::uint32_t row = begin; row < end; ++row)
    for (std::uint32_t column = 0; view.contradicts[row] && column < n; ++column)
      if (!present[column]) view.have[view.at(column, row)] = Have::lost;
}

void Volume::require(const View &view, std::span<const Part> parts) const {
  for (const Part &part : parts)
    for (std::uint32_t row = part.begin; row < part.end; ++row) {
      if (view.have[view.at(part.column, row)] == Have::good) continue;
      std::uint32_t good = 0;
      for (std::uint32_t column = 0; column < members_->count(); ++column)
        good += view.have[view.at(column, row)] == Have::good;
      const std::uint64_t in_unit = std::uint64_t{view.first + row} * kBlockBytes;
      if (view.contradicts[row])
        fail(TANDEM_ERROR_NOT_RECOVERABLE, "the blocks of row ", view.first + row, " of stripe ", view.stripe,
             " contradict each other, though their checksums are right: some are old, and it cannot be told which");
      if (part.column >= geometry().k)
        fail(TANDEM_ERROR_NOT_RECOVERABLE, "parity ", part.column - geometry().k, " of row ", view.first + row,
             " of stripe ", view.stripe, " is lost: ", good, " blocks of the row are left, ", geometry().k,
             " are needed");
      const std::uint64_t begin =
          view.stripe * geometry().stripe_bytes() + std::uint64_t{part.column} * geometry().unit_bytes + in_unit;
      if (view.unprotected)
        fail(TANDEM_ERROR_NOT_RECOVERABLE, "bytes ", begin, " to ", begin + kBlockBytes - 1,
             " are unprotected and lost: member ", member_of(view, part.column),
             " does not have them, and they lie in a window of delayed parity");
      fail(TANDEM_ERROR_NOT_RECOVERABLE, "bytes ", begin, " to ", begin + kBlockBytes - 1, " are lost: ", good,
           " blocks of their row are left, ", geometry().k, " are needed");
    }
}

void Volume::read_stripe(std::uint64_t stripe, std::uint64_t begin, std::uint64_t end, std::byte *to) {
  const std::uint64_t unit = geometry().unit_bytes;
  const auto first_column = static_cast<std::uint32_t>(begin / unit),
             last_column = static_cast<std::uint32_t>((end - 1) / unit);
  std::uint32_t first = 0, last = geometry().rows();
  if (first_column == last_column) {
    first = static_cast<std::uint32_t>(begin % unit / kBlockBytes);
    last = static_cast<std::uint32_t>((end - 1) % unit / kBlockBytes) + 1;
  }
  bool met_unknown = false;
  {
    const std::shared_lock lock(lock_of(stripe));
    View view(*spares_, geometry(), stripe, first, last - first);
    load_entries(view);
    std::vector<Part> parts;
    struct Copy {
      const std::byte *from;
      std::byte *to;
      std::size_t bytes;
    };
    std::vector<Copy> copies;
    for (std::uint32_t column = first_column; column <= last_column; ++column) {
      const std::uint64_t start = column * unit, from = std::max(begin, start), until = std::min(end, start + unit);
      const auto first_row = static_cast<std::uint32_t>((from - start) / kBlockBytes),
                 end_row = static_cast<std::uint32_t>(base::divide_up(until - start, kBlockBytes));
      parts.push_back({column, first_row - first, end_row - first});
      if (until - from == std::uint64_t{view.count} * kBlockBytes)
        view.columns[column] = to + (from - begin);
      else
        copies.push_back({view.columns[column] + (from - start - std::uint64_t{first} * kBlockBytes),
                          to + (from - begin), until - from});
    }
    fetch_around_slow(view, parts);
    fetch(view, parts);
    require(view, parts);
    for (const Copy &copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
    for (const Part &part : parts)
      for (std::uint32_t row = part.begin; row < part.end; ++row)
        met_unknown = met_unknown ||
                      (view.entries[view.at(part.column, row)].generation == kUnknown &&
                       !view.stale[view.at(part.column, row)] && members_->is_usable(member_of(view, part.column)));
  }
  if (!met_unknown || settings_.read_only || session_would_make_stale()) return;
  try {
    begin_session();
    tandem_volume_care_result ignored{};
    repair_stripe(stripe, Mends::missing, &ignored);
  } catch (const Error &) {  // the bytes were read; the next write reports the error
  }
}

void Volume::read(std::uint64_t offset, std::byte *to, std::uint64_t bytes) {
  check_inside(offset, bytes);
  check_enough_members();
  const std::uint64_t stripe_bytes = geometry().stripe_bytes();
  while (bytes != 0) {
    const std::uint64_t begin = offset % stripe_bytes, here = std::min(bytes, stripe_bytes - begin);
    // Reads for others than the slow members are at most as many again as those of the callers.
    if (spare_blocks_ < kMostSpareBlocks)
      spare_blocks_ += static_cast<std::int64_t>(base::divide_up(here, std::uint64_t{kBlockBytes}));
    read_stripe(offset / stripe_bytes, begin, begin + here, to);
    offset += here;
    to += here;
    bytes -= here;
  }
}

std::vector<tandem_volume_extent> Volume::extents(std::uint64_t offset, std::uint64_t bytes, std::size_t most) {
  check_inside(offset, bytes);
  std::vector<tandem_volume_extent> found;
  const std::uint64_t end = offset + bytes, unit = geometry().unit_bytes;
  while (offset < end) {
    const std::uint64_t stripe = offset / geometry().stripe_bytes();
    const std::shared_lock lock(lock_of(stripe));
    View view(*spares_, geometry(), stripe, 0, geometry().rows());
    load_entries(view);
    do {
      const auto column = static_cast<std::uint32_t>(offset % geometry().stripe_bytes() / unit);
      const auto row = static_cast<std::uint32_t>(offset % unit / kBlockBytes);
      const bool written = view.contradicts[row] || !is_zeros(view.generations[view.at(column, row)]);
      const std::uint64_t until = std::min(end, offset - offset % kBlockBytes + kBlockBytes);
      if (!found.empty() && found.back().written == static_cast<std::uint32_t>(written)) {
        found.back().end_bytes = until;
      } else {
        if (found.size() == most) return found;
        found.push_back({offset, until, static_cast<std::uint32_t>(written), 0});
      }
      offset = until;
    } while (offset < end && offset / geometry().stripe_bytes() == stripe);
  }
  return found;
}

}  // namespace tandem::volume
