/* Tar files of images: every sample that opening finds is decoded, or refused with a message. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int skip = 0; skip < 2; skip++) {
        ls_dataset *d = ls_from_image_shards(fuzz_file(data, size), .size = { 4, 4 }, .channels = 3, .threads = 1,
                                             .skip_broken = skip);
        ls_iterator *iterator = NULL;
        const ls_element *element;
        const char *lines;
        int64_t left_out = 0;
        if (fuzz_status(ls_iterator_create(d, 0, &iterator))) {
            while (fuzz_status(ls_iterator_next(iterator, &element)) && element)
                FUZZ_CHECK(*(const int64_t *)element->component[1].data >= 0, "a class below 0");
            FUZZ_CHECK(ls_dataset_left_out(d, &left_out, &lines) == LS_OK && (skip || left_out == 0), "left out");
        }
        ls_iterator_destroy(iterator);
        ls_dataset_destroy(d);
    }
    return 0;
}
