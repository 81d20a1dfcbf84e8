/* Reads the cluster from the environment: Lockstep's own variables, or those of other launchers. */
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/numbers.h"
#include "base/sha256.h"
#include "base/text.h"
#include "fabric/transport/address.h"
#include "fabric/start/environment.h"
#include "fabric/transport/mpi.h"
#include "fabric/transport/transport.h"

/* resolve_rendezvous() removes the rendezvous if it is not needed. */
typedef struct found {
    ls_cluster_options options;
    bool mpi;                /* Open MPI's mpirun started the workers */
    bool elsewhere;          /* not all workers are on this machine */
    char elsewhere_why[300]; /* why, for messages */
} found;

/* ---- Reading variables ---- */

static const char *get(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* It must be set because its companion is. */
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
        return ls_fail(LS_ERR_INVALID, "%s=%s: expected a number of seconds above 0", name, text);
    *out = value;
    return LS_OK;
}

static ls_status read_limits(ls_cluster_options *out)
{
    LS_TRY(read_seconds("LOCKSTEP_JOIN_LIMIT", &out->join_limit));
    return read_seconds("LOCKSTEP_SILENCE_LIMIT", &out->silence_limit);
}

/* Workers compare only the name's hash, which would hide that it was cut. */
static ls_status set_job(ls_cluster_options *out, const char *variable, const char *job)
{
    if (strlen(job) >= sizeof(out->job))
        return ls_fail(LS_ERR_INVALID, "%s: the job's name has %zu characters; the limit is %zu", variable, strlen(job),
                       sizeof(out->job) - 1);
    snprintf(out->job, sizeof(out->job), "%s", job);
    return LS_OK;
}

/* ---- Other machines ---- */

static void be_elsewhere(found *f, const char *format, ...) LS_PRINTF(2, 3);
static void be_elsewhere(found *f, const char *format, ...)
{
    va_list args;
    if (f->elsewhere)
        return;
    va_start(args, format);
    vsnprintf(f->elsewhere_why, sizeof(f->elsewhere_why), format, args);
    va_end(args);
    f->elsewhere = true;
}

/* *here: all workers are on this machine. */
static ls_status count_here(found *f, const char *name, bool *here)
{
    const char *text = get(name);
    int count, all = f->options.size;
    *here = false;
    if (!text)
        return LS_OK;
    LS_TRY(read_int(name, text, 1, LS_MAX_CLUSTER, &count));
    *here = count == all;
    if (!*here)
        be_elsewhere(f, "%s=%d of %d workers: the others are on other machines", name, count, all);
    return LS_OK;
}

static void look_for_host(found *f, const char *variable, const char *host)
{
    if (!f->elsewhere && !ls_host_is_here(host))
        be_elsewhere(f, "%s: %s is not this machine", variable, host);
}

static void set_rendezvous(found *f, const char *host, int port)
{
    bool brackets = strchr(host, ':') != NULL && host[0] != '[';
    snprintf(f->options.rendezvous, sizeof(f->options.rendezvous), brackets ? "tcp://[%.200s]:%d" : "tcp://%.200s:%d",
             host, port);
}

/* ---- Lockstep's own variables ---- */

static bool is_place(const char *text)
{
    return strncmp(text, "tcp://", 6) == 0 || strncmp(text, "file://", 7) == 0;
}

static ls_status read_text(const char *name, char *out, size_t room)
{
    const char *text = get(name);
    if (!text)
        return LS_OK;
    if (strlen(text) >= room)
        return ls_fail(LS_ERR_INVALID, "%s has %zu characters; the limit is %zu", name, strlen(text), room - 1);
    snprintf(out, room, "%s", text);
    return LS_OK;
}

/* These apply with any launcher. */
static ls_status read_own(ls_cluster_options *out)
{
    const char *rendezvous = get(LS_RENDEZVOUS_VARIABLE);
    LS_TRY(read_limits(out));
    LS_TRY(read_text("LOCKSTEP_KEY_FILE", out->key_file, sizeof(out->key_file)));
    LS_TRY(read_text("LOCKSTEP_LISTEN", out->listen, sizeof(out->listen)));
    LS_TRY(read_text("LOCKSTEP_TRANSPORT", out->transport, sizeof(out->transport)));
    if (rendezvous && is_place(rendezvous))
        LS_TRY(read_text(LS_RENDEZVOUS_VARIABLE, out->rendezvous, sizeof(out->rendezvous)));
    return LS_OK;
}

/* LOCKSTEP_SERVERS=1: the last rank of the initial workers is a parameter server. TF_CONFIG has its
 * own servers. */
