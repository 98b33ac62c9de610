// SPDX-License-Identifier: Apache-2.0
// A set as its packet files describe it.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "par2/packets.hpp"
#include "par2/ranges.hpp"

namespace tandem::par2 {

struct File : Description {
  std::vector<SliceSum> sums;  // empty: their packet is lost, or the file has no slices
  std::uint64_t first_slice = 0, slice_count = 0;
  bool is_recoverable = true;
  bool is_folder = false;                   // an empty one, as MultiPar keeps them
  int name_error = 0;                       // errno: its name cannot be used, so nothing is read or written under it
  std::optional<std::int64_t> modified_ns;  // when sync made the set

  std::uint64_t bytes_of_slice(std::uint64_t slice, std::uint64_t slice_bytes) const {
    return std::min(slice_bytes, bytes - slice * slice_bytes);
  }
  // Whether the only slice of the file is mostly zeros, as a header may ask for. Then the file's own MD5 is checked.
  bool is_mostly_zeros(std::uint64_t slice_bytes) const { return sums.size() == 1 && slice_bytes / 16 > bytes + 4096; }
  const Digest &md5_of_slice(std::uint64_t slice, std::uint64_t slice_bytes) const {
    return sums.empty() || is_mostly_zeros(slice_bytes) ? md5 : sums[slice].md5;
  }
  std::uint64_t zeros_of_slice(std::uint64_t slice, std::uint64_t slice_bytes) const {
    return is_mostly_zeros(slice_bytes) ? 0 : slice_bytes - bytes_of_slice(slice, slice_bytes);
  }
};

struct RecoverySlice {
  std::uint32_t exponent, packet_file;
  std::uint64_t offset;  // of the data
};

// A packet that is no recovery slice, and is part of what the set says.
struct CriticalPacket {
  Kind kind;
  Bytes body;
  std::vector<bool> packet_files;  // that have it; the last ones may be left out
  std::size_t file = SIZE_MAX;     // of the set, that it describes

  bool is_in(std::size_t packet_file) const { return packet_file < packet_files.size() && packet_files[packet_file]; }
};

struct PacketFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::uint64_t used_bytes = 0;                        // in intact packets of any set
  std::uint32_t packet_count = 0, recovery_count = 0;  // of this set
  bool has_others = false;                             // packets of other sets, or of unknown kinds
  std::optional<struct stat> status{};                 // when it was read
};

struct Set {
  Digest id;
  bool is_par1 = false;
  std::uint64_t slice_bytes = 0, slice_count = 0;
  double recovery_percent = 0;          // that sync was asked for; 0: another program made the set
  std::vector<File> files;              // recoverable ones first, in the order of their slices
  std::vector<RecoverySlice> recovery;  // one for each exponent, in order
  std::vector<PacketFile> packet_files;
  std::vector<CriticalPacket> critical;  // each once, in the order of create
};

bool is_packet_file_name(std::string_view path);  // "a.par2"
std::string_view base_of(std::string_view path);  // "a.vol03+4.par2", "a.par2" and "a.p01" -> "a"
bool is_par1_file_name(std::string_view path);    // "a.par", "a.p01", ..., "a.q99"; "a.r00" is an archive

// So many, counted from the first exponent to the last one, can one codec have.
std::uint64_t exponent_window(const Set &set);
// Recovery slices for `lost` slices. Those with exponents that follow each other are solved by a formula. Else as
// many as one codec can have; perhaps not enough.
std::span<const RecoverySlice> usable_recovery(std::span<const RecoverySlice> all, std::uint64_t window,
                                               std::size_t lost);

// The packet files of the set that `path` belongs to: path itself, "base.par2" and "base.*.par2" beside it, and those
// of `extra`, by name or because they begin with a packet. For the name of a PAR1 file: those with such names. path may
// lack ".par2" or ".par". by_content: also files beside it that begin with a packet of the same set. Each file once,
// however it is spelled. unreadable_out: gets files that could not be read at their beginnings, and errno.
std::vector<std::string> packet_files_of(const std::string &path, const std::vector<std::string> &extra = {},
                                         bool by_content = false, std::map<std::string, int> *unreadable_out = nullptr);

// Gives the file this name, without "." and empty parts; with a '/' at its end an empty file is a folder. Returns errno
// if the name cannot be used: it may lie outside of the set's folder, is too long, or is one of `names`; else adds it.
struct FileNames {
  std::set<std::string> files, folders;
};
int set_name(File &file, std::string_view name, FileNames &names);
// Names that are also those of other ones' folders, as "a" beside "a/b".
std::set<std::string> files_and_folders(const std::set<std::string> &names);

// Reads packets of the set that the first file has. Damaged packets and packets of other sets are skipped. Throws if a
// file exists and cannot be opened. checks_recovery: reads the data of recovery packets; else they count as intact.
Set read_set(const std::vector<std::string> &paths, base::Crew &crew, base::Meter &meter, bool checks_recovery = true);
// The same for files of PAR 1.0: volumes are always read, and no file has checksums of slices.
Set read_par1_set(const std::vector<std::string> &paths, base::Crew &crew, base::Meter &meter);

}  // namespace tandem::par2
