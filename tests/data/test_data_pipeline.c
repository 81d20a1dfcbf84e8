/* Pipelines: the sequences they give, written out by hand as tf.data would give them; counts and
 * specs; the order of shuffles; rows in place against iterating; the errors that datasets keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "lockstep.h"

#define MOST 4096

/* ---- Small datasets whose elements can be read as text ---- */

/* Element i is (feature [i, -i], label 10 i). */
static ls_dataset *numbers(int64_t n)
{
    static float features[2 * MOST];
    static int32_t labels[MOST];
    for (int i = 0; i < n; i++) {
        features[2 * i] = (float)i;
        features[2 * i + 1] = (float)-i;
        labels[i] = 10 * i;
    }
    return ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(n, 2), features),
                                 ls_array_of(LS_I32, LS_SHAPE(n), labels));
}

/* The numbers 0 .. count - 1, then the end; fails at `fail_at`. */
typedef struct counter {
    int64_t count, fail_at;
} counter;

static ls_status count_up(void *user, ls_element *out, bool *end)
{
    const counter *c = user;
    if (out->number == c->fail_at)
        return LS_ERR_DATA;
    *end = out->number >= c->count;
    if (!*end) {
        ((float *)out->component[0].data)[0] = (float)out->number;
        ((float *)out->component[0].data)[1] = (float)-out->number;
        *(int32_t *)out->component[1].data = (int32_t)out->number * 10;
    }
    return LS_OK;
}

static ls_dataset *generated(counter *c)
{
    return ls_from_generator(count_up, c, LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(2)), LS_SPEC(LS_I32, LS_SCALAR)));
}

/* An element as text: "3", or "[3 4]" for a batch; checks that all of it belongs together. */
static void describe(const ls_element *e, char *out)
{
    const float *features = e->component[0].data;
    const int32_t *labels = e->component[1].data;
    bool batched = e->component[1].shape.rank == 1;
    int64_t n = batched ? e->component[1].shape.dims[0] : 1;
    assert_int_equal(e->count, 2);
    assert_int_equal(e->component[0].shape.rank, batched ? 2 : 1);
    assert_int_equal(e->component[0].shape.dims[batched], 2);
    if (batched)
        assert_int_equal(e->component[0].shape.dims[0], n);
    out += sprintf(out, batched ? "[" : "");
    for (int64_t i = 0; i < n; i++) {
        assert_true(features[2 * i + 1] == -features[2 * i]);
        assert_int_equal(labels[i], (int)features[2 * i] * 10);
        out += sprintf(out, "%s%d", i ? " " : "", (int)features[2 * i]);
    }
    sprintf(out, batched ? "]" : "");
}

static char sequence[1 << 16];

/* All elements of a pass, at most `most`. */
static const char *elements(ls_dataset *d, uint64_t epoch, int most)
{
    ls_iterator *it = NULL;
    const ls_element *e;
    char *at = sequence;
    *at = 0;
    if (ls_iterator_create(d, epoch, &it) != LS_OK)
        fail_msg("%s", ls_last_error());
    for (int i = 0; i < most; i++) {
        if (ls_iterator_next(it, &e) != LS_OK)
            fail_msg("%s", ls_last_error());
        if (!e) {
            assert_int_equal(ls_iterator_next(it, &e), LS_OK); /* the end stays */
            assert_null(e);
            break;
        }
        assert_int_equal(e->number, i);
        assert_int_equal(e->epoch, epoch);
        at += sprintf(at, i ? " " : "");
        describe(e, at);
        at += strlen(at);
    }
    ls_iterator_destroy(it);
    return sequence;
}

/* The same by rows, made into text the same way. */
static const char *elements_by_rows(ls_dataset *d, uint64_t epoch, int most)
{
    static char text[sizeof sequence];
    ls_element_spec spec;
    ls_rows *rows = NULL;
    const int64_t *list;
    int64_t count;
    char *at = text;
    *at = 0;
    assert_int_equal(ls_dataset_spec(d, &spec), LS_OK);
    if (ls_rows_create(d, epoch, &rows) != LS_OK)
        fail_msg("%s", ls_last_error());
    const float *features = ls_rows_base(rows)->component[0].data;
    for (int i = 0; i < most; i++) {
        assert_int_equal(ls_rows_next(rows, &list, &count), LS_OK);
        if (count == 0)
            break;
        at += sprintf(at, "%s%s", i ? " " : "", spec.batch ? "[" : "");
        for (int64_t k = 0; k < count; k++)
            at += sprintf(at, "%s%d", k ? " " : "", (int)features[2 * list[k]]);
        at += sprintf(at, spec.batch ? "]" : "");
    }
    ls_rows_destroy(rows);
    return text;
}

