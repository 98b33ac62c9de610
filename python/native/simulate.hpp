// SPDX-License-Identifier: Apache-2.0
// tandem_ec.simulate in native code.
#ifndef TANDEM_PYTHON_SIMULATE_HPP
#define TANDEM_PYTHON_SIMULATE_HPP

#include <nanobind/nanobind.h>

namespace tandem_ec {

void bind_simulate(nanobind::module_ &module);

}  // namespace tandem_ec
#endif
