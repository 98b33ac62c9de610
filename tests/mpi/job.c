/* SPDX-License-Identifier: Apache-2.0 */
// A program as users of mpi.h write one, for mpi_test.py: mpirun -n N job COMMAND ... Each rank prints one line:
// "RANK STATUS NUMBERS... | MESSAGE". It initialises MPI without threads.
//
//   job protect K M MATRIX NAME FOLDER PIECE FILE...   {r} in a word is the rank
//   job change ODD cut|grow|touch K M ...              the same; files[0] of rank ODD changes when it is first read
//   job verify|repair FOLDER
//   job recover NAME FOLDER force|keep PIECE
//   job encode FILE K M BLOCK_BYTES FOLDER [ODD WHAT]  rank ODD gives another k, name or source, or
//                                                      changes the source while it is read, or cancels
//   job seal FILE                                      a parity file with a changed header: its checksum
//   job agree ODD                                      rank ODD is not well
//   job none                                           communicators that are none
//   job threads
//
// JOB_FILE_BYTES: a limit on the size of files, set once MPI has made its own.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tandem/mpi.h"
#include "tandem/tools.h"

static int rank;
static char line[8192];

static void add(const char *name, unsigned long long value) {
  const size_t used = strlen(line);
  snprintf(line + used, sizeof line - used, " %s=%llu", name, value);
}

// The word with the rank for {r}.
static char *of_rank(const char *word) {
  char *result = malloc(strlen(word) + 32);
  const char *at = strstr(word, "{r}");
  if (at == NULL)
    strcpy(result, word);
  else
    sprintf(result, "%.*s%d%s", (int)(at - word), word, rank, at + 3);
  return result;
}

static void restored(void *user, uint32_t of, const char *path) {
  (void)user;
  const size_t used = strlen(line);
  snprintf(line + used, sizeof line - used, " restored=%u:%s", of, path);
}

static tandem_status protect(int32_t world, tandem_context *context, int count, char **words) {
  tandem_mpi_protect_options options = {.struct_bytes = sizeof options};
  options.k = (uint32_t)atoi(words[0]);
  options.m = (uint32_t)atoi(words[1]);
  options.matrix = atoi(words[2]);
  options.name = words[3];
  options.folder = of_rank(words[4]);
  options.piece_bytes = (uint32_t)atoi(words[5]);
  const char *files[64];
  for (int i = 6; i < count; ++i) files[options.file_count++] = of_rank(words[i]);
  options.files = files;
  tandem_mpi_protect_result result = {.struct_bytes = sizeof result};
  const tandem_status status = tandem_mpi_protect(world, context, &options, &result);
  if (status != TANDEM_OK) return status;
  add("sequence", result.sequence);
  add("groups", result.group_count);
  add("group", result.group);
  add("member", result.member);
  add("segment", result.segment_bytes);
  add("sent", result.sent_bytes);
  return status;
}

static unsigned long long bytes_read(void);

static tandem_status verify(int32_t world, tandem_context *context, const char *folder) {
  tandem_files_verify_options options = {.struct_bytes = sizeof options};
  tandem_files_verify_result result = {.struct_bytes = sizeof result};
  const unsigned long long before = bytes_read();
  const tandem_status status = tandem_mpi_verify(world, context, &folder, 1, &options, &result);
  if (status != TANDEM_OK) return status;
  add("system_read", bytes_read() - before);
  add("all", result.read_bytes);
  add("state", (unsigned long long)result.state);
  return status;
}

static tandem_status salvage(int32_t world, tandem_context *context, const char *folder) {
  const tandem_files_decode_options options = {
      .struct_bytes = sizeof options, .output_path = "output", .salvage = 1, .dry_run = 1};
  return tandem_mpi_decode(world, context, &folder, 1, &options, NULL);
}

static tandem_status repair(int32_t world, tandem_context *context, const char *folder) {
  tandem_files_repair_options options = {.struct_bytes = sizeof options};
  tandem_files_repair_result result = {.struct_bytes = sizeof result};
  const unsigned long long before = bytes_read();
  const tandem_status status = tandem_mpi_repair(world, context, &folder, 1, &options, &result);
  if (status != TANDEM_OK) return status;
  add("system_read", bytes_read() - before);
  add("all", result.read_bytes);
  add("state", (unsigned long long)result.state);
  return status;
}

