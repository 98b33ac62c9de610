# MPI's C functions, for libtandem_mpi and tandem-mpi alone. Neither a program that links that library nor one that includes
# its header needs MPI's own headers for it.

if(NOT TANDEM_MPI STREQUAL OFF)
  find_package(MPI QUIET COMPONENTS C)
endif()
tandem_needs(MPI "libtandem_mpi and tandem-mpi"
  "MPI is not installed (Debian, Ubuntu: apt-get install libopenmpi-dev openmpi-bin)" MPI_C_FOUND)
