/* The one C++ file: exceptions of oneDNN end here.
 *
 * Some of its objects, and the memory for code it generates, are used without a look at whether they were given: no
 * exception, but a crash. So calls that make something first see that there is room: memory that was had a moment ago,
 * and given back, will be had again. */
#include "backend/cpu/onednn_guard.h"

#include <cstdlib>
#include <new>
#include <sys/mman.h>

#define OBJECT_ROOM                                                                                                    \
    ((size_t)256 << 10)              /* all objects of one call; below what malloc takes from the system each time     \
                                      */
#define CODE_ROOM ((size_t)16 << 20) /* generated code and tables of one primitive: it asks for 256 KiB a kernel */

static bool has_room(size_t object_room, size_t code_room)
{
    void *objects = nullptr;
    if (posix_memalign(&objects, 64, object_room) != 0)
        return false;
    free(objects);
    if (code_room == 0)
        return true;
    void *code = mmap(nullptr, code_room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return code != MAP_FAILED && munmap(code, code_room) == 0;
}

/* No exception gets past it, and none is of use to C but for what it means. */
template <typename Call> static dnnl_status_t guarded(Call call)
{
    try {
        return call();
    } catch (const std::bad_alloc &) {
        return dnnl_out_of_memory;
    } catch (...) {
        return dnnl_runtime_error;
    }
}

/* A primitive whose making was broken off stays in oneDNN's cache as a promise that nobody keeps: whoever asks for it
 * again would fail for ever. So the cache is emptied. */
static void forget_primitives()
{
    guarded([] {
        int capacity = 0;
        dnnl_status_t status = dnnl_get_primitive_cache_capacity(&capacity);
        if (status == dnnl_success)
            status = dnnl_set_primitive_cache_capacity(0);
        return status == dnnl_success ? dnnl_set_primitive_cache_capacity(capacity) : status;
    });
}

#define MAKING(name, parameters, arguments)                                                                            \
    dnnl_status_t ls_##name parameters                                                                                 \
    {                                                                                                                  \
        return has_room(OBJECT_ROOM, 0) ? guarded([&] { return name arguments; }) : dnnl_out_of_memory;                \
    }

#define GUARDED(name, parameters, arguments)                                                                           \
    dnnl_status_t ls_##name parameters                                                                                 \
    {                                                                                                                  \
        return guarded([&] { return name arguments; });                                                                \
    }

MAKING(dnnl_engine_create, (dnnl_engine_t * engine, dnnl_engine_kind_t kind, size_t index), (engine, kind, index))
MAKING(dnnl_stream_create, (dnnl_stream_t * stream, dnnl_engine_t engine, unsigned flags), (stream, engine, flags))
GUARDED(dnnl_stream_wait, (dnnl_stream_t stream), (stream))
MAKING(dnnl_memory_create, (dnnl_memory_t * memory, const dnnl_memory_desc_t *desc, dnnl_engine_t engine, void *data),
       (memory, desc, engine, data))
GUARDED(dnnl_memory_set_data_handle_v2, (dnnl_memory_t memory, void *data, dnnl_stream_t stream),
        (memory, data, stream))
MAKING(dnnl_post_ops_create, (dnnl_post_ops_t * ops), (ops))
MAKING(dnnl_post_ops_append_eltwise, (dnnl_post_ops_t ops, float scale, dnnl_alg_kind_t kind, float alpha, float beta),
       (ops, scale, kind, alpha, beta))
MAKING(dnnl_primitive_attr_create, (dnnl_primitive_attr_t * attr), (attr))
MAKING(dnnl_primitive_attr_set_post_ops, (dnnl_primitive_attr_t attr, const_dnnl_post_ops_t ops), (attr, ops))
MAKING(dnnl_primitive_desc_create,
       (dnnl_primitive_desc_t * pd, const_dnnl_op_desc_t desc, const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
        const_dnnl_primitive_desc_t hint),
       (pd, desc, attr, engine, hint))
MAKING(dnnl_primitive_desc_iterator_create,
       (dnnl_primitive_desc_iterator_t * iterator, const_dnnl_op_desc_t desc, const_dnnl_primitive_attr_t attr,
        dnnl_engine_t engine, const_dnnl_primitive_desc_t hint),
       (iterator, desc, attr, engine, hint))
MAKING(dnnl_primitive_desc_iterator_next, (dnnl_primitive_desc_iterator_t iterator), (iterator))
MAKING(dnnl_reorder_primitive_desc_create,
       (dnnl_primitive_desc_t * pd, const dnnl_memory_desc_t *from, dnnl_engine_t from_engine,
        const dnnl_memory_desc_t *to, dnnl_engine_t to_engine, const_dnnl_primitive_attr_t attr),
       (pd, from, from_engine, to, to_engine, attr))
GUARDED(dnnl_primitive_execute,
        (const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count, const dnnl_exec_arg_t *args),
        (primitive, stream, count, args))
GUARDED(dnnl_sgemm,
        (char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha, const float *a, dnnl_dim_t lda,
         const float *b, dnnl_dim_t ldb, float beta, float *c, dnnl_dim_t ldc),
        (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))

dnnl_status_t ls_dnnl_primitive_desc_iterator_fetch(dnnl_primitive_desc_iterator_t iterator, dnnl_primitive_desc_t *pd)
{
    if (!has_room(OBJECT_ROOM, 0))
        return dnnl_out_of_memory;
    return guarded([&] {
        *pd = dnnl_primitive_desc_iterator_fetch(iterator);
        return *pd != nullptr ? dnnl_success : dnnl_out_of_memory;
    });
}

dnnl_status_t ls_dnnl_primitive_create(dnnl_primitive_t *primitive, const_dnnl_primitive_desc_t pd)
{
    if (!has_room(OBJECT_ROOM, CODE_ROOM))
        return dnnl_out_of_memory;
    dnnl_status_t status = guarded([&] { return dnnl_primitive_create(primitive, pd); });
    if (status != dnnl_success)
        forget_primitives();
    return status;
}

dnnl_status_t ls_dnnl_get_effective_cpu_isa(dnnl_cpu_isa_t *isa)
{
    return guarded([&] {
        *isa = dnnl_get_effective_cpu_isa();
        return dnnl_success;
    });
}
