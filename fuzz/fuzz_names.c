/* Names of devices: what is accepted names devices that are there, each once. The first byte
 * chooses the machine, and which worker of a cluster this is. */
#include "device/names.h"
#include "fuzz.h"

static void check_list(const ls_named_device *list, int count, const ls_kind_count *kinds, int kind_count)
{
    for (int i = 0; i < count; i++) {
        const ls_named_device *d = &list[i];
        FUZZ_CHECK(d->kind >= 0 && d->kind < kind_count, "kind %d of %d", d->kind, kind_count);
        FUZZ_CHECK(d->number >= 0 && d->number < kinds[d->kind].count, "%s:%d is not there", kinds[d->kind].kind,
                   d->number);
        for (int j = 0; j < i; j++)
            FUZZ_CHECK(list[j].kind != d->kind || list[j].number != d->number, "a device twice");
    }
}

static void check_cores(const char *text)
{
    int *cores = NULL, count = 0;
    if (!fuzz_status(ls_names_read_cores(text, &cores, &count)))
        return;
    for (int i = 0; i < count; i++)
        FUZZ_CHECK(cores[i] >= 0 && (i == 0 || cores[i] > cores[i - 1]), "cores do not rise");
    free(cores);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ls_kind_count machines[][3] = {
        { { .kind = "CPU", .count = 1 }, { .kind = "GPU", .count = 2 }, { .kind = "XPU_2", .count = 1 } },
        { { .kind = "CPU", .count = 1000 }, { .kind = "GPU" }, { .kind = "TPU", .count = 5, .gpus = 0x12 } }
    };
    char text[4096];
    if (size < 1 || size >= sizeof text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    const ls_kind_count *kinds = machines[data[0] & 1];
    int worker = data[0] & 2 ? data[0] >> 2 : LS_NO_WORKER;
    ls_named_device *list = NULL, one;
    int count = 0;
    if (fuzz_status(ls_names_read(text, kinds, 3, worker, &list, &count)))
        check_list(list, count, kinds, 3);
    free(list);
    if (fuzz_status(ls_names_read_one(text, kinds, 3, worker, &one)))
        check_list(&one, 1, kinds, 3);
    check_cores(text);
    return 0;
}
