/* SPDX-License-Identifier: Apache-2.0 */
// Preloaded under the command `tandem`: counts and logs its calls that read and change files. At chosen calls it kills
// the process, makes the call fail, or cuts it short. Environment variables control it:
//
//     TANDEM_FAULT_PATH     only calls on paths that contain this; without it nothing is done
//     TANDEM_FAULT_CALLS    only these calls, as "write,fsync"; the first column of the log. Default: all but "look"
//     TANDEM_FAULT_ACTION   kill       SIGKILL before the call
//                           kill-half  SIGKILL after half of the bytes of a write; other calls: after the call
//                           fail       the call returns -1 with errno TANDEM_FAULT_ERRNO (a number) and does nothing
//                           short      a read or write moves half of the bytes; other calls: nothing happens
//     TANDEM_FAULT_AT       the first affected call, from 1; 0: none
//     TANDEM_FAULT_COUNT    how many calls are affected, default 1
//     TANDEM_FAULT_STEP     the distance between affected calls, default 1
//     TANDEM_FAULT_LOG      a file that gets a line for each counted call:
//                             name, result, errno, offset, length, path, second path   separated by tabs
//                           and beside it FILE.data: the bytes of all writes, in order
//
// Counted calls happen one at a time, so the log has their order. Opening a file with O_CREAT is called "create". stat,
// lstat, fstat, and readdir for each entry, are called "look". Calls inside libc (stdio, closedir) are not counted.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { kPathBytes = 2 * PATH_MAX };
enum action { NOTHING, KILL, KILL_HALF, FAIL, SHORT };

static struct {
  const char *path, *calls;
  enum action action;
  int error;
  long at, count, step;
  int log, data;
} settings = {.log = -1, .data = -1};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counted;

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text != NULL && *text != 0 ? strtol(text, NULL, 10) : otherwise;
}

