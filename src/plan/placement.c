/* Placement: maps from tasks to devices. */
#include "plan/plan.h"

static int even_device(void *user, int segment, int lane)
{
    const ls_even_share *share = user;
    (void)segment;
    int place = (int)((int64_t)lane * share->devices / share->lanes);
    return share->list ? share->list[place] : place;
}

ls_map ls_map_evenly(ls_even_share *share)
{
    return (ls_map){ .devices = share->available, .device = even_device, .user = share };
}
