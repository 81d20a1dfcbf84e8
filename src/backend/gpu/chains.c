/* Chains: consecutive elementwise steps become one kernel, and values that only they read are never
 * stored. Its source is generated from the functions of chain.cl, so each number is computed as by
 * its own kernel. A chain that would overwrite a value it still reads is not built. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/chains.h"
#include "backend/gpu/lower.h"
#include "base/text.h"

static const char *const names[] = {
#define NAME(name) #name,
    LS_GPU_CHAIN_OPS(NAME)
#undef NAME
};

static int function_of(const ls_tensor *node)
{
    const char *op = ls_tensor_op(node);
    if (node->dtype != LS_F32 || node->input_count < 1 || node->input_count > 2 || node->in[0]->dtype != LS_F32)
        return -1;
    if (node->op == LS_OP_gelu && node->attr.gelu.tanh_form)
        return LS_CHAIN_gelu_tanh;
    for (int i = 0; i < (int)(sizeof(names) / sizeof(*names)); i++)
        if (strcmp(names[i], op) == 0)
            return i;
    return -1;
}

static bool is_same_shape(const ls_tensor *a, const ls_tensor *b)
{
    return a->per_sample == b->per_sample && a->shape.rank == b->shape.rank &&
           memcmp(a->shape.dims, b->shape.dims, (size_t)a->shape.rank * sizeof(a->shape.dims[0])) == 0;
}

/* The node has the output's shape, or repeats along its first axes. */
static bool is_operand(const ls_tensor *node, const ls_tensor *out)
{
    int skip = out->shape.rank - node->shape.rank, first = 0;
    if (is_same_shape(node, out))
        return true;
    if (node->per_sample || skip < 0 || node->dtype != LS_F32)
        return false;
    while (first < node->shape.rank && node->shape.dims[first] == 1)
        first++;
    for (int i = first; i < node->shape.rank; i++)
        if (node->shape.dims[i] != out->shape.dims[skip + i] || (skip + i == 0 && out->per_sample))
            return false;
    return true;
}

/* Whether a step outside the chain reads the value. Compares places, because a step may read it
 * under another name (a reshape). */
static bool is_wanted(const ls_program *program, const ls_gpu_chain_steps *c, int step)
{
    const ls_program_slot *out = &program->steps[step].out;
    if (out->room != LS_ROOM_TASK)
        return true;
    for (int i = step + 1; i < program->step_count; i++) {
        const ls_program_step *later = &program->steps[i];
        for (int k = 0; i >= c->first + c->count && k < later->node->input_count; k++)
            if (later->in[k].room == out->room && later->in[k].offset == out->offset)
                return true;
        if (later->out.room == out->room && later->out.offset == out->offset)
            return false; /* overwritten from here on */
    }
    return false;
}

/* Number among the inputs and steps of the chain; -1: not in it. */
static int value_of(const ls_program *program, const ls_gpu_chain_steps *c, int steps, const ls_tensor *node)
{
    for (int k = 0; k < steps; k++)
        if (program->steps[c->first + k].node == node)
            return LS_GPU_PLACES + k;
    for (int k = 0; k < c->inputs; k++)
        if (program->steps[c->input[k].step].node->in[c->input[k].number] == node)
            return k;
    return -1;
}

static bool add_step(const ls_program *program, ls_gpu_chain_steps *c)
{
    int number = c->first + c->count, inputs = c->inputs;
    const ls_tensor *node = program->steps[number].node, *first = program->steps[c->first].node;
    int function = function_of(node);
    bool inside = c->count == 0;
    if (function < 0 || c->count == LS_GPU_CHAIN || !is_same_shape(node, first))
        return false;
    for (int k = 0; k < node->input_count; k++) {
        int value = value_of(program, c, c->count, node->in[k]);
        inside = inside || value >= LS_GPU_PLACES;
        if (value < 0 && (!is_operand(node->in[k], node) || c->inputs == LS_GPU_PLACES - 1)) {
            c->inputs = inputs;
            return false;
        }
        if (value < 0) {
            c->input[c->inputs].step = number;
            c->input[c->inputs].number = k;
            value = c->inputs++;
        }
        c->from[c->count][k] = value;
    }
    if (node->input_count == 1)
        c->from[c->count][1] = c->from[c->count][0];
    c->function[c->count] = function;
    c->count += inside;
    c->inputs = inside ? c->inputs : inputs;
    return inside;
}

