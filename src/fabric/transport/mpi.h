/* Whether workers that mpirun started can meet over MPI. */
#ifndef LS_FABRIC_TRANSPORT_MPI_H
#define LS_FABRIC_TRANSPORT_MPI_H

#include "fabric/transport/transport.h"

/* Loads the library, if it is there. */
bool ls_mpi_is_there(void);

#endif
