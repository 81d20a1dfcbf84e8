/* Sums, maxima and minima over axes; adds partial sums of blocks; joins partials of lanes; checks
 * for numbers that are not finite. */

/* Adds partial sums [count][n] of blocks from left to right. Stores the total, or adds it to the
 * contents of out. places: partial sums, out */
#define ADD_BLOCKS(name, type)                                                                                         \
    KERNEL(name, 2)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_add, p);                                                                                           \
        i64 i = ITEM(0);                                                                                               \
        if (i >= p->n)                                                                                                 \
            return;                                                                                                    \
        GLOBAL const type *part = IN(type, 0) + i;                                                                     \
        type sum = p->more ? OUT(type, 1)[i] + part[0] : part[0];                                                      \
        for (i64 k = 1; k < p->count; k++)                                                                             \
            sum = sum + part[k * p->n];                                                                                \
        OUT(type, 1)[i] = sum;                                                                                         \
    }
ADD_BLOCKS(add_blocks_f32, float)
ADD_BLOCKS(add_blocks_f64, double)
ADD_BLOCKS(add_blocks_i32, u32)
ADD_BLOCKS(add_blocks_i64, u64)

/* ---- Sums over the batch: a chain for each block ---- */

/* places: x, partial sums [block][kept] */
#define SUM_BLOCKS(name, type)                                                                                         \
    KERNEL_APART(name, 2)                                                                                              \
    {                                                                                                                  \
        LANE(ls_gpu_reduce, p);                                                                                        \
        i64 i = ITEM(0), number = ITEM(1), first, end;                                                                 \
        if (i >= p->kept.n || number >= p->b.count)                                                                    \
            return;                                                                                                    \
        GLOBAL const type *x = IN(type, 0) + walk_at(&p->kept, 0, i);                                                  \
        block_bounds(&p->b, p->b.first + number, &first, &end);                                                        \
        type sum = 0;                                                                                                  \
        for (i64 k = first; k < end; k++)                                                                              \
            sum = sum + x[walk_at(&p->gone, 0, k)];                                                                    \
        OUT(type, 1)[number * p->kept.n + i] = sum;                                                                    \
    }
SUM_BLOCKS(sum_blocks_f32, float)
SUM_BLOCKS(sum_blocks_f64, double)
SUM_BLOCKS(sum_blocks_i32, u32)
SUM_BLOCKS(sum_blocks_i64, u64)

/* The same for adjacent sums, such as those of channels: an item has a vector of them. */
KERNEL_APART(sum_blocks_f32_columns, 2)
{
    LANE(ls_gpu_reduce, p);
    i64 i = ITEM(0) * LS_VECTOR, number = ITEM(1), count = p->kept.n - i, step = p->gone.stride[0][0], first, end;
    if (count <= 0 || number >= p->b.count)
        return;
    GLOBAL const float *x = IN(float, 0) + p->kept.start[0] + i;
    block_bounds(&p->b, p->b.first + number, &first, &end);
    vec sum = (vec)0.0f;
    for (i64 k = first; k < end; k++)
        sum = sum + load(x + k * step, count);
    store(sum, OUT(float, 1) + number * p->kept.n + i, count);
}

/* ---- Sums inside a sample ---- */

/* Sums n = gone.n adjacent elements for each of kept.n outputs, in blocks of 4,096. places: x, sums
 * f64 [block][kept] */
KERNEL_APART(sum_side_by_side, 2)
{
    LANE(ls_gpu_reduce, p);
    i64 i = ITEM(0), number = ITEM(1), from = number * 4096, count = least(p->gone.n - from, 4096);
    if (i >= p->kept.n || number >= p->b.count)
        return;
    GLOBAL const float *x = IN(float, 0) + i * p->gone.n + from;
    double part[16];
    for (int k = 0; k < 16; k++)
        part[k] = 0;
    i64 whole = count / 16 * 16;
    for (i64 at = 0; at < whole; at += 16)
        for (int k = 0; k < 16; k++)
            part[k] += x[at + k];
    for (i64 at = whole; at < count; at++)
        part[at - whole] += x[at];
    OUT(double, 1)[number * p->kept.n + i] = interleaved_total(part);
}

/* Adds those blocks from left to right, starting at +0. places: sums, out */
KERNEL(finish_side_by_side, 2)
{
    LANE(ls_gpu_add, p);
    i64 i = ITEM(0);
    double sum = 0;
    if (i >= p->n)
        return;
    for (i64 k = 0; k < p->count; k++)
        sum += IN(double, 0)[k * p->n + i];
    OUT(float, 1)[i] = TO_FLOAT(sum);
}

