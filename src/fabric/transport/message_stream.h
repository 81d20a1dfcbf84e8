/* Byte streams over a library that passes messages (mpi.c, ucx.c). Bytes are copied into slots,
 * sent in order; as many receives are posted. So memory is bounded, and nothing is allocated in
 * use. An empty message ends a connection. There is no descriptor to poll: a waiting thread looks
 * again and again, with growing pauses. */
#ifndef LS_FABRIC_TRANSPORT_MESSAGE_STREAM_H
#define LS_FABRIC_TRANSPORT_MESSAGE_STREAM_H

#include "fabric/transport/transport.h"

#define LS_MESSAGE_SLOTS 4
#define LS_MESSAGE_BYTES (128 << 10) /* bytes of a slot */

typedef struct ls_message_stream ls_message_stream;

/* All return at once. A request that is NULL is done. */
typedef struct ls_message_library {
    ls_status (*send)(ls_message_stream *connection, const void *data, size_t bytes, void **request);
    ls_status (*receive)(ls_message_stream *connection, void *data, size_t room, void **request);
    ls_status (*test)(ls_message_stream *connection, void **request, bool receives, bool *done, size_t *bytes);
    void (*cancel)(ls_message_stream *connection, void **request); /* for receives only */
    void (*progress)(ls_transport *transport);                     /* moves data; NULL: `test` does */
    bool (*is_called)(ls_transport *transport);                    /* there is an incoming call */
    /* NULL: it is open from the start. */
    ls_status (*prepare)(ls_message_stream *connection);
    /* Returns whether the peer is gone without an end message; NULL: unknown. */
    bool (*is_gone)(ls_message_stream *connection);
} ls_message_library;

typedef struct ls_message_slot {
    void *request;
    bool busy; /* being sent; receive: posted, not complete */
} ls_message_slot;

struct ls_message_stream {
    const ls_transport_table *table;
    const ls_message_library *library;
    ls_transport *transport;
    int rank;
    unsigned out_tag, in_tag;
    void *inner; /* data of the library */
    bool open;   /* false: the library cannot carry data yet */
    bool ended;  /* no more bytes will arrive */
    /* Bytes that arrived before can still be read. */
    bool write_failed;
    ls_message_slot out[LS_MESSAGE_SLOTS], in[LS_MESSAGE_SLOTS];
    int out_next, in_next;
    size_t in_at, in_bytes; /* in the slot being read */
    char *memory;
};

ls_status ls_message_stream_make(const ls_transport_table *table, const ls_message_library *library,
                                 ls_message_stream **out);
ls_status ls_message_stream_open(ls_message_stream *connection); /* posts the receives */
/* Sends the end message and waits a while for pending transfers. false: some remain, and the
 * connection must not be freed. */
bool ls_message_stream_end(ls_message_stream *connection);
void ls_message_stream_free(ls_message_stream *connection);

ls_status ls_message_stream_write(ls_connection *connection, const struct iovec *parts, int count, size_t *moved);
ls_status ls_message_stream_read(ls_connection *connection, const struct iovec *parts, int count, size_t *moved);
ls_status ls_message_streams_wait(ls_transport *transport, const ls_message_library *library, ls_want *wants, int count,
                                  double seconds);

#endif
