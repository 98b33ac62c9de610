/* SPDX-License-Identifier: Apache-2.0 */
// Preloaded under the command `tandem`: written pages of zeros become holes. So shard files of many gigabytes take
// almost no disk space, while the program runs unchanged.
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kPageBytes = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int write_all(int descriptor, const char *bytes, size_t count, off_t offset) {
  while (count != 0) {
    const long moved = syscall(SYS_pwrite64, descriptor, bytes, count, offset);
    if (moved <= 0) return -1;
    bytes += moved;
    offset += moved;
    count -= (size_t)moved;
  }
  return 0;
}

// Whether a whole page of zeros starts here.
static int is_hole(const char *bytes, size_t count, off_t offset) {
  return offset % kPageBytes == 0 && count >= kPageBytes && bytes[0] == 0 &&
         memcmp(bytes, bytes + 1, kPageBytes - 1) == 0;
}

static int write_piece(int descriptor, const char *bytes, size_t count, off_t offset) {
  while (count != 0) {
    const int hole = is_hole(bytes, count, offset);
    size_t run = 0;
    while (run < count && is_hole(bytes + run, count - run, offset + (off_t)run) == hole) {
      const size_t page_left = kPageBytes - (size_t)((offset + (off_t)run) % kPageBytes);
      run += page_left < count - run ? page_left : count - run;
    }
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (!(hole && fallocate(descriptor, mode, offset, (off_t)run) == 0) &&
        write_all(descriptor, bytes, run, offset) != 0)
      return -1;
    bytes += run;
    offset += (off_t)run;
    count -= run;
  }
  return 0;
}

__attribute__((visibility("default"))) ssize_t pwritev(int descriptor, const struct iovec *pieces, int count,
                                                       off_t offset) {
  ssize_t total = 0;
  for (int i = 0; i < count; ++i) {
    if (write_piece(descriptor, pieces[i].iov_base, pieces[i].iov_len, offset + total) != 0) return -1;
    total += (ssize_t)pieces[i].iov_len;
  }
  // Zeros at the end make the file longer too. One thread at a time: none may make it shorter again.
  pthread_mutex_lock(&mutex);
  struct stat status;
  int result = fstat(descriptor, &status);
  if (result == 0 && status.st_size < offset + total) result = ftruncate(descriptor, offset + total);
  pthread_mutex_unlock(&mutex);
  return result == 0 ? total : -1;
}
