/* Images: which decoder reads a file, and sizes. */
#include <string.h>

#include "data/image_set.h"

ls_status ls_image_check_size(const char *name, int64_t height, int64_t width)
{
    if (height < 1 || width < 1 || height > LS_MOST_PIXELS / width)
        return ls_fail(LS_ERR_DATA, "'%s': %lld x %lld pixels; at least 1 and at most %lld are accepted", name,
                       (long long)height, (long long)width, (long long)LS_MOST_PIXELS);
    return LS_OK;
}

ls_status ls_image_decode(const char *name, const uint8_t *bytes, size_t count, int64_t channels, bool only_size,
                          ls_image *out)
{
    *out = (ls_image){ .pixels = NULL };
    if (count == 0)
        return ls_fail(LS_ERR_DATA, "'%s' is empty; expected a JPEG or PNG image", name);
    if (count >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8)
        return ls_jpeg_decode(name, bytes, count, channels, only_size, out);
    if (count >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
        return ls_png_decode(name, bytes, count, channels, only_size, out);
    return ls_fail(LS_ERR_DATA, "'%s' is not a JPEG or PNG image: it begins with the byte 0x%02x", name, bytes[0]);
}

/* ---- Size ---- */

/* Position of an output pixel between two input pixels. The exact weights are numbers of
 * 1 / (2 * size of the output). */
typedef struct between {
    int64_t low, high;
    int64_t weight_low, weight_high;
} between;

static between find_between(int64_t at, int64_t in, int64_t out)
{
    int64_t place = (2 * at + 1) * in - out, unit = 2 * out; /* (at + 1/2) in / out - 1/2, in units */
    int64_t low = place < 0 ? 0 : place / unit, part = place < 0 ? 0 : place % unit;
    between b = { .low = low, .high = low + 1, .weight_low = unit - part, .weight_high = part };
    if (b.high >= in)
        b.high = in - 1;
    return b;
}

void ls_image_resize(const ls_image *from, int64_t height, int64_t width, uint8_t *to)
{
    int64_t channels = from->channels, stride = from->width * channels, whole = 4 * height * width;
    for (int64_t y = 0; y < height; y++) {
        between v = find_between(y, from->height, height);
        const uint8_t *top = from->pixels + v.low * stride, *bottom = from->pixels + v.high * stride;
        for (int64_t x = 0; x < width; x++) {
            between h = find_between(x, from->width, width);
            int64_t left = h.low * channels, right = h.high * channels;
            for (int64_t c = 0; c < channels; c++) {
                int64_t above = top[left + c] * h.weight_low + top[right + c] * h.weight_high;
                int64_t below = bottom[left + c] * h.weight_low + bottom[right + c] * h.weight_high;
                *to++ = (uint8_t)((above * v.weight_low + below * v.weight_high + whole / 2) / whole);
            }
        }
    }
}
