// SPDX-License-Identifier: Apache-2.0
// tandem_ec.files in native code: shard sets on disk.
#ifndef TANDEM_PYTHON_FILES_HPP
#define TANDEM_PYTHON_FILES_HPP

#include <nanobind/nanobind.h>

namespace tandem_ec {

void bind_files(nanobind::module_ &module);

}  // namespace tandem_ec
#endif
