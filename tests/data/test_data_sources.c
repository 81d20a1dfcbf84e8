/* Elements by index: functions, two datasets as one, folds, and arrays in files that are mapped
 * into memory. Orders are those of the same rows in memory; training in a cluster or in one
 * process, and after a resume, has one result. */
#include "data_files.h"

#include <sys/resource.h>

#include "sanitized.h"

#define N 50

/* Element i is (feature [i, -i], label i % 3). */
static void fill(int64_t i, ls_element *out)
{
    ((float *)out->component[0].data)[0] = (float)i;
    ((float *)out->component[0].data)[1] = (float)-i;
    *(int64_t *)out->component[1].data = i % 3;
}

static ls_status make(void *user, ls_element *out)
{
    if (user)
        *(int64_t *)user += 1;
    if (out->number == 13 && user == NULL)
        return LS_ERR_DATA;
    fill(out->number, out);
    return LS_OK;
}

static ls_element_spec spec_of_pairs(void)
{
    return LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(2)), LS_SPEC(LS_I64, LS_SCALAR));
}

/* The same elements as arrays, from `first` on. */
static ls_dataset *arrays(int64_t first, int64_t count)
{
    static float x[2 * N];
    static int64_t y[N];
    for (int64_t i = 0; i < count; i++) {
        ls_element one = { .component = { { .data = x + 2 * i }, { .data = y + i } } };
        fill(first + i, &one);
    }
    return ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(count, 2), x), ls_array_of(LS_I64, LS_SHAPE(count), y));
}

/* The first features of all elements: "3 1 [4 0]". */
static const char *sequence(ls_dataset *d, uint64_t epoch)
{
    static char text[16][N * 16];
    static int at;
    char *out = text[at = (at + 1) % 16], *to = out;
    ls_iterator *iterator = NULL;
    const ls_element *e;
    *to = 0;
    if (ls_iterator_create(d, epoch, &iterator) != LS_OK)
        fail_msg("%s", ls_last_error());
    while (ls_iterator_next(iterator, &e) == LS_OK && e) {
        int64_t count = e->component[1].shape.rank == 1 ? e->component[1].shape.dims[0] : 1;
        for (int64_t i = 0; i < count; i++) {
            const float *x = (const float *)e->component[0].data + 2 * i;
            assert_true(x[1] == -x[0] && ((const int64_t *)e->component[1].data)[i] == (int64_t)x[0] % 3);
            to += sprintf(to, "%d%s", (int)x[0], i + 1 < count ? "," : " ");
        }
    }
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(d);
    return out;
}

/* The function gives any element: each pipeline has the order of the same arrays. */
static void orders_of_a_function(void **state)
{
    (void)state;
    int64_t calls = 0;
    for (uint64_t epoch = 0; epoch < 2; epoch++)
        for (int kind = 0; kind < 2; kind++) {
#define SOURCE (kind ? arrays(0, N) : ls_from_function(N, spec_of_pairs(), make, &calls))
            static const char *want[6];
            const char *found[6] = {
                sequence(SOURCE, epoch),
                sequence(ls_shuffle(SOURCE, N, 7), epoch),
                sequence(ls_batch(ls_shuffle(SOURCE, 10, 7), 8, false), epoch),
                sequence(ls_prefetch(ls_batch(ls_shard(ls_shuffle(SOURCE, N, 1), 2, 1), 4, true), 2), epoch),
                sequence(ls_repeat(ls_take(ls_skip(SOURCE, 3), 5), 2), epoch),
                sequence(ls_shuffle(ls_prefetch(SOURCE, 3), N, 7), epoch),
            };
            for (int i = 0; i < 6; i++) {
                if (kind)
                    assert_string_equal(found[i], want[i]);
                want[i] = found[i];
            }
        }
    calls = 0;
    sequence(ls_take(ls_shuffle(ls_from_function(N, spec_of_pairs(), make, &calls), N, 7), 5), 0);
    assert_int_equal(calls, 5); /* shuffling makes nothing */
}

