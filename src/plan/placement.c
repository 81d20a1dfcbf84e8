/* Placement: maps from tasks to devices. */
#include "plan/plan.h"

static int even_device(void *user, int segment, int lane)
{
    const ls_even_share *share = user;
    (void)segment;
    return (int)((int64_t)lane * share->devices / share->lanes);
}

ls_map ls_map_evenly(ls_even_share *share)
{
    return (ls_map){ .devices = share->devices, .device = even_device, .user = share };
}
