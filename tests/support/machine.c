/* A machine for tests of devices: see machine.h. */
#include "machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_PARTS 16

static void keep_line(void *user, ls_log_level level, const char *line)
{
    machine *m = user;
    size_t used = strlen(m->log);
    (void)level;
    snprintf(m->log + used, sizeof(m->log) - used, "%s\n", line);
}

void machine_create(machine *m, machine_settings settings)
{
    setenv("LOCKSTEP_OPENCL_PARTS", "0", 0); /* the test ignores GPUs of this machine */
    setenv("CUDA_VISIBLE_DEVICES", "", 0);
    *m = (machine){ .g = NULL };
    settings.options.log_sink = keep_line;
    settings.options.log_user = m;
    OK(ls_context_create(&settings.options, &m->ctx));
    if (settings.gpu.devices == 0)
        return;
    m->g = gpu_create(settings.gpu);
    assert_non_null(m->g);
    OK(ls_add_backend(m->ctx, gpu_backend(m->g)));
    ls_logical_device parts[MOST_PARTS] = { { 0 } };
    assert_true(settings.parts <= MOST_PARTS);
    if (settings.parts > 0)
        OK(ls_set_logical_devices(m->ctx, "gpu:0", parts, (size_t)settings.parts));
}

void machine_close(machine *m)
{
    ls_context_close(m->ctx);
    if (!m->g)
        return;
    gpu_counts counts = gpu_counted(m->g);
    assert_int_equal(counts.devices, 0);
    assert_int_equal(counts.buffers, 0);
    assert_int_equal(counts.plans, 0);
    assert_int_equal(counts.memory, 0);
    assert_int_equal(counts.misuses, 0);
    gpu_destroy(m->g);
}

void machine_failed(ls_status found, ls_status expected, const char *const *words)
{
    if (found == LS_OK)
        fail_msg("it succeeded; %s was expected", ls_status_name(expected));
    if (found != expected)
        fail_msg("%s instead of %s: %s", ls_status_name(found), ls_status_name(expected), ls_last_error());
    for (; *words; words++)
        machine_has(ls_last_error(), *words);
}

ls_context *open_two_cpus(void)
{
    ls_context *ctx = NULL;
    OK(ls_context_open(&(ls_context_options){ .threads = 2, .cpu_devices = 2 }, &ctx));
    return ctx;
}

void machine_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no \"%s\" in:\n%s", words, text);
}

void machine_lacks(const char *text, const char *words)
{
    if (strstr(text, words))
        fail_msg("\"%s\" in:\n%s", words, text);
}

size_t machine_count(const char *text, const char *words)
{
    size_t count = 0;
    for (; (text = strstr(text, words)); text += strlen(words))
        count++;
    return count;
}

size_t machine_devices(ls_context *ctx, const char *kind)
{
    ls_device_info *list = NULL;
    size_t count = 0;
    OK(ls_list_logical_devices(ctx, kind, &list, &count));
    free(list);
    return count;
}

ls_memory_info machine_memory(ls_context *ctx, const char *device)
{
    ls_memory_info info;
    OK(ls_get_memory_info(ctx, device, &info));
    return info;
}

size_t machine_resident(void)
{
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}
