/* Lifetimes to offsets: values that are not there at the same time may have the same room. */
#ifndef LS_PLAN_PACK_H
#define LS_PLAN_PACK_H

#include "base/status.h"

typedef struct ls_span {
    int first, last; /* when it is there, both included */
    size_t bytes;
    size_t *offset; /* to be set */
} ls_span;

typedef struct ls_hole {
    size_t offset, bytes;
} ls_hole;

typedef struct ls_packer {
    size_t guard; /* bytes behind every value */
    ls_span *spans;
    int count;
    size_t room;
    ls_hole *holes; /* by offset */
    int hole_count;
} ls_packer;

ls_status ls_packer_add(ls_packer *p, int first, int last, size_t bytes, size_t *offset);

/* Sets all offsets and says how many bytes they need; the spans are forgotten. */
ls_status ls_packer_pack(ls_packer *p, size_t *bytes);
void ls_packer_free(ls_packer *p);

#endif
