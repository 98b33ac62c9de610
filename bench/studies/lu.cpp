// SPDX-License-Identifier: Apache-2.0
// Study E: tiled LU without pivoting over GF(2^8). The task kinds are those of the document: lu0, fwd, bdiv, bmod. All
// contenders except Tandem share these four functions.
#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/studies/contenders.hpp"
#include "bench/studies/spans.hpp"

#ifdef TANDEM_STUDIES_TBB
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#endif

namespace tandem::studies {
namespace {

using Json = nlohmann::ordered_json;

std::uint8_t multiply(std::uint8_t a, std::uint8_t b) {
  unsigned product = 0, value = b;
  for (unsigned bit = 0; bit < 8; ++bit) {
    if ((a >> bit & 1) != 0) product ^= value;
    value = value << 1 ^ ((value & 0x80) != 0 ? 0x11dU : 0U);
  }
  return static_cast<std::uint8_t>(product);
}

std::uint8_t inverse(std::uint8_t a) {  // a^254
  std::uint8_t result = 1;
  for (int i = 0; i < 254; ++i) result = multiply(result, a);
  return result;
}

// out[j] ^= a * in[j]. Without branches, so that the compiler can vectorise it.
void add_multiple(std::uint8_t a, const std::uint8_t *in, std::uint8_t *out, std::size_t count) {
  std::array<std::uint8_t, 8> masks;
  for (unsigned bit = 0; bit < 8; ++bit) masks[bit] = static_cast<std::uint8_t>(0 - (a >> bit & 1));
  for (std::size_t j = 0; j < count; ++j) {
    std::uint8_t value = in[j], sum = 0;
    for (unsigned bit = 0; bit < 8; ++bit) {
      sum = static_cast<std::uint8_t>(sum ^ (value & masks[bit]));
      value = static_cast<std::uint8_t>((value << 1) ^ ((value & 0x80) != 0 ? 0x1d : 0));
    }
    out[j] = static_cast<std::uint8_t>(out[j] ^ sum);
  }
}

// n x n bytes; a tile is `tile` x `tile`.
class Matrix {
 public:
  Matrix(std::size_t n, std::size_t tile) : n_(n), tile_(tile), bytes_(n * n), inverses_(256) {
    for (unsigned a = 1; a < 256; ++a) inverses_[a] = inverse(static_cast<std::uint8_t>(a));
  }

  std::size_t n() const { return n_; }
  std::size_t tile() const { return tile_; }
  std::size_t tiles() const { return n_ / tile_; }
  std::uint8_t *row(std::size_t i) { return &bytes_[i * n_]; }
  std::uint8_t *at(std::size_t i, std::size_t j) { return &bytes_[i * tile_ * n_ + j * tile_]; }
  std::vector<std::uint8_t> &bytes() { return bytes_; }

  void lu0(std::size_t k) {
    std::uint8_t *const a = at(k, k);
    for (std::size_t x = 0; x < tile_; ++x) {
      const std::uint8_t pivot = inverses_[a[x * n_ + x]];
      for (std::size_t i = x + 1; i < tile_; ++i) {
        std::uint8_t &factor = a[i * n_ + x];
        factor = multiply(factor, pivot);
        add_multiple(factor, a + x * n_ + x + 1, a + i * n_ + x + 1, tile_ - x - 1);
      }
    }
  }
  // Row tile: the inverse of L(k,k) from the left.
  void fwd(std::size_t k, std::size_t j) {
    const std::uint8_t *const l = at(k, k);
    std::uint8_t *const a = at(k, j);
    for (std::size_t x = 0; x < tile_; ++x) {
      for (std::size_t i = x + 1; i < tile_; ++i) add_multiple(l[i * n_ + x], a + x * n_, a + i * n_, tile_);
    }
  }
  // Column tile: the inverse of U(k,k) from the right.
  void bdiv(std::size_t k, std::size_t i) {
    const std::uint8_t *const u = at(k, k);
    std::uint8_t *const a = at(i, k);
    for (std::size_t r = 0; r < tile_; ++r) {
      std::uint8_t *const row = a + r * n_;
      for (std::size_t x = 0; x < tile_; ++x) {
        row[x] = multiply(row[x], inverses_[u[x * n_ + x]]);
        add_multiple(row[x], u + x * n_ + x + 1, row + x + 1, tile_ - x - 1);
      }
    }
  }
  void bmod(std::size_t i, std::size_t j, std::size_t k) {
    const std::uint8_t *const l = at(i, k), *const u = at(k, j);
    std::uint8_t *const a = at(i, j);
    for (std::size_t r = 0; r < tile_; ++r) {
      for (std::size_t x = 0; x < tile_; ++x) add_multiple(l[r * n_ + x], u + x * n_, a + r * n_, tile_);
    }
  }

