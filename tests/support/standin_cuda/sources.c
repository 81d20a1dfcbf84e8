/* Writes the modules of src/backend/gpu, as NVRTC is given them, into a folder: <module>.cu, and
 * modules.inc with a row for each. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/gpu/gpu.h"
#include "standin_cuda/standin.h"

static FILE *create(const char *folder, const char *name, const char *end)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    FILE *rows = create(arguments[1], "modules", ".inc");
    for (int m = 0; m < LS_GPU_MODULES; m++) {
        const char *name = ls_gpu_module_name((ls_gpu_module)m);
        char *text = ls_gpu_source((ls_gpu_module)m);
        FILE *file = create(arguments[1], name, ".cu");
        if (!text || fputs(text, file) < 0 || fclose(file) != 0)
            return 1;
        fprintf(rows, "MODULE(%s, 0x%llxull)\n", name, standin_hash(text));
        free(text);
    }
    return fclose(rows) != 0;
}
