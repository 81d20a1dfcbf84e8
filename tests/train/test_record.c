/* Records of asynchronous training: what is written is read back; torn ends, damage and wrong
 * numbers are reported with file and position; a server that returns continues after its last whole
 * record. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/text.h"
#include "train/server/record.h"

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID   "00112233445566778899aabbccddeeff"

static char path[256];

static int make_path(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/lockstep-record-XXXXXX", base ? base : "/tmp");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static ls_record_head make_head(void)
{
    ls_record_head head = { .id = ID, .server = 1, .servers = 2, .staleness = 4, .accumulate = 1, .sha256 = HASH };
    head.job = json_pack("{s:s,s:{s:i,s:I}}", "model", "mnist-cnn", "fit", "batch_size", 32, "seed", (json_int_t)7);
    assert_non_null(head.job);
    return head;
}

static ls_record_push make_push(int64_t version, const int64_t *read)
{
    return (ls_record_push){ .version = version,
                             .worker = (int)(version % 3),
                             .epoch = version / 10,
                             .batch = version % 10,
                             .run = version,
                             .read = read,
                             .rate = 0.001,
                             .sha256 = HASH };
}

static void add(ls_record_writer *writer, int64_t version)
{
    const int64_t read[] = { 2 * version, version - 1 };
    const ls_record_push push = make_push(version, read);
    assert_int_equal(ls_record_add(writer, &push), LS_OK);
}

/* A file with versions 1 to `count`. */
static void write_file(int64_t count)
{
    ls_record_head head = make_head();
    ls_record_writer writer = LS_RECORD_CLOSED;
    assert_int_equal(ls_record_create(&writer, path, &head), LS_OK);
    for (int64_t v = 1; v <= count; v++)
        add(&writer, v);
    assert_int_equal(ls_record_close(&writer), LS_OK);
    json_decref(head.job);
}

static size_t file_bytes(void)
{
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    return (size_t)about.st_size;
}

static void assert_message(ls_status status, ls_status expected, const char *part)
{
    if (status != expected || !strstr(ls_last_error(), part))
        fail_msg("status %d, '%s'; expected %d and '%s'", status, ls_last_error(), expected, part);
}

static void assert_versions(int64_t version, bool torn)
{
    ls_record record;
    if (ls_record_read(path, &record) != LS_OK)
        fail_msg("%s", ls_last_error());
    assert_int_equal(record.version, version);
    assert_int_equal(record.torn > 0, torn);
    assert_int_equal((size_t)(record.bytes + record.torn), file_bytes());
    ls_record_free(&record);
}

static void test_read_back(void **state)
{
    (void)state;
    ls_record record;
    write_file(25);
    assert_int_equal(ls_record_read(path, &record), LS_OK);
    assert_string_equal(record.head.id, ID);
    assert_int_equal(record.head.server, 1);
    assert_int_equal(record.head.servers, 2);
    assert_int_equal(record.head.staleness, 4);
    assert_string_equal(json_string_value(json_object_get(record.head.job, "model")), "mnist-cnn");
    assert_null(record.head.own);
    assert_int_equal(record.count, 25);
    for (int64_t v = 1; v <= 25; v++) {
        const ls_record_push *p = &record.pushes[v - 1];
        assert_true(p->version == v && p->worker == v % 3 && p->epoch == v / 10 && p->batch == v % 10 && p->run == v);
        assert_true(p->read[0] == 2 * v && p->read[1] == v - 1 && p->rate == 0.001);
        assert_string_equal(p->sha256, HASH);
    }
    ls_record_free(&record);
}

static void test_paths(void **state)
{
    (void)state;
    char out[PATH_MAX], *name = malloc(PATH_MAX + 1);
    assert_non_null(name);
    assert_int_equal(ls_record_path("run.rec", 0, out), LS_OK);
    assert_string_equal(out, "run.rec");
    assert_int_equal(ls_record_path("run.rec", 3, out), LS_OK);
    assert_string_equal(out, "run.rec.3");
    memset(name, 'x', PATH_MAX);
    name[PATH_MAX] = '\0';
    assert_message(ls_record_path(name, 0, out), LS_ERR_IO, "too long");
    free(name);
}

