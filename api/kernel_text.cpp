// tools.h: the generator of device kernels, for people and tools.
#include "device/kernel_text.hpp"

#include <cstring>

#include "api/objects.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"
#include "tandem/tools.h"

using namespace tandem;

namespace {

device::Dialect dialect_of(std::int32_t value) {
  switch (value) {
    case TANDEM_DIALECT_OPENCL_C:
      return device::Dialect::opencl_c;
    case TANDEM_DIALECT_CUDA_C:
      return device::Dialect::cuda_c;
    case TANDEM_DIALECT_HOST_C:
      return device::Dialect::host_c;
  }
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "dialect " + std::to_string(value) + " does not exist");
}

device::Technique technique_of(std::int32_t value) {
  switch (value) {
    case TANDEM_TECHNIQUE_COMPILED:
      return device::Technique::compiled;
    case TANDEM_TECHNIQUE_TABLES:
      return device::Technique::tables;
  }
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "technique " + std::to_string(value) + " does not exist");
}

device::Access access_of(std::int32_t value) {
  switch (value) {
    case TANDEM_ACCESS_ALIGNED:
      return device::Access::aligned;
    case TANDEM_ACCESS_ANY:
      return device::Access::shifted;
  }
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "access " + std::to_string(value) + " does not exist");
}

// The matrix and mode of an operation.
std::pair<core::Matrix, core::Mode> application(const core::Matrix &parity, std::int32_t operation) {
  switch (operation) {
    case TANDEM_OPERATION_ENCODE:
      return {parity, core::Mode::assign};
    case TANDEM_OPERATION_VERIFY:
      return {parity, core::Mode::compare};
    case TANDEM_OPERATION_UPDATE: {
      core::Matrix column(parity.rows(), 1);
      for (unsigned r = 0; r < parity.rows(); ++r) column.at(r, 0) = parity.at(r, 0);
      return {core::update_of(column).dense(), core::Mode::accumulate};
    }
  }
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
             "operation " + std::to_string(operation) + " has no kernel text of its own; ENCODE, VERIFY, UPDATE");
}

}  // namespace

extern "C" tandem_status tandem_kernel_text(const tandem_codec *codec, const tandem_kernel_text_options *options,
                                            char *text_out, size_t capacity_bytes, tandem_kernel_text_info *info_out) {
  if (codec == nullptr || info_out == nullptr)
    return base::refuse(TANDEM_ERROR_INVALID_ARGUMENT, "codec or info_out is NULL");
  if (text_out == nullptr && capacity_bytes != 0)
    return base::refuse(TANDEM_ERROR_INVALID_ARGUMENT, "text_out is NULL, and capacity_bytes is not 0");
  return base::guarded([&] {
    const tandem_kernel_text_options given = base::read_options(options, "tandem_kernel_text_options");
    base::check_result_size(info_out, "tandem_kernel_text_info");
    device::KernelSpec spec;
    spec.dialect = dialect_of(given.dialect);
    spec.technique = technique_of(given.technique);
    spec.access = access_of(given.access);
    if (given.element_bytes != 0) spec.tuning.element_bytes = given.element_bytes;
    if (given.elements_per_item != 0) spec.tuning.elements_per_item = given.elements_per_item;
    if (given.rows_per_pass != 0) spec.tuning.rows_per_pass = given.rows_per_pass;
    const auto [matrix, mode] = application(codec->codec->parity(), given.operation);
    spec.mode = mode;
    const device::KernelText kernel = device::generate_kernel(matrix, spec);
    tandem_kernel_text_info info = {};
    info.text_bytes = kernel.text.size() + 1;
    if (capacity_bytes != 0 && capacity_bytes < info.text_bytes) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "capacity_bytes is " + std::to_string(capacity_bytes) +
                                                    ", the text has " + std::to_string(info.text_bytes));
    }
    info.data_bytes = kernel.operations.data_bytes;
    info.two_input_operations = kernel.operations.two_input;
    info.three_input_operations = kernel.operations.three_input;
    info.loads = kernel.operations.loads;
    info.stores = kernel.operations.stores;
    info.table_lookups = kernel.operations.table_lookups;
    if (capacity_bytes != 0) std::memcpy(text_out, kernel.text.c_str(), info.text_bytes);
    base::write_result(info, info_out, "tandem_kernel_text_info");
  });
}
