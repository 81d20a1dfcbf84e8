/* lockstep/text.h: tokenizers, files of tokens, and datasets of text for language models.
 *
 *     LS_CHECK(ls_tokenizer_open("gpt2/tokenizer.json", &tokenizer));
 *     LS_CHECK(ls_tokenizer_encode(tokenizer, text, bytes, &ids, &count));
 *     train = ls_from_text("train.bin", .context = 256, .vocab = 50257);
 * docs/text.md describes formats and rules. */
#ifndef LOCKSTEP_TEXT_H
#define LOCKSTEP_TEXT_H

#include "lockstep/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tokenizers ---- */

/* Turns text into token ids and back. Immutable: several threads may use one. */
typedef struct ls_tokenizer ls_tokenizer;

/* Opens a tokenizer: "bytes" (256 tokens), a tokenizer.json of Hugging Face with a byte-level BPE
 * (GPT-2's and Llama 3's rules), a vocab.json or merges.txt (the other one is beside it, GPT-2's
 * rule), a folder with these files, or a file that ls_tokenizer_save wrote. The caller destroys the
 * result. */
LS_API ls_status ls_tokenizer_open(const char *path, ls_tokenizer **out);
/* Makes a tokenizer whose tokens are the characters of a text (UTF-8), in the order of their code
 * points. The caller destroys the result. */
LS_API ls_status ls_tokenizer_from_characters(const char *text, size_t bytes, ls_tokenizer **out);
/* Writes a tokenizer of characters as JSON; ls_tokenizer_open reads it. */
LS_API ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *path);
/* Encodes a text of `bytes` bytes. Added tokens, such as <|endoftext|>, are found in the text; none
 * is added to it. The caller frees *ids with free(). */
LS_API ls_status ls_tokenizer_encode(const ls_tokenizer *tokenizer, const char *text, size_t bytes, int32_t **ids,
                                     size_t *count);
/* Returns the bytes of tokens; added tokens are written as their names. A zero byte, not counted in
 * *bytes, follows. The caller frees *text with free(). */
LS_API ls_status ls_tokenizer_decode(const ls_tokenizer *tokenizer, const int32_t *ids, size_t count, char **text,
                                     size_t *bytes);
/* Returns the size that a vocabulary needs: the largest id plus 1. 0: the tokenizer is NULL. */
LS_API int64_t ls_tokenizer_size(const ls_tokenizer *tokenizer);
/* Returns the id of a token by its name in the file: "<|endoftext|>", or "\u0120the" (a byte-level
 * name). LS_ERR_NOT_FOUND: there is no such token. */
LS_API ls_status ls_tokenizer_id(const ls_tokenizer *tokenizer, const char *token, int32_t *out);
/* Frees a tokenizer. */
LS_API void ls_tokenizer_destroy(ls_tokenizer *tokenizer);

/* ---- Files of tokens ---- */

typedef enum ls_token_format {
    LS_TOKENS_AUTO = 0, /* reading: u16, or what llm.c's header says; writing: with that header */
    LS_TOKENS_U16,      /* only tokens of 16 bits, as nanoGPT writes them */
    LS_TOKENS_U32,      /* only tokens of 32 bits */
} ls_token_format;

/* Writes tokens of a vocabulary of `vocab` ids. LS_TOKENS_AUTO writes u16 if the vocabulary allows,
 * otherwise u32, after the header of llm.c. The file appears when it is complete. */
LS_API ls_status ls_tokens_write(const char *path, const int32_t *ids, size_t count, int64_t vocab,
                                 ls_token_format format);
/* Reads a whole file of tokens: .bin, or .npy of integers. The caller frees *ids with free(). */
LS_API ls_status ls_tokens_read(const char *path, ls_token_format format, int32_t **ids, size_t *count);

/* ---- Datasets ---- */

typedef struct ls_text_options {
    int ls_first;
    int64_t context; /* number of tokens in a sample (default 256) */
    int64_t stride;  /* distance between the first tokens of two samples (default: the context) */
    /* "bytes" (default), "chars" (learned from the file), or a path for ls_tokenizer_open. For files
     * of tokens it only says how large the vocabulary is. */
    const char *tokenizer;
    int64_t vocab;          /* size of the vocabulary; 0: that of the tokenizer, or unknown */
    ls_token_format format; /* format of a .bin file */
} ls_text_options;

/* Makes a dataset of windows of a file: ls_from_text("book.txt", .context = 64). FILE.bin and
 * FILE.npy contain tokens and are mapped into memory; any other file is text. Sample i has the
 * int32 features tokens[i * stride .. + context) and, as labels of the same shape, the tokens that
 * follow each of them. A last window that is not complete is left out. The file must not change
 * while the dataset exists. The caller owns the dataset. */
#define ls_from_text(...)                                                                                              \
    ls_from_text_with(LS_ARGUMENT_1_(__VA_ARGS__, ), (ls_text_options){ .ls_first = 0, LS_AFTER_1_(__VA_ARGS__, ) })
LS_API ls_dataset *ls_from_text_with(const char *path, ls_text_options options);

#ifdef __cplusplus
}
#endif
#endif
