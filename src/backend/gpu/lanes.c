/* Merges the launches of several lanes, whose steps are lowered one after another. A launch of the
 * same kernel on the same memory is merged with that of earlier lanes if it comes after the launch
 * that this lane joined last, which keeps each lane's launches in order. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/driver.h"
#include "base/grow.h"

static atomic_llong launches;

int64_t ls_gpu_launches(void)
{
    return atomic_load(&launches);
}

void ls_gpu_count_launches(int count)
{
    atomic_fetch_add(&launches, count);
}

struct ls_gpu_record {
    ls_gpu_recorded *list;
    int count;
    size_t room;
    unsigned char *table;
    size_t bytes, table_room;
    int lanes;
    int step; /* index of the current step */
    int next; /* that the current lane may join */
    int kept; /* not removed by record_drop */
    size_t kept_bytes;
};

ls_gpu_record *ls_gpu_record_create(void)
{
    return calloc(1, sizeof(ls_gpu_record));
}

void ls_gpu_record_destroy(ls_gpu_record *r)
{
    if (!r)
        return;
    free(r->list);
    free(r->table);
    free(r);
}

void ls_gpu_record_begin(ls_gpu_record *r, int lanes)
{
    r->count = 0;
    r->bytes = 0;
    ls_gpu_record_more(r, lanes);
}

void ls_gpu_record_more(ls_gpu_record *r, int lanes)
{
    r->step = r->next = r->kept = r->count;
    r->kept_bytes = r->bytes;
    r->lanes = lanes;
}

void ls_gpu_record_drop(ls_gpu_record *r)
{
    r->count = r->step = r->next = r->kept;
    r->bytes = r->kept_bytes;
}

void ls_gpu_record_step(ls_gpu_record *r)
{
    r->step = r->next = r->count;
}

void ls_gpu_record_lane(ls_gpu_record *r)
{
    r->next = r->step;
}

static bool is_same(const ls_gpu_recorded *a, const ls_gpu_recorded *b)
{
    if (a->kernel.handle != b->kernel.handle || a->kernel.which != b->kernel.which || a->grid.entry != b->grid.entry ||
        a->grid.group != b->grid.group)
        return false;
    for (int i = 0; i < a->grid.places; i++)
        if (a->grid.memory[i] != b->grid.memory[i])
            return false;
    return true;
}

static ls_status need_room(unsigned char **table, size_t *has, size_t wanted)
{
    size_t room = wanted > 2 * *has ? wanted : 2 * *has;
    if (wanted <= *has)
        return LS_OK;
    unsigned char *larger = realloc(*table, room);
    if (!larger)
        return ls_fail(LS_ERR_MEMORY, "no memory to launch kernels");
    *table = larger;
    *has = room;
    return LS_OK;
}

static ls_status append(ls_gpu_record *r, const ls_gpu_recorded *new)
{
    size_t bytes = new->grid.entry *(size_t)r->lanes, wanted = r->bytes + bytes;
    LS_TRY(ls_grow(&r->list, (size_t)r->count, &r->room, sizeof(*r->list)));
    LS_TRY(need_room(&r->table, &r->table_room, wanted));
    r->list[r->count] = *new;
    r->list[r->count].table_at = r->bytes;
    r->count++;
    r->bytes = wanted;
    return LS_OK;
}

/* Offsets of the places, then the struct: the layout that LANE of prelude.cl reads. */
static void write_entry(ls_gpu_record *r, ls_gpu_recorded *to, const ls_gpu_launch *launch)
{
    unsigned char *entry = r->table + to->table_at + to->grid.entry * (size_t)to->grid.lanes;
    int64_t offset[LS_GPU_PLACES] = { 0 };
    for (int i = 0; i < launch->places; i++)
        offset[i] = (int64_t)launch->place[i].offset;
    if (to->kernel.which >= 0)
        offset[LS_GPU_WHICH] = to->kernel.which;
    memcpy(entry, offset, sizeof(offset));
    memcpy(entry + sizeof(offset), launch->numbers, launch->size);
    to->grid.lanes++;
    for (int i = 0; i < 2; i++)
        if (launch->items[i] > to->grid.items[i])
            to->grid.items[i] = launch->items[i];
}

ls_status ls_gpu_record_add(ls_gpu_record *r, ls_gpu_kernel_of kernel, const ls_gpu_launch *launch, int group)
{
    ls_gpu_recorded new = { .kernel = kernel };
    new.grid.places = ls_gpu_places(&kernel, launch);
    new.grid.entry = LS_GPU_PLACES * sizeof(int64_t) + launch->size;
    new.grid.group = group;
    for (int i = 0; i < new.grid.places; i++) /* unused places repeat the first */
        new.grid.memory[i] = launch->place[i < launch->places ? i : 0].memory;
    snprintf(new.name, sizeof(new.name), "%s", launch->kernel);
    int at = r->next;
    while (at < r->count && !is_same(&r->list[at], &new))
        at++;
    if (at == r->count)
        LS_TRY(append(r, &new));
    write_entry(r, &r->list[at], launch);
    r->next = at + 1;
    return LS_OK;
}

ls_status ls_gpu_record_save(const ls_gpu_record *r, ls_gpu_saved *to)
{
    to->count = 0;
    to->bytes = r->bytes - r->kept_bytes;
    LS_TRY(need_room(&to->table, &to->table_room, to->bytes));
    if (to->bytes > 0)
        memcpy(to->table, r->table + r->kept_bytes, to->bytes);
    for (int i = r->kept; i < r->count; i++) {
        LS_TRY(ls_grow(&to->list, (size_t)to->count, &to->room, sizeof(*to->list)));
        to->list[to->count] = r->list[i];
        to->list[to->count++].table_at -= r->kept_bytes;
    }
    return LS_OK;
}

ls_status ls_gpu_record_again(ls_gpu_record *r, const ls_gpu_saved *from)
{
    LS_TRY(need_room(&r->table, &r->table_room, r->bytes + from->bytes));
    if (from->bytes > 0)
        memcpy(r->table + r->bytes, from->table, from->bytes);
    for (int i = 0; i < from->count; i++) {
        LS_TRY(ls_grow(&r->list, (size_t)r->count, &r->room, sizeof(*r->list)));
        r->list[r->count] = from->list[i];
        r->list[r->count++].table_at += r->bytes;
    }
    r->bytes += from->bytes;
    return LS_OK;
}

void ls_gpu_saved_free(ls_gpu_saved *saved)
{
    free(saved->list);
    free(saved->table);
}

const ls_gpu_recorded *ls_gpu_record_list(const ls_gpu_record *r, int *count)
{
    *count = r->count;
    return r->list;
}

const void *ls_gpu_record_table(const ls_gpu_record *r, size_t *bytes)
{
    *bytes = r->bytes;
    return r->table;
}

const ls_gpu_call *ls_gpu_record_call(const ls_gpu_record *r, const ls_gpu_recorded *of, int lane,
                                      ls_memory_place at[LS_GPU_PLACES])
{
    const unsigned char *entry = r->table + of->table_at + of->grid.entry * (size_t)lane;
    const int64_t *offset = (const int64_t *)(const void *)entry;
    for (int i = 0; i < of->grid.places; i++)
        at[i] = (ls_memory_place){ of->grid.memory[i], (size_t)offset[i] };
    return (const ls_gpu_call *)(const void *)(entry + LS_GPU_PLACES * sizeof(*offset));
}
