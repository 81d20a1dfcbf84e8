/* Data files: IDX, .npy, .npz and .csv, good and bad; data by name; the real Fashion-MNIST where it is installed. Every
 * cut and every changed byte of a small file must end in an error or in the same data, never in a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "lockstep.h"

static char folder[256]; /* one for each test, removed after it */

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lockstep-data-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char name[1024];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        remove_tree(name);
    }
    if (dir)
        closedir(dir);
    remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

static const char *in_folder(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- Making files ---- */

typedef struct bytes {
    unsigned char data[1 << 16];
    size_t count;
} bytes;

static void put(bytes *b, const void *data, size_t count)
{
    assert_true(b->count + count <= sizeof b->data);
    memcpy(b->data + b->count, data, count);
    b->count += count;
}

static void put_number(bytes *b, uint64_t value, int width) /* little-endian */
{
    for (int i = 0; i < width; i++)
        put(b, &(unsigned char){ (unsigned char)(value >> (8 * i)) }, 1);
}

static void put_big(bytes *b, uint32_t value)
{
    for (int i = 3; i >= 0; i--)
        put(b, &(unsigned char){ (unsigned char)(value >> (8 * i)) }, 1);
}

static void write_file(const char *path, const void *data, size_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static void pack(bytes *out, const void *data, size_t count, int window_bits)
{
    z_stream z = { 0 };
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)data;
    z.avail_in = (uInt)count;
    z.next_out = out->data + out->count;
    z.avail_out = (uInt)(sizeof out->data - out->count);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->count += z.total_out;
    deflateEnd(&z);
}

static void gzip(bytes *out, const void *data, size_t count)
{
    pack(out, data, count, 16 + MAX_WBITS);
}

static void make_idx(bytes *out, unsigned type, int rank, const uint32_t *sizes, const void *data, size_t count)
{
    out->count = 0;
    put(out, (unsigned char[]){ 0, 0, (unsigned char)type, (unsigned char)rank }, 4);
    for (int i = 0; i < rank; i++)
        put_big(out, sizes[i]);
    put(out, data, count);
}

static void make_npy(bytes *out, int version, const char *header, const void *data, size_t count)
{
    out->count = 0;
    put(out, "\x93NUMPY", 6);
    put(out, (unsigned char[]){ (unsigned char)version, 0 }, 2);
    put_number(out, strlen(header) + 1, version == 1 ? 2 : 4);
    put(out, header, strlen(header));
    put(out, "\n", 1);
    put(out, data, count);
}

typedef struct zip_writer {
    bytes file, directory;
    int count;
} zip_writer;

static void zip_add(zip_writer *z, const char *name, int method, bool wide, const bytes *content)
{
    static bytes packed;
    packed.count = 0;
    if (method == 8)
        pack(&packed, content->data, content->count, -MAX_WBITS);
    else
        put(&packed, content->data, content->count);
    uint32_t crc = (uint32_t)crc32(0, content->data, (uInt)content->count);
    size_t offset = z->file.count, chars = strlen(name);
    put(&z->file, "PK\3\4", 4);
    put_number(&z->file, 20, 2); /* version */
    put_number(&z->file, 0, 2);
    put_number(&z->file, (uint64_t)method, 2);
    put_number(&z->file, 0, 4); /* time */
    put_number(&z->file, crc, 4);
    put_number(&z->file, wide ? 0xffffffff : packed.count, 4);
    put_number(&z->file, wide ? 0xffffffff : content->count, 4);
    put_number(&z->file, chars, 2);
    put_number(&z->file, wide ? 20 : 0, 2);
    put(&z->file, name, chars);
    if (wide) {
        put_number(&z->file, 1, 2);
        put_number(&z->file, 16, 2);
        put_number(&z->file, content->count, 8);
        put_number(&z->file, packed.count, 8);
    }
    put(&z->file, packed.data, packed.count);
    bytes *d = &z->directory;
    put(d, "PK\1\2", 4);
    put_number(d, 20, 2);
    put_number(d, 20, 2);
    put_number(d, 0, 2);
    put_number(d, (uint64_t)method, 2);
    put_number(d, 0, 4);
    put_number(d, crc, 4);
    put_number(d, wide ? 0xffffffff : packed.count, 4);
    put_number(d, wide ? 0xffffffff : content->count, 4);
    put_number(d, chars, 2);
    put_number(d, wide ? 9 + 28 : 0, 2);
    put_number(d, 0, 2);
    put_number(d, 0, 8); /* disk, attributes */
    put_number(d, wide ? 0xffffffff : offset, 4);
    put(d, name, chars);
    if (wide) {
        put_number(d, 0x5455, 2); /* another extra field first */
        put_number(d, 5, 2);
        put(d, "times", 5);
        put_number(d, 1, 2);
        put_number(d, 24, 2);
        put_number(d, content->count, 8);
        put_number(d, packed.count, 8);
        put_number(d, offset, 8);
    }
    z->count++;
}

static void zip_end(zip_writer *z, bool wide, const char *comment)
{
    size_t offset = z->file.count, end64;
    put(&z->file, z->directory.data, z->directory.count);
    end64 = z->file.count;
    if (wide) {
        put(&z->file, "PK\6\6", 4);
        put_number(&z->file, 44, 8);
        put_number(&z->file, 45, 2);
        put_number(&z->file, 45, 2);
        put_number(&z->file, 0, 8);
        put_number(&z->file, (uint64_t)z->count, 8);
        put_number(&z->file, (uint64_t)z->count, 8);
        put_number(&z->file, z->directory.count, 8);
        put_number(&z->file, offset, 8);
        put(&z->file, "PK\6\7", 4);
        put_number(&z->file, 0, 4);
        put_number(&z->file, end64, 8);
        put_number(&z->file, 1, 4);
    }
    put(&z->file, "PK\5\6", 4);
    put_number(&z->file, 0, 4);
    put_number(&z->file, wide ? 0xffff : (uint64_t)z->count, 2);
    put_number(&z->file, wide ? 0xffff : (uint64_t)z->count, 2);
    put_number(&z->file, wide ? 0xffffffff : z->directory.count, 4);
    put_number(&z->file, wide ? 0xffffffff : offset, 4);
    put_number(&z->file, strlen(comment), 2);
    put(&z->file, comment, strlen(comment));
}

/* ---- Checking ---- */

static void assert_array(const ls_array *array, ls_dtype dtype, ls_shape shape, const void *want, size_t count)
{
    assert_int_equal(array->dtype, dtype);
    assert_int_equal(array->shape.rank, shape.rank);
    for (int i = 0; i < shape.rank; i++)
        assert_int_equal(array->shape.dims[i], shape.dims[i]);
    assert_memory_equal(array->data, want, count);
}

/* The call failed with that status, and the message has all these pieces. */
static void check_failure(ls_status status, ls_status want, const char *const *pieces, size_t count, int line)
{
    if (status != want)
        fail_msg("line %d: status %s, expected %s (%s)", line, ls_status_name(status), ls_status_name(want),
                 ls_last_error());
    for (size_t i = 0; i < count; i++)
        if (!strstr(ls_last_error(), pieces[i]))
            fail_msg("line %d: no '%s' in: %s", line, pieces[i], ls_last_error());
}
#define assert_fails(call, want, ...)                                                                                  \
    check_failure(call, want, (const char *const[]){ __VA_ARGS__ },                                                    \
                  sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), __LINE__)

