/* Recurrent cells: a launch computes a step of all sequences, an item a unit of a sample. A launch
 * reads what other units stored in the launch before it: a GRU that resets before its product needs
 * two launches for each step. The chains are those of backend/ref/recurrent_real.c. A lane without
 * samples has zeros for all numbers. */
FUNCTION float activated(i64 gate, float x)
{
    if (gate == LS_GPU_TANH)
        return TO_FLOAT(wide_tanh(x));
    if (gate == LS_GPU_SIGMOID)
        return TO_FLOAT(wide_sigmoid(x));
    if (gate == LS_GPU_RELU)
        return x <= 0 ? 0 : x;
    if (gate == LS_GPU_HARD_SIGMOID) {
        x = DIVIDE(x, 6.0f) + 0.5f;
        return x < 0 ? 0 : x > 1 ? 1 : x;
    }
    return x;
}

/* The derivative where the activation's value is y. */
FUNCTION float slope_at(i64 gate, float y)
{
    if (gate == LS_GPU_TANH)
        return 1 - y * y;
    if (gate == LS_GPU_SIGMOID)
        return y * (1 - y);
    if (gate == LS_GPU_RELU)
        return y > 0 ? 1 : 0;
    if (gate == LS_GPU_HARD_SIGMOID)
        return y > 0 && y < 1 ? (float)(1.0 / 6) : 0;
    return 1;
}

/* ---- Values ---- */

/* Continues `count` chains, of columns that are `units` apart, with the state. */
FUNCTION void multiply(GLOBAL const ls_gpu_recurrent *v, GLOBAL const float *state, GLOBAL const float *weights,
                       int count, float *sum)
{
    for (i64 k = 0; k < v->units; k++)
        for (int g = 0; g < 4; g++)
            if (g < count)
                sum[g] = FMA(state[k], weights[k * v->columns + g * v->units], sum[g]);
}

/* sum: the gates' chains; c: the state's */
FUNCTION void finish_lstm(GLOBAL const ls_gpu_recurrent *v, GLOBAL float *y, const float *sum, float c)
{
    i64 n = v->units;
    float i = activated(v->inner, sum[0]), f = activated(v->inner, sum[1]);
    float g = activated(v->activation, sum[2]), o = activated(v->inner, sum[3]);
    float kept = f * c, added = i * g;
    c = kept + added;
    float a = activated(v->activation, c);
    y[0] = o * a, y[n] = c;
    y[2 * n] = i, y[3 * n] = f, y[4 * n] = g, y[5 * n] = o, y[6 * n] = a;
}

FUNCTION float mixed(float z, float before, float candidate)
{
    float kept = z * before, added = (1 - z) * candidate;
    return kept + added;
}

/* p: the input's part of the gates; h: the state */
FUNCTION void finish_gru(GLOBAL const ls_gpu_recurrent *v, GLOBAL const float *p, GLOBAL float *y, const float *sum,
                         float h)
{
    i64 n = v->units;
    bool after = v->cell == LS_GPU_GRU_RESET_AFTER;
    float z = activated(v->inner, after ? p[0] + sum[0] : sum[0]);
    float r = activated(v->inner, after ? p[n] + sum[1] : sum[1]), reset = r * (after ? sum[2] : h);
    y[n] = z, y[2 * n] = r, y[3 * n] = after ? sum[2] : reset;
    if (after) {
        float g = activated(v->activation, p[2 * n] + reset);
        y[4 * n] = g;
        y[0] = mixed(z, h, g);
    }
}

FUNCTION bool is_masked(GLOBAL const ls_gpu_recurrent *v, GLOBAL const u8 *mask, i64 sample)
{
    return v->masked && mask[sample * v->steps + v->step] == 0;
}

