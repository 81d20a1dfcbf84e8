/* Windows of tokens: all formats of files against numbers by hand, order, splits, and wrong files
 * and options, each with its numbers. */
#include "data_files.h"

#define TOKENS 23

static void put_tokens(bytes *b, int count, int width)
{
    for (int i = 0; i < count; i++)
        put_number(b, (uint64_t)(i * 3 + 1), width);
}

static void write_bytes(const char *name, const bytes *b)
{
    write_file(in_folder(name), b->data, b->count);
}

static void put_header(bytes *b, int32_t version, int32_t count)
{
    put_number(b, 20240520, 4);
    put_number(b, (uint32_t)version, 4);
    put_number(b, (uint32_t)count, 4);
    for (int i = 3; i < 256; i++)
        put_number(b, 0, 4);
}

/* Element i must be the window that begins at token first + i * stride. */
static void assert_windows(ls_dataset *data, int64_t first, int64_t stride, int64_t context, int64_t count)
{
    ls_iterator *iterator = NULL;
    const ls_element *e = NULL;
    int64_t found = -1;
    if (ls_dataset_count(data, &found) != LS_OK)
        fail_msg("%s", ls_last_error());
    assert_int_equal(found, count);
    assert_int_equal(ls_iterator_create(data, 0, &iterator), LS_OK);
    for (int64_t n = 0; n <= count; n++) {
        if (ls_iterator_next(iterator, &e) != LS_OK)
            fail_msg("%s", ls_last_error());
        if (n == count) {
            assert_null(e);
            break;
        }
        assert_int_equal(e->count, 2);
        for (int c = 0; c < 2; c++) {
            assert_int_equal(e->component[c].dtype, LS_I32);
            assert_int_equal(e->component[c].shape.rank, 1);
            assert_int_equal(e->component[c].shape.dims[0], context);
            for (int64_t i = 0; i < context; i++)
                assert_int_equal(((const int32_t *)e->component[c].data)[i], (first + n * stride + i + c) * 3 + 1);
        }
    }
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(data);
}

static void every_format(void **state)
{
    (void)state;
    static bytes b;
    b.count = 0;
    put_tokens(&b, TOKENS, 2);
    write_bytes("u16.bin", &b);
    assert_windows(ls_from_text(in_folder("u16.bin"), .context = 5), 0, 5, 5, 4); /* 23 tokens: 2 are left out */
    assert_windows(ls_from_text(in_folder("u16.bin"), .context = 5, .format = LS_TOKENS_U16), 0, 5, 5, 4);
    b.count = 0;
    put_tokens(&b, TOKENS, 4);
    write_bytes("u32.bin", &b);
    assert_windows(ls_from_text(in_folder("u32.bin"), .context = 5, .format = LS_TOKENS_U32), 0, 5, 5, 4);
    for (int wide = 0; wide < 2; wide++) {
        b.count = 0;
        put_header(&b, wide ? 7 : 1, TOKENS);
        put_tokens(&b, TOKENS, wide ? 4 : 2);
        write_bytes("llm.bin", &b);
        assert_windows(ls_from_text(in_folder("llm.bin"), .context = 4, .stride = 1), 0, 1, 4, 19);
    }
    static const char *const types[] = { "|u1", "<u2", "<u4", "<i4", "<i8", "<i2" };
    static const int widths[] = { 1, 2, 4, 4, 8, 2 };
    for (int t = 0; t < 6; t++) {
        static bytes tokens;
        char header[128];
        tokens.count = 0;
        put_tokens(&tokens, TOKENS, widths[t]);
        snprintf(header, sizeof header, HEADER("%s", "False", "(23,)"), types[t]);
        make_npy(&b, 1, header, tokens.data, tokens.count);
        write_bytes("t.npy", &b);
        assert_windows(ls_from_text(in_folder("t.npy"), .context = 22), 0, 22, 22, 1);
    }
    b.count = 0;
    put_tokens(&b, TOKENS, 1);
    write_bytes("text.txt", &b); /* bytes */
    assert_windows(ls_from_text(in_folder("text.txt"), .context = 2, .stride = 10), 0, 10, 2, 3);
}

