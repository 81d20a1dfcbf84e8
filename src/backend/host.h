/* The backend of the host's own devices: opened here, then known by its table (plan/plan.h) alone. */
#ifndef LS_BACKEND_HOST_H
#define LS_BACKEND_HOST_H

#include "plan/plan.h"

/* workers: that will run kernels. reference: every group by its reference kernel. close() of the table ends it, when
 * its kernels are destroyed. */
ls_status ls_host_open(int workers, ls_logger *log, bool reference, ls_kernel_source *out);

#endif
