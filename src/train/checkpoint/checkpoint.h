/* Checkpoints: the state of a job (state_list.c) in a folder. A fit that resumes from one continues
 * exactly as the saved one would have.
 *
 *     DIR/step-00000500/model.safetensors       variables of the model
 *                       optimizer.safetensors   optimizer slots, and large states of callbacks
 *                       state.json              everything else, and the SHA-256 of each file
 *     DIR/last, DIR/best                        symbolic links to two of them
 *
 * A checkpoint is written under a temporary name, synced and renamed; only then are old ones
 * removed. A folder named step-... is therefore always complete.
 *
 *     facts.c              describes a job, to compare it with a checkpoint
 *     state.c              makes and parses state.json
 *     files.c              writes, finds and verifies folders
 *     checkpoint_writer.c  saves in a thread while the fit runs
 *     package.c            a checkpoint as bytes, for a worker that joins (fit/state_transfer.c)
 *     checkpoint.c         public functions */
#ifndef LS_TRAIN_CHECKPOINT_CHECKPOINT_H
#define LS_TRAIN_CHECKPOINT_CHECKPOINT_H

#include <limits.h>

#include "base/fileops.h"
#include "base/json.h"
#include "data/safetensors.h"
#include "run/peers.h"
#include "train/job/job.h"
#include "train/checkpoint/state_list.h"
#include "train/job/passes.h"
#include "train/report/log.h"

#define LS_CHECKPOINT_MODEL     "model.safetensors"
#define LS_CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define LS_CHECKPOINT_STATE     "state.json"

/* ---- Description of a job (facts.c) ---- */

/* Facts that determine the steps of a fit, in addition to the state of the job. */
typedef struct ls_fit_facts {
    ls_passes *data, *validation; /* validation may be NULL */
    const ls_fit_options *options;
    const ls_function *function;
    const ls_settings *settings;
    ls_history **history;
} ls_fit_facts;

/* A job may load a checkpoint if `job` and, in a fit, `fit` are equal. `bits` holds what else
 * decides the last bits of a step. */
typedef struct ls_facts {
    json_t *job, *fit, *bits; /* fit is null outside a fit */
} ls_facts;
ls_status ls_facts_make(ls_job *job, ls_facts *out);
/* Takes ownership of `value`; fails if it or `object` is NULL. */
ls_status ls_facts_put(json_t *object, const char *key, json_t *value);
void ls_facts_free(ls_facts *facts);

size_t ls_state_entry_count(const ls_state_entry *entry);
json_t *ls_state_entry_json(const ls_state_entry *entry);

/* Infinity and NaN, which JSON lacks, are strings. */
json_t *ls_json_real(double value);
ls_status ls_json_any_f64(const ls_json_at *at, double *out);

/* ---- One checkpoint ---- */

/* Compared at the end of each epoch. */
typedef struct ls_best {
    bool known;
    double value;
    int64_t step;
} ls_best;

/* A copy of the state, so that training can continue while it is written. */
typedef struct ls_content {
    ls_snapshot *snapshot;
    json_t *state; /* state.json without "files" and its own hash */
    int64_t step;
    size_t prefix; /* length of "OPTIMIZER/" in names of slots */
} ls_content;

typedef struct ls_state_extras {
    const ls_facts *facts;
    /* strings: which bits were allowed to differ, and from which step on */
    const json_t *other_bits;
    const ls_history *history;
    const ls_best *best;
    const char *monitor;
} ls_state_extras;

ls_status ls_content_make(ls_job *job, const ls_state_extras *extras, ls_content **out);
/* The state of the job now; in a fit, with its history and its best result. */
ls_status ls_job_content(ls_job *job, ls_content **out);
void ls_content_destroy(ls_content *content);

/* Opened and verified. */
typedef struct ls_checkpoint {
    char path[PATH_MAX];
    int64_t step;
    json_t *state;
    ls_safetensors *model, *optimizer;
} ls_checkpoint;
void ls_checkpoint_close(ls_checkpoint *checkpoint);

