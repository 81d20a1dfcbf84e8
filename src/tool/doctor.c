/* lockstep doctor: every check computes a small known result. */
#include "tool/tool.h"

#include <openssl/crypto.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

static ls_status expect(bool right, const char *what)
{
    return right ? LS_OK : ls_fail(LS_ERR_INTERNAL, "wrong result: %s", what);
}

/* ---- Libraries ---- */

static ls_status check_crypto(char *version, size_t size)
{
    char hex[65];
    snprintf(version, size, "%s", OpenSSL_version(OPENSSL_VERSION));
    LS_TRY(ls_sha256_of("abc", 3, hex));
    return expect(strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0,
                  "SHA-256 of \"abc\"");
}

static ls_status check_zlib(char *version, size_t size)
{
    unsigned char text[1000], packed[1200], back[sizeof text];
    uLongf packed_bytes = sizeof packed, back_bytes = sizeof back;
    snprintf(version, size, "zlib %s", zlibVersion());
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i % 7);
    LS_TRY(expect(crc32(0, (const unsigned char *)"123456789", 9) == 0xcbf43926, "CRC-32 of \"123456789\""));
    bool same = compress(packed, &packed_bytes, text, sizeof text) == Z_OK &&
                uncompress(back, &back_bytes, packed, packed_bytes) == Z_OK && back_bytes == sizeof text &&
                memcmp(text, back, sizeof text) == 0;
    return expect(same, "1000 bytes packed and unpacked");
}

static ls_status check_json(char *version, size_t size)
{
    static const char text[] = "{\"a\":[1,2.5,\"\\u00e9\"],\"b\":null}";
    json_t *value = NULL;
    snprintf(version, size, "jansson %s", jansson_version_str());
    LS_TRY(ls_json_read_buffer("doctor", text, sizeof text - 1, &value));
    char *back = json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    json_decref(value);
    ls_status status = expect(back && strcasecmp(back, text) == 0, "JSON read and written");
    free(back);
    return status;
}

/* ---- Devices ---- */

enum { SIZE = 6, CHANNELS = 16, FILTERS = 16, MADE = SIZE - 2 };

/* Small integers: every order of summation gives the same float. */
static float pixel(int index)
{
    return (float)(index * 7 % 11 - 5);
}

static float convolve(const float *x, const float *kernel, int row, int column, int filter)
{
    float sum = 0;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (int c = 0; c < CHANNELS; c++)
                sum += x[((row + i) * SIZE + column + j) * CHANNELS + c] *
                       kernel[((i * 3 + j) * CHANNELS + c) * FILTERS + filter];
    return sum;
}

/* Compares with plain loops. */
static ls_status compare_convolution(ls_graph *graph)
{
    float x[SIZE * SIZE * CHANNELS], kernel[3 * 3 * CHANNELS * FILTERS];
    for (int i = 0; i < SIZE * SIZE * CHANNELS; i++)
        x[i] = pixel(i);
    for (int i = 0; i < 3 * 3 * CHANNELS * FILTERS; i++)
        kernel[i] = pixel(i + 3);
    ls_tensor *in = ls_op_input(graph, NULL, LS_F32, LS_SHAPE(LS_BATCH, SIZE, SIZE, CHANNELS));
    ls_tensor *made = ls_op_conv2d(in, ls_op_constant(graph, LS_F32, LS_SHAPE(3, 3, CHANNELS, FILTERS), kernel));
    ls_feed feed = { in, ls_array_of(LS_F32, LS_SHAPE(1, SIZE, SIZE, CHANNELS), x) };
    ls_array out;
    LS_TRY(ls_eval(graph, &feed, 1, &made, 1));
    LS_TRY(ls_value(made, &out));
    for (int i = 0; i < MADE * MADE * FILTERS; i++) {
        int row = i / (MADE * FILTERS), column = i / FILTERS % MADE;
        LS_TRY(expect(((const float *)out.data)[i] == convolve(x, kernel, row, column, i % FILTERS),
                      "a convolution of small whole numbers"));
    }
    return LS_OK;
}

/* devices: besides the CPU; "": none; NULL: those used by default. */
static ls_status open_with(const ls_context_options *options, const char *devices, ls_context **out)
{
    ls_context *ctx;
    LS_TRY(ls_context_create(options, &ctx));
    ls_status status = devices ? ls_set_visible_devices(ctx, devices) : LS_OK;
    if (status != LS_OK)
        ls_context_close(ctx);
    else
        *out = ctx;
    return status;
}

static ls_status convolution_of(const ls_context_options *options, const char *devices)
{
    ls_context *ctx;
    ls_graph *graph;
    LS_TRY(open_with(options, devices, &ctx));
    ls_status status = ls_graph_create(ctx, &graph);
    if (status == LS_OK) {
        status = compare_convolution(graph);
        ls_graph_destroy(graph);
    }
    ls_context_close(ctx);
    return status;
}

static ls_status check_reference(char *version, size_t size)
{
    snprintf(version, size, "reference kernels");
    return convolution_of(&(ls_context_options){ .reference = true, .kernels = LS_KERNELS_OWN }, "");
}

