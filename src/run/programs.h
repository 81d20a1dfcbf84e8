/* Programs for a device that is not a CPU: a segment, a whole step or all updates, as its backend sees them. */
#ifndef LS_RUN_PROGRAMS_H
#define LS_RUN_PROGRAMS_H

#include "plan/placement.h"
#include "run/state.h"

typedef struct ls_compiled {
    ls_program program;
    ls_program_step *steps;
    ls_program_slot *slots; /* inputs and states of all steps */
    void *plan;             /* the backend's; NULL: nothing of it runs here */
} ls_compiled;

typedef struct ls_programs {
    const ls_placement *placement;
    ls_device *device;
    const ls_place *place;
    const ls_state *state;
    ls_compiled *segments; /* by segment */
    ls_compiled *wholes;   /* by whole step */
    ls_compiled updates;
    size_t scratch;       /* bytes that the program with most of it needs while it runs */
    const ls_step *needs; /* its step that needs most */
    bool has_scratch;     /* they were taken */
} ls_programs;

/* The first four fields are set. */
ls_status ls_programs_make(ls_programs *p);
void ls_programs_free(ls_programs *p);

/* A backend's message, with the node and the device it was about. */
ls_status ls_programs_explain(const ls_programs *p, const ls_step *step, const char *what, ls_status status);

#endif
