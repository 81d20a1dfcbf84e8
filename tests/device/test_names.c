/* Names of devices: every form that is taken, and the errors for all others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "check.h"
#include "device/names.h"

/* One CPU and two GPUs: what most rows are read with. */
static const ls_kind_count few[] = { { .kind = "CPU", .count = 1 }, { .kind = "GPU", .count = 2 } };
static const ls_kind_count many[] = { { .kind = "CPU", .count = 4 },
                                      { .kind = "GPU", .count = 2 },
                                      { .kind = "XPU_2", .count = 1 } };
static const ls_kind_count no_gpu[] = { { .kind = "CPU", .count = 1 } };
static const ls_kind_count empty_gpu[] = { { .kind = "CPU", .count = 1 }, { .kind = "GPU", .count = 0 } };
static const ls_kind_count nothing[] = { { .kind = "CPU", .count = 0 } };
static const ls_kind_count as_named[] = { { .kind = "CPU", .count = 1024, .made_as_named = true } };
static const ls_kind_count endless[] = { { .kind = "CPU", .count = INT_MAX } };

#define KINDS(table) table, (int)LENGTH(table), LS_NO_WORKER

static char *describe(const ls_kind_count *kinds, const ls_named_device *devices, int count)
{
    static char text[1024];
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        const ls_named_device *d = &devices[i];
        const char *open = d->cores[0] ? "[" : "", *close = d->cores[0] ? "]" : "";
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s:%d%s%s%s", i ? " " : "",
                                   kinds[d->kind].kind, d->number, open, d->cores, close);
    }
    return text;
}

/* ---- Good names ---- */

static const struct {
    const char *text, *devices;
} good[] = {
    { "/job:localhost/replica:0/task:0/device:GPU:1", "GPU:1" },
    { "/job:localhost/replica:0/task:0/device:CPU:0", "CPU:0" },
    { "/job:localhost/replica:0/task:0/gpu:1", "GPU:1" },
    { "/task:0/job:localhost/device:GPU:1", "GPU:1" },
    { "/device:GPU:1/job:localhost", "GPU:1" },
    { "/device:CPU:0", "CPU:0" },
    { "/device:cpu:3", "CPU:3" },
    { "/job:localhost/device:gpu:0", "GPU:0" },
    { "/task:0/gpu:1", "GPU:1" },
    { "/replica:00/gpu:1", "GPU:1" },
    { "/device:GPU", "GPU:0" },
    { "device:GPU:1", "GPU:1" },
    { "job:localhost/gpu:1", "GPU:1" },
    { "/physical_device:GPU:1", "GPU:1" },
    { "/GPU:0", "GPU:0" },
    { "/gpu:1", "GPU:1" },
    { "gpu:0", "GPU:0" },
    { "GPU:0", "GPU:0" },
    { "gPu:0", "GPU:0" },
    { "CPU:0", "CPU:0" },
    { "gpu", "GPU:0" },
    { "/cpu", "CPU:0" },
    { "cuda:1", "GPU:1" },
    { "CUDA", "GPU:0" },
    { "/device:cuda:1", "GPU:1" },
    { "xpu_2:0", "XPU_2:0" },
    { "gpu:001", "GPU:1" },
    { "cpu:0-3", "CPU:0 CPU:1 CPU:2 CPU:3" },
    { "/cpu:0-3", "CPU:0 CPU:1 CPU:2 CPU:3" },
    { "/job:localhost/device:CPU:1-2", "CPU:1 CPU:2" },
    { "cpu:2-2", "CPU:2" },
    { "gpu:1,cpu:0", "GPU:1 CPU:0" },
    { "gpu:1 ,\tcpu:0", "GPU:1 CPU:0" },
    { " gpu:1 ", "GPU:1" },
    { "cpu:0-1,gpu,cpu:3,cuda:1", "CPU:0 CPU:1 GPU:0 CPU:3 GPU:1" },
    { "cpu:0[2-3]", "CPU:0[2-3]" },
    { "cpu:0[0,2]", "CPU:0[0,2]" },
    { "cpu[0]", "CPU:0[0]" },
    { "/device:CPU:1[0,2-4,8191], gpu:0,cpu:2[5]", "CPU:1[0,2-4,8191] GPU:0 CPU:2[5]" },
    { "cpu:0[0000000000000000000000000000000000000000000000000000000000-0001]",
      "CPU:0[0000000000000000000000000000000000000000000000000000000000-0001]" }, /* 63 characters */
};

