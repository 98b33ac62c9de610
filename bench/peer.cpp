// SPDX-License-Identifier: Apache-2.0
#include "bench/peer.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>

namespace tandem::bench {
namespace {

constexpr const char *kDefaultLibrary = "libisal.so.2";
constexpr const char *kEncoder = "ec_encode_data";
constexpr const char *kJerasure = "jerasure", *kJerasureLibrary = "libJerasure.so.2";

template <class Function>
bool find(void *library, const std::string &name, Function **function_out) {
  *function_out = reinterpret_cast<Function *>(dlsym(library, name.c_str()));
  return *function_out != nullptr;
}

template <class Function>
void need(void *library, const std::string &name, const std::string &path, Function **function_out) {
  if (!find(library, name, function_out))
    throw std::runtime_error(fmt::format("the peer {} has no function {}", path, name));
}

std::string file_of(void *library, const std::string &asked) {
  link_map *map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr) return asked;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(map->l_name, error);
  return error ? std::string(map->l_name) : real.string();
}

// Jerasure behind ISA-L's functions: its "tables" are the coefficients themselves. A process has one such library.
struct Jerasure {
  void (*dotprod)(int k, int w, int *row, int *source_ids, int destination, char **data, char **coding, int bytes);
  void (*multiply_region)(char *region, int by, int bytes, char *out, int add);
  int (*invert)(int *matrix, int *inverse, int rows, int w);
  int (*multiply)(int a, int b, int w);
} jerasure;
constexpr int kWordBits = 8;

void jerasure_tables(int k, int rows, unsigned char *coefficients, unsigned char *tables) {
  std::copy_n(coefficients, k * rows, tables);
}

void jerasure_encode(int bytes, int k, int rows, unsigned char *tables, unsigned char **inputs,
                     unsigned char **outputs) {
  std::array<int, 256> row;
  for (int r = 0; r < rows; ++r) {
    std::copy_n(tables + r * k, k, row.begin());
    jerasure.dotprod(k, kWordBits, row.data(), nullptr, k + r, reinterpret_cast<char **>(inputs),
                     reinterpret_cast<char **>(outputs), bytes);
  }
}

void jerasure_update(int bytes, int k, int rows, int index, unsigned char *tables, unsigned char *input,
                     unsigned char **outputs) {
  for (int r = 0; r < rows; ++r)
    jerasure.multiply_region(reinterpret_cast<char *>(input), tables[r * k + index], bytes,
                             reinterpret_cast<char *>(outputs[r]), 1);
}

int jerasure_invert(unsigned char *in, unsigned char *out, int n) {
  std::vector<int> matrix(in, in + n * n), inverse(matrix.size());
  const int status = jerasure.invert(matrix.data(), inverse.data(), n, kWordBits);
  std::copy(inverse.begin(), inverse.end(), out);
  return status;
}

unsigned char jerasure_multiply(unsigned char a, unsigned char b) {
  return static_cast<unsigned char>(jerasure.multiply(a, b, kWordBits));
}

// ISA-L 2.31 and later writes other tables for GFNI if the CPU has it; its other encoders read the classic tables. So
// an encoder that is called by name needs the set-up function of its kind. Before 2.31 there is one kind.
std::string init_tables_for(void *library, const std::string &encoder) {
  if (encoder == kEncoder) return "ec_init_tables";
  const std::string name = encoder.ends_with("_gfni") ? "ec_init_tables_gfni" : "ec_init_tables_base";
  return dlsym(library, name.c_str()) == nullptr && !encoder.ends_with("_gfni") ? "ec_init_tables" : name;
}

}  // namespace

std::optional<Peer> Peer::open(const std::string &path, const std::string &function) {
  const bool is_jerasure = path == kJerasure;
  const std::string asked = path.empty() ? kDefaultLibrary : is_jerasure ? kJerasureLibrary : path;
  void *const opened = dlopen(asked.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    if (path.empty() && function.empty()) return std::nullopt;
    throw std::runtime_error(fmt::format("cannot open the peer: {}", dlerror()));
  }

  Peer peer;
  peer.library_ = std::shared_ptr<void>(opened, [](void *library) { dlclose(library); });
  peer.path_ = file_of(opened, asked);
  if (is_jerasure) {
    if (!function.empty())
      throw std::runtime_error("--peer-function names an encoder of ISA-L; the peer jerasure has one way to encode");
    need(opened, "jerasure_matrix_dotprod", peer.path_, &jerasure.dotprod);
    need(opened, "galois_w08_region_multiply", peer.path_, &jerasure.multiply_region);
    need(opened, "jerasure_invert_matrix", peer.path_, &jerasure.invert);
    need(opened, "galois_single_multiply", peer.path_, &jerasure.multiply);
    // The first call makes the field's tables. It must end before several threads call.
    alignas(64) std::array<char, 64> region{};
    jerasure.multiply_region(region.data(), 2, static_cast<int>(region.size()), region.data(), 0);
    peer.function_ = "jerasure_matrix_dotprod";
    peer.length_unit_bytes_ = sizeof(long);
    peer.init_tables_ = jerasure_tables;
    peer.encode_ = jerasure_encode;
    peer.update_ = jerasure_update;
    peer.invert_ = jerasure_invert;
    peer.multiply_ = jerasure_multiply;
    return peer;
  }
  peer.function_ = function.empty() ? kEncoder : function;
  std::string updater = peer.function_;
  if (const std::size_t at = updater.find(kEncoder); at == 0) updater.insert(std::string(kEncoder).size(), "_update");
  need(opened, peer.function_, peer.path_, &peer.encode_);
  need(opened, updater, peer.path_, &peer.update_);
  need(opened, init_tables_for(opened, peer.function_), peer.path_, &peer.init_tables_);
  need(opened, "gf_invert_matrix", peer.path_, &peer.invert_);
  need(opened, "gf_mul", peer.path_, &peer.multiply_);

  const char *(*version_text)() = nullptr;
  if (find(opened, "isal_get_version_str", &version_text)) peer.version_ = version_text();
  return peer;
}

void Peer::fill_tables(unsigned k, unsigned rows, const std::uint8_t *coefficients, std::uint8_t *tables) const {
  init_tables_(static_cast<int>(k), static_cast<int>(rows), const_cast<std::uint8_t *>(coefficients), tables);
}

std::vector<std::uint8_t> Peer::tables(unsigned k, unsigned rows, const std::uint8_t *coefficients) const {
  std::vector<std::uint8_t> tables(std::size_t{32} * k * rows);
  fill_tables(k, rows, coefficients, tables.data());
  return tables;
}

}  // namespace tandem::bench
