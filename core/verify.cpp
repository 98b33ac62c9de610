// SPDX-License-Identifier: Apache-2.0
#include "core/verify.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/rounding.hpp"
#include "core/gf.hpp"
#include "core/mismatch_ranges.hpp"

namespace tandem::core {
namespace {

// The bytes that have the bits of one element, and for packets which bit of each.
struct ElementPlace {
  std::vector<std::uint64_t> bytes;
  unsigned first_bit = 0, bit_count = 8;  // of each byte
};

// The place of the element that has the byte `at`, or for packets its bit `bit`.
ElementPlace place_of(const Codec &codec, const Task &task, std::uint64_t at, unsigned bit) {
  const std::uint64_t from_begin = at - task.offset_bytes;
  if (const auto &packets = codec.packets()) {
    ElementPlace place{{}, bit, 1};
    const std::uint64_t first =
        at - from_begin % (packets->word_bits * packets->packet_bytes) + from_begin % packets->packet_bytes;
    for (unsigned i = 0; i < packets->word_bits; ++i) place.bytes.push_back(first + i * packets->packet_bytes);
    return place;
  }
  if (codec.field() == Field::gf8) return {{at}};
  if (codec.layout() == Layout::words) return {{at - at % 2, at - at % 2 + 1}};
  const std::uint64_t end = task.offset_bytes + task.length_bytes, unit = granularity_of(codec.layout());
  const std::uint64_t begin = at - from_begin % unit, half = std::min(unit, end - begin) / 2;
  const std::uint64_t low = begin + from_begin % unit % half;
  return {{low, low + half}};
}

// One element of each shard, data first.
std::vector<Element> read_elements(const Plan &plan, const Task &task, const ElementPlace &place) {
  const unsigned k = plan.codec().k(), size = element_bytes(task.prepared->field());
  std::vector<std::uint8_t> column(std::size_t{plan.codec().shard_count()} * size);
  std::vector<Element> elements(plan.codec().shard_count());
  const unsigned mask = (1u << place.bit_count) - 1;
  for (std::size_t i = 0; i < place.bytes.size(); ++i) {
    // A column begins at a whole element of the operator's field.
    const std::uint64_t at = place.bytes[i] - place.bytes[i] % size;
    plan.backend().read_column(task, at, column.data(), column.data() + std::size_t{k} * size);
    for (std::size_t shard = 0; shard < elements.size(); ++shard) {
      const unsigned bits = column[shard * size + place.bytes[i] % size] >> place.first_bit & mask;
      elements[shard] = static_cast<Element>(elements[shard] | bits << i * place.bit_count);
    }
  }
  const auto &packets = plan.codec().packets();
  if (packets && packets->word_bits == 4)
    for (Element &each : elements) each = gf::kSubfield4.element[each];
  return elements;
}

// Stored parity xor recomputed parity of some rows, for the element at one place.
std::vector<Element> syndromes_of(const Codec &codec, std::span<const std::uint16_t> rows,
                                  std::span<const Element> elements) {
  std::vector<Element> syndromes;
  for (const std::uint16_t r : rows) {
    Element sum = elements[codec.k() + r];
    for (unsigned c = 0; c < codec.k(); ++c) sum ^= codec.multiply(codec.coefficient(r, c), elements[c]);
    syndromes.push_back(sum);
  }
  return syndromes;
}

// The shard that explains the differences at the byte `at`. `bad_row`: a row that differs there. In GF(2^16) a few more
// rows distinguish a damaged data shard from damaged parity and from most others: its codes may have thousands.
std::uint32_t candidate_at(const Plan &plan, const Task &task, std::uint64_t at, std::uint16_t bad_row) {
  constexpr std::size_t kMostRows16 = 16;
  const Codec &codec = plan.codec();
  Indices rows(codec.m());
  std::iota(rows.begin(), rows.end(), std::uint16_t{0});
  if (codec.field() == Field::gf16 && !codec.packets()) {
    std::erase(rows, bad_row);
    rows.resize(std::min(rows.size(), kMostRows16));
    rows.push_back(bad_row);
  }
  std::vector<Element> syndromes;
  const unsigned bit_count = codec.packets() ? 8 : 1;
  for (unsigned bit = 0; bit < bit_count; ++bit) {
    syndromes = syndromes_of(codec, rows, read_elements(plan, task, place_of(codec, task, at, bit)));
    if (std::ranges::any_of(syndromes, [](Element each) { return each != 0; })) break;
  }
  return codec.locate(rows, syndromes);
}

// Whether everything is consistent once data shard `suspect` is ignored: rebuild the other parity from one parity shard
// that depends on it and from the other data, and compare.
bool is_consistent_without(const Plan &plan, unsigned suspect, const Task &task, Control &control) {
  const Codec &codec = plan.codec();
  const unsigned k = codec.k();
  unsigned pivot = 0;
  while (pivot < codec.m() && codec.coefficient(pivot, suspect) == 0) ++pivot;
  if (pivot == codec.m()) return false;
  ShardSet present, wanted;
  for (unsigned i = 0; i < codec.shard_count(); ++i) {
    if ((i < k && i != suspect) || i == k + pivot) present.set(i);
    if (i >= k && i != k + pivot) wanted.set(i);
  }
  const auto rest = codec.solve(present, wanted);
  const auto prepared = plan.backend().prepare(rest->what);
  std::vector<const std::byte *> inputs;
  std::vector<std::byte *> outputs;
  std::vector<std::uint64_t> input_offsets, output_offsets;
  for (const std::uint16_t shard : rest->inputs) {
    inputs.push_back(shard < k ? task.inputs[shard] : task.outputs[shard - k]);
    if (task.input_offsets != nullptr)
      input_offsets.push_back(shard < k ? task.input_offsets[shard] : task.output_offsets[shard - k]);
  }
  for (const std::uint16_t shard : rest->outputs) {
    outputs.push_back(task.outputs[shard - k]);
    if (task.output_offsets != nullptr) output_offsets.push_back(task.output_offsets[shard - k]);
  }
  std::vector<Mismatch> found(outputs.size());
  Task rest_of = task;
  rest_of.prepared = prepared.get();
  rest_of.inputs = inputs.data();
  rest_of.outputs = outputs.data();
  if (task.input_offsets != nullptr) rest_of.input_offsets = input_offsets.data();
  if (task.output_offsets != nullptr) rest_of.output_offsets = output_offsets.data();
  rest_of.mismatches = found.data();
  rest_of.ranges = nullptr;
  plan.backend().run({&rest_of, 1}, control);
  return std::ranges::all_of(found, [](const Mismatch &each) { return each.byte_count == 0; });
}

// Tiles of the second look: large ones first, to find the parts that need small ones.
constexpr std::uint64_t kLargeTileBytes = 256 << 10, kSmallTileBytes = 4 << 10;
constexpr std::size_t kFewTiles = 4, kManyTiles = 64;  // in one run

class SecondLook {
 public:
  SecondLook(const Plan &plan, const Task &task, Control &control)
      : backend_(plan.backend()),
        control_(control),
        rows_(task.prepared->rows()),
        large_(rounded(kLargeTileBytes, task)),
        small_(rounded(kSmallTileBytes, task)),
        collector_(rows_, task.ranges->capacity) {
    take(task);
    collector_.merge_into(*task.ranges);
  }

