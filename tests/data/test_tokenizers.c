/* Tokenizers against Hugging Face's: tests/reference/make_tokenizers.py made the cases, also those
 * of another folder, LS_TOKENIZER_CASES. Texts of any bytes, long words, and wrong files. */
#include "data_files.h"

#include "base/json.h"
#include "data/tokenizer.h"

#define REFERENCE "tests/reference/tokenizers"

/* ---- Cases of Hugging Face's library ---- */

static ls_tokenizer *open_tokenizer(const char *path)
{
    ls_tokenizer *t = NULL;
    if (ls_tokenizer_open(path, &t) != LS_OK)
        fail_msg("%s", ls_last_error());
    return t;
}

static void assert_ids(const char *what, size_t line, const json_t *want, const int32_t *ids, size_t count)
{
    bool same = json_array_size(want) == count;
    for (size_t i = 0; same && i < count; i++)
        same = json_integer_value(json_array_get(want, i)) == ids[i];
    if (!same) {
        for (size_t i = 0; i < count; i++)
            printf("%d ", ids[i]);
        printf("\n");
        fail_msg("%s: line %zu has other ids (%zu, expected %zu)", what, line, count, json_array_size(want));
    }
}

static void assert_text(const char *what, size_t line, const char *want, const char *text, size_t bytes)
{
    if (bytes != strlen(want) || memcmp(want, text, bytes) != 0)
        fail_msg("%s: line %zu decodes to \"%s\", not \"%s\"", what, line, text, want);
}

static void check_decoded(const ls_tokenizer *t, const char *what, size_t line, const json_t *case_, bool equal)
{
    const json_t *list = json_object_get(case_, "ids");
    int32_t ids[4096];
    char *text = NULL;
    size_t bytes = 0, count = json_array_size(list);
    assert_true(count <= 4096);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    assert_int_equal(ls_tokenizer_decode(t, ids, count, &text, &bytes), LS_OK);
    if (equal)
        assert_text(what, line, json_string_value(json_object_get(case_, "text")), text, bytes);
    free(text);
}

static void check_line(const ls_tokenizer *t, const char *what, size_t line, const json_t *case_)
{
    const char *text = json_string_value(json_object_get(case_, "text"));
    int32_t *ids = NULL;
    size_t count = 0;
    if (ls_tokenizer_encode(t, text, strlen(text), &ids, &count) != LS_OK)
        fail_msg("%s", ls_last_error());
    assert_ids(what, line, json_object_get(case_, "ids"), ids, count);
    free(ids);
    /* <mask> and <sep> include white space, which decoding cannot restore. */
    check_decoded(t, what, line, case_, !strstr(text, "<mask>") && !strstr(text, "<sep>"));
}

static void check_cases(const char *name, const char *file)
{
    const char *folder = getenv("LS_TOKENIZER_CASES") ? getenv("LS_TOKENIZER_CASES") : REFERENCE;
    char path[PATH_MAX];
    json_t *cases = NULL, *one;
    size_t i;
    snprintf(path, sizeof path, "%s/%s.cases.json", folder, name);
    if (ls_json_read_file(path, &cases) != LS_OK)
        fail_msg("%s", ls_last_error());
    snprintf(path, sizeof path, "%s/%s", folder, file);
    ls_tokenizer *t = open_tokenizer(path);
    assert_int_equal(ls_tokenizer_size(t), json_integer_value(json_object_get(cases, "size")));
    assert_true(json_array_size(json_object_get(cases, "lines")) >= 100);
    json_array_foreach(json_object_get(cases, "lines"), i, one)
    {
        check_line(t, name, i, one);
    }
    json_array_foreach(json_object_get(cases, "decoded"), i, one)
    {
        check_decoded(t, name, i, one, true);
    }
    ls_tokenizer_destroy(t);
    json_decref(cases);
}

static void rule_of_gpt2(void **state)
{
    (void)state;
    check_cases("gpt2", "gpt2.json");
}

static void rule_of_llama3(void **state)
{
    (void)state;
    check_cases("llama3", "llama3.json");
}

