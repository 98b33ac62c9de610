// SPDX-License-Identifier: Apache-2.0
// Runs while Tandem is built: writes the kernels of technique tables, which have the same text for all matrices, as one
// .cu file.
//   tandem_write_tables FILE
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "gpu/device_code/names.hpp"

namespace {

// Each text brings its own macros, which end with it.
std::set<std::string> macros_of(const std::string &text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string directive, name;
    if (words >> directive >> name && directive == "#define") names.insert(name.substr(0, name.find('(')));
  }
  return names;
}

// Before the texts: NVRTC declares these by itself, nvcc has them in headers.
void write(std::ostream &out) {
  using namespace tandem;
  const core::Matrix any(1, 1);
  for (const device::KernelSpec &spec : gpu::tables_kernels()) {
    const std::string text = device::generate_kernel(any, spec).text;
    out << "namespace in_" << spec.name << " {\n" << text << "}\n";
    for (const std::string &name : macros_of(text)) out << "#undef " << name << '\n';
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fputs("usage: tandem_write_tables FILE\n", stderr);
    return 2;
  }
  std::ofstream file(argv[1]);
  write(file);
  file.close();
  if (!file) {
    std::fprintf(stderr, "%s: cannot be written\n", argv[1]);
    return 1;
  }
  return 0;
}
