/* Makes one call fail, for programs that are run with this library in LD_PRELOAD
 * (tests/whole/test_faults.sh does).
 *
 *     LS_FAULT=malloc:17        the 17th allocation of the program fails
 *     LS_FAULT=malloc:17+       and so do all later ones
 *     LS_FAULT_REPORT=FILE      at the end, a line: calls of each kind, failures, blocks and descriptors not given back
 *
 * Kinds: malloc (with calloc, realloc and aligned ones), mmap, thread, open, write, fsync, rename.
 * Calls count from the beginning of main to its end, unless they come from libraries that end the
 * process then (SPARED). Blocks are watched where the program itself or jansson took them. */
#undef _FORTIFY_SOURCE /* it would put functions of its own before ours */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

/* ---- What is to fail ---- */

typedef enum kind { MALLOC, MMAP, THREAD, OPEN, WRITE, FSYNC, RENAME, KINDS } kind;
static const char *const names[KINDS] = { "malloc", "mmap", "thread", "open", "write", "fsync", "rename" };
static const int errors[KINDS] = { ENOMEM, ENOMEM, EAGAIN, EMFILE, ENOSPC, EIO, EXDEV };

static atomic_bool active;
static atomic_ulong calls[KINDS], failures;
static kind fault_kind = KINDS;
static unsigned long fault_number;
static bool fault_stays;

static void read_fault(void)
{
    const char *text = getenv("LS_FAULT"), *colon = text ? strchr(text, ':') : NULL;
    for (int k = 0; colon && k < KINDS; k++)
        if (strlen(names[k]) == (size_t)(colon - text) && strncmp(text, names[k], (size_t)(colon - text)) == 0)
            fault_kind = (kind)k;
    if (!colon)
        return;
    char *end;
    fault_number = strtoul(colon + 1, &end, 10);
    fault_stays = *end == '+';
}

/* ---- The caller of a function ---- */

#define RANGES 64
typedef struct range {
    uintptr_t begin, end;
} range;
static range spared[RANGES], watched[RANGES];
static int spared_count, watched_count;

/* The linker and the unwinder end the process without memory. */
static const char *const SPARED[] = { "ld-linux", "libgcc_s" };
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void note_range(const char *name, range all, const char *const *list, size_t count, range *out, int *out_count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, list[i], strlen(list[i])) == 0 && *out_count < RANGES && all.end > 0)
            out[(*out_count)++] = all;
}

static int note_object(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    range all = { UINTPTR_MAX, 0 };
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = begin + info->dlpi_phdr[i].p_memsz;
            all.begin = begin < all.begin ? begin : all.begin;
            all.end = end > all.end ? end : all.end;
        }
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    note_range(name, all, SPARED, COUNT(SPARED), spared, &spared_count);
    if ((*name == '\0' || strncmp(name, "libjansson", 10) == 0) && watched_count < RANGES && all.end > 0)
        watched[watched_count++] = all;
    return 0;
}

static bool is_in(const range *ranges, int count, const void *address)
{
    for (int i = 0; i < count; i++)
        if ((uintptr_t)address >= ranges[i].begin && (uintptr_t)address < ranges[i].end)
            return true;
    return false;
}

/* jansson's reader takes no notice when its buffer cannot grow, and reads past the end of its text:
 * what it allocates is spared. */
static _Thread_local int reading_json;

EXPORT void *json_loadb(const char *text, size_t bytes, size_t flags, void *error)
{
    __typeof__(&json_loadb) next = __extension__(__typeof__(next)) dlsym(RTLD_NEXT, "json_loadb");
    reading_json++;
    void *value = next(text, bytes, flags, error);
    reading_json--;
    return value;
}

/* On this thread the program itself was refused something. */
static _Thread_local bool felt;

/* Counts a call and returns whether it must fail. */
static bool fails(kind k, const void *caller)
{
    bool own = is_in(watched, watched_count, caller);
    if (!atomic_load_explicit(&active, memory_order_relaxed) || reading_json > 0 || is_in(spared, spared_count, caller))
        return false;
    bool begun = fault_stays && atomic_load(&failures) > 0;
    /* A lasting fault begins in the program itself, on each thread. */
    if (fault_stays && !own && (!begun || !felt))
        return false;
    unsigned long number = atomic_fetch_add(&calls[k], 1) + 1;
    if (k != fault_kind || (fault_stays ? !begun && number < fault_number : number != fault_number))
        return false;
    atomic_fetch_add(&failures, 1);
    felt |= own;
    errno = errors[k];
    return true;
}

/* ---- Blocks that are not given back: a table of addresses ---- */

#define BLOCKS (1u << 18)
#define GONE   ((void *)1)
static void *blocks[BLOCKS];
static atomic_flag blocks_lock = ATOMIC_FLAG_INIT;
static atomic_long live;

