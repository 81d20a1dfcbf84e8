/* Cuts text into words before BPE. Each function is one alternative of a regular expression;
 * they are tried in the expression's order. */
#include "data/tokenizer_split.h"

/* ---- Characters ---- */

size_t ls_utf8_next(const char *text, size_t left, uint32_t *code)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char *at = (const unsigned char *)text;
    size_t bytes = at[0] < 0x80 ? 1 : at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc0 ? 2 : 0;
    *code = at[0];
    if (bytes == 1)
        return 1;
    bool good = bytes > 0 && bytes <= left && at[0] < 0xf8;
    uint32_t value = good ? at[0] & (0x7fu >> bytes) : 0;
    for (size_t i = 1; good && i < bytes; i++) {
        good = (at[i] & 0xc0) == 0x80;
        value = value << 6 | (at[i] & 0x3f);
    }
    if (!good || value < least[bytes] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) {
        *code = LS_NOT_UTF8;
        return 1;
    }
    *code = value;
    return bytes;
}

size_t ls_utf8_put(uint32_t code, char out[4])
{
    size_t bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = bytes - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[bytes] | code);
    return bytes;
}

typedef enum char_kind { OTHER, LETTER, NUMBER, SPACE, END } char_kind;

bool ls_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r');
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

static char_kind kind_beyond_ascii(uint32_t code)
{
    static const struct {
        uint32_t first, last;
        char_kind kind;
    } ranges[] = {
#include "data/unicode_classes.def"
    };
    size_t low = 0, high = sizeof ranges / sizeof *ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof ranges / sizeof *ranges && code >= ranges[low].first ? ranges[low].kind : OTHER;
}

static char_kind kind_of(uint32_t code)
{
    if (ls_is_space(code))
        return SPACE;
    if (code >= 0x80)
        return code == LS_NOT_UTF8 ? OTHER : kind_beyond_ascii(code);
    return code - '0' < 10 ? NUMBER : (code | 0x20) - 'a' < 26 ? LETTER : OTHER;
}

/* ---- A position in the text ---- */

typedef struct reader {
    const char *text;
    size_t bytes, at;
    uint32_t code; /* code point of the character at `at` */
    char_kind kind;
    size_t length;
} reader;

static void look(reader *r)
{
    if (r->at >= r->bytes) {
        r->kind = END;
        r->code = LS_NOT_UTF8;
        r->length = 0;
        return;
    }
    r->length = ls_utf8_next(r->text + r->at, r->bytes - r->at, &r->code);
    r->kind = kind_of(r->code);
}

static void step(reader *r)
{
    r->at += r->length;
    look(r);
}

static void skip_kind(reader *r, char_kind kind)
{
    while (r->kind == kind)
        step(r);
}

static bool is_newline(uint32_t code)
{
    return code == '\r' || code == '\n';
}

/* ---- Alternatives: each returns the length of its match, or 0 ---- */

/* 's|'t|'re|'ve|'m|'ll|'d. In any case, s is also U+017F (long s), which folds to it. */
static size_t match_contraction(reader r, bool any_case)
{
    static const char *const endings[] = { "s", "t", "re", "ve", "m", "ll", "d" };
    if (r.code != '\'')
        return 0;
    step(&r);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        reader e = r;
        const char *c = endings[i];
        for (; *c; c++, step(&e)) {
            uint32_t code = any_case && e.code >= 'A' && e.code <= 'Z' ? e.code + 32 : e.code;
            if (any_case && code == 0x17f)
                code = 's';
            if (code != (uint32_t)*c)
                break;
        }
        if (!*c)
            return e.at;
    }
    return 0;
}

/* " ?[...]+": characters of one kind, with a space before them or not */
static size_t match_run(reader r, char_kind kind)
{
    if (r.code == ' ')
        step(&r);
    if (r.kind != kind)
        return 0;
    skip_kind(&r, kind);
    return r.at;
}

/* "[^\r\n\p{L}\p{N}]?\p{L}+" */
static size_t match_letters(reader r)
{
    if ((r.kind == OTHER || r.kind == SPACE) && !is_newline(r.code))
        step(&r);
    if (r.kind != LETTER)
        return 0;
    skip_kind(&r, LETTER);
    return r.at;
}

/* "\p{N}{1,3}" */
static size_t match_digits(reader r)
{
    for (int i = 0; i < 3 && r.kind == NUMBER; i++)
        step(&r);
    return r.at;
}

/* " ?[^\s\p{L}\p{N}]+[\r\n]*" */
static size_t match_signs(reader r)
{
    if (r.code == ' ')
        step(&r);
    if (r.kind != OTHER)
        return 0;
    skip_kind(&r, OTHER);
    while (is_newline(r.code))
        step(&r);
    return r.at;
}

/* "\s*[\r\n]+": to the last newline of the white space */
static size_t match_newlines(reader r)
{
    size_t end = 0;
    for (; r.kind == SPACE; step(&r))
        if (is_newline(r.code))
            end = r.at + r.length;
    return end;
}

/* "\s+(?!\S)|\s+": leaves the last character to a word that follows */
static size_t match_space(reader r)
{
    size_t last = 0;
    for (; r.kind == SPACE; step(&r))
        last = r.at;
    return r.kind == END || last == 0 ? r.at : last;
}

static size_t split_gpt2(const reader *r)
{
    size_t length = match_contraction(*r, false);
    if (length == 0)
        length = match_run(*r, LETTER);
    if (length == 0)
        length = match_run(*r, NUMBER);
    if (length == 0)
        length = match_run(*r, OTHER);
    return length ? length : match_space(*r);
}

static size_t split_llama3(const reader *r)
{
    size_t length = match_contraction(*r, true);
    if (length == 0)
        length = match_letters(*r);
    if (length == 0)
        length = match_digits(*r);
    if (length == 0)
        length = match_signs(*r);
    if (length == 0)
        length = match_newlines(*r);
    return length ? length : match_space(*r);
}

size_t ls_split_word(ls_split_rule rule, const char *text, size_t bytes)
{
    reader r = { .text = text, .bytes = bytes };
    if (rule == LS_SPLIT_NONE)
        return bytes;
    look(&r);
    return rule == LS_SPLIT_GPT2 ? split_gpt2(&r) : split_llama3(&r);
}
