/* Attention: kernels over pairs of a query and a key, over queries, and over elements of results.
 * Sums leave out keys that a query does not see. A head of a sample is axis 1 of the first kernels;
 * scores and weights are [sample, head, query, key]. A lane without samples has zeros for all
 * numbers. */
FUNCTION bool sees(GLOBAL const ls_gpu_attention *p, GLOBAL const u8 *mask, i64 sample, i64 head, i64 query, i64 key)
{
    if (p->causal && key > query)
        return false;
    return !p->masked || mask[sample * p->mask_sample + head * p->mask_head + query * p->mask_query + key] != 0;
}

/* Offset of a row of operand 0 (q), 1 (k) or 2 (v), for a head of q. */
FUNCTION i64 row_of(GLOBAL const ls_gpu_attention *p, int operand, i64 sample, i64 head, i64 row)
{
    i64 column = operand == 0   ? head * p->width
                 : operand == 1 ? head / p->shared * p->width
                                : head / p->shared * p->value_width;
    return sample * p->sample[operand] + p->at[operand] + row * p->row[operand] + column;
}

FUNCTION float dropped_number(GLOBAL const ls_gpu_attention *p, float rate, i64 sample, i64 element, float x)
{
    philox_block words = random_block(&p->random, p->random.first + sample, element / 4);
    u32 word = words.word[element % 4];
    return UNIT(word) >= rate ? x * DIVIDE(1.0f, 1.0f - rate) : 0;
}

/* places: q, k, mask, scores */
KERNEL_APART(attention_scores, 4)
{
    LANE(ls_gpu_attention, p);
    i64 pair = ITEM(0), at = ITEM(1);
    if (pair >= p->queries * p->keys || at >= p->samples * p->heads)
        return;
    i64 query = pair / p->keys, key = pair % p->keys, sample = at / p->heads, head = at % p->heads;
    if (!sees(p, IN(u8, 2), sample, head, query, key))
        return;
    GLOBAL const float *q = IN(float, 0) + row_of(p, 0, sample, head, query);
    GLOBAL const float *k = IN(float, 1) + row_of(p, 1, sample, head, key);
    float sum = 0;
    for (i64 i = 0; i < p->width; i++)
        sum = FMA(q[i], k[i], sum);
    OUT(float, 3)[at * p->queries * p->keys + pair] = sum * (float)p->scale;
}

/* Makes weights of a query's scores. */
FUNCTION void weigh(GLOBAL const ls_gpu_attention *p, GLOBAL const u8 *mask, GLOBAL float *x, i64 sample, i64 head,
                    i64 query)
{
    double largest = -ENDLESS, part[16];
    for (int k = 0; k < 16; k++)
        part[k] = 0;
    for (i64 key = 0; key < p->keys; key++)
        if (sees(p, mask, sample, head, query, key))
            largest = x[key] > largest ? x[key] : largest;
    for (i64 key = 0; key < p->keys; key++)
        if (sees(p, mask, sample, head, query, key))
            part[key & 15] += wide_exp(x[key] - largest);
    double sum = interleaved_total(part);
    for (i64 key = 0; key < p->keys; key++)
        if (sees(p, mask, sample, head, query, key))
            x[key] = TO_FLOAT(wide_exp(x[key] - largest) / sum);
}

/* places: mask, scores and weights */
KERNEL_APART(attention_weights, 2)
{
    LANE(ls_gpu_attention, p);
    i64 query = ITEM(0), at = ITEM(1);
    if (query >= p->queries || at >= p->samples * p->heads)
        return;
    weigh(p, IN(u8, 0), OUT(float, 1) + (at * p->queries + query) * p->keys, at / p->heads, at % p->heads, query);
}

/* places: mask, rate, scores and weights, weights after dropout */
KERNEL_APART(attention_weights_dropped, 4)
{
    LANE(ls_gpu_attention, p);
    i64 query = ITEM(0), at = ITEM(1);
    if (query >= p->queries || at >= p->samples * p->heads)
        return;
    i64 sample = at / p->heads, head = at % p->heads;
    i64 row = (at * p->queries + query) * p->keys, element = (head * p->queries + query) * p->keys;
    float rate = IN(float, 1)[0];
    weigh(p, IN(u8, 0), OUT(float, 2) + row, sample, head, query);
    for (i64 key = 0; key < p->keys; key++)
        if (sees(p, IN(u8, 0), sample, head, query, key))
            OUT(float, 3)[row + key] = dropped_number(p, rate, sample, element + key, OUT(float, 2)[row + key]);
}

/* An item has a number of the output. places: v, mask, weights, out */
KERNEL_APART(attention_output, 4)
{
    LANE(ls_gpu_attention, p);
    i64 each = p->heads * p->value_width, sample = ITEM(1);
    if (ITEM(0) >= p->queries * each || sample >= p->samples)
        return;
    i64 query = ITEM(0) / each, head = ITEM(0) % each / p->value_width;
    GLOBAL const float *v = IN(float, 0) + row_of(p, 2, sample, head, 0) + ITEM(0) % p->value_width;
    GLOBAL const float *weights = IN(float, 2) + ((sample * p->heads + head) * p->queries + query) * p->keys;
    float sum = 0;
    for (i64 key = 0; key < p->keys; key++)
        if (sees(p, IN(u8, 1), sample, head, query, key))
            sum = FMA(weights[key], v[key * p->row[2]], sum);
    OUT(float, 3)[sample * p->queries * each + ITEM(0)] = sum + 0.0f;
}

