/* The secret key that the workers of a job share. It is in a file that only its owner can read, and
 * in memory on a page that core dumps leave out; never in a variable, an argument or a message. */
#ifndef LS_FABRIC_TRANSPORT_KEY_H
#define LS_FABRIC_TRANSPORT_KEY_H

#include "base/status.h"

#define LS_KEY_BYTES 32

typedef struct ls_key ls_key;

/* Refuses a file of another owner or size, or one that other users could read. */
ls_status ls_key_read(const char *path, ls_key **out);
void ls_key_free(ls_key *key); /* wipes it */

/* Derives a secret for one purpose: HMAC-SHA-256 of `purpose`. It reveals nothing about the key. */
ls_status ls_key_derive(const ls_key *key, const void *purpose, size_t bytes, unsigned char out[LS_KEY_BYTES]);

#endif
