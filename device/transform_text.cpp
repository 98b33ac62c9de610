// SPDX-License-Identifier: Apache-2.0
#include "device/transform_text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "core/gf.hpp"
#include "core/subspaces.hpp"

namespace tandem::device {
namespace {

using core::gf::kSubspaces;

constexpr unsigned kLevels = 3, kLanes = 1u << kLevels;  // of a group
constexpr unsigned kPlanes = 8;                          // of a lane
constexpr unsigned kHalf = kPlanes / 2;                  // planes with common sums
constexpr std::size_t kPlanesTogether = 4;               // planes in one statement
// Instructions of a lane: 12 pairs of words change half their bits, by two shifts and two selections each.
constexpr unsigned kTransposeTwoInput = 12 * 8, kTransposeThreeInput = 12 * 4;

using Names = std::array<std::string, kPlanes>;

// A group of points: the shard at each lane, or none.
constexpr int kNone = -1;
struct Group {
  unsigned first;  // point
  std::array<int, kLanes> shards;
};

// In the order of the points, which ascend.
std::vector<Group> groups_of(const std::vector<core::Element> &points) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const unsigned first = points[i] / kLanes * kLanes;
    if (groups.empty() || groups.back().first != first) {
      groups.push_back({first, {}});
      groups.back().shards.fill(kNone);
    }
    groups.back().shards[points[i] % kLanes] = static_cast<int>(i);
  }
  return groups;
}

std::uint8_t scale_of(const std::vector<core::Element> &scales, int shard) {
  return scales.empty() ? 1 : static_cast<std::uint8_t>(scales[static_cast<std::size_t>(shard)]);
}

// The group of `others` at the same points, or null.
const Group *twin_of(const Group &group, const std::vector<Group> &others) {
  const auto twin = std::ranges::find(others, group.first, &Group::first);
  return twin != others.end() ? &*twin : nullptr;
}

// The inputs of groups that have outputs, too. They stay in local memory until the outputs are done.
std::vector<int> kept_inputs(const std::vector<Group> &from, const std::vector<Group> &to) {
  std::vector<int> kept;
  for (const Group &group : from) {
    if (twin_of(group, to) == nullptr) continue;
    for (const int shard : group.shards)
      if (shard != kNone) kept.push_back(shard);
  }
  return kept;
}

// Writes statements and counts their operations.
class Writer {
 public:
  explicit Writer(KernelOperations &operations) : operations_(operations) {}

  void line(std::string_view text) { ((out += "    ") += text) += '\n'; }

  // A product of the source planes by a constant, which is not 0. It is added to planes, or makes them.
  struct Product {
    Names to;
    unsigned constant;
    bool is_first;
  };

  // All products of one source. Either the planes are added to each output two at a time, or the sums of each half of
  // the planes are written once and added: whichever takes fewer operations.
  void products(const Names &from, const std::vector<Product> &list) {
    std::array<std::array<bool, 1 << kHalf>, 2> used{};
    std::size_t direct = 0, by_sums = 0;
    for (const Product &product : list) {
      for (unsigned bit = 0; bit < kPlanes; ++bit) {
        const unsigned mask = mask_of(product.constant, bit);
        direct += (static_cast<unsigned>(std::popcount(mask)) + 1) / 2;
        ++by_sums;
        used[0][mask % (1 << kHalf)] = used[1][mask >> kHalf] = true;
      }
    }
    for (const auto &half : used)
      for (unsigned mask = 1; mask < half.size(); ++mask) by_sums += half[mask] && !std::has_single_bit(mask);
    if (direct <= by_sums)
      return add_all(list, [&](unsigned mask) {
        std::vector<std::string> terms;
        for (unsigned j = 0; j < kPlanes; ++j)
          if (mask >> j & 1) terms.push_back(from[j]);
        return terms;
      });
    line("{");
    std::array<std::array<std::string, 1 << kHalf>, 2> names;
    for (unsigned h = 0; h < 2; ++h) {
      for (unsigned mask = 1; mask < used[h].size(); ++mask) {
        std::string sum;
        for (unsigned j = 0; j < kHalf; ++j)
          if (mask >> j & 1) sum += (sum.empty() ? "" : " ^ ") + from[h * kHalf + j];
        if (!used[h][mask] || std::has_single_bit(mask)) {
          names[h][mask] = sum;
          continue;
        }
        names[h][mask] = base::text("s", h, "_", mask);
        line(base::text("const uint ", names[h][mask], " = ", sum, ";"));
        const unsigned terms = static_cast<unsigned>(std::popcount(mask));
        count(terms - 1, terms / 2);
      }
    }
    add_all(list, [&](unsigned mask) {
      std::vector<std::string> terms;
      if (mask % (1 << kHalf) != 0) terms.push_back(names[0][mask % (1 << kHalf)]);
      if (mask >> kHalf != 0) terms.push_back(names[1][mask >> kHalf]);
      return terms;
    });
    line("}");
  }

