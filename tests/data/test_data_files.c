/* Data files: IDX, .npy, .npz and .csv, good and bad. Every cut and every changed byte of a small
 * file must end in an error or in the same data, never in a crash. */
#include "data_files.h"

/* ---- IDX ---- */

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
    assert_fails(ls_idx_read(folder, &array), LS_ERR_IO, folder, "regular file");
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
    assert_fails(ls_idx_read(path, &array), LS_ERR_DATA, path, "(2, 5)", "byte 12", "10 bytes", "there are 7");
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

/* Every changed byte is an error or changes nothing, when there is a checksum; else it is only no
 * crash. */
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
            zip_writer *z =
                make_npz(method, wide, wide ? "" : "a comment with PK\5\6 in it, and more behind that than an end has");
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
    size_t entry = z->file.count - 22 - (46 + 5); /* the record of x.npy, the last in the directory */
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

/* Names of an archive's members must not command the terminal that a message is shown on. */
static void npz_odd_names(void **state)
{
    (void)state;
    static zip_writer z;
    static bytes content;
    ls_array array = { 0 };
    make_npy(&content, 1, HEADER("<f4", "False", "(2,)"), (float[]){ 1.5f, -2 }, 8);
    zip_add(&z, "\33]0;title\7\xc2\x9b.npy", 0, false, &content);
    zip_add(&z, "caf\xc3\xa9\n\xff.npy", 0, false, &content);
    zip_end(&z, false, "");
    write_file(in_folder("odd.npz"), z.file.data, z.file.count);
    assert_fails(read_x(in_folder("odd.npz"), &array), LS_ERR_NOT_FOUND, "it has: ?]0;title???.npy caf\xc3\xa9 ?.npy");
}

/* A directory that would take much memory is refused by its size; the file is as long, but has
 * nothing in it. */
static void npz_huge_directory(void **state)
{
    (void)state;
    ls_array array = { 0 };
    const char *path = in_folder("huge.npz");
    zip_writer *z = make_npz(0, false, "");
    unsigned char *end = z->file.data + z->file.count - 22;
    memcpy(end + 12, (unsigned char[]){ 1, 0, 0, 4, 0, 0, 0, 0 }, 8); /* 64 MiB and a byte, from byte 0 */
    write_file(path, "", 0);
    assert_int_equal(truncate(path, (1 << 26) + 1), 0);
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    assert_int_equal(fwrite(end, 1, 22, f), 22);
    assert_int_equal(fclose(f), 0);
    assert_fails(read_x(path, &array), LS_ERR_DATA, path, "67108865", "at most 67108864 are accepted");
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
        { "1,2,3\n4,5\n", "line 2", "2 columns; expected 3" },
        { "1,2,3\n4,5,6,7\n", "line 2", "4 columns; expected 3" },
        { "a,2,3\n4,5,6\n", "line 1", "column 1: 'a' is not a number (a header line" },
        { "a,b,c\n1,2,3\n4,nan,6\n", "line 3", "column 2: 'nan' is not finite" },
        { "1,2,inf\n", "line 1", "column 3" },
        { "1,1e39,3\n", "line 1", "column 2: '1e39' is too large" },
        { "1,2,3\n4,5,1e300\n", "line 2", "column 3: '1e300' is too large for float32" },
        { "1,2,3\n4,5,1e400\n", "line 2", "column 3: '1e400' is outside 4.9e-324 to 1.8e+308" },
        { "1,2,3\n4,5,1e-400\n", "line 2", "column 3: '1e-400' is outside" },
        { "1,2,3\n4,5,0x10\n", "line 2", "column 3: '0x10' is not a number" },
        { "1,2,3\n4,0x10,5\n", "line 2", "column 2: '0x10' is not a number" },
        { "1,2,3\n4,5,nan\n", "line 2", "column 3: 'nan' is not finite" },
        { "1,2,3\n4,5,-inf\n", "line 2", "column 3: '-inf' is not finite" },
        { "1,2,3\n4,5,\33[2J\n", "line 2", "column 3: '?[2J' is not a number" },
        { "1\n2\n", "line 1", "1 column" },
        { "1;2;3\n", "line 1", "commas" },
        { "a,b,c\n", "has 1 lines, but none with numbers", "" },
        { "", "has 0 lines, but none with numbers", "" },
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_new_folder(idx_plain_and_gzip),  in_new_folder(idx_types),
        in_new_folder(idx_refused),         in_new_folder(idx_cut_and_changed),
        in_new_folder(npy_types),           in_new_folder(npy_refused),
        in_new_folder(npy_cut_and_changed), in_new_folder(npz_stored_and_deflated),
        in_new_folder(npz_refused),         in_new_folder(npz_odd_names),
        in_new_folder(npz_checksum),        in_new_folder(npz_huge_directory),
        in_new_folder(npz_cut_and_changed), in_new_folder(csv_good),
        in_new_folder(csv_refused),         in_new_folder(csv_long_and_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
