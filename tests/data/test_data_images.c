/* Image folders and tar shards: pixels of every kind of file, sizes, classes, threads, broken
 * files, and training with one result. Skipped where the build has no decoder. */
#include "data_files.h"

#include "base/sha256.h"
#include "data/image_set.h"
#include "machine.h"
#include "sanitized.h"
#include "skip.h"

/* ---- Making files ---- */

static void put_chunk(bytes *b, const char *kind, const void *data, size_t count)
{
    put_big(b, (uint32_t)count);
    size_t begin = b->count;
    put(b, kind, 4);
    put(b, data, count);
    put_big(b, (uint32_t)crc32(0, b->data + begin, (unsigned)(b->count - begin)));
}

/* `rows` has a filter byte of 0 in front of each row. */
static void make_png(bytes *b, uint32_t width, uint32_t height, int depth, int color, const void *rows, size_t count)
{
    static const unsigned char palette[] = { 1, 2, 3, 250, 251, 252 };
    unsigned char head[13] = { 0,
                               0,
                               (unsigned char)(width >> 8),
                               (unsigned char)width,
                               0,
                               0,
                               (unsigned char)(height >> 8),
                               (unsigned char)height,
                               (unsigned char)depth,
                               (unsigned char)color };
    static bytes packed;
    packed.count = b->count = 0;
    put(b, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(b, "IHDR", head, sizeof head);
    if (color == 3)
        put_chunk(b, "PLTE", palette, sizeof palette);
    pack(&packed, rows, count, 15);
    put_chunk(b, "IDAT", packed.data, packed.count);
    put_chunk(b, "IEND", "", 0);
}

/* A grey image of 2 x 2 whose pixels are `value`. */
static void write_grey(const char *path, int value)
{
    static bytes file;
    unsigned char v = (unsigned char)value, rows[] = { 0, v, v, 0, v, v };
    make_png(&file, 2, 2, 8, 0, rows, sizeof rows);
    write_file(path, file.data, file.count);
}

static bool has_decoder(ls_status (*decode)(const char *, const uint8_t *, size_t, int64_t, bool, ls_image *))
{
    ls_image image;
    return decode("none", (const uint8_t *)"", 0, 0, true, &image) != LS_ERR_UNSUPPORTED;
}

#define NEED(decode)                                                                                                   \
    do {                                                                                                               \
        if (!has_decoder(decode))                                                                                      \
            SKIP("this build has no " #decode);                                                                        \
    } while (0)

/* ---- Pixels ---- */

static void assert_pixels(const bytes *file, int64_t channels, int64_t height, int64_t width, int64_t got,
                          const char *want)
{
    ls_image image;
    if (ls_image_decode("x", file->data, file->count, channels, false, &image) != LS_OK)
        fail_msg("%s", ls_last_error());
    assert_true(image.height == height && image.width == width && image.channels == got);
    assert_memory_equal(image.pixels, want, (size_t)(height * width * got));
    free(image.pixels);
}

static void kinds_of_png(void **state)
{
    (void)state;
    NEED(ls_png_decode);
    static bytes b;
    make_png(&b, 2, 1, 8, 0, "\0\x10\xf0", 3);
    assert_pixels(&b, 0, 1, 2, 1, "\x10\xf0");
    assert_pixels(&b, 3, 1, 2, 3, "\x10\x10\x10\xf0\xf0\xf0");
    make_png(&b, 4, 1, 1, 0, "\0\xa0", 2);
    assert_pixels(&b, 0, 1, 4, 1, "\xff\0\xff\0");
    make_png(&b, 2, 1, 8, 2, "\0\1\2\3\xc8\x64\x32", 7);
    assert_pixels(&b, 0, 1, 2, 3, "\1\2\3\xc8\x64\x32");
    assert_pixels(&b, 1, 1, 2, 1, "\2\x7c");   /* (299 * 200 + 587 * 100 + 114 * 50 + 500) / 1000 = 124 */
    make_png(&b, 1, 1, 8, 6, "\0\1\2\3\0", 5); /* transparency is dropped */
    assert_pixels(&b, 0, 1, 1, 3, "\1\2\3");
    make_png(&b, 2, 1, 8, 4, "\0\x0a\0\x14\xff", 5);
    assert_pixels(&b, 0, 1, 2, 1, "\x0a\x14");
    make_png(&b, 2, 1, 8, 3, "\0\1\0", 3);
    assert_pixels(&b, 0, 1, 2, 3, "\xfa\xfb\xfc\1\2\3");
    make_png(&b, 1, 1, 16, 0, "\0\x12\xff", 3); /* the upper byte */
    assert_pixels(&b, 0, 1, 1, 1, "\x12");
}

static void decode_corpus(const char *name, int64_t channels, char sha256[65])
{
    char path[100];
    static bytes b;
    ls_image image;
    snprintf(path, sizeof path, "fuzz/corpus/image/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("no %s; run this from the root of the sources", path);
    b.count = fread(b.data, 1, sizeof b.data, f);
    fclose(f);
    if (ls_image_decode(path, b.data, b.count, channels, false, &image) != LS_OK)
        fail_msg("%s", ls_last_error());
    ls_sha256 *hash = NULL;
    assert_int_equal(ls_sha256_begin(&hash), LS_OK);
    assert_int_equal(ls_sha256_add(hash, image.pixels, (size_t)(image.height * image.width * image.channels)), LS_OK);
    assert_int_equal(ls_sha256_end(hash, sha256), LS_OK);
    free(image.pixels);
}

/* Hashes of pixels, so that another decoder or its settings are noticed. */
static void pixels_of_jpeg(void **state)
{
    (void)state;
    NEED(ls_jpeg_decode);
    static const struct {
        const char *name;
        int64_t channels;
        const char *sha256;
    } rows[] = {
        { "colours.jpg", 0, "bcf977ee1e05c8a6a6eb9bd131471f1906e28434e59230acd95872e4cd2a1988" },
        { "colours.jpg", 1, "ad6bfd2185d5319c326e8feae1170bc5d3bf8873e1255341ba7d9c24a259a208" },
        { "grey.jpg", 0, "2f66d1b059ed16e80b9f8b232885ae71da5af044ba51f83ae3cc4f1e04bfd977" },
        { "grey.jpg", 3, "cc909c8348e742af7f7c10908cf0794d7a2633f54aaf17655b1b5705ce490652" },
        { "progressive.jpg", 0, "95482325b7cc3d904fc9b62601ee42e94ce6577bc8be7eff876caa4b1c422bf8" },
    };
    char found[65];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        decode_corpus(rows[i].name, rows[i].channels, found);
        if (strcmp(found, rows[i].sha256) != 0)
            fail_msg("%s with %d channels has %s", rows[i].name, (int)rows[i].channels, found);
    }
}

/* By hand: the exact value, rounded half up. */
static void sizes(void **state)
{
    (void)state;
    uint8_t pixels[] = { 0, 100, 200, 50 }, out[36];
    ls_image image = { .height = 2, .width = 2, .channels = 1, .pixels = pixels };
    ls_image_resize(&image, 2, 2, out);
    assert_memory_equal(out, pixels, 4);
    ls_image_resize(&image, 1, 1, out);
    assert_int_equal(out[0], 88);       /* 87.5 */
    ls_image_resize(&image, 4, 4, out); /* positions -1/4, 1/4, 3/4, 5/4 */
    assert_memory_equal(out, ((uint8_t[]){ 0, 25, 75, 100, 50, 59, 78, 88, 150, 128, 84, 63, 200, 163, 88, 50 }), 16);
    ls_image row = { .height = 1, .width = 4, .channels = 1, .pixels = pixels };
    ls_image_resize(&row, 1, 2, out); /* positions 1/2, 5/2 */
    assert_memory_equal(out, ((uint8_t[]){ 50, 125 }), 2);
    ls_image colours = { .height = 1, .width = 1, .channels = 3, .pixels = pixels };
    ls_image_resize(&colours, 2, 1, out);
    assert_memory_equal(out, ((uint8_t[]){ 0, 100, 200, 0, 100, 200 }), 6);
}

/* ---- Folders ---- */

static void make_class(const char *part, const char *name, int first, int count)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, part);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%s", folder, part, name);
    assert_int_equal(mkdir(path, 0777), 0);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s/%s/%03d.%s", folder, part, name, i, i % 2 ? "png" : "PNG");
        write_grey(path, first + i);
    }
}

