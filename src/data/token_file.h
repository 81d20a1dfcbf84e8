/* Files of tokens that are mapped into memory. */
#ifndef LS_DATA_TOKEN_FILE_H
#define LS_DATA_TOKEN_FILE_H

#include <string.h>

#include "lockstep/text.h"

typedef struct ls_token_file {
    void *map; /* mapping of the whole file; NULL: the tokens have memory of their own */
    size_t map_bytes;
    void *owned;
    const unsigned char *data; /* the first token */
    size_t width;              /* bytes of a token: 1, 2, 4 or 8 */
    bool is_signed;
    int64_t count;
} ls_token_file;

/* Maps a file whose tokens are its bytes. */
ls_status ls_token_file_map_bytes(const char *path, ls_token_file *out);
/* Maps FILE.bin or FILE.npy. */
ls_status ls_token_file_open(const char *path, ls_token_format format, ls_token_file *out);
void ls_token_file_close(ls_token_file *file);

/* Whether the name of a file says that it has tokens, not text. */
bool ls_is_token_file(const char *path);

/* Negative for a number that is not an id. */
static inline int64_t ls_token_at(const ls_token_file *file, int64_t index)
{
    const unsigned char *at = file->data + (size_t)index * file->width;
    uint16_t two;
    uint32_t four;
    int64_t eight;
    switch (file->width) {
    case 1:
        return file->is_signed ? (int8_t)*at : *at;
    case 2:
        memcpy(&two, at, sizeof two);
        return file->is_signed ? (int16_t)two : two;
    case 4:
        memcpy(&four, at, sizeof four);
        return file->is_signed ? (int32_t)four : (int64_t)four;
    default:
        memcpy(&eight, at, sizeof eight);
        return eight; /* unsigned ones from 2^63 on are negative here, and refused like these */
    }
}

#endif
