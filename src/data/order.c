/* Nodes that change only the order and number of elements. */
#include <string.h>

#include "base/philox.h"
#include "base/size.h"
#include "data/dataset.h"

/* ---- Repeat ---- */

typedef struct repeat_state {
    int64_t pass;
    bool any; /* this pass has returned an element */
    ls_cursor *inner;
} repeat_state;

static ls_status prepare_repeat(ls_dataset *d)
{
    int64_t times = d->u.order.count;
    ls_dataset_copy_source(d);
    if (times == 0 || d->count == 0)
        d->count = 0;
    else if (times < 0 || d->count == LS_INFINITE)
        d->count = LS_INFINITE;
    else if (d->count >= 0 && !ls_i64_mul(d->count, times, &d->count))
        return ls_fail(LS_ERR_OVERFLOW,
                       "ls_repeat: %lld elements %lld times are too many to count; -1 repeats without end",
                       (long long)d->source->count, (long long)times);
    return LS_OK;
}

/* Every repetition is a separate epoch of the source, also across the epochs of this node. */
static uint64_t epoch_of(const ls_cursor *cursor, int64_t pass)
{
    int64_t times = cursor->dataset->u.order.count;
    return times < 0 ? (cursor->epoch << 32) + (uint64_t)pass : cursor->epoch * (uint64_t)times + (uint64_t)pass;
}

static int64_t index_in_repeat(const ls_dataset *d, int64_t index)
{
    return d->source->count > 0 ? index % d->source->count : index;
}

static ls_status next_repeat(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    repeat_state *state = cursor->state;
    const ls_dataset *d = cursor->dataset;
    while (d->u.order.count < 0 || state->pass < d->u.order.count) {
        if (!state->inner)
            LS_TRY(ls_cursor_create(d->source, epoch_of(cursor, state->pass), cursor->as_rows, &state->inner));
        LS_TRY(ls_cursor_next(state->inner, slot, end));
        if (!*end) {
            state->any = true;
            return LS_OK;
        }
        ls_cursor_destroy(state->inner);
        state->inner = NULL;
        state->pass++;
        if (!state->any)
            break; /* the source is empty */
        state->any = false;
    }
    *end = true;
    return LS_OK;
}

static void end_repeat(ls_cursor *cursor)
{
    ls_cursor_destroy(((repeat_state *)cursor->state)->inner);
}

const ls_dataset_type ls_type_repeat = { .name = "ls_repeat",
                                         .prepare = prepare_repeat,
                                         .next = next_repeat,
                                         .state_bytes = sizeof(repeat_state),
                                         .index_of = index_in_repeat,
                                         .end = end_repeat };

/* ---- Take and skip ---- */

static ls_status prepare_take(ls_dataset *d)
{
    int64_t most = d->u.order.count;
    ls_dataset_copy_source(d);
    if (most >= 0 && (d->count == LS_INFINITE || d->count > most || most == 0))
        d->count = most;
    return LS_OK;
}

static ls_status next_take(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    int64_t *given = cursor->state, most = cursor->dataset->u.order.count;
    *end = most >= 0 && *given >= most;
    if (!*end)
        LS_TRY(ls_cursor_next(cursor->source, slot, end));
    *given += !*end;
    return LS_OK;
}

static ls_status prepare_skip(ls_dataset *d)
{
    int64_t first = d->u.order.count;
    ls_dataset_copy_source(d);
    if (first < 0)
        d->count = 0;
    else if (d->count >= 0)
        d->count = d->count > first ? d->count - first : 0;
    return LS_OK;
}

static ls_status next_skip(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    int64_t *skipped = cursor->state, first = cursor->dataset->u.order.count;
    *end = first < 0;
    while (!*end && *skipped < first) {
        LS_TRY(ls_cursor_next(cursor->source, slot, end));
        *skipped += 1;
    }
    return *end ? LS_OK : ls_cursor_next(cursor->source, slot, end);
}

static int64_t index_after_skip(const ls_dataset *d, int64_t index)
{
    return index + d->u.order.count;
}

static const ls_dataset_type type_take = { .name = "ls_take",
                                           .prepare = prepare_take,
                                           .next = next_take,
                                           .index_of = ls_same_index,
                                           .state_bytes = sizeof(int64_t) };
static const ls_dataset_type type_skip = { .name = "ls_skip",
                                           .prepare = prepare_skip,
                                           .next = next_skip,
                                           .index_of = index_after_skip,
                                           .state_bytes = sizeof(int64_t) };

static ls_dataset *ordered(const ls_dataset_type *type, ls_dataset *source, int64_t count)
{
    bool built;
    ls_dataset *d = ls_dataset_over(type, source, &built);
    if (!built)
        return d;
    d->u.order.count = count;
    if (count < -1)
        ls_dataset_fail(d, LS_ERR_INVALID, "%s: the count must be at least 0, or -1 for all (got %lld)", type->name,
                        (long long)count);
    return d;
}

ls_dataset *ls_repeat(ls_dataset *source, int64_t count)
{
    return ordered(&ls_type_repeat, source, count);
}

