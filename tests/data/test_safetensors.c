/* Weights in files: what is written is read, the bytes are those of the safetensors and NumPy
 * packages, and no file, however broken, is taken for a good one or does harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "check.h"
#include "data/safetensors.h"
#include "folder.h"
#include "lockstep/data.h"

/* Files by the thousand: without the sync and rename of ls_file_write, and a new one each time,
 * because some file systems also sync one that was cut and written again. */
static void write_bytes(const char *path, const void *data, size_t bytes)
{
    (void)remove(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void assert_bytes(const char *path, const void *want, size_t bytes)
{
    char *data = NULL;
    size_t count = 0;
    assert_int_equal(ls_file_read(path, 1 << 20, &data, &count), LS_OK);
    assert_int_equal(count, bytes);
    assert_memory_equal(data, want, bytes);
    free(data);
}

/* ---- One file of every dtype ---- */

static const float kernel[] = { 1.5F, -2, 0.25F, 3, 4, -5 }, zero[] = { 0 };
static const double tenth[] = { 0.1 };
static const int32_t ints[] = { -1, 2 };
static const int64_t step[] = { 7 };
static const uint8_t small[] = { 1, 2, 255 };
static const bool flags[] = { true, false };

static const ls_safetensors_entry entries[] = {
    { "s/step", LS_I64, { .rank = 0 }, step, sizeof step },
    { "d", LS_F64, { 1, { 1 } }, tenth, sizeof tenth },
    { "dense/kernel", LS_F32, { 2, { 2, 3 } }, kernel, sizeof kernel },
    { "e/empty", LS_F32, { 2, { 0, 4 } }, NULL, 0 },
    { "n\xc3\xa4\"me", LS_F32, { 1, { 1 } }, zero, sizeof zero },
    { "i", LS_I32, { 1, { 2 } }, ints, sizeof ints },
    { "u", LS_U8, { 1, { 3 } }, small, sizeof small },
    { "b", LS_BOOL, { 1, { 2 } }, flags, sizeof flags },
};
static const ls_safetensors_pair metadata[] = { { "format", "np" } };

/* The same tensors as written by version 0.8.0 of the Python package (save, in the order that it
 * chose). */
static const char golden[] =
    "\xf8\x01\0\0\0\0\0\0"
    "{\"__metadata__\":{\"format\":\"np\"},\"s/step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
    "\"d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16]},"
    "\"dense/kernel\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]},"
    "\"e/empty\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[40,40]},"
    "\"n\xc3\xa4\\\"me\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[40,44]},"
    "\"i\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[44,52]},"
    "\"u\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[52,55]},"
    "\"b\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[55,57]}}    "
    "\x07\0\0\0\0\0\0\0\x9a\x99\x99\x99\x99\x99\xb9?\0\0\xc0?\0\0\0\xc0\0\0\x80>\0\0@@\0\0\x80@\0\0\xa0\xc0\0\0\0\0"
    "\xff\xff\xff\xff\x02\0\0\0\x01\x02\xff\x01";
#define GOLDEN sizeof golden /* the last byte of the file is the string's own zero */

static void assert_entry(const ls_safetensors_entry *got, const ls_safetensors_entry *want)
{
    assert_non_null(got);
    assert_string_equal(got->name, want->name);
    assert_int_equal(got->dtype, want->dtype);
    assert_int_equal(got->shape.rank, want->shape.rank);
    for (int i = 0; i < want->shape.rank; i++)
        assert_int_equal(got->shape.dims[i], want->shape.dims[i]);
    assert_int_equal(got->bytes, want->bytes);
    assert_non_null(got->data);
    assert_int_equal((uintptr_t)got->data % ls_dtype_bytes(got->dtype), 0);
    if (want->bytes != 0)
        assert_memory_equal(got->data, want->data, want->bytes);
}

static void assert_all_entries(const char *path)
{
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_open(path, &file), LS_OK);
    assert_int_equal(ls_safetensors_count(file), LENGTH(entries));
    for (size_t i = 0; i < LENGTH(entries); i++) {
        assert_entry(ls_safetensors_at(file, i), &entries[i]);
        assert_ptr_equal(ls_safetensors_find(file, entries[i].name), ls_safetensors_at(file, i));
    }
    assert_null(ls_safetensors_at(file, LENGTH(entries)));
    assert_null(ls_safetensors_find(file, "dense"));
    assert_null(ls_safetensors_find(file, "__metadata__"));
    assert_int_equal(ls_safetensors_metadata_count(file), 1);
    assert_string_equal(ls_safetensors_metadata_at(file, 0).key, "format");
    assert_string_equal(ls_safetensors_metadata_at(file, 0).value, "np");
    assert_null(ls_safetensors_metadata_at(file, 1).key);
    ls_safetensors_close(file);
}

static void the_package_and_we_agree(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    write_bytes(path, golden, GOLDEN);
    assert_all_entries(path);
    assert_int_equal(ls_safetensors_write(path, entries, LENGTH(entries), metadata, 1), LS_OK);
    assert_bytes(path, golden, GOLDEN);
    assert_int_equal(files_in_folder(), 1); /* no temporary is left */
}

static void nothing_at_all_is_a_file_too(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_write(path, NULL, 0, NULL, 0), LS_OK);
    assert_bytes(path, "\x08\0\0\0\0\0\0\0{}      ", 16);
    assert_int_equal(ls_safetensors_open(path, &file), LS_OK);
    assert_int_equal(ls_safetensors_count(file), 0);
    assert_int_equal(ls_safetensors_metadata_count(file), 0);
    assert_null(ls_safetensors_at(file, 0));
    ls_safetensors_close(file);
    ls_safetensors_close(NULL);
}

