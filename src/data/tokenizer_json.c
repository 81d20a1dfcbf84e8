/* Reads Hugging Face's tokenizer.json, and vocab.json with merges.txt, into a byte-level BPE. What
 * would change the ids and is not supported is refused by name. */
#include <string.h>

#include "base/grow.h"
#include "base/json.h"
#include "base/status.h"
#include "data/tokenizer.h"

/* ---- The vocabulary ---- */

static ls_status read_id(const ls_json_at *at, int64_t *out)
{
    LS_TRY(ls_json_i64(at, out));
    if (*out < 0 || *out >= LS_MOST_TOKENS)
        return ls_json_fail(at, LS_ERR_DATA, "the id is %lld; expected 0 to %lld", (long long)*out,
                            (long long)LS_MOST_TOKENS - 1);
    return LS_OK;
}

static ls_json_at member(const ls_json_at *object, const char *key, const json_t *value)
{
    return (ls_json_at){ .value = value, .parent = object, .key = key };
}

/* Raises *largest to the largest id of a vocabulary. */
static ls_status find_largest(const ls_json_at *vocab, int64_t *largest)
{
    const char *key;
    json_t *value;
    LS_TRY(ls_json_is_object(vocab));
    json_object_foreach((json_t *)(uintptr_t)vocab->value, key, value)
    {
        ls_json_at at = member(vocab, key, value);
        int64_t id = 0;
        LS_TRY(read_id(&at, &id));
        *largest = id > *largest ? id : *largest;
    }
    return LS_OK;
}

static ls_status add_names(ls_bpe *bpe, const char *file, const ls_json_at *vocab)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab->value, key, value)
    {
        LS_TRY(ls_bpe_add(bpe, file, key, strlen(key), json_integer_value(value)));
    }
    return LS_OK;
}

/* ---- Merges ---- */

/* "a b" */
static ls_status add_line(ls_bpe *bpe, const char *file, size_t rank, char *line)
{
    char *space = strchr(line, ' ');
    if (!space || space == line || !space[1] || strchr(space + 1, ' '))
        return ls_fail(LS_ERR_DATA, "'%s': merge %zu is \"%.100s\"; expected two tokens with a space between them",
                       file, rank + 1, line);
    *space = '\0';
    ls_status status = ls_bpe_add_merge(bpe, file, rank, line, space + 1);
    *space = ' ';
    return status;
}

static ls_status add_json_merge(ls_bpe *bpe, const char *file, const ls_json_at *list, size_t rank)
{
    ls_json_at merge, part;
    const char *names[2];
    LS_TRY(ls_json_element(list, rank, &merge));
    if (json_is_string(merge.value)) {
        char *copy = strdup(json_string_value(merge.value));
        if (!copy)
            return ls_fail(LS_ERR_MEMORY, "no memory for the merges of '%s'", file);
        ls_status status = add_line(bpe, file, rank, copy);
        free(copy);
        return status;
    }
    if (ls_json_count(&merge) != 2)
        return ls_json_fail(&merge, LS_ERR_DATA, "expected a text with two tokens, or an array of two");
    for (size_t i = 0; i < 2; i++) {
        LS_TRY(ls_json_element(&merge, i, &part));
        LS_TRY(ls_json_string(&part, &names[i]));
    }
    return ls_bpe_add_merge(bpe, file, rank, names[0], names[1]);
}

static ls_status add_json_merges(ls_bpe *bpe, const char *file, const ls_json_at *model)
{
    ls_json_at list;
    LS_TRY(ls_json_get_array(model, "merges", &list));
    size_t count = ls_json_count(&list);
    LS_TRY(ls_bpe_begin_merges(bpe, count));
    for (size_t i = 0; i < count; i++)
        LS_TRY(add_json_merge(bpe, file, &list, i));
    return LS_OK;
}

/* Calls add_line for each line of a merges.txt; NULL for bpe: only counts them. */
static ls_status add_text_merges(ls_bpe *bpe, const char *file, const char *data, size_t bytes, size_t *count)
{
    *count = 0;
    for (const char *at = data, *end = data + bytes, *next; at < end; at = next) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        next = newline ? newline + 1 : end;
        size_t length = (size_t)((newline ? newline : end) - at);
        length -= length > 0 && at[length - 1] == '\r';
        if (length == 0 || (length >= 8 && memcmp(at, "#version", 8) == 0))
            continue;
        char *line = bpe ? strndup(at, length) : NULL;
        if (bpe && !line)
            return ls_fail(LS_ERR_MEMORY, "no memory for the merges of '%s'", file);
        ls_status status = bpe ? add_line(bpe, file, *count, line) : LS_OK;
        free(line);
        LS_TRY(status);
        ++*count;
    }
    return LS_OK;
}

/* ---- Added tokens ---- */

