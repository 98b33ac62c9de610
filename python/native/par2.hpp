// SPDX-License-Identifier: Apache-2.0
// tandem_ec.par2 in native code: PAR2 sets.
#ifndef TANDEM_PYTHON_PAR2_HPP
#define TANDEM_PYTHON_PAR2_HPP

#include <nanobind/nanobind.h>

namespace tandem_ec {

void bind_par2(nanobind::module_ &module);

}  // namespace tandem_ec
#endif
