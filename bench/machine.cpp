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

std::size_t cache_bytes(int name) { return static_cast<std::size_t>(std::max(0L, sysconf(name))); }

// The word in brackets of "always [madvise] never".
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
  machine.l1d_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
  machine.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
  machine.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
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
