// SPDX-License-Identifier: Apache-2.0
// Study B: Jerasure 2.0, opened at run time, with the document's threads and with columns; and Tandem with the same
// coefficients.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "bench/studies/contenders.hpp"
#include "tandem/diagnose.h"

namespace tandem::studies {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kWordBits = 8;
constexpr std::uint8_t kLostByte = 0xa5;

// The functions of libJerasure that are called; the declarations are those of jerasure.h and galois.h.
struct Jerasure {
  explicit Jerasure(const std::string &path) {
    void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw NotMeasured(dlerror());
    const auto find = [&](const char *name, auto *function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
      if (*function == nullptr) throw NotMeasured(path + " has no function " + name);
    };
    find("jerasure_matrix_encode", &encode);
    find("jerasure_matrix_decode", &decode);
    find("jerasure_matrix_dotprod", &dotprod);
    find("jerasure_make_decoding_matrix", &make_decoding_matrix);
    find("galois_w08_region_multiply", &multiply_region);
    // The first call makes the field's tables. Two calls must not do so at once.
    std::vector<char> region(64);
    multiply_region(region.data(), 2, static_cast<int>(region.size()), region.data(), 0);
  }

  void (*encode)(int k, int m, int w, int *matrix, char **data, char **coding, int size);
  int (*decode)(int k, int m, int w, int *matrix, int row_k_ones, int *erasures, char **data, char **coding, int size);
  void (*dotprod)(int k, int w, int *row, int *source_ids, int destination, char **data, char **coding, int size);
  int (*make_decoding_matrix)(int k, int m, int w, int *matrix, int *erased, int *decoding, int *ids);
  void (*multiply_region)(char *region, int by, int bytes, char *out, int add);
};

struct Settings {
  unsigned k, m, threads;
  std::size_t buffer_bytes, file_bytes, repeats, seed;
  std::string library, operation, lost, way;
};

class Experiment {
 public:
  explicit Experiment(const Settings &settings)
      : at_(settings),
        jerasure_(settings.library),
        codec_(make_codec(settings.k, settings.m, TANDEM_MATRIX_JERASURE_VANDERMONDE)),
        shards_(settings.k + settings.m, settings.buffer_bytes / settings.k / 64 * 64),
        original_(shards_.count(), shards_.shard_bytes()),
        present_(settings.k + settings.m, 1),
        matrix_(std::size_t{settings.k} * settings.m),
        decoding_(std::size_t{settings.k} * settings.k),
        ids_(settings.k) {
    std::vector<std::uint8_t> coefficients(matrix_.size());
    check(tandem_codec_coefficients(codec_.get(), coefficients.data(), coefficients.size()));
    std::copy(coefficients.begin(), coefficients.end(), matrix_.begin());
    fill_random(original_.memory(), at_.k * original_.shard_bytes(), 1);
    const ContextOwner serial = make_context("serial", 1);
    check(tandem_encode(serial.get(), codec_.get(), original_.data(), original_.data(at_.k), original_.shard_bytes()));
    std::memcpy(shards_.memory(), original_.memory(), original_.bytes());
    lose();
  }

  Json run() {
    const std::function<void()> round = round_of();
    const std::size_t bytes = at_.k * shards_.shard_bytes();
    const std::size_t rounds = std::max<std::size_t>(1, at_.file_bytes / bytes);
    round();
    Json seconds = Json::array(), cpu_seconds = Json::array();
    for (std::size_t repeat = 0; repeat < at_.repeats; ++repeat) {
      const double began = wall_seconds(), began_cpu = process_seconds();
      for (std::size_t i = 0; i < rounds; ++i) round();
      seconds.push_back(wall_seconds() - began);
      cpu_seconds.push_back(process_seconds() - began_cpu);
    }
    return {{"seconds", seconds},
            {"cpu_seconds", cpu_seconds},
            {"data_bytes", rounds * bytes},
            {"shard_bytes", shards_.shard_bytes()},
            {"bytes_equal", equal(shards_, 0, original_, 0, shards_.count())}};
  }