 private:
  static std::uint64_t rounded(std::uint64_t bytes, const Task &task) {
    return base::round_up(bytes, task.prepared->granularity_bytes());
  }

  // Records the differences in a part of the shards, or looks closer. Returns how many bytes differ.
  std::uint64_t take(const Task &part) {
    const std::uint64_t part_end = part.offset_bytes + part.length_bytes;
    // One byte, or all bytes from the first one to the end: no closer look is needed.
    const auto end_of = [&](const Mismatch &one) { return one.byte_count == 1 ? one.first_bytes + 1 : part_end; };
    Mismatch all;
    bool is_exact = true;
    for (unsigned r = 0; r < rows_; ++r) {
      const Mismatch &one = part.mismatches[r];
      all.merge(one);
      is_exact = is_exact && (one.byte_count == 0 || end_of(one) - one.first_bytes == one.byte_count);
    }
    if (!is_exact && part.length_bytes > small_) {
      look(part, part.length_bytes > large_ ? large_ : small_, all);
      return all.byte_count;
    }
    for (unsigned r = 0; r < rows_; ++r) {
      const Mismatch &one = part.mismatches[r];
      if (one.byte_count != 0) collector_.add(r, part.offset_bytes, one.first_bytes, end_of(one), one.byte_count);
    }
    return all.byte_count;
  }

