// SPDX-License-Identifier: Apache-2.0
// Study E: tiled LU without pivoting over GF(2^8). The task kinds are those of the document: lu0, fwd, bdiv, bmod. All
// contenders except Tandem share these four functions.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/studies/contenders.hpp"
#include "bench/studies/openmp_library.hpp"
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

// n x n bytes; a tile is `tile` x `tile`. The four functions copy members: a store of bytes may change them.
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
    const std::size_t n = n_, tile = tile_;
    const std::uint8_t *const inverses = inverses_.data();
    std::uint8_t *const a = at(k, k);
    for (std::size_t x = 0; x < tile; ++x) {
      const std::uint8_t pivot = inverses[a[x * n + x]];
      for (std::size_t i = x + 1; i < tile; ++i) {
        std::uint8_t &factor = a[i * n + x];
        factor = multiply(factor, pivot);
        add_multiple(factor, a + x * n + x + 1, a + i * n + x + 1, tile - x - 1);
      }
    }
  }
  // Row tile: the inverse of L(k,k) from the left.
  void fwd(std::size_t k, std::size_t j) {
    const std::size_t n = n_, tile = tile_;
    const std::uint8_t *const l = at(k, k);
    std::uint8_t *const a = at(k, j);
    for (std::size_t x = 0; x < tile; ++x) {
      for (std::size_t i = x + 1; i < tile; ++i) add_multiple(l[i * n + x], a + x * n, a + i * n, tile);
    }
  }
  // Column tile: the inverse of U(k,k) from the right.
  void bdiv(std::size_t k, std::size_t i) {
    const std::size_t n = n_, tile = tile_;
    const std::uint8_t *const u = at(k, k), *const inverses = inverses_.data();
    std::uint8_t *const a = at(i, k);
    for (std::size_t r = 0; r < tile; ++r) {
      std::uint8_t *const row = a + r * n;
      for (std::size_t x = 0; x < tile; ++x) {
        row[x] = multiply(row[x], inverses[u[x * n + x]]);
        add_multiple(row[x], u + x * n + x + 1, row + x + 1, tile - x - 1);
      }
    }
  }
  void bmod(std::size_t i, std::size_t j, std::size_t k) {
    const std::size_t n = n_, tile = tile_;
    const std::uint8_t *const l = at(i, k), *const u = at(k, j);
    std::uint8_t *const a = at(i, j);
    for (std::size_t r = 0; r < tile; ++r) {
      for (std::size_t x = 0; x < tile; ++x) add_multiple(l[r * n + x], u + x * n, a + r * n, tile);
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

// Figure 1 of the document. Returns how many bmod's ran before one of their tile that was made earlier.
std::size_t openmp_tasks(Matrix &a, const std::string &way, unsigned threads, bool concurrent_write) {
  struct Run {
    Matrix &a;
    std::vector<std::size_t> last;  // k by tile; tasks of one tile never run at once
    std::atomic<std::size_t> early{0};
  } all{a, std::vector<std::size_t>(a.tiles() * a.tiles())};
  const auto task = [](void *user, const char *kind, std::size_t i, std::size_t j, std::size_t k) {
    Run &run = *static_cast<Run *>(user);
    spans.record(kind, [&] {
      if (kind[0] == 'l') return run.a.lu0(k);
      if (kind[0] == 'f') return run.a.fwd(k, j);
      if (kind[1] == 'd') return run.a.bdiv(k, i);
      std::size_t &last = run.last[i * run.a.tiles() + j];
      if (k < last) ++run.early;
      last = std::max(last, k);
      run.a.bmod(i, j, k);
    });
  };
  const auto lu = openmp_function<decltype(&study_openmp_lu)>(way, "study_openmp_lu");
  lu(threads, a.tiles(), concurrent_write ? 1 : 0, task, &all);
  return all.early;
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
  const bool concurrent_write = arguments.number("concurrent-write", 0) != 0;
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
  std::size_t early = 0;
  for (std::size_t i = 0; i < repeats + 1; ++i) {  // the first repeat makes the threads and does not count
    a.bytes() = product.bytes();
    spans.start();
    const double began = wall_seconds(), began_cpu = process_seconds();
    if (way == "sequential")
      sequential(a);
    else if (way.starts_with("openmp:"))
      early = openmp_tasks(a, way, threads, concurrent_write);
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
          {"early_bmods", early},
          {"openmp_runtimes", mapped_openmp_runtimes()},
          {"bytes_equal", a.bytes() == factors.bytes() && again.bytes() == product.bytes()}};
}

}  // namespace
}  // namespace tandem::studies

int main(int count, char **words) { return tandem::studies::run_contender(count, words, tandem::studies::measure); }