static tandem_status recover(int32_t world, tandem_context *context, char **words) {
  tandem_mpi_recover_options options = {.struct_bytes = sizeof options};
  options.name = words[0];
  options.folder = of_rank(words[1]);
  options.force = strcmp(words[2], "force") == 0;
  options.piece_bytes = (uint32_t)atoi(words[3]);
  options.restored = restored;
  tandem_mpi_recover_result result = {.struct_bytes = sizeof result};
  const tandem_status status = tandem_mpi_recover(world, context, &options, &result);
  if (status != TANDEM_OK) return status;
  add("sequence", result.sequence);
  add("lost", result.lost_count);
  add("lost_parity", result.lost_parity_count);
  return status;
}

// A file that is to change when this process reads it for the first time. These come before libc's.
static const char *changing_path, *changing_how;

static void change_now(void) {
  const char *path = changing_path;
  changing_path = NULL;
  FILE *file = fopen(path, strcmp(changing_how, "grow") == 0 ? "ab" : "r+b");
  if (file == NULL || (strcmp(changing_how, "cut") == 0 ? ftruncate(fileno(file), 5) : fputc('!', file) - '!') != 0)
    perror(path);
  if (file != NULL) fclose(file);
}

__attribute__((visibility("default"))) ssize_t preadv(int descriptor, const struct iovec *pieces, int count,
                                                      off_t offset) {
  if (changing_path != NULL) change_now();
  return syscall(SYS_preadv, descriptor, pieces, count, offset, 0);
}

__attribute__((visibility("default"))) ssize_t preadv64(int descriptor, const struct iovec *pieces, int count,
                                                        off64_t offset) {
  return preadv(descriptor, pieces, count, offset);
}

// The source that is to change, and how long it is to be then: once, while it is read.
typedef struct Change {
  const char *path;
  off_t bytes;
} Change;

static int32_t change(void *user, uint64_t done_bytes, uint64_t total_bytes) {
  Change *what = user;
  (void)done_bytes;
  (void)total_bytes;
  if (what->path != NULL && truncate(what->path, what->bytes) != 0) perror(what->path);
  what->path = NULL;
  return 0;
}

static int32_t cancel(void *user, uint64_t done_bytes, uint64_t total_bytes) {
  (void)user;
  return done_bytes * 2 > total_bytes;
}

typedef struct Heard {
  uint64_t last, backwards;
} Heard;

static int32_t hear(void *user, uint64_t done_bytes, uint64_t total_bytes) {
  Heard *heard = user;
  heard->backwards += done_bytes < heard->last || done_bytes > total_bytes;
  heard->last = done_bytes;
  return 0;
}

// Bytes that this process has read, by calls of the operating system.
static unsigned long long bytes_read(void) {
  unsigned long long bytes = 0;
  FILE *file = fopen("/proc/self/io", "r");
  if (file == NULL) return 0;
  if (fscanf(file, "rchar: %llu", &bytes) != 1) bytes = 0;
  fclose(file);
  return bytes;
}

static tandem_status seal(const char *path) {
  unsigned char header[4096];
  XXH128_canonical_t checksum;
  FILE *file = fopen(path, "r+b");
  if (file == NULL || fread(header, sizeof header, 1, file) != 1)
    return tandem_set_last_error(TANDEM_ERROR_IO, "no header of 4096 bytes");
  XXH128_canonicalFromHash(&checksum, XXH3_128bits(header + 24, sizeof header - 24));
  if (fseek(file, 8, SEEK_SET) != 0 || fwrite(&checksum, sizeof checksum, 1, file) != 1 || fclose(file) != 0)
    return tandem_set_last_error(TANDEM_ERROR_IO, "cannot write");
  return TANDEM_OK;
}