/* The gradient of weights, after dropout. places: dy, v, mask, rate, out */
KERNEL_APART(attention_weights_grad, 5)
{
    LANE(ls_gpu_attention, p);
    i64 pair = ITEM(0), at = ITEM(1);
    if (pair >= p->queries * p->keys || at >= p->samples * p->heads)
        return;
    i64 query = pair / p->keys, key = pair % p->keys, sample = at / p->heads, head = at % p->heads;
    if (!sees(p, IN(u8, 2), sample, head, query, key))
        return;
    GLOBAL const float *dy = IN(float, 0) + ((sample * p->queries + query) * p->heads + head) * p->value_width;
    GLOBAL const float *v = IN(float, 1) + row_of(p, 2, sample, head, key);
    float sum = 0;
    for (i64 i = 0; i < p->value_width; i++)
        sum = FMA(dy[i], v[i], sum);
    if (p->drops)
        sum = dropped_number(p, IN(float, 3)[0], sample, (head * p->queries + query) * p->keys + key, sum);
    OUT(float, 4)[at * p->queries * p->keys + pair] = sum;
}

/* places: mask, weights, gradient of weights and of scores */
KERNEL_APART(attention_scores_grad, 3)
{
    LANE(ls_gpu_attention, p);
    i64 query = ITEM(0), at = ITEM(1);
    if (query >= p->queries || at >= p->samples * p->heads)
        return;
    i64 sample = at / p->heads, head = at % p->heads;
    GLOBAL const float *weights = IN(float, 1) + (at * p->queries + query) * p->keys;
    GLOBAL float *ds = OUT(float, 2) + (at * p->queries + query) * p->keys;
    double sum = 0, part[16];
    for (i64 first = 0; first < p->keys; first += 4096) {
        for (int k = 0; k < 16; k++)
            part[k] = 0;
        for (i64 key = first; key < least(p->keys, first + 4096); key++)
            if (sees(p, IN(u8, 0), sample, head, query, key))
                part[key & 15] += weights[key] * ds[key];
        sum += interleaved_total(part);
    }
    float delta = TO_FLOAT(sum);
    for (i64 key = 0; key < p->keys; key++)
        if (sees(p, IN(u8, 0), sample, head, query, key))
            ds[key] = weights[key] * (ds[key] - delta) * (float)p->scale;
}

/* An item has a number of q's gradient. places: k, mask, gradient of scores, out */
KERNEL_APART(attention_queries_grad, 4)
{
    LANE(ls_gpu_attention, p);
    i64 each = p->heads * p->width, sample = ITEM(1);
    if (ITEM(0) >= p->queries * each || sample >= p->samples)
        return;
    i64 query = ITEM(0) / each, column = ITEM(0) % each, head = column / p->width;
    GLOBAL const float *k = IN(float, 0) + row_of(p, 1, sample, head, 0) + column % p->width;
    GLOBAL const float *ds = IN(float, 2) + ((sample * p->heads + head) * p->queries + query) * p->keys;
    float sum = 0;
    for (i64 key = 0; key < p->keys; key++)
        if (sees(p, IN(u8, 1), sample, head, query, key))
            sum = FMA(ds[key], k[key * p->row[1]], sum);
    OUT(float, 3)
    [sample * p->gradient_sample + p->gradient_at[0] + query * p->gradient_row[0] + column] = sum + 0.0f;
}

/* An item has a number of k's gradient, or of v's: the sum over queries, and over heads that share
 * it, of q times the gradient of scores, or of dy times the weights. places: q or dy, mask,
 * gradient of scores or weights, out */
KERNEL_APART(attention_keys_grad, 4)
{
    LANE(ls_gpu_attention, p);
    i64 sample = ITEM(1), width = p->of_values ? p->value_width : p->width, operand = p->of_values ? 2 : 1;
    if (sample >= p->samples || ITEM(0) >= p->keys * p->heads / p->shared * width)
        return;
    i64 each = p->heads / p->shared * width, key = ITEM(0) / each, column = ITEM(0) % each;
    float sum = 0;
    for (i64 i = 0; i < p->shared; i++) {
        i64 head = column / width * p->shared + i, step = p->of_values ? p->heads * width : p->row[0];
        i64 first = p->of_values ? sample * p->queries * step + head * width : row_of(p, 0, sample, head, 0);
        GLOBAL const float *x = IN(float, 0) + first + column % width;
        GLOBAL const float *weights = IN(float, 2) + (sample * p->heads + head) * p->queries * p->keys + key;
        for (i64 query = 0; query < p->queries; query++)
            if (sees(p, IN(u8, 1), sample, head, query, key))
                sum = FMA(weights[query * p->keys], x[query * step], sum);
    }
    OUT(float, 3)
    [sample * p->gradient_sample + p->gradient_at[operand] + key * p->gradient_row[operand] + column] = sum + 0.0f;
}
