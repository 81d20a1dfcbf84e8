/* Order of sums along contiguous elements (docs/bits.md): 16 interleaved sums in double, joined by
 * a fixed tree, for vectors of any width. */
#ifndef LS_BACKEND_REF_INTERLEAVED_H
#define LS_BACKEND_REF_INTERLEAVED_H

#define LS_REF_PARTS 16

typedef struct ls_ref_interleaved {
    double part[LS_REF_PARTS]; /* element i is added to part i % 16 */
} ls_ref_interleaved;

/* Adds the upper half to the lower until one sum is left. */
static inline double ls_ref_interleaved_total(ls_ref_interleaved *sums)
{
    for (int half = LS_REF_PARTS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sums->part[i] += sums->part[i + half];
    return sums->part[0];
}

#endif
