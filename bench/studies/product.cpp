// SPDX-License-Identifier: Apache-2.0
// Study A: encodes by the product of a matrix and the data, one element at a time, with the loop orders and threads of
// the student report; and by Tandem with the same coefficients.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "bench/studies/contenders.hpp"

namespace tandem::studies {
namespace {

using Json = nlohmann::ordered_json;

// The field of the symbol: GF(2^8) modulo 0x11d, GF(2^16) modulo 0x1100b, as in tandem.h.
template <class Symbol>
struct GaloisField {
  static constexpr std::size_t kSize = std::size_t{1} << (8 * sizeof(Symbol));
  static constexpr unsigned kPolynomial = sizeof(Symbol) == 1 ? 0x11d : 0x1100b;

  // GF(2^8): a table of all products, so that zeros and ones of the identity cost as much as any other symbol.
  struct Tables {
    const std::uint32_t *log;
    const Symbol *exp, *products;
    Symbol multiply(Symbol a, Symbol b) const {
      if constexpr (sizeof(Symbol) == 1) return products[a * kSize + b];
      return a == 0 || b == 0 ? Symbol{0} : exp[log[a] + log[b]];
    }
  };

  GaloisField() : log(kSize), exp(2 * kSize) {
    unsigned value = 1;
    for (std::size_t i = 0; i < kSize - 1; ++i) {
      exp[i] = exp[i + kSize - 1] = static_cast<Symbol>(value);
      log[value] = static_cast<std::uint32_t>(i);
      value <<= 1;
      if (value >= kSize) value ^= kPolynomial;
    }
    if constexpr (sizeof(Symbol) == 1) {
      products.resize(kSize * kSize);
      for (std::size_t a = 1; a < kSize; ++a) {
        for (std::size_t b = 1; b < kSize; ++b) products[a * kSize + b] = exp[log[a] + log[b]];
      }
    }
  }
  Tables tables() const { return {log.data(), exp.data(), products.data()}; }
  Symbol inverse(Symbol a) const { return exp[kSize - 1 - log[a]]; }

  std::vector<std::uint32_t> log;
  std::vector<Symbol> exp, products;
};

enum class Order { ijk, ikj, transposed };

// C (rows x columns) = A (rows x inner) * B (inner x columns), row-major; transposed: B is columns x inner. An element
// is a symbol, or has it in its low bytes.
template <class Symbol, class Element>
struct Product {
  typename GaloisField<Symbol>::Tables field;
  const Element *a, *b;
  Element *c;
  std::size_t rows, inner, columns;

