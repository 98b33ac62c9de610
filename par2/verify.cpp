// SPDX-License-Identifier: Apache-2.0
#include "par2/verify.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/folder.hpp"
#include "par2/files.hpp"

namespace tandem::par2 {
namespace {

class Verification {
 public:
  Verification(Report &report, base::Crew &crew, base::Meter &meter)
      : report_(report), set_(report.set), crew_(crew), meter_(meter), search_(set_), paths_(report.paths) {
    report_.files.resize(set_.files.size());
    report_.places.resize(search_.contents().size());
    for (std::uint64_t i = 0; i < set_.slice_count; ++i) report_.contents.push_back(search_.content_of(i));
    for (const File &file : set_.files) report_.paths.push_back(joined(report_.folder, file.name));
    for (std::size_t i = 0; i < set_.files.size(); ++i)  // PAR1: an empty file has a slice
      if (set_.files[i].bytes == 0 && set_.files[i].slice_count != 0)
        set_place(search_.content_of(set_.files[i].first_slice), {&paths_[i], 0, 0});
  }

  // Slices at their own places, and whole files without checksums of slices.
  void check_places() {
    std::vector<Candidate> all;
    for (std::size_t i = 0; i < set_.files.size(); ++i) {
      if (set_.files[i].name_error != 0) {
        set_unreadable(i, set_.files[i].name_error);
        continue;
      }
      if (set_.files[i].is_folder) {
        struct stat folder;
        if (lstat(paths_[i].c_str(), &folder) != 0 && !is_absent(errno))
          set_unreadable(i, errno);
        else if (std::filesystem::is_directory(paths_[i]))
          report_.files[i].state = FileState::complete;
        continue;
      }
      const auto status = status_of(paths_[i]);
      const int error = status && open_regular(paths_[i]) ? 0 : errno;
      if (status ? is_unreadable(error) : !is_absent(error)) set_unreadable(i, error);
      if (error != 0) unopened_.insert(i);
      if (!status || is_known(i)) continue;
      identities_.insert(status->identity);
      report_.looks[paths_[i]] = status->all;
      report_.files[i].bytes = status->bytes;
      report_.files[i].state = FileState::damaged;
      if (error == 0) all.push_back({i, &paths_[i], status->bytes});
    }
    check(all);
  }

  // Files that have the whole content of another one.
  void find_renamed() {
    report_.others = report_.extra;
    add_neighbours();
    std::vector<Source> sources;
    for (const auto *list : {&report_.others, &report_.neighbours}) {
      for (const std::string &path : *list) {
        const auto status = status_of(path);
        if ((!status || !open_regular(path)) && !is_absent(errno) && list == &report_.others)
          report_.unreadable_others[path] = errno;
        if (!status || !identities_.insert(status->identity).second || report_.unreadable_others.contains(path))
          continue;
        (list == &report_.others ? others_ : sources).push_back({&path, status->bytes});
        report_.looks[path] = status->all;
      }
    }
    sources.insert(sources.begin(), others_.begin(), others_.end());
    using Key = std::pair<std::uint64_t, Digest>;  // bytes of a file, MD5 of it or of a part
    std::set<std::uint64_t> sizes;
    std::map<Key, std::vector<std::size_t>> beginnings[2];  // of files that are checked whole, and by slices
    std::map<Key, std::vector<std::size_t>> wanted;
    for (std::size_t i = 0; i < set_.files.size(); ++i) {
      const File &file = set_.files[i];
      if (is_known(i) || file.bytes == 0) continue;
      sizes.insert(file.bytes);
      const bool by_slices = !file.sums.empty() && !file.is_mostly_zeros(set_.slice_bytes);
      beginnings[by_slices][{file.bytes, file.md5_of_beginning}].push_back(i);
      Md5 all;
      for (const SliceSum &sum : file.sums) all.update(sum.md5.data(), sum.md5.size());
      wanted[{file.bytes, by_slices ? all.finish() : file.md5}].push_back(i);
    }
    for (std::size_t i = 0; i < set_.files.size(); ++i)
      if (report_.files[i].state == FileState::damaged) sources.push_back({&paths_[i], report_.files[i].bytes, i});
    std::erase_if(sources, [&](const Source &source) { return !sizes.contains(source.bytes); });
    std::vector<Range> ranges;
    for (const Source &source : sources)
      ranges.push_back({source.path, 0, std::min<std::uint64_t>(source.bytes, kBeginningBytes)});
    sum_ranges(ranges, false, crew_, {});
    // A source is hashed once, however many files begin as it does.
    struct Hashed {
      const Source *source;
      bool by_slices;
      std::size_t first, count;  // of `ranges`
    };
    std::vector<Hashed> hashed;
    const std::vector<Range> read = std::exchange(ranges, {});
    for (std::size_t i = 0; i < read.size(); ++i) {
      const std::uint64_t bytes = sources[i].bytes;
      for (const bool by_slices : {false, true}) {
        const auto files = beginnings[by_slices].find({bytes, read[i].sum.md5});
        if (read[i].error != 0 || files == beginnings[by_slices].end()) continue;
        // That it is not right under its own name is known.
        if (files->second.size() == 1 && files->second[0] == sources[i].file) continue;
        const std::size_t first = ranges.size();
        const std::uint64_t each = by_slices ? set_.slice_bytes : bytes;
        for (std::uint64_t at = 0; at < bytes; at += ranges.back().bytes) {
          const std::uint64_t count = std::min(each, bytes - at);
          ranges.push_back({sources[i].path, at, count, each - count});
        }
        hashed.push_back({&sources[i], by_slices, first, ranges.size() - first});
        meter_.add_total(bytes);
      }
    }
    sum_ranges(ranges, false, crew_, meter_.counter());
    for (const auto &[source, by_slices, first, count] : hashed) {
      Md5 all;
      bool is_read = true;
      for (const Range &range : std::span(ranges).subspan(first, count)) {
        all.update(range.sum.md5.data(), range.sum.md5.size());
        is_read = is_read && range.error == 0;
      }
      const auto files = wanted.find({source->bytes, by_slices ? all.finish() : ranges[first].sum.md5});
      if (!is_read || files == wanted.end()) continue;
      known_.insert(source->path);
      for (const std::size_t file : std::exchange(files->second, {})) {
        report_.files[file].state = FileState::renamed;
        report_.files[file].found_as = *source->path;
        for (std::uint64_t slice = 0; slice < set_.files[file].slice_count; ++slice)
          set_place(search_.content_of(set_.files[file].first_slice + slice),
                    {source->path, slice * set_.slice_bytes, set_.files[file].bytes_of_slice(slice, set_.slice_bytes)});
      }
    }
    std::erase_if(others_, [&](const Source &source) { return known_.contains(source.path); });
  }

