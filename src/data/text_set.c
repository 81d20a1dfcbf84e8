/* Datasets of text: windows of tokens, made on request from a mapped file. */
#include <string.h>

#include "base/names.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/text_set.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

#define DEFAULT_CONTEXT 256
#define MOST_CONTEXT    ((int64_t)1 << 24)

typedef struct ls_text_set {
    ls_text_options options; /* with defaults filled in */
    char *path, *tokenizer;
    ls_token_file tokens;
    int64_t vocab; /* 0: unknown */
} ls_text_set;

/* ---- Opening ---- */

static ls_status open_tokenizer(const ls_text_set *set, ls_tokenizer **out)
{
    if (strcmp(set->tokenizer, "chars") != 0)
        return ls_tokenizer_open(set->tokenizer, out);
    return ls_fail_within(ls_tokenizer_from_characters((const char *)set->tokens.data, (size_t)set->tokens.count, out),
                          "'%s'", set->path);
}

/* Replaces the mapped text by its tokens. */
static ls_status encode_text(ls_text_set *set, const ls_tokenizer *tokenizer)
{
    int32_t *ids = NULL;
    size_t count = 0;
    ls_status status =
        ls_tokenizer_encode(tokenizer, (const char *)set->tokens.data, (size_t)set->tokens.count, &ids, &count);
    LS_TRY(ls_fail_within(status, "'%s'", set->path));
    ls_token_file_close(&set->tokens);
    set->tokens = (ls_token_file){ .owned = ids,
                                   .data = (const unsigned char *)ids,
                                   .width = sizeof *ids,
                                   .is_signed = true,
                                   .count = (int64_t)count };
    return LS_OK;
}

static ls_status open_text(ls_text_set *set, bool is_text)
{
    ls_tokenizer *tokenizer = NULL;
    LS_TRY(open_tokenizer(set, &tokenizer));
    int64_t size = ls_tokenizer_size(tokenizer);
    ls_status status = LS_OK;
    if (set->vocab == 0)
        set->vocab = size;
    if (is_text && strcmp(set->tokenizer, "bytes") != 0)
        status = encode_text(set, tokenizer);
    ls_tokenizer_destroy(tokenizer);
    return status;
}

static ls_status open_tokens(ls_text_set *set)
{
    bool is_text = !ls_is_token_file(set->path);
    set->vocab = set->options.vocab;
    if (!is_text && set->tokenizer && strcmp(set->tokenizer, "chars") == 0)
        return ls_fail(LS_ERR_INVALID, "'%s' has tokens, not text, from which \"chars\" could learn", set->path);
    if (is_text)
        LS_TRY(ls_token_file_map_bytes(set->path, &set->tokens));
    else
        LS_TRY(ls_token_file_open(set->path, set->options.format, &set->tokens));
    return set->tokenizer ? open_text(set, is_text) : LS_OK;
}

/* ---- The dataset ---- */

static ls_status prepare_text(ls_dataset *d)
{
    ls_text_set *set = d->u.text;
    int64_t context = set->options.context;
    LS_TRY(open_tokens(set));
    if (set->tokens.count <= context)
        return ls_fail(
            LS_ERR_DATA,
            "'%s' has %lld tokens; a sample of context %lld needs %lld (its tokens and the one that follows)",
            set->path, (long long)set->tokens.count, (long long)context, (long long)context + 1);
    d->spec = LS_ELEMENT(LS_SPEC(LS_I32, LS_SHAPE(context)), LS_SPEC(LS_I32, LS_SHAPE(context)));
    d->count = (set->tokens.count - context - 1) / set->options.stride + 1;
    d->maker = d;
    return ls_element_spec_check(&d->spec, false, d->type->name);
}

static ls_status make_window(const ls_dataset *d, int64_t row, ls_slot *slot)
{
    const ls_text_set *set = d->u.text;
    int64_t first = row * set->options.stride, context = set->options.context;
    int64_t limit = set->vocab > 0 ? set->vocab : (int64_t)INT32_MAX + 1;
    int32_t *x = slot->element.component[0].data, *y = slot->element.component[1].data;
    for (int64_t i = 0; i <= context; i++) {
        int64_t id = ls_token_at(&set->tokens, first + i);
        if (id < 0 || id >= limit)
            return ls_fail(LS_ERR_DATA, "'%s': token %lld is %lld; the vocabulary has %lld", set->path,
                           (long long)(first + i), (long long)id, (long long)limit);
        if (i < context)
            x[i] = (int32_t)id;
        if (i > 0)
            y[i - 1] = (int32_t)id;
    }
    return LS_OK;
}

