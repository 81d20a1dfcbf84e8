/* lockstep/cluster.h: several processes, the workers of a cluster, that train one job together.
 *
 * Every worker runs the same program and opens its contexts in the same order; each run is then shared out over all of
 * them, with the bits of one process. Workers that `lockstep launch` or ls_spawn started need no call for that. Workers
 * of one user on one machine meet without any set-up; on several machines they need a key (ls_cluster_make_key) and a
 * place to meet. When a worker is lost the others go on, with the same bits. docs/clusters.md says what is there, and
 * what is not yet. */
#ifndef LOCKSTEP_CLUSTER_H
#define LOCKSTEP_CLUSTER_H

#include "lockstep/base.h"
#include "lockstep/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_CLUSTER 256 /* workers */

typedef struct ls_cluster_options {
    int rank;             /* which worker this process is: 0 to size - 1; worker 0 is the chief */
    int size;             /* how many there are, or can be; 1: this process is alone, whatever the environment says */
    char job[256];        /* a name for the job: the same for all its workers, and used by no other job at that time */
    double join_limit;    /* seconds that workers wait for each other when they begin; 0: 30 */
    double silence_limit; /* seconds without a sign of life after which a worker is given up; 0: 1 */

    /* Of workers on several machines; all "" where all are on this one. */
    char rendezvous[256]; /* "tcp://host:port": worker 0 waits there; "file:///folder": shared, addresses are put there
                           */
    char listen[256]; /* "host:port" at which this worker is called; "": any port of the address that the others see */
    char key_file[256]; /* the job's key, without which nobody is let in: ls_cluster_make_key */
    char transport[16]; /* "shm", "unix", "tcp", "mpi" or "ucx"; "" or "auto": tcp where there is a rendezvous, else
                           shm; ls_cluster_environment says mpi under mpirun, where that can be */

    /* Workers may come, and come back, while ls_fit runs. */
    int begin; /* workers 0 to begin - 1 begin the job; 0: all */
    int least; /* fewer than these wait for others, for join_limit seconds, and then end; 0: any number goes on */

    /* Parameter servers: so many of those that begin, the last ranks. They have no samples to compute: they join what
     * the workers made, a part each, and give it to all, who have the same bits as without them. 0: workers join
     * among themselves. */
    int servers;

    /* TF_CONFIG's "evaluator", with size 1: this process is in no cluster. Its ls_fit trains nothing; it evaluates each
     * checkpoint that appears in .checkpoint, on the validation data, until the one at the end of training. */
    bool evaluator;
} ls_cluster_options;

/* What the environment says: LOCKSTEP_RANK, LOCKSTEP_WORLD_SIZE and LOCKSTEP_RENDEZVOUS (lockstep launch; how many of
 * them are parameter servers is in LOCKSTEP_SERVERS), TF_CONFIG (whose "ps" tasks are the parameter servers),
 * RANK and WORLD_SIZE with MASTER_ADDR and MASTER_PORT (torchrun), OMPI_COMM_WORLD_RANK and _SIZE (mpirun),
 * SLURM_PROCID and SLURM_NTASKS (srun): the first of these that is there. Where none is: rank 0 of 1. For all of them
 * LOCKSTEP_KEY_FILE, LOCKSTEP_LISTEN and LOCKSTEP_TRANSPORT count, and a LOCKSTEP_RENDEZVOUS that begins with tcp:// or
 * file://. Workers on other machines need the key file: without it LS_ERR_UNSUPPORTED says how to make one. */
LS_API ls_status ls_cluster_environment(ls_cluster_options *out);

/* Makes a key for jobs on several machines: 32 random bytes in a new file that only this user can read. Every worker
 * gets the path of that file, or of a copy of it, in key_file or LOCKSTEP_KEY_FILE. A file that is there is left alone:
 * LS_ERR_STATE. `lockstep key FILE` is this call. */
LS_API ls_status ls_cluster_make_key(const char *path);

/* Before the context is opened: it will be one of a cluster. Workers meet when it is opened, which fails when one does
 * not come, or has another version or bit class. options NULL: as ls_cluster_environment says. Without this call
 * LOCKSTEP_RANK and its companions count, and other variables do not. */
LS_API ls_status ls_cluster_join(ls_context *ctx, const ls_cluster_options *options);

/* 0 and 1 in a context that is in no cluster. */
LS_API int ls_cluster_rank(const ls_context *ctx);
LS_API int ls_cluster_size(const ls_context *ctx);

/* How many of these are parameter servers, and whether this process is one. */
LS_API int ls_cluster_servers(const ls_context *ctx);
LS_API bool ls_is_server(const ls_context *ctx);
/* Whether this process follows the checkpoints of others: see ls_cluster_options. */
LS_API bool ls_is_evaluator(const ls_context *ctx);

/* Whether this is the worker that prints, logs and saves: the lowest rank of those that are left. So it is worker 0,
 * and becomes another one when that is lost, also while ls_fit runs. True in a context that is in no cluster. */
LS_API bool ls_is_chief(const ls_context *ctx);

/* Calls of all workers, in the same order on each. A worker that makes another call, or with another number of bytes,
 * is an error on all, never a wait. `what` is for messages; NULL: the name of the call. */

/* Returns when all have come. */
LS_API ls_status ls_cluster_barrier(ls_context *ctx, const char *what);
/* The bytes of worker `from` come to all. */
LS_API ls_status ls_cluster_broadcast(ls_context *ctx, const char *what, int from, void *data, size_t bytes);
/* `bytes` of each worker come to all: `out` has room for ls_cluster_size() times as many, in the order of ranks. Those
 * of a worker that is not there are zero. */
LS_API ls_status ls_cluster_gather(ls_context *ctx, const char *what, const void *data, size_t bytes, void *out);

/* Runs function(rank, count, user) in `count` new processes, which are the workers of a cluster, and waits for them.
 * Their contexts join it by themselves. The first that fails is told, with its rank and message, and ends the others.
 * It forks: LS_ERR_STATE when this process has opened a context or started a thread before. */
typedef ls_status (*ls_worker_function)(int rank, int count, void *user);
LS_API ls_status ls_spawn(int count, ls_worker_function function, void *user);

#ifdef __cplusplus
}
#endif
#endif