static void vocab_and_merges(void **state)
{
    (void)state;
    check_cases("pair", "pair/vocab.json");
    check_cases("pair", "pair/merges.txt");
    check_cases("pair", "pair");
}

/* ---- Words by hand ---- */

static void assert_words(ls_split_rule rule, const char *text, const char *want)
{
    char got[256] = "";
    for (size_t at = 0, bytes = strlen(text), length; at < bytes; at += length) {
        length = ls_split_word(rule, text + at, bytes - at);
        assert_true(length > 0);
        strcat(got, at ? "|" : "");
        strncat(got, text + at, length);
    }
    assert_string_equal(got, want);
}

static void words_of_both_rules(void **state)
{
    (void)state;
    assert_words(LS_SPLIT_GPT2, "It's 12345  years,\n\n ago", "It|'s| 12345| | years|,|\n\n| ago");
    assert_words(LS_SPLIT_LLAMA3, "It'S 12345  years,\n\n ago", "It|'S| |123|45| | years|,\n\n| ago");
    assert_words(LS_SPLIT_GPT2, "IT'S x'll\t\ty", "IT|'|S| x|'ll|\t|\t|y");
    assert_words(LS_SPLIT_LLAMA3, "a\t\tb \n c  ", "a|\t|\tb| \n| c|  ");
    assert_words(LS_SPLIT_LLAMA3, "'\xc5\xbf \xe2\x85\xa7\xc2\xb2x",
                 "'\xc5\xbf| |\xe2\x85\xa7\xc2\xb2|x"); /* long s; VIII, ^2 */
    assert_words(LS_SPLIT_NONE, "a b", "a b");
}

/* ---- Any bytes ---- */

static void assert_round_trip(const ls_tokenizer *t, const char *text, size_t bytes)
{
    int32_t *ids = NULL;
    char *again = NULL;
    size_t count = 0, length = 0;
    assert_int_equal(ls_tokenizer_encode(t, text, bytes, &ids, &count), LS_OK);
    assert_int_equal(ls_tokenizer_decode(t, ids, count, &again, &length), LS_OK);
    assert_int_equal(length, bytes);
    if (bytes > 0)
        assert_memory_equal(again, text, bytes);
    free(again);
    free(ids);
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    char bytes[512];
    static const char *const files[] = { "bytes", REFERENCE "/gpt2.json", REFERENCE "/llama3.json" };
    for (size_t f = 0; f < 3; f++) {
        ls_tokenizer *t = open_tokenizer(files[f]);
        uint32_t random = 1;
        for (int round = 0; round < 200; round++) {
            size_t count = (size_t)round;
            for (size_t i = 0; i < count; i++) {
                random = random * 1664525 + 1013904223;
                bytes[i] = (char)(random >> 24);
            }
            assert_round_trip(t, bytes, count);
        }
        assert_round_trip(t, "\xf0\x9f\x98", 3); /* a character that is cut */
        assert_round_trip(t, "\xed\xa0\x80\xc0\x80\xf8\x88", 7);
        assert_round_trip(t, "a\0b", 3);
        ls_tokenizer_destroy(t);
    }
}

/* n * n steps would need minutes. */
static void long_words(void **state)
{
    (void)state;
    size_t bytes = 1 << 19;
    char *text = malloc(bytes);
    assert_non_null(text);
    ls_tokenizer *t = open_tokenizer(REFERENCE "/gpt2.json");
    for (size_t i = 0; i < bytes; i++)
        text[i] = "the"[i % 3];
    assert_round_trip(t, text, bytes);
    memset(text, ' ', bytes);
    assert_round_trip(t, text, bytes);
    memset(text, '<', bytes);
    assert_round_trip(t, text, bytes);
    ls_tokenizer_destroy(t);
    free(text);
}

