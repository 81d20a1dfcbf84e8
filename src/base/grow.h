/* The one growing array: a pointer, how many elements there are, and for how many there is room. */
#ifndef LS_BASE_GROW_H
#define LS_BASE_GROW_H

#include "base/status.h"

/* Room for one more element behind `count`: twice as many as before where there is none. `array` points to the pointer,
 * of whatever type. On failure array and room are as they were. */
ls_status ls_grow(void *array, size_t count, size_t *room, size_t element_bytes);

#endif
