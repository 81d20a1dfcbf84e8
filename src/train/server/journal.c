/* A parameter server's journal (journal.h). */
#include "train/server/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/hash.h"

#define STATE_MAGIC 0x31736a4cu /* "Ljs1" */
#define PUSH_MAGIC  0x31706a4cu /* "Ljp1" */
#define MOST_LISTED ((uint64_t)1 << 32)

/* ---- Applied batches ---- */

static size_t position_of(const ls_applied *a, int64_t ordinal)
{
    size_t at = a->count;
    while (at > 0 && a->list[at - 1] >= ordinal)
        at--;
    return at;
}

bool ls_applied_has(const ls_applied *a, int64_t ordinal)
{
    size_t at = position_of(a, ordinal);
    return ordinal < a->below || (at < a->count && a->list[at] == ordinal);
}

ls_status ls_applied_add(ls_applied *a, int64_t ordinal)
{
    size_t at = position_of(a, ordinal), gone = 0;
    LS_TRY(ls_grow(&a->list, a->count, &a->room, sizeof(*a->list)));
    memmove(a->list + at + 1, a->list + at, (a->count - at) * sizeof(*a->list));
    a->list[at] = ordinal;
    a->count++;
    for (; gone < a->count && a->list[gone] == a->below; gone++)
        a->below++;
    a->count -= gone;
    memmove(a->list, a->list + gone, a->count * sizeof(*a->list));
    return LS_OK;
}

void ls_applied_free(ls_applied *a)
{
    free(a->list);
    *a = (ls_applied){ .count = 0 };
}

/* ---- Files ---- */

typedef struct state_head {
    uint32_t magic, server;
    char id[LS_RUN_ID + 7];
    int64_t number, below;
    uint64_t listed, bytes;
    double rate;
    uint64_t hash[2]; /* hash of the list and the state that follow */
} state_head;

typedef struct push_head {
    uint32_t magic, server;
    int64_t ordinal, epoch, batch, run, samples, worker;
    uint64_t bytes;
    double rate;
    uint64_t hash[2]; /* hash of the bytes that follow */
} push_head;

static void state_path(const ls_journal *j, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/server-%d.state", j->folder, j->server);
}

static void push_path(const ls_journal *j, int64_t number, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/server-%d.pushes-%lld", j->folder, j->server, (long long)number);
}

static void hash_of(const void *a, size_t a_bytes, const void *b, size_t b_bytes, uint64_t out[2])
{
    ls_hash hash;
    ls_hash_begin(&hash);
    if (a_bytes)
        ls_hash_add(&hash, a, a_bytes);
    ls_hash_add(&hash, b, b_bytes);
    ls_hash_end(&hash, out);
}

ls_status ls_journal_make(const char *folder, const char *id, int server, size_t state_bytes, size_t push_bytes,
                          ls_journal *out)
{
    if (strlen(folder) >= sizeof(out->folder))
        return ls_fail(LS_ERR_IO, "the name of the journal's folder '%.100s...' is too long", folder);
    *out = (ls_journal){
        .server = server, .state_bytes = state_bytes, .push_bytes = push_bytes, .file = LS_APPEND_CLOSED
    };
    snprintf(out->folder, sizeof(out->folder), "%s", folder);
    snprintf(out->id, sizeof(out->id), "%s", id);
    return ls_make_folders(folder);
}

/* ---- Writing ---- */

/* Creates the new, empty file of pushes before the state that names it, and deletes the old one
 * last. */
