# SPDX-License-Identifier: Apache-2.0
# MPI's C functions, only for libtandem_mpi and tandem-mpi. Programs that link that library or include its header need no
# MPI headers for it.

if(NOT TANDEM_MPI STREQUAL OFF)
  find_package(MPI QUIET COMPONENTS C)
endif()
tandem_needs(MPI "libtandem_mpi and tandem-mpi"
  "MPI is not installed (Debian, Ubuntu: apt-get install libopenmpi-dev openmpi-bin)" MPI_C_FOUND)
