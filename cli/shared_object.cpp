// SPDX-License-Identifier: Apache-2.0
#include "cli/shared_object.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace tandem::cli {
namespace {

constexpr unsigned char kNativeClass = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
constexpr unsigned char kNativeOrder = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;

template <class Struct>
Struct read_at(std::string_view content, std::uint64_t offset_bytes) {
  if (offset_bytes > content.size() || content.size() - offset_bytes < sizeof(Struct)) {
    throw std::invalid_argument(fmt::format("it is cut short: {} bytes", content.size()));
  }
  Struct value;
  std::memcpy(&value, content.data() + offset_bytes, sizeof value);
  return value;
}

// The running command is built for this machine, so its header has the right values.
ElfW(Half) native_machine() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  ElfW(Ehdr) header = {};
  self.read(reinterpret_cast<char *>(&header), sizeof header);
  return self ? header.e_machine : ElfW(Half){EM_NONE};
}

struct Segments {
  std::vector<ElfW(Phdr)> loaded;
  ElfW(Phdr) dynamic = {};
};

Segments read_segments(std::string_view content, const ElfW(Ehdr) & header) {
  if (header.e_phentsize != sizeof(ElfW(Phdr))) throw std::invalid_argument("its program headers have another size");
  Segments found;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    if (header.e_phoff > content.size()) throw std::invalid_argument("its program headers lie outside of it");
    const auto segment = read_at<ElfW(Phdr)>(content, header.e_phoff + i * sizeof(ElfW(Phdr)));
    if (segment.p_type == PT_LOAD) found.loaded.push_back(segment);
    if (segment.p_type == PT_DYNAMIC) found.dynamic = segment;
  }
  if (found.dynamic.p_type != PT_DYNAMIC) throw std::invalid_argument("it has no dynamic section");
  return found;
}

// The bytes at an address of the loaded object, as far as its segment has them in the file.
std::string_view bytes_at(std::string_view content, const Segments &segments, std::uint64_t address) {
  for (const ElfW(Phdr) & segment : segments.loaded) {
    if (address < segment.p_vaddr || address - segment.p_vaddr >= segment.p_filesz) continue;
    const std::uint64_t within = address - segment.p_vaddr;
    if (segment.p_offset > content.size() || content.size() - segment.p_offset < segment.p_filesz) break;
    return content.substr(segment.p_offset + within, segment.p_filesz - within);
  }
  throw std::invalid_argument("its table of names lies outside of it");
}

}  // namespace

SharedObject read_shared_object(std::string_view content, ObjectKind kind) {
  if (content.size() < EI_NIDENT || content.substr(0, SELFMAG) != std::string_view(ELFMAG, SELFMAG)) {
    throw std::invalid_argument("it is no ELF file");
  }
  const auto identity = [&](int index) { return static_cast<unsigned char>(content[static_cast<std::size_t>(index)]); };
  if (identity(EI_CLASS) != kNativeClass) {
    throw std::invalid_argument(fmt::format("it is made for {} bits, not for {}",
                                            identity(EI_CLASS) == ELFCLASS32 ? "32" : "64", sizeof(void *) * 8));
  }
  if (identity(EI_DATA) != kNativeOrder) throw std::invalid_argument("it is made for the other byte order");
  const auto header = read_at<ElfW(Ehdr)>(content, 0);
  if (header.e_machine != native_machine()) {
    throw std::invalid_argument(fmt::format("it is made for another machine (ELF machine {})", header.e_machine));
  }
  if (header.e_type != ET_DYN && (kind == ObjectKind::library || header.e_type != ET_EXEC))
    throw std::invalid_argument("it is no shared object");

  const Segments segments = read_segments(content, header);
  std::uint64_t names_address = 0, names_bytes = 0;
  std::vector<std::uint64_t> needed;
  std::uint64_t soname = UINT64_MAX, rpath = UINT64_MAX;
  bool has_runpath = false;  // then the loader ignores DT_RPATH
  for (std::uint64_t i = 0; i < segments.dynamic.p_filesz / sizeof(ElfW(Dyn)); ++i) {
    if (segments.dynamic.p_offset > content.size())
      throw std::invalid_argument("its dynamic section lies outside of it");
    const auto entry = read_at<ElfW(Dyn)>(content, segments.dynamic.p_offset + i * sizeof(ElfW(Dyn)));
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) names_address = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) names_bytes = entry.d_un.d_val;
    if (entry.d_tag == DT_SONAME) soname = entry.d_un.d_val;
    if (entry.d_tag == DT_RPATH) rpath = entry.d_un.d_val;
    if (entry.d_tag == DT_RUNPATH) has_runpath = true;
    if (entry.d_tag == DT_NEEDED) needed.push_back(entry.d_un.d_val);
  }
  std::string_view names = bytes_at(content, segments, names_address);
  names = names.substr(0, std::min<std::uint64_t>(names.size(), names_bytes));
  const auto name_at = [&](std::uint64_t offset) {
    const std::size_t end = names.find('\0', offset);  // npos for an offset beyond the end
    if (end == std::string_view::npos) throw std::invalid_argument("a name in it lies outside of its table");
    return names.substr(offset, end - offset);
  };

  SharedObject object;
  if (soname != UINT64_MAX) object.soname = name_at(soname);
  if (rpath != UINT64_MAX && !has_runpath) object.rpath = name_at(rpath);
  for (const std::uint64_t offset : needed) {
    const std::string_view name = name_at(offset);
    object.needed.push_back({std::string(name), static_cast<std::size_t>(name.data() - content.data())});
  }
  return object;
}

}  // namespace tandem::cli
