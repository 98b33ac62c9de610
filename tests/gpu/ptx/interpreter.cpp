// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ptx/interpreter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "tests/gpu/ptx/code.hpp"
#include "tests/support/random.hpp"

namespace tandem::test::ptx {
namespace {

constexpr unsigned kLanes = 32;
constexpr std::uint64_t kMostSharedBytes = 48 << 10;    // without an attribute of the function
constexpr std::uint64_t kMostInstructions = 4'000'000;  // of a block: it does not end
using Mask = std::uint32_t;                             // of lanes
using Row = std::array<std::uint64_t, kLanes>;

constexpr std::uint64_t ones(unsigned bits) { return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1; }
constexpr std::uint64_t extended(std::uint64_t value, Type from) {
  const std::uint64_t sign = from.is_signed ? std::uint64_t{1} << (from.bits - 1) : 0;
  return ((value & ones(from.bits)) ^ sign) - sign;
}

// The thread that wrote a byte and the one that read it, since the last barrier if the memory is a block's. Threads
// count from 1 in the whole grid.
constexpr std::uint32_t kMany = ~std::uint32_t{0}, kAtomic = kMany - 1;
struct Byte {
  std::uint32_t writer = 0, reader = 0;
  bool is_defined = true, is_read_only = false, is_in_flight = false;
};
struct Area {
  std::uint64_t first = 0, size = 0;  // as the kernel sees it
  std::uint8_t *data = nullptr;
  bool is_defined = true, is_constant = false;
  std::vector<Byte> bytes{};  // from the first use on
};
enum class Use { read, read_only, write, atomic };

struct Copy {
  std::uint64_t to, from;
  unsigned bytes, group;
};
struct Copies {
  std::vector<Copy> list;  // that were not waited for
  unsigned groups = 0;     // that are closed
};

enum class State : std::uint8_t { runs, waits, ended };
struct Warp {
  std::vector<Row> rows;
  std::array<unsigned, kLanes> next{};
  std::array<State, kLanes> states{};
  std::array<Copies, kLanes> copies;
};

class Machine {
 public:
  Machine(const Code &code, const Launch &launch)
      : code_(code),
        launch_(launch),
        random_(launch.seed),
        threads_(std::uint64_t{launch.block[0]} * launch.block[1] * launch.block[2]),
        shared_bytes_(code.shared_bytes + launch.shared_bytes) {
    const auto refuse = [](const std::string &what) { throw Error("the launch: " + what); };
    if (threads_ == 0 || threads_ > 1024) refuse(fmt::format("{} threads a block", threads_));
    if (shared_bytes_.size() > kMostSharedBytes) refuse(fmt::format("{} bytes of shared memory", shared_bytes_.size()));
    if (launch.parameter_bytes != code.parameter_bytes)
      refuse(fmt::format("{} bytes of parameters; {} belong", launch.parameter_bytes, code.parameter_bytes));
    if (blocks() == 0 || launch.grid[0] > 0x7fffffff || launch.grid[1] > 65'535 || launch.grid[2] > 65'535 ||
        blocks() * threads_ >= kAtomic)
      refuse("the grid");
    const auto constant = [](const void *data) { return static_cast<std::uint8_t *>(const_cast<void *>(data)); };
    shared_ = {code.shared_align * random_.below(8), shared_bytes_.size(), shared_bytes_.data(), false};
    parameters_ = {0, code.parameter_bytes, constant(launch.parameters), true, true};
    for (const Variable &each : code.constant_variables)
      constants_.push_back({each.first, each.bytes, constant(&code.constant_bytes[each.first]), true, true});
    std::vector<Region> sorted = launch.memory;
    std::ranges::sort(sorted, {}, &Region::first);
    for (const Region &each : sorted) {
      if (each.bytes == 0) continue;
      if (global_.empty() || each.first >= global_.back().first + global_.back().size) {
        global_.push_back({each.first, each.bytes, reinterpret_cast<std::uint8_t *>(each.first), each.is_defined});
      } else {
        global_.back().size = std::max(global_.back().size, each.first + each.bytes - global_.back().first);
        global_.back().is_defined |= each.is_defined;
      }
    }
    warps_.resize((threads_ + kLanes - 1) / kLanes);
    for (Warp &warp : warps_) {
      warp.rows.resize(code.widths.size());
      for (std::size_t r = 0; r < warp.rows.size(); ++r) {
        const bool is_constant = r < code.constants.size();
        const Constant known = is_constant ? code.constants[r] : Constant();
        for (std::uint64_t &each : warp.rows[r])
          each =
              is_constant ? known.value + (known.is_shared ? shared_.first : 0) : random_.next() & ones(code.widths[r]);
      }
    }
  }