 private:
  // Encode: all parity. Decode: the first m data shards (as many as there are), m random ones, or half data and half
  // parity.
  void lose() {
    if (at_.operation == "encode") {
      for (unsigned i = 0; i < at_.m; ++i) lost_parity_.push_back(i);
    } else {
      const unsigned data = std::min(at_.k, at_.lost == "mixed" ? at_.m / 2 : at_.m);
      std::vector<unsigned> order(at_.k);
      std::iota(order.begin(), order.end(), 0U);
      std::mt19937_64 random(at_.seed);
      for (unsigned i = 0; at_.lost == "random" && i < at_.k; ++i)
        std::swap(order[i], order[i + random() % (at_.k - i)]);
      lost_data_.assign(order.begin(), order.begin() + data);
      std::sort(lost_data_.begin(), lost_data_.end());
      for (unsigned i = 0; at_.lost == "mixed" && i < at_.m - data; ++i) lost_parity_.push_back(i);
    }
    for (const unsigned i : lost_data_) present_[i] = 0;
    for (const unsigned i : lost_parity_) present_[at_.k + i] = 0;
    for (unsigned i = 0; i < at_.k + at_.m; ++i) {
      if (present_[i] == 0) {
        std::memset(shards_[i], kLostByte, shards_.shard_bytes());
        erasures_.push_back(static_cast<int>(i));
      }
    }
    erasures_.push_back(-1);
    std::vector<int> erased(present_.size());
    for (std::size_t i = 0; i < erased.size(); ++i) erased[i] = present_[i] == 0 ? 1 : 0;
    if (jerasure_.make_decoding_matrix(int(at_.k), int(at_.m), kWordBits, matrix_.data(), erased.data(),
                                       decoding_.data(), ids_.data()) != 0)
      throw std::runtime_error("Jerasure finds these survivors singular");
  }

  char *shard(std::size_t i) const { return reinterpret_cast<char *>(shards_[i]); }

  // out = the sum of coefficient * shard over the ids that `takes` accepts, columns begin .. end.
  template <class Takes>
  void sum(std::size_t out, const int *coefficients, const int *ids, Takes takes, bool add, std::size_t begin,
           std::size_t end) const {
    for (unsigned c = 0; c < at_.k; ++c) {
      const std::size_t from = ids != nullptr ? static_cast<std::size_t>(ids[c]) : c;
      if (!takes(from)) continue;
      jerasure_.multiply_region(shard(from) + begin, coefficients[c], static_cast<int>(end - begin), shard(out) + begin,
                                add ? 1 : 0);
      add = true;
    }
    if (!add) std::memset(shard(out) + begin, 0, end - begin);
  }

  std::size_t output_count() const { return lost_data_.size() + lost_parity_.size(); }

  // The document's two regions. First: lost data whole, lost parity from the data that survives. Second: the rest of
  // it.
  void first_region(std::size_t output, std::size_t begin, std::size_t end) const {
    if (output < lost_data_.size()) {
      const std::size_t lost = lost_data_[output];
      sum(
          lost, &decoding_[lost * at_.k], ids_.data(), [](std::size_t) { return true; }, false, begin, end);
    } else {
      const std::size_t lost = lost_parity_[output - lost_data_.size()];
      sum(
          at_.k + lost, &matrix_[lost * at_.k], nullptr, [this](std::size_t i) { return present_[i] != 0; }, false,
          begin, end);
    }
  }
  void second_region(std::size_t output, std::size_t begin, std::size_t end) const {
    const std::size_t lost = lost_parity_[output];
    sum(
        at_.k + lost, &matrix_[lost * at_.k], nullptr, [this](std::size_t i) { return present_[i] == 0; }, true, begin,
        end);
  }
  bool has_second_region() const { return !lost_data_.empty() && !lost_parity_.empty(); }

  // By Tandem, into the pointers that are not NULL.
  void code(void *const *shards) {
    const std::size_t bytes = shards_.shard_bytes();
    if (at_.operation == "encode")
      return check(tandem_encode(context_.get(), codec_.get(), shards, shards + at_.k, bytes));
    check(tandem_decode(context_.get(), codec_.get(), shards, present_.data(), bytes));
  }

