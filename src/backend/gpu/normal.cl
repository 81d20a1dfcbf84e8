/* Ops that need the functions of wide.cl: normal random numbers and powers. */

/* As ls_random_normal_pair of src/base/philox.c: words 0 and 1 of a block give two numbers, words 2
 * and 3 two more. */
FUNCTION void normal_pair(u32 a, u32 b, double *x, double *y)
{
    double angle = 0x1.921fb54442d18p+2 * ((double)b * 0x1p-32);
    double radius = sqrt(-2.0 * log_wide(((double)a + 1.0) * 0x1p-32).hi);
    *x = radius * sin_shifted(angle, 1);
    *y = radius * (angle == 0.0 ? angle : sin_shifted(angle, 0));
}

/* With mean a and deviation b. places: out */
KERNEL_APART(random_normal, 1)
{
    LANE(ls_gpu_random, p);
    i64 block_ = ITEM(0), sample = ITEM(1);
    if (block_ * 4 >= p->each || sample >= p->samples)
        return;
    philox_block words = random_block(p, p->first + sample, block_);
    double pair[2];
    for (int k = 0; k < 4; k++) {
        i64 e = block_ * 4 + k;
        if (k % 2 == 0)
            normal_pair(words.word[k], words.word[k + 1], &pair[0], &pair[1]);
        if (e < p->each)
            OUT(float, 0)[sample * p->each + e] = TO_FLOAT(p->a + p->b * pair[k % 2]);
    }
}

/* a^b, both broadcast. places: a, b, out */
KERNEL_APART(pow_f32, 3)
{
    LANE(ls_gpu_walk, p);
    i64 i = ITEM(0);
    if (i < p->n)
        OUT(float, 2)[i] = TO_FLOAT(power(IN(float, 0)[walk_at(p, 0, i)], IN(float, 1)[walk_at(p, 1, i)]));
}
