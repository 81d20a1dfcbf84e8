/* Random jobs have one result wherever they run: under every strategy, on CPU devices and on those
 * of another kind, in several workers over each transport, with parameter servers, with audits, and
 * when they end early and go on elsewhere. One seed is one job (random_job.h) and the places where
 * it runs. `make test` runs a sample, `make random-jobs` goes on from RANDOM_JOBS_FIRST until a job
 * differs; LS_RANDOM_JOB=SEED repeats one and prints all runs.
 *
 * Workers are processes that `lockstep launch` starts: this program with --worker. */
#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu.h"
#include "lockstep/backend.h"
#include "random_job.h"
#include "sanitized.h"

#define SAMPLE (SANITIZED ? 2 : 6)     /* seeds of `make test` */
#define LIMIT  (SANITIZED ? 600 : 180) /* seconds that one run may take */

static const char *program;

/* ---- Where a job runs ---- */

typedef struct place {
    ls_strategy strategy;
    char devices[32]; /* for the strategy; "": all of the fastest kind */
    int cpus, gpus;
    bool reference;        /* kernels */
    int workers, servers;  /* 0 workers: in this process */
    const char *transport; /* between workers */
    int64_t audit;
    char name[160];
} place;

enum { IN_PROCESS = 3, BY_WORKERS = 2, RESUMED = 2, PLACES = 1 + IN_PROCESS + BY_WORKERS + RESUMED };

static ls_strategy draw_strategy(draws *d)
{
    const ls_all_reduce reductions[] = { LS_ALL_REDUCE_SHARDED, LS_ALL_REDUCE_HIERARCHICAL_COPY, LS_ALL_REDUCE_TO_ONE };
    ls_all_reduce reduction = reductions[draw(d, 3)];
    ls_pipeline_order order = chance(d, 50) ? LS_FILL_DRAIN : LS_ONE_FORWARD_ONE_BACKWARD;
    const char *split = chance(d, 20) ? "auto" : NULL;
    switch (draw(d, 6)) {
    case 0:
        return ls_one_device();
    case 1:
        return ls_data_parallel(.work_split = split);
    case 2:
        return ls_model_parallel();
    case 3:
        return ls_pipeline(.order = order);
    case 4:
        return ls_multi_worker();
    default:
        return ls_mirrored(.all_reduce = reduction, .work_split = split);
    }
}

static void draw_devices(draws *d, place *p)
{
    p->cpus = 1 + (int)draw(d, 5);
    if (p->workers == 0 && chance(d, 40))
        p->gpus = 1 + (int)draw(d, 3);
    p->reference = p->gpus == 0 && chance(d, 20); /* a reference context has the CPU alone */
    if (p->strategy.kind == LS_STRATEGY_ONE_DEVICE)
        snprintf(p->devices, sizeof(p->devices), "%s:0", p->gpus ? "gpu" : "cpu");
    else if (p->gpus && chance(d, 40))
        snprintf(p->devices, sizeof(p->devices), "cpu:0,gpu:0");
}

static place draw_place(draws *d, bool by_workers)
{
    static const char *const names[] = { "default",        "one-device", "mirrored",     "data-parallel",
                                         "model-parallel", "pipeline",   "multi-worker", "parameter-server" };
    static const char *const transports[] = { "shm", "unix", "tcp" };
    place p = { .strategy = draw_strategy(d), .transport = "" };
    if (by_workers) {
        p.workers = 2 + (int)draw(d, 3);
        p.transport = transports[draw(d, 3)];
        p.audit = chance(d, 40) ? 1 + draw(d, 2) : 0;
        if (chance(d, 30)) {
            p.servers = 1 + (int)draw(d, 2);
            p.strategy = ls_parameter_server();
        }
    }
    draw_devices(d, &p);
    if (by_workers && p.cpus > 2)
        p.cpus = 1;
    snprintf(p.name, sizeof(p.name), "%s%s%s%s, %d CPU and %d GPU devices, %d %s workers, %d servers, audit %d",
             names[p.strategy.kind], *p.devices ? " on " : "", p.devices, p.reference ? ", reference kernels" : "",
             p.cpus, p.gpus, p.workers, p.transport, p.servers, (int)p.audit);
    return p;
}

