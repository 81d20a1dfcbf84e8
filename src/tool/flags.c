/* All flags of the command, one row each, and the names that they take. */
#include <string.h>

#include "tool/names.h"
#include "tool/tool.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Names ---- */

#define NAME(name, KIND) name,
static const char *const loss_names[] = { TOOL_LOSSES(NAME) };
static const char *const optimizer_names[] = { TOOL_OPTIMIZERS(NAME) };
static const char *const strategy_names[] = {
    "auto", "one-device", "mirrored", "data-parallel", "model-parallel", "pipeline", "multi-worker", "parameter-server"
};                                                                                              /* ls_strategy_kind */
static const char *const all_reduce_names[] = { "sharded", "hierarchical-copy", "one-device" }; /* ls_all_reduce */
static const char *const pipeline_names[] = { "1f1b", "fill-drain" };                           /* ls_pipeline_order */
static const char *const norm_names[] = { "auto", "batch", "lane" }; /* 1 + ls_norm_statistics */
static const char *const set_names[] = { "auto", "train", "test" };  /* tool_set */
static const char *const missing_names[] = { "fill", "error" };      /* ls_missing */
static const char *const layout_names[] = { "keras", "torch" };
static const char *const kernel_names[] = { "own", "vendor" };       /* ls_kernels, from LS_KERNELS_OWN */
static const char *const token_formats[] = { "auto", "u16", "u32" }; /* ls_token_format */
static const char *const level_names[] = { "silent", "error", "warning", "info", "debug" }; /* ls_log_level */
static const char *const verbose_names[] = { "auto", "0", "1", "2" };                       /* ls_verbose */

_Static_assert(COUNT(strategy_names) == LS_STRATEGY_PARAMETER_SERVER + 1, "a name for each strategy");
_Static_assert(LS_PER_BATCH == 0 && LS_PER_LANE == 1, "in the order of the names");
_Static_assert(COUNT(all_reduce_names) == LS_ALL_REDUCE_TO_ONE + 1, "a name for each all-reduce");
_Static_assert(COUNT(pipeline_names) == LS_FILL_DRAIN + 1, "a name for each order");
_Static_assert(LS_VERBOSE_SILENT == 1 && LS_VERBOSE_BAR == 2 && LS_VERBOSE_LINES == 3, "in the order of the names");

/* ---- Rows ---- */

#define ROW(name, field, ...) LS_OPTION(name, tool_settings, field, __VA_ARGS__)

static const ls_option data_rows[] = {
    ROW("--data", data, .metavar = "DATA",
        .help = "dataset: fashion-mnist, mnist, a folder of images (photos/train/CLASS/1.jpg) or of IDX "
                "files, FILE.npz, X.npy,Y.npy, FILE.csv, FILE.tsv, shards-{000..009}.tar, "
                "text:FILE,context=256 (FILE.bin or FILE.npy of tokens, or a text), "
                "synthetic:28x28x1,classes=10,count=1000, or synthetic:count=1000 with the sizes of "
                "the model; names are also searched in the variable's folder"),
    ROW("--take", take, .value = "0", .range = "[0, inf)", .help = "use the first N samples; 0: all"),
    ROW("--image-size", image_size, .metavar = "HxW",
        .help = "images: height and width, such as 96x96 (default: those of the model's input)"),
    ROW("--skip-broken", skip_broken, .value = "off",
        .help = "images: look at every file first, leave broken ones out, and print how many (off: a "
                "broken file is an error)"),
    ROW("--label", label, .metavar = "NAME", .help = "tables: column with the labels (default: the last)"),
    ROW("--drop-columns", drop_columns, .metavar = "LIST", .help = "tables: comma-separated columns to leave out"),
    ROW("--text-columns", text_columns, .metavar = "LIST",
        .help = "tables: comma-separated columns whose numbers are names of categories, such as codes"),
    ROW("--missing", missing, .value = "fill",
        .help = "tables: fill empty fields with the median or a category of their own, or report an error",
        LS_OPTION_CHOICES(missing_names)),
    ROW("--table", table, .metavar = "FILE",
        .help = "tables: columns that train wrote, FILE.table.json (default: beside --weights; train learns "
                "them from the data)"),
    ROW("--data-worker", data_worker, .value = "-1", .range = "[-1, 255]", .metavar = "RANK",
        .help = "rank of the only worker that can read the data: it sends batches to the others, and "
                "training ends if it is lost; -1: all workers read the data"),
};
const ls_option_table tool_data_flags = LS_OPTION_TABLE("Data", data_rows);

