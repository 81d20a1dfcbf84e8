/* The numbers that kernels are given, beside places in memory: one struct each, the same for the host that fills it and
 * for the kernels, which have this file behind their prelude. All fields are 8 bytes, so that nothing is padded. */
#ifndef LS_BACKEND_GPU_CALLS_H
#define LS_BACKEND_GPU_CALLS_H

#define LS_GPU_RANK         8                       /* axes */
#define LS_GPU_PLACES       8                       /* of a kernel, at most */
#define LS_GPU_RUN(vector)  ((vector) > 1 ? 16 : 1) /* pixels of an item that has a vector of channels */
#define LS_GPU_SOME(vector) ((vector) > 1 ? 32 : 1) /* elements of an item of a kernel of few operations */

/* Kernels that have little to do are one (small.cl): an entry of its table has the number of what it is to do in place
 * of the last offset. Of each: how many places it has. */
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

/* n elements, and attributes of their op */
typedef struct ls_gpu_flat {
    i64 n;
    double a, b;
} ls_gpu_flat;

/* Elements of a shape of `rank` axes, and how far each of up to four arrays steps along them. */
typedef struct ls_gpu_walk {
    i64 n, rank;
    i64 size[LS_GPU_RANK];
    i64 stride[4][LS_GPU_RANK];
    i64 start[4];
    i64 magic, shift; /* i / size[1] is i * magic >> shift, where two axes are enough; 0: they are not */
} ls_gpu_walk;

/* Convolutions and pools: x [n,h,w,c], kernel [kh,kw,group_in,out], y [n,yh,yw,out] (of pools out is c). */
typedef struct ls_gpu_window {
    i64 n, h, w, c, kh, kw, yh, yw, out;
    i64 groups, group_in, group_out;
    i64 stride[2], dilation[2], pad[2];
    i64 count_padding;
    i64 rectified; /* the gradient of a rectifier follows, in the same kernel */
    i64 tiles;     /* of a kernel's gradient: of the channels of each of its pixels; 0: of all cells */
} ls_gpu_window;

/* A convolution: x [n,h,w,c] is read, y [n,yh,yw,out] written. Its data gradient is one, too, from dy to dx. Pixel p of
 * what is written meets pixels (p * in_step + start + cell * dilation) / out_step of what is read, where these are
 * whole numbers. */
typedef struct ls_gpu_conv {
    i64 n, h, w, c, kh, kw, yh, yw, out;
    i64 groups, depth, columns;     /* channels of a group: that are read, and that are written */
    i64 pitch, cell, group_weights; /* floats from a row of weights to the next, from a cell's, from a group's */
    i64 first_cell;                 /* floats before the first cell's, which of a gradient is the last */
    i64 in_step[2], out_step[2], dilation[2], start[2];
    i64 run;               /* tiles of an item that has vectors */
    i64 rows_lie;          /* cells of a row lie side by side, and pixels that meet them */
    i64 padded;            /* pixels of a tile may be outside for some cells */
    i64 biased, rectified; /* what follows, in the same kernel */
} ls_gpu_conv;

/* Blocks of positions, as backend/blocks.h has them; of these, `count` from number `first` on. */
typedef struct ls_gpu_blocks {
    i64 sample, width, samples, rows, columns; /* ls_blocks */
    i64 positions;                             /* of the lane */
    i64 first, count;
    i64 per_row, per_sample; /* blocks of a row, where rows are cut; of a sample, where samples are */
} ls_gpu_blocks;

typedef struct ls_gpu_correlate {
    ls_gpu_window v;
    ls_gpu_blocks b;
} ls_gpu_correlate;

/* a [m,k] times b [k,n], b's columns side by side; leading axes are walked: array 0 is a, 1 is b, both in elements. */
typedef struct ls_gpu_product {
    i64 m, n, k, a_row, a_column, b_row;
    i64 biased, rectified; /* what follows, in the same kernel */
    i64 sums;              /* over blocks; otherwise each matrix is one */
    ls_gpu_walk leading;
} ls_gpu_product;

typedef struct ls_gpu_product_blocks {
    ls_gpu_product p;
    ls_gpu_blocks b;
} ls_gpu_product_blocks;

/* Partial sums of `count` blocks, `n` elements each, are added from left to right; more: to what is there. */
typedef struct ls_gpu_add {
    i64 n, count, more;
} ls_gpu_add;

/* Partial results of lanes become one of n elements, at byte offset `to` of their memory. Behind the struct, by lane:
 * its byte offset, and how many of those before it is joined with, the last first, as soon as it is there. */
typedef struct ls_gpu_tree {
    i64 n, lanes, to;
} ls_gpu_tree;
#define LS_GPU_LEVELS 13 /* of a tree, its lanes included */

/* Axes that stay and axes that go. */
typedef struct ls_gpu_reduce {
    ls_gpu_walk kept, gone;
    ls_gpu_blocks b;
} ls_gpu_reduce;

/* x [positions, channels] */
typedef struct ls_gpu_norm {
    i64 positions, channels;
    i64 rectified; /* a rectifier follows, in the same kernel */
    double count, epsilon;
    ls_gpu_blocks b;
} ls_gpu_norm;

/* [outer, n, inner] */
typedef struct ls_gpu_rows {
    i64 outer, n, inner;
    i64 size;  /* of an axis that is taken from */
    i64 width; /* bytes of an index */
    i64 first; /* sample of the lane, in the batch */
    i64 way;   /* of softmax_rows: what is made of a row */
} ls_gpu_rows;
enum { LS_GPU_SOFTMAX_ROWS, LS_GPU_LOG_SOFTMAX, LS_GPU_CROSS_ENTROPY, LS_GPU_CROSS_ENTROPY_GRAD };

#define LS_GPU_SORTED 64 /* positions of the first runs that gather's gradient sorts (moves.cl) */

typedef struct ls_gpu_random {
    i64 samples, each;
    i64 first; /* sample in the batch */
    u64 seed, run;
    i64 purpose, layer, call;
    double a, b;
} ls_gpu_random;

/* corrects: whose bias correction */
enum { LS_CORRECTS_NOTHING, LS_CORRECTS_ADAM, LS_CORRECTS_ADAMAX, LS_CORRECTS_NADAM };
typedef struct ls_gpu_update {
    i64 n, has_step, has_when, corrects;
    double momentum, rho, epsilon, beta_1, beta_2, weight_decay, l1, l2, shrinkage, beta;
} ls_gpu_update;

/* A chain: n elements, operands of period n, 1 or what is repeated; nodes, by number of LS_GPU_CHAIN_OPS, whose values
 * come from operands or, behind these, from nodes before; kept, by place: which of these is stored there. */
#define LS_GPU_CHAIN 8 /* nodes, at most */
/* clang-format off */
#define LS_GPU_CHAIN_OPS(X)                                                                                            \
    X(add) X(sub) X(mul) X(neg) X(square) X(maximum) X(minimum) X(relu) X(relu_grad) X(sqrt) X(leaky_relu) X(clip)     \
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

/* What a kernel found wrong with the data: the first place. Zeros: nothing. */
typedef struct ls_gpu_fault {
    i64 kind; /* an ls_gpu_fault_kind */
    i64 step; /* of the program */
    i64 value, at, limit;
    i64 first; /* sample of the lane, in the batch */
    double rate;
} ls_gpu_fault;
enum { LS_GPU_FAULT_NONE, LS_GPU_FAULT_LABEL, LS_GPU_FAULT_INDEX, LS_GPU_FAULT_RATE };

#endif
