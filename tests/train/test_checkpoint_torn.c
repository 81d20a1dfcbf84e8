/* Checkpoints and what can happen to files: power cuts at every moment of writing, calls that fail,
 * damaged and hostile files. A reader gets the old state or the new one, or an error; never junk,
 * never a crash. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/job/results.h"

/* ---- Folders ---- */

static char root[64], saved[96], replayed[96];

static int fresh_folder(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "%s/lockstep-torn-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(root))
        return -1;
    snprintf(saved, sizeof(saved), "%s/saved", root);
    snprintf(replayed, sizeof(replayed), "%s/again", root);
    return mkdir(saved, 0777);
}

static int no_folder(void **state)
{
    (void)state;
    return remove_tree(root);
}

/* ---- A model that trains by hand ---- */

static float xs[8 * 3];
static int32_t ys[8];

static char log_text[65536];

static void sink(void *user, ls_log_level level, const char *line)
{
    (void)user, (void)level;
    size_t length = strlen(log_text);
    snprintf(log_text + length, sizeof(log_text) - length, "%s\n", line);
}

static ls_context *ctx;

static ls_model *make_model(void)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(3), ls_dense(4, .activation = LS_RELU), ls_dense(2)));
    OK(ls_compile(model, .optimizer = ls_sgd(.momentum = 0.9),
                  .loss = ls_sparse_categorical_crossentropy(.from_logits = true),
                  .metrics = ls_metrics(ls_accuracy())));
    return model;
}

static void train(ls_model *model)
{
    OK(ls_train_on_batch(model, ls_array_of(LS_F32, LS_SHAPE(8, 3), xs), ls_array_of(LS_I32, LS_SHAPE(8), ys)));
}

static void make_data(void)
{
    for (int i = 0; i < 24; i++)
        xs[i] = (float)(i * 7 % 11) / 11;
    for (int i = 0; i < 8; i++)
        ys[i] = i % 2;
    OK(ls_context_open(&(ls_context_options){ .threads = 1, .log_level = LS_LOG_WARNING, .log_sink = sink }, &ctx));
}

/* ---- Operations, written down ---- */

typedef enum what { OPEN, CREATE, WRITE, FSYNC, CLOSE, MKDIR, RENAME, SYMLINK, UNLINK, RMDIR } what;

typedef struct operation {
    what what;
    char path[160], to[160];
    void *data;
    size_t bytes;
} operation;

#define OPERATIONS 1000
static operation done[OPERATIONS];
static size_t done_count;
static char path_of[1024][160]; /* by descriptor */
static size_t calls, fail_at;   /* the call that fails; 0: none */
static size_t disk_bytes;       /* limit for all files under `saved`; 0: none */
static int fail_with;
static bool fails_on; /* and all that follow */

static operation *note(what what, const char *path, const char *to)
{
    assert_true(done_count < OPERATIONS);
    operation *o = &done[done_count++];
    *o = (operation){ .what = what };
    snprintf(o->path, sizeof(o->path), "%s", path);
    snprintf(o->to, sizeof(o->to), "%s", to);
    return o;
}

static bool fails(void)
{
    calls++;
    if (fail_at == 0 || (fails_on ? calls < fail_at : calls != fail_at))
        return false;
    errno = fail_with;
    return true;
}

static int shim_open(void *user, const char *path, int flags, mode_t mode)
{
    (void)user;
    if (fails())
        return -1;
    int fd = ls_system_file_ops.open(NULL, path, flags, mode);
    if (fd >= 0) {
        assert_true(fd < 1024);
        snprintf(path_of[fd], sizeof(path_of[fd]), "%s", path);
        note(flags & O_CREAT ? CREATE : OPEN, path, "");
    }
    return fd;
}

static size_t used_bytes;

static int add_bytes(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)path, (void)at;
    used_bytes += type == FTW_F ? (size_t)info->st_size : 0;
    return 0;
}

static size_t bytes_under(const char *path)
{
    used_bytes = 0;
    assert_int_equal(nftw(path, add_bytes, 8, FTW_PHYS), 0);
    return used_bytes;
}