/* Entries keep their order whatever it is, and an odd number of bytes before a double does no
 * harm. */
static void any_order_and_any_alignment(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    ls_safetensors_entry turned[LENGTH(entries)];
    ls_safetensors_pair pairs[] = { { "z", "" }, { "a", "line\n\"quoted\" \xe2\x82\xac" }, { "", "empty key" } };
    for (size_t i = 0; i < LENGTH(entries); i++)
        turned[i] = entries[LENGTH(entries) - 1 - i];
    assert_int_equal(ls_safetensors_write(path, turned, LENGTH(turned), pairs, LENGTH(pairs)), LS_OK);
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_open(path, &file), LS_OK);
    assert_int_equal(ls_safetensors_count(file), LENGTH(turned));
    for (size_t i = 0; i < LENGTH(turned); i++)
        assert_entry(ls_safetensors_find(file, turned[i].name), &turned[i]);
    assert_string_equal(ls_safetensors_at(file, 0)->name, "b");
    assert_int_equal(ls_safetensors_metadata_count(file), LENGTH(pairs));
    for (size_t i = 0; i < LENGTH(pairs); i++) {
        assert_string_equal(ls_safetensors_metadata_at(file, i).key, pairs[i].key);
        assert_string_equal(ls_safetensors_metadata_at(file, i).value, pairs[i].value);
    }
    ls_safetensors_close(file);
}

static void many_and_large(void **state)
{
    (void)state;
    enum { MANY = 1000, LARGE = 3000000 };
    const char *path = in_folder("w");
    static char names[MANY][16];
    static ls_safetensors_entry many[MANY];
    float *large = malloc(LARGE * sizeof *large);
    assert_non_null(large);
    for (size_t i = 0; i < LARGE; i++)
        large[i] = (float)i;
    for (size_t i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "layer_%zu/bias", i);
        many[i] = (ls_safetensors_entry){ names[i], LS_F32, { 1, { (int64_t)i % 7 } }, large + i, 0 };
    }
    many[500].shape = LS_SHAPE(LARGE / 1000, 10, 100);
    many[500].data = large;
    assert_int_equal(ls_safetensors_write(path, many, MANY, NULL, 0), LS_OK);
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_open(path, &file), LS_OK);
    assert_int_equal(ls_safetensors_count(file), MANY);
    for (size_t i = 0; i < MANY; i++) {
        many[i].bytes = i == 500 ? LARGE * sizeof *large : i % 7 * sizeof *large;
        assert_entry(ls_safetensors_at(file, i), &many[i]);
    }
    ls_safetensors_close(file);
    free(large);
}

/* ---- Files that are wrong ---- */

