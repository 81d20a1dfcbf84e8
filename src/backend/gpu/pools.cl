/* Pooling of images, channels innermost. Padding never is the maximum, and counts in an average
 * only if requested. */
typedef struct box {
    i64 top, bottom, left, right; /* exclusive: bottom, right */
} box;

FUNCTION i64 most(i64 a, i64 b)
{
    return a > b ? a : b;
}

/* Pixels of the image in the window at (y, x). */
FUNCTION box box_seen(GLOBAL const ls_gpu_window *v, i64 y, i64 x)
{
    i64 top = y * v->stride[0] - v->pad[0], left = x * v->stride[1] - v->pad[1];
    box b;
    b.top = most(top, 0);
    b.bottom = least(top + v->kh, v->h);
    b.left = most(left, 0);
    b.right = least(left + v->kw, v->w);
    return b;
}

/* Sizes of an image fit in 31 bits. */
FUNCTION i64 divided(i64 a, i64 b)
{
    return (u32)a / (u32)b;
}

FUNCTION i64 first_seeing(i64 x, i64 pad, i64 window, i64 stride)
{
    i64 ends = x + pad - window;
    return ends < 0 ? 0 : divided(ends, stride) + 1;
}

/* Windows that contain pixel (h, w) of the image. */
FUNCTION box box_seeing(GLOBAL const ls_gpu_window *v, i64 h, i64 w)
{
    box b;
    b.top = first_seeing(h, v->pad[0], v->kh, v->stride[0]);
    b.bottom = least(divided(h + v->pad[0], v->stride[0]) + 1, v->yh);
    b.left = first_seeing(w, v->pad[1], v->kw, v->stride[1]);
    b.right = least(divided(w + v->pad[1], v->stride[1]) + 1, v->yw);
    return b;
}

/* Sets the item's row, column and first channel in images of `height` and `width`; an item has
 * `channels` channels. Returns false if the item has none. */
FUNCTION bool pixel_of(GLOBAL const ls_gpu_window *v, i64 height, i64 width, i64 channels, i64 item, i64 image, i64 *y, i64 *x,
                       i64 *c)
{
    if (image >= v->n)
        return false;
    u32 pieces = (u32)((v->c + channels - 1) / channels), i = (u32)item, pixel = i / pieces;
    *c = (i64)(i % pieces) * channels;
    *y = pixel / (u32)width;
    *x = pixel % (u32)width;
    return *y < height;
}

/* Consecutive columns of a row that an item of a maximum pool computes: from .. *end-1 of
 * `width`. */
FUNCTION bool columns_of(GLOBAL const ls_gpu_window *v, i64 height, i64 width, i64 item, i64 image, i64 *y, i64 *from, i64 *end,
                         i64 *c)
{
    const i64 run = LS_GPU_RUN(LS_VECTOR);
    if (!pixel_of(v, height, (width + run - 1) / run, LS_VECTOR, item, image, y, from, c))
        return false;
    *from *= run;
    *end = least(*from + run, width);
    return true;
}

/* places: x, y */
KERNEL_APART(max_pool2d, 2)
{
    LANE(ls_gpu_window, v);
    i64 y, from, end, c, image = ITEM(1);
    if (!columns_of(v, v->yh, v->yw, ITEM(0), image, &y, &from, &end, &c))
        return;
    i64 count = v->c - c;
    GLOBAL const float *in = IN(float, 0) + image * v->h * v->w * v->c + c;
    for (i64 x = from; x < end; x++) {
        box seen = box_seen(v, y, x);
        vec largest = (vec)(-(float)ENDLESS);
        for (i64 h = seen.top; h < seen.bottom; h++)
            for (i64 w = seen.left; w < seen.right; w++) {
                vec value = load(in + (h * v->w + w) * v->c, count);
                largest = CHOOSE((largest >= value) | (largest != largest), largest, value);
            }
        store(largest, OUT(float, 1) + ((image * v->yh + y) * v->yw + x) * v->c + c, count);
    }
}

/* Returns whether x comes before y in descending order. */
FUNCTION mask before(vec x, vec y)
{
    return (x > y) | ((x != x) & (y == y));
}

/* Sums for each pixel the gradients of the windows in which it is the first maximum, in ascending
 * order. places: x, dy, dx */
KERNEL_APART(max_pool2d_grad, 3)
{
    LANE(ls_gpu_window, v);
    i64 h, w, c, image = ITEM(1);
    if (!pixel_of(v, v->h, v->w, LS_VECTOR, ITEM(0), image, &h, &w, &c))
        return;
    box seeing = box_seeing(v, h, w);
    i64 count = least(v->c - c, LS_VECTOR), own = h * v->w + w;
    GLOBAL const float *in = IN(float, 0) + image * v->h * v->w * v->c + c;
    GLOBAL const float *dy = IN(float, 1) + image * v->yh * v->yw * v->c + c;
    vec x = load(in + own * v->c, count), sum = (vec)0.0f;
    for (i64 y = seeing.top; y < seeing.bottom; y++)
        for (i64 z = seeing.left; z < seeing.right; z++) {
            box seen = box_seen(v, y, z);
            mask first = x == x;
            first = first | !first;
            for (i64 i = seen.top; i < seen.bottom; i++)
                for (i64 j = seen.left; j < seen.right; j++) {
                    vec other = load(in + (i * v->w + j) * v->c, count);
                    i64 at = i * v->w + j;
                    if (at < own)
                        first = first & before(x, other);
                    else if (at > own)
                        first = first & !before(other, x);
                }
            sum = CHOOSE(first, sum + load(dy + (y * v->yw + z) * v->c, count), sum);
        }
    if (v->rectified)
        sum = CHOOSE(x > (vec)0.0f, sum, (vec)0.0f);
    store(sum, OUT(float, 2) + ((image * v->h + h) * v->w + w) * v->c + c, count);
}

