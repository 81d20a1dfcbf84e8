/* Chooses the transport of a job. */
#include "fabric/transport/transport.h"

#include <string.h>

const ls_transport_table *(*ls_transport_for_test)(void);

ls_status ls_transport_choose(const ls_cluster_options *options, const ls_transport_table **out)
{
    const char *name = options->transport;
    if (!memchr(name, '\0', sizeof(options->transport)))
        return ls_fail(LS_ERR_INVALID, "the transport's name is not terminated within its %zu characters",
                       sizeof(options->transport));
    static const ls_transport_table *const all[] = { &ls_transport_shm, &ls_transport_unix, &ls_transport_tcp,
                                                     &ls_transport_mpi, &ls_transport_ucx };
    *out = ls_transport_for_test ? ls_transport_for_test() : NULL;
    if (*out)
        return LS_OK;
    if (name[0] == '\0' || strcmp(name, "auto") == 0)
        *out = options->rendezvous[0] ? &ls_transport_tcp : &ls_transport_shm;
    for (size_t i = 0; !*out && i < sizeof(all) / sizeof(*all); i++)
        if (strcmp(name, all[i]->name) == 0)
            *out = all[i];
    if (!*out)
        return ls_fail(LS_ERR_INVALID, "the transport \"%s\" is unknown: expected auto, shm, unix, tcp, mpi or ucx",
                       name);
    return LS_OK;
}
