/* Leases: of two workers that go on without each other, one writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"
#include "train/report/lease.h"

static const int ranks[] = { 0, 1, 2, 3 };

/* A worker of a job, with a lease of its own; they share the context. */
typedef struct worker {
    ls_peers peers;
    ls_lease lease;
} worker;

typedef struct fixture {
    ls_context *ctx;
    char folder[64], path[128];
    worker a, b;
} fixture;

static int open_fixture(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    snprintf(f->folder, sizeof(f->folder), "/tmp/lockstep-lease-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof(f->path), "%s/log.lease", f->folder);
    OK(ls_context_open(NULL, &f->ctx));
    f->a.peers = (ls_peers){ .rank = 0, .size = 4, .count = 2, .members = ranks, .job = 0xfeed, .generation = 1 };
    f->b.peers = (ls_peers){ .rank = 2, .size = 4, .count = 2, .members = ranks + 2, .job = 0xfeed, .generation = 1 };
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    f->ctx->peers = NULL;
    ls_context_close(f->ctx);
    unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0); /* no claim is left */
    free(f);
    return 0;
}

static ls_status claim(fixture *f, worker *w, unsigned generation)
{
    w->peers.generation = generation;
    f->ctx->peers = &w->peers;
    return ls_lease_claim(&w->lease, f->ctx, f->path);
}

static int count_files(const fixture *f)
{
    int count = 0;
    DIR *dir = opendir(f->folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void of_two_sides_in_one_generation_one_has_it(void **state)
{
    fixture *f = *state;
    OK(claim(f, &f->a, 1));
    OK(claim(f, &f->a, 2));
    assert_int_equal(claim(f, &f->b, 2), LS_ERR_PEER);
    assert_non_null(strstr(ls_last_error(), "generation 2"));
    assert_true(ls_lease_holds(&f->a.lease));
    ls_lease_end(&f->a.lease);
}

static void a_higher_generation_takes_it(void **state)
{
    fixture *f = *state;
    OK(claim(f, &f->a, 1));
    OK(claim(f, &f->b, 2));
    assert_false(ls_lease_holds(&f->a.lease));
    assert_true(ls_lease_holds(&f->b.lease));
    assert_int_equal(claim(f, &f->a, 3), LS_ERR_PEER); /* a lost lease is not claimed again */
    ls_lease_end(&f->a.lease);
    assert_true(ls_lease_holds(&f->b.lease));
    ls_lease_end(&f->b.lease);
}

static void a_late_claim_of_a_lower_generation_fails(void **state)
{
    fixture *f = *state;
    OK(claim(f, &f->b, 3));
    assert_int_equal(claim(f, &f->a, 2), LS_ERR_PEER);
    assert_true(ls_lease_holds(&f->b.lease));
    ls_lease_end(&f->b.lease);
}

static void old_claims_are_removed(void **state)
{
    fixture *f = *state;
    for (unsigned generation = 1; generation < 9; generation++)
        OK(claim(f, &f->a, generation));
    assert_int_equal(count_files(f), 2); /* the lease and its claim */
    f->b.peers.job = 0xbeef;             /* another job begins here */
    OK(claim(f, &f->b, 1));
    assert_false(ls_lease_holds(&f->a.lease));
    assert_int_equal(count_files(f), 2);
    ls_lease_end(&f->a.lease);
    ls_lease_end(&f->b.lease);
}

static void a_removed_lease_is_lost(void **state)
{
    fixture *f = *state;
    OK(claim(f, &f->a, 1));
    assert_int_equal(unlink(f->path), 0);
    assert_false(ls_lease_holds(&f->a.lease));
    ls_lease_end(&f->a.lease);
}

static void a_deposed_worker_has_none(void **state)
{
    fixture *f = *state;
    OK(claim(f, &f->a, 1));
    ls_peers_depose(&f->a.peers);
    assert_false(ls_lease_holds(&f->a.lease));
    ls_lease_end(&f->a.lease);
    assert_int_equal(unlink(f->path), 0); /* it may be another worker's by now */
}

static void one_process_needs_none(void **state)
{
    fixture *f = *state;
    f->ctx->peers = NULL;
    OK(ls_lease_claim(&f->a.lease, f->ctx, f->path));
    assert_true(ls_lease_holds(&f->a.lease));
    assert_int_equal(count_files(f), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = { TEST(of_two_sides_in_one_generation_one_has_it),
                                        TEST(a_higher_generation_takes_it),
                                        TEST(a_late_claim_of_a_lower_generation_fails),
                                        TEST(old_claims_are_removed),
                                        TEST(a_removed_lease_is_lost),
                                        TEST(a_deposed_worker_has_none),
                                        TEST(one_process_needs_none) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
