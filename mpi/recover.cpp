// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "base/bytes.hpp"
#include "base/descriptor.hpp"
#include "mpi/calls.hpp"
#include "mpi/cells.hpp"

namespace tandem::mpi {
namespace {

// A generation of the protected data, from the remaining headers, the same on all ranks.
struct Generation {
  // The common part of its headers. Headers with the same set id but another common part belong to another generation.
  using Key = std::tuple<SetId, std::uint64_t, std::uint32_t, std::uint32_t, std::int32_t, std::uint32_t>;
  static Key key_of(const ProtectionPlace &header) {
    return {header.set_id, header.sequence, header.layout.k, header.layout.m, header.matrix, header.group_count};
  }
  ProtectionPlace any;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<int>> seen_by;  // group and member: ranks
};

bool is_possible(const Protection &header) {
  try {
    check_matrix(header.layout, header.matrix);
    return true;
  } catch (const Error &error) {
    if (error.status() == TANDEM_ERROR_OUT_OF_MEMORY) throw;
    return false;
  }
}

// The files that this rank sees. Damaged headers count as missing.
std::vector<ProtectionPlace> look(const std::string &folder, const std::string &name,
                                  std::map<Generation::Key, std::vector<Protection>> *found) {
  std::vector<ProtectionPlace> list;
  for (const FoundFile &file : find_protections(folder, name)) {
    if (file.pending) continue;
    try {
      Protection header = read_protection(file.path);
      const Member &member = header.members[header.member];
      if (header.set_id != file.set_id || member.rank != file.rank || !is_possible(header)) continue;
      list.push_back(header);
      (*found)[Generation::key_of(header)].push_back(std::move(header));
    } catch (const Error &error) {
      if (error.status() != TANDEM_ERROR_DAMAGED && error.status() != TANDEM_ERROR_IO) throw;
    }
  }
  return list;
}

// Newest first.
std::vector<Generation> generations_of(const std::vector<std::vector<ProtectionPlace>> &all) {
  std::map<Generation::Key, Generation> by_key;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (const ProtectionPlace &seen : all[rank]) {
      Generation &generation = by_key.try_emplace(Generation::key_of(seen), Generation{seen, {}}).first->second;
      generation.seen_by[{seen.group, seen.member}].push_back(static_cast<int>(rank));
    }
  std::vector<Generation> list;
  for (auto &[key, generation] : by_key) list.push_back(std::move(generation));
  std::ranges::stable_sort(list,
                           [](const Generation &a, const Generation &b) { return a.any.sequence > b.any.sequence; });
  return list;
}

std::string group_name(std::uint32_t group, std::uint32_t count) { return text("group ", group, " of ", count); }

// A member that this rank stands for, and its remaining files.
struct Resident {
  std::uint32_t group, member;
  bool has_parity = false, has_data = false;
  std::unique_ptr<Cells> cells;
  Descriptor parity;  // remaining parity
  PendingFile new_parity;
  std::vector<PendingFile> new_files;
  std::vector<std::string> differing;  // existing files of another length, or that are not regular files
};

class Recovery {
 public:
  Recovery(const World &world, const tandem_mpi_recover_options &options, const Generation &generation,
           const std::vector<Protection> *own)
      : world_(world), options_(options), generation_(generation), layout_(generation.any.layout) {
    gather_headers(own);
    choose_hosts();
  }

  // Reads the remaining cells. Throws NOT_RECOVERABLE on all ranks.
  void inspect() {
    world_.together([&] {
      for (Resident &resident : residents_) inspect(resident);
    });
    std::vector<Found> mine;
    for (const Resident &each : residents_) mine.push_back({each.group, each.member, {each.has_data, each.has_parity}});
    good_.assign(headers_.size(), std::vector<Good>(layout_.size()));
    for (const std::vector<Found> &theirs : world_.all_gather(mine))
      for (const Found &each : theirs) good_[each.group][each.member] = each.good;
    world_.together([&] {
      for (std::uint32_t group = 0; group < headers_.size(); ++group) check_enough(group);
    });
  }

