/* What tells data from other data of the same shapes. */
#ifndef LS_TRAIN_JOB_IDENTITY_H
#define LS_TRAIN_JOB_IDENTITY_H

#include "data/dataset.h"

/* Of data in memory, or that maps make of it: a hash of a sample of its bytes and of the order of its first pass. Of
 * other data all is 0. */
typedef struct ls_data_identity {
    int64_t samples; /* whose order was hashed */
    char sha256[65];
} ls_data_identity;

ls_status ls_identify_data(ls_dataset *dataset, ls_data_identity *out);

#endif
