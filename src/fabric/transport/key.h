/* The key of a job: what its workers have and nobody else. It lives in a file that only its owner can read, and in
 * memory on a page of its own that no core dump shows; it is in no variable, argument or message. */
#ifndef LS_FABRIC_TRANSPORT_KEY_H
#define LS_FABRIC_TRANSPORT_KEY_H

#include "base/status.h"

#define LS_KEY_BYTES 32

typedef struct ls_key ls_key;

/* Refuses a file of another owner or size, and one that others could read. */
ls_status ls_key_read(const char *path, ls_key **out);
void ls_key_free(ls_key *key); /* wipes it */

/* A secret for one purpose, which tells nothing about the key: HMAC-SHA-256 of `purpose` under it. */
ls_status ls_key_derive(const ls_key *key, const void *purpose, size_t bytes, unsigned char out[LS_KEY_BYTES]);

#endif
