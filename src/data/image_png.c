/* PNG by libpng, if the build has it. 16 bits become their upper 8, transparency is dropped, colour
 * profiles and gamma are ignored. */
#include "data/image_set.h"

#ifndef LS_WITH_PNG

ls_status ls_png_decode(const char *name, const uint8_t *bytes, size_t count, int64_t channels, bool only_size,
                        ls_image *out)
{
    (void)bytes, (void)count, (void)channels, (void)only_size, (void)out;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "'%s' is a PNG image, but this build has no libpng; install its development package (Debian: "
                   "libpng-dev) and build again",
                   name);
}

#else

#include <png.h>
#include <string.h>

typedef struct reader {
    png_structp png;
    png_infop info;
    const uint8_t *bytes;
    size_t left;
    char message[200];
    uint8_t *pixels;
    png_bytep *rows;
} reader;

static void on_error(png_structp png, png_const_charp message)
{
    reader *r = png_get_error_ptr(png);
    snprintf(r->message, sizeof r->message, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t count)
{
    reader *r = png_get_io_ptr(png);
    if (count > r->left)
        png_error(png, "the file ends too early");
    memcpy(to, r->bytes, count);
    r->bytes += count;
    r->left -= count;
}

/* Reads the pixels as the file has them: one byte for grey, three for colours. */
static ls_status read_image(reader *r, const char *name, int64_t channels, bool only_size, ls_image *out)
{
    if (setjmp(png_jmpbuf(r->png)))
        return ls_fail(LS_ERR_DATA, "'%s' is a broken PNG image: %s", name, r->message);
    png_read_info(r->png, r->info);
    int64_t height = png_get_image_height(r->png, r->info), width = png_get_image_width(r->png, r->info);
    bool coloured = png_get_color_type(r->png, r->info) & PNG_COLOR_MASK_COLOR;
    LS_TRY(ls_image_check_size(name, height, width));
    *out = (ls_image){ .height = height, .width = width, .channels = channels ? channels : coloured ? 3 : 1 };
    if (only_size)
        return LS_OK;
    png_set_expand(r->png); /* palettes, fewer than 8 bits */
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    size_t row = png_get_rowbytes(r->png, r->info), expected = (size_t)width * (coloured ? 3 : 1);
    if (row != expected)
        return ls_fail(LS_ERR_DATA, "'%s': a row has %zu bytes; expected %zu", name, row, expected);
    r->pixels = malloc((size_t)height * row);
    r->rows = malloc((size_t)height * sizeof *r->rows);
    if (!r->pixels || !r->rows)
        return ls_fail(LS_ERR_MEMORY, "'%s': no memory for %lld x %lld pixels", name, (long long)height,
                       (long long)width);
    for (int64_t y = 0; y < height; y++)
        r->rows[y] = r->pixels + (size_t)y * row;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, NULL);
    return LS_OK;
}

/* Grey becomes three equal colours; colours become (299 R + 587 G + 114 B + 500) / 1000. */
static ls_status convert(reader *r, const char *name, bool coloured, ls_image *out)
{
    int64_t count = out->height * out->width;
    if (coloured == (out->channels == 3)) {
        out->pixels = r->pixels;
        r->pixels = NULL;
        return LS_OK;
    }
    out->pixels = malloc((size_t)(count * out->channels));
    if (!out->pixels)
        return ls_fail(LS_ERR_MEMORY, "'%s': no memory for %lld pixels", name, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *p = r->pixels + 3 * i;
        if (coloured)
            out->pixels[i] = (uint8_t)((299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000);
        else
            memset(out->pixels + 3 * i, r->pixels[i], 3);
    }
    return LS_OK;
}

ls_status ls_png_decode(const char *name, const uint8_t *bytes, size_t count, int64_t channels, bool only_size,
                        ls_image *out)
{
    reader r = { .bytes = bytes, .left = count };
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    ls_status status = r.info ? LS_OK : ls_fail(LS_ERR_MEMORY, "'%s': no memory for a PNG reader", name);
    if (status == LS_OK) {
        png_set_read_fn(r.png, &r, read_bytes);
        status = read_image(&r, name, channels, only_size, out);
    }
    if (status == LS_OK && !only_size)
        status = convert(&r, name, png_get_color_type(r.png, r.info) & PNG_COLOR_MASK_COLOR, out);
    if (r.png)
        png_destroy_read_struct(&r.png, r.info ? &r.info : NULL, NULL);
    free(r.pixels);
    free(r.rows);
    return status;
}

#endif
