/* CRC-32C (Castagnoli), the checksum of TFRecord files. */
#ifndef LS_BASE_CRC32C_H
#define LS_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ls_crc32c(const void *data, size_t bytes);

/* Form that TFRecord stores: a checksum of data that contains checksums stays useful. */
uint32_t ls_crc32c_masked(const void *data, size_t bytes);

#endif