/* Checks all that does not depend on a job. json_decref *out. */
ls_status ls_state_parse(const char *name, const char *text, size_t bytes, json_t **out);
/* The text ends with its own hash; free() it. */
ls_status ls_state_text(const json_t *state, char **out, size_t *bytes);

/* Checks that the job equals the saved one; the error names the differences. Different bits are an
 * error unless allowed; *difference (may be NULL) then describes them, free() it. */
typedef struct ls_fits {
    bool in_fit, allow_other_bits;
} ls_fits;
ls_status ls_checkpoint_fits(const ls_checkpoint *checkpoint, ls_job *job, ls_fits how, char **difference);

/* ls_checkpoint_put restores all of the job's state, or nothing. The others leave *history
 * unchanged if no epoch was saved, and *best if it was of another monitor. */
ls_status ls_checkpoint_put(const ls_checkpoint *checkpoint, ls_job *job);
ls_status ls_checkpoint_history(const ls_checkpoint *checkpoint, ls_history **history);
ls_status ls_checkpoint_best(const ls_checkpoint *checkpoint, const char *monitor, ls_best *best);

/* ---- Folders of checkpoints (files.c) ---- */

typedef struct ls_named_checkpoint {
    int64_t step;
    bool replaced; /* "step-00000500.old": a later one of the same step was replacing it */
} ls_named_checkpoint;

/* Newest first; none if the folder does not exist. free() the list. */
ls_status ls_checkpoints_list(const char *dir, ls_named_checkpoint **out, size_t *count);

/* Opens the checkpoint `from`, or the newest complete one in that folder; warns for each that it
 * skips. *out is NULL if there is none. */
ls_status ls_checkpoint_find(const char *from, ls_logger *log, ls_checkpoint **out);

/* Creates the folder if needed, locks it against other processes, and removes what killed runs
 * left. Close *lock to unlock. LS_ERR_STATE: another process holds the lock. */
ls_status ls_checkpoint_lock(const ls_file_ops *ops, const char *dir, int *lock);

/* Writes DIR/step-...; a failure leaves the folder unchanged. Calls `permission.ask` (may be NULL)
 * before the rename; if it fails, nothing is saved. */
typedef struct ls_permission {
    ls_status (*ask)(void *user);
    void *user;
} ls_permission;
ls_status ls_checkpoint_write(const ls_file_ops *ops, const char *dir, const ls_content *content,
                              ls_permission permission, size_t *bytes);

/* ls_checkpoint_open_files reads and verifies the files completely. */
typedef struct ls_checkpoint_paths {
    char model[PATH_MAX], optimizer[PATH_MAX], state[PATH_MAX];
} ls_checkpoint_paths;
ls_status ls_checkpoint_write_files(const ls_file_ops *ops, const char *folder, const ls_content *content,
                                    size_t *bytes);
ls_status ls_checkpoint_open_files(const char *name, const ls_checkpoint_paths *paths, ls_checkpoint **out);

/* Points DIR/last or DIR/best to a step, where links exist. */
void ls_checkpoint_link(const ls_file_ops *ops, const char *dir, const char *name, int64_t step);

/* Keeps the newest `keep`, the step `last` and the step `best` (-1: none). */
void ls_checkpoints_prune(const ls_file_ops *ops, const char *dir, int keep, int64_t last, int64_t best);

/* For a full disk: removes the oldest checkpoint except `best` (-1: none) and the only one in a
 * folder. Returns its step; -1: none. */
int64_t ls_checkpoints_make_room(const ls_file_ops *ops, const char *dir, int64_t best);

/* Renames a damaged checkpoint to "step-00000500.damaged", which later runs ignore. */
ls_status ls_checkpoint_set_aside(const ls_file_ops *ops, const char *dir, const ls_named_checkpoint *named);

/* ---- As bytes (package.c) ---- */