/* A file with a header and this number of bytes of data. */
static size_t compose(char *file, const char *header, size_t data_bytes)
{
    uint64_t size = strlen(header);
    memcpy(file, &size, 8);
    memcpy(file + 8, header, size);
    memset(file + 8 + size, 0, data_bytes);
    return 8 + (size_t)size + data_bytes;
}

#define TENSOR(name, dtype, shape, offsets)                                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data_bytes;
    ls_status status;
    const char *message; /* part of it */
} wrong[] = {
    /* not such a header */
    { "[]", 0, LS_ERR_DATA, "does not begin with {" },
    { " {}", 0, LS_ERR_DATA, "does not begin with {" },
    { "{", 0, LS_ERR_DATA, "not a safetensors file" },
    { "{}x", 0, LS_ERR_DATA, "end of file expected" },
    { "{\"a\":}", 0, LS_ERR_DATA, ":1:" },
    { "{\"\xff\":{}}", 0, LS_ERR_DATA, "0xff" },
    { "{\"a\":1}", 0, LS_ERR_DATA, ".a: expected an object, found the integer 1" },
    { "{\"a\":{}}", 0, LS_ERR_DATA, ".a.dtype: missing" },
    { "{\"dense/kernel\":{\"dtype\":\"F32\"}}", 0, LS_ERR_DATA, "[\"dense/kernel\"].shape: missing" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, LS_ERR_DATA, ".a.data_offsets: missing" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"order\":\"C\"}}", 4, LS_ERR_DATA,
      "order: unknown key" },
    /* names */
    { "{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("a", "U8", "[1]", "[1,2]") "}", 2, LS_ERR_DATA, "duplicate" },
    { "{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("\\u0061", "U8", "[1]", "[1,2]") "}", 2, LS_ERR_DATA,
      "duplicate" },
    { "{" TENSOR("a\\u0000b", "U8", "[1]", "[0,1]") "}", 1, LS_ERR_DATA, "\\u0000" },
    /* dtypes */
    { "{" TENSOR("a", "I16", "[1]", "[0,2]") "}", 2, LS_ERR_UNSUPPORTED, ".a.dtype: I16 is not supported" },
    { "{" TENSOR("a", "BF16", "[2]", "[0,2]") "}", 2, LS_ERR_DATA, "2 bytes, but shape (2,) of F16 or BF16 takes 4" },
    { "{" TENSOR("a", "F8_E4M3", "[1]", "[0,1]") "}", 1, LS_ERR_UNSUPPORTED, "F8_E4M3" },
    { "{" TENSOR("a", "I8", "[1]", "[0,1]") "}", 1, LS_ERR_UNSUPPORTED, "I8" },
    { "{" TENSOR("a", "f32", "[1]", "[0,4]") "}", 4, LS_ERR_DATA, "no dtype is named \"f32\"" },
    { "{" TENSOR("a", "", "[1]", "[0,4]") "}", 4, LS_ERR_DATA, "no dtype" },
    { "{\"a\":{\"dtype\":4,\"shape\":[],\"data_offsets\":[0,4]}}", 4, LS_ERR_DATA, "expected a string" },
    /* shapes */
    { "{" TENSOR("a", "U8", "1", "[0,1]") "}", 1, LS_ERR_DATA, ".a.shape: expected an array" },
    { "{" TENSOR("a", "U8", "[1.0]", "[0,1]") "}", 1, LS_ERR_DATA, ".a.shape[0]: expected an integer" },
    { "{" TENSOR("a", "U8", "[1,null]", "[0,1]") "}", 1, LS_ERR_DATA, ".a.shape[1]: expected an integer" },
    { "{" TENSOR("a", "U8", "[-1]", "[0,1]") "}", 1, LS_ERR_DATA, "the size -1 is negative" },
    { "{" TENSOR("a", "U8", "[-1,-1]", "[0,1]") "}", 1, LS_ERR_DATA, "the size -1 is negative" },
    { "{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, LS_ERR_UNSUPPORTED, "9 axes" },
    { "{" TENSOR("a", "U8", "[9223372036854775807,9]", "[0,1]") "}", 1, LS_ERR_DATA, "too large" },
    { "{" TENSOR("a", "F64", "[4611686018427387904]", "[0,0]") "}", 0, LS_ERR_DATA, "too large" }, /* 2^65 bytes */
    { "{" TENSOR("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1, LS_ERR_DATA, "too big integer" },
    /* offsets */
    { "{" TENSOR("a", "U8", "[1]", "[0]") "}", 1, LS_ERR_DATA, "1 numbers; expected begin and end" },
    { "{" TENSOR("a", "U8", "[1]", "[0,1,1]") "}", 1, LS_ERR_DATA, "3 numbers" },
    { "{" TENSOR("a", "U8", "[1]", "{}") "}", 1, LS_ERR_DATA, "expected an array" },
    { "{" TENSOR("a", "U8", "[1]", "[0,\"1\"]") "}", 1, LS_ERR_DATA, ".a.data_offsets[1]: expected an integer" },
    { "{" TENSOR("a", "U8", "[1]", "[-1,0]") "}", 1, LS_ERR_DATA, "the offset -1 is negative" },
    { "{" TENSOR("a", "U8", "[1]", "[1,0]") "}", 1, LS_ERR_DATA, "before the begin" },
    { "{" TENSOR("a", "F32", "[2]", "[0,7]") "}", 7, LS_ERR_DATA, "7 bytes, but shape (2,) of F32 takes 8" },
    { "{" TENSOR("a", "F32", "[]", "[0,0]") "}", 0, LS_ERR_DATA, "0 bytes, but shape () of F32 takes 4" },
    { "{" TENSOR("a", "F32", "[0]", "[0,4]") "}", 4, LS_ERR_DATA, "4 bytes, but shape (0,) of F32 takes 0" },
    { "{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[4]", "[0,4]") "}", 4, LS_ERR_DATA, "inside" },
    { "{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[4]", "[3,7]") "}", 7, LS_ERR_DATA,
      ".b: begins at byte 3, inside \"a\", which ends at 4" },
    { "{" TENSOR("a", "U8", "[9]", "[0,9]") "," TENSOR("b", "U8", "[1]", "[4,5]") "}", 9, LS_ERR_DATA, "inside" },
    { "{" TENSOR("a", "U8", "[9]", "[0,9]") "," TENSOR("b", "U8", "[0]", "[4,4]") "}", 9, LS_ERR_DATA, "inside" },
    { "{" TENSOR("a", "U8", "[4]", "[1,5]") "}", 5, LS_ERR_DATA, "bytes 0 to 0 belong to no tensor" },
    { "{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[4]", "[6,10]") "}", 10, LS_ERR_DATA,
      ".b: begins at byte 6, but bytes 4 to 5 belong to no tensor" },
    /* data */
    { "{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 3, LS_ERR_DATA,
      "truncated: 3 bytes of data, but its header describes 4" },
    { "{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 0, LS_ERR_DATA, "truncated" },
    { "{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 5, LS_ERR_DATA, "too long: 5 bytes of data" },
    { "{}", 1, LS_ERR_DATA, "too long" },
    { "{" TENSOR("a", "U8", "[9223372036854775807]", "[0,9223372036854775807]") "}", 4, LS_ERR_DATA, "truncated" },
    /* metadata */
    { "{\"__metadata__\":[]}", 0, LS_ERR_DATA, ".__metadata__: expected an object" },
    { "{\"__metadata__\":null}", 0, LS_ERR_DATA, "expected an object" },
    { "{\"__metadata__\":{\"a\":1}}", 0, LS_ERR_DATA, ".__metadata__.a: expected a string" },
    { "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, LS_ERR_DATA, "duplicate" },
};

static void assert_refused(const char *path, ls_status status, const char *message)
{
    ls_safetensors *file = (ls_safetensors *)folder;
    ls_status got = ls_safetensors_open(path, &file);
    if (got != status || strstr(ls_last_error(), message) == NULL || strstr(ls_last_error(), path) == NULL)
        fail_msg("expected %s and \"%s\", found %s: %s", ls_status_name(status), message, ls_status_name(got),
                 got == LS_OK ? "" : ls_last_error());
    assert_ptr_equal(file, folder); /* outputs only on success */
}

static void wrong_files_are_refused(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    char file[512];
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        write_bytes(path, file, compose(file, wrong[i].header, wrong[i].data_bytes));
        assert_refused(path, wrong[i].status, wrong[i].message);
    }
}

static void wrong_sizes_of_the_header(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    char file[64] = { 0 };
    static const struct {
        uint64_t size;
        size_t bytes;
        const char *message;
    } rows[] = {
        { 0, 0, "truncated in the size of its header: 0 bytes of 8" },
        { 2, 7, "7 bytes of 8" },
        { 0, 8, "a header of 0 bytes" },
        { 1, 9, "a header of 1 bytes" },
        { 2, 8, "truncated: a header of 2 bytes in a file of 8" },
        { 57, 64, "truncated" },
        { LS_SAFETENSORS_HEADER_LIMIT, 64, "truncated" },
        { LS_SAFETENSORS_HEADER_LIMIT + 1, 64, "at most 104857600 are accepted" },
        { INT64_MAX, 64, "9223372036854775807" },
        { UINT64_MAX, 64, "18446744073709551615" },
        { UINT64_MAX - 7, 64, "at most 104857600 are accepted" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        memcpy(file, &rows[i].size, 8);
        write_bytes(path, file, rows[i].bytes);
        assert_refused(path, LS_ERR_DATA, rows[i].message);
    }
    assert_refused(folder, LS_ERR_IO, "Is a directory");
    assert_refused(in_folder("none"), LS_ERR_NOT_FOUND, "No such file");
}

static void a_bool_is_0_or_1(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    char file[256];
    size_t bytes = compose(file, "{" TENSOR("mask", "BOOL", "[2]", "[0,2]") "}", 2);
    file[bytes - 1] = 2;
    write_bytes(path, file, bytes);
    assert_refused(path, LS_ERR_DATA, "element 1 of \"mask\" is 2");
}

/* An empty tensor may be where another one begins, in any order in the header. */
static void empty_tensors_take_no_place(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    char file[512];
    ls_safetensors *opened = NULL;
    size_t bytes = compose(file,
                           "{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("b", "F32", "[0]", "[0,0]") "," TENSOR(
                               "c", "F32", "[3,0]", "[2,2]") "," TENSOR("d", "F32", "[0]", "[0,0]") "}\n\t  ",
                           2);
    write_bytes(path, file, bytes);
    assert_int_equal(ls_safetensors_open(path, &opened), LS_OK);
    static const char order[] = "bdac";
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(ls_safetensors_at(opened, i)->name[0], order[i]);
    ls_safetensors_close(opened);
}

/* ---- Pipes ---- */

typedef struct feed {
    char path[512];
    size_t bytes;
} feed;

static void *feed_a_pipe(void *arg)
{
    const feed *f = arg;
    FILE *file = fopen(f->path, "w");
    for (size_t i = 0; i < f->bytes; i++) {
        fputc(i < GOLDEN ? golden[i] : 'x', file);
        if (i % 100 == 0)
            fflush(file);
    }
    fclose(file);
    return NULL;
}

static void a_pipe_works_like_a_file(void **state)
{
    (void)state;
    static const size_t lengths[] = { GOLDEN, GOLDEN - 1, GOLDEN + 1, 300, 4 };
    static const char *const messages[] = { NULL, "truncated in a tensor: 1 bytes of 2", "too long",
                                            "truncated in its header", "4 bytes of 8" };
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        feed f = { .bytes = lengths[i] };
        snprintf(f.path, sizeof f.path, "%s/pipe", folder);
        assert_int_equal(mkfifo(f.path, 0600), 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, feed_a_pipe, &f), 0);
        if (messages[i] == NULL)
            assert_all_entries(f.path);
        else
            assert_refused(f.path, LS_ERR_DATA, messages[i]);
        pthread_join(thread, NULL);
        assert_int_equal(remove(f.path), 0);
    }
}