  Element multiply(Element x, Element y) const {
    return field.multiply(static_cast<Symbol>(x), static_cast<Symbol>(y));
  }
  // Columns begin .. end. Not inlined, so that a profiler sees the functions. Each works on a copy of the object: a
  // store of bytes may change members behind `this`, and all pointers would be loaded again for each byte.
  template <bool kTransposed>
  [[gnu::noinline]] void product_ijk(std::size_t begin, std::size_t end) const {
    const Product p = *this;
    for (std::size_t i = 0; i < p.rows; ++i) {
      const Element *const row = p.a + i * p.inner;
      for (std::size_t j = begin; j < end; ++j) {
        Element sum = 0;
        for (std::size_t x = 0; x < p.inner; ++x)
          sum ^= p.multiply(row[x], p.b[kTransposed ? j * p.inner + x : x * p.columns + j]);
        p.c[i * p.columns + j] = sum;
      }
    }
  }
  [[gnu::noinline]] void product_ikj(std::size_t begin, std::size_t end) const {
    const Product p = *this;
    for (std::size_t i = 0; i < p.rows; ++i) {
      Element *__restrict const out = p.c + i * p.columns;
      std::fill(out + begin, out + end, Element{0});
      for (std::size_t x = 0; x < p.inner; ++x) {
        const Element factor = p.a[i * p.inner + x];
        const Element *const in = p.b + x * p.columns;
        for (std::size_t j = begin; j < end; ++j) out[j] ^= p.multiply(factor, in[j]);
      }
    }
  }
  void run(Order order, std::size_t begin, std::size_t end) const {
    if (order == Order::ikj) return product_ikj(begin, end);
    if (order == Order::ijk) return product_ijk<false>(begin, end);
    product_ijk<true>(begin, end);
  }
};

// Threads that stay: each runs its share of every round.
class Pool {
 public:
  explicit Pool(unsigned count) : all_(count + 1) {
    for (unsigned i = 0; i < count; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Pool() {
    body_ = nullptr;
    all_.arrive_and_wait();
  }
  std::size_t made_count() const { return threads_.size(); }

  void run(const std::function<void(unsigned)> &body) {
    body_ = &body;
    all_.arrive_and_wait();  // the round begins
    all_.arrive_and_wait();  // and has ended
  }

 private:
  void work(unsigned number) {
    for (;;) {
      all_.arrive_and_wait();
      if (body_ == nullptr) return;
      (*body_)(number);
      all_.arrive_and_wait();
    }
  }

  std::barrier<> all_;
  const std::function<void(unsigned)> *body_ = nullptr;
  std::vector<std::jthread> threads_;
};

struct Settings {
  std::size_t k, m, shard_bytes, rounds, repeats, block_columns;
  unsigned threads;
  std::string way, file;
  Order order;
  bool whole;  // the identity rows are multiplied too
  bool pins;   // each thread of the naive product stays on a core of its own
};

// Bytes that this process has read from storage, not from the page cache; nothing: the system does not say.
std::optional<std::uint64_t> storage_bytes_read() {
  std::ifstream file("/proc/self/io");
  std::uint64_t value = 0;
  for (std::string name; file >> name >> value;)
    if (name == "read_bytes:") return value;
  return {};
}

// The file's bytes, with k shards for each round; or random bytes, the same for all rounds.
class Source {
 public:
  explicit Source(const std::string &path) {
    if (path.empty()) return;
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) throw std::runtime_error("cannot open " + path);
  }
  ~Source() {
    if (file_ >= 0) close(file_);
  }
  Source(const Source &) = delete;
  Source &operator=(const Source &) = delete;

  // The next pass reads from the disk, if the system follows the advice.
  void rewind() const {
    if (file_ >= 0) posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);
  }
  void read(std::uint8_t *out, std::size_t bytes, std::size_t round) const {
    for (std::size_t done = 0; file_ >= 0 && done < bytes;) {
      const ssize_t got = pread(file_, out + done, bytes - done, static_cast<off_t>(round * bytes + done));
      if (got < 0) throw std::runtime_error("cannot read the file");
      if (got == 0) {
        std::memset(out + done, 0, bytes - done);
        return;
      }
      done += static_cast<std::size_t>(got);
    }
  }

 private:
  int file_ = -1;
};

template <class Symbol, class Element>
class Experiment {
 public:
  explicit Experiment(const Settings &settings)
      : at_(settings),
        columns_(settings.shard_bytes / sizeof(Element)),
        rows_(settings.m + (settings.whole ? settings.k : 0)),
        data_(settings.k, settings.shard_bytes),
        out_(rows_, settings.shard_bytes),
        source_(settings.file),
        cores_(allowed_cores()),
        core_of_(settings.threads) {
    fill_random(data_.memory(), data_.bytes(), 1);
    make_matrix();
    if (at_.pins) check_pinning();
  }

  Json run() {
    const std::function<void(std::size_t)> round = round_of(at_.way);
    if (at_.order == Order::transposed) transposed_.resize(at_.k * columns_);
    Json seconds = Json::array(), cpu_seconds = Json::array(), transposing = Json::array();
    round(0);  // makes threads and tables before the time is measured
    threads_made_ = 0;
    const std::optional<std::uint64_t> stored = storage_bytes_read();
    for (std::size_t repeat = 0; repeat < at_.repeats; ++repeat) {
      source_.rewind();
      transpose_seconds_ = 0;
      const double began = wall_seconds(), began_cpu = process_seconds();
      for (std::size_t i = 0; i < at_.rounds; ++i) {
        source_.read(data_.memory(), data_.bytes(), i);
        round(i);
      }
      seconds.push_back(wall_seconds() - began);
      cpu_seconds.push_back(process_seconds() - began_cpu);
      transposing.push_back(transpose_seconds_);
    }
    Json result = {{"seconds", seconds},
                   {"cpu_seconds", cpu_seconds},
                   {"data_bytes", at_.k * at_.shard_bytes * at_.rounds},
                   {"bytes_equal", as_tandem()}};
    if (stored) result["storage_bytes_read"] = (storage_bytes_read().value_or(*stored) - *stored) / at_.repeats;
    if (at_.order == Order::transposed) result["transpose_seconds"] = transposing;
    if (at_.way == "spawn" || at_.way == "pool")
      result["cores_used"] = std::set<int>(core_of_.begin(), core_of_.end()).size();
    if (counts_threads_) result["threads_made"] = pool_ ? pool_->made_count() : threads_made_ / at_.repeats;
    return result;
  }

