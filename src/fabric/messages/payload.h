/* Reference-counted bytes that several messages may share. */
#ifndef LS_FABRIC_MESSAGES_PAYLOAD_H
#define LS_FABRIC_MESSAGES_PAYLOAD_H

#include "base/status.h"

typedef struct ls_payload ls_payload;
ls_status ls_payload_make(size_t bytes, ls_payload **out); /* 64-byte aligned */
ls_payload *ls_payload_keep(ls_payload *payload);
void ls_payload_drop(ls_payload *payload); /* NULL is allowed */
void *ls_payload_bytes(ls_payload *payload);
size_t ls_payload_size(const ls_payload *payload);

#endif
