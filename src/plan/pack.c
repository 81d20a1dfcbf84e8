/* Packing: takes the smallest hole that fits, in the order of time. */
#include "plan/pack.h"

#include <stdlib.h>

#include "base/grow.h"
#include "base/size.h"
#include "plan/plan.h"

ls_status ls_packer_add(ls_packer *p, int first, int last, size_t bytes, size_t *offset)
{
    bytes += p->guard;
    LS_TRY(ls_grow(&p->spans, (size_t)p->count, &p->room, sizeof(*p->spans)));
    p->spans[p->count++] = (ls_span){ first, last, ls_size_align(bytes ? bytes : 1, LS_ALIGN), offset };
    return LS_OK;
}

static int by_first(const void *a, const void *b)
{
    const ls_span *x = a, *y = b;
    if (x->first != y->first)
        return (x->first > y->first) - (x->first < y->first);
    /* Large ones first: they are the hardest to fit. */
    return (y->bytes > x->bytes) - (y->bytes < x->bytes);
}

/* Merges adjacent holes. */
static void give_back(ls_packer *p, size_t offset, size_t bytes)
{
    int at = p->hole_count;
    while (at > 0 && p->holes[at - 1].offset > offset) {
        p->holes[at] = p->holes[at - 1];
        at--;
    }
    p->holes[at] = (ls_hole){ offset, bytes };
    p->hole_count++;
    for (int i = at > 0 ? at - 1 : 0; i < p->hole_count - 1 && i <= at;) {
        if (p->holes[i].offset + p->holes[i].bytes != p->holes[i + 1].offset) {
            i++;
            continue;
        }
        p->holes[i].bytes += p->holes[i + 1].bytes;
        for (int k = i + 1; k < p->hole_count - 1; k++)
            p->holes[k] = p->holes[k + 1];
        p->hole_count--;
    }
}

static size_t take(ls_packer *p, size_t bytes, size_t *top)
{
    int best = -1;
    for (int i = 0; i < p->hole_count; i++)
        if (p->holes[i].bytes >= bytes && (best < 0 || p->holes[i].bytes < p->holes[best].bytes))
            best = i;
    if (best < 0) {
        size_t offset = *top;
        if (p->hole_count > 0) { /* Extends a hole at the very top. */
            ls_hole *last = &p->holes[p->hole_count - 1];
            if (last->offset + last->bytes == *top) {
                offset = last->offset;
                p->hole_count--;
            }
        }
        *top = offset + bytes;
        return offset;
    }
    size_t offset = p->holes[best].offset;
    p->holes[best].offset += bytes;
    p->holes[best].bytes -= bytes;
    if (p->holes[best].bytes == 0) {
        for (int k = best; k < p->hole_count - 1; k++)
            p->holes[k] = p->holes[k + 1];
        p->hole_count--;
    }
    return offset;
}

/* A heap of live spans, ordered by their end. */
static void heap_push(int *heap, int *count, const ls_span *spans, int item)
{
    int i = (*count)++;
    heap[i] = item;
    while (i > 0 && spans[heap[(i - 1) / 2]].last > spans[heap[i]].last) {
        int swap = heap[i];
        heap[i] = heap[(i - 1) / 2];
        heap[(i - 1) / 2] = swap;
        i = (i - 1) / 2;
    }
}

static int heap_pop(int *heap, int *count, const ls_span *spans)
{
    int top = heap[0];
    heap[0] = heap[--*count];
    for (int i = 0;;) {
        int least = i, left = 2 * i + 1;
        for (int k = left; k <= left + 1 && k < *count; k++)
            if (spans[heap[k]].last < spans[heap[least]].last)
                least = k;
        if (least == i)
            return top;
        int swap = heap[i];
        heap[i] = heap[least];
        heap[least] = swap;
        i = least;
    }
}

ls_status ls_packer_pack(ls_packer *p, size_t *bytes)
{
    size_t top = 0;
    int live = 0, *heap = malloc(((size_t)p->count + 1) * sizeof(*heap));
    p->holes = malloc(((size_t)p->count + 2) * sizeof(*p->holes));
    p->hole_count = 0;
    if (!heap || !p->holes) {
        free(heap);
        free(p->holes);
        return ls_fail(LS_ERR_MEMORY, "no memory to place %d values", p->count);
    }
    if (p->count > 0)
        qsort(p->spans, (size_t)p->count, sizeof(*p->spans), by_first);
    for (int i = 0; i < p->count; i++) {
        while (live > 0 && p->spans[heap[0]].last < p->spans[i].first) {
            const ls_span *ended = &p->spans[heap_pop(heap, &live, p->spans)];
            give_back(p, *ended->offset, ended->bytes);
        }
        *p->spans[i].offset = take(p, p->spans[i].bytes, &top);
        heap_push(heap, &live, p->spans, i);
    }
    free(heap);
    free(p->holes);
    p->count = 0;
    *bytes = top;
    return LS_OK;
}

void ls_packer_free(ls_packer *p)
{
    free(p->spans);
    *p = (ls_packer){ .guard = p->guard };
}
