/* Allocator for the memory of one device: divides regions into blocks, whose purpose and size it
 * knows. Other users of the device cannot fragment its regions. */
#ifndef LS_DEVICE_MEMORY_H
#define LS_DEVICE_MEMORY_H

#include "base/status.h"
#include "base/text.h"
#include "lockstep/device.h"

/* A region is a handle; on a CPU, an address. */
typedef struct ls_region_source {
    void *device;
    ls_status (*take)(void *device, size_t bytes, void **region);
    void (*give)(void *device, void *region, size_t bytes);
    bool host; /* addresses of this process, which the address sanitizer can check */
} ls_region_source;

/* Pages of the process, huge ones for large regions. */
ls_region_source ls_region_host(void);

typedef struct ls_memory ls_memory;

typedef struct ls_block {
    void *region;
    size_t offset; /* a multiple of 64 */
    size_t bytes;  /* requested size */
} ls_block;

/* name: the device's, for messages (copied). limit 0: none. Without growth, reserves the whole
 * limit now. */
ls_status ls_memory_open(const char *name, ls_region_source source, size_t limit, bool growth, ls_memory **out);
void ls_memory_close(ls_memory *memory); /* and its blocks */

/* Allocates a block for `what` (a tensor or a plan's buffer; copied). LS_ERR_MEMORY names device,
 * `what`, size, memory in use and limit. Thread-safe. */
ls_status ls_memory_take(ls_memory *memory, size_t bytes, const char *what, ls_block **out);
void ls_memory_give(ls_memory *memory, ls_block *block); /* NULL is allowed */

/* Bytes left for blocks of whole pages: the limit's rest, less a reserve for small blocks. SIZE_MAX
 * without a limit. */
size_t ls_memory_available(ls_memory *memory);

ls_memory_info ls_memory_usage(ls_memory *memory);

/* One line per name, "  12.50 MiB dense/kernel", largest first; blocks of equal names are added
 * up. */
ls_status ls_memory_print(ls_memory *memory, ls_text *text);

#endif
