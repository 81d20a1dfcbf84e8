/* Where the lines of a log go (log_file.c): the file, or, on a worker that is not the chief, a memory of the last ones,
 * for the day that it goes on in the chief's place. */
#ifndef LS_TRAIN_REPORT_LOG_FILE_H
#define LS_TRAIN_REPORT_LOG_FILE_H

#include "base/text.h"
#include "train/job/job.h"
#include "train/report/log.h"

/* One line, which is freed; its newline is added. */
void ls_train_log_put(ls_train_log *log, ls_text *line);

/* The file is closed, what is missing in it told. */
void ls_train_log_end(ls_train_log *log);

#endif
