// SPDX-License-Identifier: Apache-2.0
// Compares libraries with ISA-L's interface: every function, in one process, on the same buffers, in turn.
//
//     isal_bench OURS PEER... [-o results.json]
#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "bench/measure.hpp"
#include "bench/stripes.hpp"
#include "isal/abi.hpp"

namespace {

using Bytes = std::vector<unsigned char>;
using tandem::bench::Contestant;

struct IsalLibrary {
  std::string name;
  decltype(&ec_init_tables) init_tables;
  decltype(&ec_encode_data) encode;
  decltype(&ec_encode_data_update) update;
  decltype(&gf_vect_dot_prod) dot_product;
  decltype(&gf_vect_mad) multiply_add;
  decltype(&gf_vect_mul) multiply_vector;
  decltype(&gf_vect_mul_init) init_vector;
  decltype(&gf_invert_matrix) invert;
  decltype(&gf_gen_cauchy1_matrix) cauchy;
  decltype(&gf_gen_rs_matrix) vandermonde;
  decltype(&gf_mul) multiply;
  decltype(&xor_gen) xor_generate;
  decltype(&xor_check) xor_verify;
  decltype(&pq_gen) pq_generate;
  decltype(&pq_check) pq_verify;
};

template <class Function>
void find(void *handle, const char *name, Function *out) {
  *out = reinterpret_cast<Function>(dlsym(handle, name));
  if (*out == nullptr) throw std::runtime_error(dlerror());
}

IsalLibrary open(const std::string &path) {
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  IsalLibrary library;
  library.name = path.substr(path.find_last_of('/') + 1);
  find(handle, "ec_init_tables", &library.init_tables);
  find(handle, "ec_encode_data", &library.encode);
  find(handle, "ec_encode_data_update", &library.update);
  find(handle, "gf_vect_dot_prod", &library.dot_product);
  find(handle, "gf_vect_mad", &library.multiply_add);
  find(handle, "gf_vect_mul", &library.multiply_vector);
  find(handle, "gf_vect_mul_init", &library.init_vector);
  find(handle, "gf_invert_matrix", &library.invert);
  find(handle, "gf_gen_cauchy1_matrix", &library.cauchy);
  find(handle, "gf_gen_rs_matrix", &library.vandermonde);
  find(handle, "gf_mul", &library.multiply);
  find(handle, "xor_gen", &library.xor_generate);
  find(handle, "xor_check", &library.xor_verify);
  find(handle, "pq_gen", &library.pq_generate);
  find(handle, "pq_check", &library.pq_verify);
  return library;
}

using tandem::bench::MemoryPlacement;

std::string name_of(MemoryPlacement placement) {
  return placement == MemoryPlacement::page_aligned ? "pages" : placement_name(placement);
}

// Lists of vectors, all of one length.
class Vectors {
 public:
  Vectors(unsigned count, std::size_t bytes, MemoryPlacement placement)
      : memory_({.shard_count = count, .shard_bytes = bytes, .placement = placement, .seed = bytes}),
        pointers_(memory_.all().shards(0), memory_.all().shards(0) + count) {}
  unsigned char **at(unsigned i) { return pointers_.data() + i; }

 private:
  tandem::bench::Stripes memory_;
  std::vector<unsigned char *> pointers_;
};

struct Options {
  unsigned repeats = 15;
  double slice_seconds = 0.02;
  std::string only, output;
  std::vector<std::string> codes = {"4+1",  "8+1",  "16+1", "4+2",  "8+2",  "6+3",   "8+3",  "8+4",
                                    "10+4", "12+4", "16+4", "20+4", "10+8", "20+10", "32+8", "128+32",
                                    "8+5",  "10+5", "6+6",  "8+6",  "8+5v", "10+5v", "6+6v", "8+6v"};
  std::vector<std::size_t> sizes;  // none: kSizes, and some larger ones
};

constexpr std::size_t kSizes[] = {64, 100, 128, 256, 512, 1024, 1500, 2048, 4096, 8192, 16 << 10, 64 << 10, 128 << 10};

// Shards of less than a page do not collide by where they start in it.
template <class Body>
void for_each_place(const std::vector<std::size_t> &sizes, const Body &body) {
  for (const std::size_t bytes : sizes) {
    for (const MemoryPlacement placed : {MemoryPlacement::contiguous, MemoryPlacement::scattered,
                                         MemoryPlacement::allocated, MemoryPlacement::page_aligned}) {
      if (placed != MemoryPlacement::page_aligned || bytes >= 4096) body(bytes, placed);
    }
  }
}

class Bench {
 public:
  Bench(std::vector<IsalLibrary> libraries, Options options)
      : libraries_(std::move(libraries)), options_(std::move(options)) {
    fmt::print("{:<12} {:<8} {:>9} {:<10} {:>12}", "function", "shape", "bytes", "placement", libraries_[0].name);
    for (std::size_t i = 1; i < libraries_.size(); ++i) fmt::print("  over {}", libraries_[i].name);
    fmt::print("\n");
  }

