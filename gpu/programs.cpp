// SPDX-License-Identifier: Apache-2.0
#include "gpu/programs.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "gpu/device_code/names.hpp"

namespace tandem::gpu {
namespace {

// A program of NVRTC.
class Compilation {
 public:
  Compilation(const Driver &driver, const std::string &text) : driver_(driver) {
    check(driver.nvrtcCreateProgram(&program_, text.c_str(), "tandem.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  }
  ~Compilation() {
    if (program_ != nullptr) driver_.nvrtcDestroyProgram(&program_);
  }
  Compilation(const Compilation &) = delete;
  Compilation &operator=(const Compilation &) = delete;

  void compile(const std::string &architecture) {
    // NVRTC 11 is set to an older C++ than 12.
    const char *const options[] = {architecture.c_str(), "--std=c++17"};
    const nvrtcResult result = driver_.nvrtcCompileProgram(program_, 2, options);
    if (result == NVRTC_SUCCESS) return;
    base::fail(TANDEM_ERROR_UNAVAILABLE,
               base::text("CUDA: NVRTC does not compile a generated kernel for ", architecture, " (",
                          driver_.nvrtcGetErrorString(result), "): ", log().substr(0, device::kMostLogBytes)));
  }

  std::vector<unsigned char> binary(bool ptx) const {
    std::size_t size = 0;
    check(ptx ? driver_.nvrtcGetPTXSize(program_, &size) : driver_.nvrtcGetCUBINSize(program_, &size),
          ptx ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize");
    if (size == 0 || size > device::kMostBinaryBytes)
      base::fail(TANDEM_ERROR_UNAVAILABLE, base::text("CUDA: NVRTC made a program of ", size, " bytes"));
    std::vector<unsigned char> bytes(size);
    char *out = reinterpret_cast<char *>(bytes.data());
    check(ptx ? driver_.nvrtcGetPTX(program_, out) : driver_.nvrtcGetCUBIN(program_, out),
          ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN");
    return bytes;
  }

 private:
  void check(nvrtcResult result, const char *call) const {
    if (result == NVRTC_SUCCESS) return;
    base::fail(TANDEM_ERROR_UNAVAILABLE,
               base::text("CUDA: ", call, " failed with ", driver_.nvrtcGetErrorString(result)));
  }

  std::string log() const {
    std::size_t size = 0;
    if (driver_.nvrtcGetProgramLogSize(program_, &size) != NVRTC_SUCCESS || size == 0 ||
        size > device::kMostBinaryBytes)
      return "no log";
    std::string text(size, '\0');
    if (driver_.nvrtcGetProgramLog(program_, text.data()) != NVRTC_SUCCESS) return "no log";
    text.resize(text.find('\0') == std::string::npos ? size : text.find('\0'));
    return text;
  }

  const Driver &driver_;
  nvrtcProgram program_ = nullptr;
};

// The error does not come from the program: a retry may succeed, or the device is lost.
bool is_not_of_the_program(const device::DriverError &refused) {
  const int error = refused.number();
  return error == CUDA_ERROR_OUT_OF_MEMORY || is_of_capture(error) || is_sticky(error);
}

}  // namespace

CudaImage::CudaImage(const Driver &driver, CUcontext context, const void *image) : Owned(driver, context) {
  CUDA_CALL(driver, cuModuleLoadData, &object_, image);
}

CUfunction CudaImage::function(const char *name) const {
  CUfunction found = nullptr;
  CUDA_CALL(driver_, cuModuleGetFunction, &found, object_, name);
  return found;
}

CudaProgram::CudaProgram(const Driver &driver, std::shared_ptr<const CudaImage> module, const char *name,
                         bool is_transform)
    : module_(std::move(module)), function_(module_->function(name)) {
  int most = 0;
  CUDA_CALL(driver, cuFuncGetAttribute, &most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function_);
  most_group_items_ = static_cast<std::size_t>(std::max(most, 1));
  if (!is_transform) return;
  CUDA_CALL(driver, cuFuncSetAttribute, function_, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
            CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
}

CudaPrograms::CudaPrograms(const CudaDevice &device, CUcontext context, std::shared_ptr<device::DiskCache> disk,
                           const base::Log &log)
    : DevicePrograms(device, std::move(disk), log), driver_(*device.driver), context_(context) {
  look_at_compiler();
  made_by_ = base::text("cuda\n", architecture_, "\n", compiler_);
  if (!no_compiler_.empty()) device_.say(log_, TANDEM_LOG_INFO, no_compiler_);
}

// Machine code for exactly this device if NVRTC supports it, else PTX of the newest older architecture.
void CudaPrograms::look_at_compiler() {
  const auto none = [&](const auto &...why) { no_compiler_ = base::text("nothing is compiled: ", why...); };
  if (driver_.nvrtc_problem != nullptr) return none(driver_.nvrtc_problem);
  int major = 0, minor = 0, count = 0;
  if (driver_.nvrtcVersion(&major, &minor) != NVRTC_SUCCESS ||
      driver_.nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count <= 0 || count > 1024)
    return none("NVRTC does not tell its version");
  compiler_ = base::text("NVRTC ", major, ".", minor);
  compiler_version_ = 1000 * major + 10 * minor;
  if (compiler_version_ < TANDEM_CUDA_OLDEST)
    return none(compiler_, " is too old, ", version_text(TANDEM_CUDA_OLDEST), " or later is needed");
  std::vector<int> known(static_cast<std::size_t>(count));
  if (driver_.nvrtcGetSupportedArchs(known.data()) != NVRTC_SUCCESS) known.clear();
  const int architecture = static_cast<int>(device_.architecture);
  int best = 0;
  for (const int each : known)
    if (each <= architecture) best = std::max(best, each);
  if (best == 0)
    return none(compiler_, " does not know compute capability ", architecture / 10, ".", architecture % 10);
  makes_ptx_ = best != architecture;
  architecture_ = base::text("--gpu-architecture=", makes_ptx_ ? "compute" : "sm", "_", best);
}

// For programs that the driver refuses: machine code runs on drivers of its own major version of CUDA, and on later
// ones.
std::string CudaPrograms::remedy(int made_by) const {
  int driver = 0;
  if (driver_.cuDriverGetVersion(&driver) != CUDA_SUCCESS || driver / 1000 >= made_by / 1000) return "";
  return base::text("; it was made by CUDA ", version_text(made_by), ", which needs a driver of CUDA ", made_by / 1000,
                    ".0 or later: update the driver, or use NVRTC and a library built with CUDA ", driver / 1000);
}

std::shared_ptr<const device::DeviceProgram> CudaPrograms::make(const device::Key &key, const device::KernelSpec &spec,
                                                                const MakeText &text) {
  const ContextScope current(driver_, context_);  // on a thread of the library
  if (auto program = from_image(spec)) return program;
  return DevicePrograms::make(key, spec, text);
}

std::shared_ptr<const CudaProgram> CudaPrograms::program_of(const device::KernelSpec &spec,
                                                            const std::vector<unsigned char> &binary) const {
  return std::make_shared<const CudaProgram>(driver_,
                                             std::make_shared<const CudaImage>(driver_, context_, binary.data()),
                                             spec.name.c_str(), spec.technique == device::Technique::transform);
}

std::shared_ptr<const device::DeviceProgram> CudaPrograms::load(const device::KernelSpec &spec,
                                                                std::vector<unsigned char> binary, std::string &why) {
  try {
    binary.push_back(0);  // PTX is a text
    return program_of(spec, binary);
  } catch (const device::DriverError &error) {
    if (is_not_of_the_program(error)) throw;
    why = error.what();
    return nullptr;
  }
}

std::shared_ptr<const device::DeviceProgram> CudaPrograms::build(const device::KernelSpec &spec,
                                                                 const std::string &text,
                                                                 std::vector<unsigned char> &binary) {
  if (driver_.nvrtc_problem != nullptr || architecture_.empty())
    device_.fail(TANDEM_ERROR_UNAVAILABLE, device_.name, ": ", no_compiler());
  Compilation compilation(driver_, text);
  compilation.compile(architecture_);
  binary = compilation.binary(makes_ptx_);
  try {
    return program_of(spec, binary);
  } catch (const device::DriverError &error) {
    if (is_not_of_the_program(error)) throw;
    device_.fail(TANDEM_ERROR_UNAVAILABLE, "the driver of ", device_.name, " (", device_.driver_text(),
                 ") refuses what ", compiler_, " compiled: ", error.what(), remedy(compiler_version_));
  }
}

// Technique tables as it was compiled with the library. Null if the image does not have it, or if the driver does not
// take the image because it is older than the compiler's.
std::shared_ptr<const CudaProgram> CudaPrograms::from_image(const device::KernelSpec &spec) {
  if (spec.technique != device::Technique::tables || spec.tuning.elements_per_item != 1 ||
      driver_.tables_image == nullptr ||
      std::find(kTablesElementBytes.begin(), kTablesElementBytes.end(), spec.tuning.element_bytes) ==
          kTablesElementBytes.end())
    return nullptr;
  const std::lock_guard lock(image_mutex_);
  if (image_is_refused_) return nullptr;
  try {
    if (image_ == nullptr) image_ = std::make_shared<const CudaImage>(driver_, context_, driver_.tables_image);
    return std::make_shared<const CudaProgram>(driver_, image_, tables_kernel_name(spec).c_str(), false);
  } catch (const device::DriverError &error) {
    if (is_not_of_the_program(error)) throw;
    image_is_refused_ = true;
    device_.say(log_, TANDEM_LOG_WARNING, "the driver (", device_.driver_text(),
                ") does not take the kernels that came with this library: ", error.what(), remedy(CUDA_VERSION));
    return nullptr;
  }
}

}  // namespace tandem::gpu