/* "VALUE:LABEL VALUE:LABEL ..." */
static const char *sequence(ls_dataset *d, uint64_t epoch)
{
    static char text[4][4096];
    static int at;
    char *out = text[at = (at + 1) % 4], *to = out;
    ls_iterator *iterator = NULL;
    const ls_element *e;
    *to = 0;
    if (ls_iterator_create(d, epoch, &iterator) != LS_OK)
        fail_msg("%s", ls_last_error());
    while (ls_iterator_next(iterator, &e) == LS_OK && e)
        to +=
            sprintf(to, "%d:%d ", *(const uint8_t *)e->component[0].data, (int)*(const int64_t *)e->component[1].data);
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(d);
    return out;
}

static void folders(void **state)
{
    (void)state;
    NEED(ls_png_decode);
    make_class("train", "dog", 100, 2);
    make_class("train", "cat", 10, 3);
    make_class("train", "ant", 50, 1);
    make_class("test", "dog", 200, 1);
    write_text(in_folder("train/dog/.hidden"), "x");
    ls_dataset *train = NULL, *test = NULL;
    const char *const *names;
    int64_t count;
    if (ls_load_data(NULL, folder, &train, &test, .image = { .size = { 3, 5 }, .channels = 3 }) != LS_OK)
        fail_msg("%s", ls_last_error());
    assert_int_equal(ls_dataset_classes(test, &names, &count), LS_OK);
    assert_int_equal(count, 3);
    assert_true(!strcmp(names[0], "ant") && !strcmp(names[1], "cat") && !strcmp(names[2], "dog"));
    ls_element_spec spec;
    assert_int_equal(ls_dataset_spec(train, &spec), LS_OK);
    assert_true(spec.component[0].shape.dims[0] == 3 && spec.component[0].shape.dims[1] == 5 &&
                spec.component[0].shape.dims[2] == 3 && spec.component[0].dtype == LS_U8);
    assert_string_equal(sequence(train, 0), "50:0 10:1 11:1 12:1 100:2 101:2 ");
    assert_string_equal(sequence(test, 0), "200:2 "); /* the number that the training set gives */
    /* One set: the classes are in the folder itself. Sizes of the first image. */
    assert_int_equal(ls_load_data(NULL, in_folder("train"), &train, &test), LS_OK);
    assert_null(test);
    assert_int_equal(ls_dataset_spec(train, &spec), LS_OK);
    assert_true(spec.component[0].shape.dims[0] == 2 && spec.component[0].shape.dims[2] == 1);
    ls_dataset_destroy(train);
    make_class("test", "fox", 1, 1);
    assert_int_equal(ls_load_data(NULL, folder, NULL, &test), LS_OK);
    assert_fails(ls_dataset_status(test), LS_ERR_DATA, "test/fox", "training set does not have");
    ls_dataset_destroy(test);
}

