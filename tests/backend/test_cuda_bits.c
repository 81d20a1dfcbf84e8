/* Every op on a CUDA device, the stand-in's (standin_cuda/standin.h), has the reference's bits, op
 * by op at random shapes: the kernels as NVRTC is given them, compiled for the CPU. */
#define ON_CUDA
#include "test_reference_bits.c"