/* ---- Files broken at random ---- */

/* Opens it and, if that works, touches all that is there. Returns whether it worked. */
static bool try_file(const char *path)
{
    ls_safetensors *file = NULL;
    if (ls_safetensors_open(path, &file) != LS_OK) {
        assert_null(file);
        assert_non_null(strstr(ls_last_error(), path));
        return false;
    }
    unsigned sum = 0;
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const ls_safetensors_entry *entry = ls_safetensors_at(file, i);
        assert_non_null(ls_safetensors_find(file, entry->name));
        for (size_t k = 0; k < entry->bytes; k++)
            sum += ((const unsigned char *)entry->data)[k];
    }
    assert_true(sum < 1000000);
    ls_safetensors_close(file);
    return true;
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    for (size_t bytes = 0; bytes < GOLDEN; bytes++) {
        write_bytes(path, golden, bytes);
        if (try_file(path))
            fail_msg("the first %zu bytes are taken for a whole file", bytes);
    }
}

static void a_changed_byte_does_no_harm(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    static const unsigned char changes[] = { 1, 2, 4, 8, 16, 32, 64, 128, 255 };
    char file[GOLDEN];
    size_t good = 0;
    for (size_t at = 0; at < GOLDEN; at++)
        for (size_t c = 0; c < LENGTH(changes); c++) {
            memcpy(file, golden, GOLDEN);
            file[at] = (char)(file[at] ^ changes[c]);
            write_bytes(path, file, GOLDEN);
            good += try_file(path);
        }
    assert_true(good > LENGTH(changes) * 50); /* in the data nearly any byte is good */
    assert_true(good < LENGTH(changes) * GOLDEN / 3);
}