static ls_status read_servers(ls_cluster_options *out)
{
    const char *text = get("LOCKSTEP_SERVERS");
    return text && out->size > 1 ? read_int("LOCKSTEP_SERVERS", text, 0, out->size - 1, &out->servers) : LS_OK;
}

/* Keeps it for workers on one machine only if the user asked for it. */
static ls_status resolve_rendezvous(found *f)
{
    ls_cluster_options *o = &f->options;
    const char *rendezvous = get(LS_RENDEZVOUS_VARIABLE);
    LS_TRY(read_own(o));
    if (o->servers == 0)
        LS_TRY(read_servers(o));
    bool asked = rendezvous && is_place(rendezvous), any = !o->transport[0] || strcmp(o->transport, "auto") == 0;
    if (f->mpi && any && !asked && ls_mpi_is_there())
        snprintf(o->transport, sizeof(o->transport), "%s", ls_transport_mpi.name);
    if (strcmp(o->transport, ls_transport_mpi.name) == 0)
        return LS_OK; /* MPI finds the other workers itself */
    if (f->elsewhere && (strcmp(o->transport, "shm") == 0 || strcmp(o->transport, "unix") == 0))
        return ls_fail(LS_ERR_INVALID, "%s, which LOCKSTEP_TRANSPORT=%s cannot reach", f->elsewhere_why, o->transport);
    if (f->elsewhere && !o->key_file[0])
        return ls_fail(LS_ERR_UNSUPPORTED, "%s, and " LS_NEEDS_KEY, f->elsewhere_why);
    if (f->elsewhere && !o->rendezvous[0])
        return ls_fail(LS_ERR_INVALID,
                       "%s, and the launcher does not say where worker 0 is: set LOCKSTEP_RENDEZVOUS=tcp://host:port, "
                       "or LOCKSTEP_RENDEZVOUS=file:///folder for a folder that all workers share",
                       f->elsewhere_why);
    if (!f->elsewhere && !asked && strcmp(o->transport, "tcp") != 0)
        o->rendezvous[0] = o->listen[0] = '\0';
    return LS_OK;
}

/* ---- lockstep launch and ls_spawn ---- */

/* LOCKSTEP_ELASTIC=2:8: the cluster may shrink to 2 and grow to 8 workers, with ranks up to 7.
 * Parameter servers are not counted; with one of them, ranks go up to 8. */
static ls_status read_elastic(ls_cluster_options *out)
{
    const char *text = get("LOCKSTEP_ELASTIC");
    int64_t least = 0, most = 0;
    if (!text)
        return LS_OK;
    const int workers = out->size - out->servers;
    if (!ls_parse_pair(text, &least, &most) || least < 1 || most < workers || least > workers ||
        most > LS_MAX_CLUSTER - out->servers)
        return ls_fail(LS_ERR_INVALID,
                       "LOCKSTEP_ELASTIC=%s: expected the smallest and the largest number of workers, as in 2:8, "
                       "with " LS_WORLD_SIZE_VARIABLE ", %d%s, between them; the limit is %d",
                       text, workers, out->servers ? " without the servers" : "", LS_MAX_CLUSTER - out->servers);
    out->begin = out->size;
    out->least = (int)least;
    out->size = (int)most + out->servers;
    return LS_OK;
}

static ls_status read_own_rank(ls_cluster_options *out)
{
    const char *rank, *size;
    LS_TRY(need(LS_RANK_VARIABLE, LS_WORLD_SIZE_VARIABLE, &rank));
    LS_TRY(need(LS_WORLD_SIZE_VARIABLE, LS_RANK_VARIABLE, &size));
    LS_TRY(read_int(LS_WORLD_SIZE_VARIABLE, size, 1, LS_MAX_CLUSTER, &out->size));
    LS_TRY(read_servers(out));
    LS_TRY(read_elastic(out));
    return read_int(LS_RANK_VARIABLE, rank, 0, out->size - 1, &out->rank);
}

/* A rendezvous alone does not make this process a worker: another launcher's variables may have the
 * rank. */
ls_status ls_cluster_own_environment(ls_cluster_options *out)
{
    const char *job = get(LS_RENDEZVOUS_VARIABLE);
    *out = (ls_cluster_options){ .size = 1 };
    if (!get(LS_RANK_VARIABLE) && !get(LS_WORLD_SIZE_VARIABLE) && (!job || is_place(job)))
        return LS_OK;
    LS_TRY(read_own_rank(out));
    LS_TRY(need(LS_RENDEZVOUS_VARIABLE, LS_RANK_VARIABLE, &job));
    LS_TRY(set_job(out, LS_RENDEZVOUS_VARIABLE, job));
    return read_own(out);
}