static ls_status add_token(ls_bpe *bpe, const char *file, const ls_json_at *token)
{
    bool single_word = false, normalized = true;
    ls_added_token t = { .id = 0 };
    const char *text;
    int64_t id = 0;
    LS_TRY(ls_json_get_string(token, "content", &text));
    LS_TRY(ls_json_get_i64(token, "id", &id));
    LS_TRY(ls_json_opt_bool(token, "single_word", &single_word));
    LS_TRY(ls_json_opt_bool(token, "lstrip", &t.lstrip));
    LS_TRY(ls_json_opt_bool(token, "rstrip", &t.rstrip));
    LS_TRY(ls_json_opt_bool(token, "normalized", &normalized));
    if (!*text)
        return ls_json_fail(token, LS_ERR_DATA, "content is empty");
    if (single_word)
        return ls_json_fail(token, LS_ERR_UNSUPPORTED, "single_word is true for \"%.100s\", which is not supported",
                            text);
    t.bytes = strlen(text);
    LS_TRY(ls_bpe_add(bpe, file, text, t.bytes, id));
    t.id = (int32_t)id;
    t.text = bpe->tokens[id].text;
    ls_added_list *list = &bpe->added[normalized ? 1 : 0];
    LS_TRY(ls_grow(&list->tokens, list->count, &list->room, sizeof *list->tokens));
    list->tokens[list->count++] = t;
    return LS_OK;
}

static ls_status find_largest_added(const ls_json_at *list, int64_t *largest)
{
    ls_json_at token, at;
    for (size_t i = 0; i < ls_json_count(list); i++) {
        int64_t id = 0;
        LS_TRY(ls_json_element(list, i, &token));
        LS_TRY(ls_json_get(&token, "id", &at));
        LS_TRY(read_id(&at, &id));
        *largest = id > *largest ? id : *largest;
    }
    return LS_OK;
}

/* ---- Settings ---- */

/* Whether a member is absent, null, false, 0 or "". */
static bool is_unset(const ls_json_at *object, const char *key)
{
    ls_json_at at;
    if (!ls_json_find(object, key, &at) || json_is_null(at.value) || json_is_false(at.value))
        return true;
    return (json_is_string(at.value) && !*json_string_value(at.value)) ||
           (json_is_number(at.value) && json_number_value(at.value) == 0);
}

static ls_status check_model(const ls_json_at *model)
{
    static const char *const unsupported[] = { "dropout", "continuing_subword_prefix", "end_of_word_suffix" };
    const char *type = "BPE";
    LS_TRY(ls_json_opt_string(model, "type", &type));
    if (strcmp(type, "BPE") != 0)
        return ls_json_fail(model, LS_ERR_UNSUPPORTED, "type is \"%.100s\"; only BPE is supported", type);
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (!is_unset(model, unsupported[i]))
            return ls_json_fail(model, LS_ERR_UNSUPPORTED, "%s is set, which is not supported", unsupported[i]);
    return LS_OK;
}

static ls_status read_byte_level(ls_bpe *bpe, const ls_json_at *at)
{
    bool use_regex = true;
    LS_TRY(ls_json_opt_bool(at, "add_prefix_space", &bpe->add_prefix_space));
    LS_TRY(ls_json_opt_bool(at, "use_regex", &use_regex));
    bpe->rule = use_regex ? LS_SPLIT_GPT2 : LS_SPLIT_NONE;
    return LS_OK;
}

static ls_status read_pattern(ls_bpe *bpe, const ls_json_at *split)
{
    const char *pattern, *behavior;
    bool invert = false;
    ls_json_at at;
    LS_TRY(ls_json_get_object(split, "pattern", &at));
    LS_TRY(ls_json_get_string(&at, "Regex", &pattern));
    LS_TRY(ls_json_get_string(split, "behavior", &behavior));
    LS_TRY(ls_json_opt_bool(split, "invert", &invert));
    if (strcmp(behavior, "Isolated") != 0 || invert)
        return ls_json_fail(split, LS_ERR_UNSUPPORTED, "behavior is %.50s and invert is %s; supported is Isolated", //
                            behavior, invert ? "true" : "false");
    if (strcmp(pattern, LS_PATTERN_GPT2) == 0)
        bpe->rule = LS_SPLIT_GPT2;
    else if (strcmp(pattern, LS_PATTERN_LLAMA3) == 0)
        bpe->rule = LS_SPLIT_LLAMA3;
    else
        return ls_json_fail(&at, LS_ERR_UNSUPPORTED,
                            "the pattern %.400s is not supported; supported are those of GPT-2 and Llama 3", pattern);
    return LS_OK;
}

static ls_status get_type(const ls_json_at *object, const char **out)
{
    LS_TRY(ls_json_is_object(object));
    return ls_json_get_string(object, "type", out);
}

