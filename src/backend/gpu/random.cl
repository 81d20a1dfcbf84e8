/* Random numbers by Philox 4x32-10 (src/base/philox.h): a function of seed, purpose, layer and
 * call, and of run, sample and element. An item makes one block: four elements of a sample. */
typedef struct philox_block {
    u32 word[4];
} philox_block;

FUNCTION philox_block philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1)
{
    philox_block out;
    for (int round_ = 0; round_ < 10; round_++) {
        u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out.word[0] = c0;
    out.word[1] = c1;
    out.word[2] = c2;
    out.word[3] = c3;
    return out;
}

FUNCTION philox_block random_block(GLOBAL const ls_gpu_random *p, i64 sample, i64 index)
{
    philox_block key = philox((u32)p->purpose, (u32)p->layer, (u32)p->call, 0x4c53u, (u32)p->seed, (u32)(p->seed >> 32));
    return philox((u32)index, (u32)sample, (u32)p->run, (u32)(p->run >> 32), key.word[0], key.word[1]);
}

#define UNIT(word) ((float)((word) >> 8) * 0x1p-24f)

/* check_rate reports an invalid rate. places: x, rate, out */
KERNEL_APART(dropout, 3)
{
    LANE(ls_gpu_random, p);
    i64 block_ = ITEM(0), sample = ITEM(1);
    if (block_ * 4 >= p->each || sample >= p->samples)
        return;
    float rate = IN(float, 1)[0], scale = DIVIDE(1.0f, 1.0f - rate);
    philox_block words = random_block(p, p->first + sample, block_);
    for (int k = 0; k < 4; k++) {
        i64 e = block_ * 4 + k, at = sample * p->each + e;
        if (e < p->each)
            OUT(float, 2)[at] = UNIT(words.word[k]) >= rate ? IN(float, 0)[at] * scale : 0;
    }
}

/* places: rate, fault */
KERNEL_APART(check_rate, 2)
{
    LANE(ls_gpu_rows, p);
    GLOBAL ls_gpu_fault *fault = OUT(ls_gpu_fault, 1);
    float rate = IN(float, 0)[0];
    if (ITEM(0) == 0 && fault->kind == LS_GPU_FAULT_NONE && !(rate >= 0 && rate < 1)) {
        fault->rate = rate;
        fault->step = p->outer;
        fault->kind = LS_GPU_FAULT_RATE;
    }
}

/* From a to b. `limit` is the largest number below b, which rounding must not reach. places: out */
KERNEL_APART(random_uniform, 1)
{
    LANE(ls_gpu_random, p);
    i64 block_ = ITEM(0), sample = ITEM(1);
    if (block_ * 4 >= p->each || sample >= p->samples)
        return;
    philox_block words = random_block(p, p->first + sample, block_);
    float top = (float)p->b, below = nextafter(top, -(float)ENDLESS);
    for (int k = 0; k < 4; k++) {
        i64 e = block_ * 4 + k;
        if (e < p->each) {
            float x = TO_FLOAT(p->a + (p->b - p->a) * (double)UNIT(words.word[k]));
            OUT(float, 0)[sample * p->each + e] = x >= top && p->a < p->b ? below : x;
        }
    }
}