/* ---- torchrun, and launchers with its variables ---- */

/* An indexed Job of Kubernetes has JOB_COMPLETION_INDEX in place of RANK. torchrun listens at
 * MASTER_PORT itself, so Lockstep uses the next port. Without a count of the workers here, but with
 * a key, a MASTER_ADDR that is not loopback serves other machines. */
static ls_status read_torchrun(found *f)
{
    const char *host, *port;
    char job[sizeof(f->options.job) + 256];
    int number;
    bool here;
    LS_TRY(read_rank_and_size(get("RANK") ? "RANK" : "JOB_COMPLETION_INDEX", "WORLD_SIZE", &f->options));
    LS_TRY(need("MASTER_ADDR", "WORLD_SIZE", &host));
    LS_TRY(need("MASTER_PORT", "WORLD_SIZE", &port));
    LS_TRY(read_int("MASTER_PORT", port, 0, 65535, &number));
    LS_TRY(count_here(f, "LOCAL_WORLD_SIZE", &here));
    if (!here && get("LOCKSTEP_KEY_FILE") && !ls_host_is_loopback(host))
        be_elsewhere(f, "MASTER_ADDR: %s may be called from other machines", host);
    else if (!here)
        look_for_host(f, "MASTER_ADDR", host);
    set_rendezvous(f, host, number + 1);
    const char *run = get("TORCHELASTIC_RUN_ID"), *restart = get("TORCHELASTIC_RESTART_COUNT");
    snprintf(job, sizeof(job), "torchrun/%.255s:%d/%.128s/%.16s", host, number, run ? run : "", restart ? restart : "");
    return set_job(&f->options, "MASTER_ADDR", job);
}

/* ---- TF_CONFIG ---- */

/* The port is required. The first address becomes the rendezvous. */
static ls_status check_address(found *f, const ls_json_at *at, const char **out)
{
    ls_host_port where;
    LS_TRY(ls_json_string(at, out));
    if (!ls_host_port_read(*out, &where))
        return ls_json_fail(at, LS_ERR_INVALID, "expected an address as in \"host:2222\", found \"%s\"", *out);
    look_for_host(f, "TF_CONFIG", where.host);
    if (!f->options.rendezvous[0])
        set_rendezvous(f, where.host, where.port);
    return LS_OK;
}

/* The addresses are also the job's name. */
static ls_status count_tasks(found *f, const ls_json_at *cluster, const char *type, int *count, ls_text *job)
{
    ls_json_at list, element;
    const char *address;
    *count = 0;
    if (!ls_json_find(cluster, type, &list))
        return LS_OK;
    LS_TRY(ls_json_is_array(&list));
    if (ls_json_count(&list) > LS_MAX_CLUSTER)
        return ls_json_fail(&list, LS_ERR_INVALID, "%zu workers; the limit is %d", ls_json_count(&list),
                            LS_MAX_CLUSTER);
    for (size_t i = 0; i < ls_json_count(&list); i++) {
        LS_TRY(ls_json_element(&list, i, &element));
        LS_TRY(check_address(f, &element, &address));
        ls_text_add(job, "/%s", address);
    }
    *count = (int)ls_json_count(&list);
    return LS_OK;
}

static ls_status find_listen(found *f, const ls_json_at *cluster, const char *type, int index)
{
    ls_json_at list, element;
    const char *address;
    LS_TRY(ls_json_get(cluster, type, &list));
    LS_TRY(ls_json_element(&list, (size_t)index, &element));
    LS_TRY(ls_json_string(&element, &address));
    snprintf(f->options.listen, sizeof(f->options.listen), "%s", address);
    return LS_OK;
}

