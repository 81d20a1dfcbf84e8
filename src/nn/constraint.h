/* Constraints of variables: what an optimizer does after each update. */
#ifndef LS_NN_CONSTRAINT_H
#define LS_NN_CONSTRAINT_H

#include "graph/node.h"

/* rank: number of axes of the variable; -1: not known yet. */
ls_status ls_check_constraint(const char *name, const ls_constraint *constraint, int rank);

/* Returns the nearest value that the constraint allows; w itself without a constraint. */
ls_tensor *ls_constrain(ls_tensor *w, const ls_constraint *constraint);

#endif