static ssize_t shim_write(void *user, int fd, const void *data, size_t bytes)
{
    (void)user;
    if (fails())
        return -1;
    if (disk_bytes > 0 && bytes_under(saved) + bytes > disk_bytes) {
        errno = ENOSPC;
        return -1;
    }
    size_t part = bytes > 100 ? bytes / 2 : bytes; /* a write may be short */
    ssize_t put = ls_system_file_ops.write(NULL, fd, data, part);
    operation *o = note(WRITE, path_of[fd], "");
    o->bytes = (size_t)put;
    o->data = malloc(o->bytes + 1);
    memcpy(o->data, data, o->bytes);
    return put;
}

static int shim_fsync(void *user, int fd)
{
    (void)user;
    if (fails())
        return -1;
    note(FSYNC, path_of[fd], "");
    return 0; /* this machine keeps its power */
}

static int shim_close(void *user, int fd)
{
    (void)user;
    note(CLOSE, path_of[fd], "");
    int status = ls_system_file_ops.close(NULL, fd);
    return fails() ? -1 : status;
}

#define SHIM(name, WHAT, system_call, path, to)                                                                        \
    if (fails())                                                                                                       \
        return -1;                                                                                                     \
    int status = system_call;                                                                                          \
    if (status == 0)                                                                                                   \
        note(WHAT, path, to);                                                                                          \
    return status

static int shim_mkdir(void *user, const char *path, mode_t mode)
{
    (void)user;
    SHIM(mkdir, MKDIR, mkdir(path, mode), path, "");
}

static int shim_rename(void *user, const char *from, const char *to)
{
    (void)user;
    SHIM(rename, RENAME, rename(from, to), from, to);
}

static int shim_symlink(void *user, const char *target, const char *path)
{
    (void)user;
    SHIM(symlink, SYMLINK, symlink(target, path), path, target);
}

static int shim_unlink(void *user, const char *path)
{
    (void)user;
    SHIM(unlink, UNLINK, unlink(path), path, "");
}

static int shim_rmdir(void *user, const char *path)
{
    (void)user;
    SHIM(rmdir, RMDIR, rmdir(path), path, "");
}

static const ls_file_ops shim = {
    .open = shim_open,
    .write = shim_write,
    .fsync = shim_fsync,
    .close = shim_close,
    .mkdir = shim_mkdir,
    .rename = shim_rename,
    .symlink = shim_symlink,
    .unlink = shim_unlink,
    .rmdir = shim_rmdir,
};

static void forget(void)
{
    for (size_t i = 0; i < done_count; i++)
        free(done[i].data);
    done_count = calls = fail_at = disk_bytes = 0;
    fails_on = false;
}

/* ---- One save, as the thread of a fit does it ---- */

static ls_status save(ls_model *model, int keep)
{
    ls_facts facts;
    ls_content *content = NULL;
    size_t bytes;
    OK(ls_facts_make(model->job, &facts));
    OK(ls_content_make(model->job, &(ls_state_extras){ .facts = &facts }, &content));
    ls_facts_free(&facts);
    ls_status status = ls_checkpoint_write(&shim, saved, content, (ls_permission){ .ask = NULL }, &bytes);
    if (status == LS_OK) {
        ls_checkpoint_link(&shim, saved, "last", content->step);
        ls_checkpoints_prune(&shim, saved, keep, content->step, -1);
    }
    ls_content_destroy(content);
    return status;
}

/* The hash at the end of a state.json, which identifies the save. */
static void identity(const char *dir, char hex[65])
{
    ls_checkpoint *found = NULL;
    OK(ls_checkpoint_find(dir, NULL, &found));
    assert_non_null(found);
    snprintf(hex, 65, "%s", json_string_value(json_object_get(found->state, "sha256")));
    ls_checkpoint_close(found);
}

/* ---- Power cuts ---- */

typedef enum fate { KEPT, DROPPED, CUT } fate;

static const char *parent_of(const char *path, char out[160])
{
    snprintf(out, 160, "%s", path);
    *strrchr(out, '/') = '\0';
    return out;
}