/* places: p, weights, bias, mask, y */
KERNEL_APART(recurrent_step, 5)
{
    LANE(ls_gpu_recurrent, v);
    i64 u = ITEM(0), sample = ITEM(1), n = v->units;
    if (u >= n || sample >= v->samples)
        return;
    GLOBAL const float *p = IN(float, 0) + (sample * v->steps + v->step) * v->columns + u;
    GLOBAL float *y = OUT(float, 4) + (sample * v->steps + v->step) * v->value + u;
    GLOBAL const float *before = OUT(float, 4) + (sample * v->steps + (v->last < 0 ? 0 : v->last)) * v->value;
    bool lstm = v->cell == LS_GPU_LSTM, after = v->cell == LS_GPU_GRU_RESET_AFTER;
    float h = v->last < 0 ? 0 : before[u], c = lstm && v->last >= 0 ? before[n + u] : 0, sum[4];
    if (is_masked(v, IN(u8, 3), sample)) {
        for (i64 part = u; part < v->value; part += n)
            y[part - u] = 0;
        y[0] = h;
        if (lstm)
            y[n] = c;
        return;
    }
    int chains = v->cell == LS_GPU_SIMPLE ? 1 : lstm ? 4 : after ? 3 : 2;
    for (int g = 0; g < 4; g++)
        sum[g] = g >= chains ? 0 : !after ? p[g * n] : v->biased ? IN(float, 2)[g * n + u] : 0;
    if (v->last >= 0)
        multiply(v, before, IN(float, 1) + u, chains, sum);
    if (lstm)
        finish_lstm(v, y, sum, c);
    else if (v->cell == LS_GPU_SIMPLE)
        y[0] = activated(v->activation, sum[0]);
    else
        finish_gru(v, p, y, sum, h);
}

/* The candidate of a GRU that resets before its product. places: p, weights, mask, y */
KERNEL_APART(recurrent_candidate, 4)
{
    LANE(ls_gpu_recurrent, v);
    i64 u = ITEM(0), sample = ITEM(1), n = v->units;
    if (u >= n || sample >= v->samples || is_masked(v, IN(u8, 2), sample))
        return;
    GLOBAL float *y = OUT(float, 3) + (sample * v->steps + v->step) * v->value;
    GLOBAL const float *before = OUT(float, 3) + (sample * v->steps + (v->last < 0 ? 0 : v->last)) * v->value;
    float sum = IN(float, 0)[(sample * v->steps + v->step) * v->columns + 2 * n + u];
    if (v->last >= 0)
        multiply(v, y + 3 * n, IN(float, 1) + 2 * n + u, 1, &sum);
    float g = activated(v->activation, sum);
    y[4 * n + u] = g;
    y[u] = mixed(y[n + u], v->last < 0 ? 0 : before[u], g);
}

/* ---- Gradients. The kernel is transposed: weights[column * units + unit] ---- */

/* Continues a chain with `count` columns of a step's gradient. */
FUNCTION float back_through(GLOBAL const ls_gpu_recurrent *v, GLOBAL const float *d, GLOBAL const float *weights, i64 count,
                            float sum)
{
    for (i64 column = 0; column < count; column++)
        sum = FMA(d[column], weights[column * v->units], sum);
    return sum;
}

/* Returns the gradient of the state that the step computed before this one left: its own part `dh`,
 * and what its gates d give. */
FUNCTION float state_gradient(GLOBAL const ls_gpu_recurrent *v, GLOBAL const float *d, GLOBAL const float *weights,
                              float dh)
{
    i64 n = v->units;
    bool gru = v->cell == LS_GPU_GRU || v->cell == LS_GPU_GRU_RESET_AFTER;
    dh = back_through(v, d, weights, gru ? 2 * n : v->columns, dh);
    return v->cell == LS_GPU_GRU_RESET_AFTER ? back_through(v, d + 3 * n, weights + 2 * n * n, n, dh) : dh;
}

