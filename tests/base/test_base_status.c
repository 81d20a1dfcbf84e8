/* Statuses and the last error, element types, overflow-safe sizes, growing arrays, the log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"

/* ---- status ---- */

static void *error_of_a_fresh_thread(void *out)
{
    strcpy(out, ls_last_error());
    ls_fail(LS_ERR_PEER, "the other thread's error");
    return NULL;
}

static void last_error_belongs_to_its_thread(void **state)
{
    (void)state;
    char theirs[64] = "unset";
    assert_int_equal(ls_fail(LS_ERR_SHAPE, "matmul: %d and %s", 3, "four"), LS_ERR_SHAPE);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, error_of_a_fresh_thread, theirs), 0);
    pthread_join(thread, NULL);
    assert_string_equal(theirs, "");
    assert_string_equal(ls_last_error(), "matmul: 3 and four");
}

static void a_message_may_contain_the_last_one(void **state)
{
    (void)state;
    ls_fail(LS_ERR_DATA, "inner");
    ls_fail(LS_ERR_DATA, "outer of %s, again %s", ls_last_error(), ls_last_error());
    assert_string_equal(ls_last_error(), "outer of inner, again inner");
}

static void a_long_message_is_cut_visibly(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ls_fail(LS_ERR_DATA, "start %s", text);
    size_t length = strlen(ls_last_error());
    assert_in_range(length, 1024, 4999);
    assert_memory_equal(ls_last_error(), "start xxx", 9);
    assert_string_equal(ls_last_error() + length - 4, "x...");
    /* And the whole cut message fits into another. */
    ls_fail(LS_ERR_DATA, "%s", ls_last_error());
    assert_int_equal(strlen(ls_last_error()), length);
}

static void a_failure_names_its_place(void **state)
{
    (void)state;
    ls_fail(LS_ERR_DATA, "inner");
    assert_int_equal(ls_fail_within(LS_ERR_DATA, "line %d", 3), LS_ERR_DATA);
    assert_string_equal(ls_last_error(), "line 3: inner");
    assert_int_equal(ls_fail_within(LS_OK, "nothing"), LS_OK);
    assert_string_equal(ls_last_error(), "line 3: inner");
    ls_clear_error();
    assert_int_equal(ls_fail_within(LS_ERR_PEER, "a function of somebody else"), LS_ERR_PEER);
    assert_string_equal(ls_last_error(), "a function of somebody else: LS_ERR_PEER");
}

static void *fail_at_length(void *out)
{
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ls_error_keep(out, ls_fail(LS_ERR_DEVICE, "start %s", text));
    return NULL;
}

/* All of it, from one thread to another. */
static void a_failure_is_kept_and_given(void **state)
{
    (void)state;
    ls_error error;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_at_length, &error), 0);
    pthread_join(thread, NULL);
    ls_fail(LS_ERR_DATA, "later");
    assert_int_equal(ls_error_give(&error), LS_ERR_DEVICE);
    assert_int_equal(strlen(ls_last_error()), LS_ERROR_BYTES - 1);
    assert_string_equal(ls_last_error(), error.message);
    ls_error_keep(&error, LS_OK);
    ls_fail(LS_ERR_DATA, "later");
    assert_int_equal(ls_error_give(&error), LS_OK);
    assert_string_equal(ls_last_error(), "later");
}

static ls_status fail_through_try(int *after)
{
    LS_TRY(LS_OK);
    ++*after;
    LS_TRY(ls_fail(LS_ERR_STATE, "from below"));
    ++*after;
    return LS_OK;
}

static ls_status fail_through_goto(int *undone)
{
    ls_status status;
    LS_TRY_GOTO(status, LS_OK, undo);
    LS_TRY_GOTO(status, ls_fail(LS_ERR_DEVICE, "lost"), undo);
    return LS_OK;
undo:
    ++*undone;
    return status;
}

static void try_passes_a_failure_up(void **state)
{
    (void)state;
    int after = 0, undone = 0;
    assert_int_equal(fail_through_try(&after), LS_ERR_STATE);
    assert_int_equal(after, 1);
    assert_string_equal(ls_last_error(), "from below");
    assert_int_equal(fail_through_goto(&undone), LS_ERR_DEVICE);
    assert_int_equal(undone, 1);
}

