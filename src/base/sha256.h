/* SHA-256 through libcrypto. */
#ifndef LS_BASE_SHA256_H
#define LS_BASE_SHA256_H

#include <stddef.h>

#include "lockstep/base.h"

typedef struct ls_sha256 ls_sha256;

ls_status ls_sha256_begin(ls_sha256 **out);
ls_status ls_sha256_add(ls_sha256 *hash, const void *data, size_t bytes);
/* Writes 64 hex digits and a zero, and destroys `hash`, also on failure. */
ls_status ls_sha256_end(ls_sha256 *hash, char hex[65]);
void ls_sha256_destroy(ls_sha256 *hash);
ls_status ls_sha256_of(const void *data, size_t bytes, char hex[65]);

#endif
