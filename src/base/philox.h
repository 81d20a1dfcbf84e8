/* Philox 4x32-10, a counter-based random generator with the same words on every machine. */
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

/* Streams of different purposes are independent. */
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

/* Elements 4*index to 4*index+3 of the random numbers of `sample` in run `run`. */
static inline ls_philox_block ls_random_block(ls_philox_key key, uint64_t run, uint32_t sample, uint32_t index)
{
    ls_philox_block counter = { { index, sample, (uint32_t)run, (uint32_t)(run >> 32) } };
    return ls_philox(counter, key);
}

/* Uniform in [0, 1) from the top 24 or 53 bits. */
static inline float ls_random_unit_f32(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

static inline double ls_random_unit_f64(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

/* Two standard normal numbers (Box-Muller). */
void ls_random_normal_pair(uint32_t a, uint32_t b, double out[2]);

#endif
