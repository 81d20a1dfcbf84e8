/* Moves elements by their width, without computing; fills; converts types. */

/* Copies element i of the walk from array 1 to array 0. places: out, in */
#define COPY(name, type)                                                                                               \
    KERNEL(name, 2)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_walk, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i < p->n)                                                                                                  \
            OUT(type, 0)[walk_at(p, 0, i)] = IN(type, 1)[walk_at(p, 1, i)];                                            \
    }                                                                                                                  \
    KERNEL(name##_rows, 2)                                                                                             \
    {                                                                                                                  \
        LANE(ls_gpu_walk, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i < p->n)                                                                                                  \
            OUT(type, 0)[rows_at(p, 0, i)] = IN(type, 1)[rows_at(p, 1, i)];                                            \
    }
COPY(copy_1, u8)
COPY(copy_4, u32)
COPY(copy_8, u64)

/* Swaps the last two axes of [matrices, rows, columns]: outer, n, inner. An item has a square of
 * LS_VECTOR rows. places: out, in */
KERNEL_APART(swap_4, 2)
{
    LANE(ls_gpu_rows, p);
    u32 pieces = (u32)((p->n + LS_VECTOR - 1) / LS_VECTOR), item = (u32)ITEM(0);
    if (p->n == 0)
        return;
    i64 row = (i64)(item % pieces) * LS_VECTOR, column = (i64)(item / pieces) * LS_VECTOR, matrix = ITEM(1);
    if (column >= p->inner || matrix >= p->outer)
        return;
    i64 rows = least(p->n - row, LS_VECTOR), columns = least(p->inner - column, LS_VECTOR);
    GLOBAL const u32 *from = IN(u32, 1) + (matrix * p->n + row) * p->inner + column;
    GLOBAL u32 *to = OUT(u32, 0) + (matrix * p->inner + column) * p->n + row;
    for (i64 c = 0; c < columns; c++)
        for (i64 r = 0; r < rows; r++)
            to[c * p->n + r] = from[r * p->inner + c];
}

/* Copies n bytes, 64 per item. Parts of one memory are lanes. places: out, in */
KERNEL_APART(scatter, 2)
{
    LANE(ls_gpu_flat, p);
    i64 i = ITEM(0) * 64, end = least(p->n, i + 64);
    if (((offsets[0] | offsets[1] | p->n) & 3) == 0) {
        for (i64 k = i / 4; k < end / 4; k++)
            OUT(u32, 0)[k] = IN(u32, 1)[k];
        return;
    }
    for (; i < end; i++)
        OUT(u8, 0)[i] = IN(u8, 1)[i];
}

#define FILL(name, type)                                                                                               \
    KERNEL(name, 1)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_flat, p);                                                                                          \
        type value = (type)BITS_OF(p->a);                                                                              \
        EACH_OF_SOME(i, p->n)                                                                                          \
            OUT(type, 0)[i] = value;                                                                                   \
    }
FILL(fill_1, u8)
FILL(fill_4, u32)
FILL(fill_8, u64)

FUNCTION i64 index_at(GLOBAL const u8 *at, i64 width, i64 i)
{
    return width == 8 ? ((GLOBAL const i64 *)at)[i] : width == 4 ? ((GLOBAL const i32 *)at)[i] : at[i];
}

/* x [outer, size, inner], indices [n]; out [outer, n, inner]. Skips an index that is out of range,
 * which check_indices reports. places: x, indices, out */
#define GATHER(name, type)                                                                                             \
    KERNEL(name, 3)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_rows, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i >= p->outer * p->n * p->inner)                                                                           \
            return;                                                                                                    \
        i64 row = i / p->inner, index = index_at(IN(u8, 1), p->width, row % p->n);                                     \
        if (index >= 0 && index < p->size)                                                                             \
            OUT(type, 2)[i] = IN(type, 0)[(row / p->n * p->size + index) * p->inner + i % p->inner];                   \
    }
