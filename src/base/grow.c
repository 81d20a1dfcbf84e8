/* Growing arrays. */
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define FIRST_ROOM 16

ls_status ls_grow(void *array, size_t count, size_t *room, size_t element_bytes)
{
    if (count < *room)
        return LS_OK;
    size_t more = FIRST_ROOM, bytes = 0;
    void *old;
    memcpy(&old, array, sizeof(old)); /* works for pointers of any type */
    bool fits = (*room == 0 || ls_size_mul(*room, 2, &more)) && ls_size_mul(more, element_bytes, &bytes);
    void *grown = fits ? realloc(old, bytes ? bytes : 1) : NULL;
    if (!grown)
        return ls_fail(LS_ERR_MEMORY, "no memory for more than %zu elements of %zu bytes", count, element_bytes);
    memcpy(array, &grown, sizeof(grown));
    *room = more;
    return LS_OK;
}
