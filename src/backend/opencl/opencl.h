/* OpenCL devices. library.c loads libOpenCL and lists devices; device.c has what src/backend/gpu asks of a driver. What
 * is computed, with which kernels, and what a device does for a context is src/backend/gpu's business. */
#ifndef LS_BACKEND_OPENCL_OPENCL_H
#define LS_BACKEND_OPENCL_OPENCL_H

#include "backend/gpu/driver.h"
#include "backend/opencl/cl.h"
#include "base/text.h"

/* A device that OpenCL has, or a part of one. */
typedef struct ls_opencl_device {
    ls_cl_device id;
    ls_cl_context context; /* of its platform: devices of one can copy from each other */
    char name[128], platform[128], driver[128];
    size_t memory;
    bool cpu;        /* it computes on the host's cores: used only where it is named */
    bool gpu;        /* of type GPU: "gpu:N" counts it, too */
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

extern const ls_backend ls_opencl_backend;

/* What was found, a line for each platform, or why nothing was. */
void ls_opencl_describe(ls_text *lines);

/* "CL_OUT_OF_RESOURCES (-5)" */
const char *ls_opencl_error(int32_t error, char text[64]);

#endif