  tandem_mpi_recover_result rebuild(tandem_context *context) {
    world_.together([&] {
      for (Resident &resident : residents_) prepare(resident);
    });
    Exchange exchange{layout_, generation_.any.matrix, options_.piece_bytes, {}, hosts_, {}, {}};
    for (const Protection &header : headers_) exchange.segment_bytes.push_back(header.segment_bytes);
    for (const Resident &resident : residents_) exchange.held[{resident.group, resident.member}] = resident.cells.get();
    std::uint64_t sent_bytes = 0;
    for (std::uint32_t stripe = 0; stripe < layout_.size(); ++stripe) {  // one after the other: each needs memory
      exchange.tasks = tasks(stripe);
      if (!exchange.tasks.empty()) sent_bytes += run(world_, context, exchange);
    }
    world_.together([&] {
      for (Resident &resident : residents_) finish(resident);
    });
    world_.together([&] {
      for (Resident &resident : residents_) give_names(resident);
    });
    return result(sent_bytes);
  }

 private:
  struct Good {
    bool data = false, parity = false;
  };
  struct Found {
    std::uint32_t group, member;
    Good good;
  };

  bool no_sync() const { return options_.no_sync != 0; }
  const Member &member_of(const Resident &resident) const { return headers_[resident.group].members[resident.member]; }

  // Each group's list of files, from the lowest rank that has one.
  void gather_headers(const std::vector<Protection> *own) {
    std::map<std::uint32_t, int> tellers;
    for (const auto &[place, ranks] : generation_.seen_by) {
      const auto at = tellers.try_emplace(place.first, ranks.front()).first;
      at->second = std::min(at->second, ranks.front());
    }
    world_.together([&] {
      std::uint32_t group = 0;  // the first one that no rank describes; the described ones are in order
      for (const auto &[told, teller] : tellers) group += told == group ? 1 : 0;
      if (group != generation_.any.group_count)
        fail(TANDEM_ERROR_NOT_RECOVERABLE, group_name(group, generation_.any.group_count), ": no parity file of its ",
             layout_.size(), " ranks is left, ", layout_.k, " are needed");
      headers_.resize(generation_.any.group_count);
    });
    std::string mine;
    for (const auto &[group, teller] : tellers)
      if (teller == world_.rank() && own != nullptr)
        mine += std::ranges::find(*own, group, &Protection::group)->serialized();
    for (const std::string &theirs : world_.all_gather(mine))
      for (std::string_view left = theirs; !left.empty();) {
        Protection header = take_protection(left);
        headers_[header.group] = std::move(header);
      }
  }

  // A rank that sees a member's parity stands for that member: the rank of the same number, or else the one with the
  // fewest members. A member that no rank sees goes to the rank of its number, if that exists.
  void choose_hosts() {
    std::vector<std::size_t> load(static_cast<std::size_t>(world_.size()), 0);
    hosts_.assign(headers_.size(), std::vector<int>(layout_.size(), 0));
    for (std::uint32_t group = 0; group < headers_.size(); ++group)
      for (std::uint32_t member = 0; member < layout_.size(); ++member) {
        const std::uint32_t number = headers_[group].members[member].rank;
        const int own = static_cast<int>(number % static_cast<std::uint32_t>(world_.size()));
        const auto seen = generation_.seen_by.find({group, member});
        int host = own;
        if (seen != generation_.seen_by.end() && std::ranges::find(seen->second, own) == seen->second.end())
          host = *std::ranges::min_element(seen->second, [&](int a, int b) {
            return load[static_cast<std::size_t>(a)] < load[static_cast<std::size_t>(b)];
          });
        hosts_[group][member] = host;
        ++load[static_cast<std::size_t>(host)];
        if (host != world_.rank()) continue;
        residents_.emplace_back();
        residents_.back().group = group;
        residents_.back().member = member;
      }
  }

  std::string parity_path(const Resident &resident) const {
    return std::string(options_.folder) + "/" +
           protection_name(options_.name, member_of(resident).rank, generation_.any.set_id);
  }

