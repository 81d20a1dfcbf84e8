/* The dispatcher: lanes in flight, slots and frames, and what happens when a unit fails. A lane
 * that waits for ever is what these tests look for, so every one of them has a time limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "clock.h"
#include "lockstep.h"
#include "machine.h"
#include "networks.h"

static uint32_t draw(uint32_t stream, uint32_t a, uint32_t b)
{
    return ls_random_block(ls_random_key(8, LS_RANDOM_TEST, stream, 0), 0, a, b).word[0];
}

/* ---- Slots ---- */

/* Lanes of one segment on one device, begun in order and completed in any, joined as partials.c
 * joins them. */
typedef struct slots {
    int total;
    bool here[1024];
    int block[1024]; /* complete blocks by their first lane; 0: none */
    int used, most;
} slots;

static void complete(slots *s, int lane)
{
    int start = lane;
    s->block[lane] = 1;
    for (int size = 1; size < s->total; size *= 2) {
        int left = start / (size * 2) * (size * 2), right = left + size;
        if (right < s->total) {
            if (s->block[left] != size || s->block[right] != size)
                return;
            s->block[right] = 0;
            s->used--;
        }
        start = left;
        s->block[start] = size * 2;
    }
}

/* Which lanes a map leaves a device: stretches, every n-th, or any. */
static int choose_lanes(slots *s, uint32_t stream, int *lanes)
{
    int count = 0, way = (int)(draw(stream, 1, 0) % 4), period = 1 + (int)(draw(stream, 1, 1) % 5);
    int from = (int)(draw(stream, 1, 2) % (uint32_t)s->total), to = from + (int)(draw(stream, 1, 3) % 1024) + 1;
    for (int v = 0; v < s->total; v++) {
        bool here = way == 0   ? true
                    : way == 1 ? v >= from && v < to
                    : way == 2 ? v % period == 0
                               : draw(stream, 2, (uint32_t)v) % 4 != 0;
        s->here[v] = here;
        if (here)
            lanes[count++] = v;
    }
    return count;
}

/* The next lane to be completed, of those in flight: any; or the youngest, so that old ones stay
 * holes. */
static int choose_done(uint32_t stream, uint32_t turn, int in_flight)
{
    uint32_t way = stream % 3;
    return way == 0 ? (int)(draw(stream, 3, turn) % (uint32_t)in_flight) : way == 1 ? in_flight - 1 : 0;
}

static void slots_are_enough_for_any_map_and_order(void **state)
{
    (void)state;
    static slots s;
    static int lanes[1024], flight[1024];
    for (uint32_t stream = 0; stream < (SANITIZED ? 300 : 3000); stream++) {
        memset(&s, 0, sizeof(s));
        s.total = 1 + (int)(draw(stream, 0, 0) % (stream % 5 == 0 ? 1024 : 130));
        int count = choose_lanes(&s, stream, lanes), most = 1 + (int)(draw(stream, 0, 1) % 9), next = 0, in_flight = 0;
        int needed = ls_slots_needed(lanes, count, s.total, most);
        assert_true(needed <= count);
        for (uint32_t turn = 0; next < count || in_flight > 0; turn++) {
            bool begin = next < count && in_flight < most && (in_flight == 0 || draw(stream, 4, turn) % 3 != 0);
            if (begin) {
                flight[in_flight++] = lanes[next++];
                s.used++;
                s.most = s.used > s.most ? s.used : s.most;
                continue;
            }
            int done = choose_done(stream, turn, in_flight), lane = flight[done];
            memmove(flight + done, flight + done + 1, (size_t)(--in_flight - done) * sizeof(*flight));
            complete(&s, lane);
        }
        if (s.most > needed)
            fail_msg("stream %u: %d lanes of %d, %d in flight: %d slots were counted, %d needed", stream, count,
                     s.total, most, needed, s.most);
    }
}

