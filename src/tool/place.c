/* --place "conv1_conv..pool1=cpu:0,conv2_block1_1_conv..=cpu:1": assigns layers to devices. */
#include "tool/tool.h"

#include <string.h>

#define MOST_NAME 256

typedef struct entry {
    char first[MOST_NAME], last[MOST_NAME]; /* "": the model's first or last layer */
    char device[MOST_NAME];
} entry;

static bool copy(char to[MOST_NAME], const char *from, size_t length)
{
    if (length >= MOST_NAME)
        return false;
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

/* Parses "conv1..pool1=cpu:0", "conv1=cpu:0", "..pool1=cpu:0", "conv1..=cpu:0" or "..=cpu:0". */
static bool read_entry(const char *text, size_t length, entry *out)
{
    const char *end = text + length, *equals = memchr(text, '=', length), *dots = NULL;
    if (equals == NULL || equals == text || equals + 1 == end)
        return false;
    for (const char *at = text; at + 1 < equals && dots == NULL; at++)
        if (at[0] == '.' && at[1] == '.')
            dots = at;
    const char *first_end = dots ? dots : equals, *last = dots ? dots + 2 : text;
    return copy(out->first, text, (size_t)(first_end - text)) && copy(out->last, last, (size_t)(equals - last)) &&
           copy(out->device, equals + 1, (size_t)(end - equals - 1));
}

/* Advances *at to the next entry. Sets *end at the end of the list. */
static ls_status next_entry(const char **at, entry *out, bool *end)
{
    *end = **at == '\0';
    if (*end)
        return LS_OK;
    size_t length = strcspn(*at, ",");
    if (!read_entry(*at, length, out))
        return ls_fail(LS_ERR_INVALID,
                       "--place: '%.*s' is not LAYER=DEVICE or FIRST..LAST=DEVICE, as in "
                       "conv1_conv..pool1=cpu:0,conv2_block1_1_conv..=cpu:1",
                       (int)(length < MOST_NAME ? length : MOST_NAME), *at);
    *at += length + ((*at)[length] == ',');
    return LS_OK;
}

static bool has_name(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; *at != '\0';) {
        size_t part = strcspn(at, ",");
        if (part == length && memcmp(at, name, length) == 0)
            return true;
        at += part + (at[part] == ',');
    }
    return false;
}

ls_status tool_place_devices(const tool_settings *settings, ls_context *ctx, ls_text *names)
{
    bool end = false;
    entry at;
    for (const char *text = settings->place;;) {
        ls_device_name *list;
        size_t count;
        LS_TRY(next_entry(&text, &at, &end));
        if (end && *ls_text_get(names) == '\0')
            return ls_fail(LS_ERR_INVALID, "--place: the list is empty; expected LAYER=DEVICE");
        if (end)
            return LS_OK;
        LS_TRY(ls_fail_within(ls_read_device_names(ctx, at.device, &list, &count), "--place"));
        ls_device_name device = list[0];
        free(list);
        if (count != 1)
            return ls_fail(LS_ERR_INVALID, "--place: '%s' names %zu devices; a layer is on one device", at.device,
                           count);
        char name[32];
        snprintf(name, sizeof name, "%s:%d", device.kind, device.number);
        if (!has_name(ls_text_get(names), name))
            ls_text_add(names, "%s%s", *ls_text_get(names) ? "," : "", name);
    }
}

ls_status tool_place(const tool_settings *settings, ls_model *model)
{
    bool end = settings->place == NULL;
    entry at;
    for (const char *text = settings->place; !end;) {
        LS_TRY(next_entry(&text, &at, &end));
        if (!end)
            LS_TRY(ls_fail_within(
                ls_model_set_device(model, at.first[0] ? at.first : NULL, at.last[0] ? at.last : NULL, at.device),
                "--place"));
    }
    return LS_OK;
}
