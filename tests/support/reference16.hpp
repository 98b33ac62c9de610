// SPDX-License-Identifier: Apache-2.0
// The independent slow reference of GF(2^16): products by shift and XOR, matrices written as their definitions. It
// shares no code with core/. Keep it slow and simple.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::reference16 {

using Rows16 = std::vector<std::vector<std::uint16_t>>;
using Bytes = std::vector<std::uint8_t>;

// a * b as the format of the preset stores elements: "par2", "liberasurecode-rs-vand" and "custom" modulo 0x1100b,
// "leopard16" and "reed-solomon-simd" modulo 0x1002d in coordinates of the Cantor basis.
std::uint16_t multiply(const std::string &preset, std::uint16_t a, std::uint16_t b);
std::uint16_t inverse(const std::string &preset, std::uint16_t a);

Rows16 parity_rows(const std::string &preset, unsigned k, unsigned m);

// rows x shards, for shards of one even length in the layout of the preset.
std::vector<Bytes> apply(const std::string &preset, const Rows16 &rows, const std::vector<Bytes> &shards);

}  // namespace tandem::reference16
