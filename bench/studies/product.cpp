// SPDX-License-Identifier: Apache-2.0
// Study A: encodes by the product of a matrix and the data, one element at a time, with the loop orders and threads of
// the student report; and by Tandem with the same coefficients.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "bench/studies/contenders.hpp"

namespace tandem::studies {
namespace {

using Json = nlohmann::ordered_json;

// The field of the element: GF(2^8) modulo 0x11d, GF(2^16) modulo 0x1100b, as in tandem.h.
template <class Element>
struct GaloisField {
  static constexpr std::size_t kSize = std::size_t{1} << (8 * sizeof(Element));
  static constexpr unsigned kPolynomial = sizeof(Element) == 1 ? 0x11d : 0x1100b;

  GaloisField() : log(kSize), exp(2 * kSize) {
    unsigned value = 1;
    for (std::size_t i = 0; i < kSize - 1; ++i) {
      exp[i] = exp[i + kSize - 1] = static_cast<Element>(value);
      log[value] = static_cast<std::uint32_t>(i);
      value <<= 1;
      if (value >= kSize) value ^= kPolynomial;
    }
    if constexpr (sizeof(Element) == 1) {
      products.resize(kSize * kSize);
      for (std::size_t a = 1; a < kSize; ++a) {
        for (std::size_t b = 1; b < kSize; ++b) products[a * kSize + b] = exp[log[a] + log[b]];
      }
    }
  }
  // GF(2^8): a table of all products, so that zeros and ones of the identity cost as much as any other element.
  Element multiply(Element a, Element b) const {
    if constexpr (sizeof(Element) == 1) return products[a * kSize + b];
    return a == 0 || b == 0 ? Element{0} : exp[log[a] + log[b]];
  }
  Element inverse(Element a) const { return exp[kSize - 1 - log[a]]; }

  std::vector<std::uint32_t> log;
  std::vector<Element> exp, products;
};

enum class Order { ijk, ikj, transposed };

// C (rows x columns) = A (rows x inner) * B (inner x columns), row-major; transposed: B is columns x inner.
template <class Element>
struct Product {
  const GaloisField<Element> &field;
  const Element *a, *b;
  Element *c;
  std::size_t rows, inner, columns;

  // Columns begin .. end. Not inlined, so that a profiler sees the functions.
  [[gnu::noinline]] void product_ijk(std::size_t begin, std::size_t end) const {
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = begin; j < end; ++j) {
        Element sum = 0;
        for (std::size_t x = 0; x < inner; ++x) sum ^= field.multiply(a[i * inner + x], b[x * columns + j]);
        c[i * columns + j] = sum;
      }
    }
  }
  [[gnu::noinline]] void product_ikj(std::size_t begin, std::size_t end) const {
    for (std::size_t i = 0; i < rows; ++i) {
      std::fill(c + i * columns + begin, c + i * columns + end, Element{0});
      for (std::size_t x = 0; x < inner; ++x) {
        for (std::size_t j = begin; j < end; ++j)
          c[i * columns + j] ^= field.multiply(a[i * inner + x], b[x * columns + j]);
      }
    }
  }
  [[gnu::noinline]] void product_transposed(std::size_t begin, std::size_t end) const {
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = begin; j < end; ++j) {
        Element sum = 0;
        for (std::size_t x = 0; x < inner; ++x) sum ^= field.multiply(a[i * inner + x], b[j * inner + x]);
        c[i * columns + j] = sum;
      }
    }
  }
  void run(Order order, std::size_t begin, std::size_t end) const {
    if (order == Order::ijk) return product_ijk(begin, end);
    if (order == Order::ikj) return product_ikj(begin, end);
    product_transposed(begin, end);
  }
};

// Threads that stay: each runs its share of every round.
class Pool {
 public:
  explicit Pool(unsigned count) : count_(count) {
    for (unsigned i = 0; i < count; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
  }
  std::size_t made_count() const { return threads_.size(); }

  void run(const std::function<void(unsigned)> &body) {
    std::unique_lock lock(mutex_);
    body_ = &body;
    running_ = count_;
    ++round_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  void work(unsigned number) {
    std::uint64_t seen = 0;
    for (;;) {
      const std::function<void(unsigned)> *body = nullptr;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ends_ || round_ != seen; });
        if (ends_) return;
        seen = round_;
        body = body_;
      }
      (*body)(number);
      const std::lock_guard lock(mutex_);
      if (--running_ == 0) changed_.notify_all();
    }
  }

  const unsigned count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(unsigned)> *body_ = nullptr;
  std::uint64_t round_ = 0;
  unsigned running_ = 0;
  bool ends_ = false;
  std::vector<std::jthread> threads_;
};

struct Settings {
  std::size_t k, m, shard_bytes, rounds, repeats, block_columns;
  unsigned threads;
  std::string way, file;
  Order order;
  bool whole;  // the identity rows are multiplied too
};

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

template <class Element>
class Experiment {
 public:
  explicit Experiment(const Settings &settings)
      : at_(settings),
        columns_(settings.shard_bytes / sizeof(Element)),
        rows_(settings.m + (settings.whole ? settings.k : 0)),
        data_(settings.k, settings.shard_bytes),
        out_(rows_, settings.shard_bytes),
        source_(settings.file) {
    fill_random(data_.memory(), data_.bytes(), 1);
    make_matrix();
  }

  Json run() {
    const std::function<void(std::size_t)> round = round_of(at_.way);
    if (at_.order == Order::transposed) transposed_.resize(at_.k * columns_);
    Json seconds = Json::array(), cpu_seconds = Json::array(), transposing = Json::array();
    round(0);  // makes threads and tables before the time is measured
    threads_made_ = 0;
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
    if (at_.order == Order::transposed) result["transpose_seconds"] = transposing;
    if (counts_threads_) result["threads_made"] = pool_ ? pool_->made_count() : threads_made_ / at_.repeats;
    return result;
  }

