/* Shared by the files of random jobs; see random_job.h. */
#ifndef TESTS_RANDOM_JOB_PARTS_H
#define TESTS_RANDOM_JOB_PARTS_H

#include "random_job.h"

#define SIDE     6
#define CHANNELS 2
#define VECTOR   5
#define IDS      3
#define ID_KINDS 11
#define CLASSES  3
#define NUMBERS  2
#define MOST     96 /* samples */

/* Streams of draws_from. */
enum { STREAM_JOB, STREAM_MODEL, STREAM_DATA, STREAM_LOSSES };

/* random_job_model.c */
ls_status random_model_make(const random_job *j, ls_context *ctx, ls_model **out);
ls_status random_model_compile(const random_job *j, ls_model *model);

/* random_job_data.c */
typedef struct samples {
    uint8_t bytes[RANDOM_JOB_INPUTS][MOST * SIDE * SIDE * CHANNELS];
    float numbers[RANDOM_JOB_INPUTS][MOST * SIDE * SIDE * CHANNELS];
    int32_t ids[RANDOM_JOB_INPUTS][MOST * IDS];
    int32_t classes[RANDOM_JOB_OUTPUTS][MOST];
    float targets[RANDOM_JOB_OUTPUTS][MOST * CLASSES];
    float weights[MOST];
    ls_array inputs[RANDOM_JOB_INPUTS], labels[RANDOM_JOB_OUTPUTS];
    const random_job *job;
} samples;

/* NULL: no memory; free() it. */
samples *random_samples_make(const random_job *j);
/* All samples, in order, with or without their weights. */
ls_dataset *random_samples_all(const samples *s, bool weighted);
/* The data of the job's pipeline. */
ls_dataset *random_data_make(samples *s);
/* Bytes of one row, whose elements have that size. */
size_t random_row_bytes(ls_array a, size_t element);

#endif
