// SPDX-License-Identifier: Apache-2.0
// The parts of the OpenMP loader that tests look at.
#pragma once

#include <string>

#include "cpu/executors/openmp_module.hpp"

namespace tandem::cpu {

// Throws Error (UNAVAILABLE) unless this library and that module speak the same version.
void check_openmp_module(const tandem_openmp_module *module, const std::string &path);

}  // namespace tandem::cpu