/* For several threads. */
static ls_status make_quietly(void *user, ls_element *out)
{
    (void)user;
    fill(out->number, out);
    return LS_OK;
}

static ls_status twice(void *user, const ls_element *in, ls_element *out)
{
    (void)user;
    fill((int64_t)((const float *)in->component[0].data)[0] * 2 % N, out);
    return LS_OK;
}

static void maps_of_a_function(void **state)
{
    (void)state;
    int64_t calls = 0;
    const char *want = sequence(ls_batch(ls_map(ls_shuffle(arrays(0, N), N, 3), twice), 4, false), 1);
    ls_dataset *d = ls_shuffle(ls_from_function(N, spec_of_pairs(), make, &calls), N, 3);
    assert_string_equal(sequence(ls_batch(ls_map(ls_dataset_share(d), twice), 4, false), 1), want);
    ls_dataset_destroy(d);
    d = ls_shuffle(ls_from_function(N, spec_of_pairs(), make_quietly, &calls), N, 3);
    assert_string_equal(sequence(ls_batch(ls_map(d, twice, .threads = 3), 4, false), 1), want);
}

static void two_as_one(void **state)
{
    (void)state;
    int64_t calls = 0;
    for (int kind = 0; kind < 4; kind++) {
        ls_dataset *first = kind & 1 ? ls_take(arrays(0, 20), 10) : ls_from_function(10, spec_of_pairs(), make, &calls);
        ls_dataset *second =
            kind & 2
                ? ls_skip(ls_from_function(N, spec_of_pairs(), make, &calls), 10)
                : ls_concatenate_datasets(ls_take(ls_skip(ls_from_function(N, spec_of_pairs(), make, &calls), 10), 20),
                                          ls_skip(ls_from_function(N, spec_of_pairs(), make, &calls), 30));
        ls_dataset *both = ls_concatenate_datasets(first, second);
        assert_string_equal(sequence(ls_dataset_share(both), 0), sequence(arrays(0, N), 0));
        assert_string_equal(sequence(ls_batch(ls_shuffle(both, N, 5), 4, false), 3),
                            sequence(ls_batch(ls_shuffle(arrays(0, N), N, 5), 4, false), 3));
    }
    /* Shuffled parts stay apart, each in its own order of the epoch. */
    const char *mixed = sequence(ls_concatenate_datasets(ls_shuffle(arrays(0, 5), 5, 1), ls_take(arrays(0, 5), 2)), 4);
    assert_string_equal(mixed + strlen(mixed) - 4, "0 1 ");
    assert_memory_equal(mixed, sequence(ls_shuffle(arrays(0, 5), 5, 1), 4), 10);
}

static void folds(void **state)
{
    (void)state;
    int64_t calls = 0;
    for (int kind = 0; kind < 2; kind++) {
        ls_dataset *d = kind ? arrays(0, 10) : ls_from_function(10, spec_of_pairs(), make, &calls), *train, *validation;
        assert_int_equal(ls_dataset_fold(d, 3, 0, &train, &validation), LS_OK);
        assert_string_equal(sequence(validation, 0), "0 1 2 ");
        assert_string_equal(sequence(train, 0), "3 4 5 6 7 8 9 ");
        assert_int_equal(ls_dataset_fold(d, 3, 1, &train, &validation), LS_OK);
        assert_string_equal(sequence(validation, 0), "3 4 5 ");
        assert_string_equal(sequence(ls_dataset_share(train), 0), "0 1 2 6 7 8 9 ");
        /* Parts of the folds are rows: shuffled like the same rows in memory. */
        bool rows;
        assert_int_equal(ls_dataset_has_rows(train, &rows), LS_OK);
        assert_int_equal(rows, kind);
        ls_dataset_destroy(train);
        assert_int_equal(ls_dataset_fold(d, 3, 2, &train, &validation), LS_OK);
        assert_string_equal(sequence(validation, 0), "6 7 8 9 ");
        assert_string_equal(sequence(train, 0), "0 1 2 3 4 5 ");
        assert_fails(ls_dataset_fold(d, 1, 0, &train, &validation), LS_ERR_INVALID, "from 2 to", "10", "got 1");
        assert_fails(ls_dataset_fold(d, 11, 0, &train, &validation), LS_ERR_INVALID, "got 11");
        assert_fails(ls_dataset_fold(d, 3, 3, &train, &validation), LS_ERR_INVALID, "from 0 to 2", "got 3");
        d = ls_shuffle(d, 10, 1);
        assert_fails(ls_dataset_fold(d, 3, 0, &train, &validation), LS_ERR_INVALID, "a fold of shuffled data");
        d = ls_batch(d, 2, false);
        assert_fails(ls_dataset_fold(d, 3, 0, &train, &validation), LS_ERR_INVALID, "before ls_batch");
        ls_dataset_destroy(d);
    }
}

