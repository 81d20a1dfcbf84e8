/* Variables on devices that are not CPUs. */
#include "run/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "device/calls.h"
#include "graph/shared_weights.h"

#define ALIGN 64
/* Vectors are whole pages, as memory is counted. */
#define PAGE 4096

/* A variable's range of the vectors. */
typedef struct part {
    size_t offset, bytes;
    bool here;
    bool coming;         /* Requested, not yet known to have arrived. */
    uint64_t version[2]; /* Version in each vector; 0: none. */
} part;

struct ls_state {
    ls_graph *graph;
    ls_device *device;
    part *parts; /* By variable number. */
    size_t part_count;
    size_t used, room;  /* Bytes of a vector: used, and allocated. */
    ls_block *block[2]; /* NULL: not allocated yet. */
    int read;           /* Index of the vector that runs read. */
};

ls_status ls_state_create(ls_graph *graph, int device, ls_state **out)
{
    ls_state *s = calloc(1, sizeof(*s));
    if (!s)
        return ls_fail(LS_ERR_MEMORY, "no memory for the state of a device");
    s->graph = graph;
    s->device = &graph->context->devices[device];
    *out = s;
    return LS_OK;
}

static void give_blocks(ls_state *s)
{
    for (int i = 0; i < 2; i++) {
        ls_memory_give(s->device->memory, s->block[i]);
        s->block[i] = NULL;
    }
    s->room = 0;
}

void ls_state_destroy(ls_state *s)
{
    if (!s)
        return;
    give_blocks(s);
    free(s->parts);
    free(s);
}

void ls_state_trim(ls_state *s, size_t variables)
{
    s->part_count = s->part_count < variables ? s->part_count : variables;
    s->used = 0;
    for (size_t i = 0; i < s->part_count; i++)
        if (s->parts[i].here && s->parts[i].offset + s->parts[i].bytes > s->used)
            s->used = s->parts[i].offset + s->parts[i].bytes;
}

static part *part_of(const ls_state *s, const ls_variable *variable)
{
    return variable->number < s->part_count ? &s->parts[variable->number] : NULL;
}

static bool is_here(const ls_state *s, const ls_variable *variable)
{
    const part *p = part_of(s, variable);
    return p && p->here && p->bytes == variable->bytes;
}

static size_t bytes_after(const ls_state *s, ls_variable *const *variables, int count)
{
    size_t used = s->used;
    for (int i = 0; i < count; i++)
        if (!is_here(s, variables[i]))
            used = ls_size_align(used, ALIGN) + variables[i]->bytes;
    return ls_size_align(used, PAGE);
}

size_t ls_state_growth(const ls_state *s, ls_variable *const *variables, int count)
{
    size_t bytes = bytes_after(s, variables, count);
    return bytes <= s->room && s->block[0] ? 0 : 2 * (bytes - s->room);
}

static ls_status make_parts(ls_state *s, size_t count)
{
    if (count <= s->part_count)
        return LS_OK;
    part *grown = realloc(s->parts, count * sizeof(*grown));
    if (!grown)
        return ls_fail(LS_ERR_MEMORY, "no memory for the state of %zu variables", count);
    memset(grown + s->part_count, 0, (count - s->part_count) * sizeof(*grown));
    s->parts = grown;
    s->part_count = count;
    return LS_OK;
}

static ls_status take_blocks(ls_state *s, size_t bytes)
{
    for (int i = 0; i < 2; i++) {
        ls_status status = ls_memory_take(s->device->memory, bytes, "variables", &s->block[i]);
        if (status != LS_OK) {
            give_blocks(s);
            return status;
        }
    }
    s->room = bytes;
    return LS_OK;
}

/* Values of the old vectors come from the host again, after copying them there if necessary. */
static ls_status grow(ls_state *s, size_t bytes)
{
    for (size_t i = 0; i < s->graph->variable_count; i++)
        if (is_here(s, s->graph->variables[i]))
            LS_TRY(ls_variable_sync_to_host(s->graph->variables[i]));
    give_blocks(s);
    for (size_t i = 0; i < s->part_count; i++)
        s->parts[i].version[0] = s->parts[i].version[1] = 0;
    return take_blocks(s, bytes);
}

ls_status ls_state_add(ls_state *s, ls_variable *const *variables, int count)
{
    size_t bytes = bytes_after(s, variables, count);
    if (count == 0)
        return LS_OK;
    LS_TRY(make_parts(s, s->graph->variable_count));
    if (bytes > s->room || !s->block[0])
        LS_TRY(grow(s, bytes ? bytes : PAGE));
    for (int i = 0; i < count; i++)
        if (!is_here(s, variables[i])) {
            size_t offset = ls_size_align(s->used, ALIGN);
            *part_of(s, variables[i]) = (part){ .offset = offset, .bytes = variables[i]->bytes, .here = true };
            s->used = offset + variables[i]->bytes;
        }
    return LS_OK;
}

size_t ls_state_offset(const ls_state *s, const ls_variable *variable)
{
    return part_of(s, variable)->offset;
}

/* ---- Copies to the device ---- */

static ls_memory_place vector(const ls_state *s, int which)
{
    return (ls_memory_place){ s->block[which]->region, s->block[which]->offset };
}

static ls_memory_place place_of(const ls_state *s, int which, const ls_variable *variable)
{
    ls_memory_place at = vector(s, which);
    at.offset += part_of(s, variable)->offset;
    return at;
}

/* Returns -1 if neither vector has the newest value. */
static int newest(const ls_state *s, const ls_variable *variable)
{
    if (!is_here(s, variable) || !s->block[0])
        return -1;
    const part *p = part_of(s, variable);
    return p->version[s->read] == variable->version    ? s->read
           : p->version[!s->read] == variable->version ? !s->read
                                                       : -1;
}