  void run() {
    std::vector<std::uint64_t> order(blocks());
    for (std::uint64_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::uint64_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
    for (const std::uint64_t each : order) run_block(each);
  }

 private:
  std::uint64_t blocks() const { return std::uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2]; }
  static std::string at(const std::array<unsigned, 3> &size, std::uint64_t n) {
    return fmt::format("{},{},{}", n % size[0], n / size[0] % size[1], n / size[0] / size[1]);
  }
  // Of a number from 1 in the grid.
  std::string thread_at(std::uint64_t n) const {
    if (n == kMany) return "several threads";
    if (n == kAtomic) return "an atomic operation";
    return "block " + at(launch_.grid, (n - 1) / threads_) + " thread " + at(launch_.block, (n - 1) % threads_);
  }
  std::uint32_t number_of(std::uint64_t thread) const {
    return static_cast<std::uint32_t>(block_ * threads_ + thread + 1);
  }
  [[noreturn]] void fail(std::uint64_t thread, const std::string &what) const {
    const std::string &text = code_.lines.at(line_ - 1);
    throw Error(fmt::format("{}, line {}: {}: {}", thread_at(number_of(thread)), line_, what,
                            text.substr(std::min(text.find_first_not_of(" \t"), text.size()))));
  }

  void run_block(std::uint64_t block) {
    block_ = block;
    instructions_ = 0;
    random_.fill(shared_bytes_.data(), shared_bytes_.size());
    shared_.bytes.clear();
    for (std::size_t w = 0; w < warps_.size(); ++w) {
      Warp &warp = warps_[w];
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        const std::uint64_t t = w * kLanes + lane;
        warp.next[lane] = 0;
        warp.states[lane] = t < threads_ ? State::runs : State::ended;
        const auto &b = launch_.block, &g = launch_.grid;
        const std::uint64_t values[] = {t % b[0],     t / b[0] % b[1],     t / b[0] / b[1],     b[0], b[1], b[2],
                                        block % g[0], block / g[0] % g[1], block / g[0] / g[1], g[0], g[1], g[2]};
        for (std::size_t i = 0; i < std::size(values); ++i) warp.rows[1 + i][lane] = values[i];
      }
    }
    do {
      std::vector<unsigned> running;
      for (unsigned w = 0; w < warps_.size(); ++w) running.push_back(w);
      while (!running.empty()) {
        const std::size_t pick = random_.below(running.size());
        if (!turn(running[pick], 1 + random_.below(200)))
          running.erase(running.begin() + static_cast<std::ptrdiff_t>(pick));
      }
    } while (end_barrier());
  }

  // No thread runs: whether there was a barrier for all of them.
  bool end_barrier() {
    std::uint64_t waiting = threads_, ended = threads_;
    bool are_there_others = false;
    for (std::uint64_t t = 0; t < threads_; ++t) {
      const Warp &warp = warps_[t / kLanes];
      if (warp.states[t % kLanes] == State::ended) {
        ended = t;
      } else {
        if (waiting != threads_) are_there_others |= next_of(waiting) != next_of(t);
        waiting = t;
      }
    }
    if (waiting == threads_) return false;
    line_ = code_.instructions[next_of(waiting) - 1].line;
    if (ended != threads_) fail(waiting, thread_at(number_of(ended)) + " has ended and skips a barrier");
    if (are_there_others) fail(waiting, "other threads of the block wait at another barrier");
    for (std::uint64_t t = 0; t < threads_; ++t) warps_[t / kLanes].states[t % kLanes] = State::runs;
    for (Byte &each : shared_.bytes) each.writer = each.reader = 0;
    return true;
  }
  unsigned next_of(std::uint64_t thread) const { return warps_[thread / kLanes].next[thread % kLanes]; }

