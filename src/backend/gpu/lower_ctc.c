/* Lowers CTC: states of all frames of a lane are in scratch memory. */
#include "backend/gpu/lower.h"
#include "graph/ctc.h"

bool ls_gpu_ctc_fits(const ls_tensor *node)
{
    int64_t most = ((int64_t)1 << 31) - 1, states = 2 * node->in[1]->shape.dims[1] + 1;
    return node->in[0]->shape.dims[1] <= most / states;
}

/* Numbers of a call, and the largest logit, the sum and its logarithm of every frame. */
static ls_status begin(lowering *x, ls_gpu_ctc *p, ls_memory_place *frames)
{
    ls_shape logits = ls_gpu_in_shape(x, 0), labels = ls_gpu_in_shape(x, 1);
    *p = (ls_gpu_ctc){ .samples = logits.dims[0],
                       .frames = logits.dims[1],
                       .classes = logits.dims[2],
                       .labels = labels.dims[1],
                       .width = (i64)ls_dtype_bytes(x->node->in[1]->dtype),
                       .gradient = x->node->op == LS_OP_ctc_grad,
                       .impossible = LS_CTC_IMPOSSIBLE };
    *frames = ls_gpu_scratch(x, (size_t)(p->samples * p->frames * 3) * sizeof(double));
    LS_TRY(ls_gpu_check_indices(x, 1, p->classes, LS_GPU_FAULT_LABEL));
    return LAUNCH(x, LS_GPU_CTC, "ctc_frames", p, p->frames, p->samples, ls_gpu_in(x, 0), *frames);
}

static ls_memory_place states_of(lowering *x, const ls_gpu_ctc *p, int64_t frames)
{
    return ls_gpu_scratch(x, (size_t)(p->samples * frames * (2 * p->labels + 1)) * sizeof(double));
}

ls_status ls_gpu_ctc_loss(lowering *x)
{
    ls_gpu_ctc p;
    ls_memory_place frames, alpha;
    LS_TRY(begin(x, &p, &frames));
    alpha = states_of(x, &p, 1);
    return LAUNCH(x, LS_GPU_CTC, "ctc_alpha", &p, p.samples, 1, ls_gpu_in(x, 0), ls_gpu_in(x, 1), frames, alpha,
                  x->out);
}

ls_status ls_gpu_ctc_grad(lowering *x)
{
    ls_gpu_ctc p;
    ls_memory_place frames, alpha, beta, logits = ls_gpu_in(x, 0), labels = ls_gpu_in(x, 1);
    LS_TRY(begin(x, &p, &frames));
    alpha = states_of(x, &p, p.frames);
    beta = states_of(x, &p, p.frames);
    LS_TRY(LAUNCH(x, LS_GPU_CTC, "ctc_alpha", &p, p.samples, 1, logits, labels, frames, alpha, x->out));
    LS_TRY(LAUNCH(x, LS_GPU_CTC, "ctc_beta", &p, p.samples, 1, logits, labels, frames, beta));
    return LAUNCH(x, LS_GPU_CTC, "ctc_output", &p, p.frames, p.samples, logits, labels, ls_gpu_in(x, 2), frames, alpha,
                  beta, x->out);
}
