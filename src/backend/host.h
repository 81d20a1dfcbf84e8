/* The backend of the host's devices. After ls_host_open it is used only through its table
 * (plan/plan.h). */
#ifndef LS_BACKEND_HOST_H
#define LS_BACKEND_HOST_H

#include "plan/plan.h"

/* workers: number of threads that will run kernels. reference: use the reference kernel for every
 * group. Call close() of the table after all its kernels are destroyed. */
ls_status ls_host_open(int workers, ls_logger *log, bool reference, ls_kernel_source *out);

#endif
