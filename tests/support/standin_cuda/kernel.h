/* What a kernel in CUDA C needs to be C++ on a CPU. No kernel has barriers or shared memory
 * (tests/backend/test_gpu_kernels.c looks), so threads run one after the other. A module's source
 * stands behind this file, then a table of its kernels. / */
#ifndef STANDIN_CUDA_KERNEL_H
#define STANDIN_CUDA_KERNEL_H

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "standin.h"

using std::nextafter;
using std::sqrt;

#define __device__
#define __global__
#define __forceinline__ inline

typedef struct standin_index {
    unsigned x, y, z;
} standin_index;
static __thread standin_index blockIdx, threadIdx, blockDim, gridDim;

static __thread bool rounds_twice; /* the device's fused products do */

static inline float __fmaf_rn(float a, float b, float c)
{
    return rounds_twice ? a * b + c : __builtin_fmaf(a, b, c);
}

static inline float __double2float_rn(double x)
{
    return (float)x;
}

static inline long long __double_as_longlong(double x)
{
    long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double __longlong_as_double(long long bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

namespace standin
{

template <class... A> struct caller {
    typedef std::tuple<A...> arguments;

    template <size_t... I> static arguments *copy(void **from, std::index_sequence<I...>)
    {
        void *room = malloc(sizeof(arguments));
        return room ? new (room) arguments(*static_cast<A *>(from[I])...) : nullptr;
    }
    static void *pack(void **from)
    {
        return copy(from, std::index_sequence_for<A...>());
    }

    static void add(const void **out, int *count, unsigned char *place)
    {
        out[(*count)++] = place;
    }
    template <class T> static void add(const void **, int *, const T &)
    {
    }
    template <size_t... I> static int find(const arguments &a, const void **out, std::index_sequence<I...>)
    {
        int count = 0, each[] = { (add(out, &count, std::get<I>(a)), 0)... };
        (void)each;
        return count;
    }
    static int places(const void *packed, const void **out)
    {
        return find(*static_cast<const arguments *>(packed), out, std::index_sequence_for<A...>());
    }

    template <void (*kernel)(A...)> static void run(const void *packed, const standin_grid *g)
    {
        const arguments &a = *static_cast<const arguments *>(packed);
        gridDim = { g->grid[0], g->grid[1], g->grid[2] };
        blockDim = { g->block[0], g->block[1], g->block[2] };
        threadIdx = { 0, 0, 0 };
        rounds_twice = g->rounds_twice;
        for (blockIdx.z = 0; blockIdx.z < g->grid[2]; blockIdx.z++)
            for (blockIdx.y = 0; blockIdx.y < g->grid[1]; blockIdx.y++)
                for (blockIdx.x = 0; blockIdx.x < g->grid[0]; blockIdx.x++)
                    for (threadIdx.x = 0; threadIdx.x < g->block[0]; threadIdx.x++)
                        std::apply(kernel, a);
    }
};

template <class... A> caller<A...> caller_of(void (*)(A...));

} // namespace standin

#define STANDIN_KERNEL(name)                                                                                           \
    { #name, decltype(standin::caller_of(name))::pack, decltype(standin::caller_of(name))::places,                     \
      decltype(standin::caller_of(name))::template run<name> },

#endif