 private:
  // 1 / (r xor c): ISA-L's matrix in GF(2^8), the same formula in GF(2^16). The identity rows are above it. More shards
  // than the field has elements are no erasure code; a product needs none.
  void make_matrix() {
    const std::size_t most = GaloisField<Symbol>::kSize - 1;
    coefficients_.resize(at_.m * at_.k);
    for (std::size_t r = 0; r < at_.m; ++r) {
      for (std::size_t c = 0; c < at_.k; ++c)
        coefficients_[r * at_.k + c] = at_.k + at_.m <= most + 1 ? field_.inverse(static_cast<Symbol>((at_.k + r) ^ c))
                                                                 : field_.exp[(r + 1) * c % most];
    }
    if (at_.whole) {
      matrix_.assign(at_.k * at_.k, 0);
      for (std::size_t i = 0; i < at_.k; ++i) matrix_[i * at_.k + i] = 1;
    }
    matrix_.insert(matrix_.end(), coefficients_.begin(), coefficients_.end());
    if (at_.way.starts_with("tandem-")) codec_ = make_codec(0, at_.k);
  }
  // Of `count` columns of the coefficients.
  CodecOwner make_codec(std::size_t first, std::size_t count) const {
    std::vector<Symbol> columns;
    for (std::size_t r = 0; r < at_.m; ++r) {
      const Symbol *const row = &coefficients_[r * at_.k + first];
      columns.insert(columns.end(), row, row + count);
    }
    tandem_codec_options options{};
    options.struct_bytes = sizeof options;
    options.k = static_cast<std::uint32_t>(count);
    options.m = static_cast<std::uint32_t>(at_.m);
    options.matrix = TANDEM_MATRIX_CUSTOM;
    options.field = sizeof(Symbol) == 1 ? TANDEM_FIELD_GF8 : TANDEM_FIELD_GF16;
    options.coefficients = columns.data();
    options.allow_non_mds = 1;  // Tandem does not check so many minors
    tandem_codec *codec = nullptr;
    check(tandem_codec_create(&options, &codec));
    return CodecOwner(codec);
  }

  Product<Symbol, Element> product() {
    const Element *b = reinterpret_cast<const Element *>(data_.memory());
    if (at_.order == Order::transposed) b = transposed_.data();
    return {field_.tables(), matrix_.data(), b, reinterpret_cast<Element *>(out_.memory()), rows_, at_.k, columns_};
  }

  void transpose() {
    if (at_.order != Order::transposed) return;
    const double began = wall_seconds();
    const auto *data = reinterpret_cast<const Element *>(data_.memory());
    for (std::size_t x = 0; x < at_.k; ++x) {
      for (std::size_t j = 0; j < columns_; ++j) transposed_[j * at_.k + x] = data[x * columns_ + j];
    }
    transpose_seconds_ += wall_seconds() - began;
  }

  // By Tandem.
  void encode_columns(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    std::vector<const void *> data;
    std::vector<void *> parity;
    for (std::size_t i = 0; i < at_.k; ++i) data.push_back(data_[i] + begin * sizeof(Element));
    for (std::size_t i = 0; i < at_.m; ++i) parity.push_back(out_[rows_ - at_.m + i] + begin * sizeof(Element));
    check(tandem_encode(context_.get(), codec_.get(), data.data(), parity.data(), (end - begin) * sizeof(Element)));
  }