static void tokens_by_name(void **state)
{
    (void)state;
    int32_t id = -5;
    ls_tokenizer *t = open_tokenizer(REFERENCE "/gpt2.json");
    assert_int_equal(ls_tokenizer_id(t, "<|endoftext|>", &id), LS_OK);
    assert_int_equal(id, 2256);
    assert_int_equal(ls_tokenizer_id(t, "!", &id), LS_OK);
    assert_int_equal(id, 0);
    assert_int_equal(ls_tokenizer_id(t, "\xc4\xa0the", &id), LS_OK); /* " the" */
    assert_fails(ls_tokenizer_id(t, "no such token", &id), LS_ERR_NOT_FOUND, "of 2263 tokens has no \"no such token\"");
    int32_t wrong = 2263;
    char *text = NULL;
    size_t bytes = 0;
    assert_fails(ls_tokenizer_decode(t, &wrong, 1, &text, &bytes), LS_ERR_DATA, "token 0 of 1 has the id 2263");
    assert_null(text);
    ls_tokenizer_destroy(t);
}

/* ---- Characters ---- */

static void characters(void **state)
{
    (void)state;
    static const char text[] = "b\xc3\xa4"
                               "a\n\xf0\x9f\x98\x80"
                               "ab";
    static const int32_t want[] = { 2, 3, 1, 0, 4, 1, 2 };
    ls_tokenizer *t = NULL;
    int32_t *ids = NULL, id = 0;
    size_t count = 0;
    assert_int_equal(ls_tokenizer_from_characters(text, strlen(text), &t), LS_OK);
    assert_int_equal(ls_tokenizer_size(t), 5);
    assert_int_equal(ls_tokenizer_save(t, in_folder("chars.json")), LS_OK);
    ls_tokenizer_destroy(t);
    t = open_tokenizer(in_folder("chars.json"));
    assert_int_equal(ls_tokenizer_encode(t, text, strlen(text), &ids, &count), LS_OK);
    assert_int_equal(count, 7);
    assert_memory_equal(ids, want, sizeof want);
    free(ids);
    assert_round_trip(t, text, strlen(text));
    assert_int_equal(ls_tokenizer_id(t, "\xc3\xa4", &id), LS_OK);
    assert_int_equal(id, 3);
    assert_fails(ls_tokenizer_encode(t, "abc", 3, &ids, &count), LS_ERR_DATA,
                 "the character at byte 2, U+0063, is not in the vocabulary of 5 characters");
    assert_fails(ls_tokenizer_encode(t, "a\xff", 2, &ids, &count), LS_ERR_DATA,
                 "byte 1 of the text, 0xff, is not UTF-8");
    ls_tokenizer_destroy(t);
    assert_fails(ls_tokenizer_from_characters("\x80", 1, &t), LS_ERR_DATA, "byte 0 of the text, 0x80, is not UTF-8");
}

/* ---- Wrong files ---- */

static void refused(const char *text, ls_status status, const char *message)
{
    ls_tokenizer *t = NULL;
    write_text(in_folder("tokenizer.json"), text);
    assert_fails(ls_tokenizer_open(in_folder("tokenizer.json"), &t), status, message);
    assert_null(t);
}

#define MODEL   "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}"
#define DECODER "\"decoder\":{\"type\":\"ByteLevel\"}"
#define PRE     "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}"
#define SPLIT(pattern)                                                                                                 \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"          \
    "\"" pattern "\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]}"

