/* A map: which device does each piece of work, and which device owns each part of a join. A
 * strategy decides nothing else. Kinds, kernels, fusion, natural segments and micro-batches are
 * decided before the map is asked, so it cannot change any bits. It may cut a natural segment
 * between groups, on any kind of device.
 *
 * The default rule: the participating devices of a kind, in order, form *replicas* of `stages`
 * *stages* each. Lanes are divided among replicas, groups among stages (stages.c). A single device
 * is one replica of one stage; mirrored devices are replicas of one stage; a model that is split
 * over devices is one replica with many stages. */
#ifndef LS_PLAN_MAP_H
#define LS_PLAN_MAP_H

#include "device/context.h"
#include "graph/node.h"

#define LS_ANY_KIND (-1)

/* A piece of work, as a map sees it. */
typedef struct ls_task_map_point {
    int kind;        /* Kind of device that it needs; LS_ANY_KIND: any kind that the map names. */
    int asked;       /* Device that a scope or a layer requested; LS_ANY_DEVICE: none. */
    int segment;     /* The natural segment; -1: work on whole values. */
    int group;       /* Index of the group in the plan, which is the order of work. */
    int stage;       /* Stage of the map. */
    int lane, lanes; /* -1, 0: work on whole values. */
} ls_task_map_point;

/* Which devices join partials that several devices have computed. */
typedef enum ls_owners {
    LS_OWNERS_ALL, /* Each device joins a part. */
    /* Neighbours join in pairs, then their results; the first device ends up with everything. */
    LS_OWNERS_PAIRS,
    LS_OWNERS_FIRST, /* The first device joins everything. */
} ls_owners;

typedef struct ls_task_map ls_task_map;
struct ls_task_map {
    /* Participating devices. For kinds that are not among them, all devices participate. */
    const int *devices;
    int count;         /* 0: all devices. */
    int stages;        /* 0 means 1. */
    const int *shares; /* By replica: share of the lanes; NULL: equal shares. */
    int share_count;
    ls_owners owners;
    /* Variables are updated only on the first device of their kind and copied from it to the
     * others. */
    bool first_updates;
    /* The lane that has progressed least goes first: all lanes go forward before any goes back. */
    bool fills;
    /* Returns the device of a piece of work; LS_ANY_DEVICE: use the default rule. NULL: always the
     * default rule. */
    int (*device)(const ls_task_map *map, const ls_task_map_point *at);
    /* Returns which of the `count` devices that made a join's partials joins part `part` of
     * `count`. NULL: as `owners` specifies. */
    int (*owner)(const ls_task_map *map, const int *makers, int count, int part);
    void *user;
};

/* Returns the device of a piece of work. LS_ANY_DEVICE, for whole values: each device of the kind
 * computes it for itself. */
ls_status ls_task_map_device(const ls_task_map *map, const ls_context *ctx, const ls_task_map_point *at, int *out);

int ls_task_map_owner(const ls_task_map *map, const int *makers, int count, int part);

/* Returns the number of participating devices of a kind (LS_ANY_KIND: of all that are named), and
 * their indices in order in `out`, which has room for all devices (NULL: only counts). */
int ls_task_map_devices(const ls_task_map *map, const ls_context *ctx, int kind, int *out);

/* Returns whether a device participates. */
bool ls_task_map_takes_part(const ls_task_map *map, const ls_context *ctx, int device);

/* Returns the replica that runs a lane. */
int ls_task_map_replica(const ls_task_map *map, int replicas, int lane, int lanes);

/* Returns the kinds of the named devices as bits; 0: no device is named. */
unsigned ls_task_map_kinds(const ls_task_map *map, const ls_context *ctx);

/* Returns whether devices of several kinds are named. */
bool ls_task_map_is_mixed(const ls_task_map *map, const ls_context *ctx);

bool ls_task_map_equal(const ls_task_map *a, const ls_task_map *b);

#endif
