/* Numbers that kernels get in addition to places in memory: one struct per kind of call, shared by
 * the host, which fills it, and the kernels, which include this file after their prelude. All
 * fields have 8 bytes, so that there is no padding. */
#ifndef LS_BACKEND_GPU_CALLS_H
#define LS_BACKEND_GPU_CALLS_H

#define LS_GPU_RANK         8                       /* axes */
#define LS_GPU_PLACES       8                       /* maximum number of places of a kernel */
#define LS_GPU_RUN(vector)  ((vector) > 1 ? 16 : 1) /* pixels per item, if an item has a vector of channels */
#define LS_GPU_SOME(vector) ((vector) > 1 ? 32 : 1) /* elements per item in kernels with few operations */

/* Short kernels are combined into one (small.cl). An entry of its table has the number of the
 * kernel to run in place of the last offset. The list has the number of places of each. */
#define LS_GPU_WHICH        7
#define LS_GPU_SMALL_PLACES 4 /* at most */
/* clang-format off */
#define LS_GPU_SMALL(X)                                                                                                \
    X(fill_4, 1) X(fill_8, 1) X(copy_4_rows, 2) X(copy_8_rows, 2) X(swap_4, 2) X(scatter, 2) X(check_indices, 2)       \
    X(cast_u8_f32, 2) X(cast_u8_f64, 2) X(cast_i32_i64, 2) X(cast_i64_f32, 2) X(add_i64, 3) X(equal_i64, 3)            \
    X(div_f32, 3) X(div_f32_one, 3) X(add_f32_columns, 3) X(mul_f32_vectors, 3) X(argmax_f32, 2)                       \
    X(add_blocks_f64, 2) X(sum_blocks_f64, 2) X(join_lanes_sum_f64, 1) X(update_scalars, 4)
/* clang-format on */
#define LS_GPU_SMALL_NUMBER(name, places) LS_SMALL_##name,
enum { LS_GPU_SMALL(LS_GPU_SMALL_NUMBER) LS_SMALL_COUNT };

/* n elements, and attributes of the op */
typedef struct ls_gpu_flat {
    i64 n;
    double a, b;
} ls_gpu_flat;

/* A walk over a shape of `rank` axes, with the strides of up to four arrays. */
typedef struct ls_gpu_walk {
    i64 n, rank;
    i64 size[LS_GPU_RANK];
    i64 stride[4][LS_GPU_RANK];
    i64 start[4];
    i64 magic, shift; /* i / size[1] is i * magic >> shift for at most two axes; magic 0: more axes */
} ls_gpu_walk;

/* Convolutions and pools: x [n,h,w,c], kernel [kh,kw,group_in,out], y [n,yh,yw,out] (for pools out
 * is c). */
typedef struct ls_gpu_window {
    i64 n, h, w, c, kh, kw, yh, yw, out;
    i64 groups, group_in, group_out;
    i64 stride[2], dilation[2], pad[2];
    i64 count_padding;
    i64 rectified; /* the same kernel also computes the gradient of a rectifier */
    i64 tiles;     /* for a kernel's gradient: tiles of the channels of each kernel pixel; 0: of all cells */
} ls_gpu_window;

/* A warp from x [n,h,w,c] to y [n,yh,yw,c]. */
typedef struct ls_gpu_warped {
    i64 n, h, w, c, yh, yw;
    i64 nearest;   /* interpolation */
    i64 fill_mode; /* LS_GPU_CONSTANT, ... */
    double fill_value;
} ls_gpu_warped;
enum { LS_GPU_CONSTANT = 1, LS_GPU_NEAREST, LS_GPU_REFLECT, LS_GPU_WRAP }; /* as ls_fill_mode */

/* A convolution reads x [n,h,w,c] and writes y [n,yh,yw,out]; its input gradient is one from dy to
 * dx. Output pixel p uses input pixels (p * in_step + start + cell * dilation) / out_step, where
 * these are whole numbers. */
