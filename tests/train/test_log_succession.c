/* A worker goes on with the log of a lost chief: whatever that wrote last, the file has every
 * record once. And a chief that finds another one's lease writes nothing. test_succession.sh does
 * so with processes that are killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "run/peers.h"
#include "machine.h"
#include "train/report/lease.h"
#include "train/report/log_file.h"
#include "train/report/log.h"

#define START(steps) "{\"event\":\"start\",\"steps_done\":" #steps ",\"weights_sha256\":\"ab\",\"time\":\""

typedef struct fixture {
    ls_context *ctx;
    char folder[64], path[128];
    int warnings;
    char last[512];
} fixture;

static void count_warnings(void *user, ls_log_level level, const char *line)
{
    fixture *f = user;
    f->warnings += level == LS_LOG_WARNING;
    snprintf(f->last, sizeof(f->last), "%s", line);
}

static int open_fixture(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    snprintf(f->folder, sizeof(f->folder), "/tmp/lockstep-succession-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof(f->path), "%s/log", f->folder);
    const ls_context_options options = { .log_level = LS_LOG_WARNING, .log_sink = count_warnings, .log_user = f };
    OK(ls_context_open(&options, &f->ctx));
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0); /* nothing else is left */
    ls_context_close(f->ctx);
    free(f);
    return 0;
}

static void put(ls_train_log *log, const char *line)
{
    ls_text text = { 0 };
    ls_text_put(&text, line);
    ls_train_log_put(log, &text);
}

static void put_steps(ls_train_log *log, int from, int to)
{
    for (int i = from; i <= to; i++) {
        char line[64];
        snprintf(line, sizeof(line), "{\"event\":\"step\",\"step\":%d,\"loss\":1", i);
        put(log, line);
    }
}

/* Adds to `text` what a log with these steps has. */
static void expect_steps(ls_text *text, int from, int to)
{
    for (int i = from; i <= to; i++)
        ls_text_add(text, "{\"event\":\"step\",\"step\":%d,\"loss\":1}\n", i);
}

static void write_file(const fixture *f, const ls_text *text, size_t without, const char *torn)
{
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    fprintf(file, "%.*s%s", (int)(text->length - without), ls_text_get(text), torn);
    assert_int_equal(fclose(file), 0);
}

static void assert_file(const fixture *f, const ls_text *expected)
{
    char *found = NULL;
    size_t bytes = 0;
    OK(ls_file_read(f->path, 1 << 20, &found, &bytes));
    assert_string_equal(found, ls_text_get(expected));
    free(found);
}

static ls_train_log *open_quiet(const fixture *f, bool append)
{
    ls_train_log *log = NULL;
    OK(ls_train_log_open(f->path, (ls_log_mode){ .append = append, .quiet = true }, f->ctx, &log));
    return log;
}

/* The chief wrote any number of the bytes of 40 records; this worker is at record 30, or behind. */
static void every_cut_of_the_file_is_completed(void **state)
{
    fixture *f = *state;
    ls_text whole = { 0 };
    ls_text_put(&whole, START(0) "x\"}\n");
    expect_steps(&whole, 1, 40);
    for (size_t without = 0; without < 450; without += 7) { /* down to step 29 and a half */
        write_file(f, &whole, without, "");
        ls_train_log *log = open_quiet(f, false);
        put(log, START(0) "another\"");
        put_steps(log, 1, 30);
        ls_train_log_take_over(log);
        ls_train_log_take_over(log); /* does nothing more */
        put_steps(log, 31, 40);
        ls_train_log_end(log);
        assert_file(f, &whole);
    }
    assert_int_equal(f->warnings, 0);
    ls_text_free(&whole);
}

static void more_records_than_are_kept(void **state)
{
    fixture *f = *state;
    ls_text whole = { 0 };
    ls_text_put(&whole, START(0) "x\"}\n");
    expect_steps(&whole, 1, 990);
    write_file(f, &whole, 0, "{\"event\":\"step\",\"st"); /* torn */
    ls_train_log *log = open_quiet(f, false);
    put(log, START(0) "x\"");
    put_steps(log, 1, 1000);
    ls_train_log_take_over(log);
    ls_train_log_end(log);
    expect_steps(&whole, 991, 1000);
    assert_file(f, &whole);
    assert_int_equal(f->warnings, 0);
    ls_text_free(&whole);
}

/* The chief was killed before it began its log: an old file is replaced, or gone on with where
 * training is. */
static void the_log_of_another_run(void **state)
{
    fixture *f = *state;
    for (int append = 0; append < 2; append++) {
        ls_text whole = { 0 };
        ls_text_put(&whole, START(0) "x\"}\n");
        expect_steps(&whole, 1, 5);
        write_file(f, &whole, 0, "");
        ls_train_log *log = open_quiet(f, append);
        put(log, START(3) "x\"");
        put_steps(log, 4, 6);
        ls_train_log_take_over(log);
        put_steps(log, 7, 8);
        ls_train_log_end(log);
        if (!append) {
            ls_text_free(&whole);
            whole = (ls_text){ 0 };
        }
        ls_text_put(&whole, START(3) "x\"}\n");
        expect_steps(&whole, 4, 8);
        assert_file(f, &whole);
        ls_text_free(&whole);
    }
    assert_int_equal(f->warnings, 0);
}

