/* Every op with the batch axis in every position it can take, on an OpenCL device in float32: right
 * or refused, and with the CPU's bits. Skipped where there is no OpenCL. */
#define ON_OPENCL
#include "test_batch_axis.c"
