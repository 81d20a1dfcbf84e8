/* Estimates the time of a step with up to 10,000 workers (docs/scale.md).
 *
 * clang-format off
 *     bench_scale
 *         measures all-reduce between processes of this machine, compares it with the formulas, and
 *         prints the tables for the measured values
 *     bench_scale MESSAGE LATENCY BANDWIDTH
 *         prints only the tables, for CPU seconds per message, seconds of latency, and bytes per
 *         second of a connection, such as 4e-6 20e-6 1e9
 * clang-format on
 *
 * The formulas are cost_flat and cost_groups; everything else measures or prints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allreduce.h"
#include "device/context.h"

typedef struct network {
    double message;   /* CPU seconds to send one and receive one */
    double latency;   /* further seconds until a message arrives */
    double bandwidth; /* bytes per second that a machine can send while it receives as many */
    double inside;    /* the same per worker, within a machine */
} network;

typedef struct job {
    const char *name;
    double bytes;  /* of its gradient */
    int small;     /* joins before the last one: statistics of batch norm, forward and backward */
    double little; /* bytes of each of them */
    double sample; /* seconds per sample on one core */
} job;

/* Seconds per sample: the rows of docs/speed.md on two cores, times two. */
static const job jobs[] = {
    { "mnist-cnn", 4 * 12810.0, 0, 0, 2 * 1.31 / 60000 },
    { "ResNet-50", 4 * 25.6e6, 98, 8 * 1024, 2 / 7.4 },
};

/* ---- The formulas: seconds of all exchanges of a step ---- */

/* Number of complete subtrees that worker w of n sends: the largest ones within its range of
 * lanes. */
static int subtrees(int lanes, int n, int w)
{
    int first = (int)((int64_t)lanes * w / n), end = (int)((int64_t)lanes * (w + 1) / n), count = 0;
    for (int size; first < end; first += size, count++)
        for (size = 1; first % (2 * size) == 0 && first + 2 * size <= end;)
            size *= 2;
    return count;
}

static double mean_subtrees(int lanes, int n)
{
    double sum = 0;
    for (int w = 0; w < n; w++)
        sum += subtrees(lanes, n, w);
    return sum / n;
}

/* One message to each of n - 1 others, and one from each. */
static double exchange(double n, double message, double latency)
{
    return n > 1 ? (n - 1) * message + latency : 0;
}

/* All send to the coordinator, and it answers all. */
static double commit(double n, double message, double latency)
{
    return n > 1 ? (n - 1) * message + 2 * latency : 0;
}

/* All workers exchange with all others, as implemented. Each owns a part of a long vector: it
 * receives s subtrees of its part from each other worker and sends the sum to each. Short vectors
 * are sent to all at once. The `here` workers of a machine share its connection. */
static double cost_flat(const network *w, const job *j, int n, int here, double s)
{
    double bytes = (n - 1.0) * (j->bytes / n * (s + 1) + j->small * s * j->little); /* sent by a worker */
    double away = n > here ? (double)(n - here) / (n - 1) : 0; /* the part that leaves its machine */
    return bytes * away * here / w->bandwidth + bytes * (1 - away) / w->inside +
           (2 + j->small) * exchange(n, w->message, w->latency) + commit(n, w->message, w->latency);
}

/* Groups of workers, usually machines, join first: each worker owns a part of the group's sum of a
 * long vector. Then the owners of a part, one in each group, join these, and the sums return the
 * same way. Short vectors go to one worker of the group, from there to one of each group, and back.
 * `here` workers of a group are on one machine. */
static double cost_groups(const network *w, const job *j, int n, int group, int here)
{
    int groups = (n + group - 1) / group;
    bool machine = here > 1; /* a group is a machine */
    double near = machine ? w->inside : w->bandwidth, wait = machine ? w->latency / 4 : w->latency;
    double inside = 2 * j->bytes * (group - 1) / group + j->small * 2 * (group - 1) * j->little;
    double outside = 2 * j->bytes / group * (groups - 1) / groups * here + j->small * (groups - 1) * j->little;
    return inside / near + outside / w->bandwidth + (2 + 2 * j->small) * exchange(group, w->message, wait) +
           (2 + j->small) * exchange(groups, w->message, w->latency) + commit(group, w->message, wait) +
           commit(groups, w->message, w->latency);
}

/* ---- Tables ---- */

