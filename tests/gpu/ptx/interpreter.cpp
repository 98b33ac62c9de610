// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ptx/interpreter.hpp"

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
constexpr std::uint64_t kPageBytes = 4096;
using Mask = std::uint32_t;  // of lanes
using Row = std::array<std::uint64_t, kLanes>;

constexpr std::uint64_t ones(unsigned bits) { return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1; }
constexpr std::uint64_t extended(std::uint64_t value, Type from) {
  const std::uint64_t sign = from.is_signed ? std::uint64_t{1} << (from.bits - 1) : 0;
  return ((value & ones(from.bits)) ^ sign) - sign;
}

// The threads that used a byte of global memory, and how. They count from 1 in the whole grid.
constexpr std::uint32_t kMany = ~std::uint32_t{0}, kAtomic = kMany - 1;
enum : std::uint8_t { kUndefined = 1, kReadOnly = 2 };
struct Page {
  std::uint32_t writer[kPageBytes] = {}, reader[kPageBytes] = {};
  std::uint8_t flags[kPageBytes] = {};
};
struct Watched {
  Region region;
  std::vector<std::unique_ptr<Page>> pages;
};

// The same of a byte of shared memory. A stamp: the number of barriers before, and the thread from 1.
struct SharedByte {
  std::uint32_t written = 0, read = 0;
  bool is_defined = false, is_in_flight = false;
};
constexpr unsigned kThreadBits = 11;

enum class Use { read, read_only, write, atomic };

