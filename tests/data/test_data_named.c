/* Data by name: where it is looked for, when it is read, what is said when it is not there;
 * synthetic data; the real Fashion-MNIST where it is installed. */
#include "skip.h"
#include "data_files.h"

static void make_idx_set(const char *where, const char *prefix, uint32_t n)
{
    static bytes file, packed;
    char path[512];
    snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte", where, prefix);
    make_idx(&file, 8, 3, (uint32_t[]){ n, 2, 2 }, pixels, 4 * n);
    write_file(path, file.data, file.count);
    snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte.gz", where, prefix);
    make_idx(&file, 8, 1, (uint32_t[]){ n }, pixels, n);
    packed.count = 0;
    gzip(&packed, file.data, file.count);
    write_file(path, packed.data, packed.count);
}

static void assert_set(ls_dataset *set, int64_t count, ls_dtype dtype, ls_shape shape)
{
    ls_element_spec spec;
    int64_t found;
    assert_int_equal(ls_dataset_spec(set, &spec), LS_OK);
    assert_int_equal(ls_dataset_count(set, &found), LS_OK);
    assert_int_equal(found, count);
    assert_int_equal(spec.count, 2);
    assert_int_equal(spec.features, 1);
    assert_int_equal(spec.labels, 1);
    assert_int_equal(spec.component[0].dtype, dtype);
    assert_int_equal(spec.component[0].shape.rank, shape.rank);
    for (int i = 0; i < shape.rank; i++)
        assert_int_equal(spec.component[0].shape.dims[i], shape.dims[i]);
}

static void a_folder_of_idx_files(void **state)
{
    (void)state;
    ls_dataset *train = NULL, *test = NULL;
    make_idx_set(folder, "train", 5);
    make_idx_set(folder, "t10k", 3);
    assert_int_equal(ls_load_data(NULL, folder, &train, &test), LS_OK);
    assert_set(train, 5, LS_U8, LS_SHAPE(2, 2, 1));
    assert_set(test, 3, LS_U8, LS_SHAPE(2, 2, 1));
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    /* the same, written with a dot */
    assert_int_equal(rename(in_folder("train-images-idx3-ubyte"), in_folder("train-images.idx3-ubyte")), 0);
    assert_int_equal(ls_load_data(NULL, folder, &train, NULL), LS_OK);
    assert_set(train, 5, LS_U8, LS_SHAPE(2, 2, 1));
    ls_dataset_destroy(train);
    remove(in_folder("t10k-labels-idx1-ubyte.gz"));
    train = test = NULL;
    assert_fails(ls_load_data(NULL, folder, &train, &test), LS_ERR_NOT_FOUND, folder, "t10k-labels-idx1-ubyte");
    assert_null(train);
    make_idx_set(folder, "t10k", 3);
    static bytes file;
    make_idx(&file, 8, 1, (uint32_t[]){ 4 }, pixels, 4);
    write_file(in_folder("train-labels-idx1-ubyte"), file.data, file.count);
    assert_fails(ls_load_data(NULL, folder, &train, &test), LS_ERR_DATA, "5 samples", "4 labels", "train-labels");
    assert_null(train);
    assert_null(test);
}

static void the_test_set_is_read_when_needed(void **state)
{
    (void)state;
    ls_dataset *train = NULL, *test = NULL;
    const ls_element *element;
    ls_iterator *it;
    make_idx_set(folder, "train", 2);
    write_text(in_folder("t10k-images-idx3-ubyte"), "not yet");
    write_text(in_folder("t10k-labels-idx1-ubyte.gz"), "not yet");
    assert_int_equal(ls_load_data(NULL, folder, &train, &test), LS_OK);
    test = ls_batch(test, 2, false); /* building is not using */
    make_idx_set(folder, "t10k", 3);
    assert_int_equal(ls_iterator_create(test, 0, &it), LS_OK);
    assert_int_equal(ls_iterator_next(it, &element), LS_OK);
    assert_array(&element->component[0], LS_U8, LS_SHAPE(2, 2, 2, 1), pixels, 8);
    ls_iterator_destroy(it);
    ls_dataset_destroy(test);
    /* and a bad one is found only then, each time */
    write_text(in_folder("t10k-images-idx3-ubyte"), "bad");
    assert_int_equal(ls_load_data(NULL, folder, NULL, &test), LS_OK);
    for (int i = 0; i < 2; i++)
        assert_fails(ls_dataset_status(test), LS_ERR_DATA, "t10k-images-idx3-ubyte");
    ls_dataset_destroy(test);
    ls_dataset_destroy(train);
}

