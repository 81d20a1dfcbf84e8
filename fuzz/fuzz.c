/* Files, statuses and contexts for fuzz targets. */
#include "fuzz.h"

#include <ctype.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIMIT   LS_MIB(256)
#define DEVICES 3

void fuzz_broken(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("fuzz: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0, "no file in memory");
    FUZZ_CHECK(pwrite(fd, data, size, 0) == (ssize_t)size, "cannot write %zu bytes", size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

bool fuzz_status(ls_status status)
{
    if (status == LS_OK)
        return true;
    const char *message = ls_last_error();
    FUZZ_CHECK(status != LS_ERR_INTERNAL, "internal error: %s", message);
    FUZZ_CHECK(message[0] != '\0', "%s without a message", ls_status_name(status));
    for (const char *c = message; *c; c++)
        FUZZ_CHECK(!iscntrl((unsigned char)*c), "the message has character %d at %zu: %s", *c, (size_t)(c - message),
                   message);
    return false;
}

void fuzz_array_use(ls_array *array)
{
    size_t bytes = ls_dtype_bytes(array->dtype);
    for (int i = 0; i < array->shape.rank; i++)
        bytes *= (size_t)array->shape.dims[i];
    unsigned char sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum ^= ((const unsigned char *)array->data)[i];
    __asm__ volatile("" : : "r"(sum)); /* the loop is not dropped */
    free(array->data);
    array->data = NULL;
}

unsigned fuzz_take(fuzz_input *in, unsigned limit)
{
    unsigned value = 0;
    for (unsigned most = limit; most > 0 && in->left > 0; most >>= 8) {
        value = value << 8 | *in->data++;
        in->left--;
    }
    return limit == 0 ? 0 : value % limit;
}

static ls_context *open_context(int devices, bool reference)
{
    ls_context *ctx = NULL;
    ls_logical_device parts[DEVICES];
    for (int i = 0; i < devices; i++)
        parts[i].memory_limit = LIMIT;
    ls_context_options options = { .threads = devices > 1 ? devices : 2,
                                   .reference = reference,
                                   .log_level = LS_LOG_ERROR };
    ls_status status = ls_context_create(&options, &ctx);
    if (status == LS_OK)
        status = ls_set_memory_growth(ctx, "cpu:0", true);
    if (status == LS_OK)
        status = ls_set_logical_devices(ctx, "cpu:0", parts, (size_t)devices);
    FUZZ_CHECK(status == LS_OK, "no context: %s", ls_last_error());
    return ctx;
}

ls_context *fuzz_context(int devices, bool reference)
{
    static ls_context *contexts[DEVICES + 1][2];
    FUZZ_CHECK(devices >= 1 && devices <= DEVICES, "%d devices", devices);
    ls_context **ctx = &contexts[devices][reference];
    if (!*ctx)
        *ctx = open_context(devices, reference);
    return *ctx;
}