static void texts_with_a_tokenizer(void **state)
{
    (void)state;
    ls_iterator *iterator = NULL;
    const ls_element *e = NULL;
    write_text(in_folder("t.txt"), "abcabcb");
    ls_dataset *data = ls_from_text(in_folder("t.txt"), .context = 6, .tokenizer = "chars");
    assert_int_equal(ls_iterator_create(data, 0, &iterator), LS_OK);
    assert_int_equal(ls_iterator_next(iterator, &e), LS_OK);
    assert_memory_equal(e->component[1].data, ((int32_t[]){ 1, 2, 0, 1, 2, 1 }), 24);
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(data);
    data = ls_from_text("COPYING-that-is-not-there", .context = 6);
    assert_fails(ls_dataset_status(data), LS_ERR_NOT_FOUND, "COPYING-that-is-not-there");
    ls_dataset_destroy(data);
    write_text(in_folder("t.txt"), "the the the <|endoftext|>");
    data = ls_from_text(in_folder("t.txt"), .context = 2, .tokenizer = "tests/reference/tokenizers/gpt2.json");
    assert_int_equal(ls_iterator_create(data, 0, &iterator), LS_OK);
    int64_t count = 0;
    assert_int_equal(ls_dataset_count(data, &count), LS_OK);
    assert_int_equal(count, 2); /* t he | the| the| | <|endoftext|> */
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(data);
}

static void written_files_are_read(void **state)
{
    (void)state;
    static const int32_t ids[] = { 0, 65535, 7 }, large[] = { 1, 65536 };
    static const ls_token_format formats[] = { LS_TOKENS_AUTO, LS_TOKENS_U16, LS_TOKENS_U32 };
    int32_t *again = NULL;
    size_t count = 0;
    for (int f = 0; f < 3; f++) {
        assert_int_equal(ls_tokens_write(in_folder("w.bin"), ids, 3, 65536, formats[f]), LS_OK);
        assert_int_equal(ls_tokens_read(in_folder("w.bin"), formats[f], &again, &count), LS_OK);
        assert_int_equal(count, 3);
        assert_memory_equal(again, ids, sizeof ids);
        free(again);
        struct stat about;
        assert_int_equal(stat(in_folder("w.bin"), &about), 0);
        assert_int_equal(about.st_size, f == 0 ? 1024 + 6 : f == 1 ? 6 : 12);
    }
    assert_int_equal(ls_tokens_write(in_folder("w.bin"), large, 2, 65537, LS_TOKENS_AUTO), LS_OK);
    assert_int_equal(ls_tokens_read(in_folder("w.bin"), LS_TOKENS_AUTO, &again, &count), LS_OK);
    assert_memory_equal(again, large, sizeof large);
    free(again);
    again = NULL;
    assert_fails(ls_tokens_write(in_folder("w.bin"), large, 2, 65537, LS_TOKENS_U16), LS_ERR_INVALID,
                 "a vocabulary of 65537; expected 1 to 65536");
    assert_fails(ls_tokens_write(in_folder("w.bin"), ids, 3, 8, LS_TOKENS_AUTO), LS_ERR_DATA,
                 "token 1 of 3 is 65535; the vocabulary has 8");
    assert_fails(ls_tokens_write(in_folder("w.bin"), ids, 3, 8, (ls_token_format)9), LS_ERR_INVALID, "unknown value 9");
    write_file(in_folder("w.bin"), "\xff\xff\xff\xff", 4);
    assert_fails(ls_tokens_read(in_folder("w.bin"), LS_TOKENS_U32, &again, &count), LS_ERR_DATA,
                 "w.bin': token 0 is 4294967295; ids are from 0 to 2147483647");
    assert_null(again);
}

/* ---- Order ---- */

