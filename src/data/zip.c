/* Reader of zip archives. Uses the sizes of the central directory, because local headers may omit
 * them. */
#include "data/zip.h"

#include <string.h>

#include "base/status.h"

#define END_BYTES       22
#define LOCATOR_BYTES   20
#define END64_BYTES     56
#define ENTRY_BYTES     46
#define LOCAL_BYTES     30
#define MOST_COMMENT    65535
#define MOST_DIRECTORY  ((uint64_t)1 << 26)
#define FULL_32         0xffffffffu
#define FLAG_ENCRYPTED  1u
#define METHOD_STORED   0u
#define METHOD_DEFLATED 8u

static unsigned u16(const unsigned char *b)
{
    return b[0] | (unsigned)b[1] << 8;
}

static uint32_t u32(const unsigned char *b)
{
    return u16(b) | (uint32_t)u16(b + 2) << 16;
}

static uint64_t u64(const unsigned char *b)
{
    return u32(b) | (uint64_t)u32(b + 4) << 32;
}

static bool has_signature(const unsigned char *b, unsigned char third, unsigned char fourth)
{
    return b[0] == 'P' && b[1] == 'K' && b[2] == third && b[3] == fourth;
}

/* ---- The directory ---- */

/* The end record is at the end of the file except for a comment, whose length it contains. */
static ls_status find_end(const ls_data_file *file, unsigned char end[END_BYTES], uint64_t *offset)
{
    size_t tail_bytes = END_BYTES + MOST_COMMENT;
    if (tail_bytes > file->bytes)
        tail_bytes = (size_t)file->bytes;
    unsigned char *tail = malloc(tail_bytes + 1);
    if (!tail)
        return ls_fail(LS_ERR_MEMORY, "no memory to read '%s'", file->path);
    ls_status status = ls_data_file_at(file, file->bytes - tail_bytes, tail, tail_bytes, "the zip directory's end");
    bool found = false;
    for (size_t i = tail_bytes; status == LS_OK && !found && i >= END_BYTES; i--) {
        const unsigned char *record = tail + i - END_BYTES;
        found = has_signature(record, 5, 6) && u16(record + 20) == tail_bytes - i;
        if (found) {
            memcpy(end, record, END_BYTES);
            *offset = file->bytes - tail_bytes + (i - END_BYTES);
        }
    }
    free(tail);
    if (status == LS_OK && !found)
        status = ls_fail(LS_ERR_DATA,
                         "'%s' is not a zip archive, or is truncated: no end of the directory in its last %zu bytes",
                         file->path, tail_bytes);
    return status;
}

static ls_status read_end64(const ls_data_file *file, uint64_t end_offset, ls_zip *zip, uint64_t *bytes)
{
    unsigned char locator[LOCATOR_BYTES], end[END64_BYTES];
    if (end_offset < LOCATOR_BYTES)
        return ls_fail(LS_ERR_DATA, "'%s': no space for the 64-bit locator before byte %llu", file->path,
                       (unsigned long long)end_offset);
    LS_TRY(ls_data_file_at(file, end_offset - LOCATOR_BYTES, locator, sizeof locator, "the 64-bit locator"));
    if (!has_signature(locator, 6, 7))
        return ls_fail(LS_ERR_DATA, "'%s': expected the 64-bit locator at byte %llu", file->path,
                       (unsigned long long)(end_offset - LOCATOR_BYTES));
    LS_TRY(ls_data_file_at(file, u64(locator + 8), end, sizeof end, "the 64-bit directory's end"));
    if (!has_signature(end, 6, 6))
        return ls_fail(LS_ERR_DATA, "'%s': expected the 64-bit directory's end at byte %llu", file->path,
                       (unsigned long long)u64(locator + 8));
    zip->count = u64(end + 32);
    *bytes = u64(end + 40);
    zip->directory_offset = u64(end + 48);
    return LS_OK;
}