  // Runs so many instructions of a warp. False: none of its threads runs any more. Lanes that are behind come first, so
  // that lanes meet again.
  bool turn(unsigned w, std::uint64_t count) {
    warp_ = &warps_[w];
    first_thread_ = std::uint64_t{w} * kLanes;
    for (std::uint64_t done = 0; done < count;) {
      unsigned least = ~0u, limit = ~0u;
      mask_ = 0;
      for (unsigned lane = 0; lane < kLanes; ++lane)
        if (warp_->states[lane] == State::runs) least = std::min(least, warp_->next[lane]);
      if (least == ~0u) return false;
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        if (warp_->states[lane] != State::runs) continue;
        mask_ |= Mask{warp_->next[lane] == least} << lane;
        if (warp_->next[lane] != least) limit = std::min(limit, warp_->next[lane]);
      }
      bool goes_on = true;
      for (; goes_on && least < limit && done < count; ++least, ++done) {
        if (least >= code_.instructions.size()) fail(first_thread_, "the text ends");
        const Instruction &each = code_.instructions[least];
        line_ = each.line;
        if (++instructions_ > kMostInstructions) fail(first_thread_, "the block does not end");
        goes_on = step(each, least);
      }
      if (!goes_on) continue;
      for (unsigned lane = 0; lane < kLanes; ++lane)
        if ((mask_ >> lane & 1) != 0) warp_->next[lane] = least;
    }
    return true;
  }

  template <class Body>
  void each_lane(Mask mask, const Body &body) {
    for (; mask != 0; mask &= mask - 1) body(static_cast<unsigned>(std::countr_zero(mask)));
  }

  std::uint64_t value(unsigned row, unsigned lane) const { return warp_->rows[row][lane]; }
  void set(unsigned row, unsigned lane, std::uint64_t to) { warp_->rows[row][lane] = to & ones(code_.widths[row]); }

  template <class Function>
  void calculate(const Instruction &is, Mask mask, const Function &function) {
    Row *rows = warp_->rows.data();
    Row &to = rows[is.to[0]];
    const Row &a = rows[is.from[0]], &b = rows[is.from[1]], &c = rows[is.from[2]];
    const std::uint64_t keep = ones(code_.widths[is.to[0]]);
    if (mask == ~Mask{0}) {
      for (unsigned lane = 0; lane < kLanes; ++lane) to[lane] = function(a[lane], b[lane], c[lane]) & keep;
    } else {
      each_lane(mask, [&](unsigned lane) { to[lane] = function(a[lane], b[lane], c[lane]) & keep; });
    }
  }

  // Whether the lanes go on together with the next instruction; else their `next` is set.
  bool step(const Instruction &is, unsigned at) {
    Mask mask = mask_;
    if (is.guard != 0) {
      Mask guard = 0;
      const Row &row = warp_->rows[is.guard];
      for (unsigned lane = 0; lane < kLanes; ++lane) guard |= static_cast<Mask>(row[lane] & 1) << lane;
      mask &= is.guard_is_negated ? ~guard : guard;
    }
    const auto leave = [&](State state, unsigned next) {
      each_lane(mask_, [&](unsigned lane) {
        const bool is_on = (mask >> lane & 1) != 0;
        warp_->next[lane] = is_on ? next : at + 1;
        if (is_on) warp_->states[lane] = state;
      });
      return false;
    };
    switch (is.op) {
      case op_of("bra"):
        return leave(State::runs, is.number);
      case op_of("bar.sync"):
        return leave(State::waits, at + 1);
      case op_of("ret"):
        each_lane(mask, [&](unsigned lane) {
          if (!warp_->copies[lane].list.empty()) fail(first_thread_ + lane, "a thread ends before its copies");
        });
        return leave(State::ended, at);
      case op_of("trap"):
        each_lane(mask, [&](unsigned lane) { fail(first_thread_ + lane, "trap"); });
        return true;
      default:
        run_op(is, mask);
        return true;
    }
  }

