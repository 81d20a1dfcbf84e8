/* Maps and prefetching on several threads: order, errors, early ends. Run it with SANITIZE=thread,
 * too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "lockstep.h"

#define MOST 2000

static ls_dataset *numbers(int64_t n)
{
    static int32_t values[MOST];
    for (int i = 0; i < n; i++)
        values[i] = i;
    return ls_from_tensor_slices(ls_array_of(LS_I32, LS_SHAPE(n), values), .keep = LS_KEEP_BORROWED);
}

/* Numbers from a function, which must be called by one thread at a time, in order. */
typedef struct counter {
    int64_t count, fail_at;
    atomic_int inside, calls;
} counter;

static ls_status count_up(void *user, ls_element *out, bool *end)
{
    counter *c = user;
    if (atomic_fetch_add(&c->inside, 1) != 0)
        return LS_ERR_INTERNAL;
    atomic_fetch_add(&c->calls, 1);
    ls_status status = out->number == c->fail_at ? LS_ERR_DATA : LS_OK;
    *end = out->number >= c->count;
    if (!*end)
        *(int32_t *)out->component[0].data = (int32_t)out->number;
    atomic_fetch_sub(&c->inside, 1);
    return status;
}

static ls_dataset *generated(counter *c)
{
    return ls_from_generator(count_up, c, LS_ELEMENT(LS_SPEC(LS_I32, LS_SCALAR)));
}

/* value -> (float 2 value, i64 number * 1000 + epoch); some take longer than others; fails at
 * `fail_at`. */
typedef struct mapping {
    int32_t fail_at;
    atomic_int inside, most_inside, calls;
} mapping;

static ls_status twice(void *user, const ls_element *in, ls_element *out)
{
    mapping *m = user;
    int now = atomic_fetch_add(&m->inside, 1) + 1, most = atomic_load(&m->most_inside);
    while (now > most && !atomic_compare_exchange_weak(&m->most_inside, &most, now))
        ;
    atomic_fetch_add(&m->calls, 1);
    int32_t value = *(const int32_t *)in->component[0].data;
    if (value % 7 == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
    *(float *)out->component[0].data = 2 * (float)value;
    *(int64_t *)out->component[1].data = in->number * 1000 + (int64_t)in->epoch;
    atomic_fetch_sub(&m->inside, 1);
    return value == m->fail_at ? LS_ERR_NOT_FINITE : LS_OK;
}

static ls_dataset *mapped(ls_dataset *d, mapping *m, int threads)
{
    return ls_map(d, twice, .user = m, .threads = threads,
                  .output = LS_ELEMENT(LS_SPEC(LS_F32, LS_SCALAR), LS_SPEC(LS_I64, LS_SCALAR)));
}

/* Reads everything; returns the status that ended it and how many elements came before. */
static ls_status drain(ls_dataset *d, uint64_t epoch, int64_t most, int64_t *count, int32_t *values)
{
    ls_iterator *it;
    const ls_element *e;
    ls_status status = LS_OK;
    *count = 0;
    if (ls_iterator_create(d, epoch, &it) != LS_OK)
        fail_msg("%s", ls_last_error());
    while (*count < most && (status = ls_iterator_next(it, &e)) == LS_OK && e) {
        if (e->count == 2) {
            assert_int_equal(*(int64_t *)e->component[1].data, *count * 1000 + (int64_t)epoch);
            values[*count] = (int32_t)(*(float *)e->component[0].data / 2);
        } else {
            values[*count] = *(int32_t *)e->component[0].data;
        }
        ++*count;
    }
    if (*count == most)
        status = LS_OK;
    else if (status != LS_OK)
        assert_int_equal(ls_iterator_next(it, &e), status); /* it stays so */
    ls_iterator_destroy(it);
    return status;
}

static void maps_keep_the_order(void **state)
{
    (void)state;
    static int32_t values[MOST];
    for (int threads = 0; threads <= 8; threads++)
        for (int kind = 0; kind < 2; kind++) {
            counter c = { .count = 300, .fail_at = -1 };
            mapping m = { .fail_at = -1 };
            ls_dataset *d = mapped(kind ? numbers(300) : generated(&c), &m, threads);
            int64_t count;
            assert_int_equal(drain(d, 3, MOST, &count, values), LS_OK);
            assert_int_equal(count, 300);
            for (int i = 0; i < 300; i++)
                assert_int_equal(values[i], i);
            assert_int_equal(atomic_load(&m.calls), 300);
            if (threads <= 1)
                assert_int_equal(atomic_load(&m.most_inside), 1);
            ls_dataset_destroy(d);
        }
}

/* Waits for another call to be inside at the same time, for ten seconds at most. */
static ls_status meet(void *user, const ls_element *in, ls_element *out)
{
    atomic_int *inside = user;
    (void)in;
    atomic_fetch_add(inside, 1);
    for (int i = 0; i < 10000 && atomic_load(inside) < 2; i++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    *(int32_t *)out->component[0].data = atomic_load(inside);
    return LS_OK;
}

static void maps_work_at_once(void **state)
{
    (void)state;
    atomic_int inside = 0;
    int32_t values[2];
    int64_t count;
    ls_dataset *d = ls_map(numbers(2), meet, .user = &inside, .threads = 2);
    assert_int_equal(drain(d, 0, MOST, &count, values), LS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(values[0], 2);
    assert_int_equal(values[1], 2);
    ls_dataset_destroy(d);
}

static ls_status like_input(void *user, const ls_element *in, ls_element *out)
{
    (void)user;
    int64_t n = in->component[0].shape.rank ? in->component[0].shape.dims[0] : 1;
    if (out->component[0].shape.rank != in->component[0].shape.rank || (n > 1 && out->component[0].shape.dims[0] != n))
        return LS_ERR_INTERNAL;
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)out->component[0].data)[i] = ((int32_t *)in->component[0].data)[i] + 100;
    return LS_OK;
}

static void maps_of_batches(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 3; threads += 3) {
        ls_dataset *d = ls_map(ls_batch(numbers(11), 4, false), like_input, .threads = threads);
        ls_element_spec spec;
        ls_iterator *it;
        const ls_element *e;
        int64_t next = 100;
        assert_int_equal(ls_dataset_spec(d, &spec), LS_OK);
        assert_int_equal(spec.batch, 4);
        assert_int_equal(spec.component[0].shape.dims[0], LS_BATCH);
        assert_int_equal(ls_iterator_create(d, 0, &it), LS_OK);
        while (ls_iterator_next(it, &e) == LS_OK && e)
            for (int64_t i = 0; i < e->component[0].shape.dims[0]; i++)
                assert_int_equal(((int32_t *)e->component[0].data)[i], next++);
        assert_int_equal(next, 111);
        ls_iterator_destroy(it);
        ls_dataset_destroy(d);
    }
}

