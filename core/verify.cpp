#include "core/verify.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.hpp"
#include "core/codec16.hpp"
#include "core/gf.hpp"
#include "core/mismatch_ranges.hpp"

namespace tandem::core {
namespace {

// Stored parity xor recomputed parity, for the elements that hold the byte `at`.
std::vector<Element> syndrome(const Plan &plan, const Task &task, std::uint64_t at) {
  const Matrix &parity = plan.codec().parity();
  const unsigned size = element_bytes(task.prepared->field());
  std::vector<std::uint8_t> column(std::size_t{parity.columns()} * size), stored(std::size_t{parity.rows()} * size);
  plan.backend().read_column(task, at - at % size, column.data(), stored.data());
  const auto element = [size](const std::vector<std::uint8_t> &of, std::size_t index) {
    unsigned value = 0;
    for (unsigned i = size; i-- != 0;) value = value << 8 | of[index * size + i];  // the lowest byte is first
    return value;
  };
  std::vector<Element> result(parity.rows());
  for (unsigned r = 0; r < parity.rows(); ++r) {
    unsigned sum = element(stored, r);
    for (unsigned c = 0; c < parity.columns(); ++c)
      sum ^= gf::multiply(parity.at(r, c), static_cast<std::uint8_t>(element(column, c)));
    result[r] = static_cast<Element>(sum);
  }
  return result;
}

// For shards in packets: the elements that have bit `bit` of the byte `at` among their bits.
struct PacketElements {
  PacketElements(const PacketLayout &packets, const Task &task, std::uint64_t at)
      : word_bits(packets.word_bits), packet_bytes(packets.packet_bytes) {
    const std::uint64_t group_bytes = word_bits * packet_bytes, begin = task.offset_bytes;
    first = at - (at - begin) % group_bytes + (at - begin) % packet_bytes;
  }
  unsigned operator()(const std::byte *shard) const {
    unsigned element = 0;
    for (unsigned i = 0; i < word_bits; ++i)
      element |= (std::to_integer<unsigned>(shard[first + i * packet_bytes]) >> bit & 1) << i;
    return element;
  }

