/* HDF5 files of weights, through libhdf5. */
#include "data/hdf5.h"

#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "base/text.h"
#include "data/hdf5_library.h"
#include "data/stream.h"

#define MOST_NAME    1024
#define MOST_DEPTH   32
#define MOST_OBJECTS 100000
#define INCREMENT    ((size_t)1 << 16) /* of a file that grows in memory */
/* A file in memory needs a name that no file can have. */
#define NO_FILE "/dev/null/lockstep"

/* ---- Reading ---- */

typedef struct reader {
    ls_hdf5 *h5;
    const char *path;
    ls_tensors *out;
    size_t left;    /* bytes of the file that no dataset has taken yet */
    size_t objects; /* met so far */
} reader;

static ls_status fail_at(reader *r, const char *name, const char *what)
{
    ls_text text = { 0 };
    ls_text_add(&text, "\"%s\" %s", name, what);
    ls_status status = ls_hdf5_fail(r->h5, r->path, ls_text_get(&text));
    ls_text_free(&text);
    return status;
}

/* What a dataset of a file becomes. */
typedef struct kind {
    ls_dtype dtype;
    h5_id memory;
    size_t file_bytes; /* of an element in the file */
} kind;

static ls_status read_type(reader *r, const char *name, h5_id dataset, kind *out)
{
    const ls_hdf5 *h5 = r->h5;
    h5_id type = h5->H5Dget_type(dataset);
    if (type < 0)
        return fail_at(r, name, "has no type");
    int class = h5->H5Tget_class(type), sign = h5->H5Tget_sign(type);
    size_t bytes = h5->H5Tget_size(type);
    h5->H5Tclose(type);
    bool known = bytes >= 1 && bytes <= 8;
    kind k = { .file_bytes = bytes };
    if (class == H5_CLASS_FLOAT) {
        k.dtype = bytes <= 4 ? LS_F32 : LS_F64;
        k.memory = bytes <= 4 ? h5->H5T_NATIVE_FLOAT_g : h5->H5T_NATIVE_DOUBLE_g;
    } else if (class == H5_CLASS_INTEGER && sign == H5_UNSIGNED) {
        known = known && bytes < 8;
        k.dtype = bytes == 1 ? LS_U8 : bytes <= 2 ? LS_I32 : LS_I64;
    } else if (class == H5_CLASS_INTEGER) {
        k.dtype = bytes <= 4 ? LS_I32 : LS_I64;
    } else {
        known = false;
    }
    if (class == H5_CLASS_INTEGER)
        k.memory = k.dtype == LS_U8    ? h5->H5T_NATIVE_UINT8_g
                   : k.dtype == LS_I32 ? h5->H5T_NATIVE_INT32_g
                                       : h5->H5T_NATIVE_INT64_g;
    if (!known)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "'%s': \"%s\" holds neither integers nor floating-point numbers of at most 8 bytes", r->path,
                       name);
    *out = k;
    return LS_OK;
}

static ls_status read_shape(reader *r, const char *name, h5_id dataset, ls_shape *out)
{
    const ls_hdf5 *h5 = r->h5;
    h5_size sizes[LS_MAX_RANK];
    h5_id space = h5->H5Dget_space(dataset);
    if (space < 0)
        return fail_at(r, name, "has no shape");
    int kind = h5->H5Sget_simple_extent_type(space), rank = h5->H5Sget_simple_extent_ndims(space);
    bool good = (kind == H5_SPACE_SCALAR || kind == H5_SPACE_SIMPLE) && rank >= 0 && rank <= LS_MAX_RANK;
    if (good && rank > 0)
        good = h5->H5Sget_simple_extent_dims(space, sizes, NULL) == rank;
    h5->H5Sclose(space);
    ls_shape shape = { .rank = rank };
    for (int i = 0; good && i < rank; i++) {
        good = sizes[i] <= INT64_MAX;
        shape.dims[i] = (int64_t)sizes[i];
    }
    if (!good)
        return ls_fail(LS_ERR_UNSUPPORTED, "'%s': \"%s\" has a shape of %d axes; plain arrays of at most %d are read",
                       r->path, name, rank, LS_MAX_RANK);
    *out = shape;
    return LS_OK;
}