static void broken_files(void **state)
{
    (void)state;
    NEED(ls_png_decode);
    static bytes b;
    make_class(".", "a", 1, 2);
    make_class(".", "b", 5, 2);
    write_text(in_folder("a/notes.txt"), "x");
    const char *root = folder, *lines;
    ls_dataset *d = ls_from_image_folder(root);
    assert_fails(ls_dataset_status(d), LS_ERR_DATA, "a/notes.txt", "ends in .jpg, .jpeg or .png");
    ls_dataset_destroy(d);
    remove(in_folder("a/notes.txt"));
    unsigned char rows[] = { 0, 9, 9, 0, 9, 9 };
    make_png(&b, 2, 2, 8, 0, rows, sizeof rows);
    write_file(in_folder("b/cut.png"), b.data, b.count - 14);
    write_text(in_folder("b/empty.jpg"), "");
    write_text(in_folder("b/text.jpeg"), "hello");
    b.data[45] ^= 1;
    write_file(in_folder("b/changed.png"), b.data, b.count);
    make_png(&b, 60000, 60000, 8, 0, rows, sizeof rows);
    write_file(in_folder("b/huge.png"), b.data, b.count);
    /* Without .skip_broken a broken file is an error when it is needed. */
    ls_iterator *iterator = NULL;
    const ls_element *e;
    d = ls_from_image_folder(root);
    assert_int_equal(ls_iterator_create(d, 0, &iterator), LS_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ls_iterator_next(iterator, &e), LS_OK);
    assert_fails(ls_iterator_next(iterator, &e), LS_ERR_DATA, "b/changed.png", "broken PNG image");
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(d);
    write_text(in_folder("a/notes.txt"), "x");
    d = ls_from_image_folder(root, .skip_broken = true, .threads = 3);
    int64_t count;
    assert_int_equal(ls_dataset_left_out(d, &count, &lines), LS_OK);
    assert_int_equal(count, 6);
    static const char *const named[] = { "a/notes.txt' is not an image",
                                         "b/changed.png' is a broken PNG image",
                                         "b/cut.png' is a broken PNG image: the file ends too early",
                                         "b/empty.jpg' is empty",
                                         "b/huge.png': 60000 x 60000 pixels",
                                         "b/text.jpeg' is not a JPEG or PNG image: it begins with the byte 0x68" };
    for (int i = 0; i < 6; i++)
        if (!strstr(lines, named[i]))
            fail_msg("no '%s' in: %s", named[i], lines);
    assert_string_equal(sequence(d, 0), "1:0 2:0 5:1 6:1 ");
}

