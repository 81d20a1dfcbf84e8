/* Synthetic data: random bytes and labels, determined by the name. */
#include <string.h>

#include "base/names.h"
#include "base/numbers.h"
#include "base/philox.h"
#include "base/status.h"
#include "base/work.h"
#include "data/readers.h"
#include "data/stream.h"

#define PREFIX  "synthetic:"
#define EXAMPLE "synthetic:224x224x3,classes=1000,count=64,seed=1"
#define MIB     ((size_t)1 << 20)
#define STREAM  0xffffff00u /* random streams of the data, distinct from those of shuffles */

/* Parses "224x224x3". */
static bool parse_sizes(char *text, ls_shape *out)
{
    char *state = NULL;
    *out = (ls_shape){ .rank = 0 };
    for (char *size = strtok_r(text, "x", &state); size; size = strtok_r(NULL, "x", &state)) {
        if (out->rank == LS_MAX_RANK - 1 || !ls_parse_i64(size, &out->dims[out->rank]) || out->dims[out->rank] < 1)
            return false;
        out->rank++;
    }
    return out->rank > 0;
}

static ls_status parse_option(const char *name, char *option, ls_synthetic *out)
{
    static const char *const keys[] = { "classes", "count", "seed" };
    char *value = strchr(option, '=');
    if (value)
        *value++ = 0;
    bool good = value != NULL;
    if (strcmp(option, "classes") == 0)
        good = good && ls_parse_i64(value, &out->classes) && out->classes >= 1 && out->classes <= INT32_MAX;
    else if (strcmp(option, "count") == 0)
        good = good && ls_parse_i64(value, &out->count) && out->count >= 1;
    else if (strcmp(option, "seed") == 0)
        good = good && ls_parse_u64(value, &out->seed);
    else
        return ls_fail(LS_ERR_INVALID, "'%s': unknown key '%s' (example: " EXAMPLE ")%s", name, option,
                       ls_advise_name(option, keys, sizeof keys / sizeof *keys).text);
    if (!good)
        return ls_fail(LS_ERR_INVALID, "'%s': %s=%s: expected a number of at least %d. Example: " EXAMPLE, name, option,
                       value ? value : "", strcmp(option, "seed") == 0 ? 0 : 1);
    return LS_OK;
}

ls_status ls_synthetic_parse(const char *name, ls_synthetic *out)
{
    ls_synthetic result = { .classes = 10, .count = 1024, .seed = 1 };
    char *text = strdup(name + strlen(PREFIX)), *state = NULL;
    if (!text)
        return ls_fail(LS_ERR_MEMORY, "no memory for '%s'", name);
    ls_status status = LS_OK;
    char *part = strtok_r(text, ",", &state), *sizes = part;
    for (part = strtok_r(NULL, ",", &state); status == LS_OK && part; part = strtok_r(NULL, ",", &state))
        status = parse_option(name, part, &result);
    if (status == LS_OK && (!sizes || !parse_sizes(sizes, &result.shape)))
        status = ls_fail(LS_ERR_INVALID,
                         "'%s': expected the sizes of one sample first, at most %d of them. Example: " EXAMPLE, name,
                         LS_MAX_RANK - 1);
    free(text);
    if (status == LS_OK)
        *out = result;
    return status;
}

static void fill_bytes(unsigned char *data, size_t bytes, ls_philox_key key)
{
    for (size_t i = 0; i < bytes; i += 16) {
        ls_philox_block block = ls_random_block(key, 0, (uint32_t)((i / 16) >> 32), (uint32_t)(i / 16));
        unsigned char four[16];
        for (int k = 0; k < 16; k++)
            four[k] = (unsigned char)(block.word[k / 4] >> (8 * (k % 4)));
        memcpy(data + i, four, bytes - i < 16 ? bytes - i : 16);
        if (i % MIB == 0)
            ls_work_report("making", "synthetic data", (int64_t)i, (int64_t)bytes);
    }
    ls_work_end();
}

ls_status ls_synthetic_make(const ls_synthetic *synthetic, uint32_t part, ls_array *features, ls_array *labels)
{
    ls_shape shape = { .rank = synthetic->shape.rank + 1, .dims = { synthetic->count } };
    size_t bytes, label_bytes;
    for (int i = 0; i < synthetic->shape.rank; i++)
        shape.dims[i + 1] = synthetic->shape.dims[i];
    ls_shape rows = LS_SHAPE(synthetic->count);
    if (!ls_data_bytes(LS_U8, &shape, &bytes) || !ls_data_bytes(LS_I32, &rows, &label_bytes))
        return ls_fail(LS_ERR_OVERFLOW, "synthetic data: %lld samples of these sizes exceed any memory",
                       (long long)synthetic->count);
    unsigned char *images = ls_data_alloc(bytes);
    int32_t *classes = ls_data_alloc(label_bytes);
    if (!images || !classes) {
        free(images);
        free(classes);
        return ls_fail(LS_ERR_MEMORY, "no memory for synthetic data: %zu bytes", bytes);
    }
    fill_bytes(images, bytes, ls_random_key(synthetic->seed, LS_RANDOM_SHUFFLE, STREAM + part, 0));
    ls_philox_key key = ls_random_key(synthetic->seed, LS_RANDOM_SHUFFLE, STREAM + part, 1);
    for (int64_t i = 0; i < synthetic->count; i++) {
        ls_philox_block block = ls_random_block(key, 0, (uint32_t)(i >> 32), (uint32_t)i);
        classes[i] = (int32_t)((uint64_t)block.word[0] * (uint64_t)synthetic->classes >> 32);
    }
    *features = ls_array_of(LS_U8, shape, images);
    *labels = ls_array_of(LS_I32, rows, classes);
    return LS_OK;
}
