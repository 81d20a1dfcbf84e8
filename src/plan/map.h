/* A map: which device does each piece of work, and which device owns each part of a join. That is all a strategy is.
 * Kinds, kernels, fusion, natural segments and micro-batches are decided before a map is asked, so it can change no
 * bit; it may cut a natural segment between groups, on any kind of device.
 *
 * The rule: the devices of a kind that take part are *replicas* of so many *stages*, in order. Lanes are dealt to
 * replicas, groups to stages (stages.c). One device is one replica of one stage; mirrored devices are replicas of one
 * stage; a model that is cut over devices is one replica of many. */
#ifndef LS_PLAN_MAP_H
#define LS_PLAN_MAP_H

#include "device/context.h"
#include "graph/node.h"

#define LS_ANY_KIND (-1)

/* A piece of work, as a map sees it. */
typedef struct ls_task_map_point {
    int kind;        /* of device that it is for; LS_ANY_KIND: every one that the map names */
    int asked;       /* the device that a scope or a layer asked for; LS_ANY_DEVICE: none */
    int segment;     /* the natural segment; -1: work on whole values */
    int group;       /* the group's number in the plan: work is in this order */
    int stage;       /* of the map's stages */
    int lane, lanes; /* -1, 0: work on whole values */
} ls_task_map_point;

/* Who joins what several devices have made. */
typedef enum ls_owners {
    LS_OWNERS_ALL,   /* each a part */
    LS_OWNERS_PAIRS, /* neighbours by twos, then their results; the first has all in the end */
    LS_OWNERS_FIRST, /* the first of them everything */
} ls_owners;

typedef struct ls_task_map ls_task_map;
struct ls_task_map {
    const int *devices; /* that take part; kinds that none of them is of take part with all of theirs */
    int count;          /* 0: all devices */
    int stages;         /* 0: 1 */
    const int *shares;  /* by replica: of the lanes; NULL: even ones */
    int share_count;
    ls_owners owners;
    bool
        first_updates; /* variables are updated on the first device of their kind alone, and go to the others from it */
    bool fills;        /* lanes that are least far go first: all are in flight, and go back last */
    /* The device of a piece of work, or LS_ANY_DEVICE for the rule. NULL: always the rule. */
    int (*device)(const ls_task_map *map, const ls_task_map_point *at);
    /* Which of the devices that made a join's partials joins part `part` of as many parts; NULL: as `owners` says. */
    int (*owner)(const ls_task_map *map, const int *makers, int count, int part);
    void *user;
};

/* The device of a piece of work; of whole values LS_ANY_DEVICE where each device of the kind does it for itself. */
ls_status ls_task_map_device(const ls_task_map *map, const ls_context *ctx, const ls_task_map_point *at, int *out);

int ls_task_map_owner(const ls_task_map *map, const int *makers, int count, int part);

/* The devices of a kind (LS_ANY_KIND: of all that are named) that take part, in order; `out` has room for all devices
 * (NULL: they are only counted). */
int ls_task_map_devices(const ls_task_map *map, const ls_context *ctx, int kind, int *out);

/* Whether a device is one of them. */
bool ls_task_map_takes_part(const ls_task_map *map, const ls_context *ctx, int device);

/* Which replica has a lane. */
int ls_task_map_replica(const ls_task_map *map, int replicas, int lane, int lanes);

/* Kinds of which devices are named, by bit; 0: none is. */
unsigned ls_task_map_kinds(const ls_task_map *map, const ls_context *ctx);

/* Whether devices of several kinds are named. */
bool ls_task_map_is_mixed(const ls_task_map *map, const ls_context *ctx);

bool ls_task_map_equal(const ls_task_map *a, const ls_task_map *b);

#endif