/* The place of a seed with that number. Part 0 of a resumed run ends early, part 1 goes on. */
static place place_of(uint64_t seed, int number, int part)
{
    draws d = draws_from(seed, 1000 + 10 * (uint64_t)number + (uint64_t)part);
    if (number > 0)
        return draw_place(&d, number <= IN_PROCESS ? false : number <= IN_PROCESS + BY_WORKERS ? true : chance(&d, 40));
    place first = { .strategy = ls_one_device(), .devices = "cpu:0", .cpus = 1, .transport = "", .name = "one device" };
    return first;
}

/* ---- One run ---- */

static void swallow(void *user, ls_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

static char *failure(const char *what)
{
    char *text = NULL;
    if (asprintf(&text, "%s: %s\n", what, ls_last_error()) < 0)
        return NULL;
    return text;
}

/* In this process: alone, or as a worker of the cluster that the environment describes. */
static char *run_here(const random_job *job, const place *p, random_run run)
{
    ls_context *ctx = NULL;
    gpu *g = p->gpus ? gpu_create((gpu_settings){ .devices = p->gpus, .copies = p->gpus > 1, .delay = 20 }) : NULL;
    ls_context_options options = { .cpu_devices = p->cpus, .reference = p->reference, .log_sink = swallow };
    char *text = NULL;
    run.strategy = p->strategy;
    run.strategy.devices = *p->devices ? p->devices : NULL;
    run.audit = p->audit;
    if (p->gpus && !g)
        text = failure("gpu_create");
    else if (ls_context_create(&options, &ctx) != LS_OK)
        text = failure("ls_context_create");
    else if (g && ls_add_backend(ctx, gpu_backend(g)) != LS_OK)
        text = failure("ls_add_backend");
    else
        text = random_job_run(job, ctx, &run);
    ls_context_close(ctx);
    gpu_destroy(g);
    return text;
}

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "r");
    if (file && getdelim(&text, &room, 0, file) < 0) {
        free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    return text ? text : strdup("");
}

/* Part of a resumed run; -1: a run that is neither cut nor resumed. */
static random_run run_of(int part, int64_t cut, const char *folder)
{
    return (random_run){ .cut = part == 0 ? cut : 0, .resume = part == 1, .folder = folder };
}

static int work(char **arguments)
{
    uint64_t seed = strtoull(arguments[0], NULL, 10);
    int number = atoi(arguments[1]), part = atoi(arguments[2]);
    char path[600];
    random_job job;
    random_job_draw(seed, &job);
    place p = place_of(seed, number, part < 0 ? 1 : part);
    char *text = run_here(&job, &p, run_of(part, atoll(arguments[3]), arguments[4]));
    snprintf(path, sizeof(path), "%s/text.%s", arguments[4], getenv("LOCKSTEP_RANK"));
    FILE *file = fopen(path, "w");
    bool written = text && file && fputs(text, file) >= 0;
    written = file && fclose(file) == 0 && written;
    free(text);
    return written ? 0 : 1;
}

/* By the command. The texts of all workers: of the chief first, then those of the others. */
static bool run_workers(const random_job *job, int number, const place *p, int part, int64_t cut, const char *folder,
                        char *texts[])
{
    char command[2048], path[600];
    const char *build = getenv("LS_BUILD");
    snprintf(command, sizeof(command),
             "timeout -k 5 %d %s/lockstep launch --workers %d --servers %d --transport %s --silence-limit 20 -- "
             "%s --worker %" PRIu64 " %d %d %" PRId64 " %s >%s/out 2>&1",
             LIMIT, build && *build ? build : "build", p->workers, p->servers, p->transport, program, job->seed, number,
             part, cut, folder, folder);
    bool ended_well = system(command) == 0;
    for (int rank = 0; rank < p->workers + p->servers; rank++) {
        snprintf(path, sizeof(path), "%s/text.%d", folder, rank);
        texts[rank] = read_text(path);
    }
    if (ended_well)
        return true;
    snprintf(path, sizeof(path), "%s/out", folder);
    char *out = read_text(path);
    printf("%s\n%s", command, out);
    free(out);
    return false;
}

/* ---- Comparing ---- */

static size_t line_length(const char *text)
{
    return strcspn(text, "\n");
}

/* The first line of `found` that `wanted` does not have after the lines before; NULL: it has
 * all. */