static const ls_option set_rows[] = {
    ROW("--set", set, .value = "auto", .help = "set to use; auto: the test set if there is one, else the training set",
        LS_OPTION_CHOICES(set_names)),
};
const ls_option_table tool_set_flags = LS_OPTION_TABLE(NULL, set_rows);

static const ls_option confusion_rows[] = {
    ROW("--confusion", confusion, .value = "off",
        .help = "also print the confusion matrix: a row for each class, a column for each predicted class"),
    ROW("--log", log, .metavar = "FILE",
        .help = "with --confusion: append the matrix to this log, for `lockstep report`; a new file, or the log of "
                "the training"),
};
const ls_option_table tool_confusion_flags = LS_OPTION_TABLE(NULL, confusion_rows);

static const ls_option model_rows[] = {
    ROW("--weights", weights, .metavar = "FILE",
        .help = "start with these weights: .safetensors, .npz, .weights.h5 or .keras, with Keras's "
                "or PyTorch's names"),
    ROW("--skip-mismatch", skip_mismatch, .value = "off",
        .help = "load the arrays of --weights that fit the model, and print the others"),
    ROW("--seed", seed, .value = "0", .help = "seed of the initial weights, the order of the data and dropout"),
};
const ls_option_table tool_model_flags = LS_OPTION_TABLE("Model", model_rows);

static const ls_option shape_rows[] = {
    ROW("--input", input, .metavar = "SIZES",
        .help = "size of a sample for a built-in model, such as 32x32x3 (default: the model's own)"),
    ROW("--classes", classes, .value = "0", .range = "[0, 2147483647]",
        .help = "number of classes of a built-in classifier; 0: the model's own"),
    ROW("--norm-statistics", norm_statistics, .value = "auto",
        .help = "batch norm statistics in training: over the whole batch, or per lane (no "
                "synchronization); results depend on it. auto: as the model specifies, else batch",
        LS_OPTION_CHOICES(norm_names)),
    ROW("--head", head, .value = "0", .range = "[0, 2147483647]",
        .help =
            "replace the model's last layer, which must be Dense, by an untrained one of N units, after --weights are "
            "loaded; 0: keep it"),
    ROW("--freeze", freeze, .metavar = "PATTERNS",
        .help = "do not train the layers that match, such as conv1*,conv2_*; * matches any characters, ? one"),
};
const ls_option_table tool_shape_flags = LS_OPTION_TABLE(NULL, shape_rows);

static const ls_option loss_rows[] = {
    ROW("--loss", loss, .value = "auto", .help = "loss function; auto: chosen from the model's output and the labels",
        LS_OPTION_CHOICES(loss_names)),
    ROW("--from-logits", from_logits, .value = "off",
        .help = "outputs are logits, not probabilities (default: derived from the model's last "
                "activation)"),
    ROW("--metrics", metrics, .metavar = "LIST",
        .help = "comma-separated names: accuracy, top_k_categorical_accuracy, mse, mae, precision, "
                "recall, auc, ..., and names of losses (default: accuracy with a cross-entropy loss)"),
    ROW("--label-smoothing", label_smoothing, .value = "0", .range = "[0, 1]",
        .help = "part of each target that goes to all classes evenly (cross-entropies)"),
};
const ls_option_table tool_loss_flags = LS_OPTION_TABLE("Loss and metrics", loss_rows);

