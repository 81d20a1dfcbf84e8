/* Scalars of an update rule (graph/apply.def) in the variable's type. */
#ifndef LS_BACKEND_REF_UPDATE_H
#define LS_BACKEND_REF_UPDATE_H

#include "graph/node.h"

#define LS_UPDATE_SCALARS(real)                                                                                        \
    {                                                                                                                  \
        real rate, step, momentum, rho, epsilon, beta_1, beta_2;                                                       \
        real one_minus_rho, one_minus_beta_1, one_minus_beta_2;                                                        \
        real decay; /* learning rate times weight decay */                                                             \
        /* learning rate with the bias correction of Adam or Adamax; Nadam's, for the momentum */                      \
        real alpha;                                                                                                    \
        real alpha_g;                   /* Nadam's, for the gradient */                                                \
        real correction;                /* Nadam: 1 - beta_2^step */                                                   \
        real l1, ftrl, twice_shrinkage; /* ftrl: beta / rate + 2 l2 */                                                 \
    }
typedef struct ls_ref_update_f32 LS_UPDATE_SCALARS(float) ls_ref_update_f32;
typedef struct ls_ref_update_f64 LS_UPDATE_SCALARS(double) ls_ref_update_f64;

/* rate and step: inputs of the node (ls_apply_step). Rules without a step ignore it. */
ls_ref_update_f32 ls_ref_update_scalars_f32(const ls_tensor *node, float rate, float step);
ls_ref_update_f64 ls_ref_update_scalars_f64(const ls_tensor *node, double rate, double step);

#endif