static tandem_status encode(int32_t world, tandem_context *context, int count, char **words) {
  tandem_files_encode_options options = {.struct_bytes = sizeof options};
  const char *folder = words[4];
  const int odd = count > 6 && atoi(words[5]) == rank;
  options.source_path = words[0];
  options.k = (uint32_t)atoi(words[1]);
  options.m = (uint32_t)atoi(words[2]);
  options.block_bytes = (uint32_t)atoi(words[3]);
  options.folders = &folder;
  options.folder_count = 1;
  options.force = 1;
  if (odd && strcmp(words[6], "k") == 0) ++options.k;
  if (odd && strcmp(words[6], "name") == 0) options.name = "other";
  if (odd && strcmp(words[6], "source") == 0) options.source_path = "/nonexistent/file";
  if (odd && strcmp(words[6], "struct") == 0) options.struct_bytes = 3;
  Change how = {words[0], 5};
  if (odd && strcmp(words[6], "grow") == 0) how.bytes = 100 << 20;
  if (odd && (strcmp(words[6], "cut") == 0 || strcmp(words[6], "grow") == 0)) {
    options.progress = change;
    options.progress_user = &how;
  }
  if (odd && strcmp(words[6], "cancel") == 0) options.progress = cancel;
  Heard heard = {0, 0};
  if (options.progress == NULL) {
    options.progress = hear;
    options.progress_user = &heard;
  }
  const unsigned long long before = bytes_read();
  tandem_files_result result = {.struct_bytes = sizeof result};
  const tandem_status status =
      tandem_mpi_encode(world, odd && strcmp(words[6], "context") == 0 ? NULL : context, &options, &result);
  if (status != TANDEM_OK) return status;
  add("system_read", bytes_read() - before);
  add("backwards", heard.backwards);
  add("all", result.read_bytes);
  return status;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  const char *file_bytes = getenv("JOB_FILE_BYTES");
  if (file_bytes != NULL) {
    const struct rlimit limit = {strtoull(file_bytes, NULL, 10), RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int32_t world = MPI_Comm_c2f(MPI_COMM_WORLD);
  tandem_context_options options = {.struct_bytes = sizeof options, .backend = "cpu", .thread_count = 1};
  tandem_context *context = NULL;
  tandem_status status = tandem_context_create(&options, &context);
  status = tandem_mpi_agree(world, status);
  if (status == TANDEM_OK && strcmp(argv[1], "protect") == 0) status = protect(world, context, argc - 2, argv + 2);
  if (status == TANDEM_OK && strcmp(argv[1], "change") == 0) {
    changing_how = argv[3];
    if (rank == atoi(argv[2])) changing_path = of_rank(argv[10]);
    status = protect(world, context, argc - 4, argv + 4);
  }
  if (status == TANDEM_OK && strcmp(argv[1], "verify") == 0) status = verify(world, context, argv[2]);
  if (status == TANDEM_OK && strcmp(argv[1], "salvage") == 0) status = salvage(world, context, argv[2]);
  if (status == TANDEM_OK && strcmp(argv[1], "repair") == 0) status = repair(world, context, argv[2]);
  if (status == TANDEM_OK && strcmp(argv[1], "recover") == 0) status = recover(world, context, argv + 2);
  if (status == TANDEM_OK && strcmp(argv[1], "encode") == 0) status = encode(world, context, argc - 2, argv + 2);
  if (status == TANDEM_OK && strcmp(argv[1], "seal") == 0) status = seal(argv[2]);
  if (status == TANDEM_OK && strcmp(argv[1], "agree") == 0)
    status = tandem_mpi_agree(
        world, rank == atoi(argv[2]) ? tandem_set_last_error(TANDEM_ERROR_TOO_LARGE, "a test") : TANDEM_OK);
  if (status == TANDEM_OK && strcmp(argv[1], "none") == 0) {
    const int32_t none[] = {MPI_Comm_c2f(MPI_COMM_NULL), -1, 1 << 20};
    for (int i = 0; i < 3; ++i)
      if (tandem_mpi_agree(none[i], TANDEM_OK) == TANDEM_ERROR_INVALID_ARGUMENT) add("refused", i);
  }
  if (status == TANDEM_OK && strcmp(argv[1], "threads") == 0) {
    uint32_t count = 0;
    status = tandem_mpi_thread_count(world, &count);
    add("threads", count);
  }
  printf("%d %s%s | %s\n", rank, tandem_status_name(status), line,
         status == TANDEM_OK ? "" : tandem_last_error_message());
  fflush(stdout);
  tandem_context_destroy(context);
  MPI_Finalize();
  return 0;
}
