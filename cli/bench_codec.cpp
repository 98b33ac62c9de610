#include "cli/bench_codec.hpp"

#include "cli/commands.hpp"

namespace tandem::cli {

Codec make_codec(const BenchCase &at) {
  tandem_codec_options options{};
  options.struct_bytes = sizeof options;
  options.k = at.k;
  options.m = at.m;
  options.matrix = at.matrix;
  tandem_codec *codec = nullptr;
  check(tandem_codec_create(&options, &codec));
  return Codec(codec);
}

std::vector<std::uint8_t> parity_rows(const tandem_codec *codec, const BenchCase &at) {
  std::vector<std::uint8_t> rows(std::size_t{at.m} * at.k);
  check(tandem_codec_coefficients(codec, rows.data(), rows.size()));
  return rows;
}

}  // namespace tandem::cli
