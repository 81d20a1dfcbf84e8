/* Writer of HDF5 files: first all metadata in one block, then the arrays at multiples of 8. Names
 * are sorted and there are no dates: equal calls give equal bytes. */
#include <string.h>

#include "base/arena.h"
#include "base/grow.h"
#include "base/status.h"
#include "base/text.h"
#include "data/hdf5.h"
#include "data/stream.h"

#define ALIGNMENT    8
#define SUPERBLOCK   96
#define LEAF_K       4  /* a symbol table holds 2 * LEAF_K names */
#define TREE_K       16 /* a tree node holds 2 * TREE_K children */
#define TABLE_BYTES  (8 + 2 * LEAF_K * 40)
#define NODE_BYTES   (24 + 2 * TREE_K * 8 + (2 * TREE_K + 1) * 8)
#define NONE         UINT64_MAX
#define MOST_MESSAGE 65528 /* maximum size of a header message */

/* ---- The tree of groups ---- */

typedef struct node {
    const char *name;
    struct node **children; /* sorted by name */
    size_t count, capacity;
    const ls_safetensors_entry *entry; /* NULL: this is a group */
    const char *text;                  /* attribute "name" of a group; NULL: none */
    uint64_t header;                   /* position of its header in the file */
    uint64_t data;                     /* position of the header field with an array's address */
} node;

typedef struct writer {
    const char *path;
    ls_arena arena; /* nodes and names */
    node root;
    unsigned char *data; /* everything except the arrays */
    size_t bytes, capacity;
    uint64_t end; /* size of the file with the arrays placed so far */
} writer;

static ls_status no_memory(const writer *w)
{
    return ls_fail(LS_ERR_MEMORY, "no memory to write '%s'", w->path);
}

/* Creates the child if it does not exist. */
static ls_status find_child(writer *w, node *parent, const char *name, size_t chars, node **out)
{
    size_t position = 0;
    for (; position < parent->count; position++) {
        const char *other = parent->children[position]->name;
        int order = strncmp(other, name, chars);
        if (order == 0 && strlen(other) == chars) {
            *out = parent->children[position];
            return LS_OK;
        }
        if (order > 0 || (order == 0 && strlen(other) > chars))
            break;
    }
    LS_TRY(ls_grow(&parent->children, parent->count, &parent->capacity, sizeof(node *)));
    node *child = ls_arena_alloc(&w->arena, sizeof *child);
    char *copy = ls_arena_alloc(&w->arena, chars + 1);
    if (!child || !copy)
        return no_memory(w);
    memcpy(copy, name, chars);
    copy[chars] = '\0';
    *child = (node){ .name = copy };
    memmove(parent->children + position + 1, parent->children + position, (parent->count - position) * sizeof(node *));
    parent->children[position] = child;
    parent->count++;
    *out = child;
    return LS_OK;
}

/* Creates missing nodes of the path, "layers/dense/vars". */
static ls_status find_path(writer *w, const char *path, node **out)
{
    node *n = &w->root;
    for (const char *part = path; *part != '\0';) {
        size_t chars = strcspn(part, "/");
        if (chars == 0 || n->entry)
            return ls_fail(LS_ERR_INVALID, "cannot write '%s': \"%s\" is not a path of an array", w->path, path);
        LS_TRY(find_child(w, n, part, chars, &n));
        part += chars + (part[chars] == '/');
    }
    *out = n;
    return LS_OK;
}

static ls_status add_array(writer *w, const ls_safetensors_entry *entry)
{
    node *n;
    LS_TRY(find_path(w, entry->name, &n));
    if (n == &w->root || n->entry || n->count > 0)
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': \"%s\" is given twice, or is also a group", w->path,
                       entry->name);
    n->entry = entry;
    return LS_OK;
}

static ls_status add_group(writer *w, const ls_safetensors_pair *pair)
{
    node *n = NULL;
    LS_TRY(find_path(w, pair->key, &n));
    LS_TRY(find_child(w, n, "vars", 4, &n));
    if (strlen(pair->value) > MOST_MESSAGE / 2)
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': a name of %zu characters is too long", w->path,
                       strlen(pair->value));
    n->text = pair->value;
    return LS_OK;
}

static void free_children(node *n)
{
    for (size_t i = 0; i < n->count; i++)
        free_children(n->children[i]);
    free(n->children);
}

