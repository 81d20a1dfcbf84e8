/* Measures how fast whole networks train: bench_train ROW [options]. Prints one line of JSON on
 * success. Every epoch trains all samples once, in a new order, with a smaller last batch; the best
 * epoch counts. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/options.h"
#include "base/text.h"
#include "models.h"
#include "peak.h"
#include "run/runs.h"

#define DATA_DIRECTORY "/usr/share/datasets/fashion-mnist"

typedef struct row {
    const char *name, *model;
    int64_t samples, batch;
    bool synthetic; /* random images: only the time matters */
} row;

static const row rows[] = {
    { "cnn-4096", "cnn", 60000, 4096, false },
    { "cnn-256", "cnn", 60000, 256, false },
    { "wide", "wide", 12800, 128, false },
    { "resnet50", "resnet50", 32, 32, true }, /* an epoch is one step */
};

typedef struct settings {
    int64_t epochs, samples, threads, devices;
    bool profile;
} settings;

static const ls_option flags[] = {
    LS_OPTION("--epochs", settings, epochs, .value = "3", .range = "[1, 1000]", .help = "number of timed epochs"),
    LS_OPTION("--steps", settings, epochs, .value = "3", .range = "[1, 1000]",
              .help = "the same, under its name for resnet50"),
    LS_OPTION("--samples", settings, samples, .value = "0", .range = "[0, 60000]",
              .help = "samples per epoch; 0: as the row says"),
    LS_OPTION("--threads", settings, threads, .value = "0", .range = "[0, 1024]",
              .help = "number of threads; 0: one for each core"),
    LS_OPTION("--devices", settings, devices, .value = "1", .range = "[1, 1024]",
              .help = "number of logical devices that share the cores"),
    LS_OPTION("--profile", settings, profile, .value = "off",
              .help = "print where the time goes, from the second epoch on"),
};
static const ls_option_table table = LS_OPTION_TABLE(NULL, flags);

static void die(const char *format, ...) LS_PRINTF(1, 2) __attribute__((noreturn));
static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "bench_train: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