static void wrong_calls(void **state)
{
    (void)state;
    static const struct {
        ls_image_options options;
        const char *piece;
    } rows[] = {
        { { .size = { 3, 0 } }, "3 x 0" },         { { .size = { -1, 3 } }, "-1 x 3" },
        { { .size = { 70000, 3 } }, "70000 x 3" }, { { .channels = 2 }, "2 channels" },
        { { .threads = -1 }, "got -1" },           { { .class_count = -1 }, "class_count is -1" },
    };
    ls_dataset *d;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        d = ls_from_image_folder_with(folder, rows[i].options);
        assert_fails(ls_dataset_status(d), LS_ERR_INVALID, rows[i].piece);
        ls_dataset_destroy(d);
    }
    d = ls_from_image_folder(in_folder("none"));
    assert_fails(ls_dataset_status(d), LS_ERR_NOT_FOUND, "none");
    ls_dataset_destroy(d);
    d = ls_from_image_folder(folder);
    assert_fails(ls_dataset_status(d), LS_ERR_DATA, folder, "has no folders");
    ls_dataset_destroy(d);
    write_text(in_folder("own.JPG"), "");
    assert_fails(ls_load_data(NULL, folder, &d, NULL), LS_ERR_DATA, folder, "has images, but no folder for each class");
    assert_int_equal(unlink(in_folder("own.JPG")), 0);
    assert_int_equal(mkdir(in_folder("a"), 0777), 0);
    d = ls_from_image_folder(folder);
    assert_fails(ls_dataset_status(d), LS_ERR_DATA, folder, "has no images");
    ls_dataset_destroy(d);
    ls_image image;
    if (has_decoder(ls_jpeg_decode)) {
        FILE *f = fopen("fuzz/corpus/image/cmyk.jpg", "rb");
        static bytes b;
        b.count = f ? fread(b.data, 1, sizeof b.data, f) : 0;
        if (f)
            fclose(f);
        assert_fails(ls_image_decode("p.jpg", b.data, b.count, 0, false, &image), LS_ERR_UNSUPPORTED, "p.jpg", "CMYK");
        b.count = 0;
        f = fopen("fuzz/corpus/image/colours.jpg", "rb");
        b.count = f ? fread(b.data, 1, sizeof b.data, f) : 0;
        if (f)
            fclose(f);
        assert_fails(ls_image_decode("p.jpg", b.data, b.count - 100, 0, false, &image), LS_ERR_DATA,
                     "broken JPEG image");
    } else {
        assert_fails(ls_image_decode("p.jpg", (const uint8_t *)"\xff\xd8", 2, 0, false, &image), LS_ERR_UNSUPPORTED,
                     "p.jpg", "libturbojpeg0-dev");
    }
}