/* The dataset gives this sequence (of at most 40), both ways, and says it has that many; it is
 * destroyed. */
static void check(ls_dataset *d, int64_t count, const char *want, int line)
{
    int64_t found = -9;
    bool has_rows = false;
    if (ls_dataset_count(d, &found) != LS_OK)
        fail_msg("line %d: %s", line, ls_last_error());
    if (found != count)
        fail_msg("line %d: a count of %lld, expected %lld", line, (long long)found, (long long)count);
    const char *got = elements(d, 0, 40);
    if (strcmp(got, want) != 0)
        fail_msg("line %d: got %s, expected %s", line, got, want);
    assert_int_equal(ls_dataset_has_rows(d, &has_rows), LS_OK);
    if (has_rows && strcmp(got = elements_by_rows(d, 0, 40), want) != 0)
        fail_msg("line %d: rows %s, expected %s", line, got, want);
    ls_dataset_destroy(d);
}
#define check_sequence(d, count, want) check(d, count, want, __LINE__)

/* ---- Sequences ---- */

static void sequences_of_rows(void **state)
{
    (void)state;
    check_sequence(numbers(4), 4, "0 1 2 3");
    check_sequence(numbers(0), 0, "");
    check_sequence(ls_take(numbers(4), 2), 2, "0 1");
    check_sequence(ls_take(numbers(4), 9), 4, "0 1 2 3");
    check_sequence(ls_take(numbers(4), -1), 4, "0 1 2 3");
    check_sequence(ls_take(numbers(4), 0), 0, "");
    check_sequence(ls_skip(numbers(4), 1), 3, "1 2 3");
    check_sequence(ls_skip(numbers(4), 4), 0, "");
    check_sequence(ls_skip(numbers(4), 9), 0, "");
    check_sequence(ls_skip(numbers(4), -1), 0, "");
    check_sequence(ls_skip(numbers(4), 0), 4, "0 1 2 3");
    check_sequence(ls_take(ls_skip(numbers(9), 2), 3), 3, "2 3 4");
    check_sequence(ls_shard(numbers(7), 3, 0), 3, "0 3 6");
    check_sequence(ls_shard(numbers(7), 3, 1), 2, "1 4");
    check_sequence(ls_shard(numbers(7), 3, 2), 2, "2 5");
    check_sequence(ls_shard(numbers(7), 1, 0), 7, "0 1 2 3 4 5 6");
    check_sequence(ls_shard(numbers(2), 3, 2), 0, "");
    check_sequence(ls_shard(numbers(2), INT64_MAX, 1), 1, "1");
    check_sequence(ls_shard(ls_shard(numbers(12), 2, 1), 3, 2), 2, "5 11");
    check_sequence(ls_take(ls_shard(ls_repeat(numbers(3), -1), 2, 1), 4), 4, "1 0 2 1");
    check_sequence(ls_skip(ls_take(numbers(9), 5), 2), 3, "2 3 4");
    check_sequence(ls_repeat(numbers(2), 3), 6, "0 1 0 1 0 1");
    check_sequence(ls_repeat(numbers(2), 0), 0, "");
    check_sequence(ls_repeat(numbers(0), -1), 0, "");
    check_sequence(ls_repeat(numbers(0), 5), 0, "");
    check_sequence(ls_take(ls_repeat(numbers(3), -1), 7), 7, "0 1 2 0 1 2 0");
    check_sequence(ls_skip(ls_repeat(ls_repeat(numbers(1), 2), 2), 1), 3, "0 0 0");
    check_sequence(ls_shuffle(numbers(5), 1, 3), 5, "0 1 2 3 4");
    check_sequence(ls_prefetch(numbers(5), 2), 5, "0 1 2 3 4");
}