/* The chief, or else the first worker, is rank 0; parameter servers have the last ranks. */
static ls_status read_task(found *f, const ls_json_at *root, const ls_json_at *cluster, int chiefs, int workers,
                           int servers)
{
    ls_cluster_options *out = &f->options;
    static const char *const known[] = { "type", "index", "trial" };
    const char *type;
    int64_t index;
    ls_json_at task, at;
    LS_TRY(ls_json_get_object(root, "task", &task));
    LS_TRY(ls_json_known_keys(&task, known, 3));
    LS_TRY(ls_json_get(&task, "type", &at));
    LS_TRY(ls_json_string(&at, &type));
    bool chief = strcmp(type, "chief") == 0 || strcmp(type, "master") == 0;
    bool server = strcmp(type, "ps") == 0;
    out->evaluator = strcmp(type, "evaluator") == 0;
    if (out->evaluator) { /* it need not be listed, and connects to no worker */
        out->rendezvous[0] = '\0';
        f->elsewhere = false;
        return LS_OK;
    }
    if (!chief && !server && strcmp(type, "worker") != 0)
        return ls_json_fail(&at, LS_ERR_INVALID,
                            "expected \"chief\", \"worker\", \"ps\" or \"evaluator\", found \"%s\"", type);
    LS_TRY(ls_json_get(&task, "index", &at));
    LS_TRY(ls_json_i64(&at, &index));
    int count = chief ? chiefs : server ? servers : workers;
    if (index < 0 || index >= count)
        return ls_json_fail(&at, LS_ERR_INVALID, "%lld, but the cluster has %d of type \"%s\"", (long long)index, count,
                            type);
    if (servers > 0 && chiefs + workers == 0)
        return ls_json_fail(cluster, LS_ERR_INVALID, "%d parameter servers (\"ps\"), but neither a chief nor a worker",
                            servers);
    out->rank = (int)index + (chief ? 0 : server ? chiefs + workers : chiefs);
    out->size = chiefs + workers + servers;
    out->servers = servers;
    return out->size <= LS_MAX_CLUSTER
               ? find_listen(f, cluster, type, (int)index)
               : ls_json_fail(root, LS_ERR_INVALID, "%d workers; the limit is %d", out->size, LS_MAX_CLUSTER);
}

static ls_status read_tf_root(found *f, const ls_json_at *root, ls_text *job)
{
    static const char *const known[] = { "cluster", "task", "environment", "rpc_layer", "job" };
    static const char *const types[] = { "chief", "master", "worker", "ps", "evaluator" };
    ls_json_at cluster;
    int chiefs, masters, workers, servers;
    LS_TRY(ls_json_is_object(root));
    LS_TRY(ls_json_known_keys(root, known, 5));
    LS_TRY(ls_json_get_object(root, "cluster", &cluster));
    LS_TRY(ls_json_known_keys(&cluster, types, 5));
    LS_TRY(count_tasks(f, &cluster, "chief", &chiefs, job));
    LS_TRY(count_tasks(f, &cluster, "master", &masters, job));
    LS_TRY(count_tasks(f, &cluster, "worker", &workers, job));
    LS_TRY(count_tasks(f, &cluster, "ps", &servers, job));
    if (chiefs + masters > 1)
        return ls_json_fail(&cluster, LS_ERR_INVALID,
                            "%d tasks of type \"chief\"%s: a cluster has one; the others are "
                            "of type \"worker\"",
                            chiefs + masters, masters > 0 ? " or \"master\"" : "");
    return read_task(f, root, &cluster, chiefs + masters, workers, servers);
}

static ls_status read_tf_config(const char *text, found *f)
{
    json_t *value = NULL;
    ls_text job = { 0 };
    LS_TRY(ls_json_read_buffer("TF_CONFIG", text, strlen(text), &value));
    ls_json_at root = ls_json_root(value, "TF_CONFIG");
    ls_text_put(&job, "TF_CONFIG");
    ls_status status = read_tf_root(f, &root, &job);
    char hex[65];
    if (status == LS_OK) /* the addresses may be longer than a name */
        status = ls_sha256_of(ls_text_get(&job), job.length, hex);
    if (status == LS_OK)
        snprintf(f->options.job, sizeof(f->options.job), "TF_CONFIG/%s", hex);
    json_decref(value);
    ls_text_free(&job);
    return status;
}

/* ---- mpirun and srun ---- */

