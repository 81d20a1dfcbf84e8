/* Agreements between the workers of a cluster, apart from a run's values. */
#include "run/peers.h"

#include <stdlib.h>
#include <string.h>

bool ls_peers_again(ls_peers *peers)
{
    bool again = peers && peers->again;
    if (again)
        peers->again = false;
    return again;
}

bool ls_peers_has(const ls_peers *peers, int rank)
{
    for (int i = 0; i < peers->count; i++)
        if (peers->members[i] == rank)
            return true;
    return false;
}

int ls_peers_place(const ls_peers *peers)
{
    int place = 0;
    while (place < peers->count && peers->members[place] != peers->rank)
        place++;
    return place;
}

ls_status ls_peers_share(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    ls_status status;
    do {
        status = peers->exchange(peers, tag, what, pieces, count);
        if (status == LS_OK)
            status = peers->commit(peers, (uint64_t[2]){ tag, 0 }, what);
    } while (status != LS_OK && ls_peers_again(peers));
    return status;
}

/* Requests travel with a commit: no separate exchange is needed. */
ls_status ls_peers_any(ls_peers *peers, const char *what, bool *flag)
{
    if (!peers)
        return LS_OK;
    peers->granted &= ~(uint64_t)LS_REQUEST_STOP; /* Clears earlier decisions. */
    ls_peers_stops(peers, flag);
    LS_TRY(ls_peers_share(peers, 2, what, NULL, 0));
    ls_peers_stops(peers, flag);
    return LS_OK;
}

void ls_peers_stops(ls_peers *peers, bool *flag)
{
    if (!peers)
        return;
    if (*flag)
        peers->requests |= LS_REQUEST_STOP;
    *flag = peers->granted & LS_REQUEST_STOP;
}

bool ls_peers_is_server(const ls_peers *peers, int rank)
{
    return rank >= peers->first_server && rank < peers->first_server + peers->servers;
}

int ls_peers_workers(const ls_peers *peers)
{
    int count = 0;
    for (int i = 0; i < peers->count; i++)
        count += !ls_peers_is_server(peers, peers->members[i]);
    return count;
}

const uint32_t *ls_peers_weights(const ls_peers *peers, uint32_t room[LS_MOST_PEERS])
{
    const uint32_t *weights = peers->weights && peers->weighed == peers->generation ? peers->weights : NULL;
    int workers = 0, count = peers->count + peers->joins;
    if (peers->servers == 0)
        return weights;
    for (int i = 0; i < count; i++) {
        int rank = i < peers->count ? peers->members[i] : peers->rank;
        room[i] = ls_peers_is_server(peers, rank) ? 0 : weights && weights[i] > 0 ? weights[i] : 1;
        workers += room[i] > 0;
    }
    return workers > 0 && workers < count ? room : weights;
}

/* The message contains the membership generation in which it was made: in a later one shares are
 * even again, on every worker. */
ls_status ls_peers_weigh(ls_peers *peers, const uint32_t *weights)
{
    size_t bytes = ((size_t)peers->size + 1) * sizeof(*weights);
    uint32_t *message = calloc((size_t)peers->size + 1, sizeof(*message));
    ls_status status;
    if (!message)
        return ls_fail(LS_ERR_MEMORY, "no memory for the lanes of %d workers", peers->size);
    if (weights && peers->members[0] == peers->rank) {
        message[0] = peers->generation;
        memcpy(message + 1, weights, (size_t)peers->count * sizeof(*weights));
    }
    do {
        ls_piece piece = { peers->members[0], LS_ALL_WORKERS, message, bytes };
        status = peers->exchange(peers, 3, "the lanes of workers", &piece, 1);
        if (status == LS_OK)
            status = peers->commit(peers, (uint64_t[2]){ 3, 0 }, "the lanes of workers");
    } while (status != LS_OK && ls_peers_again(peers));
    if (status == LS_OK && peers->weights && message[0] > 0) {
        memcpy(peers->weights, message + 1, bytes - sizeof(*weights));
        peers->weighed = message[0];
        peers->split++;
    }
    free(message);
    return status;
}