static void sequences_of_batches(void **state)
{
    (void)state;
    check_sequence(ls_batch(numbers(5), 2, false), 3, "[0 1] [2 3] [4]");
    check_sequence(ls_batch(numbers(5), 2, true), 2, "[0 1] [2 3]");
    check_sequence(ls_batch(numbers(4), 2, false), 2, "[0 1] [2 3]");
    check_sequence(ls_batch(numbers(4), 2, true), 2, "[0 1] [2 3]");
    check_sequence(ls_batch(numbers(3), 5, false), 1, "[0 1 2]");
    check_sequence(ls_batch(numbers(3), 5, true), 0, "");
    check_sequence(ls_batch(numbers(3), INT64_MAX, false), 1, "[0 1 2]");
    check_sequence(ls_batch(numbers(0), 5, false), 0, "");
    /* Repeated first, batches go over the border; batched first, they do not. */
    check_sequence(ls_batch(ls_repeat(numbers(3), 2), 2, false), 3, "[0 1] [2 0] [1 2]");
    check_sequence(ls_batch(ls_repeat(numbers(3), 3), 2, false), 5, "[0 1] [2 0] [1 2] [0 1] [2]");
    check_sequence(ls_repeat(ls_batch(numbers(3), 2, false), 2), 4, "[0 1] [2] [0 1] [2]");
    check_sequence(ls_repeat(ls_batch(numbers(3), 2, true), 2), 2, "[0 1] [0 1]");
    check_sequence(ls_take(ls_batch(ls_repeat(numbers(3), -1), 2, false), 3), 3, "[0 1] [2 0] [1 2]");
    check_sequence(ls_skip(ls_batch(numbers(5), 2, false), 1), 2, "[2 3] [4]");
    check_sequence(ls_shard(ls_batch(numbers(5), 2, false), 2, 0), 2, "[0 1] [4]");
    check_sequence(ls_batch(ls_shard(numbers(5), 2, 0), 2, false), 2, "[0 2] [4]");
    check_sequence(ls_prefetch(ls_repeat(ls_prefetch(ls_batch(numbers(3), 2, false), 1), 2), 3), 4,
                   "[0 1] [2] [0 1] [2]");
    ls_dataset *large = ls_batch(ls_repeat(numbers(1000), 3), 1500, false); /* more than the first room */
    assert_int_equal(strncmp(elements(large, 0, 40), "[0 1 2 ", 7), 0);
    assert_non_null(strstr(sequence, " 998 999 0 1 "));
    assert_string_equal(sequence, elements_by_rows(large, 0, 40));
    ls_dataset_destroy(large);
}

static void sequences_of_generators(void **state)
{
    (void)state;
    counter c = { 4, -1 }, none = { 0, -1 }, many = { 2500, -1 };
    check_sequence(generated(&c), LS_UNKNOWN, "0 1 2 3");
    check_sequence(ls_take(generated(&c), 3), LS_UNKNOWN, "0 1 2");
    check_sequence(ls_take(generated(&c), 0), 0, "");
    check_sequence(ls_skip(generated(&c), 3), LS_UNKNOWN, "3");
    check_sequence(ls_shard(generated(&c), 2, 1), LS_UNKNOWN, "1 3");
    check_sequence(ls_repeat(generated(&c), 2), LS_UNKNOWN, "0 1 2 3 0 1 2 3");
    check_sequence(ls_take(ls_repeat(generated(&c), -1), 5), 5, "0 1 2 3 0");
    check_sequence(ls_repeat(generated(&none), -1), LS_INFINITE, ""); /* not for ever */
    check_sequence(ls_batch(generated(&c), 3, false), LS_UNKNOWN, "[0 1 2] [3]");
    check_sequence(ls_batch(ls_repeat(generated(&c), 2), 3, true), LS_UNKNOWN, "[0 1 2] [3 0 1]");
    check_sequence(ls_shuffle(generated(&c), 1, 0), LS_UNKNOWN, "0 1 2 3");
    ls_dataset *large = ls_batch(generated(&many), 2500, false);
    assert_non_null(strstr(elements(large, 0, 40), " 1023 1024 1025 "));
    assert_non_null(strstr(sequence, " 2498 2499]"));
    ls_dataset_destroy(large);
}