ls_dataset *ls_take(ls_dataset *source, int64_t count)
{
    return ordered(&type_take, source, count);
}

ls_dataset *ls_skip(ls_dataset *source, int64_t count)
{
    return ordered(&type_skip, source, count);
}

/* ---- Shard ---- */

static ls_status prepare_shard(ls_dataset *d)
{
    int64_t shards = d->u.shard.count, index = d->u.shard.index;
    ls_dataset_copy_source(d);
    if (d->count >= 0)
        d->count = d->count / shards + (index < d->count % shards);
    return LS_OK;
}

/* Skips the elements of other shards. */
static ls_status next_shard(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    int64_t *at = cursor->state, shards = cursor->dataset->u.shard.count, index = cursor->dataset->u.shard.index;
    *end = false;
    for (bool found = false; !found && !*end; *at = (*at + 1) % shards) {
        LS_TRY(ls_cursor_next(cursor->source, slot, end));
        found = *at == index;
    }
    return LS_OK;
}

static int64_t index_in_shard(const ls_dataset *d, int64_t index)
{
    return index * d->u.shard.count + d->u.shard.index;
}

static const ls_dataset_type type_shard = { .name = "ls_shard",
                                            .prepare = prepare_shard,
                                            .next = next_shard,
                                            .index_of = index_in_shard,
                                            .state_bytes = sizeof(int64_t) };

ls_dataset *ls_shard(ls_dataset *source, int64_t count, int64_t index)
{
    bool built;
    ls_dataset *d = ls_dataset_over(&type_shard, source, &built);
    if (!built)
        return d;
    d->u.shard.count = count;
    d->u.shard.index = index;
    if (count < 1 || index < 0 || index >= count)
        ls_dataset_fail(d, LS_ERR_INVALID,
                        "ls_shard: shard %lld of %lld; the index must be at least 0 and less than the number of shards",
                        (long long)index, (long long)count);
    return d;
}

/* ---- Gap ---- */

static ls_status prepare_gap(ls_dataset *d)
{
    ls_dataset_copy_source(d);
    d->count -= d->u.gap.end - d->u.gap.first;
    return LS_OK;
}

static ls_status next_outside(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    int64_t *at = cursor->state, first = cursor->dataset->u.gap.first, stop = cursor->dataset->u.gap.end;
    *end = false;
    for (bool found = false; !found && !*end; *at += 1) {
        LS_TRY(ls_cursor_next(cursor->source, slot, end));
        found = *at < first || *at >= stop;
    }
    return LS_OK;
}

static int64_t index_outside(const ls_dataset *d, int64_t index)
{
    return index < d->u.gap.first ? index : index + d->u.gap.end - d->u.gap.first;
}

static const ls_dataset_type type_gap = { .name = "ls_dataset_fold",
                                          .prepare = prepare_gap,
                                          .next = next_outside,
                                          .index_of = index_outside,
                                          .state_bytes = sizeof(int64_t) };

ls_dataset *ls_leave_out(ls_dataset *source, int64_t first, int64_t end)
{
    bool built;
    ls_dataset *d = ls_dataset_over(&type_gap, source, &built);
    if (built) {
        d->u.gap.first = first;
        d->u.gap.end = end;
    }
    return d;
}

/* ---- Shuffle ---- */

/* Window of elements, or of row numbers. Each draw removes a random element and replaces it by the
 * next of the source, or by the last of the window once the source has ended. If the window holds
 * the whole dataset, this is the Fisher-Yates shuffle. */
typedef struct shuffle_state {
    ls_philox_key key;
    uint64_t block; /* number of the next block of random numbers */
    ls_philox_block words;
    int used; /* words used of the current block */
    int64_t filled, capacity;
    int64_t *rows; /* `rows` or `slots` is used, not both */
    ls_slot *slots;
    bool filling, drained;
} shuffle_state;

static ls_status prepare_shuffle(ls_dataset *d)
{
    ls_dataset_copy_source(d);
    d->shuffles++;
    return LS_OK;
}

static ls_status begin_shuffle(ls_cursor *cursor)
{
    shuffle_state *state = cursor->state;
    const ls_dataset *d = cursor->dataset;
    /* The number of shuffles below is part of the key, so that two with the same seed draw
     * differently. */
    state->key = ls_random_key(d->u.shuffle.seed, LS_RANDOM_SHUFFLE, (uint32_t)(d->shuffles - 1), 0);
    state->used = 4;
    state->filling = true;
    return LS_OK;
}

static uint32_t draw_word(ls_cursor *cursor)
{
    shuffle_state *state = cursor->state;
    if (state->used == 4) {
        state->words =
            ls_random_block(state->key, cursor->epoch, (uint32_t)(state->block >> 32), (uint32_t)state->block);
        state->block++;
        state->used = 0;
    }
    return state->words.word[state->used++];
}

/* Uniform number below `bound` (Lemire's multiplication); rejects words that would bias the result.
 * */
