/* Sixteen-bit floats as files have them: every value is a float32, too, so nothing is lost by widening. */
#ifndef LS_DATA_FLOAT16_H
#define LS_DATA_FLOAT16_H

#include <stddef.h>
#include <stdint.h>

typedef enum ls_float16 { LS_HALF_NONE, LS_HALF_F16, LS_HALF_BF16 } ls_float16;

/* Widens `count` numbers that lie at the end of the room of `count` float32 at `data`: in place, from the front. */
void ls_float16_widen(ls_float16 half, void *data, size_t count);

#endif