GATHER(gather_1, u8)
GATHER(gather_4, u32)
GATHER(gather_8, u64)

/* Links each of n positions to the next position with the same index, or to n. A position that is
 * not the first with its index stores -1 minus its link. So the gradient below visits only
 * positions that took its row, in order. places: indices, links */
KERNEL_APART(gather_links, 2)
{
    LANE(ls_gpu_rows, p);
    i64 k = ITEM(0);
    if (k >= p->n)
        return;
    i64 index = index_at(IN(u8, 0), p->width, k), before = 0, next = k + 1;
    while (before < k && index_at(IN(u8, 0), p->width, before) != index)
        before++;
    while (next < p->n && index_at(IN(u8, 0), p->width, next) != index)
        next++;
    OUT(i64, 1)[k] = before < k ? -1 - next : next;
}

/* The same for many positions, which are sorted by index, then by position. First, runs of
 * LS_GPU_SORTED are sorted: each entry counts the entries before it in its run. Then each launch
 * merges pairs of runs: an entry's place is its place in its own run plus the number of entries
 * before it in the other. So the result does not depend on the timing of items. An entry is an
 * index and its position. places: indices, sorted entries */
KERNEL_APART(gather_sort, 2)
{
    LANE(ls_gpu_rows, p);
    i64 k = ITEM(0), first = k / LS_GPU_SORTED * LS_GPU_SORTED, end = least(p->n, first + LS_GPU_SORTED), at = first;
    if (k >= p->n)
        return;
    i64 index = index_at(IN(u8, 0), p->width, k);
    for (i64 i = first; i < end; i++) {
        i64 other = index_at(IN(u8, 0), p->width, i);
        at += other < index || (other == index && i < k);
    }
    OUT(i64, 1)[2 * at] = index;
    OUT(i64, 1)[2 * at + 1] = k;
}

/* size: entries per run. places: entries in runs, entries in runs of twice the length */
KERNEL_APART(gather_merge, 2)
{
    LANE(ls_gpu_rows, p);
    i64 i = ITEM(0), length = p->size;
    if (i >= p->n)
        return;
    GLOBAL const i64 *runs = IN(i64, 0);
    i64 own = i / length * length, first = i / (2 * length) * (2 * length), index = runs[2 * i];
    i64 other = own == first ? first + length : first, low = least(p->n, other), high = least(p->n, other + length);
    while (low < high) { /* positions in the first run are smaller than those in the second */
        i64 middle = (low + high) / 2, found = runs[2 * middle];
        if (found < index || (found == index && other < own))
            low = middle + 1;
        else
            high = middle;
    }
    i64 at = first + (i - own) + (low - least(p->n, other));
    OUT(i64, 1)[2 * at] = index;
    OUT(i64, 1)[2 * at + 1] = runs[2 * i + 1];
}

/* places: sorted entries, links (as those of gather_links) */
KERNEL_APART(gather_sorted_links, 2)
{
    LANE(ls_gpu_rows, p);
    i64 i = ITEM(0);
    if (i >= p->n)
        return;
    GLOBAL const i64 *sorted = IN(i64, 0) + 2 * i;
    i64 next = i + 1 < p->n && sorted[2] == sorted[0] ? sorted[3] : p->n;
    OUT(i64, 1)[sorted[1]] = i == 0 || sorted[-2] != sorted[0] ? next : -1 - next;
}

/* Adds dy [outer, n, inner] to rows of out [outer, size, inner], which is all zeros. The item of
 * the first position that took a row adds all of that row. places: dy, indices, links, out */
