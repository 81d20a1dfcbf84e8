/* Availability of MPI, for workers that mpirun started. */
#ifndef LS_FABRIC_TRANSPORT_MPI_H
#define LS_FABRIC_TRANSPORT_MPI_H

#include "fabric/transport/transport.h"

/* Loads the MPI library, if there is one. */
bool ls_mpi_is_there(void);

#endif
