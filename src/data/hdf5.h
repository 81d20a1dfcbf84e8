/* HDF5 files as Keras writes them: nested groups of arrays, addressed by path,
 * "layers/dense/vars/0", in the first version of the format (superblock 0 or 1). libhdf5 is not
 * used because release 1.10.8 (Debian 12) crashes or hangs on damaged files. */
#ifndef LS_DATA_HDF5_H
#define LS_DATA_HDF5_H

#include "base/file.h"
#include "data/tensors.h"

/* Reads all arrays except those of the root group "optimizer". 2-byte floats become float32,
 * integers the smallest supported type that holds their values. Arrays must lie within the file,
 * and their total size must not exceed it. */
ls_status ls_hdf5_read(const char *path, const void *image, size_t bytes, ls_tensors *out);

/* Lays out a file of these arrays, and for each pair a group KEY/vars with the attribute name =
 * VALUE, as Keras does. The parts point to the entries' data and into *memory; the caller calls
 * free() on *parts and *memory. */
ls_status ls_hdf5_make(const char *path, const ls_safetensors_entry *entries, size_t count,
                       const ls_safetensors_pair *groups, size_t group_count, ls_file_part **parts, size_t *part_count,
                       void **memory);

#endif