static void wrong_files(void **state)
{
    (void)state;
    refused("{", LS_ERR_DATA, "tokenizer.json");
    refused("[]", LS_ERR_DATA, "tokenizer.json: expected an object");
    refused("{}", LS_ERR_DATA, "tokenizer.json.model");
    refused("{\"model\":{\"type\":\"Unigram\"}}", LS_ERR_UNSUPPORTED, "model: type is \"Unigram\"; only BPE");
    refused("{\"model\":{\"dropout\":0.1}}", LS_ERR_UNSUPPORTED, "model: dropout is set");
    refused("{\"model\":{\"end_of_word_suffix\":\"</w>\"}}", LS_ERR_UNSUPPORTED, "model: end_of_word_suffix is set");
    refused("{" MODEL ",\"normalizer\":{\"type\":\"NFC\"}}", LS_ERR_UNSUPPORTED, "normalizer: NFC is not supported");
    refused("{" MODEL ",\"decoder\":{\"type\":\"Metaspace\"}}", LS_ERR_UNSUPPORTED, "decoder: type is \"Metaspace\"");
    refused("{" MODEL "," DECODER ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", LS_ERR_UNSUPPORTED,
            "pre_tokenizer: type is \"Whitespace\"");
    refused("{" MODEL "," DECODER "," SPLIT("[a-z]+") "}", LS_ERR_UNSUPPORTED,
            "pretokenizers[0].pattern: the pattern [a-z]+ is not supported");
    refused("{" MODEL "," DECODER "," PRE "}", LS_ERR_UNSUPPORTED, "has no token for byte 0x00 (U+0100)");
    refused("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}," DECODER "," PRE "}", LS_ERR_DATA,
            "model.vocab.a: the id is -1");
    refused("{\"model\":{\"vocab\":{\"a\":\"1\"},\"merges\":[]}," DECODER "," PRE "}", LS_ERR_DATA,
            "model.vocab.a: expected an integer");
    refused("{\"model\":{\"vocab\":{\"a\":4,\"b\":4},\"merges\":[]}," DECODER "," PRE "}", LS_ERR_DATA,
            "\"a\" and \"b\" have the same id 4");
    refused("{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a c\"]}," DECODER "," PRE "}", LS_ERR_DATA,
            "merge 1, \"a c\": \"c\" is not in the vocabulary");
    refused("{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\",\"b\"]]}," DECODER "," PRE "}", LS_ERR_DATA,
            "merge 1 makes \"ab\", which is not in the vocabulary");
    refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}," DECODER "," PRE "}", LS_ERR_DATA,
            "merge 1 is \"ab\"; expected two tokens");
    refused("{\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"single_word\":true}]," MODEL "," DECODER "," PRE "}",
            LS_ERR_UNSUPPORTED, "added_tokens[0]: single_word is true for \"x\"");
    refused("{\"format\":\"lockstep-characters\",\"characters\":[5,5]}", LS_ERR_DATA,
            "characters[1]: 5 is not a character");
    refused("{\"format\":\"other\"}", LS_ERR_DATA, "format is \"other\"");
}

static void missing_files(void **state)
{
    (void)state;
    ls_tokenizer *t = NULL;
    assert_fails(ls_tokenizer_open(in_folder("none.json"), &t), LS_ERR_NOT_FOUND, "none.json");
    assert_fails(ls_tokenizer_open("src/data", &t), LS_ERR_NOT_FOUND,
                 "'src/data' has no tokenizer.json, and no vocab.json");
    write_text(in_folder("vocab.json"), "{\"a\":0}");
    assert_fails(ls_tokenizer_open(in_folder("vocab.json"), &t), LS_ERR_NOT_FOUND, "merges.txt");
    write_text(in_folder("merges.txt"), "#version: 0.2\na  b\n");
    assert_fails(ls_tokenizer_open(in_folder("vocab.json"), &t), LS_ERR_DATA, "merges.txt': merge 1 is \"a  b\"");
    assert_fails(ls_tokenizer_open("chars", &t), LS_ERR_INVALID, "is learned from a text");
    t = open_tokenizer("bytes");
    assert_fails(ls_tokenizer_save(t, in_folder("x.json")), LS_ERR_UNSUPPORTED,
                 "only a tokenizer of characters is saved");
    ls_tokenizer_destroy(t);
    ls_tokenizer_destroy(NULL);
    assert_int_equal(ls_tokenizer_size(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_of_gpt2),        cmocka_unit_test(rule_of_llama3),
        cmocka_unit_test(vocab_and_merges),    cmocka_unit_test(words_of_both_rules),
        cmocka_unit_test(any_bytes_come_back), cmocka_unit_test(long_words),
        cmocka_unit_test(tokens_by_name),      cmocka_unit_test(characters),
        cmocka_unit_test(wrong_files),         cmocka_unit_test(missing_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