/* ---- Training ---- */

static void train(ls_dataset *data, char sha256[65])
{
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    ls_context_options options = { .threads = 2, .log_level = LS_LOG_ERROR };
    assert_int_equal(ls_context_create(&options, &ctx), LS_OK);
    assert_int_equal(ls_model_builtin(ctx, "mnist-cnn", &model, .input = LS_SHAPE(28, 28, 1), .classes = 2), LS_OK);
    if (ls_compile(model, .optimizer = ls_sgd(0.01), .loss = ls_sparse_categorical_crossentropy(.from_logits = true)) !=
            LS_OK ||
        ls_fit(model, data, .epochs = 3, .batch_size = 4, .seed = 3, .verbose = LS_VERBOSE_SILENT) != LS_OK)
        fail_msg("%s", ls_last_error());
    assert_int_equal(ls_model_weights_sha256(model, sha256), LS_OK);
    ls_model_destroy(model);
    ls_context_close(ctx);
    ls_dataset_destroy(data);
}

/* The same samples from files and from memory, with any number of threads. */
static void one_result(void **state)
{
    (void)state;
    NEED(ls_png_decode);
    char want[65], found[65];
    static uint8_t x[17 * 784];
    static int64_t y[17];
    make_class(".", "a", 1, 9);
    make_class(".", "b", 101, 8);
    for (int i = 0; i < 17; i++) {
        memset(x + 784 * i, i < 9 ? 1 + i : 101 + i - 9, 784);
        y[i] = i >= 9;
    }
    train(ls_from_tensor_slices(ls_array_of(LS_U8, LS_SHAPE(17, 28, 28, 1), x), ls_array_of(LS_I64, LS_SHAPE(17), y)),
          want);
    for (int threads = 0; threads < 4; threads++) {
        train(ls_from_image_folder(folder, .size = { 28, 28 }, .threads = threads), found);
        assert_string_equal(found, want);
    }
}

/* ---- Tar shards ---- */