static const char *foreign_line(const char *found, const char *wanted)
{
    while (*found) {
        size_t length = line_length(found);
        while (*wanted && (line_length(wanted) != length || memcmp(wanted, found, length) != 0))
            wanted += line_length(wanted) + (wanted[line_length(wanted)] == '\n');
        if (!*wanted)
            return found;
        found += length + (found[length] == '\n');
    }
    return NULL;
}

/* A whole result has every line; a part has the final state, and no line of its own. */
static bool is_result(const char *found, const char *wanted, bool whole)
{
    const char *state = strstr(wanted, "\nstate ");
    const char *own_state = found ? strstr(found, "state ") : NULL;
    if (!found || !state || !own_state || foreign_line(found, wanted) ||
        strncmp(own_state, state + 1, line_length(state + 1)) != 0)
        return false;
    return !whole || strcmp(found, wanted) == 0;
}

static void tell_difference(const char *found, const char *wanted)
{
    const char *line = found ? foreign_line(found, wanted) : NULL;
    if (line)
        printf("  first line that differs: %.*s\n", (int)line_length(line), line);
    printf("  --- expected\n%s  --- found\n%s", wanted, found ? found : "nothing\n");
}

static void results_that_differ_are_noticed(void **state)
{
    (void)state;
    const char *wanted = "step 1: aa\nstep 2: bb\nweights w\nstate s\nevaluation: 1\n";
    assert_true(is_result(wanted, wanted, true));
    assert_true(is_result("step 2: bb\nweights w\nstate s\nevaluation: 1\n", wanted, false));
    assert_true(is_result("weights w\nstate s\n", wanted, false));
    assert_false(is_result("weights w\nstate s\n", wanted, true));
    assert_false(is_result("step 2: bc\nweights w\nstate s\nevaluation: 1\n", wanted, false));
    assert_false(is_result("step 1: aa\nstep 2: bb\nweights w\nstate s\nevaluation: 2\n", wanted, true));
    assert_false(is_result("step 2: bb\nstep 1: aa\nweights w\nstate s\n", wanted, false));
    assert_false(is_result("step 2: bb\n", wanted, false));
    assert_false(is_result("", wanted, false));
    assert_false(is_result(NULL, wanted, false));
    assert_false(is_result("weights w\n", "weights w\n", true));
}

/* ---- One job ---- */

typedef struct trial {
    random_job job;
    bool verbose;
    char folder[256];
    char *wanted;
    int64_t steps;
    int bad;
} trial;

static uint64_t current;

static void out_of_time(int signal)
{
    char text[160];
    (void)signal;
    int bytes = snprintf(text, sizeof(text), "random job %" PRIu64 " takes more than %d seconds\n", current, LIMIT);
    if (write(2, text, (size_t)bytes) < 0)
        _exit(3);
    _exit(2);
}

static const char *make_folder(const trial *t, int number, int part, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s/%d", t->folder, number);
    mkdir(out, 0700);
    snprintf(out, bytes, "%s/%d/%d", t->folder, number, part);
    mkdir(out, 0700);
    return out;
}

static int64_t count_steps(const char *text)
{
    int64_t steps = 0;
    for (; (text = strstr(text, "step ")); text++)
        steps++;
    return steps;
}

/* Runs the job, or a part of it, at a place and compares what must be equal. A run that is cut
 * makes the steps up to there. */
static void try_place(trial *t, int number, int part, int64_t cut)
{
    char folder[400];
    place p = place_of(t->job.seed, number, part < 0 ? 1 : part);
    char *texts[16] = { NULL };
    int count = p.workers ? p.workers + p.servers : 1;
    bool good = true, compared = part != 0;
    make_folder(t, number, part, folder, sizeof(folder));
    if (t->verbose)
        printf("%d.%d: %s%s\n", number, part, p.name, part == 0 ? ", cut" : part == 1 ? ", resumed" : "");
    if (p.workers) {
        good = run_workers(&t->job, number, &p, part, cut, folder, texts);
    } else {
        alarm(LIMIT);
        texts[0] = run_here(&t->job, &p, run_of(part, cut, folder));
        alarm(0);
    }
    for (int i = 0; i < count && compared; i++)
        if (!is_result(texts[i], t->wanted, part < 0 && i == 0)) {
            printf("random job %" PRIu64 ", place %d.%d (%s), worker %d:\n", t->job.seed, number, part, p.name, i);
            tell_difference(texts[i], t->wanted);
            good = false;
        }
    if (part == 0 && count_steps(texts[0] ? texts[0] : "") != cut) {
        printf("random job %" PRIu64 ", place %d.%d (%s): cut after step %" PRId64 ":\n%s", t->job.seed, number, part,
               p.name, cut, texts[0] ? texts[0] : "nothing\n");
        good = false;
    }
    t->bad += !good;
    for (int i = 0; i < count; i++)
        free(texts[i]);
}