static int power_of_two(int n)
{
    int p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* Lanes for n workers: four each if possible, so that others can take over a lost worker's
 * lanes. */
static int lanes_for(int n)
{
    int lanes = 4 * power_of_two(n);
    return lanes < 16384 ? lanes : 16384;
}

static void print_table(const network *w, const job *j, int here)
{
    static const int counts[] = { 2, 3, 4, 8, 16, 64, 100, 256, 1000, 1024, 4096, 8192, 10000 };
    printf("\n%s, %d worker%s on each machine (groups: %s); message %.2g us, latency %.2g us, line %.3g GB/s\n",
           j->name, here, here == 1 ? "" : "s", here == 1 ? "about the root of all" : "machines", w->message * 1e6,
           w->latency * 1e6, w->bandwidth / 1e9);
    printf("%8s %7s %9s %8s %12s %12s  %18s %18s\n", "workers", "lanes", "balance", "subtrees", "flat ms", "groups ms",
           "batch 90 %, flat", "batch 90 %, groups");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int n = counts[i], lanes = lanes_for(n);
        if (n < here)
            continue;
        double s = mean_subtrees(lanes, n), most = ceil((double)lanes / n);
        double flat = cost_flat(w, j, n, here, s),
               grouped = cost_groups(w, j, n, here > 1 ? here : power_of_two((int)sqrt(n)), here);
        double batch[2] = { ceil(9 * flat / j->sample) * n, ceil(9 * grouped / j->sample) * n };
        for (int k = 0; k < 2; k++)
            batch[k] = batch[k] < lanes ? lanes : batch[k]; /* a sample for each lane */
        printf("%8d %7d %8.0f%% %8.2f %12.3f %12.3f  %18.0f %18.0f\n", n, lanes, 100 * lanes / (most * n), s,
               flat * 1e3, grouped * 1e3, batch[0], batch[1]);
    }
}

static void print_tables(const network *w)
{
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        for (int here = 1; here <= 64; here *= 8)
            print_table(w, &jobs[i], here);
}

/* ---- Measuring this machine ---- */

#define MOST  8
#define SHORT 1       /* floats */
#define LONG  5000000 /* floats */

typedef struct times {
    double small[MOST + 1], large[MOST + 1]; /* by the number of workers */
} times;

static ls_status work(int rank, int count, void *user)
{
    ls_context *ctx;
    times *t = user; /* shared with the waiting process */
    bench_take_core(rank);
    LS_CHECK(ls_context_open(NULL, &ctx));
    double small = bench_all_reduce(ctx->peers, SHORT, 300), large = bench_all_reduce(ctx->peers, LONG, 5);
    if (rank == 0) {
        t->small[count] = small;
        t->large[count] = large;
    }
    ls_context_close(ctx);
    return LS_OK;
}

/* Workers share the cores: the work of all of them, divided by cores. Each worker sends one message
 * of the all-reduce to each other one, and those of the commit. */
static double predict_small(const network *w, int n, int cores)
{
    double messages = n * (n - 1.0) + 2 * (n - 1.0);
    return messages * w->message / (n < cores ? n : cores) + 3 * w->latency;
}

static double predict_large(const network *w, int n, int cores)
{
    double bytes = 2.0 * (n - 1) * LONG * sizeof(float); /* of all workers together, sent and received */
    return predict_small(w, n, cores) + bytes / w->inside / (n < cores ? n : cores);
}

/* Derives the three numbers from runs with 2 and 8 workers; the other runs check the formulas. */
static network fit(const times *t, int cores)
{
    network w = { 0 };
    double a = 4.0 / (cores < 2 ? cores : 2), b = (MOST + 2) * (MOST - 1.0) / (cores < MOST ? cores : MOST);
    w.message = fmax((t->small[MOST] - t->small[2]) / (b - a), 1e-8);
    w.latency = fmax((t->small[2] - a * w.message) / 3, 0);
    w.inside = 1;
    double share = predict_large(&w, 2, cores) - predict_small(&w, 2, cores);
    w.inside = share / fmax(t->large[2] - predict_small(&w, 2, cores), 1e-9);
    w.bandwidth = w.inside;
    return w;
}

static network measure(void)
{
    times *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (t == MAP_FAILED)
        exit(1);
    for (int n = 2; n <= MOST; n++)
        LS_CHECK(ls_spawn(n, work, t));
    network w = fit(t, cores);
    printf("all-reduce between processes of this machine, %d cores: measured, and by the formulas\n", cores);
    printf("%8s %12s %12s %7s %14s %14s %7s\n", "workers", "1 float, us", "formula", "", "5 M floats, ms", "formula",
           "");
    for (int n = 2; n <= MOST; n++) {
        double small = predict_small(&w, n, cores), large = predict_large(&w, n, cores);
        printf("%8d %12.1f %12.1f %7.2f %14.2f %14.2f %7.2f\n", n, t->small[n] * 1e6, small * 1e6, t->small[n] / small,
               t->large[n] * 1e3, large * 1e3, t->large[n] / large);
    }
    munmap(t, sizeof *t);
    return w;
}

int main(int argc, char **argv)
{
    network w;
    if (argc == 4) {
        w = (network){ .message = atof(argv[1]), .latency = atof(argv[2]), .bandwidth = atof(argv[3]) };
        w.inside = fmax(w.bandwidth, 3e9);
        if (!(w.message > 0 && w.latency >= 0 && w.bandwidth > 0)) {
            fprintf(stderr, "bench_scale: expected MESSAGE LATENCY BANDWIDTH, as in 4e-6 20e-6 1e9\n");
            return 2;
        }
    } else {
        w = measure();
    }
    print_tables(&w);
    return 0;
}
