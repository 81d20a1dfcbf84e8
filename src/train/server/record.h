/* The record of an asynchronous training: which gradients each parameter server applied, in order.
 *
 * Server 0 writes FILE, server s writes FILE.s, with lines of JSON: a head that describes the job,
 * then one record for each push. Each line ends in a checksum:
 *
 *     {"lockstep_record":1,"id":"...","server":0,"servers":2,"staleness":4, ... ,"crc":"0a1b2c3d"}
 *     {"version":1,"worker":2,"epoch":0,"batch":0,"run":0,"read":[0,0],"rate":0.001,
 *      "sha256":"...","crc":"..."}    (one line)
 *
 * A replay computes every bit from them: a gradient is a function of its batch and of the versions
 * read, and a server's state is a function of the gradients it applied, in this order. */
#ifndef LS_TRAIN_SERVER_RECORD_H
#define LS_TRAIN_SERVER_RECORD_H

#include <limits.h>

#include "base/append.h"
#include "base/json.h"

#define LS_MAX_SERVERS 64

/* The heads of a job's servers differ only in server, version and sha256. */
typedef struct ls_record_head {
    char id[33]; /* hex digits, unique to this run */
    int server, servers;
    int64_t staleness;  /* most versions that a push may lag */
    int64_t accumulate; /* pushes per version */
    bool scale_rate;    /* divide learning rates by staleness */
    int64_t version;    /* first version: 0, or that of the checkpoint it resumed from */
    char sha256[65];    /* hash of its shard at that version */
    /* References of the creator of the head, or of the ls_record. */
    json_t *job; /* job, fit and bits of ls_facts_make */
    json_t *own; /* what the program needs to build the job again; NULL: nothing */
} ls_record_head;

typedef struct ls_record_push {
    int64_t version; /* that it contributes to, from head.version + 1 */
    int worker;
    int64_t epoch, batch; /* from 0 */
    int64_t run;          /* random counter */
    const int64_t *read;  /* [servers] versions that its gradient was computed from */
    double rate;          /* before scaling; the last push of a version decides */
    char sha256[65];      /* hash of the shard at that version; "": the version needs more pushes */
} ls_record_push;

ls_status ls_record_path(const char *file, int server, char out[PATH_MAX]);

/* ---- Writing ---- */

typedef struct ls_record_writer {
    ls_append file;
    char path[PATH_MAX];
    int servers;
    int64_t version; /* last complete version in the file */
} ls_record_writer;

#define LS_RECORD_CLOSED                                                                                               \
    {                                                                                                                  \
        .file = LS_APPEND_CLOSED                                                                                       \
    }

/* Creates or replaces the file. */
ls_status ls_record_create(ls_record_writer *writer, const char *path, const ls_record_head *head);

/* Continues the file of a server that restarted and is at version writer->version. Cuts off an
 * incomplete last line, versions after `upto` (-1: none), and pushes of an incomplete version. If
 * the file belongs to another job or run, returns LS_ERR_STATE; head->id "" accepts any run. */
ls_status ls_record_continue(ls_record_writer *writer, const char *path, const ls_record_head *head, int64_t upto);

/* Writes at once. After a failed write all later calls fail, too: the file ends with a complete
 * record. */
ls_status ls_record_add(ls_record_writer *writer, const ls_record_push *push);

ls_status ls_record_sync(ls_record_writer *writer);
ls_status ls_record_close(ls_record_writer *writer);

/* ---- Reading ---- */

typedef struct ls_record {
    ls_record_head head;
    ls_record_push *pushes; /* the last ones may belong to an incomplete version */
    size_t count;
    int64_t *offsets; /* byte offset of each push, for messages */
    int64_t *reads;   /* [count * servers] */
    int64_t bytes;    /* size of the complete lines */
    int64_t torn;     /* bytes of an incomplete last line */
    int64_t version;  /* last complete version */
} ls_record;

/* Reads and checks the file of one server. A bad record is LS_ERR_DATA; an incomplete last one is
 * accepted (see torn). replay_schedule.h compares the files of several servers. */
ls_status ls_record_read(const char *path, ls_record *out);
void ls_record_free(ls_record *record);

/* Fails if two heads do not describe the same job or, with same_run, the same run. `what` and
 * `other` name the heads in the message. */
ls_status ls_record_compare(const ls_record_head *a, const char *what, const ls_record_head *b, const char *other,
                            bool same_run);

#endif
