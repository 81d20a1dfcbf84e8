/* Memory of plans: values that live at the same time do not overlap, kernels write only their
 * outputs, and a plan needs the bytes that it announces. Memory of a process that trains stays the
 * same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "bed.h"
#include "machine.h"
#include "run/compile.h"
#include "sanitized.h"
#include "skip.h"

/* ---- Values of a plan ---- */

/* A stretch of an arena, from its first write to its last read; moments are the caller's. */
typedef struct stretch {
    long key; /* its content */
    size_t offset, bytes;
    int first, last;
} stretch;

typedef struct arena {
    const char *name;
    size_t bytes;
    stretch *all;
    int count;
} arena;

#define KEY_VALUE(v)    (long)(v)
#define KEY_PREPARED(i) (1000000L + (i))
#define KEY_JOINED(i)   (2000000L + (i))
#define KEY_SLOT(i, k)  (3000000L + 2 * (i) + (k))
#define KEY_CHAIN(i)    (4000000L + (i))

static void live(arena *a, long key, size_t offset, size_t bytes, int at)
{
    for (int i = 0; i < a->count; i++)
        if (a->all[i].key == key) {
            assert_true(a->all[i].offset == offset);
            a->all[i].first = at < a->all[i].first ? at : a->all[i].first;
            a->all[i].last = at > a->all[i].last ? at : a->all[i].last;
            return;
        }
    a->all = realloc(a->all, ((size_t)a->count + 1) * sizeof(*a->all));
    assert_non_null(a->all);
    a->all[a->count++] = (stretch){ key, offset, bytes, at, at };
}

static void check_arena(arena *a)
{
    for (int i = 0; i < a->count; i++) {
        const stretch *x = &a->all[i];
        if (x->offset % LS_ALIGN != 0 || x->offset + x->bytes > a->bytes)
            fail_msg("%s: %ld at %zu + %zu of %zu", a->name, x->key, x->offset, x->bytes, a->bytes);
        for (int k = 0; k < i; k++) {
            const stretch *y = &a->all[k];
            bool together = x->first <= y->last && y->first <= x->last;
            if (together && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes)
                fail_msg("%s: %ld (%zu + %zu, alive %d to %d) and %ld (%zu + %zu, alive %d to %d) overlap", a->name,
                         x->key, x->offset, x->bytes, x->first, x->last, y->key, y->offset, y->bytes, y->first,
                         y->last);
        }
    }
    free(a->all);
    a->all = NULL;
    a->count = 0;
}

/* The plan node whose bytes a value is: reshapes are their input. */
static int behind(const ls_plan *plan, int value)
{
    while (plan->nodes[value].group >= 0 && plan->groups[plan->nodes[value].group].alias)
        value = plan->groups[plan->nodes[value].group].in[0];
    return value;
}

typedef struct memory_check {
    const ls_plan *plan;
    arena whole, kept, frame;
    size_t *kept_offsets; /* with all lanes on one device */
} memory_check;

/* phase: the time of whole and kept values; segment: that of the lane's own. */
static void touch(memory_check *c, const ls_operand *o, int value, int phase, int segment)
{
    size_t times = (size_t)(c->plan->batch > 0 ? c->plan->batch : 0);
    int source = behind(c->plan, value);
    if (o->storage == LS_WHOLE)
        live(&c->whole, KEY_VALUE(source), o->offset, o->per_sample ? o->unit * times : o->unit, phase);
    else if (o->storage == LS_KEPT && c->plan->kept[o->offset].framed)
        live(&c->frame, KEY_VALUE(source), c->kept_offsets[o->offset], o->unit * (size_t)ls_plan_lane_samples(c->plan),
             segment);
    else if (o->storage == LS_KEPT)
        live(&c->kept, KEY_VALUE(source), c->kept_offsets[o->offset], o->unit * times, phase);
}

static void touch_inputs(memory_check *c, const ls_step *step, int phase, int segment)
{
    const ls_prepare *want = &step->group->kernel->prepare;
    for (int k = 0; k < step->group->in_count; k++)
        if (want->bytes && k == want->input)
            live(&c->whole, KEY_PREPARED(step->group->prepared), step->in[k].offset, want->bytes, phase);
        else
            touch(c, &step->in[k], step->group->in[k], phase, segment);
}

/* A segment's own values, by half steps: inputs are there in both, outputs from the second on, so
 * that only the one input that a step works in place on may share the output's room. */
