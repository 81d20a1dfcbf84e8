/* The kernels of src/backend/gpu as text: they have nothing whose bits a driver could choose, and
 * they are CUDA C as well as OpenCL C: NVRTC, asked as the CUDA backend asks it, makes PTX of every
 * module for sm_80 and, with LS_TESTS=all, sm_90, and ptxas translates it with nothing spilled
 * (skipped where they are not installed). That they compute right is shown on OpenCL, by
 * test_opencl_bits.c, and on a CPU that replaces CUDA, by test_cuda_bits.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "amount.h"
#include "backend/cuda/cuda.h"
#include "backend/gpu/chains.h"
#include "skip.h"

/* Words that kernels may not have: what they give is the driver's choice, or depends on who is
 * first. */
static const char *const banned[] = { "exp",     "log",      "tanh",       "rsqrt",     "mad",        "pow",
                                      "native_", "half_exp", "atomic_add", "atomicAdd", "atom_add",   "__expf",
                                      "fast_",   "erf",      "sin",        "cos",       "__fdividef", "barrier" };

/* Whether a function of that name is called: the word, then a bracket. A name that ends in _ is
 * only a beginning. */
static bool calls(const char *text, const char *word)
{
    size_t length = strlen(word);
    bool begins = word[length - 1] == '_';
    for (const char *at = text; (at = strstr(at, word)); at += length) {
        bool start = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (start && (begins || at[length] == '('))
            return true;
    }
    return false;
}

/* Comments speak of what kernels do not do. */
static void without_comments(char *text)
{
    for (char *at = text; (at = strstr(at, "/*"));) {
        char *end = strstr(at, "*/");
        assert_non_null(end);
        memset(at, ' ', (size_t)(end + 2 - at));
    }
}

static void nothing_is_left_to_the_driver(void **state)
{
    (void)state;
    for (int m = 0; m < LS_GPU_MODULES; m++) {
        char *text = ls_gpu_source((ls_gpu_module)m);
        assert_non_null(text);
        assert_non_null(strstr(text, "FP_CONTRACT OFF"));
        without_comments(text);
        for (size_t i = 0; i < sizeof banned / sizeof *banned; i++)
            if (calls(text, banned[i]))
                fail_msg("%s: calls %s", ls_gpu_module_name((ls_gpu_module)m), banned[i]);
        free(text);
    }
}

/* ---- CUDA ---- */

static const int architecture[] = { 80, 90 };
#define ARCHITECTURES (test_is_sample() ? 1 : 2)

static int count_architectures(int *count)
{
    *count = ARCHITECTURES;
    return LS_NVRTC_SUCCESS;
}

static int list_architectures(int *list)
{
    memcpy(list, architecture, (size_t)ARCHITECTURES * sizeof(*architecture));
    return LS_NVRTC_SUCCESS;
}

/* A compiler that knows no others: for a device that is newer it makes PTX of the last before
 * it. */
static bool load_compiler(ls_nvrtc *out, const char **why)
{
    static char path[256], reason[256];
    *why = reason;
    if (!ls_cuda_load_compiler(0, out, path, reason))
        return false;
    out->GetNumSupportedArchs = count_architectures;
    out->GetSupportedArchs = list_architectures;
    return true;
}

