// SPDX-License-Identifier: Apache-2.0
// tools.h: the generator of device kernels, for people and tools.
#include "device/kernel_text.hpp"

#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "api/objects.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"
#include "device/built_in.hpp"
#include "device/transform_text.hpp"
#include "tandem/tools.h"

using namespace tandem;

namespace {

// In the order of their public values.
constexpr device::Dialect kDialects[] = {device::Dialect::opencl_c, device::Dialect::cuda_c, device::Dialect::host_c};
constexpr device::Technique kTechniques[] = {device::Technique::compiled, device::Technique::tables,
                                             device::Technique::transform};
constexpr device::Access kAccesses[] = {device::Access::aligned, device::Access::shifted};
constexpr device::Vendor kVendors[] = {device::Vendor::other, device::Vendor::nvidia, device::Vendor::amd,
                                       device::Vendor::intel, device::Vendor::other,  device::Vendor::cpu};
static_assert(TANDEM_KERNEL_DEVICE_NVIDIA == 1 && TANDEM_KERNEL_DEVICE_CPU == 5);
static_assert(TANDEM_DIALECT_HOST_C == 2 && TANDEM_TECHNIQUE_TRANSFORM == 2 && TANDEM_ACCESS_ANY == 1);

template <class Value>
Value at(std::span<const Value> values, std::int32_t index, const char *what) {
  if (index < 0 || static_cast<std::size_t>(index) >= values.size())
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(what) + " " + std::to_string(index) + " does not exist");
  return values[static_cast<std::size_t>(index)];
}

device::Vendor vendor_of(device::Dialect dialect, std::int32_t given) {
  if (given == TANDEM_KERNEL_DEVICE_DEFAULT && dialect == device::Dialect::cuda_c) return device::Vendor::nvidia;
  if (given == TANDEM_KERNEL_DEVICE_DEFAULT && dialect == device::Dialect::host_c) return device::Vendor::cpu;
  return at<device::Vendor>(kVendors, given, "device");
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

// The points of a codec's encode; null: technique transform does not do this operation of this code.
std::shared_ptr<const device::CauchyPoints> points_of(const core::Codec &codec, core::Mode mode) {
  core::ShardSet parity;
  for (unsigned i = codec.k(); i < codec.shard_count(); ++i) parity.set(i);
  const core::Operator what = codec.encode(parity).what;
  const auto *form = std::get_if<core::CauchyTransform>(&what.form());
  if (form == nullptr || mode == core::Mode::accumulate) return nullptr;
  return std::make_shared<const device::CauchyPoints>(*form);
}

}  // namespace

extern "C" tandem_status tandem_kernel_text(const tandem_codec *codec, const tandem_kernel_text_options *options,
                                            char *text_out, size_t capacity_bytes, tandem_kernel_text_info *info_out) {
  return base::guarded({{"codec", codec}, {"info_out", info_out}}, [&] {
    if (text_out == nullptr && capacity_bytes != 0)
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "text_out is NULL, and capacity_bytes is not 0");
    const tandem_kernel_text_options given = base::read_options(options, "tandem_kernel_text_options");
    base::check_result_size(info_out, "tandem_kernel_text_info");
    device::KernelSpec spec;
    spec.dialect = at<device::Dialect>(kDialects, given.dialect, "dialect");
    spec.technique = at<device::Technique>(kTechniques, given.technique, "technique");
    spec.access = at<device::Access>(kAccesses, given.access, "access");
    if (codec->codec->field() != core::Field::gf8)
      base::fail(TANDEM_ERROR_UNSUPPORTED, "the codec is over GF(2^16): devices have kernels for GF(2^8) alone");
    if (codec->codec->packets())
      base::fail(TANDEM_ERROR_UNSUPPORTED, "the codec's layout is packets: devices have kernels for bytes alone");
    const auto [matrix, mode] = application(codec->codec->parity(), given.operation);
    spec.mode = mode;
    const device::Vendor vendor = vendor_of(spec.dialect, given.device);
    spec.tuning = device::built_in_tuning(vendor, matrix.rows(), matrix.columns());
    spec.byte_lanes = spec.dialect == device::Dialect::opencl_c && vendor == device::Vendor::cpu;
    const std::shared_ptr<const device::CauchyPoints> points = points_of(*codec->codec, mode);
    if (spec.technique == device::Technique::transform) {
      if (points == nullptr) {
        base::fail(TANDEM_ERROR_UNSUPPORTED,
                   "technique transform encodes and verifies wide Cauchy codes (12 data and 4 parity shards or more) "
                   "with points in runs");
      }
      if (given.rows_per_pass != 0)
        base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "rows_per_pass is not of technique transform, which has no passes");
      spec.points = points;
      spec.tuning = device::transform_tuning();
      if (given.element_bytes != 0)
        spec.tuning.elements_per_item = device::KernelSpec::kTransformBytes / given.element_bytes;
    }
    if (given.element_bytes != 0) spec.tuning.element_bytes = given.element_bytes;
    if (given.elements_per_item != 0) spec.tuning.elements_per_item = given.elements_per_item;
    if (given.rows_per_pass != 0) spec.tuning.rows_per_pass = given.rows_per_pass;
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
    info.element_bytes = spec.tuning.element_bytes;
    info.elements_per_item = spec.tuning.elements_per_item;
    info.rows_per_pass = spec.tuning.rows_per_pass;
    info.group_items = spec.tuning.local[0] * spec.tuning.local[1] * spec.tuning.local[2];
    const bool transforms = spec.dialect == device::Dialect::cuda_c && points != nullptr &&
                            device::built_in_transforms(matrix.rows(), matrix.columns());
    info.built_in_technique = transforms ? TANDEM_TECHNIQUE_TRANSFORM : TANDEM_TECHNIQUE_COMPILED;
    if (capacity_bytes != 0) std::memcpy(text_out, kernel.text.c_str(), info.text_bytes);
    base::write_result(info, info_out, "tandem_kernel_text_info");
  });
}