 private:
  std::size_t n_, tile_;
  std::vector<std::uint8_t> bytes_, inverses_;
};

Spans spans;

void sequential(Matrix &a) {
  const std::size_t count = a.tiles();
  for (std::size_t k = 0; k < count; ++k) {
    spans.record("lu0", [&] { a.lu0(k); });
    for (std::size_t j = k + 1; j < count; ++j) spans.record("fwd", [&] { a.fwd(k, j); });
    for (std::size_t i = k + 1; i < count; ++i) spans.record("bdiv", [&] { a.bdiv(k, i); });
    for (std::size_t i = k + 1; i < count; ++i) {
      for (std::size_t j = k + 1; j < count; ++j) spans.record("bmod", [&] { a.bmod(i, j, k); });
    }
  }
}

// Figure 1 of the document. Dependences name the first byte of each tile.
void openmp_depend([[maybe_unused]] Matrix &a, [[maybe_unused]] unsigned threads) {
#ifndef _OPENMP
  throw NotMeasured("this compiler has no OpenMP runtime");
#else
  const std::size_t count = a.tiles();
  std::vector<std::uint8_t *> places(count * count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) places[i * count + j] = a.at(i, j);
  }
  [[maybe_unused]] std::uint8_t *const *const m = places.data();  // for the dependences
#pragma omp parallel num_threads(threads)
#pragma omp single
  for (std::size_t k = 0; k < count; ++k) {
#pragma omp task untied shared(a) firstprivate(k) depend(inout : m[k * count + k][0])
    spans.record("lu0", [&] { a.lu0(k); });
    for (std::size_t j = k + 1; j < count; ++j) {
#pragma omp task untied shared(a) firstprivate(k, j) depend(in                                  \
                                                            : m[k * count + k][0]) depend(inout \
                                                                                          : m[k * count + j][0])
      spans.record("fwd", [&] { a.fwd(k, j); });
    }
    for (std::size_t i = k + 1; i < count; ++i) {
#pragma omp task untied shared(a) firstprivate(k, i) depend(in                                  \
                                                            : m[k * count + k][0]) depend(inout \
                                                                                          : m[i * count + k][0])
      spans.record("bdiv", [&] { a.bdiv(k, i); });
    }
    for (std::size_t i = k + 1; i < count; ++i) {
      for (std::size_t j = k + 1; j < count; ++j) {
#pragma omp task untied shared(a) firstprivate(k, i, j) depend(in                                          \
                                                               : m[i * count + k][0], m[k * count + j][0]) \
    depend(inout                                                                                           \
           : m[i * count + j][0])
        spans.record("bmod", [&] { a.bmod(i, j, k); });
      }
    }
  }
#endif
}

// The same graph, with work stealing.
void tbb_graph([[maybe_unused]] Matrix &a, [[maybe_unused]] unsigned threads) {
#ifndef TANDEM_STUDIES_TBB
  throw NotMeasured("built without oneTBB (Debian, Ubuntu: apt-get install libtbb-dev)");
#else
  namespace flow = tbb::flow;
  using Node = flow::continue_node<flow::continue_msg>;
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  tbb::task_arena arena(static_cast<int>(threads));
  arena.execute([&] {
    const std::size_t count = a.tiles();
    flow::graph graph;
    std::vector<std::unique_ptr<Node> > nodes;
    std::vector<Node *> writers(count * count, nullptr);
    const auto add = [&](std::initializer_list<std::size_t> reads, std::size_t writes, auto body) {
      nodes.push_back(std::make_unique<Node>(graph, [body](const flow::continue_msg &) { body(); }));
      Node *const node = nodes.back().get();
      for (const std::size_t tile : reads) flow::make_edge(*writers[tile], *node);
      if (writers[writes] != nullptr) flow::make_edge(*writers[writes], *node);
      writers[writes] = node;
    };
    const auto tile = [count](std::size_t i, std::size_t j) { return i * count + j; };
    for (std::size_t k = 0; k < count; ++k) {
      add({}, tile(k, k), [&a, k] { spans.record("lu0", [&] { a.lu0(k); }); });
      for (std::size_t j = k + 1; j < count; ++j)
        add({tile(k, k)}, tile(k, j), [&a, k, j] { spans.record("fwd", [&] { a.fwd(k, j); }); });
      for (std::size_t i = k + 1; i < count; ++i)
        add({tile(k, k)}, tile(i, k), [&a, k, i] { spans.record("bdiv", [&] { a.bdiv(k, i); }); });
      for (std::size_t i = k + 1; i < count; ++i) {
        for (std::size_t j = k + 1; j < count; ++j)
          add({tile(i, k), tile(k, j)}, tile(i, j), [&a, k, i, j] { spans.record("bmod", [&] { a.bmod(i, j, k); }); });
      }
    }
    nodes.front()->try_put(flow::continue_msg());
    graph.wait_for_all();
  });
#endif
}

// tandem_encode changes the rows below a row of tiles: its matrix is L, its data shards are rows of U. Tiles on the
// diagonal, and in its row and column, use the four functions, one after the other.
class ByTandem {
 public:
  ByTandem(unsigned threads, std::size_t n)
      : context_(make_context(threads == 1 ? "serial" : "pthread", threads)), sums_(kMostRows, n) {}