  // Statements that add two planes each go together by four: device/text/cuda.h.
  void add(const std::string &to, const std::vector<std::string> &terms, bool is_first) {
    std::size_t i = 0;
    if (is_first) {
      i = std::min<std::size_t>(terms.size(), 3);
      line(base::text(to, " = ", base::join(std::span(terms).first(i), " ^ "), ";"));
      count(i - 1, i / 2);
    }
    if ((terms.size() - i) % 2 != 0) {
      line(base::text(to, " = ", to, " ^ ", terms[i++], ";"));
      count(1, 1);
    }
    for (; i < terms.size(); i += 2) {
      if (std::ranges::find(together_, to, &Pair::to) != together_.end()) flush();
      together_.push_back({to, terms[i], terms[i + 1]});
      count(2, 1);
      if (together_.size() == kPlanesTogether) flush();
    }
  }

  void flush() {
    std::string all;
    for (const Pair &pair : together_)
      all += base::text(all.empty() ? "" : ", ", pair.to, ", ", pair.first, ", ", pair.second);
    if (together_.size() == kPlanesTogether) {
      line(base::text("XOR3_WORDS(", all, ");"));
    } else {
      for (const Pair &pair : together_)
        line(base::text("XOR3_WORD(", pair.to, ", ", pair.first, ", ", pair.second, ");"));
    }
    together_.clear();
  }

  void count(std::uint64_t two_input, std::uint64_t three_input) {
    operations_.two_input += two_input;
    operations_.three_input += three_input;
  }

  std::string out;

 private:
  struct Pair {
    std::string to, first, second;
  };

  // Bit i of a product is the sum of these bits of the factor.
  static unsigned mask_of(unsigned constant, unsigned bit) {
    unsigned mask = 0;
    for (unsigned j = 0; j < kPlanes; ++j) {
      const unsigned product =
          core::gf::multiply(static_cast<std::uint8_t>(constant), static_cast<std::uint8_t>(1u << j));
      mask |= (product >> bit & 1) << j;
    }
    return mask;
  }

  template <class Terms>
  void add_all(const std::vector<Product> &list, const Terms &terms_of) {
    for (const Product &product : list)
      for (unsigned bit = 0; bit < kPlanes; ++bit)
        add(product.to[bit], terms_of(mask_of(product.constant, bit)), product.is_first);
    flush();
  }

  KernelOperations &operations_;
  std::vector<Pair> together_;
};

Names lane_names(unsigned lane) {
  Names names;
  for (unsigned i = 0; i < kPlanes; ++i) names[i] = base::text("x[", lane * kPlanes + i, "]");
  return names;
}

class TransformWriter {
 public:
  TransformWriter(const KernelSpec &spec, KernelOperations &operations)
      : form_(spec.points->form),
        width_(spec.tuning.local[0]),
        at_once_(spec.tuning.local[1]),
        lanes_(kLanes / at_once_),
        is_opencl_(spec.dialect == Dialect::opencl_c),
        from_(groups_of(form_.input_points)),
        to_(groups_of(form_.output_points)),
        kept_(kept_inputs(from_, to_)),
        is_summed_(to_.size()),
        operations_(operations),
        writer_(operations) {}

