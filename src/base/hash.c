/* Eight parallel chains of XOR and multiplication by an odd number. Every step is invertible, so a
 * single different byte always changes the sum. */
#include "base/hash.h"

#include <string.h>

#define LANES ((int)(sizeof(((ls_hash *)0)->sum) / sizeof(uint64_t)))

static uint64_t stir(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    return sum ^ sum >> 29;
}

void ls_hash_begin(ls_hash *hash)
{
    for (int i = 0; i < LANES; i++)
        hash->sum[i] = stir(0x6c6f636b73746570u, (uint64_t)i + 1); /* "lockstep" */
    hash->bytes = 0;
}

static void add_block(ls_hash *hash, const void *data)
{
    uint64_t words[LANES];
    memcpy(words, data, sizeof(words));
    for (int i = 0; i < LANES; i++)
        hash->sum[i] = stir(hash->sum[i], words[i]);
}

/* Pads the rest of each call with zeros; the number of bytes, which is hashed too, distinguishes
 * padding from data. */
void ls_hash_add(ls_hash *hash, const void *data, size_t bytes)
{
    const char *at = data;
    char rest[sizeof(hash->sum)] = { 0 };
    hash->bytes = stir(hash->bytes, bytes);
    for (; bytes >= sizeof(rest); at += sizeof(rest), bytes -= sizeof(rest))
        add_block(hash, at);
    if (bytes > 0) {
        memcpy(rest, at, bytes);
        add_block(hash, rest);
    }
}

void ls_hash_end(const ls_hash *hash, uint64_t out[2])
{
    out[0] = stir(1, hash->bytes);
    out[1] = stir(2, hash->bytes);
    for (int i = 0; i < LANES; i++) {
        out[0] = stir(out[0], hash->sum[i]);
        out[1] = stir(out[1] + hash->sum[i], hash->sum[LANES - 1 - i]);
    }
}
