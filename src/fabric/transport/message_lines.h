/* Lines of bytes over a library that passes messages (mpi.c, ucx.c). What is written is copied into slots, which go one
 * after the other; as many receives are posted in advance. So a line has a bounded memory, and nothing is allocated
 * while it is used. A message without bytes is the end of a line.
 *
 * Such libraries have nothing that could be polled: who waits looks again and again, at first without a pause, later
 * with longer and longer ones. */
#ifndef LS_FABRIC_TRANSPORT_MESSAGE_LINES_H
#define LS_FABRIC_TRANSPORT_MESSAGE_LINES_H

#include "fabric/transport/transport.h"

#define LS_MESSAGE_SLOTS 4
#define LS_MESSAGE_BYTES (128 << 10) /* of a slot */

typedef struct ls_message_line ls_message_line;

/* What the library does. Each returns at once. A request that was given back, or NULL, is done. */
typedef struct ls_message_library {
    ls_status (*send)(ls_message_line *line, const void *data, size_t bytes, void **request);
    ls_status (*receive)(ls_message_line *line, void *data, size_t room, void **request);
    ls_status (*test)(ls_message_line *line, void **request, bool receives, bool *done, size_t *bytes);
    void (*cancel)(ls_message_line *line, void **request); /* of a receive */
    void (*progress)(ls_transport *transport);             /* moves what is under way; NULL: each test does */
    bool (*is_called)(ls_transport *transport);            /* somebody is at the door */
    ls_status (*prepare)(ls_message_line *line); /* goes on with opening a line; NULL: lines are open from the first */
    /* Whether the other side is gone, though it did not say so; NULL: that is not known. */
    bool (*is_gone)(ls_message_line *line);
} ls_message_library;

typedef struct ls_message_slot {
    void *request;
    bool busy; /* under way; of a receive: posted, and not there */
} ls_message_slot;

struct ls_message_line {
    const ls_transport_table *table;
    const ls_message_library *library;
    ls_transport *transport;
    int rank;
    unsigned out_tag, in_tag;
    void *inner; /* the library's own */
    bool open;   /* false: the library is not ready to carry anything yet */
    bool ended;  /* nothing more comes */
    bool deaf;   /* nothing can be sent any more; what came before can still be read */
    ls_message_slot out[LS_MESSAGE_SLOTS], in[LS_MESSAGE_SLOTS];
    int out_next, in_next;
    size_t in_at, in_bytes; /* of the slot that is being read */
    char *memory;
};

ls_status ls_message_line_make(const ls_transport_table *table, const ls_message_library *library,
                               ls_message_line **out);
ls_status ls_message_line_open(ls_message_line *line); /* posts its receives */
/* Says the end, cancels its receives and waits a while for what is under way. false: some of it still is, and the line
 * must stay where it is. */
bool ls_message_line_end(ls_message_line *line);
void ls_message_line_free(ls_message_line *line);

ls_status ls_message_line_write(ls_connection *line, const struct iovec *parts, int count, size_t *moved);
ls_status ls_message_line_read(ls_connection *line, const struct iovec *parts, int count, size_t *moved);
ls_status ls_message_lines_wait(ls_transport *transport, const ls_message_library *library, ls_want *wants, int count,
                                double seconds);

#endif
