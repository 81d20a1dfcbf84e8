/* Arrays in HDF5 files, by the path of their dataset, "layers/dense/vars/0". The file is in memory: reading and
 * replacing it is for others. */
#ifndef LS_DATA_HDF5_H
#define LS_DATA_HDF5_H

#include "data/tensors.h"

/* All datasets but those under the group "optimizer" of the root. `path` is for messages. Floating-point numbers of 4
 * bytes and less become float32, integers the smallest of our types that has their values.
 *
 * A hostile file meets libhdf5 itself: we rely on its checks of the file's structure. What it says of sizes is checked
 * here before memory is taken: a dataset must lie in the file, as large as its shape says, and all of them together
 * must not be more than the file. Nothing outside the file is opened: links that lead elsewhere, external storage and
 * virtual datasets are refused, and so are filters, whose code would be loaded from somewhere. */
ls_status ls_hdf5_read(const char *path, const void *image, size_t bytes, ls_tensors *out);

/* A file with these datasets, in groups made for them, and for each pair a group KEY/vars with the attribute name =
 * VALUE, as Keras has them. Equal calls give equal bytes. free() the image. */
ls_status ls_hdf5_make(const char *path, const ls_safetensors_entry *entries, size_t count,
                       const ls_safetensors_pair *groups, size_t group_count, void **image, size_t *bytes);

#endif
