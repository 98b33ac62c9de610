// SPDX-License-Identifier: Apache-2.0
// An NVRTC of this machine, and what it makes of a text.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpu/cuda_module.hpp"

namespace tandem::test {

class RealNvrtc {
 public:
  explicit RealNvrtc(const std::string &path) {
    void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    is_there = library != nullptr;
#define TAKE(name)                                                              \
  if (is_there) name = reinterpret_cast<decltype(name)>(dlsym(library, #name)); \
  is_there = is_there && name != nullptr;
    TANDEM_NVRTC_FUNCTIONS(TAKE)
#undef TAKE
  }

  struct Made {
    nvrtcResult result = NVRTC_SUCCESS;
    std::string log{}, binary{};  // machine code; or PTX, if the first option asks for that
  };
  Made compile(const std::string &text, const std::vector<const char *> &options) const {
    Made made;
    nvrtcProgram program = nullptr;
    made.result = nvrtcCreateProgram(&program, text.c_str(), "kernel.cu", 0, nullptr, nullptr);
    if (made.result != NVRTC_SUCCESS) return made;
    made.result = nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
    const auto take = [&](auto *size_of, auto *get, std::string &out) {
      std::size_t bytes = 0;
      size_of(program, &bytes);
      out.resize(bytes);
      get(program, out.data());
    };
    take(nvrtcGetProgramLogSize, nvrtcGetProgramLog, made.log);
    const bool is_ptx = std::strstr(options[0], "=compute_") != nullptr;
    if (made.result == NVRTC_SUCCESS)
      take(is_ptx ? nvrtcGetPTXSize : nvrtcGetCUBINSize, is_ptx ? nvrtcGetPTX : nvrtcGetCUBIN, made.binary);
    nvrtcDestroyProgram(&program);
    return made;
  }

#define DECLARE(name) decltype(&::name) name = nullptr;
  TANDEM_NVRTC_FUNCTIONS(DECLARE)
#undef DECLARE
  bool is_there = false;
};

}  // namespace tandem::test
