/* Every op on an OpenCL device has the reference's bits, op by op at random shapes; ops that it has
 * no kernel for go to the CPU. Skipped where there is no OpenCL. */
#define ON_OPENCL
#include "test_reference_bits.c"
