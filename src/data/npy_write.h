/* Arrays for NumPy: predictions as an .npy file. */
#ifndef LS_DATA_NPY_WRITE_H
#define LS_DATA_NPY_WRITE_H

#include "lockstep/graph.h"

/* Format 1.0, C order, the bytes that numpy.save writes. Replaces the file as ls_file_write does, without a copy of the
 * data. Every size of the shape is known. */
ls_status ls_npy_write(const char *path, ls_dtype dtype, const ls_shape *shape, const void *data);

#endif
