/* The memory of one device: regions are taken from the device and kept until it is closed; blocks are given out of
 * them. So nothing is fragmented by others, and how much is in use, and by whom, is always known. */
#ifndef LS_DEVICE_MEMORY_H
#define LS_DEVICE_MEMORY_H

#include "base/status.h"
#include "base/text.h"
#include "lockstep/device.h"

/* Where regions come from. A region is a handle; of a CPU it is an address. */
typedef struct ls_region_source {
    void *device;
    ls_status (*take)(void *device, size_t bytes, void **region);
    void (*give)(void *device, void *region, size_t bytes);
    bool host; /* regions are addresses in this process: the address sanitizer is told what of them is free */
} ls_region_source;

/* Host memory: pages of the process, large ones where they fit. */
ls_region_source ls_region_host(void);

typedef struct ls_memory ls_memory;

typedef struct ls_block {
    void *region;
    size_t offset; /* a multiple of 64 */
    size_t bytes;  /* as asked for */
} ls_block;

/* name: of the device, for messages (copied). limit 0: none. Without growth a limit is reserved now. */
ls_status ls_memory_open(const char *name, ls_region_source source, size_t limit, bool growth, ls_memory **out);
void ls_memory_close(ls_memory *memory); /* blocks that are still out end here */

/* A block for `what` (a tensor's name, or what a plan calls it; copied). Fails with LS_ERR_MEMORY, naming the device,
 * what it was for, its bytes, what is in use and the limit; nothing is taken then. May be called by any thread. */
ls_status ls_memory_take(ls_memory *memory, size_t bytes, const char *what, ls_block **out);
void ls_memory_give(ls_memory *memory, ls_block *block); /* NULL: nothing */

/* What blocks of whole pages together can count on: what the limit leaves, less what small blocks beside them may cost;
 * SIZE_MAX without a limit. */
size_t ls_memory_room(ls_memory *memory);

ls_memory_info ls_memory_usage(ls_memory *memory);

/* "  12.50 MiB dense/kernel" a line, equal names added up, largest first. */
ls_status ls_memory_print(ls_memory *memory, ls_text *text);

#endif
