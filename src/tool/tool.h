/* The command: what its files share. main.c finds the command and reads its options, flags.c has every flag,
 * checks.c refuses what cannot be meant, callbacks.c reads the flags that are lists, files.c what cannot be written,
 * context.c and session.c open what a command works with, signals.c ends it in good order; then a file for each
 * command. */
#ifndef LS_TOOL_TOOL_H
#define LS_TOOL_TOOL_H

#include "lockstep.h"

/* The command calls the library as any program does, through its public headers alone. These are all the others that it
 * includes (tests/test_layers.sh sees to it): helpers of a program, not of training, which are linked into it from the
 * static library. Options and text are how a command line is read and printed, names and numbers what a user types,
 * files and JSON what it writes; SHA-256 is one of the things that `doctor` tries; socket folders are what `launch`
 * cleans after workers that were killed. */
#include "base/file.h"
#include "base/json.h"
#include "base/names.h"
#include "base/numbers.h"
#include "base/options.h"
#include "base/sha256.h"
#include "base/socket_folder.h"
#include "base/status.h"
#include "base/text.h"

/* ---- Flags ---- */

/* Every flag of every command has its place here; a command that does not take a flag finds its default. */
typedef struct tool_settings {
    const char *model;        /* the positional argument */
    const char *const *files; /* in its place, of commands that take files */
    size_t file_count;
    const char *const *arguments; /* everything behind the command's name, as it was typed */
    int argument_count;
    /* data */
    const char *data;
    int64_t take, data_worker;
    int set; /* tool_set */
    /* model */
    const char *weights;
    uint64_t seed;
    const char *input; /* "32x32x3"; NULL: the model's own */
    int64_t classes;
    int norm_statistics; /* 0: as the model has it; else 1 + ls_norm_statistics */
    const char *place;   /* ranges of layers and their devices */
    /* loss and metrics */
    int loss; /* an index into the names of losses, 0: found out */
    bool from_logits, from_logits_given;
    const char *metrics;
    /* optimizer */
    int optimizer;
    double lr, momentum;
    bool nesterov;
    int64_t accumulate;
    /* training */
    int64_t epochs, max_steps, batch_size, batch_size_per_device;
    bool epochs_given;
    const char *monitor, *early_stopping, *reduce_on_plateau, *save_best, *save_epochs, *schedule, *csv, *tensorboard;
    int64_t tensorboard_every;
    bool terminate_on_nan;
    bool shuffle, dry_run;
    double validation_split;
    int verbose; /* ls_verbose */
    /* devices */
    const char *devices, *memory_limit; /* devices NULL: those of --place */
    char counted[16];                   /* what devices may point to */
    bool memory_growth, log_placement;
    int kernels;              /* 0: own, 1: vendor */
    int strategy;             /* ls_strategy_kind */
    bool multi_worker;        /* the environment tells of a cluster, whoever started it */
    bool alone;               /* in no cluster, whatever the environment says */
    int64_t stages, replicas; /* 0: not said */
    int64_t staleness;        /* of parameter-server */
    bool scale_by_staleness, overlap;
    const char *record, *journal;
    int all_reduce, pipeline; /* ls_all_reduce, ls_pipeline_order */
    const char *work_split;
    int64_t lanes, audit;
    /* verify */
    const char *strategies, *device_counts, *worker_counts, *lane_counts;
    int64_t steps, break_run;
    /* launch */
    int64_t workers, servers, restarts;
    const char *elastic, *job, *key_file; /* elastic: "2:8" */
    int transport;                        /* tool_transport */
    double grace, join_limit, silence_limit;
    /* files and forms */
    const char *save, *log, *output, *diff_model, *trace, *trace_steps, *status;
    int layout;                      /* 0: Keras's, 1: PyTorch's */
    int64_t trace_first, trace_last; /* what trace_steps says; 0: nothing */
    bool log_hash, json;
    /* checkpoints */
    const char *checkpoint, *save_every, *best_by, *resume; /* resume: "auto" is the newest of --checkpoint */
    int64_t keep;
    bool allow_other_bits;
    int log_level; /* ls_log_level */
    bool print_options;
} tool_settings;

typedef enum tool_transport {
    TOOL_TRANSPORT_AUTO,
    TOOL_TRANSPORT_SHM,
    TOOL_TRANSPORT_UNIX,
    TOOL_TRANSPORT_TCP,
    TOOL_TRANSPORT_UCX
} tool_transport;
extern const char *const tool_transport_names[];
typedef enum tool_set { TOOL_SET_AUTO, TOOL_SET_TRAIN, TOOL_SET_TEST } tool_set;

