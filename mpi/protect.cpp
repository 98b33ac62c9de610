// SPDX-License-Identifier: Apache-2.0
#include "mpi/calls.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/bytes.hpp"
#include "base/rounding.hpp"
#include "mpi/cells.hpp"
#include "mpi/groups.hpp"

namespace tandem::mpi {
namespace {

// The files of this rank, open, and their attributes at the beginning.
class OwnFiles {
 public:
  // Throws on this rank alone.
  explicit OwnFiles(const tandem_mpi_protect_options &options) {
    std::vector<DataFile> files;
    std::vector<Descriptor> descriptors;
    std::map<std::pair<dev_t, ino_t>, std::string> seen;
    std::uint64_t total = 0;
    for (const std::string_view given : base::read_strings(options.files, options.file_count, "files")) {
      const std::string path = std::filesystem::absolute(given).string();
      Descriptor descriptor = base::open_to_read(path);
      struct stat status;
      if (!descriptor) fail_io("open", path, errno);
      if (fstat(descriptor.get(), &status) != 0) fail_io("look at", path, errno);
      if (!S_ISREG(status.st_mode)) fail(TANDEM_ERROR_INVALID_ARGUMENT, path, " is no regular file");
      const auto bytes = static_cast<std::uint64_t>(status.st_size);
      constexpr std::uint64_t kMost = INT64_MAX / 2;  // offsets of segments stay in range
      if (bytes > kMost - total) fail(TANDEM_ERROR_TOO_LARGE, "the files have more than ", kMost, " bytes");
      total += bytes;
      const auto [first, is_new] = seen.try_emplace({status.st_dev, status.st_ino}, path);
      if (!is_new) fail(TANDEM_ERROR_INVALID_ARGUMENT, first->second, " and ", path, " are one file");
      files.push_back({path, bytes, status.st_mode & 0777u});
      paths_.push_back(path);
      statuses_.push_back(status);
      descriptors.push_back(std::move(descriptor));
    }
    row_ = FileRow(std::move(files));
    for (std::size_t i = 0; i < descriptors.size(); ++i) row_.set_descriptor(i, std::move(descriptors[i]));
  }

  // What identifies a file, the same for all ranks on the node.
  struct Identity {
    std::uint64_t device, number;
    auto operator<=>(const Identity &) const = default;
  };
  std::vector<Identity> identities() const {
    std::vector<Identity> all;
    for (const struct stat &status : statuses_) all.push_back({status.st_dev, status.st_ino});
    return all;
  }
  // Throws if another rank of the node has one of them too.
  void check_shared(const std::vector<std::vector<Identity>> &identities_of, std::size_t own) const {
    std::set<Identity> others;
    for (std::size_t i = 0; i < identities_of.size(); ++i)
      if (i != own) others.insert(identities_of[i].begin(), identities_of[i].end());
    for (std::size_t i = 0; i < paths_.size(); ++i)
      if (others.contains(identities_of[own][i]))
        fail(TANDEM_ERROR_INVALID_ARGUMENT, paths_[i], " is a file of another rank too");
  }

  FileRow take() { return std::move(row_); }
  const FileRow &row() const { return row_; }

  void check_same() const {
    for (std::size_t i = 0; i < statuses_.size(); ++i) {
      const std::string &path = paths_[i];
      const struct stat &before = statuses_[i];
      struct stat now;
      if (stat(path.c_str(), &now) != 0) fail_io("look at", path, errno);
      if (!base::unchanged(before, now))
        fail(TANDEM_ERROR_IO, path, " changed while it was read: it had ", before.st_size, " bytes and has ",
             now.st_size);
    }
  }

