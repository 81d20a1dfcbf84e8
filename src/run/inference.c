/* Repeated runs in the calling thread (inference.h). */
#include "run/inference.h"

#include <stdlib.h>
#include <string.h>

#include "run/compile.h"
#include "run/executor_private.h"

/* A few batch sizes alternate; the plan that was not used for longest makes room for another. */
#define PLANS 4

typedef struct plan {
    ls_executor *executor; /* NULL: free */
    int64_t batch;
    uint64_t used;
    int *input;          /* By input: index of its plan node; -1: the outputs do not depend on it. */
    bool keeps_prepared; /* Prepared weights are valid for the next run. */
} plan;

struct ls_inference {
    ls_graph *graph;
    ls_tensor **inputs, **outputs;
    size_t input_count, output_count;
    plan plans[PLANS];
    uint64_t clock;
};

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "no memory for an inference");
}

static ls_tensor **copy_list(ls_tensor *const *list, size_t count)
{
    ls_tensor **copy = malloc((count + 1) * sizeof(ls_tensor *));
    if (copy && count)
        memcpy(copy, list, count * sizeof(ls_tensor *));
    return copy;
}

ls_status ls_inference_create(ls_graph *graph, ls_tensor *const *inputs, size_t input_count, ls_tensor *const *outputs,
                              size_t output_count, ls_inference **out)
{
    ls_inference *f = calloc(1, sizeof(*f));
    if (!f)
        return no_memory();
    *f = (ls_inference){ .graph = graph,
                         .inputs = copy_list(inputs, input_count),
                         .outputs = copy_list(outputs, output_count),
                         .input_count = input_count,
                         .output_count = output_count };
    if (!f->inputs || !f->outputs) {
        ls_inference_destroy(f);
        return no_memory();
    }
    *out = f;
    return LS_OK;
}

static void drop_plan(plan *p)
{
    ls_executor_destroy(p->executor);
    free(p->input);
    *p = (plan){ .executor = NULL };
}

void ls_inference_destroy(ls_inference *f)
{
    if (!f)
        return;
    for (int i = 0; i < PLANS; i++)
        drop_plan(&f->plans[i]);
    free(f->inputs);
    free(f->outputs);
    free(f);
}

/* ---- Plans ---- */

static int on_first_cpu(const ls_task_map *map, const ls_task_map_point *at)
{
    (void)map;
    return at->lane < 0 ? LS_ANY_DEVICE : 0;
}

/* Prepared weights are valid for the next run if they are made from variables alone. */
static bool can_keep_prepared(const ls_plan *p)
{
    for (int i = 0; i < p->prepared_count; i++) {
        ls_op op = p->nodes[p->prepared[i].value].node->op;
        if (op != LS_OP_variable && op != LS_OP_constant)
            return false;
    }
    return true;
}

static void set_weights(ls_executor *e)
{
    for (int i = 0; i < e->plan->node_count; i++) {
        const ls_tensor *node = e->plan->nodes[i].node;
        if (node->op == LS_OP_constant)
            e->external[i] = (ls_external){ .data = node->attr.data.data.bytes };
        else if (node->op == LS_OP_variable)
            e->external[i] = (ls_external){ .data = node->attr.variable.variable->data };
    }
    e->is_prepared = false;
}

static ls_status make_plan(ls_inference *f, plan *p, int64_t batch)
{
    const ls_run_settings settings = { .plan = { .keeps_prepared = true, .map = { .device = on_first_cpu } },
                                       .by_caller = true };
    drop_plan(p);
    LS_TRY(ls_compile_run(f->graph, &settings, f->outputs, f->output_count, batch, NULL, NULL, &p->executor));
    p->batch = batch;
    p->input = malloc((f->input_count + 1) * sizeof(*p->input));
    if (!p->input) {
        drop_plan(p);
        return no_memory();
    }
    const ls_plan *made = p->executor->plan;
    for (size_t k = 0; k < f->input_count; k++) {
        p->input[k] = -1;
        for (int i = 0; i < made->node_count; i++)
            if (made->nodes[i].node == f->inputs[k])
                p->input[k] = i;
    }
    p->keeps_prepared = can_keep_prepared(made);
    set_weights(p->executor);
    return LS_OK;
}

static ls_status find_plan(ls_inference *f, int64_t batch, plan **out)
{
    plan *oldest = &f->plans[0];
    for (int i = 0; i < PLANS; i++) {
        plan *p = &f->plans[i];
        if (p->executor && p->batch == batch) {
            *out = p;
            return LS_OK;
        }
        oldest = p->used < oldest->used ? p : oldest;
    }
    LS_TRY(make_plan(f, oldest, batch));
    *out = oldest;
    return LS_OK;
}

/* ---- Runs ---- */

void ls_inference_forget_weights(ls_inference *f)
{
    for (int i = 0; i < PLANS; i++)
        if (f->plans[i].executor)
            set_weights(f->plans[i].executor);
}

ls_status ls_inference_run(ls_inference *f, const ls_array *inputs, const ls_array *outputs, int64_t batch)
{
    plan *p = NULL;
    LS_TRY(find_plan(f, batch, &p));
    p->used = ++f->clock;
    ls_executor *e = p->executor;
    for (size_t k = 0; k < f->input_count; k++)
        if (p->input[k] >= 0)
            e->external[p->input[k]] = (ls_external){ .data = inputs[k].data };
    LS_TRY(ls_executor_run(e, f->graph->seed, 0));
    e->is_prepared = p->keeps_prepared;
    for (size_t k = 0; k < f->output_count; k++)
        ls_executor_copy_value(e, e->plan->fetches[k], outputs[k].data);
    return LS_OK;
}
