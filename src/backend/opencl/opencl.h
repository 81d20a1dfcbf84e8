/* OpenCL devices. library.c loads libOpenCL and lists devices; programs.c compiles kernels and keeps them on disk;
 * device.c is the table of functions that a context has (lockstep/backend.h). What is computed, and with which kernels,
 * is src/backend/gpu's business. */
#ifndef LS_BACKEND_OPENCL_OPENCL_H
#define LS_BACKEND_OPENCL_OPENCL_H

#include "backend/gpu/gpu.h"
#include "backend/opencl/cl.h"

/* A device that OpenCL has, or a part of one. */
typedef struct ls_opencl_device {
    ls_cl_device id;
    ls_cl_context context; /* of its platform: devices of one can copy from each other */
    char name[128], platform[128], driver[128];
    size_t memory;
    bool cpu;        /* it computes on the host's cores: used only where it is named */
    bool rounded;    /* divides floats, and takes their roots, with one rounding */
    bool subnormals; /* has them in float32; without, its bits are its own */
    bool wide;       /* has float64: without it there are no kernels */
    const ls_gpu_tuning *tuning;
} ls_opencl_device;

/* What was found, once for the process; it stays until the process ends. */
typedef struct ls_opencl {
    ls_cl cl;
    ls_opencl_device *devices;
    int count;
    char problem[256]; /* why there are none; "": nothing went wrong */
} ls_opencl;

const ls_opencl *ls_opencl_get(void);

/* Whether a driver is installed that is worth loading before anybody names an OpenCL device: any but PoCL, which is a
 * CPU. It reads the names of drivers and loads nothing. */
bool ls_opencl_is_expected(void);

/* ---- Kernels of an open device ---- */

typedef struct ls_opencl_programs ls_opencl_programs;

ls_opencl_programs *ls_opencl_programs_create(const ls_opencl_device *device); /* NULL: no memory */
void ls_opencl_programs_destroy(ls_opencl_programs *programs);

/* A kernel, compiled if it is not yet. *first: it is asked for the first time. */
ls_status ls_opencl_kernel(ls_opencl_programs *programs, ls_gpu_module module, const char *name, ls_cl_kernel *out,
                           bool *first);

/* Kernels that were compiled and are not on disk yet go there. What fails is left out. */
void ls_opencl_programs_keep(ls_opencl_programs *programs);

/* "CL_OUT_OF_RESOURCES (-5)" */
const char *ls_opencl_error(int32_t error, char text[64]);

#endif