/* The file cut at every byte: whole records stay, and a server continues after them. */
static void test_torn(void **state)
{
    (void)state;
    ls_record whole;
    write_file(3);
    size_t bytes = file_bytes();
    char *text = NULL;
    assert_int_equal(ls_file_read(path, 1 << 20, &text, &bytes), LS_OK);
    assert_int_equal(ls_record_read(path, &whole), LS_OK);
    for (size_t cut = 0; cut <= bytes; cut++) {
        assert_int_equal(ls_file_write(path, text, cut), LS_OK);
        if (cut < (size_t)whole.offsets[0]) { /* within the head */
            ls_record record;
            assert_message(ls_record_read(path, &record), LS_ERR_DATA, "first line");
            continue;
        }
        int64_t version = 0;
        while (version < 3 && cut >= (size_t)(version < 2 ? whole.offsets[version + 1] : whole.bytes))
            version++;
        assert_versions(version, cut != (size_t)(version < 3 ? whole.offsets[version] : whole.bytes));
        ls_record_head head = make_head();
        ls_record_writer writer = LS_RECORD_CLOSED;
        assert_int_equal(ls_record_continue(&writer, path, &head, -1), LS_OK);
        assert_int_equal(writer.version, version);
        while (version < 3)
            add(&writer, ++version);
        assert_int_equal(ls_record_close(&writer), LS_OK);
        json_decref(head.job);
        char *again = NULL;
        size_t again_bytes;
        assert_int_equal(ls_file_read(path, 1 << 20, &again, &again_bytes), LS_OK);
        assert_int_equal(again_bytes, bytes);
        assert_memory_equal(again, text, bytes);
        free(again);
    }
    ls_record_free(&whole);
    free(text);
}

/* Any byte of a record that is not the last, changed: told with its place. One of the last: as if
 * it was cut short. */
static void test_damage(void **state)
{
    (void)state;
    ls_record whole, record;
    char *text = NULL, place[64];
    size_t bytes;
    write_file(3);
    assert_int_equal(ls_file_read(path, 1 << 20, &text, &bytes), LS_OK);
    assert_int_equal(ls_record_read(path, &whole), LS_OK);
    for (int64_t at = whole.offsets[1]; at < whole.offsets[2] - 1; at++) {
        text[at] ^= 1;
        assert_int_equal(ls_file_write(path, text, bytes), LS_OK);
        snprintf(place, sizeof place, "line 3, at byte %lld", (long long)whole.offsets[1]);
        assert_message(ls_record_read(path, &record), LS_ERR_DATA, place);
        text[at] ^= 1;
    }
    for (size_t at = (size_t)whole.offsets[2]; at < bytes - 1; at++) {
        text[at] ^= 1;
        assert_int_equal(ls_file_write(path, text, bytes), LS_OK);
        assert_versions(2, true);
        text[at] ^= 1;
    }
    ls_record_free(&whole);
    free(text);
}

/* The second line of a file, with a checksum that fits. */
static void write_line(const char *json)
{
    ls_text text = { 0 };
    char *old = NULL;
    size_t bytes;
    write_file(0);
    assert_int_equal(ls_file_read(path, 1 << 20, &old, &bytes), LS_OK);
    ls_text_put(&text, old);
    ls_text_add(&text, "%s,\"crc\":\"%08x\"}\n", json, (unsigned)ls_crc32c(json, strlen(json)));
    assert_int_equal(ls_file_write(path, ls_text_get(&text), text.length), LS_OK);
    ls_text_free(&text);
    free(old);
}

#define LINE(version, worker, batch, read, rest)                                                                       \
    "{\"version\":" version ",\"worker\":" worker ",\"epoch\":0,\"batch\":" batch ",\"run\":0,\"read\":" read          \
    ",\"rate\":0.1" rest

static void test_wrong_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } rows[] = {
        { LINE("2", "0", "0", "[0,0]", ",\"sha256\":\"" HASH "\""), ".version: 2 is not between 1 and 1" },
        { LINE("1", "256", "0", "[0,0]", ",\"sha256\":\"" HASH "\""), ".worker: 256 is not between 0 and 255" },
        { LINE("1", "0", "-1", "[0,0]", ",\"sha256\":\"" HASH "\""), ".batch: -1 is not" },
        { LINE("1", "0", "1e3", "[0,0]", ",\"sha256\":\"" HASH "\""), ".batch: expected an integer" },
        { LINE("1", "0", "0", "[0]", ",\"sha256\":\"" HASH "\""), "1 versions, but there are 2 servers" },
        { LINE("1", "0", "0", "[0,1]", ",\"sha256\":\"" HASH "\""), "read version 1 of server 1 to make version 1" },
        { LINE("1", "0", "0", "[-1,0]", ",\"sha256\":\"" HASH "\""), "version -1 of server 0" },
        { LINE("1", "0", "0", "[0,0]", ",\"sha256\":\"12\""), "expected 64 hex digits" },
        { LINE("1", "0", "0", "[0,0]", ""), "gradient 1 of a version" },
        { "{\"version\":1", ".worker: missing" },
        { "[1", "line 2" },
    };
    ls_record record;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_line(rows[i].line);
        assert_message(ls_record_read(path, &record), LS_ERR_DATA, rows[i].message);
        assert_non_null(strstr(ls_last_error(), path));
    }
    write_line(LINE("1", "0", "0", "[0,0]", ",\"sha256\":\"" HASH "\""));
    assert_versions(1, false);
}

