/* Chains of elementwise steps (chains.c). */
#ifndef LS_BACKEND_GPU_CHAINS_H
#define LS_BACKEND_GPU_CHAINS_H

#include "backend/gpu/gpu.h"

typedef struct ls_gpu_chain_steps {
    int first, count; /* consecutive */
    int inputs, outputs;
    struct {
        int step, number;
    } input[LS_GPU_PLACES];     /* computed by no step of the chain */
    int function[LS_GPU_CHAIN]; /* LS_CHAIN_... by step */
    int from[LS_GPU_CHAIN][2];  /* by step: inputs, or LS_GPU_PLACES + a step */
    int output[LS_GPU_PLACES];  /* steps whose values are stored */
    char name[32];              /* name of its kernel */
    bool any;                   /* the driver rejects its source: use chain_steps */
    bool tail;                  /* not a chain: the first step's kernel also does the others */
    bool biased, rectified;     /* tail: which steps */
    int bias;                   /* tail: input of the second step that is the bias */
} ls_gpu_chain_steps;

/* Finds the longest chain that begins at this step; returns its number of steps, 1 if there is
 * none. */
int ls_gpu_find_chain(const ls_program *program, int first, ls_gpu_chain_steps *chain);

/* The caller frees it. NULL: no memory. */
char *ls_gpu_chain_source(const ls_gpu_chain_steps *chain);

/* Finds steps that the kernel of the first step can also do: bias and ReLU after a convolution or
 * product, ReLU after a batch norm, its gradient after that of a max pool. Returns the number of
 * steps; 1: none. library: a vendor's library does convolutions and products, without such
 * additions. */
int ls_gpu_find_tail(const ls_program *program, int first, bool library, ls_gpu_chain_steps *chain);

ls_status ls_gpu_lower_tail(ls_gpu_lowering *l, const ls_program *program, const ls_gpu_chain_steps *chain,
                            const ls_program_run *run);

ls_status ls_gpu_lower_chain(ls_gpu_lowering *l, const ls_program *program, const ls_gpu_chain_steps *chain,
                             const ls_program_run *run);

#endif