/* Model, optimizer and state, concatenated. */
#define LS_CHECKPOINT_FILES 3
typedef struct ls_package {
    char *bytes;
    uint64_t size[LS_CHECKPOINT_FILES];
} ls_package;
ls_status ls_checkpoint_pack(const ls_content *content, ls_package *out);
ls_status ls_checkpoint_unpack(const ls_package *package, ls_checkpoint **out);
/* Allocates a package whose bytes will be received. */
ls_status ls_package_allocate(ls_package *package, const uint64_t size[LS_CHECKPOINT_FILES]);
size_t ls_package_bytes(const ls_package *package);
void ls_package_free(ls_package *package);

/* ---- Workers that join a running fit (fit/state_transfer.c) ---- */

/* Called by the members between two steps: admits waiting workers and sends them the state. `log`
 * may be NULL. *too_few: none joined, and fewer workers than required are left. */
ls_status ls_job_welcome(ls_job *job, ls_train_log *log, bool *too_few);
/* Called by a joining worker: waits until it is admitted, then loads the state. *answer is
 * LS_ANSWER_WAIT if `stop` was set before. */
ls_status ls_job_join(ls_job *job, ls_train_log *log, const volatile int *stop, ls_answer *answer);

/* ---- Evaluating the checkpoints of another process (fit/evaluator.c) ---- */

/* Evaluates each checkpoint that appears in the fit's folder, until training ends or is stopped.
 * Prints a line, logs a record (in LOG.evaluator) and adds a history epoch for each. The model
 * keeps the last weights. */
ls_status ls_evaluate_checkpoints(ls_job *job, const ls_settings *settings, ls_passes *validation, int64_t epochs,
                                  ls_history **history);

/* ---- Saving during a fit (checkpoint_writer.c) ---- */

typedef struct ls_checkpoint_writer ls_checkpoint_writer;

/* Finds the checkpoint to resume from, and prepares saving. *out is NULL if the options ask for
 * neither. */
ls_status ls_checkpoint_writer_open(ls_job *job, ls_checkpoint_writer **out);
bool ls_checkpoint_writer_resumes(const ls_checkpoint_writer *writer);
ls_status ls_checkpoint_writer_resume(ls_checkpoint_writer *writer);
/* The same with a checkpoint that another worker sent; closes it. */
ls_status ls_checkpoint_writer_resume_from(ls_checkpoint_writer *writer, ls_checkpoint *found);
/* Logs the resume, and from now on each checkpoint. `log` may be NULL. */
void ls_checkpoint_writer_log(ls_checkpoint_writer *writer, ls_train_log *log);
/* Continues the folder of a chief that was lost. Logs a warning if the folder cannot be reached. */
void ls_checkpoint_writer_take_over(ls_checkpoint_writer *writer);
/* Claims the lease for a new generation of the membership. */
void ls_checkpoint_writer_renew_lease(ls_checkpoint_writer *writer);
/* After each step: saves if a checkpoint is due or requested, or if training stops here. */
void ls_checkpoint_writer_step(ls_checkpoint_writer *writer, bool stopping);
/* Whether a checkpoint is due or requested after `step`, for a fit that must halt first. */
bool ls_checkpoint_writer_wants(ls_checkpoint_writer *writer, int64_t step);
/* After each complete epoch. */
void ls_checkpoint_writer_epoch(ls_checkpoint_writer *writer, const ls_results *results, const ls_results *validation);
/* At the end of training: saves the state unless it is saved, or training stopped inside an
 * epoch. */
void ls_checkpoint_writer_finish(ls_checkpoint_writer *writer);
/* Whether the writer writes to this folder; if so, waits until it is idle, and it stays so until
 * its next call. */
bool ls_checkpoint_writer_wait_idle(ls_checkpoint_writer *writer, const char *dir);
/* Waits until everything is written. LS_ERR_UNSAVED: the last state could not be saved. */
ls_status ls_checkpoint_writer_close(ls_checkpoint_writer *writer);

#endif