/* [Split, ByteLevel] with the pattern in Split */
static ls_status read_sequence(ls_bpe *bpe, const ls_json_at *at)
{
    ls_json_at list, split, byte_level;
    const char *first, *second;
    LS_TRY(ls_json_get_array(at, "pretokenizers", &list));
    if (ls_json_count(&list) != 2)
        return ls_json_fail(&list, LS_ERR_UNSUPPORTED, "%zu pre-tokenizers; supported are Split and ByteLevel",
                            ls_json_count(&list));
    LS_TRY(ls_json_element(&list, 0, &split));
    LS_TRY(ls_json_element(&list, 1, &byte_level));
    LS_TRY(get_type(&split, &first));
    LS_TRY(get_type(&byte_level, &second));
    if (strcmp(first, "Split") != 0 || strcmp(second, "ByteLevel") != 0)
        return ls_json_fail(&list, LS_ERR_UNSUPPORTED,
                            "the pre-tokenizers %.50s and %.50s are not supported; supported are Split and ByteLevel",
                            first, second);
    LS_TRY(read_byte_level(bpe, &byte_level));
    if (bpe->rule != LS_SPLIT_NONE || bpe->add_prefix_space)
        return ls_json_fail(&byte_level, LS_ERR_UNSUPPORTED,
                            "use_regex or add_prefix_space is true after a Split, which is not supported");
    return read_pattern(bpe, &split);
}

static ls_status read_pre_tokenizer(ls_bpe *bpe, const ls_json_at *root)
{
    ls_json_at at;
    const char *type;
    LS_TRY(ls_json_get(root, "pre_tokenizer", &at));
    if (json_is_null(at.value))
        return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "there is none; only byte-level tokenizers are supported");
    LS_TRY(get_type(&at, &type));
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(bpe, &at);
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(bpe, &at);
    return ls_json_fail(&at, LS_ERR_UNSUPPORTED,
                        "type is \"%.100s\"; supported are ByteLevel, and Split with ByteLevel", type);
}

static ls_status check_around(const ls_json_at *root)
{
    ls_json_at at;
    const char *type = "?";
    if (ls_json_find(root, "normalizer", &at) && !json_is_null(at.value)) {
        LS_TRY(get_type(&at, &type));
        return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "%.100s is not supported; normalize the text before", type);
    }
    LS_TRY(ls_json_get_object(root, "decoder", &at));
    LS_TRY(get_type(&at, &type));
    if (strcmp(type, "ByteLevel") != 0)
        return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "type is \"%.100s\"; supported is ByteLevel", type);
    return LS_OK;
}

/* ---- Files ---- */

static ls_status read_root(ls_bpe *bpe, const char *file, const ls_json_at *root)
{
    ls_json_at model, vocab, added = { .value = NULL };
    int64_t largest = -1;
    LS_TRY(ls_json_is_object(root));
    LS_TRY(ls_json_get_object(root, "model", &model));
    LS_TRY(check_model(&model));
    LS_TRY(check_around(root));
    LS_TRY(read_pre_tokenizer(bpe, root));
    LS_TRY(ls_json_opt_bool(&model, "ignore_merges", &bpe->ignore_merges));
    LS_TRY(ls_json_get_object(&model, "vocab", &vocab));
    LS_TRY(find_largest(&vocab, &largest));
    if (ls_json_find(root, "added_tokens", &added)) {
        LS_TRY(ls_json_is_array(&added));
        LS_TRY(find_largest_added(&added, &largest));
    }
    size_t extra = ls_json_count(&added);
    LS_TRY(ls_bpe_begin(bpe, (size_t)(largest + 1), json_object_size(vocab.value) + extra));
    LS_TRY(add_names(bpe, file, &vocab));
    LS_TRY(add_json_merges(bpe, file, &model));
    for (size_t i = 0; i < extra; i++) {
        ls_json_at token;
        LS_TRY(ls_json_element(&added, i, &token));
        LS_TRY(add_token(bpe, file, &token));
    }
    return ls_bpe_finish(bpe, file);
}

ls_status ls_bpe_read_json(ls_bpe *bpe, const char *name, const char *data, size_t bytes)
{
    json_t *json = NULL;
    LS_TRY(ls_json_read_buffer(name, data, bytes, &json));
    ls_json_at root = ls_json_root(json, name);
    ls_status status = read_root(bpe, name, &root);
    json_decref(json);
    return status;
}

static ls_status read_vocab(ls_bpe *bpe, const char *name, const ls_json_at *root)
{
    int64_t largest = -1;
    LS_TRY(find_largest(root, &largest));
    LS_TRY(ls_bpe_begin(bpe, (size_t)(largest + 1), json_object_size(root->value)));
    return add_names(bpe, name, root);
}

ls_status ls_bpe_read_pair(ls_bpe *bpe, const char *vocab_name, const char *vocab, size_t vocab_bytes,
                           const char *merges_name, const char *merges, size_t merges_bytes)
{
    json_t *json = NULL;
    size_t count = 0;
    LS_TRY(ls_json_read_buffer(vocab_name, vocab, vocab_bytes, &json));
    ls_json_at root = ls_json_root(json, vocab_name);
    ls_status status = read_vocab(bpe, vocab_name, &root);
    json_decref(json);
    LS_TRY(status);
    bpe->rule = LS_SPLIT_GPT2;
    LS_TRY(add_text_merges(NULL, merges_name, merges, merges_bytes, &count));
    LS_TRY(ls_bpe_begin_merges(bpe, count));
    LS_TRY(add_text_merges(bpe, merges_name, merges, merges_bytes, &count));
    return ls_bpe_finish(bpe, vocab_name);
}
