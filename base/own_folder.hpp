// Where this library lies: its modules (libtandem_openmp.so, libtandem_cuda.so) lie beside it, and are opened from
// there by absolute path, never through a search path.
#pragma once

#include <string>

namespace tandem::base {

// The folder of the file (shared library or program) that holds this code. `who` begins the message of the Error
// (UNAVAILABLE) where it cannot be told.
std::string own_folder(const std::string &who);

}  // namespace tandem::base