static const ls_option optimizer_rows[] = {
    ROW("--optimizer", optimizer, .value = "adam", .help = "optimizer", LS_OPTION_CHOICES(optimizer_names)),
    ROW("--lr", lr, .value = "0", .range = "[0, inf)",
        .help = "learning rate; 0: the optimizer's default, as in Keras (rmsprop-tf1 has none)"),
    ROW("--layer-rate", layer_rate, .metavar = "PATTERN=FACTOR",
        .help = "multiply the learning rate of the layers that match, such as conv4_*=0.1,conv5_*=0.3"),
    ROW("--momentum", momentum, .value = "0", .range = "[0, 1)",
        .help = "momentum of sgd, rmsprop, rmsprop-tf1 and muon (muon: 0 means 0.95)"),
    ROW("--nesterov", nesterov, .value = "off", .help = "use Nesterov momentum (sgd)"),
    ROW("--weight-decay", weight_decay, .value = "0", .range = "[0, inf)",
        .help = "decoupled weight decay; 0: the optimizer's default, as in Keras (adamw: 0.004)"),
    ROW("--exclude-from-weight-decay", exclude_from_weight_decay, .metavar = "LIST",
        .help = "comma-separated parts of names, such as bias,gamma: these variables have no weight decay"),
    ROW("--clipvalue", clipvalue, .value = "0", .range = "[0, inf)",
        .help = "clip each element of the gradients to this size; 0: off. Only one kind of clipping can be used"),
    ROW("--clipnorm", clipnorm, .value = "0", .range = "[0, inf)",
        .help = "clip the norm of each variable's gradient; 0: off"),
    ROW("--global-clipnorm", global_clipnorm, .value = "0", .range = "[0, inf)",
        .help = "clip the norm of all gradients together; 0: off"),
    ROW("--ema", ema, .value = "0", .range = "[0, 1)", .metavar = "MOMENTUM",
        .help = "average the weights with this momentum, such as 0.99; validation and saved weights use the "
                "averages. 0: off"),
    ROW("--accumulate", accumulate, .value = "1", .range = "[1, 1000000]",
        .help = "number of batches whose gradients make one update; with parameter-server, number of "
                "pushes that a server adds up"),
};
const ls_option_table tool_optimizer_flags = LS_OPTION_TABLE("Optimizer", optimizer_rows);

static const ls_option batch_rows[] = {
    ROW("--batch-size", batch_size, .value = "32", .range = "[1, 1000000000]",
        .help = "number of samples in a batch, over all devices"),
};
const ls_option_table tool_batch_flags = LS_OPTION_TABLE("Batches", batch_rows);

static const ls_option training_rows[] = {
    ROW("--epochs", epochs, .value = "1", .range = "[1, inf)", .help = "number of passes over the data"),
    ROW("--max-steps", max_steps, .value = "0", .range = "[0, inf)",
        .help = "end after this many steps; 0: no limit. Without --epochs, trains as many epochs as the "
                "steps take"),
    ROW("--batch-size-per-device", batch_size_per_device, .value = "0", .range = "[0, 1000000]",
        .help = "batch size per device; overrides --batch-size. 0: unused"),
    ROW("--class-weights", class_weights, .metavar = "LIST",
        .help = "comma-separated weights of the classes 0, 1, 2, ... in the loss, such as 1,2.5,1"),
    ROW("--shuffle", shuffle, .value = "on", .help = "shuffle the samples every epoch"),
    ROW("--validation-split", validation_split, .value = "0", .range = "[0, 1)", .metavar = "PART",
        .help = "validate on this last part of the training data instead of on the test set"),
    ROW("--verbose", verbose, .value = "auto", .metavar = "N",
        .help = "0: silent, 1: progress bar, 2: one line per epoch; auto: a bar on a terminal, lines "
                "elsewhere",
        LS_OPTION_CHOICES(verbose_names)),
    ROW("--audit", audit, .value = "0", .range = "[0, inf)", .metavar = "N",
        .help = "with several workers: every N steps, two workers compute the same randomly chosen lane "
                "and compare it; 0: never"),
    ROW("--profile", profile, .value = "off",
        .help = "measure the time of each op, and print a table of ops and kernels after training (this process)"),
    ROW("--dry-run", dry_run, .value = "off",
        .help = "train nothing; print the memory that training needs on each device. Exit status 1 if it "
                "does not fit"),
};
const ls_option_table tool_training_flags = LS_OPTION_TABLE("Training", training_rows);

