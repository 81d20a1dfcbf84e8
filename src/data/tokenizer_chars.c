/* A tokenizer whose tokens are the characters of a text. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "data/tokenizer.h"

#define MOST_CODES 0x110000

static ls_status fail_not_utf8(const char *text, size_t at)
{
    return ls_fail(LS_ERR_DATA, "byte %zu of the text, 0x%02x, is not UTF-8; use the tokenizer \"bytes\"", at,
                   (unsigned char)text[at]);
}

static ls_status mark_codes(const char *text, size_t bytes, unsigned char *seen, size_t *count)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        size_t length = ls_utf8_next(text + at, bytes - at, &code);
        if (code == LS_NOT_UTF8)
            return fail_not_utf8(text, at);
        *count += !seen[code];
        seen[code] = 1;
        at += length;
    }
    return LS_OK;
}

ls_status ls_chars_learn(ls_chars *chars, const char *text, size_t bytes)
{
    unsigned char *seen = calloc(MOST_CODES, 1);
    size_t count = 0;
    if (!seen)
        return ls_fail(LS_ERR_MEMORY, "no memory for a vocabulary of characters");
    ls_status status = mark_codes(text, bytes, seen, &count);
    if (status == LS_OK) {
        chars->codes = malloc((count ? count : 1) * sizeof *chars->codes);
        if (!chars->codes)
            status = ls_fail(LS_ERR_MEMORY, "no memory for a vocabulary of %zu characters", count);
    }
    for (uint32_t code = 0; status == LS_OK && code < MOST_CODES; code++)
        if (seen[code])
            chars->codes[chars->count++] = code;
    free(seen);
    return status;
}

int32_t ls_chars_find(const ls_chars *chars, uint32_t code)
{
    size_t low = 0, high = chars->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (chars->codes[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < chars->count && chars->codes[low] == code ? (int32_t)low : -1;
}

ls_status ls_chars_encode(const ls_chars *chars, const char *text, size_t bytes, ls_token_ids *out)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        size_t length = ls_utf8_next(text + at, bytes - at, &code);
        if (code == LS_NOT_UTF8)
            return fail_not_utf8(text, at);
        int32_t id = ls_chars_find(chars, code);
        if (id < 0)
            return ls_fail(LS_ERR_DATA, "the character at byte %zu, U+%04X, is not in the vocabulary of %zu characters",
                           at, code, chars->count);
        LS_TRY(ls_token_ids_add(out, id));
        at += length;
    }
    return LS_OK;
}

/* ---- Files: {"format": "lockstep-characters", "characters": [10, 32, ...]} ---- */

static const char format_name[] = "lockstep-characters";

ls_status ls_chars_save(const ls_chars *chars, const char *path)
{
    ls_text text = { 0 };
    ls_text_add(&text, "{\"format\": \"%s\", \"characters\": [", format_name);
    for (size_t i = 0; i < chars->count; i++)
        ls_text_add(&text, "%s%u", i ? ", " : "", chars->codes[i]);
    ls_text_put(&text, "]}\n");
    ls_status status = text.failed ? ls_fail(LS_ERR_MEMORY, "no memory for the text of '%s'", path)
                                   : ls_file_write(path, ls_text_get(&text), text.length);
    ls_text_free(&text);
    return status;
}

static ls_status read_codes(ls_chars *chars, const ls_json_at *root)
{
    ls_json_at list, at;
    LS_TRY(ls_json_get_array(root, "characters", &list));
    size_t count = ls_json_count(&list);
    chars->codes = malloc((count ? count : 1) * sizeof *chars->codes);
    if (!chars->codes)
        return ls_fail(LS_ERR_MEMORY, "no memory for a vocabulary of %zu characters", count);
    for (size_t i = 0; i < count; i++) {
        int64_t code = 0, before = i ? (int64_t)chars->codes[i - 1] : -1;
        LS_TRY(ls_json_element(&list, i, &at));
        LS_TRY(ls_json_i64(&at, &code));
        if (code <= before || code >= MOST_CODES || (code >= 0xd800 && code <= 0xdfff))
            return ls_json_fail(&at, LS_ERR_DATA, "%lld is not a character above the one before it (%lld)",
                                (long long)code, (long long)before);
        chars->codes[chars->count++] = (uint32_t)code;
    }
    return LS_OK;
}

ls_status ls_chars_read(ls_chars *chars, const char *name, const char *data, size_t bytes)
{
    json_t *json = NULL;
    const char *format = NULL;
    LS_TRY(ls_json_read_buffer(name, data, bytes, &json));
    ls_json_at root = ls_json_root(json, name);
    ls_status status = ls_json_get_string(&root, "format", &format);
    if (status == LS_OK && strcmp(format, format_name) != 0)
        status = ls_json_fail(&root, LS_ERR_DATA, "format is \"%.100s\"; expected \"%s\"", format, format_name);
    if (status == LS_OK)
        status = read_codes(chars, &root);
    json_decref(json);
    return status;
}
