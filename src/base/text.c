/* A string that grows by doubling. */
#include "base/text.h"

#include <string.h>

#include "base/numbers.h"
#include "base/size.h"
#include "base/status.h"

#define FIRST_ROOM 128

/* Returns false if an allocation fails or failed earlier. */
static bool reserve(ls_text *text, size_t more)
{
    size_t needed;
    if (text->failed || !ls_size_add(text->length, more, &needed) || !ls_size_add(needed, 1, &needed)) {
        text->failed = true;
        return false;
    }
    if (needed <= text->room)
        return true;
    size_t room = text->room == 0 ? FIRST_ROOM : text->room;
    while (room < needed)
        if (!ls_size_mul(room, 2, &room))
            room = needed;
    char *data = realloc(text->data, room);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->room = room;
    return true;
}

void ls_text_put_bytes(ls_text *text, const char *bytes, size_t count)
{
    if (!reserve(text, count))
        return;
    memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
}

void ls_text_put(ls_text *text, const char *string)
{
    ls_text_put_bytes(text, string, strlen(string));
}

void ls_text_pad(ls_text *text, size_t count)
{
    if (!reserve(text, count))
        return;
    memset(text->data + text->length, ' ', count);
    text->length += count;
    text->data[text->length] = '\0';
}

void ls_text_add(ls_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ls_text_add_v(text, format, args);
    va_end(args);
}

void ls_text_add_v(ls_text *text, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        text->failed = true;
    if (length < 0 || !reserve(text, (size_t)length))
        return;
    vsnprintf(text->data + text->length, (size_t)length + 1, format, args);
    text->length += (size_t)length;
}

/* Returns 0 for an invalid character (overlong, surrogate, beyond U+10FFFF, truncated). */
static size_t utf8_length(const unsigned char *s)
{
    size_t count = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (count == 1)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < count; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
               (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : count;
}

void ls_text_put_json(ls_text *text, const char *string)
{
    ls_text_put(text, "\"");
    for (const unsigned char *s = (const unsigned char *)string; *s != '\0';) {
        size_t count = utf8_length(s);
        if (count == 0)
            ls_text_put(text, "\xef\xbf\xbd");
        else if (*s == '"' || *s == '\\')
            ls_text_add(text, "\\%c", *s);
        else if (*s == '\n')
            ls_text_put(text, "\\n");
        else if (*s == '\t')
            ls_text_put(text, "\\t");
        else if (*s < 0x20 || *s == 0x7f)
            ls_text_add(text, "\\u%04x", *s);
        else
            ls_text_put_bytes(text, (const char *)s, count);
        s += count == 0 ? 1 : count;
    }
    ls_text_put(text, "\"");
}

bool ls_is_utf8(const char *string)
{
    for (const unsigned char *s = (const unsigned char *)string; *s != '\0';) {
        size_t count = utf8_length(s);
        if (count == 0)
            return false;
        s += count;
    }
    return true;
}

/* Some terminals treat U+009B like escape and [. */
static bool is_control(const unsigned char *s)
{
    return s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0);
}

bool ls_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), part = strlen(end);
    return length > part && strcmp(text + length - part, end) == 0;
}

void ls_make_printable(char *text, size_t bytes)
{
    unsigned char *end = (unsigned char *)text + bytes;
    for (unsigned char *s = (unsigned char *)text; s < end;) {
        unsigned char here[5] = { 0 }; /* a zero follows a truncated character */
        memcpy(here, s, end - s < 4 ? (size_t)(end - s) : 4);
        size_t count = utf8_length(here);
        if (count == 0 || is_control(here)) {
            count = count == 0 ? 1 : count;
            memset(s, *s == '\n' ? ' ' : '?', count);
        }
        s += count;
    }
}

void ls_text_put_f64(ls_text *text, double value)
{
    char buffer[LS_F64_CHARS];
    ls_text_put(text, ls_format_f64(value, buffer));
}

const char *ls_text_get(const ls_text *text)
{
    return text->data == NULL ? "" : text->data;
}

ls_status ls_text_take(ls_text *text, char **out)
{
    reserve(text, 0);
    if (text->failed) {
        size_t length = text->length;
        ls_text_free(text);
        return ls_fail(LS_ERR_MEMORY, "no memory for a text of more than %zu characters", length);
    }
    text->data[text->length] = '\0';
    *out = text->data;
    *text = (ls_text){ 0 };
    return LS_OK;
}

void ls_text_free(ls_text *text)
{
    free(text->data);
    *text = (ls_text){ 0 };
}