static void check_micro(const ls_plan *plan, const ls_segment *segment)
{
    arena a = { .name = "micro", .bytes = plan->thread_bytes };
    assert_true(segment->micro_bytes <= plan->thread_bytes);
    for (int i = 0; i < segment->step_count; i++) {
        const ls_step *step = &segment->steps[i];
        for (int k = 0; k < step->group->in_count; k++)
            if (step->in[k].storage == LS_MICRO) {
                bool overwritten = k == 0 && step->room != i;
                live(&a, KEY_VALUE(behind(plan, step->group->in[k])), step->in[k].offset, 0, 2 * i);
                live(&a, KEY_VALUE(behind(plan, step->group->in[k])), step->in[k].offset, 0,
                     overwritten ? 2 * i : 2 * i + 1);
            }
        if (step->out.storage == LS_MICRO)
            live(&a, KEY_VALUE(step->group->value), step->out.offset, step->out.unit * (size_t)segment->micro,
                 2 * i + 1);
        bool later = segment->micro * plan->lanes < plan->batch; /* micro-batches, for which an open block stays */
        for (int k = 0; later && step->group->kernel->chains && k < 2 * segment->step_count; k++)
            live(&a, KEY_CHAIN(i), step->chain, plan->joins[step->group->join].bytes, k);
    }
    check_arena(&a);
}

static void check_phase(memory_check *c, int p)
{
    const ls_plan *plan = c->plan;
    const ls_phase *phase = &plan->phases[p];
    for (int i = phase->first; i < phase->first + phase->count; i++)
        switch (phase->kind) {
        case LS_PHASE_WHOLE:
        case LS_PHASE_TILES:
            touch_inputs(c, &plan->whole_steps[i], p, -1);
            touch(c, &plan->whole_steps[i].out, plan->whole_steps[i].group->value, p, -1);
            for (int k = 0; k < 2 && plan->whole_steps[i].group->root->op == LS_OP_apply; k++)
                live(&c->whole, KEY_SLOT(i, k), plan->whole_steps[i].slots[k], plan->whole_steps[i].out.unit, p);
            break;
        case LS_PHASE_PREPARE:
            touch(c, &plan->value_of[plan->prepared[i].value], plan->prepared[i].value, p, -1);
            live(&c->whole, KEY_PREPARED(i), plan->prepared[i].offset, plan->prepared[i].group->kernel->prepare.bytes,
                 p);
            break;
        case LS_PHASE_LANES:
            for (int k = 0; k < plan->segments[i].step_count; k++) {
                touch_inputs(c, &plan->segments[i].steps[k], p, i);
                touch(c, &plan->segments[i].steps[k].out, plan->segments[i].steps[k].group->value, p, i);
            }
            check_micro(plan, &plan->segments[i]);
            break;
        case LS_PHASE_JOIN:
        case LS_PHASE_FINISH:
            if (plan->joins[i].group->kernel->finish)
                live(&c->whole, KEY_JOINED(i), plan->joins[i].joined, plan->joins[i].bytes, p);
            else
                assert_true(plan->joins[i].joined == plan->joins[i].out.offset);
            touch(c, &plan->joins[i].out, plan->joins[i].group->value, p, -1);
            break;
        case LS_PHASE_CHECK:
        case LS_PHASE_UPDATE:
            touch_inputs(c, &plan->updates[i], p, -1);
            break;
        default:
            fail_msg("a phase of kind %d", (int)phase->kind);
        }
}

static void check_partials(const ls_plan *plan)
{
    for (int i = 0; i < plan->join_count; i++) {
        const ls_join *x = &plan->joins[i];
        assert_true(x->bytes <= x->stride && x->stride % LS_ALIGN == 0 && x->partial % LS_ALIGN == 0);
        assert_true(x->partial + x->stride <= plan->segments[x->group->segment].slot_bytes);
        assert_true(plan->segments[x->group->segment].slot_bytes <= plan->slot_bytes);
        for (int k = 0; k < i; k++) {
            const ls_join *y = &plan->joins[k];
            assert_true(x->group->segment != y->group->segment || x->partial >= y->partial + y->stride ||
                        y->partial >= x->partial + x->stride);
        }
    }
}