/* Digits and brackets for one another: what is likely to be JSON still. */
static void a_changed_number_does_no_harm(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    static const char letters[] = "0123456789-,:[]{}\"eE. U";
    char file[GOLDEN];
    for (size_t at = 8; at < GOLDEN; at++)
        for (size_t c = 0; strchr(letters, golden[at]) != NULL && c < strlen(letters); c++) {
            memcpy(file, golden, GOLDEN);
            file[at] = letters[c];
            write_bytes(path, file, GOLDEN);
            try_file(path);
        }
}

/* ---- Writing ---- */

static void what_cannot_be_written_is_refused(void **state)
{
    (void)state;
    static const ls_safetensors_entry good = { "a", LS_F32, { 1, { 1 } }, zero, 0 };
    const struct {
        ls_safetensors_entry entry;
        ls_status status;
        const char *message;
    } rows[] = {
        { good, LS_ERR_INVALID, "two tensors are named \"a\"" },
        { { NULL, LS_F32, { 1, { 1 } }, zero, 0 }, LS_ERR_INVALID, "tensor 1 has no name" },
        { { "__metadata__", LS_F32, { 1, { 1 } }, zero, 0 }, LS_ERR_INVALID, "__metadata__" },
        { { "\xff", LS_F32, { 1, { 1 } }, zero, 0 }, LS_ERR_INVALID, "UTF-8" },
        { { "b", LS_DTYPE_COUNT, { 1, { 1 } }, zero, 0 }, LS_ERR_INVALID, "\"b\" has no dtype" },
        { { "b", LS_F32, { 1, { 1 } }, NULL, 0 }, LS_ERR_INVALID, "\"b\" has no data" },
        { { "b", LS_F32, { 2, { LS_BATCH, 1 } }, zero, 0 }, LS_ERR_SHAPE, "(batch, 1)" },
        { { "b", LS_F32, { 2, { -5, 1 } }, zero, 0 }, LS_ERR_SHAPE, "(-5, 1)" },
        { { "b", LS_F32, { LS_MAX_RANK + 1, { 1 } }, zero, 0 }, LS_ERR_SHAPE, "\"b\"" },
        { { "b", LS_F32, { 2, { INT64_MAX, 2 } }, zero, 0 }, LS_ERR_SHAPE, "\"b\"" },
        { { "b", LS_U8, { 1, { INT64_MAX } }, zero, 0 }, LS_ERR_OVERFLOW, "more bytes" },
    };
    const char *path = in_folder("w");
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_safetensors_entry both[] = { good, rows[i].entry };
        assert_int_equal(ls_safetensors_write(path, both, 2, NULL, 0), rows[i].status);
        assert_non_null(strstr(ls_last_error(), rows[i].message));
        assert_non_null(strstr(ls_last_error(), path));
    }
    const ls_safetensors_pair pairs[][2] = {
        { { "k", "v" }, { "k", "w" } },    { { "k", "v" }, { "l", NULL } },   { { "k", "v" }, { NULL, "w" } },
        { { "k", "v" }, { "l", "\xff" } }, { { "k", "v" }, { "\xff", "w" } },
    };
    for (size_t i = 0; i < LENGTH(pairs); i++)
        assert_int_equal(ls_safetensors_write(path, &good, 1, pairs[i], 2), LS_ERR_INVALID);
    assert_int_equal(files_in_folder(), 0); /* nothing was begun */
}

