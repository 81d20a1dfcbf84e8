/* oneDNN's calls that take memory, for C: an exception (std::bad_alloc above all) becomes a status here. What throws no
 * exception (descriptions of arrays, queries, destroyers) is called directly. Same arguments, same results, but for
 * ls_dnnl_primitive_desc_iterator_fetch, which says why there is none. */
#ifndef LS_BACKEND_CPU_ONEDNN_GUARD_H
#define LS_BACKEND_CPU_ONEDNN_GUARD_H

#include <oneapi/dnnl/dnnl.h>

#ifdef __cplusplus
extern "C" {
#endif

dnnl_status_t ls_dnnl_engine_create(dnnl_engine_t *engine, dnnl_engine_kind_t kind, size_t index);
dnnl_status_t ls_dnnl_stream_create(dnnl_stream_t *stream, dnnl_engine_t engine, unsigned flags);
dnnl_status_t ls_dnnl_stream_wait(dnnl_stream_t stream);
dnnl_status_t ls_dnnl_memory_create(dnnl_memory_t *memory, const dnnl_memory_desc_t *desc, dnnl_engine_t engine,
                                    void *data);
dnnl_status_t ls_dnnl_memory_set_data_handle_v2(dnnl_memory_t memory, void *data, dnnl_stream_t stream);
dnnl_status_t ls_dnnl_post_ops_create(dnnl_post_ops_t *ops);
dnnl_status_t ls_dnnl_post_ops_append_eltwise(dnnl_post_ops_t ops, float scale, dnnl_alg_kind_t kind, float alpha,
                                              float beta);
dnnl_status_t ls_dnnl_primitive_attr_create(dnnl_primitive_attr_t *attr);
dnnl_status_t ls_dnnl_primitive_attr_set_post_ops(dnnl_primitive_attr_t attr, const_dnnl_post_ops_t ops);
dnnl_status_t ls_dnnl_primitive_desc_create(dnnl_primitive_desc_t *pd, const_dnnl_op_desc_t desc,
                                            const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                                            const_dnnl_primitive_desc_t hint);
dnnl_status_t ls_dnnl_primitive_desc_iterator_create(dnnl_primitive_desc_iterator_t *iterator,
                                                     const_dnnl_op_desc_t desc, const_dnnl_primitive_attr_t attr,
                                                     dnnl_engine_t engine, const_dnnl_primitive_desc_t hint);
dnnl_status_t ls_dnnl_primitive_desc_iterator_next(dnnl_primitive_desc_iterator_t iterator);
dnnl_status_t ls_dnnl_primitive_desc_iterator_fetch(dnnl_primitive_desc_iterator_t iterator, dnnl_primitive_desc_t *pd);
dnnl_status_t ls_dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *from,
                                                    dnnl_engine_t from_engine, const dnnl_memory_desc_t *to,
                                                    dnnl_engine_t to_engine, const_dnnl_primitive_attr_t attr);
dnnl_status_t ls_dnnl_primitive_create(dnnl_primitive_t *primitive, const_dnnl_primitive_desc_t pd);
dnnl_status_t ls_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                        const dnnl_exec_arg_t *args);
/* Reads the environment when it is first called; later calls take no memory. */
dnnl_status_t ls_dnnl_get_effective_cpu_isa(dnnl_cpu_isa_t *isa);
dnnl_status_t ls_dnnl_sgemm(char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha, const float *a,
                            dnnl_dim_t lda, const float *b, dnnl_dim_t ldb, float beta, float *c, dnnl_dim_t ldc);

#ifdef __cplusplus
}
#endif

#endif