/* ---- IDX ---- */

static const unsigned char pixels[24] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                          13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 250 };

static void idx_plain_and_gzip(void **state)
{
    (void)state;
    static bytes file, packed;
    ls_array array = { 0 };
    make_idx(&file, 8, 3, (uint32_t[]){ 2, 3, 4 }, pixels, 24);
    write_file(in_folder("a"), file.data, file.count);
    assert_int_equal(ls_idx_read(in_folder("a"), &array), LS_OK);
    assert_array(&array, LS_U8, LS_SHAPE(2, 3, 4), pixels, 24);
    free(array.data);
    packed.count = 0;
    gzip(&packed, file.data, file.count);
    write_file(in_folder("a.gz"), packed.data, packed.count);
    assert_int_equal(ls_idx_read(in_folder("a.gz"), &array), LS_OK);
    assert_array(&array, LS_U8, LS_SHAPE(2, 3, 4), pixels, 24);
    free(array.data);
    packed.count = 0; /* two members, cut inside the sizes */
    gzip(&packed, file.data, 6);
    gzip(&packed, file.data + 6, file.count - 6);
    write_file(in_folder("b.gz"), packed.data, packed.count);
    assert_int_equal(ls_idx_read(in_folder("b.gz"), &array), LS_OK);
    assert_array(&array, LS_U8, LS_SHAPE(2, 3, 4), pixels, 24);
    free(array.data);
}

