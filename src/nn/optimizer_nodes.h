/* Updates that need norms or products: graph nodes before a row of graph/apply.def. */
#ifndef LS_NN_OPTIMIZER_NODES_H
#define LS_NN_OPTIMIZER_NODES_H

#include "nn/optimizer_spec.h"

/* A variable that is updated, and what its update makes. */
typedef struct ls_update_nodes {
    ls_tensor *variable, *gradient, *slot[2];
    ls_tensor *rate, *step; /* scalars of the variable's type; step from 1 */
    double weight_decay;
    ls_tensor *new_slot[2]; /* output; NULL: the rule writes the slot */
    ls_tensor *direction;   /* output: w -= rate * direction */
} ls_update_nodes;

/* Whether Newton-Schulz updates the variable; AdamW updates the others. */
bool ls_muon_takes(const ls_recipe *r, const ls_tensor *variable);

void ls_lamb_nodes(const ls_recipe *r, ls_update_nodes *u);
void ls_muon_nodes(const ls_recipe *r, ls_update_nodes *u);
void ls_ftrl_nodes(const ls_recipe *r, ls_update_nodes *u);

/* Returns whether a comma-separated list has a part of the name. */
bool ls_has_part_of(const char *list, const char *name);

#endif
