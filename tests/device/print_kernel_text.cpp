// SPDX-License-Identifier: Apache-2.0
// Writes a kernel's text, with any tuning value, for tests that compile it. Can write more kernels than `tandem-bench
// kernels --text` prints.
//     print_kernel_text K M ELEMENT_BYTES ROWS_PER_PASS TECHNIQUE MODE ACCESS LOADS DEVICE
// MODE: assign, accumulate, compare, batch. DEVICE: an architecture (90: CUDA C), amd or intel (OpenCL C).
// Two zeros: the built-in tuning. The first line is a comment with both.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/presets.hpp"
#include "device/built_in.hpp"
#include "device/kernel_text.hpp"
#include "device/transform_text.hpp"
#include "tests/conformance/forms.hpp"

namespace {

using namespace tandem;
using namespace tandem::core;

template <class Value, class... Name>
Value one_of(const std::string &given, const Name *...names) {
  int value = 0, found = -1;
  ((given == names ? found = value : 0, ++value), ...);
  if (found < 0) throw std::runtime_error("unknown: " + given);
  return static_cast<Value>(found);
}

unsigned number(const char *text) { return static_cast<unsigned>(std::strtoul(text, nullptr, 10)); }

}  // namespace

int main(int argc, char **argv) {
  if (argc != 10) return 2;
  try {
    device::KernelSpec spec;
    const std::string on = argv[9];
    const device::Vendor vendor = on == "amd"     ? device::Vendor::amd
                                  : on == "intel" ? device::Vendor::intel
                                                  : device::Vendor::nvidia;
    const bool cuda = vendor == device::Vendor::nvidia;
    spec.dialect = cuda ? device::Dialect::cuda_c : device::Dialect::opencl_c;
    spec.binding = cuda ? device::Binding::arguments : device::Binding::offsets;
    spec.tuning.element_bytes = number(argv[3]);
    spec.tuning.rows_per_pass = number(argv[4]);
    if (spec.tuning.element_bytes == 0 && spec.tuning.rows_per_pass == 0)
      spec.tuning = device::built_in_tuning(vendor, number(argv[2]), number(argv[1]));
    spec.technique = one_of<device::Technique>(argv[5], "compiled", "tables", "transform");
    if (argv[6] == std::string("batch")) {  // assign, by a table of stripes
      spec.binding = device::Binding::table;
    } else {
      spec.mode = one_of<Mode>(argv[6], "assign", "accumulate", "compare");
    }
    spec.access = one_of<device::Access>(argv[7], "aligned", "shifted");
    spec.tuning.loads = one_of<device::Loads>(argv[8], "plain", "streaming", "async");
    if (cuda) spec.architecture = number(argv[9]);
    const unsigned k = number(argv[1]), m = number(argv[2]);
    if (spec.technique == device::Technique::transform) {
      spec.tuning = device::transform_tuning();
      spec.points = std::make_shared<const device::CauchyPoints>(
          test::transform_of(test::points_from(0, k), test::points_from(k, m)));  // of this preset
    }
    std::printf("// %u %u\n", spec.tuning.element_bytes, spec.tuning.rows_per_pass);
    std::fputs(device::generate_kernel(find_preset(0)->make(k, m), spec).text.c_str(), stdout);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
