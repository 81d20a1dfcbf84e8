/* The command `lockstep devices`. */
#include "tool/tool.h"

#include <ctype.h>
#include <string.h>

/* Cores that a device's threads are bound to; none: not bound. */
typedef struct bound {
    int *cores;
    size_t count;
} bound;

typedef struct machine {
    ls_cpu_info cpu;
    ls_device_info *physical, *logical;
    size_t physical_count, logical_count;
    bound *bound; /* by logical device */
    char *bit_class, *drivers;
} machine;

static ls_status read_machine(ls_context *ctx, machine *out)
{
    LS_TRY(ls_list_physical_devices(ctx, NULL, &out->physical, &out->physical_count));
    LS_TRY(ls_list_logical_devices(ctx, NULL, &out->logical, &out->logical_count));
    LS_TRY(ls_get_cpu_info(ctx, &out->cpu));
    out->bound = calloc(out->logical_count, sizeof *out->bound);
    if (out->bound == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %zu devices", out->logical_count);
    for (size_t i = 0; i < out->logical_count; i++)
        LS_TRY(ls_list_device_cores(ctx, out->logical[i].name, &out->bound[i].cores, &out->bound[i].count));
    LS_TRY(ls_format_drivers(&out->drivers));
    return ls_bit_class(ctx, &out->bit_class);
}

static void free_machine(machine *m)
{
    for (size_t i = 0; m->bound && i < m->logical_count; i++)
        free(m->bound[i].cores);
    free(m->bound);
    free(m->bit_class);
    free(m->drivers);
    free(m->physical);
    free(m->logical);
}

/* Returns the name that a user types: "cpu:0". */
static const char *short_name(const ls_device_info *d, char text[32])
{
    snprintf(text, 32, "%s:%d", d->kind, d->number);
    for (char *c = text; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return text;
}

/* ---- Text ---- */

/* Formats as "23.5 GiB" or "512 MiB". */
static const char *bytes_text(size_t bytes, char text[32])
{
    if (bytes >= (size_t)10 << 30)
        snprintf(text, 32, "%.1f GiB", (double)bytes / 0x1p30);
    else
        snprintf(text, 32, "%zu MiB", bytes >> 20);
    return text;
}

/* Prints " on core 0" or " on cores 0-3,6". */
static void print_cores(const int *cores, size_t count)
{
    printf(" on core%s ", count == 1 ? "" : "s");
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && cores[next] == cores[next - 1] + 1;)
            next++;
        printf("%s%d", first ? "," : "", cores[first]);
        if (next > first + 1)
            printf("-%d", cores[next - 1]);
    }
}

static void print_physical(const machine *m, const ls_device_info *d)
{
    char bytes[32];
    printf("  %s  %s", d->name, d->about);
    if (d->cores && m->cpu.l2)
        printf("; L2 cache %zu KiB", m->cpu.l2 >> 10);
    if (d->memory)
        printf("%s%s of memory", d->about[0] ? "; " : "", bytes_text(d->memory, bytes));
    printf("%s\n", d->visible ? "" : " (not visible)");
}

static void print_threads(const machine *m, size_t index)
{
    int count = m->logical[index].cores;
    printf("%d thread%s", count, count == 1 ? "" : "s");
    if (m->bound[index].count > 0)
        print_cores(m->bound[index].cores, m->bound[index].count);
    else if (m->cpu.threads <= m->cpu.cores)
        printf(", not bound to cores");
}

static void print_logical(const machine *m, size_t index, int short_width, int full_width)
{
    const ls_device_info *d = &m->logical[index];
    char name[32], bytes[32];
    printf("  %-*s  %-*s  ", short_width, short_name(d, name), full_width, d->name);
    if (d->cores) {
        print_threads(m, index);
        printf("; ");
    }
    if (d->memory)
        printf("%s %s\n", bytes_text(d->memory, bytes), d->growth ? "at most" : "reserved");
    else
        printf("no memory limit\n");
}