static void *lock_blocks(void *p)
{
    while (atomic_flag_test_and_set_explicit(&blocks_lock, memory_order_acquire))
        ;
    return p;
}

static void unlock_blocks(void)
{
    atomic_flag_clear_explicit(&blocks_lock, memory_order_release);
}

static uint32_t place_of(const void *p)
{
    return (uint32_t)(((uintptr_t)p >> 4) * 0x9e3779b1u) % BLOCKS;
}

static void *watch(void *p, const void *caller)
{
    if (!p || !atomic_load_explicit(&active, memory_order_relaxed) || !is_in(watched, watched_count, caller))
        return p;
    lock_blocks(p);
    uint32_t at = place_of(p), left = BLOCKS;
    while (left > 0 && blocks[at] && blocks[at] != GONE)
        at = (at + 1) % BLOCKS, left--;
    if (left > 0) {
        blocks[at] = p;
        atomic_fetch_add(&live, 1);
    }
    unlock_blocks();
    return p;
}

static bool forget(void *p)
{
    if (!p || atomic_load_explicit(&live, memory_order_relaxed) == 0)
        return false;
    lock_blocks(p);
    bool found = false;
    for (uint32_t at = place_of(p), left = BLOCKS; left > 0 && blocks[at] && !found; at = (at + 1) % BLOCKS, left--)
        if (blocks[at] == p) {
            blocks[at] = GONE;
            found = true;
        }
    unlock_blocks();
    if (found)
        atomic_fetch_sub(&live, 1);
    return found;
}

/* ---- Memory ---- */

EXPORT void *malloc(size_t bytes)
{
    return fails(MALLOC, CALLER) ? NULL : watch(__libc_malloc(bytes), CALLER);
}

EXPORT void *calloc(size_t count, size_t bytes)
{
    return fails(MALLOC, CALLER) ? NULL : watch(__libc_calloc(count, bytes), CALLER);
}

EXPORT void *realloc(void *old, size_t bytes)
{
    if (fails(MALLOC, CALLER))
        return NULL;
    bool was = forget(old);
    void *p = __libc_realloc(old, bytes);
    return !p && was ? (watch(old, CALLER), p) : watch(p, CALLER);
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(MALLOC, CALLER) ? NULL : watch(__libc_memalign(alignment, bytes), CALLER);
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (fails(MALLOC, CALLER))
        return ENOMEM;
    void *p = watch(__libc_memalign(alignment, bytes), CALLER);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

EXPORT void free(void *p)
{
    forget(p);
    __libc_free(p);
}

EXPORT void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fails(MMAP, CALLER))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* ---- Threads and files ---- */

/* The next function of that name: libc's. */
#define NEXT(name) (__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))

EXPORT int pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*start)(void *), void *user)
{
    return fails(THREAD, CALLER) ? EAGAIN : NEXT(pthread_create)(out, attributes, start, user);
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(OPEN, CALLER) ? -1 : NEXT(open)(path, flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(OPEN, CALLER) ? -1 : NEXT(openat)(folder, path, flags, mode);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
    return fails(OPEN, CALLER) ? NULL : NEXT(fopen)(path, mode);
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
    return fails(WRITE, CALLER) ? -1 : NEXT(write)(fd, data, bytes);
}

/* libc writes stdio's buffers by internal calls that cannot be replaced, so the flush fails
 * instead. */
EXPORT int fflush(FILE *file)
{
    return fails(WRITE, CALLER) ? EOF : NEXT(fflush)(file);
}

EXPORT int fsync(int fd)
{
    return fails(FSYNC, CALLER) ? -1 : NEXT(fsync)(fd);
}

EXPORT int rename(const char *from, const char *to)
{
    return fails(RENAME, CALLER) ? -1 : NEXT(rename)(from, to);
}

/* ---- From the beginning of main to its end ---- */

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static void report(int status, int descriptors)
{
    const char *path = getenv("LS_FAULT_REPORT");
    FILE *out = path ? fopen(path, "w") : NULL;
    if (!out)
        return;
    for (int k = 0; k < KINDS; k++)
        fprintf(out, "%s %lu ", names[k], atomic_load(&calls[k]));
    fprintf(out, "failures %lu blocks %ld descriptors %d status %d\n", atomic_load(&failures), atomic_load(&live),
            descriptors, status);
    fclose(out);
}

static int (*real_main)(int, char **, char **);

static int watched_main(int argc, char **argv, char **environment)
{
    dl_iterate_phdr(note_object, NULL);
    read_fault();
    int descriptors = open_descriptors();
    atomic_store(&active, true);
    int status = real_main(argc, argv, environment);
    atomic_store(&active, false);
    report(status, open_descriptors() - descriptors);
    return status;
}

EXPORT int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                             void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    __typeof__(&__libc_start_main) next = NEXT(__libc_start_main);
    real_main = main;
    return next(watched_main, argc, argv, init, fini, rtld_fini, stack_end);
}
