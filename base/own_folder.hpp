// Where this library lies. Its modules (libtandem_openmp.so, libtandem_cuda.so) lie beside it, or in the folder tandem/
// there, where they are installed. They are opened by absolute path, never through a search path.
#pragma once

#include <string>

namespace tandem::base {

// The folder of the file (shared library or program) that holds this code. `who` begins the message of the Error
// (UNAVAILABLE) where it cannot be told.
std::string own_folder(const std::string &who);

// The folder of a module: own_folder(), if the file is not in its tandem/.
std::string module_folder(const std::string &file, const std::string &who);

}  // namespace tandem::base