ls_status ls_zip_open(const ls_data_file *file, ls_zip *out)
{
    unsigned char end[END_BYTES] = { 0 };
    uint64_t end_offset = 0, bytes;
    ls_zip zip = { .file = file };
    LS_TRY(find_end(file, end, &end_offset));
    zip.count = u16(end + 10);
    bytes = u32(end + 12);
    zip.directory_offset = u32(end + 16);
    if (zip.count == 0xffff || bytes == FULL_32 || zip.directory_offset == FULL_32)
        LS_TRY(read_end64(file, end_offset, &zip, &bytes));
    if (bytes > MOST_DIRECTORY)
        return ls_fail(LS_ERR_DATA, "'%s': a directory of %llu bytes; at most %llu are accepted", file->path,
                       (unsigned long long)bytes, (unsigned long long)MOST_DIRECTORY);
    zip.directory_bytes = (size_t)bytes;
    if (zip.directory_offset > file->bytes || bytes > file->bytes - zip.directory_offset)
        return ls_fail(LS_ERR_DATA,
                       "'%s' is truncated: expected a directory of %llu bytes at byte %llu, but the file has %llu",
                       file->path, (unsigned long long)bytes, (unsigned long long)zip.directory_offset,
                       (unsigned long long)file->bytes);
    zip.directory = malloc(zip.directory_bytes + 1);
    if (!zip.directory)
        return ls_fail(LS_ERR_MEMORY, "no memory for the directory of '%s'", file->path);
    ls_status status =
        ls_data_file_at(file, zip.directory_offset, zip.directory, zip.directory_bytes, "the zip directory");
    if (status != LS_OK) {
        free(zip.directory);
        return status;
    }
    *out = zip;
    return LS_OK;
}

void ls_zip_close(ls_zip *zip)
{
    free(zip->directory);
    zip->directory = NULL;
}

/* ---- Members ---- */

typedef struct entry {
    const unsigned char *head;
    const char *name;
    size_t name_chars;
    const unsigned char *extra;
    size_t extra_bytes;
} entry;

/* Advances *position to the next entry. */
static ls_status next_entry(const ls_zip *zip, size_t *position, entry *out)
{
    const unsigned char *head = zip->directory + *position;
    size_t left = zip->directory_bytes - *position;
    size_t whole =
        left < ENTRY_BYTES ? ENTRY_BYTES : (size_t)ENTRY_BYTES + u16(head + 28) + u16(head + 30) + u16(head + 32);
    if (left < whole || !has_signature(head, 1, 2))
        return ls_fail(LS_ERR_DATA, "'%s': the zip directory is damaged: expected an entry of %zu bytes at byte %llu",
                       zip->file->path, whole, (unsigned long long)(zip->directory_offset + *position));
    *out = (entry){ .head = head,
                    .name = (const char *)head + ENTRY_BYTES,
                    .name_chars = u16(head + 28),
                    .extra = head + ENTRY_BYTES + u16(head + 28),
                    .extra_bytes = u16(head + 30) };
    *position += whole;
    return LS_OK;
}

/* Reads a 64-bit field if the 32-bit one is FULL_32. The extra field contains only such fields, in
 * a fixed order. */
static ls_status take_wide(const ls_zip *zip, const unsigned char **at, const unsigned char *end, uint64_t *field)
{
    if (*field != FULL_32)
        return LS_OK;
    if (end - *at < 8)
        return ls_fail(LS_ERR_DATA, "'%s': the zip directory is damaged: a 64-bit size is missing", zip->file->path);
    *field = u64(*at);
    *at += 8;
    return LS_OK;
}

static ls_status read_member(const ls_zip *zip, const entry *e, ls_zip_member *out)
{
    ls_zip_member m = { .flags = u16(e->head + 8),
                        .method = u16(e->head + 10),
                        .crc = u32(e->head + 16),
                        .packed = u32(e->head + 20),
                        .unpacked = u32(e->head + 24),
                        .offset = u32(e->head + 42) };
    const unsigned char *at = e->extra, *end = at + e->extra_bytes;
    while (end - at >= 4 && u16(at) != 1)
        at = end - at - 4 < (ptrdiff_t)u16(at + 2) ? end : at + 4 + u16(at + 2);
    if (end - at >= 4) {
        const unsigned char *field_end = end - at - 4 < (ptrdiff_t)u16(at + 2) ? end : at + 4 + u16(at + 2);
        at += 4;
        end = field_end;
    }
    LS_TRY(take_wide(zip, &at, end, &m.unpacked));
    LS_TRY(take_wide(zip, &at, end, &m.packed));
    LS_TRY(take_wide(zip, &at, end, &m.offset));
    *out = m;
    return LS_OK;
}

ls_status ls_zip_find(const ls_zip *zip, const char *name, ls_zip_member *out, bool *found)
{
    size_t position = 0;
    entry e;
    *found = false;
    for (uint64_t i = 0; i < zip->count; i++) {
        LS_TRY(next_entry(zip, &position, &e));
        if (e.name_chars == strlen(name) && memcmp(e.name, name, e.name_chars) == 0) {
            LS_TRY(read_member(zip, &e, out));
            *found = true;
            return LS_OK;
        }
    }
    return LS_OK;
}