static void known_names(void **state)
{
    (void)state;
    ls_dataset *train = NULL, *test = NULL;
    char nested[300];
    snprintf(nested, sizeof nested, "%s/mnist", folder);
    setenv("LOCKSTEP_DATA", folder, 1);
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
    assert_fails(ls_load_data(NULL, "mnist", &train, &test), LS_ERR_NOT_FOUND, "mnist", nested, "no such folder",
                 "cache/lockstep/mnist", "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                 "t10k-labels-idx1-ubyte");
    mkdir(nested, 0777);
    make_idx_set(nested, "train", 4);
    assert_fails(ls_load_data(NULL, "mnist", &train, &test), LS_ERR_NOT_FOUND,
                 "(without t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte)");
    make_idx_set(nested, "t10k", 2);
    make_idx_set(folder, "train", 6); /* $LOCKSTEP_DATA itself comes after $LOCKSTEP_DATA/mnist */
    make_idx_set(folder, "t10k", 1);
    assert_int_equal(ls_load_data(NULL, "mnist", &train, &test), LS_OK);
    assert_set(train, 4, LS_U8, LS_SHAPE(2, 2, 1));
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    assert_int_equal(ls_load_data(NULL, "fashion-mnist", &train, NULL), LS_OK);
    assert_set(train, 6, LS_U8, LS_SHAPE(2, 2, 1));
    ls_dataset_destroy(train);
    setenv("LOCKSTEP_DATA", in_folder("nowhere"), 1);
    mkdir(in_folder("cache"), 0777);
    mkdir(in_folder("cache/lockstep"), 0777);
    assert_int_equal(rename(nested, in_folder("cache/lockstep/mnist")), 0);
    assert_int_equal(ls_load_data(NULL, "mnist", &train, NULL), LS_OK);
    ls_dataset_destroy(train);
    unsetenv("LOCKSTEP_DATA");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", in_folder("home"), 1);
    assert_fails(ls_load_data(NULL, "mnist", &train, NULL), LS_ERR_NOT_FOUND, "home/.cache/lockstep/mnist");
    assert_fails(ls_load_data(NULL, "fashion-minst", &train, NULL), LS_ERR_NOT_FOUND, "did you mean fashion-mnist?");
    assert_fails(ls_load_data(NULL, "0.jpg", &train, NULL), LS_ERR_NOT_FOUND, "no data named '0.jpg'", "FILE.npz");
    assert_null(strstr(ls_last_error(), "did you mean"));
    assert_fails(ls_load_data(NULL, in_folder("none.npz"), &train, NULL), LS_ERR_NOT_FOUND, "none.npz");
    assert_fails(ls_load_data(NULL, in_folder("none.csv"), &train, &test), LS_ERR_NOT_FOUND, "none.csv");
    assert_fails(ls_load_data(NULL, NULL, &train, &test), LS_ERR_INVALID, "NULL");
}

static void make_set_npz(const char *path, bool with_test, float value)
{
    static zip_writer z;
    static bytes content;
    z.file.count = z.directory.count = 0;
    z.count = 0;
    make_npy(&content, 1, HEADER("|u1", "False", "(3, 2, 2)"), pixels, 12);
    zip_add(&z, "x_train.npy", 8, false, &content);
    make_npy(&content, 1, HEADER("<i8", "False", "(3,)"), (int64_t[]){ 2, 1, 0 }, 24);
    zip_add(&z, "y_train.npy", 0, false, &content);
    if (with_test) {
        make_npy(&content, 1, HEADER("<f4", "False", "(2, 2)"), (float[]){ 1, 2, 3, value }, 16);
        zip_add(&z, "x_test.npy", 0, false, &content);
        make_npy(&content, 1, HEADER("<i4", "False", "(2,)"), (int32_t[]){ 2, 1 }, 8);
        zip_add(&z, "y_test.npy", 0, false, &content);
    }
    zip_end(&z, false, "");
    write_file(path, z.file.data, z.file.count);
}

static void npz_and_csv_by_name(void **state)
{
    (void)state;
    ls_dataset *train = NULL, *test = NULL;
    make_set_npz(in_folder("set.npz"), true, 4);
    assert_int_equal(ls_load_data(NULL, in_folder("set.npz"), &train, &test), LS_OK);
    assert_set(train, 3, LS_U8, LS_SHAPE(2, 2, 1));
    assert_set(test, 2, LS_F32, LS_SHAPE(2));
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    make_set_npz(in_folder("set.npz"), true, 0.0f / 0.0f);
    assert_int_equal(ls_load_data(NULL, in_folder("set.npz"), NULL, &test), LS_OK);
    assert_fails(ls_dataset_status(test), LS_ERR_NOT_FINITE, "x_test", "sample 1");
    ls_dataset_destroy(test);
    make_set_npz(in_folder("set.npz"), false, 0);
    test = (ls_dataset *)folder;
    assert_int_equal(ls_load_data(NULL, in_folder("set.npz"), &train, &test), LS_OK);
    assert_null(test);
    ls_dataset_destroy(train);
    write_text(in_folder("set.csv"), "a,b,c\n1,2,0\n3,4,1\n");
    test = (ls_dataset *)folder;
    assert_int_equal(ls_load_data(NULL, in_folder("set.csv"), &train, &test), LS_OK);
    assert_null(test);
    assert_set(train, 2, LS_F32, LS_SHAPE(2));
    ls_dataset_destroy(train);
}

static void synthetic_sets(void **state)
{
    (void)state;
    ls_dataset *train = NULL, *test = NULL, *again = NULL;
    assert_int_equal(ls_load_data(NULL, "synthetic:5x4x3,classes=7,count=1000,seed=3", &train, &test), LS_OK);
    assert_int_equal(ls_load_data(NULL, "synthetic:5x4x3,seed=3,count=1000,classes=7", &again, NULL), LS_OK);
    assert_set(train, 1000, LS_U8, LS_SHAPE(5, 4, 3));
    assert_set(test, 1000, LS_U8, LS_SHAPE(5, 4, 3));
    ls_rows *rows[3];
    ls_dataset *sets[3] = { train, again, test };
    for (int i = 0; i < 3; i++)
        assert_int_equal(ls_rows_create(sets[i], 0, &rows[i]), LS_OK);
    const ls_element *a = ls_rows_base(rows[0]), *b = ls_rows_base(rows[1]), *c = ls_rows_base(rows[2]);
    assert_memory_equal(a->component[0].data, b->component[0].data, 60000);
    assert_memory_equal(a->component[1].data, b->component[1].data, 4000);
    assert_memory_not_equal(a->component[0].data, c->component[0].data, 60000);
    int seen[7] = { 0 };
    for (int i = 0; i < 1000; i++) {
        int32_t label = ((int32_t *)a->component[1].data)[i];
        assert_in_range(label, 0, 6);
        seen[label]++;
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(seen[i], 90, 200);
    for (int i = 0; i < 3; i++) {
        ls_rows_destroy(rows[i]);
        ls_dataset_destroy(sets[i]);
    }
    assert_fails(ls_load_data(NULL, "synthetic:", &train, NULL), LS_ERR_INVALID, "sizes", "Example");
    assert_fails(ls_load_data(NULL, "synthetic:5x0", &train, NULL), LS_ERR_INVALID, "sizes");
    assert_fails(ls_load_data(NULL, "synthetic:5,clases=3", &train, NULL), LS_ERR_INVALID, "clases",
                 "did you mean classes?");
    assert_fails(ls_load_data(NULL, "synthetic:5,count=0", &train, NULL), LS_ERR_INVALID, "count=0");
    assert_fails(ls_load_data(NULL, "synthetic:5,count", &train, NULL), LS_ERR_INVALID, "count");
    assert_fails(ls_load_data(NULL, "synthetic:4000000000x4000000000,count=4000000000", &train, NULL), LS_ERR_OVERFLOW,
                 "memory");
}

static void fashion_mnist(void **state)
{
    (void)state;
    ls_dataset *train = NULL, *test = NULL;
    ls_rows *rows;
    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) != 0)
        SKIP("Fashion-MNIST is not installed");
    unsetenv("LOCKSTEP_DATA");
    assert_int_equal(ls_load_data(NULL, "fashion-mnist", &train, &test), LS_OK);
    assert_set(train, 60000, LS_U8, LS_SHAPE(28, 28, 1));
    assert_set(test, 10000, LS_U8, LS_SHAPE(28, 28, 1));
    assert_int_equal(ls_rows_create(train, 0, &rows), LS_OK);
    const ls_element *base = ls_rows_base(rows);
    const unsigned char *labels = base->component[1].data;
    int count[10] = { 0 };
    for (int i = 0; i < 60000; i++)
        count[labels[i]]++;
    for (int i = 0; i < 10; i++)
        assert_int_equal(count[i], 6000);
    assert_memory_equal(labels, "\x09\x00\x00\x03\x00\x02\x07\x02\x05\x05", 10);
    const unsigned char *images = base->component[0].data;
    double sum = 0;
    for (int i = 0; i < 60000 * 784; i++)
        sum += images[i];
    assert_true(sum / (60000.0 * 784) > 72.9 && sum / (60000.0 * 784) < 73.0); /* 72.94, the set's well-known mean */
    ls_rows_destroy(rows);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_new_folder(a_folder_of_idx_files), in_new_folder(the_test_set_is_read_when_needed),
        in_new_folder(known_names),           in_new_folder(npz_and_csv_by_name),
        in_new_folder(synthetic_sets),        in_new_folder(fashion_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