  // Searches the others, and each file of the set that is not right under its own name, for slices at any offset. Files
  // that are the whole content of another one are known.
  void find_moved() {
    std::vector<Region> regions;  // others first: damaged files from which nothing is needed can be repaired in place
    for (const Source &source : others_)
      if (source.bytes != 0) regions.push_back({source.path, 0, source.bytes, true});
    for (std::size_t i = 0; i < set_.files.size(); ++i)
      if (!is_known(i) && !known_.contains(&paths_[i]) && !unopened_.contains(i)) add_gaps(i, regions);
    struct Task {
      const Region *region;
      std::uint64_t first, last;
    };
    std::vector<Task> tasks;
    constexpr std::uint64_t kLeastTask = 8u << 20;
    const std::uint64_t task_bytes = std::max(kLeastTask, 4 * set_.slice_bytes);
    for (const Region &region : regions) {
      meter_.add_total(region.end - region.begin);
      for (std::uint64_t at = region.begin; at < region.end; at += std::min(task_bytes, region.end - at))
        tasks.push_back({&region, at, at + std::min(task_bytes, region.end - at)});
    }
    std::vector<std::vector<Match>> matches(tasks.size());
    crew_.run(tasks.size(), [&](std::size_t i) {
      matches[i] = search_.scan(*tasks[i].region, tasks[i].first, tasks[i].last, meter_.counter());
    });
    for (std::size_t i = 0; i < tasks.size(); ++i)
      for (const Match &match : matches[i]) {
        const std::string *path = tasks[i].region->path;
        if (const auto &place = report_.places[match.content]; place && *place->path != *path)
          ++report_.repeated[*path];
        set_place(match.content, {path, match.offset, match.bytes});
      }
  }

  // Without a checksum a slice cannot be found.
  bool misses_slices() const {
    for (std::size_t i = 0; i < report_.places.size(); ++i)
      if (!report_.places[i] && search_.contents()[i].sum) return true;
    return false;
  }
  bool misses_files() const {
    return std::ranges::any_of(report_.files, [](const auto &file) { return file.state != FileState::complete; });
  }

  void count() {
    for (std::size_t i = 0; i < set_.files.size(); ++i) {
      const File &file = set_.files[i];
      for (std::uint64_t slice = 0; slice < file.slice_count; ++slice)
        report_.files[i].found += report_.places[search_.content_of(file.first_slice + slice)].has_value();
      report_.found_slices += report_.files[i].found;
    }
  }

