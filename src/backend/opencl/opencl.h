/* OpenCL devices. library.c loads libOpenCL and lists devices; device.c implements the driver
 * functions that src/backend/gpu needs. src/backend/gpu decides what is computed and with which
 * kernels. */
#ifndef LS_BACKEND_OPENCL_OPENCL_H
#define LS_BACKEND_OPENCL_OPENCL_H

#include "backend/gpu/driver.h"
#include "backend/opencl/cl.h"
#include "base/text.h"

/* An OpenCL device, or a part of one. */
typedef struct ls_opencl_device {
    ls_cl_device id;
    ls_cl_context context; /* of its platform; devices that share it can copy from each other */
    char name[128], platform[128], driver[128];
    size_t memory;
    bool cpu;        /* runs on the host's cores: used only if named */
    bool gpu;        /* of type GPU: also counted by "gpu:N" */
    bool rounded;    /* rounds float division and square root correctly */
    bool subnormals; /* supports float32 subnormals; without them its bits differ */
    bool wide;       /* supports float64, which the kernels need */
    const ls_gpu_tuning *tuning;
} ls_opencl_device;

/* The library and devices found; initialized once per process and never freed. */
typedef struct ls_opencl {
    ls_cl cl;
    ls_opencl_device *devices;
    int count;
    char problem[256]; /* why there are no devices; "": no error */
} ls_opencl;

const ls_opencl *ls_opencl_get(void);

/* Whether a driver other than PoCL (a CPU) is installed, so that it is worth loading even if the
 * user named no OpenCL device. Reads only the names of drivers. */
bool ls_opencl_is_expected(void);

extern const ls_backend ls_opencl_backend;

/* Describes in a line per platform what was found, or why nothing was. */
void ls_opencl_describe(ls_text *lines);

/* Formats an error: "CL_OUT_OF_RESOURCES (-5)". */
const char *ls_opencl_error(int32_t error, char text[64]);

#endif