static void shuffled_windows_are_a_permutation(void **state)
{
    (void)state;
    static bytes b;
    b.count = 0;
    put_tokens(&b, 101, 2);
    write_bytes("u16.bin", &b);
    int32_t first[2][2][10];
    for (int round = 0; round < 4; round++) { /* two passes of each of two epochs */
        ls_iterator *iterator = NULL;
        const ls_element *e = NULL;
        bool seen[10] = { false };
        ls_dataset *data = ls_shuffle(ls_from_text(in_folder("u16.bin"), .context = 10), 10, 5);
        assert_int_equal(ls_iterator_create(data, (uint64_t)round / 2, &iterator), LS_OK);
        for (int n = 0; n < 10; n++) {
            assert_int_equal(ls_iterator_next(iterator, &e), LS_OK);
            first[round / 2][round % 2][n] = *(const int32_t *)e->component[0].data;
            int at = (first[round / 2][round % 2][n] - 1) / 30;
            assert_in_range(at, 0, 9);
            assert_false(seen[at]);
            seen[at] = true;
        }
        ls_iterator_destroy(iterator);
        ls_dataset_destroy(data);
    }
    assert_memory_equal(first[0][0], first[0][1], sizeof first[0][0]);
    assert_memory_equal(first[1][0], first[1][1], sizeof first[0][0]);
    assert_memory_not_equal(first[0][0], first[1][0], sizeof first[0][0]);
}

/* ---- By name ---- */

static const char *name_of(const char *file, const char *options)
{
    static char name[PATH_MAX];
    snprintf(name, sizeof name, "text:%s%s", in_folder(file), options);
    return name;
}

static void by_name(void **state)
{
    (void)state;
    static bytes b;
    ls_dataset *train = NULL, *test = NULL;
    b.count = 0;
    put_tokens(&b, 101, 2);
    write_bytes("u16.bin", &b);
    assert_int_equal(ls_load_data(NULL, name_of("u16.bin", ",context=10"), &train, &test), LS_OK);
    assert_null(test);
    assert_windows(train, 0, 10, 10, 10);
    assert_int_equal(ls_load_data(NULL, name_of("u16.bin", ",context=10,split=0.75,vocab=302"), &train, &test), LS_OK);
    assert_windows(train, 0, 10, 10, 7);
    assert_windows(test, 70, 10, 10, 3);
    /* Windows of training that overlap a window of the test are left out. */
    assert_int_equal(ls_load_data(NULL, name_of("u16.bin", ",context=10,stride=4,split=0.5"), &train, &test), LS_OK);
    assert_windows(train, 0, 4, 10, 9); /* 23 windows, 11 for training; the last ends at token 42 <= 44 */
    assert_windows(test, 44, 4, 10, 12);
    char other[PATH_MAX];
    snprintf(other, sizeof other, ",context=20,test=%s", in_folder("u16.bin"));
    assert_int_equal(ls_load_data(NULL, name_of("u16.bin", other), &train, &test), LS_OK);
    assert_windows(train, 0, 20, 20, 5);
    assert_windows(test, 0, 20, 20, 5);
    assert_int_equal(ls_load_data(NULL, name_of("u16.bin", ",context=10,split=0.75"), NULL, &test), LS_OK);
    assert_windows(test, 70, 10, 10, 3);
}

static void wrong_names(void **state)
{
    (void)state;
    static bytes b;
    static const struct {
        const char *options, *message;
    } rows[] = {
        { ",context=0", "context=0: expected a whole number of at least 1" },
        { ",context", "\"context\" is not an option" },
        { ",contxt=3", "unknown option contxt; did you mean context?" },
        { ",split=1", "split=1: expected the fraction for training" },
        { ",split=nan", "split=nan: expected the fraction" },
        { ",type=u8", "type=u8: expected u16 or u32" },
        { ",split=0.5,test=x", "cannot be used together" },
        { ",test=x,tokenizer=chars", "tokenizer=chars learns from one file" },
        { ",context=99999999", "a context of 1 to 16777216" },
        { ",context=10,split=0.05", "split=0.05 leaves 0 samples for training and 10 for the test, of 10" },
        { ",context=10,stride=4,split=0.05", "leaves 0 samples for training" },
        { ",tokenizer=chars", "has tokens, not text" },
        { ",tokenizer=none.json", "none.json" },
    };
    b.count = 0;
    put_tokens(&b, 101, 2);
    write_bytes("u16.bin", &b);
    ls_dataset *train = NULL, *test = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_status status = ls_load_data(NULL, name_of("u16.bin", rows[i].options), &train, &test);
        if (status == LS_OK)
            fail_msg("row %zu was accepted", i);
        assert_fails(status, status, rows[i].message);
    }
    assert_fails(ls_load_data(NULL, "text:", &train, &test), LS_ERR_INVALID, "no file was given");
    assert_null(train);
}

/* ---- Wrong files ---- */

