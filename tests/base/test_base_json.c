/* JSON: errors that name file, line and column, or the path of the key; unknown keys; writing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "sanitized.h"
#include "skip.h"

static json_t *parsed(const char *text)
{
    json_t *value = NULL;
    if (ls_json_read_buffer("test", text, strlen(text), &value) != LS_OK)
        fail_msg("%s", ls_last_error());
    return value;
}

static void bad_text_names_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *place;
    } cases[] = {
        { "{\"a\": 1,\n \"b\": }", "model.json:2:7: " },
        { "", "model.json:1:0: " },
        { "{\"a\": 1} x", "model.json:1:10: " },
        { "{\"a\": 1, \"a\": 2}", "model.json:1:12: duplicate" },
        { "[1, 2", "model.json:1:5: " },
        { "[123456789012345678901234567890]", "model.json:1:31: too big integer" },
        { "[1e999]", "model.json:1:6: real number overflow" },
        { "{\"1e-999\": \"a \\\" 1e-999\",\n \"b\": [0.0, 0e-999, -1e-400]}",
          "model.json:2:21: the number -1e-400 is out of range; a double can hold 4.9e-324 to 1.8e+308" },
        { "\"\xff\"", "model.json:1:1: unable to decode byte" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *value = NULL;
        assert_int_equal(ls_json_read_buffer("model.json", cases[i].text, strlen(cases[i].text), &value), LS_ERR_DATA);
        assert_null(value);
        if (strncmp(ls_last_error(), cases[i].place, strlen(cases[i].place)) != 0)
            fail_msg("'%s' does not start with '%s'", ls_last_error(), cases[i].place);
    }
}

static void a_file_is_read_and_its_errors_name_it(void **state)
{
    (void)state;
    char path[] = "/tmp/lockstep-json-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ls_file_write(path, "{\n\"a\": 1,\n}", 11), LS_OK);
    json_t *value = NULL;
    assert_int_equal(ls_json_read_file(path, &value), LS_ERR_DATA);
    assert_memory_equal(ls_last_error(), path, strlen(path));
    assert_non_null(strstr(ls_last_error(), ":3:1: "));
    assert_int_equal(ls_file_write(path, "{\"a\": 1}", 8), LS_OK);
    assert_int_equal(ls_json_read_file(path, &value), LS_OK);
    json_decref(value);
    unlink(path);
    assert_int_equal(ls_json_read_file(path, &value), LS_ERR_NOT_FOUND);
}

static void values_of_the_right_type(void **state)
{
    (void)state;
    json_t *root =
        parsed("{\"i\": -7, \"r\": 0.5, \"t\": true, \"s\": \"adam\", \"a\": [1, [2, {\"k\": 3}]], \"n\": null}");
    ls_json_at config = ls_json_root(root, "config"), array, inner, object;
    int64_t i = 0;
    double r = 0;
    bool t = false;
    const char *s = NULL;
    assert_int_equal(ls_json_get_i64(&config, "i", &i), LS_OK);
    assert_int_equal(i, -7);
    assert_int_equal(ls_json_get_f64(&config, "r", &r), LS_OK);
    assert_true(r == 0.5);
    assert_int_equal(ls_json_get_f64(&config, "i", &r), LS_OK); /* an integer is a number */
    assert_true(r == -7);
    assert_int_equal(ls_json_get_bool(&config, "t", &t), LS_OK);
    assert_true(t);
    assert_int_equal(ls_json_get_string(&config, "s", &s), LS_OK);
    assert_string_equal(s, "adam");
    assert_int_equal(ls_json_get_array(&config, "a", &array), LS_OK);
    assert_int_equal(ls_json_count(&array), 2);
    assert_int_equal(ls_json_element(&array, 1, &inner), LS_OK);
    assert_int_equal(ls_json_element(&inner, 1, &object), LS_OK);
    assert_int_equal(ls_json_get_i64(&object, "k", &i), LS_OK);
    assert_int_equal(i, 3);
    assert_int_equal(ls_json_count(&config), 0);
    json_decref(root);
}

static void optional_members_keep_the_default(void **state)
{
    (void)state;
    json_t *root = parsed("{\"i\": 5, \"n\": null, \"s\": \"x\"}");
    ls_json_at config = ls_json_root(root, "config"), found;
    int64_t i = 1;
    double r = 0.25;
    bool b = true;
    const char *s = "default";
    assert_int_equal(ls_json_opt_i64(&config, "none", &i), LS_OK);
    assert_int_equal(ls_json_opt_i64(&config, "n", &i), LS_OK);
    assert_int_equal(i, 1);
    assert_int_equal(ls_json_opt_i64(&config, "i", &i), LS_OK);
    assert_int_equal(i, 5);
    assert_int_equal(ls_json_opt_f64(&config, "none", &r), LS_OK);
    assert_true(r == 0.25);
    assert_int_equal(ls_json_opt_bool(&config, "none", &b), LS_OK);
    assert_true(b);
    assert_int_equal(ls_json_opt_string(&config, "n", &s), LS_OK);
    assert_string_equal(s, "default");
    assert_int_equal(ls_json_opt_string(&config, "i", &s), LS_ERR_DATA); /* there, but wrong */
    assert_true(ls_json_find(&config, "n", &found));
    assert_false(ls_json_find(&config, "none", &found));
    json_decref(root);
}

