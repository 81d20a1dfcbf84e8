/* Tokenizer files. The first byte says what follows: a tokenizer.json or a file of characters;
 * vocab.json, a zero byte and merges.txt; a text to learn characters from; or a file of tokens.
 * What is accepted encodes a text, and decodes it to the same text. */
#include "fuzz.h"

#include <string.h>

#include "data/tokenizer.h"

static const char sample[] =
    "It's the 12345th  line,\r\n <|endoftext|> \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 '\xc5\xbf\xff\xc3 end\n\n x";

/* Tokens that include white space do not restore it, and a name that is not byte-level is not what
 * was encoded. */
static bool is_exact(const ls_tokenizer *t)
{
    if (t->kind != LS_TOKENIZER_BPE)
        return true;
    if (t->bpe.add_prefix_space)
        return false;
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < t->bpe.added[i].count; k++) {
            const ls_added_token *a = &t->bpe.added[i].tokens[k];
            char *made = malloc(a->bytes);
            FUZZ_CHECK(made, "no memory");
            size_t bytes = ls_bpe_token_bytes(&t->bpe, a->id, made);
            bool same = bytes == a->bytes && memcmp(made, a->text, bytes) == 0;
            free(made);
            if (!same || a->lstrip || a->rstrip)
                return false;
        }
    return true;
}

static void use(const ls_tokenizer *t, const char *text, size_t bytes)
{
    int32_t *ids = NULL;
    char *again = NULL;
    size_t count = 0, length = 0;
    if (!fuzz_status(ls_tokenizer_encode(t, text, bytes, &ids, &count)))
        return;
    for (size_t i = 0; i < count; i++)
        FUZZ_CHECK(ids[i] >= 0 && ids[i] < ls_tokenizer_size(t), "id %d of %lld", ids[i],
                   (long long)ls_tokenizer_size(t));
    FUZZ_CHECK(ls_tokenizer_decode(t, ids, count, &again, &length) == LS_OK, "not decoded: %s", ls_last_error());
    if (is_exact(t))
        FUZZ_CHECK(length == bytes && memcmp(again, text, bytes) == 0, "%zu bytes become %zu", bytes, length);
    free(again);
    free(ids);
}

static ls_status open_pair(const uint8_t *data, size_t size, ls_tokenizer **out)
{
    const uint8_t *zero = memchr(data, 0, size);
    size_t vocab = zero ? (size_t)(zero - data) : size, merges = zero ? size - vocab - 1 : 0;
    ls_tokenizer *t = calloc(1, sizeof *t);
    FUZZ_CHECK(t, "no memory");
    t->kind = LS_TOKENIZER_BPE;
    ls_status status = ls_bpe_read_pair(&t->bpe, "vocab.json", (const char *)data, vocab, "merges.txt",
                                        zero ? (const char *)zero + 1 : "", merges);
    if (status == LS_OK)
        *out = t;
    else
        ls_tokenizer_destroy(t);
    return status;
}

static void read_tokens(const uint8_t *data, size_t size)
{
    for (int format = 0; format <= LS_TOKENS_U32; format++) {
        int32_t *ids = NULL;
        size_t count = 0;
        if (fuzz_status(ls_tokens_read(fuzz_file(data, size), (ls_token_format)format, &ids, &count)))
            FUZZ_CHECK(count <= size / 2, "%zu tokens in %zu bytes", count, size);
        free(ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_tokenizer *t = NULL;
    ls_status status = LS_OK;
    if (size == 0)
        return 0;
    const uint8_t *rest = data + 1;
    size--;
    switch (data[0] % 4) {
    case 0:
        status = ls_tokenizer_open(fuzz_file(rest, size), &t);
        break;
    case 1:
        status = open_pair(rest, size, &t);
        break;
    case 2:
        status = ls_tokenizer_from_characters((const char *)rest, size, &t);
        break;
    default:
        read_tokens(rest, size);
        return 0;
    }
    if (!fuzz_status(status))
        return 0;
    use(t, sample, sizeof sample - 1);
    use(t, (const char *)rest, size);
    ls_tokenizer_destroy(t);
    return 0;
}
