/* What the environment says about a cluster: our own variables, and those of programs that start workers of others. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"
#include "base/numbers.h"
#include "base/sha256.h"
#include "base/text.h"
#include "fabric/cluster.h"

#define NOT_YET                                                                                                        \
    "workers on other machines are not there yet: all workers of a job are processes of one machine "                  \
    "(docs/clusters.md)"

/* ---- Reading variables ---- */

static const char *get(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* One that must be there because its companion is. */
static ls_status need(const char *name, const char *companion, const char **out)
{
    *out = get(name);
    return *out ? LS_OK : ls_fail(LS_ERR_INVALID, "%s is set, but %s is not", companion, name);
}

static ls_status read_int(const char *name, const char *text, int64_t least, int64_t most, int *out)
{
    int64_t value;
    if (!ls_parse_i64(text, &value) || value < least || value > most)
        return ls_fail(LS_ERR_INVALID, "%s=%s: expected a whole number from %lld to %lld", name, text, (long long)least,
                       (long long)most);
    *out = (int)value;
    return LS_OK;
}

static ls_status read_rank_and_size(const char *rank, const char *size, ls_cluster_options *out)
{
    const char *rank_text, *size_text;
    LS_TRY(need(rank, size, &rank_text));
    LS_TRY(need(size, rank, &size_text));
    LS_TRY(read_int(size, size_text, 1, LS_MAX_CLUSTER, &out->size));
    return read_int(rank, rank_text, 0, out->size - 1, &out->rank);
}

static ls_status read_seconds(const char *name, double *out)
{
    const char *text = get(name);
    double value;
    *out = 0;
    if (!text)
        return LS_OK;
    if (!ls_parse_f64(text, &value) || !(value > 0 && value <= 1e6))
        return ls_fail(LS_ERR_INVALID, "%s=%s: expected seconds above 0", name, text);
    *out = value;
    return LS_OK;
}

/* Limits are set by our own variables, whoever started the workers. */
static ls_status read_limits(ls_cluster_options *out)
{
    LS_TRY(read_seconds("LOCKSTEP_JOIN_LIMIT", &out->join_limit));
    return read_seconds("LOCKSTEP_SILENCE_LIMIT", &out->silence_limit);
}

/* A name for the job that is too long is told by its end, which the hash at the door would hide. */
static ls_status set_job(ls_cluster_options *out, const char *variable, const char *job)
{
    if (strlen(job) >= sizeof(out->job))
        return ls_fail(LS_ERR_INVALID, "%s: a job's name of %zu characters; %zu are possible", variable, strlen(job),
                       sizeof(out->job) - 1);
    snprintf(out->job, sizeof(out->job), "%s", job);
    return LS_OK;
}

/* Somebody else's count of the workers on this machine must be all of them. */
static ls_status need_one_machine(const char *name, int all)
{
    const char *text = get(name);
    int here;
    if (!text)
        return LS_OK;
    LS_TRY(read_int(name, text, 1, LS_MAX_CLUSTER, &here));
    return here == all ? LS_OK : ls_fail(LS_ERR_UNSUPPORTED, "%s=%d of %d workers: " NOT_YET, name, here, all);
}

/* ---- Addresses ---- */

/* An address is this machine's when a socket can be bound to it. */
static bool can_bind(const struct addrinfo *address)
{
    struct sockaddr_storage any;
    memcpy(&any, address->ai_addr, address->ai_addrlen);
    if (any.ss_family == AF_INET)
        ((struct sockaddr_in *)&any)->sin_port = 0;
    else if (any.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&any)->sin6_port = 0;
    int fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&any, address->ai_addrlen) == 0;
    if (fd >= 0)
        close(fd);
    return bound;
}

