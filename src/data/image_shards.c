/* Images in tar files, in WebDataset's layout: members KEY.jpg, KEY.jpeg or KEY.png, and KEY.cls
 * with the number of the class. Members of a key follow each other; those with other endings are
 * ignored. Opening reads only the heads of members, so that any sample can be read later. */
#include <string.h>
#include <strings.h>

#include "base/numbers.h"
#include "data/image_set.h"
#include "data/stream.h"

#define BLOCK       512
#define MOST_NAME   1024
#define MOST_LABEL  32
#define MOST_FILES  1000000
#define MOST_PAX    65536
#define MOST_DIGITS 9 /* digits of a number in braces, at most */

typedef struct shard {
    ls_image_set *set;
    ls_data_file file;
    char long_name[MOST_NAME]; /* name of the next member, from a member of its own; "" for none */
    /* the sample whose members are being read */
    char key[MOST_NAME];
    ls_image_item item;
    bool has_image, has_label, is_broken;
    uint64_t place; /* offset of its first member */
} shard;

/* ---- Names of files ---- */

typedef struct braces {
    size_t before; /* characters before the opening brace */
    const char *after;
    int64_t first, last;
    int width;
} braces;

/* Finds {000..009}. *found is false for a name without braces. */
static ls_status find_braces(const char *pattern, braces *out, bool *found)
{
    const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
    *found = open != NULL;
    if (!open)
        return LS_OK;
    char first[MOST_DIGITS + 1] = "", last[MOST_DIGITS + 1] = "", end = 0;
    if (!close || sscanf(open, "{%9[0-9]..%9[0-9]%c", first, last, &end) != 3 || end != '}' ||
        !ls_parse_i64(first, &out->first) || !ls_parse_i64(last, &out->last) || out->first > out->last ||
        strchr(close, '{'))
        return ls_fail(LS_ERR_INVALID, "'%s': expected one range in braces, such as {000..009}", pattern);
    if (out->last - out->first >= MOST_FILES)
        return ls_fail(LS_ERR_INVALID, "'%s' names %lld files; at most %d are accepted", pattern,
                       (long long)(out->last - out->first + 1), MOST_FILES);
    out->before = (size_t)(open - pattern);
    out->after = close + 1;
    out->width = (int)strlen(first);
    return LS_OK;
}

static ls_status add_files(ls_image_set *set)
{
    braces b = { .before = 0 };
    bool found;
    LS_TRY(find_braces(set->path, &b, &found));
    if (!found)
        return ls_image_set_add_file(set, strdup(set->path));
    for (int64_t i = b.first; i <= b.last; i++) {
        ls_text name = { 0 };
        char *text = NULL;
        ls_text_add(&name, "%.*s%0*lld%s", (int)b.before, set->path, b.width, (long long)i, b.after);
        LS_TRY(ls_text_take(&name, &text));
        LS_TRY(ls_image_set_add_file(set, text));
    }
    return LS_OK;
}

/* ---- Samples ---- */

static ls_status fail_sample(const shard *s, const char *why)
{
    return ls_fail(LS_ERR_DATA, "'%s', byte %llu: sample '%.100s' %s", s->file.path, (unsigned long long)s->place,
                   s->key, why);
}

static ls_status end_sample(shard *s)
{
    ls_status status = LS_OK;
    if (s->is_broken)
        ; /* already counted */
    else if (s->has_image && s->has_label)
        status = ls_image_set_add_item(s->set, s->item);
    else if (s->has_image || s->has_label)
        status = ls_image_set_broken(
            s->set, fail_sample(s, s->has_image ? "has no .cls with its class" : "has no .jpg, .jpeg or .png image"));
    s->has_image = s->has_label = s->is_broken = false;
    s->key[0] = '\0';
    return status;
}