typedef struct ls_gpu_conv {
    i64 n, h, w, c, kh, kw, yh, yw, out;
    i64 groups, depth, columns;     /* channels of a group: input, output */
    i64 pitch, cell, group_weights; /* floats from one row of weights, cell or group to the next */
    i64 first_cell;                 /* floats before the first cell, which is the last one for a gradient */
    i64 in_step[2], out_step[2], dilation[2], start[2];
    i64 run;               /* tiles per item, if items have vectors */
    i64 rows_lie;          /* cells of a row are adjacent, and so are their pixels */
    i64 padded;            /* some cells may be outside the image for some pixels of a tile */
    i64 biased, rectified; /* tail in the same kernel: bias, rectifier */
} ls_gpu_conv;

/* Blocks of positions (backend/blocks.h): `count` of them, from number `first` on. */
typedef struct ls_gpu_blocks {
    i64 sample, width, samples, rows, columns; /* ls_blocks */
    i64 positions;                             /* positions of the lane */
    i64 first, count;
    i64 per_row, per_sample; /* blocks per row or per sample, if these are divided */
} ls_gpu_blocks;

typedef struct ls_gpu_correlate {
    ls_gpu_window v;
    ls_gpu_blocks b;
} ls_gpu_correlate;

/* a [m,k] times b [k,n] with adjacent columns of b. Leading axes are walked: array 0 is a, array 1
 * is b, offsets in elements. */
typedef struct ls_gpu_product {
    i64 m, n, k, a_row, a_column, b_row;
    i64 biased, rectified; /* tail in the same kernel: bias, rectifier */
    i64 sums;              /* sums over blocks; 0: each matrix is one sum */
    ls_gpu_walk leading;
} ls_gpu_product;

typedef struct ls_gpu_product_blocks {
    ls_gpu_product p;
    ls_gpu_blocks b;
} ls_gpu_product_blocks;

/* Adds partial sums of `count` blocks, `n` elements each, from left to right; more: adds them to
 * the contents of the output. */
typedef struct ls_gpu_add {
    i64 n, count, more;
} ls_gpu_add;

/* Joins the partials of lanes, n elements each, into one at byte offset `to` of their memory. After
 * the struct, for each lane: its byte offset, and the number of earlier results that it is joined
 * with, the last first. */
typedef struct ls_gpu_tree {
    i64 n, lanes, to;
} ls_gpu_tree;
#define LS_GPU_LEVELS 13 /* levels of a tree, including its lanes */

/* Axes that are kept and axes that are reduced. */
typedef struct ls_gpu_reduce {
    ls_gpu_walk kept, gone;
    ls_gpu_blocks b;
} ls_gpu_reduce;

/* x [positions, channels] */
typedef struct ls_gpu_norm {
    i64 positions, channels;
    i64 rectified; /* the same kernel also applies a rectifier */
    double count, epsilon;
    ls_gpu_blocks b;
} ls_gpu_norm;

/* [outer, n, inner] */
typedef struct ls_gpu_rows {
    i64 outer, n, inner;
    i64 size;  /* size of the axis that is indexed */
    i64 width; /* bytes of an index */
    i64 first; /* index of the first sample of the lane in the batch */
    i64 way;   /* for softmax_rows: which function to compute */
} ls_gpu_rows;
enum { LS_GPU_SOFTMAX_ROWS, LS_GPU_LOG_SOFTMAX, LS_GPU_CROSS_ENTROPY, LS_GPU_CROSS_ENTROPY_GRAD };

#define LS_GPU_SORTED 64 /* length of the runs that the gradient of gather sorts first (moves.cl) */

typedef struct ls_gpu_random {
    i64 samples, each;
    i64 first; /* index of the first sample in the batch */
    u64 seed, run;
    i64 purpose, layer, call;
    double a, b;
} ls_gpu_random;