  TransformText write() {
    std::string inputs;
    for (const Group &group : from_)
      for (const int shard : group.shards) inputs += base::text(" ", shard, ",");
    for (std::size_t g = from_.size(); g % at_once_ != 0; ++g)
      for (unsigned lane = 0; lane < kLanes; ++lane) inputs += " -1,";
    const std::size_t sums = std::size_t{lanes_} * to_.size() * kPlanes;
    std::string defines = base::text("CONSTANT short input_at[] = {", inputs, "};\n#define SUM_COUNT ", sums,
                                     "u\n#define GROUP_WIDTH ", width_, "u\n");
    for (unsigned first = 0; first < from_.size(); first += at_once_) {
      if (first != 0) writer_.line("BARRIER;");
      load(first);
      writer_.line("BARRIER;");
      add_to_sums(first);  // a work-item reads its own column's lanes, and store_sums() writes the same ones
    }
    for (unsigned first = 0; first < to_.size(); first += at_once_) {
      if (first != 0) writer_.line("BARRIER;");
      store_sums(first);
      writer_.line("BARRIER;");
      finish(first);
    }
    return {std::move(defines), std::move(writer_.out)};
  }

 private:
  static unsigned end_of(unsigned first, unsigned count, std::size_t size) {
    return std::min(first + count, static_cast<unsigned>(size));
  }
  std::string sum_name(unsigned lane_slot, std::size_t group, unsigned plane) const {
    return base::text("SUM(", (lane_slot * to_.size() + group) * kPlanes + plane, ")");
  }
  std::string plane_name(unsigned row, const std::string &lane, unsigned plane) const {
    return base::text("PLANE((", row, "u * ", kLanes, "u + ", lane, ") * ", kPlanes, "u + ", plane, "u)");
  }
  // Kept inputs lie behind the groups.
  std::string kept_name(int shard, unsigned plane) const {
    const auto slot = std::ranges::find(kept_, shard) - kept_.begin();
    return base::text("PLANE(", (at_once_ * kLanes + static_cast<unsigned>(slot)) * kPlanes + plane, "u)");
  }

  void scale(unsigned lane, std::uint8_t by) {
    if (by == 1) return;
    writer_.line("{ uint scaled[8];");
    Names scaled;
    for (unsigned i = 0; i < kPlanes; ++i) scaled[i] = base::text("scaled[", i, "]");
    writer_.products(lane_names(lane), {{scaled, by, true}});
    writer_.line(base::text("UNROLL for (uint i = 0; i < 8; ++i) x[", lane * kPlanes, " + i] = scaled[i]; }"));
  }

  // u += t * v
  void multiply_add(unsigned u, unsigned t, unsigned v) {
    if (t != 0) writer_.products(lane_names(v), {{lane_names(u), t, false}});
  }
  void add(unsigned to, unsigned from) { multiply_add(to, 1, from); }

  // The points of a group to coefficients. Pairs of lanes without inputs stay 0.
  void inverse_transform(const Group &group) {
    std::array<bool, kLanes> is_zero{};
    for (unsigned lane = 0; lane < kLanes; ++lane) is_zero[lane] = group.shards[lane] == kNone;
    for (unsigned level = 0; level < kLevels; ++level) {
      const unsigned half = 1u << level;
      for (unsigned block = 0; block < kLanes; block += 2 * half) {
        const unsigned twiddle = kSubspaces.twiddle(level, static_cast<std::uint8_t>(group.first ^ block));
        for (unsigned u = block; u < block + half; ++u) {
          const unsigned v = u + half;
          if (is_zero[u] && is_zero[v]) continue;
          if (!is_zero[u]) add(v, u);
          multiply_add(u, twiddle, v);
          is_zero[u] = is_zero[v] = false;
        }
      }
    }
  }