static void good_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(good); i++) {
        ls_named_device *devices = NULL;
        int count = -1;
        ls_status status = ls_names_read(good[i].text, KINDS(many), &devices, &count);
        if (status != LS_OK)
            fail_msg("\"%s\" is refused: %s", good[i].text, ls_last_error());
        if (strcmp(describe(many, devices, count), good[i].devices) != 0)
            fail_msg("\"%s\" is read as %s", good[i].text, describe(many, devices, count));
        free(devices);
    }
}

/* ---- Bad names ---- */

static const struct {
    const char *text;
    ls_status status;
    const char *words[3]; /* text that the message must have */
} bad[] = {
    { NULL, LS_ERR_INVALID, { "NULL", "there are CPU:0, GPU:0 to GPU:1" } },
    { "", LS_ERR_INVALID, { "device \"\": the name is empty", "there are CPU:0, GPU:0 to GPU:1" } },
    { "  ", LS_ERR_INVALID, { "device \"\" in \"  \": the name is empty" } },
    { "cpu:0,,gpu:0", LS_ERR_INVALID, { "device \"\" in \"cpu:0,,gpu:0\": the name is empty" } },
    { ",gpu:0", LS_ERR_INVALID, { "the name is empty" } },
    { "gpu:0, ", LS_ERR_INVALID, { "the name is empty" } },
    { "gpu:7", LS_ERR_NOT_FOUND, { "device \"gpu:7\": there is no GPU:7; there are CPU:0, GPU:0 to GPU:1" } },
    { "cpu:0,gpu:7",
      LS_ERR_NOT_FOUND,
      { "device \"gpu:7\" in \"cpu:0,gpu:7\": there is no GPU:7; there are CPU:0, GPU:0 to GPU:1" } },
    { "gpu:0-7", LS_ERR_NOT_FOUND, { "device \"gpu:0-7\"", "there is no GPU:2;" } },
    { "gpu:2147483647", LS_ERR_NOT_FOUND, { "there is no GPU:2147483647;" } },
    { "gpu:4294967296", LS_ERR_NOT_FOUND, { "there is no GPU:4294967296;" } },
    { "gpu:18446744073709551616", LS_ERR_NOT_FOUND, { "there is no GPU:18446744073709551616;" } },
    { "cpu:0-99999999999999999999", LS_ERR_NOT_FOUND, { "there is no CPU:1;" } },
    { "cpu:0-2147483646", LS_ERR_NOT_FOUND, { "there is no CPU:1;" } },
    { "gpu:1-0", LS_ERR_INVALID, { "the range 1-0 is descending" } },
    { "gpu:", LS_ERR_INVALID, { "\"\" is not a number" } },
    { "gpu:-1", LS_ERR_INVALID, { "\"-1\" is not a number" } },
    { "gpu:+1", LS_ERR_INVALID, { "\"+1\" is not a number" } },
    { "gpu:1-", LS_ERR_INVALID, { "\"1-\" is not a number" } },
    { "gpu:0-1-2", LS_ERR_INVALID, { "\"0-1-2\" is not a number" } },
    { "gpu: 1", LS_ERR_INVALID, { "\" 1\" is not a number" } },
    { "gpu:0 -1", LS_ERR_INVALID, { "\"0 -1\" is not a number" } },
    { "gpu:0x1", LS_ERR_INVALID, { "\"0x1\" is not a number" } },
    { "gpu:*", LS_ERR_INVALID, { "\"*\" is not a number" } },
    { "gpu:0:1", LS_ERR_INVALID, { "\"0:1\" is not a number" } },
    { "gpu :0", LS_ERR_INVALID, { "\"gpu \" is not a kind of device" } },
    { "gpu:0 gpu:1", LS_ERR_INVALID, { "\"0 gpu:1\" is not a number" } },
    { "0", LS_ERR_INVALID, { "\"0\" is not a kind of device" } },
    { ":0", LS_ERR_INVALID, { "\"\" is not a kind of device" } },
    { "/device", LS_ERR_INVALID, { "\"\" is not a kind of device" } },
    { "tpu:0", LS_ERR_NOT_FOUND, { "there is no kind \"tpu\"; there are CPU:0, GPU:0 to GPU:1" } },
    { "gpuu:0", LS_ERR_NOT_FOUND, { "there is no kind \"gpuu\"; there are CPU:0, GPU:0 to GPU:1" } },
    { "cud:0", LS_ERR_NOT_FOUND, { "there is no kind \"cud\"" } },
    { "gp", LS_ERR_NOT_FOUND, { "there is no kind \"gp\"; there are CPU:0, GPU:0 to GPU:1" } },
    { "/", LS_ERR_INVALID, { "nothing comes after a slash" } },
    { "//gpu:0", LS_ERR_INVALID, { "nothing comes before a slash" } },
    { "/gpu:0/", LS_ERR_INVALID, { "nothing comes after a slash" } },
    { "/gpu:0/cpu:0", LS_ERR_INVALID, { "it names two devices" } },
    { "/job:localhost", LS_ERR_INVALID, { "it names no device" } },
    { "/job:localhost/job:localhost/gpu:0", LS_ERR_INVALID, { "job is given twice" } },
    { "/job:/gpu:0", LS_ERR_INVALID, { "job has no value" } },
    { "/task/gpu:0", LS_ERR_INVALID, { "task has no value" } },
    { "/Job:localhost/gpu:0", LS_ERR_INVALID, { "\"Job\" must be written \"job\"" } },
    { "/job:worker/gpu:0", LS_ERR_NOT_FOUND, { "there is no job worker in this process, only job localhost" } },
    { "/job:localhost/replica:1/gpu:0", LS_ERR_NOT_FOUND, { "there is no replica 1 in this process, only replica 0" } },
    { "/job:localhost/task:1/gpu:0", LS_ERR_NOT_FOUND, { "there is no task 1 in this process, only task 0" } },
    { "/task:99999999999/gpu:0", LS_ERR_NOT_FOUND, { "there is no task 99999999999 in this process" } },
    { "/task:x/gpu:0", LS_ERR_INVALID, { "task: \"x\" is not a number" } },
    { "gpu:0,gpu:0", LS_ERR_INVALID, { "device \"gpu:0\" in \"gpu:0,gpu:0\": GPU:0 is given twice" } },
    { "gpu:0-1,/device:GPU:1", LS_ERR_INVALID, { "\"/device:GPU:1\"", "GPU:1 is given twice" } },
    { "gpu:1,cuda:0-1", LS_ERR_INVALID, { "\"cuda:0-1\"", "GPU:1 is given twice" } },
    { "cpu:0[0],cpu:0[1]", LS_ERR_INVALID, { "device \"cpu:0[1]\"", "CPU:0 is given twice" } },
    { "gpu:0[1]", LS_ERR_INVALID, { "cores can be chosen only for a CPU, not for GPU" } },
    { "cpu:0[", LS_ERR_INVALID, { "a bracket is not closed" } },
    { "cpu:0[1,gpu:0", LS_ERR_INVALID, { "device \"cpu:0[1,gpu:0\"", "a bracket is not closed" } },
    { "cpu:0[1]2", LS_ERR_INVALID, { "\"2\" comes after the brackets" } },
    { "cpu:0]", LS_ERR_INVALID, { "\"0]\" is not a number" } },
    { "cpu:0[[1]]", LS_ERR_INVALID, { "comes after the brackets" } },
    { "cpu:0[]", LS_ERR_INVALID, { "the brackets are empty" } },
    { "cpu:0[1,]", LS_ERR_INVALID, { "\"\" is not a number" } },
    { "cpu:0[0, 1]", LS_ERR_INVALID, { "\" 1\" is not a number" } },
    { "cpu:0[3-1]", LS_ERR_INVALID, { "the range 3-1 is descending" } },
    { "cpu:0[2,1]", LS_ERR_INVALID, { "core 1 comes after core 2" } },
    { "cpu:0[0-2,2]", LS_ERR_INVALID, { "core 2 comes after core 2" } },
    { "cpu:0[0-8192]", LS_ERR_INVALID, { "core numbers go up to 8191" } },
    { "cpu:0[0-99999999999]", LS_ERR_INVALID, { "core numbers go up to 8191" } },
    { "cpu:0[00000000000000000000000000000000000000000000000000000000000-0001]",
      LS_ERR_INVALID,
      { "more than 63 characters in the brackets" } },
    { "gpu:0\n", LS_ERR_INVALID, { "device \"gpu:0\\n\"", "is not a number" } },
};

