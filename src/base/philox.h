/* Philox 4x32-10, a counter-based random generator. A (key, counter) gives the same four words on
 * every machine. */
#ifndef LS_BASE_PHILOX_H
#define LS_BASE_PHILOX_H

#include <stdint.h>

typedef struct ls_philox_key {
    uint32_t word[2];
} ls_philox_key;

typedef struct ls_philox_block {
    uint32_t word[4];
} ls_philox_block;

ls_philox_block ls_philox(ls_philox_block counter, ls_philox_key key);

/* Purpose of a stream of random numbers. Streams of different purposes are independent. */
typedef enum ls_random_purpose {
    LS_RANDOM_OP = 1,  /* random uniform and normal nodes */
    LS_RANDOM_DROPOUT, /* dropout masks */
    LS_RANDOM_INIT,    /* initial weights */
    LS_RANDOM_SHUFFLE, /* order of data */
    LS_RANDOM_TEST,    /* the tests' own data */
    LS_RANDOM_AUDIT,   /* choice of lanes that are computed twice */
} ls_random_purpose;

/* Key of a stream; constant over runs and samples. */
ls_philox_key ls_random_key(uint64_t seed, ls_random_purpose purpose, uint32_t layer, uint32_t call);

/* Returns block `index` of the random numbers of `sample` in run `run`: elements 4*index to
 * 4*index+3. */
static inline ls_philox_block ls_random_block(ls_philox_key key, uint64_t run, uint32_t sample, uint32_t index)
{
    ls_philox_block counter = { { index, sample, (uint32_t)run, (uint32_t)(run >> 32) } };
    return ls_philox(counter, key);
}

/* Uniform numbers in [0, 1) from the top 24 (float) or 53 (double) bits. */
static inline float ls_random_unit_f32(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

static inline double ls_random_unit_f64(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

/* Two standard normal numbers from two words (Box-Muller with base/math.h: same bits
 * everywhere). */
void ls_random_normal_pair(uint32_t a, uint32_t b, double out[2]);

#endif
