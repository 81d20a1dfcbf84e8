/* Everything in the file is checked before use. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "base/text.h"
#include "data/float16.h"
#include "data/hdf5.h"
#include "data/stream.h"

#define MOST_DEPTH  32     /* nesting of groups */
#define MOST_VISITS 200000 /* tree nodes, headers and blocks read in total: files may have cycles */
#define MOST_BLOCKS 64     /* blocks of one header */
#define ENTRY_BYTES 40     /* size of an entry in a symbol table */
#define NONE        UINT64_MAX

/* Types of header messages. */
enum {
    DATASPACE = 1,
    LINK_INFO = 2,
    DATATYPE = 3,
    EXTERNAL = 7,
    LINK = 6,
    LAYOUT = 8,
    FILTERS = 11,
    CONTINUATION = 16,
    SYMBOLS = 17
};

typedef struct reader {
    const char *path;
    const unsigned char *data;
    uint64_t bytes;
    uint64_t left; /* bytes that no array has used yet */
    size_t visits;
    ls_tensors *out;
} reader;

static uint64_t number(const unsigned char *b, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | b[i];
    return value;
}

static ls_status damaged(const reader *r, const char *name, const char *what, uint64_t offset)
{
    return ls_fail(LS_ERR_DATA, "'%s' is damaged or truncated: %s of \"/%s\" at byte %llu", r->path, what, name,
                   (unsigned long long)offset);
}

static ls_status unsupported(const reader *r, const char *name, const char *what)
{
    return ls_fail(LS_ERR_UNSUPPORTED, "'%s': \"/%s\" %s", r->path, name, what);
}

/* Returns NULL if the bytes are not within the file. */
static const unsigned char *at(const reader *r, uint64_t offset, uint64_t bytes)
{
    return offset <= r->bytes && bytes <= r->bytes - offset ? r->data + offset : NULL;
}

/* ---- Object headers ---- */

typedef struct message {
    const unsigned char *data; /* NULL: no such message */
    size_t bytes;
} message;

typedef struct object {
    message dataspace, datatype, layout, symbols;
    /* Unsupported: group of a later format; compressed; data in another file. */
    bool later, packed, outside;
} object;

static void take_message(object *o, unsigned kind, message m)
{
    switch (kind) {
    case DATASPACE:
        o->dataspace = m;
        break;
    case DATATYPE:
        o->datatype = m;
        break;
    case LAYOUT:
        o->layout = m;
        break;
    case SYMBOLS:
        o->symbols = m;
        break;
    case LINK_INFO:
    case LINK:
        o->later = true;
        break;
    case FILTERS:
        o->packed = true;
        break;
    case EXTERNAL:
        o->outside = true;
        break;
    default:
        break; /* attributes, times, fill values: ignored */
    }
}

typedef struct block {
    uint64_t offset, bytes;
} block;

/* Appends continuations to `blocks`. */
static ls_status read_block(reader *r, const char *name, block b, object *o, block *blocks, size_t *count)
{
    const unsigned char *p = at(r, b.offset, b.bytes);
    if (!p || ++r->visits > MOST_VISITS)
        return damaged(r, name, "the header", b.offset);
    for (uint64_t position = 0; b.bytes - position >= 8;) {
        unsigned kind = (unsigned)number(p + position, 2), flags = p[position + 4];
        message m = { .data = p + position + 8, .bytes = (size_t)number(p + position + 2, 2) };
        if (m.bytes > b.bytes - position - 8)
            return damaged(r, name, "a message in the header", b.offset + position);
        if (kind == CONTINUATION) {
            if (m.bytes < 16 || *count == MOST_BLOCKS)
                return damaged(r, name, "a message in the header", b.offset + position);
            blocks[(*count)++] = (block){ number(m.data, 8), number(m.data + 8, 8) };
        } else if (flags & 2 && (kind == DATASPACE || kind == DATATYPE)) {
            return unsupported(r, name, "has a shared type, which is not supported");
        } else {
            take_message(o, kind, m);
        }
        position += 8 + m.bytes;
    }
    return LS_OK;
}

static ls_status read_header(reader *r, const char *name, uint64_t offset, object *out)
{
    object o = { .later = false };
    block blocks[MOST_BLOCKS];
    size_t count = 1;
    const unsigned char *p = at(r, offset, 16);
    if (p && memcmp(p, "OHDR", 4) == 0)
        return unsupported(r, name,
                           "is in a later format of HDF5, which is not supported; Keras writes the first format");
    if (!p || p[0] != 1)
        return damaged(r, name, "the header", offset);
    blocks[0] = (block){ offset + 16, number(p + 8, 4) };
    for (size_t i = 0; i < count; i++)
        LS_TRY(read_block(r, name, blocks[i], &o, blocks, &count));
    *out = o;
    return LS_OK;
}

