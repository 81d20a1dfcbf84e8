/* libnccl.so.2 of the stand-in: sends, receives and all-gathers between stand-in devices, as copies
 * of the stand-in's driver. What is unkind: calls outside of a group, a send without its receive or
 * of another size, a communicator with another device's stream, and an all-gather that some rank is
 * missing from are misuses, and fail. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, UNHANDLED_CUDA = 1, INVALID_USAGE = 5, MOST = 64 };

typedef struct comm {
    int rank, size;
    void *context;
    struct comm **all; /* by rank, shared */
    int *left;         /* of them, that were not given back */
} comm;

typedef enum what { SEND, RECEIVE, GATHER } what;

typedef struct call {
    what what;
    comm *comm;
    void *stream;
    const char *from;
    char *to;
    size_t bytes;
    int peer;
    int done;
} call;

static __thread call *calls;
static __thread int call_count, depth;
static __thread int group_error; /* of a call in it: its end does nothing, and fails */

int cuMemcpyPeerAsync(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes, void *stream);
int cuStreamSynchronize(void *stream);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);

API int ncclGetVersion(int *version)
{
    *version = 22703;
    return SUCCESS;
}

API int ncclCommInitAll(comm **out, int count, const int *devices)
{
    int error = standin_call("ncclCommInitAll");
    comm **all = error == SUCCESS ? calloc((size_t)count, sizeof *all) : NULL;
    int *left = calloc(1, sizeof *left);
    if (!all || !left) {
        free(left);
        return error ? error : UNHANDLED_CUDA;
    }
    *left = count;
    for (int i = 0; i < count; i++) {
        out[i] = all[i] = calloc(1, sizeof **all);
        *all[i] = (comm){ i, count, standin_context(devices[i]), all, left };
        for (int k = 0; k < i; k++)
            if (devices[k] == devices[i])
                standin_misuse();
    }
    standin_hold(count);
    return SUCCESS;
}

static int give_back(comm *c)
{
    standin_hold(-1);
    if (--*c->left == 0) {
        free(c->left);
        free(c->all);
    }
    free(c);
    return SUCCESS;
}

API int ncclCommDestroy(comm *c)
{
    return give_back(c);
}

API int ncclCommAbort(comm *c)
{
    return give_back(c);
}

API int ncclCommGetAsyncError(comm *c, int *error)
{
    (void)c;
    *error = SUCCESS;
    return SUCCESS;
}

API int ncclGroupStart(void)
{
    int error = standin_call("ncclGroupStart");
    depth += error == SUCCESS;
    group_error = depth > 1 ? group_error : SUCCESS;
    return error;
}

static int add(const char *name, call c, int type)
{
    int error = standin_call(name);
    if (error != SUCCESS)
        return group_error = error;
    if (depth == 0 || type != 0 || standin_context_of(c.stream) != c.comm->context) {
        standin_misuse();
        return INVALID_USAGE;
    }
    calls = realloc(calls, (size_t)(call_count + 1) * sizeof *calls);
    calls[call_count++] = c;
    return SUCCESS;
}

API int ncclSend(const void *from, size_t bytes, int type, int peer, comm *c, void *stream)
{
    return add("ncclSend",
               (call){ .what = SEND, .comm = c, .stream = stream, .from = from, .bytes = bytes, .peer = peer }, type);
}

API int ncclRecv(void *to, size_t bytes, int type, int peer, comm *c, void *stream)
{
    return add("ncclRecv",
               (call){ .what = RECEIVE, .comm = c, .stream = stream, .to = to, .bytes = bytes, .peer = peer }, type);
}

API int ncclAllGather(const void *from, void *to, size_t bytes, int type, comm *c, void *stream)
{
    return add("ncclAllGather",
               (call){ .what = GATHER, .comm = c, .stream = stream, .from = from, .to = to, .bytes = bytes }, type);
}

/* Behind all that the sender's stream has to do, and before anything else of the receiver's. */
static int move(const call *from, const call *to, char *at)
{
    int error = cuCtxPushCurrent_v2(from->comm->context);
    if (error == SUCCESS) {
        error = cuStreamSynchronize(from->stream);
        cuCtxPopCurrent_v2(NULL);
    }
    if (error != SUCCESS || cuCtxPushCurrent_v2(to->comm->context) != SUCCESS)
        return UNHANDLED_CUDA;
    error = cuMemcpyPeerAsync((uint64_t)(uintptr_t)at, to->comm->context, (uint64_t)(uintptr_t)from->from,
                              from->comm->context, from->bytes, to->stream);
    if (error == SUCCESS)
        error = cuStreamSynchronize(to->stream);
    cuCtxPopCurrent_v2(NULL);
    return error == SUCCESS ? SUCCESS : UNHANDLED_CUDA;
}

/* The first receive that a send is for. */
static int do_send(call *s)
{
    for (int i = 0; i < call_count; i++) {
        call *r = &calls[i];
        if (r->what != RECEIVE || r->done || r->comm->all != s->comm->all || r->comm->rank != s->peer ||
            r->peer != s->comm->rank)
            continue;
        r->done = 1;
        return r->bytes == s->bytes ? move(s, r, r->to) : INVALID_USAGE;
    }
    return INVALID_USAGE;
}

/* The nth all-gather of each rank are one. */
static int do_gather(call *own)
{
    call *parts[MOST] = { NULL };
    int error = SUCCESS;
    for (int i = 0; i < call_count; i++) {
        call *c = &calls[i];
        if (c->what == GATHER && !c->done && c->comm->all == own->comm->all && !parts[c->comm->rank])
            parts[c->comm->rank] = c;
    }
    for (int i = 0; i < own->comm->size; i++)
        if (!parts[i] || parts[i]->bytes != own->bytes)
            return INVALID_USAGE;
    for (int i = 0; i < own->comm->size; i++)
        for (int k = 0; k < own->comm->size && error == SUCCESS; k++) {
            char *at = parts[k]->to + (size_t)i * own->bytes;
            if (i != k)
                error = move(parts[i], parts[k], at);
            else if (at != parts[i]->from)
                error = INVALID_USAGE; /* only in place, here */
        }
    for (int i = 0; i < own->comm->size; i++)
        parts[i]->done = 1;
    return error;
}

API int ncclGroupEnd(void)
{
    int error = standin_call("ncclGroupEnd"), usage = 0;
    if (--depth > 0)
        return error;
    error = group_error ? group_error : error;
    for (int i = 0; i < call_count && error == SUCCESS; i++)
        if (!calls[i].done && calls[i].what != RECEIVE) {
            error = calls[i].what == SEND ? do_send(&calls[i]) : do_gather(&calls[i]);
            calls[i].done = 1;
        }
    for (int i = 0; i < call_count && error == SUCCESS; i++)
        usage |= !calls[i].done;
    if (usage || error == INVALID_USAGE)
        standin_misuse();
    free(calls);
    calls = NULL;
    call_count = 0;
    return error == SUCCESS && usage ? INVALID_USAGE : error;
}