static ls_status need_this_machine(const char *variable, const char *host)
{
    char own[256] = "";
    if (strcasecmp(host, "localhost") == 0 || (gethostname(own, sizeof(own) - 1) == 0 && strcasecmp(host, own) == 0))
        return LS_OK;
    struct addrinfo hints = { .ai_socktype = SOCK_DGRAM }, *list = NULL;
    int error = getaddrinfo(host, NULL, &hints, &list);
    if (error != 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: the address of %s is not known (%s), and " NOT_YET, variable, host,
                       gai_strerror(error));
    bool here = false;
    for (const struct addrinfo *a = list; a && !here; a = a->ai_next)
        here = can_bind(a);
    freeaddrinfo(list);
    return here ? LS_OK : ls_fail(LS_ERR_UNSUPPORTED, "%s: %s is not this machine, and " NOT_YET, variable, host);
}

/* ---- lockstep launch and ls_spawn ---- */

ls_status ls_cluster_own_environment(ls_cluster_options *out)
{
    const char *job;
    *out = (ls_cluster_options){ .size = 1 };
    if (!get(LS_RANK_VARIABLE) && !get(LS_WORLD_SIZE_VARIABLE) && !get(LS_RENDEZVOUS_VARIABLE))
        return LS_OK;
    LS_TRY(read_rank_and_size(LS_RANK_VARIABLE, LS_WORLD_SIZE_VARIABLE, out));
    LS_TRY(need(LS_RENDEZVOUS_VARIABLE, LS_RANK_VARIABLE, &job));
    LS_TRY(set_job(out, LS_RENDEZVOUS_VARIABLE, job));
    return read_limits(out);
}

/* ---- torchrun, and what has its variables ---- */

/* An indexed Job of Kubernetes has its index in place of a rank; the rest is written into its pods. */
static ls_status read_torchrun(ls_cluster_options *out)
{
    const char *host, *port;
    char job[sizeof(out->job) + 256];
    int number;
    LS_TRY(read_rank_and_size(get("RANK") ? "RANK" : "JOB_COMPLETION_INDEX", "WORLD_SIZE", out));
    LS_TRY(need("MASTER_ADDR", "WORLD_SIZE", &host));
    LS_TRY(need("MASTER_PORT", "WORLD_SIZE", &port));
    LS_TRY(read_int("MASTER_PORT", port, 0, 65535, &number));
    LS_TRY(need_one_machine("LOCAL_WORLD_SIZE", out->size));
    LS_TRY(need_this_machine("MASTER_ADDR", host));
    const char *run = get("TORCHELASTIC_RUN_ID"), *restart = get("TORCHELASTIC_RESTART_COUNT");
    snprintf(job, sizeof(job), "torchrun/%.255s:%d/%.128s/%.16s", host, number, run ? run : "", restart ? restart : "");
    return set_job(out, "MASTER_ADDR", job);
}

/* ---- TF_CONFIG ---- */

/* "host:port"; a port must be there. */
static ls_status check_address(const ls_json_at *at, const char **out)
{
    char host[256];
    int64_t port;
    LS_TRY(ls_json_string(at, out));
    const char *colon = strrchr(*out, ':');
    if (!colon || colon == *out || (size_t)(colon - *out) >= sizeof(host) || !ls_parse_i64(colon + 1, &port) ||
        port < 0 || port > 65535)
        return ls_json_fail(at, LS_ERR_INVALID, "expected an address as in \"host:2222\", found \"%s\"", *out);
    bool brackets = **out == '[' && colon[-1] == ']';
    snprintf(host, sizeof(host), "%.*s", (int)(colon - *out) - 2 * brackets, *out + brackets);
    return need_this_machine("TF_CONFIG", host);
}