/* The result that all others are compared with. A job that cannot be run at all is a mistake of
 * random_job.c. */
static bool run_first(trial *t)
{
    char folder[400];
    place first = place_of(t->job.seed, 0, 0);
    alarm(LIMIT);
    t->wanted = run_here(&t->job, &first, run_of(-1, 0, make_folder(t, 0, 0, folder, sizeof(folder))));
    alarm(0);
    if (t->verbose)
        printf("%s", t->wanted ? t->wanted : "no memory\n");
    const char *error = t->wanted ? strstr(t->wanted, "LS_ERR_") : "no memory";
    if (error && strncmp(error, "LS_ERR_NOT_FINITE", 17) != 0) {
        printf("random job %" PRIu64 " cannot be run: %s\n", t->job.seed, t->wanted ? t->wanted : error);
        return false;
    }
    t->steps = count_steps(t->wanted);
    if (t->job.max_steps > 0 && t->steps > t->job.max_steps)
        printf("random job %" PRIu64 " made %" PRId64 " steps\n", t->job.seed, t->steps);
    return t->job.max_steps == 0 || t->steps <= t->job.max_steps;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

/* Returns the number of runs that differ. */
static int try_job(uint64_t seed, bool verbose)
{
    trial t = { .verbose = verbose };
    char about[1024];
    current = seed;
    random_job_draw(seed, &t.job);
    random_job_describe(&t.job, about, sizeof(about));
    if (verbose)
        printf("random job %" PRIu64 ": %s\n", seed, about);
    const char *temporary = getenv("TMPDIR");
    snprintf(t.folder, sizeof(t.folder), "%s/random-jobs-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(t.folder))
        fail_msg("no folder %s", t.folder);
    if (run_first(&t)) {
        for (int number = 1; number <= IN_PROCESS + BY_WORKERS; number++)
            try_place(&t, number, -1, 0);
        draws d = draws_from(seed, 999);
        for (int number = IN_PROCESS + BY_WORKERS + 1; number < PLACES && t.steps > 0; number++) {
            int64_t cut = 1 + draw(&d, (uint32_t)t.steps);
            try_place(&t, number, 0, cut);
            try_place(&t, number, 1, cut);
        }
    } else {
        t.bad = 1;
    }
    if (t.bad)
        printf("random job %" PRIu64 ": %s\nrepeat it: LS_RANDOM_JOB=%" PRIu64 " %s\n", seed, about, seed, program);
    nftw(t.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(t.wanted);
    return t.bad;
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? strtoull(value, NULL, 10) : otherwise;
}

static void random_jobs_have_one_result(void **state)
{
    (void)state;
    bool one = getenv("LS_RANDOM_JOB") != NULL;
    uint64_t first = number_of("LS_RANDOM_JOB", number_of("LS_FIRST_RANDOM_JOB", 0));
    uint64_t count = one ? 1 : number_of("LS_RANDOM_JOBS", SAMPLE); /* 0: no end */
    signal(SIGALRM, out_of_time);
    for (uint64_t seed = first; count == 0 || seed < first + count; seed++) {
        if (try_job(seed, one) > 0)
            fail_msg("LS_RANDOM_JOB=%" PRIu64 " %s", seed, program);
        if (count != SAMPLE && !one && (seed + 1) % 10 == 0)
            fprintf(stderr, "random jobs %" PRIu64 " to %" PRIu64 " have one result each\n", first, seed);
    }
}

int main(int count, char **arguments)
{
    program = arguments[0];
    if (count == 7 && strcmp(arguments[1], "--worker") == 0)
        return work(arguments + 2);
    const struct CMUnitTest tests[] = { cmocka_unit_test(results_that_differ_are_noticed),
                                        cmocka_unit_test(random_jobs_have_one_result) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
