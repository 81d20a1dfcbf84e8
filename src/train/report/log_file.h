/* Destination of log lines: the file or, on a worker that is not the chief, the last lines in
 * memory. */
#ifndef LS_TRAIN_REPORT_LOG_FILE_H
#define LS_TRAIN_REPORT_LOG_FILE_H

#include "base/text.h"
#include "train/job/job.h"
#include "train/report/log.h"

/* Ends the JSON object, writes it as a line and frees it. */
void ls_train_log_put(ls_train_log *log, ls_text *line);

/* Closes the file, and warns if the log is incomplete. */
void ls_train_log_end(ls_train_log *log);

#endif
