/* Chains of a program: see chains.c. */
#ifndef LS_BACKEND_GPU_CHAINS_H
#define LS_BACKEND_GPU_CHAINS_H

#include "backend/gpu/gpu.h"

typedef struct ls_gpu_chain_steps {
    int first, count; /* steps of the program, one behind the other */
    int inputs, outputs;
    struct {
        int step, number;
    } input[LS_GPU_PLACES];     /* an input of a step that no step of the chain makes */
    int function[LS_GPU_CHAIN]; /* by step: LS_CHAIN_... */
    int from[LS_GPU_CHAIN][2];  /* by step: numbers of inputs, or LS_GPU_PLACES and more: of steps */
    int output[LS_GPU_PLACES];  /* steps whose values are stored */
    char name[32];              /* of its kernel */
    bool any;                   /* the driver does not take its text: chain_steps does it */
    bool tail;                  /* no chain: the first step's own kernel does the others, too */
    bool biased, rectified;     /* which these are */
    int bias;                   /* input of the second that is added */
} ls_gpu_chain_steps;

/* The longest chain that begins at this step; how many steps it has. 1: none. */
int ls_gpu_find_chain(const ls_program *program, int first, ls_gpu_chain_steps *chain);

/* The text of its module; the caller frees it. NULL: no memory. */
char *ls_gpu_chain_source(const ls_gpu_chain_steps *chain);

/* The same for steps that the kernel of the first can do at its end, so that what they read is never stored: a bias and
 * a rectifier behind a convolution or a product, a rectifier behind a batch norm, its gradient behind a maximum pool's.
 * library: convolutions and products are a vendor's, which do nothing else. */
int ls_gpu_find_tail(const ls_program *program, int first, bool library, ls_gpu_chain_steps *chain);

ls_status ls_gpu_lower_tail(ls_gpu_lowering *l, const ls_program *program, const ls_gpu_chain_steps *chain,
                            const ls_program_run *run);

ls_status ls_gpu_lower_chain(ls_gpu_lowering *l, const ls_program *program, const ls_gpu_chain_steps *chain,
                             const ls_program_run *run);

#endif