static void wrong_sources(void **state)
{
    (void)state;
    ls_iterator *iterator = NULL;
    const ls_element *e;
    ls_dataset *d = ls_from_function(N, spec_of_pairs(), make, NULL);
    assert_int_equal(ls_iterator_create(d, 0, &iterator), LS_OK);
    for (int i = 0; i < 13; i++)
        assert_int_equal(ls_iterator_next(iterator, &e), LS_OK);
    for (int i = 0; i < 2; i++)
        assert_fails(ls_iterator_next(iterator, &e), LS_ERR_DATA, "ls_from_function", "element 13");
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(d);
    int64_t calls = 0;
#define WRONG(call, status, ...)                                                                                       \
    do {                                                                                                               \
        d = call;                                                                                                      \
        assert_fails(ls_dataset_status(d), status, __VA_ARGS__);                                                       \
        ls_dataset_destroy(d);                                                                                         \
    } while (0)
    WRONG(ls_from_function(-1, spec_of_pairs(), make, &calls), LS_ERR_INVALID, "got -1");
    WRONG(ls_from_function(3, LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(LS_BATCH))), make, &calls), LS_ERR_SHAPE,
          "component 0");
    WRONG(ls_concatenate_datasets(arrays(0, 3), ls_batch(arrays(0, 3), 2, false)), LS_ERR_SHAPE, "batches of 0",
          "batches of 2");
    WRONG(ls_concatenate_datasets(
              arrays(0, 3),
              ls_from_function(3, LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(3)), LS_SPEC(LS_I64, LS_SCALAR)), make, &calls)),
          LS_ERR_SHAPE, "component 0", "(2,)", "(3,)");
    WRONG(ls_concatenate_datasets(arrays(0, 3), ls_take(NULL, 1)), LS_ERR_INVALID, "NULL");
}

/* ---- Training ---- */

static void train(ls_dataset *data, int64_t epochs, char sha256[65])
{
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    ls_context_options options = { .threads = 2, .log_level = LS_LOG_ERROR };
    assert_int_equal(ls_context_create(&options, &ctx), LS_OK);
    assert_int_equal(ls_model_builtin(ctx, "mlp", &model, .input = LS_SHAPE(2), .classes = 3), LS_OK);
    if (ls_compile(model, .optimizer = ls_sgd(0.01), .loss = ls_sparse_categorical_crossentropy(.from_logits = true)) !=
            LS_OK ||
        ls_fit(model, data, .epochs = epochs, .batch_size = 8, .seed = 3, .verbose = LS_VERBOSE_SILENT) != LS_OK)
        fail_msg("%s", ls_last_error());
    assert_int_equal(ls_model_weights_sha256(model, sha256), LS_OK);
    ls_model_destroy(model);
    ls_context_close(ctx);
    ls_dataset_destroy(data);
}

static void one_result(void **state)
{
    (void)state;
    char want[65], found[65];
    int64_t calls = 0;
    train(arrays(0, N), 3, want);
    train(ls_from_function(N, spec_of_pairs(), make, &calls), 3, found);
    assert_string_equal(found, want);
    train(ls_concatenate_datasets(ls_take(arrays(0, N), 9),
                                  ls_skip(ls_from_function(N, spec_of_pairs(), make, &calls), 9)),
          3, found);
    assert_string_equal(found, want);
    train(ls_prefetch(ls_batch(ls_shuffle(ls_from_function(N, spec_of_pairs(), make, &calls), N, 3), 8, false), 1), 3,
          found);
    assert_string_equal(found, want);
}

