/* The state of a checkpoint: the input is a state.json without the hash that it ends with. Whatever
 * it says, it is refused with a message or put into a job, and nothing is half done. */
#include <unistd.h>

#include "base/sha256.h"
#include "base/text.h"
#include "fuzz.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/job/results.h"

static ls_model *model;
static ls_checkpoint *saved; /* its tensors are good, its state is the input's */

/* A model with its checkpoint, made once. */
static void make(void)
{
    char dir[] = "/dev/shm/lockstep-fuzz-XXXXXX", path[128];
    ls_context *ctx = fuzz_context(1, true);
    FUZZ_CHECK(mkdtemp(dir) != NULL, "no folder");
    FUZZ_CHECK(ls_sequential(ctx, "m", &model, ls_input(2), ls_dense(2)) == LS_OK, "%s", ls_last_error());
    FUZZ_CHECK(ls_compile(model, .optimizer = ls_sgd(.momentum = 0.9), .loss = ls_mean_squared_error(),
                          .metrics = ls_metrics(ls_accuracy())) == LS_OK,
               "%s", ls_last_error());
    FUZZ_CHECK(ls_checkpoint_save(model, dir) == LS_OK, "%s", ls_last_error());
    FUZZ_CHECK(ls_checkpoint_find(dir, NULL, &saved) == LS_OK && saved, "%s", ls_last_error());
    const char *const names[] = { "/step-00000000/model.safetensors", "/step-00000000/optimizer.safetensors",
                                  "/step-00000000/state.json", "/last" };
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", dir, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/step-00000000", dir);
    rmdir(path);
    rmdir(dir);
    json_decref(saved->state);
    saved->state = NULL;
}

/* State of a fit in addition to the job. */
static void use_extras(void)
{
    ls_history *history = NULL;
    ls_best best = { .known = false };
    const ls_results results = { .count = 2, .names = { "loss", "accuracy" }, .values = { 1, 2 } };
    if (fuzz_status(ls_checkpoint_history(saved, &history)))
        FUZZ_CHECK(ls_history_add(&history, &results, &results) == LS_OK, "%s", ls_last_error());
    ls_history_destroy(history);
    (void)fuzz_status(ls_checkpoint_best(saved, "loss", &best));
}

static void use(void)
{
    char *difference = NULL, before[65], after[65];
    use_extras();
    FUZZ_CHECK(ls_model_state_sha256(model, before) == LS_OK, "%s", ls_last_error());
    bool fits = fuzz_status(ls_checkpoint_fits(saved, model->job, (ls_fits){ .allow_other_bits = true }, &difference));
    uint64_t step = ls_model_graph(model)->step;
    if (fits && !fuzz_status(ls_checkpoint_put(saved, model->job)))
        FUZZ_CHECK(ls_model_graph(model)->step == step, "a failure has changed the job");
    FUZZ_CHECK(ls_model_state_sha256(model, after) == LS_OK && strcmp(before, after) == 0, "other weights");
    free(difference);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_text text = { 0 };
    char hex[65];
    json_t *state = NULL;
    if (!model)
        make();
    (void)fuzz_status(ls_state_parse("input", (const char *)data, size, &state)); /* it has no hash, as a rule */
    json_decref(state);
    state = NULL;
    size_t body = size >= 2 && memcmp(data + size - 2, "\n}", 2) == 0 ? size - 2 : size;
    FUZZ_CHECK(ls_sha256_of(data, body, hex) == LS_OK, "%s", ls_last_error());
    ls_text_put_bytes(&text, (const char *)data, body);
    ls_text_add(&text, ",\n  \"sha256\": \"%s\"\n}\n", hex);
    if (fuzz_status(ls_state_parse("input", ls_text_get(&text), text.length, &state))) {
        saved->state = state;
        use();
        json_decref(state);
        saved->state = NULL;
    } else {
        FUZZ_CHECK(state == NULL, "a failed call has set its output");
    }
    ls_text_free(&text);
    return 0;
}
