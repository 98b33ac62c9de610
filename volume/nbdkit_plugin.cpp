// SPDX-License-Identifier: Apache-2.0
// nbdkit-tandem-plugin.so: a volume as an NBD export. `tandem volume serve` starts nbdkit with it; docs/volume.md.
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/options.hpp"
#include "tandem/volume.h"
#include "volume/control.hpp"
#include "volume/control_server.hpp"
#include "volume/end_clients.hpp"

// required by nbdkit.h; each request is its own call
#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

namespace {

struct {
  std::vector<std::string> members;
  std::string control;
  bool read_only = false;
  int report = -1;
} settings;

tandem_volume *volume = nullptr;
std::unique_ptr<tandem::volume::ControlServer> control;
std::unique_ptr<tandem::volume::EndClientsOnSignal> end_clients;

// ---- errors, for NBD and for the command that started nbdkit

int errno_of(tandem_status status) {
  switch (static_cast<tandem_status_value>(status)) {
    case TANDEM_OK:
      return 0;
    case TANDEM_ERROR_INVALID_ARGUMENT:
    case TANDEM_ERROR_OVERLAP:
    case TANDEM_ERROR_NOT_MDS:
      return EINVAL;
    case TANDEM_ERROR_TOO_LARGE:
      return EOVERFLOW;
    case TANDEM_ERROR_OUT_OF_MEMORY:
      return ENOMEM;
    case TANDEM_ERROR_UNAVAILABLE:
      return settings.read_only ? EROFS : EBUSY;
    case TANDEM_ERROR_UNSUPPORTED:
      return ENOTSUP;
    case TANDEM_ERROR_NOT_RECOVERABLE:
    case TANDEM_ERROR_DAMAGED:
    case TANDEM_ERROR_DEVICE:
    case TANDEM_ERROR_IO:
    case TANDEM_ERROR_CANCELLED:
    case TANDEM_ERROR_INTERNAL:
      return EIO;
  }
  return EIO;  // of a newer library
}

// 0 and -1, as nbdkit's callbacks return.
int result_of(tandem_status status) {
  if (status == TANDEM_OK) return 0;
  nbdkit_error("%s", tandem_last_error_message());
  nbdkit_set_error(errno_of(status));
  return -1;
}

// nbdkit calls these functions from C: no exception may pass.
template <class Body>
int guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    nbdkit_error("out of memory");
    nbdkit_set_error(ENOMEM);
  } catch (const std::exception &error) {
    nbdkit_error("%s", error.what());
    nbdkit_set_error(EIO);
  }
  return -1;
}

// One line of JSON for the command, which may have ended.
void report(const char *event, tandem_status status, const std::string &message) {
  if (settings.report < 0) return;
  const std::string line =
      tandem::volume::json_line({{"event", event}, {"status", status}, {"message", message}}) + '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t now = write(settings.report, rest.data(), rest.size());
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(now));
  }
}

