/* The state of a graph on one device that is not a CPU: variables and optimizer slots as parts of a flat vector. There
 * are two vectors: a run reads the one and writes the other, so that a run that fails has changed nothing. Each knows
 * which version of a variable it has; what is not the newest is brought before a run, from the other vector, from
 * another device, or from the host. In a steady training step nothing is. */
#ifndef LS_RUN_STATE_H
#define LS_RUN_STATE_H

#include "device/context.h"
#include "graph/node.h"

typedef struct ls_state ls_state;

ls_status ls_state_create(ls_graph *graph, int device, ls_state **out);
void ls_state_destroy(ls_state *state);

/* Variables with this number or a higher one are gone. */
void ls_state_trim(ls_state *state, size_t variables);

/* Bytes that room for these would take beside what there is; and room for them. */
size_t ls_state_growth(const ls_state *state, ls_variable *const *variables, int count);
ls_status ls_state_add(ls_state *state, ls_variable *const *variables, int count);
size_t ls_state_offset(const ls_state *state, const ls_variable *variable);

/* Before a run: the newest values of these, the first `written` of which it will write; they have come when this
 * returns. others: the states of all devices. */
ls_status ls_state_bring(ls_state *state, ls_state *const *others, ls_variable *const *variables, int count,
                         int written);

/* The vector that the run at hand reads, and the one it writes. */
ls_memory_place ls_state_read(const ls_state *state);
ls_memory_place ls_state_written(const ls_state *state);

/* The run has written the newest version. */
void ls_state_commit(ls_state *state, const ls_variable *variable);

/* Whether this device has the newest value. Then: a copy of it to `data`; and the same as the host's own. */
bool ls_state_has(const ls_state *state, const ls_variable *variable);
ls_status ls_state_get(ls_state *state, const ls_variable *variable, void *data);
ls_status ls_state_download(ls_state *state, ls_variable *variable);

#endif
