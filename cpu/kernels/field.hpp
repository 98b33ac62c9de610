// SPDX-License-Identifier: Apache-2.0
// GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1, for code that prepares tables. Plain data and static functions: for kernel
// files.
#pragma once

#include <stdint.h>

namespace tandem::cpu {
namespace {

struct FieldTables {
  uint8_t power[2 * 255];  // of 2
  uint8_t logarithm[256];  // [0] is not one
};

constexpr FieldTables make_field_tables() {
  FieldTables tables = {};
  unsigned power = 1;
  for (unsigned i = 0; i < 255; ++i) {
    tables.power[i] = tables.power[i + 255] = static_cast<uint8_t>(power);
    tables.logarithm[power] = static_cast<uint8_t>(i);
    power = (power << 1) ^ ((power >> 7) * 0x11d);
  }
  return tables;
}

constexpr FieldTables kField = make_field_tables();

constexpr uint8_t field_multiply(unsigned a, unsigned b) {
  return a == 0 || b == 0 ? 0 : kField.power[kField.logarithm[a] + kField.logarithm[b]];
}
constexpr uint8_t field_divide(unsigned a, unsigned b) {
  return a == 0 ? 0 : kField.power[kField.logarithm[a] + 255 - kField.logarithm[b]];
}

}  // namespace
}  // namespace tandem::cpu