static void count_copy(const ls_state *s, const ls_variable *variable, int from, int to)
{
    char label[LS_NODE_TEXT];
    ls_context_count_copy(s->graph->context, ls_node_label(variable->node, label), from, to, variable->bytes);
}

/* Waits until the other device's queue has finished with the value. */
static ls_status copy_from(ls_state *s, ls_state *from, const ls_variable *variable)
{
    ls_memory_place to = place_of(s, s->read, variable), at = place_of(from, newest(from, variable), variable);
    if (from != s) {
        LS_TRY(ls_device_sync(from->device));
        count_copy(s, variable, from->device->index, s->device->index);
    }
    return ls_device_copy(s->device, to.memory, to.offset, from->device, at.memory, at.offset, variable->bytes);
}

static ls_status upload(ls_state *s, ls_variable *variable)
{
    ls_memory_place to = place_of(s, s->read, variable);
    LS_TRY(ls_variable_sync_to_host(variable));
    int cpu = variable->device > 0 && variable->device < s->graph->context->cpu_count ? variable->device : 0;
    count_copy(s, variable, cpu, s->device->index);
    return ls_device_upload(s->device, to.memory, to.offset, variable->data, variable->bytes);
}

/* If another device fails, tries the next source. */
static ls_status bring(ls_state *s, ls_state *const *others, ls_variable *variable)
{
    part_of(s, variable)->coming = true;
    if (!s->device->backend->copy)
        return upload(s, variable);
    if (newest(s, variable) >= 0)
        return copy_from(s, s, variable);
    for (int d = 0; d < s->graph->context->device_count; d++)
        if (others[d] && others[d]->device->kind == s->device->kind && newest(others[d], variable) >= 0 &&
            copy_from(s, others[d], variable) == LS_OK)
            return LS_OK;
    return upload(s, variable);
}

/* Chooses the vector with more of what the run writes, or of everything if it writes nothing; the
 * rest is copied once and is then in both. */
static void choose_vector(ls_state *s, ls_variable *const *variables, int count)
{
    size_t bytes[2] = { 0, 0 };
    for (int i = 0; i < count; i++)
        for (int which = 0; which < 2; which++)
            if (part_of(s, variables[i])->version[which] == variables[i]->version)
                bytes[which] += variables[i]->bytes;
    s->read = bytes[1] > bytes[0] ? 1 : bytes[0] > bytes[1] ? 0 : s->read;
}

static ls_status bring_all(ls_state *s, ls_state *const *others, ls_variable *const *variables, int count)
{
    const ls_variable *last = NULL;
    ls_status status = LS_OK;
    char label[LS_NODE_TEXT];
    for (int i = 0; i < count && status == LS_OK; i++)
        if (part_of(s, variables[i])->version[s->read] != variables[i]->version) {
            last = variables[i];
            status = bring(s, others, variables[i]);
        }
    if (last && status == LS_OK)
        status = ls_device_sync(s->device);
    return last ? ls_fail_within(status, "%s (op variable): copying to %s", ls_node_label(last->node, label),
                                 s->device->name)
                : LS_OK;
}

ls_status ls_state_bring(ls_state *s, ls_state *const *others, ls_variable *const *variables, int count, int written)
{
    if (count > 0 && !s->block[0]) /* Larger vectors could not be allocated. */
        LS_TRY(take_blocks(s, ls_size_align(s->used ? s->used : 1, PAGE)));
    choose_vector(s, variables, written ? written : count);
    ls_status status = bring_all(s, others, variables, count);
    for (int i = 0; i < count; i++) {
        part *p = part_of(s, variables[i]);
        if (p->coming)
            p->version[s->read] = status == LS_OK ? variables[i]->version : 0;
        p->coming = false;
    }
    /* Invalid from here on, whether the run succeeds or fails. */
    for (int i = 0; i < written && status == LS_OK; i++)
        part_of(s, variables[i])->version[!s->read] = 0;
    return status;
}

ls_memory_place ls_state_read(const ls_state *s)
{
    return s->block[0] ? vector(s, s->read) : (ls_memory_place){ NULL, 0 };
}

ls_memory_place ls_state_written(const ls_state *s)
{
    return s->block[0] ? vector(s, !s->read) : (ls_memory_place){ NULL, 0 };
}

void ls_state_commit(ls_state *s, const ls_variable *variable)
{
    part_of(s, variable)->version[!s->read] = variable->version;
}

bool ls_state_has(const ls_state *s, const ls_variable *variable)
{
    return newest(s, variable) >= 0;
}

ls_status ls_state_get(ls_state *s, const ls_variable *variable, void *data)
{
    ls_memory_place at = place_of(s, newest(s, variable), variable);
    pthread_mutex_lock(&s->graph->context->devices_mutex);
    ls_status status = ls_device_download(s->device, at.memory, at.offset, data, variable->bytes);
    pthread_mutex_unlock(&s->graph->context->devices_mutex);
    if (status == LS_OK)
        return LS_OK;
    char label[LS_NODE_TEXT];
    return ls_fail_within(status, "%s (op variable): copying from %s", ls_node_label(variable->node, label),
                          s->device->name);
}

ls_status ls_state_download(ls_state *s, ls_variable *variable)
{
    LS_TRY(ls_writes_begin(s->graph, &variable, 1));
    ls_status status = ls_state_get(s, variable, variable->data);
    if (status == LS_OK)
        variable->in_host = variable->version;
    ls_writes_end(s->graph);
    LS_TRY(status);
    int cpu = variable->device > 0 && variable->device < s->graph->context->cpu_count ? variable->device : 0;
    count_copy(s, variable, s->device->index, cpu);
    return LS_OK;
}
