/* Models that share a graph, so that one step can use them: a generator and its discriminator. */
#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/text.h"
#include "graph/claim.h"
#include "nn/model.h"

/* ---- Joining ---- */

static ls_status check_models(const ls_model *model, const ls_model *other)
{
    LS_TRY(ls_model_need_ready(model, "ls_model_join"));
    LS_TRY(ls_model_need_ready(other, "ls_model_join"));
    LS_TRY(ls_model_check_source(other, model));
    if (model->graph == other->graph)
        return ls_fail(LS_ERR_INVALID, "ls_model_join: model \"%s\" is in the graph of model \"%s\" already",
                       model->name, other->name);
    if (model->beside)
        return ls_fail(LS_ERR_STATE,
                       "ls_model_join: model \"%s\" shares its graph with another model already; make it the second "
                       "argument",
                       model->name);
    if (model->job || model->graph->node_count > model->variable_count)
        return ls_fail(LS_ERR_STATE,
                       "ls_model_join: model \"%s\" is compiled, or its graph has nodes beside its variables; call "
                       "this before the model is compiled or traced",
                       model->name);
    if (other->graph->scope)
        return ls_fail(LS_ERR_STATE,
                       "ls_model_join: a scope is open in the graph of model \"%s\" (a compiled model has one) and "
                       "would end the variables of model \"%s\" with it; call this before that",
                       other->name, model->name);
    return LS_OK;
}

/* Names of layers have no slash, so only a nested model of this name can clash. */
static ls_status check_prefix(const ls_model *model, const ls_model *other)
{
    size_t length = strlen(model->name);
    for (const char *c = model->name; *c; c++)
        if ((unsigned char)*c <= ' ' || strchr(":\"/", *c))
            return ls_fail(LS_ERR_INVALID,
                           "ls_model_join: the name \"%s\" cannot begin the names of variables; make the model with a "
                           "name without spaces, slashes, colons and quotes",
                           model->name);
    for (size_t i = 0; i < other->graph->variable_count; i++) {
        const char *name = ls_tensor_name(other->graph->variables[i]->node);
        if (strncmp(name, model->name, length) == 0 && name[length] == '/')
            return ls_fail(LS_ERR_INVALID,
                           "ls_model_join: the graph of model \"%s\" has a variable %s, so the names of model \"%s\" "
                           "would clash; give the model another name",
                           other->name, name, model->name);
    }
    return LS_OK;
}

/* Makes a copy of a variable in the other graph. */
static ls_status copy_variable(const ls_model *model, ls_graph *graph, const ls_tensor *from, ls_tensor **out)
{
    const ls_variable *old = from->attr.variable.variable;
    ls_text name = { 0 };
    ls_text_add(&name, "%s/%s", model->name, from->name);
    int outer = graph->device;
    graph->device = from->device;
    ls_tensor *to = ls_variable_later(graph, ls_text_get(&name), from->dtype, from->shape, old->trainable);
    graph->device = outer;
    ls_text_free(&name);
    if (ls_tensor_is_error(to))
        return ls_fail(to->status, "ls_model_join: %s", to->message);
    ls_variable *new = to->attr.variable.variable;
    LS_TRY(ls_variable_take(graph, new, to->name));
    memcpy(new->data, old->data, old->bytes);
    ls_variable_written(new, true);
    new->constraint = old->constraint;
    *out = to;
    return LS_OK;
}

/* Random numbers of the two models must differ: their layers get numbers after those of the
 * graph. */
static void move(ls_model *model, ls_graph *graph, ls_tensor *const *copies)
{
    for (size_t v = 0; v < model->variable_count; v++)
        model->variables[v].layer->variable[model->variables[v].index] = copies[v];
    for (size_t i = 0; i < model->layer_count; i++) {
        model->layers[i]->random += graph->random_count;
        if (model->layers[i]->inner)
            model->layers[i]->inner->graph = graph;
    }
    graph->random_count += model->graph->random_count;
    ls_model_destroy_graph(model->graph);
    model->graph = graph;
    model->trainable = NULL; /* the arena frees the old list */
    model->has_joined = true;
}

static void enter_ring(ls_model *model, ls_model *other)
{
    model->beside = other->beside ? other->beside : other;
    other->beside = model;
}