/* Sums in row-major order. places: x, out */
#define REDUCE(name, type, wide, initial, next)                                                                        \
    KERNEL_APART(name, 2)                                                                                              \
    {                                                                                                                  \
        LANE(ls_gpu_reduce, p);                                                                                        \
        i64 i = ITEM(0);                                                                                               \
        if (i >= p->kept.n)                                                                                            \
            return;                                                                                                    \
        GLOBAL const type *from = IN(type, 0) + walk_at(&p->kept, 0, i);                                               \
        wide total = initial;                                                                                          \
        for (i64 k = 0; k < p->gone.n; k++) {                                                                          \
            type x = from[walk_at(&p->gone, 0, k)];                                                                    \
            total = next;                                                                                              \
        }                                                                                                              \
        OUT(type, 1)[i] = (type)total;                                                                                 \
    }
REDUCE(sum_f32, float, double, 0, total + x)
REDUCE(sum_f64, double, double, 0, total + x)
REDUCE(sum_i32, i32, u64, 0, total + (u64)x)
REDUCE(sum_i64, i64, u64, 0, total + (u64)x)
REDUCE(max_f32, float, float, -(float)ENDLESS, LARGER(total, x))
REDUCE(min_f32, float, float, (float)ENDLESS, SMALLER(total, x))

/* Argmax of x [outer, n, inner]; out i64 [outer, inner]. places: x, out */
KERNEL_APART(argmax_f32, 2)
{
    LANE(ls_gpu_rows, p);
    i64 row = ITEM(0), best = 0;
    if (row >= p->outer * p->inner)
        return;
    GLOBAL const float *x = IN(float, 0) + row / p->inner * p->n * p->inner + row % p->inner;
    for (i64 i = 1; i < p->n; i++)
        if (BEFORE(x[i * p->inner], x[best * p->inner]))
            best = i;
    OUT(i64, 1)[row] = best;
}

/* ---- Joins of lanes ---- */

/* places: left, which is overwritten by the result; right */
#define JOIN(name, type, expression)                                                                                   \
    KERNEL(name, 2)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_flat, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i < p->n) {                                                                                                \
            type a = OUT(type, 0)[i], b = IN(type, 1)[i];                                                              \
            OUT(type, 0)[i] = expression;                                                                              \
        }                                                                                                              \
    }
#define LARGEST(a, b)  (IS_NAN(a) ? a : IS_NAN(b) ? b : b > a ? b : a)
#define SMALLEST(a, b) (IS_NAN(a) ? a : IS_NAN(b) ? b : b < a ? b : a)
JOIN(join_sum_f32, float, a + b)
JOIN(join_sum_f64, double, a + b)
JOIN(join_sum_i32, u32, a + b)
JOIN(join_sum_i64, u64, a + b)
JOIN(join_max_f32, float, LARGEST(a, b))
JOIN(join_max_f64, double, LARGEST(a, b))
JOIN(join_max_i32, i32, b > a ? b : a)
JOIN(join_max_i64, i64, b > a ? b : a)
JOIN(join_min_f32, float, SMALLEST(a, b))
JOIN(join_min_f64, double, SMALLEST(a, b))
JOIN(join_min_i32, i32, b < a ? b : a)
JOIN(join_min_i64, i64, b < a ? b : a)

/* Joins the partials of several lanes at once. Results that wait for lanes on their right are on a
 * stack. An item has a vector of sums, or one number. place: memory of all lanes */
#define JOIN_LANES(name, type, width, take, put, expression)                                                           \
    KERNEL_APART(name, 1)                                                                                              \
    {                                                                                                                  \
        GLOBAL const ls_gpu_tree *first =                                                                              \
            (GLOBAL const ls_gpu_tree *)((GLOBAL const i64 *)(table + table_at) + LS_GPU_PLACES);                      \
        LANE_AND(ls_gpu_tree, p, 2 * first->lanes); /* every entry has the same number of lanes */                     \
        i64 i = ITEM(0) * (width), count = least(p->n - i, (width));                                                   \
        if (i >= p->n)                                                                                                 \
            return;                                                                                                    \
        GLOBAL const i64 *lane = (GLOBAL const i64 *)(p + 1);                                                          \
        type stack[LS_GPU_LEVELS];                                                                                     \
        int depth_ = 0;                                                                                                \
        for (i64 k = 0; k < p->lanes; k++) {                                                                           \
            type b = take(lane[2 * k], i, count);                                                                      \
            for (i64 merges = lane[2 * k + 1]; merges > 0; merges--) {                                                 \
                type a = stack[--depth_];                                                                              \
                b = expression;                                                                                        \
            }                                                                                                          \
            stack[depth_++] = b;                                                                                       \
        }                                                                                                              \
        put(stack[0], p->to, i, count);                                                                                \
    }
