/* Sequential reading of plain and compressed data files. Every error names the file, the position,
 * and what was expected and found there. */
#ifndef LS_DATA_STREAM_H
#define LS_DATA_STREAM_H

#include "lockstep/run.h"

typedef struct ls_data_file {
    int fd;
    const char *path; /* owned by the caller */
    uint64_t bytes;
} ls_data_file;

/* Opens a regular file; fails for anything else. */
ls_status ls_data_file_open(const char *path, ls_data_file *out);
void ls_data_file_close(ls_data_file *file);

/* `what` describes the bytes in the error. */
ls_status ls_data_file_at(const ls_data_file *file, uint64_t offset, void *to, size_t bytes, const char *what);

typedef enum ls_packing {
    LS_PACKING_NONE,
    LS_PACKING_GZIP,    /* one or more members */
    LS_PACKING_DEFLATE, /* raw deflate, as in a zip archive */
} ls_packing;

typedef struct ls_stream ls_stream;

/* Opens a part of a file. `member`: name within an archive, or NULL. The file and both names must
 * outlive the stream. */
ls_status ls_stream_open(const ls_data_file *file, const char *member, ls_packing packing, uint64_t offset,
                         uint64_t bytes, ls_stream **out);
void ls_stream_close(ls_stream *stream);

/* Reads exactly the next `bytes` bytes. */
ls_status ls_stream_read(ls_stream *stream, void *to, size_t bytes, const char *what);

/* Fails if unread data remains or a checksum is wrong. */
ls_status ls_stream_finish(ls_stream *stream);
void ls_stream_expect_crc(ls_stream *stream, uint32_t crc);

uint64_t ls_stream_offset(const ls_stream *stream); /* decompressed bytes read so far */
/* Upper bound of the decompressed size, whatever a header claims. */
uint64_t ls_stream_most(const ls_stream *stream);

/* Name for messages, "'mnist.npz' (x_train.npy)". */
const char *ls_stream_name(const ls_stream *stream);

/* Checks that the stream can contain an array of `shape` before allocating it. */
ls_status ls_stream_read_array(ls_stream *stream, ls_dtype dtype, ls_shape shape, ls_array *out);

/* At least one byte, aligned for kernels; freed with free(). */
void *ls_data_alloc(size_t bytes);

/* Returns false on overflow. */
bool ls_data_bytes(ls_dtype dtype, const ls_shape *shape, size_t *out);

#endif