  unsigned word_bits;
  std::uint64_t packet_bytes, first;
  unsigned bit = 0;
};

// Stored parity xor recomputed parity, of elements in packets, for all rows.
std::vector<Element> packet_syndrome(const Plan &plan, const Task &task, std::uint64_t at) {
  const Codec &codec = plan.codec();
  PacketElements element(*codec.packets(), task, at);
  const auto number = [&](unsigned value) {
    return static_cast<Element>(element.word_bits == 4 ? gf::kSubfield4.element[value] : value);
  };
  const auto product = [&](unsigned r, unsigned c) {
    const Element value = number(element(task.inputs[c]));
    return codec.codec16() != nullptr
               ? codec.codec16()->field().multiply(codec.codec16()->coefficient(r, c), value)
               : Element{gf::multiply(codec.parity().at(r, c), static_cast<std::uint8_t>(value))};
  };
  std::vector<Element> result(codec.m());
  for (element.bit = 0; element.bit < 8; ++element.bit) {
    for (unsigned r = 0; r < codec.m(); ++r) {
      result[r] = number(element(task.outputs[r]));
      for (unsigned c = 0; c < codec.k(); ++c) result[r] ^= product(r, c);
    }
    if (std::ranges::any_of(result, [](Element each) { return each != 0; })) break;
  }
  return result;
}

// Stored parity xor recomputed parity of some rows, in GF(2^16): rows that a damaged data shard affects.
struct Syndromes16 {
  std::vector<std::uint16_t> rows;
  std::vector<Element> values;
};

// The places of the bytes of the element that has the byte `at`.
std::array<std::uint64_t, 2> element_at(Layout layout, const Task &task, std::uint64_t at) {
  if (layout == Layout::words) return {at - at % 2, at - at % 2 + 1};
  const std::uint64_t end = task.offset_bytes + task.length_bytes, unit = granularity_of(layout);
  const std::uint64_t begin = at - (at - task.offset_bytes) % unit, half = std::min(unit, end - begin) / 2;
  const std::uint64_t low = begin + (at - begin) % half;
  return {low, low + half};
}

// `bad_row`: a row that differs. A few more rows distinguish a damaged data shard from damaged parity and from most
// others.
Syndromes16 syndromes16(const Plan &plan, const Task &task, std::uint64_t at, unsigned bad_row) {
  constexpr unsigned kMostRows = 16;
  const Codec16 &codec = *plan.codec().codec16();
  const auto places = element_at(codec.layout(), task, at);
  const auto element = [&](const std::byte *shard) {
    return std::to_integer<unsigned>(shard[places[0]]) | std::to_integer<unsigned>(shard[places[1]]) << 8;
  };
  Syndromes16 result;
  for (unsigned r = 0; r < plan.codec().m() && result.rows.size() < kMostRows; ++r)
    if (r != bad_row) result.rows.push_back(static_cast<std::uint16_t>(r));
  result.rows.push_back(static_cast<std::uint16_t>(bad_row));
  for (const std::uint16_t r : result.rows) {
    unsigned sum = element(task.outputs[r]);
    for (unsigned c = 0; c < plan.codec().k(); ++c)
      sum ^= codec.field().multiply(codec.coefficient(r, c), static_cast<std::uint16_t>(element(task.inputs[c])));
    result.values.push_back(static_cast<Element>(sum));
  }
  return result;
}

// Whether the outputs of `task` are those of `what`.
bool is_consistent(const Plan &plan, const Operator &what, Task task, Control &control) {
  const auto prepared = plan.backend().prepare(what);
  std::vector<Mismatch> found(what.output_count());
  task.prepared = prepared.get();
  task.mismatches = found.data();
  task.ranges = nullptr;
  plan.backend().run({&task, 1}, control);
  return std::all_of(found.begin(), found.end(), [](const Mismatch &each) { return each.byte_count == 0; });
}

// As consistent_without: rebuild the other parity from one parity shard and the data without `suspect`, and compare.
bool consistent_without16(const Plan &plan, unsigned suspect, const Task &task, Control &control) {
  const Codec &codec = plan.codec();
  const unsigned k = codec.k();
  unsigned pivot = 0;
  while (pivot < codec.m() && codec.codec16()->coefficient(pivot, suspect) == 0) ++pivot;
  if (pivot == codec.m()) return false;
  ShardSet present, wanted;
  for (unsigned i = 0; i < codec.shard_count(); ++i) {
    if ((i < k && i != suspect) || i == k + pivot) present.set(i);
    if (i >= k && i != k + pivot) wanted.set(i);
  }
  const auto rest = codec.solve(present, wanted);
  std::vector<const std::byte *> inputs;
  std::vector<std::byte *> outputs;
  for (const std::uint16_t shard : rest->inputs) inputs.push_back(shard < k ? task.inputs[shard] : task.outputs[pivot]);
  for (const std::uint16_t shard : rest->outputs) outputs.push_back(task.outputs[shard - k]);
  Task rest_of = task;
  rest_of.inputs = inputs.data();
  rest_of.outputs = outputs.data();
  return is_consistent(plan, rest->what, rest_of, control);
}

// In bytes: with the granularity of the backend, which may be more than the codec's.
Operator codec_operator(const Plan &plan, Matrix rows) {
  if (plan.codec().packets()) return plan.codec().operator_of(std::move(rows));
  return {std::move(rows), plan.prepared().granularity_bytes()};
}

// Whether everything is consistent once data shard `suspect` is ignored: solve one parity equation for it and put that
// into the others. parity[r] = sum over c != suspect of (M[r][c] + q * M[pivot][c]) * data[c] + q * parity[pivot], q =
// M[r][suspect] / M[pivot][suspect].
bool consistent_without(const Plan &plan, unsigned suspect, const Task &task, Control &control) {
  const Matrix &parity = plan.codec().parity();
  unsigned pivot = 0;
  while (pivot < parity.rows() && parity.at(pivot, suspect) == 0) ++pivot;
  if (pivot == parity.rows()) return false;

  Matrix rest(parity.rows() - 1, parity.columns());  // the suspect's column becomes the pivot parity's
  std::vector<const std::byte *> inputs(task.inputs, task.inputs + parity.columns());
  inputs[suspect] = task.outputs[pivot];
  std::vector<std::byte *> outputs;
  std::vector<std::uint64_t> input_offsets, output_offsets;
  if (task.input_offsets != nullptr) {
    input_offsets.assign(task.input_offsets, task.input_offsets + parity.columns());
    input_offsets[suspect] = task.output_offsets[pivot];
  }
  for (unsigned r = 0; r < parity.rows(); ++r) {
    if (r == pivot) continue;
    const std::uint8_t q = gf::divide(parity.at(r, suspect), parity.at(pivot, suspect));
    const unsigned row = static_cast<unsigned>(outputs.size());
    for (unsigned c = 0; c < parity.columns(); ++c)
      rest.at(row, c) = c == suspect ? q : parity.at(r, c) ^ gf::multiply(q, parity.at(pivot, c));
    outputs.push_back(task.outputs[r]);
    if (task.output_offsets != nullptr) output_offsets.push_back(task.output_offsets[r]);
  }
  Task rest_of = task;
  rest_of.inputs = inputs.data();
  rest_of.outputs = outputs.data();
  if (task.input_offsets != nullptr) {
    rest_of.input_offsets = input_offsets.data();
    rest_of.output_offsets = output_offsets.data();
  }
  return is_consistent(plan, codec_operator(plan, std::move(rest)), rest_of, control);
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
    const std::uint64_t granularity = task.prepared->granularity_bytes();
    return (bytes + granularity - 1) / granularity * granularity;
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

void find_suspects(const Plan &plan, const Task &task, const VerifyReport &report, Control &control) {
  std::vector<MismatchRange *> ranges;
  for (MismatchRange &range : task.ranges->list) {
    range.suspect_shard = report.suspect_shard;
    ranges.push_back(&range);
  }
  if (report.suspect_shard != TANDEM_SHARD_NONE || plan.codec().m() < 2) return;
  std::ranges::sort(ranges, {}, &MismatchRange::begin_bytes);
  const std::uint64_t task_end = task.offset_bytes + task.length_bytes, unit = task.prepared->granularity_bytes();
  std::vector<Mismatch> found(task.prepared->rows());
  for (auto first = ranges.begin(), last = first; first != ranges.end(); first = last) {
    std::uint64_t end = 0;
    for (; last != ranges.end() && (last == first || (*last)->begin_bytes < end); ++last)
      end = std::max(end, (*last)->end_bytes);
    Task columns = task;
    const auto down = [&](std::uint64_t at) { return at - (at - task.offset_bytes) % unit; };
    columns.offset_bytes = down((*first)->begin_bytes);
    columns.length_bytes = std::min(task_end - columns.offset_bytes, down(end - 1) + unit - columns.offset_bytes);
    std::ranges::fill(found, Mismatch{});
    columns.mismatches = found.data();
    columns.ranges = nullptr;
    try {
      plan.backend().run({&columns, 1}, control);
    } catch (const base::Error &error) {
      if (error.status() != TANDEM_ERROR_UNSUPPORTED) throw;  // a queue that is captured, as in explain()
      return;
    }
    const std::uint32_t suspect = explain(plan, columns, control).suspect_shard;
    for (auto each = first; each != last; ++each) (*each)->suspect_shard = suspect;
  }
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
  const auto locate = [&] {
    if (codec.packets()) {
      const std::vector<Element> found = packet_syndrome(plan, task, first);
      if (codec.codec16() == nullptr) return codec.locate(found);
      std::vector<std::uint16_t> rows(codec.m());
      std::iota(rows.begin(), rows.end(), std::uint16_t{0});
      return codec.codec16()->locate(rows, found);
    }
    if (codec.codec16() == nullptr) return codec.locate(syndrome(plan, task, first));
    const Syndromes16 found = syndromes16(plan, task, first, report.first_bad_shard - codec.k());
    return codec.codec16()->locate(found.rows, found.values);
  };
  const std::uint32_t candidate = locate();
  if (candidate == TANDEM_SHARD_NONE) return report;
  const auto is_confirmed = [&] {
    if (candidate >= codec.k()) return report.bad_parity_count == 1 && plan.outputs()[last_bad_row] == candidate;
    try {
      return codec.codec16() == nullptr ? consistent_without(plan, candidate, task, control)
                                        : consistent_without16(plan, candidate, task, control);
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