static const ls_option callback_rows[] = {
    ROW("--monitor", monitor, .metavar = "NAME",
        .help = "value that the next three options watch: loss, accuracy, val_loss, ... (default: "
                "val_loss; without validation, loss)"),
    ROW("--early-stopping", early_stopping, .metavar = "PATIENCE",
        .help = "stop after this many epochs without improvement; or a list such as "
                "patience=3,restore_best_weights with the keys patience, min_delta, mode (min or max), "
                "baseline, restore_best_weights, start_from_epoch and monitor"),
    ROW("--reduce-on-plateau", reduce_on_plateau, .metavar = "PATIENCE",
        .help = "reduce the learning rate after this many epochs without improvement; or a list such as "
                "patience=5,factor=0.5 with the keys patience, factor, min_lr, cooldown, min_delta, mode "
                "and monitor"),
    ROW("--save-best", save_best, .metavar = "FILE",
        .help = "write the weights after each epoch that is better than all before; the name may be a "
                "pattern"),
    ROW("--save-epochs", save_epochs, .metavar = "PATTERN",
        .help = "write the weights after every epoch: weights-{epoch:02d}-{val_loss:.3f}.safetensors"),
    ROW("--schedule", schedule, .metavar = "NAME:LIST",
        .help = "learning rate by step, starting from --lr: cosine:warmup=500,alpha=0.1 (also steps and "
                "from), exponential:steps=1000,decay=0.96,staircase, piecewise:1000=0.01,5epochs=0.001 "
                "(the rate from that step on), warmup:steps=500,from=0, polynomial:end=0.0001,power=1,cycle, "
                "inverse-time:steps=1000,decay=0.5,staircase, cosine-restarts:steps=1000,t-mul=2,m-mul=1 "
                "or one-cycle:pct-start=0.3,div-factor=25,final-div-factor=1e4,linear,three-phase (--lr is "
                "the highest rate). Steps are a number or Nepochs; cosine, polynomial and one-cycle end with "
                "training"),
    ROW("--terminate-on-nan", terminate_on_nan, .value = "off",
        .help = "end training with exit status 0, not 1, after a step that is not finite; the step "
                "changes nothing either way"),
    ROW("--csv", csv, .metavar = "FILE", .help = "write one line per epoch, as Keras's CSVLogger does"),
    ROW("--tensorboard", tensorboard, .metavar = "DIR",
        .help = "write event files for TensorBoard into DIR/train and DIR/validation"),
    ROW("--tensorboard-every", tensorboard_every, .value = "1", .range = "[0, inf)",
        .help = "write scalars every N steps; 0: per epoch only"),
    ROW("--histograms", histograms, .value = "0", .range = "[0, inf)", .metavar = "N",
        .help = "with --tensorboard: in every Nth epoch, from the first, write histograms of the weights, and of "
                "the gradients of its first step; 0: never"),
};
const ls_option_table tool_callback_flags = LS_OPTION_TABLE("Callbacks and schedules", callback_rows);

