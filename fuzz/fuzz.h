/* Shared by fuzz targets. A target is a file fuzz_NAME.c with LLVMFuzzerTestOneInput; it is linked
 * either with libFuzzer or with driver.c, which replays a corpus and mutates it a little. A target
 * reports a failure with fuzz_broken. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Prints what is wrong and aborts: the input is then kept by libFuzzer or by the driver. */
_Noreturn void fuzz_broken(const char *format, ...) LS_PRINTF(1, 2);
#define FUZZ_CHECK(condition, ...) ((condition) ? (void)0 : fuzz_broken(__VA_ARGS__))

/* A file in memory with these bytes, and its path; the path is valid until the next call. */
const char *fuzz_file(const uint8_t *data, size_t size);

/* A call either succeeds or leaves one line of plain text; returns whether it succeeded. */
bool fuzz_status(ls_status status);

/* Reads every element of an array, so that sanitizers see memory that is not there, and frees
 * it. */
void fuzz_array_use(ls_array *array);

/* The next bytes of the input as a number below `limit`; 0 when there are none left. */
typedef struct fuzz_input {
    const uint8_t *data;
    size_t left;
} fuzz_input;
unsigned fuzz_take(fuzz_input *in, unsigned limit);

/* A context of that many CPU devices on two threads, or with the reference kernels alone; opened
 * once, kept to the end. Each has a limit of 256 MiB. */
ls_context *fuzz_context(int devices, bool reference);

#endif
