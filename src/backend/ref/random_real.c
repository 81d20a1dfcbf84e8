/* Random numbers and dropout. A number depends on seed, run, node, index of the sample in the whole
 * batch, and element; never on slices. */
#include "backend/ref/array.h"
#include "backend/ref/real.h"
#include "base/philox.h"

static ls_philox_key key_of(const ls_ref_call *call, ls_random_purpose purpose)
{
    return ls_random_key(call->seed, purpose, (uint32_t)call->node->attr.random.layer,
                         (uint32_t)call->node->attr.random.call);
}

/* Block of element e of sample s of the slice if a block serves `per_block` elements. */
static ls_philox_block block_of(const ls_ref_call *call, ls_philox_key key, int64_t s, int64_t e, int per_block)
{
    int64_t sample = call->node->per_sample ? call->first + s : 0;
    return ls_random_block(key, call->run, (uint32_t)sample, (uint32_t)(e / per_block));
}

#if defined(LS_REAL_F32)
#define UNITS_PER_BLOCK 4
#else
#define UNITS_PER_BLOCK 2
#endif

static double unit(const ls_philox_block *block, int64_t e)
{
#if defined(LS_REAL_F32)
    return ls_random_unit_f32(block->word[e % 4]);
#else
    return ls_random_unit_f64(block->word[e % 2 * 2], block->word[e % 2 * 2 + 1]);
#endif
}

ls_status LS_REF(random_uniform)(const ls_ref_call *call)
{
    double low = call->node->attr.random.a, high = call->node->attr.random.b;
    real top = (real)high, below = real_nextafter(top, (real)-INFINITY);
    ls_philox_key key = key_of(call, LS_RANDOM_OP);
    ls_philox_block block = { 0 };
    int64_t samples, each;
    ls_ref_samples(call, &samples, &each);
    real *out = call->out.data;
    for (int64_t s = 0; s < samples; s++) {
        for (int64_t e = 0; e < each; e++) {
            if (e % UNITS_PER_BLOCK == 0)
                block = block_of(call, key, s, e, UNITS_PER_BLOCK);
            real x = (real)(low + (high - low) * unit(&block, e));
            *out++ = x >= top && low < high ? below : x; /* rounding must not reach `high` */
        }
    }
    return LS_OK;
}

/* Words 0 and 1 of a block give two numbers, words 2 and 3 two more. */
ls_status LS_REF(random_normal)(const ls_ref_call *call)
{
    double mean = call->node->attr.random.a, deviation = call->node->attr.random.b;
    ls_philox_key key = key_of(call, LS_RANDOM_OP);
    ls_philox_block block = { 0 };
    double pair[2] = { 0, 0 };
    int64_t samples, each;
    ls_ref_samples(call, &samples, &each);
    real *out = call->out.data;
    for (int64_t s = 0; s < samples; s++) {
        for (int64_t e = 0; e < each; e++) {
            if (e % 4 == 0)
                block = block_of(call, key, s, e, 4);
            if (e % 2 == 0)
                ls_random_normal_pair(block.word[e % 4], block.word[e % 4 + 1], pair);
            *out++ = (real)(mean + deviation * pair[e % 2]);
        }
    }
    return LS_OK;
}

/* in: x, rate []. Both types draw the same mask. */
ls_status LS_REF(dropout)(const ls_ref_call *call)
{
    real rate = *(const real *)call->in[1].data;
    if (!(rate >= 0 && rate < 1))
        return ls_fail(LS_ERR_DATA, "a dropout rate of %.9g is outside [0, 1)", (double)rate);
    const real scale = 1 / (1 - rate);
    ls_philox_key key = key_of(call, LS_RANDOM_DROPOUT);
    ls_philox_block block = { 0 };
    int64_t samples, each;
    ls_ref_samples(call, &samples, &each);
    const real *x = call->in[0].data;
    real *out = call->out.data;
    for (int64_t s = 0; s < samples; s++) {
        for (int64_t e = 0; e < each; e++, x++) {
            if (e % 4 == 0)
                block = block_of(call, key, s, e, 4);
            bool keep = (real)ls_random_unit_f32(block.word[e % 4]) >= rate;
            *out++ = keep ? *x * scale : 0;
        }
    }
    return LS_OK;
}
