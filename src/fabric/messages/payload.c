#include "fabric/messages/payload.h"

#include <stdatomic.h>
#include <stdlib.h>

struct ls_payload {
    atomic_int users;
    size_t size;
    void *bytes;
};

ls_status ls_payload_make(size_t bytes, ls_payload **out)
{
    ls_payload *p = malloc(sizeof(*p));
    void *data = bytes <= SIZE_MAX - 64 ? aligned_alloc(64, (bytes + 64) / 64 * 64) : NULL;
    if (!p || !data) {
        free(p);
        free(data);
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes to send or receive", bytes);
    }
    p->size = bytes;
    p->bytes = data;
    atomic_init(&p->users, 1);
    *out = p;
    return LS_OK;
}

ls_payload *ls_payload_keep(ls_payload *p)
{
    if (p)
        atomic_fetch_add(&p->users, 1);
    return p;
}

void ls_payload_drop(ls_payload *p)
{
    if (!p || atomic_fetch_sub(&p->users, 1) > 1)
        return;
    free(p->bytes);
    free(p);
}

void *ls_payload_bytes(ls_payload *p)
{
    return p->bytes;
}

size_t ls_payload_size(const ls_payload *p)
{
    return p->size;
}