void print_note(void *, const char *note) {
  std::string line = "tandem: note: ";
  for (const char *each = note; *each != '\0'; ++each) line += static_cast<unsigned char>(*each) < 0x20 ? '?' : *each;
  line += '\n';
  // One line at a time. If standard error is closed, notes are lost.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

// ---- start and end

constexpr const char *kConfigHelp =
    "member=<PATH or NBD URI>   (required, once for each member) The members of the volume, in any order.\n"
    "control=<PATH>             Control socket, for `tandem volume ... --socket`. Default: none.\n"
    "read-only=<BOOL>           Open the volume read-only. Use it together with nbdkit's -r.\n"
    "report=<FD>                Say on this descriptor, in JSON, when serving begins and how it ends.";

int config(const char *key, const char *value) {
  return guarded([&] {
    const std::string_view name = key;
    if (name == "member") {
      // nbdkit changes its working folder when it goes into the background.
      if (std::strstr(value, "://") != nullptr) {
        settings.members.emplace_back(value);
        return 0;
      }
      const std::unique_ptr<char, void (*)(void *)> path(nbdkit_absolute_path(value), std::free);
      if (path == nullptr) return -1;
      settings.members.emplace_back(path.get());
    } else if (name == "control") {
      const std::unique_ptr<char, void (*)(void *)> path(nbdkit_absolute_path(value), std::free);
      if (path == nullptr) return -1;
      settings.control = path.get();
    } else if (name == "read-only") {
      const int flag = nbdkit_parse_bool(value);
      if (flag < 0) return -1;
      settings.read_only = flag != 0;
    } else if (name == "report") {
      if (nbdkit_parse_int("report", value, &settings.report) != 0) return -1;
      if (settings.report < 0 || fcntl(settings.report, F_SETFD, FD_CLOEXEC) != 0) {
        nbdkit_error("report=%s: not a descriptor that is open", value);
        return -1;
      }
    } else {
      nbdkit_error("unknown parameter %s; there are member, control, read-only, report", key);
      return -1;
    }
    return 0;
  });
}

int config_complete() {
  if (!settings.members.empty()) return 0;
  nbdkit_error("no member is named: member=<PATH or NBD URI>, once for each");
  return -1;
}

// Threads and locks of a volume do not survive the fork into the background.
int after_fork() {
  return guarded([] {
    std::vector<const char *> members;
    for (const std::string &each : settings.members) members.push_back(each.c_str());
    auto options = tandem::base::sized<tandem_volume_open_options>();
    options.members = members.data();
    options.member_count = members.size();
    options.read_only = settings.read_only;
    options.note = print_note;
    const tandem_status status = tandem_volume_open(nullptr, &options, &volume);
    if (status != TANDEM_OK) {
      report("failed", status, tandem_last_error_message());
      nbdkit_error("%s", tandem_last_error_message());
      return -1;
    }
    try {
      end_clients = std::make_unique<tandem::volume::EndClientsOnSignal>();
      if (!settings.control.empty())
        control = std::make_unique<tandem::volume::ControlServer>(volume, settings.control);
    } catch (const std::exception &error) {
      report("failed", TANDEM_ERROR_IO, error.what());
      nbdkit_error("%s", error.what());
      end_clients.reset();
      tandem_volume_close(volume);
      volume = nullptr;
      return -1;
    }
    report("serving", TANDEM_OK, "");
    return 0;
  });
}

// After the last connection. nbdkit cannot be told that this failed, so the process ends here with a status that says
// so.
void cleanup() {
  if (volume == nullptr) return;
  end_clients.reset();
  control.reset();
  const tandem_status status = tandem_volume_close(volume);
  volume = nullptr;
  const std::string message = status == TANDEM_OK ? "" : tandem_last_error_message();
  report("closed", status, message);
  if (status == TANDEM_OK) return;
  nbdkit_error("the volume was not closed cleanly: %s", message.c_str());
  _exit(EXIT_FAILURE);
}

// ---- the export

void *open_connection(int) { return NBDKIT_HANDLE_NOT_NEEDED; }

int64_t get_size(void *) {
  auto info = tandem::base::sized<tandem_volume_info>();
  if (result_of(tandem_volume_query(volume, &info)) != 0) return -1;
  if (info.volume_bytes <= INT64_MAX) return static_cast<int64_t>(info.volume_bytes);
  nbdkit_error("a volume of %llu bytes is too large for NBD", static_cast<unsigned long long>(info.volume_bytes));
  nbdkit_set_error(EOVERFLOW);
  return -1;
}

int block_size(void *, std::uint32_t *minimum, std::uint32_t *preferred, std::uint32_t *maximum) {
  *minimum = 1;
  *preferred = TANDEM_VOLUME_BLOCK_BYTES;
  *maximum = UINT32_MAX;
  return 0;
}

int can_write(void *) { return settings.read_only ? 0 : 1; }
int yes(void *) { return 1; }
int native_fua(void *) { return NBDKIT_FUA_NATIVE; }

int pread(void *, void *data, std::uint32_t count, std::uint64_t offset, std::uint32_t) {
  return result_of(tandem_volume_read(volume, offset, data, count));
}

int flush(void *, std::uint32_t) { return result_of(tandem_volume_flush(volume)); }

// FUA is about this write alone. The volume has only a flush, which makes it safe together with the others.
int flushed_if(std::uint32_t flags, tandem_status status) {
  if (status == TANDEM_OK && (flags & NBDKIT_FLAG_FUA) != 0) status = tandem_volume_flush(volume);
  return result_of(status);
}

int pwrite(void *, const void *data, std::uint32_t count, std::uint64_t offset, std::uint32_t flags) {
  return flushed_if(flags, tandem_volume_write(volume, offset, data, count));
}

int trim(void *, std::uint32_t count, std::uint64_t offset, std::uint32_t flags) {
  return flushed_if(flags, tandem_volume_trim(volume, offset, count, 0));
}

// Without permission to trim, the range must not become a hole: zeros are written.
int zero(void *, std::uint32_t count, std::uint64_t offset, std::uint32_t flags) {
  if ((flags & NBDKIT_FLAG_MAY_TRIM) != 0) return flushed_if(flags, tandem_volume_trim(volume, offset, count, 1));
  if ((flags & NBDKIT_FLAG_FAST_ZERO) != 0) {
    nbdkit_error("zeros that must not become a hole take as long as a write");
    nbdkit_set_error(EOPNOTSUPP);
    return -1;
  }
  return guarded([&] {
    constexpr std::uint32_t kPieceBytes = 1 << 20;
    const std::vector<char> zeros(std::min(count, kPieceBytes));
    tandem_status status = TANDEM_OK;
    for (std::uint32_t done = 0; done < count && status == TANDEM_OK;) {
      const std::uint32_t now = std::min(count - done, kPieceBytes);
      status = tandem_volume_write(volume, offset + done, zeros.data(), now);
      done += now;
    }
    return flushed_if(flags, status);
  });
}

int extents(void *, std::uint32_t count, std::uint64_t offset, std::uint32_t flags, nbdkit_extents *list) {
  constexpr std::size_t kRoom = 64;
  const std::uint64_t end = offset + count;
  while (offset < end) {
    tandem_volume_extent found[kRoom];
    std::size_t found_count = 0;
    if (result_of(tandem_volume_extents(volume, offset, end - offset, found, kRoom, &found_count)) != 0) return -1;
    for (const tandem_volume_extent &each : std::span(found, found_count)) {
      const std::uint32_t type = each.written != 0 ? 0 : NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO;
      if (nbdkit_add_extent(list, each.begin_bytes, each.end_bytes - each.begin_bytes, type) != 0) return -1;
      offset = each.end_bytes;
    }
    if ((flags & NBDKIT_FLAG_REQ_ONE) != 0) return 0;
  }
  return 0;
}

nbdkit_plugin make_plugin() {
  nbdkit_plugin plugin = {};
  plugin.name = "tandem";
  plugin.longname = "Tandem striped volume";
  plugin.version = tandem_version_string();
  plugin.description = "A volume over k+m members that survives the loss of any m";
  plugin.config = config;
  plugin.config_complete = config_complete;
  plugin.config_help = kConfigHelp;
  plugin.magic_config_key = "member";
  plugin.after_fork = after_fork;
  plugin.cleanup = cleanup;
  plugin.open = open_connection;
  plugin.get_size = get_size;
  plugin.block_size = block_size;
  plugin.can_write = can_write;
  plugin.can_flush = yes;
  plugin.can_trim = yes;
  plugin.can_zero = yes;
  plugin.can_fast_zero = yes;
  plugin.can_fua = native_fua;
  plugin.can_extents = yes;
  plugin.can_multi_conn = yes;  // a flush covers the whole volume, from any connection
  plugin.pread = pread;
  plugin.pwrite = pwrite;
  plugin.flush = flush;
  plugin.trim = trim;
  plugin.zero = zero;
  plugin.extents = extents;
  plugin.errno_is_preserved = 0;
  return plugin;
}

nbdkit_plugin plugin = make_plugin();

}  // namespace

NBDKIT_REGISTER_PLUGIN(plugin)