static void errors_come_in_order(void **state)
{
    (void)state;
    static int32_t values[MOST];
    for (int threads = 0; threads <= 4; threads += 2) {
        mapping m = { .fail_at = 21 };
        int64_t count;
        ls_dataset *d = ls_prefetch(mapped(numbers(100), &m, threads), 5);
        assert_int_equal(drain(d, 0, MOST, &count, values), LS_ERR_NOT_FINITE);
        assert_non_null(strstr(ls_last_error(), "element 21 of epoch 0: LS_ERR_NOT_FINITE"));
        assert_int_equal(count, 21); /* all before it have come */
        ls_dataset_destroy(d);
        counter c = { .count = 100, .fail_at = 33 };
        m.fail_at = -1;
        d = mapped(ls_prefetch(generated(&c), 3), &m, threads);
        assert_int_equal(drain(d, 0, MOST, &count, values), LS_ERR_DATA);
        assert_non_null(strstr(ls_last_error(), "generator failed at element 33"));
        assert_int_equal(count, 33);
        assert_int_equal(atomic_load(&c.calls), 34); /* not asked again */
        ls_dataset_destroy(d);
    }
}

static ls_status needs_data(void *user, const ls_element *in, ls_element *out)
{
    (void)user, (void)in, (void)out;
    ls_array array;
    return ls_npy_read("/nonexistent/file.npy", &array);
}

static void messages_cross_threads(void **state)
{
    (void)state;
    ls_dataset *d = ls_prefetch(ls_map(numbers(10), needs_data, .threads = 3), 2);
    int32_t values[10];
    int64_t count;
    assert_int_equal(drain(d, 0, MOST, &count, values), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_last_error(), "/nonexistent/file.npy"));
    ls_dataset_destroy(d);
}