static void leave_ring(ls_model *model)
{
    ls_model *before = model->beside;
    while (before->beside != model)
        before = before->beside;
    before->beside = model->beside == before ? NULL : model->beside;
    model->beside = NULL;
}

static ls_status join(ls_model *model, ls_model *other)
{
    ls_graph *graph = other->graph;
    LS_TRY(check_models(model, other));
    LS_TRY(check_prefix(model, other));
    LS_TRY(ls_graph_fill(model->graph));
    LS_TRY(ls_graph_fill(graph));
    if (!other->beside) { /* the owner may end before the graph */
        const char *owner = ls_arena_strdup(&graph->arena, graph->owner);
        if (!owner)
            return ls_fail(LS_ERR_MEMORY, "ls_model_join: no memory");
        graph->owner = owner;
    }
    ls_tensor **copies = calloc(model->variable_count + 1, sizeof(*copies));
    ls_scope scope = ls_scope_open(graph);
    ls_status status = copies && scope.open ? LS_OK : ls_fail(LS_ERR_MEMORY, "ls_model_join: no memory");
    for (size_t v = 0; v < model->variable_count && status == LS_OK; v++) {
        ls_tensor *from = ls_model_variable(model, v);
        status = ls_variable_sync_to_host(from->attr.variable.variable);
        if (status == LS_OK)
            status = copy_variable(model, graph, from, &copies[v]);
    }
    if (status == LS_OK) {
        ls_scope_keep(&scope);
        move(model, graph, copies);
        enter_ring(model, other);
    }
    ls_scope_close(&scope);
    free(copies);
    return status;
}

ls_status ls_model_join(ls_model *model, ls_model *other)
{
    LS_CLAIM(ls_model_claimed(other));
    LS_OWN_FP_MODE;
    if (!model || !other)
        return ls_fail(LS_ERR_INVALID, "ls_model_join: model or other is NULL");
    ls_claim claim = ls_claim_begin(model->graph, __func__);
    if (claim.refused)
        return LS_ERR_STATE;
    ls_graph *before = model->graph;
    ls_status status = join(model, other);
    if (model->graph == before) /* otherwise the claim ended with the graph */
        ls_claim_end(&claim);
    return status;
}

void ls_model_leave_graph(ls_model *model)
{
    if (!model->beside) {
        ls_model_destroy_graph(model->graph);
        return;
    }
    leave_ring(model);
    ls_claim_end(&(ls_claim){ .graph = model->graph }); /* ends the claim of ls_model_destroy */
}

/* ---- Training ---- */

ls_tensor *ls_model_minimize(ls_model *model, ls_optimizer optimizer, ls_tensor *loss)
{
    LS_CLAIM_TENSORS(loss);
    LS_OWN_FP_MODE;
    if (!model || ls_tensor_is_error(loss))
        return loss;
    size_t count = 0, kept = 0;
    if (loss->graph != model->graph)
        return ls_node_error(loss->graph,
                             ls_fail(LS_ERR_INVALID,
                                     "the loss is in another graph than model \"%s\"; put models in one graph with "
                                     "ls_model_join",
                                     model->name),
                             "ls_model_minimize");
    ls_tensor *const *all = ls_model_trainable_variables(model, &count);
    ls_tensor **variables = calloc(count + 1, sizeof(*variables)), **gradients = calloc(count + 1, sizeof(*gradients));
    ls_status status = variables && gradients ? ls_gradients(loss, all, count, gradients)
                                              : ls_fail(LS_ERR_MEMORY, "no memory for %zu variables", count);
    for (size_t i = 0; status == LS_OK && i < count; i++)
        if (gradients[i]) {
            variables[kept] = all[i];
            gradients[kept++] = gradients[i];
        }
    if (status == LS_OK && kept == 0)
        status = ls_fail(LS_ERR_INVALID, "the loss depends on none of the %zu trainable variables of model \"%s\"",
                         count, model->name);
    ls_tensor *step = status == LS_OK ? ls_apply_gradients(optimizer, gradients, variables, kept, NULL)
                                      : ls_node_error(loss->graph, status, "ls_model_minimize");
    free(variables);
    free(gradients);
    return step;
}
