/* Which devices a strategy names: "cpu:0,cpu:1", "cpu:0-3". */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "train/training.h"

static ls_status bad_name(const char *name, size_t length, int available)
{
    return ls_fail(LS_ERR_NOT_FOUND,
                   "device \"%.*s\": a CPU device is named cpu:N or cpu:FIRST-LAST, and there are cpu:0 to cpu:%d",
                   (int)length, name, available - 1);
}

/* One part of the list: appends its devices. */
static ls_status add_part(const char *part, size_t length, int available, int *list, int *count)
{
    const char *at = part[0] == '/' ? part + 1 : part, *end = part + length;
    char *after;
    if (end - at < 5 || strncasecmp(at, "cpu:", 4) != 0 || at[4] < '0' || at[4] > '9')
        return bad_name(part, length, available);
    long first = strtol(at + 4, &after, 10), last = first;
    if (*after == '-' && after[1] >= '0' && after[1] <= '9')
        last = strtol(after + 1, &after, 10);
    if (after != end || first > last || last >= available)
        return bad_name(part, length, available);
    for (long d = first; d <= last; d++) {
        for (int i = 0; i < *count; i++)
            if (list[i] == d)
                return ls_fail(LS_ERR_INVALID, "device cpu:%ld stands twice in the list", d);
        list[(*count)++] = (int)d;
    }
    return LS_OK;
}

static ls_status parse(const char *devices, int available, int *list, int *count)
{
    for (const char *part = devices;;) {
        size_t length = strcspn(part, ",");
        LS_TRY(add_part(part, length, available, list, count));
        if (part[length] == '\0')
            return LS_OK;
        part += length + 1;
    }
}

ls_status ls_device_list(const ls_strategy *strategy, int available, int **list, int *count)
{
    int *made = calloc((size_t)available + 1, sizeof(*made)), found = 0;
    if (!made)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %d devices", available);
    ls_status status = LS_OK;
    if (strategy->devices)
        status = parse(strategy->devices, available, made, &found);
    else
        for (; found < (strategy->kind == LS_STRATEGY_ONE_DEVICE ? 1 : available); found++)
            made[found] = found;
    if (status == LS_OK && strategy->kind == LS_STRATEGY_ONE_DEVICE && found != 1)
        status = ls_fail(LS_ERR_INVALID, "the strategy one-device was given %d devices", found);
    if (status != LS_OK) {
        free(made);
        return status;
    }
    *list = made;
    *count = found;
    return LS_OK;
}