static void idx_types(void **state)
{
    (void)state;
    static bytes file;
    ls_array array = { 0 };
    make_idx(&file, 0x0C, 1, (uint32_t[]){ 2 }, "\x00\x00\x01\x02\xff\xff\xff\xfe", 8);
    write_file(in_folder("i"), file.data, file.count);
    assert_int_equal(ls_idx_read(in_folder("i"), &array), LS_OK);
    assert_array(&array, LS_I32, LS_SHAPE(2), (int32_t[]){ 258, -2 }, 8);
    free(array.data);
    make_idx(&file, 0x0D, 1, (uint32_t[]){ 1 }, "\x3f\xc0\x00\x00", 4);
    write_file(in_folder("f"), file.data, file.count);
    assert_int_equal(ls_idx_read(in_folder("f"), &array), LS_OK);
    assert_array(&array, LS_F32, LS_SHAPE(1), (float[]){ 1.5f }, 4);
    free(array.data);
    make_idx(&file, 0x0E, 1, (uint32_t[]){ 1 }, "\xc0\x00\x00\x00\x00\x00\x00\x00", 8);
    write_file(in_folder("d"), file.data, file.count);
    assert_int_equal(ls_idx_read(in_folder("d"), &array), LS_OK);
    assert_array(&array, LS_F64, LS_SHAPE(1), (double[]){ -2 }, 8);
    free(array.data);
}

static void idx_refused(void **state)
{
    (void)state;
    static bytes file, packed;
    ls_array array = { 0 };
    const char *path = in_folder("bad");
    assert_fails(ls_idx_read(path, &array), LS_ERR_NOT_FOUND, "bad");
    assert_fails(ls_idx_read(folder, &array), LS_ERR_IO, folder, "plain file");
    assert_fails(ls_idx_read(NULL, &array), LS_ERR_INVALID, "path");
    make_idx(&file, 8, 1, (uint32_t[]){ 3 }, pixels, 3);
    file.data[0] = 'P';
    write_file(path, file.data, file.count);
    assert_fails(ls_idx_read(path, &array), LS_ERR_DATA, path, "byte 0", "0x50000801", "0x0000");
    make_idx(&file, 7, 1, (uint32_t[]){ 3 }, pixels, 3);
    write_file(path, file.data, file.count);
    assert_fails(ls_idx_read(path, &array), LS_ERR_DATA, path, "byte 2", "0x07");
    make_idx(&file, 0x0B, 1, (uint32_t[]){ 3 }, pixels, 6);
    write_file(path, file.data, file.count);
    assert_fails(ls_idx_read(path, &array), LS_ERR_UNSUPPORTED, path, "int16");
    make_idx(&file, 8, 9, (uint32_t[9]){ 1 }, pixels, 3);
    write_file(path, file.data, file.count);
    assert_fails(ls_idx_read(path, &array), LS_ERR_DATA, path, "byte 3", "9");
    make_idx(&file, 8, 2, (uint32_t[]){ 2, 5 }, pixels, 7);
    write_file(path, file.data, file.count);
    assert_fails(ls_idx_read(path, &array), LS_ERR_DATA, path, "(2, 5)", "byte 12", "10 bytes", "7 found");
    make_idx(&file, 8, 1, (uint32_t[]){ 3 }, pixels, 4);
    write_file(path, file.data, file.count);
    assert_fails(ls_idx_read(path, &array), LS_ERR_DATA, path, "byte 11", "more");
    uint32_t huge[8] = { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 1, 1, 1, 1 };
    make_idx(&file, 8, 8, huge, pixels, 3);
    write_file(path, file.data, file.count);
    assert_fails(ls_idx_read(path, &array), LS_ERR_DATA, path, "4294967295");
    /* A small packed file that promises 4 GB must not make us ask for them. */
    make_idx(&file, 8, 1, (uint32_t[]){ 0xfffffff0 }, pixels, 3);
    packed.count = 0;
    gzip(&packed, file.data, file.count);
    write_file(path, packed.data, packed.count);
    assert_fails(ls_idx_read(path, &array), LS_ERR_DATA, path, "4294967280", "at most");
    make_idx(&file, 8, 1, (uint32_t[]){ 3 }, pixels, 3);
    packed.count = 0;
    gzip(&packed, file.data, file.count);
    put(&packed, "tail", 4);
    write_file(path, packed.data, packed.count);
    assert_fails(ls_idx_read(path, &array), LS_ERR_DATA, path, "4 bytes follow");
    assert_null(array.data);
}