static void every_status_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(ls_status_name(LS_OK), "LS_OK");
    assert_string_equal(ls_status_name(LS_ERR_INVALID), "LS_ERR_INVALID");
    assert_string_equal(ls_status_name(LS_ERR_OVERFLOW), "LS_ERR_OVERFLOW");
    assert_string_equal(ls_status_name(LS_ERR_INTERNAL), "LS_ERR_INTERNAL");
    assert_non_null(ls_status_name((ls_status)12345));
}

/* ---- element types ---- */

static void element_types(void **state)
{
    (void)state;
    static const struct {
        ls_dtype dtype;
        size_t bytes;
        const char *name;
    } known[] = { { LS_F32, 4, "float32" }, { LS_F64, 8, "float64" }, { LS_I32, 4, "int32" },
                  { LS_I64, 8, "int64" },   { LS_U8, 1, "uint8" },    { LS_BOOL, 1, "bool" } };
    assert_int_equal(sizeof known / sizeof *known, LS_DTYPE_COUNT);
    for (size_t i = 0; i < LS_DTYPE_COUNT; i++) {
        assert_int_equal(ls_dtype_bytes(known[i].dtype), known[i].bytes);
        assert_string_equal(ls_dtype_name(known[i].dtype), known[i].name);
    }
    assert_int_equal(ls_dtype_bytes(LS_DTYPE_COUNT), 0);
    assert_int_equal(ls_dtype_bytes((ls_dtype)-1), 0);
    assert_non_null(ls_dtype_name(LS_DTYPE_COUNT));
}

/* ---- sizes ---- */

static void sizes_do_not_overflow(void **state)
{
    (void)state;
    size_t size;
    int64_t i64;
    assert_true(ls_size_mul(SIZE_MAX / 3, 3, &size) && size == SIZE_MAX / 3 * 3);
    assert_false(ls_size_mul(SIZE_MAX / 2 + 1, 2, &size));
    assert_true(ls_size_mul(SIZE_MAX, 0, &size) && size == 0);
    assert_true(ls_size_add(SIZE_MAX - 1, 1, &size) && size == SIZE_MAX);
    assert_false(ls_size_add(SIZE_MAX, 1, &size));
    assert_true(ls_i64_mul(INT64_MIN, 1, &i64) && i64 == INT64_MIN);
    assert_false(ls_i64_mul(INT64_MIN, -1, &i64));
    assert_false(ls_i64_mul(INT64_C(1) << 32, INT64_C(1) << 31, &i64));
    assert_int_equal(ls_size_align(0, 64), 0);
    assert_int_equal(ls_size_align(1, 64), 64);
    assert_int_equal(ls_size_align(64, 64), 64);
    assert_int_equal(ls_size_align(65, 64), 128);
}

/* ---- log ---- */

typedef struct heard {
    int lines;
    ls_log_level level;
    char line[2048];
    bool inside; /* not atomic: the log must keep other threads out */
    int overlaps;
} heard;

static void hear(void *user, ls_log_level level, const char *line)
{
    heard *h = user;
    h->overlaps += h->inside;
    h->inside = true;
    sched_yield(); /* invite the others in */
    h->lines++;
    h->level = level;
    strcpy(h->line, line);
    h->inside = false;
}

static void log_keeps_its_level(void **state)
{
    (void)state;
    heard h = { 0 };
    ls_logger log;
    assert_int_equal(ls_log_init(&log, LS_LOG_WARNING, hear, &h), LS_OK);
    ls_log_write(&log, LS_LOG_INFO, "too low");
    ls_log_write(&log, LS_LOG_DEBUG, "lower");
    ls_log_write(&log, LS_LOG_SILENT, "no level at all");
    assert_int_equal(h.lines, 0);
    ls_log_write(&log, LS_LOG_WARNING, "%d lanes on %d cores", 4, 16);
    assert_int_equal(h.lines, 1);
    assert_int_equal(h.level, LS_LOG_WARNING);
    assert_string_equal(h.line, "4 lanes on 16 cores");
    ls_log_write(&log, LS_LOG_ERROR, "worse");
    assert_int_equal(h.lines, 2);
    ls_log_destroy(&log);

    assert_int_equal(ls_log_init(&log, LS_LOG_SILENT, hear, &h), LS_OK);
    ls_log_write(&log, LS_LOG_ERROR, "nothing is heard of this");
    assert_int_equal(h.lines, 2);
    ls_log_destroy(&log);
    ls_log_destroy(NULL);
    ls_log_write(NULL, LS_LOG_ERROR, "no log is fine");
    assert_int_equal(ls_log_init(&log, (ls_log_level)7, NULL, NULL), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "7"));
}