static const char *find_ptxas(void)
{
    static const char *const places[] = { "/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

/* Starts ptxas on a module's PTX; its words go to <module>-<architecture>.log. */
static pid_t start(const char *ptxas, const char *folder, const char *module, int sm, const char *ptx)
{
    char path[300], log[300], arch[32];
    snprintf(path, sizeof path, "%s/%s-%d.ptx", folder, module, sm);
    snprintf(log, sizeof log, "%s/%s-%d.log", folder, module, sm);
    snprintf(arch, sizeof arch, "-arch=sm_%d", sm);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(ptx, file) >= 0);
    assert_int_equal(fclose(file), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen(log, "w", stdout) || dup2(fileno(stdout), 2) < 0)
            _exit(126);
        execl("/usr/bin/timeout", "timeout", "120", ptxas, "-v", arch, "-o", "/dev/null", path, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* Every line of ptxas that speaks of spills speaks of 0 bytes. */
static void finish(const char *folder, const char *module, int sm, pid_t child)
{
    char path[300], line[1024], first[1024] = "";
    int status = 0, spills = 0, kernels = 0;
    snprintf(path, sizeof path, "%s/%s-%d.log", folder, module, sm);
    assert_int_equal(waitpid(child, &status, 0), child);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (!first[0] && strstr(line, "error"))
            snprintf(first, sizeof first, "%s", line);
        kernels += strstr(line, "Compiling entry function") != NULL;
        spills += strstr(line, "spill") && !strstr(line, " 0 bytes spill stores, 0 bytes spill loads");
    }
    fclose(file);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("ptxas does not take %s for sm_%d: %s", module, sm, first);
    assert_true(kernels > 0);
    assert_int_equal(spills, 0);
}

/* NVRTC makes PTX of every module, as the backend asks for it; ptxas translates one while the next
 * is made. */
static void ptxas_takes_every_module(void **state)
{
    (void)state;
    ls_nvrtc nvrtc;
    const char *why, *ptxas = find_ptxas();
    char folder[] = "/tmp/lockstep-ptxas-XXXXXX", remove_all[64];
    pid_t before = 0;
    if (!load_compiler(&nvrtc, &why))
        SKIP(why);
    if (!ptxas)
        SKIP("no ptxas");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i <= LS_GPU_MODULES * ARCHITECTURES; i++) {
        char *source = NULL;
        void *ptx = NULL;
        size_t bytes = 0;
        int module = i / ARCHITECTURES, last = (i - 1) / ARCHITECTURES;
        if (module < LS_GPU_MODULES) {
            int newer = architecture[i % ARCHITECTURES] + 1;
            source = ls_gpu_source((ls_gpu_module)module);
            assert_non_null(source);
            if (ls_cuda_compile(&nvrtc, source, ls_gpu_module_name((ls_gpu_module)module), newer / 10, newer % 10,
                                &ls_gpu_tuning_gpu, &ptx, &bytes) != LS_OK)
                fail_msg("%s", ls_last_error());
            assert_true(bytes > 64 && ((char *)ptx)[bytes - 1] == '\0');
        }
        if (before)
            finish(folder, ls_gpu_module_name((ls_gpu_module)last), architecture[(i - 1) % ARCHITECTURES], before);
        if (ptx)
            before =
                start(ptxas, folder, ls_gpu_module_name((ls_gpu_module)module), architecture[i % ARCHITECTURES], ptx);
        free(ptx);
        free(source);
    }
    snprintf(remove_all, sizeof remove_all, "rm -rf %s", folder);
    assert_int_equal(system(remove_all), 0);
}

/* A chain of LS_GPU_CHAIN functions, from this one on: each of the value before it and of one of
 * two operands; the last and the third are stored. */
static ls_gpu_chain_steps chain_from(int first)
{
    ls_gpu_chain_steps c = { .count = LS_GPU_CHAIN, .inputs = 2, .outputs = 2, .output = { 2, LS_GPU_CHAIN - 1 } };
    for (int k = 0; k < LS_GPU_CHAIN; k++) {
        c.function[k] = (first + k) % LS_CHAIN_COUNT;
        c.from[k][0] = k ? LS_GPU_PLACES + k - 1 : 0;
        c.from[k][1] = k % 2;
    }
    snprintf(c.name, sizeof c.name, "chain_%d", first);
    return c;
}

static void compile(const ls_nvrtc *nvrtc, const char *source, const char *name, int sm)
{
    void *cubin = NULL;
    size_t bytes = 0;
    assert_non_null(source);
    if (ls_cuda_compile(nvrtc, source, name, sm / 10, sm % 10, &ls_gpu_tuning_gpu, &cubin, &bytes) != LS_OK)
        fail_msg("%s", ls_last_error());
    assert_true(bytes > 64 && memcmp(cubin, "\177ELF", 4) == 0);
    free(cubin);
}

/* For a device that it knows NVRTC makes machine code, by a ptxas of its own. */
static void nvrtc_makes_machine_code(void **state)
{
    (void)state;
    ls_nvrtc nvrtc;
    const char *why;
    if (!load_compiler(&nvrtc, &why))
        SKIP(why);
    for (int a = 0; a < ARCHITECTURES; a++) {
        char *source = ls_gpu_source(LS_GPU_COMMON);
        compile(&nvrtc, source, "common", architecture[a]);
        free(source);
    }
    for (int first = 0; first < LS_CHAIN_COUNT; first += LS_GPU_CHAIN - 1) { /* all functions of chains, some twice */
        ls_gpu_chain_steps c = chain_from(first);
        char *source = ls_gpu_chain_source(&c);
        compile(&nvrtc, source, c.name, 80);
        free(source);
    }
    /* the compiler's messages are reported */
    void *cubin = NULL;
    size_t bytes = 0;
    assert_int_equal(ls_cuda_compile(&nvrtc, "extern \"C\" __global__ void f() { nonsense; }", "wrong", 8, 0,
                                     &ls_gpu_tuning_gpu, &cubin, &bytes),
                     LS_ERR_DEVICE);
    assert_non_null(strstr(ls_last_error(), "nonsense"));
    assert_non_null(strstr(ls_last_error(), "sm_80"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left_to_the_driver),
        cmocka_unit_test(ptxas_takes_every_module),
        cmocka_unit_test(nvrtc_makes_machine_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