static void put_member(bytes *b, const char *name, const void *data, size_t count)
{
    unsigned char head[512] = { 0 };
    unsigned sum = 0;
    snprintf((char *)head, 100, "%s", name);
    snprintf((char *)head + 124, 12, "%011zo", count);
    head[156] = '0';
    memcpy(head + 257,
           "ustar\0"
           "00",
           8);
    memset(head + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += head[i];
    snprintf((char *)head + 148, 8, "%06o", sum);
    put(b, head, 512);
    put(b, data, count);
    put(b, (unsigned char[512]){ 0 }, (512 - count % 512) % 512);
}

static void put_sample(bytes *b, const char *key, int value, const char *label)
{
    static bytes png;
    char name[50];
    unsigned char rows[] = { 0, (unsigned char)value };
    make_png(&png, 1, 1, 8, 0, rows, 2);
    snprintf(name, sizeof name, "%s.png", key);
    put_member(b, name, png.data, png.count);
    snprintf(name, sizeof name, "%s.cls", key);
    put_member(b, name, label, strlen(label));
}

static void shards(void **state)
{
    (void)state;
    NEED(ls_png_decode);
    static bytes b;
    for (int i = 8; i < 11; i++) {
        char name[50];
        b.count = 0;
        put_sample(&b, "a/000", 10 * i, "1\n");
        put_member(&b, "a/000.json", "{}", 2);
        put_sample(&b, "a/001.x", 10 * i + 1, "0"); /* the key ends at the first dot */
        put_sample(&b, "b/001", 10 * i + 2, "2");
        put(&b, (unsigned char[1024]){ 0 }, 1024);
        snprintf(name, sizeof name, "s-%02d.tar", i);
        write_file(in_folder(name), b.data, b.count);
    }
    ls_dataset *d = NULL;
    assert_int_equal(ls_load_data(NULL, in_folder("s-{08..10}.tar"), &d, NULL), LS_OK);
    assert_string_equal(sequence(ls_dataset_share(d), 0), "80:1 82:2 90:1 92:2 100:1 102:2 ");
    const char *first = sequence(ls_shuffle(ls_dataset_share(d), 3, 1), 0);
    assert_string_equal(sequence(ls_shuffle(ls_dataset_share(d), 3, 1), 0), first);
    assert_string_not_equal(sequence(ls_shuffle(d, 3, 1), 1), first);
}

static void wrong_shards(void **state)
{
    (void)state;
    NEED(ls_png_decode);
    static const char *const patterns[] = { "s-{3..1}.tar", "s-{a..b}.tar", "s-{1..2.tar", "s-{0..9999999}.tar",
                                            "s-{1..2}-{1..2}.tar" };
    ls_dataset *d;
    static bytes b;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        d = ls_from_image_shards(in_folder(patterns[i]));
        assert_fails(ls_dataset_status(d), LS_ERR_INVALID, patterns[i]);
        ls_dataset_destroy(d);
    }
#define WRONG(status, ...)                                                                                             \
    do {                                                                                                               \
        write_file(in_folder("s.tar"), b.data, b.count);                                                               \
        d = ls_from_image_shards(in_folder("s.tar"));                                                                  \
        assert_fails(ls_dataset_status(d), status, __VA_ARGS__);                                                       \
        ls_dataset_destroy(d);                                                                                         \
        b.count = 0;                                                                                                   \
    } while (0)
    b.count = 0;
    WRONG(LS_ERR_DATA, "s.tar", "not a tar file");
    put(&b, (unsigned char[600]){ 1 }, 600);
    WRONG(LS_ERR_DATA, "s.tar", "byte 0 has a wrong checksum");
    put_sample(&b, "a", 1, "cat");
    WRONG(LS_ERR_DATA, "s.tar", "byte 0: sample 'a'", "no class number");
    put_member(&b, "a.png", "x", 1);
    WRONG(LS_ERR_DATA, "sample 'a' has no .cls");
    put_member(&b, "a.cls", "1", 1);
    WRONG(LS_ERR_DATA, "sample 'a' has no .jpg, .jpeg or .png");
    put_member(&b, "a.cls", "1", 1);
    put_member(&b, "a.png", "", 0);
    WRONG(LS_ERR_DATA, "empty image");
    put_sample(&b, "a", 1, "0");
    b.count -= 600;
    WRONG(LS_ERR_DATA, "truncated", "424 bytes at byte 1024");
    put_sample(&b, "a", 1, "0");
    b.count -= 512;
    WRONG(LS_ERR_DATA, "truncated", "byte 1024 ends after");
    /* A sample that is broken is left out, the others stay. */
    put_sample(&b, "a", 1, "cat");
    put_sample(&b, "b", 2, "0");
    put_member(&b, "c.png", "x", 1);
    put_member(&b, "c.cls", "1", 1);
    write_file(in_folder("s.tar"), b.data, b.count);
    const char *lines;
    int64_t count;
    d = ls_from_image_shards(in_folder("s.tar"), .skip_broken = true);
    assert_int_equal(ls_dataset_left_out(d, &count, &lines), LS_OK);
    assert_int_equal(count, 2);
    assert_non_null(strstr(lines, "byte 0: sample 'a' has no class number"));
    assert_string_equal(sequence(d, 0), "2:0 ");
}