/* ---- Bytes ---- */

/* Appends `bytes` zero bytes; *offset is their position in the file. */
static ls_status reserve(writer *w, size_t bytes, uint64_t *offset)
{
    size_t whole = w->bytes + (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (whole > w->capacity) {
        size_t capacity = whole > 2 * w->capacity ? whole : 2 * w->capacity;
        unsigned char *data = realloc(w->data, capacity);
        if (!data)
            return no_memory(w);
        w->data = data;
        w->capacity = capacity;
    }
    memset(w->data + w->bytes, 0, whole - w->bytes);
    *offset = w->bytes;
    w->bytes = whole;
    return LS_OK;
}

static void put(writer *w, uint64_t offset, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        w->data[offset + (size_t)i] = (unsigned char)(value >> (8 * i));
}

static void put_text(writer *w, uint64_t offset, const char *text)
{
    memcpy(w->data + offset, text, strlen(text));
}

/* ---- Groups ---- */

/* `names` are the heap positions of each child's last name. The children of level 0 are symbol
 * tables. */
static ls_status put_tree(writer *w, int level, const uint64_t *children, const uint64_t *names, size_t count,
                          uint64_t before, uint64_t left, uint64_t *out)
{
    uint64_t node;
    LS_TRY(reserve(w, NODE_BYTES, &node));
    put_text(w, node, "TREE");
    put(w, node + 5, (uint64_t)level, 1);
    put(w, node + 6, count, 2);
    put(w, node + 8, left, 8);
    put(w, node + 16, NONE, 8); /* set when the next node is written */
    if (left != NONE)
        put(w, left + 16, node, 8);
    put(w, node + 24, before, 8);
    for (size_t i = 0; i < count; i++) {
        put(w, node + 32 + 16 * i, children[i], 8);
        put(w, node + 40 + 16 * i, names[i], 8);
    }
    *out = node;
    return LS_OK;
}

/* Overwrites both lists. */
static ls_status put_levels(writer *w, uint64_t *children, uint64_t *names, size_t count, uint64_t *root)
{
    for (int level = 0;; level++) {
        size_t nodes = 0;
        uint64_t before = 0, left = NONE;
        for (size_t i = 0; i == 0 || i < count; i += 2 * TREE_K) {
            size_t part = count - i < 2 * TREE_K ? count - i : 2 * TREE_K;
            uint64_t node, last = part > 0 ? names[i + part - 1] : 0;
            LS_TRY(put_tree(w, level, children + i, names + i, part, before, left, &node));
            children[nodes] = left = node;
            names[nodes++] = before = last;
        }
        count = nodes;
        if (count == 1) {
            *root = children[0];
            return LS_OK;
        }
    }
}

static ls_status put_heap(writer *w, const node *group, uint64_t *positions, uint64_t *out)
{
    size_t bytes = ALIGNMENT;
    uint64_t heap, names;
    for (size_t i = 0; i < group->count; i++) {
        positions[i] = bytes;
        bytes += (strlen(group->children[i]->name) + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    }
    LS_TRY(reserve(w, 32, &heap));
    LS_TRY(reserve(w, bytes, &names));
    put_text(w, heap, "HEAP");
    put(w, heap + 8, bytes, 8);
    put(w, heap + 16, 1, 8); /* no free space */
    put(w, heap + 24, names, 8);
    for (size_t i = 0; i < group->count; i++)
        put_text(w, names + positions[i], group->children[i]->name);
    *out = heap;
    return LS_OK;
}

static ls_status put_tables(writer *w, const node *group, const uint64_t *positions, uint64_t *tables, uint64_t *last)
{
    for (size_t i = 0; i < group->count; i += 2 * LEAF_K) {
        size_t part = group->count - i < 2 * LEAF_K ? group->count - i : 2 * LEAF_K;
        uint64_t table;
        LS_TRY(reserve(w, TABLE_BYTES, &table));
        put_text(w, table, "SNOD");
        put(w, table + 4, 1, 1);
        put(w, table + 6, part, 2);
        for (size_t k = 0; k < part; k++) {
            put(w, table + 8 + 40 * k, positions[i + k], 8);
            put(w, table + 16 + 40 * k, group->children[i + k]->header, 8);
        }
        tables[i / (2 * LEAF_K)] = table;
        last[i / (2 * LEAF_K)] = positions[i + part - 1];
    }
    return LS_OK;
}

/* ---- Headers ---- */

static ls_status begin_header(writer *w, size_t messages, uint64_t *out)
{
    LS_TRY(reserve(w, 16, out));
    put(w, *out, 1, 1);
    put(w, *out + 2, messages, 2);
    put(w, *out + 4, 1, 4); /* number of links to it */
    return LS_OK;
}

static void end_header(writer *w, uint64_t header)
{
    put(w, header + 8, w->bytes - header - 16, 4);
}

static ls_status add_message(writer *w, unsigned kind, size_t bytes, uint64_t *out)
{
    uint64_t offset;
    LS_TRY(reserve(w, 8 + bytes, &offset));
    put(w, offset, kind, 2);
    put(w, offset + 2, w->bytes - offset - 8, 2);
    *out = offset + 8;
    return LS_OK;
}

static ls_status add_attribute(writer *w, const char *text)
{
    uint64_t m;
    size_t chars = strlen(text) + 1;
    LS_TRY(add_message(w, 12, 8 + 8 + 8 + 8 + chars, &m));
    put(w, m, 1, 1);
    put(w, m + 2, sizeof "name", 2);
    put(w, m + 4, 8, 2); /* size of the type */
    put(w, m + 6, 8, 2); /* size of the shape */
    put_text(w, m + 8, "name");
    put(w, m + 16, 0x13, 1); /* zero-terminated string */
    put(w, m + 17, 0x10, 1); /* UTF-8 */
    put(w, m + 20, chars, 4);
    put(w, m + 24, 1, 1); /* a scalar */
    put_text(w, m + 32, text);
    return LS_OK;
}

static ls_status put_group(writer *w, node *group)
{
    size_t tables = group->count / (2 * LEAF_K) + 1;
    uint64_t *positions = calloc(group->count + 1, sizeof *positions), *children = calloc(tables, sizeof *children),
             *last = calloc(tables, sizeof *last), heap = 0, tree = 0, m;
    ls_status status = positions && children && last ? put_heap(w, group, positions, &heap) : no_memory(w);
    if (status == LS_OK)
        status = put_tables(w, group, positions, children, last);
    if (status == LS_OK)
        status = put_levels(w, children, last, (group->count + 2 * LEAF_K - 1) / (2 * LEAF_K), &tree);
    free(positions);
    free(children);
    free(last);
    LS_TRY(status);
    LS_TRY(begin_header(w, group->text ? 2 : 1, &group->header));
    LS_TRY(add_message(w, 17, 16, &m));
    put(w, m, tree, 8);
    put(w, m + 8, heap, 8);
    if (group->text)
        LS_TRY(add_attribute(w, group->text));
    end_header(w, group->header);
    return LS_OK;
}

static ls_status add_type(writer *w, ls_dtype dtype)
{
    uint64_t m;
    size_t bytes = ls_dtype_bytes(dtype);
    bool real = dtype == LS_F32 || dtype == LS_F64;
    LS_TRY(add_message(w, 3, real ? 20 : 12, &m));
    put(w, m, real ? 0x11 : 0x10, 1);
    /* Floats: implied leading bit; integers: signed. */
    put(w, m + 1, real ? 0x20 : dtype == LS_U8 || dtype == LS_BOOL ? 0 : 8, 1);
    put(w, m + 2, real ? 8 * bytes - 1 : 0, 1); /* position of the sign bit */
    put(w, m + 4, bytes, 4);
    put(w, m + 10, 8 * bytes, 2);
    if (real) {
        /* Position and bits of the exponent, position (0) and bits of the fraction, bias. */
        put(w, m + 12, dtype == LS_F32 ? 23 : 52, 1);
        put(w, m + 13, dtype == LS_F32 ? 8 : 11, 1);
        put(w, m + 15, dtype == LS_F32 ? 23 : 52, 1);
        put(w, m + 16, dtype == LS_F32 ? 127 : 1023, 4);
    }
    return LS_OK;
}

static ls_status put_array(writer *w, node *array)
{
    const ls_shape *shape = &array->entry->shape;
    size_t bytes = 0;
    uint64_t m;
    if ((unsigned)array->entry->dtype >= LS_DTYPE_COUNT || !ls_data_bytes(array->entry->dtype, shape, &bytes) ||
        (bytes > 0 && !array->entry->data))
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': \"%s\" is not an array", w->path, array->entry->name);
    LS_TRY(begin_header(w, 4, &array->header));
    LS_TRY(add_message(w, 1, 8 + 8 * (size_t)shape->rank, &m));
    put(w, m, 1, 1);
    put(w, m + 1, (uint64_t)shape->rank, 1);
    for (int i = 0; i < shape->rank; i++)
        put(w, m + 8 + 8 * (uint64_t)i, (uint64_t)shape->dims[i], 8);
    LS_TRY(add_type(w, array->entry->dtype));
    LS_TRY(add_message(w, 5, 8, &m)); /* fill value: zero */
    put(w, m, 2, 1);
    put(w, m + 1, 2, 1);
    put(w, m + 2, 2, 1);
    put(w, m + 3, 1, 1);
    LS_TRY(add_message(w, 8, 18, &m));
    put(w, m, 3, 1);
    put(w, m + 1, 1, 1);
    array->data = m + 2; /* place_arrays writes the address there */
    put(w, m + 10, bytes, 8);
    end_header(w, array->header);
    return LS_OK;
}

/* Children come before their group, which refers to them. */
static ls_status put_node(writer *w, node *n)
{
    if (n->entry)
        return put_array(w, n);
    for (size_t i = 0; i < n->count; i++)
        LS_TRY(put_node(w, n->children[i]));
    return put_group(w, n);
}

/* ---- The file ---- */

static void put_superblock(writer *w)
{
    memcpy(w->data, "\x89HDF\r\n\x1a\n", 8);
    put(w, 13, 8, 1); /* size of addresses, size of lengths */
    put(w, 14, 8, 1);
    put(w, 16, LEAF_K, 2);
    put(w, 18, TREE_K, 2);
    put(w, 32, NONE, 8);
    put(w, 40, w->end, 8);
    put(w, 48, NONE, 8);
    put(w, 64, w->root.header, 8);
}

/* Places the arrays in tree order. */
static void place_arrays(writer *w, const node *n, ls_file_part *parts, size_t *count)
{
    static const unsigned char zeros[ALIGNMENT];
    for (size_t i = 0; i < n->count; i++)
        place_arrays(w, n->children[i], parts, count);
    size_t bytes = 0;
    if (!n->entry || !ls_data_bytes(n->entry->dtype, &n->entry->shape, &bytes))
        return;
    put(w, n->data, bytes > 0 ? w->end : NONE, 8);
    parts[(*count)++] = (ls_file_part){ n->entry->data, bytes };
    size_t pad = (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
    parts[(*count)++] = (ls_file_part){ zeros, pad };
    w->end += bytes + pad;
}

static ls_status make(writer *w, const ls_safetensors_entry *entries, size_t count, const ls_safetensors_pair *groups,
                      size_t group_count, ls_file_part *parts, size_t *part_count)
{
    uint64_t begin;
    LS_TRY(reserve(w, SUPERBLOCK, &begin));
    for (size_t i = 0; i < group_count; i++)
        LS_TRY(add_group(w, &groups[i]));
    for (size_t i = 0; i < count; i++)
        LS_TRY(add_array(w, &entries[i]));
    LS_TRY(put_node(w, &w->root));
    w->end = w->bytes;
    *part_count = 1;
    place_arrays(w, &w->root, parts, part_count);
    put_superblock(w);
    parts[0] = (ls_file_part){ w->data, w->bytes };
    return LS_OK;
}

ls_status ls_hdf5_make(const char *path, const ls_safetensors_entry *entries, size_t count,
                       const ls_safetensors_pair *groups, size_t group_count, ls_file_part **parts, size_t *part_count,
                       void **memory)
{
    writer w = { .path = path, .root = { .name = "" } };
    ls_file_part *made = calloc(2 * count + 1, sizeof *made);
    size_t made_count = 0;
    ls_status status = made ? make(&w, entries, count, groups, group_count, made, &made_count) : no_memory(&w);
    free_children(&w.root);
    ls_arena_free(&w.arena);
    if (status != LS_OK) {
        free(w.data);
        free(made);
        return status;
    }
    *parts = made;
    *part_count = made_count;
    *memory = w.data;
    return LS_OK;
}