/* The addresses of a kind of task; they are also what the job is named by. */
static ls_status count_tasks(const ls_json_at *cluster, const char *type, int *count, ls_text *job)
{
    ls_json_at list, element;
    const char *address;
    *count = 0;
    if (!ls_json_find(cluster, type, &list))
        return LS_OK;
    LS_TRY(ls_json_is_array(&list));
    for (size_t i = 0; i < ls_json_count(&list); i++) {
        LS_TRY(ls_json_element(&list, i, &element));
        LS_TRY(check_address(&element, &address));
        ls_text_add(job, "/%s", address);
    }
    if (ls_json_count(&list) > LS_MAX_CLUSTER)
        return ls_json_fail(&list, LS_ERR_INVALID, "%zu workers; up to %d are possible", ls_json_count(&list),
                            LS_MAX_CLUSTER);
    *count = (int)ls_json_count(&list);
    return LS_OK;
}

/* Parameter servers and evaluators may be listed; they take no part, and have no use for a context that joins. */
static ls_status refuse_task(const ls_json_at *at, const char *type)
{
    return strcmp(type, "ps") == 0
               ? ls_json_fail(at, LS_ERR_UNSUPPORTED,
                              "this process is a parameter server (\"ps\"), and there are none here: all workers have "
                              "the whole state, and go on without it")
               : ls_json_fail(at, LS_ERR_UNSUPPORTED,
                              "this process is an \"evaluator\", which is no part of the cluster: evaluate checkpoints "
                              "there in a process of its own, without TF_CONFIG");
}

/* The chief is rank 0; without one, the first worker is. */
static ls_status read_task(const ls_json_at *root, int chiefs, int workers, ls_cluster_options *out)
{
    static const char *const known[] = { "type", "index", "trial" };
    const char *type;
    int64_t index;
    ls_json_at task, at;
    LS_TRY(ls_json_get_object(root, "task", &task));
    LS_TRY(ls_json_known_keys(&task, known, 3));
    LS_TRY(ls_json_get(&task, "type", &at));
    LS_TRY(ls_json_string(&at, &type));
    bool chief = strcmp(type, "chief") == 0 || strcmp(type, "master") == 0;
    if (strcmp(type, "ps") == 0 || strcmp(type, "evaluator") == 0)
        return refuse_task(&at, type);
    if (!chief && strcmp(type, "worker") != 0)
        return ls_json_fail(&at, LS_ERR_INVALID, "expected \"chief\" or \"worker\", found \"%s\"", type);
    LS_TRY(ls_json_get(&task, "index", &at));
    LS_TRY(ls_json_i64(&at, &index));
    int count = chief ? chiefs : workers;
    if (index < 0 || index >= count)
        return ls_json_fail(&at, LS_ERR_INVALID, "%lld, but the cluster has %d of type \"%s\"", (long long)index, count,
                            type);
    out->rank = (int)index + (chief ? 0 : chiefs);
    out->size = chiefs + workers;
    return out->size <= LS_MAX_CLUSTER
               ? LS_OK
               : ls_json_fail(root, LS_ERR_INVALID, "%d workers; up to %d are possible", out->size, LS_MAX_CLUSTER);
}

static ls_status read_tf_root(const ls_json_at *root, ls_cluster_options *out, ls_text *job)
{
    static const char *const known[] = { "cluster", "task", "environment", "rpc_layer", "job" };
    static const char *const types[] = { "chief", "master", "worker", "ps", "evaluator" };
    ls_json_at cluster;
    int chiefs, masters, workers;
    LS_TRY(ls_json_is_object(root));
    LS_TRY(ls_json_known_keys(root, known, 5));
    LS_TRY(ls_json_get_object(root, "cluster", &cluster));
    LS_TRY(ls_json_known_keys(&cluster, types, 5));
    LS_TRY(count_tasks(&cluster, "chief", &chiefs, job));
    LS_TRY(count_tasks(&cluster, "master", &masters, job));
    LS_TRY(count_tasks(&cluster, "worker", &workers, job));
    return read_task(root, chiefs + masters, workers, out);
}

