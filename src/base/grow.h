/* Growing arrays: a pointer, a number of elements and a capacity (`room`). */
#ifndef LS_BASE_GROW_H
#define LS_BASE_GROW_H

#include "base/status.h"

/* Makes room for one more element after `count` elements; doubles the capacity if the array is
 * full. `array` is the address of the pointer, of any pointer type. On failure the array and the
 * capacity are unchanged. */
ls_status ls_grow(void *array, size_t count, size_t *room, size_t element_bytes);

#endif