  void inspect(Resident &resident) {
    Protection header = headers_[resident.group];
    header.member = resident.member;
    const Member &member = member_of(resident);
    resident.cells =
        std::make_unique<Cells>(layout_, resident.member, header.segment_bytes, header.serialized().size());
    Cells &cells = *resident.cells;
    cells.data = FileRow(member.files);
    cells.parity_path = parity_path(resident);
    resident.has_data = open_data(resident) && cells_are_intact(resident, false);
    const auto seen = generation_.seen_by.find({resident.group, resident.member});
    if (seen == generation_.seen_by.end() || std::ranges::find(seen->second, world_.rank()) == seen->second.end())
      return;
    resident.parity = Descriptor(open(cells.parity_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    cells.parity = resident.parity.get();
    resident.has_parity = resident.parity && cells_are_intact(resident, true);
  }

  bool open_data(Resident &resident) {
    FileRow &row = resident.cells->data;
    bool whole = true;
    for (std::size_t i = 0; i < row.files().size(); ++i) {
      const DataFile &file = row.files()[i];
      Descriptor descriptor = base::open_to_read(file.path);
      struct stat status;
      const bool same = descriptor && fstat(descriptor.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                        static_cast<std::uint64_t>(status.st_size) == file.bytes;
      if (!same) {
        whole = false;
        if (descriptor) resident.differing.push_back(file.path);
      }
      row.set_descriptor(i, std::move(descriptor));
    }
    return whole;
  }

  // Reads cells from beginning to end and compares their checksums.
  bool cells_are_intact(Resident &resident, bool parity) const {
    const std::uint64_t segment_bytes = headers_[resident.group].segment_bytes;
    std::vector<std::byte> buffer(
        static_cast<std::size_t>(std::min<std::uint64_t>(options_.piece_bytes, segment_bytes)));
    for (std::uint32_t stripe = 0; stripe < layout_.size(); ++stripe) {
      if (layout_.has_parity(resident.member, stripe) != parity) continue;
      try {
        for (std::uint64_t at = 0; at < segment_bytes; at += buffer.size())
          resident.cells->read(stripe, at,
                               std::span(buffer).first(static_cast<std::size_t>(
                                   std::min<std::uint64_t>(buffer.size(), segment_bytes - at))));
      } catch (const Error &error) {
        if (error.status() == TANDEM_ERROR_IO) return false;  // unreadable means lost
        throw;
      }
      if (resident.cells->hashes()[stripe] != member_of(resident).hashes[stripe]) return false;
    }
    return true;
  }

  void check_enough(std::uint32_t group) const {
    for (std::uint32_t stripe = 0; stripe < layout_.size(); ++stripe) {
      std::string lost;
      std::uint32_t count = 0;
      for (std::uint32_t member = 0; member < layout_.size(); ++member) {
        if (is_good(group, member, stripe)) continue;
        lost += text(count++ == 0 ? "" : ", ", headers_[group].members[member].rank);
      }
      if (count > layout_.m)
        fail(TANDEM_ERROR_NOT_RECOVERABLE, group_name(group, generation_.any.group_count), ": ", count, " of its ",
             layout_.size(), " ranks have lost what the others need (", count == 1 ? "rank" : "ranks", " ", lost,
             "), at most ", layout_.m, " may");
    }
  }

  bool is_good(std::uint32_t group, std::uint32_t member, std::uint32_t stripe) const {
    const Good &good = good_[group][member];
    return layout_.has_parity(member, stripe) ? good.parity : good.data;
  }

  // The tasks of this stripe, in all groups.
  std::vector<StripeTask> tasks(std::uint32_t stripe) const {
    std::vector<StripeTask> list;
    for (std::uint32_t group = 0; group < headers_.size(); ++group) {
      StripeTask task{group, stripe, 0, {}, {}};
      for (std::uint32_t member = 0; member < layout_.size(); ++member)
        if (!is_good(group, member, stripe)) task.outputs.push_back(member);
      if (task.outputs.empty()) continue;
      for (std::uint32_t member = 0; member < layout_.size() && task.inputs.size() < layout_.k; ++member)
        if (is_good(group, member, stripe)) task.inputs.push_back(member);
      task.root = hosts_[group][task.outputs[stripe % task.outputs.size()]];
      list.push_back(std::move(task));
    }
    return list;
  }

  // Temporaries for lost files, beside their final names.
  void prepare(Resident &resident) {
    const Member &member = member_of(resident);
    const std::string id = base::hexadecimal(generation_.any.set_id);
    if (!resident.has_data) {
      if (options_.force == 0 && !resident.differing.empty()) refuse(resident, resident.differing.front());
      resident.cells->data = FileRow(member.files);
      for (std::size_t i = 0; i < member.files.size(); ++i) {
        const DataFile &file = member.files[i];
        const std::string folder = folder_of(file.path),
                          name = text(".", id, ".", member.rank, ".", i, ".tandem-restore-tmp");
        make_folders(folder, no_sync());
        unlink((folder + "/" + name).c_str());  // of a recovery that died
        PendingFile pending(folders_[base::add_folder(folders_, folder)], name, file.mode);
        if (!base::set_length(pending.descriptor(), file.bytes)) fail_io("write", file.path, errno);
        resident.cells->data.set_descriptor(i, Descriptor(dup(pending.descriptor())));
        resident.new_files.push_back(std::move(pending));
      }
    }
    if (!resident.has_parity) {
      const std::string folder = options_.folder;
      const std::string name = pending_protection_name(options_.name, member.rank, generation_.any.set_id);
      make_folders(folder, no_sync());
      unlink((folder + "/" + name).c_str());
      resident.new_parity = PendingFile(folders_[base::add_folder(folders_, folder)], name, 0600);
      Protection header = headers_[resident.group];
      header.member = resident.member;
      const std::string bytes = header.serialized();
      write_at(resident.new_parity.descriptor(), resident.new_parity.path(), std::as_bytes(std::span(bytes)), 0);
      resident.cells->parity = resident.new_parity.descriptor();
      resident.cells->parity_path = resident.new_parity.path();
    }
  }

  [[noreturn]] void refuse(const Resident &resident, const std::string &path) const {
    fail(TANDEM_ERROR_IO, path, " is not as it was when rank ", member_of(resident).rank,
         " protected it; set force to replace it");
  }

  enum class There { nothing, same, another };

  // The existing file with the name of a rebuilt file.
  There look_at(const std::string &path, const PendingFile &rebuilt) const {
    const Descriptor there = base::open_to_read(path);
    if (!there) return errno == ENOENT ? There::nothing : There::another;
    struct stat status, ours;
    if (fstat(there.get(), &status) != 0 || fstat(rebuilt.descriptor(), &ours) != 0) fail_io("look at", path, errno);
    if (!S_ISREG(status.st_mode) || status.st_size != ours.st_size) return There::another;
    const auto bytes = static_cast<std::uint64_t>(ours.st_size);
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(options_.piece_bytes, bytes));
    std::vector<std::byte> mine(piece), theirs(piece);
    for (std::uint64_t at = 0; at < bytes; at += piece) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(piece, bytes - at));
      const std::span a = std::span(mine).first(count), b = std::span(theirs).first(count);
      if (!read_at(rebuilt.descriptor(), rebuilt.path(), a, at)) fail(TANDEM_ERROR_IO, rebuilt.path(), " is truncated");
      try {
        if (!read_at(there.get(), path, b, at)) return There::another;
      } catch (const Error &error) {
        if (error.status() == TANDEM_ERROR_IO) return There::another;  // unreadable means lost
        throw;
      }
      if (!std::ranges::equal(a, b)) return There::another;
    }
    return There::same;
  }