  void operator()(Matrix &a) {
    const std::size_t count = a.tiles(), tile = a.tile();
    for (std::size_t k = 0; k < count; ++k) {
      spans.record("lu0", [&] { a.lu0(k); });
      for (std::size_t j = k + 1; j < count; ++j) spans.record("fwd", [&] { a.fwd(k, j); });
      for (std::size_t i = k + 1; i < count; ++i) spans.record("bdiv", [&] { a.bdiv(k, i); });
      for (std::size_t first = (k + 1) * tile; first < a.n(); first += kMostRows)
        spans.record("bmod", [&] { update(a, k * tile, first, std::min(first + kMostRows, a.n())); });
    }
  }

 private:
  static constexpr std::size_t kMostRows = 128;

  // Rows first .. end, columns right of the tile that begins at `at`.
  void update(Matrix &a, std::size_t at, std::size_t first, std::size_t end) {
    const std::size_t tile = a.tile(), begin = at + tile, rows = end - first, columns = a.n() - begin;
    std::vector<std::uint8_t> coefficients;
    std::vector<const void *> data;
    std::vector<void *> out;
    for (std::size_t i = first; i < end; ++i) coefficients.insert(coefficients.end(), a.row(i) + at, a.row(i) + begin);
    for (std::size_t x = 0; x < tile; ++x) data.push_back(a.row(at + x) + begin);
    for (std::size_t i = 0; i < rows; ++i) out.push_back(sums_[i]);
    tandem_codec_options options{};
    options.struct_bytes = sizeof options;
    options.k = static_cast<std::uint32_t>(tile);
    options.m = static_cast<std::uint32_t>(rows);
    options.matrix = TANDEM_MATRIX_CUSTOM;
    options.coefficients = coefficients.data();
    options.allow_non_mds = 1;
    tandem_codec *codec = nullptr;
    check(tandem_codec_create(&options, &codec));
    const CodecOwner owner(codec);
    check(tandem_encode(context_.get(), codec, data.data(), out.data(), columns));
    for (std::size_t i = 0; i < rows; ++i) {
      std::uint8_t *const row = a.row(first + i) + begin;
      const std::uint8_t *const sum = sums_[i];
      for (std::size_t j = 0; j < columns; ++j) row[j] = static_cast<std::uint8_t>(row[j] ^ sum[j]);
    }
  }

  const ContextOwner context_;
  const Shards sums_;
};

Json measure(Arguments &arguments) {
  const std::size_t n = arguments.number("n", 256), tile = arguments.number("tile", 64);
  const std::size_t repeats = arguments.number("repeats", 1);
  const auto threads = static_cast<unsigned>(arguments.number("threads", 1));
  const std::string way = arguments.text("way", "sequential");
  arguments.done();
  if (tile == 0 || tile > 128 || n < tile || n % tile != 0 || n > 16384 || threads == 0 || repeats == 0)
    throw std::runtime_error("a tile of 1 to 128, and an n that is a multiple of it, at most 16384");

  // The factors come first: a random A has no LU without pivoting.
  Matrix factors(n, tile), product(n, tile);
  fill_random(factors.bytes().data(), n * n, 1);
  for (std::size_t i = 0; i < n; ++i) {
    if (factors.row(i)[i] == 0) factors.row(i)[i] = 1;
  }
  const auto multiply_factors = [n](Matrix &from, Matrix &out) {
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(out.row(i) + i, from.row(i) + i, n - i);  // the diagonal of L is 1
      std::memset(out.row(i), 0, i);
      for (std::size_t x = 0; x < i; ++x) add_multiple(from.row(i)[x], from.row(x) + x, out.row(i) + x, n - x);
    }
  };
  multiply_factors(factors, product);

  Matrix a(n, tile);
  std::unique_ptr<ByTandem> by_tandem;
  if (way == "tandem") by_tandem = std::make_unique<ByTandem>(threads, n);
  Json seconds = Json::array(), cpu_seconds = Json::array();
  for (std::size_t i = 0; i < repeats + 1; ++i) {  // the first repeat makes the threads and does not count
    a.bytes() = product.bytes();
    spans.start();
    const double began = wall_seconds(), began_cpu = process_seconds();
    if (way == "sequential")
      sequential(a);
    else if (way == "openmp-depend")
      openmp_depend(a, threads);
    else if (way == "tbb")
      tbb_graph(a, threads);
    else if (way == "tandem")
      (*by_tandem)(a);
    else
      throw std::runtime_error("no way is called " + way);
    if (i == 0) continue;
    seconds.push_back(wall_seconds() - began);
    cpu_seconds.push_back(process_seconds() - began_cpu);
  }
  Matrix again(n, tile);
  multiply_factors(a, again);
  return {{"seconds", seconds},
          {"cpu_seconds", cpu_seconds},
          {"spans", spans.json()},
          {"bytes_equal", a.bytes() == factors.bytes() && again.bytes() == product.bytes()}};
}

}  // namespace
}  // namespace tandem::studies

int main(int count, char **words) { return tandem::studies::run_contender(count, words, tandem::studies::measure); }
