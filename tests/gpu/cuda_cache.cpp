// SPDX-License-Identifier: Apache-2.0
// Compiles the kernels of codes with this machine's NVRTC for a GPU of compute capability 9.0, which need not be here,
// and leaves them in FOLDER/cuda as the library does in TANDEM_CACHE_DIR: for gpu-check --pack.
//     cuda_cache FOLDER [K M TECHNIQUE]...
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "core/codec.hpp"
#include "gpu/factory.hpp"
#include "tests/gpu/fake_driver.hpp"

int main(int argc, char **argv) {
  using namespace tandem;
  if (argc < 2 || (argc - 2) % 3 != 0) return 2;
  if (!test::has_real_nvrtc()) return std::fprintf(stderr, "cuda_cache: no NVRTC\n"), 1;
  try {
    test::FakeCudaScript script;
    script.real_nvrtc = true;
    const test::FakeCuda driver(script);
    for (int i = 2; i < argc; i += 3) {
      gpu::Options options;
      options.driver = driver.table();
      options.generate = test::fake_cuda_generate;
      options.technique = argv[i + 2];
      options.cache_folder = std::string(argv[1]) + "/cuda";
      const auto backend = gpu::make_backend(options, base::Log());
      tandem_codec_options code = {};
      code.struct_bytes = sizeof code;
      code.k = static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10));
      code.m = static_cast<std::uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
      core::ShardSet parity;
      for (std::uint32_t s = 0; s < code.m; ++s) parity.set(code.k + s);
      const auto prepared = backend->prepare(core::make_codec(code)->encode(parity).what);
      for (const core::Mode mode : {core::Mode::assign, core::Mode::compare})
        backend->make_ready(*prepared, mode, core::MemoryKind::cuda, true);
    }
    std::printf("%llu kernels\n", static_cast<unsigned long long>(driver.calls_of("nvrtcCompileProgram")));
  } catch (const std::exception &error) {
    return std::fprintf(stderr, "cuda_cache: %s\n", error.what()), 1;
  }
  return 0;
}