/* Gradients that are added up make a version with the last of them; a server that continues begins
 * after a whole one. / */
static void test_accumulated(void **state)
{
    (void)state;
    const int64_t read[] = { 0, 0 };
    ls_record_head head = make_head();
    ls_record_writer writer = LS_RECORD_CLOSED;
    ls_record record;
    head.accumulate = 3;
    assert_int_equal(ls_record_create(&writer, path, &head), LS_OK);
    for (int i = 0; i < 8; i++) { /* 3, 2 (the end of an epoch), and 3 that are not finished */
        ls_record_push push = make_push(i < 3 ? 1 : i < 5 ? 2 : 3, read);
        push.batch = i;
        if (i != 2 && i != 4)
            push.sha256[0] = '\0';
        if (i < 7)
            assert_int_equal(ls_record_add(&writer, &push), LS_OK);
    }
    assert_int_equal(writer.version, 2);
    assert_int_equal(ls_record_close(&writer), LS_OK);
    assert_versions(2, false);
    assert_int_equal(ls_record_read(path, &record), LS_OK);
    assert_int_equal(record.count, 7);
    ls_record_free(&record);
    assert_int_equal(ls_record_continue(&writer, path, &head, -1), LS_OK);
    assert_int_equal(ls_record_close(&writer), LS_OK);
    assert_int_equal(ls_record_read(path, &record), LS_OK);
    assert_int_equal(record.count, 5);
    ls_record_free(&record);
    json_decref(head.job);
}

static void test_go_on(void **state)
{
    (void)state;
    ls_record_head head = make_head();
    ls_record_writer writer = LS_RECORD_CLOSED;
    write_file(5);
    size_t bytes = file_bytes();
    head.staleness = 9;
    json_object_set_new(json_object_get(head.job, "fit"), "batch_size", json_integer(64));
    assert_message(ls_record_continue(&writer, path, &head, -1), LS_ERR_STATE, "staleness is 4 in the first and 9");
    assert_non_null(strstr(ls_last_error(), "fit/batch_size is 32 in the first and 64"));
    json_decref(head.job);
    head = make_head();
    head.id[0] = 'f';
    assert_message(ls_record_continue(&writer, path, &head, -1), LS_ERR_STATE, "two runs of one job");
    head.id[0] = ID[0];
    head.server = 0;
    assert_message(ls_record_continue(&writer, path, &head, -1), LS_ERR_STATE, "belongs to server 1, not to server 0");
    head.server = 1;
    assert_message(ls_record_continue(&writer, path, &head, 6), LS_ERR_STATE, "has versions 0 to 5");
    assert_int_equal(file_bytes(), bytes); /* nothing was changed */
    head.id[0] = '\0';
    assert_int_equal(ls_record_continue(&writer, path, &head, 3), LS_OK);
    assert_int_equal(writer.version, 3);
    add(&writer, 4);
    assert_int_equal(ls_record_close(&writer), LS_OK);
    assert_versions(4, false);
    json_decref(head.job);
}

/* A disk that is full: the file ends with a whole record, and no later one is reported as
 * written. */
static void test_no_room(void **state)
{
    (void)state;
    ls_record_head head = make_head();
    ls_record_writer writer = LS_RECORD_CLOSED;
    struct rlimit old, limit;
    const int64_t read[] = { 0, 0 };
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(ls_record_create(&writer, path, &head), LS_OK);
    add(&writer, 1);
    limit = (struct rlimit){ .rlim_cur = (rlim_t)file_bytes() + 20, .rlim_max = old.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ls_record_push push = make_push(2, read);
    assert_message(ls_record_add(&writer, &push), LS_ERR_IO, "after version 1");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_message(ls_record_add(&writer, &push), LS_ERR_IO, "an earlier write failed");
    ls_record_close(&writer);
    assert_versions(1, false);
    json_decref(head.job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read_back, make_path, remove_path),
        cmocka_unit_test(test_paths),
        cmocka_unit_test_setup_teardown(test_torn, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_damage, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_wrong_numbers, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_accumulated, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_go_on, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_no_room, make_path, remove_path),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
