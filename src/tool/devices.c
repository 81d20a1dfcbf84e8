/* lockstep devices: which cores may be used and why, how devices share them, and what decides the bits. */
#include "tool/tool.h"

#include "base/json.h"
#include "device/cores.h"
#include "run/runtime.h"

static ls_status check(const ls_options *options, tool_settings *settings)
{
    return tool_check_devices(options, settings);
}

/* What there is to tell. */
typedef struct machine {
    ls_cores cores;
    size_t l2;
    const ls_runtime *runtime;
    char *bit_class;
} machine;

static ls_status look(ls_context *ctx, machine *out)
{
    ls_runtime *runtime;
    LS_TRY(ls_cores_find(NULL, &out->cores));
    out->l2 = ls_cores_l2_bytes();
    LS_TRY(ls_runtime_of(ctx, &runtime));
    out->runtime = runtime;
    return ls_bit_class(ctx, &out->bit_class);
}

static int workers_of(const ls_runtime *runtime, int device)
{
    int count = 0;
    for (int w = 0; w < runtime->workers; w++)
        count += runtime->device_of_worker[w] == device;
    return count;
}

static void print_text(const machine *m)
{
    printf("CPU: %s; L2 %zu KiB%s\n", m->cores.reason, m->l2 >> 10, m->l2 ? "" : " (not known)");
    if (m->runtime->crowded)
        printf("%d workers take turns on %d cores\n", m->runtime->workers, m->cores.count);
    for (int d = 0; d < m->runtime->devices; d++) {
        printf("  cpu:%d  /job:localhost/replica:0/task:0/device:CPU:%d  %d worker%s", d, d, workers_of(m->runtime, d),
               workers_of(m->runtime, d) == 1 ? "" : "s");
        for (int w = 0; m->runtime->cores && w < m->runtime->workers; w++)
            if (m->runtime->device_of_worker[w] == d)
                printf(" %s%d", w > 0 && m->runtime->device_of_worker[w - 1] == d ? "" : "on core ",
                       m->runtime->cores[w]);
        printf("\n");
    }
    printf("bit class: %s\n", m->bit_class);
}

static json_t *device_json(const ls_runtime *runtime, int device)
{
    json_t *cores = json_array();
    for (int w = 0; runtime->cores && w < runtime->workers; w++)
        if (runtime->device_of_worker[w] == device)
            json_array_append_new(cores, json_integer(runtime->cores[w]));
    return json_pack("{s:o, s:o, s:s, s:i, s:o}", "name", json_sprintf("cpu:%d", device), "full_name",
                     json_sprintf("/job:localhost/replica:0/task:0/device:CPU:%d", device), "kind", "CPU", "workers",
                     workers_of(runtime, device), "bound_to", cores);
}

static ls_status print_json(const machine *m)
{
    json_t *devices = json_array();
    for (int d = 0; d < m->runtime->devices; d++)
        json_array_append_new(devices, device_json(m->runtime, d));
    json_t *all =
        json_pack("{s:i, s:s, s:i, s:I, s:s, s:o}", "cores", m->cores.count, "reason", m->cores.reason, "quota",
                  m->cores.quota, "l2_bytes", (json_int_t)m->l2, "bit_class", m->bit_class, "devices", devices);
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
    machine m = { .cores = { 0 } };
    ls_status status = tool_open_context(settings, &session);
    if (status == LS_OK)
        status = look(session.ctx, &m);
    if (status == LS_OK && settings->json)
        status = print_json(&m);
    else if (status == LS_OK)
        print_text(&m);
    free(m.bit_class);
    ls_cores_free(&m.cores);
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