/* With one lane in flight, all on one device, the slots are those of a binary counter and one. */
static void slots_are_few(void **state)
{
    (void)state;
    int lanes[1024];
    for (int i = 0; i < 1024; i++)
        lanes[i] = i;
    assert_int_equal(ls_slots_needed(lanes, 1, 1, 1), 1);
    assert_true(ls_slots_needed(lanes, 32, 32, 1) <= 11);
    assert_true(ls_slots_needed(lanes, 1024, 1024, 2) <= 32);
    assert_int_equal(ls_slots_needed(lanes, 4, 4, 8), 4);
    int odd[] = { 1, 3, 5, 7 };
    assert_int_equal(ls_slots_needed(odd, 4, 8, 1), 4); /* no two are siblings */
}

/* ---- Maps ---- */

typedef struct wander {
    uint32_t stream;
    int devices;
    bool by_group;
} wander;

static int wandering(const ls_task_map *map, const ls_task_map_point *at)
{
    const wander *w = map->user;
    if (at->lane < 0)
        return LS_ANY_DEVICE;
    return (int)(draw(w->stream, 10 + (uint32_t)(w->by_group ? at->group : at->segment), (uint32_t)at->lane) %
                 (uint32_t)w->devices);
}

static void hash_of(int threads, int devices, int lanes, int64_t batch, wander *w, char hex[65])
{
    ls_context *ctx;
    network n;
    ls_run_settings settings = { .plan = { .lanes = lanes } };
    if (w)
        settings.plan.map = (ls_task_map){ .device = wandering, .user = w };
    OK(ls_context_open(&(ls_context_options){ .threads = threads, .cpu_devices = devices }, &ctx));
    OK(network_create(ctx, NETWORK_MLP, &n));
    OK(network_set(&n, &settings));
    OK(network_train(&n, batch, SANITIZED ? 1 : 2, hex));
    network_destroy(&n);
    ls_context_close(ctx);
}

static void lanes_may_wander(void **state)
{
    (void)state;
    static const struct {
        int lanes;
        int64_t batch;
    } sizes[] = { { 7, 20 }, { 64, 64 }, { 128, 200 }, { 128, 100 }, { 1024, 1030 } };
    for (size_t i = 0; i < (SANITIZED ? 3 : LENGTH(sizes)); i++) {
        char expected[65], hex[65];
        hash_of(1, 1, sizes[i].lanes, sizes[i].batch, NULL, expected);
        for (int devices = 2; devices <= 8; devices += SANITIZED ? 6 : 3)
            for (uint32_t stream = 0; stream < 2; stream++) {
                wander w = { stream * 7 + (uint32_t)devices, devices, stream % 2 != 0 };
                hash_of(devices == 5 ? 2 : devices, devices, sizes[i].lanes, sizes[i].batch, &w, hex);
                assert_string_equal(hex, expected);
            }
    }
}

/* ---- Failures ---- */

/* A network whose labels at two samples are wrong. -1: right. */
typedef struct wrong {
    int64_t first, second;
} wrong;

static ls_status step_with(network *n, int64_t batch, wrong w)
{
    network_batch data;
    LS_TRY(network_batch_make(n, batch, 0, &data));
    if (w.first >= 0)
        data.labels[w.first] = 200;
    if (w.second >= 0)
        data.labels[w.second] = 201;
    ls_status status = ls_eval(n->graph, data.feeds, data.feed_count, (ls_tensor *[]){ n->loss, n->step }, 2);
    char message[512];
    snprintf(message, sizeof(message), "%s", ls_last_error());
    network_batch_free(&data);
    return status == LS_OK ? LS_OK : ls_fail(status, "%s", message);
}

