/* Overflow-checked sizes: the functions return false on overflow. */
#ifndef LS_BASE_SIZE_H
#define LS_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool ls_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool ls_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool ls_i64_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* `alignment` is a power of two, and n + alignment must not overflow. */
static inline size_t ls_size_align(size_t n, size_t alignment)
{
    return (n + alignment - 1) & ~(alignment - 1);
}

#endif