struct Copy {
  std::uint64_t to, from;
  unsigned bytes;
};
struct Copies {
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
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
        shared_base_(code.shared_align * random_.below(8)),
        shared_(code.shared_bytes + launch.shared_bytes),
        bytes_(shared_.size()) {
    const auto refuse = [](const std::string &what) { throw Error("the launch: " + what); };
    if (threads_ == 0 || threads_ > 1024) refuse(std::to_string(threads_) + " threads a block");
    if (shared_.size() > kMostSharedBytes) refuse(std::to_string(shared_.size()) + " bytes of shared memory");
    if (launch.parameter_bytes != code.parameter_bytes)
      refuse(std::to_string(launch.parameter_bytes) + " bytes of parameters; " + std::to_string(code.parameter_bytes) +
             " belong");
    if (blocks() == 0 || launch.grid[0] > 0x7fffffff || launch.grid[1] > 65'535 || launch.grid[2] > 65'535)
      refuse("the grid");
    if (blocks() * threads_ >= kAtomic) refuse("too many threads");
    std::vector<Region> sorted = launch.memory;
    std::ranges::sort(sorted, {}, &Region::first);
    for (const Region &each : sorted) {
      if (each.bytes == 0) continue;
      if (!memory_.empty() && each.first < memory_.back().region.first + memory_.back().region.bytes) {
        Region &last = memory_.back().region;
        last.bytes = std::max(last.bytes, each.first + each.bytes - last.first);
        last.is_defined |= each.is_defined;
      } else {
        memory_.push_back({each, {}});
      }
    }
    for (Watched &each : memory_) each.pages.resize(each.region.bytes / kPageBytes + 1);
    warps_.resize((threads_ + kLanes - 1) / kLanes);
    for (Warp &warp : warps_) {
      warp.rows.resize(code.widths.size());
      for (std::size_t r = 0; r < warp.rows.size(); ++r)
        for (std::uint64_t &each : warp.rows[r])
          each = r >= code.constants.size()    ? random_.next() & ones(code.widths[r])
                 : code.constants[r].is_shared ? shared_base_ + code.constants[r].value
                                               : code.constants[r].value;
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
  static std::string at(const std::array<unsigned, 3> &size, std::uint64_t number) {
    return std::to_string(number % size[0]) + "," + std::to_string(number / size[0] % size[1]) + "," +
           std::to_string(number / size[0] / size[1]);
  }
  std::string thread_at(std::uint64_t thread) const { return "thread " + at(launch_.block, thread); }
  std::string other(std::uint32_t who) const {
    if (who == kMany) return "several threads";
    if (who == kAtomic) return "an atomic operation";
    return "block " + at(launch_.grid, (who - 1) / threads_) + " " + thread_at((who - 1) % threads_);
  }
  [[noreturn]] void fail(const std::string &what, std::uint64_t thread) const {
    std::string text = code_.lines.at(line_ - 1);
    text.erase(0, std::min(text.find_first_not_of(" \t"), text.size()));
    throw Error("block " + at(launch_.grid, block_) + " " + thread_at(thread) + ", line " + std::to_string(line_) +
                ": " + what + ": " + text);
  }

  void run_block(std::uint64_t block) {
    block_ = block;
    barriers_ = 1;
    instructions_ = 0;
    random_.fill(shared_.data(), shared_.size());
    std::ranges::fill(bytes_, SharedByte());
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
    if (ended != threads_) fail(thread_at(ended) + " has ended and skips a barrier", waiting);
    if (are_there_others) fail("other threads of the block wait at another barrier", waiting);
    for (std::uint64_t t = 0; t < threads_; ++t) warps_[t / kLanes].states[t % kLanes] = State::runs;
    ++barriers_;
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
        if (least >= code_.instructions.size()) fail("the text ends", first_thread_);
        const Instruction &each = code_.instructions[least];
        line_ = each.line;
        if (++instructions_ > kMostInstructions) fail("the block does not end", first_thread_);
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
      case Op::bra:
        return leave(State::runs, is.number);
      case Op::bar:
        return leave(State::waits, at + 1);
      case Op::ret:
        each_lane(mask, [&](unsigned lane) {
          const Copies &copies = warp_->copies[lane];
          if (!copies.open.empty() || !copies.groups.empty())
            fail("a thread ends before its copies", first_thread_ + lane);
        });
        return leave(State::ended, at);
      case Op::trap:
        each_lane(mask, [&](unsigned lane) { fail("trap", first_thread_ + lane); });
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
      case Op::mov:
      case Op::cvta:
        return all([](U a, U, U) { return a; });
      case Op::cvt:
        return all([to = ones(bits), from = is.from_type](U a, U, U) { return extended(a, from) & to; });
      case Op::add:
        return all([](U a, U b, U) { return a + b; });
      case Op::sub:
        return all([](U a, U b, U) { return a - b; });
      case Op::mul:
      case Op::mad:  // the third source of mul is row 0
        if (is.word == Word::lo) return all([](U a, U b, U c) { return a * b + c; });
        return all([type = is.type](U a, U b, U c) { return extended(a, type) * extended(b, type) + c; });
      case Op::div:
        each_lane(mask, [&](unsigned lane) {
          if (value(is.from[1], lane) == 0) fail("a division by 0", first_thread_ + lane);
        });
        return each_lane(
            mask, [&](unsigned lane) { set(is.to[0], lane, value(is.from[0], lane) / value(is.from[1], lane)); });
      case Op::min:
        return all([=](U a, U b, U) { return (a ^ flip) < (b ^ flip) ? a : b; });
      case Op::max:
        return all([=](U a, U b, U) { return (a ^ flip) < (b ^ flip) ? b : a; });
      case Op::and_:
        return all([](U a, U b, U) { return a & b; });
      case Op::or_:
        return all([](U a, U b, U) { return a | b; });
      case Op::xor_:
        return all([](U a, U b, U) { return a ^ b; });
      case Op::not_:
        return all([](U a, U, U) { return ~a; });
      case Op::neg:
        return all([](U a, U, U) { return 0 - a; });
      case Op::shl:
        return all([=](U a, U b, U) { return b >= bits ? 0 : a << b; });
      case Op::shr:
        if (!is.type.is_signed) return all([=](U a, U b, U) { return b >= bits ? 0 : a >> b; });
        return all([=, type = is.type](U a, U b, U) {
          return static_cast<U>(static_cast<std::int64_t>(extended(a, type)) >> std::min<U>(b, bits - 1));
        });
      case Op::setp:
        if (is.word == Word::eq) return compare([](U a, U b) { return a == b; });
        if (is.word == Word::ne) return compare([](U a, U b) { return a != b; });
        if (is.word == Word::lt) return compare([](U a, U b) { return a < b; });
        if (is.word == Word::le) return compare([](U a, U b) { return a <= b; });
        if (is.word == Word::gt) return compare([](U a, U b) { return a > b; });
        return compare([](U a, U b) { return a >= b; });
      case Op::selp:
        return all([](U a, U b, U c) { return c != 0 ? a : b; });
      case Op::prmt:
        return all([](U a, U b, U c) {
          U out = 0;
          for (unsigned i = 0; i < 4; ++i, c >>= 4) {
            const U byte = (b << 32 | a) >> c % 8 * 8 & 0xff, signs = byte >= 0x80 ? 0xff : 0;
            out |= ((c & 8) != 0 ? signs : byte) << 8 * i;
          }
          return out;
        });
      case Op::lop3:  // bit abc of the table is what the three bits make
        return all([table = value(is.from[3], 0)](U a, U b, U c) {
          U out = 0;
          for (unsigned i = 0; i < 8; ++i)
            out |= (U{0} - (table >> i & 1)) & (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
          return out;
        });
      case Op::bfi:
        return each_lane(mask, [&](unsigned lane) {
          const U at = value(is.from[2], lane) & 0xff, length = value(is.from[3], lane) & 0xff;
          const U field = at >= bits ? 0 : ones(static_cast<unsigned>(std::min<U>(length, 64))) << at;
          const U old = value(is.from[1], lane);
          set(is.to[0], lane, field == 0 ? old : (old & ~field) | (value(is.from[0], lane) << at & field));
        });
      case Op::pack:
      case Op::unpack:
        return each_lane(mask, [&](unsigned lane) {
          const unsigned part = bits / is.count;
          U whole = is.op == Op::pack ? 0 : value(is.from[0], lane);
          for (unsigned i = 0; i < is.count; ++i) {
            if (is.op == Op::pack)
              whole |= (value(is.from[i], lane) & ones(part)) << i * part;
            else
              set(is.to[i], lane, whole >> i * part & ones(part));
          }
          if (is.op == Op::pack) set(is.to[0], lane, whole);
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
    if (is.op == Op::copy) {
      const std::uint64_t from = value(is.from[1], lane);
      use_global(thread, from, is.number, Use::read);
      use_shared(thread, address, is.number, true);
      for (unsigned i = 0; i < is.number; ++i) bytes_[address - shared_base_ + i].is_in_flight = true;
      copies.open.push_back({address, from, is.number});
    } else if (is.op == Op::commit) {
      copies.groups.push_back(std::exchange(copies.open, {}));
    } else if (is.op == Op::wait) {
      for (; copies.groups.size() > is.number; copies.groups.erase(copies.groups.begin())) {
        for (const Copy &each : copies.groups.front()) {
          for (unsigned i = 0; i < each.bytes; ++i) bytes_[each.to - shared_base_ + i].is_in_flight = false;
          std::memcpy(use_shared(thread, each.to, each.bytes, true), reinterpret_cast<const void *>(each.from),
                      each.bytes);
        }
      }
    } else if (is.op == Op::ld) {
      const std::uint8_t *from = readable(is, thread, address, bytes * is.count);
      for (unsigned i = 0; i < is.count; ++i) {
        std::uint64_t loaded = 0;
        std::memcpy(&loaded, from + i * bytes, bytes);
        set(is.to[i], lane, extended(loaded, is.type));
      }
    } else if (is.op == Op::st) {
      if (is.space == Space::param || is.space == Space::constant) fail("a store to constants", thread);
      std::uint8_t *to = is.space == Space::shared ? use_shared(thread, address, bytes * is.count, true)
                                                   : use_global(thread, address, bytes * is.count, Use::write);
      for (unsigned i = 0; i < is.count; ++i) std::memcpy(to + i * bytes, &warp_->rows[is.from[1 + i]][lane], bytes);
    } else {  // atom, of 32 bits without a sign
      std::uint8_t *at = use_global(thread, address, bytes, Use::atomic);
      std::uint32_t old = 0;
      std::memcpy(&old, at, bytes);
      const auto by = static_cast<std::uint32_t>(value(is.from[1], lane));
      const std::uint32_t now = is.word == Word::add ? old + by : std::min(old, by);
      std::memcpy(at, &now, bytes);
      set(is.to[0], lane, old);
    }
  }

  const std::uint8_t *readable(const Instruction &is, std::uint64_t thread, std::uint64_t address, unsigned bytes) {
    if (is.space == Space::shared) return use_shared(thread, address, bytes, false);
    if (is.space != Space::param && is.space != Space::constant)
      return use_global(thread, address, bytes, is.read_only ? Use::read_only : Use::read);
    if (address % bytes != 0) fail("not aligned", thread);
    const bool is_param = is.space == Space::param;
    if (is_param && address <= code_.parameter_bytes && bytes <= code_.parameter_bytes - address)
      return static_cast<const std::uint8_t *>(launch_.parameters) + address;
    for (const Variable &each : code_.constant_variables)
      if (!is_param && address - each.first <= each.bytes && bytes <= each.bytes - (address - each.first))
        return code_.constant_bytes.data() + address;
    fail((is_param ? "outside of the parameters: " : "outside of constant memory: ") + std::to_string(address), thread);
  }

  std::uint8_t *use_shared(std::uint64_t thread, std::uint64_t address, unsigned bytes, bool writes) {
    const std::uint64_t at = address - shared_base_;
    if (address < shared_base_ || at > shared_.size() || bytes > shared_.size() - at)
      fail("outside of shared memory: byte " + std::to_string(static_cast<std::int64_t>(at)) + " of " +
               std::to_string(shared_.size()),
           thread);
    if (address % bytes != 0) fail("not aligned", thread);
    const std::uint32_t me = barriers_ << kThreadBits | static_cast<std::uint32_t>(thread + 1);
    const auto is_race = [&](std::uint32_t stamp) { return stamp >> kThreadBits == barriers_ && stamp != me; };
    for (std::uint64_t i = at; i < at + bytes; ++i) {
      SharedByte &byte = bytes_[i];
      if (byte.is_in_flight) fail("shared memory of a copy that was not waited for: byte " + std::to_string(i), thread);
      if (!writes && !byte.is_defined)
        fail("shared memory that is read before it is written: byte " + std::to_string(i), thread);
      if (is_race(byte.written))
        fail("a race in shared memory with a write of " + shared_other(byte.written) + ": byte " + std::to_string(i),
             thread);
      if (writes) {
        if (is_race(byte.read))
          fail("a race in shared memory with a read of " + shared_other(byte.read) + ": byte " + std::to_string(i),
               thread);
        byte.written = me;
        byte.is_defined = true;
      } else {
        byte.read = is_race(byte.read) ? barriers_ << kThreadBits : me;
      }
    }
    return shared_.data() + at;
  }
  std::string shared_other(std::uint32_t stamp) const {
    const std::uint32_t thread = stamp & ((1u << kThreadBits) - 1);
    return thread == 0 ? "several threads" : thread_at(thread - 1);
  }

  std::uint8_t *use_global(std::uint64_t thread, std::uint64_t address, unsigned bytes, Use use) {
    if (address % bytes != 0) fail("not aligned", thread);
    if (last_ == nullptr || address - last_->region.first >= last_->region.bytes) {
      auto found =
          std::ranges::upper_bound(memory_, address, {}, [](const Watched &each) { return each.region.first; });
      last_ = found == memory_.begin() ? nullptr : &*--found;
    }
    const std::uint64_t at = last_ == nullptr ? 0 : address - last_->region.first;
    if (last_ == nullptr || at >= last_->region.bytes || bytes > last_->region.bytes - at) {
      const std::string where = last_ == nullptr ? ""
                                                 : ", " + std::to_string(at) + " behind the begin of " +
                                                       std::to_string(last_->region.bytes) + " bytes";
      fail(std::to_string(bytes) + " bytes outside of global memory" + where, thread);
    }
    const auto me = static_cast<std::uint32_t>(block_ * threads_ + thread + 1);
    for (std::uint64_t i = at; i < at + bytes; ++i) {
      std::unique_ptr<Page> &page = last_->pages[i / kPageBytes];
      if (page == nullptr) {
        page = std::make_unique<Page>();
        if (!last_->region.is_defined) std::ranges::fill(page->flags, kUndefined);
      }
      std::uint32_t &writer = page->writer[i % kPageBytes], &reader = page->reader[i % kPageBytes];
      std::uint8_t &flags = page->flags[i % kPageBytes];
      const bool is_atomic = use == Use::atomic, writes = use == Use::write || is_atomic;
      if (writer != 0 && writer != me && !(is_atomic && writer == kAtomic))
        fail("a race in global memory with a write of " + other(writer), thread);
      if (writes && reader != 0 && reader != me)
        fail("a race in global memory with a read of " + other(reader), thread);
      if ((writes && (flags & kReadOnly) != 0) || (use == Use::read_only && writer != 0))
        fail("a read-only load of bytes that are written", thread);
      if (use != Use::write && (flags & kUndefined) != 0)
        fail("global memory that is read before it is written", thread);
      if (writes) {
        writer = is_atomic ? kAtomic : me;
        flags &= static_cast<std::uint8_t>(~kUndefined);
      } else {
        reader = reader != 0 && reader != me ? kMany : me;
        if (use == Use::read_only) flags |= kReadOnly;
      }
    }
    return reinterpret_cast<std::uint8_t *>(address);
  }

  const Code &code_;
  const Launch &launch_;
  Random random_;
  const std::uint64_t threads_;  // of a block
  const std::uint64_t shared_base_;
  std::vector<std::uint8_t> shared_;
  std::vector<SharedByte> bytes_;
  std::vector<Watched> memory_;
  Watched *last_ = nullptr;
  std::vector<Warp> warps_;
  // Of the block and the instruction that run.
  std::uint64_t block_ = 0, first_thread_ = 0, instructions_ = 0;
  std::uint32_t barriers_ = 1;
  Warp *warp_ = nullptr;
  Mask mask_ = 0;
  unsigned line_ = 1;
};

}  // namespace

Module::Module(const std::string &text) : code_(std::make_shared<const Code>(parse(text))) {}

void Module::run(const Launch &launch) const { Machine(*code_, launch).run(); }

}  // namespace tandem::test::ptx