/* Returns false if there are not enough places for the values to store. */
static bool find_outputs(const ls_program *program, ls_gpu_chain_steps *c)
{
    c->outputs = 0;
    for (int k = 0; k < c->count; k++)
        if (is_wanted(program, c, c->first + k)) {
            if (c->inputs + c->outputs == LS_GPU_PLACES)
                return false;
            c->output[c->outputs++] = k;
        }
    return c->outputs > 0;
}

/* No output may overwrite an input. The same place is allowed: it is read before it is written. */
static bool is_safe(const ls_program *program, const ls_gpu_chain_steps *c)
{
    for (int o = 0; o < c->outputs; o++)
        for (int i = 0; i < c->inputs; i++) {
            const ls_program_step *step = &program->steps[c->input[i].step];
            const ls_program_slot *in = &step->in[c->input[i].number];
            const ls_program_slot *out = &program->steps[c->first + c->output[o]].out;
            size_t in_bytes = in->unit * (size_t)(in->per_sample ? program->samples : 1);
            size_t out_bytes = out->unit * (size_t)(out->per_sample ? program->samples : 1);
            bool same = in->offset == out->offset && in_bytes == out_bytes &&
                        is_same_shape(step->node->in[c->input[i].number], program->steps[c->first].node);
            bool apart = in->room != LS_ROOM_TASK || out->room != LS_ROOM_TASK ||
                         in->offset + in_bytes <= out->offset || out->offset + out_bytes <= in->offset;
            if (!apart && !same)
                return false;
        }
    return true;
}

static bool make_chain(const ls_program *program, int first, int most, ls_gpu_chain_steps *c)
{
    *c = (ls_gpu_chain_steps){ .first = first };
    while (c->count < most && first + c->count < program->step_count && add_step(program, c))
        ;
    return c->count > 1 && find_outputs(program, c) && is_safe(program, c);
}

static void write_text(ls_gpu_chain_steps *c, ls_text *text)
{
    ls_text_add(text, "KERNEL_APART(%s, %d)\n", c->name, c->inputs + c->outputs);
    ls_text_put(text, "{\n    LANE(ls_gpu_chain, p);\n    i64 i = ITEM(0) * LS_VECTOR, count = p->n - i;\n"
                      "    if (count <= 0)\n        return;\n");
    for (int i = 0; i < c->inputs; i++)
        ls_text_add(text, "    vec x%d = operand(IN(float, %d), p->period[%d], p->n, i, count);\n", i, i, i);
    for (int k = 0; k < c->count; k++) {
        ls_text_add(text, "    vec y%d = chain_%s(", k, names[c->function[k]]);
        for (int n = 0; n < 2; n++)
            ls_text_add(text, "%s%d, ", c->from[k][n] < LS_GPU_PLACES ? "x" : "y", c->from[k][n] % LS_GPU_PLACES);
        ls_text_add(text, "p->s[%d], p->t[%d]);\n", k, k);
    }
    for (int o = 0; o < c->outputs; o++)
        ls_text_add(text, "    store(y%d, OUT(float, %d) + i, count);\n", c->output[o], c->inputs + o);
    ls_text_put(text, "}\n");
}

