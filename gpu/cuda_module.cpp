// SPDX-License-Identifier: Apache-2.0
// libtandem_cuda.so: the only file that opens the CUDA driver and NVRTC. It links neither, because a machine may have
// one and not the other.
#include "gpu/cuda_module.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#ifdef TANDEM_CUDA_DEVICE_CODE
extern "C" const unsigned char tandem_cuda_tables_image[];
extern "C" const unsigned long long tandem_cuda_tables_image_bytes;
#endif

namespace {

#define TANDEM_TEXT(name) #name
#define TANDEM_EXPANDED_TEXT(name) TANDEM_TEXT(name)

// A name with a lasting address: the table points to it. Never freed, because the table is used until the process ends.
const char *kept(const std::string &text) {
  static std::list<std::string> *const all = new std::list<std::string>;
  return all->emplace_back(text).c_str();
}

// Looks up one function of an opened library. The error names the first one that is missing.
template <class Function>
void take(void *library, const char *name, Function &function, std::string &missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

void take_driver(tandem_cuda_module &module) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char *reason = dlerror();
    module.problem = kept("the NVIDIA driver is not installed (" +
                          std::string(reason != nullptr ? reason : "libcuda.so.1 cannot be opened") + ")");
    return;
  }
  std::string missing;
#define TANDEM_TAKE(name) take(library, TANDEM_EXPANDED_TEXT(name), module.name, missing);
  TANDEM_CUDA_FUNCTIONS(TANDEM_TAKE)
  if (!missing.empty()) module.problem = kept("the NVIDIA driver is too old: libcuda.so.1 has no " + missing);
}

// NVRTC of the driver's own major version first: the driver may refuse programs of another one.
void *open_nvrtc(const tandem_cuda_module &module) {
  int driver_version = 0;
  if (module.problem == nullptr) module.cuDriverGetVersion(&driver_version);
  std::vector<std::string> folders = {""};
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char *value = secure_getenv(variable);
    if (value != nullptr && value[0] == '/') folders.push_back(std::string(value) + "/lib64/");
  }
  folders.push_back("/usr/local/cuda/lib64/");
  std::pair<int, const char *> known[] = {{13, "libnvrtc.so.13"}, {12, "libnvrtc.so.12"}, {11, "libnvrtc.so.11.2"}};
  const auto is_own = [&](const auto &each) { return each.first == driver_version / 1000; };
  std::stable_partition(std::begin(known), std::end(known), is_own);
  for (const auto &[major, file] : known) {
    for (const std::string &folder : folders) {
      void *library = dlopen((folder + file).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
      if (library != nullptr) return library;
    }
  }
  return nullptr;
}

void take_nvrtc(tandem_cuda_module &module) {
  void *library = open_nvrtc(module);
  if (library == nullptr) {
    module.nvrtc_problem = "NVRTC is not installed (libnvrtc.so.13, .12 or .11.2, of the CUDA toolkit)";
    return;
  }
  std::string missing;
  TANDEM_NVRTC_FUNCTIONS(TANDEM_TAKE)
  if (!missing.empty()) module.nvrtc_problem = kept("NVRTC is too old: it has no " + missing);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const tandem_cuda_module *tandem_cuda_module_get(void) {
  static tandem_cuda_module module = {};
  static std::once_flag once;
  std::call_once(once, [] {
    module.version = TANDEM_CUDA_VERSION;
    module.struct_bytes = sizeof module;
    take_driver(module);
    take_nvrtc(module);
#ifdef TANDEM_CUDA_DEVICE_CODE
    module.tables_image = tandem_cuda_tables_image;
    module.tables_image_bytes = tandem_cuda_tables_image_bytes;
#endif
  });
  return &module;
}
