/* Kernels of other files that have little to do, as one: PoCL compiles each kernel by itself, which takes far longer than most of
 * these take to compile. All lanes of a launch do the same. */
#define PLACES_1 memory0
#define PLACES_2 memory0, memory1
#define PLACES_3 memory0, memory1, memory2
#define PLACES_4 memory0, memory1, memory2, memory3
#define SMALL(name, places)                                                                                            \
    case LS_SMALL_##name:                                                                                              \
        name(PLACES_##places, PASS_LANES);                                                                             \
        break;
KERNEL(small)(PLACE(0), PLACE(1), PLACE(2), PLACE(3), LANES)
{
    switch (((GLOBAL const i64 *)(table + table_at))[LS_GPU_WHICH]) {
        LS_GPU_SMALL(SMALL)
    }
}