  // Compares in tiles, from the first byte that differs on until all were found.
  void look(const Task &part, std::uint64_t tile_bytes, const Mismatch &all) {
    const std::uint64_t end = part.offset_bytes + part.length_bytes;
    std::uint64_t begin = all.first_bytes - (all.first_bytes - part.offset_bytes) % tile_bytes, left = all.byte_count;
    std::vector<Task> tiles;
    std::vector<Mismatch> found;
    for (std::size_t most = kFewTiles; begin < end && left != 0; most = std::min(2 * most, kManyTiles)) {
      tiles.clear();
      found.assign(most * rows_, {});
      for (; begin < end && tiles.size() < most; begin += tiles.back().length_bytes) {
        Task tile = part;
        tile.offset_bytes = begin;
        tile.length_bytes = std::min(tile_bytes, end - begin);
        tile.mismatches = found.data() + tiles.size() * rows_;
        tile.ranges = nullptr;
        tiles.push_back(tile);
      }
      backend_.run(tiles, control_);
      for (const Task &tile : tiles) left -= std::min(left, take(tile));
    }
  }

  Backend &backend_;
  Control &control_;
  const unsigned rows_;
  const std::uint64_t large_, small_;
  RangeCollector collector_;
};

}  // namespace

void find_ranges(const Plan &plan, const Task &task, Control &control) {
  if (!task.ranges->is_filled) SecondLook(plan, task, control);
}

VerifyReport explain(const Plan &plan, const Task &task, Control &control) {
  const Mismatch *mismatches = task.mismatches;
  VerifyReport report;
  std::uint64_t first = Mismatch::kNone;
  unsigned last_bad_row = 0;
  for (unsigned r = 0; r < plan.outputs().size(); ++r) {
    if (mismatches[r].byte_count == 0) continue;
    ++report.bad_parity_count;
    report.mismatch_byte_count += mismatches[r].byte_count;
    last_bad_row = r;
    if (mismatches[r].first_bytes < first) {
      first = mismatches[r].first_bytes;
      report.first_bad_shard = plan.outputs()[r];
    }
  }
  if (report.bad_parity_count == 0) return report;
  report.first_mismatch_bytes = first;

  const Codec &codec = plan.codec();
  if (codec.m() < 2) return report;
  const std::uint32_t candidate =
      candidate_at(plan, task, first, static_cast<std::uint16_t>(report.first_bad_shard - codec.k()));
  if (candidate == TANDEM_SHARD_NONE) return report;
  const auto is_confirmed = [&] {
    if (candidate >= codec.k()) return report.bad_parity_count == 1 && plan.outputs()[last_bad_row] == candidate;
    try {
      return is_consistent_without(plan, candidate, task, control);
    } catch (const base::Error &error) {
      // The findings so far are valid all the same. A GPU's queue may be captured by now, and then no compare can run.
      if (error.status() != TANDEM_ERROR_UNSUPPORTED) throw;
      return false;
    }
  };
  if (is_confirmed()) report.suspect_shard = candidate;
  return report;
}

}  // namespace tandem::core
