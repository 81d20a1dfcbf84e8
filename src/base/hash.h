/* Fast 128-bit hash to compare bytes between workers. Not cryptographic. */
#ifndef LS_BASE_HASH_H
#define LS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct ls_hash {
    uint64_t sum[8];
    uint64_t bytes;
} ls_hash;

void ls_hash_begin(ls_hash *hash);
void ls_hash_add(ls_hash *hash, const void *data, size_t bytes);
void ls_hash_end(const ls_hash *hash, uint64_t out[2]);

#endif