static ls_status bit_class_of(int devices, char **out)
{
    ls_context *ctx;
    LS_TRY(open_with(&(ls_context_options){ .cpu_devices = devices, .kernels = LS_KERNELS_OWN }, "", &ctx));
    ls_status status = ls_bit_class(ctx, out);
    ls_context_close(ctx);
    return status;
}

static ls_status check_kernels(char *version, size_t size)
{
    char *text;
    LS_TRY(bit_class_of(1, &text));
    snprintf(version, size, "%.*s", (int)strcspn(text, ";"), text);
    free(text);
    return convolution_of(&(ls_context_options){ .kernels = LS_KERNELS_OWN }, "");
}

static ls_status check_bits(char *version, size_t size)
{
    char *one = NULL, *several = NULL;
    ls_status status = bit_class_of(1, &one);
    for (int devices = 2; devices <= 3 && status == LS_OK; devices++) {
        status = bit_class_of(devices, &several);
        if (status == LS_OK)
            status = expect(strcmp(one, several) == 0, "a training step on 1 and on several devices: different bits");
        free(several);
        several = NULL;
    }
    const char *canary = one ? strstr(one, "canary ") : NULL;
    snprintf(version, size, "devices: %s", canary ? canary : "");
    free(one);
    return status;
}

/* The bit class of the CPU ends with its canary. A device with other bits appends its own, or the
 * self-check that differs. */
static ls_status check_device(const ls_device_info *device)
{
    char name[64], *text = NULL;
    ls_context *ctx;
    snprintf(name, sizeof name, "%s:%d", device->kind, device->number);
    LS_TRY(open_with(&(ls_context_options){ .kernels = LS_KERNELS_OWN, .log_level = LS_LOG_ERROR }, name, &ctx));
    ls_status status = ls_bit_class(ctx, &text);
    if (status == LS_OK) {
        const char *cpu = strstr(text, "canary "), *own = cpu ? strstr(cpu, "; ") : NULL;
        if (!cpu || own)
            status = ls_fail(LS_ERR_INTERNAL, "wrong result: other bits than the CPU: %s", own ? own + 2 : text);
    }
    free(text);
    ls_context_close(ctx);
    return ls_fail_within(status, "%s", name);
}

static ls_status check_kind(const char *kind, const char *drivers, char *version, size_t size)
{
    ls_context *ctx;
    ls_device_info *list = NULL;
    size_t count = 0;
    LS_TRY(ls_context_create(&(ls_context_options){ .kernels = LS_KERNELS_OWN }, &ctx));
    ls_status status = ls_list_physical_devices(ctx, kind, &list, &count);
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = check_device(&list[i]);
    snprintf(version, size, "%s: %zu device%s", drivers, count, count == 1 ? "" : "s");
    free(list);
    ls_context_close(ctx);
    return status;
}

static ls_status check_opencl(char *version, size_t size)
{
    return check_kind("OPENCL", "OpenCL", version, size);
}

static ls_status check_cuda(char *version, size_t size)
{
    return check_kind("CUDA", "CUDA", version, size);
}

/* cuBLAS and cuDNN are optional. */
static ls_status check_vendor(char *version, size_t size)
{
    ls_status status = convolution_of(&(ls_context_options){ .kernels = LS_KERNELS_VENDOR }, NULL);
    snprintf(version, size, "cuBLAS and cuDNN: %s", status == LS_ERR_UNSUPPORTED ? "not used" : "CUDA:0");
    return status == LS_ERR_UNSUPPORTED ? LS_OK : status;
}

/* ---- All checks ---- */

typedef struct row {
    const char *what;
    ls_status (*check)(char *version, size_t size);
} row;

static const row rows[] = {
    { "SHA-256 of \"abc\"", check_crypto },
    { "CRC-32; 1000 bytes packed and unpacked", check_zlib },
    { "JSON read and written", check_json },
    { "a convolution of small whole numbers", check_kernels },
    { "a convolution of small whole numbers", check_reference },
    { "a training step on 1, 2 and 3 devices: the same bits", check_bits },
    { "a training step and self-checks on each: the same bits as the CPU", check_cuda },
    { "a training step and self-checks on each: the same bits as the CPU", check_opencl },
    { "a convolution of small whole numbers, if they are used", check_vendor },
};

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    int failures = 0;
    (void)settings;
    printf("lockstep %s\n", LS_VERSION);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char version[128] = "";
        bool right = rows[i].check(version, sizeof version) == LS_OK;
        printf("%-7s %-40s %s\n", right ? "ok" : "NOT OK", version, right ? rows[i].what : ls_last_error());
        failures += !right;
    }
    LS_TRY(tool_devices.run(settings, stopped_by));
    return failures == 0 ? LS_OK : ls_fail(LS_ERR_INTERNAL, "%d of these checks failed", failures);
}

const tool_command tool_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "test every dependency and device",
    .details = "Prints the version of every dependency, and tests dependencies and devices with small known results.",
    .check = tool_check_devices,
    .run = run,
};