/* Returns the next gradient of c. */
FUNCTION float back_lstm(GLOBAL const ls_gpu_recurrent *v, GLOBAL const float *y, float c, float dh, float dc,
                         GLOBAL float *d)
{
    i64 n = v->units;
    float i = y[2 * n], f = y[3 * n], g = y[4 * n], o = y[5 * n], a = y[6 * n];
    float through = dh * o * slope_at(v->activation, a), all = dc + through;
    d[0] = all * g * slope_at(v->inner, i);
    d[n] = all * c * slope_at(v->inner, f);
    d[2 * n] = all * i * slope_at(v->activation, g);
    d[3 * n] = dh * a * slope_at(v->inner, o);
    return all * f;
}

FUNCTION void back_gru(GLOBAL const ls_gpu_recurrent *v, GLOBAL const float *y, float h, float dh, GLOBAL float *d)
{
    i64 n = v->units;
    float z = y[n], r = y[2 * n], part = y[3 * n], g = y[4 * n];
    float candidate = dh * (1 - z) * slope_at(v->activation, g);
    d[0] = dh * (h - g) * slope_at(v->inner, z);
    d[2 * n] = candidate;
    if (v->cell == LS_GPU_GRU_RESET_AFTER) {
        d[n] = candidate * part * slope_at(v->inner, r);
        d[3 * n] = candidate * r;
    }
}

/* states: gradients of h and of c of every sample, which the next launch continues. places: dy,
 * kernel, y, mask, states, d */
KERNEL_APART(recurrent_back, 6)
{
    LANE(ls_gpu_recurrent, v);
    i64 u = ITEM(0), sample = ITEM(1), n = v->units;
    if (u >= n || sample >= v->samples)
        return;
    GLOBAL float *state = OUT(float, 4) + sample * 2 * n + u;
    GLOBAL float *d = OUT(float, 5) + (sample * v->steps + v->step) * v->gradient + u;
    GLOBAL const float *values = IN(float, 2) + sample * v->steps * v->value + u;
    GLOBAL const float *y = values + v->step * v->value, *before = values + (v->last < 0 ? 0 : v->last) * v->value;
    float dh = v->next < 0 ? 0 : state[0], dc = v->next < 0 ? 0 : state[n], h = v->last < 0 ? 0 : before[0];
    if (v->next >= 0)
        dh = state_gradient(v, OUT(float, 5) + (sample * v->steps + v->next) * v->gradient, IN(float, 1) + u, dh);
    dh = IN(float, 0)[(sample * v->steps + v->step) * n + u] + dh;
    if (is_masked(v, IN(u8, 3), sample)) {
        for (i64 part = 0; part < v->gradient; part += n)
            d[part] = 0;
    } else if (v->cell == LS_GPU_LSTM) {
        dc = back_lstm(v, y, v->last < 0 ? 0 : before[n], dh, dc, d);
        dh = 0;
    } else if (v->cell == LS_GPU_SIMPLE) {
        d[0] = dh * slope_at(v->activation, y[0]);
        dh = 0;
    } else {
        back_gru(v, y, h, dh, d);
        dh = dh * y[n];
    }
    state[0] = dh;
    state[n] = dc;
}

/* The reset of a GRU before its product. places: kernel, y, mask, states, d */
KERNEL_APART(recurrent_back_reset, 5)
{
    LANE(ls_gpu_recurrent, v);
    i64 u = ITEM(0), sample = ITEM(1), n = v->units;
    if (u >= n || sample >= v->samples || is_masked(v, IN(u8, 2), sample))
        return;
    GLOBAL float *state = OUT(float, 3) + sample * 2 * n + u;
    GLOBAL float *d = OUT(float, 4) + (sample * v->steps + v->step) * v->gradient;
    GLOBAL const float *values = IN(float, 1) + sample * v->steps * v->value + u;
    float r = values[v->step * v->value + 2 * n], h = v->last < 0 ? 0 : values[v->last * v->value];
    float reset = back_through(v, d + 2 * n, IN(float, 0) + 2 * n * n + u, n, 0), direct = reset * r;
    d[n + u] = reset * h * slope_at(v->inner, r);
    state[0] = state[0] + direct;
}
