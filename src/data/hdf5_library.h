/* libhdf5, found when it is first needed: nothing is linked with it, and without it everything else works. Its types
 * and numbers stand here as 1.10 and later have them, so that building needs no header of it either. */
#ifndef LS_DATA_HDF5_LIBRARY_H
#define LS_DATA_HDF5_LIBRARY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lockstep/base.h"

typedef int64_t h5_id; /* below 0: a call failed */
typedef unsigned long long h5_size;

typedef struct h5_group_info {
    int storage_type;
    h5_size link_count;
    int64_t max_order;
    bool mounted;
    char room[64]; /* for what later versions add */
} h5_group_info;

/* Its first member is all that is looked at; the rest differs between versions. */
typedef struct h5_link_info {
    int type;
    char room[124];
} h5_link_info;

typedef struct h5_error {
    h5_id class_id, major, minor;
    unsigned line;
    const char *function, *file, *text;
} h5_error;
typedef int (*h5_error_walk)(unsigned n, const h5_error *error, void *user);
typedef int (*h5_error_print)(h5_id stack, void *user);

enum { H5_READ_ONLY = 0, H5_TRUNCATE = 2 };                              /* opening and creating files */
enum { H5_GROUP = 2, H5_DATASET = 5 };                                   /* H5Iget_type */
enum { H5_LINK_HARD = 0 };                                               /* h5_link_info.type */
enum { H5_CLASS_INTEGER = 0, H5_CLASS_FLOAT = 1 };                       /* H5Tget_class */
enum { H5_UNSIGNED = 0 };                                                /* H5Tget_sign */
enum { H5_SPACE_SCALAR = 0, H5_SPACE_SIMPLE = 1 };                       /* H5Sget_simple_extent_type */
enum { H5_LAYOUT_COMPACT = 0, H5_LAYOUT_CONTIGUOUS, H5_LAYOUT_CHUNKED }; /* H5Pget_layout */
enum { H5_CLOSE_STRONG = 3 };                                            /* a file takes what is open in it along */
enum { H5_UTF8 = 1 };
#define H5_VARIABLE ((size_t)-1) /* size of a string of any length */

/* Result, name, arguments. */
/* clang-format off */
#define LS_HDF5_CALLS(CALL)                                                                                            \
    CALL(int, H5open, (void))                                                                                          \
    CALL(int, H5get_libversion, (unsigned *major, unsigned *minor, unsigned *release))                                 \
    CALL(int, H5Eget_auto2, (h5_id stack, h5_error_print *print, void **user))                                         \
    CALL(int, H5Eset_auto2, (h5_id stack, h5_error_print print, void *user))                                           \
    CALL(int, H5Ewalk2, (h5_id stack, int direction, h5_error_walk walk, void *user))                                  \
    CALL(int, H5Eclear2, (h5_id stack))                                                                                \
    CALL(h5_id, H5Pcreate, (h5_id kind))                                                                               \
    CALL(int, H5Pclose, (h5_id list))                                                                                  \
    CALL(int, H5Pset_fapl_core, (h5_id list, size_t increment, bool backing_store))                                    \
    CALL(int, H5Pset_file_image, (h5_id list, void *image, size_t bytes))                                              \
    CALL(int, H5Pset_fclose_degree, (h5_id list, int degree))                                                          \
    CALL(int, H5Pset_create_intermediate_group, (h5_id list, unsigned create))                                         \
    CALL(int, H5Pset_obj_track_times, (h5_id list, bool track))                                                        \
    CALL(int, H5Pget_layout, (h5_id list))                                                                             \
    CALL(int, H5Pget_external_count, (h5_id list))                                                                     \
    CALL(int, H5Pget_nfilters, (h5_id list))                                                                           \
    CALL(h5_id, H5Fopen, (const char *name, unsigned flags, h5_id access))                                             \
    CALL(h5_id, H5Fcreate, (const char *name, unsigned flags, h5_id create, h5_id access))                             \
    CALL(int, H5Fflush, (h5_id file, int scope))                                                                       \
    CALL(ssize_t, H5Fget_file_image, (h5_id file, void *image, size_t bytes))                                          \
    CALL(int, H5Fclose, (h5_id file))                                                                                  \
    CALL(h5_id, H5Gcreate2, (h5_id at, const char *name, h5_id link, h5_id create, h5_id access))                      \
    CALL(int, H5Gget_info, (h5_id group, h5_group_info *info))                                                         \
    CALL(ssize_t, H5Lget_name_by_idx, (h5_id at, const char *group, int index, int order, h5_size n, char *name,       \
                                       size_t room, h5_id access))                                                     \
    CALL(h5_id, H5Oopen, (h5_id at, const char *name, h5_id access))                                                   \
    CALL(int, H5Oclose, (h5_id object))                                                                                \
    CALL(int, H5Iget_type, (h5_id id))                                                                                 \
    CALL(h5_id, H5Dcreate2, (h5_id at, const char *name, h5_id type, h5_id space, h5_id link, h5_id create,            \
                             h5_id access))                                                                            \
    CALL(h5_id, H5Dget_space, (h5_id dataset))                                                                         \
    CALL(h5_id, H5Dget_type, (h5_id dataset))                                                                          \
    CALL(h5_id, H5Dget_create_plist, (h5_id dataset))                                                                  \
    CALL(h5_size, H5Dget_storage_size, (h5_id dataset))                                                                \
    CALL(int, H5Dread, (h5_id dataset, h5_id type, h5_id memory, h5_id file, h5_id transfer, void *to))                \
    CALL(int, H5Dwrite, (h5_id dataset, h5_id type, h5_id memory, h5_id file, h5_id transfer, const void *from))       \
    CALL(int, H5Dclose, (h5_id dataset))                                                                               \
    CALL(h5_id, H5Screate, (int kind))                                                                                 \
    CALL(h5_id, H5Screate_simple, (int rank, const h5_size *sizes, const h5_size *most))                               \
    CALL(int, H5Sget_simple_extent_type, (h5_id space))                                                                \
    CALL(int, H5Sget_simple_extent_ndims, (h5_id space))                                                               \
    CALL(int, H5Sget_simple_extent_dims, (h5_id space, h5_size *sizes, h5_size *most))                                 \
    CALL(int, H5Sclose, (h5_id space))                                                                                 \
    CALL(int, H5Tget_class, (h5_id type))                                                                              \
    CALL(size_t, H5Tget_size, (h5_id type))                                                                            \
    CALL(int, H5Tget_sign, (h5_id type))                                                                               \
    CALL(h5_id, H5Tcopy, (h5_id type))                                                                                 \
    CALL(int, H5Tset_size, (h5_id type, size_t bytes))                                                                 \
    CALL(int, H5Tset_cset, (h5_id type, int characters))                                                               \
    CALL(int, H5Tclose, (h5_id type))                                                                                  \
    CALL(h5_id, H5Acreate2, (h5_id at, const char *name, h5_id type, h5_id space, h5_id create, h5_id access))         \
    CALL(int, H5Awrite, (h5_id attribute, h5_id type, const void *from))                                               \
    CALL(int, H5Aclose, (h5_id attribute))

