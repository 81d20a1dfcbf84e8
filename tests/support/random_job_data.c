/* Data of random jobs: samples, and the pipeline that makes batches of them; see random_job.h. */
#include <string.h>

#include "random_job_parts.h"

static float unit(draws *d)
{
    return (float)draw(d, 1 << 16) / 65536;
}

static ls_array make_input(const random_job *j, samples *s, int i, draws *d)
{
    for (size_t k = 0; k < sizeof(s->numbers[i]) / sizeof(float); k++) {
        s->numbers[i][k] = unit(d);
        s->bytes[i][k] = (uint8_t)draw(d, 256);
    }
    for (int k = 0; k < MOST * IDS; k++)
        s->ids[i][k] = (int32_t)draw(d, ID_KINDS);
    switch (j->input[i]) {
    case INPUT_IMAGE_U8:
        return ls_array_of(LS_U8, LS_SHAPE(j->samples, SIDE, SIDE, CHANNELS), s->bytes[i]);
    case INPUT_IMAGE:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, SIDE, SIDE, CHANNELS), s->numbers[i]);
    case INPUT_VECTOR:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, VECTOR), s->numbers[i]);
    default:
        return ls_array_of(LS_I32, LS_SHAPE(j->samples, IDS), s->ids[i]);
    }
}

static ls_array make_label(const random_job *j, samples *s, int i, draws *d)
{
    for (int k = 0; k < MOST; k++) {
        s->classes[i][k] = (int32_t)draw(d, CLASSES);
        for (int c = 0; c < CLASSES; c++)
            if (j->target[i] == TARGET_ONE_HOT)
                s->targets[i][k * CLASSES + c] = c == s->classes[i][k];
            else
                s->targets[i][k * CLASSES + c] = j->target[i] == TARGET_BINARY ? (float)draw(d, 2) : unit(d);
    }
    switch (j->target[i]) {
    case TARGET_SPARSE:
        return ls_array_of(LS_I32, LS_SHAPE(j->samples), s->classes[i]);
    case TARGET_ONE_HOT:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, CLASSES), s->targets[i]);
    case TARGET_BINARY:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, 1), s->targets[i]);
    default:
        return ls_array_of(LS_F32, LS_SHAPE(j->samples, NUMBERS), s->targets[i]);
    }
}

samples *random_samples_make(const random_job *j)
{
    samples *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    draws d = draws_from(j->seed, STREAM_DATA);
    s->job = j;
    for (int i = 0; i < j->inputs; i++)
        s->inputs[i] = make_input(j, s, i, &d);
    for (int i = 0; i < j->outputs; i++)
        s->labels[i] = make_label(j, s, i, &d);
    for (int k = 0; k < MOST; k++)
        s->weights[k] = k % 5 == 3 ? 0 : 0.5f + unit(&d);
    return s;
}

static ls_array weights_of(const samples *s)
{
    return ls_array_of(LS_F32, LS_SHAPE(s->job->samples), s->weights);
}

ls_dataset *random_samples_all(const samples *s, bool weighted)
{
    ls_arrays_options o = { .inputs = s->inputs,
                            .input_count = s->job->inputs,
                            .targets = s->labels,
                            .target_count = s->job->outputs,
                            .keep = LS_KEEP_BORROWED };
    if (weighted)
        o.weights = weights_of(s);
    return ls_from_tensor_slices_with(o);
}

size_t random_row_bytes(ls_array a, size_t element)
{
    size_t bytes = element;
    for (int axis = 1; axis < a.shape.rank; axis++)
        bytes *= (size_t)a.shape.dims[axis];
    return bytes;
}

static size_t element_bytes(ls_dtype dtype)
{
    return dtype == LS_U8 ? 1 : 4;
}

static void copy_row(ls_array from, int64_t row, ls_array *to)
{
    size_t bytes = random_row_bytes(from, element_bytes(from.dtype));
    memcpy(to->data, (const char *)from.data + (size_t)row * bytes, bytes);
}

static ls_status generate(void *user, ls_element *out, bool *end)
{
    const samples *s = user;
    const random_job *j = s->job;
    int64_t row = (out->number + (int64_t)out->epoch) % j->samples;
    *end = out->number == j->samples;
    if (*end)
        return LS_OK;
    for (int i = 0; i < j->inputs; i++)
        copy_row(s->inputs[i], row, &out->component[i]);
    for (int i = 0; i < j->outputs; i++)
        copy_row(s->labels[i], row, &out->component[j->inputs + i]);
    if (j->sample_weights)
        copy_row(weights_of(s), row, &out->component[j->inputs + j->outputs]);
    return LS_OK;
}

static ls_spec row_spec(ls_array a)
{
    ls_spec spec = { .dtype = a.dtype, .shape = { .rank = a.shape.rank - 1 } };
    memcpy(spec.shape.dims, a.shape.dims + 1, sizeof(spec.shape.dims[0]) * (size_t)spec.shape.rank);
    return spec;
}

static ls_dataset *generated_samples(samples *s)
{
    const random_job *j = s->job;
    ls_element_spec spec = { .features = j->inputs, .labels = j->outputs, .weights = j->sample_weights };
    for (int i = 0; i < j->inputs; i++)
        spec.component[spec.count++] = row_spec(s->inputs[i]);
    for (int i = 0; i < j->outputs; i++)
        spec.component[spec.count++] = row_spec(s->labels[i]);
    if (j->sample_weights)
        spec.component[spec.count++] = row_spec(weights_of(s));
    return ls_from_generator(generate, s, spec);
}

/* Turns images around in every second sample, and adds a number that depends on epoch and sample to
 * float inputs. */
static ls_status augment(void *user, const ls_element *in, ls_element *out)
{
    (void)user;
    for (int c = 0; c < in->count; c++) {
        size_t bytes = element_bytes(in->component[c].dtype);
        for (int axis = 0; axis < in->component[c].shape.rank; axis++)
            bytes *= (size_t)in->component[c].shape.dims[axis];
        memcpy(out->component[c].data, in->component[c].data, bytes);
    }
    float *first = out->component[0].data;
    if (in->component[0].dtype == LS_F32)
        first[0] += (float)((in->number * 7 + (int64_t)in->epoch * 3) % 11) / 16;
    if (in->component[0].dtype == LS_U8)
        ((uint8_t *)out->component[0].data)[0] = (uint8_t)(in->number * 7 + (int64_t)in->epoch * 3);
    return LS_OK;
}

ls_dataset *random_data_make(samples *s)
{
    const random_pipeline *p = &s->job->pipeline;
    ls_dataset *data =
        p->source == SOURCE_GENERATOR ? generated_samples(s) : random_samples_all(s, s->job->sample_weights);
    if (p->skip)
        data = ls_skip(data, 1);
    if (p->shard)
        data = ls_shard(data, 2, 0);
    if (p->map)
        data = ls_map(data, augment, .threads = p->map_threads ? 3 : 0);
    if (p->shuffle)
        data = ls_shuffle(data, 1 + s->job->samples / 2, s->job->seed);
    if (p->repeat)
        data = ls_repeat(data, 2);
    if (p->batch)
        data = ls_batch(data, s->job->batch, p->drop_remainder && s->job->samples / 2 > s->job->batch);
    if (p->prefetch)
        data = ls_prefetch(data, 2);
    return data;
}