/* The run ends, names the first wrong sample, changes nothing; the next run is good. */
static void fail_and_go_on(network *n, int64_t batch, wrong w, const char *what)
{
    char before[65], after[65], words[64];
    OK(network_state(n, before));
    ls_status status = step_with(n, batch, w);
    int64_t first = w.second >= 0 && w.second < w.first ? w.second : w.first;
    snprintf(words, sizeof(words), "of sample %lld is outside", (long long)first);
    if (status != LS_ERR_DATA || !strstr(ls_last_error(), words))
        fail_msg("%s: samples %lld and %lld are wrong: %s: %s", what, (long long)w.first, (long long)w.second,
                 ls_status_name(status), ls_last_error());
    OK(network_state(n, after));
    assert_string_equal(after, before);
    OK(step_with(n, batch, (wrong){ -1, -1 }));
}

static void a_wrong_label_ends_the_run_wherever_it_is(void **state)
{
    (void)state;
    static const int device_counts[] = { 1, 2, 3, 8 }, lane_counts[] = { 1, 2, 3, 5, 32, 64, 128 };
    for (size_t d = 0; d < LENGTH(device_counts); d++)
        for (int threads = 1; threads <= (SANITIZED ? 1 : 3); threads += 2) {
            ls_context *ctx;
            network n;
            OK(ls_context_open(&(ls_context_options){ .threads = threads, .cpu_devices = device_counts[d] }, &ctx));
            OK(network_create(ctx, NETWORK_MLP, &n));
            for (size_t v = 0; v < LENGTH(lane_counts); v++) {
                char what[64];
                int lanes = lane_counts[v];
                int64_t batch = lanes + 1;
                snprintf(what, sizeof(what), "%d devices, %d threads, %d lanes", device_counts[d], threads, lanes);
                OK(network_set(&n, &(ls_run_settings){ .plan = { .lanes = lanes } }));
                for (int device = 0; device < device_counts[d]; device++) { /* the first sample of each device */
                    int64_t lane = (int64_t)device * lanes / device_counts[d];
                    fail_and_go_on(&n, batch, (wrong){ ls_lane_first(batch, lanes, (int)lane), -1 }, what);
                }
                fail_and_go_on(&n, batch, (wrong){ batch - 1, batch / 2 }, what);
                fail_and_go_on(&n, batch, (wrong){ 0, batch - 1 }, what);
            }
            network_destroy(&n);
            ls_context_close(ctx);
        }
}

static void lanes_that_wander_may_fail(void **state)
{
    (void)state;
    for (uint32_t stream = 0; stream < (SANITIZED ? 6 : 24); stream++) {
        ls_context *ctx;
        network n;
        wander w = { stream, 2 + (int)(stream % 7), stream % 2 != 0 };
        int lanes = (int[]){ 3, 16, 64, 128 }[stream % 4];
        ls_run_settings settings = { .plan = { .lanes = lanes, .map = { .device = wandering, .user = &w } } };
        OK(ls_context_open(&(ls_context_options){ .threads = 1 + (int)(stream % 3), .cpu_devices = w.devices }, &ctx));
        OK(network_create(ctx, stream % 3 ? NETWORK_MLP : NETWORK_CNN, &n));
        OK(network_set(&n, &settings));
        for (uint32_t i = 0; i < 3; i++) {
            wrong two = { draw(stream, 20, i) % (uint32_t)lanes, draw(stream, 21, i) % (uint32_t)lanes };
            fail_and_go_on(&n, lanes, two.first == two.second ? (wrong){ two.first, -1 } : two, "wandering");
        }
        network_destroy(&n);
        ls_context_close(ctx);
    }
}

/* ---- Frames ---- */

/* Values that segments of one level pass on are kept for the lanes in flight: workers, not
 * lanes. */