static void from_tensors_is_one_element(void **state)
{
    (void)state;
    float x[2] = { 0, -0.0f };
    int32_t y = 0;
    ls_element_spec spec;
    ls_dataset *d = ls_from_tensors(ls_array_of(LS_F32, LS_SHAPE(2), x), ls_array_of(LS_I32, LS_SCALAR, &y));
    assert_int_equal(ls_dataset_spec(d, &spec), LS_OK);
    assert_int_equal(spec.component[0].shape.rank, 1);
    assert_int_equal(spec.component[1].shape.rank, 0);
    check_sequence(ls_dataset_share(d), 1, "0");
    d = ls_batch(ls_repeat(d, 100), 30, false);
    int64_t count;
    assert_int_equal(ls_dataset_count(d, &count), LS_OK);
    assert_int_equal(count, 4);
    check_sequence(ls_skip(d, 3), 1, "[0 0 0 0 0 0 0 0 0 0]");
}

/* ---- Specs, kept arrays, several components ---- */

static void specs(void **state)
{
    (void)state;
    ls_element_spec spec;
    ls_dataset *d = numbers(5);
    assert_int_equal(ls_dataset_spec(d, &spec), LS_OK);
    assert_int_equal(spec.count, 2);
    assert_int_equal(spec.batch, 0);
    assert_true(spec.features == 1 && spec.labels == 1 && spec.weights == 0);
    d = ls_batch(d, 2, false);
    assert_int_equal(ls_dataset_spec(d, &spec), LS_OK);
    assert_int_equal(spec.batch, 2);
    assert_int_equal(spec.component[0].shape.rank, 2);
    assert_int_equal(spec.component[0].shape.dims[0], LS_BATCH);
    assert_int_equal(spec.component[0].shape.dims[1], 2);
    assert_int_equal(spec.component[1].dtype, LS_I32);
    ls_dataset_destroy(d);
    d = ls_batch(ls_batch(numbers(5), 2, true), 2, false); /* whole batches can be batched again */
    assert_int_equal(ls_dataset_spec(d, &spec), LS_OK);
    assert_int_equal(spec.component[0].shape.rank, 3);
    assert_int_equal(spec.component[0].shape.dims[0], LS_BATCH);
    assert_int_equal(spec.component[0].shape.dims[1], 2);
    bool has_rows = true;
    assert_int_equal(ls_dataset_has_rows(d, &has_rows), LS_OK);
    assert_false(has_rows);
    ls_dataset_destroy(d);
}

static void several_inputs_and_weights(void **state)
{
    (void)state;
    float a[2] = { 1, 2 }, w[2] = { 0.5f, 0.25f };
    int64_t b[4] = { 3, 4, 5, 6 };
    unsigned char y[2] = { 7, 8 };
    ls_array inputs[2] = { ls_array_of(LS_F32, LS_SHAPE(2), a), ls_array_of(LS_I64, LS_SHAPE(2, 2), b) };
    ls_dataset *d =
        ls_from_tensor_slices(.inputs = inputs, .input_count = 2, .labels = ls_array_of(LS_U8, LS_SHAPE(2), y),
                              .weights = ls_array_of(LS_F32, LS_SHAPE(2), w));
    ls_element_spec spec;
    ls_iterator *it;
    const ls_element *e;
    assert_int_equal(ls_dataset_spec(d, &spec), LS_OK);
    assert_true(spec.count == 4 && spec.features == 2 && spec.labels == 1 && spec.weights == 1);
    d = ls_batch(d, 2, false);
    assert_int_equal(ls_iterator_create(d, 0, &it), LS_OK);
    memset(a, 0, sizeof a); /* copied when the dataset was made */
    ls_dataset_destroy(d);  /* the iterator keeps it alive */
    assert_int_equal(ls_iterator_next(it, &e), LS_OK);
    assert_int_equal(e->count, 4);
    assert_memory_equal(e->component[0].data, ((float[]){ 1, 2 }), 8);
    assert_memory_equal(e->component[1].data, b, sizeof b);
    assert_memory_equal(e->component[2].data, y, sizeof y);
    assert_memory_equal(e->component[3].data, w, sizeof w);
    ls_iterator_destroy(it);
}

