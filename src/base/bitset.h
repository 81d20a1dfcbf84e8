/* Sets of ranks as bits of an array. */
#ifndef LS_BASE_BITSET_H
#define LS_BASE_BITSET_H

#include <stdbool.h>
#include <stdint.h>

static inline bool ls_has_bit(const uint64_t *bits, int rank)
{
    return bits[rank / 64] >> (rank % 64) & 1;
}

static inline void ls_set_bit(uint64_t *bits, int rank)
{
    bits[rank / 64] |= 1ull << (rank % 64);
}

static inline void ls_clear_bit(uint64_t *bits, int rank)
{
    bits[rank / 64] &= ~(1ull << (rank % 64));
}

#endif