extern const ls_option_table tool_data_flags, tool_set_flags, tool_model_flags, tool_shape_flags, tool_loss_flags,
    tool_optimizer_flags, tool_training_flags, tool_callback_flags, tool_batch_flags, tool_device_flags,
    tool_count_flags, tool_placement_flags, tool_verify_flags, tool_save_flags, tool_checkpoint_flags,
    tool_output_flags, tool_report_flags, tool_export_flags, tool_launch_flags, tool_diff_flags, tool_json_flags,
    tool_replay_flags, tool_common_flags;

/* What the flags say, in the library's words. */
ls_optimizer tool_optimizer(const tool_settings *settings);
const char *tool_optimizer_name(const tool_settings *settings);
const char *tool_strategy_name(ls_strategy_kind kind);
ls_loss_kind tool_loss_kind(const tool_settings *settings); /* none: to be found out */
const char *tool_loss_name(ls_loss_kind kind);
ls_status tool_metrics(const char *names, ls_metrics_list *out);

/* Whether a flag was given, by the command line or the environment. */
bool tool_given(const ls_options *options, const char *flag);
/* Whether the flag comes from the environment, and `other`, which it contradicts, from the command line: it then counts
 * as not given. */
bool tool_yields(const ls_options *options, const char *flag, const char *other);

/* Checks of what a user wrote, flags that contradict each other above all (checks.c). */
ls_status tool_check_model(const ls_options *options, tool_settings *settings);
ls_status tool_check_data(const tool_settings *settings);
ls_status tool_check_loss(const ls_options *options, tool_settings *settings);
ls_status tool_check_optimizer(const ls_options *options, tool_settings *settings);
ls_status tool_check_batch(const ls_options *options, tool_settings *settings);
ls_status tool_check_devices(const ls_options *options, tool_settings *settings);
bool tool_has_stages(ls_strategy_kind kind);
ls_status tool_check_trace(const ls_options *options, tool_settings *settings);
ls_status tool_check_log(const ls_options *options, tool_settings *settings);
ls_status tool_check_callbacks(const ls_options *options, tool_settings *settings);
ls_status tool_check_checkpoints(const ls_options *options, tool_settings *settings);

/* Files to be written (files.c): that none of them is one to be read, nor another one of them; then, later, that each
 * can be made. */
ls_status tool_check_outputs(const tool_settings *settings);
ls_status tool_check_writable(const char *flag, const char *path);
ls_status tool_check_log_file(const char *path);
/* That what --save writes can be put into a file: its names, above all. */
ls_status tool_check_weights(const char *path, const ls_model *model);

/* ---- What happens while training (callbacks.c) ---- */

#define TOOL_MOST_CALLBACKS 8
typedef struct tool_callbacks {
    ls_callback list[TOOL_MOST_CALLBACKS];
    size_t count;
    bool restores;       /* training may end with other weights than those of its last step */
    ls_options specs[2]; /* own the names that callbacks point to */
} tool_callbacks;

/* The callbacks that the flags ask for; freed in any case. */
ls_status tool_make_callbacks(const tool_settings *settings, bool validates, tool_callbacks *out);
void tool_free_callbacks(tool_callbacks *callbacks);

/* The schedule of --schedule; without it, of kind constant. */
typedef struct tool_length {
    int64_t epoch, all; /* steps of an epoch and of the whole training */
} tool_length;
ls_status tool_schedule(const tool_settings *settings, tool_length length, ls_schedule *out);

/* ---- Signals (signals.c) ---- */

/* Descriptors 0 to 2 that are closed are opened to /dev/null, for reading: writing there fails. */
void tool_open_descriptors(void);

/* SIGINT, SIGTERM and SIGHUP end a command at once, with a line that says so and exit status 128 + N, unless
 * tool_catch_signals says otherwise. SIGUSR1 ends nothing. */
void tool_begin_signals(void);

/* From now on the first of them sets the returned word to its number; the second one ends the process at once. */
const volatile int *tool_catch_signals(void);

/* Ends that; returns the signal that came, or 0. */
int tool_release_signals(void);

/* How often SIGUSR1 came, which asks for a checkpoint. */
const volatile int *tool_save_requests(void);

/* A write that would raise it fails instead. */
void tool_ignore_signal(int number);

/* ---- Commands ---- */

#define TOOL_MOST_TABLES 16

typedef struct tool_command {
    const char *name;
    const char *arguments; /* "MODEL --data DATA" */
    const char *summary;   /* one line of the list of commands */
    const char *details;   /* of its own help */
    bool takes_model;
    size_t takes_files;  /* so many, or TOOL_ANY_FILES */
    bool starts_program; /* its files are a program and its arguments, after "--" */
    bool compares;       /* exit status 1 says "different"; failures then have 2, as in diff and cmp */
    const ls_option_table *tables[TOOL_MOST_TABLES]; /* NULL after the last */
    /* What is not on the command line, before the checks: wrong use, too; may be NULL. */
    ls_status (*complete)(ls_options *options, tool_settings *settings);
    ls_status (*check)(const ls_options *options, tool_settings *settings); /* wrong use: exit status 2; may be NULL */
    /* Failure: exit status 1. *stopped_by: the signal that ended it early, after what was done is saved; its exit
     * status is 128 more. */
    ls_status (*run)(const tool_settings *settings, int *stopped_by);
} tool_command;

