// SPDX-License-Identifier: Apache-2.0
// What systems name differently: Linux, with glibc or musl, and macOS, for which the codec is compiled but never ran
// (scripts/check-systems). What a processor can do stands in cpu/kernels/features.cpp.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstddef>
#include <memory>

#if defined(__APPLE__)
#include <dispatch/dispatch.h>
#include <unistd.h>
#else
#include <semaphore.h>
#ifndef RENAME_NOREPLACE  // musl 1.2.5 and older
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace tandem::base::os {

#if defined(__APPLE__)

inline constexpr int kEnterOnly = O_SEARCH;

class AffinityMask {  // threads have none
 public:
  unsigned end() const noexcept { return 0; }
  bool has(unsigned) const noexcept { return false; }
  unsigned count() const noexcept { return 0; }
};

inline void pin_thread(pthread_t, unsigned) noexcept {}
inline void name_thread(pthread_t, const char *) noexcept {}  // only a thread itself could

inline int current_core() noexcept {
  std::size_t core = 0;
  return pthread_cpu_number_np(&core) == 0 ? static_cast<int>(core) : -1;
}

class Semaphore {
 public:
  Semaphore() noexcept : semaphore_(dispatch_semaphore_create(0)) {}
  ~Semaphore() { dispatch_release(semaphore_); }
  Semaphore(const Semaphore &) = delete;
  Semaphore &operator=(const Semaphore &) = delete;
  void wait() noexcept { dispatch_semaphore_wait(semaphore_, DISPATCH_TIME_FOREVER); }
  void post() noexcept { dispatch_semaphore_signal(semaphore_); }

 private:
  dispatch_semaphore_t semaphore_;
};

inline void discard_signal(int number, const sigset_t &signals) noexcept {
  sigset_t pending;
  if (sigpending(&pending) == 0 && sigismember(&pending, number) == 1) sigwait(&signals, &number);
}

inline int rename_to_new(int from_folder, const char *from, int to_folder, const char *to) noexcept {
  return renameatx_np(from_folder, from, to_folder, to, RENAME_EXCL);
}

inline int allocate(int, off_t, off_t) noexcept { return ENOTSUP; }
inline void start_writeback(int) noexcept {}
inline const char *secure_variable(const char *name) noexcept { return issetugid() == 0 ? getenv(name) : nullptr; }
inline const timespec &write_time(const struct stat &status) noexcept { return status.st_mtimespec; }
inline const timespec &change_time(const struct stat &status) noexcept { return status.st_ctimespec; }

#else

inline constexpr int kEnterOnly = O_PATH;

// The affinity mask of the calling thread; empty if the kernel does not tell.
class AffinityMask {
 public:
  AffinityMask() noexcept;
  unsigned end() const noexcept { return end_; }
  bool has(unsigned core) const noexcept { return CPU_ISSET_S(core, bytes_, mask_.get()); }
  unsigned count() const noexcept { return end_ != 0 ? static_cast<unsigned>(CPU_COUNT_S(bytes_, mask_.get())) : 0; }

 private:
  struct Free {
    void operator()(cpu_set_t *mask) const { CPU_FREE(mask); }
  };
  std::unique_ptr<cpu_set_t, Free> mask_;
  std::size_t bytes_ = 0;
  unsigned end_ = 0;
};

// If the core has gone meanwhile, the thread stays where it may run, which is only slower.
void pin_thread(pthread_t thread, unsigned core) noexcept;
inline void name_thread(pthread_t thread, const char *name) noexcept { pthread_setname_np(thread, name); }
inline int current_core() noexcept { return sched_getcpu(); }

class Semaphore {
 public:
  Semaphore() noexcept { sem_init(&semaphore_, 0, 0); }
  ~Semaphore() { sem_destroy(&semaphore_); }
  Semaphore(const Semaphore &) = delete;
  Semaphore &operator=(const Semaphore &) = delete;
  void wait() noexcept { sem_wait(&semaphore_); }  // may return early: a signal came
  void post() noexcept { sem_post(&semaphore_); }

 private:
  sem_t semaphore_;
};

// Takes a signal that waits for this thread, if there is one; it is blocked, and the only one of `signals`.
inline void discard_signal(int, const sigset_t &signals) noexcept {
  const timespec at_once = {};
  while (sigtimedwait(&signals, nullptr, &at_once) < 0 && errno == EINTR) continue;
}

// Fails with EEXIST if there is such a file.
inline int rename_to_new(int from_folder, const char *from, int to_folder, const char *to) noexcept {
#ifdef RENAME_NOREPLACE
  return renameat2(from_folder, from, to_folder, to, RENAME_NOREPLACE);
#else
  constexpr unsigned kNoReplace = 1;
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, kNoReplace));
#endif
}

// Returns an errno value.
inline int allocate(int descriptor, off_t offset, off_t byte_count) noexcept {
  return posix_fallocate(descriptor, offset, byte_count);
}

inline void start_writeback(int descriptor) noexcept {
  constexpr int kToTheEnd = 0;
  sync_file_range(descriptor, 0, kToTheEnd, SYNC_FILE_RANGE_WRITE);
}

// A variable of the environment; none in a set-uid program.
inline const char *secure_variable(const char *name) noexcept { return secure_getenv(name); }
inline const timespec &write_time(const struct stat &status) noexcept { return status.st_mtim; }
inline const timespec &change_time(const struct stat &status) noexcept { return status.st_ctim; }

#endif

}  // namespace tandem::base::os