/* ---- Cut and changed files ---- */

typedef ls_status (*reader)(const char *path, ls_array *out);

/* Every shorter file is an error. (Callers know of exceptions.) */
static void cut_everywhere(reader read, const bytes *file, size_t first, size_t last)
{
    const char *path = in_folder("cut");
    for (size_t n = first; n < last; n++) {
        ls_array array = { 0 };
        write_file(path, file->data, n);
        ls_status status = read(path, &array);
        if (status != LS_ERR_DATA)
            fail_msg("cut to %zu of %zu bytes: %s", n, file->count, status ? ls_last_error() : "no error");
        if (!strstr(ls_last_error(), path))
            fail_msg("cut to %zu bytes: the message names no file: %s", n, ls_last_error());
        assert_null(array.data);
    }
}

/* Every changed byte is an error or changes nothing, when there is a checksum; else it is only no crash. */
static void change_everywhere(reader read, const bytes *file, bool checksum, const void *want, size_t want_bytes)
{
    const char *path = in_folder("changed");
    static bytes copy;
    static const unsigned char changes[] = { 0x01, 0x80, 0xff, 0x20 };
    int errors = 0;
    for (size_t i = 0; i < file->count; i++) {
        for (size_t k = 0; k < sizeof changes; k++) {
            ls_array array = { 0 };
            copy = *file;
            copy.data[i] ^= changes[k];
            write_file(path, copy.data, copy.count);
            if (read(path, &array) == LS_OK && checksum)
                assert_memory_equal(array.data, want, want_bytes);
            errors += array.data == NULL;
            free(array.data);
        }
    }
    assert_true(errors > 0);
}

static void idx_cut_and_changed(void **state)
{
    (void)state;
    static bytes file, packed;
    make_idx(&file, 8, 3, (uint32_t[]){ 2, 3, 4 }, pixels, 24);
    cut_everywhere(ls_idx_read, &file, 0, file.count);
    change_everywhere(ls_idx_read, &file, false, pixels, 24);
    packed.count = 0;
    gzip(&packed, file.data, file.count);
    cut_everywhere(ls_idx_read, &packed, 0, packed.count);
    change_everywhere(ls_idx_read, &packed, true, pixels, 24);
}

/* ---- NumPy ---- */

#define HEADER(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

static void npy_types(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        ls_dtype dtype;
        ls_shape shape;
        size_t count;
    } rows[] = {
        { HEADER("|u1", "False", "(2, 3)"), LS_U8, { 2, { 2, 3 } }, 6 },
        { HEADER("<u1", "False", "(6,)"), LS_U8, { 1, { 6 } }, 6 },
        { HEADER("<i4", "False", "(3,)"), LS_I32, { 1, { 3 } }, 12 },
        { HEADER("<i8", "False", "(1, 2)"), LS_I64, { 2, { 1, 2 } }, 16 },
        { HEADER("<f4", "False", "()"), LS_F32, { 0, { 0 } }, 4 },
        { HEADER("<f8", "False", "(2,)"), LS_F64, { 1, { 2 } }, 16 },
        { HEADER("<f8", "True", "(2,)"), LS_F64, { 1, { 2 } }, 16 }, /* one axis: both orders are the same */
        { HEADER("<f4", "False", "(0, 7)"), LS_F32, { 2, { 0, 7 } }, 0 },
        { "{\"shape\":(3,), \"fortran_order\":False,\"descr\":\"<i4\"}   ", LS_I32, { 1, { 3 } }, 12 },
    };
    static bytes file;
    for (int version = 1; version <= 3; version++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            ls_array array = { 0 };
            make_npy(&file, version, rows[i].header, pixels, rows[i].count);
            write_file(in_folder("a.npy"), file.data, file.count);
            if (ls_npy_read(in_folder("a.npy"), &array) != LS_OK)
                fail_msg("%s: %s", rows[i].header, ls_last_error());
            assert_array(&array, rows[i].dtype, rows[i].shape, pixels, rows[i].count);
            free(array.data);
        }
    ls_array array = { 0 };
    make_npy(&file, 1, HEADER("|b1", "False", "(4,)"), "\0\1\1\0", 4);
    write_file(in_folder("b.npy"), file.data, file.count);
    assert_int_equal(ls_npy_read(in_folder("b.npy"), &array), LS_OK);
    assert_array(&array, LS_BOOL, LS_SHAPE(4), "\0\1\1\0", 4);
    free(array.data);
}

