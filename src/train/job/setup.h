/* Setup of a call that trains: settings, data and the traced function. */
#ifndef LS_TRAIN_JOB_SETUP_H
#define LS_TRAIN_JOB_SETUP_H

#include "train/job/passes.h"
#include "train/job/job.h"

typedef struct ls_fit_setup {
    ls_settings settings;
    ls_passes data, validation;
    bool validates;
    int64_t epochs, steps; /* steps: per epoch; negative: until the data ends */
    ls_function *function; /* owned by the job */
} ls_fit_setup;
/* `call`: API function, for messages. */
ls_status ls_fit_set_up(ls_job *job, ls_dataset *data, const ls_fit_options *options, const char *call,
                        ls_fit_setup *out);
void ls_fit_setup_free(ls_fit_setup *setup);

#endif
