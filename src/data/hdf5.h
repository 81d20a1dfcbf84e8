/* HDF5 files as Keras writes them: groups of groups and arrays, by the path of an array, "layers/dense/vars/0".
 *
 * The format is HDF5's first (superblock 0 or 1, groups as symbol tables, arrays in one piece), which is what h5py
 * writes unless told otherwise. libhdf5 is not used: release 1.10.8, Debian 12's, crashes on and hangs in damaged
 * files, and these are files that people get from others. */
#ifndef LS_DATA_HDF5_H
#define LS_DATA_HDF5_H

#include "base/file.h"
#include "data/tensors.h"

/* All arrays but those of the group "optimizer" of the root (hdf5_read.c). Floating-point numbers of 2 bytes become
 * float32, integers the smallest of our types that has their values. Every place and size in the file is checked before
 * it is used; arrays must lie in the file, and all of them together must not be more than it. What is not read (packed
 * arrays, arrays in other files, links that lead elsewhere, groups of later formats) is an error that says so. */
ls_status ls_hdf5_read(const char *path, const void *image, size_t bytes, ls_tensors *out);

/* A file of these arrays, in groups made for them; and for each pair a group KEY/vars with the attribute name = VALUE,
 * as Keras has them (hdf5_write.c). The parts are the entries' own data, and pieces of `memory`; free() both. */
ls_status ls_hdf5_make(const char *path, const ls_safetensors_entry *entries, size_t count,
                       const ls_safetensors_pair *groups, size_t group_count, ls_file_part **parts, size_t *part_count,
                       void **memory);

#endif