static void wrong_types_name_path_and_value(void **state)
{
    (void)state;
    json_t *root =
        parsed("{\"layers\": [{}, {}, {}, {\"units\": \"x\", \"odd key\": 1.5, \"rate\": true, \"use\": null,"
               " \"name\": [1, 2], \"list\": {\"a\": 1}, \"long\": \"" /* 70 characters */
               "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg\"}]}");
    ls_json_at config = ls_json_root(root, "config"), layers, layer, at;
    int64_t i = 42;
    double r;
    bool b;
    const char *s;
    assert_int_equal(ls_json_get_array(&config, "layers", &layers), LS_OK);
    assert_int_equal(ls_json_element(&layers, 3, &layer), LS_OK);
#define ASSERT_FAILS(call, message)                                                                                    \
    do {                                                                                                               \
        assert_int_equal(call, LS_ERR_DATA);                                                                           \
        assert_string_equal(ls_last_error(), message);                                                                 \
    } while (0)
    ASSERT_FAILS(ls_json_get_i64(&layer, "units", &i),
                 "config.layers[3].units: expected an integer, found the string \"x\"");
    assert_int_equal(i, 42); /* outputs only on success */
    ASSERT_FAILS(ls_json_get_i64(&layer, "odd key", &i),
                 "config.layers[3][\"odd key\"]: expected an integer, found the number 1.5");
    ASSERT_FAILS(ls_json_get_f64(&layer, "rate", &r), "config.layers[3].rate: expected a number, found true");
    ASSERT_FAILS(ls_json_get_bool(&layer, "use", &b), "config.layers[3].use: expected true or false, found null");
    ASSERT_FAILS(ls_json_get_string(&layer, "name", &s),
                 "config.layers[3].name: expected a string, found an array of 2");
    ASSERT_FAILS(ls_json_get_array(&layer, "list", &at),
                 "config.layers[3].list: expected an array, found an object of 1 keys");
    ASSERT_FAILS(ls_json_get_i64(&layer, "long", &i),
                 "config.layers[3].long: expected an integer, found the string "
                 "\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff\"...");
    ASSERT_FAILS(ls_json_get_i64(&layer, "filters", &i), "config.layers[3].filters: missing");
    ASSERT_FAILS(ls_json_get_object(&config, "layers", &at), "config.layers: expected an object, found an array of 4");
    ASSERT_FAILS(ls_json_get_i64(&layers, "x", &i), "config.layers: expected an object, found an array of 4");
    ASSERT_FAILS(ls_json_element(&layers, 4, &at), "config.layers: there is no element 4: the array has 4 elements");
    ASSERT_FAILS(ls_json_element(&config, 0, &at), "config: expected an array, found an object of 1 keys");
    assert_int_equal(ls_json_fail(&layer, LS_ERR_SHAPE, "kernel %dx%d", 3, 3), LS_ERR_SHAPE);
    assert_string_equal(ls_last_error(), "config.layers[3]: kernel 3x3");
    json_decref(root);
}

static void unknown_keys_name_the_nearest(void **state)
{
    (void)state;
    static const char *const known[] = { "units", "activation", "use_bias" };
    json_t *root = parsed("{\"units\": 3, \"use_bais\": true}");
    ls_json_at layer = ls_json_root(root, "dense");
    assert_int_equal(ls_json_known_keys(&layer, known, 3), LS_ERR_DATA);
    assert_string_equal(ls_last_error(), "dense.use_bais: unknown key; did you mean use_bias?");
    assert_int_equal(ls_json_known_keys(&layer, NULL, 0), LS_ERR_DATA);
    assert_int_equal(json_object_del(root, "use_bais"), 0);
    assert_int_equal(ls_json_known_keys(&layer, known, 3), LS_OK);
    json_decref(root);
    root = parsed("[]");
    layer = ls_json_root(root, "dense");
    assert_int_equal(ls_json_known_keys(&layer, known, 3), LS_ERR_DATA);
    json_decref(root);
}

/* A process that may have `more` bytes than it has. */
static int read_within(size_t more, const char *text, size_t bytes)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        return 2;
    fclose(file);
    rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){ most, most }) != 0)
        return 2;
    json_t *value = NULL;
    ls_status status = ls_json_read_buffer("model.json", text, bytes, &value);
    return status == LS_OK ? 0 : status == LS_ERR_MEMORY && strstr(ls_last_error(), "model.json") ? 1 : 3;
}

/* A long word, in every room from too small to large enough: read, or no memory; never a crash. */
static void no_room_for_a_long_word_is_reported(void **state)
{
    (void)state;
    if (SANITIZED)
        SKIP("sanitizers map more than there is");
    enum { MIB = 1 << 20, BYTES = 8 * MIB };
    char *text = malloc(BYTES);
    assert_non_null(text);
    memset(text, 'x', BYTES);
    text[0] = text[BYTES - 1] = '"';
    int seen[2] = { 0 };
    for (size_t more = 0; more <= 8 * BYTES; more += 2 * MIB) {
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(read_within(more, text, BYTES));
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
            fail_msg("with %zu bytes the child ended with status %#x", more, (unsigned)status);
        seen[WEXITSTATUS(status)]++;
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_text_names_its_place),
        cmocka_unit_test(a_file_is_read_and_its_errors_name_it),
        cmocka_unit_test(values_of_the_right_type),
        cmocka_unit_test(optional_members_keep_the_default),
        cmocka_unit_test(wrong_types_name_path_and_value),
        cmocka_unit_test(unknown_keys_name_the_nearest),
        cmocka_unit_test(no_room_for_a_long_word_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