  void finish(Resident &resident) {
    const std::vector<Hash> now = resident.cells->hashes();
    const Member &member = member_of(resident);
    for (std::uint32_t stripe = 0; stripe < layout_.size(); ++stripe)
      if (!is_good(resident.group, resident.member, stripe) && now[stripe] != member.hashes[stripe])
        fail(TANDEM_ERROR_DAMAGED, "the rebuilt bytes of rank ", member.rank, " in stripe ", stripe, " of ",
             group_name(resident.group, generation_.any.group_count), " have a wrong checksum");
    for (std::size_t i = 0; i < resident.new_files.size(); ++i) {
      PendingFile &file = resident.new_files[i];
      const std::string &path = member.files[i].path;
      const There there = look_at(path, file);
      if (there == There::another && options_.force == 0) refuse(resident, path);
      if (there == There::same)
        file = PendingFile();  // another file of the rank was lost
      else
        file.finish(no_sync());
    }
    if (!resident.has_parity) resident.new_parity.finish(no_sync());
  }

  void give_names(Resident &resident) {
    const Member &member = member_of(resident);
    for (std::size_t i = 0; i < resident.new_files.size(); ++i) {
      if (!resident.new_files[i]) continue;  // it exists and is intact
      const std::string &path = member.files[i].path;
      resident.new_files[i].rename(name_of(path), options_.force != 0, no_sync());
      if (options_.restored != nullptr) options_.restored(options_.restored_user, member.rank, path.c_str());
    }
    // The old one, if it exists, is damaged.
    if (!resident.has_parity)
      resident.new_parity.rename(protection_name(options_.name, member.rank, generation_.any.set_id), true, no_sync());
  }