static void check_memory(const ls_plan *plan)
{
    memory_check c = { .plan = plan,
                       .whole = { .name = "whole", .bytes = plan->whole_bytes },
                       .kept = { .name = "kept", .bytes = plan->kept_bytes },
                       .frame = { .name = "frame", .bytes = plan->frame_bytes } };
    size_t kept_bytes = 0, frame_bytes = 0;
    c.kept_offsets = calloc((size_t)plan->kept_count + 1, sizeof(*c.kept_offsets));
    assert_non_null(c.kept_offsets);
    assert_int_equal(
        ls_plan_pack_kept(plan, plan->batch > 0 ? plan->batch : 0, NULL, c.kept_offsets, &kept_bytes, &frame_bytes),
        LS_OK);
    assert_int_equal(kept_bytes, plan->kept_bytes);
    assert_int_equal(frame_bytes, plan->frame_bytes);
    for (int p = 0; p < plan->phase_count; p++)
        check_phase(&c, p);
    for (int i = 0; i < plan->write_count; i++) { /* copied to their variables after the last phase */
        const ls_operand *from = &plan->writes[i].from;
        bool found = false;
        for (int k = 0; k < c.whole.count; k++)
            if (c.whole.all[k].offset == from->offset &&
                (c.whole.all[k].key == KEY_VALUE(behind(plan, from->value)) || c.whole.all[k].key >= KEY_SLOT(0, 0))) {
                c.whole.all[k].last = plan->phase_count;
                found = true;
            }
        assert_true(found);
    }
    for (int i = 0; i < plan->fetch_count; i++)
        touch(&c, &plan->value_of[plan->fetches[i]], plan->fetches[i], plan->phase_count, plan->segment_count);
    assert_true(c.whole.count > 0);
    check_arena(&c.whole);
    check_arena(&c.kept);
    check_arena(&c.frame);
    free(c.kept_offsets);
    check_partials(plan);
}

static void values_do_not_overlap(void **state)
{
    (void)state;
    static const ls_plan_options options[] = {
        { .lanes = 1 },      { .lanes = 8 },
        { .unfused = true }, { .lanes = 5, .cut_everywhere = true },
        { .guards = true },  { .lanes = 3, .unfused = true, .cut_everywhere = true, .micro = 2 },
    };
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        lab l;
        ls_executor *executor = NULL;
        open_lab(&l, kind, &(ls_context_options){ .threads = 1 });
        for (size_t i = 0; i < LENGTH(options); i++) {
            assert_int_equal(network_set(&l.n, &(ls_run_settings){ .plan = options[i] }), LS_OK);
            check_memory(step_plan(&l, 33));
            /* Everything fetched: all values live to the end. */
            ls_tensor *fetches[NETWORK_VARIABLES + 2] = { l.n.logits, l.n.step };
            memcpy(fetches + 2, l.n.gradients, sizeof(l.n.gradients));
            assert_int_equal(ls_runs_get(l.n.graph, NULL, fetches, 2 + l.n.trained_count, 7, &executor), LS_OK);
            check_memory(ls_executor_plan(executor));
        }
        close_lab(&l);
    }
}

/* Guards after every value detect a kernel that writes too far, and change no bit. */
static void no_kernel_writes_past_its_output(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (int unfused = 0; unfused < 2; unfused++) {
            char hash[2][65];
            for (int guards = 0; guards < 2; guards++) {
                lab l;
                open_lab(&l, kind, &(ls_context_options){ .threads = 2 });
                ls_run_settings settings = { .plan = { .lanes = 5, .unfused = unfused, .guards = guards } };
                assert_int_equal(network_set(&l.n, &settings), LS_OK);
                if (network_train(&l.n, 33, 2, hash[guards]) != LS_OK)
                    fail_msg("%s: %s", network_name(kind), ls_last_error());
                close_lab(&l);
            }
            assert_string_equal(hash[0], hash[1]);
        }
}

/* With few workers and many lanes siblings are joined as soon as both are there: less memory, the
 * same bits. */