static void print_all_logical(const machine *m)
{
    char name[32];
    size_t short_width = 0, full_width = 0;
    for (size_t i = 0; i < m->logical_count; i++) {
        size_t length = strlen(short_name(&m->logical[i], name)), full = strlen(m->logical[i].name);
        short_width = length > short_width ? length : short_width;
        full_width = full > full_width ? full : full_width;
    }
    for (size_t i = 0; i < m->logical_count; i++)
        print_logical(m, i, (int)short_width, (int)full_width);
}

static void print_text(const machine *m)
{
    printf("physical devices:\n");
    for (size_t i = 0; i < m->physical_count; i++)
        print_physical(m, &m->physical[i]);
    printf("logical devices:\n");
    print_all_logical(m);
    if (m->cpu.threads > m->cpu.cores)
        printf("  %d threads take turns on %d core%s\n", m->cpu.threads, m->cpu.cores, m->cpu.cores == 1 ? "" : "s");
    printf("drivers:\n");
    for (const char *line = m->drivers; *line; line += strcspn(line, "\n") + 1)
        printf("  %.*s\n", (int)strcspn(line, "\n"), line);
    printf("bit class:\n  %s\n", m->bit_class);
}

/* ---- JSON ---- */

/* null: unknown, or no limit. */
static json_t *bytes_json(size_t bytes)
{
    return bytes ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *physical_json(const ls_device_info *d)
{
    return json_pack("{s:s, s:s, s:i, s:s, s:o, s:b, s:i}", "name", d->name, "kind", d->kind, "number", d->number,
                     "about", d->about, "memory_bytes", bytes_json(d->memory), "visible", d->visible, "cores",
                     d->cores);
}

static json_t *logical_json(const machine *m, size_t index)
{
    const ls_device_info *d = &m->logical[index];
    json_t *cores = json_array();
    for (size_t w = 0; w < m->bound[index].count; w++)
        json_array_append_new(cores, json_integer(m->bound[index].cores[w]));
    char name[32];
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:b}", "name", short_name(d, name), "full_name", d->name,
                     "kind", d->kind, "number", d->number, "physical", d->physical, "workers", d->cores, "bound_to",
                     cores, "memory_limit_bytes", bytes_json(d->memory), "memory_growth", d->growth);
}

static ls_status print_json(const machine *m)
{
    json_t *physical = json_array(), *logical = json_array();
    for (size_t i = 0; i < m->physical_count; i++)
        json_array_append_new(physical, physical_json(&m->physical[i]));
    for (size_t i = 0; i < m->logical_count; i++)
        json_array_append_new(logical, logical_json(m, i));
    json_t *all = json_pack("{s:i, s:s, s:i, s:o, s:s, s:s, s:o, s:o}", "cores", m->cpu.cores, "reason", m->cpu.reason,
                            "quota", m->cpu.quota, "l2_bytes", bytes_json(m->cpu.l2), "bit_class", m->bit_class,
                            "drivers", m->drivers, "physical_devices", physical, "logical_devices", logical);
    char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (text == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for the list of devices");
    printf("%s\n", text);
    free(text);
    return LS_OK;
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    tool_session session = { 0 };
    machine m = { .bit_class = NULL };
    ls_status status = tool_open_context(settings, &session);
    if (status == LS_OK)
        status = read_machine(session.ctx, &m);
    if (status == LS_OK && settings->json)
        status = print_json(&m);
    else if (status == LS_OK)
        print_text(&m);
    free_machine(&m);
    tool_close(&session);
    return status;
}

const tool_command tool_devices = {
    .name = "devices",
    .arguments = "",
    .summary = "list the devices, the cores that may be used and why, and the bit class",
    .details =
        "Lists devices, the cores that this process may use and why, and the bit class: what decides the bits of "
        "results.\n"
        "For every command, LOCKSTEP_VISIBLE_DEVICES selects cores, as in LOCKSTEP_VISIBLE_DEVICES='cpu:0[2-3]'.",
    .tables = { &tool_count_flags, &tool_json_flags },
    .check = tool_check_devices,
    .run = run,
};
