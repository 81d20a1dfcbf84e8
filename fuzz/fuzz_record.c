/* Records of asynchronous training, as they are and with checksums that fit. What is read holds
 * together: a server could go on with it, and then reads what it wrote. */
#include "base/crc32c.h"
#include "fuzz.h"
#include "train/server/record.h"

#define KEY ",\"crc\":\""

static void check(const ls_record *r, size_t size)
{
    FUZZ_CHECK(r->head.server >= 0 && r->head.server < r->head.servers && r->head.servers <= LS_MAX_SERVERS,
               "server %d of %d", r->head.server, r->head.servers);
    FUZZ_CHECK(r->bytes > 0 && r->torn >= 0 && (size_t)(r->bytes + r->torn) == size, "%lld and %lld bytes of %zu",
               (long long)r->bytes, (long long)r->torn, size);
    int64_t version = r->head.version;
    for (size_t i = 0; i < r->count; i++) {
        const ls_record_push *p = &r->pushes[i];
        FUZZ_CHECK(p->version == version + 1, "version %lld after %lld", (long long)p->version, (long long)version);
        FUZZ_CHECK(p->read[r->head.server] >= r->head.version && p->read[r->head.server] <= version, "read too new");
        FUZZ_CHECK(p->batch >= 0 && p->epoch >= 0 && p->run >= 0 && p->worker >= 0, "a number below 0");
        version += p->sha256[0] != '\0';
    }
    FUZZ_CHECK(version == r->version, "version %lld, not %lld", (long long)r->version, (long long)version);
}

static void go_on(const char *path, const ls_record *r)
{
    ls_record_writer writer = LS_RECORD_CLOSED;
    ls_record again;
    FUZZ_CHECK(fuzz_status(ls_record_continue(&writer, path, &r->head, -1)), "%s", ls_last_error());
    FUZZ_CHECK(writer.version == r->version, "continues after %lld", (long long)writer.version);
    int64_t read[LS_MAX_SERVERS] = { 0 };
    read[r->head.server] = r->version;
    ls_record_push push = { .version = r->version + 1, .read = read, .rate = 1 };
    memset(push.sha256, 'a', 64);
    FUZZ_CHECK(fuzz_status(ls_record_add(&writer, &push)), "%s", ls_last_error());
    FUZZ_CHECK(fuzz_status(ls_record_close(&writer)), "%s", ls_last_error());
    FUZZ_CHECK(fuzz_status(ls_record_read(path, &again)), "%s", ls_last_error());
    FUZZ_CHECK(again.torn == 0 && again.version == writer.version, "version %lld again", (long long)again.version);
    ls_record_free(&again);
}

static void read_one(const uint8_t *data, size_t size)
{
    ls_record record;
    const char *path = fuzz_file(data, size);
    if (!fuzz_status(ls_record_read(path, &record)))
        return;
    check(&record, size);
    go_on(path, &record);
    ls_record_free(&record);
}

/* Every line that has a checksum gets the right one. */
static void set_checksums(char *text, size_t size)
{
    for (size_t at = 0, end; at < size; at = end + 1) {
        const char *newline = memchr(text + at, '\n', size - at);
        end = newline ? (size_t)(newline - text) : size;
        const size_t tail = strlen(KEY) + 10;
        if (end - at < tail || memcmp(text + end - tail, KEY, strlen(KEY)) != 0)
            continue;
        char digits[9];
        snprintf(digits, sizeof digits, "%08x", (unsigned)ls_crc32c(text + at, end - at - tail));
        memcpy(text + end - 10, digits, 8);
        memcpy(text + end - 2, "\"}", 2);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_one(data, size);
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    set_checksums(text, size);
    read_one((const uint8_t *)text, size);
    free(text);
    return 0;
}
