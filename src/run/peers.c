/* What workers of a cluster agree on beside a run's values. */
#include "run/peers.h"

#include <stdlib.h>

ls_status ls_peers_any(ls_peers *peers, const char *what, bool *flag)
{
    if (!peers)
        return LS_OK;
    char *flags = calloc((size_t)peers->size, 1);
    ls_piece *pieces = calloc((size_t)peers->size, sizeof(*pieces));
    ls_status status = flags && pieces ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to ask %d workers", peers->size);
    for (int w = 0; status == LS_OK && w < peers->size; w++)
        pieces[w] = (ls_piece){ .from = w, .data = flags + w, .bytes = 1 };
    if (status == LS_OK) {
        flags[peers->rank] = *flag;
        status = peers->exchange(peers, 2, what, pieces, (size_t)peers->size);
    }
    for (int w = 0; status == LS_OK && w < peers->size; w++)
        *flag = *flag || flags[w];
    free(flags);
    free(pieces);
    return status;
}