/* ---- Time ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Returns the start of the process on the clock of now(), in steps of 0.01 s. */
static double process_start(void)
{
    char text[1024] = "";
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    size_t length = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[length] = 0;
    if (file)
        fclose(file);
    char *field = strrchr(text, ')'); /* ends field 2; the start is field 22 */
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    if (!field || sscanf(field, "%llu", &ticks) != 1)
        die("/proc/self/stat has no start time");
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* ---- Data ---- */

static void *memory(size_t bytes)
{
    void *data = malloc(bytes ? bytes : 1);
    if (!data)
        die("no memory for %zu bytes", bytes);
    return data;
}

/* Reads the first `count` records of a gzip IDX file. */
static uint8_t *unpack(const char *name, size_t header, size_t count, size_t bytes)
{
    const char *directory = getenv("LOCKSTEP_DATA");
    char path[4096];
    uint8_t head[16], *data = memory(count * bytes);
    snprintf(path, sizeof(path), "%s/%s", directory && *directory ? directory : DATA_DIRECTORY, name);
    gzFile file = gzopen(path, "rb");
    if (!file || gzbuffer(file, 1 << 18) != 0 || gzread(file, head, (unsigned)header) != (int)header ||
        gzread(file, data, (unsigned)(count * bytes)) != (int)(count * bytes))
        die("cannot read %s: install dataset-fashion-mnist or set LOCKSTEP_DATA", path);
    gzclose(file);
    return data;
}

static uint32_t draw(void) /* xorshift */
{
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static uint8_t *noise(size_t bytes)
{
    uint8_t *data = memory(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)draw();
    return data;
}

/* ---- Training ---- */

typedef struct job {
    ls_bench_model model;
    size_t samples, batch, image_bytes;
    uint8_t *images, *labels;             /* all of them */
    uint8_t *batch_images, *batch_labels; /* those of the step */
    uint32_t *order;
} job;

static void shuffle(job *j)
{
    for (size_t i = j->samples; i > 1; i--) {
        size_t other = draw() % i;
        uint32_t kept = j->order[i - 1];
        j->order[i - 1] = j->order[other];
        j->order[other] = kept;
    }
}

/* Samples first .. first + count - 1 of the order. Returns the loss. */
static double step(job *j, size_t first, size_t count)
{
    const ls_bench_model *m = &j->model;
    for (size_t i = 0; i < count; i++) {
        size_t sample = j->order[first + i];
        memcpy(j->batch_images + i * j->image_bytes, j->images + sample * j->image_bytes, j->image_bytes);
        j->batch_labels[i] = j->labels[sample];
    }
    int64_t n = (int64_t)count;
    ls_feed feeds[] = {
        { .input = m->images,
          .value = ls_array_of(LS_U8, LS_SHAPE(n, m->height, m->width, m->channels), j->batch_images) },
        { .input = m->labels, .value = ls_array_of(LS_U8, LS_SHAPE(n), j->batch_labels) },
    };
    ls_tensor *fetches[] = { m->step, m->loss };
    double loss;
    LS_CHECK(ls_eval(m->graph, feeds, 2, fetches, 2));
    LS_CHECK(ls_read_scalar(m->loss, &loss));
    return loss;
}

/* Returns the mean loss; *first_step: when the first step ended. */
static double epoch(job *j, double *first_step)
{
    double loss = 0;
    shuffle(j);
    for (size_t first = 0; first < j->samples; first += j->batch) {
        size_t left = j->samples - first, count = left < j->batch ? left : j->batch;
        loss += step(j, first, count) * (double)count;
        *first_step = first == 0 ? now() : *first_step;
    }
    return loss / (double)j->samples;
}

/* ---- Profile ---- */

/* Finds the executor of steps with a full batch, which the graph keeps. */
static ls_executor *executor_of(const job *j)
{
    ls_tensor *fetches[] = { j->model.step, j->model.loss };
    ls_executor *executor;
    LS_CHECK(ls_runs_get(j->model.graph, NULL, fetches, 2, (int64_t)j->batch, &executor));
    return executor;
}

static void print_profile(const job *j)
{
    ls_text text = { 0 };
    ls_profile *profile;
    LS_CHECK(ls_profile_make(&profile));
    LS_CHECK(ls_profile_add(profile, executor_of(j)));
    LS_CHECK(ls_profile_print(profile, &text));
    fputs(ls_text_get(&text), stdout);
    ls_text_free(&text);
    ls_profile_free(profile);
}

/* ---- The program ---- */

static const row *read_arguments(int argc, char **argv, settings *set)
{
    ls_options options = { 0 };
    LS_CHECK(ls_options_add(&options, &table, set));
    LS_CHECK(ls_options_environment(&options));
    LS_CHECK(ls_options_parse(&options, argc - 1, (const char *const *)argv + 1));
    const char *name = options.positional_count == 1 ? options.positional[0] : "";
    const row *found = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        found = strcmp(rows[i].name, name) == 0 ? &rows[i] : found;
    if (!found) {
        ls_text help = { 0 };
        ls_options_help(&options, 0, &help);
        fprintf(stderr, "usage: bench_train cnn-4096|cnn-256|wide|resnet50 [options]\n%s", ls_text_get(&help));
        exit(2);
    }
    ls_options_free(&options);
    return found;
}

static void print_result(const row *r, const job *j, const ls_context *ctx, const double *seconds, size_t epochs,
                         double first_step, double unpacking, double loss)
{
    struct rusage usage;
    double best = seconds[0];
    getrusage(RUSAGE_SELF, &usage);
    for (size_t i = 1; i < epochs; i++)
        best = seconds[i] < best ? seconds[i] : best;
    printf("{\"row\": \"%s\", \"framework\": \"lockstep\", \"version\": \"%s\", \"threads\": %d, \"devices\": %d, "
           "\"samples\": %zu, \"seconds\": %.4f, \"img_per_s\": %.2f, \"epochs\": [",
           r->name, LS_VERSION, ctx->runtime->cpu_threads, ctx->cpu_count, j->samples, best, (double)j->samples / best);
    for (size_t i = 0; i < epochs; i++)
        printf("%s%.4f", i ? ", " : "", seconds[i]);
    printf("], \"first_step\": %.3f, \"unpacking\": %.3f, \"rss_mb\": %.1f, \"peak_gflops\": %.1f, \"loss\": ",
           first_step, unpacking, (double)usage.ru_maxrss / 1024, ls_bench_peak(ctx->runtime->cpu_threads));
    printf(isfinite(loss) ? "%.6f}\n" : "null}\n", loss);
}

int main(int argc, char **argv)
{
    settings set;
    const row *r = read_arguments(argc, argv, &set);
    size_t epochs = (size_t)set.epochs;
    double started = process_start(), first_step = 0, later = 0, loss = 0, *seconds = memory(epochs * sizeof(*seconds));
    ls_context *ctx;
    job j = { .samples = (size_t)(set.samples ? set.samples : r->samples) };
    LS_CHECK(
        ls_context_open(&(ls_context_options){ .threads = (int)set.threads, .cpu_devices = (int)set.devices }, &ctx));
    LS_CHECK(ls_bench_model_create(ctx, r->model, &j.model));
    j.image_bytes = (size_t)(j.model.height * j.model.width * j.model.channels);
    j.batch = (size_t)r->batch < j.samples ? (size_t)r->batch : j.samples;

    double before = now();
    j.images = r->synthetic ? noise(j.samples * j.image_bytes)
                            : unpack("train-images-idx3-ubyte.gz", 16, j.samples, j.image_bytes);
    j.labels = r->synthetic ? noise(j.samples) : unpack("train-labels-idx1-ubyte.gz", 8, j.samples, 1);
    double unpacking = now() - before;

    j.batch_images = memory(j.batch * j.image_bytes);
    j.batch_labels = memory(j.batch);
    j.order = memory(j.samples * sizeof(*j.order));
    for (size_t i = 0; i < j.samples; i++)
        j.order[i] = (uint32_t)i;
    for (size_t i = 0; i < epochs; i++) {
        double begin = now();
        loss = epoch(&j, i == 0 ? &first_step : &later);
        seconds[i] = now() - begin;
        if (set.profile && i == 0)
            LS_CHECK(ls_executor_profile(executor_of(&j)));
    }
    print_result(r, &j, ctx, seconds, epochs, first_step - started, unpacking, loss);
    if (set.profile)
        print_profile(&j);

    ls_bench_model_destroy(&j.model);
    ls_context_close(ctx);
    free(j.images), free(j.labels), free(j.batch_images), free(j.batch_labels), free(j.order), free(seconds);
    return 0;
}