/* Whether something after operation i, among the first `count`, has made it last. */
static bool is_synced(size_t i, size_t count, bool syncs_count)
{
    char parent[160];
    bool is_entry = done[i].what != WRITE;
    if (done[i].what == OPEN || done[i].what == CLOSE || done[i].what == FSYNC)
        return true;
    const char *path = is_entry ? parent_of(done[i].path, parent) : done[i].path;
    for (size_t k = i + 1; k < count && syncs_count; k++)
        if (done[k].what == FSYNC && strcmp(done[k].path, path) == 0)
            return true;
    return false;
}

static const char *elsewhere(const char *path, char out[160])
{
    assert_true(strncmp(path, saved, strlen(saved)) == 0);
    snprintf(out, 160, "%s%s", replayed, path + strlen(saved));
    return out;
}

static void replay_one(const operation *o, fate fate)
{
    char path[160], to[160];
    elsewhere(o->path, path);
    if (o->what == WRITE) {
        int fd = open(path, O_WRONLY | O_APPEND);
        ssize_t put = fd >= 0 ? write(fd, o->data, fate == CUT ? o->bytes / 2 : o->bytes) : 0;
        (void)put;
        if (fd >= 0)
            close(fd);
    } else if (o->what == CREATE) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd >= 0)
            close(fd);
    } else if (o->what == MKDIR) {
        mkdir(path, 0777);
    } else if (o->what == RENAME) {
        rename(path, elsewhere(o->to, to));
    } else if (o->what == SYMLINK) {
        assert_true(symlink(o->to, path) == 0 || errno != EINVAL);
    } else if (o->what == UNLINK) {
        unlink(path);
    } else if (o->what == RMDIR) {
        rmdir(path);
    }
}

/* The first `count` operations; each unsynced one is kept or lost by itself. */
static void replay(size_t count, const fate *fates)
{
    assert_int_equal(remove_tree(replayed), 0);
    mkdir(replayed, 0777);
    for (size_t i = 0; i < count; i++)
        if (fates[i] != DROPPED)
            replay_one(&done[i], fates[i]);
}

#define SAVES 5
static size_t mark[SAVES]; /* operations when a save was complete */
static char identities[SAVES][65];

/* 0: as it must be. The state is that of the last save that was complete, or of the one after
 * it. */
static int judge(size_t count)
{
    ls_checkpoint *found = NULL;
    int complete = -1, wrong = 0;
    ls_logger *log = &ctx->log;
    log_text[0] = '\0';
    for (int s = 0; s < SAVES; s++)
        if (mark[s] <= count)
            complete = s;
    ls_status status = ls_checkpoint_find(replayed, log, &found);
    if (status != LS_OK || log_text[0] != '\0') { /* nothing may be damaged, nor passed over */
        wrong = 1;
    } else if (!found) {
        wrong = complete >= 0;
    } else {
        const char *hex = json_string_value(json_object_get(found->state, "sha256"));
        wrong = !((complete >= 0 && strcmp(hex, identities[complete]) == 0) ||
                  (complete + 1 < SAVES && strcmp(hex, identities[complete + 1]) == 0));
    }
    ls_checkpoint_close(found);
    return wrong;
}

/* Every prefix of the operations; of what is not synced then: all kept, all lost, each lost or cut
 * alone, every write cut. Returns the states that are wrong. */
static int count_wrong(bool syncs_count, size_t *states)
{
    static fate fates[OPERATIONS];
    int wrong = 0;
    *states = 0;
    for (size_t count = 0; count <= done_count; count++) {
        static size_t loose[OPERATIONS];
        size_t loose_count = 0;
        for (size_t i = 0; i < count; i++) {
            fates[i] = KEPT;
            if (!is_synced(i, count, syncs_count))
                loose[loose_count++] = i;
        }
        size_t first = syncs_count || loose_count < 40 ? 0 : loose_count - 40; /* without syncs there are many */
#define TRY()                                                                                                          \
    do {                                                                                                               \
        replay(count, fates);                                                                                          \
        wrong += judge(count);                                                                                         \
        ++*states;                                                                                                     \
    } while (0)
        TRY();
        for (size_t i = first; i < loose_count; i++) {
            fates[loose[i]] = DROPPED;
            TRY();
            if (done[loose[i]].what == WRITE) {
                fates[loose[i]] = CUT;
                TRY();
            }
            fates[loose[i]] = KEPT;
        }
        for (int way = 0; way < 2 && loose_count > 0; way++) {
            for (size_t i = 0; i < loose_count; i++)
                fates[loose[i]] = way == 0 ? DROPPED : done[loose[i]].what == WRITE ? CUT : KEPT;
            TRY();
        }
#undef TRY
        if (!syncs_count && wrong > 0) /* enough is known */
            break;
    }
    return wrong;
}