/* From all that the source depends on: functions and operands of each step. */
static void write_name(ls_gpu_chain_steps *c)
{
    uint64_t hash = 14695981039346656037u;
    const int head[] = { c->inputs, c->outputs, c->count };
    const struct {
        const int *of;
        int count;
    } lists[] = { { head, 3 }, { c->function, c->count }, { c->from[0], 2 * c->count }, { c->output, c->outputs } };
    for (size_t l = 0; l < sizeof(lists) / sizeof(*lists); l++)
        for (int i = 0; i < lists[l].count; i++)
            hash = (hash ^ (uint64_t)lists[l].of[i]) * 1099511628211u;
    snprintf(c->name, sizeof(c->name), "chain_%016llx", (unsigned long long)hash);
}

int ls_gpu_find_chain(const ls_program *program, int first, ls_gpu_chain_steps *c)
{
    for (int most = LS_GPU_CHAIN; most > 1; most = c->count - 1) {
        bool made = make_chain(program, first, most, c);
        if (made) {
            write_name(c);
            return c->count;
        }
        if (c->count <= 2)
            break;
    }
    return 1;
}

static size_t bytes_of(const ls_program *program, const ls_program_slot *slot)
{
    return slot->unit * (size_t)(slot->per_sample ? program->samples : 1);
}

static bool are_disjoint(const ls_program *program, const ls_program_slot *a, const ls_program_slot *b)
{
    return a->room != b->room || a->offset + bytes_of(program, a) <= b->offset ||
           b->offset + bytes_of(program, b) <= a->offset;
}

/* No other step reads the results before the last, and the last does not overwrite inputs of the
 * first. */
static bool is_whole(const ls_program *program, const ls_gpu_chain_steps *c)
{
    const ls_program_step *first = &program->steps[c->first], *last = first + c->count - 1;
    for (int k = 0; k + 1 < c->count; k++)
        if (is_wanted(program, c, c->first + k))
            return false;
    for (int i = 0; i < first->node->input_count; i++) {
        bool in_place = first->node->op == LS_OP_batch_norm && i == 0 && first->in[0].offset == last->out.offset;
        if (!are_disjoint(program, &first->in[i], &last->out) && !in_place)
            return false;
    }
    return !c->biased || are_disjoint(program, &first[1].in[c->bias], &last->out);
}

/* Input of `add` that is a bias: one number for each element of the last axis of the other input,
 * `of`; -1: none. */
static int bias_of(const ls_tensor *add, const ls_tensor *of)
{
    if (add->op != LS_OP_add) /* other ops may have fewer inputs */
        return -1;
    int other = add->in[0] == of ? 1 : 0;
    const ls_shape *shape = &add->in[other]->shape;
    if (add->dtype != LS_F32 || add->in[1 - other] != of || add->in[other] == of || !is_same_shape(add, of) ||
        !is_operand(add->in[other], add) || shape->rank < 1 ||
        shape->dims[shape->rank - 1] != of->shape.dims[of->shape.rank - 1])
        return -1;
    for (int i = 0; i + 1 < shape->rank; i++)
        if (shape->dims[i] != 1)
            return -1;
    return other;
}

/* ReLU gradient (slope 0) after the gradient of a max pool of the same values. */
static bool is_rectified_pool(const ls_program_step *pool, const ls_program_step *next)
{
    return pool->node->op == LS_OP_max_pool2d_grad && next->node->op == LS_OP_relu_grad &&
           next->node->in[0] == pool->node && is_same_shape(pool->node, next->node) &&
           (float)next->node->attr.slope.slope == 0 && next->in[1].room == pool->in[0].room &&
           next->in[1].offset == pool->in[0].offset;
}

