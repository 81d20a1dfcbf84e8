/* Shared by the files of the command. main.c finds the subcommand, flags.c has all flags, names.c
 * the names of losses, optimizers and metrics, checks.c rejects invalid arguments, callbacks.c
 * parses flags that are lists, files.c checks output files, context.c and session.c open a session.
 * Each command has its own file or folder. */
#ifndef LS_TOOL_TOOL_H
#define LS_TOOL_TOOL_H

#include "lockstep.h"

/* The command uses the library through its public headers, like any other program. These helpers of
 * the static library are the only exceptions (tests/whole/test_layers.sh checks this). */
#include "base/clock.h"
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

/* Values of all flags of all commands; defaults for flags that a command does not take. */
typedef struct tool_settings {
    const char *model;        /* positional argument */
    const char *const *files; /* positional arguments of commands that take files */
    size_t file_count;
    const char *const *arguments; /* all arguments after the command's name, as typed */
    int argument_count;
    /* Data */
    const char *data;
    int64_t take, data_worker;
    const char *image_size; /* "96x96"; NULL: the model's */
    bool skip_broken;
    const char *label, *drop_columns, *text_columns, *table; /* NULL: not given */
    int missing;                                             /* ls_missing */
    int set;                                                 /* tool_set */
    bool confusion;
    /* Model */
    const char *weights;
    bool skip_mismatch;
    int64_t head;           /* units of another last layer; 0: the model's own */
    const char *freeze;     /* patterns of layers, separated by commas */
    const char *layer_rate; /* PATTERN=FACTOR, separated by commas */
    const char *layer;      /* whose output predict writes; NULL: the model's outputs */
    uint64_t seed;
    const char *input; /* "32x32x3"; NULL: the model's own */
    int64_t classes;
    int norm_statistics; /* 0: the model's own; else 1 + ls_norm_statistics */
    const char *place;   /* layer ranges and their devices */
    /* Loss and metrics */
    int loss; /* index into the loss names; 0: choose automatically */
    bool from_logits, from_logits_given;
    const char *metrics;
    double label_smoothing;
    const char *class_weights; /* "1,2.5,1"; NULL: none */
    /* Optimizer */
    int optimizer;
    double lr, momentum, weight_decay, clipvalue, clipnorm, global_clipnorm;
    const char *exclude_from_weight_decay;
    double ema; /* momentum; 0: no averages */
    bool nesterov;
    int64_t accumulate;
    /* Training */
    int64_t epochs, max_steps, batch_size, batch_size_per_device;
    bool epochs_given;
    const char *monitor, *early_stopping, *reduce_on_plateau, *save_best, *save_epochs, *schedule, *csv, *tensorboard;
    int64_t tensorboard_every, histograms;
    bool profile;
    bool terminate_on_nan;
    bool shuffle, dry_run;
    double validation_split;
    int verbose; /* ls_verbose */
    /* Devices */
    const char *devices, *memory_limit; /* devices NULL: those of --place */
    char counted[16];                   /* buffer for `devices` */
    bool memory_growth, log_placement;
    int kernels;  /* 0: own, 1: vendor */
    int strategy; /* ls_strategy_kind */
    /* Join the cluster that the environment describes, no matter which launcher started it. */
    bool multi_worker;
    bool alone;               /* join no cluster; ignore the environment */
    int64_t stages, replicas; /* 0: not given */
    int64_t staleness;        /* for parameter-server */
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
    /* Files and formats */
    const char *save, *log, *output, *diff_model, *trace, *trace_steps, *status;
    int layout;                      /* 0: Keras, 1: PyTorch */
    int64_t trace_first, trace_last; /* parsed from trace_steps; 0: not given */
    bool log_hash, json;
    /* tokenize */
    const char *tokenizer, *save_tokenizer;
    int token_format; /* ls_token_format */
    bool decode;
    /* Checkpoints */
    /* resume "auto": the newest of --checkpoint */
    const char *checkpoint, *save_every, *best_by, *resume;
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

extern const ls_option_table tool_data_flags, tool_set_flags, tool_confusion_flags, tool_model_flags, tool_shape_flags,
    tool_loss_flags, tool_optimizer_flags, tool_training_flags, tool_callback_flags, tool_batch_flags,
    tool_device_flags, tool_count_flags, tool_placement_flags, tool_verify_flags, tool_save_flags,
    tool_checkpoint_flags, tool_output_flags, tool_report_flags, tool_export_flags, tool_launch_flags, tool_diff_flags,
    tool_json_flags, tool_replay_flags, tool_tokenize_flags, tool_common_flags;

/* Convert flags to types and names of the library. */
ls_optimizer tool_optimizer(const tool_settings *settings);
const char *tool_optimizer_name(const tool_settings *settings);
const char *tool_strategy_name(ls_strategy_kind kind);
ls_loss_kind tool_loss_kind(const tool_settings *settings); /* LS_LOSS_NONE: choose automatically */
const char *tool_loss_name(ls_loss_kind kind);
bool tool_has_logits(ls_loss_kind kind);
/* Reads "1,2.5,1". The caller frees *out. */
ls_status tool_class_weights(const char *list, double **out, size_t *count);
ls_status tool_metrics(const char *names, ls_metrics_list *out);

bool tool_given(const ls_options *options, const char *flag);
/* Returns whether `flag` comes from the environment and contradicts `other` from the command line:
 * then it counts as not given. */
bool tool_is_overridden(const ls_options *options, const char *flag, const char *other);

/* Check arguments, mainly flags that contradict each other (checks.c). */
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

/* Check output files (files.c): none is an input or another output; each can be created. */
ls_status tool_check_outputs(const tool_settings *settings);
ls_status tool_check_writable(const char *flag, const char *path);
ls_status tool_check_log_file(const char *path);
/* Checks that --save can store this model. */
ls_status tool_check_weights(const char *path, const ls_model *model);

/* ---- Callbacks of training (callbacks.c) ---- */

#define TOOL_MOST_CALLBACKS 8
typedef struct tool_callbacks {
    ls_callback list[TOOL_MOST_CALLBACKS];
    size_t count;
    bool restores;       /* training may end with weights that are not those of the last step */
    ls_options specs[2]; /* own the strings that callbacks point to */
} tool_callbacks;

/* Free the result also after a failure. */
ls_status tool_make_callbacks(const tool_settings *settings, bool validates, tool_callbacks *out);
void tool_free_callbacks(tool_callbacks *callbacks);

typedef struct tool_length {
    int64_t epoch, all; /* steps per epoch, steps in total */
} tool_length;
/* Constant without --schedule. */
ls_status tool_schedule(const tool_settings *settings, tool_length length, ls_schedule *out);

/* ---- Signals (signals.c) ---- */

/* Opens closed descriptors 0 to 2 as /dev/null, read-only. */
void tool_open_descriptors(void);

/* From now on SIGINT, SIGTERM and SIGHUP end the command at once, with exit status 128 + N. */
void tool_begin_signals(void);

/* From now on the first such signal sets the returned variable to its number; the second ends the
 * process at once. */
const volatile int *tool_catch_signals(void);

/* Undoes tool_catch_signals. Returns the signal that arrived, or 0. */
int tool_release_signals(void);

/* Number of SIGUSR1 signals received; each requests a checkpoint. */
const volatile int *tool_save_requests(void);

/* Ignores a signal, so that the write that raises it fails instead. */
void tool_ignore_signal(int number);

/* ---- Commands ---- */

#define TOOL_MOST_TABLES 16

typedef struct tool_command {
    const char *name;
    const char *arguments; /* "MODEL --data DATA" */
    const char *summary;   /* one line in the list of commands */
    const char *details;   /* text of its own help */
    bool takes_model;
    size_t takes_files;  /* number of files, or TOOL_ANY_FILES */
    bool starts_program; /* its files are a program and arguments, after "--" */
    /* Exit status 1 means "different" and 2 means failure, as in diff and cmp. */
    bool compares;
    const ls_option_table *tables[TOOL_MOST_TABLES]; /* ends with NULL */
    /* Fills in settings that are not on the command line. Failure: exit status 2. May be NULL. */
    ls_status (*complete)(ls_options *options, tool_settings *settings);
    /* Failure: exit status 2. May be NULL. */
    ls_status (*check)(const ls_options *options, tool_settings *settings);
    /* Failure: exit status 1. Sets *stopped_by to the signal that ended it early, after saving:
     * exit status 128 + *stopped_by. */
    ls_status (*run)(const tool_settings *settings, int *stopped_by);
} tool_command;

#define TOOL_DIFFERENT (-1)         /* for *stopped_by: the compared files differ */
#define TOOL_STATUS(n) (-256 - (n)) /* for *stopped_by: exit with status n */
#define TOOL_ANY_FILES SIZE_MAX

extern const tool_command tool_train, tool_evaluate, tool_predict, tool_verify, tool_summary, tool_export, tool_diff,
    tool_report, tool_devices, tool_doctor, tool_launch, tool_key, tool_top, tool_replay, tool_tokenize, tool_list;

/* Returns whether this process starts as chief, or without a cluster (cluster.c). */
ls_status tool_is_chief(const tool_settings *settings, bool *out);
/* Sends the standard output of a process that is not the chief to /dev/null. tool_update_mute
 * unmutes a process that has become chief, and mutes worker 0 when it rejoins under another chief;
 * call it after collective operations. */
void tool_mute(void);
bool tool_is_muted(void);
void tool_update_mute(const ls_context *ctx);
/* Calls the function, which prints results, and writes files unless tool_is_muted. If the chief is
 * lost meanwhile, the next one calls it again, unmuted. */
ls_status tool_print_once(ls_context *ctx, ls_status (*function)(void *user), void *user);
/* Sets *number to the largest of all workers: a signal to one worker stops all. */
ls_status tool_largest_of_workers(ls_context *ctx, const char *what, int *number);

/* Creates the file with this process's live progress, for `top` (top.c). Returns false if no safe
 * folder exists. */
bool tool_status_file(char path[PATH_MAX]);
void tool_remove_status_file(const char *path);

/* ---- Session ---- */

typedef struct tool_session {
    ls_context *ctx;
    ls_model *model;
    ls_dataset *train, *test; /* either may be NULL */
    ls_table *table;          /* learned from a table of the training data; NULL: none */
    ls_strategy strategy;
    ls_text names;  /* owns device names that `strategy` points to */
    int devices;    /* number in use */
    int replicas;   /* replicas that share the lanes of a batch */
    bool untrained; /* no file had weights for the model */
    ls_loss loss;
    ls_metrics_list metrics;
    double *class_weights; /* from --class-weights; NULL: none */
    size_t class_count;
} tool_session;

/* Call tool_close also after a failure. tool_open_context only configures the context; devices are
 * opened when first needed. */
ls_status tool_open_context(const tool_settings *settings, tool_session *session);
ls_status tool_open_model(const tool_settings *settings, tool_session *session);
/* Changes of the model that the flags request (transfer.c). */
ls_status tool_load_weights(const tool_settings *settings, ls_model *model);
ls_status tool_replace_head(const tool_settings *settings, tool_session *session);
ls_status tool_train_parts(const tool_settings *settings, ls_model *model);
ls_status tool_cut(const char *layer, tool_session *session);
/* Fails if the data has more classes than the model has outputs. */
ls_status tool_check_classes(const tool_session *session, ls_dataset *data);
/* taken: the set that --take limits. */
ls_status tool_open_data(const tool_settings *settings, tool_session *session, tool_set taken);
/* --data (data.c): checks its flags; opens it. taken: as above. */
ls_status tool_check_data_flags(const tool_settings *settings);
ls_status tool_load_data(const tool_settings *settings, tool_session *session, tool_set taken);
/* Prints columns, classes and files that were left out. */
ls_status tool_print_data(tool_session *session);
/* Writes what training learned from its data, the columns of a table or the characters of a text,
 * beside weights that are saved to `path` (into the folder `path`, if it is one), and removes older
 * such files. */
ls_status tool_save_learned(const tool_settings *settings, const tool_session *session, const char *path);
bool tool_learns_characters(const tool_settings *settings);
/* Opens the set of --set, limited by --take. The session owns it. */
ls_status tool_open_set(const tool_settings *settings, tool_session *session, ls_dataset **out, const char **name);
/* Sets loss and metrics from the flags, or from model and data. */
ls_status tool_choose_loss(const tool_settings *settings, tool_session *session, ls_dataset *data);
void tool_close(tool_session *session);

/* For commands that train (train.c). */
ls_status tool_open_training(const tool_settings *settings, tool_session *session);
ls_status tool_introduce(const tool_settings *settings, tool_session *session);
ls_status tool_fit_options(const tool_settings *settings, tool_session *session, ls_fit_options *out);

/* Parses whole numbers from `low` to `high` (flags.c). Returns their number; 0: the text is no such
 * list, or has more than `most`. */
size_t tool_read_numbers(const char *text, char separator, int64_t low, int64_t high, int64_t *out, size_t most);
/* Parses "32x32x3" (flags.c). */
ls_status tool_input_shape(const char *text, ls_shape *out);

/* --place (place.c): lists the devices that it names; applies it to the model. */
ls_status tool_place_devices(const tool_settings *settings, ls_context *ctx, ls_text *names);
ls_status tool_place(const tool_settings *settings, ls_model *model);

/* --data synthetic (synthetic.c): whether its sizes come from the model; opens such data. */
bool tool_has_model_sizes(const char *data);
ls_status tool_open_synthetic(const tool_settings *settings, tool_session *session);

int64_t tool_batch_size(const tool_settings *settings, const tool_session *session);
/* Prints "test loss: 0.3123 - test accuracy: 0.8872 (10,000 samples)\n". */
void tool_print_results(const char *what, const ls_results *results);
/* Prints one line if the model has no trained weights. */
void tool_print_untrained(const tool_session *session);
/* Prints without control characters: names come from a file. */
void tool_print_lines(char *text);
/* Formats 60000 as "60,000". Returns `buffer`. */
char *tool_number(int64_t value, char buffer[32]);

#endif