static void power_cuts(void **state)
{
    (void)state;
    size_t states = 0, more = 0;
    ls_model *model = make_model();
    forget();
    for (int s = 0; s < SAVES; s++) {
        if (s != 3) /* the fourth is of the same step as the third, but of another epoch: it takes its place */
            train(model);
        model->job->position.epoch = s;
        OK(save(model, 2));
        mark[s] = done_count;
        identity(saved, identities[s]);
    }
    ls_model_destroy(model);
    mark[0] = mark[0] > 2 ? mark[0] : 2;
    int wrong = count_wrong(true, &states);
    if (wrong > 0)
        fail_msg("%d of %zu states are wrong", wrong, states);
    assert_true(states > 500);
    assert_true(count_wrong(false, &more) > 0); /* if no sync counted, this test would see it */
    forget();
}

/* ---- Calls that fail ---- */

static int temporaries;

static int count_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    temporaries += strstr(path, ".tmp") != NULL || strstr(path, ".old") != NULL;
    return 0;
}

static int count_temporaries(void)
{
    temporaries = 0;
    assert_int_equal(nftw(saved, count_one, 8, FTW_PHYS), 0);
    return temporaries;
}

/* One call fails, or that and all after it: the save fails or not; the old checkpoint or the new
 * one is there, whole. / */
static void failing_calls(void **state)
{
    (void)state;
    const int errors[] = { ENOSPC, EIO, EDQUOT };
    char old[65], new[65], found[65];
    ls_model *model = make_model();
    for (int lasting = 0; lasting < 2; lasting++)
        for (size_t n = 1;; n++) {
            assert_int_equal(remove_tree(saved), 0);
            mkdir(saved, 0777);
            forget();
            train(model);
            OK(save(model, 1));
            identity(saved, old);
            train(model);
            calls = 0;
            fail_at = n;
            fail_with = errors[n % 3];
            fails_on = lasting;
            ls_status status = save(model, 1);
            bool reached = calls >= n;
            fail_at = 0;
            identity(saved, found);
            if (status == LS_OK) {
                assert_string_not_equal(found, old);
            } else {
                machine_has(ls_last_error(), "cannot ");
                if (!lasting)
                    assert_int_equal(count_temporaries(), 0);
            }
            OK(save(model, 1)); /* room again: it works, and nothing is left */
            identity(saved, new);
            assert_string_not_equal(new, old);
            int lock = -1;
            OK(ls_checkpoint_lock(&shim, saved, &lock));
            close(lock);
            assert_int_equal(count_temporaries(), 0);
            if (!reached)
                break;
            assert_true(n < 300);
        }
    forget();
    ls_model_destroy(model);
}

/* The loss after the second epoch is the best: then the steps are so large that it gets worse. */
static ls_status worsen(void *user, ls_model *model, const ls_logs *logs)
{
    (void)user;
    ls_checkpoint_writer_wait_idle(model->job->writer,
                                   saved); /* every epoch is saved: the thread is done with the last one */
    return ls_set_learning_rate(model, logs->epoch == 1 ? 100 : 0.1);
}