/* Attention: the sizes of graph/attention.h. */
typedef struct ls_gpu_attention {
    i64 samples, heads, shared, queries, keys, width, value_width;
    i64 at[3], row[3], sample[3];
    i64 gradient_at[3], gradient_row[3], gradient_sample;
    i64 masked, mask_sample, mask_head, mask_query;
    i64 causal, drops;
    i64 of_values; /* attention_keys_grad: of v, not of k */
    double scale;
    ls_gpu_random random;
} ls_gpu_attention;

/* CTC: labels [samples, labels], logits [samples, frames, classes] */
typedef struct ls_gpu_ctc {
    i64 samples, frames, classes, labels;
    i64 width;         /* bytes of a label */
    i64 gradient;      /* the alphas are those of the gradient: one for each frame */
    double impossible; /* LS_CTC_IMPOSSIBLE */
} ls_gpu_ctc;

/* Recurrent cells: the sizes of graph/recurrent.h, and one step. */
typedef struct ls_gpu_recurrent {
    i64 samples, steps, units, columns;
    i64 value, gradient; /* numbers in a step */
    i64 cell, activation, inner;
    i64 masked, biased;
    i64 step, last, next; /* indices of the step, of the one that comes before it and after it; -1: none */
} ls_gpu_recurrent;
enum { LS_GPU_SIMPLE, LS_GPU_LSTM, LS_GPU_GRU, LS_GPU_GRU_RESET_AFTER };               /* as ls_cell */
enum { LS_GPU_LINEAR, LS_GPU_TANH, LS_GPU_SIGMOID, LS_GPU_RELU, LS_GPU_HARD_SIGMOID }; /* as ls_gate */

/* corrects: whose bias correction */
enum { LS_CORRECTS_NOTHING, LS_CORRECTS_ADAM, LS_CORRECTS_ADAMAX, LS_CORRECTS_NADAM };
typedef struct ls_gpu_update {
    i64 n, has_step, has_when, corrects;
    double momentum, rho, epsilon, beta_1, beta_2, weight_decay, l1, l2, shrinkage, beta;
} ls_gpu_update;

/* A chain: n elements; operands of period n, 1 or another length; nodes by their number in
 * LS_GPU_CHAIN_OPS, whose values come from operands or, numbered after these, from earlier nodes;
 * `kept`: the value that each place stores. */
#define LS_GPU_CHAIN 8 /* maximum number of nodes */
/* clang-format off */
#define LS_GPU_CHAIN_OPS(X)                                                                                            \
    X(add) X(sub) X(mul) X(neg) X(square) X(maximum) X(minimum) X(relu) X(relu_grad) X(capped_relu_grad)               \
    X(silu_grad) X(sqrt) X(leaky_relu) X(capped_relu) X(clip)                                                          \
    X(exp) X(log) X(rsqrt) X(erf) X(tanh) X(sigmoid) X(softplus) X(silu) X(gelu) X(gelu_tanh) X(elu)
/* clang-format on */
#define LS_GPU_CHAIN_OP(name) LS_CHAIN_##name,
enum { LS_GPU_CHAIN_OPS(LS_GPU_CHAIN_OP) LS_CHAIN_COUNT };
typedef struct ls_gpu_chain {
    i64 n, inputs, outputs, steps;
    i64 period[LS_GPU_PLACES], kept[LS_GPU_PLACES];
    i64 op[LS_GPU_CHAIN], from[LS_GPU_CHAIN][2];
    double s[LS_GPU_CHAIN], t[LS_GPU_CHAIN];
} ls_gpu_chain;

/* The first fault in the data that a kernel found. Zeros: none. */
typedef struct ls_gpu_fault {
    i64 kind; /* an ls_gpu_fault_kind */
    i64 step; /* step of the program */
    i64 value, at, limit;
    i64 first; /* index of the first sample of the lane in the batch */
    double rate;
} ls_gpu_fault;
enum { LS_GPU_FAULT_NONE, LS_GPU_FAULT_LABEL, LS_GPU_FAULT_INDEX, LS_GPU_FAULT_RATE };

#endif
