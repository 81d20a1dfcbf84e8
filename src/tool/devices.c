/* lockstep devices: what the machine has, what this process may use of it and why, and what decides the bits. */
#include "tool/tool.h"

#include <ctype.h>

#include "base/json.h"
#include "run/runtime.h"

static ls_status check(const ls_options *options, tool_settings *settings)
{
    return tool_check_devices(options, settings);
}

/* What there is to tell. */
typedef struct machine {
    const ls_context *ctx;
    const ls_runtime *runtime;
    size_t l2;
    ls_device_info *physical, *logical;
    size_t physical_count, logical_count;
    char *bit_class;
} machine;

static ls_status look(ls_context *ctx, machine *out)
{
    ls_runtime *runtime;
    out->l2 = ls_cores_l2_bytes();
    out->ctx = ctx;
    LS_TRY(ls_list_physical_devices(ctx, NULL, &out->physical, &out->physical_count));
    LS_TRY(ls_list_logical_devices(ctx, NULL, &out->logical, &out->logical_count));
    LS_TRY(ls_runtime_of(ctx, &runtime));
    out->runtime = runtime;
    return ls_bit_class(ctx, &out->bit_class);
}

/* "23.5 GiB", "512 MiB" */
static const char *bytes_text(size_t bytes, char text[32])
{
    if (bytes >= (size_t)10 << 30)
        snprintf(text, 32, "%.1f GiB", (double)bytes / 0x1p30);
    else
        snprintf(text, 32, "%zu MiB", bytes >> 20);
    return text;
}

/* "cpu:0": what a user types. */
static const char *short_name(const ls_device_info *d, char text[32])
{
    snprintf(text, 32, "%s:%d", d->kind, d->number);
    for (char *c = text; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return text;
}

static void print_physical(const ls_device_info *d)
{
    char bytes[32];
    printf("  %s  %s  %s%s\n", d->name, d->about[0] ? d->about : "", d->memory ? bytes_text(d->memory, bytes) : "",
           d->visible ? "" : "  (not visible)");
}

static void print_logical(const machine *m, size_t index)
{
    char bytes[32];
    const ls_device_info *d = &m->logical[index];
    const ls_device *device = &m->ctx->devices[index];
    char name[32];
    printf("  %s  %s", short_name(d, name), d->name);
    if (d->cores)
        printf("  %d worker%s", d->cores, d->cores == 1 ? "" : "s");
    for (int w = 0; d->cores && m->runtime->cores && w < d->cores; w++)
        printf("%s %d", w ? "" : d->cores == 1 ? " on core" : " on cores", m->runtime->cores[device->first_worker + w]);
    if (d->memory)
        printf("  memory limit %s, %s", bytes_text(d->memory, bytes), d->growth ? "grows" : "reserved");
    printf("\n");
}

static void print_text(const machine *m)
{
    const ls_cores *cores = &m->ctx->cores;
    printf("CPU: %s; L2 %zu KiB%s\n", cores->reason, m->l2 >> 10, m->l2 ? "" : " (not known)");
    if (m->ctx->crowded)
        printf("%d workers take turns on %d cores\n", m->runtime->cpu_workers, cores->count);
    printf("physical devices:\n");
    for (size_t i = 0; i < m->physical_count; i++)
        print_physical(&m->physical[i]);
    printf("logical devices:\n");
    for (size_t i = 0; i < m->logical_count; i++)
        print_logical(m, i);
    printf("bit class: %s\n", m->bit_class);
}

static json_t *physical_json(const ls_device_info *d)
{
    return json_pack("{s:s, s:s, s:i, s:I, s:b, s:i, s:s}", "name", d->name, "kind", d->kind, "number", d->number,
                     "memory_bytes", (json_int_t)d->memory, "visible", d->visible, "cores", d->cores, "about",
                     d->about);
}

static json_t *logical_json(const machine *m, size_t index)
{
    const ls_device_info *d = &m->logical[index];
    json_t *cores = json_array();
    for (int w = 0; d->cores && m->runtime->cores && w < d->cores; w++)
        json_array_append_new(cores, json_integer(m->runtime->cores[m->ctx->devices[index].first_worker + w]));
    char name[32];
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:o, s:I, s:b}", "name", short_name(d, name), "full_name", d->name,
                     "kind", d->kind, "physical", d->physical, "workers", d->cores, "bound_to", cores, "memory_limit",
                     (json_int_t)d->memory, "memory_growth", d->growth);
}

static ls_status print_json(const machine *m)
{
    json_t *physical = json_array(), *logical = json_array();
    for (size_t i = 0; i < m->physical_count; i++)
        json_array_append_new(physical, physical_json(&m->physical[i]));
    for (size_t i = 0; i < m->logical_count; i++)
        json_array_append_new(logical, logical_json(m, i));
    const ls_cores *cores = &m->ctx->cores;
    json_t *all = json_pack("{s:i, s:s, s:i, s:I, s:s, s:o, s:o}", "cores", cores->count, "reason", cores->reason,
                            "quota", cores->quota, "l2_bytes", (json_int_t)m->l2, "bit_class", m->bit_class,
                            "physical_devices", physical, "devices", logical);
    char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (text == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for the list of devices");
    printf("%s\n", text);
    free(text);
    return LS_OK;
}

static ls_status run(const tool_settings *settings)
{
    tool_session session = { 0 };
    machine m = { .l2 = 0 };
    ls_status status = tool_open_context(settings, &session);
    if (status == LS_OK)
        status = look(session.ctx, &m);
    if (status == LS_OK && settings->json)
        status = print_json(&m);
    else if (status == LS_OK)
        print_text(&m);
    free(m.bit_class);
    free(m.physical);
    free(m.logical);
    tool_close(&session);
    return status;
}

const tool_command tool_devices = {
    .name = "devices",
    .arguments = "",
    .summary = "the devices, the cores that may be used and why, and the bit class",
    .details = "Lists devices, the cores that this process may use and why, and what decides the bits of results.",
    .tables = { &tool_count_flags, &tool_json_flags },
    .check = check,
    .run = run,
};
