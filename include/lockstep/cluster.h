/* lockstep/cluster.h: training one job in several processes, the workers of a cluster.
 *
 * Every worker runs the same program and opens its contexts in the same order. Workers
 * share each run and get the same bits as one process. Workers that `lockstep launch` or
 * ls_spawn starts join without a call. Workers of one user on one machine need no setup;
 * workers on several machines need a key (ls_cluster_make_key) and a rendezvous address.
 * When a worker is lost the others continue, with the same bits. See docs/clusters.md for
 * details and limitations. */
#ifndef LOCKSTEP_CLUSTER_H
#define LOCKSTEP_CLUSTER_H

#include "lockstep/base.h"
#include "lockstep/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_CLUSTER 256 /* maximum number of workers */

typedef struct ls_cluster_options {
    int rank; /* Rank of this worker, from 0 to size - 1. Worker 0 is the chief. */
    /* Number of workers, or their maximum with `begin`. 1: no cluster, even if
     * the environment has one. */
    int size;
    /* Name of the job: the same for all its workers, and unique among the jobs that run. */
    char job[256];
    double join_limit; /* Seconds that workers wait for each other at the start; 0: 30. */
    /* Seconds without a heartbeat after which a worker counts as lost; 0: 1. */
    double silence_limit;

    /* For workers on several machines: rendezvous, listen and key_file. Leave them "" if all
     * workers are on this machine. */

    /* "tcp://host:port", where worker 0 listens, or "file:///folder", a
     * shared folder for addresses. */
    char rendezvous[256];
    /* "host:port" at which this worker listens; "": any free port of the
     * address that others see. */
    char listen[256];
    /* File with the job's key, which workers on other machines need (ls_cluster_make_key). */
    char key_file[256];
    /* "shm", "unix", "tcp", "mpi" or "ucx". "" or "auto": tcp if `rendezvous` is set, otherwise
     * shm. Under Open MPI's mpirun, ls_cluster_environment sets "mpi" if MPI is available. */
    char transport[16];

    /* Number of workers, ranks 0 to begin - 1, that start the job;
     * others may join later. 0: all. */
    int begin;
    /* Minimum number of workers. With fewer, the job waits join_limit seconds for others and
     * then ends. 0: any number continues. */
    int least;

    /* Number of parameter servers among the workers that start: the last ranks. A server
     * computes no samples. Each server reduces its share of the workers' results and sends it to
     * all; the bits do not change. 0: the workers reduce among themselves. */
    int servers;

    /* Makes this process an evaluator (TF_CONFIG's "evaluator"; needs size 1, no cluster). Its
     * ls_fit does not train: it evaluates each new checkpoint in .checkpoint on the validation
     * data, until the final one. */
    bool evaluator;
} ls_cluster_options;

/* Reads the cluster from the environment: the variables of Lockstep (LOCKSTEP_RANK, ...),
 * TF_CONFIG, torchrun or Kubernetes, mpirun, srun or PMI, the first that is set (docs/clusters.md
 * lists them). LOCKSTEP_KEY_FILE, _LISTEN, _TRANSPORT and _SERVERS apply to all of these. If none
 * is set: rank 0, size 1. Returns LS_ERR_UNSUPPORTED if workers on other machines have no key
 * file. */
LS_API ls_status ls_cluster_environment(ls_cluster_options *out);

/* Creates a key for jobs on several machines: a new file of 32 random bytes that only
 * this user can read. Every worker gets the path of the file, or of a copy, in
 * key_file or LOCKSTEP_KEY_FILE. Returns LS_ERR_STATE if the file exists. `lockstep
 * key FILE` makes this call. */
LS_API ls_status ls_cluster_make_key(const char *path);

/* Makes a context that is not open yet part of a cluster. Opening it then waits for the other
 * workers, and fails if one does not arrive or has another version or bit class. options NULL:
 * uses ls_cluster_environment. Without this call only the LOCKSTEP_ variables count. */
LS_API ls_status ls_cluster_join(ls_context *ctx, const ls_cluster_options *options);

/* Return the rank of this worker and the number of workers; rank 0, size 1 without a cluster. */
LS_API int ls_cluster_rank(const ls_context *ctx);
LS_API int ls_cluster_size(const ls_context *ctx);

/* Return the number of parameter servers, and whether this process is one. */
LS_API int ls_cluster_servers(const ls_context *ctx);
LS_API bool ls_is_server(const ls_context *ctx);
/* Returns whether this process is an evaluator (see ls_cluster_options). */
LS_API bool ls_is_evaluator(const ls_context *ctx);

/* Returns whether this worker is the chief, which prints, logs and saves: the lowest
 * remaining rank, at first worker 0. Another worker can become chief while ls_fit
 * runs. True without a cluster. */
LS_API bool ls_is_chief(const ls_context *ctx);

/* Collective calls: all workers make the same calls in the same order. If a worker makes another
 * call, or passes another number of bytes, all workers get an error instead of waiting. `what`
 * appears in messages; NULL: the name of the call. */

/* Waits until all workers have made this call. */
LS_API ls_status ls_cluster_barrier(ls_context *ctx, const char *what);
/* Copies the bytes of worker `from` to all workers. */
LS_API ls_status ls_cluster_broadcast(ls_context *ctx, const char *what, int from, void *data, size_t bytes);
/* Copies `bytes` bytes of each worker to all workers. The caller provides `out` with room for
 * ls_cluster_size() times `bytes`, in order of rank. The bytes of a missing worker are zero. */
LS_API ls_status ls_cluster_gather(ls_context *ctx, const char *what, const void *data, size_t bytes, void *out);

/* Runs function(rank, count, user) in `count` forked processes, the workers of a cluster, and
 * waits for them. Their contexts join without a call. If a worker fails, the error has its rank
 * and message, and the other workers are ended. Returns LS_ERR_STATE if this process has opened
 * a context or started a thread before. */
typedef ls_status (*ls_worker_function)(int rank, int count, void *user);
LS_API ls_status ls_spawn(int count, ls_worker_function function, void *user);

#ifdef __cplusplus
}
#endif
#endif