static const ls_option count_rows[] = {
    ROW("--devices", devices, .value = "1", .metavar = "LIST",
        .help = "number of CPU devices that share the cores, or names, short or TensorFlow's: "
                "cpu:0,cpu:1 or cpu:0-3 or /device:CPU:0. Results do not depend on it"),
    ROW("--memory-limit", memory_limit, .metavar = "MIB",
        .help = "memory that each device may use, in MiB, or a list with one limit for each CPU device; "
                "0: no limit (default)"),
    ROW("--memory-growth", memory_growth, .value = "off",
        .help = "allocate memory as needed; off: reserve the limit at the start"),
    ROW("--kernels", kernels, .value = "own",
        .help = "library for matrix products and convolutions on CUDA devices: Lockstep's, or cuBLAS and "
                "cuDNN. Results differ in their last bits, and a checkpoint of one cannot be resumed "
                "with the other",
        LS_OPTION_CHOICES(kernel_names)),
};
const ls_option_table tool_count_flags = LS_OPTION_TABLE("Devices", count_rows);

static const ls_option device_rows[] = {
    ROW("--strategy", strategy, .value = "auto",
        .help = "how devices share the work: mirrored and data-parallel split the batch, "
                "model-parallel and pipeline the layers; multi-worker: mirrored, in the cluster that "
                "TF_CONFIG, torchrun, mpirun or srun describes (not needed with lockstep launch); "
                "parameter-server: the same, with the servers of lockstep launch --servers or of "
                "TF_CONFIG's \"ps\" tasks; auto: mirrored, or model-parallel with --place. Results "
                "do not depend on it",
        LS_OPTION_CHOICES(strategy_names)),
    ROW("--stages", stages, .value = "0", .range = "[0, 16384]",
        .help = "number of stages of model-parallel and pipeline; 0: one for each device"),
    ROW("--replicas", replicas, .value = "0", .range = "[0, 16384]",
        .help = "number of copies of all stages, which share the batch (pipeline and model-parallel); 0: "
                "devices divided by stages"),
    ROW("--all-reduce", all_reduce, .value = "sharded",
        .help = "which devices join gradients: each device a part, neighbors in pairs, or the first "
                "device everything",
        LS_OPTION_CHOICES(all_reduce_names)),
    ROW("--pipeline", pipeline, .value = "1f1b",
        .help = "order of lanes in a pipeline: one forward and one backward, or all forward and then all "
                "backward",
        LS_OPTION_CHOICES(pipeline_names)),
    ROW("--work-split", work_split, .metavar = "SPLIT",
        .help = "how replicas share the lanes: auto, by measured speed (also between the workers of a "
                "cluster), or weights such as 3:1 (default: evenly)"),
    ROW("--staleness", staleness, .value = "0", .range = "[0, 1000000000]",
        .help = "parameter-server: how many versions old the weights of an applied gradient may be. "
                "0: none, with the results of the other strategies. Above 0, each worker computes "
                "batches of its own, and results depend on arrival order; --record records it"),
    ROW("--scale-by-staleness", scale_by_staleness, .value = "off",
        .help = "parameter-server: divide the learning rate of a gradient by its staleness"),
    ROW("--overlap", overlap, .value = "off",
        .help = "parameter-server: workers read weights and push gradients while they compute, from "
                "weights that are one version older"),
    ROW("--lanes", lanes, .value = "0", .range = "[0, 16384]",
        .help = "number of lanes, the fixed parts of a batch; 0: chosen from the size of the work. "
                "Results depend on it in their last bits"),
};
const ls_option_table tool_device_flags = LS_OPTION_TABLE(NULL, device_rows);

static const ls_option placement_rows[] = {
    ROW("--place", place, .metavar = "RANGES",
        .help = "layers and their devices: conv1_conv..pool1=cpu:0,conv2_block1_1_conv..=cpu:1. Without "
                "--devices, these are the devices in use"),
    ROW("--log-placement", log_placement, .value = "off", .help = "print which device each op runs on"),
};
const ls_option_table tool_placement_flags = LS_OPTION_TABLE(NULL, placement_rows);

