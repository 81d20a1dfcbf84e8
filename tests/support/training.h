/* Reading tests/reference/training_*.json, and comparing with it. Linked into every test
 * program. */
#ifndef TESTS_TRAINING_H
#define TESTS_TRAINING_H

#include <jansson.h>

#include "lockstep/nn.h"

/* A dense array as the files describe it; free() its data. */
typedef struct training_array {
    ls_dtype dtype;
    ls_shape shape;
    void *data;
    size_t count, bytes;
} training_array;

/* "training_<name>.json"; the caller gives the reference back. Fails the running test when it
 * cannot be read. */
json_t *training_read(const char *name);

training_array training_array_of(const json_t *described);

/* Members, with what they are when absent. */
double training_number(const json_t *object, const char *key, double absent);
const char *training_string(const json_t *object, const char *key);

/* An input for such an array, with a batch axis or whole. */
ls_tensor *training_input(ls_graph *graph, const training_array *array, bool batch);

/* Elements of `found` (floats or doubles) that are off by more than tolerance * max(1, |expected|);
 * the first is printed, unless `what` is NULL. */
size_t training_compare(const char *what, const void *found, ls_dtype dtype, const json_t *expected, double tolerance);

#endif
