/* oneDNN behind a few functions of ours: nothing else in the tree makes a dnnl_ call, and no dnnl_ type leaves the
 * file.
 *
 * Arrays are float32. Activations are plain NHWC. Kernels are HWIO, [kh, kw, c / groups, o] with the output channels of
 * one group beside each other, and oneDNN reads and writes them in a format of its own choice: *packed*. The first
 * operation of a convolution decides the format, later ones (other batch sizes) are made `like` it, and reorders go
 * between HWIO and packed.
 *
 * Threads. oneDNN takes the order of its sums from the number of OpenMP threads it sees when an operation is made, so
 * operations are made and run only on threads that called ls_dnn_enter_thread; elsewhere the call fails with
 * LS_ERR_INTERNAL. ls_dnn_open, the queries and the destroyers may be called on any thread.
 *
 * An operation may be run by all its workers at once, each with its own number in 0 .. workers-1. Running changes
 * pointers and executes; we allocate nothing there (oneDNN itself takes some small pieces from malloc). Packed arrays
 * and scratch start at a multiple of 64 bytes, other arrays at any float. */
#ifndef LS_BACKEND_CPU_ONEDNN_H
#define LS_BACKEND_CPU_ONEDNN_H

#include "lockstep/base.h"

typedef struct ls_dnn ls_dnn;       /* the engine, with one stream for each worker */
typedef struct ls_dnn_op ls_dnn_op; /* a convolution of one kind and size, a reorder of its kernel, a matmul */

typedef struct ls_dnn_conv {
    int64_t n, h, w, c; /* the input */
    int64_t kh, kw;
    int64_t o, oh, ow;              /* the output's channels, height and width */
    int64_t stride[2], dilation[2]; /* 1: dense */
    int64_t pad[4];                 /* top, bottom, left, right */
    int64_t groups;
    bool bias; /* forward adds one, backward-weights also makes its gradient; backward-data does not look */
    bool relu; /* forward ends with max(0, .), which makes 0 of NaN or not, and NaN of -infinity or not, as the
                  instruction set has it; the backward ones do not look */
} ls_dnn_conv;

/* c = op(a) op(b) [+ bias], row-major: op(a) is m x k, op(b) is k x n; ta, tb: the array holds the
 * transpose. Where the operation's name begins with "brg:", a row of c has the same bits whatever m is, 1 included. */
typedef struct ls_dnn_matmul {
    int64_t m, n, k;
    bool ta, tb;
    int64_t lda, ldb, ldc; /* floats from row to row of the array; 0: rows lie close */
    bool bias;             /* n values, added to every row */
} ls_dnn_matmul;

/* This thread takes part from now on: OpenMP uses one thread when called from here. Other threads are not changed. */
void ls_dnn_enter_thread(void);

/* The effective instruction set has AVX-512 (F, BW, DQ, VL). */
bool ls_dnn_has_avx512(void);

ls_status ls_dnn_open(int workers, ls_dnn **out);
void ls_dnn_close(ls_dnn *dnn); /* after its operations are destroyed; NULL is fine */

/* What decides the bits: "oneDNN 2.6.3 avx512_core_bf16", the instruction set being the effective one (a limit set by
 * ONEDNN_MAX_CPU_ISA or DNNL_MAX_CPU_ISA counts). Cut to fit `size`. */
void ls_dnn_identity(char *text, size_t size);

/* ---- making ----
 * like: NULL, or an operation of the same kernel whose packed format must be used; the kinds may differ.
 * Fails with LS_ERR_UNSUPPORTED when oneDNN has no fast kernel for these sizes in NHWC (or in the format of `like`). */
ls_status ls_dnn_conv_forward(ls_dnn *dnn, const ls_dnn_conv *conv, const ls_dnn_op *like, ls_dnn_op **out);
ls_status ls_dnn_conv_backward_data(ls_dnn *dnn, const ls_dnn_conv *conv, const ls_dnn_op *like, ls_dnn_op **out);
ls_status ls_dnn_conv_backward_weights(ls_dnn *dnn, const ls_dnn_conv *conv, const ls_dnn_op *like, ls_dnn_op **out);

/* From an HWIO array to the packed format of `op`, and back. */
ls_status ls_dnn_reorder_from_hwio(ls_dnn *dnn, const ls_dnn_op *op, ls_dnn_op **out);
ls_status ls_dnn_reorder_to_hwio(ls_dnn *dnn, const ls_dnn_op *op, ls_dnn_op **out);

ls_status ls_dnn_matmul_create(ls_dnn *dnn, const ls_dnn_matmul *matmul, ls_dnn_op **out);

void ls_dnn_op_destroy(ls_dnn_op *op); /* NULL is fine */

/* ---- asking ---- (ls_dnn_op_weights_..., ls_dnn_same_weights: not of a matmul) */
const char *ls_dnn_op_name(const ls_dnn_op *op);        /* oneDNN's: "brgconv:avx512_core"; lives as long as op */
size_t ls_dnn_op_scratch_bytes(const ls_dnn_op *op);    /* for each worker; often 0 */
size_t ls_dnn_op_weights_bytes(const ls_dnn_op *op);    /* of the packed kernel (or its gradient): HWIO's or more */
bool ls_dnn_op_weights_are_hwio(const ls_dnn_op *op);   /* packed is HWIO itself: no reorder needed */
bool ls_dnn_op_multiplies_padding(const ls_dnn_op *op); /* its zeros by weights or gradients: infinite ones give NaN */
bool ls_dnn_same_weights(const ls_dnn_op *a, const ls_dnn_op *b); /* one packed array serves both */

/* ---- running ----
 * `kernel` and `dkernel` are packed. scratch: ls_dnn_op_scratch_bytes, of no one else meanwhile; NULL when 0. Outputs
 * are overwritten, never added to. bias and dbias: not looked at when the operation has none. Where the packed kernel
 * is padded, running writes zeros over the zeros of its padding, also when it is an input. */
ls_status ls_dnn_run_forward(ls_dnn_op *op, int worker, const float *x, const float *kernel, const float *bias,
                             float *y, void *scratch);
ls_status ls_dnn_run_backward_data(ls_dnn_op *op, int worker, const float *dy, const float *kernel, float *dx,
                                   void *scratch);
ls_status ls_dnn_run_backward_weights(ls_dnn_op *op, int worker, const float *x, const float *dy, float *dkernel,
                                      float *dbias, void *scratch);
ls_status ls_dnn_run_reorder(ls_dnn_op *op, int worker, const float *from, float *to, void *scratch);
ls_status ls_dnn_run_matmul(ls_dnn_op *op, int worker, const float *a, const float *b, const float *bias, float *c,
                            void *scratch);

/* c = op(a) op(b) + beta c, as ls_dnn_matmul but with nothing made before; as fast as that without tb, down to half as
 * fast with tb. On a thread that entered. With m = 1 it sums in another order than with more rows. It takes its scratch
 * from malloc. */
ls_status ls_dnn_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                       int64_t ldb, float beta, float *c, int64_t ldc);

#endif
