// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string_view>
#include <vector>

#include "api/objects.hpp"
#include "base/gate.hpp"
#include "base/text.hpp"
#include "core/gf.hpp"
#include "core/presets.hpp"
#include "tandem/diagnose.h"
#include "tandem/tools.h"

using namespace tandem;
using tandem::core::Codec;

extern "C" {

tandem_status tandem_codec_create(const tandem_codec_options *options, tandem_codec **codec_out) {
  return base::guarded({{"options", options}, {"codec_out", codec_out}},
                       [&] { *codec_out = new tandem_codec{core::make_codec(*options)}; });
}

void tandem_codec_destroy(tandem_codec *codec) { delete codec; }

tandem_status tandem_codec_coefficients(const tandem_codec *codec, void *coefficients_out, size_t capacity_bytes) {
  return base::guarded({{"codec", codec}}, [&] {
    const Codec &of = *codec->codec;
    const std::size_t element_bytes = core::element_bytes(of.field());
    const std::size_t bytes = std::size_t{of.m()} * of.k() * element_bytes;
    if (coefficients_out == nullptr && bytes != 0)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "coefficients_out is NULL");
    if (capacity_bytes < bytes) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "capacity_bytes is " + std::to_string(capacity_bytes) +
                                                    ", the matrix has " + std::to_string(bytes) + " bytes");
    }
    auto *out = static_cast<std::uint8_t *>(coefficients_out);
    for (unsigned r = 0; r < of.m(); ++r) {
      for (unsigned c = 0; c < of.k(); ++c, out += element_bytes) {
        const core::Element cell = of.coefficient(r, c);
        if (element_bytes == 1) {
          *out = of.packets() && of.packets()->word_bits == 4 ? core::gf::kSubfield4.number[cell]
                                                              : static_cast<std::uint8_t>(cell);
        } else {
          std::memcpy(out, &cell, element_bytes);
        }
      }
    }
  });
}

const char *tandem_matrix_name(int32_t matrix) {
  if (matrix == TANDEM_MATRIX_CUSTOM) return "custom";
  const core::Preset *preset = core::find_preset(matrix);
  return preset != nullptr ? preset->name : nullptr;
}

tandem_status tandem_matrix_from_name(const char *name, int32_t *matrix_out) {
  return base::guarded({{"name", name}, {"matrix_out", matrix_out}}, [&] {
    const core::Preset *preset = core::find_preset(name);
    if (preset == nullptr) {
      std::vector<std::string_view> known;
      for (const core::Preset &each : core::presets()) known.push_back(each.name);
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "unknown matrix \"", name, "\"; known: ", base::join(known, ", "));
    }
    *matrix_out = preset->value;
  });
}

uint32_t tandem_matrix_traits(int32_t matrix) {
  const core::Preset *preset = core::find_preset(matrix);
  if (preset == nullptr) return 0;
  std::uint32_t traits = 0;
  if (preset->is_gf16()) traits |= TANDEM_MATRIX_IS_GF16;
  if (preset->make_groups != nullptr) traits |= TANDEM_MATRIX_HAS_LOCAL_GROUPS;
  return traits;
}

}  // extern "C"
