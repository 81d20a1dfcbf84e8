/* Sets of image files: which files there are, and decoding one of them. */
#ifndef LS_DATA_IMAGE_SET_H
#define LS_DATA_IMAGE_SET_H

#include "base/text.h"
#include "data/dataset.h"

/* ---- Folders ---- */

/* Whether a folder has folders in it; names that begin with a dot do not count. */
bool ls_has_folders(const char *path);
/* Whether a folder itself has files with names of images. */
bool ls_has_images(const char *path);
/* Lists the folders in a folder, sorted by the bytes of their names. */
ls_status ls_image_classes(const char *path, char ***names, int64_t *count);
void ls_image_classes_free(char **names, int64_t count);

/* ---- Decoding (image.c, image_jpeg.c, image_png.c) ---- */

typedef struct ls_image {
    int64_t height, width, channels; /* 1 or 3 channels */
    uint8_t *pixels;                 /* freed with free(); NULL: only sizes are known */
} ls_image;

#define LS_MOST_PIXELS ((int64_t)100000000)

/* Decodes a JPEG or PNG file, as its first bytes say. channels: 1, 3, or 0 for those of the file.
 * only_size: reads its header alone. `name` is for messages. */
ls_status ls_image_decode(const char *name, const uint8_t *bytes, size_t count, int64_t channels, bool only_size,
                          ls_image *out);
ls_status ls_jpeg_decode(const char *name, const uint8_t *bytes, size_t count, int64_t channels, bool only_size,
                         ls_image *out);
ls_status ls_png_decode(const char *name, const uint8_t *bytes, size_t count, int64_t channels, bool only_size,
                        ls_image *out);
ls_status ls_image_check_size(const char *name, int64_t height, int64_t width);

/* Bilinear, with exact weights, rounded once (docs/bits.md). */
void ls_image_resize(const ls_image *from, int64_t height, int64_t width, uint8_t *to);

/* ---- Sets ---- */

typedef struct ls_image_item {
    size_t file;            /* index in `files` */
    uint64_t offset, bytes; /* part of the file; bytes 0: the whole file */
    int64_t label;
} ls_image_item;

typedef struct ls_image_set {
    ls_image_options options; /* `classes` is not used after the set is made */
    char *path;               /* folder or pattern */
    char **files;
    size_t file_count, file_room;
    ls_image_item *items;
    size_t count, room;
    char **classes;
    int64_t class_count;
    int64_t left_out;
    ls_text left_out_lines;
    ls_status (*list)(struct ls_image_set *set); /* finds the files when the dataset is first used */
} ls_image_set;

/* For `list`. Takes ownership of `path`, also on failure. */
ls_status ls_image_set_add_file(ls_image_set *set, char *path);
ls_status ls_image_set_add_item(ls_image_set *set, ls_image_item item);
/* Counts the last error as a file that is left out; without .skip_broken returns the error. */
ls_status ls_image_set_broken(ls_image_set *set, ls_status status);

ls_dataset *ls_from_image_set(const char *name, const char *path, ls_status (*list)(ls_image_set *set),
                              const ls_image_options *options);

#endif
