/* A map: which device does each piece of work, and which owns each part of a join. A strategy
 * decides nothing else. Kinds, kernels, fusion, natural segments and micro-batches are decided
 * before, so a map cannot change any bits. It may cut a natural segment between groups.
 *
 * The default rule: the participating devices of a kind, in order, form *replicas* of `stages`
 * *stages* each. Lanes are divided among replicas, groups among stages (stages.c). */
#ifndef LS_PLAN_MAP_H
#define LS_PLAN_MAP_H

#include "device/context.h"
#include "graph/node.h"

#define LS_ANY_KIND (-1)

/* A piece of work, as a map sees it. */
typedef struct ls_task_map_point {
    int kind;    /* LS_ANY_KIND: any kind that the map names. */
    int asked;   /* Requested by a scope or a layer; LS_ANY_DEVICE: none. */
    int segment; /* The natural segment; -1: work on whole values. */
    int group;   /* Index in the plan, which is the order of work. */
    int stage;
    int lane, lanes; /* -1, 0: work on whole values. */
} ls_task_map_point;

/* Which devices join partials that several devices have computed. */
typedef enum ls_owners {
    LS_OWNERS_ALL, /* Each device joins a part. */
    /* Neighbours join in pairs, then their results, until the first device has everything. */
    LS_OWNERS_PAIRS,
    LS_OWNERS_FIRST, /* The first device joins everything. */
} ls_owners;

typedef struct ls_task_map ls_task_map;
struct ls_task_map {
    /* Participating devices; for other kinds, all devices participate. */
    const int *devices;
    int count;         /* 0: all devices. */
    int stages;        /* 0 means 1. */
    const int *shares; /* By replica: share of the lanes; NULL: equal shares. */
    int share_count;
    ls_owners owners;
    /* Only the first device of a kind updates variables; the others copy them. */
    bool first_updates;
    /* The lane that is least far goes first: all go forward before any goes back. */
    bool fills;
    /* LS_ANY_DEVICE, or a NULL function: the default rule. */
    int (*device)(const ls_task_map *map, const ls_task_map_point *at);
    /* Returns which of the `count` devices that made a join's partials joins part `part`. NULL: as
     * `owners` says. */
    int (*owner)(const ls_task_map *map, const int *makers, int count, int part);
    void *user;
};

/* *out LS_ANY_DEVICE, for whole values: each device of the kind computes it. */
ls_status ls_task_map_device(const ls_task_map *map, const ls_context *ctx, const ls_task_map_point *at, int *out);

int ls_task_map_owner(const ls_task_map *map, const int *makers, int count, int part);

/* Returns the number of participating devices of a kind (LS_ANY_KIND: of all named ones); `out`
 * gets their indices and has room for all devices (NULL: only counts). */
int ls_task_map_devices(const ls_task_map *map, const ls_context *ctx, int kind, int *out);

bool ls_task_map_takes_part(const ls_task_map *map, const ls_context *ctx, int device);

int ls_task_map_replica(const ls_task_map *map, int replicas, int lane, int lanes);

/* Returns the kinds of the named devices as bits; 0: none is named. */
unsigned ls_task_map_kinds(const ls_task_map *map, const ls_context *ctx);

bool ls_task_map_is_mixed(const ls_task_map *map, const ls_context *ctx);

bool ls_task_map_equal(const ls_task_map *a, const ls_task_map *b);

#endif