KERNEL_APART(gather_grad_f32, 4)
{
    LANE(ls_gpu_rows, p);
    i64 i = ITEM(0);
    if (i >= p->outer * p->n * p->inner)
        return;
    i64 row = i / p->inner, outer = row / p->n, first = row % p->n, inner = i % p->inner;
    i64 index = index_at(IN(u8, 1), p->width, first), next = IN(i64, 2)[first];
    if (next < 0 || index < 0 || index >= p->size) /* check_indices reports an index that is out of range */
        return;
    GLOBAL const float *dy = IN(float, 0) + outer * p->n * p->inner + inner;
    float sum = 0;
    for (i64 k = first; k < p->n; k = next) {
        sum += dy[k * p->inner];
        next = IN(i64, 2)[k];
        next = next < 0 ? -1 - next : next;
    }
    OUT(float, 3)[(outer * p->size + index) * p->inner + inner] = sum;
}

/* indices [n], out [n, size]. places: indices, out */
KERNEL(one_hot_f32, 2)
{
    LANE(ls_gpu_rows, p);
    i64 i = ITEM(0);
    if (i < p->n * p->size)
        OUT(float, 1)[i] = index_at(IN(u8, 0), p->width, i / p->size) == i % p->size ? 1 : 0;
}

/* Finds the first of n indices that is not in 0 .. size-1. A single item, so that it is always the
 * first. inner: kind of the fault; outer: step. places: indices, fault */
KERNEL_APART(check_indices, 2)
{
    LANE(ls_gpu_rows, p);
    GLOBAL ls_gpu_fault *fault = OUT(ls_gpu_fault, 1);
    if (ITEM(0) > 0 || fault->kind != LS_GPU_FAULT_NONE)
        return;
    for (i64 i = 0; i < p->n; i++) {
        i64 index = index_at(IN(u8, 0), p->width, i);
        if (index < 0 || index >= p->size) {
            fault->value = index;
            fault->at = i;
            fault->limit = p->size;
            fault->first = p->first;
            fault->step = p->outer;
            fault->kind = p->inner;
            return;
        }
    }
}

/* ---- Types: integers wrap when they become narrower, reals saturate as integers ---- */

/* Truncates toward zero and limits to low..high; NaN becomes 0. */
FUNCTION i64 to_integer(double value, i64 low, i64 high)
{
    if (IS_NAN(value))
        return 0;
    if (value >= 0x1p63)
        return high;
    if (value < -0x1p63)
        return low;
    i64 whole = (i64)value;
    return whole < low ? low : whole > high ? high : whole;
}

#define CAST(from, to, from_type, to_type, expression)                                                                 \
    KERNEL(cast_##from##_##to, 2)                                                                                      \
    {                                                                                                                  \
        LANE(ls_gpu_flat, p);                                                                                          \
        EACH_OF_SOME(i, p->n)                                                                                          \
        {                                                                                                              \
            from_type x = IN(from_type, 0)[i];                                                                         \
            OUT(to_type, 1)[i] = (to_type)(expression);                                                                \
        }                                                                                                              \
    }
#define LOW_64  (-0x7fffffffffffffff - 1)
#define HIGH_64 0x7fffffffffffffff
#define CAST_REAL(from, type)                                                                                          \
    CAST(from, i32, type, i32, to_integer(x, -(i64)0x80000000, 0x7fffffff))                                            \
    CAST(from, i64, type, i64, to_integer(x, LOW_64, HIGH_64))                                                         \
    CAST(from, u8, type, u8, to_integer(x, 0, 255))                                                                    \
    CAST(from, bool, type, u8, x != 0)
#define CAST_INTEGER(from, type)                                                                                       \
    CAST(from, f32, type, float, x)                                                                                    \
    CAST(from, f64, type, double, x)                                                                                   \
    CAST(from, i32, type, i32, x)                                                                                      \
    CAST(from, i64, type, i64, x)                                                                                      \
    CAST(from, u8, type, u8, x)                                                                                        \
    CAST(from, bool, type, u8, x != 0)
CAST_REAL(f32, float)
CAST_REAL(f64, double)
CAST(f32, f64, float, double, x)
CAST(f64, f32, double, float, x)
CAST_INTEGER(i32, i32)
CAST_INTEGER(i64, i64)
CAST_INTEGER(u8, u8)
