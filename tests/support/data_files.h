/* Making data files for tests, good and bad, in a folder of the test's own. */
#ifndef TESTS_DATA_FILES_H
#define TESTS_DATA_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "folder.h"
#include "lockstep.h"

/* ---- Making files ---- */

typedef struct bytes {
    unsigned char data[1 << 16];
    size_t count;
} bytes;

static inline void put(bytes *b, const void *data, size_t count)
{
    assert_true(b->count + count <= sizeof b->data);
    memcpy(b->data + b->count, data, count);
    b->count += count;
}

static inline void put_number(bytes *b, uint64_t value, int width) /* little-endian */
{
    for (int i = 0; i < width; i++)
        put(b, &(unsigned char){ (unsigned char)(value >> (8 * i)) }, 1);
}

static inline void put_big(bytes *b, uint32_t value)
{
    for (int i = 3; i >= 0; i--)
        put(b, &(unsigned char){ (unsigned char)(value >> (8 * i)) }, 1);
}

/* A new file each time: some file systems sync one that was cut and written again. */
static inline void write_file(const char *path, const void *data, size_t count)
{
    (void)remove(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static inline void pack(bytes *out, const void *data, size_t count, int window_bits)
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

static inline void gzip(bytes *out, const void *data, size_t count)
{
    pack(out, data, count, 16 + MAX_WBITS);
}

static inline void make_idx(bytes *out, unsigned type, int rank, const uint32_t *sizes, const void *data, size_t count)
{
    out->count = 0;
    put(out, (unsigned char[]){ 0, 0, (unsigned char)type, (unsigned char)rank }, 4);
    for (int i = 0; i < rank; i++)
        put_big(out, sizes[i]);
    put(out, data, count);
}

static inline void make_npy(bytes *out, int version, const char *header, const void *data, size_t count)
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

static inline void zip_add(zip_writer *z, const char *name, int method, bool wide, const bytes *content)
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

static inline void zip_end(zip_writer *z, bool wide, const char *comment)
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

static inline void assert_array(const ls_array *array, ls_dtype dtype, ls_shape shape, const void *want, size_t count)
{
    assert_int_equal(array->dtype, dtype);
    assert_int_equal(array->shape.rank, shape.rank);
    for (int i = 0; i < shape.rank; i++)
        assert_int_equal(array->shape.dims[i], shape.dims[i]);
    assert_memory_equal(array->data, want, count);
}

/* The call failed with that status, and the message has all these pieces. */
static inline void check_failure(ls_status status, ls_status want, const char *const *pieces, size_t count, int line)
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

static inline void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

static const unsigned char pixels[24] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                          13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 250 };

#define HEADER(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

#define in_new_folder(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

#endif
