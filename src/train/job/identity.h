/* A fingerprint that distinguishes datasets of the same shapes. */
#ifndef LS_TRAIN_JOB_IDENTITY_H
#define LS_TRAIN_JOB_IDENTITY_H

#include "data/dataset.h"

/* For data in memory, mapped or not: hash of a sample of its bytes and of the order of its first
 * pass. Zeros for other data. */
typedef struct ls_data_identity {
    int64_t samples; /* whose order was hashed */
    char sha256[65];
} ls_data_identity;

ls_status ls_identify_data(ls_dataset *dataset, ls_data_identity *out);

#endif
