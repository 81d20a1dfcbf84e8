/* The record of an asynchronous training: which gradients each parameter server applied, and in
 * which order.
 *
 * Server 0 writes FILE, server s writes FILE.s (ls_record_path). A file has lines of JSON: a head
 * that describes the job, then one record for each push. Each line ends in its own checksum, so
 * that incomplete and changed lines are detected:
 *
 *     {"lockstep_record":1,"id":"...","server":0,"servers":2,"staleness":4, ... ,"crc":"0a1b2c3d"}
 *     {"version":1,"worker":2,"epoch":0,"batch":0,"run":0,"read":[0,0],"rate":0.001,
 *      "sha256":"...","crc":"..."}    (one line)
 *
 * From these lines and the job, a replay computes every bit of the training: a gradient is a
 * function of its batch and of the versions that were read, and a server's state is a function of
 * the gradients it applied, in this order. */
#ifndef LS_TRAIN_SERVER_RECORD_H
#define LS_TRAIN_SERVER_RECORD_H

#include <limits.h>

#include "base/append.h"
#include "base/json.h"

#define LS_MAX_SERVERS 64

/* Describes the job of a record. The heads of a job's servers differ only in server, version and
 * sha256. */
typedef struct ls_record_head {
    char id[33]; /* hex digits, unique to this run: files of two runs are never mixed */
    int server, servers;
    int64_t staleness;  /* staleness bound: most versions that a push may lag */
    int64_t accumulate; /* pushes per version, at least 1 */
    bool scale_rate;    /* divide the learning rate of a push by its staleness */
    /* First version of this server: 0, or the version of the checkpoint it resumed from. */
    int64_t version;
    char sha256[65]; /* SHA-256 of its shard at that version */
    /* References owned by the creator of the head; in a head from ls_record_read, by the record. */
    /* An object, for example job, fit and bits of ls_facts_make; see ls_record_compare. */
    json_t *job;
    json_t *own; /* what the program needs to build the job again; NULL: nothing */
} ls_record_head;

/* One gradient that a server applied, or accumulated with others into one version. */
typedef struct ls_record_push {
    int64_t version; /* version it contributes to; the first is head.version + 1 */
    int worker;
    int64_t epoch, batch; /* epoch and batch index, both from 0 */
    int64_t run;          /* random counter of the step */
    const int64_t *read;  /* [servers]: the versions from which its gradient was computed */
    double rate;          /* learning rate before scaling; the last push of a version decides */
    /* SHA-256 of the shard (variables, then slots) at that version; "": the version needs more
     * pushes */
    char sha256[65];
} ls_record_push;

/* Sets `out` to FILE for server 0, to FILE.s for server s. */
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

/* Creates the file, or replaces it, and writes the head. */
ls_status ls_record_create(ls_record_writer *writer, const char *path, const ls_record_head *head);

/* Continues the file of a server that restarted. Cuts off an incomplete last line, versions after
 * `upto` (-1: none), and pushes of an incomplete version, which the server applies again. If the
 * file belongs to another job or run, leaves it unchanged and returns LS_ERR_STATE; head->id ""
 * accepts any run. The server must be at version writer->version then. */
ls_status ls_record_continue(ls_record_writer *writer, const char *path, const ls_record_head *head, int64_t upto);

/* Writes one record immediately. If a write fails (disk full), returns LS_ERR_IO, and so do all
 * later calls: the file ends with a complete record. */
ls_status ls_record_add(ls_record_writer *writer, const ls_record_push *push);

/* Syncs the file to disk: all records so far survive a power failure. */
ls_status ls_record_sync(ls_record_writer *writer);
ls_status ls_record_close(ls_record_writer *writer);

/* ---- Reading ---- */

typedef struct ls_record {
    ls_record_head head;
    ls_record_push *pushes; /* the last ones may belong to an incomplete version */
    size_t count;
    int64_t *offsets; /* byte offset of each push in the file, for messages */
    int64_t *reads;   /* [count * servers] */
    int64_t bytes;    /* size of the complete lines */
    int64_t torn;     /* bytes after the last complete line: an incomplete one; 0: none */
    int64_t version;  /* last complete version */
} ls_record;

/* Reads and checks a file: numbers are in range, versions have no gaps, and no push read a version
 * that its own server had not made. A bad record is LS_ERR_DATA, with file, record and offset in
 * the message; an incomplete last record is accepted (see torn). Does not compare the files of
 * several servers: see replay_schedule.h. */
ls_status ls_record_read(const char *path, ls_record *out);
void ls_record_free(ls_record *record);

/* Fails if two heads do not describe the same job, or with same_run, the same run. The message
 * lists the differing fields with both values; `what` and `other` name the two heads in it. */
ls_status ls_record_compare(const ls_record_head *a, const char *what, const ls_record_head *b, const char *other,
                            bool same_run);

#endif
