/* Byte-level BPE: names and merges in hash tables, and encoding. A heap gives the merges of a word
 * in the order of their ranks, equal ranks from the left: n log n for a word of n bytes. */
#include <string.h>

#include "base/grow.h"
#include "base/status.h"
#include "data/tokenizer.h"

/* ---- Names of bytes ---- */

static bool is_printable(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* Each byte has a printable character: itself, or the next one from U+0100 on. */
static void name_bytes(ls_bpe *bpe)
{
    uint32_t next = 256;
    memset(bpe->bytes, 0xff, sizeof bpe->bytes); /* -1 */
    for (unsigned b = 0; b < 256; b++) {
        bpe->codes[b] = is_printable(b) ? b : next++;
        bpe->bytes[bpe->codes[b]] = (int16_t)b;
    }
}

size_t ls_bpe_token_bytes(const ls_bpe *bpe, int32_t id, char *out)
{
    const ls_bpe_token *token = &bpe->tokens[id];
    size_t count = 0;
    for (size_t at = 0; at < token->bytes;) {
        uint32_t code;
        at += ls_utf8_next(token->text + at, token->bytes - at, &code);
        if (code >= LS_BYTE_CODES || bpe->bytes[code] < 0) { /* a name that is not byte-level stays as it is */
            memcpy(out, token->text, token->bytes);
            return token->bytes;
        }
        out[count++] = (char)bpe->bytes[code];
    }
    return count;
}

/* ---- Hash tables ---- */

static uint64_t hash_bytes(const char *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static uint64_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Returns a power of two that leaves half of the table empty, minus 1. */
static size_t mask_for(size_t count)
{
    size_t places = 16;
    while (places < count * 2)
        places *= 2;
    return places - 1;
}

static uint32_t *find_slot(const ls_bpe *bpe, const char *name, size_t bytes)
{
    for (size_t i = hash_bytes(name, bytes) & bpe->slot_mask;; i = (i + 1) & bpe->slot_mask) {
        uint32_t *slot = &bpe->slots[i];
        if (*slot == 0)
            return slot;
        const ls_bpe_token *token = &bpe->tokens[*slot - 1];
        if (token->bytes == bytes && memcmp(token->text, name, bytes) == 0)
            return slot;
    }
}

int32_t ls_bpe_find(const ls_bpe *bpe, const char *name, size_t bytes)
{
    return (int32_t)*find_slot(bpe, name, bytes) - 1;
}

static ls_bpe_merge *find_merge(const ls_bpe *bpe, uint32_t left, uint32_t right)
{
    for (size_t i = hash_pair(left, right) & bpe->merge_mask;; i = (i + 1) & bpe->merge_mask) {
        ls_bpe_merge *merge = &bpe->merges[i];
        if (merge->rank == LS_NO_RANK || (merge->left == left && merge->right == right))
            return merge;
    }
}

/* ---- Building ---- */

ls_status ls_bpe_begin(ls_bpe *bpe, size_t size, size_t count)
{
    bpe->size = size;
    bpe->slot_mask = mask_for(count);
    bpe->tokens = calloc(size ? size : 1, sizeof *bpe->tokens);
    bpe->slots = calloc(bpe->slot_mask + 1, sizeof *bpe->slots);
    if (!bpe->tokens || !bpe->slots)
        return ls_fail(LS_ERR_MEMORY, "no memory for a vocabulary of %zu tokens", size);
    return LS_OK;
}

ls_status ls_bpe_add(ls_bpe *bpe, const char *file, const char *name, size_t bytes, int64_t id)
{
    uint32_t *slot = find_slot(bpe, name, bytes);
    ls_bpe_token *token = &bpe->tokens[id];
    if (*slot != 0 && *slot != (uint32_t)id + 1)
        return ls_fail(LS_ERR_DATA, "'%s': the token \"%.100s\" has the ids %u and %lld", file, name, *slot - 1,
                       (long long)id);
    if (*slot != 0)
        return LS_OK;
    if (token->text)
        return ls_fail(LS_ERR_DATA, "'%s': the tokens \"%.100s\" and \"%.100s\" have the same id %lld", file,
                       token->text, name, (long long)id);
    token->text = ls_arena_strdup(&bpe->memory, name);
    if (!token->text)
        return ls_fail(LS_ERR_MEMORY, "no memory for the vocabulary of '%s'", file);
    token->bytes = bytes;
    *slot = (uint32_t)id + 1;
    bpe->count++;
    return LS_OK;
}

ls_status ls_bpe_begin_merges(ls_bpe *bpe, size_t count)
{
    bpe->merge_mask = mask_for(count);
    bpe->merges = malloc((bpe->merge_mask + 1) * sizeof *bpe->merges);
    if (!bpe->merges)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu merges", count);
    memset(bpe->merges, 0xff, (bpe->merge_mask + 1) * sizeof *bpe->merges); /* LS_NO_RANK */
    return LS_OK;
}

ls_status ls_bpe_add_merge(ls_bpe *bpe, const char *file, size_t rank, const char *left, const char *right)
{
    size_t a = strlen(left), b = strlen(right);
    int32_t ids[3] = { ls_bpe_find(bpe, left, a), ls_bpe_find(bpe, right, b), -1 };
    for (int i = 0; i < 2; i++)
        if (ids[i] < 0)
            return ls_fail(LS_ERR_DATA, "'%s': merge %zu, \"%.100s %.100s\": \"%.100s\" is not in the vocabulary", file,
                           rank + 1, left, right, i ? right : left);
    char *joined = malloc(a + b + 1);
    if (!joined)
        return ls_fail(LS_ERR_MEMORY, "no memory for the merges of '%s'", file);
    memcpy(joined, left, a);
    memcpy(joined + a, right, b + 1);
    ids[2] = ls_bpe_find(bpe, joined, a + b);
    ls_status status = LS_OK;
    if (ids[2] < 0)
        status = ls_fail(LS_ERR_DATA, "'%s': merge %zu makes \"%.100s\", which is not in the vocabulary", file,
                         rank + 1, joined);
    free(joined);
    LS_TRY(status);
    *find_merge(bpe, (uint32_t)ids[0], (uint32_t)ids[1]) = (ls_bpe_merge){
        .left = (uint32_t)ids[0], .right = (uint32_t)ids[1], .made = (uint32_t)ids[2], .rank = (uint32_t)rank
    };
    return LS_OK;
}

static int compare_added(const void *a, const void *b)
{
    const ls_added_token *x = a, *y = b;
    size_t both = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, both);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

ls_status ls_bpe_finish(ls_bpe *bpe, const char *file)
{
    name_bytes(bpe);
    for (int b = 0; b < 256; b++) {
        char name[4];
        bpe->byte_ids[b] = ls_bpe_find(bpe, name, ls_utf8_put(bpe->codes[b], name));
        if (bpe->byte_ids[b] < 0)
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "'%s': the vocabulary has no token for byte 0x%02x (U+%04X); a byte-level BPE needs all "
                           "256 (initial_alphabet=ByteLevel.alphabet() when it is trained)",
                           file, b, bpe->codes[b]);
    }
    for (int i = 0; i < 2; i++)
        if (bpe->added[i].count)
            qsort(bpe->added[i].tokens, bpe->added[i].count, sizeof *bpe->added[i].tokens, compare_added);
    return LS_OK;
}

void ls_bpe_free(ls_bpe *bpe)
{
    free(bpe->tokens);
    free(bpe->slots);
    free(bpe->merges);
    free(bpe->added[0].tokens);
    free(bpe->added[1].tokens);
    ls_arena_free(&bpe->memory);
}

/* ---- Merging ---- */

typedef struct symbol {
    uint32_t id;
    uint32_t before, after; /* neighbours; NOWHERE: none */
    bool gone;              /* it is part of the symbol before it */
} symbol;
#define NOWHERE UINT32_MAX

typedef struct candidate {
    uint32_t rank, place, made;
} candidate;

/* Memory of one encoding, used again for each word. */
typedef struct encoder {
    const ls_bpe *bpe;
    ls_token_ids *out;
    symbol *symbols;
    candidate *heap;
    size_t heap_count, room; /* room: longest word in bytes */
    char *name;              /* name of a word, for ignore_merges */
} encoder;

static bool is_before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

static void push(encoder *e, candidate c)
{
    size_t at = e->heap_count++;
    for (; at > 0 && is_before(&c, &e->heap[(at - 1) / 2]); at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = c;
}

static candidate pop(encoder *e)
{
    candidate top = e->heap[0], last = e->heap[--e->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < e->heap_count && is_before(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (child >= e->heap_count || !is_before(&e->heap[child], &last))
            break;
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = last;
    return top;
}

static void consider(encoder *e, uint32_t place)
{
    const symbol *left = &e->symbols[place];
    if (left->after == NOWHERE)
        return;
    const ls_bpe_merge *merge = find_merge(e->bpe, left->id, e->symbols[left->after].id);
    if (merge->rank != LS_NO_RANK)
        push(e, (candidate){ .rank = merge->rank, .place = place, .made = merge->made });
}

static void merge_symbols(encoder *e)
{
    while (e->heap_count > 0) {
        candidate c = pop(e);
        symbol *left = &e->symbols[c.place];
        if (left->gone || left->after == NOWHERE)
            continue;
        symbol *right = &e->symbols[left->after];
        const ls_bpe_merge *merge = find_merge(e->bpe, left->id, right->id);
        if (merge->rank == LS_NO_RANK || merge->made != c.made) /* a neighbour has changed */
            continue;
        left->id = c.made;
        left->after = right->after;
        right->gone = true;
        if (right->after != NOWHERE)
            e->symbols[right->after].before = c.place;
        if (left->before != NOWHERE)
            consider(e, left->before);
        consider(e, c.place);
    }
}

static ls_status reserve(encoder *e, size_t bytes)
{
    if (bytes <= e->room)
        return LS_OK;
    if (bytes > UINT32_MAX / 4)
        return ls_fail(LS_ERR_OVERFLOW, "a word of %zu bytes, without a place to cut it, is too long", bytes);
    size_t room = bytes < 64 ? 64 : bytes + bytes / 2;
    free(e->symbols);
    free(e->heap);
    free(e->name);
    e->symbols = malloc(room * sizeof *e->symbols);
    e->heap = malloc(3 * room * sizeof *e->heap); /* each merge makes at most two new candidates */
    e->name = malloc(2 * room);
    e->room = room;
    if (!e->symbols || !e->heap || !e->name)
        return ls_fail(LS_ERR_MEMORY, "no memory to encode a word of %zu bytes", bytes);
    return LS_OK;
}

/* Returns the id of a whole word, or -1. */
static int32_t find_whole(encoder *e, const char *word, size_t bytes)
{
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++)
        length += ls_utf8_put(e->bpe->codes[(unsigned char)word[i]], e->name + length);
    return ls_bpe_find(e->bpe, e->name, length);
}

static ls_status encode_word(encoder *e, const char *word, size_t bytes)
{
    int32_t whole = -1;
    LS_TRY(reserve(e, bytes));
    if (e->bpe->ignore_merges)
        whole = find_whole(e, word, bytes);
    if (whole >= 0)
        return ls_token_ids_add(e->out, whole);
    for (size_t i = 0; i < bytes; i++)
        e->symbols[i] = (symbol){ .id = (uint32_t)e->bpe->byte_ids[(unsigned char)word[i]],
                                  .before = i > 0 ? (uint32_t)i - 1 : NOWHERE,
                                  .after = i + 1 < bytes ? (uint32_t)i + 1 : NOWHERE };
    e->heap_count = 0;
    for (size_t i = 0; i + 1 < bytes; i++)
        consider(e, (uint32_t)i);
    merge_symbols(e);
    for (uint32_t i = 0; i != NOWHERE; i = e->symbols[i].after)
        LS_TRY(ls_token_ids_add(e->out, (int32_t)e->symbols[i].id));
    return LS_OK;
}

static ls_status encode_words(encoder *e, const char *text, size_t bytes)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        length = ls_split_word(e->bpe->rule, text + at, bytes - at);
        LS_TRY(encode_word(e, text + at, length));
    }
    return LS_OK;
}

/* Encodes text between added tokens. */
static ls_status encode_plain(encoder *e, const char *text, size_t bytes)
{
    if (!e->bpe->add_prefix_space || text[0] == ' ')
        return encode_words(e, text, bytes);
    char *copy = malloc(bytes + 1);
    if (!copy)
        return ls_fail(LS_ERR_MEMORY, "no memory for a copy of a text of %zu bytes", bytes);
    copy[0] = ' ';
    memcpy(copy + 1, text, bytes);
    ls_status status = encode_words(e, copy, bytes + 1);
    free(copy);
    return status;
}

/* ---- Added tokens ---- */

/* Returns the first token from `low` on whose byte `depth` is at least `byte`. */
static size_t lower_bound(const ls_added_list *list, size_t low, size_t high, size_t depth, int byte)
{
    while (low < high) {
        size_t middle = (low + high) / 2;
        const ls_added_token *t = &list->tokens[middle];
        int at = t->bytes > depth ? (unsigned char)t->text[depth] : -1;
        if (at < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the longest added token that the text begins with, or NULL. */
static const ls_added_token *match_added(const ls_added_list *list, const char *text, size_t bytes)
{
    const ls_added_token *found = NULL;
    size_t low = 0, high = list->count;
    for (size_t depth = 0; depth < bytes && low < high; depth++) {
        int byte = (unsigned char)text[depth];
        low = lower_bound(list, low, high, depth, byte);
        high = lower_bound(list, low, high, depth, byte + 1);
        if (low < high && list->tokens[low].bytes == depth + 1)
            found = &list->tokens[low];
    }
    return found;
}

/* Returns where the white space before `end` begins. */
static size_t strip_left(const char *text, size_t end)
{
    while (end > 0) {
        size_t start = end - 1;
        uint32_t code;
        while (start > 0 && end - start < 4 && ((unsigned char)text[start] & 0xc0) == 0x80)
            start--;
        if (ls_utf8_next(text + start, end - start, &code) != end - start || !ls_is_space(code))
            break;
        end = start;
    }
    return end;
}

static size_t strip_right(const char *text, size_t start, size_t bytes)
{
    while (start < bytes) {
        uint32_t code;
        size_t length = ls_utf8_next(text + start, bytes - start, &code);
        if (!ls_is_space(code))
            break;
        start += length;
    }
    return start;
}

/* level: the list of added tokens to search; 2: none is left. */
static ls_status encode_parts(encoder *e, int level, const char *text, size_t bytes)
{
    if (bytes == 0)
        return LS_OK;
    if (level == 2)
        return encode_plain(e, text, bytes);
    const ls_added_list *list = &e->bpe->added[level];
    size_t done = 0;
    for (size_t at = 0; at < bytes && list->count > 0;) {
        const ls_added_token *token = match_added(list, text + at, bytes - at);
        if (!token) {
            at++;
            continue;
        }
        size_t start = token->lstrip ? strip_left(text, at) : at;
        at += token->bytes;
        start = start < done ? done : start;
        LS_TRY(encode_parts(e, level + 1, text + done, start - done));
        LS_TRY(ls_token_ids_add(e->out, token->id));
        at = done = token->rstrip ? strip_right(text, at, bytes) : at;
    }
    return encode_parts(e, level + 1, text + done, bytes - done);
}

ls_status ls_bpe_encode(const ls_bpe *bpe, const char *text, size_t bytes, ls_token_ids *out)
{
    encoder e = { .bpe = bpe, .out = out };
    ls_status status = encode_parts(&e, 0, text, bytes);
    free(e.symbols);
    free(e.heap);
    free(e.name);
    return status;
}
