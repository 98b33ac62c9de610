# MPI's C functions, for libtandem_mpi and tandem-mpi alone. Neither a program that links that library nor one that includes
# its header needs MPI's own headers for it.

find_package(MPI QUIET COMPONENTS C)
if(NOT MPI_C_FOUND)
  tandem_left_out("libtandem_mpi and tandem-mpi"
    "MPI is not installed (Debian, Ubuntu: apt-get install libopenmpi-dev openmpi-bin)")
endif()
