/* Weight files except HDF5, in the format that the first bytes select. Weights that were read,
 * written as .npz and read again must be the same, bit for bit. */
#include <unistd.h>

#include "data/tensors.h"
#include "fuzz.h"

#define MOST 64

static void write_again(const ls_tensors *file)
{
    char path[64];
    const char *names[MOST];
    ls_array arrays[MOST];
    bool equal = false;
    char *text = NULL;
    if (file->count > MOST)
        return;
    for (size_t i = 0; i < file->count; i++) {
        names[i] = file->entries[i].name;
        arrays[i] = ls_array_of(file->entries[i].dtype, file->entries[i].shape, file->entries[i].data);
    }
    snprintf(path, sizeof path, "/dev/shm/lockstep-fuzz-%ld.npz", (long)getpid());
    if (fuzz_status(ls_npz_write(path, names, arrays, file->count))) { /* some names no archive can have */
        ls_tensors again;
        FUZZ_CHECK(ls_tensors_open(path, &again) == LS_OK, "cannot read what was written: %s", ls_last_error());
        FUZZ_CHECK(again.count == file->count, "another number of arrays");
        ls_tensors_close(&again);
        FUZZ_CHECK(ls_weights_diff(path, path, NULL, &equal, &text) == LS_OK && equal, "differs from itself");
        free(text);
        unlink(path);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_tensors file;
    bool equal = false;
    char *text = NULL;
    const char *path = fuzz_file(data, size);
    if (!fuzz_status(ls_tensors_open(path, &file)))
        return 0;
    write_again(&file);
    ls_tensors_close(&file);
    FUZZ_CHECK(ls_weights_diff(path, path, NULL, &equal, &text) == LS_OK && equal, "differs from itself: %s", text);
    free(text);
    return 0;
}