static void check_message(const char *text, ls_status got, ls_status wanted, const char *const *words, size_t count)
{
    if (got != wanted)
        fail_msg("\"%s\" gives %s, not %s: %s", text ? text : "NULL", ls_status_name(got), ls_status_name(wanted),
                 ls_last_error());
    for (size_t i = 0; i < count && words[i]; i++)
        if (!strstr(ls_last_error(), words[i]))
            fail_msg("\"%s\": the message has no '%s': %s", text ? text : "NULL", words[i], ls_last_error());
}

static void bad_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(bad); i++) {
        ls_named_device *devices = NULL, one = { .number = 77 };
        int count = -1;
        ls_status status = ls_names_read(bad[i].text, KINDS(few), &devices, &count);
        check_message(bad[i].text, status, bad[i].status, bad[i].words, LENGTH(bad[i].words));
        assert_non_null(strstr(ls_last_error(), "there are CPU:0, GPU:0 to GPU:1"));
        assert_null(devices); /* outputs are as they were */
        assert_int_equal(count, -1);
        status = ls_names_read_one(bad[i].text, KINDS(few), &one);
        assert_int_equal(status, bad[i].status);
        assert_int_equal(one.number, 77);
    }
}

/* "gpu" counts the devices of CUDA, and after them the GPUs of other kinds. */
static void gpus_of_several_kinds(void **state)
{
    (void)state;
    static const ls_kind_count both[] = { { .kind = "CPU", .count = 1 },
                                          { .kind = "OPENCL", .count = 4, .gpus = 0xa },
                                          { .kind = "CUDA", .count = 2 } };
    static const ls_kind_count opencl[] = { { .kind = "CPU", .count = 1 },
                                            { .kind = "OPENCL", .count = 3, .gpus = 0x5 },
                                            { .kind = "CUDA", .count = 0 } };
    static const ls_kind_count none[] = { { .kind = "CPU", .count = 1 }, { .kind = "OPENCL", .count = 3 } };
    static const ls_kind_count own[] = { { .kind = "CPU", .count = 1 },
                                         { .kind = "OPENCL", .count = 3, .gpus = 0x7 },
                                         { .kind = "CUDA", .count = 2 },
                                         { .kind = "GPU", .count = 1 } };
    static const struct {
        const char *text;
        const ls_kind_count *kinds;
        int kind_count, worker;
        const char *devices; /* NULL: */
        const char *message;
    } rows[] = {
        { "gpu", KINDS(both), "CUDA:0", NULL },
        { "gpu:0-3", KINDS(both), "CUDA:0 CUDA:1 OPENCL:1 OPENCL:3", NULL },
        { "/device:GPU:3, cuda:1,opencl:0", KINDS(both), "OPENCL:3 CUDA:1 OPENCL:0", NULL },
        { "gpu:1", KINDS(opencl), "OPENCL:2", NULL },
        { "gpu", KINDS(own), "GPU:0", NULL },
        { "gpu:4", KINDS(both), NULL, "there is no GPU:4; there are CPU:0, OPENCL:0 to OPENCL:3, CUDA:0 to CUDA:1" },
        { "gpu:1-2", KINDS(opencl), NULL, "there is no GPU:2;" },
        { "gpu:2,opencl:1", KINDS(both), NULL, "OPENCL:1 is given twice" },
        { "gpu:2[0]", KINDS(both), NULL, "not for GPU" },
        { "gpu:0", KINDS(none), NULL, "there is no GPU (lockstep devices" },
        { "cuda:0", KINDS(opencl), NULL, "there is no GPU (lockstep devices" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_named_device *devices = NULL;
        int count = 0;
        ls_status status =
            ls_names_read(rows[i].text, rows[i].kinds, rows[i].kind_count, rows[i].worker, &devices, &count);
        if ((status == LS_OK) != (rows[i].devices != NULL))
            fail_msg("%s: %s", rows[i].text, ls_last_error());
        if (rows[i].devices)
            assert_string_equal(describe(rows[i].kinds, devices, count), rows[i].devices);
        else if (!strstr(ls_last_error(), rows[i].message))
            fail_msg("%s: %s", rows[i].text, ls_last_error());
        free(devices);
    }
}

#define WHY " (lockstep devices, or ls_format_drivers, says why)"

static void what_there_is(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const ls_kind_count *kinds;
        int kind_count, worker;
        const char *message;
    } rows[] = {
        { "gpu:0", KINDS(no_gpu), "device \"gpu:0\": there is no GPU" WHY "; there is CPU:0" },
        { "cuda", KINDS(no_gpu), "device \"cuda\": there is no GPU" WHY "; there is CPU:0" },
        { "gpu:0", KINDS(empty_gpu), "device \"gpu:0\": there is no GPU" WHY "; there is CPU:0" },
        { "cpu:0", KINDS(nothing), "device \"cpu:0\": there is no CPU" WHY "; there are no devices" },
        { "npu:0", NULL, 0, LS_NO_WORKER, "device \"npu:0\": there is no kind \"npu\"; there are no devices" },
        { "gpu:0", KINDS(as_named),
          "device \"gpu:0\": there is no GPU" WHY "; there is CPU:0 (and up to CPU:1023, which share its cores)" },
        { "gpu:9", KINDS(many),
          "device \"gpu:9\": there is no GPU:9; there are CPU:0 to CPU:3, GPU:0 to GPU:1, XPU_2:0" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_named_device one;
        assert_int_equal(ls_names_read_one(rows[i].text, rows[i].kinds, rows[i].kind_count, rows[i].worker, &one),
                         LS_ERR_NOT_FOUND);
        assert_string_equal(ls_last_error(), rows[i].message);
    }
}

static void cores_are_those_of_one_cpu(void **state)
{
    (void)state;
    ls_named_device *devices;
    int count;
    const char *const words[] = { "device \"cpu:0-1[2]\": cores can be chosen for one CPU, not for a range" };
    check_message("cpu:0-1[2]", ls_names_read("cpu:0-1[2]", KINDS(many), &devices, &count), LS_ERR_INVALID, words, 1);
}

static void long_texts_are_clipped_not_what_there_is(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof(text));
    memcpy(text, "gpu:0,", 6);
    text[sizeof(text) - 1] = '\0';
    ls_named_device one;
    const char *const words[] = { "device \"xxxx", "in \"gpu:0,xxxx", "...\"", "there are CPU:0, GPU:0 to GPU:1" };
    check_message(text, ls_names_read_one(text, KINDS(few), &one), LS_ERR_NOT_FOUND, words, LENGTH(words));
}

