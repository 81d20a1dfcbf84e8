/* Elementwise ops: arithmetic, functions, comparisons, selection. Binary kernels have three forms:
 * for operands with the layout of the output, for broadcast operands that two axes describe, and
 * for all others. */

#define UNARY(name, type, expression)                                                                                  \
    KERNEL(name, 2)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_flat, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i < p->n) {                                                                                                \
            type x = IN(type, 0)[i];                                                                                   \
            OUT(type, 1)[i] = (type)(expression);                                                                      \
        }                                                                                                              \
    }

#define BINARY(name, type, to, expression)                                                                             \
    KERNEL(name, 3)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_flat, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i < p->n) {                                                                                                \
            type a = IN(type, 0)[i], b = IN(type, 1)[i];                                                               \
            OUT(to, 2)[i] = (to)(expression);                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    KERNEL(name##_walk, 3)                                                                                             \
    {                                                                                                                  \
        LANE(ls_gpu_walk, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i < p->n) {                                                                                                \
            type a = IN(type, 0)[walk_at(p, 0, i)], b = IN(type, 1)[walk_at(p, 1, i)];                                 \
            OUT(to, 2)[i] = (to)(expression);                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    KERNEL(name##_rows, 3)                                                                                             \
    {                                                                                                                  \
        LANE(ls_gpu_walk, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i < p->n) {                                                                                                \
            type a = IN(type, 0)[rows_at(p, 0, i)], b = IN(type, 1)[rows_at(p, 1, i)];                                 \
            OUT(to, 2)[i] = (to)(expression);                                                                          \
        }                                                                                                              \
    }

/* wide: an unsigned type for integers, so that they wrap */
#define NUMBERS(suffix, type, wide)                                                                                    \
    BINARY(add_##suffix, type, type, (wide)a + (wide)b)                                                                \
    BINARY(sub_##suffix, type, type, (wide)a - (wide)b)                                                                \
    BINARY(mul_##suffix, type, type, (wide)a *(wide)b)                                                                 \
    BINARY(maximum_##suffix, type, type, LARGER(a, b))                                                                 \
    BINARY(minimum_##suffix, type, type, SMALLER(a, b))                                                                \
    BINARY(equal_##suffix, type, u8, a == b)                                                                           \
    BINARY(not_equal_##suffix, type, u8, a != b)                                                                       \
    BINARY(less_##suffix, type, u8, a < b)                                                                             \
    BINARY(less_equal_##suffix, type, u8, a <= b)                                                                      \
    UNARY(sign_##suffix, type, x > 0 ? 1 : x < 0 ? -1 : x)                                                             \
    UNARY(square_##suffix, type, (wide)x *(wide)x)

NUMBERS(f32, float, float)
NUMBERS(f64, double, double)
NUMBERS(i32, i32, u32)
NUMBERS(i64, i64, u64)
UNARY(neg_f32, float, -x)
UNARY(neg_f64, double, -x)
UNARY(neg_i32, i32, 0 - (u32)x)
UNARY(neg_i64, i64, 0 - (u64)x)
UNARY(abs_f32, float, fabs(x))
UNARY(abs_f64, double, fabs(x))
UNARY(abs_i32, i32, x < 0 ? 0 - (u32)x : (u32)x)
UNARY(abs_i64, i64, x < 0 ? 0 - (u64)x : (u64)x)

/* Rows whose columns are adjacent in both operands, such as the addition of a bias: an item has a
 * vector of columns. */
#define COLUMNS(name, expression)                                                                                      \
    KERNEL(name, 3)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_walk, p);                                                                                          \
        if (p->n == 0)                                                                                                 \
            return;                                                                                                    \
        u32 item = (u32)ITEM(0), pieces = (u32)((p->size[1] + LS_VECTOR - 1) / LS_VECTOR);                             \
        i64 row = item / pieces, column = (i64)(item % pieces) * LS_VECTOR;                                            \
        i64 count = least(p->size[1] - column, LS_VECTOR);                                                             \
        if (row >= p->size[0])                                                                                         \
            return;                                                                                                    \
        vec a = load(IN(float, 0) + p->start[0] + row * p->stride[0][0] + column, count);                              \
        vec b = load(IN(float, 1) + p->start[1] + row * p->stride[1][0] + column, count);                              \
        store(expression, OUT(float, 2) + row * p->size[1] + column, count);                                           \
    }
/* An array and a single number. */
#define BESIDE_ONE(name, expression)                                                                                   \
    KERNEL(name, 3)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_flat, p);                                                                                          \
        float b = p->n > 0 ? IN(float, 1)[0] : 0;                                                                      \
        EACH_OF_SOME(i, p->n)                                                                                          \
        {                                                                                                              \
            float a = IN(float, 0)[i];                                                                                 \
            OUT(float, 2)[i] = expression;                                                                             \
        }                                                                                                              \
    }
BESIDE_ONE(add_f32_one, a + b)
BESIDE_ONE(sub_f32_one, a - b)
BESIDE_ONE(mul_f32_one, a *b)
BESIDE_ONE(div_f32_one, DIVIDE(a, b))

COLUMNS(add_f32_columns, a + b)
COLUMNS(sub_f32_columns, a - b)
COLUMNS(mul_f32_columns, a *b)

BINARY(div_f32, float, float, DIVIDE(a, b))
BINARY(div_f64, double, double, a / b)

#define ONE_KERNEL(name) UNARY(name##_f32, float, one_##name(x, p->a, p->b))
ALL_ONE(ONE_KERNEL)

/* The most frequent ops, with vectors: n adjacent elements, one vector per item. */
#define UNARY_VECTORS(name, expression)                                                                                \
    KERNEL(name, 2)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_flat, p);                                                                                          \
        i64 i = ITEM(0) * LS_VECTOR, count = p->n - i;                                                                 \
        if (count > 0) {                                                                                               \
            vec x = load(IN(float, 0) + i, count);                                                                     \
            store(expression, OUT(float, 1) + i, count);                                                               \
        }                                                                                                              \
    }
#define BINARY_VECTORS(name, expression)                                                                               \
    KERNEL(name, 3)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_flat, p);                                                                                          \
        i64 i = ITEM(0) * LS_VECTOR, count = p->n - i;                                                                 \
        if (count > 0) {                                                                                               \
            vec a = load(IN(float, 0) + i, count), b = load(IN(float, 1) + i, count);                                  \
            store(expression, OUT(float, 2) + i, count);                                                               \
        }                                                                                                              \
    }
UNARY_VECTORS(relu_f32_vectors, CHOOSE(x <= (vec)0.0f, (vec)0.0f, x))
BINARY_VECTORS(add_f32_vectors, a + b)
BINARY_VECTORS(sub_f32_vectors, a - b)
BINARY_VECTORS(mul_f32_vectors, a *b)
/* a: dy, b: x */
BINARY_VECTORS(relu_grad_f32_vectors,
               CHOOSE(b > (vec)0.0f, a, (float)p->a == 0 ? (vec)0.0f : (vec)(float)p->a *a))
BINARY_VECTORS(capped_relu_grad_f32_vectors, CHOOSE((b > (vec)0.0f) & (b <= (vec)(float)p->a), a, (vec)0.0f))

/* places: dy, x, dx */
KERNEL(silu_grad_f32, 3)
{
    LANE(ls_gpu_flat, p);
    i64 i = ITEM(0);
    if (i < p->n)
        OUT(float, 2)[i] = silu_grad_of(IN(float, 0)[i], IN(float, 1)[i]);
}


/* places: condition, a, b, out */
#define SELECT(name, type)                                                                                             \
    KERNEL(name, 4)                                                                                                    \
    {                                                                                                                  \
        LANE(ls_gpu_walk, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i < p->n)                                                                                                  \
            OUT(type, 3)[i] = IN(u8, 0)[walk_at(p, 0, i)] != 0 ? IN(type, 1)[walk_at(p, 1, i)]                         \
                                                                : IN(type, 2)[walk_at(p, 2, i)];                       \
    }
SELECT(select_1, u8)
SELECT(select_4, u32)
SELECT(select_8, u64)