static uint32_t draw_below(ls_cursor *cursor, uint32_t bound)
{
    uint64_t product = (uint64_t)draw_word(cursor) * bound;
    if ((uint32_t)product < bound) {
        uint32_t unfair = -bound % bound;
        while ((uint32_t)product < unfair)
            product = (uint64_t)draw_word(cursor) * bound;
    }
    return (uint32_t)(product >> 32);
}

static bool by_row(const ls_cursor *cursor)
{
    return ls_dataset_in_rows(cursor->dataset);
}

static ls_status make_room(ls_cursor *cursor)
{
    shuffle_state *state = cursor->state;
    int64_t most = cursor->dataset->u.shuffle.buffer, capacity = state->capacity ? state->capacity * 2 : 256;
    if (state->filled < state->capacity)
        return LS_OK;
    if (capacity > UINT32_MAX)
        return ls_fail(LS_ERR_UNSUPPORTED, "ls_shuffle: a window of more than %lld elements is not supported",
                       (long long)state->capacity);
    capacity = capacity < most ? capacity : most;
    size_t one = by_row(cursor) ? sizeof *state->rows : sizeof *state->slots, bytes;
    void *old = by_row(cursor) ? (void *)state->rows : (void *)state->slots;
    void *moved = ls_size_mul((size_t)capacity, one, &bytes) ? realloc(old, bytes) : NULL;
    if (!moved)
        return ls_fail(LS_ERR_MEMORY, "ls_shuffle: no memory for a window of %lld elements", (long long)capacity);
    if (by_row(cursor))
        state->rows = moved;
    else
        state->slots = moved;
    if (!by_row(cursor))
        memset(state->slots + state->capacity, 0, (size_t)(capacity - state->capacity) * one);
    state->capacity = capacity;
    return LS_OK;
}

/* At the source's end only sets `drained`. */
static ls_status pull(ls_cursor *cursor, int64_t at, ls_slot *spare)
{
    shuffle_state *state = cursor->state;
    bool end = false;
    LS_TRY(ls_cursor_next(cursor->source, spare, &end));
    state->drained = end;
    if (end)
        return LS_OK;
    if (by_row(cursor))
        state->rows[at] = spare->row;
    else
        ls_slot_swap(&state->slots[at], spare);
    return LS_OK;
}

static ls_status fill(ls_cursor *cursor, ls_slot *spare)
{
    shuffle_state *state = cursor->state;
    while (!state->drained && state->filled < cursor->dataset->u.shuffle.buffer) {
        LS_TRY(make_room(cursor));
        LS_TRY(pull(cursor, state->filled, spare));
        state->filled += !state->drained;
    }
    state->filling = false;
    return LS_OK;
}

static ls_status next_shuffled_row(ls_cursor *cursor, ls_slot *slot, int64_t at)
{
    shuffle_state *state = cursor->state;
    int64_t row = state->rows[at];
    if (!state->drained)
        LS_TRY(pull(cursor, at, slot));
    if (state->drained)
        state->rows[at] = state->rows[--state->filled];
    slot->is_row = true;
    slot->list_count = 0;
    slot->row = row;
    return LS_OK;
}

static ls_status next_shuffled_slot(ls_cursor *cursor, ls_slot *slot, int64_t at)
{
    shuffle_state *state = cursor->state;
    ls_slot_swap(slot, &state->slots[at]);
    if (!state->drained) { /* the caller's old slot receives the next element */
        bool end = false;
        LS_TRY(ls_cursor_next(cursor->source, &state->slots[at], &end));
        state->drained = end;
    }
    if (state->drained)
        ls_slot_swap(&state->slots[at], &state->slots[--state->filled]);
    return LS_OK;
}

static ls_status next_shuffled(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    shuffle_state *state = cursor->state;
    if (state->filling)
        LS_TRY(fill(cursor, slot));
    *end = state->filled == 0;
    if (*end)
        return LS_OK;
    int64_t at = draw_below(cursor, (uint32_t)state->filled);
    return by_row(cursor) ? next_shuffled_row(cursor, slot, at) : next_shuffled_slot(cursor, slot, at);
}

static void end_shuffle(ls_cursor *cursor)
{
    shuffle_state *state = cursor->state;
    for (int64_t i = 0; state->slots && i < state->capacity; i++)
        ls_slot_free(&state->slots[i]);
    free(state->slots);
    free(state->rows);
}

static const ls_dataset_type type_shuffle = { .name = "ls_shuffle",
                                              .prepare = prepare_shuffle,
                                              .begin = begin_shuffle,
                                              .next = next_shuffled,
                                              .end = end_shuffle,
                                              .state_bytes = sizeof(shuffle_state) };

ls_dataset *ls_shuffle(ls_dataset *source, int64_t buffer, uint64_t seed)
{
    bool built;
    ls_dataset *d = ls_dataset_over(&type_shuffle, source, &built);
    if (!built)
        return d;
    d->u.shuffle.buffer = buffer;
    d->u.shuffle.seed = seed;
    if (buffer < 1)
        ls_dataset_fail(d, LS_ERR_INVALID, "ls_shuffle: the window must have at least 1 element (got %lld)",
                        (long long)buffer);
    return d;
}