 private:
  struct Source {
    const std::string *path;
    std::uint64_t bytes;
    std::size_t file = SIZE_MAX;  // of the set, if it is one
  };
  struct Candidate {
    std::size_t file;         // of the set
    const std::string *path;  // its own
    std::uint64_t bytes;      // that it has
  };

  // Or it cannot be known.
  bool is_known(std::size_t file) const {
    return report_.files[file].state == FileState::complete || report_.files[file].state == FileState::unreadable;
  }
  void set_unreadable(std::size_t file, int error) {
    report_.files[file].state = FileState::unreadable;
    report_.files[file].error = error;
  }

  void set_place(std::uint32_t content, const Place &place) {
    const std::uint64_t after = place.offset % set_.slice_bytes;
    const bool is_far = std::min(after, set_.slice_bytes - after) > report_.search_distance;
    if (!report_.places[content] && !(is_far && report_.search_distance != 0)) report_.places[content] = place;
  }

  // Files beside those of the set that may have their content. A repair that is killed may leave "NAME.1" of a file
  // NAME that it replaces. NAME may be right already: its old content may be that of another file. And a missing file
  // may have another name by now, as one that differs in case or in Unicode's normalization.
  void add_neighbours() {
    std::map<std::string, std::set<std::string>> names;    // by folder
    std::map<std::string, std::set<std::uint64_t>> sizes;  // of missing files, by folder
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      if (set_.files[i].name_error != 0) continue;
      const std::string folder = base::folder_of(paths_[i]);
      names[folder].insert(replaced_name(base::name_of(paths_[i])));
      if (report_.files[i].state == FileState::missing && set_.files[i].bytes != 0)
        sizes[folder].insert(set_.files[i].bytes);
    }
    std::set<std::string> found;
    for (const auto &[folder, wanted] : names) {
      std::error_code error;
      for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
        const std::string name = each->path().filename().string();
        const std::size_t dot = name.rfind('.');
        if (dot != std::string::npos && dot + 1 != name.size() &&
            name.find_first_not_of("0123456789", dot + 1) == std::string::npos && wanted.contains(name.substr(0, dot)))
          found.insert(each->path().string());
        else if (const auto missing = sizes.find(folder); missing != sizes.end() && each->is_regular_file(error) &&
                                                          missing->second.contains(each->file_size(error)))
          report_.neighbours.push_back(each->path().string());
        error.clear();
      }
    }
    report_.others.insert(report_.others.end(), found.begin(), found.end());
  }

  // Slices that are right are found. Files that have nothing else are complete.
  void check(const std::vector<Candidate> &candidates) {
    std::vector<Range> ranges;
    struct Part {
      std::size_t candidate;
      std::uint64_t slice;
    };
    std::vector<Part> parts;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const File &file = set_.files[candidates[i].file];
      if (file.sums.empty()) {  // the MD5 of the file has to do
        if (file.bytes != candidates[i].bytes || file.bytes == 0) continue;
        ranges.push_back({candidates[i].path, 0, file.bytes});
        parts.push_back({i, 0});
        meter_.add_total(file.bytes);
        continue;
      }
      for (std::uint64_t slice = 0; slice < file.sums.size(); ++slice) {
        const std::uint64_t offset = slice * set_.slice_bytes, bytes = file.bytes_of_slice(slice, set_.slice_bytes);
        if (offset + bytes > candidates[i].bytes) break;
        ranges.push_back({candidates[i].path, offset, bytes, file.zeros_of_slice(slice, set_.slice_bytes)});
        parts.push_back({i, slice});
        meter_.add_total(bytes);
      }
    }
    sum_ranges(ranges, false, crew_, meter_.counter());
    std::vector<std::uint64_t> right(candidates.size());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const auto [candidate, slice] = parts[i];
      const File &file = set_.files[candidates[candidate].file];
      if (is_unreadable(ranges[i].error)) set_unreadable(candidates[candidate].file, ranges[i].error);
      if (ranges[i].error != 0 || ranges[i].sum.md5 != file.md5_of_slice(slice, set_.slice_bytes)) continue;
      report_.files[candidates[candidate].file].in_place.push_back(slice);
      const std::uint64_t end = file.sums.empty() ? file.slice_count : std::min(slice + 1, file.slice_count);
      for (std::uint64_t each = slice; each < end; ++each)
        set_place(search_.content_of(file.first_slice + each),
                  {candidates[candidate].path, each * set_.slice_bytes, file.bytes_of_slice(each, set_.slice_bytes)});
      right[candidate] += file.sums.empty() ? slices_of(file.bytes, set_.slice_bytes) : 1;
    }
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const File &file = set_.files[candidates[i].file];
      if (candidates[i].bytes == file.bytes && right[i] == slices_of(file.bytes, set_.slice_bytes))
        report_.files[candidates[i].file].state = FileState::complete;
    }
  }

  // What lies between the slices of a file that are right.
  void add_gaps(std::size_t index, std::vector<Region> &regions) {
    const std::uint64_t bytes = report_.files[index].bytes;
    std::uint64_t begin = 0;
    const auto add = [&](std::uint64_t end, bool ends_file) {
      if (end > begin) regions.push_back({&paths_[index], begin, end, ends_file});
    };
    for (const std::uint64_t slice : report_.files[index].in_place) {
      add(slice * set_.slice_bytes, false);
      begin = slice * set_.slice_bytes + set_.files[index].bytes_of_slice(slice, set_.slice_bytes);
    }
    add(bytes, true);
  }

  Report &report_;
  const Set &set_;
  base::Crew &crew_;
  base::Meter &meter_;
  const Search search_;
  const std::vector<std::string> &paths_;         // of the set's files
  std::set<std::pair<dev_t, ino_t>> identities_;  // of files that were looked at
  std::vector<Source> others_;
  std::set<const std::string *> known_;  // paths of files that have the whole content of one of the set
  std::set<std::size_t> unopened_;       // files of the set
};

}  // namespace