/* Training goes on, and its bits are the same. */
static void a_full_disk_does_not_end_training(void **state)
{
    (void)state;
    char hash[2][65];
    for (int full = 0; full < 2; full++) {
        ls_model *model = make_model();
        ls_dataset *data = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(8, 3), xs),
                                                 ls_array_of(LS_I32, LS_SHAPE(8), ys), .keep = LS_KEEP_BORROWED);
        assert_int_equal(remove_tree(saved), 0);
        forget();
        log_text[0] = '\0';
        if (full) { /* the folder can be made, synced and tried, but nothing is written to it */
            model->job->file_ops = &shim;
            fail_with = ENOSPC;
            fails_on = true;
            fail_at = 7;
        }
        ls_history *history = NULL;
        ls_status status = ls_fit(model, data, .epochs = 4, .batch_size = 2, .checkpoint = saved, .save_every = "2",
                                  .verbose = LS_VERBOSE_SILENT, .history = &history);
        assert_int_equal(status, full ? LS_ERR_UNSAVED : LS_OK);
        if (full)
            machine_has(ls_last_error(), "training has ended, but its last checkpoint could not be saved to");
        assert_non_null(history);
        ls_history_destroy(history);
        OK(ls_model_state_sha256(model, hash[full]));
        if (full) {
            machine_has(log_text, "NO CHECKPOINT of step ");
            machine_has(log_text, "No space left on device; training continues, older checkpoints are unchanged");
            machine_has(log_text, "checkpoints could not be saved to");
        } else {
            assert_string_equal(log_text, "");
        }
        ls_dataset_destroy(data);
        ls_model_destroy(model);
    }
    assert_string_equal(hash[0], hash[1]);
    forget();
}

/* Trains on a disk with room for this number of checkpoints and a half; returns the step of the
 * newest one. */
static int64_t fit_with_room(size_t checkpoints, size_t size, ls_status wanted)
{
    ls_model *model = make_model();
    ls_dataset *data = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(8, 3), xs),
                                             ls_array_of(LS_I32, LS_SHAPE(8), ys), .keep = LS_KEEP_BORROWED);
    assert_int_equal(remove_tree(saved), 0);
    forget();
    log_text[0] = '\0';
    model->job->file_ops = &shim;
    disk_bytes = checkpoints * size + size / 2;
    assert_int_equal(ls_fit(model, data, .epochs = 6, .batch_size = 8, .checkpoint = saved,
                            .verbose = LS_VERBOSE_SILENT, .callbacks = ls_callbacks({ .on_epoch_begin = worsen })),
                     wanted);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    ls_checkpoint *found = NULL;
    OK(ls_checkpoint_find(saved, NULL, &found));
    int64_t step = found->step;
    ls_checkpoint_close(found);
    assert_int_equal(count_temporaries(), 0);
    forget();
    return step;
}

/* With less room than --keep asks for, the oldest gives way to the newest; the best stays, and
 * never is there none. */
static void on_a_full_disk_the_oldest_gives_way(void **state)
{
    (void)state;
    char name[160];
    struct stat info;
    assert_int_equal(fit_with_room(100, 1 << 20, LS_OK), 6);
    assert_string_equal(log_text, "");
    snprintf(name, sizeof(name), "%s/step-00000006", saved);
    size_t size = bytes_under(name);
    for (size_t room = 2; room <= 3; room++) {
        assert_int_equal(fit_with_room(room, size, LS_OK), 6);
        machine_has(log_text, "is full: the checkpoint of step ");
        snprintf(name, sizeof(name), "%s/best", saved); /* step 2, as the learning rate says */
        char target[64] = "";
        assert_true(readlink(name, target, sizeof(target) - 1) > 0);
        assert_string_equal(target, "step-00000002");
        assert_int_equal(stat(name, &info), 0);
    }
    assert_int_equal(fit_with_room(1, size, LS_ERR_UNSAVED), 1);
    machine_has(ls_last_error(), "could not be saved to");
    assert_null(strstr(log_text, "was removed"));
}

/* A power cut must not remove the folder that was just made, nor its parents. */
static void new_folders_are_synced(void **state)
{
    (void)state;
    char deep[160];
    int lock = -1, made = 0;
    forget();
    snprintf(deep, sizeof(deep), "%s/a/b/c", saved);
    OK(ls_checkpoint_lock(&shim, deep, &lock));
    close(lock);
    for (size_t i = 0; i < done_count; i++)
        if (done[i].what == MKDIR && !strstr(done[i].path, ".tmp")) {
            made++;
            if (!is_synced(i, done_count, true))
                fail_msg("the parent of %s is not synced", done[i].path);
        }
    assert_int_equal(made, 3);
    forget();
}

/* The disk is full in the second epoch, which is the best; its step is so large that the third is
 * worse. */