static void early_ends(void **state)
{
    (void)state;
    static int32_t values[MOST];
    for (int most = 0; most < 20; most++) { /* the iterator is destroyed while its threads run ahead */
        counter c = { .count = INT64_MAX, .fail_at = -1 };
        mapping m = { .fail_at = -1 };
        int64_t count;
        ls_dataset *d = ls_prefetch(mapped(ls_prefetch(generated(&c), 4), &m, 3), 4);
        assert_int_equal(drain(d, 0, most, &count, values), LS_OK);
        assert_int_equal(count, most);
        assert_true(atomic_load(&c.calls) <= most + 30); /* never far ahead */
        ls_dataset_destroy(d);
    }
}

static void a_prefetch_runs_ahead(void **state)
{
    (void)state;
    counter c = { .count = 100, .fail_at = -1 };
    ls_dataset *d = ls_prefetch(generated(&c), 5);
    ls_iterator *it;
    const ls_element *e;
    assert_int_equal(ls_iterator_create(d, 0, &it), LS_OK);
    assert_int_equal(ls_iterator_next(it, &e), LS_OK);
    for (int i = 0; i < 2000 && atomic_load(&c.calls) < 6; i++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    assert_int_equal(atomic_load(&c.calls), 6);            /* the one taken and five ahead */
    assert_int_equal(*(int32_t *)e->component[0].data, 0); /* which do not touch the one in use */
    ls_iterator_destroy(it);
    ls_dataset_destroy(d);
}

static void repeated_and_shuffled(void **state)
{
    (void)state;
    static int32_t once[MOST], again[MOST];
    int64_t a, b;
    ls_dataset *d[2];
    for (int i = 0; i < 2; i++) { /* without threads, with many */
        d[i] = ls_map(ls_shuffle(numbers(40), 40, 4), like_input, .threads = 4 * i);
        d[i] = ls_repeat(ls_prefetch(ls_shuffle(d[i], 5, 4), 1 + 3 * i), 3);
    }
    assert_int_equal(drain(d[0], 2, MOST, &a, once), LS_OK);
    assert_int_equal(drain(d[1], 2, MOST, &b, again), LS_OK);
    assert_int_equal(a, 120);
    assert_int_equal(b, 120);
    assert_memory_equal(once, again, 120 * sizeof *once);
    assert_memory_not_equal(once, once + 40, 40 * sizeof *once);
    ls_dataset_destroy(d[0]);
    ls_dataset_destroy(d[1]);
}

/* One dataset, several threads: each with an iterator and builders of its own. */
static void *iterate(void *user)
{
    ls_dataset *d = ls_batch(ls_dataset_share(user), 10, false);
    ls_iterator *it;
    const ls_element *e;
    intptr_t sum = 0;
    if (ls_iterator_create(d, 0, &it) != LS_OK)
        return (void *)-1;
    while (ls_iterator_next(it, &e) == LS_OK && e)
        for (int64_t i = 0; i < e->component[0].shape.dims[0]; i++)
            sum += ((unsigned char *)e->component[0].data)[i];
    ls_iterator_destroy(it);
    ls_dataset_destroy(d);
    return (void *)sum;
}

static void one_dataset_for_several_threads(void **state)
{
    (void)state;
    ls_dataset *train, *test;
    pthread_t threads[4];
    void *sums[4];
    assert_int_equal(ls_load_data(NULL, "synthetic:1,count=500", &train, &test), LS_OK);
    test = ls_shuffle(test, 50, 1);
    for (int i = 0; i < 4; i++) /* the test set is not read yet: all four want it at once */
        assert_int_equal(pthread_create(&threads[i], NULL, iterate, test), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], &sums[i]);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(sums[i], sums[0]);
    assert_true((intptr_t)sums[0] > 0);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_keep_the_order),
        cmocka_unit_test(maps_of_batches),
        cmocka_unit_test(maps_work_at_once),
        cmocka_unit_test(errors_come_in_order),
        cmocka_unit_test(messages_cross_threads),
        cmocka_unit_test(early_ends),
        cmocka_unit_test(a_prefetch_runs_ahead),
        cmocka_unit_test(repeated_and_shuffled),
        cmocka_unit_test(one_dataset_for_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
