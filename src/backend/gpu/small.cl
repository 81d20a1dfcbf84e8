/* Combines short kernels of other files into one, because PoCL compiles each kernel separately,
 * which takes far longer than compiling most of their bodies. All lanes of a launch run the same
 * one. */
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
