/* The command `lockstep tokenize`. */
#include "tool/tool.h"

#include <errno.h>
#include <string.h>

static ls_status check(const ls_options *options, tool_settings *settings)
{
    (void)options;
    if (settings->file_count > 1)
        return ls_fail(LS_ERR_INVALID, "tokenize: one FILE, not %zu; join texts with cat and give no FILE",
                       settings->file_count);
    if (settings->tokenizer == NULL)
        return ls_fail(LS_ERR_INVALID, "--tokenizer is needed: bytes, chars, tokenizer.json, vocab.json or a folder");
    if (settings->output == NULL && !settings->decode)
        return ls_fail(LS_ERR_INVALID, "--output is needed: a file for the tokens, such as tokens.bin");
    if (settings->decode && settings->file_count == 0)
        return ls_fail(LS_ERR_INVALID, "--decode needs a FILE of tokens: FILE.bin or FILE.npy");
    bool chars = strcmp(settings->tokenizer, "chars") == 0;
    if (settings->decode && chars)
        return ls_fail(LS_ERR_INVALID, "--decode: --tokenizer chars is learned from a text; give the file that "
                                       "--save-tokenizer wrote");
    if (settings->save_tokenizer && !chars)
        return ls_fail(LS_ERR_INVALID, "--save-tokenizer is for --tokenizer chars; %s is not learned from the text",
                       settings->tokenizer);
    return tool_check_outputs(settings);
}

/* ---- Text ---- */

static ls_status read_stdin(char **data, size_t *bytes)
{
    ls_text text = { 0 };
    char piece[65536];
    size_t got;
    while ((got = fread(piece, 1, sizeof piece, stdin)) > 0)
        ls_text_put_bytes(&text, piece, got);
    ls_status status = LS_OK;
    if (ferror(stdin))
        status = ls_fail(LS_ERR_IO, "cannot read standard input: %s", strerror(errno));
    *bytes = text.length;
    if (status == LS_OK && text.length == 0)
        ls_text_put(&text, ""); /* an empty text has memory, too */
    if (status == LS_OK)
        return ls_text_take(&text, data);
    ls_text_free(&text);
    return status;
}

static ls_status read_text(const tool_settings *settings, char **data, size_t *bytes)
{
    if (settings->file_count == 0 || strcmp(settings->files[0], "-") == 0)
        return read_stdin(data, bytes);
    return ls_file_read(settings->files[0], SIZE_MAX, data, bytes);
}

/* ---- Encoding ---- */

static ls_status open_tokenizer(const tool_settings *settings, const char *text, size_t bytes, ls_tokenizer **out)
{
    if (strcmp(settings->tokenizer, "chars") != 0)
        return ls_fail_within(ls_tokenizer_open(settings->tokenizer, out), "--tokenizer");
    LS_TRY(ls_tokenizer_from_characters(text, bytes, out));
    ls_status status = settings->save_tokenizer ? ls_tokenizer_save(*out, settings->save_tokenizer) : LS_OK;
    if (status != LS_OK)
        ls_tokenizer_destroy(*out);
    return status;
}

static ls_status write_tokens(const tool_settings *settings, const ls_tokenizer *tokenizer, const char *text,
                              size_t bytes)
{
    int32_t *ids = NULL;
    size_t count = 0;
    char a[32], b[32], c[32], d[32];
    int64_t vocab = ls_tokenizer_size(tokenizer);
    double start = ls_clock_now();
    LS_TRY(ls_tokenizer_encode(tokenizer, text, bytes, &ids, &count));
    double seconds = ls_clock_now() - start;
    ls_status status = vocab > 0 ? LS_OK : ls_fail(LS_ERR_DATA, "the text is empty, and so is its vocabulary");
    if (status == LS_OK)
        status = ls_tokens_write(settings->output, ids, count, vocab, (ls_token_format)settings->token_format);
    free(ids);
    LS_TRY(status);
    bool wide = settings->token_format == LS_TOKENS_U32 || vocab > 65536;
    printf("%s: %s tokens (%s%s) of a vocabulary of %s, from %s bytes; %s tokens per second\n", settings->output,
           tool_number((int64_t)count, a), wide ? "u32" : "u16",
           settings->token_format == LS_TOKENS_AUTO ? ", with llm.c's header" : "", tool_number(vocab, b),
           tool_number((int64_t)bytes, c),
           tool_number((int64_t)((double)count / (seconds > 1e-9 ? seconds : 1e-9)), d));
    return LS_OK;
}

static ls_status encode(const tool_settings *settings)
{
    char *text = NULL;
    size_t bytes = 0;
    ls_tokenizer *tokenizer = NULL;
    LS_TRY(tool_check_writable("--output", settings->output));
    LS_TRY(tool_check_writable("--save-tokenizer", settings->save_tokenizer));
    LS_TRY(read_text(settings, &text, &bytes));
    ls_status status = open_tokenizer(settings, text, bytes, &tokenizer);
    if (status == LS_OK) {
        status = write_tokens(settings, tokenizer, text, bytes);
        ls_tokenizer_destroy(tokenizer);
    }
    free(text);
    return status;
}

/* ---- Decoding ---- */

static ls_status write_text(const tool_settings *settings, const char *text, size_t bytes)
{
    if (settings->output)
        return ls_file_write(settings->output, text, bytes);
    if (fwrite(text, 1, bytes, stdout) != bytes)
        return ls_fail(LS_ERR_IO, "cannot write to standard output: %s", strerror(errno));
    return LS_OK;
}

static ls_status decode(const tool_settings *settings)
{
    ls_tokenizer *tokenizer = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t count = 0, bytes = 0;
    LS_TRY(tool_check_writable("--output", settings->output));
    LS_TRY(ls_fail_within(ls_tokenizer_open(settings->tokenizer, &tokenizer), "--tokenizer"));
    ls_status status = ls_tokens_read(settings->files[0], (ls_token_format)settings->token_format, &ids, &count);
    if (status == LS_OK)
        status = ls_fail_within(ls_tokenizer_decode(tokenizer, ids, count, &text, &bytes), "%s", settings->files[0]);
    if (status == LS_OK)
        status = write_text(settings, text, bytes);
    free(text);
    free(ids);
    ls_tokenizer_destroy(tokenizer);
    return status;
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    return settings->decode ? decode(settings) : encode(settings);
}

const tool_command tool_tokenize = {
    .name = "tokenize",
    .arguments = "[FILE] --tokenizer TOKENIZER --output FILE",
    .summary = "turn a text into tokens for training, or tokens into text",
    .details = "Writes the tokens of a text, from FILE or standard input, as train reads them: --data "
               "text:tokens.bin,context=256.\n"
               "Prints how many there are, and how fast they were made. --decode reads tokens and writes their text "
               "(docs/text.md).",
    .takes_files = TOOL_ANY_FILES,
    .tables = { &tool_tokenize_flags },
    .check = check,
    .run = run,
};
