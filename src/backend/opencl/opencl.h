/* OpenCL devices. library.c loads libOpenCL and lists devices; device.c implements
 * backend/gpu/driver.h. */
#ifndef LS_BACKEND_OPENCL_OPENCL_H
#define LS_BACKEND_OPENCL_OPENCL_H

#include "backend/gpu/driver.h"
#include "backend/opencl/cl.h"
#include "base/text.h"

/* A device, or a part of one. */
typedef struct ls_opencl_device {
    ls_cl_device id;
    ls_cl_context context; /* context of its platform, whose devices can copy from each other */
    char name[128], platform[128], driver[128];
    size_t memory;
    bool cpu;        /* runs on the host's cores: used only if named */
    bool gpu;        /* also counted by "gpu:N" */
    bool rounded;    /* correctly rounded float division and square root */
    bool subnormals; /* keeps subnormal float32 numbers; without them its bits differ */
    bool wide;       /* float64, which the kernels need */
    const ls_gpu_tuning *tuning;
} ls_opencl_device;

/* Found once per process and never freed. */
typedef struct ls_opencl {
    ls_cl cl;
    ls_opencl_device *devices;
    int count;
    char problem[256]; /* why there are no devices, or "" */
} ls_opencl;

const ls_opencl *ls_opencl_get(void);

/* Whether a driver other than PoCL (a CPU) is installed, worth loading even if no OpenCL device was
 * named. Reads only the names of drivers. */
bool ls_opencl_is_expected(void);

extern const ls_backend ls_opencl_backend;

void ls_opencl_describe(ls_text *lines);

const char *ls_opencl_error(int32_t error, char text[64]);

#endif