static void kept_arrays(void **state)
{
    (void)state;
    float x[3] = { 1, 2, 3 };
    float *owned = malloc(sizeof x);
    ls_rows *rows;
    memcpy(owned, x, sizeof x);
    ls_dataset *d = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(3), x), .keep = LS_KEEP_BORROWED);
    assert_int_equal(ls_rows_create(d, 0, &rows), LS_OK);
    assert_ptr_equal(ls_rows_base(rows)->component[0].data, x); /* in place */
    ls_rows_destroy(rows);
    ls_dataset_destroy(d);
    d = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(3), owned), .keep = LS_KEEP_OWNED);
    assert_int_equal(ls_rows_create(d, 0, &rows), LS_OK);
    ls_dataset_destroy(d);
    assert_ptr_equal(ls_rows_base(rows)->component[0].data, owned);
    ls_rows_destroy(rows); /* frees it, or the leak checker tells */
    owned = malloc(sizeof x);
    d = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(-3), owned),
                              .keep = LS_KEEP_OWNED); /* wrong: freed as well */
    assert_int_equal(ls_dataset_status(d), LS_ERR_SHAPE);
    ls_dataset_destroy(d);
}

/* ---- Shuffles ---- */

static void read_order(ls_dataset *d, uint64_t epoch, int64_t *order, int64_t n)
{
    ls_rows *rows;
    const int64_t *list;
    int64_t count, at = 0;
    assert_int_equal(ls_rows_create(d, epoch, &rows), LS_OK);
    for (;;) {
        assert_int_equal(ls_rows_next(rows, &list, &count), LS_OK);
        if (count == 0)
            break;
        assert_true(at + count <= n);
        memcpy(order + at, list, (size_t)count * sizeof *list);
        at += count;
    }
    assert_int_equal(at, n);
    ls_rows_destroy(rows);
}

static void assert_permutation(const int64_t *order, int64_t n)
{
    static bool seen[MOST];
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(order[i], 0, n - 1);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
    }
}

static void shuffles_are_permutations(void **state)
{
    (void)state;
    static int64_t order[MOST], again[MOST], other[MOST];
    const int64_t sizes[] = { 1, 2, 3, 4, 5, 7, 8, 31, 100, 255, 256, 257, 1000, 4095 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        const int64_t windows[] = { 1, 2, 3, n / 2 + 1, n, n + 1, INT64_MAX };
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
            ls_dataset *d = ls_shuffle(numbers(n), windows[w], 5), *same = ls_shuffle(numbers(n), windows[w], 5);
            read_order(d, 3, order, n);
            assert_permutation(order, n);
            read_order(same, 3, again, n);
            assert_memory_equal(order, again, (size_t)n * sizeof *order);
            read_order(d, 4, other, n);
            assert_permutation(other, n);
            if (n >= 31 && windows[w] > 1)
                assert_memory_not_equal(order, other, (size_t)n * sizeof *order);
            for (int64_t i = 0; i < n && windows[w] < n; i++)
                assert_true(order[i] < i + windows[w]); /* nothing comes before it entered the window */
            ls_dataset_destroy(same);
            same = ls_shuffle(numbers(n), windows[w], 6);
            read_order(same, 3, again, n);
            if (n >= 31 && windows[w] > 1)
                assert_memory_not_equal(order, again, (size_t)n * sizeof *order);
            ls_dataset_destroy(same);
            ls_dataset_destroy(d);
        }
    }
}

/* Each of the 24 orders of 4 elements about equally often: 12,000 epochs, 500 each, give or take 5
 * deviations. */
static void shuffles_are_uniform(void **state)
{
    (void)state;
    int seen[256] = { 0 }, orders = 0;
    int64_t order[4];
    ls_dataset *d = ls_shuffle(numbers(4), 4, 1);
    for (uint64_t epoch = 0; epoch < 12000; epoch++) {
        read_order(d, epoch, order, 4);
        seen[order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3]]++;
    }
    for (int i = 0; i < 256; i++) {
        orders += seen[i] > 0;
        if (seen[i])
            assert_in_range(seen[i], 390, 610);
    }
    assert_int_equal(orders, 24);
    ls_dataset_destroy(d);
}

/* The order is part of a job's bits: it must never change. */
static void the_order_is_fixed(void **state)
{
    (void)state;
    ls_dataset *d = ls_shuffle(numbers(10), 10, 1), *w = ls_shuffle(numbers(10), 3, 1);
    assert_string_equal(elements(d, 0, 40), "5 7 0 8 2 4 9 6 1 3");
    assert_string_equal(elements(d, 1, 40), "1 0 4 8 9 5 7 2 6 3");
    assert_string_equal(elements(w, 0, 40), "1 2 0 5 3 4 7 6 9 8");
    ls_dataset_destroy(d);
    ls_dataset_destroy(w);
}