/* That its bytes are in the file, as many as its shape says, and in no other dataset. */
static ls_status check_storage(reader *r, const char *name, h5_id dataset, size_t needed)
{
    const ls_hdf5 *h5 = r->h5;
    h5_id list = h5->H5Dget_create_plist(dataset);
    if (list < 0)
        return fail_at(r, name, "cannot be read");
    int layout = h5->H5Pget_layout(list), outside = h5->H5Pget_external_count(list),
        filters = h5->H5Pget_nfilters(list);
    h5->H5Pclose(list);
    if (layout < H5_LAYOUT_COMPACT || layout > H5_LAYOUT_CHUNKED || outside != 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "'%s': \"%s\" has its numbers in another file, which is not read", r->path,
                       name);
    if (filters != 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "'%s': \"%s\" is packed by a filter, which is not supported", r->path, name);
    h5_size stored = h5->H5Dget_storage_size(dataset);
    if (stored < needed || stored > r->left)
        return ls_fail(LS_ERR_DATA,
                       "'%s': \"%s\" needs %zu bytes; it has %llu, in a file with %zu bytes that no other array has",
                       r->path, name, needed, stored, r->left);
    r->left -= (size_t)stored;
    return LS_OK;
}

static ls_status read_dataset(reader *r, const char *name, h5_id dataset)
{
    kind kind = { .dtype = LS_F32 };
    ls_array array = { .data = NULL };
    size_t bytes = 0, needed = 0;
    LS_TRY(read_type(r, name, dataset, &kind));
    array.dtype = kind.dtype;
    LS_TRY(read_shape(r, name, dataset, &array.shape));
    if (!ls_data_bytes(kind.dtype, &array.shape, &bytes) ||
        !ls_size_mul(bytes / ls_dtype_bytes(kind.dtype), kind.file_bytes, &needed))
        return ls_fail(LS_ERR_DATA, "'%s': \"%s\" has a shape that is more than any memory", r->path, name);
    LS_TRY(check_storage(r, name, dataset, needed));
    array.data = ls_data_alloc(bytes);
    if (!array.data)
        return ls_fail(LS_ERR_MEMORY, "no memory for the %zu bytes of \"%s\" in '%s'", bytes, name, r->path);
    if (bytes > 0 && r->h5->H5Dread(dataset, kind.memory, 0, 0, 0, array.data) < 0) {
        free(array.data);
        return fail_at(r, name, "cannot be read");
    }
    return ls_tensors_add(r->out, r->path, name, strlen(name), array);
}

static ls_status read_group(reader *r, const char *name, h5_id group, int depth);

/* `name` is the path from the root, `own` its last part. */
static ls_status read_object(reader *r, const char *name, h5_id group, const char *own, int depth)
{
    const ls_hdf5 *h5 = r->h5;
    h5_link_info link = { .type = -1 };
    if (h5->link_info(group, own, &link, 0) < 0 || link.type != H5_LINK_HARD)
        return fail_at(r, name, "is a link that leads elsewhere, which is not followed");
    h5_id object = h5->H5Oopen(group, own, 0);
    if (object < 0)
        return fail_at(r, name, "cannot be opened");
    int type = h5->H5Iget_type(object);
    ls_status status = type == H5_GROUP     ? read_group(r, name, object, depth + 1)
                       : type == H5_DATASET ? read_dataset(r, name, object)
                                            : fail_at(r, name, "is neither a group nor an array");
    h5->H5Oclose(object);
    return status;
}

static ls_status read_group(reader *r, const char *name, h5_id group, int depth)
{
    const ls_hdf5 *h5 = r->h5;
    h5_group_info info = { 0 };
    char own[MOST_NAME];
    if (depth > MOST_DEPTH || h5->H5Gget_info(group, &info) < 0)
        return fail_at(r, name, depth > MOST_DEPTH ? "lies too deep" : "cannot be read");
    for (h5_size i = 0; i < info.link_count; i++) {
        ssize_t length = h5->H5Lget_name_by_idx(group, ".", 0, 0, i, own, sizeof own, 0);
        if (length <= 0 || (size_t)length >= sizeof own || ++r->objects > MOST_OBJECTS)
            return fail_at(r, name, "has a name that cannot be read, or too many");
        if (name[0] == '\0' && strcmp(own, "optimizer") == 0)
            continue;
        ls_text path = { 0 };
        ls_text_add(&path, "%s%s%s", name, name[0] ? "/" : "", own);
        ls_status status = path.failed ? ls_fail(LS_ERR_MEMORY, "no memory for a name of '%s'", r->path)
                                       : read_object(r, ls_text_get(&path), group, own, depth);
        ls_text_free(&path);
        LS_TRY(status);
    }
    return LS_OK;
}