/* ---- Arrays ---- */

typedef struct element {
    ls_dtype dtype; /* type in memory */
    ls_float16 half;
    size_t bytes; /* size in the file */
    bool is_signed, is_integer;
} element;

/* Position and bits of the exponent, bits of the fraction (at 0), and the bias of an IEEE number.
 * */
static bool is_float(const unsigned char *p, int exponent, int exponent_bits, int fraction_bits, uint64_t bias)
{
    return p[12] == exponent && p[13] == exponent_bits && p[14] == 0 && p[15] == fraction_bits &&
           number(p + 16, 4) == bias;
}

static bool read_float(const unsigned char *p, element *e)
{
    bool ieee = (p[2] == 31 && e->bytes == 4) || (p[2] == 63 && e->bytes == 8) || (p[2] == 15 && e->bytes == 2);
    if (!ieee || (p[1] & 0x41) || number(p + 8, 2) != 0 || number(p + 10, 2) != 8 * e->bytes)
        return false;
    e->dtype = e->bytes == 8 ? LS_F64 : LS_F32;
    e->half = e->bytes != 2 ? LS_HALF_NONE : p[13] == 8 ? LS_HALF_BF16 : LS_HALF_F16;
    return e->bytes == 8             ? is_float(p, 52, 11, 52, 1023)
           : e->bytes == 4           ? is_float(p, 23, 8, 23, 127)
           : e->half == LS_HALF_BF16 ? is_float(p, 7, 8, 7, 127)
                                     : is_float(p, 10, 5, 10, 15);
}

static bool read_integer(const unsigned char *p, element *e)
{
    e->is_integer = true;
    e->is_signed = p[1] & 8;
    if ((p[1] & 1) || number(p + 8, 2) != 0 || number(p + 10, 2) != 8 * e->bytes)
        return false;
    bool plain = e->bytes == 1 || e->bytes == 2 || e->bytes == 4 || (e->bytes == 8 && e->is_signed);
    e->dtype = e->bytes == 1 && !e->is_signed                    ? LS_U8
               : e->bytes < 4 || (e->bytes == 4 && e->is_signed) ? LS_I32
                                                                 : LS_I64;
    return plain;
}

static ls_status read_type(const reader *r, const char *name, const message *m, element *out)
{
    element e = { .half = LS_HALF_NONE };
    unsigned class = m->bytes >= 12 ? m->data[0] & 15u : 15u;
    bool good = false;
    if (m->bytes >= 12)
        e.bytes = (size_t)number(m->data + 4, 4);
    if (class == 1 && m->bytes >= 20)
        good = read_float(m->data, &e);
    else if (class == 0)
        good = read_integer(m->data, &e);
    if (!good)
        return unsupported(r, name,
                           "holds neither little-endian integers nor IEEE floating-point numbers of 2, 4 or 8 bytes");
    *out = e;
    return LS_OK;
}

static ls_status read_shape(const reader *r, const char *name, const message *m, ls_shape *out)
{
    ls_shape shape = { .rank = 0 };
    size_t begin = m->bytes >= 4 && m->data[0] == 2 ? 4 : 8;
    if (m->bytes < begin || (m->data[0] != 1 && m->data[0] != 2) || (m->data[0] == 2 && m->data[3] > 1))
        return unsupported(r, name, "has an unsupported kind of shape");
    shape.rank = m->data[1];
    if (shape.rank > LS_MAX_RANK)
        return ls_fail(LS_ERR_UNSUPPORTED, "'%s': \"/%s\" has %d axes, but at most %d are supported", r->path, name,
                       shape.rank, LS_MAX_RANK);
    if (m->bytes - begin < 8 * (size_t)shape.rank)
        return damaged(r, name, "the shape", (uint64_t)(m->data - r->data));
    for (int i = 0; i < shape.rank; i++) {
        uint64_t size = number(m->data + begin + 8 * i, 8);
        if (size > INT64_MAX)
            return damaged(r, name, "the shape", (uint64_t)(m->data - r->data));
        shape.dims[i] = (int64_t)size;
    }
    *out = shape;
    return LS_OK;
}