// At most 255 bytes with the number.
std::string replaced_name(const std::string &name) { return name.substr(0, 240); }

std::vector<Entry> temporaries_of(const Report &report) {
  std::map<std::string, std::set<std::string>> beginnings;  // of names, by folder
  std::set<std::pair<dev_t, ino_t>> own;                    // files of the set, and what was found
  for (std::size_t i = 0; i < report.set.files.size(); ++i) {
    const File &file = report.set.files[i];
    if (const auto look = report.looks.find(report.paths[i]); look != report.looks.end())
      own.emplace(look->second.st_dev, look->second.st_ino);
    if (file.name_error == 0 && !file.is_folder)
      beginnings[base::folder_of(file.name)].insert(name_of_temporary(temporary_name(base::name_of(file.name))));
  }
  const std::string &packets = report.set.packet_files.front().path;
  std::vector<Entry> found;
  bool is_held = false;
  const auto add = [&](const std::shared_ptr<base::Folder> &folder, const std::set<std::string> &files) {
    for (const std::string &name : folder->names()) {
      const Entry entry{folder, name};
      const std::string beginning = name_of_temporary(name);
      const bool is_of_packets =
          is_packet_file_name(beginning) && base_of(beginning) == base_of(base::name_of(packets));
      if (!is_of_packets && (beginning.empty() || !files.contains(beginning))) continue;
      const auto status = entry.status();
      if (!status || !S_ISREG(status->st_mode) || !own.emplace(status->st_dev, status->st_ino).second) continue;
      is_held = is_held || base::lock_file(base::open_to_lock(*folder, name)) == base::Lock::held_by_another;
      found.push_back(entry);
    }
  };
  beginnings["."];
  beginnings[""];  // the folder of the packet files
  for (const auto &[name, files] : beginnings) {
    try {
      const auto folder = name.empty() ? std::make_shared<base::Folder>(base::folder_of(packets))
                                       : Tree(report.folder).find(name + "/.").folder;
      if (folder) add(folder, files);
    } catch (const Error &) {  // nothing can be removed there
    }
  }
  return is_held ? std::vector<Entry>() : found;
}

std::vector<std::string> paths_of(const std::vector<Entry> &entries) {
  std::vector<std::string> paths;
  for (const Entry &entry : entries) paths.push_back(entry.path());
  return paths;
}

Report verify(Set set, const std::string &folder, const std::vector<std::string> &extra, std::uint64_t search_distance,
              base::Crew &crew, base::Meter &meter, std::int32_t scope) {
  Report report;
  report.set = std::move(set);
  report.folder = folder;
  report.extra = extra;
  report.scope = scope;
  report.search_distance = search_distance;
  Verification verification(report, crew, meter);
  if (scope != TANDEM_PAR2_ALL) return report;
  verification.check_places();
  if (verification.misses_files()) verification.find_renamed();
  if (verification.misses_slices()) verification.find_moved();
  verification.count();
  return report;
}

}  // namespace tandem::par2
