/* JPEG and PNG files: decoded as they are, in grey and in colours, and resized. */
#include "fuzz.h"

#include "data/image_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t small[5 * 7 * 3];
    for (int64_t channels = 0; channels <= 3; channels += channels ? 2 : 1) {
        ls_image header, image;
        bool has_header = fuzz_status(ls_image_decode("fuzz", data, size, channels, true, &header));
        /* Larger ones are left to the limit of ls_image_check_size: they take too long here. */
        if (has_header && header.height * header.width > 1 << 20)
            return 0;
        if (!fuzz_status(ls_image_decode("fuzz", data, size, channels, false, &image)))
            continue;
        FUZZ_CHECK(has_header && header.height == image.height && header.width == image.width, "sizes differ");
        FUZZ_CHECK(header.channels == image.channels && (channels == 0 || image.channels == channels),
                   "channels differ");
        ls_image_resize(&image, 5, 7, small);
        ls_array array = ls_array_of(LS_U8, LS_SHAPE(image.height, image.width, image.channels), image.pixels);
        fuzz_array_use(&array);
    }
    return 0;
}
