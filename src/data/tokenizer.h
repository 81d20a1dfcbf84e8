/* Tokenizers: bytes, characters, and byte-level BPE. */
#ifndef LS_DATA_TOKENIZER_H
#define LS_DATA_TOKENIZER_H

#include "base/arena.h"
#include "data/tokenizer_split.h"
#include "lockstep/text.h"

/* Ids are below this, so that a wrong file cannot request any amount of memory. */
#define LS_MOST_TOKENS ((int64_t)1 << 24)

/* ---- A growing list of ids ---- */

typedef struct ls_token_ids {
    int32_t *data;
    size_t count, room;
} ls_token_ids;

ls_status ls_token_ids_add(ls_token_ids *ids, int32_t id);

/* ---- BPE (tokenizer_bpe.c) ---- */

typedef struct ls_bpe_token {
    const char *text; /* name in the file: each byte is a printable character; NULL: no such id */
    size_t bytes;
} ls_bpe_token;

typedef struct ls_bpe_merge {
    uint32_t left, right, made; /* ids */
    uint32_t rank;              /* LS_NO_RANK: an empty place of the table */
} ls_bpe_merge;
#define LS_NO_RANK UINT32_MAX

/* A token that is found in the text before it is cut into words. */
typedef struct ls_added_token {
    const char *text;
    size_t bytes;
    int32_t id;
    bool lstrip, rstrip; /* includes white space on that side */
} ls_added_token;

typedef struct ls_added_list {
    ls_added_token *tokens; /* sorted by their bytes once the tokenizer is complete */
    size_t count, room;
} ls_added_list;

#define LS_BYTE_CODES 324 /* characters in names of bytes are below this */

typedef struct ls_bpe {
    ls_arena memory; /* owns the names */
    ls_bpe_token *tokens;
    size_t size;     /* largest id + 1 */
    size_t count;    /* tokens that have a name */
    uint32_t *slots; /* hash table of names: id + 1; 0: empty */
    size_t slot_mask;
    ls_bpe_merge *merges; /* hash table by left and right */
    size_t merge_mask;
    uint32_t codes[256];          /* character of each byte, in names */
    int16_t bytes[LS_BYTE_CODES]; /* byte of each character; -1: none */
    int32_t byte_ids[256];        /* token of each byte */
    ls_split_rule rule;
    bool add_prefix_space, ignore_merges;
    /* Tokens with "normalized": false are searched first. */
    ls_added_list added[2];
} ls_bpe;

/* Prepares tables for names with ids below `size`, and for `count` names. */
ls_status ls_bpe_begin(ls_bpe *bpe, size_t size, size_t count);
/* Adds a name; `file` is for messages. */
ls_status ls_bpe_add(ls_bpe *bpe, const char *file, const char *name, size_t bytes, int64_t id);
ls_status ls_bpe_begin_merges(ls_bpe *bpe, size_t count);
/* Adds a merge of two names, by their order in the file. */
ls_status ls_bpe_add_merge(ls_bpe *bpe, const char *file, size_t rank, const char *left, const char *right);
/* Finds the tokens of single bytes; sorts added tokens. */
ls_status ls_bpe_finish(ls_bpe *bpe, const char *file);
void ls_bpe_free(ls_bpe *bpe);

/* Returns the id of a name, or -1. */
int32_t ls_bpe_find(const ls_bpe *bpe, const char *name, size_t bytes);
ls_status ls_bpe_encode(const ls_bpe *bpe, const char *text, size_t bytes, ls_token_ids *out);
/* Writes the bytes of a token to `out`, which has room for its name; returns their number. */
size_t ls_bpe_token_bytes(const ls_bpe *bpe, int32_t id, char *out);

/* ---- Files (tokenizer_json.c); `name` is for messages ---- */

ls_status ls_bpe_read_json(ls_bpe *bpe, const char *name, const char *data, size_t bytes);
ls_status ls_bpe_read_pair(ls_bpe *bpe, const char *vocab_name, const char *vocab, size_t vocab_bytes,
                           const char *merges_name, const char *merges, size_t merges_bytes);

/* ---- Characters (tokenizer_chars.c) ---- */

typedef struct ls_chars {
    uint32_t *codes; /* ascending; the id is the index */
    size_t count;
} ls_chars;

ls_status ls_chars_learn(ls_chars *chars, const char *text, size_t bytes);
ls_status ls_chars_read(ls_chars *chars, const char *name, const char *data, size_t bytes);
ls_status ls_chars_save(const ls_chars *chars, const char *path);
int32_t ls_chars_find(const ls_chars *chars, uint32_t code);
ls_status ls_chars_encode(const ls_chars *chars, const char *text, size_t bytes, ls_token_ids *out);

/* ---- Any ---- */

typedef enum ls_tokenizer_kind { LS_TOKENIZER_BYTES, LS_TOKENIZER_CHARS, LS_TOKENIZER_BPE } ls_tokenizer_kind;

struct ls_tokenizer {
    ls_tokenizer_kind kind;
    ls_chars chars;
    ls_bpe bpe;
};

#endif
