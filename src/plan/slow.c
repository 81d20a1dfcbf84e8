/* Finds plans that leave much of their work to reference kernels, which are correct but slow. */
#include "plan/plan.h"

#define WORTH_A_LINE 0.05 /* Share of all FLOPs above which a plan warns. */
/* FLOPs of reference kernels below which it does not warn: they take about a millisecond. */
#define LEAST_FLOPS 1e6
#define NAMED       3 /* Largest number of ops that the warning names. */

/* The work that reference kernels do for one op. */
typedef struct share {
    double flops;
    int groups;
    const ls_tensor *largest;
    double largest_flops;
} share;

static double flops_of(const ls_plan *plan, const ls_group *group)
{
    double flops = 0;
    for (int i = 0; i < group->node_count; i++)
        flops += ls_node_flops(group->nodes[i]);
    return group->per_sample && plan->batch > 0 ? flops * (double)plan->batch : flops;
}

static double add_share(const ls_plan *plan, const ls_group *group, share shares[LS_OP_COUNT])
{
    share *s = &shares[group->root->op];
    double flops = flops_of(plan, group);
    s->flops += flops;
    s->groups++;
    if (!s->largest || flops > s->largest_flops)
        s->largest = group->root, s->largest_flops = flops;
    return flops;
}

/* Example: "matmul 61 % (float64 (batch, 64, 128), (128, 512) and 3 more)". */
static void describe(ls_text *text, const share *s, double all)
{
    char shape[LS_SHAPE_TEXT];
    const ls_tensor *node = s->largest;
    ls_text_add(text, "%s %.0f %% (%s", ls_tensor_op(node), 100 * s->flops / all, ls_dtype_name(node->dtype));
    for (int i = 0; i < node->input_count && i < 3; i++)
        ls_text_add(text, "%s %s", i ? "," : "", ls_shape_format(&node->in[i]->shape, shape));
    if (node->input_count == 0)
        ls_text_add(text, " %s", ls_shape_format(&node->shape, shape));
    if (s->groups > 1)
        ls_text_add(text, " and %d more", s->groups - 1);
    ls_text_put(text, ")");
}

static share take_largest(share shares[LS_OP_COUNT])
{
    int most = 0;
    for (int op = 1; op < LS_OP_COUNT; op++)
        if (shares[op].flops > shares[most].flops)
            most = op;
    share largest = shares[most];
    shares[most] = (share){ 0 };
    return largest;
}

void ls_plan_describe_slow(const ls_plan *plan, ls_text *out)
{
    share shares[LS_OP_COUNT] = { { 0 } };
    double all = 0, slow = 0, wide = 0;
    for (int g = 0; g < plan->group_count; g++) {
        const ls_group *group = &plan->groups[g];
        if (!group->needed || !group->kernel)
            continue;
        all += flops_of(plan, group);
        double flops = group->kernel->falls_back ? add_share(plan, group, shares) : 0;
        slow += flops;
        wide += group->root->dtype == LS_F64 ? flops : 0;
    }
    if (!(slow > WORTH_A_LINE * all && slow >= LEAST_FLOPS))
        return;
    ls_text_add(out, "slow reference kernels do %.0f %% of this plan's FLOPs: ", 100 * slow / all);
    for (int i = 0; i < NAMED; i++) {
        share s = take_largest(shares);
        if (s.flops == 0)
            break;
        ls_text_put(out, i ? ", " : "");
        describe(out, &s, all);
    }
    if (2 * wide > slow)
        ls_text_put(out, "; float32 has fast kernels");
}
