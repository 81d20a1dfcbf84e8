/* IDX files, plain or gzip. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_array array = { 0 };
    if (fuzz_status(ls_idx_read(fuzz_file(data, size), &array)))
        fuzz_array_use(&array);
    FUZZ_CHECK(array.data == NULL, "a failed call has set its output");
    return 0;
}
