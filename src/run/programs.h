/* Programs for a device that is not a CPU: a segment, a whole step, or all updates. */
#ifndef LS_RUN_PROGRAMS_H
#define LS_RUN_PROGRAMS_H

#include "plan/placement.h"
#include "run/state.h"

typedef struct ls_compiled {
    ls_program program;
    ls_program_step *steps;
    ls_program_slot *slots; /* Inputs and states of all steps. */
    void *plan;             /* Owned by the backend; NULL: none of it runs here. */
} ls_compiled;

typedef struct ls_programs {
    const ls_placement *placement;
    ls_device *device;
    const ls_place *place;
    const ls_state *state;
    ls_compiled *segments; /* By segment. */
    ls_compiled *wholes;   /* By whole step. */
    ls_compiled updates;
    size_t scratch;       /* Largest scratch of any program, in bytes. */
    const ls_step *needs; /* The step that needs that scratch. */
    bool has_scratch;     /* The backend has allocated the scratch. */
} ls_programs;

/* The caller sets the first four fields. */
ls_status ls_programs_make(ls_programs *p);
void ls_programs_free(ls_programs *p);

/* Adds the node and the device to a backend's error message. */
ls_status ls_programs_explain(const ls_programs *p, const ls_step *step, const char *what, ls_status status);

#endif
