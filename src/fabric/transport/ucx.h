/* Availability of UCX. */
#ifndef LS_FABRIC_TRANSPORT_UCX_H
#define LS_FABRIC_TRANSPORT_UCX_H

#include "fabric/transport/transport.h"

/* Returns whether this library was built with UCX's header and UCX can be loaded; otherwise *why
 * has the reason. */
bool ls_ucx_is_there(const char **why);

#endif