int ls_gpu_find_tail(const ls_program *program, int first, bool library, ls_gpu_chain_steps *c)
{
    const ls_program_step *step = &program->steps[first], *end = program->steps + program->step_count;
    const ls_tensor *node = step->node;
    bool product =
        !library && (node->op == LS_OP_conv2d ||
                     (node->op == LS_OP_matmul && !node->attr.matmul.sum_leading && node->use != LS_USE_REDUCES));
    *c = (ls_gpu_chain_steps){ .first = first, .count = 1, .tail = true };
    if (step + 1 < end && is_rectified_pool(step, step + 1)) {
        c->count = 2;
        c->rectified = true;
    } else if ((product || node->op == LS_OP_batch_norm) && step + 1 < end) {
        int bias = product ? bias_of(step[1].node, node) : -1;
        c->biased = bias >= 0;
        c->bias = c->biased ? bias : 0;
        c->count += c->biased;
        const ls_program_step *next = step + c->count;
        c->rectified = next < end && next->node->op == LS_OP_relu && next->node->in[0] == next[-1].node;
        c->count += c->rectified;
    }
    if (c->count > 1 && !is_whole(program, c) && c->count == 3) { /* try without the ReLU */
        c->count = 2;
        c->rectified = false;
    }
    return c->count > 1 && is_whole(program, c) ? c->count : 1;
}

char *ls_gpu_chain_source(const ls_gpu_chain_steps *chain)
{
    ls_text body = { 0 };
    ls_gpu_chain_steps c = *chain;
    write_text(&c, &body);
    char *text = body.failed ? NULL : ls_gpu_source_with(LS_GPU_CHAINS, "#define LS_CHAIN\n", ls_text_get(&body));
    ls_text_free(&body);
    return text;
}

static void set_attributes(ls_gpu_chain *p, int k, const ls_tensor *node)
{
    const ls_attrs *attr = &node->attr;
    if (node->op == LS_OP_leaky_relu || node->op == LS_OP_elu || node->op == LS_OP_relu_grad)
        p->s[k] = attr->slope.slope;
    if (node->op == LS_OP_capped_relu || node->op == LS_OP_capped_relu_grad)
        p->s[k] = attr->number.value;
    if (node->op == LS_OP_clip) {
        p->s[k] = attr->range.low;
        p->t[k] = attr->range.high;
    }
}

ls_status ls_gpu_lower_chain(ls_gpu_lowering *l, const ls_program *program, const ls_gpu_chain_steps *c,
                             const ls_program_run *run)
{
    ls_gpu_chain p = { .inputs = c->inputs, .outputs = c->outputs, .steps = c->count };
    ls_memory_place place[LS_GPU_PLACES];
    lowering x = { .l = l, .run = run };
    ls_shape shape = ls_ref_shape(program->steps[c->first].node, run->batch, run->samples);
    p.n = ls_gpu_elements(&shape);
    for (int i = 0; i < c->inputs; i++) {
        x.step = &program->steps[c->input[i].step];
        x.node = x.step->node;
        shape = ls_gpu_in_shape(&x, c->input[i].number);
        p.period[i] = ls_gpu_elements(&shape);
        place[i] = ls_gpu_in(&x, c->input[i].number);
    }
    for (int k = 0; k < c->count; k++) {
        p.op[k] = c->function[k];
        for (int n = 0; n < 2; n++)
            p.from[k][n] = c->from[k][n] < LS_GPU_PLACES ? c->from[k][n] : c->inputs + c->from[k][n] - LS_GPU_PLACES;
        set_attributes(&p, k, program->steps[c->first + k].node);
    }
    for (int o = 0; o < c->outputs; o++) {
        place[c->inputs + o] = ls_gpu_slot(&x, &program->steps[c->first + c->output[o]].out);
        p.kept[c->inputs + o] = c->inputs + c->output[o];
    }
    int places = c->inputs + c->outputs;
    for (int i = places; i < LS_GPU_PLACES; i++) /* unused */
        place[i] = place[0];
    int64_t width = l->tuning->vector;
    return ls_gpu_launch_on(l, LS_GPU_CHAINS, c->any ? "chain_steps" : c->name, &p, sizeof(p),
                            (p.n + width - 1) / width, 1, false, c->any ? LS_GPU_PLACES : places, place);
}