static const ls_option verify_rows[] = {
    ROW("--strategies", strategies, .metavar = "LIST",
        .help = "comma-separated names, such as one-device,mirrored,pipeline (default: all, with all "
                "their options)"),
    ROW("--device-counts", device_counts, .value = "1,2,3,4,8", .metavar = "LIST",
        .help = "numbers of CPU devices that share the cores"),
    ROW("--workers", worker_counts, .metavar = "LIST",
        .help = "numbers of worker processes to train with, such as 2,3; compares each with one "
                "process (default: only this process)"),
    ROW("--lanes", lane_counts, .value = "4,6", .metavar = "LIST", .help = "numbers of lanes"),
    ROW("--steps", steps, .value = "3", .range = "[1, 1000000]", .help = "number of training steps in each run"),
    ROW("--break-run", break_run, .value = "0", .range = "[0, inf)", .metavar = "N",
        .help = "flip one bit of a weight in run N, to test that the comparison finds it; 0: in no "
                "run"),
};
const ls_option_table tool_verify_flags = LS_OPTION_TABLE("Runs", verify_rows);

const char *const tool_transport_names[] = { "auto", "shm", "unix", "tcp", "ucx" }; /* tool_transport */
static const ls_option launch_rows[] = {
    ROW("--workers", workers, .value = "2", .range = "[1, 256]",
        .help = "number of processes to start; each gets its share of the cores"),
    ROW("--servers", servers, .value = "0", .range = "[0, 64]",
        .help = "number of parameter servers to start as well; with --strategy parameter-server they "
                "join the workers' gradients, or apply them as they arrive. Servers have the last ranks"),
    ROW("--elastic", elastic, .metavar = "MIN:MAX",
        .help = "with fewer than MIN workers the job waits for others and, if none join, ends with a "
                "checkpoint; MAX is the largest number of workers (default: continue with any "
                "number)"),
    ROW("--job", job, .metavar = "NAME",
        .help = "name of the job, by which workers that start later find it (default: a unique name)"),
    ROW("--restarts", restarts, .value = "0", .range = "[0, 1000000]",
        .help = "restart failed workers, at most this many times in all; restart the whole job when no "
                "worker is left"),
    ROW("--key-file", key_file, .metavar = "FILE", .help = "key of the job, which workers on other machines need"),
    ROW("--transport", transport, .value = "auto",
        .help = "how workers connect. shm: shared memory; unix: sockets; tcp: as between machines, "
                "with a new key for this job unless --key-file is given; ucx: UCX, if it is "
                "installed; auto: shm",
        LS_OPTION_CHOICES(tool_transport_names)),
    ROW("--grace", grace, .value = "10", .range = "[0, 1e6]", .metavar = "SECONDS",
        .help = "seconds that workers have to end, after SIGTERM or after the others have finished, "
                "before they are killed"),
    ROW("--join-limit", join_limit, .value = "30", .range = "(0, 1e6]", .metavar = "SECONDS",
        .help = "seconds that workers wait for each other at the start"),
    ROW("--silence-limit", silence_limit, .value = "1", .range = "(0, 1e6]", .metavar = "SECONDS",
        .help = "seconds without a heartbeat after which a worker counts as lost"),
};
const ls_option_table tool_launch_flags = LS_OPTION_TABLE("Workers", launch_rows);

