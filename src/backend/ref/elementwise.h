/* Loops of elementwise kernels: a kernel is a name and a formula. */
#ifndef LS_BACKEND_REF_ELEMENTWISE_H
#define LS_BACKEND_REF_ELEMENTWISE_H

#include "backend/ref/array.h"
#include "backend/ref/real.h"

/* Inputs a and b broadcast to the output. */
#define BINARY(op, expression)                                                                                         \
    ls_status LS_REF(op)(const ls_ref_call *call)                                                                      \
    {                                                                                                                  \
        real *out = call->out.data;                                                                                    \
        ls_ref_walk walk;                                                                                              \
        ls_ref_walk_broadcast(&walk, &call->out.shape, call->in, 2);                                                   \
        while (ls_ref_walk_row(&walk)) {                                                                               \
            const real *as = (const real *)call->in[0].data + walk.offset[0];                                          \
            const real *bs = (const real *)call->in[1].data + walk.offset[1];                                          \
            for (int64_t i = 0; i < walk.length; i++) {                                                                \
                real a = as[i * walk.step[0]], b = bs[i * walk.step[1]];                                               \
                *out++ = (real)(expression);                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        return LS_OK;                                                                                                  \
    }

/* One input x. */
#define UNARY(op, expression)                                                                                          \
    ls_status LS_REF(op)(const ls_ref_call *call)                                                                      \
    {                                                                                                                  \
        const real *in = call->in[0].data;                                                                             \
        real *out = call->out.data;                                                                                    \
        for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++) {                                             \
            real x = in[i];                                                                                            \
            out[i] = (real)(expression);                                                                               \
        }                                                                                                              \
        return LS_OK;                                                                                                  \
    }

#endif