  // The columns of one of at_.threads threads.
  std::pair<std::size_t, std::size_t> part(unsigned thread) const {
    return {columns_ * thread / at_.threads, columns_ * (thread + 1) / at_.threads};
  }
  std::function<void(unsigned)> naive_part() {
    return [this](unsigned thread) {
      if (at_.pins) pin_this_thread(cores_[thread % cores_.size()]);
      const auto [begin, end] = part(thread);
      product().run(at_.order, begin, end);
      core_of_[thread] = sched_getcpu();
    };
  }

  // An OpenMP loop over blocks of columns.
  template <class Body>
  void in_blocks(bool is_static, std::size_t block, Body body) const {
#ifndef _OPENMP
    throw NotMeasured("this compiler has no OpenMP runtime");
#endif
    const auto count = static_cast<std::int64_t>((columns_ + block - 1) / block);
    const auto run = [&](std::int64_t i) {
      const std::size_t begin = static_cast<std::size_t>(i) * block;
      body(begin, std::min(begin + block, columns_));
    };
    if (is_static) {
#pragma omp parallel for schedule(static) num_threads(at_.threads)
      for (std::int64_t i = 0; i < count; ++i) run(i);
    } else {
#pragma omp parallel for schedule(dynamic) num_threads(at_.threads)
      for (std::int64_t i = 0; i < count; ++i) run(i);
    }
  }

  std::function<void(std::size_t)> round_of(const std::string &way) {
    if (way == "sequential") {
      return [this](std::size_t) {
        transpose();
        product().run(at_.order, 0, columns_);
      };
    }
    if (way == "spawn") {
      counts_threads_ = true;
      return [this, body = naive_part()](std::size_t) {
        transpose();
        on_new_threads(at_.threads, body);
        threads_made_ += at_.threads;
      };
    }
    if (way == "pool") {
      counts_threads_ = true;
      return [this, body = naive_part()](std::size_t) {
        transpose();
        if (!pool_) pool_.emplace(at_.threads);
        pool_->run(body);
      };
    }
    if (way == "openmp-static" || way == "openmp-dynamic") {
      return [this, is_static = way == "openmp-static"](std::size_t) {
        transpose();
        const Product<Symbol, Element> what = product();
        in_blocks(is_static, at_.block_columns,
                  [&](std::size_t begin, std::size_t end) { what.run(at_.order, begin, end); });
      };
    }
    if (way == "tandem-spawn") {  // the report's threads over Tandem's serial code: each round makes them
      counts_threads_ = true;
      context_ = make_context("serial", 1);
      return [this](std::size_t) {
        on_new_threads(at_.threads, [this](unsigned thread) {
          const auto [begin, end] = part(thread);
          encode_columns(begin, end);
        });
        threads_made_ += at_.threads;
      };
    }
    if (way == "tandem-openmp-static" || way == "tandem-openmp-dynamic") {  // a loop over Tandem's serial code
      context_ = make_context("serial", 1);
      return [this, is_static = way == "tandem-openmp-static"](std::size_t) {
        in_blocks(is_static, 8192 / sizeof(Element),
                  [&](std::size_t begin, std::size_t end) { encode_columns(begin, end); });
      };
    }
    if (way == "tandem-serial" || way == "tandem-pthread") {
      context_ = way == "tandem-serial" ? make_context("serial", 1) : make_context("pthread", at_.threads);
      return [this](std::size_t) {
        check(tandem_encode(context_.get(), codec_.get(), data_.data(), out_.data(rows_ - at_.m), at_.shard_bytes));
      };
    }
    throw std::runtime_error("no way is called " + way);
  }

