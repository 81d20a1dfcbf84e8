/* The kernels of src/backend/gpu as text: they have nothing whose bits a driver could choose, and they are CUDA C as
 * well as OpenCL C: nvcc and ptxas take every module for sm_80 and sm_90, with nothing spilled, and so does NVRTC, by
 * the way that the CUDA backend takes (skipped where they are not installed). That they compute right is shown on
 * OpenCL, by test_opencl_bits.c, and on a CPU that stands in for CUDA, by test_cuda_bits.c. */
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

#include "backend/cuda/cuda.h"
#include "backend/gpu/chains.h"
#include "skip.h"

/* Words that kernels may not have: what they give is the driver's choice, or depends on who is first. */
static const char *const banned[] = { "exp",     "log",      "tanh",       "rsqrt",     "mad",        "pow",
                                      "native_", "half_exp", "atomic_add", "atomicAdd", "atom_add",   "__expf",
                                      "fast_",   "erf",      "sin",        "cos",       "__fdividef", "barrier" };

/* Whether a function of that name is called: the word, then a bracket. A name that ends in _ is only a beginning. */
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

static const char *find_nvcc(void)
{
    static const char *const places[] = { "/usr/local/cuda/bin/nvcc", "/usr/bin/nvcc" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

/* Starts nvcc on a module; its words go to <module>.log. */
static pid_t start(const char *nvcc, const char *folder, ls_gpu_module module)
{
    char path[300], log[300], out[300], *text = ls_gpu_source(module);
    snprintf(path, sizeof path, "%s/%s.cu", folder, ls_gpu_module_name(module));
    snprintf(log, sizeof log, "%s/%s.log", folder, ls_gpu_module_name(module));
    snprintf(out, sizeof out, "%s/%s.fatbin", folder, ls_gpu_module_name(module));
    FILE *file = fopen(path, "w");
    assert_non_null(text);
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    free(text);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen(log, "w", stdout) || dup2(fileno(stdout), 2) < 0)
            _exit(126);
        execl("/usr/bin/timeout", "timeout", "120", nvcc, "-fatbin", "-gencode", "arch=compute_80,code=sm_80",
              "-gencode", "arch=compute_90,code=sm_90", "--fmad=false", "-prec-div=true", "-prec-sqrt=true",
              "-ftz=false", "-std=c++17", "-w", "-Xptxas", "-v", "-DLS_VECTOR=1", "-DLS_ROWS=4", "-o", out, path,
              (char *)NULL);
        _exit(127);
    }
    return child;
}

/* Every line of ptxas that speaks of spills speaks of 0 bytes. */
static void finish(const char *folder, ls_gpu_module module, pid_t child)
{
    char path[300], line[1024], first[1024] = "";
    int status = 0, spills = 0, kernels = 0;
    snprintf(path, sizeof path, "%s/%s.log", folder, ls_gpu_module_name(module));
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
        fail_msg("%s is no CUDA C: %s", ls_gpu_module_name(module), first);
    assert_true(kernels > 0 && kernels % 2 == 0); /* each for two architectures */
    assert_int_equal(spills, 0);
}

static void nvcc_compiles_every_module(void **state)
{
    (void)state;
    const char *nvcc = find_nvcc();
    char folder[] = "/tmp/lockstep-nvcc-XXXXXX", remove_all[64];
    if (!nvcc)
        SKIP("no nvcc");
    assert_non_null(mkdtemp(folder));
    for (int m = 0; m < LS_GPU_MODULES; m += 2) { /* two at a time */
        bool pair = m + 1 < LS_GPU_MODULES;
        pid_t one = start(nvcc, folder, (ls_gpu_module)m);
        pid_t two = pair ? start(nvcc, folder, (ls_gpu_module)(m + 1)) : 0;
        finish(folder, (ls_gpu_module)m, one);
        if (pair)
            finish(folder, (ls_gpu_module)(m + 1), two);
    }
    snprintf(remove_all, sizeof remove_all, "rm -rf %s", folder);
    assert_int_equal(system(remove_all), 0);
}

/* A chain of LS_GPU_CHAIN functions, from this one on: each of the value before it and of one of two operands; the last
 * and the third are stored. */
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

/* As the backend asks for it. NVRTC has a ptxas of its own. */
static void nvrtc_compiles_every_module(void **state)
{
    (void)state;
    static const int majors[] = { 8, 9 };
    ls_nvrtc nvrtc;
    char path[256], why[256];
    if (!ls_cuda_load_compiler(0, &nvrtc, path, why))
        SKIP(why);
    for (size_t a = 0; a < sizeof majors / sizeof *majors; a++)
        for (int m = (int)a; m < LS_GPU_MODULES; m += 2) { /* each for one of them: nvcc had both */
            const char *name = ls_gpu_module_name((ls_gpu_module)m);
            char *source = ls_gpu_source((ls_gpu_module)m);
            void *cubin = NULL;
            size_t bytes = 0;
            assert_non_null(source);
            if (ls_cuda_compile(&nvrtc, source, name, majors[a], 0, &ls_gpu_tuning_gpu, &cubin, &bytes) != LS_OK)
                fail_msg("%s: %s", path, ls_last_error());
            assert_true(bytes > 64 && memcmp(cubin, "\177ELF", 4) == 0);
            free(cubin);
            free(source);
        }
    for (int first = 0; first < LS_CHAIN_COUNT; first += LS_GPU_CHAIN - 1) { /* all functions of chains, some twice */
        void *cubin = NULL;
        size_t bytes = 0;
        ls_gpu_chain_steps c = chain_from(first);
        char *source = ls_gpu_chain_source(&c);
        assert_non_null(source);
        if (ls_cuda_compile(&nvrtc, source, c.name, 8, 0, &ls_gpu_tuning_gpu, &cubin, &bytes) != LS_OK)
            fail_msg("%s: %s", path, ls_last_error());
        assert_true(bytes > 64 && memcmp(cubin, "\177ELF", 4) == 0);
        free(cubin);
        free(source);
    }
    /* what is wrong is told, in the compiler's words */
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
        cmocka_unit_test(nvcc_compiles_every_module),
        cmocka_unit_test(nvrtc_compiles_every_module),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
