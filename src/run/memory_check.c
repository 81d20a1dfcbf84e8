/* Compares what placed plans need with what devices have, and reports both. */
#include "run/memory_check.h"

static size_t state_bytes(const ls_placement *p, int device)
{
    const ls_place *place = &p->places[device];
    const ls_runs *runs = p->plan->graph->runs;
    size_t bytes = 0;
    if (place->state_count > 0 && runs->states[device])
        return ls_state_growth(runs->states[device], place->state, place->state_count);
    for (int i = 0; i < place->state_count; i++)
        bytes += ls_size_align(place->state[i]->bytes, LS_ALIGN);
    return 2 * ls_block_bytes(bytes);
}

static size_t all_bytes(const ls_placement *p, int device)
{
    return p->places[device].needed_bytes + p->places[device].fetched_bytes + state_bytes(p, device);
}

static bool has_room(const ls_placement *p, int device)
{
    size_t bytes = all_bytes(p, device);
    return bytes == 0 || bytes <= ls_memory_available(p->ctx->devices[device].memory);
}

int ls_memory_check_too_small(const ls_placement *p)
{
    for (int d = 0; d < p->ctx->device_count; d++)
        if (!has_room(p, d))
            return d;
    return -1;
}

#define MIB(bytes) ((double)(bytes) / 1048576)

/* What CPU devices hold and need together. */
static size_t host_bytes(const ls_placement *p)
{
    size_t bytes = 0;
    for (int d = 0; d < p->ctx->cpu_count; d++)
        bytes += ls_memory_usage(p->ctx->devices[d].memory).in_use + all_bytes(p, d);
    return bytes;
}

static bool host_has_room(const ls_placement *p)
{
    return p->ctx->memory.bytes == 0 || host_bytes(p) <= p->ctx->memory.bytes;
}

void ls_memory_check_describe_host(const ls_placement *p, ls_text *text)
{
    const ls_host_memory *host = &p->ctx->memory;
    if (!host_has_room(p))
        ls_text_add(text, "CPU devices need %.1f MiB, but this process may use %.1f MiB%s%s", MIB(host_bytes(p)),
                    MIB(host->bytes), *host->reason ? ": " : "", host->reason);
}

static bool fits_everywhere(const ls_placement *p)
{
    return ls_memory_check_too_small(p) < 0 && host_has_room(p);
}

/* Returns 0 if not even one sample fits. */
static int64_t largest_batch(ls_compilation *m, int64_t batch)
{
    int64_t fits = 0;
    while (batch - fits > 1) {
        int64_t middle = fits + (batch - fits) / 2;
        if (ls_compilation_make(m, middle) != LS_OK)
            return fits;
        bool fitting = fits_everywhere(m->placement);
        ls_compilation_drop(m);
        fits = fitting ? middle : fits;
        batch = fitting ? batch : middle;
    }
    return fits;
}

static void print_largest_batch(ls_compilation *m, int64_t batch, ls_text *text)
{
    int64_t fits = largest_batch(m, batch);
    if (fits > 0)
        ls_text_add(text, "a batch of %lld would fit, %lld does not", (long long)fits, (long long)batch);
    else
        ls_text_put(text, "not even a batch of 1 would fit");
}

static void print_parts(const ls_placement *p, int device, ls_text *text)
{
    const ls_place *place = &p->places[device];
    size_t kept = place->kept_bytes + (size_t)place->frames * place->frame_bytes;
    ls_text_add(text, "activations %.1f, workspace %.1f", MIB(kept),
                MIB(place->needed_bytes - place->sent_bytes - kept));
    if (place->sent_bytes > 0)
        ls_text_add(text, ", sent by other workers %.1f", MIB(place->sent_bytes));
    if (state_bytes(p, device) > 0)
        ls_text_add(text, ", state %.1f", MIB(state_bytes(p, device)));
    if (place->fetched_bytes > 0)
        ls_text_add(text, ", fetched values %.1f", MIB(place->fetched_bytes));
}

ls_status ls_memory_check_refuse(ls_compilation *m, int device, int64_t batch)
{
    ls_text text = { 0 };
    const ls_device *d = &m->graph->context->devices[device];
    ls_memory_info usage = ls_memory_usage(d->memory);
    ls_text_add(&text, "%s: this run needs %.1f MiB (", d->name, MIB(all_bytes(m->placement, device)));
    print_parts(m->placement, device, &text);
    ls_text_add(&text, ") in addition to %.1f in use (variables and values); the limit is %.1f MiB;", MIB(usage.in_use),
                MIB(usage.limit));
    ls_plan_print_largest(m->plan, &text, 3);
    ls_compilation_drop(m);
    if (batch > 0) {
        ls_text_put(&text, "; ");
        print_largest_batch(m, batch, &text);
    }
    ls_status status = ls_fail(LS_ERR_MEMORY, "%s", text.failed ? "no memory for a plan" : ls_text_get(&text));
    ls_text_free(&text);
    return status;
}

static void print_need(const ls_placement *p, int device, ls_text *text)
{
    ls_memory_info usage = ls_memory_usage(p->ctx->devices[device].memory);
    if (all_bytes(p, device) == 0 && usage.in_use == 0)
        return;
    ls_text_add(text, "%s: needs %.1f MiB: variables and values %.1f, ", p->ctx->devices[device].name,
                MIB(usage.in_use + all_bytes(p, device)), MIB(usage.in_use));
    print_parts(p, device, text);
    if (usage.limit)
        ls_text_add(text, "; limit %.1f MiB: %s", MIB(usage.limit), has_room(p, device) ? "fits" : "does not fit");
    ls_text_put(text, "\n");
}

ls_status ls_memory_check_print(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                                size_t count, int64_t batch, bool *fits, ls_text *text)
{
    ls_compilation m;
    LS_TRY(ls_compilation_start(graph, settings, fetches, count, batch, NULL, NULL, &m));
    LS_TRY(ls_compilation_make(&m, batch));
    for (int d = 0; d < graph->context->device_count; d++)
        print_need(m.placement, d, text);
    if (!host_has_room(m.placement)) {
        ls_memory_check_describe_host(m.placement, text);
        ls_text_put(text, ": does not fit\n");
    }
    *fits = fits_everywhere(m.placement);
    ls_status status = ls_plan_print_memory(m.plan, text);
    ls_compilation_drop(&m);
    if (status == LS_OK && !*fits && batch > 0) {
        print_largest_batch(&m, batch, text);
        ls_text_put(text, "\n");
    }
    return status;
}