  // `body` makes the function that is called again and again for a library.
  template <class Body>
  void measure(const std::string &function, const std::string &shape, std::size_t bytes, const std::string &placement,
               Body body) {
    if (!options_.only.empty() && function.find(options_.only) == std::string::npos) return;
    std::vector<Contestant> contestants;
    for (const IsalLibrary &library : libraries_) {
      contestants.push_back({library.name, [call = body(library)](std::size_t calls) mutable {
                               const double began = tandem::bench::seconds_now(tandem::bench::BenchClock::cpu);
                               for (std::size_t i = 0; i < calls; ++i) call();
                               return tandem::bench::seconds_now(tandem::bench::BenchClock::cpu) - began;
                             }});
    }
    const auto samples = tandem::bench::alternate(contestants, options_.repeats, options_.slice_seconds);
    nlohmann::ordered_json result = {
        {"function", function}, {"shape", shape}, {"bytes", bytes}, {"placement", placement}};
    fmt::print("{:<12} {:<8} {:>9} {:<10} {:>9.1f} ns", function, shape, bytes, placement, samples[0].median() * 1e9);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      result["seconds"].push_back(samples[i].median());
      if (i == 0) continue;
      const double ratio = samples[i].median() / samples[0].median();
      result["over"].push_back(ratio);
      fmt::print("  {:.2f}{}", ratio, ratio < 1 ? " SLOWER" : "");
    }
    fmt::print("\n");
    std::fflush(stdout);
    results_.push_back(std::move(result));
  }

  void write(const std::string &path) const {
    nlohmann::ordered_json all = {{"command", "isal_bench"}, {"clock", "cpu"}, {"results", results_}};
    for (const IsalLibrary &library : libraries_) all["libraries"].push_back(library.name);
    std::ofstream(path) << all.dump(1) << '\n';
  }

 private:
  std::vector<IsalLibrary> libraries_;
  Options options_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

Bytes tables_of(const IsalLibrary &library, int k, int rows, bool vandermonde = false) {
  Bytes matrix(static_cast<std::size_t>(k + rows) * static_cast<std::size_t>(k));
  Bytes tables(std::size_t{32} * static_cast<std::size_t>(k * rows));
  (vandermonde ? library.vandermonde : library.cauchy)(matrix.data(), k + rows, k);
  library.init_tables(k, rows, matrix.data() + k * k, tables.data());
  return tables;
}

void measure_codes(Bench &bench, int k, int rows, bool vandermonde, std::size_t bytes, MemoryPlacement placed) {
  const auto vectors = std::make_shared<Vectors>(static_cast<unsigned>(k + rows), bytes, placed);
  const int length = static_cast<int>(bytes);
  const std::string shape = fmt::format("{}+{}{}", k, rows, vandermonde ? "v" : ""), placement = name_of(placed);
  bench.measure("encode", shape, bytes, placement, [=](const IsalLibrary &library) {
    return [=, tables = tables_of(library, k, rows, vandermonde), encode = library.encode]() mutable {
      encode(length, k, rows, tables.data(), vectors->at(0), vectors->at(static_cast<unsigned>(k)));
    };
  });
  bench.measure("update", shape, bytes, placement, [=](const IsalLibrary &library) {
    return [=, tables = tables_of(library, k, rows), update = library.update]() mutable {
      update(length, k, rows, k / 2, tables.data(), *vectors->at(0), vectors->at(static_cast<unsigned>(k)));
    };
  });
}

void measure_vectors(Bench &bench, int count, std::size_t bytes, MemoryPlacement placed) {
  const auto vectors = std::make_shared<Vectors>(static_cast<unsigned>(count) + 2, bytes, placed);
  const int length = static_cast<int>(bytes);
  const std::string shape = fmt::format("{}", count);
  const auto array = [](Vectors &all) { return reinterpret_cast<void **>(all.at(0)); };
  bench.measure("dot_prod", shape, bytes, name_of(placed), [=](const IsalLibrary &library) {
    return [=, tables = tables_of(library, count, 1), call = library.dot_product]() mutable {
      call(length, count, tables.data(), vectors->at(0), *vectors->at(static_cast<unsigned>(count)));
    };
  });
  bench.measure("mad", shape, bytes, name_of(placed), [=](const IsalLibrary &library) {
    return [=, tables = tables_of(library, count, 1), call = library.multiply_add]() mutable {
      call(length, count, 1, tables.data(), *vectors->at(0), *vectors->at(1));
    };
  });
  bench.measure("mul", "1", bytes, name_of(placed), [=](const IsalLibrary &library) {
    Bytes table(32);
    library.init_vector(0x8e, table.data());
    return
        [=, call = library.multiply_vector]() mutable { call(length, table.data(), *vectors->at(0), *vectors->at(1)); };
  });
  bench.measure("xor_gen", shape, bytes, name_of(placed), [=](const IsalLibrary &library) {
    return [=, call = library.xor_generate] { call(count + 1, length, array(*vectors)); };
  });
  bench.measure("pq_gen", shape, bytes, name_of(placed), [=](const IsalLibrary &library) {
    return [=, call = library.pq_generate] { call(count + 2, length, array(*vectors)); };
  });
  bench.measure("pq_check", shape, bytes, name_of(placed), [=](const IsalLibrary &library) {
    library.pq_generate(count + 2, length, array(*vectors));
    return [=, call = library.pq_verify] { call(count + 2, length, array(*vectors)); };
  });
  bench.measure("xor_check", shape, bytes, name_of(placed), [=](const IsalLibrary &library) {
    library.xor_generate(count + 1, length, array(*vectors));
    return [=, call = library.xor_verify] { call(count + 1, length, array(*vectors)); };
  });
}

void measure_arithmetic(Bench &bench) {
  for (const int n : {4, 10, 20, 32, 64, 128, 255}) {
    const auto size = static_cast<std::size_t>(n * n);
    Bytes matrix(size);
    std::mt19937 random(static_cast<unsigned>(n));
    for (unsigned char &cell : matrix) cell = static_cast<unsigned char>(random());
    bench.measure("invert", fmt::format("{}", n), size, "-", [=](const IsalLibrary &library) {
      return [=, in = Bytes(size), out = Bytes(size), call = library.invert]() mutable {
        in = matrix;
        call(in.data(), out.data(), n);
      };
    });
  }
  for (const auto &[k, rows] : {std::pair{4, 2}, {10, 4}, {32, 32}, {128, 32}}) {
    bench.measure("init_tables", fmt::format("{}+{}", k, rows), static_cast<std::size_t>(k * rows), "-",
                  [k = k, rows = rows](const IsalLibrary &library) {
                    Bytes tables = tables_of(library, k, rows), matrix(static_cast<std::size_t>(k * rows), 7);
                    return [=, call = library.init_tables]() mutable { call(k, rows, matrix.data(), tables.data()); };
                  });
  }
  bench.measure("gf_mul", "1000", 1000, "-", [](const IsalLibrary &library) {
    return [call = library.multiply] {
      volatile unsigned char sum = 0;
      unsigned char value = 1;
      for (int i = 0; i < 1000; ++i) value = call(static_cast<unsigned char>(i), static_cast<unsigned char>(value | 1));
      sum = value;
      (void)sum;
    };
  });
}

}  // namespace

