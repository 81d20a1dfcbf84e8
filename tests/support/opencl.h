/* Contexts with OpenCL devices, for tests, which are skipped where there are none. Kernels that
 * PoCL compiles are kept in a folder of the user's among temporary files, so that one test's serve
 * the next. */
#ifndef TESTS_OPENCL_H
#define TESTS_OPENCL_H

#include "lockstep/device.h"

/* Divides each CPU of OpenCL into this number of devices. Before the first context. */
void opencl_cut(int parts);

/* A context in which these devices ("opencl:0") are visible. False: there are none, and a line has
 * the reason. */
bool opencl_open(const ls_context_options *options, const char *devices, ls_context **out);

#endif
