/* Philox 4x32-10 by Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
 * (2011). */
#include "base/philox.h"

#include <math.h>

#include "base/math.h"

#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0       0x9E3779B9u /* the golden ratio */
#define WEYL_1       0xBB67AE85u /* sqrt(3) - 1 */
#define ROUNDS       10

/* Last counter word when deriving a key: distinct from words of a stream. */
#define KEY_TAG 0x4c53u

ls_philox_block ls_philox(ls_philox_block counter, ls_philox_key key)
{
    uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
    uint32_t k0 = key.word[0], k1 = key.word[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0;
        uint64_t p1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    return (ls_philox_block){ { c0, c1, c2, c3 } };
}

ls_philox_key ls_random_key(uint64_t seed, ls_random_purpose purpose, uint32_t layer, uint32_t call)
{
    ls_philox_key seed_key = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    ls_philox_block mixed = ls_philox((ls_philox_block){ { (uint32_t)purpose, layer, call, KEY_TAG } }, seed_key);
    return (ls_philox_key){ { mixed.word[0], mixed.word[1] } };
}

void ls_random_normal_pair(uint32_t a, uint32_t b, double out[2])
{
    double u1 = ((double)a + 1.0) * 0x1p-32; /* (0, 1], so that its logarithm is finite */
    double u2 = (double)b * 0x1p-32;
    double radius = sqrt(-2.0 * ls_log(u1));
    double angle = 0x1.921fb54442d18p+2 * u2; /* 2 pi */
    out[0] = radius * ls_cos(angle);
    out[1] = radius * ls_sin(angle);
}
