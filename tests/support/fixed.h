/* Values of weights and inputs that tests and tests/reference/make_*.py make by the same formula,
 * and packed reference files. */
#ifndef LS_TESTS_FIXED_H
#define LS_TESTS_FIXED_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/stream.h"
#include "machine.h"

static inline uint64_t fixed_key(const char *name)
{
    uint64_t key = 0xcbf29ce484222325;
    for (; *name; name++)
        key = (key ^ (unsigned char)*name) * 0x100000001b3;
    return key;
}

/* Returns the number of fixed() of the scripts: from -1 to 1, a multiple of 2^-23. */
static inline double fixed_at(uint64_t key, uint64_t index)
{
    uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return (double)(z >> 40) / 8388608 - 1;
}

static inline double fixed(const char *name, uint64_t index)
{
    return fixed_at(fixed_key(name), index);
}

/* Returns the text of a gzip file, which the caller frees; its last four bytes have its size. */
static inline char *unpack(const char *path, size_t *size)
{
    ls_data_file file;
    ls_stream *stream;
    uint32_t bytes;
    OK(ls_data_file_open(path, &file));
    OK(ls_data_file_at(&file, file.bytes - 4, &bytes, 4, "size"));
    char *text = malloc(bytes);
    assert_non_null(text);
    OK(ls_stream_open(&file, NULL, LS_PACKING_GZIP, 0, file.bytes, &stream));
    OK(ls_stream_read(stream, text, bytes, "JSON"));
    OK(ls_stream_finish(stream));
    ls_stream_close(stream);
    ls_data_file_close(&file);
    *size = bytes;
    return text;
}

#endif