static h5_id open_image(const ls_hdf5 *h5, const void *image, size_t bytes)
{
    h5_id file = -1, access = h5->H5Pcreate(h5->H5P_CLS_FILE_ACCESS_ID_g);
    if (access < 0)
        return -1;
    if (h5->H5Pset_fapl_core(access, INCREMENT, false) >= 0 && h5->H5Pset_fclose_degree(access, H5_CLOSE_STRONG) >= 0 &&
        h5->H5Pset_file_image(access, (void *)image, bytes) >= 0)
        file = h5->H5Fopen(NO_FILE, H5_READ_ONLY, access);
    h5->H5Pclose(access);
    return file;
}

ls_status ls_hdf5_read(const char *path, const void *image, size_t bytes, ls_tensors *out)
{
    reader r = { .path = path, .out = out, .left = bytes };
    LS_TRY(ls_hdf5_acquire(path, &r.h5));
    ls_status status = LS_OK;
    h5_id file = open_image(r.h5, image, bytes);
    if (file < 0)
        status = ls_hdf5_fail(r.h5, path, "no HDF5 file, or it is damaged or cut short");
    h5_id root = file < 0 ? -1 : r.h5->H5Oopen(file, "/", 0);
    if (status == LS_OK && root < 0)
        status = ls_hdf5_fail(r.h5, path, "its root cannot be opened");
    if (status == LS_OK)
        status = read_group(&r, "", root, 0);
    if (root >= 0)
        r.h5->H5Oclose(root);
    if (file >= 0)
        r.h5->H5Fclose(file);
    ls_hdf5_release(r.h5);
    return status;
}

/* ---- Writing ---- */

typedef struct writer {
    ls_hdf5 *h5;
    const char *path;
    h5_id file;
    h5_id link, dataset; /* how links and datasets are made */
} writer;

static ls_status add_group(const writer *w, const ls_safetensors_pair *pair)
{
    const ls_hdf5 *h5 = w->h5;
    ls_text name = { 0 };
    ls_text_add(&name, "%s%svars", pair->key, pair->key[0] ? "/" : "");
    h5_id group = name.failed ? -1 : h5->H5Gcreate2(w->file, ls_text_get(&name), w->link, 0, 0);
    ls_text_free(&name);
    h5_id text = h5->H5Tcopy(h5->H5T_C_S1_g), space = h5->H5Screate(H5_SPACE_SCALAR), attribute = -1;
    if (group >= 0 && text >= 0 && space >= 0 && h5->H5Tset_size(text, H5_VARIABLE) >= 0 &&
        h5->H5Tset_cset(text, H5_UTF8) >= 0)
        attribute = h5->H5Acreate2(group, "name", text, space, 0, 0);
    bool written = attribute >= 0 && h5->H5Awrite(attribute, text, &pair->value) >= 0;
    if (attribute >= 0)
        h5->H5Aclose(attribute);
    if (space >= 0)
        h5->H5Sclose(space);
    if (text >= 0)
        h5->H5Tclose(text);
    if (group >= 0)
        h5->H5Oclose(group);
    return written ? LS_OK : ls_hdf5_fail(w->h5, w->path, "a group cannot be written");
}