  tandem_mpi_recover_result result(std::uint64_t sent_bytes) const {
    auto result = sized<tandem_mpi_recover_result>();
    std::memcpy(result.set_id, generation_.any.set_id.data(), sizeof result.set_id);
    result.sequence = generation_.any.sequence;
    result.k = layout_.k;
    result.m = layout_.m;
    result.group_count = generation_.any.group_count;
    for (const std::vector<Good> &group : good_)
      for (const Good &good : group) {
        result.lost_count += good.data ? 0 : 1;
        result.lost_parity_count += good.parity ? 0 : 1;
      }
    result.sent_bytes = sent_bytes;
    for (const Resident &resident : residents_) {
      result.read_bytes += resident.cells->read_bytes();
      result.written_bytes += resident.cells->written_bytes();
    }
    return result;
  }

  const World &world_;
  const tandem_mpi_recover_options &options_;
  const Generation &generation_;
  const Layout layout_;
  std::vector<Protection> headers_;      // by group, common to all its members
  std::vector<std::vector<int>> hosts_;  // by group and member
  std::vector<Resident> residents_;      // of this rank
  std::vector<std::vector<Good>> good_;  // by group and member
  base::Folders folders_;                // of the new files
};

}  // namespace

tandem_mpi_recover_result recover(const World &world, tandem_context *context,
                                  const tandem_mpi_recover_options *given) {
  tandem_mpi_recover_options options = {};
  world.together([&] {
    options = read_needed_options(given, "tandem_mpi_recover_options");
    check_protection_name(options.name);
    if (options.folder == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, "folder is NULL");
    options.piece_bytes = checked_piece_bytes(options.piece_bytes);
  });
  world.require_equal({{"name", options.name},
                       {"force", std::to_string(options.force != 0)},
                       {"no_sync", std::to_string(options.no_sync != 0)},
                       {"piece_bytes", std::to_string(options.piece_bytes)}});
  std::map<Generation::Key, std::vector<Protection>> own;
  std::vector<ProtectionPlace> seen;
  world.together([&] { seen = look(options.folder, options.name, &own); });
  const std::vector<Generation> generations = generations_of(world.all_gather(seen));
  if (generations.empty())
    fail(TANDEM_ERROR_NOT_RECOVERABLE, "no parity of the name ", options.name, " lies in the folder of any of ",
         world.size(), " ranks");
  std::optional<Error> why;  // of the newest one
  for (const Generation &generation : generations) {
    const auto here = own.find(Generation::key_of(generation.any));
    try {
      Recovery recovery(world, options, generation, here == own.end() ? nullptr : &here->second);
      recovery.inspect();
      return recovery.rebuild(context);
    } catch (const Error &error) {
      if (error.status() != TANDEM_ERROR_NOT_RECOVERABLE) throw;
      if (!why) why = error;
    }
  }
  throw *why;
}

}  // namespace tandem::mpi
