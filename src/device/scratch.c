/* Scratch memory: one block for all plans of a device, because their programs run one after the
 * other. It is as large as the largest plan needs and counts toward the limit. */
#include "device/scratch.h"

#include "device/calls.h"

/* block NULL: none. */
static ls_status use(ls_device *device, const ls_block *block)
{
    ls_memory_place none = { NULL, 0 };
    return ls_device_use_scratch(device, block ? (ls_memory_place){ block->region, block->offset } : none,
                                 block ? block->bytes : 0);
}

static ls_status take(ls_device *device, size_t bytes, ls_block **out)
{
    ls_block *block = NULL;
    LS_TRY(ls_memory_take(device->memory, bytes, "scratch memory of kernels", &block));
    ls_status status = use(device, block);
    if (status != LS_OK) {
        ls_memory_give(device->memory, block);
        return status;
    }
    *out = block;
    return LS_OK;
}

/* Programs of other plans wait meanwhile. */
static void set_moves(ls_device *device, bool moves)
{
    pthread_mutex_lock(&device->mutex);
    device->scratch_moves = moves;
    pthread_cond_broadcast(&device->moved);
    pthread_mutex_unlock(&device->mutex);
}

static ls_status take_in_place(ls_device *device, size_t bytes)
{
    size_t had = device->scratch->bytes;
    ls_error failure;
    (void)use(device, NULL);
    ls_memory_give(device->memory, device->scratch);
    device->scratch = NULL;
    ls_status status = take(device, bytes, &device->scratch);
    if (status == LS_OK)
        return LS_OK;
    ls_error_keep(&failure, status); /* others continue with the old size */
    (void)take(device, had, &device->scratch);
    return ls_error_give(&failure);
}

/* Allocates a larger block beside the old one, or in its place if both do not fit. */
static ls_status grow(ls_device *device, size_t bytes)
{
    ls_block *old = device->scratch;
    ls_status status = take(device, bytes, &device->scratch);
    if (status == LS_OK || !old) {
        ls_memory_give(device->memory, status == LS_OK ? old : NULL);
        return status;
    }
    set_moves(device, true);
    status = take_in_place(device, bytes);
    set_moves(device, false);
    return status;
}

ls_status ls_device_take_scratch(ls_device *device, size_t bytes)
{
    ls_status status = LS_OK;
    pthread_mutex_lock(&device->scratch_mutex);
    if (!device->scratch || device->scratch->bytes < bytes)
        status = grow(device, bytes);
    device->scratch_users += status == LS_OK;
    device->scratch_lacks = status != LS_OK;
    pthread_mutex_unlock(&device->scratch_mutex);
    return status;
}

bool ls_device_lacks_scratch(ls_device *device)
{
    pthread_mutex_lock(&device->scratch_mutex);
    bool lacks = device->scratch_lacks;
    pthread_mutex_unlock(&device->scratch_mutex);
    return lacks;
}

void ls_device_give_scratch(ls_device *device)
{
    pthread_mutex_lock(&device->scratch_mutex);
    if (--device->scratch_users == 0) {
        (void)use(device, NULL);
        ls_memory_give(device->memory, device->scratch);
        device->scratch = NULL;
    }
    pthread_mutex_unlock(&device->scratch_mutex);
}
