/* Two jobs on one machine, each on its own device: LOCKSTEP_VISIBLE_DEVICES restricts what each
 * process can use. Without arguments, each gets one core of the CPU.
 *     two_jobs gpu:0 gpu:1
 *     two_jobs 'cpu:0[0]' 'cpu:0[1]' */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <lockstep.h>

#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A job: trains a small network on synthetic data, and prints its devices. */
static int work(const char *job)
{
    ls_context *ctx;
    ls_dataset *data;
    ls_model *model;
    ls_results results;
    ls_device_info *devices;
    size_t count;
    LS_CHECK(ls_context_open(NULL, &ctx));
    LS_CHECK(ls_list_logical_devices(ctx, NULL, &devices, &count));
    LS_CHECK(ls_load_data(ctx, "synthetic:8x8x1,classes=4,count=512", &data, NULL));
    LS_CHECK(ls_sequential(ctx, job, &model, ls_input(8, 8, 1), ls_flatten(), ls_dense(32, .activation = LS_RELU),
                           ls_dense(4, .activation = LS_SOFTMAX)));
    LS_CHECK(ls_compile(model, .optimizer = ls_adam(0.01), .loss = ls_sparse_categorical_crossentropy()));
    LS_CHECK(ls_fit(model, data, .epochs = 5, .batch_size = 64, .verbose = LS_VERBOSE_SILENT));
    LS_CHECK(ls_evaluate(model, data, &results));
    printf("job %s on %s (%s): loss %.3f\n", job, devices[count - 1].name, devices[count - 1].about, results.values[0]);
    free(devices);
    ls_model_destroy(model);
    ls_dataset_destroy(data);
    ls_context_close(ctx);
    return 0;
}

static pid_t start(const char *program, const char *job, const char *visible)
{
    pid_t child = fork();
    if (child == 0) {
        setenv("LOCKSTEP_VISIBLE_DEVICES", visible, 1);
        execl(program, program, "--job", job, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* One core for each job: the first two that this process may use, or the only one. */
static void choose_cores(char first[32], char second[32])
{
    cpu_set_t allowed;
    int found = 0;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &allowed)) {
            snprintf(second, 32, "cpu:0[%d]", core);
            if (found++ == 0)
                snprintf(first, 32, "cpu:0[%d]", core);
        }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--job") == 0)
        return work(argv[2]);
    char first[32], second[32];
    int status, failed = 0;
    choose_cores(first, second);
    pid_t a = start("/proc/self/exe", "A", argc > 2 ? argv[1] : first);
    pid_t b = start("/proc/self/exe", "B", argc > 2 ? argv[2] : second);
    failed |= a < 0 || waitpid(a, &status, 0) < 0 || status != 0;
    failed |= b < 0 || waitpid(b, &status, 0) < 0 || status != 0;
    return failed;
}