static int allocations_left;

static void *few_allocations(size_t bytes)
{
    return allocations_left-- > 0 ? malloc(bytes) : NULL;
}

/* Without memory for its header a file is not written, and the error is not that a name is not
 * UTF-8. */
static void no_memory_is_reported_as_such(void **state)
{
    (void)state;
    const char *path = in_folder("w");
    static const ls_safetensors_entry entries[] = { { "caf\xc3\xa9", LS_F32, { 3, { 1, 1, 1 } }, zero, 0 },
                                                    { "b", LS_F32, { 1, { 1 } }, zero, 0 } };
    static const ls_safetensors_pair pair = { "model", "m" };
    ls_status status = LS_ERR_MEMORY;
    for (int n = 0; status == LS_ERR_MEMORY && n < 1000; n++) {
        allocations_left = n;
        json_set_alloc_funcs(few_allocations, free);
        status = ls_safetensors_write(path, entries, 2, &pair, 1);
        json_set_alloc_funcs(malloc, free);
        if (status != LS_OK)
            assert_non_null(strstr(ls_last_error(), "no memory"));
        if (status == LS_OK)
            assert_true(n > 10);
    }
    assert_int_equal(status, LS_OK);
    ls_safetensors *file = NULL;
    if (ls_safetensors_open(path, &file) != LS_OK)
        fail_msg("%s", ls_last_error());
    assert_int_equal(ls_safetensors_at(file, 0)->shape.rank, 3);
    ls_safetensors_close(file);
}