static void npy_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t count;
        ls_status status;
        const char *piece;
    } rows[] = {
        { HEADER(">f4", "False", "(2,)"), 8, LS_ERR_UNSUPPORTED, "big-endian" },
        { HEADER("<f4", "True", "(2, 1)"), 8, LS_ERR_UNSUPPORTED, "Fortran" },
        { HEADER("<f2", "False", "(4,)"), 8, LS_ERR_UNSUPPORTED, "'<f2'" },
        { HEADER("|O", "False", "(4,)"), 8, LS_ERR_UNSUPPORTED, "'|O'" },
        { HEADER("", "False", "(4,)"), 8, LS_ERR_UNSUPPORTED, "''" },
        { HEADER("<f4", "False", "(3,)"), 8, LS_ERR_DATA, "12 bytes" },
        { HEADER("<f4", "False", "(1,)"), 8, LS_ERR_DATA, "more" },
        { HEADER("<f4", "False", "(-1,)"), 8, LS_ERR_DATA, "header" },
        { HEADER("<f4", "Maybe", "(2,)"), 8, LS_ERR_DATA, "header" },
        { HEADER("<f4", "False", "(1,1,1,1,1,1,1,1,2)"), 8, LS_ERR_DATA, "8 axes" },
        { HEADER("<f4", "False", "(4611686018427387904,)"), 8, LS_ERR_DATA, "4611686018427387904" },
        { HEADER("<f4", "False", "(4294967296, 4294967296)"), 8, LS_ERR_DATA, "4294967296" },
        { HEADER("<f4", "False", "(99999999999999999999999)"), 8, LS_ERR_DATA, "header" },
        { HEADER("|b1", "False", "(3,)"), 3, LS_ERR_DATA, "expected 0 or 1" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8, LS_ERR_DATA, "header" },
        { "{'descr': '<f4', 'shape': (2,)}", 8, LS_ERR_DATA, "fortran_order" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", 8, LS_ERR_DATA, "header" },
        { "{'descr': '<f4", 8, LS_ERR_DATA, "header" },
        { "", 8, LS_ERR_DATA, "header" },
    };
    static bytes file;
    const char *path = in_folder("bad.npy");
    ls_array array = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make_npy(&file, 1, rows[i].header, pixels, rows[i].count);
        write_file(path, file.data, file.count);
        assert_fails(ls_npy_read(path, &array), rows[i].status, path, rows[i].piece);
    }
    make_npy(&file, 4, HEADER("<f4", "False", "(2,)"), pixels, 8);
    write_file(path, file.data, file.count);
    assert_fails(ls_npy_read(path, &array), LS_ERR_UNSUPPORTED, path, "version 4.0");
    write_file(path, "something else", 14);
    assert_fails(ls_npy_read(path, &array), LS_ERR_DATA, path, "NUMPY");
    assert_null(array.data);
}

static void npy_cut_and_changed(void **state)
{
    (void)state;
    static bytes file;
    make_npy(&file, 1, HEADER("<i4", "False", "(2, 3)"), pixels, 24);
    cut_everywhere(ls_npy_read, &file, 0, file.count);
    change_everywhere(ls_npy_read, &file, false, pixels, 24);
}

static zip_writer *make_npz(int method, bool wide, const char *comment)
{
    static zip_writer z;
    static bytes content;
    z.file.count = z.directory.count = 0;
    z.count = 0;
    make_npy(&content, 1, HEADER("<f4", "False", "(2,)"), (float[]){ 1.5f, -2 }, 8);
    zip_add(&z, "first.npy", 0, wide, &content);
    make_npy(&content, 1, HEADER("|u1", "False", "(2, 3, 4)"), pixels, 24);
    zip_add(&z, "x.npy", method, wide, &content);
    zip_end(&z, wide, comment);
    return &z;
}