static void every_repetition_is_an_epoch(void **state)
{
    (void)state;
    static int64_t order[4][100], one[100];
    ls_dataset *once = ls_shuffle(numbers(50), 50, 9);
    ls_dataset *twice = ls_repeat(ls_dataset_share(once), 2);
    ls_dataset *taken = ls_take(ls_repeat(ls_dataset_share(once), -1), 100);
    read_order(twice, 0, order[0], 100);
    read_order(twice, 1, order[1], 100);
    read_order(taken, 0, order[2], 100);
    for (int pass = 0; pass < 4; pass++) {
        read_order(once, (uint64_t)pass, one, 50);
        assert_memory_equal(order[pass / 2] + pass % 2 * 50, one, sizeof *one * 50);
    }
    assert_memory_equal(order[0], order[2], sizeof order[0]);
    assert_memory_not_equal(order[0], order[0] + 50, sizeof *one * 50);
    /* nor does the next epoch of an endless one begin where the first is going on */
    read_order(taken, 1, order[3], 100);
    assert_memory_not_equal(order[2] + 50, order[3], sizeof *one * 50);
    ls_dataset_destroy(taken);
    ls_dataset_destroy(twice);
    ls_dataset_destroy(once);
    /* two shuffles of one seed are not one */
    ls_dataset *d = ls_shuffle(ls_shuffle(numbers(50), 50, 9), 50, 9);
    ls_dataset *plain = ls_shuffle(numbers(50), 50, 9);
    read_order(d, 0, order[0], 50);
    read_order(plain, 0, order[1], 50);
    for (int i = 0; i < 50; i++)
        one[i] = order[1][order[1][i]]; /* the result if all were drawn equally */
    assert_memory_not_equal(order[0], one, sizeof *one * 50);
    ls_dataset_destroy(d);
    ls_dataset_destroy(plain);
}

/* The order is the same whether elements are rows or come from a function, which keeps whole
 * elements in the window. */
static void shuffles_of_anything(void **state)
{
    (void)state;
    static char want[sizeof sequence];
    counter c = { 50, -1 };
    const int64_t windows[] = { 2, 7, 50, 80 };
    for (size_t i = 0; i < 4; i++) {
        ls_dataset *rows = ls_shuffle(numbers(50), windows[i], 2), *whole = ls_shuffle(generated(&c), windows[i], 2);
        strcpy(want, elements(rows, 5, 100));
        assert_string_equal(elements(whole, 5, 100), want);
        ls_dataset_destroy(whole);
        /* and of batches: shuffled as wholes */
        whole = ls_shuffle(ls_batch(numbers(50), 5, false), windows[i], 2);
        strcpy(want, elements(whole, 0, 100));
        assert_string_equal(elements_by_rows(whole, 0, 100), want);
        assert_non_null(strstr(want, "[45 46 47 48 49]"));
        assert_true(windows[i] < 5 || strncmp(want, "[0 1 2 3 4] [5 6 7 8 9] [10", 27) != 0);
        ls_dataset_destroy(whole);
        ls_dataset_destroy(rows);
    }
}

static void rows_are_what_iterating_gives(void **state)
{
    (void)state;
    static char want[sizeof sequence];
    for (int64_t size = 1; size < 40; size += 3)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            ls_dataset *d = ls_shuffle(ls_skip(ls_take(numbers(60), 37), 4), size * 2, 11);
            d = ls_prefetch(ls_batch(ls_repeat(d, 2), size, size % 2), 2);
            strcpy(want, elements_by_rows(d, epoch, 1000));
            assert_string_equal(elements(d, epoch, 1000), want);
            ls_dataset_destroy(d);
        }
}

/* ---- Splits and shares ---- */