int main(int argument_count, char **arguments) {
  CLI::App app("Measures libraries with ISA-L's interface against each other.");
  std::vector<std::string> paths;
  Options options;
  app.add_option("LIBRARY", paths, "the library, then the libraries to compare it with")->required()->expected(2, 9);
  app.add_option("-o,--output", options.output, "write JSON here");
  app.add_option("--only", options.only, "functions with this in their name");
  app.add_option("--repeats", options.repeats, "rounds; the median counts");
  app.add_option("--seconds", options.slice_seconds, "seconds of one library in one round");
  app.add_option("--code", options.codes, "codes, K+M. K+Mv: ISA-L's Vandermonde matrix, else its Cauchy matrix")
      ->delimiter(',');
  app.add_option("--bytes", options.sizes, "bytes of a shard or vector")->delimiter(',');
  CLI11_PARSE(app, argument_count, arguments);
  try {
    std::vector<IsalLibrary> libraries;
    for (const std::string &path : paths) libraries.push_back(open(path));
    // The sizes that were asked for; else kSizes and larger ones.
    const auto sizes_with = [&](std::initializer_list<std::size_t> larger) {
      if (!options.sizes.empty()) return options.sizes;
      std::vector<std::size_t> sizes(std::begin(kSizes), std::end(kSizes));
      sizes.insert(sizes.end(), larger);
      return sizes;
    };
    Bench bench(std::move(libraries), options);
    for (const std::string &code : options.codes) {
      const std::size_t plus = code.find('+');
      if (plus == std::string::npos) throw std::runtime_error(fmt::format("a code is K+M, not {}", code));
      const int k = std::stoi(code.substr(0, plus)), rows = std::stoi(code.substr(plus + 1));
      const bool vandermonde = code.back() == 'v';
      if (k < 1 || rows < 1 || k + rows > 256) throw std::runtime_error(fmt::format("{}: K+M is 2 to 256", code));
      const auto width = static_cast<std::size_t>(k + rows);
      const auto of_stripe = [&](std::size_t bytes) { return bytes / width / 64 * 64; };
      for_each_place(sizes_with({of_stripe(512 << 10), of_stripe(64 << 20)}),
                     [&](std::size_t bytes, MemoryPlacement placed) {
                       measure_codes(bench, k, rows, vandermonde, bytes, placed);
                     });
    }
    for_each_place(sizes_with({4 << 20}), [&](std::size_t bytes, MemoryPlacement placed) {
      // ISA-L's RAID functions need vectors of 32 bytes at their places.
      if (placed == MemoryPlacement::allocated || bytes % 32 != 0) return;
      for (const int count : {4, 10, 20}) measure_vectors(bench, count, bytes, placed);
    });
    measure_arithmetic(bench);
    if (!options.output.empty()) bench.write(options.output);
  } catch (const std::exception &error) {
    fmt::print(stderr, "isal_bench: {}\n", error.what());
    return 3;
  }
  return 0;
}
