/* Leases. Writers call ls_lease_holds before each write; it costs one open and one read.
 *
 * A worker looks for claims of higher generations before and after it writes its name into the
 * lease. A slower worker of a lower generation may overwrite that text, but then sees the higher
 * claim before it writes anything else. */
#include "train/report/lease.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "run/peers.h"

#define TEXT 128

static void claim_path(const ls_lease *lease, char out[PATH_MAX + 64])
{
    snprintf(out, PATH_MAX + 64, "%s.%016" PRIx64 ".%u", lease->path, lease->job, lease->generation);
}

static bool is_claim(const char *base, const char *name, uint64_t *job, unsigned *generation)
{
    size_t length = strlen(base);
    int end = 0;
    return strncmp(name, base, length) == 0 &&
           sscanf(name + length, ".%16" SCNx64 ".%u%n", job, generation, &end) == 2 &&
           name[length + (size_t)end] == '\0';
}

/* `remove`: also removes claims of lower generations and of other jobs. */
static bool is_superseded(const ls_lease *lease, bool remove)
{
    char folder[PATH_MAX], name[PATH_MAX];
    uint64_t job;
    unsigned generation;
    bool superseded = false;
    snprintf(folder, sizeof(folder), "%s", lease->path);
    snprintf(name, sizeof(name), "%s", lease->path);
    const char *base = basename(name);
    DIR *dir = opendir(dirname(folder));
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        if (!is_claim(base, entry->d_name, &job, &generation))
            continue;
        superseded |= job == lease->job && generation > lease->generation;
        if (remove && (job != lease->job || generation < lease->generation))
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir)
        closedir(dir);
    return superseded;
}

static ls_status fail_lost(const ls_lease *lease)
{
    return ls_fail(LS_ERR_PEER,
                   "another worker holds the lease '%s' (not generation %u of this worker); this worker stops writing",
                   lease->path, lease->generation);
}

static ls_status create_claim(ls_lease *lease)
{
    char path[PATH_MAX + 64];
    claim_path(lease, path);
    int fd = ls_file_open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0)
        return errno == EEXIST ? fail_lost(lease) : ls_file_fail("create", path, errno);
    close(fd);
    lease->claimed = true;
    return LS_OK;
}

static void remove_claim(ls_lease *lease)
{
    char path[PATH_MAX + 64];
    claim_path(lease, path);
    if (lease->claimed)
        unlink(path);
    lease->claimed = false;
}

static ls_status write_text(const ls_lease *lease)
{
    char text[TEXT];
    int length = snprintf(text, sizeof(text), "job %016" PRIx64 " generation %u: worker %d of %d, process %ld\n",
                          lease->job, lease->generation, lease->peers->rank, lease->peers->size, (long)getpid());
    return ls_file_write(lease->path, text, (size_t)length);
}

/* Turns the claim into the lease unless a higher generation was claimed meanwhile. */
static ls_status confirm_claim(const ls_lease *lease)
{
    if (is_superseded(lease, false))
        return fail_lost(lease);
    LS_TRY(write_text(lease));
    return is_superseded(lease, true) ? fail_lost(lease) : LS_OK;
}

ls_status ls_lease_claim(ls_lease *lease, const ls_context *ctx, const char *path)
{
    ls_peers *peers = ctx->peers;
    if (!peers)
        return LS_OK;
    if (strlen(path) >= sizeof(lease->path))
        return ls_fail(LS_ERR_IO, "the name of the file '%.100s...' is too long", path);
    if (lease->path[0] && lease->generation == peers->generation)
        return ls_lease_holds(lease) ? LS_OK : fail_lost(lease);
    if (lease->path[0] && !ls_lease_holds(lease))
        return fail_lost(lease);
    ls_lease next = { .job = peers->job, .generation = peers->generation, .peers = peers };
    snprintf(next.path, sizeof(next.path), "%s", path);
    LS_TRY(create_claim(&next));
    ls_status status = confirm_claim(&next);
    if (status != LS_OK) {
        ls_error why;
        ls_error_keep(&why, status);
        remove_claim(&next);
        return ls_error_give(&why);
    }
    *lease = next;
    return LS_OK;
}

/* A lower generation in the text is from a slower worker, which has lost. An unreadable file is not
 * a loss. */
bool ls_lease_holds(const ls_lease *lease)
{
    char text[TEXT] = "";
    uint64_t job = 0;
    unsigned generation = 0;
    if (!lease->path[0])
        return true;
    if (ls_peers_is_deposed(lease->peers))
        return false;
    int fd = ls_file_open(lease->path, O_RDONLY, 0);
    if (fd < 0)
        return errno != ENOENT;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got < 0)
        return true;
    return sscanf(text, "job %" SCNx64 " generation %u", &job, &generation) == 2 && job == lease->job &&
           generation <= lease->generation;
}

void ls_lease_end(ls_lease *lease)
{
    if (lease->path[0] && ls_lease_holds(lease))
        unlink(lease->path);
    if (lease->path[0])
        remove_claim(lease);
    lease->path[0] = '\0';
}