static void splits(void **state)
{
    (void)state;
    ls_dataset *d = numbers(10), *train = NULL, *validation = NULL;
    assert_int_equal(ls_dataset_split(d, 0.25, &train, &validation), LS_OK);
    check_sequence(train, 7, "0 1 2 3 4 5 6"); /* floor(10 * 0.75) */
    check_sequence(validation, 3, "7 8 9");
    check_sequence(ls_dataset_share(d), 10, "0 1 2 3 4 5 6 7 8 9");
    train = validation = NULL;
    const double bad[] = { 0, 1, -0.5, 2, 0.99, 0.0 / 0.0 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ls_dataset_split(d, bad[i], &train, &validation), LS_ERR_INVALID);
    d = ls_batch(d, 2, false);
    assert_int_equal(ls_dataset_split(d, 0.5, &train, &validation), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "ls_batch"));
    ls_dataset_destroy(d);
    d = ls_take(ls_shuffle(numbers(10), 10, 1), 8);
    assert_int_equal(ls_dataset_split(d, 0.5, &train, &validation), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "ls_shuffle"));
    ls_dataset_destroy(d);
    d = ls_repeat(numbers(10), -1);
    assert_int_equal(ls_dataset_split(d, 0.5, &train, &validation), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "infinite"));
    ls_dataset_destroy(d);
    assert_null(train);
    assert_null(validation);
}

static void shared_handles(void **state)
{
    (void)state;
    ls_dataset *d = numbers(3);
    ls_dataset *a = ls_take(ls_dataset_share(d), 1), *b = ls_skip(ls_dataset_share(d), 1);
    ls_dataset_destroy(d);
    check_sequence(a, 1, "0");
    check_sequence(b, 2, "1 2");
    ls_dataset_destroy(NULL);
    ls_iterator_destroy(NULL);
    ls_rows_destroy(NULL);
    assert_null(ls_dataset_share(NULL));
    d = numbers(1);
    for (int i = 0; i < 10000; i++) /* a long chain, ended without a deep stack */
        d = ls_take(d, 1);
    ls_dataset_destroy(d);
}

/* ---- Errors ---- */

static void assert_keeps(ls_dataset *d, ls_status status, const char *piece)
{
    ls_iterator *it = NULL;
    ls_rows *rows = NULL;
    int64_t count;
    d = ls_prefetch(ls_batch(ls_shuffle(d, 3, 1), 2, false), 1); /* whatever is built on it keeps the first error */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_iterator_create(d, 0, &it), status);
        if (!strstr(ls_last_error(), piece))
            fail_msg("no '%s' in: %s", piece, ls_last_error());
    }
    assert_int_equal(ls_dataset_count(d, &count), status);
    assert_int_equal(ls_rows_create(d, 0, &rows), status);
    assert_null(it);
    assert_null(rows);
    ls_dataset_destroy(d);
}

