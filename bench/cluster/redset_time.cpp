// SPDX-License-Identifier: Apache-2.0
// Times redset_apply (github.com/ECP-VeloC/redset) of the scheme RS: redset_time SET_SIZE M FOLDER. Each rank protects
// FOLDER/RANK/data.
#include <mpi.h>
#define REDSET_ENABLE_MPI  // its functions for jobs
#include <redset.h>
#include <cstdio>
#include <cstdlib>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 4 || redset_init() != REDSET_SUCCESS) return 2;
  char domain[32], file[4096], prefix[4096];
  snprintf(domain, sizeof domain, "%d", rank);
  snprintf(file, sizeof file, "%s/%d/data", argv[3], rank);
  snprintf(prefix, sizeof prefix, "%s/%d/parity", argv[3], rank);
  const char *files[] = {file};
  redset set = NULL;
  if (redset_create_rs(MPI_COMM_WORLD, domain, atoi(argv[1]), atoi(argv[2]), &set) != REDSET_SUCCESS) return 3;
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  if (redset_apply(1, files, prefix, set) != REDSET_SUCCESS) return 4;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("seconds=%.6f\n", MPI_Wtime() - began);
  redset_unapply(prefix, set);
  redset_delete(&set);
  redset_finalize();
  MPI_Finalize();
  return 0;
}
