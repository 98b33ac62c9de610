// SPDX-License-Identifier: Apache-2.0
// Times tandem_mpi_protect: protect_time K M FOLDER. Each rank protects FOLDER/RANK/data, with one thread.
#include <mpi.h>
#include <cstdio>
#include <cstdlib>

#include "tandem/mpi.h"

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 4) return 2;
  char file[4096], folder[4096];
  snprintf(file, sizeof file, "%s/%d/data", argv[3], rank);
  snprintf(folder, sizeof folder, "%s/%d/parity", argv[3], rank);
  const char *files[] = {file};
  tandem_context_options how = {.struct_bytes = sizeof how, .backend = "cpu", .thread_count = 1};
  tandem_context *context = NULL;
  if (tandem_context_create(&how, &context) != TANDEM_OK) return 3;
  tandem_mpi_protect_options options = {.struct_bytes = sizeof options};
  options.k = (uint32_t)atoi(argv[1]);
  options.m = (uint32_t)atoi(argv[2]);
  options.matrix = TANDEM_MATRIX_BACKBLAZE;
  options.name = "state";
  options.folder = folder;
  options.files = files;
  options.file_count = 1;
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  if (tandem_mpi_protect(MPI_Comm_c2f(MPI_COMM_WORLD), context, &options, NULL) != TANDEM_OK) {
    fprintf(stderr, "%s\n", tandem_last_error_message());
    return 4;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("seconds=%.6f\n", MPI_Wtime() - began);
  tandem_context_destroy(context);
  MPI_Finalize();
  return 0;
}
