/* Kernels of other files that have little to do, as one: PoCL compiles each kernel by itself, which takes far longer than most of
 * these take to compile. All lanes of a launch do the same. */
#define SMALL(name, places)                                                                                            \
    case LS_SMALL_##name:                                                                                              \
        name##_item(MEMORY_##places, PASS_LANES, PASS_ITEM);                                                           \
        break;
KERNEL_APART(small, 4)
{
    switch ((int)((GLOBAL const i64 *)(table + table_at))[LS_GPU_WHICH]) {
        LS_GPU_SMALL(SMALL)
    }
}
