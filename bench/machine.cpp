// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.hpp"

#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tandem/tools.h"

namespace tandem::bench {
namespace {

std::string cpu_model() {
  tandem_device device{};
  std::size_t count = 0;
  if (tandem_devices(&device, 1, sizeof device, &count) != TANDEM_OK || count == 0) return "unknown";
  return device.description;
}

// The size of a data cache of CPU 0, by its level; 0 if the system does not tell. glibc's sysconf knows caches only on
// x86.
std::size_t cache_bytes(unsigned level) {
  for (unsigned i = 0; i < 16; ++i) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    const auto read = [&](const char *name) {
      std::string word;
      std::ifstream(folder + name) >> word;
      return word;
    };
    if (read("level") != std::to_string(level) || read("type") == "Instruction") continue;
    const std::string size = read("size");
    char *unit = nullptr;
    const unsigned long long number = std::strtoull(size.c_str(), &unit, 10);
    return static_cast<std::size_t>(*unit == 'K' ? number << 10 : *unit == 'M' ? number << 20 : number);
  }
  return 0;
}

// The word in brackets, in text like "always [madvise] never".
std::string huge_page_policy() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const std::size_t from = line.find('['), to = line.find(']');
  return from == std::string::npos || to == std::string::npos ? "unknown" : line.substr(from + 1, to - from - 1);
}

}  // namespace

MachineFacts this_machine() {
  MachineFacts machine;
  machine.cpu = cpu_model();
  machine.core_count = static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  machine.l1d_bytes = cache_bytes(1);
  machine.l2_bytes = cache_bytes(2);
  machine.l3_bytes = cache_bytes(3);
  utsname name{};
  machine.system = uname(&name) == 0 ? std::string(name.sysname) + " " + name.release : "unknown";
  machine.huge_pages = huge_page_policy();
  if (getloadavg(&machine.load, 1) != 1) machine.load = 0;
  return machine;
}

std::string utc_now() {
  const time_t now = time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  const std::size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

}  // namespace tandem::bench