static void destroy_text(ls_dataset *d)
{
    ls_text_set *set = d->u.text;
    if (!set)
        return;
    ls_token_file_close(&set->tokens);
    free(set->path);
    free(set->tokenizer);
    free(set);
}

static const ls_dataset_type type_text = { .name = "ls_from_text",
                                           .prepare = prepare_text,
                                           .destroy = destroy_text,
                                           .state_bytes = sizeof(int64_t),
                                           .next = ls_next_row,
                                           .make = make_window,
                                           .index_of = ls_same_index };

static ls_status check_options(const char *path, const ls_text_options *o)
{
    if (!path)
        return ls_fail(LS_ERR_INVALID, "ls_from_text: the path is NULL");
    if (o->context < 0 || o->context > MOST_CONTEXT || o->stride < 0)
        return ls_fail(LS_ERR_INVALID,
                       "ls_from_text: context %lld and stride %lld; expected a context of 1 to %lld and a stride of at "
                       "least 1",
                       (long long)o->context, (long long)o->stride, (long long)MOST_CONTEXT);
    if (o->vocab < 0 || o->vocab > (int64_t)INT32_MAX + 1)
        return ls_fail(LS_ERR_INVALID, "ls_from_text: a vocabulary of %lld; expected 1 to 2147483648, or 0: unknown",
                       (long long)o->vocab);
    if ((unsigned)o->format > LS_TOKENS_U32)
        return ls_fail(LS_ERR_INVALID, "ls_from_text: the format has the unknown value %d", (int)o->format);
    if (o->format != LS_TOKENS_AUTO && !ls_ends_with(path, ".bin"))
        return ls_fail(LS_ERR_INVALID, "ls_from_text: the format of '%s' is given; it is for .bin files", path);
    return LS_OK;
}

static ls_status fill_set(ls_text_set *set, const char *path, const ls_text_options *o)
{
    const char *tokenizer = o->tokenizer ? o->tokenizer : ls_is_token_file(path) ? NULL : "bytes";
    set->options = *o;
    set->options.tokenizer = NULL;
    if (set->options.context == 0)
        set->options.context = DEFAULT_CONTEXT;
    if (set->options.stride == 0)
        set->options.stride = set->options.context;
    set->path = strdup(path);
    set->tokenizer = tokenizer ? strdup(tokenizer) : NULL;
    return set->path && (set->tokenizer || !tokenizer) ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a dataset");
}

ls_dataset *ls_from_text_with(const char *path, ls_text_options options)
{
    ls_dataset *d = ls_dataset_node(&type_text, NULL);
    if (ls_dataset_is_lost(d))
        return d;
    ls_status status = check_options(path, &options);
    if (status == LS_OK) {
        d->u.text = calloc(1, sizeof *d->u.text);
        status = d->u.text ? fill_set(d->u.text, path, &options) : ls_fail(LS_ERR_MEMORY, "no memory for a dataset");
    }
    return status == LS_OK ? d : ls_dataset_fail(d, status, "%s", ls_last_error());
}

/* ---- By name ---- */

typedef struct text_name {
    char *copy; /* owns the texts below */
    const char *path, *test;
    double split; /* 0: not given */
    ls_text_options options;
} text_name;

static ls_status read_count(const char *key, const char *value, int64_t *out)
{
    if (!ls_parse_i64(value, out) || *out < 1)
        return ls_fail(LS_ERR_INVALID, "%s=%s: expected a whole number of at least 1", key, value);
    return LS_OK;
}

static ls_status read_format(const char *value, ls_token_format *out)
{
    *out = strcmp(value, "u32") == 0 ? LS_TOKENS_U32 : LS_TOKENS_U16;
    if (strcmp(value, "u16") != 0 && strcmp(value, "u32") != 0)
        return ls_fail(LS_ERR_INVALID, "type=%s: expected u16 or u32", value);
    return LS_OK;
}

static ls_status read_split(const char *value, double *out)
{
    if (!ls_parse_f64(value, out) || !(*out > 0 && *out < 1))
        return ls_fail(LS_ERR_INVALID, "split=%s: expected the fraction for training, above 0 and below 1", value);
    return LS_OK;
}

