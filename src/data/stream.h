/* Data files, read in order into places of known size, plain or compressed. Every error names the file, the place in
 * it, what was expected there and what was found. */
#ifndef LS_DATA_STREAM_H
#define LS_DATA_STREAM_H

#include "lockstep/run.h"

typedef struct ls_data_file {
    int fd;
    const char *path; /* the caller's */
    uint64_t bytes;
} ls_data_file;

/* Plain files only. */
ls_status ls_data_file_open(const char *path, ls_data_file *out);
void ls_data_file_close(ls_data_file *file);

/* Exactly `bytes` bytes from `offset`; `what` says in the error what they are. */
ls_status ls_data_file_at(const ls_data_file *file, uint64_t offset, void *to, size_t bytes, const char *what);

typedef enum ls_packing {
    LS_PACKING_NONE,
    LS_PACKING_GZIP,    /* one or more members */
    LS_PACKING_DEFLATE, /* as in a zip archive */
} ls_packing;

typedef struct ls_stream ls_stream;

/* A part of a file. `member` is the name within an archive, or NULL. The file and both names must outlive the stream.
 */
ls_status ls_stream_open(const ls_data_file *file, const char *member, ls_packing packing, uint64_t offset,
                         uint64_t bytes, ls_stream **out);
void ls_stream_close(ls_stream *stream);

/* Exactly `bytes` bytes more. */
ls_status ls_stream_read(ls_stream *stream, void *to, size_t bytes, const char *what);

/* Fails unless everything was read, or when checksums are wrong. */
ls_status ls_stream_finish(ls_stream *stream);
void ls_stream_expect_crc(ls_stream *stream, uint32_t crc);

uint64_t ls_stream_offset(const ls_stream *stream); /* bytes read so far, unpacked */
uint64_t ls_stream_most(const ls_stream *stream);   /* it cannot give more bytes than this, whatever a header says */

/* "'mnist.npz' (x_train.npy)"; valid as long as the stream. */
const char *ls_stream_name(const ls_stream *stream);

/* Room for an array of `shape`, with a check against what the stream can hold; then reads it. */
ls_status ls_stream_read_array(ls_stream *stream, ls_dtype dtype, ls_shape shape, ls_array *out);

/* Memory aligned for kernels, freed with free(); at least one byte. */
void *ls_data_alloc(size_t bytes);

/* Bytes of an array of this type and shape; false when that does not fit. */
bool ls_data_bytes(ls_dtype dtype, const ls_shape *shape, size_t *out);

#endif
