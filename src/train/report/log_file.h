/* Destination of log lines (log_file.c): the file or, on a worker that is not the chief, a buffer
 * of the last ones, in case it has to replace the chief. */
#ifndef LS_TRAIN_REPORT_LOG_FILE_H
#define LS_TRAIN_REPORT_LOG_FILE_H

#include "base/text.h"
#include "train/job/job.h"
#include "train/report/log.h"

/* Ends the JSON object and writes it as a line. Frees `line`. */
void ls_train_log_put(ls_train_log *log, ls_text *line);

/* Closes the file, warns if the log is incomplete, and frees the log. */
void ls_train_log_end(ls_train_log *log);

#endif
