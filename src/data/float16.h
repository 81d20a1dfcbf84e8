#ifndef LS_DATA_FLOAT16_H
#define LS_DATA_FLOAT16_H

#include <stddef.h>
#include <stdint.h>

typedef enum ls_float16 { LS_HALF_NONE, LS_HALF_F16, LS_HALF_BF16 } ls_float16;

/* Converts `count` 16-bit floats in the second half of `data` to float32 in place; every value is
 * exact. */
void ls_float16_widen(ls_float16 half, void *data, size_t count);

#endif