static ls_status read_option(text_name *n, const char *key, const char *value)
{
    static const char *const keys[] = { "context", "stride", "tokenizer", "vocab", "split", "test", "type" };
    ls_text_options *o = &n->options;
    if (strcmp(key, "context") == 0)
        return read_count(key, value, &o->context);
    if (strcmp(key, "stride") == 0)
        return read_count(key, value, &o->stride);
    if (strcmp(key, "vocab") == 0)
        return read_count(key, value, &o->vocab);
    if (strcmp(key, "split") == 0)
        return read_split(value, &n->split);
    if (strcmp(key, "type") == 0)
        return read_format(value, &o->format);
    if (strcmp(key, "tokenizer") == 0 || strcmp(key, "test") == 0) {
        *(key[1] == 'o' ? &o->tokenizer : &n->test) = value;
        return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID, "unknown option %s%s", key,
                   ls_advise_name(key, keys, sizeof keys / sizeof *keys).text);
}

static ls_status read_options(text_name *n, char *rest)
{
    while (rest) {
        char *key = rest, *value;
        rest = strchr(key, ',');
        if (rest)
            *rest++ = '\0';
        value = strchr(key, '=');
        if (!value)
            return ls_fail(LS_ERR_INVALID, "\"%s\" is not an option of the form context=256", key);
        *value++ = '\0';
        LS_TRY(read_option(n, key, value));
    }
    if (!*n->path)
        return ls_fail(LS_ERR_INVALID, "no file was given: text:FILE");
    if (n->split > 0 && n->test)
        return ls_fail(LS_ERR_INVALID, "split=%g and test=%s cannot be used together", n->split, n->test);
    if (n->test && n->options.tokenizer && strcmp(n->options.tokenizer, "chars") == 0)
        return ls_fail(LS_ERR_INVALID,
                       "tokenizer=chars learns from one file; for two, write the characters with lockstep tokenize "
                       "--save-tokenizer FILE and give tokenizer=FILE");
    return LS_OK;
}

/* Divides the windows: training has the first ones, without those that overlap one of the test. */
static ls_status split_windows(ls_dataset *all, double split, ls_dataset *parts[2])
{
    LS_TRY(ls_dataset_prepare(all));
    const ls_text_options *o = &all->u.text->options;
    int64_t first = (int64_t)((double)all->count * split), overlap = (o->context + o->stride - 1) / o->stride - 1;
    if (first - overlap < 1 || first >= all->count)
        return ls_fail(LS_ERR_DATA, "split=%g leaves %lld samples for training and %lld for the test, of %lld", split,
                       (long long)(first > overlap ? first - overlap : 0), (long long)(all->count - first),
                       (long long)all->count);
    parts[0] = ls_take(ls_dataset_share(all), first - overlap);
    parts[1] = ls_skip(ls_dataset_share(all), first);
    return LS_OK;
}

static ls_status make_parts(const text_name *n, const bool wanted[2], ls_dataset *parts[2])
{
    if (n->split > 0) {
        ls_dataset *all = ls_from_text_with(n->path, n->options);
        ls_status status = split_windows(all, n->split, parts);
        ls_dataset_destroy(all);
        for (int i = 0; i < 2; i++) {
            if (wanted[i])
                continue;
            ls_dataset_destroy(parts[i]);
            parts[i] = NULL;
        }
        return status;
    }
    if (wanted[0])
        parts[0] = ls_from_text_with(n->path, n->options);
    if (wanted[1] && n->test) {
        ls_text_options options = n->options;
        if (!ls_ends_with(n->test, ".bin"))
            options.format = LS_TOKENS_AUTO;
        parts[1] = ls_from_text_with(n->test, options);
    }
    return LS_OK;
}

ls_status ls_text_by_name(const char *name, const bool wanted[2], ls_dataset *parts[2])
{
    text_name n = { .copy = strdup(name + strlen(LS_TEXT_PREFIX)) };
    if (!n.copy)
        return ls_fail(LS_ERR_MEMORY, "no memory to read the name of a dataset");
    char *comma = strchr(n.copy, ',');
    if (comma)
        *comma++ = '\0';
    n.path = n.copy;
    ls_status status = ls_fail_within(read_options(&n, comma), "%s", name);
    if (status == LS_OK)
        status = make_parts(&n, wanted, parts);
    free(n.copy);
    return status;
}
