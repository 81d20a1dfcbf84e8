/* What the files of this layer share. */
#ifndef LS_RUN_RUN_H
#define LS_RUN_RUN_H

#include "graph/node.h"

/* Makes sure that the tensor holds a value. Not for variables: they hold none. */
ls_status ls_run_eagerly(ls_tensor *tensor);

#endif
