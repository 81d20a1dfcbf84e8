/* JPEG by libjpeg-turbo, if the build has it, with its accurate integer DCT, whose results do not
 * depend on the processor. The orientation in EXIF data is ignored. */
#include "data/image_set.h"

#ifndef LS_WITH_TURBOJPEG

ls_status ls_jpeg_decode(const char *name, const uint8_t *bytes, size_t count, int64_t channels, bool only_size,
                         ls_image *out)
{
    (void)bytes, (void)count, (void)channels, (void)only_size, (void)out;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "'%s' is a JPEG image, but this build has no libturbojpeg; install its development package (Debian: "
                   "libturbojpeg0-dev) and build again",
                   name);
}

#else

#include <turbojpeg.h>

/* A warning of the decoder means damaged data. */
#define FLAGS (TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING)

static ls_status fail(const char *name, tjhandle decoder)
{
    return ls_fail(LS_ERR_DATA, "'%s' is a broken JPEG image: %s", name, tjGetErrorStr2(decoder));
}

static ls_status decode(tjhandle decoder, const char *name, const uint8_t *bytes, size_t count, int64_t channels,
                        bool only_size, ls_image *out)
{
    int width = 0, height = 0, sampling = 0, space = 0;
    if (tjDecompressHeader3(decoder, bytes, count, &width, &height, &sampling, &space) != 0)
        return fail(name, decoder);
    if (space == TJCS_CMYK || space == TJCS_YCCK)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "'%s' is a JPEG image with CMYK colours, which are not supported; convert it "
                       "to RGB",
                       name);
    LS_TRY(ls_image_check_size(name, height, width));
    *out = (ls_image){ .height = height, .width = width, .channels = channels ? channels : space == TJCS_GRAY ? 1 : 3 };
    if (only_size)
        return LS_OK;
    uint8_t *pixels = malloc((size_t)height * (size_t)width * (size_t)out->channels);
    if (!pixels)
        return ls_fail(LS_ERR_MEMORY, "'%s': no memory for %d x %d pixels", name, height, width);
    if (tjDecompress2(decoder, bytes, count, pixels, width, 0, height, out->channels == 1 ? TJPF_GRAY : TJPF_RGB,
                      FLAGS) != 0) {
        free(pixels);
        return fail(name, decoder);
    }
    out->pixels = pixels;
    return LS_OK;
}

ls_status ls_jpeg_decode(const char *name, const uint8_t *bytes, size_t count, int64_t channels, bool only_size,
                         ls_image *out)
{
    tjhandle decoder = tjInitDecompress();
    if (!decoder)
        return ls_fail(LS_ERR_MEMORY, "'%s': no memory for a JPEG reader", name);
    ls_status status = decode(decoder, name, bytes, count, channels, only_size, out);
    tjDestroy(decoder);
    return status;
}

#endif
