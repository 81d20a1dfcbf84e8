/* Every expression of the tables of expressions, forward and backward, and random graphs, on OpenCL
 * devices against the reference device, bit for bit. Skipped where there is no OpenCL. */
#define ON_OPENCL
#include "test_cpu.c"