#define TOOL_DIFFERENT (-1)         /* in place of a signal: what was compared is not equal */
#define TOOL_STATUS(n) (-256 - (n)) /* in place of a signal: the exit status is n */
#define TOOL_ANY_FILES SIZE_MAX

extern const tool_command tool_train, tool_evaluate, tool_predict, tool_verify, tool_summary, tool_export, tool_diff,
    tool_report, tool_devices, tool_doctor, tool_launch, tool_key, tool_top, tool_replay;

/* Whether this process prints and writes files: it is in no cluster, or the chief of it (cluster.c), as it begins. */
ls_status tool_is_chief(const tool_settings *settings, bool *out);
/* Standard output of the others leads nowhere, until tool_follow_chief finds that this one is the chief now, because
 * those before it are lost. Of worker 0 it does when that came back, and another one is the chief. Called with every
 * line that the library tells, and behind what workers do together. */
void tool_mute(void);
bool tool_is_muted(void);
void tool_follow_chief(const ls_context *ctx);
/* Calls the function, which tells results, and writes files unless tool_is_muted. Nobody leaves before the chief is
 * behind it: if that is lost meanwhile, the function is called by the next in line, not muted now. */
ls_status tool_by_one(ls_context *ctx, ls_status (*function)(void *user), void *user);
/* Of all workers the largest number: a signal that one of them got has stopped them all. */
ls_status tool_agree(ls_context *ctx, const char *what, int *number);

/* Where this process shows what its training is at, and `top` looks: a file in a folder of this user (top.c). Both are
 * made; false: there is no folder that is safe. The folder is removed with its last file. */
bool tool_status_file(char path[PATH_MAX]);
void tool_remove_status_file(const char *path);

/* ---- What commands work with ---- */

typedef struct tool_session {
    ls_context *ctx;
    ls_model *model;
    ls_dataset *train, *test; /* either may be NULL */
    ls_strategy strategy;
    ls_text names;  /* what the strategy's may point to */
    int devices;    /* in use */
    int replicas;   /* that share the lanes of a batch */
    bool untrained; /* no file had weights for the model */
    ls_loss loss;
    ls_metrics_list metrics;
} tool_session;

/* Fills the session as far as it gets; closed by tool_close in any case. The context is configured; what first needs
 * its devices opens it. */
ls_status tool_open_context(const tool_settings *settings, tool_session *session);
ls_status tool_open_model(const tool_settings *settings, tool_session *session);
/* Behind the model; `taken` is the set that --take is about. */
ls_status tool_open_data(const tool_settings *settings, tool_session *session, tool_set taken);
/* In its place, for a command that needs one set: that of --set, --take samples of it. It stays the session's. */
ls_status tool_chosen_set(const tool_settings *settings, tool_session *session, ls_dataset **out, const char **name);
/* Loss and metrics as the flags say, or as model and data suggest. */
ls_status tool_choose_loss(const tool_settings *settings, tool_session *session, ls_dataset *data);
void tool_close(tool_session *session);

/* What `train` begins with, and others that train (train.c): everything opened and compiled; what is told of it; the
 * options of ls_fit. */
ls_status tool_open_training(const tool_settings *settings, tool_session *session);
ls_status tool_introduce(const tool_settings *settings, tool_session *session);
ls_status tool_fit_options(const tool_settings *settings, tool_session *session, ls_fit_options *out);

/* "32x32x3" (flags.c). */
ls_status tool_input_shape(const char *text, ls_shape *out);

/* --place (place.c): the devices it names; and what it says done. */
ls_status tool_place_devices(const tool_settings *settings, ls_context *ctx, ls_text *names);
ls_status tool_place(const tool_settings *settings, ls_model *model);

/* Whether the data is synthetic and its sizes are the model's; and such data (synthetic.c). */
bool tool_follows_model(const char *data);
ls_status tool_open_synthetic(const tool_settings *settings, tool_session *session);

int64_t tool_batch_size(const tool_settings *settings, const tool_session *session);
/* "test loss: 0.3123 - test accuracy: 0.8872 (10,000 samples)", and a newline */
void tool_print_results(const char *what, const ls_results *results);
/* One line, when the model has no trained weights. */
void tool_print_untrained(const tool_session *session);
bool tool_ends_with(const char *text, const char *end);
/* Lines with names from a file, which must not command the terminal: they are made printable first. */
void tool_print_lines(char *text);
/* 60000: "60,000"; returns `buffer`. */
char *tool_number(int64_t value, char buffer[32]);

#endif
