/* Maps the differences between OpenCL C and CUDA C. Every kernel file is compiled after this one.
 * The compiler must not contract, fuse or approximate: products are fused only by FMA, where
 * docs/bits.md requires it.
 *
 * * A launch covers several lanes, which are an axis of its grid. A kernel's arguments are its
 * places in memory, PLACE(0), PLACE(1), ..., each a buffer, and LANES: a table with an entry for
 * each lane. An entry has the byte offsets of the lane's places (so that no sub-buffers are needed)
 * and a struct of numbers (calls.h). LANE(type, p) points p to the struct of the item's lane.
 * IN(type, n) and OUT(type, n) are the addresses of place n. */
#ifdef __OPENCL_VERSION__
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef long i64;
typedef ulong u64;
typedef uint u32;
typedef uchar u8;
typedef int i32;
#define ENTRY           __kernel void
#define GLOBAL          __global
#define TABLE           __constant const
#define FUNCTION        static inline
#define INLINED         static inline __attribute__((always_inline))
#define PLACE(n)        __global uchar *restrict memory##n
#define LANES           __global const uchar *restrict table, i64 table_at
#define PASS_LANES      table, table_at
#define OWN_ITEM        (i64)get_global_id(0), (i64)get_global_id(1), (i64)get_global_id(2)
#define FMA(a, b, c)    fma(a, b, c)
#define BITS_OF(x)      as_ulong(x)
#define NUMBER_OF(x)    as_double(x)
#define TO_FLOAT(x)     ((float)(x))
#else
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;
typedef int i32;
#define ENTRY           extern "C" __global__ void
#define GLOBAL
#define TABLE           static __device__ const
#define FUNCTION        static __device__ inline
#define INLINED         static __device__ __forceinline__
#define PLACE(n)        unsigned char *__restrict__ memory##n
#define LANES           unsigned char *__restrict__ table, i64 table_at, i64 depth /* blocks of a lane along z */
#define PASS_LANES      table, table_at, depth
#define OWN_ITEM                                                                                                       \
    (i64)blockIdx.x * blockDim.x + threadIdx.x,                                                                        \
        (i64)(blockIdx.z % (u32)depth) * gridDim.y + blockIdx.y /* each has a limit of 65,535 */,                      \
        (i64)(blockIdx.z / (u32)depth)
#define FMA(a, b, c)    __fmaf_rn(a, b, c)
#define BITS_OF(x)      ((u64)__double_as_longlong(x))
#define NUMBER_OF(x)    __longlong_as_double((i64)(x))
#define TO_FLOAT(x)     __double2float_rn(x)
#endif

/* KERNEL(name, places) { body of an item } defines a function name_item, and the kernel that calls
 * it for its own item. A module may select kernels (LS_SOME) by macros LS_WANT_name that are ",
 * WANTED". The others are then functions without a caller, which compile in almost no time.
 * KERNEL_APART does not inline the function where items are vectors. PoCL compiles three copies of
 * a kernel's body, but only one of such a function. */
#define KERNEL(name, places)       DEFINE(INLINED, name, places)
#define KERNEL_APART(name, places) DEFINE(APART, name, places)
#define DEFINE(how, name, places)                                                                                      \
    how void name##_item(PLACES_##places, LANES, ITEM_OF);                                                             \
    MAKE_KERNEL(name)(name, places)                                                                                    \
    how void name##_item(PLACES_##places, LANES, ITEM_OF)
#define WANTED(name, places)                                                                                           \
    ENTRY name(PLACES_##places, LANES)                                                                                 \
    {                                                                                                                  \
        name##_item(MEMORY_##places, PASS_LANES, OWN_ITEM);                                                            \
    }
#define UNWANTED(name, places)
#ifdef LS_SOME
#define MAKE_KERNEL(name)  SECOND(LS_WANT_##name, UNWANTED, )
#define SECOND(...)        SECOND_(__VA_ARGS__)
#define SECOND_(a, b, ...) b
#else
#define MAKE_KERNEL(name)  WANTED
#endif
#if defined(__OPENCL_VERSION__) && LS_VECTOR > 1
#define APART static __attribute__((noinline))
#else
#define APART INLINED
#endif

#define PLACES_1 PLACE(0)
#define PLACES_2 PLACES_1, PLACE(1)
#define PLACES_3 PLACES_2, PLACE(2)
#define PLACES_4 PLACES_3, PLACE(3)
#define PLACES_5 PLACES_4, PLACE(4)
#define PLACES_6 PLACES_5, PLACE(5)
#define PLACES_7 PLACES_6, PLACE(6)
#define PLACES_8 PLACES_7, PLACE(7)
#define MEMORY_1 memory0
#define MEMORY_2 MEMORY_1, memory1
#define MEMORY_3 MEMORY_2, memory2
#define MEMORY_4 MEMORY_3, memory3
#define MEMORY_5 MEMORY_4, memory4
#define MEMORY_6 MEMORY_5, memory5
#define MEMORY_7 MEMORY_6, memory6
#define MEMORY_8 MEMORY_7, memory7

/* Index of the item along the two axes of the grid, and of its lane. */
#define ITEM_OF    i64 item_0, i64 item_1, i64 lane_
#define PASS_ITEM  item_0, item_1, lane_
#define ITEM(axis) item_##axis

#define LANE(type, name) LANE_AND(type, name, 0)
/* The same for a struct that is followed by `more` numbers in the entry of each lane. */
#define LANE_AND(type, name, more)                                                                                     \
    GLOBAL const i64 *offsets = (GLOBAL const i64 *)(table + table_at) +                                               \
                                lane_ * (i64)(LS_GPU_PLACES + sizeof(type) / sizeof(i64) + (more));                    \
    GLOBAL const type *name = (GLOBAL const type *)(offsets + LS_GPU_PLACES)
#define IN(type, n)  ((GLOBAL const type *)(memory##n + offsets[n]))
#define OUT(type, n) ((GLOBAL type *)(memory##n + offsets[n]))

/* Division and square root of floats, rounded once: by the device if it rounds correctly, otherwise
 * through f64, which has more than twice the bits plus two. */
#if !defined(__OPENCL_VERSION__) || defined(LS_ROUNDED)
#define DIVIDE(a, b) ((a) / (b))
#define ROOT(x)      sqrt((float)(x))
#else
#define DIVIDE(a, b) ((float)((double)(a) / (double)(b)))
#define ROOT(x)      ((float)sqrt((double)(x)))
#endif

#define ENDLESS (0x1p1023 * 2.0) /* infinity */
#define NO_NUMBER NUMBER_OF((u64)0x7ff8000000000000)

#define IS_NAN(x) ((x) != (x))

/* Maximum and minimum. NaN wins; of equal numbers the first is returned. */
#define LARGER(a, b)  ((a) >= (b) || IS_NAN(a) ? (a) : (b))
#define SMALLER(a, b) ((a) <= (b) || IS_NAN(a) ? (a) : (b))
/* Returns whether x comes before y in descending order. NaN comes before all numbers. */
#define BEFORE(x, y) ((x) > (y) || (IS_NAN(x) && !IS_NAN(y)))

FUNCTION i64 least(i64 a, i64 b)
{
    return a < b ? a : b;
}