static void frames_are_for_lanes_in_flight(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        ls_context *ctx;
        network n;
        ls_executor *executor = NULL;
        OK(ls_context_open(&(ls_context_options){ .threads = threads }, &ctx));
        OK(network_create_sized(ctx, NETWORK_CNN, 28, &n));
        OK(network_set(&n, &(ls_run_settings){ .plan = { .lanes = 32, .cut_everywhere = true } }));
        OK(network_step(&n, 320, 0));
        OK(network_executor(&n, 320, &executor));
        const ls_plan *plan = ls_executor_plan(executor);
        const ls_place *place = &ls_executor_placement(executor)->places[0];
        size_t framed = 0;
        for (int i = 0; i < plan->kept_count; i++)
            framed += plan->kept[i].framed ? plan->kept[i].unit * (size_t)plan->batch : 0;
        assert_true(framed > 0);
        assert_int_equal(place->frames, threads);
        assert_true((size_t)place->frames * place->frame_bytes * 5 <= framed);
        network_destroy(&n);
        ls_context_close(ctx);
    }
}

/* A map that spreads lanes spreads their partials: no device has memory for the partials of
 * others. */
static void partials_are_where_they_are_made(void **state)
{
    (void)state;
    ls_context *ctx;
    network n;
    ls_executor *executor = NULL;
    OK(ls_context_open(&(ls_context_options){ .threads = 2, .cpu_devices = 2 }, &ctx));
    OK(network_create_placed(ctx, NETWORK_MLP, NULL, &n));
    wander w = { .stream = 1, .devices = 2 };
    ls_run_settings settings = { .plan = { .lanes = 8, .map = { .device = wandering, .user = &w } } };
    OK(network_set(&n, &settings));
    OK(network_step(&n, 32, 0));
    OK(network_executor(&n, 32, &executor));
    const ls_placement *p = ls_executor_placement(executor);
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < p->plan->segment_count; s++) {
            int lanes = 0;
            for (int v = 0; v < 8; v++)
                lanes += ls_task_device(p->plan, s, v) == d;
            assert_true(p->places[d].slots[s] <= lanes);
            assert_true(p->plan->segments[s].slot_bytes == 0 || lanes == 0 || p->places[d].slots[s] > 0);
        }
    network_destroy(&n);
    ls_context_close(ctx);
}

/* ---- What no map changes ---- */

static char *explained(int devices, network_kind kind, const network_places *places, ls_task_map map)
{
    ls_context *ctx;
    network n;
    char *text = NULL;
    OK(ls_context_open(&(ls_context_options){ .threads = 2, .cpu_devices = devices }, &ctx));
    OK(network_create_placed(ctx, kind, places, &n));
    OK(network_set(&n, &(ls_run_settings){ .plan = { .lanes = 6, .map = map } }));
    OK(ls_explain(n.graph, (ls_tensor *[]){ n.loss, n.step }, 2, 33, &text));
    network_destroy(&n);
    ls_context_close(ctx);
    return text;
}

static const char *in_turn(void *user, int layer)
{
    (void)user;
    return layer % 2 ? "cpu:1" : "cpu:2";
}

static void an_explanation_is_the_same_under_every_map(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        char *expected = explained(1, kind, NULL, (ls_task_map){ .count = 0 });
        for (uint32_t i = 0; i < 5; i++) {
            wander w = { i, 3, i % 2 != 0 };
            int one = 1;
            ls_task_map maps[] = { { .count = 0 },
                                   { .devices = &one, .count = 1 },
                                   { .device = wandering, .user = &w } };
            char *text = explained(3, kind, i == 4 ? &(network_places){ .device = in_turn } : NULL, maps[i % 3]);
            assert_string_equal(text, expected);
            free(text);
        }
        free(expected);
    }
}

#define TIMED(test) cmocka_unit_test_setup_teardown(test, clock_start, clock_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TIMED(slots_are_enough_for_any_map_and_order),
        TIMED(slots_are_few),
        TIMED(lanes_may_wander),
        TIMED(a_wrong_label_ends_the_run_wherever_it_is),
        TIMED(lanes_that_wander_may_fail),
        TIMED(frames_are_for_lanes_in_flight),
        TIMED(partials_are_where_they_are_made),
        TIMED(an_explanation_is_the_same_under_every_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
