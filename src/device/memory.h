/* Allocator for the memory of one device. It takes regions from the device and divides them into
 * blocks. It knows the purpose and size of every block in use, and other users of the device cannot
 * fragment its regions. */
#ifndef LS_DEVICE_MEMORY_H
#define LS_DEVICE_MEMORY_H

#include "base/status.h"
#include "base/text.h"
#include "lockstep/device.h"

/* Source of regions. A region is a handle; on a CPU it is an address. */
typedef struct ls_region_source {
    void *device;
    ls_status (*take)(void *device, size_t bytes, void **region);
    void (*give)(void *device, void *region, size_t bytes);
    bool host; /* regions are addresses in this process, so the address sanitizer can check them */
} ls_region_source;

/* Host memory: pages of the process, huge pages for large regions. */
ls_region_source ls_region_host(void);

typedef struct ls_memory ls_memory;

typedef struct ls_block {
    void *region;
    size_t offset; /* a multiple of 64 */
    size_t bytes;  /* requested size */
} ls_block;

/* Creates an allocator. `name` is the device's, for messages (copied). limit 0: no limit. Without
 * growth, the whole limit is reserved now. */
ls_status ls_memory_open(const char *name, ls_region_source source, size_t limit, bool growth, ls_memory **out);
void ls_memory_close(ls_memory *memory); /* frees all blocks */

/* Allocates a block for `what` (the name of a tensor or of a plan's buffer; copied). Fails with
 * LS_ERR_MEMORY, naming the device, `what`, the size, the memory in use and the limit.
 * Thread-safe. */
ls_status ls_memory_take(ls_memory *memory, size_t bytes, const char *what, ls_block **out);
void ls_memory_give(ls_memory *memory, ls_block *block); /* NULL is allowed */

/* Bytes that blocks of whole pages can still use: what the limit leaves, less a reserve for small
 * blocks. SIZE_MAX without a limit. */
size_t ls_memory_room(ls_memory *memory);

ls_memory_info ls_memory_usage(ls_memory *memory);

/* Writes one line per name, "  12.50 MiB dense/kernel", largest first; blocks of equal names are
 * added up. */
ls_status ls_memory_print(ls_memory *memory, ls_text *text);

#endif
