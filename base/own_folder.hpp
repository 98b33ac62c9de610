// SPDX-License-Identifier: Apache-2.0
// The folder of this library. Its modules (libtandem_openmp.so, libtandem_cuda.so) lie beside it, or in its folder
// tandem/ after installation. They are opened by absolute path, never through a search path.
#pragma once

#include <string>

namespace tandem::base {

// The folder of the file (shared library or program) that holds this code. If it cannot be found, throws Error
// (UNAVAILABLE); `who` begins the message.
std::string own_folder(const std::string &who);

// The folder of a module: own_folder(), if its folder tandem/ does not have the file.
std::string module_folder(const std::string &file, const std::string &who);

}  // namespace tandem::base