/* A disk that is full in the middle of the write, by a limit on the size of files. */
static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    const char *path = in_folder("weights");
    write_bytes(path, "old weights", 11);
    static float large[25000];
    ls_safetensors_entry entry = { "large", LS_F32, { 1, { 25000 } }, large, 0 };
    struct rlimit before, small_limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small_limit = before;
    small_limit.rlim_cur = 40000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small_limit), 0);
    ls_status status = ls_safetensors_write(path, &entry, 1, NULL, 0);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), path));
    assert_bytes(path, "old weights", 11);
    assert_int_equal(files_in_folder(), 1); /* the temporary is gone */
}

static void writing_replaces_like_any_file_here(void **state)
{
    (void)state;
    const char *path = in_folder("target"), *link = in_folder("link");
    struct stat info;
    write_bytes(path, "old", 3);
    assert_int_equal(chmod(path, 0604), 0);
    assert_int_equal(symlink("target", link), 0);
    assert_int_equal(ls_safetensors_write(link, entries, LENGTH(entries), metadata, 1), LS_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0604);
    assert_bytes(path, golden, GOLDEN);
    assert_int_equal(ls_safetensors_write("/dev/null", entries, LENGTH(entries), NULL, 0), LS_OK);
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(ls_safetensors_write(in_folder("no/file"), entries, 1, NULL, 0), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_safetensors_write(folder, entries, 1, NULL, 0), LS_ERR_IO);
}

/* ---- .npy ---- */

static void assert_npy(ls_dtype dtype, ls_shape shape, const void *data, size_t bytes, const char *dictionary)
{
    const char *path = in_folder("y.npy");
    char want[256];
    memset(want, ' ', 128);
    memcpy(want, "\x93NUMPY\x01\x00v\x00", 10);
    memcpy(want + 10, dictionary, strlen(dictionary));
    want[127] = '\n';
    if (bytes != 0)
        memcpy(want + 128, data, bytes);
    assert_int_equal(ls_npy_write(path, ls_array_of(dtype, shape, data)), LS_OK);
    assert_bytes(path, want, 128 + bytes);
}