  // Coefficients to the points of a group. Lanes that no output needs are not computed.
  void transform(const Group &group) {
    std::array<std::array<bool, kLanes>, kLevels> is_needed{};  // after the level
    for (unsigned lane = 0; lane < kLanes; ++lane) is_needed[0][lane] = group.shards[lane] != kNone;
    for (unsigned level = 0; level + 1 < kLevels; ++level)
      for (unsigned lane = 0; lane < kLanes; ++lane)
        is_needed[level + 1][lane] = is_needed[level][lane] || is_needed[level][lane ^ (1u << level)];
    for (unsigned level = kLevels; level-- > 0;) {
      const unsigned half = 1u << level;
      for (unsigned block = 0; block < kLanes; block += 2 * half) {
        const unsigned twiddle = kSubspaces.twiddle(level, static_cast<std::uint8_t>(group.first ^ block));
        for (unsigned u = block; u < block + half; ++u) {
          const unsigned v = u + half;
          if (!is_needed[level][u] && !is_needed[level][v]) continue;
          multiply_add(u, twiddle, v);
          if (is_needed[level][v]) add(v, u);
        }
      }
    }
  }

  // Begins a part that the work-items of one row do, of the rows that share the tile.
  void begin_row(unsigned row) { writer_.line(at_once_ == 1 ? "{" : base::text("if (LOCAL_ID(1) == ", row, "u) {")); }