/* ---- Workers of a cluster ---- */

/* Worker 3 has two names: its global name, and the local name that every process has. */
static void workers_name_their_own_devices(void **state)
{
    (void)state;
    static const char *const own[] = { "/job:worker/replica:0/task:3/device:CPU:1",
                                       "/device:CPU:1/task:3/job:worker",
                                       "/task:3/cpu:1",
                                       "/job:worker/cpu:1",
                                       "/job:localhost/replica:0/task:0/device:CPU:1",
                                       "/job:localhost/cpu:1",
                                       "cpu:1" };
    static const struct {
        const char *text, *word;
    } foreign[] = { { "/job:worker/replica:0/task:2/device:CPU:1", "task 2 is another worker, this one is task 3" },
                    { "/device:CPU:1/task:0", "task 0 is another worker, this one is task 3" },
                    { "/job:worker/task:7/gpu:9", "task 7 is another worker" },
                    { "/job:localhost/task:3/cpu:1", "there is no task 3 in this process, only task 0" },
                    { "/job:ps/task:3/cpu:1", "there is no job ps in this process, only job worker" },
                    { "/job:worker/replica:1/task:3/cpu:1", "there is no replica 1 in this process" } };
    ls_named_device one = { .number = 77 };
    for (size_t i = 0; i < LENGTH(own); i++) {
        assert_int_equal(ls_names_read_one(own[i], many, (int)LENGTH(many), 3, &one), LS_OK);
        assert_int_equal(one.number, 1);
    }
    for (size_t i = 0; i < LENGTH(foreign); i++) {
        const char *const words[] = { foreign[i].word };
        ls_status status = ls_names_read_one(foreign[i].text, many, (int)LENGTH(many), 3, &one);
        check_message(foreign[i].text, status, LS_ERR_NOT_FOUND, words, 1);
    }
}

