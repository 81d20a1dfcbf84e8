/* Safetensors files: what was read, written and read again is the same. */
#include <sys/stat.h>
#include <unistd.h>

#include "data/safetensors.h"
#include "fuzz.h"

#define MOST 64

static void compare(const ls_safetensors *a, const ls_safetensors *b)
{
    FUZZ_CHECK(ls_safetensors_count(a) == ls_safetensors_count(b), "another number of tensors");
    for (size_t i = 0; i < ls_safetensors_count(a); i++) {
        const ls_safetensors_entry *x = ls_safetensors_at(a, i), *y = ls_safetensors_find(b, x->name);
        FUZZ_CHECK(y && x->dtype == y->dtype && x->shape.rank == y->shape.rank && x->bytes == y->bytes,
                   "tensor %s came back as another", x->name);
        FUZZ_CHECK(x->bytes == 0 || memcmp(x->data, y->data, x->bytes) == 0, "tensor %s has other bytes", x->name);
    }
    FUZZ_CHECK(ls_safetensors_metadata_count(a) == ls_safetensors_metadata_count(b), "other metadata");
}

static void write_again(const ls_safetensors *file)
{
    static char path[64];
    ls_safetensors_entry entries[MOST];
    ls_safetensors_pair pairs[MOST];
    size_t count = ls_safetensors_count(file), pair_count = ls_safetensors_metadata_count(file);
    if (count > MOST || pair_count > MOST)
        return;
    for (size_t i = 0; i < count; i++)
        entries[i] = *ls_safetensors_at(file, i);
    for (size_t i = 0; i < pair_count; i++)
        pairs[i] = ls_safetensors_metadata_at(file, i);
    snprintf(path, sizeof path, "/dev/shm/lockstep-fuzz-%ld.safetensors", (long)getpid());
    ls_safetensors *again = NULL;
    FUZZ_CHECK(ls_safetensors_write(path, entries, count, pairs, pair_count) == LS_OK, "cannot write what was read: %s",
               ls_last_error());
    FUZZ_CHECK(ls_safetensors_open(path, &again) == LS_OK, "cannot read what was written: %s", ls_last_error());
    unlink(path);
    compare(file, again);
    ls_safetensors_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_safetensors *file = NULL;
    if (!fuzz_status(ls_safetensors_open(fuzz_file(data, size), &file))) {
        FUZZ_CHECK(file == NULL, "a failed call has set its output");
        return 0;
    }
    write_again(file);
    ls_safetensors_close(file);
    return 0;
}
