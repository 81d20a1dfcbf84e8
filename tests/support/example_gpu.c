/* Contexts of an example that is compiled with -Dls_context_create=example_context_create (and the
 * like) have two test GPUs of 64 MiB: the example itself knows nothing of it. */
#include "gpu.h"
#include "lockstep/backend.h"

ls_status example_context_create(const ls_context_options *options, ls_context **out);
ls_status example_context_open(const ls_context_options *options, ls_context **out);

ls_status example_context_create(const ls_context_options *options, ls_context **out)
{
    static gpu *gpus; /* shared by all contexts, to the end of the program */
    if (!gpus)
        gpus = gpu_create((gpu_settings){ .devices = 2, .memory = LS_MIB(64) });
    ls_status status = ls_context_create(options, out);
    return status == LS_OK ? ls_add_backend(*out, gpu_backend(gpus)) : status;
}

ls_status example_context_open(const ls_context_options *options, ls_context **out)
{
    ls_device_info *devices;
    size_t count;
    ls_status status = example_context_create(options, out);
    if (status == LS_OK)
        status = ls_list_logical_devices(*out, NULL, &devices, &count); /* opens it */
    if (status == LS_OK)
        free(devices);
    return status;
}
