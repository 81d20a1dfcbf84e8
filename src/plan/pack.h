/* Assigns offsets to values by their lifetimes: values that are never live at the same time may
 * share memory. */
#ifndef LS_PLAN_PACK_H
#define LS_PLAN_PACK_H

#include "base/status.h"

typedef struct ls_span {
    int first, last; /* Lifetime, inclusive. */
    size_t bytes;
    size_t *offset; /* Output. */
} ls_span;

typedef struct ls_hole {
    size_t offset, bytes;
} ls_hole;

typedef struct ls_packer {
    size_t guard; /* Unused bytes after every value. */
    ls_span *spans;
    int count;
    size_t room;
    ls_hole *holes; /* Sorted by offset. */
    int hole_count;
} ls_packer;

ls_status ls_packer_add(ls_packer *p, int first, int last, size_t bytes, size_t *offset);

/* Sets all offsets, returns the total bytes needed, and clears the list of spans. */
ls_status ls_packer_pack(ls_packer *p, size_t *bytes);
void ls_packer_free(ls_packer *p);

#endif