/* The same for adjacent windows without overlap or gaps. Pixels after the last window get no
 * gradient. An item finds the first maximum of each of its windows and gives it the whole
 * gradient. */
INLINED void spread(GLOBAL const ls_gpu_window *v, GLOBAL const float *in, GLOBAL float *out, vec dy, bool seen, i64 bottom,
                    i64 right, i64 count)
{
    vec largest = (vec)0.0f;
    mask first = (mask)-1;
    if (seen) {
        largest = load(in, count);
        first = (mask)0;
        for (i64 i = 0; i < bottom; i++)
            for (i64 j = 0; j < right; j++) {
                vec other = load(in + (i * v->w + j) * v->c, count);
                mask found = before(other, largest);
                first = CHOOSE(found, (mask)(int)(i * right + j), first);
                largest = CHOOSE(found, other, largest);
            }
        if (v->rectified) /* other pixels get 0 anyway */
            dy = CHOOSE(largest > (vec)0.0f, dy, (vec)0.0f);
    }
    for (i64 i = 0; i < bottom; i++)
        for (i64 j = 0; j < right; j++)
            store(CHOOSE(first == (mask)(int)(i * right + j), dy, (vec)0.0f), out + (i * v->w + j) * v->c, count);
}

/* places: x, dy, dx */
KERNEL_APART(max_pool2d_grad_apart, 3)
{
    LANE(ls_gpu_window, v);
    i64 y, from, end, c, image = ITEM(1), kh = v->kh, kw = v->kw;
    if (image >= v->n)
        return;
    if (!columns_of(v, (v->h + kh - 1) / kh, (v->w + kw - 1) / kw, ITEM(0), image, &y, &from, &end, &c))
        return;
    i64 count = v->c - c, bottom = least(kh, v->h - y * kh);
    for (i64 z = from; z < end; z++) {
        i64 start = ((image * v->h + y * kh) * v->w + z * kw) * v->c + c;
        bool seen = y < v->yh && z < v->yw;
        vec dy = (vec)0.0f;
        if (seen)
            dy = dy + load(IN(float, 1) + ((image * v->yh + y) * v->yw + z) * v->c + c, count);
        spread(v, IN(float, 0) + start, OUT(float, 2) + start, dy, seen, bottom, least(kw, v->w - z * kw), count);
    }
}

/* Divisor of the window at (y, x). */
FUNCTION double divisor(GLOBAL const ls_gpu_window *v, i64 y, i64 x)
{
    box seen = box_seen(v, y, x);
    if (v->count_padding)
        return (double)(v->kh * v->kw);
    if (seen.bottom <= seen.top || seen.right <= seen.left)
        return 1;
    return (double)((seen.bottom - seen.top) * (seen.right - seen.left));
}

/* places: x, y */
KERNEL_APART(average_pool2d, 2)
{
    LANE(ls_gpu_window, v);
    i64 y, x, c, image = ITEM(1);
    if (!pixel_of(v, v->yh, v->yw, 1, ITEM(0), image, &y, &x, &c))
        return;
    box seen = box_seen(v, y, x);
    GLOBAL const float *in = IN(float, 0) + image * v->h * v->w * v->c + c;
    double sum = 0;
    for (i64 h = seen.top; h < seen.bottom; h++)
        for (i64 w = seen.left; w < seen.right; w++)
            sum += in[(h * v->w + w) * v->c];
    OUT(float, 1)[((image * v->yh + y) * v->yw + x) * v->c + c] = TO_FLOAT(sum / divisor(v, y, x));
}

/* places: dy, dx */
KERNEL_APART(average_pool2d_grad, 2)
{
    LANE(ls_gpu_window, v);
    i64 h, w, c, image = ITEM(1);
    if (!pixel_of(v, v->h, v->w, 1, ITEM(0), image, &h, &w, &c))
        return;
    box seeing = box_seeing(v, h, w);
    GLOBAL const float *dy = IN(float, 0) + image * v->yh * v->yw * v->c + c;
    double sum = 0;
    for (i64 y = seeing.top; y < seeing.bottom; y++)
        for (i64 x = seeing.left; x < seeing.right; x++)
            sum += dy[(y * v->yw + x) * v->c] / divisor(v, y, x);
    OUT(float, 1)[((image * v->h + h) * v->w + w) * v->c + c] = TO_FLOAT(sum);
}