 private:
  FileRow row_;
  std::vector<std::string> paths_;
  std::vector<struct stat> statuses_;
};

// Without the files the parity is of no use.
void sync_data(const FileRow &row) {
  std::set<std::string> folders;
  for (std::size_t i = 0; i < row.files().size(); ++i) {
    if (fsync(row.descriptor(i)) != 0) fail_io("sync", row.files()[i].path, errno);
    folders.insert(folder_of(row.files()[i].path));
  }
  for (const std::string &folder : folders) Folder(folder).sync();
}

// Removes unfinished parity of older jobs, and finds the highest sequence of this name here.
std::uint64_t clean_up(const std::string &folder, const std::string &name, std::uint32_t rank) {
  std::uint64_t sequence = 0;
  for (const FoundFile &found : find_protections(folder, name)) {
    if (found.pending) {
      if (found.rank == rank) unlink(found.path.c_str());
      continue;
    }
    try {
      sequence = std::max(sequence, read_protection(found.path).sequence);
    } catch (const Error &error) {
      // A damaged file does not count. One of a newer version might be replaced by an older one.
      if (error.status() == TANDEM_ERROR_UNSUPPORTED) throw;
    }
  }
  return sequence;
}

}  // namespace

tandem_mpi_protect_result protect(const World &world, tandem_context *context,
                                  const tandem_mpi_protect_options *given) {
  tandem_mpi_protect_options options = {};
  Layout layout;
  world.together([&] {
    options = read_needed_options(given, "tandem_mpi_protect_options");
    if (options.k == 0) fail(TANDEM_ERROR_INVALID_ARGUMENT, "k is 0");
    if (options.m == 0) fail(TANDEM_ERROR_INVALID_ARGUMENT, "m is 0: that protects nothing");
    const std::uint64_t members = std::uint64_t{options.k} + options.m,
                        ranks = static_cast<std::uint64_t>(world.size());
    if (members > ranks)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "a group of k + m has ", members, " ranks, and the communicator has ", ranks);
    if (ranks % members != 0)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "the communicator has ", ranks,
           " ranks, which is no multiple of k + m = ", members);
    layout = {options.k, options.m};
    check_matrix(layout, options.matrix);
    check_protection_name(options.name);
    if (options.folder == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, "folder is NULL");
    options.piece_bytes = checked_piece_bytes(options.piece_bytes);
  });
  world.require_equal({{"k", std::to_string(options.k)},
                       {"m", std::to_string(options.m)},
                       {"matrix", std::to_string(options.matrix)},
                       {"name", options.name},
                       {"no_sync", std::to_string(options.no_sync != 0)},
                       {"piece_bytes", std::to_string(options.piece_bytes)}});
  const bool no_sync = options.no_sync != 0;
  const std::string folder = options.folder, name = options.name;
  const auto rank = static_cast<std::uint32_t>(world.rank());
  const World node = world.node();
  const Groups groups = make_groups(world, node, layout.size());

  Protection ours;
  std::optional<OwnFiles> files;
  std::uint64_t sequence = 0;
  world.together([&] {
    files.emplace(options);
    make_folders(folder, no_sync);
    sequence = clean_up(folder, name, rank);
    if (world.leads()) base::random_bytes(ours.set_id);
  });
  world.broadcast(ours.set_id.data(), ours.set_id.size());
  ours.sequence = world.most(sequence) + 1;
  std::vector<std::vector<OwnFiles::Identity>> identities;
  const tandem_status compared = guarded([&] { identities = node.all_gather(files->identities()); });
  world.together([&] {
    check(compared);
    files->check_shared(identities, static_cast<std::size_t>(node.rank()));
  });
  ours.layout = layout;
  ours.matrix = options.matrix;
  ours.group_count = groups.count;
  ours.group = groups.group;
  ours.member = groups.member;

  const World group = world.split(static_cast<int>(groups.group), static_cast<int>(groups.member));
  Member mine{rank, files->row().files(), std::vector<Hash>(layout.size(), Hash{})};
  // For one group: a failure here must not leave the other groups waiting.
  std::vector<std::string> members;
  const auto gather_members = [&] { members = group.all_gather(mine.serialized()); };
  tandem_status gathered = guarded(gather_members);
  std::uint64_t longest = 0;
  std::optional<Cells> cells;
  PendingFile pending;
  world.together([&] {
    check(gathered);
    for (const std::string &member : members) {
      ours.members.push_back(parse_member(member));
      longest = std::max(longest, ours.members.back().data_bytes());
    }
    ours.segment_bytes = std::max<std::uint64_t>(base::divide_up(longest, layout.k), 1);
    cells.emplace(layout, groups.member, ours.segment_bytes, ours.serialized().size());
    pending = PendingFile(std::make_shared<Folder>(folder), pending_protection_name(name, rank, ours.set_id), 0600);
    cells->data = files->take();
    cells->parity = pending.descriptor();
    cells->parity_path = pending.path();
  });

  const Exchange exchange =
      exchange_of_group(layout, options.matrix, options.piece_bytes, ours.segment_bytes, groups.member, &*cells);
  std::uint64_t sent_bytes = 0;
  const tandem_status exchanged = guarded([&] { sent_bytes = run(group, context, exchange); });
  world.together_after(exchanged);
  world.together([&] {
    files->check_same();
    mine.hashes = cells->hashes();
  });
  gathered = guarded(gather_members);
  std::string header;
  world.together([&] {
    check(gathered);
    for (std::size_t i = 0; i < members.size(); ++i) ours.members[i] = parse_member(members[i]);
    header = ours.serialized();
    write_at(pending.descriptor(), pending.path(), std::as_bytes(std::span(header)), 0);
    pending.finish(no_sync);
    if (!no_sync) sync_data(cells->data);
  });
  // Every rank's parity is complete. Now all are renamed, and then the older parity is removed.
  const std::string final_name = protection_name(name, rank, ours.set_id);
  try {
    world.together([&] { pending.rename(final_name, false, no_sync); });
  } catch (const Error &) {
    unlink((folder + "/" + final_name).c_str());
    throw;
  }
  world.together([&] {
    for (const FoundFile &found : find_protections(folder, name))
      if (!found.pending && found.set_id != ours.set_id) unlink(found.path.c_str());
  });

  auto result = sized<tandem_mpi_protect_result>();
  std::memcpy(result.set_id, ours.set_id.data(), sizeof result.set_id);
  result.sequence = ours.sequence;
  result.group_count = groups.count;
  result.most_on_a_node = groups.most_on_a_node;
  result.group = groups.group;
  result.member = groups.member;
  result.segment_bytes = ours.segment_bytes;
  result.data_bytes = mine.data_bytes();
  result.sent_bytes = sent_bytes;
  result.written_bytes = cells->written_bytes() + header.size();
  return result;
}

}  // namespace tandem::mpi