static int open_log(const char *path) {
  return (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

// A program that fault.c is a part of sets the variables and calls this in a child.
EXPORT __attribute__((constructor)) void read_fault_settings(void) {
  static const char *const actions[] = {"", "kill", "kill-half", "fail", "short"};
  const char *action = getenv("TANDEM_FAULT_ACTION"), *log = getenv("TANDEM_FAULT_LOG");
  for (int i = KILL; action != NULL && i <= SHORT; ++i)
    if (strcmp(action, actions[i]) == 0) settings.action = (enum action)i;
  settings.calls = getenv("TANDEM_FAULT_CALLS");
  settings.error = (int)number("TANDEM_FAULT_ERRNO", EIO);
  settings.at = number("TANDEM_FAULT_AT", 0);
  settings.count = number("TANDEM_FAULT_COUNT", 1);
  settings.step = number("TANDEM_FAULT_STEP", 1);
  if (log != NULL) {
    char data[PATH_MAX];
    snprintf(data, sizeof data, "%s.data", log);
    settings.log = open_log(log);
    settings.data = open_log(data);
  }
  settings.path = getenv("TANDEM_FAULT_PATH");
}

static void die(void) {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

// ---- one call ----

struct call {
  const char *name;
  int counted, error;
  enum action action;
  long long offset, length;
  char path[kPathBytes], second_path[kPathBytes];
};

static void path_of_descriptor(int descriptor, char *path) {
  *path = 0;
  if (settings.path == NULL) return;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length > 0 ? length : 0] = 0;
}

static void path_of_name(int folder, const char *name, char *path) {
  *path = 0;
  if (settings.path == NULL) return;
  if (*name != '/') {
    if (folder == AT_FDCWD) {
      if (getcwd(path, PATH_MAX) == NULL) *path = 0;
    } else {
      path_of_descriptor(folder, path);
    }
    strcat(path, "/");
  }
  strncat(path, name, PATH_MAX - 1);
}

static int is_wanted(const struct call *call) {
  if (settings.path == NULL) return 0;
  if (strstr(call->path, settings.path) == NULL && strstr(call->second_path, settings.path) == NULL) return 0;
  if (settings.calls == NULL || *settings.calls == 0) return strcmp(call->name, "look") != 0;
  const size_t length = strlen(call->name);
  for (const char *at = settings.calls; (at = strstr(at, call->name)) != NULL; at += length) {
    const int starts = at == settings.calls || at[-1] == ',', ends = at[length] == 0 || at[length] == ',';
    if (starts && ends) return 1;
  }
  return 0;
}

// Counts the call; what is to happen to it is in call->action. To be followed by finish().
static void start(struct call *call, const char *name) {
  const int error = errno;
  call->name = name;
  call->action = NOTHING;
  call->counted = is_wanted(call);
  if (call->counted) {
    pthread_mutex_lock(&mutex);
    const long past = ++counted - settings.at;
    const int hit = settings.at > 0 && past >= 0 && past % settings.step == 0 && past / settings.step < settings.count;
    if (hit) call->action = settings.action;
    if (call->action == KILL) die();
  }
  errno = error;
}

// After the call: logs it. `pieces` hold what was written; NULL for a call that writes nothing.
static void finish(struct call *call, long long result, const struct iovec *pieces) {
  const int error = errno;
  if (call->counted) {
    if (settings.log >= 0) {
      char line[2 * kPathBytes + 200];
      const int length = snprintf(line, sizeof line, "%s\t%lld\t%d\t%lld\t%lld\t%s\t%s\n", call->name, result,
                                  result < 0 ? error : 0, call->offset, call->length, call->path, call->second_path);
      for (long long left = result; pieces != NULL && left > 0; ++pieces) {
        const size_t step = (long long)pieces->iov_len < left ? pieces->iov_len : (size_t)left;
        if (syscall(SYS_write, settings.data, pieces->iov_base, step) != (long)step) abort();
        left -= (long long)step;
      }
      if (syscall(SYS_write, settings.log, line, (size_t)length) != length) abort();
    }
    if (call->action == KILL_HALF) die();
    pthread_mutex_unlock(&mutex);
  }
  errno = error;
}

static int fails(struct call *call) {
  if (call->action != FAIL) return 0;
  errno = settings.error;
  return 1;
}

#define ON_DESCRIPTOR(descriptor) \
  struct call call;               \
  call.offset = call.length = 0;  \
  call.second_path[0] = 0;        \
  path_of_descriptor(descriptor, call.path)

#define ON_NAME(folder, name)    \
  struct call call;              \
  call.offset = call.length = 0; \
  call.second_path[0] = 0;       \
  path_of_name(folder, name, call.path)

#define CALL(result_type, name, expression)                                 \
  start(&call, name);                                                       \
  const result_type result = fails(&call) ? (result_type)-1 : (expression); \
  finish(&call, result, NULL);                                              \
  return result

// ---- files and folders ----

static int open_any(int folder, const char *path, int flags, mode_t mode) {
  ON_NAME(folder, path);
  const int creates = (flags & O_CREAT) != 0;
  struct stat status;
  // For the log: 1 = it was not there, 2 = its content goes away.
  if (creates && syscall(SYS_newfstatat, folder, path, &status, AT_SYMLINK_NOFOLLOW) != 0) call.offset = 1;
  if ((flags & O_TRUNC) != 0) call.offset |= 2;
  CALL(int, creates ? "create" : "open", (int)syscall(SYS_openat, folder, path, flags, mode));
}

static mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

#define DEFINE_OPEN(name)                             \
  EXPORT int name(const char *path, int flags, ...) { \
    va_list arguments;                                \
    va_start(arguments, flags);                       \
    const mode_t mode = mode_of(flags, arguments);    \
    va_end(arguments);                                \
    return open_any(AT_FDCWD, path, flags, mode);     \
  }
#define DEFINE_OPENAT(name)                                       \
  EXPORT int name(int folder, const char *path, int flags, ...) { \
    va_list arguments;                                            \
    va_start(arguments, flags);                                   \
    const mode_t mode = mode_of(flags, arguments);                \
    va_end(arguments);                                            \
    return open_any(folder, path, flags, mode);                   \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

EXPORT int creat(const char *path, mode_t mode) { return open_any(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

EXPORT int close(int descriptor) {
  ON_DESCRIPTOR(descriptor);
  CALL(int, "close", (int)syscall(SYS_close, descriptor));
}

static int rename_any(const char *name, int from_folder, const char *from, int to_folder, const char *to,
                      unsigned flags) {
  ON_NAME(from_folder, from);
  path_of_name(to_folder, to, call.second_path);
  CALL(int, name, (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

EXPORT int rename(const char *from, const char *to) { return rename_any("rename", AT_FDCWD, from, AT_FDCWD, to, 0); }

EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to) {
  return rename_any("rename", from_folder, from, to_folder, to, 0);
}

// A name of its own, so that a file system can be played that does not know its flags.
EXPORT int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  return rename_any("renameat2", from_folder, from, to_folder, to, flags);
}

EXPORT int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
  ON_NAME(from_folder, from);
  path_of_name(to_folder, to, call.second_path);
  CALL(int, "link", (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
}

EXPORT int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

EXPORT int unlinkat(int folder, const char *path, int flags) {
  ON_NAME(folder, path);
  CALL(int, (flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink", (int)syscall(SYS_unlinkat, folder, path, flags));
}

EXPORT int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

EXPORT int mkdirat(int folder, const char *path, mode_t mode) {
  ON_NAME(folder, path);
  CALL(int, "mkdir", (int)syscall(SYS_mkdirat, folder, path, mode));
}

EXPORT int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

EXPORT int fstatat(int folder, const char *path, struct stat *status, int flags) {
  ON_NAME(folder, path);
  CALL(int, "stat", (int)syscall(SYS_newfstatat, folder, path, status, flags));
}

static int look_at_name(const char *path, struct stat *status, int flags) {
  ON_NAME(AT_FDCWD, path);
  CALL(int, "look", (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, flags));
}

EXPORT int stat(const char *path, struct stat *status) { return look_at_name(path, status, 0); }
EXPORT int lstat(const char *path, struct stat *status) { return look_at_name(path, status, AT_SYMLINK_NOFOLLOW); }

EXPORT int fstat(int descriptor, struct stat *status) {
  ON_DESCRIPTOR(descriptor);
  CALL(int, "look", (int)syscall(SYS_fstat, descriptor, status));
}

EXPORT struct dirent *readdir(DIR *list) {
  struct dirent *(*real)(DIR *);
  *(void **)&real = dlsym(RTLD_NEXT, "readdir");
  ON_DESCRIPTOR(dirfd(list));
  start(&call, "look");
  struct dirent *entry = fails(&call) ? NULL : real(list);
  finish(&call, 0, NULL);
  return entry;
}

EXPORT int flock(int descriptor, int how) {
  if ((how & LOCK_UN) != 0) return (int)syscall(SYS_flock, descriptor, how);  // what was locked can be unlocked
  ON_DESCRIPTOR(descriptor);
  CALL(int, "flock", (int)syscall(SYS_flock, descriptor, how));
}

EXPORT int fchmod(int descriptor, mode_t mode) {
  ON_DESCRIPTOR(descriptor);
  CALL(int, "fchmod", (int)syscall(SYS_fchmod, descriptor, mode));
}

EXPORT int fchown(int descriptor, uid_t user, gid_t group) {
  ON_DESCRIPTOR(descriptor);
  CALL(int, "fchown", (int)syscall(SYS_fchown, descriptor, user, group));
}

EXPORT int ftruncate(int descriptor, off_t length) {
  ON_DESCRIPTOR(descriptor);
  call.length = length;
  CALL(int, "ftruncate", (int)syscall(SYS_ftruncate, descriptor, length));
}

EXPORT int ftruncate64(int descriptor, off_t length) { return ftruncate(descriptor, length); }

EXPORT int fallocate(int descriptor, int mode, off_t offset, off_t length) {
  ON_DESCRIPTOR(descriptor);
  call.offset = offset;
  call.length = length;
  CALL(int, "fallocate", (int)syscall(SYS_fallocate, descriptor, mode, offset, length));
}

EXPORT int fallocate64(int descriptor, int mode, off_t offset, off_t length) {
  return fallocate(descriptor, mode, offset, length);
}

EXPORT int posix_fallocate(int descriptor, off_t offset, off_t length) {
  return fallocate(descriptor, 0, offset, length) == 0 ? 0 : errno;
}

EXPORT int fsync(int descriptor) {
  ON_DESCRIPTOR(descriptor);
  CALL(int, "fsync", (int)syscall(SYS_fsync, descriptor));
}

EXPORT int fdatasync(int descriptor) {
  ON_DESCRIPTOR(descriptor);
  CALL(int, "fsync", (int)syscall(SYS_fdatasync, descriptor));
}

EXPORT int sync_file_range(int descriptor, off_t offset, off_t length, unsigned flags) {
  ON_DESCRIPTOR(descriptor);
  CALL(int, "sync_file_range", (int)syscall(SYS_sync_file_range, descriptor, offset, length, flags));
}

// ---- reads and writes ----

typedef ssize_t transfer(int, const struct iovec *, int, off_t);

// The real call on the first half of the bytes.
static ssize_t half(transfer *move, int descriptor, const struct iovec *pieces, int count, off_t offset) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  size_t left = (bytes + 1) / 2;
  struct iovec fewer[IOV_MAX];
  int fewer_count = 0;
  for (; left != 0; ++fewer_count) {
    fewer[fewer_count] = pieces[fewer_count];
    if (fewer[fewer_count].iov_len > left) fewer[fewer_count].iov_len = left;
    left -= fewer[fewer_count].iov_len;
  }
  return move(descriptor, fewer, fewer_count, offset);
}

static ssize_t move_any(const char *name, int writes, transfer *move, int descriptor, const struct iovec *pieces,
                        int count, off_t offset) {
  ON_DESCRIPTOR(descriptor);
  call.offset = offset >= 0 ? offset : (long long)lseek(descriptor, 0, SEEK_CUR);
  for (int i = 0; i < count; ++i) call.length += (long long)pieces[i].iov_len;
  start(&call, name);
  const int cut = call.action == SHORT || (writes && call.action == KILL_HALF);
  const ssize_t result = fails(&call) ? -1
                         : cut        ? half(move, descriptor, pieces, count, offset)
                                      : move(descriptor, pieces, count, offset);
  finish(&call, result, writes ? pieces : NULL);
  return result;
}

// An offset below 0 stands for the descriptor's position.
static ssize_t raw_read(int descriptor, const struct iovec *pieces, int count, off_t offset) {
  return offset < 0 ? syscall(SYS_readv, descriptor, pieces, count)
                    : syscall(SYS_preadv, descriptor, pieces, count, offset, 0);
}

static ssize_t raw_write(int descriptor, const struct iovec *pieces, int count, off_t offset) {
  return offset < 0 ? syscall(SYS_writev, descriptor, pieces, count)
                    : syscall(SYS_pwritev, descriptor, pieces, count, offset, 0);
}

static ssize_t read_any(int descriptor, const struct iovec *pieces, int count, off_t offset) {
  return move_any("read", 0, raw_read, descriptor, pieces, count, offset);
}

static ssize_t write_any(int descriptor, const struct iovec *pieces, int count, off_t offset) {
  return move_any("write", 1, raw_write, descriptor, pieces, count, offset);
}

EXPORT ssize_t read(int descriptor, void *bytes, size_t count) {
  return read_any(descriptor, &(struct iovec){bytes, count}, 1, -1);
}
EXPORT ssize_t readv(int descriptor, const struct iovec *pieces, int count) {
  return read_any(descriptor, pieces, count, -1);
}
EXPORT ssize_t pread(int descriptor, void *bytes, size_t count, off_t offset) {
  return read_any(descriptor, &(struct iovec){bytes, count}, 1, offset);
}
EXPORT ssize_t pread64(int descriptor, void *bytes, size_t count, off_t offset) {
  return read_any(descriptor, &(struct iovec){bytes, count}, 1, offset);
}
EXPORT ssize_t preadv(int descriptor, const struct iovec *pieces, int count, off_t offset) {
  return read_any(descriptor, pieces, count, offset);
}
EXPORT ssize_t preadv64(int descriptor, const struct iovec *pieces, int count, off_t offset) {
  return read_any(descriptor, pieces, count, offset);
}
EXPORT ssize_t write(int descriptor, const void *bytes, size_t count) {
  return write_any(descriptor, &(struct iovec){(void *)bytes, count}, 1, -1);
}
EXPORT ssize_t writev(int descriptor, const struct iovec *pieces, int count) {
  return write_any(descriptor, pieces, count, -1);
}
EXPORT ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset) {
  return write_any(descriptor, &(struct iovec){(void *)bytes, count}, 1, offset);
}
EXPORT ssize_t pwrite64(int descriptor, const void *bytes, size_t count, off_t offset) {
  return write_any(descriptor, &(struct iovec){(void *)bytes, count}, 1, offset);
}
EXPORT ssize_t pwritev(int descriptor, const struct iovec *pieces, int count, off_t offset) {
  return write_any(descriptor, pieces, count, offset);
}
EXPORT ssize_t pwritev64(int descriptor, const struct iovec *pieces, int count, off_t offset) {
  return write_any(descriptor, pieces, count, offset);
}