  std::function<void()> round_of() {
    const std::string &way = at_.way;
    const std::size_t bytes = shards_.shard_bytes();
    if (way == "jerasure") {
      for (std::size_t i = 0; i < shards_.count(); ++i) pointers_.push_back(shard(i));
      return [this, size = static_cast<int>(bytes)] {
        char **const data = pointers_.data(), **const coding = pointers_.data() + at_.k;
        const int k = static_cast<int>(at_.k), m = static_cast<int>(at_.m);
        if (at_.operation == "encode") return jerasure_.encode(k, m, kWordBits, matrix_.data(), data, coding, size);
        if (jerasure_.decode(k, m, kWordBits, matrix_.data(), 1, erasures_.data(), data, coding, size) != 0)
          throw std::runtime_error("Jerasure cannot decode");
      };
    }
    if (way == "parity-pthread") {
      return [this, bytes] {
        on_new_threads(at_.threads, [&](unsigned thread) {
          for (std::size_t i = thread; i < output_count(); i += at_.threads) first_region(i, 0, bytes);
        });
        if (!has_second_region()) return;
        on_new_threads(at_.threads, [&](unsigned thread) {
          for (std::size_t i = thread; i < lost_parity_.size(); i += at_.threads) second_region(i, 0, bytes);
        });
      };
    }
    if (way == "parity-openmp") {
#ifndef _OPENMP
      throw NotMeasured("this compiler has no OpenMP runtime");
#endif
      return [this, bytes] {
        const auto first = static_cast<std::int64_t>(output_count());
        const auto second = static_cast<std::int64_t>(has_second_region() ? lost_parity_.size() : 0);
#pragma omp parallel for num_threads(at_.threads) schedule(dynamic, 1)
        for (std::int64_t i = 0; i < first; ++i) first_region(static_cast<std::size_t>(i), 0, bytes);
#pragma omp parallel for num_threads(at_.threads) schedule(dynamic, 1)
        for (std::int64_t i = 0; i < second; ++i) second_region(static_cast<std::size_t>(i), 0, bytes);
      };
    }
    if (way == "column-pthread") {
      return [this, bytes] {
        on_new_threads(at_.threads, [&](unsigned thread) {
          const std::size_t lines = bytes / 64;
          const std::size_t begin = lines * thread / at_.threads * 64, end = lines * (thread + 1) / at_.threads * 64;
          if (begin == end) return;
          for (std::size_t i = 0; i < output_count(); ++i) first_region(i, begin, end);
          for (std::size_t i = 0; has_second_region() && i < lost_parity_.size(); ++i) second_region(i, begin, end);
        });
      };
    }
    if (way == "tandem-column") {
      context_ = make_context(at_.threads == 1 ? "serial" : "pthread", at_.threads);
      return [this] { code(shards_.data()); };
    }
    if (way == "tandem-parity") {  // some of the outputs for each thread, over their whole length
      context_ = make_context("serial", 1);
      return [this] {
        on_new_threads(at_.threads, [this](unsigned thread) {
          std::vector<void *> shards(shards_.data(), shards_.data() + shards_.count());
          for (std::size_t i = 0, lost = 0; i < shards.size(); ++i)
            if (present_[i] == 0 && lost++ % at_.threads != thread) shards[i] = nullptr;
          code(shards.data());
        });
      };
    }
    throw std::runtime_error("no way is called " + way);
  }

  const Settings at_;
  const Jerasure jerasure_;
  const CodecOwner codec_;
  Shards shards_, original_;
  std::vector<std::uint8_t> present_;
  std::vector<unsigned> lost_data_, lost_parity_;
  std::vector<int> matrix_, decoding_, ids_, erasures_;
  std::vector<char *> pointers_;
  ContextOwner context_;
};

Json measure(Arguments &arguments) {
  Settings at;
  at.k = static_cast<unsigned>(arguments.number("k", 8));
  at.m = static_cast<unsigned>(arguments.number("m", 4));
  at.threads = static_cast<unsigned>(arguments.number("threads", 1));
  at.buffer_bytes = arguments.number("buffer-bytes", 5'000'000);
  at.file_bytes = arguments.number("file-bytes", 0);
  at.repeats = arguments.number("repeats", 1);
  at.library = arguments.text("library", "libJerasure.so.2");
  at.operation = arguments.text("operation", "encode");
  at.lost = arguments.text("lost", "data");
  at.seed = arguments.number("seed", 1);
  at.way = arguments.text("way", "jerasure");
  arguments.done();
  if (at.k == 0 || at.m == 0 || at.k + at.m > 256 || at.threads == 0 || at.repeats == 0 ||
      at.buffer_bytes / at.k < 64 || at.buffer_bytes > (std::size_t{1} << 30) ||
      (at.operation != "encode" && at.operation != "decode") ||
      (at.lost != "data" && at.lost != "mixed" && at.lost != "random"))
    throw std::runtime_error(
        "k + m <= 256, a buffer of 64 bytes a shard to 1 GiB, encode or decode, data, mixed or random");
  return Experiment(at).run();
}

}  // namespace
}  // namespace tandem::studies

int main(int count, char **words) { return tandem::studies::run_contender(count, words, tandem::studies::measure); }