#define TAKE_VEC(at, i, count)    load((GLOBAL const float *)(memory0 + at) + i, count)
#define PUT_VEC(x, at, i, count)  store(x, (GLOBAL float *)(memory0 + at) + i, count)
#define TAKE_F32(at, i, count)    ((GLOBAL const float *)(memory0 + at))[i]
#define PUT_F32(x, at, i, count)  ((GLOBAL float *)(memory0 + at))[i] = x
#define TAKE_F64(at, i, count)    ((GLOBAL const double *)(memory0 + at))[i]
#define PUT_F64(x, at, i, count)  ((GLOBAL double *)(memory0 + at))[i] = x
#define TAKE_I32(at, i, count)    ((GLOBAL const i32 *)(memory0 + at))[i]
#define PUT_I32(x, at, i, count)  ((GLOBAL i32 *)(memory0 + at))[i] = x
#define TAKE_I64(at, i, count)    ((GLOBAL const i64 *)(memory0 + at))[i]
#define PUT_I64(x, at, i, count)  ((GLOBAL i64 *)(memory0 + at))[i] = x
JOIN_LANES(join_lanes_sum_f32, vec, LS_VECTOR, TAKE_VEC, PUT_VEC, a + b)
JOIN_LANES(join_lanes_sum_f64, double, 1, TAKE_F64, PUT_F64, a + b)
JOIN_LANES(join_lanes_sum_i32, i32, 1, TAKE_I32, PUT_I32, (i32)((u32)a + (u32)b))
JOIN_LANES(join_lanes_sum_i64, i64, 1, TAKE_I64, PUT_I64, (i64)((u64)a + (u64)b))
JOIN_LANES(join_lanes_max_f32, float, 1, TAKE_F32, PUT_F32, LARGEST(a, b))
JOIN_LANES(join_lanes_max_f64, double, 1, TAKE_F64, PUT_F64, LARGEST(a, b))
JOIN_LANES(join_lanes_max_i32, i32, 1, TAKE_I32, PUT_I32, b > a ? b : a)
JOIN_LANES(join_lanes_max_i64, i64, 1, TAKE_I64, PUT_I64, b > a ? b : a)
JOIN_LANES(join_lanes_min_f32, float, 1, TAKE_F32, PUT_F32, SMALLEST(a, b))
JOIN_LANES(join_lanes_min_f64, double, 1, TAKE_F64, PUT_F64, SMALLEST(a, b))
JOIN_LANES(join_lanes_min_i32, i32, 1, TAKE_I32, PUT_I32, b < a ? b : a)
JOIN_LANES(join_lanes_min_i64, i64, 1, TAKE_I64, PUT_I64, b < a ? b : a)

/* Each of `count` items checks its share of n numbers and writes a byte: 1 if one is not finite.
 * The share of an item with vectors is consecutive, otherwise items take turns. places: x, bytes */
KERNEL_APART(finite_f32, 2)
{
    LANE(ls_gpu_add, p);
    i64 item = ITEM(0), n = p->n, all = p->count;
    if (item >= all)
        return;
    GLOBAL const float *x = IN(float, 0);
    vec most_ = (vec)0x1.fffffep127f;
    mask found = (mask)0;
#if LS_VECTOR == 1
    for (i64 i = item; i < n; i += all)
        found = found | !(fabs(x[i]) <= most_);
#else
    i64 share = ((n + all - 1) / all + LS_VECTOR - 1) / LS_VECTOR * LS_VECTOR, end = least(n, (item + 1) * share);
    for (i64 i = item * share; i < end; i += LS_VECTOR)
        found = found | !(fabs(load(x + i, end - i)) <= most_);
#endif
    OUT(u8, 1)[item] = ANY(found) ? 1 : 0;
}

KERNEL_APART(finite_f64, 2)
{
    LANE(ls_gpu_add, p);
    i64 item = ITEM(0);
    if (item >= p->count)
        return;
    u8 found = 0;
    for (i64 i = item; i < p->n; i += p->count)
        found |= !(fabs(IN(double, 0)[i]) <= 0x1.fffffffffffffp1023);
    OUT(u8, 1)[item] = found;
}
