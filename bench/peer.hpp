// SPDX-License-Identifier: Apache-2.0
// Another library to compare with, opened at run time: a library with ISA-L's erasure-code functions, or Jerasure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tandem::bench {

class Peer {
 public:
  // path: a shared library; empty = the libisal.so.2 that the loader finds, or no peer; "jerasure" = libJerasure.so.2.
  // function: the encoder to call, such as "ec_encode_data_avx2"; empty = ec_encode_data, which chooses one itself.
  // Throws std::runtime_error if a named library cannot be used, or lacks the function.
  static std::optional<Peer> open(const std::string &path, const std::string &function);

  const std::string &path() const { return path_; }        // of the file, links resolved
  const std::string &version() const { return version_; }  // "" if the library does not tell
  const std::string &function() const { return function_; }

  std::size_t length_unit_bytes() const { return length_unit_bytes_; }  // lengths and addresses are multiples of it

  // Tables for rows x k coefficients, in the form that the chosen encoder reads.
  std::vector<std::uint8_t> tables(unsigned k, unsigned rows, const std::uint8_t *coefficients) const;
  void fill_tables(unsigned k, unsigned rows, const std::uint8_t *coefficients, std::uint8_t *tables) const;

  // outputs[r] = sum of coefficient[r][c] * inputs[c]. length_bytes fits an int.
  void encode(std::size_t length_bytes, unsigned k, unsigned rows, const std::uint8_t *tables,
              unsigned char *const *inputs, unsigned char *const *outputs) const {
    encode_(static_cast<int>(length_bytes), static_cast<int>(k), static_cast<int>(rows),
            const_cast<std::uint8_t *>(tables), const_cast<unsigned char **>(inputs),
            const_cast<unsigned char **>(outputs));
  }

  // outputs[r] ^= coefficient[r][index] * input.
  void update(std::size_t length_bytes, unsigned k, unsigned rows, unsigned index, const std::uint8_t *tables,
              unsigned char *input, unsigned char *const *outputs) const {
    update_(static_cast<int>(length_bytes), static_cast<int>(k), static_cast<int>(rows), static_cast<int>(index),
            const_cast<std::uint8_t *>(tables), input, const_cast<unsigned char **>(outputs));
  }

  // n x n; `in` is destroyed. False when singular.
  bool invert(std::uint8_t *in, std::uint8_t *out, unsigned n) const {
    return invert_(in, out, static_cast<int>(n)) == 0;
  }
  std::uint8_t multiply(std::uint8_t a, std::uint8_t b) const { return multiply_(a, b); }

 private:
  Peer() = default;

  std::shared_ptr<void> library_;
  std::string path_, version_, function_;
  std::size_t length_unit_bytes_ = 1;
  void (*init_tables_)(int, int, unsigned char *, unsigned char *) = nullptr;
  void (*encode_)(int, int, int, unsigned char *, unsigned char **, unsigned char **) = nullptr;
  void (*update_)(int, int, int, int, unsigned char *, unsigned char *, unsigned char **) = nullptr;
  int (*invert_)(unsigned char *, unsigned char *, int) = nullptr;
  unsigned char (*multiply_)(unsigned char, unsigned char) = nullptr;
};

}  // namespace tandem::bench