static ls_status add_dataset(const writer *w, const ls_safetensors_entry *entry)
{
    const ls_hdf5 *h5 = w->h5;
    h5_size sizes[LS_MAX_RANK];
    const h5_id file_types[LS_DTYPE_COUNT] = {
        [LS_F32] = h5->H5T_IEEE_F32LE_g, [LS_F64] = h5->H5T_IEEE_F64LE_g, [LS_I32] = h5->H5T_STD_I32LE_g,
        [LS_I64] = h5->H5T_STD_I64LE_g,  [LS_U8] = h5->H5T_STD_U8LE_g,    [LS_BOOL] = h5->H5T_STD_U8LE_g,
    };
    for (int i = 0; i < entry->shape.rank; i++)
        sizes[i] = (h5_size)entry->shape.dims[i];
    h5_id space =
        entry->shape.rank == 0 ? h5->H5Screate(H5_SPACE_SCALAR) : h5->H5Screate_simple(entry->shape.rank, sizes, NULL);
    h5_id type = file_types[entry->dtype];
    h5_id dataset = space < 0 ? -1 : h5->H5Dcreate2(w->file, entry->name, type, space, w->link, w->dataset, 0);
    /* the numbers are little-endian here, too: nothing is converted */
    bool written = dataset >= 0 && h5->H5Dwrite(dataset, type, 0, 0, 0, entry->data) >= 0;
    if (dataset >= 0)
        h5->H5Dclose(dataset);
    if (space >= 0)
        h5->H5Sclose(space);
    if (written)
        return LS_OK;
    ls_text what = { 0 };
    ls_text_add(&what, "\"%s\" cannot be written", entry->name);
    ls_status status = ls_hdf5_fail(w->h5, w->path, ls_text_get(&what));
    ls_text_free(&what);
    return status;
}

static ls_status take_image(const writer *w, void **image, size_t *bytes)
{
    const ls_hdf5 *h5 = w->h5;
    ssize_t size = h5->H5Fflush(w->file, 0) < 0 ? -1 : h5->H5Fget_file_image(w->file, NULL, 0);
    if (size <= 0)
        return ls_hdf5_fail(w->h5, w->path, "the file cannot be made");
    void *data = malloc((size_t)size);
    if (!data)
        return ls_fail(LS_ERR_MEMORY, "no memory for the %zd bytes of '%s'", size, w->path);
    if (h5->H5Fget_file_image(w->file, data, (size_t)size) != size) {
        free(data);
        return ls_hdf5_fail(w->h5, w->path, "the file cannot be made");
    }
    *image = data;
    *bytes = (size_t)size;
    return LS_OK;
}

static ls_status create(writer *w)
{
    const ls_hdf5 *h5 = w->h5;
    h5_id access = h5->H5Pcreate(h5->H5P_CLS_FILE_ACCESS_ID_g);
    w->link = h5->H5Pcreate(h5->H5P_CLS_LINK_CREATE_ID_g);
    w->dataset = h5->H5Pcreate(h5->H5P_CLS_DATASET_CREATE_ID_g);
    w->file = -1;
    if (access >= 0 && w->link >= 0 && w->dataset >= 0 && h5->H5Pset_fapl_core(access, INCREMENT, false) >= 0 &&
        h5->H5Pset_fclose_degree(access, H5_CLOSE_STRONG) >= 0 &&
        h5->H5Pset_create_intermediate_group(w->link, 1) >= 0 && h5->H5Pset_obj_track_times(w->dataset, false) >= 0)
        w->file = h5->H5Fcreate(NO_FILE, H5_TRUNCATE, 0, access);
    if (access >= 0)
        h5->H5Pclose(access);
    return w->file >= 0 ? LS_OK : ls_hdf5_fail(w->h5, w->path, "the file cannot be made");
}

ls_status ls_hdf5_make(const char *path, const ls_safetensors_entry *entries, size_t count,
                       const ls_safetensors_pair *groups, size_t group_count, void **image, size_t *bytes)
{
    writer w = { .path = path };
    LS_TRY(ls_hdf5_acquire(path, &w.h5));
    ls_status status = create(&w);
    for (size_t i = 0; i < group_count && status == LS_OK; i++)
        status = add_group(&w, &groups[i]);
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = add_dataset(&w, &entries[i]);
    if (status == LS_OK)
        status = take_image(&w, image, bytes);
    if (w.file >= 0)
        w.h5->H5Fclose(w.file);
    if (w.link >= 0)
        w.h5->H5Pclose(w.link);
    if (w.dataset >= 0)
        w.h5->H5Pclose(w.dataset);
    ls_hdf5_release(w.h5);
    return status;
}