static void a_long_log_line_is_cut(void **state)
{
    (void)state;
    heard h = { 0 };
    ls_logger log;
    char text[3000];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(ls_log_init(&log, LS_LOG_DEBUG, hear, &h), LS_OK);
    ls_log_write(&log, LS_LOG_DEBUG, "%s", text);
    assert_int_equal(strlen(h.line), 1023);
    ls_log_destroy(&log);
}

static void *write_many(void *log)
{
    for (int i = 0; i < 2000; i++)
        ls_log_write(log, LS_LOG_INFO, "line %d", i);
    return NULL;
}

static void the_sink_hears_one_line_at_a_time(void **state)
{
    (void)state;
    heard h = { 0 };
    ls_logger log;
    pthread_t threads[4];
    assert_int_equal(ls_log_init(&log, LS_LOG_INFO, hear, &h), LS_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &log), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(h.lines, 8000);
    assert_int_equal(h.overlaps, 0);
    ls_log_destroy(&log);
}

static void without_a_sink_lines_go_to_standard_error(void **state)
{
    (void)state;
    char line[128] = "";
    FILE *file = tmpfile();
    assert_non_null(file);
    FILE *before = stderr;
    stderr = file;
    ls_logger log;
    ls_status status = ls_log_init(&log, LS_LOG_INFO, NULL, NULL);
    ls_log_write(&log, LS_LOG_WARNING, "idle cores: %d", 12);
    stderr = before;
    assert_int_equal(status, LS_OK);
    rewind(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "lockstep: warning: idle cores: 12\n");
    fclose(file);
    ls_log_destroy(&log);
}

/* ---- growing arrays ---- */

static void an_array_grows_and_keeps_what_it_has(void **state)
{
    (void)state;
    int *numbers = NULL;
    size_t room = 0;
    for (size_t count = 0; count < 1000; count++) {
        assert_int_equal(ls_grow(&numbers, count, &room, sizeof(*numbers)), LS_OK);
        assert_true(count < room);
        numbers[count] = (int)count;
    }
    assert_int_equal(room, 1024);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i);
    const int *before = numbers;
    assert_int_equal(ls_grow(&numbers, 1024, &room, SIZE_MAX / 1024), LS_ERR_MEMORY);
    assert_ptr_equal(numbers, before);
    assert_int_equal(room, 1024);
    size_t all = SIZE_MAX;
    assert_int_equal(ls_grow(&numbers, SIZE_MAX, &all, 1), LS_ERR_MEMORY);
    free(numbers);
    void *nothing = NULL;
    room = 0;
    assert_int_equal(ls_grow(&nothing, 0, &room, 0), LS_OK);
    assert_non_null(nothing);
    free(nothing);
}

static void waiting_is_logged_after_3_seconds_then_every_10(void **state)
{
    (void)state;
    double next = 0;
    assert_false(ls_log_wait_is_due(&next, 100, 102.9));
    assert_true(ls_log_wait_is_due(&next, 100, 103));
    assert_false(ls_log_wait_is_due(&next, 100, 112.9));
    assert_true(ls_log_wait_is_due(&next, 100, 113));
    assert_false(ls_log_wait_is_due(&next, 200, 202)); /* another wait */
    assert_true(ls_log_wait_is_due(&next, 200, 203));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_error_belongs_to_its_thread),
        cmocka_unit_test(a_message_may_contain_the_last_one),
        cmocka_unit_test(a_long_message_is_cut_visibly),
        cmocka_unit_test(a_failure_names_its_place),
        cmocka_unit_test(a_failure_is_kept_and_given),
        cmocka_unit_test(try_passes_a_failure_up),
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(element_types),
        cmocka_unit_test(sizes_do_not_overflow),
        cmocka_unit_test(an_array_grows_and_keeps_what_it_has),
        cmocka_unit_test(log_keeps_its_level),
        cmocka_unit_test(a_long_log_line_is_cut),
        cmocka_unit_test(the_sink_hears_one_line_at_a_time),
        cmocka_unit_test(without_a_sink_lines_go_to_standard_error),
        cmocka_unit_test(waiting_is_logged_after_3_seconds_then_every_10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
