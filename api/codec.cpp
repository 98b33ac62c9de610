#include <cstring>

#include "api/objects.hpp"
#include "base/gate.hpp"
#include "core/presets.hpp"

using tandem::core::Codec;

using namespace tandem;

extern "C" {

tandem_status tandem_codec_create(const tandem_codec_options *options, tandem_codec **codec_out) {
  return base::guarded({{"options", options}, {"codec_out", codec_out}},
                       [&] { *codec_out = new tandem_codec{std::make_shared<const Codec>(*options)}; });
}

void tandem_codec_destroy(tandem_codec *codec) { delete codec; }

tandem_status tandem_codec_coefficients(const tandem_codec *codec, uint8_t *coefficients_out, size_t capacity_bytes) {
  return base::guarded({{"codec", codec}}, [&] {
    const tandem::core::Matrix &parity = codec->codec->parity();
    const std::size_t bytes = std::size_t{parity.rows()} * parity.columns();
    if (coefficients_out == nullptr && bytes != 0)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "coefficients_out is NULL");
    if (capacity_bytes < bytes) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "capacity_bytes is " + std::to_string(capacity_bytes) +
                                                    ", the matrix has " + std::to_string(bytes) + " bytes");
    }
    if (bytes != 0) std::memcpy(coefficients_out, parity.data(), bytes);
  });
}

const char *tandem_matrix_name(int32_t matrix) {
  if (matrix == TANDEM_MATRIX_CUSTOM) return "custom";
  const tandem::core::Preset *preset = tandem::core::find_preset(matrix);
  return preset != nullptr ? preset->name : nullptr;
}

tandem_status tandem_matrix_from_name(const char *name, int32_t *matrix_out) {
  return base::guarded({{"name", name}, {"matrix_out", matrix_out}}, [&] {
    const tandem::core::Preset *preset = tandem::core::find_preset(std::string(name));
    if (preset == nullptr) {
      std::string known;
      for (const tandem::core::Preset &each : tandem::core::presets())
        known += (known.empty() ? "" : ", ") + std::string(each.name);
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "unknown matrix \"" + std::string(name) + "\"; known: " + known);
    }
    *matrix_out = preset->value;
  });
}

}  // extern "C"