/* The elements are contiguous in the file, or in the header itself. */
static ls_status find_data(reader *r, const char *name, const message *m, size_t needed, const unsigned char **out)
{
    static const unsigned char nothing;
    *out = &nothing;
    if (needed == 0)
        return LS_OK;
    if (m->bytes < 4 || (m->data[0] != 3 && m->data[0] != 4) || m->data[1] > 1)
        return unsupported(
            r, name, "does not have its numbers in one piece of the file, as Keras writes them; this is not supported");
    uint64_t offset, stored;
    if (m->data[1] == 0) {
        stored = number(m->data + 2, 2);
        offset = (uint64_t)(m->data + 4 - r->data);
    } else {
        if (m->bytes < 18)
            return damaged(r, name, "the address", (uint64_t)(m->data - r->data));
        offset = number(m->data + 2, 8);
        stored = number(m->data + 10, 8);
    }
    *out = at(r, offset, needed);
    if (offset == NONE || stored < needed || !*out || needed > r->left)
        return ls_fail(LS_ERR_DATA,
                       "'%s': \"/%s\" needs %zu bytes; it has %llu at byte %llu, in a file of %llu, of which other "
                       "arrays have %llu",
                       r->path, name, needed, (unsigned long long)stored, (unsigned long long)offset,
                       (unsigned long long)r->bytes, (unsigned long long)(r->bytes - r->left));
    r->left -= needed;
    return LS_OK;
}

static void widen_integers(const element *e, const unsigned char *from, size_t count, void *to)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = number(from + i * e->bytes, (int)e->bytes);
        if (e->is_signed && e->bytes < 8 && value >> (8 * e->bytes - 1))
            value |= UINT64_MAX << (8 * e->bytes);
        if (e->dtype == LS_I32)
            ((int32_t *)to)[i] = (int32_t)(uint32_t)value;
        else
            ((int64_t *)to)[i] = (int64_t)value;
    }
}

static ls_status read_dataset(reader *r, const char *name, const object *o)
{
    element e;
    ls_array array = { .data = NULL };
    size_t bytes = 0, needed = 0;
    const unsigned char *from;
    if (!o->dataspace.data || !o->datatype.data || !o->layout.data)
        return unsupported(r, name, "is neither a group nor an array");
    if (o->packed || o->outside)
        return unsupported(r, name,
                           o->packed ? "is compressed or filtered, which is not supported"
                                     : "has its numbers in another file, which is not supported");
    LS_TRY(read_type(r, name, &o->datatype, &e));
    LS_TRY(read_shape(r, name, &o->dataspace, &array.shape));
    array.dtype = e.dtype;
    size_t item = ls_dtype_bytes(e.dtype);
    if (!ls_data_bytes(e.dtype, &array.shape, &bytes) || !ls_size_mul(bytes / item, e.bytes, &needed))
        return ls_fail(LS_ERR_DATA, "'%s': \"/%s\" has a shape that exceeds any memory", r->path, name);
    LS_TRY(find_data(r, name, &o->layout, needed, &from));
    array.data = ls_data_alloc(bytes);
    if (!array.data)
        return ls_fail(LS_ERR_MEMORY, "no memory for the %zu bytes of \"/%s\" in '%s'", bytes, name, r->path);
    memcpy((char *)array.data + (e.half ? bytes - needed : 0), from, e.is_integer && e.bytes != item ? 0 : needed);
    if (e.half)
        ls_float16_widen(e.half, array.data, bytes / item);
    else if (e.is_integer && e.bytes != item)
        widen_integers(&e, from, bytes / item, array.data);
    return ls_tensors_add(r->out, r->path, name, strlen(name), array);
}

/* ---- Groups ---- */

/* A group being read. */
typedef struct group {
    const char *name;
    int depth;
    const unsigned char *names;
    uint64_t name_bytes;
} group;

static ls_status read_object(reader *r, const char *name, uint64_t offset, int depth);

static ls_status read_entry(reader *r, const group *g, const unsigned char *entry)
{
    uint64_t name = number(entry, 8), kind = number(entry + 16, 4);
    const unsigned char *own = name < g->name_bytes ? g->names + name : NULL;
    if (!own || !memchr(own, 0, (size_t)(g->name_bytes - name)) || own[0] == 0)
        return damaged(r, g->name, "a name", (uint64_t)(entry - r->data));
    if (g->name[0] == '\0' && strcmp((const char *)own, "optimizer") == 0)
        return LS_OK;
    ls_text path = { 0 };
    ls_text_add(&path, "%s%s%s", g->name, g->name[0] ? "/" : "", (const char *)own);
    ls_status status =
        path.failed ? ls_fail(LS_ERR_MEMORY, "no memory for a name of '%s'", r->path)
        : kind == 2 ? unsupported(r, ls_text_get(&path), "is a link to another file or group, which is not supported")
                    : read_object(r, ls_text_get(&path), number(entry + 8, 8), g->depth);
    ls_text_free(&path);
    return status;
}

