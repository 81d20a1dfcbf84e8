/* A map: which device does each piece of work, and which device owns each part of a join. That is all a strategy is.
 * Kinds, kernels, fusion, natural segments and micro-batches are decided before a map is asked, so it can change no
 * bit; it may cut a natural segment between groups, on any kind of device. */
#ifndef LS_PLAN_MAP_H
#define LS_PLAN_MAP_H

#include "device/context.h"
#include "graph/node.h"

/* A piece of work, as a map sees it. */
typedef struct ls_map_point {
    int kind;        /* of device that it is for */
    int asked;       /* the device that a scope or a layer asked for; LS_ANY_DEVICE: none */
    int segment;     /* the natural segment; -1: work on whole values */
    int group;       /* the group's number in the plan: work is in this order */
    int lane, lanes; /* -1, 0: work on whole values */
} ls_map_point;

typedef struct ls_map ls_map;
struct ls_map {
    const int *devices; /* that take part; kinds that none of them is of take part with all of theirs */
    int count;          /* 0: all devices */
    /* The device of a piece of work, or LS_ANY_DEVICE for the rule: what was asked for, otherwise the devices of its
     * kind share the lanes evenly. NULL: always the rule. */
    int (*device)(const ls_map *map, const ls_map_point *at);
    /* Which of the devices that made a join's partials joins part `part` of as many parts; NULL: makers[part]. */
    int (*owner)(const ls_map *map, const int *makers, int count, int part);
    void *user;
};

/* The device of a piece of work; of whole values LS_ANY_DEVICE where each device of the kind does it for itself. */
ls_status ls_map_device(const ls_map *map, const ls_context *ctx, const ls_map_point *at, int *out);

int ls_map_owner(const ls_map *map, const int *makers, int count, int part);

/* The devices of a kind that take part, in order; `out` has room for all devices. */
int ls_map_devices(const ls_map *map, const ls_context *ctx, int kind, int *out);

/* Kinds of which devices are named, by bit; 0: none is. */
unsigned ls_map_kinds(const ls_map *map, const ls_context *ctx);

#endif
