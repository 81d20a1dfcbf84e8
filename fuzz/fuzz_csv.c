/* CSV files: features and labels have as many rows, and no feature is infinite or NaN. */
#include <math.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_array features = { 0 }, labels = { 0 };
    if (!fuzz_status(ls_csv_read(fuzz_file(data, size), &features, &labels)))
        return 0;
    FUZZ_CHECK(features.shape.rank == 2 && features.dtype == LS_F32, "features of rank %d", features.shape.rank);
    FUZZ_CHECK(labels.shape.dims[0] == features.shape.dims[0], "rows and labels differ");
    for (int64_t i = 0; i < features.shape.dims[0] * features.shape.dims[1]; i++)
        FUZZ_CHECK(isfinite(((const float *)features.data)[i]), "feature %lld is not finite", (long long)i);
    for (int64_t i = 0; labels.dtype == LS_F32 && i < labels.shape.dims[0]; i++)
        FUZZ_CHECK(isfinite(((const float *)labels.data)[i]), "label %lld is not finite", (long long)i);
    fuzz_array_use(&features);
    fuzz_array_use(&labels);
    return 0;
}