static ls_status turn_full(void *user, ls_model *model, const ls_logs *logs)
{
    (void)user;
    ls_checkpoint_writer_wait_idle(model->job->writer, saved); /* waits for the write */
    fail_at = logs->epoch == 1;
    return ls_set_learning_rate(model, logs->epoch == 1 ? 100 : 0.1);
}

/* The best one that could be written stays until a better one is there. */
static void a_best_one_that_failed_removes_no_other(void **state)
{
    (void)state;
    char name[160], target[64];
    struct stat info;
    double loss[3];
    ls_history *history = NULL;
    ls_model *model = make_model();
    ls_dataset *data = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(8, 3), xs),
                                             ls_array_of(LS_I32, LS_SHAPE(8), ys), .keep = LS_KEEP_BORROWED);
    forget();
    model->job->file_ops = &shim;
    fail_with = ENOSPC;
    fails_on = true;
    OK(ls_fit(model, data, .epochs = 3, .batch_size = 8, .checkpoint = saved, .keep = 1, .verbose = LS_VERBOSE_SILENT,
              .history = &history, .callbacks = ls_callbacks({ .on_epoch_begin = turn_full })));
    for (size_t i = 0; i < 3; i++)
        OK(ls_history_value(history, "loss", i, &loss[i]));
    assert_true(loss[1] < loss[0] && loss[2] > loss[1]);
    ls_history_destroy(history);
    snprintf(name, sizeof(name), "%s/best", saved);
    ssize_t length = readlink(name, target, sizeof(target) - 1);
    assert_true(length > 0);
    target[length] = '\0';
    assert_string_equal(target, "step-00000001");
    assert_int_equal(stat(name, &info), 0);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    forget();
}

/* ---- Damage ---- */

static char *read_whole(const char *path, size_t *bytes)
{
    char *data = NULL;
    OK(ls_file_read(path, 1 << 24, &data, bytes));
    return data;
}

static void write_whole(const char *path, const char *data, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fwrite(data, 1, bytes, file) == bytes);
    assert_int_equal(fclose(file), 0);
}

/* The newest is not whole any more: the one before is taken, and a warning names the damaged one
 * and the reason. */
static void passed_over(const char *name, const char *old)
{
    char found[65];
    ls_checkpoint *c = NULL;
    log_text[0] = '\0';
    OK(ls_checkpoint_find(saved, &ctx->log, &c));
    assert_non_null(c);
    snprintf(found, sizeof(found), "%s", json_string_value(json_object_get(c->state, "sha256")));
    ls_checkpoint_close(c);
    if (strcmp(found, old) != 0)
        fail_msg("%s was damaged, and taken", name);
    machine_has(log_text, "step-00000002': ");
    machine_has(log_text, name);
}

static void damage(const char *name, const char *old)
{
    char path[256];
    size_t bytes;
    snprintf(path, sizeof(path), "%s/step-00000002/%s", saved, name);
    char *data = read_whole(path, &bytes), *changed = malloc(bytes + 2);
    for (size_t i = 0; i < bytes; i += 1 + bytes / 150) { /* a bit */
        memcpy(changed, data, bytes);
        changed[i] ^= (char)(1 << i % 8);
        write_whole(path, changed, bytes);
        passed_over(name, old);
    }
    for (size_t i = 0; i < bytes; i += 1 + bytes / 60) { /* cut */
        write_whole(path, data, i);
        passed_over(name, old);
    }
    memcpy(changed, data, bytes);
    changed[bytes] = '\n';
    write_whole(path, changed, bytes + 1); /* too long */
    passed_over(name, old);
    unlink(path); /* gone */
    passed_over(name, old);
    mkdir(path, 0777); /* something else */
    passed_over(name, old);
    rmdir(path);
    assert_int_equal(mkfifo(path, 0666), 0); /* which is not written */
    passed_over(name, old);
    unlink(path);
    write_whole(path, data, bytes);
    free(data);
    free(changed);
}

