/* Checkpoints: a job's one list of state (saved.c) in a folder, from which a fit goes on as if nothing had happened.
 *
 *     DIR/step-00000500/model.safetensors       variables of the model
 *                       optimizer.safetensors   slots of the optimizer, and callbacks that keep much
 *                       state.json              everything else, and the SHA-256 of each file
 *     DIR/last, DIR/best                        links to two of them
 *
 * A checkpoint is written under a temporary name, synced, and renamed; only then are old ones removed. So a folder
 * named step-... is whole, whatever happened. Files: checkpoint_facts.c says what a job is, checkpoint_state.c makes
 * state.json and takes it apart, checkpoint_files.c writes, finds and checks folders, saver.c is the thread that saves
 * while fit goes on, checkpoint_package.c has one as bytes for another worker, joining.c gives it to one that comes to
 * a fit that runs, checkpoint.c has the public calls. */
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

/* ---- What a job is (checkpoint_facts.c) ---- */

/* A fit, as far as it decides its steps beyond what the job knows. */
typedef struct ls_fit_facts {
    ls_passes *data, *validation; /* validation may be NULL */
    const ls_fit_options *options;
    const ls_function *function;
    const ls_settings *settings;
    ls_history **history;
} ls_fit_facts;

/* Three objects of names and values. A checkpoint fits a job when `job` and, in a fit, `fit` are equal. `bits` says
 * what decides the last bits of a step beside these. */
typedef struct ls_facts {
    json_t *job, *fit, *bits; /* fit is null outside a fit */
} ls_facts;
ls_status ls_facts_make(ls_job *job, ls_facts *out);
void ls_facts_free(ls_facts *facts);

/* The numbers of an entry: how many, and as JSON. */
size_t ls_state_entry_count(const ls_state_entry *entry);
json_t *ls_state_entry_json(const ls_state_entry *entry);

/* A number for JSON, which has no infinity and no NaN: these are strings. */
json_t *ls_json_real(double value);
ls_status ls_json_any_f64(const ls_json_at *at, double *out);

/* ---- One checkpoint ---- */

/* The best one so far, by a result at the end of an epoch. */
typedef struct ls_best {
    bool known;
    double value;
    int64_t step;
} ls_best;

/* What one checkpoint is written from: a copy, so that training goes on meanwhile. */
typedef struct ls_content {
    ls_snapshot *snapshot;
    json_t *state; /* state.json without "files" and its own hash */
    int64_t step;
    size_t prefix; /* letters of the optimizer's name, and a slash, before the names of slots */
} ls_content;

typedef struct ls_state_extras {
    const ls_facts *facts;
    const json_t *other_bits; /* array: what was allowed to differ, and where */
    const ls_history *history;
    const ls_best *best;
    const char *monitor;
} ls_state_extras;

ls_status ls_content_make(ls_job *job, const ls_state_extras *extras, ls_content **out);
void ls_content_destroy(ls_content *content);

/* One that was found whole. */
typedef struct ls_checkpoint {
    char path[PATH_MAX];
    int64_t step;
    json_t *state;
    ls_safetensors *model, *optimizer;
} ls_checkpoint;
void ls_checkpoint_close(ls_checkpoint *checkpoint);

/* Checks text and values of a state.json, as far as they can be without a job; *out is to be json_decref'd. */
ls_status ls_state_parse(const char *name, const char *text, size_t bytes, json_t **out);
/* The text of a state, with its own hash at the end; free() it. */
ls_status ls_state_text(const json_t *state, char **out, size_t *bytes);

/* Whether the job is the one that was saved; a failure names what differs. Other bits are a failure, too, unless
 * `allow_other_bits`: *difference then tells them, free() it. */
typedef struct ls_fits {
    bool in_fit, allow_other_bits;
} ls_fits;
ls_status ls_checkpoint_fits(const ls_checkpoint *checkpoint, ls_job *job, const ls_facts *facts, ls_fits how,
                             char **difference);

/* Everything back into the job, or nothing. In a fit: the history (may be NULL) and the best one so far, too. */
ls_status ls_checkpoint_put(const ls_checkpoint *checkpoint, ls_job *job);
ls_status ls_checkpoint_history(const ls_checkpoint *checkpoint, ls_history **history);
ls_status ls_checkpoint_best(const ls_checkpoint *checkpoint, const char *monitor, ls_best *best);

/* ---- Folders of checkpoints (checkpoint_files.c) ---- */

typedef struct ls_named_checkpoint {
    int64_t step;
    bool replaced; /* by a later one of the same step, which was being renamed: "step-00000500.old" */
} ls_named_checkpoint;

/* Those in a folder, the newest first; a folder that is not there has none. free() the list. */
ls_status ls_checkpoints_list(const char *dir, ls_named_checkpoint **out, size_t *count);
void ls_checkpoint_path(const char *dir, const ls_named_checkpoint *named, char out[PATH_MAX]);

/* Opens the checkpoint `from`, or the newest that is whole of those in the folder `from`; the log is told of others
 * that are passed over. *out is NULL where there are none. */
ls_status ls_checkpoint_find(const char *from, ls_logger *log, ls_checkpoint **out);

/* Makes the folder where it is missing, and keeps other processes from writing there: the descriptor to close. Removes
 * what killed runs left. */
ls_status ls_checkpoint_lock(const ls_file_ops *ops, const char *dir, int *lock);

/* Writes DIR/step-...; a failure leaves the folder as it was. `permission` is asked when all is written, before it gets
 * its name: a failure is one of the whole. Its function may be NULL. */
typedef struct ls_permission {
    ls_status (*ask)(void *user);
    void *user;
} ls_permission;
ls_status ls_checkpoint_write(const ls_file_ops *ops, const char *dir, const ls_content *content,
                              ls_permission permission, size_t *bytes);

