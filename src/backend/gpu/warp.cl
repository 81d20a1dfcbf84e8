/* Warps: images whose pixels are moved by an affine map, by the functions of
 * backend/ref/warp_real.c. */
typedef struct place {
    i64 first;
    double part;
} place;

FUNCTION double reflected(double at, double n)
{
    if (at < 0) {
        at += 2 * n * floor(-at / (2 * n));
        return at < -n ? at + 2 * n : -at - 1;
    }
    at -= 2 * n * floor(at / (2 * n));
    return at >= n ? 2 * n - at - 1 : at;
}

FUNCTION double wrapped(double at, double n)
{
    return at < 0 ? at + n * (floor(-at / (n - 1)) + 1) : at - n * floor(at / (n - 1));
}

FUNCTION place place_of(GLOBAL const ls_gpu_warped *v, double at, i64 n)
{
    double last = (double)(n - 1);
    if (v->fill_mode != LS_GPU_CONSTANT && (at < 0 || at > last)) {
        if (v->fill_mode != LS_GPU_NEAREST)
            at = n == 1 ? 0 : v->fill_mode == LS_GPU_REFLECT ? reflected(at, (double)n) : wrapped(at, (double)n);
        at = at < 0 ? 0 : at > last ? last : at;
    }
    double first = floor(at);
    place p;
    p.part = at - first;
    if (v->nearest) {
        first += p.part > 0.5 || (p.part == 0.5 && at > 0) ? 1 : 0;
        p.part = 0;
    }
    p.first = (i64)first;
    return p;
}

FUNCTION double pixel(GLOBAL const ls_gpu_warped *v, GLOBAL const float *image, i64 y, i64 x)
{
    return y >= 0 && y < v->h && x >= 0 && x < v->w ? (double)image[(y * v->w + x) * v->c] : v->fill_value;
}

FUNCTION double row(GLOBAL const ls_gpu_warped *v, GLOBAL const float *image, i64 y, i64 x, double part)
{
    double sum = (1 - part) * pixel(v, image, y, x);
    if (part > 0)
        sum += part * pixel(v, image, y, x + 1);
    return sum;
}

/* Finds where pixel (i, j) of the output is taken from; false: from outside of every image. */
FUNCTION bool places_of(GLOBAL const ls_gpu_warped *v, GLOBAL const float *m, i64 i, i64 j, place *y, place *x)
{
    double at_x = ((double)m[0] * (double)j + (double)m[1] * (double)i) + (double)m[2];
    double at_y = ((double)m[3] * (double)j + (double)m[4] * (double)i) + (double)m[5];
    bool found = fabs(at_x) < 0x1p30 && fabs(at_y) < 0x1p30;
    *x = place_of(v, found ? at_x : 0, v->w);
    *y = place_of(v, found ? at_y : 0, v->h);
    return found;
}

/* An item has a pixel of the output. places: x, matrix, y */
KERNEL_APART(warp, 3)
{
    LANE(ls_gpu_warped, v);
    i64 sample = ITEM(1);
    if (sample >= v->n || ITEM(0) >= v->yh * v->yw)
        return;
    i64 i = (u32)ITEM(0) / (u32)v->yw, j = (u32)ITEM(0) % (u32)v->yw;
    GLOBAL const float *image = IN(float, 0) + sample * v->h * v->w * v->c, *m = IN(float, 1) + sample * 6;
    GLOBAL float *out = OUT(float, 2) + ((sample * v->yh + i) * v->yw + j) * v->c;
    place x, y;
    bool found = places_of(v, m, i, j, &y, &x);
    for (i64 c = 0; c < v->c; c++) {
        double sum = found ? (1 - y.part) * row(v, image + c, y.first, x.first, x.part) : v->fill_value;
        if (found && y.part > 0)
            sum += y.part * row(v, image + c, y.first + 1, x.first, x.part);
        out[c] = TO_FLOAT(sum);
    }
}

FUNCTION void add_pixel(GLOBAL const ls_gpu_warped *v, GLOBAL float *dx, i64 y, i64 x, double weight, float dy)
{
    if (weight > 0 && y >= 0 && y < v->h && x >= 0 && x < v->w)
        dx[(y * v->w + x) * v->c] += TO_FLOAT(weight * (double)dy);
}

/* An item has a channel of a sample: pixels of the output are added one after the other, and any of
 * them may lie anywhere. Gradients of warps are those of layers before them, which have many
 * channels. places: dy, matrix, dx */
KERNEL_APART(warp_grad, 3)
{
    LANE(ls_gpu_warped, v);
    i64 c = ITEM(0), sample = ITEM(1);
    if (sample >= v->n || c >= v->c)
        return;
    GLOBAL const float *dy = IN(float, 0) + sample * v->yh * v->yw * v->c + c, *m = IN(float, 1) + sample * 6;
    GLOBAL float *dx = OUT(float, 2) + sample * v->h * v->w * v->c + c;
    for (i64 at = 0; at < v->h * v->w; at++)
        dx[at * v->c] = 0;
    for (i64 i = 0; i < v->yh; i++)
        for (i64 j = 0; j < v->yw; j++, dy += v->c) {
            place x, y;
            if (!places_of(v, m, i, j, &y, &x))
                continue;
            add_pixel(v, dx, y.first, x.first, (1 - y.part) * (1 - x.part), *dy);
            add_pixel(v, dx, y.first, x.first + 1, (1 - y.part) * x.part, *dy);
            add_pixel(v, dx, y.first + 1, x.first, y.part * (1 - x.part), *dy);
            add_pixel(v, dx, y.first + 1, x.first + 1, y.part * x.part, *dy);
        }
}