static const ls_option save_rows[] = {
    ROW("--save", save, .metavar = "FILE",
        .help = "write the weights when training ends: .safetensors, .npz, .weights.h5 or .keras, "
                "with Keras's names"),
    ROW("--log", log, .metavar = "FILE", .help = "write one JSON event per line: start, each step, each epoch, end"),
    ROW("--trace", trace, .metavar = "FILE",
        .help = "write a timeline of the threads of all devices, for ui.perfetto.dev or chrome://tracing"),
    ROW("--trace-steps", trace_steps, .metavar = "A-B",
        .help = "steps to trace, counted from 1: 20, 20-40, 20- (default: as many as fit)"),
    ROW("--status", status, .metavar = "FILE",
        .help = "write live progress to FILE, for `lockstep top FILE` (default: where `lockstep top` "
                "looks; none: nowhere)"),
    ROW("--log-hash", log_hash, .value = "off",
        .help = "log the SHA-256 of weights and optimizer state with each step"),
    ROW("--record", record, .metavar = "FILE",
        .help = "parameter-server with --staleness above 0: record what the servers apply, server 0 "
                "in FILE, server 1 in FILE.1, and so on; `lockstep replay FILE` repeats the training"),
    ROW("--journal", journal, .metavar = "DIR",
        .help = "parameter-server with --staleness above 0: folder for what servers need to restart "
                "(default: chosen by lockstep launch)"),
};
const ls_option_table tool_save_flags = LS_OPTION_TABLE("Files", save_rows);

static const ls_option checkpoint_rows[] = {
    ROW("--checkpoint", checkpoint, .metavar = "DIR",
        .help = "save checkpoints in this folder: DIR/step-00000500; training can resume from them, bit "
                "for bit"),
    ROW("--save-every", save_every, .value = "1epoch", .metavar = "N",
        .help = "interval: 500 or 500steps, 2epochs, 90s, 10min, 2h; also saves at the end and on "
                "SIGTERM, SIGINT, SIGUSR1"),
    ROW("--keep", keep, .value = "3", .range = "[0, 1000000]",
        .help = "number of newest checkpoints to keep, besides the best; 0: all"),
    ROW("--best-by", best_by, .metavar = "NAME",
        .help = "result that decides which checkpoint is the best (default: val_loss; without "
                "validation, loss)"),
    ROW("--resume", resume, .metavar = "[FROM]", .alone = "auto",
        .help = "resume from this checkpoint, or from the newest complete one in this folder; without "
                "FROM, from --checkpoint. Starts from the beginning if there is none"),
    ROW("--allow-other-bits", allow_other_bits, .value = "off",
        .help = "resume even with another number of lanes or in another bit class; the weights will "
                "differ in their last bits"),
};
const ls_option_table tool_checkpoint_flags = LS_OPTION_TABLE("Checkpoints", checkpoint_rows);

static const ls_option replay_rows[] = {
    ROW("--from", resume, .metavar = "CHECKPOINT",
        .help = "checkpoint that the recorded training resumed from, if it did (--resume)"),
};
const ls_option_table tool_replay_flags = LS_OPTION_TABLE("Start", replay_rows);

static const ls_option output_rows[] = {
    ROW("--output", output, .brief = 'o', .metavar = "FILE",
        .help =
            "file for the predictions: FILE.npy or FILE.csv for the first output, FILE.npz for all outputs by name"),
    ROW("--layer", layer, .metavar = "NAME", .help = "write the output of this layer instead of the model's outputs"),
};
const ls_option_table tool_output_flags = LS_OPTION_TABLE("Files", output_rows);

static const ls_option report_rows[] = {
    ROW("--output", output, .brief = 'o', .metavar = "FILE", .help = "file for the page: FILE.html"),
};
const ls_option_table tool_report_flags = LS_OPTION_TABLE("Files", report_rows);

static const ls_option export_rows[] = {
    ROW("--output", output, .brief = 'o', .metavar = "FILE",
        .help = "file for the weights; its ending selects the format: .safetensors, .npz, "
                ".weights.h5 or .keras"),
    ROW("--layout", layout, .value = "keras",
        .help = "names and order of axes: Keras's (conv2d/kernel [H,W,I,O]) or PyTorch's "
                "(conv2d.weight [O,I,H,W]; torchvision's for its networks)",
        LS_OPTION_CHOICES(layout_names)),
};
const ls_option_table tool_export_flags = LS_OPTION_TABLE("Files", export_rows);

