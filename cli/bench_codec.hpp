// The codec of a benchmark case.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cli/bench_case.hpp"
#include "tandem/tandem.h"

namespace tandem::cli {

struct DestroyCodec {
  void operator()(tandem_codec *codec) const noexcept { tandem_codec_destroy(codec); }
};
using Codec = std::unique_ptr<tandem_codec, DestroyCodec>;

Codec make_codec(const BenchCase &at);
std::vector<std::uint8_t> parity_rows(const tandem_codec *codec, const BenchCase &at);  // m x k

}  // namespace tandem::cli