static ls_status read_label(shard *s, uint64_t offset, uint64_t bytes)
{
    char text[MOST_LABEL + 1] = "";
    if (bytes > 0 && bytes <= MOST_LABEL)
        LS_TRY(ls_data_file_at(&s->file, offset, text, (size_t)bytes, "a class"));
    text[strcspn(text, " \r\n")] = '\0';
    if (!ls_parse_i64(text, &s->item.label) || s->item.label < 0)
        return fail_sample(s, "has no class number in its .cls");
    return LS_OK;
}

/* `name` is a path; its key is everything before the first dot of the last part. */
static ls_status add_member(shard *s, const char *name, uint64_t head, uint64_t offset, uint64_t bytes)
{
    const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash + 1 : name, '.');
    size_t chars = dot ? (size_t)(dot - name) : 0;
    if (!dot || dot == (slash ? slash + 1 : name))
        return LS_OK;
    if (strlen(s->key) != chars || strncmp(s->key, name, chars) != 0) {
        LS_TRY(end_sample(s));
        snprintf(s->key, sizeof s->key, "%.*s", (int)chars, name);
        s->place = head;
    }
    if (strcasecmp(dot, ".cls") == 0) {
        s->has_label = true;
        return read_label(s, offset, bytes);
    }
    if (strcasecmp(dot, ".jpg") != 0 && strcasecmp(dot, ".jpeg") != 0 && strcasecmp(dot, ".png") != 0)
        return LS_OK;
    if (s->has_image)
        return fail_sample(s, "has two images");
    if (bytes == 0)
        return fail_sample(s, "has an empty image");
    s->has_image = true;
    s->item.offset = offset;
    s->item.bytes = bytes;
    return LS_OK;
}

/* ---- Tar files ---- */

/* Octal digits, or a binary number after the byte 0x80. */
static bool read_number(const unsigned char *field, size_t chars, uint64_t *out)
{
    uint64_t value = 0;
    if (field[0] == 0x80) {
        for (size_t i = 1; i < chars; i++) {
            if (value >> 55)
                return false;
            value = value << 8 | field[i];
        }
    } else {
        size_t i = 0;
        while (i < chars && field[i] == ' ')
            i++;
        for (; i < chars && field[i] >= '0' && field[i] <= '7'; i++)
            value = value << 3 | (uint64_t)(field[i] - '0');
        if (i < chars && field[i] != ' ' && field[i] != 0)
            return false;
    }
    *out = value;
    return true;
}