/* Numbers of types and of kinds of lists, set when the library starts. */
#define LS_HDF5_NUMBERS(NUMBER)                                                                                        \
    NUMBER(H5P_CLS_FILE_ACCESS_ID_g)                                                                                   \
    NUMBER(H5P_CLS_LINK_CREATE_ID_g)                                                                                   \
    NUMBER(H5P_CLS_DATASET_CREATE_ID_g)                                                                                \
    NUMBER(H5T_NATIVE_FLOAT_g)                                                                                         \
    NUMBER(H5T_NATIVE_DOUBLE_g)                                                                                        \
    NUMBER(H5T_NATIVE_UINT8_g)                                                                                         \
    NUMBER(H5T_NATIVE_INT32_g)                                                                                         \
    NUMBER(H5T_NATIVE_INT64_g)                                                                                         \
    NUMBER(H5T_IEEE_F32LE_g)                                                                                           \
    NUMBER(H5T_IEEE_F64LE_g)                                                                                           \
    NUMBER(H5T_STD_U8LE_g)                                                                                             \
    NUMBER(H5T_STD_I32LE_g)                                                                                            \
    NUMBER(H5T_STD_I64LE_g)                                                                                            \
    NUMBER(H5T_C_S1_g)
/* clang-format on */

typedef struct ls_hdf5 {
#define CALL(result, name, arguments) result(*name) arguments;
    LS_HDF5_CALLS(CALL)
#undef CALL
    int (*link_info)(h5_id at, const char *name, h5_link_info *info, h5_id access); /* its name differs by version */
#define NUMBER(name) h5_id name;
    LS_HDF5_NUMBERS(NUMBER)
#undef NUMBER
    /* while it is in use */
    h5_error_print print;
    void *print_user;
} ls_hdf5;

/* The library, ready for one thread: others wait until ls_hdf5_release. Until then it prints nothing. Not there:
 * LS_ERR_UNSUPPORTED, with the name of Debian's package. */
ls_status ls_hdf5_acquire(const char *path, ls_hdf5 **out);
void ls_hdf5_release(ls_hdf5 *h5);

/* Fails with "'PATH': <what>", and what libhdf5 has to say. */
ls_status ls_hdf5_fail(ls_hdf5 *h5, const char *path, const char *what);

#endif