  // Calculates for every lane. Registers hold no more bits than they have; a result is cut to its register.
  void run_op(const Instruction &is, Mask mask) {
    using U = std::uint64_t;
    const unsigned bits = is.type.bits;
    const auto all = [&](auto function) { calculate(is, mask, function); };
    // Signed numbers in an order of unsigned ones.
    const U flip = is.type.is_signed ? U{1} << (bits - 1) : 0;
    const auto compare = [&](auto relation) {
      all([=, cut = ones(bits)](U a, U b, U) { return U{relation((a & cut) ^ flip, (b & cut) ^ flip)}; });
    };
    switch (is.op) {
      case op_of("mov"):
      case op_of("cvta"):
        return all([](U a, U, U) { return a; });
      case op_of("cvt"):
        return all([to = ones(bits), from = is.from_type](U a, U, U) { return extended(a, from) & to; });
      case op_of("add"):
        return all([](U a, U b, U) { return a + b; });
      case op_of("sub"):
        return all([](U a, U b, U) { return a - b; });
      case op_of("mul"):
      case op_of("mad"):  // the third source of mul is row 0
        if (is.word == Word::lo) return all([](U a, U b, U c) { return a * b + c; });
        return all([type = is.type](U a, U b, U c) { return extended(a, type) * extended(b, type) + c; });
      case op_of("div"):
        each_lane(mask, [&](unsigned lane) {
          if (value(is.from[1], lane) == 0) fail(first_thread_ + lane, "a division by 0");
        });
        return each_lane(
            mask, [&](unsigned lane) { set(is.to[0], lane, value(is.from[0], lane) / value(is.from[1], lane)); });
      case op_of("min"):
        return all([=](U a, U b, U) { return (a ^ flip) < (b ^ flip) ? a : b; });
      case op_of("max"):
        return all([=](U a, U b, U) { return (a ^ flip) < (b ^ flip) ? b : a; });
      case op_of("and"):
        return all([](U a, U b, U) { return a & b; });
      case op_of("or"):
        return all([](U a, U b, U) { return a | b; });
      case op_of("xor"):
        return all([](U a, U b, U) { return a ^ b; });
      case op_of("not"):
        return all([](U a, U, U) { return ~a; });
      case op_of("neg"):
        return all([](U a, U, U) { return 0 - a; });
      case op_of("shl"):
        return all([=](U a, U b, U) { return b >= bits ? 0 : a << b; });
      case op_of("shr"):
        if (!is.type.is_signed) return all([=](U a, U b, U) { return b >= bits ? 0 : a >> b; });
        return all([=, type = is.type](U a, U b, U) {
          return static_cast<U>(static_cast<std::int64_t>(extended(a, type)) >> std::min<U>(b, bits - 1));
        });
      case op_of("setp"):
        if (is.word == Word::eq) return compare([](U a, U b) { return a == b; });
        if (is.word == Word::ne) return compare([](U a, U b) { return a != b; });
        if (is.word == Word::lt) return compare([](U a, U b) { return a < b; });
        if (is.word == Word::le) return compare([](U a, U b) { return a <= b; });
        if (is.word == Word::gt) return compare([](U a, U b) { return a > b; });
        return compare([](U a, U b) { return a >= b; });
      case op_of("selp"):
        return all([](U a, U b, U c) { return c != 0 ? a : b; });
      case op_of("prmt"):
        return all([](U a, U b, U c) {
          U out = 0;
          for (unsigned i = 0; i < 4; ++i, c >>= 4) {
            const U byte = (b << 32 | a) >> c % 8 * 8 & 0xff, signs = byte >= 0x80 ? 0xff : 0;
            out |= ((c & 8) != 0 ? signs : byte) << 8 * i;
          }
          return out;
        });
      case op_of("lop3"):  // bit abc of the table is what the three bits make
        return all([table = value(is.from[3], 0)](U a, U b, U c) {
          U out = 0;
          for (unsigned i = 0; i < 8; ++i)
            out |= (U{0} - (table >> i & 1)) & (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
          return out;
        });
      case op_of("bfi"):
        return each_lane(mask, [&](unsigned lane) {
          const U at = value(is.from[2], lane) & 0xff, length = value(is.from[3], lane) & 0xff;
          const U field = at >= bits ? 0 : ones(static_cast<unsigned>(std::min<U>(length, 64))) << at;
          const U old = value(is.from[1], lane);
          set(is.to[0], lane, field == 0 ? old : (old & ~field) | (value(is.from[0], lane) << at & field));
        });
      case op_of("pack"):
        return each_lane(mask, [&, part = bits / is.count](unsigned lane) {
          U whole = 0;
          for (unsigned i = 0; i < is.count; ++i) whole |= (value(is.from[i], lane) & ones(part)) << i * part;
          set(is.to[0], lane, whole);
        });
      case op_of("unpack"):
        return each_lane(mask, [&, part = bits / is.count](unsigned lane) {
          const U whole = value(is.from[0], lane);
          for (unsigned i = 0; i < is.count; ++i) set(is.to[i], lane, whole >> i * part & ones(part));
        });
      default:
        return each_lane(mask, [&](unsigned lane) { access(is, lane); });
    }
  }

  // What a thread does with memory.
  void access(const Instruction &is, unsigned lane) {
    const std::uint64_t thread = first_thread_ + lane, address = value(is.from[0], lane) + is.offset;
    const unsigned bytes = is.type.bits / 8;
    Copies &copies = warp_->copies[lane];
    const auto used = [&](Use how) { return use(thread, is.space, address, bytes * is.count, how); };
    switch (is.op) {
      case op_of("ld"): {
        const std::uint8_t *from = used(is.read_only ? Use::read_only : Use::read);
        for (unsigned i = 0; i < is.count; ++i, from += bytes) {
          std::uint64_t loaded = 0;
          std::memcpy(&loaded, from, bytes);
          set(is.to[i], lane, extended(loaded, is.type));
        }
        return;
      }
      case op_of("st"): {
        std::uint8_t *to = used(Use::write);
        for (unsigned i = 0; i < is.count; ++i) std::memcpy(to + i * bytes, &warp_->rows[is.from[1 + i]][lane], bytes);
        return;
      }
      case op_of("atom"): {  // of 32 bits without a sign
        std::uint8_t *to = used(Use::atomic);
        std::uint32_t old = 0;
        std::memcpy(&old, to, bytes);
        const auto by = static_cast<std::uint32_t>(value(is.from[1], lane));
        const std::uint32_t now = is.word == Word::add ? old + by : std::min(old, by);
        std::memcpy(to, &now, bytes);
        return set(is.to[0], lane, old);
      }
      case op_of("cp.async.ca"): {
        const std::uint64_t from = value(is.from[1], lane);
        use(thread, Space::global, from, is.number, Use::read);
        use(thread, Space::shared, address, is.number, Use::write);
        for (unsigned i = 0; i < is.number; ++i) shared_.bytes[address - shared_.first + i].is_in_flight = true;
        copies.list.push_back({address, from, is.number, copies.groups});
        return;
      }
      case op_of("cp.async.commit_group"):
        ++copies.groups;
        return;
      case op_of("cp.async.wait_group"):  // until so many groups are open
        std::erase_if(copies.list, [&](const Copy &each) {
          if (each.group + is.number >= copies.groups) return false;
          for (unsigned i = 0; i < each.bytes; ++i) shared_.bytes[each.to - shared_.first + i].is_in_flight = false;
          const auto *from = reinterpret_cast<const std::uint8_t *>(each.from);
          std::copy_n(from, each.bytes, use(thread, Space::shared, each.to, each.bytes, Use::write));
          return true;
        });
    }
  }

  Area *area_of(Space space, std::uint64_t address) {
    if (space == Space::shared) return &shared_;
    if (space == Space::param) return &parameters_;
    if (space != Space::constant && last_ != nullptr && address - last_->first < last_->size) return last_;
    std::vector<Area> &all = space == Space::constant ? constants_ : global_;
    const auto behind = std::ranges::upper_bound(all, address, {}, &Area::first);
    Area *found = behind == all.begin() ? nullptr : &*std::prev(behind);
    if (space != Space::constant) last_ = found;
    return found;
  }

  // Where the bytes are, if the thread may use them so.
  std::uint8_t *use(std::uint64_t thread, Space space, std::uint64_t address, unsigned bytes, Use how) {
    static constexpr const char *kNames[] = {"global memory", "global memory", "shared memory", "the parameters",
                                             "constant memory"};
    const char *const name = kNames[static_cast<int>(space)];
    if (address % bytes != 0) fail(thread, "not aligned");
    Area *const area = area_of(space, address);
    const std::uint64_t at = area == nullptr ? 0 : address - area->first;
    if (area == nullptr || at > area->size || bytes > area->size - at)
      fail(thread, fmt::format("{} bytes outside of {}, at {} of {}", bytes, name, static_cast<std::int64_t>(at),
                               area == nullptr ? 0 : area->size));
    const bool is_atomic = how == Use::atomic, writes = how == Use::write || is_atomic;
    if (area->is_constant && writes) fail(thread, fmt::format("a store to {}", name));
    if (area->bytes.empty()) area->bytes.assign(area->size, {0, 0, area->is_defined});
    const std::uint32_t me = number_of(thread);
    for (std::uint64_t i = at; i < at + bytes; ++i) {
      Byte &byte = area->bytes[i];
      const auto fail_at = [&](const std::string &what) { fail(thread, fmt::format("{}, byte {}", what, i)); };
      const auto race = [&](const char *with, std::uint32_t other) {
        fail_at(fmt::format("a race in {} with a {} of {}", name, with, thread_at(other)));
      };
      if (byte.is_in_flight) fail_at("shared memory of a copy that was not waited for");
      if (byte.writer != 0 && byte.writer != me && !(is_atomic && byte.writer == kAtomic)) race("write", byte.writer);
      if (writes && byte.reader != 0 && byte.reader != me) race("read", byte.reader);
      if ((writes && byte.is_read_only) || (how == Use::read_only && byte.writer != 0))
        fail_at("a read-only load of bytes that are written");
      if (how != Use::write && !byte.is_defined) fail_at(fmt::format("{} that is read before it is written", name));
      if (writes) {
        byte.writer = is_atomic ? kAtomic : me;
        byte.is_defined = true;
      } else {
        byte.reader = byte.reader != 0 && byte.reader != me ? kMany : me;
        byte.is_read_only |= how == Use::read_only;
      }
    }
    return area->data + at;
  }

  const Code &code_;
  const Launch &launch_;
  Random random_;
  const std::uint64_t threads_;  // of a block
  std::vector<std::uint8_t> shared_bytes_;
  Area shared_, parameters_;
  std::vector<Area> constants_, global_;
  Area *last_ = nullptr;  // of global memory
  std::vector<Warp> warps_;
  // Of the block and the instruction that run.
  std::uint64_t block_ = 0, first_thread_ = 0, instructions_ = 0;
  Warp *warp_ = nullptr;
  Mask mask_ = 0;
  unsigned line_ = 1;
};

}  // namespace

Module::Module(const std::string &text) : code_(std::make_shared<const Code>(parse(text))) {}

void Module::run(const Launch &launch) const { Machine(*code_, launch).run(); }

}  // namespace tandem::test::ptx
