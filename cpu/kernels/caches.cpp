// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cpu/kernels/kernel.hpp"

namespace tandem::cpu {
namespace {

// The first bytes of a file of sysfs, as text; "" if there is none.
void read_text(const char *root, unsigned index, const char *name, char (&text)[32]) {
  char path[512];
  const int length = snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%u/%s", root, index, name);
  text[0] = '\0';
  if (length < 0 || static_cast<size_t>(length) >= sizeof path) return;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t bytes = read(file, text, sizeof text - 1);
  close(file);
  text[bytes > 0 ? bytes : 0] = '\0';
}

// "48K", "2M" or "131072"; 0 if it is no number, or one that no cache has.
uint64_t number_of(const char *text) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  uint64_t value = 0;
  for (; *text >= '0' && *text <= '9'; ++text) {
    value = value * 10 + static_cast<unsigned>(*text - '0');
    if (value > kMost) return 0;
  }
  if (*text == 'K') value <<= 10;
  if (*text == 'M') value <<= 20;
  return value > kMost ? 0 : value;
}

}  // namespace

Caches cache_sizes(const char *root) {
  constexpr unsigned kMostCaches = 16;
  Caches caches = {};
  for (unsigned i = 0; i < kMostCaches; ++i) {
    char level[32], text[32];
    read_text(root, i, "level", level);
    if (level[0] == '\0') break;
    read_text(root, i, "type", text);
    if (strncmp(text, "Instruction", 11) == 0) continue;
    read_text(root, i, "size", text);
    const uint64_t bytes = number_of(text);
    if (number_of(level) == 2) caches.l2_bytes = bytes;
    if (number_of(level) != 1) continue;
    read_text(root, i, "ways_of_associativity", text);
    const uint64_t ways = number_of(text);
    caches.l1_ways = ways <= 1024 ? static_cast<uint32_t>(ways) : 0;
  }
  return caches;
}

Caches cache_sizes() {
  Caches caches = {};
#if defined(__x86_64__) && defined(_SC_LEVEL2_CACHE_SIZE)  // CPUID: no files
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE), l1_ways = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
  caches.l2_bytes = l2 > 0 ? static_cast<uint64_t>(l2) : 0;
  caches.l1_ways = l1_ways > 0 ? static_cast<uint32_t>(l1_ways) : 0;
#else  // musl's sysconf has no caches; elsewhere glibc's knows the length of a line alone
  caches = cache_sizes("");
#endif
  if (caches.l2_bytes == 0) caches.l2_bytes = 1 << 20;
  return caches;
}

}  // namespace tandem::cpu
