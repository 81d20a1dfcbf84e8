/* An optimizer's spec with defaults, checked: what building its update needs. */
#ifndef LS_NN_OPTIMIZER_SPEC_H
#define LS_NN_OPTIMIZER_SPEC_H

#include "graph/node.h"
#include "lockstep/nn.h"

/* How a kind updates: by its rule alone, or by nodes before the rule (optimizer_nodes.h). */
typedef enum ls_optimizer_way { LS_BY_RULE, LS_BY_LAMB, LS_BY_MUON, LS_BY_FTRL } ls_optimizer_way;

typedef struct ls_optimizer_info {
    const char *name;
    ls_apply_rule rule; /* SGD with momentum: ls_recipe has the rule */
    const char *slots[2];
    unsigned takes; /* options beyond those that all kinds have */
    /* defaults; a learning rate of 0: the user must set one. initial_accumulator_value: of the
     * first slot */
    ls_optimizer_options defaults;
    ls_optimizer_way way;
} ls_optimizer_info;

typedef struct ls_recipe {
    const ls_optimizer_info *info;
    ls_optimizer_way way; /* way of the kind, unless an option asks for another */
    ls_apply_op apply;    /* without its tensors */
    int slot_count;
    double rate, start;
    double clipvalue, clipnorm, global_clipnorm; /* 0: off */
    int64_t every;                               /* batches per update */
    bool scheduled;
    struct {
        double a, b, c, rms_rate, adam_weight_decay, adam_lr_ratio;
        int64_t steps;
        bool nesterov, embeddings;
        const char *excluded;
    } muon;
    double ftrl_power;     /* learning_rate_power */
    double ema_momentum;   /* -1: no averages */
    int64_t ema_every;     /* updates after which variables become their averages; 0: never */
    const char *undecayed; /* parts of names of variables without weight decay; NULL: none */
} ls_recipe;

ls_status ls_optimizer_resolve(const ls_optimizer *optimizer, ls_recipe *out);

#endif
