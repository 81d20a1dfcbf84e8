/* Which transport a job has. */
#include "fabric/sim.h"
#include "fabric/transport.h"

#include <string.h>

ls_status ls_transport_choose(const ls_cluster_options *options, const ls_transport_table **out)
{
    const char *name = options->transport;
    if (!memchr(name, '\0', sizeof(options->transport)))
        return ls_fail(LS_ERR_INVALID, "the transport's name has no end within its %zu characters",
                       sizeof(options->transport));
    bool any = name[0] == '\0' || strcmp(name, "auto") == 0;
    if (ls_sim_self() >= 0) /* this thread is a simulated worker */
        *out = &ls_transport_sim;
    else if (strcmp(name, ls_transport_tcp.name) == 0 || (any && options->rendezvous[0]))
        *out = &ls_transport_tcp;
    else if (any || strcmp(name, ls_transport_shm.name) == 0)
        *out = &ls_transport_shm;
    else if (strcmp(name, ls_transport_unix.name) == 0)
        *out = &ls_transport_unix;
    else
        return ls_fail(LS_ERR_INVALID, "the transport \"%s\" is not known: there are auto, shm, tcp and unix", name);
    return LS_OK;
}
