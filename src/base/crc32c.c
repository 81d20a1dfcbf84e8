/* Four bits at a time: callers checksum only a few bytes per step. */
#include "base/crc32c.h"

/* Remainders of the four-bit numbers for the reflected polynomial 0x82F63B78. */
static const uint32_t remainders[16] = {
    0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D,
    0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9, 0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75,
};

uint32_t ls_crc32c(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t crc = 0xFFFFFFFFU;
    for (size_t i = 0; i < bytes; i++) {
        crc = remainders[(crc ^ at[i]) & 15] ^ (crc >> 4);
        crc = remainders[(crc ^ (at[i] >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}

uint32_t ls_crc32c_masked(const void *data, size_t bytes)
{
    uint32_t crc = ls_crc32c(data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}
