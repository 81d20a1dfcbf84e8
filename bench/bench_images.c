/* Images a second of a folder, decoded and resized: bench_images FOLDER HEIGHT WIDTH THREADS
 * Reads all batches of an epoch, shuffled, as training does. bench/images.sh runs it beside
 * torchvision. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lockstep.h"

enum { BATCH = 32 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static ls_status read_epoch(ls_dataset *d, int64_t epoch, int64_t *images)
{
    ls_iterator *iterator = NULL;
    const ls_element *e;
    ls_status status = ls_iterator_create(d, epoch, &iterator);
    for (*images = 0; status == LS_OK; *images += e->component[0].shape.dims[0])
        if ((status = ls_iterator_next(iterator, &e)) == LS_OK && !e)
            break;
    ls_iterator_destroy(iterator);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: bench_images FOLDER HEIGHT WIDTH THREADS\n");
        return 2;
    }
    int64_t images = 0;
    ls_dataset *d = ls_from_image_folder(argv[1], .size = { atoi(argv[2]), atoi(argv[3]) }, .channels = 3,
                                         .threads = atoi(argv[4]));
    d = ls_prefetch(ls_batch(ls_shuffle(d, 1 << 20, 1), BATCH, false), 2);
    ls_status status = read_epoch(d, 0, &images); /* files are in the cache from now on */
    double begin = now();
    if (status == LS_OK)
        status = read_epoch(d, 1, &images);
    double seconds = now() - begin;
    ls_dataset_destroy(d);
    if (status != LS_OK) {
        fprintf(stderr, "bench_images: %s\n", ls_last_error());
        return 1;
    }
    printf("lockstep %s threads: %.0f images/s\n", argv[4], (double)images / seconds);
    return 0;
}