ls_status ls_zip_next(const ls_zip *zip, size_t *position, const char **name, size_t *chars)
{
    entry e;
    LS_TRY(next_entry(zip, position, &e));
    *name = e.name;
    *chars = e.name_chars;
    return LS_OK;
}

ls_status ls_zip_names(const ls_zip *zip, ls_text *out)
{
    size_t position = 0;
    entry e;
    for (uint64_t i = 0; i < zip->count; i++) {
        LS_TRY(next_entry(zip, &position, &e));
        ls_text_put(out, i == 0 ? "" : " ");
        size_t begin = out->length;
        ls_text_put_bytes(out, e.name, e.name_chars);
        if (!out->failed)
            ls_make_printable(out->data + begin, e.name_chars);
    }
    return LS_OK;
}

ls_status ls_zip_stream(const ls_zip *zip, const char *name, const ls_zip_member *member, ls_stream **out)
{
    unsigned char local[LOCAL_BYTES];
    const char *path = zip->file->path;
    if (member->flags & FLAG_ENCRYPTED)
        return ls_fail(LS_ERR_UNSUPPORTED, "'%s' (%s) is encrypted, which is not supported", path, name);
    if (member->method != METHOD_STORED && member->method != METHOD_DEFLATED)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "'%s' (%s) is compressed by zip method %u; stored (0) and deflated (8) are supported", path,
                       name, member->method);
    LS_TRY(ls_data_file_at(zip->file, member->offset, local, sizeof local, "a member's header"));
    if (!has_signature(local, 3, 4))
        return ls_fail(LS_ERR_DATA, "'%s' (%s): expected the member's header at byte %llu, found 0x%08x", path, name,
                       (unsigned long long)member->offset, (unsigned)u32(local));
    uint64_t begin = member->offset + LOCAL_BYTES + u16(local + 26) + u16(local + 28);
    if (begin > zip->file->bytes || member->packed > zip->file->bytes - begin)
        return ls_fail(LS_ERR_DATA, "'%s' (%s) is truncated: expected %llu bytes at byte %llu, but the file has %llu",
                       path, name, (unsigned long long)member->packed, (unsigned long long)begin,
                       (unsigned long long)zip->file->bytes);
    if (member->method == METHOD_STORED && member->packed != member->unpacked)
        return ls_fail(LS_ERR_DATA, "'%s' (%s): a stored member of %llu bytes occupies %llu", path, name,
                       (unsigned long long)member->unpacked, (unsigned long long)member->packed);
    LS_TRY(ls_stream_open(zip->file, name, member->method == METHOD_STORED ? LS_PACKING_NONE : LS_PACKING_DEFLATE,
                          begin, member->packed, out));
    ls_stream_expect_crc(*out, member->crc);
    return LS_OK;
}

static ls_status read_whole(const ls_zip *zip, const char *name, size_t limit, char **data, size_t *bytes)
{
    ls_zip_member member = { 0 };
    ls_stream *stream = NULL;
    bool found;
    const char *path = zip->file->path;
    LS_TRY(ls_zip_find(zip, name, &member, &found));
    if (!found)
        return ls_fail(LS_ERR_DATA, "'%s' has no member %s", path, name);
    LS_TRY(ls_zip_stream(zip, name, &member, &stream));
    ls_status status = LS_OK;
    char *whole = NULL;
    if (member.unpacked > limit || member.unpacked > ls_stream_most(stream))
        status = ls_fail(LS_ERR_DATA, "'%s': %s claims to have %llu bytes; at most %llu are possible", path, name,
                         (unsigned long long)member.unpacked,
                         (unsigned long long)(limit < ls_stream_most(stream) ? limit : ls_stream_most(stream)));
    else if ((whole = malloc((size_t)member.unpacked + 1)) == NULL)
        status = ls_fail(LS_ERR_MEMORY, "no memory for %s of '%s'", name, path);
    else
        status = ls_stream_read(stream, whole, (size_t)member.unpacked, "data");
    if (status == LS_OK)
        status = ls_stream_finish(stream);
    ls_stream_close(stream);
    if (status != LS_OK) {
        free(whole);
        return status;
    }
    whole[member.unpacked] = '\0';
    *data = whole;
    *bytes = (size_t)member.unpacked;
    return LS_OK;
}

ls_status ls_zip_read_from(const char *path, const char *name, size_t limit, char **data, size_t *bytes)
{
    ls_data_file file;
    ls_zip zip;
    LS_TRY(ls_data_file_open(path, &file));
    ls_status status = ls_zip_open(&file, &zip);
    if (status == LS_OK) {
        status = read_whole(&zip, name, limit, data, bytes);
        ls_zip_close(&zip);
    }
    ls_data_file_close(&file);
    return status;
}