static void refused(const char *name, ls_text_options options, const char *message)
{
    ls_dataset *d = ls_from_text_with(in_folder(name), options);
    ls_status status = ls_dataset_status(d);
    if (status == LS_OK)
        fail_msg("accepted, not: %s", message);
    assert_fails(status, status, message);
    ls_dataset_destroy(d);
}

static void wrong_files(void **state)
{
    (void)state;
    static bytes b;
    ls_text_options five = { .context = 5 };
    write_file(in_folder("odd.bin"), "12345", 5);
    refused("odd.bin", five, "odd.bin' has 5 bytes of tokens, which is not a multiple of 2");
    refused("odd.bin", (ls_text_options){ .format = LS_TOKENS_U32 }, "5 bytes of tokens, which is not a multiple of 4");
    write_file(in_folder("short.bin"), "1234567890", 10);
    refused("short.bin", five, "short.bin' has 5 tokens; a sample of context 5 needs 6");
    refused("short.bin", (ls_text_options){ .context = 0 }, "has 5 tokens; a sample of context 256 needs 257");
    write_file(in_folder("empty.bin"), "", 0);
    refused("empty.bin", five, "empty.bin' has 0 bytes, and no tokens");
    b.count = 0;
    put_header(&b, 1, 9);
    put_tokens(&b, 8, 2);
    write_bytes("h.bin", &b);
    refused("h.bin", five, "h.bin' has 8 tokens after its header; the header says 9");
    b.count = 0;
    put_header(&b, 3, 8);
    put_tokens(&b, 8, 2);
    write_bytes("h.bin", &b);
    refused("h.bin", five, "with version 3; supported are 1 (u16) and 7 (u32)");
    make_npy(&b, 1, HEADER("<f4", "False", "(2,)"), "12345678", 8);
    write_bytes("f.npy", &b);
    refused("f.npy", five, "elements of type '<f4'; tokens are integers");
    make_npy(&b, 1, HEADER(">u2", "False", "(4,)"), "12345678", 8);
    write_bytes("f.npy", &b);
    refused("f.npy", five, "elements of type '>u2'");
    make_npy(&b, 1, HEADER("<u2", "False", "(2, 2)"), "12345678", 8);
    write_bytes("f.npy", &b);
    refused("f.npy", five, "tokens have one axis");
    make_npy(&b, 1, HEADER("<u2", "False", "(5,)"), "12345678", 8);
    write_bytes("f.npy", &b);
    refused("f.npy", five, "has room for 4 tokens after its header; the header says 5");
    write_text(in_folder("t.txt"), "text");
    refused("t.txt", (ls_text_options){ .format = LS_TOKENS_U16 }, "it is for .bin files");
    refused("t.txt", (ls_text_options){ .context = -1 }, "context -1");
    refused("t.txt", (ls_text_options){ .stride = -1 }, "stride -1");
    refused("t.txt", (ls_text_options){ .vocab = -1 }, "a vocabulary of -1");
    write_text(in_folder("t.txt"), "a text that is \xff not UTF-8");
    refused("t.txt", (ls_text_options){ .tokenizer = "chars", .context = 2 }, "t.txt': byte 15 of the text, 0xff");
}

static void ids_beyond_the_vocabulary(void **state)
{
    (void)state;
    static bytes b;
    ls_iterator *iterator = NULL;
    const ls_element *e = NULL;
    b.count = 0;
    put_tokens(&b, TOKENS, 2);
    write_bytes("u16.bin", &b);
    ls_dataset *data = ls_from_text(in_folder("u16.bin"), .context = 5, .vocab = 32);
    assert_int_equal(ls_iterator_create(data, 0, &iterator), LS_OK);
    assert_int_equal(ls_iterator_next(iterator, &e), LS_OK);
    assert_int_equal(ls_iterator_next(iterator, &e), LS_OK); /* the label 31 is the last that is allowed */
    assert_fails(ls_iterator_next(iterator, &e), LS_ERR_DATA, "u16.bin': token 11 is 34; the vocabulary has 32");
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_new_folder(every_format),
        in_new_folder(texts_with_a_tokenizer),
        in_new_folder(written_files_are_read),
        in_new_folder(shuffled_windows_are_a_permutation),
        in_new_folder(by_name),
        in_new_folder(wrong_names),
        in_new_folder(wrong_files),
        in_new_folder(ids_beyond_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
