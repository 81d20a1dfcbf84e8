/* The record of an asynchronous training: which gradients each parameter server applied, in its own order.
 *
 * Server 0 writes FILE, server s FILE.s (ls_record_path). A file is lines of JSON: a head that says what job it is of,
 * then one record for each push. Each line ends in a checksum of its own, so that a line that was cut short or changed
 * is known for one:
 *
 *     {"lockstep_record":1,"id":"...","server":0,"servers":2,"staleness":4, ... ,"crc":"0a1b2c3d"}
 *     {"version":1,"worker":2,"epoch":0,"batch":0,"run":0,"read":[0,0],"rate":0.001,"sha256":"...","crc":"..."}
 *
 * With these lines and the job a replay has every bit of the training: a gradient is a function of its batch and of the
 * versions that were read, and what a server holds is a function of the gradients it applied, in this order. */
#ifndef LS_TRAIN_SERVER_RECORD_H
#define LS_TRAIN_SERVER_RECORD_H

#include <limits.h>

#include "base/append.h"
#include "base/json.h"

#define LS_MAX_SERVERS 64

/* What a record is of. Servers of one job have the same but for server, version and sha256. */
typedef struct ls_record_head {
    char id[33]; /* hex digits, made for this run: files of two runs are never mixed */
    int server, servers;
    int64_t staleness;  /* bound: a push read versions at most so many behind */
    int64_t accumulate; /* pushes that make a version: 1 or more */
    bool scale_rate;    /* the learning rate is divided by the staleness of a push */
    int64_t version;    /* that this server began with: 0, or that of the checkpoint it went on from */
    char sha256[65];    /* of its part then */
    /* What differs from the job at hand is named (ls_record_compare). Owned by whoever made the head; those of
     * ls_record_read by the record. */
    json_t *job; /* an object: ls_facts_make's job, fit and bits, say */
    json_t *own; /* the program's own, or NULL: what it needs to make the job again */
} ls_record_head;

/* One gradient that a server applied, or added to others of the version it makes. */
typedef struct ls_record_push {
    int64_t version; /* that it goes into: the first is head.version + 1 */
    int worker;
    int64_t epoch, batch; /* which samples: batch of that epoch, both from 0 */
    int64_t run;          /* counter of random numbers of the step */
    const int64_t *read;  /* [servers]: the versions that its gradient was computed at */
    double rate;          /* learning rate of the update, before it is scaled; of the last push of a version */
    char sha256[65];      /* of the part (variables, then slots) at that version; "": more pushes go into it */
} ls_record_push;

/* FILE, or FILE.1 of server 1. */
ls_status ls_record_path(const char *file, int server, char out[PATH_MAX]);

/* ---- Writing ---- */

typedef struct ls_record_writer {
    ls_append file;
    char path[PATH_MAX];
    int servers;
    int64_t version; /* the last one that is whole in the file */
} ls_record_writer;

#define LS_RECORD_CLOSED                                                                                               \
    {                                                                                                                  \
        .file = LS_APPEND_CLOSED                                                                                       \
    }

/* A new file, in the place of an old one, with its head. */
ls_status ls_record_create(ls_record_writer *writer, const char *path, const ls_record_head *head);

/* A server that comes back goes on with its file: a torn last line is cut off, and so is what is behind version `upto`
 * (-1: all whole versions stay). Pushes of a version that is not whole go, too: it applies them again. A file of
 * another job or run is LS_ERR_STATE and stays as it is; head->id may be "": any run of this job. Then writer->version
 * is that of the last record; the server must be at it. */
ls_status ls_record_go_on(ls_record_writer *writer, const char *path, const ls_record_head *head, int64_t upto);

/* One record, written at once. A full disk: LS_ERR_IO at the first that fails, none is written after it, and the file
 * ends with a whole one. */
ls_status ls_record_add(ls_record_writer *writer, const ls_record_push *push);

/* Makes sure that it is on the disk: what was acknowledged behind it survives a power cut. */
ls_status ls_record_sync(ls_record_writer *writer);
ls_status ls_record_close(ls_record_writer *writer);

/* ---- Reading ---- */

typedef struct ls_record {
    ls_record_head head;
    ls_record_push *pushes; /* the last ones may be of a version that is not whole */
    size_t count;
    int64_t *offsets; /* where each begins in the file, for messages */
    int64_t *reads;   /* [count * servers] */
    int64_t bytes;    /* of whole lines */
    int64_t torn;     /* bytes behind them: a line that was cut short; 0: none */
    int64_t version;  /* the last whole one */
} ls_record;

/* Reads and checks a file: every number is within what it can be, versions follow each other without a gap, no push
 * read a version that its own server had not made. A bad record is LS_ERR_DATA with file, record and offset; a last one
 * that was cut short is no failure (torn). What several files say of each other is checked by whoever has them all. */
ls_status ls_record_read(const char *path, ls_record *out);
void ls_record_free(ls_record *record);

/* Fails with what differs, by name and with both values, when two heads are not of one job. same_run: nor of one run.
 * `what` and `other` name the two in the message. */
ls_status ls_record_compare(const ls_record_head *a, const char *what, const ls_record_head *b, const char *other,
                            bool same_run);

#endif