static bool has_checksum(const unsigned char *head)
{
    uint64_t sum = 0, expected;
    for (int i = 0; i < BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : head[i];
    return read_number(head + 148, 8, &expected) && sum == expected;
}

/* Joins prefix and name of a ustar head. */
static void read_name(const unsigned char *head, char out[MOST_NAME])
{
    const char *prefix = (const char *)head + 345, *name = (const char *)head;
    bool has_prefix = memcmp(head + 257, "ustar", 6) == 0 && prefix[0];
    snprintf(out, MOST_NAME, "%.155s%s%.100s", has_prefix ? prefix : "", has_prefix ? "/" : "", name);
}

/* Finds "LENGTH path=NAME\n" in an extended head. */
static void find_path(char *text, size_t bytes, char out[MOST_NAME])
{
    for (size_t at = 0; at < bytes;) {
        size_t length = (size_t)strtoull(text + at, NULL, 10);
        char *space = memchr(text + at, ' ', bytes - at);
        if (length == 0 || length > bytes - at || !space || space >= text + at + length)
            return;
        size_t chars = (size_t)(text + at + length - (space + 1));
        if (chars > 6 && strncmp(space + 1, "path=", 5) == 0)
            snprintf(out, MOST_NAME, "%.*s", (int)(chars - 6 < MOST_NAME ? chars - 6 : MOST_NAME - 1), space + 6);
        at += length;
    }
}

/* Members of type L and x hold the name of the next member. */
static ls_status read_long_name(shard *s, char type, uint64_t offset, uint64_t bytes)
{
    if (bytes > MOST_PAX)
        return ls_fail(LS_ERR_DATA, "'%s', byte %llu: a name of %llu bytes; at most %d are accepted", s->file.path,
                       (unsigned long long)offset, (unsigned long long)bytes, MOST_PAX);
    char *text = calloc(1, (size_t)bytes + 1);
    if (!text)
        return ls_fail(LS_ERR_MEMORY, "no memory for a name in '%s'", s->file.path);
    ls_status status = ls_data_file_at(&s->file, offset, text, (size_t)bytes, "a name");
    if (status == LS_OK && type == 'L')
        snprintf(s->long_name, sizeof s->long_name, "%s", text);
    else if (status == LS_OK)
        find_path(text, (size_t)bytes, s->long_name);
    free(text);
    return status;
}

static ls_status read_member(shard *s, const unsigned char *head, uint64_t at, uint64_t bytes)
{
    char name[MOST_NAME], type = (char)head[156];
    if (type == 'L' || type == 'x')
        return read_long_name(s, type, at + BLOCK, bytes);
    read_name(head, name);
    if (s->long_name[0])
        snprintf(name, sizeof name, "%s", s->long_name);
    s->long_name[0] = '\0';
    if (type != '0' && type != 0)
        return LS_OK;
    ls_status status = add_member(s, name, at, at + BLOCK, bytes);
    if (status == LS_OK || s->is_broken)
        return LS_OK;
    s->is_broken = true;
    return ls_image_set_broken(s->set, status);
}

static ls_status read_heads(shard *s)
{
    static const unsigned char zeros[BLOCK];
    unsigned char head[BLOCK];
    uint64_t at = 0, bytes;
    while (at < s->file.bytes) {
        if (s->file.bytes - at < BLOCK)
            return ls_fail(LS_ERR_DATA, "'%s' is truncated: %llu bytes at byte %llu; a head has %d", s->file.path,
                           (unsigned long long)(s->file.bytes - at), (unsigned long long)at, BLOCK);
        LS_TRY(ls_data_file_at(&s->file, at, head, BLOCK, "the head of a member"));
        if (memcmp(head, zeros, BLOCK) == 0)
            break;
        if (!has_checksum(head))
            return ls_fail(LS_ERR_DATA,
                           "'%s' is not a tar file, or damaged: the head at byte %llu has a wrong checksum",
                           s->file.path, (unsigned long long)at);
        if (!read_number(head + 124, 12, &bytes) || bytes > s->file.bytes - at - BLOCK)
            return ls_fail(LS_ERR_DATA, "'%s' is truncated: the member at byte %llu ends after the file's %llu bytes",
                           s->file.path, (unsigned long long)at, (unsigned long long)s->file.bytes);
        LS_TRY(read_member(s, head, at, bytes));
        at += BLOCK + (bytes + BLOCK - 1) / BLOCK * BLOCK;
    }
    if (at == 0)
        return ls_fail(LS_ERR_DATA, "'%s' is not a tar file: it has %llu bytes and no member", s->file.path,
                       (unsigned long long)s->file.bytes);
    return end_sample(s);
}

static ls_status read_shard(ls_image_set *set, size_t index)
{
    shard s = { .set = set, .item.file = index };
    LS_TRY(ls_data_file_open(set->files[index], &s.file));
    ls_status status = read_heads(&s);
    ls_data_file_close(&s.file);
    return status;
}

static ls_status list_shards(ls_image_set *set)
{
    LS_TRY(add_files(set));
    for (size_t i = 0; i < set->file_count; i++)
        LS_TRY(read_shard(set, i));
    for (size_t i = 0; set->class_count > 0 && i < set->count; i++)
        if (set->items[i].label >= set->class_count)
            return ls_fail(LS_ERR_DATA, "'%s', byte %llu: class %lld; %lld names of classes are given",
                           set->files[set->items[i].file], (unsigned long long)set->items[i].offset,
                           (long long)set->items[i].label, (long long)set->class_count);
    return LS_OK;
}

ls_dataset *ls_from_image_shards_with(const char *pattern, ls_image_options options)
{
    return ls_from_image_set("ls_from_image_shards", pattern, list_shards, &options);
}
