/* Memory that runs out inside oneDNN: the n-th allocation of making and running operations fails, for a sample of n.
 * The answer is right or a status, never an exception that ends the program, and the same again with memory is right.
 * This program has a malloc of its own, which oneDNN takes, too; each point is tried in a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/onednn.h"
#include "base/sha256.h"
#include "base/status.h"
#include "sanitized.h"

#if !SANITIZED && defined(__GLIBC__)

/* ---- An allocator that fails when it is told to ---- */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

#define SEEN __attribute__((visibility("default"))) /* by shared libraries */

static _Atomic long left = -1; /* allocations until the one that fails; below 0: none does */
static _Atomic long counted;

static bool fails(void)
{
    atomic_fetch_add(&counted, 1);
    if (atomic_load(&left) < 0 || atomic_fetch_sub(&left, 1) != 0)
        return false;
    errno = ENOMEM;
    return true;
}

SEEN void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

SEEN void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(count, bytes);
}

SEEN void *realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(old, bytes);
}

/* ---- What is made and run ---- */

#define FLOATS  20000
#define SCRATCH ((size_t)1 << 22)

static _Alignas(64) float x[FLOATS], kernel[FLOATS], packed[FLOATS], y[FLOATS];
static _Alignas(64) char scratch[SCRATCH];

static ls_status convolve(ls_dnn *dnn, const ls_dnn_conv *v)
{
    ls_dnn_op *op = NULL, *pack = NULL;
    LS_TRY(ls_dnn_conv_forward(dnn, v, NULL, &op));
    ls_status status = ls_dnn_op_scratch_bytes(op) <= SCRATCH && ls_dnn_op_weights_bytes(op) <= sizeof packed
                           ? ls_dnn_reorder_from_hwio(dnn, op, &pack)
                           : LS_ERR_INTERNAL;
    if (status == LS_OK)
        status = ls_dnn_run_reorder(pack, 0, kernel, packed, scratch);
    if (status == LS_OK)
        status = ls_dnn_run_forward(op, 0, x, packed, kernel, y, scratch);
    ls_dnn_op_destroy(pack);
    ls_dnn_op_destroy(op);
    return status;
}

static ls_status multiply(ls_dnn *dnn)
{
    ls_dnn_op *op = NULL;
    LS_TRY(ls_dnn_matmul_create(dnn, &(ls_dnn_matmul){ .m = 8, .n = 20, .k = 64, .bias = true }, &op));
    ls_status status = ls_dnn_op_scratch_bytes(op) <= SCRATCH ? LS_OK : LS_ERR_INTERNAL;
    if (status == LS_OK)
        status = ls_dnn_run_matmul(op, 0, x, kernel, x, y + 8000, scratch);
    ls_dnn_op_destroy(op);
    return status != LS_OK ? status : ls_dnn_sgemm(true, false, 24, 20, 40, x, 24, kernel, 20, 0, y + 10000, 20);
}

static ls_status work(void)
{
    ls_dnn *dnn = NULL;
    ls_dnn_conv v = { .n = 2, .h = 9, .w = 9, .c = 5, .kh = 3, .kw = 3, .o = 16, .oh = 7, .ow = 7, .groups = 1 };
    v.stride[0] = v.stride[1] = v.dilation[0] = v.dilation[1] = 1;
    v.bias = v.relu = true;
    LS_TRY(ls_dnn_open(2, &dnn));
    ls_status status = convolve(dnn, &v);
    if (status == LS_OK)
        status = multiply(dnn);
    ls_dnn_close(dnn);
    return status;
}

static bool is_right(const char *expected)
{
    char hex[65];
    return ls_sha256_of(y, sizeof y, hex) == LS_OK && (!expected || strcmp(hex, expected) == 0);
}

/* ---- Points ---- */

/* What is short at a point: one malloc, or the address space from there on. */
typedef enum shortage { ONE_MALLOC, ADDRESSES } shortage;

static void limit_addresses(long more)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        _exit(6);
    fclose(file);
    struct rlimit limit = { .rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + more), .rlim_max = RLIM_INFINITY };
    setrlimit(RLIMIT_AS, &limit);
}

/* In a child: 0 right or refused, and right afterwards; else what was wrong. */
static int try_point(shortage what, long n, const char *expected)
{
    struct rlimit before;
    getrlimit(RLIMIT_AS, &before);
    if (what == ADDRESSES)
        limit_addresses(n);
    else
        atomic_store(&left, n);
    ls_status status = work();
    atomic_store(&left, -1);
    setrlimit(RLIMIT_AS, &before);
    if (status == LS_OK && !is_right(expected))
        return 2;
    if (status != LS_OK && status != LS_ERR_MEMORY && status != LS_ERR_DEVICE && status != LS_ERR_UNSUPPORTED)
        return 3;
    memset(y, 0, sizeof y);
    if (work() != LS_OK) {
        fprintf(stderr, "point %ld, again: %s\n", n, ls_last_error());
        return 4;
    }
    return is_right(expected) ? 0 : 5;
}

static int point_in_child(shortage what, long n, const char *expected)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka's would go on with the parent's tests */
        signal(SIGABRT, SIG_DFL);
        alarm(30);
        ls_dnn_enter_thread();
        _exit(try_point(what, n, expected));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static bool point_is_good(shortage what, long n, const char *expected)
{
    int wrong = point_in_child(what, n, expected);
    if (wrong != 0)
        print_error("%s %ld: %s %d\n", what == ADDRESSES ? "bytes of addresses left:" : "malloc number", n,
                    wrong > 1000 ? "signal" : "wrong, case", wrong > 1000 ? wrong - 1000 : wrong);
    return wrong == 0;
}

/* How many calls of malloc there are, and what comes out, from a child like the others: a parent that had used oneDNN
 * would hand its cache down. */
static long count_in_child(char expected[65])
{
    int ends[2];
    long count = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char hex[65];
        ls_dnn_enter_thread();
        atomic_store(&counted, 0);
        bool good = work() == LS_OK;
        long seen = atomic_load(&counted);
        good = good && ls_sha256_of(y, sizeof y, hex) == LS_OK && write(ends[1], &seen, sizeof seen) > 0 &&
               write(ends[1], hex, sizeof hex) > 0;
        _exit(!good);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &count, sizeof count), sizeof count);
    assert_int_equal(read(ends[0], expected, 65), 65);
    close(ends[0]);
    waitpid(child, NULL, 0);
    return count;
}

#define POINTS 60 /* the first, and as many more */

static void a_failed_malloc_is_a_status(void **state)
{
    (void)state;
    char expected[65];
    long count = count_in_child(expected), bad = 0;
    assert_true(count > 2 * POINTS);
    for (long n = 0; n < count; n += n < POINTS ? 1 : (count - POINTS) / POINTS + 1)
        bad += !point_is_good(ONE_MALLOC, n, expected);
    assert_int_equal(bad, 0);
}

static void the_end_of_memory_is_a_status(void **state)
{
    (void)state;
    char expected[65];
    long bad = 0;
    count_in_child(expected);
    for (long more = 0; more < 24l << 20; more += more < 2l << 20 ? 64 << 10 : 640 << 10)
        bad += !point_is_good(ADDRESSES, more, expected);
    assert_int_equal(bad, 0);
}

#else

static void a_failed_malloc_is_a_status(void **state)
{
    (void)state;
    skip(); /* the sanitizers have a malloc of their own */
}

static void the_end_of_memory_is_a_status(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_malloc_is_a_status),
        cmocka_unit_test(the_end_of_memory_is_a_status),
    };
    return cmocka_run_group_tests_name("memory in oneDNN", tests, NULL, NULL);
}
