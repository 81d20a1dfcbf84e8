/* The backend of the host's devices, used through its table (plan/plan.h). */
#ifndef LS_BACKEND_HOST_H
#define LS_BACKEND_HOST_H

#include "plan/plan.h"

/* threads: number of threads that run kernels. reference: use only reference kernels. Call close()
 * of the table after all its kernels are destroyed. */
ls_status ls_host_open(int threads, ls_logger *log, bool reference, ls_kernel_source *out);

#endif
