// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "api/objects.hpp"
#include "base/gate.hpp"
#include "core/codec16.hpp"
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
  for (const core::Preset16 &each : core::presets16())
    if (each.value == matrix) return each.name;
  if (const auto *local = core::find_local_preset(matrix)) return local->name;
  const core::Preset *preset = core::find_preset(matrix);
  return preset != nullptr ? preset->name : nullptr;
}

tandem_status tandem_matrix_from_name(const char *name, int32_t *matrix_out) {
  return base::guarded({{"name", name}, {"matrix_out", matrix_out}}, [&] {
    for (const core::Preset16 &each : core::presets16()) {
      if (std::strcmp(each.name, name) != 0) continue;
      *matrix_out = each.value;
      return;
    }
    for (const core::LocalPreset &each : core::local_presets()) {
      if (std::strcmp(each.name, name) != 0) continue;
      *matrix_out = each.value;
      return;
    }
    const core::Preset *preset = core::find_preset(std::string(name));
    if (preset == nullptr) {
      std::string known;
      for (const core::Preset &each : core::presets()) known += (known.empty() ? "" : ", ") + std::string(each.name);
      for (const core::Preset16 &each : core::presets16()) known += ", " + std::string(each.name);
      for (const core::LocalPreset &each : core::local_presets()) known += ", " + std::string(each.name);
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "unknown matrix \"" + std::string(name) + "\"; known: " + known);
    }
    *matrix_out = preset->value;
  });
}

int32_t tandem_matrix_has_local_groups(int32_t matrix) { return core::find_local_preset(matrix) != nullptr; }

tandem_status tandem_matrix_field(int32_t matrix, int32_t *field_out) {
  return base::guarded({{"field_out", field_out}}, [&] {
    const auto wide = core::presets16();
    const bool is_wide = std::ranges::find(wide, matrix, &core::Preset16::value) != wide.end();
    if (!is_wide && core::find_preset(matrix) == nullptr && core::find_local_preset(matrix) == nullptr)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "matrix " + std::to_string(matrix) + " is not a preset");
    *field_out = is_wide ? TANDEM_FIELD_GF16 : TANDEM_FIELD_GF8;
  });
}

}  // extern "C"