/* The three files of one, in a folder; and where they are read from. All of it is read and checked. */
typedef struct ls_checkpoint_paths {
    char model[PATH_MAX], optimizer[PATH_MAX], state[PATH_MAX];
} ls_checkpoint_paths;
ls_status ls_checkpoint_write_files(const ls_file_ops *ops, const char *folder, const ls_content *content,
                                    size_t *bytes);
ls_status ls_checkpoint_open_files(const char *name, const ls_checkpoint_paths *paths, ls_checkpoint **out);

/* Points DIR/last or DIR/best to a step. A file system without links is no failure. */
void ls_checkpoint_link(const ls_file_ops *ops, const char *dir, const char *name, int64_t step);

/* Removes all but the newest `keep`, the step that was written last, and the step `best` (-1: none). */
void ls_checkpoints_prune(const ls_file_ops *ops, const char *dir, int keep, int64_t last, int64_t best);

/* Removes the oldest checkpoint except the step `best` (-1: none), for a disk that is full. The only one in the folder
 * stays. Returns the step of what was removed; -1: nothing. */
int64_t ls_checkpoints_make_room(const ls_file_ops *ops, const char *dir, int64_t best);

/* Gives one that is not whole another name, "step-00000500.damaged": it is not looked at any more. */
ls_status ls_checkpoint_set_aside(const ls_file_ops *ops, const char *dir, const ls_named_checkpoint *named);

/* ---- As bytes (checkpoint_package.c) ---- */

/* The files of a checkpoint one behind the other: model, optimizer, state. */
#define LS_CHECKPOINT_FILES 3
typedef struct ls_package {
    char *bytes;
    uint64_t size[LS_CHECKPOINT_FILES];
} ls_package;
ls_status ls_checkpoint_pack(const ls_content *content, ls_package *out);
ls_status ls_checkpoint_unpack(const ls_package *package, ls_checkpoint **out);
/* One whose bytes are still to come. */
ls_status ls_package_room(ls_package *package, const uint64_t size[LS_CHECKPOINT_FILES]);
size_t ls_package_bytes(const ls_package *package);
void ls_package_free(ls_package *package);

/* ---- Workers that come to a fit that runs (joining.c) ---- */

/* Of the members, between two steps: lets in who waits. The log may be NULL. *too_few: nobody came, and they are fewer
 * than they have to be.
 */
ls_status ls_job_welcome(ls_job *job, ls_train_log *log, bool *too_few);
/* Of one that comes: waits to be let in, and puts the job where the others are. LS_ANSWER_WAIT: it was stopped before.
 */
ls_status ls_job_join(ls_job *job, ls_train_log *log, const volatile int *stop, ls_answer *answer);

/* ---- Evaluating those of another process (follow.c) ---- */

/* Evaluates each checkpoint that appears in the fit's folder, until the one at the end of training, or until the fit is
 * stopped. A line is printed and logged for each (in LOG.evaluator), and the history has an epoch for each. The model
 * has the weights of the last one. */
ls_status ls_evaluate_checkpoints(ls_job *job, const ls_settings *settings, ls_passes *validation, int64_t epochs,
                                  ls_history **history);

/* ---- Saving while fit goes on (saver.c) ---- */

typedef struct ls_checkpoint_writer ls_checkpoint_writer;

/* Finds the checkpoint to go on from where the options say so, and gets ready to save. *out is NULL when the options
 * ask for neither. */
ls_status ls_checkpoint_writer_open(ls_job *job, ls_checkpoint_writer **out);
bool ls_checkpoint_writer_resumes(const ls_checkpoint_writer *saver);
/* Puts the job where the checkpoint has it. */
ls_status ls_checkpoint_writer_resume(ls_checkpoint_writer *saver);
/* Likewise, from one that another worker gave; it is closed. */
ls_status ls_checkpoint_writer_resume_from(ls_checkpoint_writer *saver, ls_checkpoint *found);
/* The log that has begun, or NULL: it is told where the run goes on from, and of each checkpoint. */
void ls_checkpoint_writer_log(ls_checkpoint_writer *saver, ls_train_log *log);
/* The worker that saved is lost: this one goes on with the folder. One that cannot be reached is a warning. */
void ls_checkpoint_writer_go_on(ls_checkpoint_writer *saver);
/* The membership has a new generation: the worker that writes claims its lease for it. */
void ls_checkpoint_writer_renew_lease(ls_checkpoint_writer *saver);
/* After each step: saves where that is due, was asked for, or training stops here. */
void ls_checkpoint_writer_step(ls_checkpoint_writer *saver, bool stopping);
/* Whether a checkpoint is due, or was asked for, behind that step; then ls_checkpoint_writer_step makes it, there or
 * later. For a fit that has to come to a halt first. */
bool ls_checkpoint_writer_wants(ls_checkpoint_writer *saver, int64_t step);
/* After each whole epoch, with its results. */
void ls_checkpoint_writer_epoch(ls_checkpoint_writer *saver, const ls_results *results, const ls_results *validation);
/* Training is at its end: saves what is not saved yet, unless it stopped inside an epoch. */
void ls_checkpoint_writer_finish(ls_checkpoint_writer *saver);
/* Whether it writes to this folder; it then does not until the next call of it. */
bool ls_checkpoint_writer_makes_room(ls_checkpoint_writer *saver, const char *dir);
/* What a checkpoint of this moment has beside the job. */
void ls_checkpoint_writer_extras(const ls_checkpoint_writer *saver, ls_state_extras *extras);
/* Waits until everything is written, and tells what was not. LS_ERR_UNSAVED: the last state could not be saved. */
ls_status ls_checkpoint_writer_close(ls_checkpoint_writer *saver);

#endif