  // The next groups of inputs, one for each row of work-items: loaded, transformed, and written to local memory.
  void load(unsigned first) {
    const unsigned end = end_of(first, at_once_, from_.size());
    writer_.line("FOR_EACH_ITEM {");
    // Rows without a group: in OpenCL C they write zeros, which nothing reads. Intel's compiler ends at this condition.
    const bool has_idle_rows = end - first < at_once_ && !is_opencl_;
    writer_.line(has_idle_rows ? base::text("if (LOCAL_ID(1) < ", end - first, "u) {") : "{");
    writer_.line("TAKE_SHARDS");
    writer_.line("uint x[64];");
    writer_.line(base::text("UNROLL for (uint lane = 0; lane < 8; ++lane) { const int input = input_at[(", first,
                            "u + LOCAL_ID(1)) * 8 + lane]; LOAD_PLANES(x + lane * 8, input) }"));
    for (unsigned g = first; g < end; ++g) {
      const Group &group = from_[g];
      begin_row(g - first);
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        const int shard = group.shards[lane];
        if (shard == kNone) continue;
        operations_.loads += kPlanes;
        writer_.count(kTransposeTwoInput, kTransposeThreeInput);
        scale(lane, scale_of(form_.input_scales, shard));
        if (twin_of(group, to_) == nullptr) continue;
        for (unsigned i = 0; i < kPlanes; ++i)
          writer_.line(base::text(kept_name(shard, i), " = ", lane_names(lane)[i], ";"));
      }
      inverse_transform(group);
      writer_.line("}");
    }
    writer_.line("UNROLL for (uint i = 0; i < 64; ++i) PLANE(LOCAL_ID(1) * 64 + i) = x[i];");
    writer_.line("} }");
  }

  // Each work-item has some lanes of all groups of outputs, and adds these lanes of the groups of inputs.
  void add_to_sums(unsigned first) {
    const unsigned end = end_of(first, at_once_, from_.size());
    const std::vector<bool> before = is_summed_;
    writer_.line("FOR_EACH_ITEM {");
    for (unsigned slot = 0; slot < lanes_; ++slot) {
      is_summed_ = before;
      for (unsigned g = first; g < end; ++g) {
        std::vector<Writer::Product> list;
        for (std::size_t t = 0; t < to_.size(); ++t) {
          const unsigned distance = from_[g].first ^ to_[t].first;
          if (distance == 0) continue;  // done directly
          Writer::Product product;
          for (unsigned i = 0; i < kPlanes; ++i) product.to[i] = sum_name(slot, t, i);
          product.constant = kSubspaces.between_groups(kLevels, static_cast<std::uint8_t>(distance));
          product.is_first = !is_summed_[t];
          is_summed_[t] = true;
          list.push_back(std::move(product));
        }
        if (list.empty()) continue;
        writer_.line("{");
        Names from;
        for (unsigned i = 0; i < kPlanes; ++i) {
          from[i] = base::text("c", i);
          writer_.line(base::text("const uint ", from[i], " = ",
                                  plane_name(g - first, base::text("LOCAL_ID(1) + ", slot * at_once_, "u"), i), ";"));
        }
        // Each row of work-items does it for lanes of its own.
        const KernelOperations before_products = operations_;
        writer_.products(from, list);
        operations_.two_input += (operations_.two_input - before_products.two_input) * (at_once_ - 1);
        operations_.three_input += (operations_.three_input - before_products.three_input) * (at_once_ - 1);
        writer_.line("}");
      }
    }
    writer_.line("}");
  }

  void store_sums(unsigned first) {
    const unsigned end = end_of(first, at_once_, to_.size());
    writer_.line("FOR_EACH_ITEM {");
    for (unsigned slot = 0; slot < lanes_; ++slot)
      for (unsigned t = first; t < end; ++t)
        for (unsigned i = 0; i < kPlanes; ++i)
          writer_.line(base::text(plane_name(t - first, base::text("LOCAL_ID(1) + ", slot * at_once_, "u"), i), " = ",
                                  is_summed_[t] ? sum_name(slot, t, i) : "0", ";"));
    writer_.line("}");
  }

  // The next groups of outputs, one for each row of work-items: transformed, completed and written.
  void finish(unsigned first) {
    const unsigned end = end_of(first, at_once_, to_.size());
    writer_.line("FOR_EACH_ITEM {");
    writer_.line("TAKE_SHARDS");
    writer_.line("const element_index tile = TILE; (void)tile;");
    for (unsigned t = first; t < end; ++t) {
      const Group &group = to_[t];
      begin_row(t - first);
      writer_.line("uint x[64];");
      writer_.line(base::text("UNROLL for (uint i = 0; i < 64; ++i) x[i] = PLANE(", (t - first) * 64, "u + i);"));
      transform(group);
      if (const Group *inputs = twin_of(group, from_)) add_directly(group, *inputs);
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        const int shard = group.shards[lane];
        if (shard == kNone) continue;
        scale(lane, scale_of(form_.output_scales, shard));
        writer_.line(base::text("FINISH_PLANES(", shard, ", x + ", lane * kPlanes, ")"));
        writer_.count(kTransposeTwoInput, kTransposeThreeInput);
        operations_.stores += kPlanes;
      }
      writer_.line("}");
    }
    writer_.line("}");
  }

  // What the inputs of a group contribute to the outputs of the same group.
  void add_directly(const Group &group, const Group &inputs) {
    for (unsigned from = 0; from < kLanes; ++from) {
      if (inputs.shards[from] == kNone) continue;
      std::vector<Writer::Product> list;
      for (unsigned to = 0; to < kLanes; ++to) {
        if (group.shards[to] == kNone) continue;
        const std::uint8_t inverse = core::gf::divide(1, static_cast<std::uint8_t>(from ^ to));
        list.push_back({lane_names(to), inverse, false});
      }
      writer_.line("{");
      Names names;
      for (unsigned i = 0; i < kPlanes; ++i) {
        names[i] = base::text("c", i);
        writer_.line(base::text("const uint ", names[i], " = ", kept_name(inputs.shards[from], i), ";"));
      }
      writer_.products(names, list);
      writer_.line("}");
    }
  }

  const core::CauchyTransform &form_;
  const unsigned width_, at_once_, lanes_;  // of a work-group: items in a row, rows; lanes of a work-item
  const bool is_opencl_;
  const std::vector<Group> from_, to_;
  const std::vector<int> kept_;
  std::vector<bool> is_summed_;  // groups of outputs that have a first term
  KernelOperations &operations_;
  Writer writer_;
};

}  // namespace

TransformText write_transform(const KernelSpec &spec, KernelOperations &operations) {
  return TransformWriter(spec, operations).write();
}

KernelTuning transform_tuning() {
  KernelTuning tuning;
  tuning.element_bytes = 16;
  tuning.elements_per_item = KernelSpec::kTransformBytes / tuning.element_bytes;
  tuning.local = {32, 4, 1};
  return tuning;
}

CauchyPoints::CauchyPoints(core::CauchyTransform of) : form(std::move(of)) {
  const std::vector<Group> to = groups_of(form.output_points);
  output_group_count = static_cast<unsigned>(to.size());
  kept_input_count = static_cast<unsigned>(kept_inputs(groups_of(form.input_points), to).size());
}

}  // namespace tandem::device