  // The symbols of some shards, without the bytes of a wide element that have no part in it.
  void take_symbols(const Shards &from, std::size_t first, const Shards &to) const {
    for (std::size_t i = 0; i < to.count(); ++i) {
      const auto *in = reinterpret_cast<const Element *>(from[first + i]);
      auto *out = reinterpret_cast<Symbol *>(to[i]);
      for (std::size_t j = 0; j < columns_; ++j) out[j] = static_cast<Symbol>(in[j]);
    }
  }
  // Of the last round.
  bool as_tandem() const {
    const std::size_t bytes = columns_ * sizeof(Symbol);
    const Shards data(at_.k, bytes), identity(at_.k, bytes), parity(at_.m, bytes), expected(at_.m, bytes),
        part(at_.m, bytes);
    take_symbols(data_, 0, data);
    take_symbols(out_, rows_ - at_.m, parity);
    const ContextOwner serial = make_context("serial", 1);
    const std::size_t most = GaloisField<Symbol>::kSize - at_.m;  // data shards of a codec; more are summed up
    for (std::size_t first = 0; first < at_.k; first += most) {
      const CodecOwner codec = make_codec(first, std::min(most, at_.k - first));
      check(tandem_encode(serial.get(), codec.get(), data.data(first), part.data(), bytes));
      for (std::size_t i = 0; i < part.bytes(); ++i)
        expected.memory()[i] = static_cast<std::uint8_t>(expected.memory()[i] ^ part.memory()[i]);
    }
    if (!equal(parity, 0, expected, 0, at_.m)) return false;
    if (!at_.whole || at_.way.starts_with("tandem-")) return true;
    take_symbols(out_, 0, identity);
    return equal(identity, 0, data, 0, at_.k);
  }

  const Settings at_;
  const std::size_t columns_, rows_;
  const GaloisField<Symbol> field_;
  Shards data_, out_;
  const Source source_;
  const std::vector<int> cores_;
  std::vector<int> core_of_;  // where each thread ended its last part
  std::vector<Symbol> coefficients_;
  std::vector<Element> matrix_, transposed_;
  CodecOwner codec_;
  ContextOwner context_;
  std::optional<Pool> pool_;
  std::size_t threads_made_ = 0;
  double transpose_seconds_ = 0;
  bool counts_threads_ = false;
};

Json measure(Arguments &arguments) {
  Settings at;
  const std::uint64_t field = arguments.number("field", 8),
                      element_bytes = arguments.number("element-bytes", field / 8);
  at.k = arguments.number("k", 10);
  at.m = arguments.number("m", 4);
  at.shard_bytes = arguments.number("shard-bytes", 1000);
  at.rounds = arguments.number("rounds", 1);
  at.repeats = arguments.number("repeats", 1);
  at.threads = static_cast<unsigned>(arguments.number("threads", 1));
  at.block_columns = arguments.number("block-columns", 64);
  at.way = arguments.text("way", "sequential");
  at.file = arguments.text("file", "");
  const std::string order = arguments.text("order", "ikj");
  at.order = order == "ijk" ? Order::ijk : order == "ikj" ? Order::ikj : Order::transposed;
  if (at.order == Order::transposed && order != "transposed") throw std::runtime_error("no order is called " + order);
  at.whole = arguments.text("rows", "parity") == "whole";
  at.pins = arguments.number("pin", 0) != 0;
  arguments.done();
  if (at.k == 0 || at.m == 0 || at.threads == 0 || at.block_columns == 0 || at.repeats == 0 || at.rounds == 0 ||
      at.shard_bytes == 0 || at.shard_bytes % 4 != 0 || (field != 8 && field != 16) || at.m >= (1ULL << field) ||
      (at.k + at.m > (1ULL << field) && at.way.starts_with("tandem-")))
    throw std::runtime_error(
        "field 8 or 16, sizes above zero, shards of whole elements, and, for Tandem, k + m within the field");
  if (at.pins && at.way != "spawn" && at.way != "pool") throw std::runtime_error("--pin is for spawn and pool");
  if (element_bytes != field / 8 && (element_bytes != 4 || at.way.starts_with("tandem-")))
    throw std::runtime_error("an element is a symbol of the field, or, for naive products, has 4 bytes");
  if (element_bytes == 1) return Experiment<std::uint8_t, std::uint8_t>(at).run();
  if (element_bytes == 2) return Experiment<std::uint16_t, std::uint16_t>(at).run();
  return field == 8 ? Experiment<std::uint8_t, std::uint32_t>(at).run()
                    : Experiment<std::uint16_t, std::uint32_t>(at).run();
}

}  // namespace
}  // namespace tandem::studies

int main(int count, char **words) { return tandem::studies::run_contender(count, words, tandem::studies::measure); }