static ls_status read_symbols(reader *r, const group *g, uint64_t offset)
{
    const unsigned char *p = at(r, offset, 8);
    if (!p || memcmp(p, "SNOD", 4) != 0 || ++r->visits > MOST_VISITS)
        return damaged(r, g->name, "a table of names", offset);
    uint64_t count = number(p + 6, 2);
    const unsigned char *entries = at(r, offset + 8, count * ENTRY_BYTES);
    if (!entries)
        return damaged(r, g->name, "a table of names", offset);
    for (uint64_t i = 0; i < count; i++)
        LS_TRY(read_entry(r, g, entries + i * ENTRY_BYTES));
    return LS_OK;
}

/* `level` decreases from the root; -1: unknown. The children of level 0 are symbol tables. */
static ls_status read_tree(reader *r, const group *g, uint64_t offset, int level)
{
    const unsigned char *p = at(r, offset, 24);
    if (!p || memcmp(p, "TREE", 4) != 0 || p[4] != 0 || (level >= 0 && p[5] != level) || p[5] > MOST_DEPTH ||
        ++r->visits > MOST_VISITS)
        return damaged(r, g->name, "a tree of names", offset);
    uint64_t count = number(p + 6, 2);
    /* One key before and one after each child. */
    const unsigned char *children = at(r, offset + 24, count * 16 + 8);
    if (!children)
        return damaged(r, g->name, "a tree of names", offset);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t child = number(children + 16 * i + 8, 8);
        LS_TRY(p[5] == 0 ? read_symbols(r, g, child) : read_tree(r, g, child, p[5] - 1));
    }
    return LS_OK;
}

static ls_status read_group(reader *r, const char *name, const message *symbols, int depth)
{
    if (symbols->bytes < 16)
        return damaged(r, name, "a message in the header", (uint64_t)(symbols->data - r->data));
    uint64_t heap = number(symbols->data + 8, 8);
    const unsigned char *p = at(r, heap, 32);
    if (!p || memcmp(p, "HEAP", 4) != 0)
        return damaged(r, name, "the names", heap);
    group g = { .name = name, .depth = depth + 1, .name_bytes = number(p + 8, 8) };
    g.names = at(r, number(p + 24, 8), g.name_bytes);
    if (!g.names)
        return damaged(r, name, "the names", heap);
    return read_tree(r, &g, number(symbols->data, 8), -1);
}

static ls_status read_object(reader *r, const char *name, uint64_t offset, int depth)
{
    object o;
    if (depth > MOST_DEPTH)
        return ls_fail(LS_ERR_DATA, "'%s': \"/%.80s...\" is nested too deep: in more than %d groups", r->path, name,
                       MOST_DEPTH);
    LS_TRY(read_header(r, name, offset, &o));
    if (o.symbols.data)
        return read_group(r, name, &o.symbols, depth);
    if (o.later)
        return unsupported(
            r, name, "is a group in a later format of HDF5, which is not supported; Keras writes the first format");
    return read_dataset(r, name, &o);
}

/* ---- The file ---- */

ls_status ls_hdf5_read(const char *path, const void *image, size_t bytes, ls_tensors *out)
{
    reader r = { .path = path, .data = image, .bytes = bytes, .left = bytes, .out = out };
    const unsigned char *p = at(&r, 0, 100);
    if (!p || memcmp(p, "\x89HDF\r\n\x1a\n", 8) != 0)
        return ls_fail(LS_ERR_DATA, "'%s' is not an HDF5 file, or is truncated: it has %zu bytes", path, bytes);
    if (p[8] > 1)
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "'%s' is in a later format of HDF5 (superblock %d), which is not supported; Keras writes the first format",
            path, p[8]);
    size_t more = p[8] == 1 ? 4 : 0; /* version 1 has an additional number */
    if (p[13] != 8 || p[14] != 8 || number(p + 24 + more, 8) != 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "'%s': addresses of %d and lengths of %d bytes; only 8 are supported", path,
                       p[13], p[14]);
    uint64_t end = number(p + 40 + more, 8);
    if (end > bytes)
        return ls_fail(LS_ERR_DATA, "'%s' is truncated: %zu bytes of %llu", path, bytes, (unsigned long long)end);
    return read_object(&r, "", number(p + 64 + more, 8), 0);
}