/* ---- Arrays in files ---- */

static void array_files(void **state)
{
    (void)state;
    const float x[] = { 1, -1, 2, -2, 3, -3 };
    const int64_t y[] = { 1, 2, 0 };
    static bytes idx;
    assert_int_equal(ls_npy_write(in_folder("x.npy"), ls_array_of(LS_F32, LS_SHAPE(3, 2), (void *)x)), LS_OK);
    assert_int_equal(ls_npy_write(in_folder("y.npy"), ls_array_of(LS_I64, LS_SHAPE(3), (void *)y)), LS_OK);
    assert_string_equal(sequence(ls_from_array_files(in_folder("x.npy"), in_folder("y.npy")), 0), "1 2 3 ");
    ls_dataset *d = NULL;
    char name[200];
    snprintf(name, sizeof name, "%s,%s", in_folder("x.npy"), in_folder("y.npy"));
    assert_int_equal(ls_load_data(NULL, name, &d, NULL), LS_OK);
    assert_string_equal(sequence(ls_dataset_share(d), 0), "1 2 3 ");
    bool rows;
    assert_int_equal(ls_dataset_has_rows(d, &rows), LS_OK);
    assert_true(rows);
    ls_dataset_destroy(d);
    /* bytes of an IDX file get a channel axis */
    put(&idx, (unsigned char[]){ 0, 0, 8, 3 }, 4);
    put_big(&idx, 3), put_big(&idx, 1), put_big(&idx, 2);
    put(&idx, "abcdef", 6);
    write_file(in_folder("x-idx3"), idx.data, idx.count);
    ls_element_spec spec;
    d = ls_from_array_files(in_folder("x-idx3"), in_folder("y.npy"));
    assert_int_equal(ls_dataset_spec(d, &spec), LS_OK);
    assert_true(spec.component[0].dtype == LS_U8 && spec.component[0].shape.rank == 3 &&
                spec.component[0].shape.dims[2] == 1);
    ls_dataset_destroy(d);
    write_file(in_folder("x-idx3"), idx.data, idx.count - 1);
    WRONG(ls_from_array_files(in_folder("x-idx3"), NULL), LS_ERR_DATA, "x-idx3", "21 bytes", "needs more");
    put(&idx, "g", 1);
    write_file(in_folder("x-idx3"), idx.data, idx.count);
    WRONG(ls_from_array_files(in_folder("x-idx3"), NULL), LS_ERR_DATA, "x-idx3", "1 bytes more");
    WRONG(ls_from_array_files(in_folder("y.npy"), in_folder("y.npy")), LS_ERR_DATA, "y.npy", "one of features");
    WRONG(ls_from_array_files(in_folder("no.npy"), NULL), LS_ERR_NOT_FOUND, "no.npy");
    write_file(in_folder("x.gz"), "\x1f\x8b....", 6);
    WRONG(ls_from_array_files(in_folder("x.gz"), NULL), LS_ERR_UNSUPPORTED, "x.gz", "gunzip");
}

static void tensors_of_safetensors(void **state)
{
    (void)state;
    static bytes file;
    const float x[] = { 1, -1, 2, -2, 3, -3 };
    const int64_t y[] = { 1, 2, 0 };
    const char head[] = "{\"y\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[0,24]},"
                        "\"x\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[24,48]}}  ";
    size_t chars = (strlen(head)) / 8 * 8;
    put_number(&file, chars, 8);
    put(&file, head, chars);
    put(&file, y, sizeof y);
    put(&file, x, sizeof x);
    write_file(in_folder("a.safetensors"), file.data, file.count);
    char names[2][200];
    for (int i = 0; i < 2; i++)
        snprintf(names[i], sizeof names[i], "%s:%c", in_folder("a.safetensors"), "xy"[i]);
    assert_string_equal(sequence(ls_from_array_files(names[0], names[1]), 0), "1 2 3 ");
    snprintf(names[1], sizeof names[1], "%s:z", in_folder("a.safetensors"));
    ls_dataset *d;
    WRONG(ls_from_array_files(names[0], names[1]), LS_ERR_NOT_FOUND, "no tensor \"z\"", "y, x");
    write_file(in_folder("a.safetensors"), file.data, file.count - 9);
    WRONG(ls_from_array_files(names[0], NULL), LS_ERR_DATA, "a.safetensors", "needs more");
}