ls_status ls_journal_begin(ls_journal *j, const ls_journal_state *state)
{
    const ls_applied *a = &state->applied;
    char path[PATH_MAX], pushes[PATH_MAX], old[PATH_MAX];
    state_head h = { .magic = STATE_MAGIC,
                     .server = (uint32_t)j->server,
                     .number = j->number + 1,
                     .below = a->below,
                     .listed = a->count,
                     .bytes = j->state_bytes,
                     .rate = state->rate };
    snprintf(h.id, sizeof(h.id), "%s", j->id);
    hash_of(a->list, a->count * sizeof(*a->list), state->bytes, j->state_bytes, h.hash);
    state_path(j, path);
    push_path(j, j->number, old);
    push_path(j, h.number, pushes);
    ls_append file = LS_APPEND_CLOSED;
    LS_TRY(ls_append_open(&file, pushes));
    ls_append_truncate(&file, 0);
    const ls_file_part parts[] = { { &h, sizeof(h) },
                                   { a->list, a->count * sizeof(*a->list) },
                                   { state->bytes, j->state_bytes } };
    ls_status status = ls_file_write_parts(path, parts, 3);
    if (status != LS_OK) {
        ls_append_close(&file);
        unlink(pushes);
        return status;
    }
    ls_append_close(&j->file);
    unlink(old);
    j->file = file;
    j->number = h.number;
    return LS_OK;
}

ls_status ls_journal_add(ls_journal *j, const ls_journal_push *push)
{
    push_head h = { .magic = PUSH_MAGIC,
                    .server = (uint32_t)j->server,
                    .ordinal = push->ordinal,
                    .epoch = push->epoch,
                    .batch = push->batch,
                    .run = push->run,
                    .samples = push->samples,
                    .worker = push->worker,
                    .bytes = j->push_bytes,
                    .rate = push->rate };
    int64_t before = j->file.bytes;
    hash_of(NULL, 0, push->bytes, j->push_bytes, h.hash);
    ls_status status = ls_append_write(&j->file, &h, sizeof(h));
    if (status == LS_OK)
        status = ls_append_write(&j->file, push->bytes, j->push_bytes);
    if (status != LS_OK || j->file.error != 0) {
        ls_append_truncate(&j->file, before);
        return ls_fail(LS_ERR_IO, "cannot write the journal in '%s': %s", j->folder, strerror(j->file.error));
    }
    return LS_OK;
}

/* ---- Restoring ---- */

static ls_status read_exactly(int fd, const char *path, void *data, size_t bytes, bool *whole)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, (char *)data + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ls_file_fail("cannot read", path, errno);
        if (got == 0)
            break;
        done += (size_t)got;
    }
    *whole = done == bytes;
    return LS_OK;
}

static ls_status bad(const char *path, const char *why)
{
    return ls_fail(LS_ERR_DATA, "the journal '%s' is damaged: %s", path, why);
}

static ls_status check_state_head(const ls_journal *j, const char *path, const state_head *h, off_t size)
{
    if (h->magic != STATE_MAGIC || h->server != (uint32_t)j->server || h->bytes != j->state_bytes || h->number < 1 ||
        h->below < 0 || h->listed > MOST_LISTED ||
        (uint64_t)size != sizeof(*h) + h->listed * sizeof(int64_t) + h->bytes)
        return bad(path, "its head does not belong to this server");
    return LS_OK;
}

static ls_status read_state_from(ls_journal *j, int fd, const char *path, ls_journal_state *state, bool *found)
{
    state_head h;
    struct stat about;
    bool whole = false;
    uint64_t hash[2];
    LS_TRY(read_exactly(fd, path, &h, sizeof(h), &whole));
    if (!whole || fstat(fd, &about) != 0)
        return bad(path, "it is too short");
    if (memcmp(h.id, j->id, sizeof(j->id)) != 0) /* another run's */
        return LS_OK;
    LS_TRY(check_state_head(j, path, &h, about.st_size));
    ls_applied a = { .below = h.below, .count = (size_t)h.listed, .room = (size_t)h.listed };
    a.list = malloc((a.count + 1) * sizeof(*a.list));
    ls_status status = a.list ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the batches of a journal");
    if (status == LS_OK)
        status = read_exactly(fd, path, a.list, a.count * sizeof(*a.list), &whole);
    if (status == LS_OK && whole)
        status = read_exactly(fd, path, state->bytes, j->state_bytes, &whole);
    hash_of(a.list, a.list && whole ? a.count * sizeof(*a.list) : 0, state->bytes, j->state_bytes, hash);
    if (status == LS_OK && (!whole || memcmp(hash, h.hash, sizeof(hash)) != 0))
        status = bad(path, "its hash does not match");
    if (status != LS_OK) {
        ls_applied_free(&a);
        return status;
    }
    state->applied = a;
    state->rate = h.rate;
    j->number = h.number;
    *found = true;
    return LS_OK;
}