/* The bytes of numpy.save (2.4). */
static void npy_files_are_numpys(void **state)
{
    (void)state;
#define PLACE "', 'fortran_order': False, 'shape': "
    assert_npy(LS_F32, LS_SHAPE(2, 3), kernel, 24, "{'descr': '<f4" PLACE "(2, 3), }");
    assert_npy(LS_F64, LS_SCALAR, tenth, 8, "{'descr': '<f8" PLACE "(), }");
    assert_npy(LS_I32, LS_SHAPE(2), ints, 8, "{'descr': '<i4" PLACE "(2,), }");
    assert_npy(LS_I64, LS_SHAPE(1, 1, 1), step, 8, "{'descr': '<i8" PLACE "(1, 1, 1), }");
    assert_npy(LS_U8, LS_SHAPE(3), small, 3, "{'descr': '|u1" PLACE "(3,), }");
    assert_npy(LS_BOOL, LS_SHAPE(2, 1), flags, 2, "{'descr': '|b1" PLACE "(2, 1), }");
    assert_npy(LS_F32, LS_SHAPE(0, 10), NULL, 0, "{'descr': '<f4" PLACE "(0, 10), }");
}

/* The longest header there is: 8 axes of 19 digits, all empty because one is. */
static void the_longest_npy_header(void **state)
{
    (void)state;
    const char *path = in_folder("y.npy");
    ls_shape shape = { 8, { 4611686018427387904, 1, 1, 1, 1, 1, 1, 0 } };
    assert_int_equal(ls_npy_write(path, ls_array_of(LS_U8, shape, NULL)), LS_OK);
    char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(ls_file_read(path, 1000, &data, &bytes), LS_OK);
    assert_int_equal(bytes % 64, 0);
    assert_int_equal((unsigned char)data[8] + 256 * (unsigned char)data[9] + 10, bytes);
    assert_non_null(strstr(data + 10, "(4611686018427387904, 1, 1, 1, 1, 1, 1, 0), }"));
    assert_int_equal(data[bytes - 1], '\n');
    free(data);
}

static void npy_refuses_what_is_no_array(void **state)
{
    (void)state;
    const char *path = in_folder("y.npy");
    ls_shape batch = LS_SHAPE(LS_BATCH, 10), huge = LS_SHAPE(INT64_MAX, 3), deep = { LS_MAX_RANK + 1, { 1 } },
             one = LS_SHAPE(1);
    assert_int_equal(ls_npy_write(path, ls_array_of(LS_F32, batch, kernel)), LS_ERR_SHAPE);
    assert_non_null(strstr(ls_last_error(), "(batch, 10)"));
    assert_int_equal(ls_npy_write(path, ls_array_of(LS_F32, huge, kernel)), LS_ERR_SHAPE);
    assert_int_equal(ls_npy_write(path, ls_array_of(LS_F32, deep, kernel)), LS_ERR_SHAPE);
    assert_int_equal(ls_npy_write(path, ls_array_of(LS_DTYPE_COUNT, one, kernel)), LS_ERR_INVALID);
    assert_int_equal(ls_npy_write(path, ls_array_of(LS_F32, one, NULL)), LS_ERR_INVALID);
    assert_int_equal(files_in_folder(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_package_and_we_agree),
        TEST(nothing_at_all_is_a_file_too),
        TEST(any_order_and_any_alignment),
        TEST(many_and_large),
        TEST(wrong_files_are_refused),
        TEST(wrong_sizes_of_the_header),
        TEST(a_bool_is_0_or_1),
        TEST(empty_tensors_take_no_place),
        TEST(a_pipe_works_like_a_file),
        TEST(a_file_cut_anywhere_is_refused),
        TEST(a_changed_byte_does_no_harm),
        TEST(a_changed_number_does_no_harm),
        TEST(what_cannot_be_written_is_refused),
        TEST(no_memory_is_reported_as_such),
        TEST(a_failed_write_leaves_the_old_file),
        TEST(writing_replaces_like_any_file_here),
        TEST(npy_files_are_numpys),
        TEST(the_longest_npy_header),
        TEST(npy_refuses_what_is_no_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
