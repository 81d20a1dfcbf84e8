/* Keras's JSON: a model that is made can be described, and destroyed. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_model *model = NULL;
    char *summary = NULL, hex[65];
    if (!fuzz_status(ls_model_from_keras_json(fuzz_context(1, false), fuzz_file(data, size), &model))) {
        FUZZ_CHECK(model == NULL, "a failed call has set its output");
        return 0;
    }
    if (fuzz_status(ls_model_summary(model, &summary)))
        free(summary);
    fuzz_status(ls_model_weights_sha256(model, hex));
    ls_model_destroy(model);
    return 0;
}
