/* NPZ files: a zip archive with the array x_train.npy, and another that is not there, so that all
 * names are listed. */
#include "fuzz.h"

#include "data/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    ls_array array = { 0 };
    bool has = false;
    if (fuzz_status(ls_npz_read(path, "x_train", &array)))
        fuzz_array_use(&array);
    if (fuzz_status(ls_npz_read(path, "missing", &array)))
        fuzz_array_use(&array);
    fuzz_status(ls_npz_has(path, "y_train", &has));
    return 0;
}
