/* SPDX-License-Identifier: Apache-2.0 */
/* A computation that survives the loss of ranks. Each rank keeps its state in a mapped file, for instance in /dev/shm,
 * and protects a checkpoint of it at intervals. A restarted job continues from the last checkpoint, even if a node came
 * back empty.
 *
 *     mpicc checkpoint.c -o checkpoint $(pkg-config --cflags --libs tandem-mpi)
 *     mpirun -n 4 ./checkpoint /dev/shm/state 30         30 steps, then the sum over all ranks
 *
 * Start it again with more steps after removing /dev/shm/state/rank-2: rank 2's state is rebuilt from the others. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tandem/mpi.h>
#include <unistd.h>
#include "tandem/tools.h"

enum { kNumbers = 1 << 16, kStepsBetween = 10 };

typedef struct State {
  uint64_t step;
  uint64_t numbers[kNumbers];
} State;

static int rank;

static void need(tandem_status status, const char *what) { /* all ranks have the same status */
  if (status == TANDEM_OK) return;
  if (rank == 0) fprintf(stderr, "%s: %s\n", what, tandem_last_error_message());
  MPI_Finalize();
  exit(1);
}

/* A map of a file; what is not in it yet is zeros. */
static State *map_state(const char *path) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(State)) != 0) return NULL;
  State *state = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return state == MAP_FAILED ? NULL : state;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int32_t world = MPI_Comm_c2f(MPI_COMM_WORLD);
  const char *root = argc > 1 ? argv[1] : "/dev/shm/state";
  const uint64_t last = argc > 2 ? strtoull(argv[2], NULL, 10) : 30;
  int ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  uint32_t threads = 1;
  need(tandem_mpi_thread_count(world, &threads), "threads");
  tandem_context_options how = {.struct_bytes = sizeof how, .thread_count = threads};
  tandem_context *context = NULL;
  need(tandem_mpi_agree(world, tandem_context_create(&how, &context)), "context");

  char folder[4096], parity[4200], paths[2][4200];
  snprintf(folder, sizeof folder, "%s/rank-%d", root, rank);
  snprintf(parity, sizeof parity, "%s/parity", folder);
  for (int i = 0; i < 2; ++i) snprintf(paths[i], sizeof paths[i], "%s/checkpoint-%d", folder, i);
  mkdir(root, 0700);
  mkdir(folder, 0700);

  /* Two files take turns, each with parity of its own: while one is written, the other one can be recovered. Both are
   * recovered; the later step counts. */
  static const char *const names[2] = {"state-0", "state-1"};
  State *now = calloc(1, sizeof *now);
  need(tandem_mpi_agree(world, now != NULL ? TANDEM_OK : tandem_set_last_error(TANDEM_ERROR_OUT_OF_MEMORY, "state")),
       "state");
  uint32_t lost = 0;
  for (int i = 0; i < 2; ++i) {
    tandem_mpi_recover_options back = {.struct_bytes = sizeof back, .folder = parity, .name = names[i], .force = 1};
    tandem_mpi_recover_result found = {.struct_bytes = sizeof found};
    const tandem_status status = tandem_mpi_recover(world, context, &back, &found);
    if (status == TANDEM_ERROR_NOT_RECOVERABLE) continue; /* there is none, or it is lost */
    need(status, "recover");
    State *kept = map_state(paths[i]);
    need(tandem_mpi_agree(world, kept != NULL ? TANDEM_OK : tandem_set_last_error(TANDEM_ERROR_IO, paths[i])), "map");
    uint64_t step = 0; /* the same on all ranks, unless the files are not this program's */
    MPI_Allreduce(&kept->step, &step, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    if (step > now->step) {
      *now = *kept;
      now->step = step;
      lost = found.lost_count;
    }
    munmap(kept, sizeof *kept);
  }
  if (now->step != 0 && rank == 0)
    printf("step %llu recovered, %u ranks were lost\n", (unsigned long long)now->step, lost);

  while (now->step < last) {
    for (int i = 0; i < kNumbers; ++i) now->numbers[i] = now->numbers[i] * 3 + (uint64_t)(rank + i);
    if (++now->step % kStepsBetween != 0) continue;
    const int turn = (int)(now->step / kStepsBetween % 2);
    const char *file = paths[turn];
    State *copy = map_state(file);
    need(tandem_mpi_agree(world, copy != NULL ? TANDEM_OK : tandem_set_last_error(TANDEM_ERROR_IO, file)), "map");
    *copy = *now;
    munmap(copy, sizeof *copy);
    tandem_mpi_protect_options protect = {.struct_bytes = sizeof protect, .k = (uint32_t)ranks - 1, .m = 1};
    protect.files = &file;
    protect.file_count = 1;
    protect.folder = parity;
    protect.name = names[turn];
    need(tandem_mpi_protect(world, context, &protect, NULL), "protect");
  }

  unsigned long long mine = 0, all = 0;
  for (int i = 0; i < kNumbers; ++i) mine += now->numbers[i];
  MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("step %llu, sum %llu\n", (unsigned long long)now->step, all);
  tandem_context_destroy(context);
  MPI_Finalize();
  return 0;
}