/* ---- Larger than memory ---- */

enum { SIDE = 256, LARGE = 1280, SHARD = 320 }; /* 240 MiB of pixels */
#define LIMIT ((size_t)24 << 20)

static void make_large(bytes *png)
{
    static unsigned char rows[SIDE * (1 + SIDE * 3)];
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = i % (1 + SIDE * 3) == 0 ? 0 : 7;
    make_png(png, SIDE, SIDE, 8, 2, rows, sizeof rows);
    assert_true(png->count < 4096);
}

/* Measures memory once the threads run and have batches, which a small data set needs, too. */
static void walk_large(ls_dataset *d)
{
    ls_iterator *iterator = NULL;
    const ls_element *e;
    size_t first = 0, most = 0;
    d = ls_prefetch(ls_batch(ls_shuffle(d, LARGE, 1), 4, false), 2);
    if (ls_iterator_create(d, 0, &iterator) != LS_OK)
        fail_msg("%s", ls_last_error());
    for (int i = 0; i < LARGE / 4; i++) {
        if (ls_iterator_next(iterator, &e) != LS_OK || !e)
            fail_msg("batch %d: %s", i, ls_last_error());
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(((const unsigned char *)e->component[0].data)[(k + 1) * SIDE * SIDE * 3 - 1], 7);
        size_t now = machine_resident();
        first = i == 4 ? now : first;
        most = now > most ? now : most;
    }
    if (!SANITIZED && most - first >= LIMIT / 2)
        fail_msg("%zu KiB resident, %zu KiB after five batches", most >> 10, first >> 10);
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(d);
}

/* Ten times the limit, as a folder of links to one file and as tar files. */
static void images_larger_than_memory(void **state)
{
    (void)state;
    static bytes png, member;
    char path[300];
    FILE *tar = NULL;
    NEED(ls_png_decode);
    size_t before = machine_resident();
    make_large(&png);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mkdir(in_folder((const char *[]){ "large", "large/a", "large/b" }[i]), 0777), 0);
    write_file(in_folder("one.png"), png.data, png.count);
    for (int i = 0; i < LARGE; i++) {
        snprintf(path, sizeof path, "large/%c/%04d.png", "ab"[i % 2], i);
        char *to = strdup(in_folder(path));
        assert_int_equal(link(in_folder("one.png"), to), 0);
        free(to);
        if (i % SHARD == 0) {
            snprintf(path, sizeof path, "l-%d.tar", i / SHARD);
            tar = fopen(in_folder(path), "wb");
            assert_non_null(tar);
        }
        member.count = 0;
        snprintf(path, sizeof path, "%04d.png", i);
        put_member(&member, path, png.data, png.count);
        snprintf(path, sizeof path, "%04d.cls", i);
        put_member(&member, path, "1", 1);
        assert_int_equal(fwrite(member.data, 1, member.count, tar), member.count);
        if (i % SHARD == SHARD - 1) {
            assert_int_equal(fwrite((char[1024]){ 0 }, 1, 1024, tar), 1024);
            assert_int_equal(fclose(tar), 0);
        }
    }
    walk_large(ls_from_image_folder(in_folder("large"), .threads = 2));
    walk_large(ls_from_image_shards(in_folder("l-{0..3}.tar"), .threads = 2));
    if (!SANITIZED && machine_resident() >= before + LIMIT)
        fail_msg("%zu KiB resident at the end, %zu KiB before", machine_resident() >> 10, before >> 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_png), cmocka_unit_test(pixels_of_jpeg),
        cmocka_unit_test(sizes),        in_new_folder(folders),
        in_new_folder(broken_files),    in_new_folder(wrong_calls),
        in_new_folder(one_result),      in_new_folder(shards),
        in_new_folder(wrong_shards),    in_new_folder(images_larger_than_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