static ls_status read_x(const char *path, ls_array *out)
{
    return ls_npz_read(path, "x", out);
}

static void npz_stored_and_deflated(void **state)
{
    (void)state;
    for (int method = 0; method <= 8; method += 8)
        for (int wide = 0; wide < 2; wide++) {
            zip_writer *z = make_npz(method, wide, wide ? "" : "a comment with PK\5\6 in it");
            ls_array array = { 0 };
            write_file(in_folder("a.npz"), z->file.data, z->file.count);
            if (ls_npz_read(in_folder("a.npz"), "x", &array) != LS_OK)
                fail_msg("method %d, wide %d: %s", method, wide, ls_last_error());
            assert_array(&array, LS_U8, LS_SHAPE(2, 3, 4), pixels, 24);
            free(array.data);
            assert_int_equal(ls_npz_read(in_folder("a.npz"), "first", &array), LS_OK);
            assert_array(&array, LS_F32, LS_SHAPE(2), (float[]){ 1.5f, -2 }, 8);
            free(array.data);
            array.data = NULL;
            assert_fails(ls_npz_read(in_folder("a.npz"), "y", &array), LS_ERR_NOT_FOUND, "a.npz", "array y",
                         "first.npy x.npy");
        }
}

static void npz_refused(void **state)
{
    (void)state;
    ls_array array = { 0 };
    const char *path = in_folder("bad.npz");
    zip_writer *z = make_npz(0, false, "");
    size_t entry = z->file.count - 22 - (46 + 5); /* of x.npy, the last in the directory */
    z->file.data[entry + 10] = 12;
    write_file(path, z->file.data, z->file.count);
    assert_fails(read_x(path, &array), LS_ERR_UNSUPPORTED, path, "x.npy", "method 12");
    z = make_npz(0, false, "");
    z->file.data[entry + 8] = 1;
    write_file(path, z->file.data, z->file.count);
    assert_fails(read_x(path, &array), LS_ERR_UNSUPPORTED, path, "encrypted");
    z = make_npz(0, false, "");
    z->file.data[entry] = 'Q';
    write_file(path, z->file.data, z->file.count);
    assert_fails(read_x(path, &array), LS_ERR_DATA, path, "directory is damaged");
    write_file(path, "hello", 5);
    assert_fails(read_x(path, &array), LS_ERR_DATA, path, "zip");
    write_file(path, "", 0);
    assert_fails(read_x(path, &array), LS_ERR_DATA, path, "zip");
    assert_null(array.data);
}

static void npz_checksum(void **state)
{
    (void)state;
    ls_array array = { 0 };
    zip_writer *z = make_npz(0, false, "");
    size_t last = z->file.count - 22 - (46 + 5) - (46 + 9) - 1; /* byte of x: only the checksum can tell */
    assert_int_equal(z->file.data[last], 250);
    z->file.data[last] = 251;
    write_file(in_folder("bad.npz"), z->file.data, z->file.count);
    assert_fails(read_x(in_folder("bad.npz"), &array), LS_ERR_DATA, "bad.npz", "x.npy", "checksum");
}

static void npz_cut_and_changed(void **state)
{
    (void)state;
    for (int method = 0; method <= 8; method += 8)
        for (int wide = 0; wide < 2; wide++) {
            zip_writer *z = make_npz(method, wide, "");
            cut_everywhere(read_x, &z->file, 0, z->file.count);
            change_everywhere(read_x, &z->file, true, pixels, 24);
        }
}

/* ---- CSV ---- */

static void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

static void csv_good(void **state)
{
    (void)state;
    static const char *const files[] = {
        "1,2.5,0\n-3,4e1,7\n",
        "height, weight ,class\r\n1,2.5,0\r\n-3,4e1,7\r\n",
        "\xef\xbb\xbf\"a\",\"b\",\"c\"\n\n 1 ,\t2.5, \"0\"\n   \n-3,40,7",
    };
    ls_array x = { 0 }, y = { 0 };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_text(in_folder("a.csv"), files[i]);
        if (ls_csv_read(in_folder("a.csv"), &x, &y) != LS_OK)
            fail_msg("file %zu: %s", i, ls_last_error());
        assert_array(&x, LS_F32, LS_SHAPE(2, 2), (float[]){ 1, 2.5f, -3, 40 }, 16);
        assert_array(&y, LS_I64, LS_SHAPE(2), (int64_t[]){ 0, 7 }, 16);
        free(x.data);
        free(y.data);
    }
    write_text(in_folder("a.csv"), "1,2\n3,4.5\n");
    assert_int_equal(ls_csv_read(in_folder("a.csv"), &x, &y), LS_OK);
    assert_array(&x, LS_F32, LS_SHAPE(2, 1), (float[]){ 1, 3 }, 8);
    assert_array(&y, LS_F32, LS_SHAPE(2), (float[]){ 2, 4.5f }, 8);
    free(x.data);
    free(y.data);
}