static void errors_are_kept(void **state)
{
    (void)state;
    float x[12] = { 0 };
    ls_shape nine = { .rank = 9, .dims = { 1 } }, eight = { .rank = 8, .dims = { 1, 1, 1, 1, 1, 1, 1, 1 } };
    ls_array six = ls_array_of(LS_F32, LS_SHAPE(6, 2), x), four = ls_array_of(LS_F32, LS_SHAPE(4), x);
    assert_keeps(ls_batch(numbers(3), 0, false), LS_ERR_INVALID, "at least 1 (got 0)");
    assert_keeps(ls_batch(numbers(3), -4, false), LS_ERR_INVALID, "at least 1 (got -4)");
    assert_keeps(ls_shuffle(numbers(3), 0, 1), LS_ERR_INVALID, "at least 1 element (got 0)");
    assert_keeps(ls_repeat(numbers(3), -2), LS_ERR_INVALID, "ls_repeat");
    assert_keeps(ls_take(numbers(3), -2), LS_ERR_INVALID, "ls_take");
    assert_keeps(ls_skip(numbers(3), -2), LS_ERR_INVALID, "ls_skip");
    assert_keeps(ls_shard(numbers(3), 0, 0), LS_ERR_INVALID, "ls_shard: shard 0 of 0");
    assert_keeps(ls_shard(numbers(3), 2, 2), LS_ERR_INVALID, "ls_shard: shard 2 of 2");
    assert_keeps(ls_shard(numbers(3), 2, -1), LS_ERR_INVALID, "ls_shard: shard -1 of 2");
    assert_keeps(ls_prefetch(numbers(3), 0), LS_ERR_INVALID, "ls_prefetch");
    assert_keeps(ls_map(numbers(3), NULL), LS_ERR_INVALID, "ls_map");
    assert_keeps(ls_take(NULL, 1), LS_ERR_INVALID, "ls_take: the dataset is NULL");
    assert_keeps(ls_from_tensor_slices(six, four), LS_ERR_SHAPE, "component 1 of shape (4,) has 4");
    assert_keeps(ls_from_tensor_slices(.labels = four), LS_ERR_INVALID, "features");
    assert_keeps(ls_from_tensor_slices(ls_array_of(LS_F32, LS_SCALAR, x)), LS_ERR_SHAPE, "scalar");
    assert_keeps(ls_from_tensor_slices(ls_array_of(LS_F32, nine, x)), LS_ERR_SHAPE, "9 axes");
    assert_keeps(ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(INT64_MAX, 4), x)), LS_ERR_SHAPE, "shape");
    assert_keeps(ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(2), NULL)), LS_ERR_INVALID, "no data");
    assert_keeps(ls_from_tensor_slices(ls_array_of(77, LS_SHAPE(2), x)), LS_ERR_DTYPE, "77");
    assert_keeps(ls_from_tensor_slices(six, .inputs = &six, .input_count = 1), LS_ERR_INVALID, "not both");
    assert_keeps(ls_from_tensors(ls_array_of(LS_F32, eight, x)), LS_ERR_SHAPE, "8 axes");
    assert_keeps(ls_from_generator(NULL, NULL, LS_ELEMENT(LS_SPEC(LS_F32, LS_SCALAR))), LS_ERR_INVALID, "NULL");
    assert_keeps(ls_from_generator(count_up, NULL, LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(LS_BATCH, 2)))), LS_ERR_SHAPE,
                 "known");
    assert_keeps(ls_from_generator(count_up, NULL, (ls_element_spec){ .count = 0 }), LS_ERR_INVALID, "0 components");
    assert_keeps(ls_from_generator(count_up, NULL, (ls_element_spec){ .count = 4 }), LS_ERR_INVALID, "4 components");
    assert_keeps(ls_from_generator(count_up, NULL, (ls_element_spec){ .count = 2, .features = 3, .labels = -1 }),
                 LS_ERR_INVALID, "3 features");
    assert_keeps(ls_batch(ls_batch(numbers(3), 2, false), 2, false), LS_ERR_SHAPE, "drop_remainder");
    assert_keeps(ls_repeat(ls_repeat(numbers(3), INT64_MAX / 2), 3), LS_ERR_OVERFLOW, "ls_repeat");
    ls_iterator *it;
    const ls_element *e;
    int64_t count;
    const int64_t *list;
    assert_int_equal(ls_iterator_create(NULL, 0, &it), LS_ERR_INVALID);
    assert_int_equal(ls_iterator_next(NULL, &e), LS_ERR_INVALID);
    assert_int_equal(ls_rows_next(NULL, &list, &count), LS_ERR_INVALID);
}

static void a_failing_generator(void **state)
{
    (void)state;
    counter c = { 9, 3 };
    ls_dataset *d = ls_batch(generated(&c), 2, false);
    ls_iterator *it;
    ls_rows *rows = NULL;
    const ls_element *e;
    assert_int_equal(ls_iterator_create(d, 0, &it), LS_OK);
    assert_int_equal(ls_iterator_next(it, &e), LS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ls_iterator_next(it, &e), LS_ERR_DATA);
        assert_non_null(strstr(ls_last_error(), "element 3 of epoch 0: LS_ERR_DATA"));
    }
    ls_iterator_destroy(it);
    assert_int_equal(ls_rows_create(d, 0, &rows), LS_ERR_UNSUPPORTED);
    assert_null(rows);
    ls_dataset_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_of_rows),
        cmocka_unit_test(sequences_of_batches),
        cmocka_unit_test(sequences_of_generators),
        cmocka_unit_test(from_tensors_is_one_element),
        cmocka_unit_test(specs),
        cmocka_unit_test(several_inputs_and_weights),
        cmocka_unit_test(kept_arrays),
        cmocka_unit_test(shuffles_are_permutations),
        cmocka_unit_test(shuffles_are_uniform),
        cmocka_unit_test(the_order_is_fixed),
        cmocka_unit_test(every_repetition_is_an_epoch),
        cmocka_unit_test(shuffles_of_anything),
        cmocka_unit_test(rows_are_what_iterating_gives),
        cmocka_unit_test(splits),
        cmocka_unit_test(shared_handles),
        cmocka_unit_test(errors_are_kept),
        cmocka_unit_test(a_failing_generator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
