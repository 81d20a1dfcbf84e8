/* The declarations of cuBLAS, cuDNN and NVRTC in src/backend/cuda/cu.h agree with their headers, if
 * these are installed: the compiler compares the type of every function, and this program the
 * numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "skip.h"

#if __has_include(</usr/local/cuda/include/cublas_v2.h>) && __has_include(</usr/local/cuda/include/cudnn.h>) &&        \
    __has_include(</usr/local/cuda/include/nvrtc.h>)
#include </usr/local/cuda/include/cublas_v2.h>
#include </usr/local/cuda/include/cudnn.h>
#include </usr/local/cuda/include/nvrtc.h>

#define LS_CU_VENDOR_TYPES
#define ls_cublas_handle     cublasHandle_t
#define ls_cudnn_handle      cudnnHandle_t
#define ls_cudnn_tensor      cudnnTensorDescriptor_t
#define ls_cudnn_filter      cudnnFilterDescriptor_t
#define ls_cudnn_convolution cudnnConvolutionDescriptor_t
#define ls_cuda_stream       cudaStream_t
#define ls_cu_enum           unsigned
#include "backend/cuda/cu.h"

#define SAME_TYPE(name, symbol, arguments)                                                                             \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), unsigned arguments), #symbol);
LS_CUBLAS_FUNCTIONS(SAME_TYPE)
LS_CUDNN_FUNCTIONS(SAME_TYPE)

static void numbers_are_those_of_the_headers(void **state)
{
    (void)state;
#define SAME(name) assert_int_equal(LS_##name, name)
    assert_int_equal(LS_MAJOR_VERSION, MAJOR_VERSION);
    assert_int_equal(LS_MINOR_VERSION, MINOR_VERSION);
    assert_int_equal(LS_PATCH_LEVEL, PATCH_LEVEL);
    SAME(NVRTC_SUCCESS);
    SAME(CUBLAS_STATUS_SUCCESS);
    SAME(CUBLAS_STATUS_ALLOC_FAILED);
    SAME(CUBLAS_OP_N);
    SAME(CUBLAS_OP_T);
    SAME(CUBLAS_ATOMICS_NOT_ALLOWED);
    SAME(CUBLAS_PEDANTIC_MATH);
    SAME(CUDNN_STATUS_SUCCESS);
#if CUDNN_MAJOR >= 9
    SAME(CUDNN_STATUS_NOT_SUPPORTED);
#endif
    SAME(CUDNN_DATA_FLOAT);
    SAME(CUDNN_TENSOR_NHWC);
    SAME(CUDNN_CROSS_CORRELATION);
    SAME(CUDNN_FMA_MATH);
    SAME(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
    SAME(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
    SAME(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
    SAME(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
}
#else
static void numbers_are_those_of_the_headers(void **state)
{
    (void)state;
    SKIP("no headers of cuBLAS, cuDNN and NVRTC");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(numbers_are_those_of_the_headers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
