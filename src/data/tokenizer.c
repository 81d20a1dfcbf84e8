/* Tokenizers: opens files, encodes and decodes with any kind. */
#include "data/tokenizer.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

ls_status ls_token_ids_add(ls_token_ids *ids, int32_t id)
{
    if (ids->count == ids->room)
        LS_TRY(ls_grow(&ids->data, ids->count, &ids->room, sizeof *ids->data));
    ids->data[ids->count++] = id;
    return LS_OK;
}

/* ---- Opening ---- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static ls_status put_beside(const char *path, const char *name, bool in_folder, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int folder = in_folder ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    int length = snprintf(out, PATH_MAX, "%.*s%s%s", folder, path, folder || (slash && !in_folder) ? "/" : "", name);
    if (length < 0 || length >= PATH_MAX)
        return ls_fail(LS_ERR_INVALID, "the path of %s beside '%.200s' is too long", name, path);
    return LS_OK;
}

/* A file for one tokenizer: of BPE, or of characters, which has the key "format". */
static ls_status read_json(ls_tokenizer *t, const char *path)
{
    char *data = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(path, LS_JSON_FILE_LIMIT, &data, &bytes));
    size_t begin = strspn(data, " \t\r\n{");
    ls_status status;
    if (strncmp(data + begin, "\"format\"", 8) == 0) {
        t->kind = LS_TOKENIZER_CHARS;
        status = ls_chars_read(&t->chars, path, data, bytes);
    } else {
        t->kind = LS_TOKENIZER_BPE;
        status = ls_bpe_read_json(&t->bpe, path, data, bytes);
    }
    free(data);
    return status;
}

static ls_status read_pair(ls_tokenizer *t, const char *vocab_path, const char *merges_path)
{
    char *vocab = NULL, *merges = NULL;
    size_t vocab_bytes = 0, merges_bytes = 0;
    t->kind = LS_TOKENIZER_BPE;
    ls_status status = ls_file_read(vocab_path, LS_JSON_FILE_LIMIT, &vocab, &vocab_bytes);
    if (status == LS_OK)
        status = ls_file_read(merges_path, LS_JSON_FILE_LIMIT, &merges, &merges_bytes);
    if (status == LS_OK)
        status = ls_bpe_read_pair(&t->bpe, vocab_path, vocab, vocab_bytes, merges_path, merges, merges_bytes);
    free(vocab);
    free(merges);
    return status;
}

static ls_status open_path(ls_tokenizer *t, const char *path)
{
    char vocab[PATH_MAX], merges[PATH_MAX];
    bool folder = is_folder(path);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (folder) {
        LS_TRY(put_beside(path, "tokenizer.json", true, vocab));
        if (access(vocab, F_OK) == 0)
            return read_json(t, vocab);
    } else if (strcmp(name, "vocab.json") != 0 && strcmp(name, "merges.txt") != 0) {
        return read_json(t, path);
    }
    LS_TRY(put_beside(path, "vocab.json", folder, vocab));
    LS_TRY(put_beside(path, "merges.txt", folder, merges));
    if (folder && access(vocab, F_OK) != 0)
        return ls_fail(LS_ERR_NOT_FOUND, "the folder '%s' has no tokenizer.json, and no vocab.json with merges.txt",
                       path);
    return read_pair(t, vocab, merges);
}

static ls_status finish(ls_tokenizer *t, ls_status status, ls_tokenizer **out)
{
    if (status == LS_OK)
        *out = t;
    else
        ls_tokenizer_destroy(t);
    return status;
}

ls_status ls_tokenizer_open(const char *path, ls_tokenizer **out)
{
    if (!path || !out)
        return ls_fail(LS_ERR_INVALID, "ls_tokenizer_open: path or out is NULL");
    if (strcmp(path, "chars") == 0)
        return ls_fail(LS_ERR_INVALID, "the tokenizer \"chars\" is learned from a text: ls_tokenizer_from_characters");
    ls_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for a tokenizer");
    return finish(t, strcmp(path, "bytes") == 0 ? LS_OK : open_path(t, path), out);
}

ls_status ls_tokenizer_from_characters(const char *text, size_t bytes, ls_tokenizer **out)
{
    if (!out || (!text && bytes > 0))
        return ls_fail(LS_ERR_INVALID, "ls_tokenizer_from_characters: text or out is NULL");
    ls_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for a tokenizer");
    t->kind = LS_TOKENIZER_CHARS;
    return finish(t, ls_chars_learn(&t->chars, text, bytes), out);
}

ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *path)
{
    if (!tokenizer || !path)
        return ls_fail(LS_ERR_INVALID, "ls_tokenizer_save: tokenizer or path is NULL");
    if (tokenizer->kind != LS_TOKENIZER_CHARS)
        return ls_fail(LS_ERR_UNSUPPORTED, "only a tokenizer of characters is saved; this one is %s",
                       tokenizer->kind == LS_TOKENIZER_BYTES ? "\"bytes\"" : "a BPE, which has files already");
    return ls_chars_save(&tokenizer->chars, path);
}