static ls_status read_state(ls_journal *j, ls_journal_state *state, bool *found)
{
    char path[PATH_MAX];
    state_path(j, path);
    *found = false;
    int fd = ls_file_open(path, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? LS_OK : ls_file_fail("cannot open", path, errno);
    ls_status status = read_state_from(j, fd, path, state, found);
    close(fd);
    return status;
}

/* Reads one push. *whole is false at the end of the file, or if the push is incomplete. */
static ls_status read_push(const ls_journal *j, int fd, const char *path, push_head *h, void *bytes, bool *whole)
{
    uint64_t hash[2];
    LS_TRY(read_exactly(fd, path, h, sizeof(*h), whole));
    if (!*whole)
        return LS_OK;
    *whole = h->magic == PUSH_MAGIC && h->server == (uint32_t)j->server && h->bytes == j->push_bytes;
    if (*whole)
        LS_TRY(read_exactly(fd, path, bytes, j->push_bytes, whole));
    if (!*whole)
        return LS_OK;
    hash_of(NULL, 0, bytes, j->push_bytes, hash);
    *whole = memcmp(hash, h->hash, sizeof(hash)) == 0;
    return LS_OK;
}

static ls_status read_pushes(ls_journal *j, const ls_journal_reader *reader, void *bytes, int64_t *end)
{
    char path[PATH_MAX];
    push_path(j, j->number, path);
    *end = 0;
    int fd = ls_file_open(path, O_RDONLY, 0);
    if (fd < 0)
        return ls_file_fail("cannot open", path, errno);
    ls_status status = LS_OK;
    for (bool whole = true; status == LS_OK && whole;) {
        push_head h;
        status = read_push(j, fd, path, &h, bytes, &whole);
        const ls_journal_push push = { .ordinal = h.ordinal,
                                       .epoch = h.epoch,
                                       .batch = h.batch,
                                       .run = h.run,
                                       .samples = h.samples,
                                       .worker = h.worker,
                                       .rate = h.rate,
                                       .bytes = bytes };
        if (status == LS_OK && whole)
            status = reader->apply(reader->user, &push);
        if (status == LS_OK && whole)
            *end += (int64_t)(sizeof(h) + j->push_bytes);
    }
    close(fd);
    return status;
}

static ls_status restore(ls_journal *j, const ls_journal_reader *reader, void *state_bytes, void *push_bytes,
                         bool *found)
{
    ls_journal_state state = { .bytes = state_bytes };
    char path[PATH_MAX];
    int64_t end = 0;
    LS_TRY(read_state(j, &state, found));
    if (!*found)
        return LS_OK;
    ls_status status = reader->begin(reader->user, &state);
    ls_applied_free(&state.applied);
    if (status == LS_OK)
        status = read_pushes(j, reader, push_bytes, &end);
    LS_TRY(status);
    push_path(j, j->number, path);
    LS_TRY(ls_append_open(&j->file, path));
    ls_append_truncate(&j->file, end);
    return LS_OK;
}

ls_status ls_journal_restore(ls_journal *j, const ls_journal_reader *reader, bool *found)
{
    void *state = malloc(j->state_bytes + 1);
    void *push = aligned_alloc(64, (j->push_bytes + 64) / 64 * 64);
    ls_status status = state && push
                           ? restore(j, reader, state, push, found)
                           : ls_fail(LS_ERR_MEMORY, "no memory for the journal's %zu bytes of state", j->state_bytes);
    free(state);
    free(push);
    return status;
}

/* ---- Closing ---- */

void ls_journal_remove(ls_journal *j)
{
    char path[PATH_MAX];
    ls_journal_close(j);
    if (j->folder[0] == '\0')
        return;
    state_path(j, path);
    unlink(path);
    push_path(j, j->number, path);
    unlink(path);
    j->folder[0] = '\0';
}

void ls_journal_close(ls_journal *j)
{
    ls_append_close(&j->file);
}
