#include "nn/keras.h"

#include "base/status.h"

ls_status ls_keras_write(const ls_model *model, const char *path, const ls_safetensors_entry *entries,
                         const ls_safetensors_pair *groups, size_t group_count)
{
    (void)model, (void)entries, (void)groups, (void)group_count;
    return ls_fail(LS_ERR_UNSUPPORTED, "cannot write '%s'", path);
}
