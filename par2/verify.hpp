// SPDX-License-Identifier: Apache-2.0
// Which files of a set are right, and where their slices are.
#pragma once

#include <sys/stat.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "par2/files.hpp"
#include "par2/search.hpp"
#include "par2/set.hpp"
#include "par2/tree.hpp"
#include "tandem/par2.h"

namespace tandem::par2 {

enum class FileState { complete, renamed, damaged, missing, unreadable };  // the order of par2.h

struct FileReport {
  FileState state = FileState::missing;
  std::vector<std::uint64_t> in_place;  // slices at their places, in order
  std::uint64_t found = 0;              // slices, there or elsewhere
  std::uint64_t bytes = 0;              // that the file has now
  std::string found_as;                 // renamed: a file with its whole content
  bool is_repaired = false;
  int error = 0;  // unreadable: errno
};

// A packet file that is damaged or gone.
struct LostPackets {
  std::string path;
  Volume volume;                           // that it must have
  std::optional<std::size_t> packet_file;  // the damaged one, of the set
};

struct Report {
  Set set;
  std::vector<FileReport> files;
  std::uint64_t found_slices = 0;
  std::string folder;                             // of the set's files
  std::vector<std::string> extra;                 // as given
  std::uint64_t search_distance = 0;              // as given
  std::vector<std::string> paths, others;         // of the set's files; other files that were searched
  std::vector<std::string> neighbours;            // of missing files, of the same size
  std::map<std::string, struct stat> looks;       // at files, before they were read
  std::map<std::string, int> unreadable_others;   // errno; also files beside the packet files
  std::vector<std::uint32_t> contents;            // of slices
  std::vector<std::optional<Place>> places;       // of contents
  std::map<std::string, std::uint32_t> repeated;  // by path: slices that another file has too
  std::vector<std::string> temporaries;           // paths; see temporaries_of
  std::vector<LostPackets> lost_packets;          // the one without recovery slices first
  std::uint32_t remade_packets = 0;               // files
  std::int32_t scope = TANDEM_PAR2_ALL;           // enum tandem_par2_scope_value
};

// An old file that makes room gets this name, ".", and a number.
std::string replaced_name(const std::string &name);

// Temporaries of the set's files and packet files, if their writers are dead. None if another process holds one of
// them: a writer may not have all of its own locked. A folder that cannot be listed has none.
std::vector<Entry> temporaries_of(const Report &report);
std::vector<std::string> paths_of(const std::vector<Entry> &entries);

// folder: of the set's files. extra: files that are searched if something is missing. search_distance: see par2.h.
// scope: other than TANDEM_PAR2_ALL, looks at no file.
Report verify(Set set, const std::string &folder, const std::vector<std::string> &extra, std::uint64_t search_distance,
              base::Crew &crew, base::Meter &meter, std::int32_t scope = TANDEM_PAR2_ALL);

}  // namespace tandem::par2
