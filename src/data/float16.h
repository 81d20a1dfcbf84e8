/* Converts 16-bit floats in files to float32, which represents all of their values exactly. */
#ifndef LS_DATA_FLOAT16_H
#define LS_DATA_FLOAT16_H

#include <stddef.h>
#include <stdint.h>

typedef enum ls_float16 { LS_HALF_NONE, LS_HALF_F16, LS_HALF_BF16 } ls_float16;

/* Converts `count` numbers in place. `data` has room for `count` float32; the 16-bit numbers occupy
 * its second half. */
void ls_float16_widen(ls_float16 half, void *data, size_t count);

#endif