static void siblings_are_joined_early(void **state)
{
    (void)state;
    static const int lane_counts[] = { 9, 16, 31, 33, 64 };
    int early = 0;
    for (size_t i = 0; i < LENGTH(lane_counts); i += SANITIZED ? 2 : 1)
        for (int threads = SANITIZED ? 3 : 1; threads <= 3; threads++)
            for (int devices = 1; devices <= threads; devices++) {
                char hash[2][65];
                for (int every = 0; every < 2; every++) {
                    lab l;
                    ls_executor *executor = NULL;
                    open_lab(&l, NETWORK_MLP, &(ls_context_options){ .threads = threads, .cpu_devices = devices });
                    ls_run_settings settings = { .plan = { .lanes = lane_counts[i], .every_partial = every } };
                    assert_int_equal(network_set(&l.n, &settings), LS_OK);
                    if (network_train(&l.n, 50, SANITIZED ? 1 : 3, hash[every]) !=
                        LS_OK) /* with 64 lanes some are empty */
                        fail_msg("%s", ls_last_error());
                    assert_int_equal(network_executor(&l.n, 50, &executor), LS_OK);
                    const ls_plan *plan = ls_executor_plan(executor);
                    for (int s = 0; s < plan->segment_count; s++) {
                        int slots = 0;
                        for (int d = 0; d < devices; d++)
                            slots += ls_executor_placement(executor)->places[d].slots[s];
                        if (plan->segments[s].slot_bytes == 0)
                            continue;
                        assert_true(every ? slots == lane_counts[i] : slots <= lane_counts[i]);
                        early += slots < lane_counts[i];
                    }
                    close_lab(&l);
                }
                assert_string_equal(hash[0], hash[1]);
            }
    assert_true(early > 10);
}

static void bytes_printed_are_bytes_allocated(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        lab l;
        char expected[256], *text = NULL;
        ls_memory_info before, after;
        open_lab(&l, kind, &(ls_context_options){ .threads = 3 });
        ls_tensor *fetches[] = { l.n.loss, l.n.step };
        ls_executor *executor = NULL;
        assert_int_equal(ls_get_memory_info(l.ctx, "cpu:0", &before), LS_OK);
        assert_int_equal(ls_compile_run(l.n.graph, NULL, fetches, 2, 100, NULL, NULL, &executor), LS_OK);
        assert_int_equal(ls_get_memory_info(l.ctx, "cpu:0", &after), LS_OK);
        size_t got = after.in_use - before.in_use;
        const ls_plan *plan = ls_executor_plan(executor);
        const ls_place *place = &ls_executor_placement(executor)->places[0];
        size_t wanted = ls_block_bytes(plan->whole_bytes) + ls_block_bytes(plan->kept_bytes) +
                        ls_block_bytes((size_t)place->frames * plan->frame_bytes) +
                        ls_block_bytes(place->partial_bytes) + 3 * ls_block_bytes(ls_plan_thread_bytes(plan));
        if (got != wanted || got != ls_executor_placement(executor)->places[0].needed_bytes)
            fail_msg("%s: %zu bytes announced, %zu allocated", network_name(kind), wanted, got);
        assert_int_equal(ls_explain(l.n.graph, fetches, 2, 100, &text), LS_OK);
        snprintf(expected, sizeof(expected),
                 "whole values %.2f, activations kept %.2f, frames %.2f and partials %.2f a lane, %.2f for each worker",
                 (double)plan->whole_bytes / 1048576, (double)plan->kept_bytes / 1048576,
                 (double)plan->frame_bytes / 1048576, (double)plan->slot_bytes / 1048576,
                 (double)ls_plan_thread_bytes(plan) / 1048576);
        if (!strstr(text, expected))
            fail_msg("%s is not in\n%s", expected, text);
        free(text);
        ls_executor_destroy(executor);
        close_lab(&l);
    }
}

/* ---- Memory stays flat ---- */

static void a_thousand_steps_leave_memory_flat(void **state)
{
    (void)state;
    if (SANITIZED)
        SKIP("sanitizers keep memory");
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        lab l;
        size_t after_ten = 0;
        open_lab(&l, kind, &(ls_context_options){ .threads = 2 });
        for (uint64_t i = 0; i < 1000; i++) {
            if (network_step(&l.n, i % 5 == 4 ? 7 : 32, i % 8) != LS_OK)
                fail_msg("%s, step %d: %s", network_name(kind), (int)i, ls_last_error());
            if (i != 9)
                continue;
            malloc_trim(0); /* memory freed before would hide a leak */
            after_ten = machine_resident();
        }
        malloc_trim(0);
        long grown = (long)machine_resident() - (long)after_ten;
        if (grown > 1 << 20)
            fail_msg("%s: %ld bytes more after 1,000 steps than after 10", network_name(kind), grown);
        close_lab(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_do_not_overlap),
        cmocka_unit_test(no_kernel_writes_past_its_output),
        cmocka_unit_test(siblings_are_joined_early),
        cmocka_unit_test(bytes_printed_are_bytes_allocated),
        cmocka_unit_test(a_thousand_steps_leave_memory_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
