/* The order of sums along contiguous elements (docs/bits.md): 16 interleaved sums in double, joined by a fixed tree, so
 * that vectors of any width can keep to it. */
#ifndef LS_BACKEND_REF_INTERLEAVED_H
#define LS_BACKEND_REF_INTERLEAVED_H

#define LS_REF_PARTS 16

typedef struct ls_ref_interleaved {
    double part[LS_REF_PARTS]; /* element i is in number i % 16 */
} ls_ref_interleaved;

/* The upper half is added to the lower until one is left. */
static inline double ls_ref_interleaved_total(ls_ref_interleaved *sums)
{
    for (int half = LS_REF_PARTS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sums->part[i] += sums->part[i + half];
    return sums->part[0];
}

#endif