/* ---- One device ---- */

static void exactly_one(void **state)
{
    (void)state;
    ls_named_device one = { .number = 77 };
    assert_int_equal(ls_names_read_one("/task:0/CPU:3[1-2]", KINDS(many), &one), LS_OK);
    assert_string_equal(describe(many, &one, 1), "CPU:3[1-2]");
    assert_int_equal(ls_names_read_one("cpu:1,gpu:0-1", KINDS(many), &one), LS_ERR_INVALID);
    const char *const words[] = { "device \"cpu:1,gpu:0-1\": it names 3 devices; expected 1", "XPU_2:0" };
    check_message("cpu:1,gpu:0-1", ls_names_read_one("cpu:1,gpu:0-1", KINDS(many), &one), LS_ERR_INVALID, words, 2);
    assert_int_equal(one.number, 3);
}

static void the_last_device_of_very_many(void **state)
{
    (void)state;
    ls_named_device *devices = NULL;
    int count = 0;
    assert_int_equal(ls_names_read("cpu:2147483645-2147483646", KINDS(endless), &devices, &count), LS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(devices[1].number, INT_MAX - 1);
    free(devices);
    assert_int_equal(ls_names_read("cpu:2147483647", KINDS(endless), &devices, &count), LS_ERR_NOT_FOUND);
}

/* ---- Cores ---- */

static void lists_of_cores(void **state)
{
    (void)state;
    static const int wanted[] = { 2, 5, 6, 7, 8191 };
    int *cores = NULL, count = 0;
    assert_int_equal(ls_names_read_cores("2,5-7,8191", &cores, &count), LS_OK);
    assert_int_equal(count, LENGTH(wanted));
    assert_memory_equal(cores, wanted, sizeof(wanted));
    free(cores);
    assert_int_equal(ls_names_read_cores("0-8191", &cores, &count), LS_OK);
    assert_int_equal(count, 8192);
    assert_int_equal(cores[8191], 8191);
    free(cores);
}

static void bad_lists_of_cores(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { NULL, "\"\" is not a number" },
        { "", "cores \"\": \"\" is not a number" },
        { "1,,2", "cores \"1,,2\": \"\" is not a number" },
        { "-1", "\"-1\" is not a number" },
        { "1 ", "\"1 \" is not a number" },
        { "a", "\"a\" is not a number" },
        { "7-5", "the range 7-5 is descending" },
        { "5-7,7", "core 7 comes after core 7" },
        { "5,2", "core 2 comes after core 5" },
        { "8192", "core numbers go up to 8191" },
        { "0-2147483647", "core numbers go up to 8191" },
        { "0-18446744073709551615", "core numbers go up to 8191" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        int *cores = NULL, count = -1;
        check_message(rows[i][0], ls_names_read_cores(rows[i][0], &cores, &count), LS_ERR_INVALID, &rows[i][1], 1);
        assert_null(cores);
        assert_int_equal(count, -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_names),
        cmocka_unit_test(bad_names),
        cmocka_unit_test(what_there_is),
        cmocka_unit_test(gpus_of_several_kinds),
        cmocka_unit_test(cores_are_those_of_one_cpu),
        cmocka_unit_test(long_texts_are_clipped_not_what_there_is),
        cmocka_unit_test(workers_name_their_own_devices),
        cmocka_unit_test(exactly_one),
        cmocka_unit_test(the_last_device_of_very_many),
        cmocka_unit_test(lists_of_cores),
        cmocka_unit_test(bad_lists_of_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
