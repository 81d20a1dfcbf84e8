#ifndef LS_BASE_GROW_H
#define LS_BASE_GROW_H

#include "base/status.h"

/* Ensures that an array of `count` elements and the capacity `room` can hold one more; doubles the
 * capacity if not. `array` is the address of the pointer. On failure both are unchanged. */
ls_status ls_grow(void *array, size_t count, size_t *room, size_t element_bytes);

#endif