static const ls_option diff_rows[] = {
    ROW("--model", diff_model, .metavar = "MODEL",
        .help = "compare as weights of this model: for files of different layouts"),
};
const ls_option_table tool_diff_flags = LS_OPTION_TABLE("Files", diff_rows);

static const ls_option json_rows[] = {
    ROW("--json", json, .value = "off", .help = "print JSON"),
};
const ls_option_table tool_json_flags = LS_OPTION_TABLE("Output", json_rows);

static const ls_option tokenize_rows[] = {
    ROW("--tokenizer", tokenizer, .metavar = "TOKENIZER",
        .help = "bytes; chars: the characters of the text; a tokenizer.json (byte-level BPE with the rules of GPT-2 "
                "or Llama 3), a vocab.json with merges.txt beside it, a folder with these, or a file of "
                "--save-tokenizer"),
    ROW("--output", output, .brief = 'o', .metavar = "FILE",
        .help = "file for the tokens; with --decode, for the text (default: standard output)"),
    ROW("--format", token_format, .value = "auto",
        .help =
            "auto: the header of llm.c, then u16 if the vocabulary allows, otherwise u32; u16, u32: only tokens, as "
            "nanoGPT reads them",
        LS_OPTION_CHOICES(token_formats)),
    ROW("--decode", decode, .value = "off", .help = "read tokens from FILE and write their text"),
    ROW("--save-tokenizer", save_tokenizer, .metavar = "FILE",
        .help = "--tokenizer chars: write the characters, for --tokenizer FILE and for --data text:...,tokenizer=FILE"),
};
const ls_option_table tool_tokenize_flags = LS_OPTION_TABLE("Tokens", tokenize_rows);

static const ls_option common_rows[] = {
    ROW("--log-level", log_level, .value = "warning",
        .help = "what the library prints: errors and warnings on standard error, the rest on "
                "standard output",
        LS_OPTION_CHOICES(level_names)),
    ROW("--print-options", print_options, .value = "off",
        .help = "first print each option, its value, and where the value came from"),
};
const ls_option_table tool_common_flags = LS_OPTION_TABLE("Other options", common_rows);

/* ---- Conversions ---- */

const char *tool_strategy_name(ls_strategy_kind kind)
{
    return strategy_names[kind];
}

size_t tool_read_numbers(const char *text, char separator, int64_t low, int64_t high, int64_t *out, size_t most)
{
    const char *end = text;
    size_t count = 0;
    for (const char *at = text; count == 0 || *end != '\0'; at = end + 1) {
        char digits[24];
        end = strchr(at, separator);
        end = end ? end : at + strlen(at);
        size_t length = (size_t)(end - at);
        snprintf(digits, sizeof digits, "%.*s", length < sizeof digits ? (int)length : (int)sizeof digits, at);
        if (count == most || !ls_parse_i64(digits, &out[count]) || out[count] < low || out[count] > high)
            return 0;
        count++;
    }
    return count;
}

ls_status tool_input_shape(const char *text, ls_shape *out)
{
    ls_shape shape = { .rank = 0 };
    shape.rank = (int)tool_read_numbers(text, 'x', 1, INT64_MAX, shape.dims, LS_MAX_RANK - 1);
    if (shape.rank == 0)
        return ls_fail(LS_ERR_INVALID, "--input %s: expected 1 to %d sizes of a sample, as in 32x32x3", text,
                       LS_MAX_RANK - 1);
    *out = shape;
    return LS_OK;
}

bool tool_given(const ls_options *options, const char *flag)
{
    return ls_options_source(options, flag) != LS_OPTION_FROM_DEFAULT;
}

bool tool_is_overridden(const ls_options *options, const char *flag, const char *other)
{
    return ls_options_source(options, flag) == LS_OPTION_FROM_ENVIRONMENT &&
           ls_options_source(options, other) == LS_OPTION_FROM_COMMAND_LINE;
}
