/* Converts 16-bit floats to float32; NaNs keep their payload bits. */
#include "data/float16.h"

#include <string.h>

static uint32_t widen_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31) /* infinities and NaNs */
        return sign | 0x7f800000 | fraction << 13;
    if (exponent != 0)
        return sign | (exponent + 112) << 23 | fraction << 13;
    if (fraction == 0)
        return sign;
    exponent = 113; /* a subnormal float16 is a normal float32 */
    while (!(fraction & 0x400)) {
        fraction <<= 1;
        exponent--;
    }
    return sign | exponent << 23 | (fraction & 0x3ff) << 13;
}

void ls_float16_widen(ls_float16 half, void *data, size_t count)
{
    const char *from = (const char *)data + count * sizeof(uint16_t);
    char *to = data;
    for (size_t i = 0; i < count; i++) {
        uint16_t narrow;
        memcpy(&narrow, from + i * sizeof narrow, sizeof narrow);
        uint32_t wide = half == LS_HALF_BF16 ? (uint32_t)narrow << 16 : widen_f16(narrow);
        memcpy(to + i * sizeof wide, &wide, sizeof wide);
    }
}
