/* Tables with names of columns: what is learned from a file reads that file, is saved, and is
 * loaded again. */
#include <math.h>

#include "fuzz.h"

#include "data/table.h"

static void use_rows(ls_dataset *data)
{
    ls_rows *rows = NULL;
    if (fuzz_status(ls_rows_create(data, 0, &rows))) {
        const ls_array *x = &ls_rows_base(rows)->component[0];
        for (int64_t i = 0; i < x->shape.dims[0] * x->shape.dims[1]; i++)
            FUZZ_CHECK(isfinite(((const float *)x->data)[i]), "feature %lld is not finite", (long long)i);
        ls_rows_destroy(rows);
    }
    ls_dataset_destroy(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_table *table = NULL, *again = NULL;
    const char *path = fuzz_file(data, size);
    char *text = NULL;
    if (fuzz_status(ls_table_load(path, &again))) {
        ls_table_destroy(again);
        return 0;
    }
    if (!fuzz_status(ls_table_create(path, &table, .validation_split = size % 2 ? 0.25 : 0)))
        return 0;
    FUZZ_CHECK(ls_table_width(table) > 0, "no features");
    use_rows(ls_from_table(table, path));
    FUZZ_CHECK(ls_table_describe(table, &text) == LS_OK, "no description");
    free(text);
    ls_table_destroy(table);
    return 0;
}
