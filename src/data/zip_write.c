/* Members are stored, dated 1980-01-01, in the given order, so that equal contents give equal
 * bytes. Archives must be smaller than 4 GiB (no 64-bit extension). */
#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "base/size.h"
#include "base/status.h"
#include "data/zip.h"

#define LOCAL_BYTES  30
#define ENTRY_BYTES  46
#define END_BYTES    22
#define VERSION      20 /* version 2.0 is needed to extract */
#define FLAG_UTF8    0x800u
#define FIRST_DAY    0x21 /* 1980-01-01 */
#define MOST_NAME    65535
#define MOST_BYTES   0xfffffffeu
#define MOST_MEMBERS 65534
#define STEP         ((size_t)1 << 30) /* zlib uses unsigned int for sizes */

typedef struct writer {
    const char *path;
    const ls_zip_new *members;
    size_t count;
    unsigned char *heads; /* local headers, then the directory and its end record */
    unsigned char *at;    /* next free byte of `heads` */
    ls_file_part *parts;
    size_t part_count;
    uint64_t offset; /* position in the file of the next part */
} writer;

typedef struct record {
    uint32_t crc, bytes, offset;
} record;

static unsigned char *put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *at++ = (unsigned char)(value >> (8 * i));
    return at;
}

static void add_part(writer *w, const void *data, size_t bytes)
{
    w->parts[w->part_count++] = (ls_file_part){ data, bytes };
    w->offset += bytes;
}

/* The fields that local headers and directory entries share, from the version on. */
static unsigned char *put_common(unsigned char *at, const char *name, const record *r)
{
    at = put(at, VERSION, 2);
    at = put(at, FLAG_UTF8, 2);
    at = put(at, 0, 2); /* stored */
    at = put(at, 0, 2); /* midnight */
    at = put(at, FIRST_DAY, 2);
    at = put(at, r->crc, 4);
    at = put(at, r->bytes, 4);
    at = put(at, r->bytes, 4);
    at = put(at, strlen(name), 2);
    return put(at, 0, 2); /* no extra field */
}

static uint32_t add_crc(uint32_t crc, const unsigned char *data, size_t bytes)
{
    for (size_t part; bytes > 0; data += part, bytes -= part) {
        part = bytes < STEP ? bytes : STEP;
        crc = (uint32_t)crc32(crc, data, (uInt)part);
    }
    return crc;
}

static void add_member(writer *w, const ls_zip_new *member, record *r)
{
    *r = (record){ .crc = (uint32_t)crc32(0, NULL, 0), .offset = (uint32_t)w->offset };
    for (size_t i = 0; i < member->part_count; i++) {
        r->crc = add_crc(r->crc, member->parts[i].data, member->parts[i].bytes);
        r->bytes += (uint32_t)member->parts[i].bytes;
    }
    unsigned char *begin = w->at;
    w->at = put_common(put(begin, 0x04034b50, 4), member->name, r);
    memcpy(w->at, member->name, strlen(member->name));
    w->at += strlen(member->name);
    add_part(w, begin, (size_t)(w->at - begin));
    for (size_t i = 0; i < member->part_count; i++)
        if (member->parts[i].bytes)
            add_part(w, member->parts[i].data, member->parts[i].bytes);
}

static void add_directory(writer *w, const record *records)
{
    unsigned char *begin = w->at;
    uint64_t offset = w->offset;
    for (size_t i = 0; i < w->count; i++) {
        const char *name = w->members[i].name;
        w->at = put(put(w->at, 0x02014b50, 4), VERSION, 2);
        w->at = put_common(w->at, name, &records[i]);
        w->at = put(put(w->at, 0, 8), 0, 2); /* no comment, first disk, no attributes */
        w->at = put(w->at, records[i].offset, 4);
        memcpy(w->at, name, strlen(name));
        w->at += strlen(name);
    }
    size_t bytes = (size_t)(w->at - begin);
    w->at = put(put(w->at, 0x06054b50, 4), 0, 4);
    w->at = put(put(w->at, w->count, 2), w->count, 2);
    w->at = put(put(put(w->at, bytes, 4), offset, 4), 0, 2);
    add_part(w, begin, (size_t)(w->at - begin));
}

static ls_status measure(const writer *w, size_t *head_bytes, size_t *part_count)
{
    size_t total = END_BYTES;
    *head_bytes = END_BYTES;
    *part_count = 1;
    bool fits = w->count <= MOST_MEMBERS;
    for (size_t i = 0; fits && i < w->count; i++) {
        size_t name = strlen(w->members[i].name);
        if (name == 0 || name > MOST_NAME || !ls_is_utf8(w->members[i].name))
            return ls_fail(LS_ERR_INVALID,
                           "cannot write '%s': \"%.80s\" is not a valid name for a member of a zip archive", w->path,
                           w->members[i].name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(w->members[k].name, w->members[i].name) == 0)
                return ls_fail(LS_ERR_INVALID, "cannot write '%s': two members are named \"%s\"", w->path,
                               w->members[i].name);
        *head_bytes += LOCAL_BYTES + ENTRY_BYTES + 2 * name;
        fits = ls_size_add(total, LOCAL_BYTES + ENTRY_BYTES + 2 * name, &total);
        *part_count += 1 + w->members[i].part_count;
        for (size_t k = 0; fits && k < w->members[i].part_count; k++)
            fits = ls_size_add(total, w->members[i].parts[k].bytes, &total);
    }
    if (!fits || total > MOST_BYTES)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "cannot write '%s': a zip archive here has less than 4 GiB and at most %d members; a "
                       "safetensors file may be larger",
                       w->path, MOST_MEMBERS);
    return LS_OK;
}

ls_status ls_zip_write(const char *path, const ls_zip_new *members, size_t count)
{
    writer w = { .path = path, .members = members, .count = count };
    size_t head_bytes, part_count;
    LS_TRY(measure(&w, &head_bytes, &part_count));
    record *records = calloc(count + 1, sizeof *records);
    w.heads = w.at = malloc(head_bytes);
    w.parts = calloc(part_count, sizeof *w.parts);
    ls_status status = LS_OK;
    if (!records || !w.heads || !w.parts)
        status = ls_fail(LS_ERR_MEMORY, "no memory to write '%s' (%zu members)", path, count);
    if (status == LS_OK) {
        for (size_t i = 0; i < count; i++)
            add_member(&w, &members[i], &records[i]);
        add_directory(&w, records);
        status = ls_file_write_parts(path, w.parts, w.part_count);
    }
    free(records);
    free(w.heads);
    free(w.parts);
    return status;
}