/* A folder that is not shared: lost records are reported. */
static void a_log_that_cannot_be_seen(void **state)
{
    fixture *f = *state;
    ls_train_log *log = open_quiet(f, false);
    put(log, START(0) "x\"");
    put_steps(log, 1, 200);
    ls_train_log_take_over(log);
    ls_train_log_end(log);
    ls_text last = { 0 };
    expect_steps(&last, 101, 200);
    assert_file(f, &last);
    assert_int_equal(f->warnings, 1);
    assert_non_null(strstr(f->last, "all workers can reach"));
    assert_non_null(strstr(f->last, f->path));
    ls_text_free(&last);
}

static void a_checkpoint_is_reported_by_its_writer(void **state)
{
    fixture *f = *state;
    ls_text whole = { 0 };
    ls_text_put(&whole, START(0) "x\"}\n{\"event\":\"checkpoint\",\"step\":2,\"seconds\":1}\n");
    write_file(f, &whole, 0, "");
    ls_train_log *log = open_quiet(f, false);
    put(log, START(0) "x\"");
    ls_train_log_take_over(log);
    assert_true(ls_train_log_has_checkpoint(log, 2));
    assert_false(ls_train_log_has_checkpoint(log, 22));
    put(log, "{\"event\":\"checkpoint\",\"step\":2,\"seconds\":3");
    ls_train_log_end(log);
    ls_text_put(&whole, "{\"event\":\"checkpoint\",\"step\":2,\"seconds\":3}\n");
    assert_file(f, &whole);
    ls_text_free(&whole);
}

/* Two workers of this process, one after the other, then the first again. */
static void one_that_wakes_writes_nothing(void **state)
{
    fixture *f = *state;
    const int members[] = { 0, 1 };
    ls_peers peers = { .rank = 0, .size = 2, .count = 2, .members = members, .job = 7, .generation = 1 };
    ls_peers others = { .rank = 1, .size = 2, .count = 1, .members = members + 1, .job = 7, .generation = 2 };
    ls_train_log *first = NULL;
    ls_text whole = { 0 };
    ls_text_put(&whole, START(0) "x\"}\n");
    expect_steps(&whole, 1, 4);
    f->ctx->peers = &peers;
    OK(ls_train_log_open(f->path, (ls_log_mode){ .append = false }, f->ctx, &first));
    put(first, START(0) "x\"");
    put_steps(first, 1, 2);
    ls_train_log *second = open_quiet(f, false);
    put(second, START(0) "x\"");
    put_steps(second, 1, 3);
    f->ctx->peers = &others;
    ls_train_log_take_over(second);
    f->ctx->peers = &peers;
    put_steps(first, 3, 5); /* it wakes */
    assert_int_equal(f->warnings, 1);
    assert_non_null(strstr(f->last, "another worker writes the log"));
    assert_true(ls_peers_is_deposed(&peers));
    f->ctx->peers = &others;
    put_steps(second, 4, 4);
    assert_file(f, &whole);
    ls_train_log_end(second);
    f->ctx->peers = &peers;
    put_steps(first, 6, 6); /* also when the other one is done */
    ls_train_log_end(first);
    assert_file(f, &whole);
    f->ctx->peers = NULL;
    ls_text_free(&whole);
}

/* The first worker is stopped while the second one goes on and finishes, and wakes when the lease
 * is removed. */
static void one_that_wakes_after_the_end_writes_nothing(void **state)
{
    fixture *f = *state;
    const int members[] = { 0, 1 };
    ls_peers peers = { .rank = 0, .size = 2, .count = 2, .members = members };
    ls_train_log *first = NULL;
    ls_text whole = { 0 };
    ls_text_put(&whole, START(0) "x\"}\n");
    expect_steps(&whole, 1, 4);
    f->ctx->peers = &peers;
    OK(ls_train_log_open(f->path, (ls_log_mode){ .append = false }, f->ctx, &first));
    put(first, START(0) "x\"");
    put_steps(first, 1, 2);
    ls_train_log *second = open_quiet(f, false);
    put(second, START(0) "x\"");
    put_steps(second, 1, 3);
    peers = (ls_peers){ .rank = 1, .size = 2, .count = 1, .members = members + 1, .generation = 1 };
    ls_train_log_take_over(second);
    put_steps(second, 4, 4);
    ls_train_log_end(second);
    put_steps(first, 3, 5);
    assert_int_equal(f->warnings, 1);
    ls_train_log_end(first);
    assert_file(f, &whole);
    f->ctx->peers = NULL;
    ls_text_free(&whole);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        TEST(every_cut_of_the_file_is_completed),
        TEST(more_records_than_are_kept),
        TEST(the_log_of_another_run),
        TEST(a_log_that_cannot_be_seen),
        TEST(a_checkpoint_is_reported_by_its_writer),
        TEST(one_that_wakes_writes_nothing),
        TEST(one_that_wakes_after_the_end_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