 private:
  // 1 / (r xor c): ISA-L's matrix in GF(2^8), the same formula in GF(2^16). The identity rows are above it.
  void make_matrix() {
    coefficients_.resize(at_.m * at_.k);
    for (std::size_t r = 0; r < at_.m; ++r) {
      for (std::size_t c = 0; c < at_.k; ++c)
        coefficients_[r * at_.k + c] = field_.inverse(static_cast<Element>((at_.k + r) ^ c));
    }
    matrix_ = coefficients_;
    if (at_.whole) {
      matrix_.assign(at_.k * at_.k, 0);
      for (std::size_t i = 0; i < at_.k; ++i) matrix_[i * at_.k + i] = 1;
      matrix_.insert(matrix_.end(), coefficients_.begin(), coefficients_.end());
    }
    tandem_codec_options options{};
    options.struct_bytes = sizeof options;
    options.k = static_cast<std::uint32_t>(at_.k);
    options.m = static_cast<std::uint32_t>(at_.m);
    options.matrix = TANDEM_MATRIX_CUSTOM;
    options.field = sizeof(Element) == 1 ? TANDEM_FIELD_GF8 : TANDEM_FIELD_GF16;
    options.coefficients = coefficients_.data();
    options.allow_non_mds = 1;  // it is MDS: a Cauchy matrix of distinct points; Tandem does not check so many minors
    tandem_codec *codec = nullptr;
    check(tandem_codec_create(&options, &codec));
    codec_.reset(codec);
  }

  Product<Element> product() {
    const Element *b = reinterpret_cast<const Element *>(data_.memory());
    if (at_.order == Order::transposed) b = transposed_.data();
    return {field_, matrix_.data(), b, reinterpret_cast<Element *>(out_.memory()), rows_, at_.k, columns_};
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
      const auto [begin, end] = part(thread);
      product().run(at_.order, begin, end);
    };
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
#ifndef _OPENMP
      throw NotMeasured("this compiler has no OpenMP runtime");
#endif
      const std::int64_t block = static_cast<std::int64_t>(at_.block_columns);
      return [this, block, is_static = way == "openmp-static"](std::size_t) {
        transpose();
        const Product<Element> what = product();
        const auto columns = static_cast<std::int64_t>(columns_);
        const auto run = [&](std::int64_t begin) {
          what.run(at_.order, static_cast<std::size_t>(begin),
                   static_cast<std::size_t>(std::min(begin + block, columns)));
        };
        if (is_static) {
#pragma omp parallel for schedule(static) num_threads(at_.threads)
          for (std::int64_t begin = 0; begin < columns; begin += block) run(begin);
        } else {
#pragma omp parallel for schedule(dynamic) num_threads(at_.threads)
          for (std::int64_t begin = 0; begin < columns; begin += block) run(begin);
        }
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
#ifndef _OPENMP
      throw NotMeasured("this compiler has no OpenMP runtime");
#endif
      context_ = make_context("serial", 1);
      return [this, is_static = way == "tandem-openmp-static"](std::size_t) {
        constexpr std::int64_t kBlock = 8192 / sizeof(Element);
        const auto columns = static_cast<std::int64_t>(columns_);
        const auto run = [&](std::int64_t begin) {
          encode_columns(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(begin + kBlock, columns)));
        };
        if (is_static) {
#pragma omp parallel for schedule(static) num_threads(at_.threads)
          for (std::int64_t begin = 0; begin < columns; begin += kBlock) run(begin);
        } else {
#pragma omp parallel for schedule(dynamic) num_threads(at_.threads)
          for (std::int64_t begin = 0; begin < columns; begin += kBlock) run(begin);
        }
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

  // Of the last round.
  bool as_tandem() {
    Shards parity(at_.m, at_.shard_bytes);
    const ContextOwner serial = make_context("serial", 1);
    check(tandem_encode(serial.get(), codec_.get(), data_.data(), parity.data(), at_.shard_bytes));
    const bool is_tandem = at_.way.starts_with("tandem-");
    return equal(out_, rows_ - at_.m, parity, 0, at_.m) && (!at_.whole || is_tandem || equal(out_, 0, data_, 0, at_.k));
  }

  const Settings at_;
  const std::size_t columns_, rows_;
  const GaloisField<Element> field_;
  Shards data_, out_;
  const Source source_;
  std::vector<Element> coefficients_, matrix_, transposed_;
  CodecOwner codec_;
  ContextOwner context_;
  std::optional<Pool> pool_;
  std::size_t threads_made_ = 0;
  double transpose_seconds_ = 0;
  bool counts_threads_ = false;
};

Json measure(Arguments &arguments) {
  Settings at;
  const std::uint64_t field = arguments.number("field", 8);
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
  arguments.done();
  if (at.k == 0 || at.m == 0 || at.threads == 0 || at.block_columns == 0 || at.repeats == 0 || at.rounds == 0 ||
      at.shard_bytes == 0 || at.shard_bytes % 2 != 0 || (field != 8 && field != 16) || at.k + at.m > (1ULL << field))
    throw std::runtime_error("field 8 or 16, sizes above zero, an even shard length, and k + m within the field");
  return field == 8 ? Experiment<std::uint8_t>(at).run() : Experiment<std::uint16_t>(at).run();
}

}  // namespace
}  // namespace tandem::studies

int main(int count, char **words) { return tandem::studies::run_contender(count, words, tandem::studies::measure); }