static void damaged_files_are_passed_over(void **state)
{
    (void)state;
    char old[65], new[65], before[65], after[65], path[256];
    ls_model *model = make_model(), *other = make_model();
    forget();
    train(model);
    OK(save(model, 9));
    identity(saved, old);
    train(model);
    OK(save(model, 9));
    identity(saved, new);
    damage(LS_CHECKPOINT_MODEL, old);
    damage(LS_CHECKPOINT_OPTIMIZER, old);
    damage(LS_CHECKPOINT_STATE, old);
    identity(saved, after);
    assert_string_equal(new, after); /* as it was */
    for (int i = 1; i <= 2; i++) {   /* none is whole: an error, and nothing is changed */
        snprintf(path, sizeof(path), "%s/step-%08d/model.safetensors", saved, i);
        write_whole(path, "x", 1);
    }
    OK(ls_model_state_sha256(other, before));
    FAILS(ls_checkpoint_restore(other, saved), LS_ERR_DATA, "none of the 2 checkpoints in",
          "model.safetensors' is damaged: it has 1 bytes");
    snprintf(path, sizeof(path), "%s/step-00000002", saved);
    FAILS(ls_checkpoint_restore(other, path), LS_ERR_DATA, "model.safetensors' is damaged: it has 1 bytes");
    OK(ls_model_state_sha256(other, after));
    assert_string_equal(before, after);
    forget();
    ls_model_destroy(model);
    ls_model_destroy(other);
}

/* A run that goes on from the one before gives the damaged one another name, so that it is not
 * taken for a later one. / */
static void damaged_ones_are_set_aside(void **state)
{
    (void)state;
    char path[256];
    ls_dataset *data = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(8, 3), xs),
                                             ls_array_of(LS_I32, LS_SHAPE(8), ys), .keep = LS_KEEP_BORROWED);
    for (int part = 0; part < 2; part++) {
        ls_model *model = make_model();
        OK(ls_fit(model, data, .epochs = 3, .batch_size = 8, .max_steps = part ? 3 : 2, .checkpoint = saved, .keep = 1,
                  .resume = "auto", .save_every = "1epoch", .verbose = LS_VERBOSE_SILENT));
        ls_model_destroy(model);
        if (part == 0) { /* one that seems to be of step 9 */
            snprintf(path, sizeof(path), "%s/step-00000009", saved);
            mkdir(path, 0777);
        }
    }
    ls_named_checkpoint *list = NULL;
    size_t count = 0;
    OK(ls_checkpoints_list(saved, &list, &count));
    assert_true(count >= 1 && list[0].step == 3);
    free(list);
    snprintf(path, sizeof(path), "%s/step-00000009.damaged", saved);
    assert_int_equal(access(path, F_OK), 0);
    ls_dataset_destroy(data);
}

/* ---- Files that are whole, but have wrong content ---- */

/* Reads a state with everything that reads one. It may be good by chance; it must not crash. */
static void read_hostile(const json_t *state, ls_model *model)
{
    char *text = NULL, path[256], *difference = NULL;
    size_t bytes = 0;
    ls_checkpoint *c = NULL;
    ls_history *history = NULL;
    ls_best best = { .known = false };
    OK(ls_state_text(state, &text, &bytes));
    snprintf(path, sizeof(path), "%s/step-00000002/state.json", saved);
    write_whole(path, text, bytes);
    free(text);
    snprintf(path, sizeof(path), "%s/step-00000002", saved);
    if (ls_checkpoint_find(path, NULL, &c) != LS_OK)
        return;
    if (ls_checkpoint_history(c, &history) == LS_OK) {
        ls_results results = { .count = 2, .names = { "loss", "accuracy" }, .values = { 1, 2 } };
        OK(ls_history_add(&history, &results, &results)); /* whatever its names are */
    }
    ls_history_destroy(history);
    (void)ls_checkpoint_best(c, "loss", &best);
    if (ls_checkpoint_fits(c, model->job, (ls_fits){ .allow_other_bits = true }, &difference) == LS_OK)
        (void)ls_checkpoint_put(c, model->job);
    free(difference);
    ls_checkpoint_close(c);
}

static json_t *hostile_value(int which)
{
    json_t *long_array = NULL;
    switch (which) {
    case 0:
        return json_true();
    case 1:
        return json_null();
    case 2:
        return json_integer(-1);
    case 3:
        return json_integer(INT64_MAX);
    case 4:
        return json_real(1e308);
    case 5:
        return json_string("x\n\x1b[31m");
    case 6:
        return json_array();
    case 7:
        return json_object();
    default:
        long_array = json_array();
        for (int i = 0; i < 3000; i++)
            json_array_append_new(long_array, json_integer(i));
        return long_array;
    }
}
#define HOSTILE 9