void ls_tokenizer_destroy(ls_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    ls_bpe_free(&tokenizer->bpe);
    free(tokenizer->chars.codes);
    free(tokenizer);
}

/* ---- Encoding ---- */

static ls_status encode_bytes(const char *text, size_t bytes, ls_token_ids *out)
{
    for (size_t i = 0; i < bytes; i++)
        LS_TRY(ls_token_ids_add(out, (unsigned char)text[i]));
    return LS_OK;
}

ls_status ls_tokenizer_encode(const ls_tokenizer *tokenizer, const char *text, size_t bytes, int32_t **ids,
                              size_t *count)
{
    ls_token_ids out = { .data = NULL };
    if (!tokenizer || (!text && bytes > 0) || !ids || !count)
        return ls_fail(LS_ERR_INVALID, "ls_tokenizer_encode: tokenizer, text, ids or count is NULL");
    out.data = malloc(sizeof *out.data); /* *ids is never NULL */
    if (!out.data)
        return ls_fail(LS_ERR_MEMORY, "no memory for the tokens of a text");
    out.room = 1;
    ls_status status = tokenizer->kind == LS_TOKENIZER_BPE     ? ls_bpe_encode(&tokenizer->bpe, text, bytes, &out)
                       : tokenizer->kind == LS_TOKENIZER_CHARS ? ls_chars_encode(&tokenizer->chars, text, bytes, &out)
                                                               : encode_bytes(text, bytes, &out);
    if (status != LS_OK) {
        free(out.data);
        return status;
    }
    *ids = out.data;
    *count = out.count;
    return LS_OK;
}

/* ---- Decoding ---- */

/* Returns the most bytes that a token may have; 0: there is no such token. */
static size_t most_bytes(const ls_tokenizer *t, int32_t id)
{
    if (id < 0 || id >= ls_tokenizer_size(t))
        return 0;
    return t->kind == LS_TOKENIZER_BPE ? t->bpe.tokens[id].bytes : t->kind == LS_TOKENIZER_CHARS ? 4 : 1;
}

static size_t put_token(const ls_tokenizer *t, int32_t id, char *out)
{
    if (t->kind == LS_TOKENIZER_BPE)
        return ls_bpe_token_bytes(&t->bpe, id, out);
    if (t->kind == LS_TOKENIZER_CHARS)
        return ls_utf8_put(t->chars.codes[id], out);
    *out = (char)id;
    return 1;
}

ls_status ls_tokenizer_decode(const ls_tokenizer *tokenizer, const int32_t *ids, size_t count, char **text,
                              size_t *bytes)
{
    size_t most = 1, length = 0;
    if (!tokenizer || (!ids && count > 0) || !text || !bytes)
        return ls_fail(LS_ERR_INVALID, "ls_tokenizer_decode: tokenizer, ids, text or bytes is NULL");
    for (size_t i = 0; i < count; i++) {
        size_t one = most_bytes(tokenizer, ids[i]);
        if (one == 0)
            return ls_fail(LS_ERR_DATA, "token %zu of %zu has the id %d; the vocabulary has %lld and no such token", i,
                           count, ids[i], (long long)ls_tokenizer_size(tokenizer));
        most += one;
    }
    char *out = malloc(most);
    if (!out)
        return ls_fail(LS_ERR_MEMORY, "no memory for the text of %zu tokens", count);
    for (size_t i = 0; i < count; i++)
        length += put_token(tokenizer, ids[i], out + length);
    out[length] = '\0';
    *text = out;
    *bytes = length;
    return LS_OK;
}

/* ---- Queries ---- */

int64_t ls_tokenizer_size(const ls_tokenizer *tokenizer)
{
    if (!tokenizer)
        return 0;
    return tokenizer->kind == LS_TOKENIZER_BPE     ? (int64_t)tokenizer->bpe.size
           : tokenizer->kind == LS_TOKENIZER_CHARS ? (int64_t)tokenizer->chars.count
                                                   : 256;
}

ls_status ls_tokenizer_id(const ls_tokenizer *tokenizer, const char *token, int32_t *out)
{
    int32_t id = -1;
    uint32_t code = 0;
    if (!tokenizer || !token || !out)
        return ls_fail(LS_ERR_INVALID, "ls_tokenizer_id: tokenizer, token or out is NULL");
    size_t bytes = strlen(token);
    if (tokenizer->kind == LS_TOKENIZER_BPE)
        id = ls_bpe_find(&tokenizer->bpe, token, bytes);
    else if (tokenizer->kind == LS_TOKENIZER_CHARS && bytes > 0 && ls_utf8_next(token, bytes, &code) == bytes)
        id = ls_chars_find(&tokenizer->chars, code);
    else if (tokenizer->kind == LS_TOKENIZER_BYTES && bytes == 1)
        id = (unsigned char)token[0];
    if (id < 0)
        return ls_fail(LS_ERR_NOT_FOUND, "the vocabulary of %lld tokens has no \"%.100s\"",
                       (long long)ls_tokenizer_size(tokenizer), token);
    *out = id;
    return LS_OK;
}
