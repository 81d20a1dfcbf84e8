/* State of a graph on one device that is not a CPU: variables and slots as ranges of a flat vector.
 * A run reads one vector and writes another, so a failed run changes nothing. Each vector records
 * the versions of its variables. Before a run, outdated values are copied from the other vector,
 * another device or the host; a steady training step copies none. */
#ifndef LS_RUN_STATE_H
#define LS_RUN_STATE_H

#include "device/context.h"
#include "graph/node.h"

typedef struct ls_state ls_state;

ls_status ls_state_create(ls_graph *graph, int device, ls_state **out);
void ls_state_destroy(ls_state *state);

/* Forgets variables from this number on, which no longer exist. */
void ls_state_trim(ls_state *state, size_t variables);

/* ls_state_growth: additional bytes that these variables need; ls_state_add allocates them. */
size_t ls_state_growth(const ls_state *state, ls_variable *const *variables, int count);
ls_status ls_state_add(ls_state *state, ls_variable *const *variables, int count);
size_t ls_state_offset(const ls_state *state, const ls_variable *variable);

/* Before a run: brings the newest values; the run will write the first `written`. `others`: the
 * states of all devices. / */
ls_status ls_state_bring(ls_state *state, ls_state *const *others, ls_variable *const *variables, int count,
                         int written);

/* The vector that the current run reads, and the one it writes. */
ls_memory_place ls_state_read(const ls_state *state);
ls_memory_place ls_state_written(const ls_state *state);

/* Records that the run has written the variable. */
void ls_state_commit(ls_state *state, const ls_variable *variable);

/* ls_state_has: this device has the newest value. Only then: ls_state_get copies it to `data`;
 * ls_state_download makes it the host's current value. */
bool ls_state_has(const ls_state *state, const ls_variable *variable);
ls_status ls_state_get(ls_state *state, const ls_variable *variable, void *data);
ls_status ls_state_download(ls_state *state, ls_variable *variable);

#endif
