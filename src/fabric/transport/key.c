/* Creates and reads the key of a job. */
#include "fabric/transport/key.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "lockstep/cluster.h"

struct ls_key {
    unsigned char bytes[LS_KEY_BYTES];
};

/* ---- Creating ---- */

static ls_status make_random(const char *path, unsigned char out[LS_KEY_BYTES])
{
    ssize_t got;
    do
        got = getrandom(out, LS_KEY_BYTES, 0);
    while (got < 0 && errno == EINTR);
    return got == LS_KEY_BYTES ? LS_OK
                               : ls_fail(LS_ERR_IO, "no random bytes for the key '%s': %s", path, strerror(errno));
}

static ls_status fill_file(const char *path, int fd, const unsigned char key[LS_KEY_BYTES])
{
    errno = ENOSPC; /* for a short write */
    if (fchmod(fd, 0600) < 0 || write(fd, key, LS_KEY_BYTES) != LS_KEY_BYTES || fsync(fd) < 0)
        return ls_file_fail("write", path, errno);
    return LS_OK;
}

/* Makes the complete file appear at once, and never replaces one. Some file systems have no hard
 * links, others no rename that keeps an existing file. */
static ls_status put_in_place(const char *temporary, const char *path)
{
    if (link(temporary, path) == 0)
        return LS_OK;
    if (errno != EEXIST && renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
        return LS_OK;
    if (errno == EEXIST)
        return ls_fail(LS_ERR_STATE,
                       "'%s' exists already, and a key is not overwritten: remove it first if no job needs it any more",
                       path);
    return ls_file_fail("make", path, errno);
}

static ls_status make_file(const char *path, const unsigned char key[LS_KEY_BYTES])
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary))
        return ls_fail(LS_ERR_INVALID, "a path of %zu characters is too long for a key", strlen(path));
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return ls_file_fail("make", path, errno);
    ls_status status = fill_file(path, fd, key);
    if (close(fd) < 0 && status == LS_OK)
        status = ls_file_fail("write", path, errno);
    if (status == LS_OK)
        status = put_in_place(temporary, path);
    unlink(temporary); /* fails if it was renamed */
    return status;
}

ls_status ls_cluster_make_key(const char *path)
{
    unsigned char key[LS_KEY_BYTES];
    if (!path || !path[0])
        return ls_fail(LS_ERR_INVALID, "ls_cluster_make_key: the path of the key is missing");
    ls_status status = make_random(path, key);
    if (status == LS_OK)
        status = make_file(path, key);
    OPENSSL_cleanse(key, sizeof(key));
    return ls_fail_within(status, "ls_cluster_make_key");
}

/* ---- Reading ---- */

static ls_status check_file(const char *path, int fd)
{
    struct stat s;
    if (fstat(fd, &s) < 0)
        return ls_file_fail("read", path, errno);
    if (!S_ISREG(s.st_mode))
        return ls_fail(LS_ERR_INVALID, "the key '%s' is not a plain file", path);
    if (s.st_uid != geteuid())
        return ls_fail(LS_ERR_INVALID, "the key '%s' belongs to user %lu, but this process runs as user %lu", path,
                       (unsigned long)s.st_uid, (unsigned long)geteuid());
    if (s.st_mode & 077)
        return ls_fail(LS_ERR_INVALID,
                       "the key '%s' has mode %04o, so others can read or change it: run `chmod 600` on it, or make a "
                       "new key if others may have read it",
                       path, (unsigned)(s.st_mode & 07777));
    if (s.st_size != LS_KEY_BYTES)
        return ls_fail(LS_ERR_INVALID, "the key '%s' has %lld bytes instead of %d: `lockstep key FILE` makes one", path,
                       (long long)s.st_size, LS_KEY_BYTES);
    return LS_OK;
}

static ls_status read_checked(const char *path, int fd, ls_key **out)
{
    LS_TRY(check_file(path, fd));
    ls_key *key = mmap(NULL, sizeof(*key), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (key == MAP_FAILED)
        return ls_fail(LS_ERR_MEMORY, "no memory for a key");
    madvise(key, sizeof(*key), MADV_DONTDUMP); /* kernels without it may dump the page */
    ssize_t got = pread(fd, key->bytes, sizeof(key->bytes), 0);
    if (got != (ssize_t)sizeof(key->bytes)) {
        int error = got < 0 ? errno : EIO;
        ls_key_free(key);
        return ls_file_fail("read", path, error);
    }
    *out = key;
    return LS_OK;
}

ls_status ls_key_read(const char *path, ls_key **out)
{
    int fd = ls_file_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return ls_fail_within(ls_file_fail("open", path, errno), "the job's key");
    ls_status status = read_checked(path, fd, out);
    close(fd);
    return status;
}

void ls_key_free(ls_key *key)
{
    if (!key)
        return;
    OPENSSL_cleanse(key, sizeof(*key));
    munmap(key, sizeof(*key));
}

ls_status ls_key_derive(const ls_key *key, const void *purpose, size_t bytes, unsigned char out[LS_KEY_BYTES])
{
    unsigned length = 0;
    if (!HMAC(EVP_sha256(), key->bytes, LS_KEY_BYTES, purpose, bytes, out, &length) || length != LS_KEY_BYTES)
        return ls_fail(LS_ERR_INTERNAL, "libcrypto has no HMAC-SHA-256");
    return LS_OK;
}