static ls_status read_tf_config(const char *text, ls_cluster_options *out)
{
    json_t *value = NULL;
    ls_text job = { 0 };
    LS_TRY(ls_json_read_buffer("TF_CONFIG", text, strlen(text), &value));
    ls_json_at root = ls_json_root(value, "TF_CONFIG");
    ls_text_put(&job, "TF_CONFIG");
    ls_status status = read_tf_root(&root, out, &job);
    char hex[65];
    if (status == LS_OK) /* many addresses are longer than a name may be */
        status = ls_sha256_of(ls_text_get(&job), job.length, hex);
    if (status == LS_OK)
        snprintf(out->job, sizeof(out->job), "TF_CONFIG/%s", hex);
    json_decref(value);
    ls_text_free(&job);
    return status;
}

/* ---- mpirun and srun ---- */

static ls_status read_mpirun(ls_cluster_options *out)
{
    const char *space;
    char job[sizeof(out->job) + 256];
    LS_TRY(read_rank_and_size("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", out));
    LS_TRY(need_one_machine("OMPI_COMM_WORLD_LOCAL_SIZE", out->size));
    LS_TRY(need("PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", &space));
    snprintf(job, sizeof(job), "mpirun/%.300s", space);
    return set_job(out, "PMIX_NAMESPACE", job);
}

/* MPICH, Intel MPI and others that speak PMI have no name for the job in a variable; on one machine the process that
 * started the workers is theirs alone. */
static ls_status read_pmi(ls_cluster_options *out)
{
    const char *id = get("PMI_JOBID");
    char job[sizeof(out->job) + 256];
    LS_TRY(read_rank_and_size("PMI_RANK", "PMI_SIZE", out));
    LS_TRY(need_one_machine("MPI_LOCALNRANKS", out->size));
    snprintf(job, sizeof(job), "pmi/%.300s/%ld", id ? id : "", id ? 0 : (long)getppid());
    return set_job(out, "PMI_JOBID", job);
}

static ls_status read_srun(ls_cluster_options *out)
{
    const char *id, *step = get("SLURM_STEP_ID");
    char job[sizeof(out->job) + 256];
    const char *nodes = get("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
    int count = 1;
    LS_TRY(
        read_rank_and_size("SLURM_PROCID", get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", out));
    LS_TRY(need("SLURM_JOB_ID", "SLURM_PROCID", &id));
    if (!step && out->size > 1)
        return ls_fail(LS_ERR_INVALID,
                       "SLURM_PROCID is set, but SLURM_STEP_ID is not: this is the batch script itself, "
                       "one process; start the workers with srun");
    if (get(nodes))
        LS_TRY(read_int(nodes, get(nodes), 1, INT32_MAX, &count));
    if (count > 1)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s=%d: " NOT_YET, nodes, count);
    snprintf(job, sizeof(job), "srun/%.200s/%.200s", id, step ? step : "");
    return set_job(out, "SLURM_JOB_ID", job);
}

/* ---- The first of all ---- */

static ls_status read_any(ls_cluster_options *out)
{
    LS_TRY(ls_cluster_own_environment(out));
    if (out->job[0])
        return LS_OK;
    if (get("TF_CONFIG"))
        return read_tf_config(get("TF_CONFIG"), out);
    if (get("WORLD_SIZE") && (get("RANK") || get("JOB_COMPLETION_INDEX")))
        return read_torchrun(out);
    if (get("OMPI_COMM_WORLD_RANK"))
        return read_mpirun(out);
    if (get("SLURM_PROCID"))
        return read_srun(out);
    if (get("PMI_RANK") && get("PMI_SIZE"))
        return read_pmi(out);
    if (get("PMIX_RANK"))
        return ls_fail(LS_ERR_UNSUPPORTED, "PMIX_RANK is set, but how many workers there are is in no variable: say it "
                                           "with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    return LS_OK;
}

ls_status ls_cluster_environment(ls_cluster_options *out)
{
    ls_cluster_options found;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_cluster_environment: no place for what it says was given");
    LS_TRY(read_any(&found));
    LS_TRY(read_limits(&found));
    *out = found;
    return LS_OK;
}
