/* Cuts text into words before BPE, as the regular expressions of GPT-2 and Llama 3 do. */
#ifndef LS_DATA_TOKENIZER_SPLIT_H
#define LS_DATA_TOKENIZER_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_NOT_UTF8 UINT32_MAX

/* Reads the next character of a text that is not empty. Returns its length. A byte that does not
 * begin a character of UTF-8 has length 1 and the code LS_NOT_UTF8. */
size_t ls_utf8_next(const char *text, size_t left, uint32_t *code);
/* Writes a character; returns its length. */
size_t ls_utf8_put(uint32_t code, char out[4]);

/* Unicode's property White_Space. */
bool ls_is_space(uint32_t code);

typedef enum ls_split_rule {
    LS_SPLIT_NONE, /* the whole text is one word */
    LS_SPLIT_GPT2,
    LS_SPLIT_LLAMA3,
} ls_split_rule;

#define LS_PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LS_PATTERN_LLAMA3                                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                                         \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"                                                                     \
    "\\s+(?!\\S)|\\s+"

/* Returns the length of the word that a text of at least one byte begins with. */
size_t ls_split_word(ls_split_rule rule, const char *text, size_t bytes);

#endif