/* ---- Larger than memory ---- */

#define LIMIT ((int64_t)24 << 20) /* memory for data, besides what the program has */

/* RssAnon: private memory in use; VmData: what RLIMIT_DATA limits. */
static int64_t status_kib(const char *name)
{
    char line[200];
    int64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtol(line + strlen(name) + 1, NULL, 10);
    fclose(f);
    return kib;
}

/* One element of a megabyte. */
static ls_status make_large(void *user, ls_element *out)
{
    (void)user;
    memset(out->component[0].data, (int)out->number, 1 << 20);
    *(int64_t *)out->component[1].data = 0;
    return LS_OK;
}

static void walk(ls_dataset *d, int64_t count)
{
    ls_iterator *iterator = NULL;
    const ls_element *e;
    unsigned sum = 0;
    assert_int_equal(ls_iterator_create(d, 0, &iterator), LS_OK);
    for (int64_t i = 0; i < count; i++) {
        if (ls_iterator_next(iterator, &e) != LS_OK || !e)
            fail_msg("element %ld: %s", (long)i, ls_last_error());
        for (int k = 0; k < 1 << 20; k += 4096)
            sum += ((const unsigned char *)e->component[0].data)[k];
    }
    assert_true(sum > 0);
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(d);
}

/* 240 MiB as a file and from a function, shuffled, with 24 MiB of memory for data. */
static void larger_than_memory(void **state)
{
    (void)state;
    struct rlimit before, tight;
    int64_t count = 10 * LIMIT >> 20;
    FILE *f = fopen(in_folder("large.npy"), "wb");
    char head[128];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\1\0\x76\0", 10);
    int chars =
        snprintf(head + 10, 118, "{'descr': '|u1', 'fortran_order': False, 'shape': (%ld, 1048576)}", (long)count);
    head[10 + chars] = ' ';
    head[127] = '\n';
    assert_int_equal(fwrite(head, 1, 128, f), 128);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(in_folder("large.npy"), 128 + (count << 20)), 0); /* zeros, without blocks on the disk */
    f = fopen(in_folder("large.npy"), "r+b");
    fseek(f, 128 + (7 << 20), SEEK_SET);
    fputc(1, f);
    fclose(f);
    int64_t kib = status_kib("RssAnon");
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    tight = (struct rlimit){ (rlim_t)(status_kib("VmData") * 1024 + LIMIT), before.rlim_max };
    if (!SANITIZED)
        assert_int_equal(setrlimit(RLIMIT_DATA, &tight), 0);
    walk(ls_shuffle(ls_from_array_files(in_folder("large.npy"), NULL), count, 1), count);
    assert_true(status_kib("RssAnon") - kib < LIMIT / 1024);
    ls_element_spec spec = LS_ELEMENT(LS_SPEC(LS_U8, LS_SHAPE(1 << 20)), LS_SPEC(LS_I64, LS_SCALAR));
    walk(ls_shuffle(ls_from_function(count, spec, make_large, NULL), count, 1), count);
    assert_true(status_kib("RssAnon") - kib < LIMIT / 1024);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_of_a_function),
        cmocka_unit_test(maps_of_a_function),
        cmocka_unit_test(two_as_one),
        cmocka_unit_test(folds),
        cmocka_unit_test(wrong_sources),
        cmocka_unit_test(one_result),
        in_new_folder(array_files),
        in_new_folder(tensors_of_safetensors),
        in_new_folder(larger_than_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