static size_t changed_states;

static void change_everything(json_t *all, json_t *at, ls_model *model)
{
    size_t count = json_is_object(at) ? json_object_size(at) : json_is_array(at) ? json_array_size(at) : 0;
    for (size_t i = 0; i < count; i++) {
        char key[128] = "";
        json_t *kept = NULL;
        if (json_is_object(at)) {
            void *iter = json_object_iter(at);
            for (size_t k = 0; k < i; k++)
                iter = json_object_iter_next(at, iter);
            snprintf(key, sizeof(key), "%s", json_object_iter_key(iter));
            kept = json_incref(json_object_iter_value(iter));
        } else {
            kept = json_incref(json_array_get(at, i));
        }
        for (int h = 0; h < HOSTILE; h++) {
            if (json_is_object(at))
                json_object_set_new(at, key, hostile_value(h));
            else
                json_array_set_new(at, i, hostile_value(h));
            read_hostile(all, model);
            changed_states++;
        }
        if (json_is_object(at))
            json_object_set(at, key, kept); /* where it was: keys keep their order */
        else
            json_array_set(at, i, kept);
        change_everything(all, kept, model);
        json_decref(kept);
    }
}

static void drop_each_key(json_t *all, ls_model *model)
{
    const char *const keys[] = { "format",     "version", "step", "job",     "fit",  "bits",
                                 "other_bits", "state",   "best", "history", "files" };
    for (size_t i = 0; i < LENGTH(keys); i++) {
        json_t *without = json_deep_copy(all);
        json_object_del(without, keys[i]);
        read_hostile(without, model);
        json_decref(without);
    }
}

static void hostile_states_are_refused(void **state)
{
    (void)state;
    char path[256], before[65];
    ls_model *model = make_model(), *other = make_model();
    forget();
    train(model);
    train(model);
    OK(save(model, 9));
    OK(ls_model_state_sha256(model, before));
    snprintf(path, sizeof(path), "%s/step-00000002/state.json", saved);
    json_t *all = json_load_file(path, 0, NULL);
    assert_non_null(all);
    json_object_del(all, "sha256");
    json_t *row = json_pack("[f, f]", 1.0, 2.0), *history = json_object_get(all, "history");
    json_array_append_new(json_object_get(history, "names"), json_string("loss"));
    json_array_append_new(json_object_get(history, "names"), json_string("accuracy"));
    json_array_append_new(json_object_get(history, "epochs"), row);
    json_object_set_new(all, "best", json_pack("{s:s, s:f, s:i}", "monitor", "loss", "value", 1.0, "step", 2));
    change_everything(all, all, other);
    drop_each_key(all, other);
    assert_true(changed_states > 300);
    read_hostile(all, other); /* as it was: good */
    char after[65];
    OK(ls_model_state_sha256(other, after));
    assert_string_equal(before, after);
    json_decref(all);
    forget();
    ls_model_destroy(model);
    ls_model_destroy(other);
}

/* Two processes, or two jobs of one, do not write to one folder. */
static void one_writer(void **state)
{
    (void)state;
    int first = -1, second = -1;
    OK(ls_checkpoint_lock(&ls_system_file_ops, saved, &first));
    FAILS(ls_checkpoint_lock(&ls_system_file_ops, saved, &second), LS_ERR_STATE, "another run writes checkpoints to");
    close(first);
    OK(ls_checkpoint_lock(&ls_system_file_ops, saved, &second));
    close(second);
}

int main(void)
{
    make_data();
#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh_folder, no_folder)
    const struct CMUnitTest tests[] = {
        TEST(power_cuts),
        TEST(failing_calls),
        TEST(a_full_disk_does_not_end_training),
        TEST(on_a_full_disk_the_oldest_gives_way),
        TEST(new_folders_are_synced),
        TEST(a_best_one_that_failed_removes_no_other),
        TEST(damaged_files_are_passed_over),
        TEST(damaged_ones_are_set_aside),
        TEST(hostile_states_are_refused),
        TEST(one_writer),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ls_context_close(ctx);
    return failed;
}