static void csv_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line, *column;
    } rows[] = {
        { "1,2,3\n4,five,6\n", "line 2", "column 2: 'five'" },
        { "1,2,3\n4,,6\n", "line 2", "column 2" },
        { "1,2,3\n4,5\n", "line 2", "2 columns, 3" },
        { "1,2,3\n4,5,6,7\n", "line 2", "4 columns, 3" },
        { "a,2,3\n4,5,6\n", "line 1", "column 1: 'a'" },
        { "a,b,c\n1,2,3\n4,nan,6\n", "line 3", "column 2: 'nan' is not finite" },
        { "1,2,inf\n", "line 1", "column 3" },
        { "1,1e39,3\n", "line 1", "column 2: '1e39' is too large" },
        { "1\n2\n", "line 1", "1 column" },
        { "1;2;3\n", "line 1", "commas" },
        { "a,b,c\n", "no line", "1 lines" },
        { "", "no line", "0 lines" },
    };
    const char *path = in_folder("bad.csv");
    ls_array x = { 0 }, y = { 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text(path, rows[i].text);
        assert_fails(ls_csv_read(path, &x, &y), LS_ERR_DATA, path, rows[i].line, rows[i].column);
    }
    assert_null(x.data);
    assert_null(y.data);
}

static ls_status read_csv_features(const char *path, ls_array *out)
{
    ls_array labels = { 0 };
    ls_status status = ls_csv_read(path, out, &labels);
    free(labels.data);
    return status;
}

static void csv_long_and_changed(void **state)
{
    (void)state;
    FILE *f = fopen(in_folder("long.csv"), "w");
    ls_array x = { 0 }, y = { 0 };
    for (int i = 0; i < 5000; i++)
        fprintf(f, "%d,%d,%d\n", i, 2 * i, i % 10);
    fclose(f);
    assert_int_equal(ls_csv_read(in_folder("long.csv"), &x, &y), LS_OK);
    assert_int_equal(x.shape.dims[0], 5000);
    for (int i = 0; i < 5000; i++) {
        assert_true(((float *)x.data)[2 * i] == (float)i && ((float *)x.data)[2 * i + 1] == (float)(2 * i));
        assert_int_equal(((int64_t *)y.data)[i], i % 10);
    }
    free(x.data);
    free(y.data);
    static bytes file;
    file.count = 0;
    put(&file, "a,b,c\n1,2.5,0\n-3,4e1,7\n", 23);
    change_everywhere(read_csv_features, &file, false, NULL, 0);
}

/* ---- By name ---- */

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
    assert_fails(ls_load_data(NULL, "fashion-minst", &train, NULL), LS_ERR_NOT_FOUND, "did you mean 'fashion-mnist'");
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
                 "did you mean 'classes'");
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
        skip();
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

#define in_new_folder(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_new_folder(idx_plain_and_gzip),
        in_new_folder(idx_types),
        in_new_folder(idx_refused),
        in_new_folder(idx_cut_and_changed),
        in_new_folder(npy_types),
        in_new_folder(npy_refused),
        in_new_folder(npy_cut_and_changed),
        in_new_folder(npz_stored_and_deflated),
        in_new_folder(npz_refused),
        in_new_folder(npz_checksum),
        in_new_folder(npz_cut_and_changed),
        in_new_folder(csv_good),
        in_new_folder(csv_refused),
        in_new_folder(csv_long_and_changed),
        in_new_folder(a_folder_of_idx_files),
        in_new_folder(the_test_set_is_read_when_needed),
        in_new_folder(known_names),
        in_new_folder(npz_and_csv_by_name),
        in_new_folder(synthetic_sets),
        in_new_folder(fashion_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
