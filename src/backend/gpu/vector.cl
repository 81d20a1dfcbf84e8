/* Vectors of LS_VECTOR adjacent numbers: columns of a product, channels of a pixel. An item has one
 * such vector; on GPUs, whose items are lanes of a vector themselves, it is one number. */
#if LS_VECTOR == 1
typedef float vec;
typedef int mask;
#define LOAD(at)     (*(at))
#define STORE(x, at) (*(at) = (x))
#else
#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
typedef PASTE(float, LS_VECTOR) vec;
typedef PASTE(int, LS_VECTOR) mask;
#define LOAD(at)     PASTE(vload, LS_VECTOR)(0, at)
#define STORE(x, at) PASTE(vstore, LS_VECTOR)(x, 0, at)
#endif
/* Comparisons return masks, which &, | and ! combine. CHOOSE selects `taken` where the mask is
 * set. */
#if LS_VECTOR == 1
#define CHOOSE(set, taken, other) ((set) ? (taken) : (other))
#define ANY(set)                  (set)
#else
#define CHOOSE(set, taken, other) select(other, taken, set)
#define ANY(set)                  any(set)
#endif

/* Loads the first `count` columns of a vector; the others are 0 and not used. */
FUNCTION vec load(GLOBAL const float *at, i64 count)
{
#if LS_VECTOR == 1
    return *at;
#else
    if (count >= LS_VECTOR)
        return LOAD(at);
    float some[LS_VECTOR];
    for (int i = 0; i < LS_VECTOR; i++)
        some[i] = i < count ? at[i] : 0;
    return LOAD(some);
#endif
}

FUNCTION void store(vec x, GLOBAL float *at, i64 count)
{
#if LS_VECTOR == 1
    *at = x;
#else
    if (count >= LS_VECTOR) {
        STORE(x, at);
        return;
    }
    float some[LS_VECTOR];
    STORE(x, some);
    for (int i = 0; i < LS_VECTOR; i++)
        if (i < count)
            at[i] = some[i];
#endif
}
