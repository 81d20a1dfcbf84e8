/* The tree: T[a,b) is the lane's own value if b-a is 1, else T[a,a+k) + T[a+k,b), k the largest power of two below b-a.
 */
#ifndef LS_RUN_JOIN_H
#define LS_RUN_JOIN_H

#include "backend/cpu/simd.h"
#include "plan/plan.h"

/* dst[i] for from <= i < to, by the tree over `lanes` partials; NULL: an empty lane, which has no value. Whether all of
 * them are finite. */
bool ls_join_lanes(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane,
                   int lanes, size_t from, size_t to);

/* dst = dst with src joined on its right: a lane's next micro-batch. */
void ls_join_next(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *src, size_t count);

#endif