static ls_status read_mpirun(found *f)
{
    const char *space;
    char job[sizeof(f->options.job) + 256];
    bool here;
    LS_TRY(read_rank_and_size("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &f->options));
    LS_TRY(count_here(f, "OMPI_COMM_WORLD_LOCAL_SIZE", &here));
    LS_TRY(need("PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", &space));
    snprintf(job, sizeof(job), "mpirun/%.300s", space);
    f->mpi = true;
    return set_job(&f->options, "PMIX_NAMESPACE", job);
}

/* PMI launchers (MPICH, Intel MPI) may have no name for the job. On one machine the parent's pid is
 * unique to it. */
static ls_status read_pmi(found *f)
{
    const char *id = get("PMI_JOBID");
    char job[sizeof(f->options.job) + 256];
    bool here;
    LS_TRY(read_rank_and_size("PMI_RANK", "PMI_SIZE", &f->options));
    LS_TRY(count_here(f, "MPI_LOCALNRANKS", &here));
    snprintf(job, sizeof(job), "pmi/%.300s/%ld", id ? id : "", id || f->elsewhere ? 0 : (long)getppid());
    return set_job(&f->options, "PMI_JOBID", job);
}

/* "node[03-05,7],other" gives "node03". */
static void first_host(const char *list, char *out, size_t room)
{
    size_t n = 0;
    for (; *list && *list != ',' && n + 1 < room; list++) {
        if (*list != '[') {
            out[n++] = *list;
            continue;
        }
        for (list++; *list && !strchr(",-]", *list) && n + 1 < room; list++)
            out[n++] = *list;
        while (*list && *list != ']')
            list++;
        if (!*list)
            break;
    }
    out[n] = '\0';
}

#define SLURM_PORTS 16384 /* first port: below the ephemeral ones; 16 for each of 1,000 jobs */

/* Worker 0 is on the first node. */
static ls_status find_slurm_place(found *f, const char *id, const char *step)
{
    const char *list = get(get("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST");
    char host[200];
    uint64_t job = 0, number = 0;
    if (!list)
        return LS_OK;
    first_host(list, host, sizeof(host));
    if (!ls_parse_u64(id, &job) || (step && !ls_parse_u64(step, &number)))
        return ls_fail(LS_ERR_INVALID, "SLURM_JOB_ID=%s and SLURM_STEP_ID=%s are not both numbers", id, step);
    set_rendezvous(f, host, SLURM_PORTS + 16 * (int)((job % 1000 * 7 + number % 1000) % 1000));
    return LS_OK;
}

static ls_status read_srun(found *f)
{
    const char *id, *step = get("SLURM_STEP_ID");
    char job[sizeof(f->options.job) + 256];
    const char *nodes = get("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
    const char *tasks = get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    int count = 1;
    LS_TRY(read_rank_and_size("SLURM_PROCID", tasks, &f->options));
    LS_TRY(need("SLURM_JOB_ID", "SLURM_PROCID", &id));
    if (!step && f->options.size > 1)
        return ls_fail(LS_ERR_INVALID,
                       "SLURM_PROCID is set, but SLURM_STEP_ID is not: this is the batch script itself, "
                       "one process; start the workers with srun");
    if (get(nodes))
        LS_TRY(read_int(nodes, get(nodes), 1, INT32_MAX, &count));
    if (count > 1)
        be_elsewhere(f, "%s=%d: workers are on other machines", nodes, count);
    LS_TRY(find_slurm_place(f, id, step));
    snprintf(job, sizeof(job), "srun/%.200s/%.200s", id, step ? step : "");
    return set_job(&f->options, "SLURM_JOB_ID", job);
}

/* ---- All launchers ---- */

/* *by: the variable that describes the cluster; NULL: none. */
static ls_status read_any(found *f, const char **by)
{
    *by = "TF_CONFIG";
    if (get(*by))
        return read_tf_config(get(*by), f);
    *by = "WORLD_SIZE";
    if (get(*by) && (get("RANK") || get("JOB_COMPLETION_INDEX")))
        return read_torchrun(f);
    *by = "OMPI_COMM_WORLD_RANK";
    if (get(*by))
        return read_mpirun(f);
    *by = "SLURM_PROCID";
    if (get(*by))
        return read_srun(f);
    *by = "PMI_RANK";
    if (get(*by) && get("PMI_SIZE"))
        return read_pmi(f);
    *by = NULL;
    if (get("PMIX_RANK"))
        return ls_fail(LS_ERR_UNSUPPORTED, "PMIX_RANK is set, but no variable has the number of workers: set RANK, "
                                           "WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    return LS_OK;
}

ls_status ls_cluster_environment(ls_cluster_options *out)
{
    found f = { .options = { .size = 1 } };
    const char *by;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_cluster_environment: the options to fill in are NULL");
    LS_TRY(ls_cluster_own_environment(&f.options));
    if (!f.options.job[0]) {
        LS_TRY(read_any(&f, &by));
        LS_TRY(resolve_rendezvous(&f));
    }
    *out = f.options;
    return LS_OK;
}

/* Looks up no host names: where workers run does not matter here. */
const char *ls_cluster_described(ls_cluster_options *out)
{
    found f = { .options = { .size = 1 }, .elsewhere = true };
    const char *by = NULL;
    ls_error before;
    ls_error_keep(&before, LS_ERR_INVALID);
    ls_status status = read_any(&f, &by);
    (void)ls_error_give(&before);
    if (status != LS_OK || (f.options.size == 1 && !f.options.evaluator))
        return NULL;
    *out = f.options;
    return by;
}
