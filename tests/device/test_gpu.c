/* The tests' own backend (gpu.h), through its table, as the library would call it: bytes in and
 * out, memory that the host cannot touch, programs made by hand, the order of queued work, failures
 * on demand, and what it counts. Order is shown by holding the device, never by waiting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "gpu.h"

#define FLOATS(n) ((n) * sizeof(float))
#define BYTES     4096 /* size of a bed's buffers */

/* Two devices with a buffer each, and a graph to make nodes in. */
typedef struct bed {
    gpu *g;
    const ls_backend *b;
    void *device[2], *memory[2];
    ls_context *ctx;
    ls_graph *graph;
    int misuses; /* expected ones */
} bed;

static void open_bed(bed *x, gpu_settings settings)
{
    *x = (bed){ 0 };
    settings.devices = 2;
    x->g = gpu_create(settings);
    assert_non_null(x->g);
    x->b = gpu_backend(x->g);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(x->b->open(x->b->user, i, &x->device[i]), LS_OK);
        assert_int_equal(x->b->alloc(x->device[i], BYTES, &x->memory[i]), LS_OK);
    }
    assert_int_equal(ls_context_open(&(ls_context_options){ .threads = 1 }, &x->ctx), LS_OK);
    assert_int_equal(ls_graph_create(x->ctx, &x->graph), LS_OK);
}

static void close_bed(bed *x)
{
    for (int i = 0; i < 2; i++) {
        x->b->free(x->device[i], x->memory[i]);
        x->b->close(x->device[i]);
    }
    gpu_counts counts = gpu_counted(x->g);
    assert_int_equal(counts.devices, 0);
    assert_int_equal(counts.buffers, 0);
    assert_int_equal(counts.plans, 0);
    assert_int_equal(counts.memory, 0);
    assert_int_equal(counts.misuses, x->misuses);
    ls_graph_destroy(x->graph);
    ls_context_close(x->ctx);
    gpu_destroy(x->g);
}

/* ---- Calls that must succeed, on device 0 ---- */

static void ok(ls_status status)
{
    if (status != LS_OK)
        fail_msg("%s: %s", ls_status_name(status), ls_last_error());
}

static void put(bed *x, size_t offset, const float *from, size_t n)
{
    ok(x->b->upload(x->device[0], x->memory[0], offset, from, FLOATS(n)));
}

static void get(bed *x, size_t offset, float *to, size_t n)
{
    ok(x->b->download(x->device[0], x->memory[0], offset, to, FLOATS(n)));
}

static void *plan_of(bed *x, const ls_program_step *steps, int count, int64_t samples)
{
    void *plan = NULL;
    ok(x->b->plan_create(x->device[0], &(ls_program){ .steps = steps, .step_count = count, .samples = samples },
                         &plan));
    return plan;
}

/* Everything is in LS_ROOM_PLAN, at run.room[0].offset of the buffer. */
static ls_status run_at(bed *x, void *plan, ls_program_run run)
{
    run.room[LS_ROOM_PLAN].memory = x->memory[0];
    return x->b->plan_run(x->device[0], plan, &run);
}

/* Runs a plan of whole values. */
static void run_whole(bed *x, void *plan)
{
    ok(run_at(x, plan, (ls_program_run){ .samples = 1, .batch = -1 }));
}

static ls_memory_place at(const bed *x, size_t offset)
{
    return (ls_memory_place){ x->memory[0], offset };
}

static void assert_floats(const float *got, const float *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != wanted[i])
            fail_msg("element %zu of %zu is %g, expected %g", i, n, (double)got[i], (double)wanted[i]);
}

static void assert_says(ls_status got, ls_status wanted, const char *words)
{
    assert_int_equal(got, wanted);
    if (!strstr(ls_last_error(), words))
        fail_msg("\"%s\" does not say \"%s\"", ls_last_error(), words);
}

static ls_program_slot whole(size_t offset, size_t n)
{
    return (ls_program_slot){ .offset = offset, .unit = FLOATS(n) };
}

static ls_program_slot each(size_t offset, size_t n, bool kept)
{
    return (ls_program_slot){ .offset = offset, .unit = FLOATS(n), .per_sample = true, .kept = kept };
}

/* ---- What there is ---- */

static void devices_are_as_set(void **state)
{
    (void)state;
    gpu *g = gpu_create((gpu_settings){ .devices = 3, .memory = 12345 });
    const ls_backend *b = gpu_backend(g);
    ls_backend_device info;
    void *device;
    assert_int_equal(b->size, sizeof(ls_backend));
    assert_string_equal(b->kind, "GPU");
    assert_int_equal(b->probe(b->user), 3);
    ok(b->query(b->user, 2, &info));
    assert_int_equal(info.memory, 12345);
    assert_string_equal(info.about, "test device 2");
    assert_says(b->open(b->user, 3, &device), LS_ERR_NOT_FOUND, "GPU:3");
    assert_null(b->copy);
    gpu_destroy(g);
    g = gpu_create((gpu_settings){ .devices = 0, .copies = true });
    assert_int_equal(gpu_backend(g)->probe(gpu_backend(g)->user), 0);
    assert_non_null(gpu_backend(g)->copy);
    gpu_destroy(g);
}

static void some_ops_are_denied(void **state)
{
    (void)state;
    bed x;
    open_bed(&x, (gpu_settings){ 0 });
    ls_tensor *w = ls_op_variable(x.graph, "w", LS_F32, LS_SHAPE(2, 2));
    ls_tensor *sample = ls_op_input(x.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 2)), *change = ls_op_assign(w, w);
    ls_tensor *denied[] = { ls_op_cast(w, LS_F64),
                            change,
                            ls_op_assign_add(w, w),
                            ls_op_gather_batch(sample),
                            ls_op_scatter_batch(ls_op_gather_batch(sample)),
                            ls_op_group(&change, 1) };
    ls_tensor *rate = ls_op_input(x.graph, "rate", LS_F32, LS_SCALAR), *update;
    update = ls_op_apply(w, ls_op_relu(w), .rule = LS_APPLY_SGD, .learning_rate = rate);
    ls_tensor *taken[] = { ls_op_relu(w), ls_op_matmul(sample, w), update,
                           ls_op_gather(w, ls_op_constant(x.graph, LS_I64, LS_SHAPE(1), &(int64_t){ 0 }), 0) };
    for (size_t i = 0; i < LENGTH(denied); i++)
        if (x.b->supports(x.b->user, denied[i]))
            fail_msg("%s is not denied", ls_tensor_op(denied[i]));
    for (size_t i = 0; i < LENGTH(taken); i++)
        if (!x.b->supports(x.b->user, taken[i]))
            fail_msg("%s is denied", ls_tensor_op(taken[i]));
    gpu *own = gpu_create((gpu_settings){ .deny = "relu,max" }); /* max is no op, and no part of one counts */
    const ls_backend *b = gpu_backend(own);
    assert_false(b->supports(b->user, ls_op_relu(w)));
    assert_true(b->supports(b->user, ls_op_cast(w, LS_F64)));
    assert_true(b->supports(b->user, ls_op_maximum(w, w)));
    gpu_destroy(own);
    own = gpu_create((gpu_settings){ .deny = GPU_DENY_STATE });
    b = gpu_backend(own);
    assert_false(b->supports(b->user, update));
    assert_true(b->supports(b->user, ls_op_relu(w)));
    gpu_destroy(own);
    close_bed(&x);
}

/* ---- Memory ---- */

static void bytes_come_back(void **state)
{
    (void)state;
    bed x;
    unsigned char out[BYTES], in[BYTES];
    open_bed(&x, (gpu_settings){ 0 });
    for (size_t i = 0; i < BYTES; i++)
        out[i] = (unsigned char)(i * 7 + i / 256);
    ok(x.b->upload(x.device[0], x.memory[0], 0, out, BYTES));
    ok(x.b->upload(x.device[1], x.memory[1], 100, out, 50));
    ok(x.b->upload(x.device[0], x.memory[0], 3, "lockstep", 8)); /* no word or page begins there */
    memcpy(out + 3, "lockstep", 8);
    ok(x.b->download(x.device[0], x.memory[0], 0, in, BYTES));
    assert_memory_equal(in, out, BYTES);
    ok(x.b->download(x.device[0], x.memory[0], 1000, in, 10));
    assert_memory_equal(in, out + 1000, 10);
    ok(x.b->download(x.device[1], x.memory[1], 99, in, 52));
    assert_int_equal(in[0], 0xff); /* nothing was written there */
    assert_int_equal(in[1], 0);
    assert_int_equal(in[3], 2 * 7);
    assert_int_equal(in[50], (unsigned char)(49 * 7));
    assert_int_equal(in[51], 0xff);
    ok(x.b->upload(x.device[0], x.memory[0], BYTES, NULL, 0)); /* nothing, at the end */
    ok(x.b->download(x.device[0], x.memory[0], BYTES, NULL, 0));
    close_bed(&x);
}

/* How a child that touches `at` ends. */
static int end_of_child(volatile unsigned char *at, bool writes)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        signal(SIGSEGV, SIG_DFL); /* cmocka's and the sanitizers' handlers would make something else of it */
        if (writes)
            *at = 1;
        else
            (void)*at;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void assert_crashes(unsigned char *at)
{
    for (int writes = 0; writes < 2; writes++) {
        int status = end_of_child(at, writes != 0);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGSEGV);
    }
}

static void the_host_cannot_touch_it(void **state)
{
    (void)state;
    bed x;
    unsigned char mine = 0;
    float number = 1;
    open_bed(&x, (gpu_settings){ 0 });
    unsigned char *at = x.memory[0];
    assert_int_equal(end_of_child(&mine, false), 0);
    assert_int_equal(end_of_child(&mine, true), 0);
    assert_crashes(at);
    put(&x, 0, &number, 1);
    assert_crashes(at);
    assert_crashes(at + BYTES - 1);
    get(&x, 0, &number, 1);
    assert_crashes(at);
    gpu_hold(x.g, true);
    put(&x, 0, &number, 1);
    assert_crashes(at); /* nor while there is work on it */
    gpu_hold(x.g, false);
    void *other;
    ok(x.b->alloc(x.device[0], BYTES, &other));
    x.b->free(x.device[0], other);
    assert_crashes(other);
    close_bed(&x);
}

static void memory_is_limited(void **state)
{
    (void)state;
    gpu *g = gpu_create((gpu_settings){ .devices = 2, .memory = 1000 });
    const ls_backend *b = gpu_backend(g);
    void *first, *part, *second, *m[3], *more;
    ok(b->open(b->user, 0, &first));
    ok(b->open(b->user, 0, &part)); /* two logical devices of one */
    ok(b->open(b->user, 1, &second));
    ok(b->alloc(first, 600, &m[0]));
    ok(b->alloc(part, 400, &m[1]));
    assert_says(b->alloc(first, 1, &more), LS_ERR_MEMORY, "1 bytes");
    assert_says(b->alloc(part, SIZE_MAX, &more), LS_ERR_MEMORY, "left");
    ok(b->alloc(second, 1000, &m[2]));
    gpu_counts counts = gpu_counted(g);
    assert_int_equal(counts.devices, 3);
    assert_int_equal(counts.buffers, 3);
    assert_int_equal(counts.memory, 2000);
    b->free(first, m[0]);
    ok(b->alloc(part, 600, &m[0]));
    b->free(part, m[0]);
    b->free(part, m[1]);
    b->close(first);
    b->close(part);
    b->close(second); /* and its buffer with it, which was not given back */
    counts = gpu_counted(g);
    assert_int_equal(counts.devices, 0);
    assert_int_equal(counts.buffers, 1);
    assert_int_equal(counts.memory, 1000);
    assert_int_equal(counts.misuses, 0);
    gpu_destroy(g);
}

/* ---- Programs ---- */

/* y = relu(x w), of whole values, by hand. */
static void a_program_computes(void **state)
{
    (void)state;
    bed x;
    open_bed(&x, (gpu_settings){ 0 });
    ls_tensor *a = ls_op_input(x.graph, "a", LS_F32, LS_SHAPE(2, 2)),
              *w = ls_op_input(x.graph, "w", LS_F32, LS_SHAPE(2, 3));
    ls_tensor *product = ls_op_matmul(a, w), *y = ls_op_relu(product);
    ls_program_slot in_product[] = { whole(0, 4), whole(64, 6) }, in_y[] = { whole(128, 6) };
    ls_program_step steps[] = { { .node = product, .in = in_product, .out = whole(128, 6) },
                                { .node = y, .in = in_y, .out = whole(192, 6) } };
    void *plan = plan_of(&x, steps, 2, 1);
    assert_int_equal(gpu_counted(x.g).plans, 1);
    float got[6];
    put(&x, 256, (float[]){ 1, 2, 3, 4 }, 4);
    put(&x, 256 + 64, (float[]){ 1, 0, -1, 0, 1, -1 }, 6);
    ok(run_at(&x, plan, (ls_program_run){ .room = { { NULL, 256 } }, .samples = 1, .batch = -1 }));
    get(&x, 256 + 192, got, 6);
    assert_floats(got, (float[]){ 1, 2, 0, 3, 4, 0 }, 6);
    get(&x, 256 + 128, got, 6);
    assert_floats(got, (float[]){ 1, 2, -3, 3, 4, -7 }, 6);
    x.b->plan_destroy(x.device[0], plan);
    close_bed(&x);
}

/* Seven kept samples of two numbers; a run takes two or three of them. What it keeps goes to the
 * same rows, the rest to the front. */
static void samples_are_where_their_slots_say(void **state)
{
    (void)state;
    bed x;
    open_bed(&x, (gpu_settings){ 0 });
    ls_tensor *a = ls_op_input(x.graph, "a", LS_F32, LS_SHAPE(LS_BATCH, 2)),
              *w = ls_op_input(x.graph, "w", LS_F32, LS_SHAPE(2));
    ls_tensor *moved = ls_op_add(a, w), *kept = ls_op_neg(moved);
    ls_tensor *sum = ls_op_reduce_sum(moved, LS_AXES(0), false);
    enum { A = 0, W = 64, MOVED = 128, KEPT = 256, SUM = 384 };
    ls_program_slot in_moved[] = { each(A, 2, true), whole(W, 2) }, in_others[] = { each(MOVED, 2, false) };
    ls_program_step steps[] = { { .node = moved, .in = in_moved, .out = each(MOVED, 2, false) },
                                { .node = kept, .in = in_others, .out = each(KEPT, 2, true) },
                                { .node = sum, .in = in_others, .out = whole(SUM, 2) } };
    void *plan = plan_of(&x, steps, 3, 3);
    float got[14];
    put(&x, A, (float[]){ 0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61 }, 14);
    put(&x, W, (float[]){ 100, 200 }, 2);
    put(&x, MOVED, (float[14]){ 0 }, 14);
    put(&x, KEPT, (float[14]){ 0 }, 14);
    ok(run_at(&x, plan, (ls_program_run){ .samples = 3, .row = 0, .first = 0, .batch = 7 }));
    ok(run_at(&x, plan, (ls_program_run){ .samples = 2, .row = 5, .first = 5, .batch = 7 }));
    get(&x, MOVED, got, 8);
    assert_floats(got, (float[]){ 150, 251, 160, 261, 120, 221, 0, 0 }, 8);
    get(&x, KEPT, got, 14);
    assert_floats(got, (float[]){ -100, -201, -110, -211, -120, -221, 0, 0, 0, 0, -150, -251, -160, -261 }, 14);
    get(&x, SUM, got, 2);
    assert_floats(got, (float[]){ 310, 512 }, 2); /* the two samples of the last run */
    x.b->plan_destroy(x.device[0], plan);
    close_bed(&x);
}

/* Place in the batch, seed and run reach the kernels: numbers of sample i are the same however the
 * batch is cut. */
static void random_numbers_know_their_sample(void **state)
{
    (void)state;
    bed x;
    open_bed(&x, (gpu_settings){ 0 });
    ls_tensor *noise = ls_op_random_uniform(x.graph, LS_F32, LS_SHAPE(LS_BATCH, 4), 0, 1);
    ls_program_step step = { .node = noise, .out = each(0, 4, true) };
    void *plan = plan_of(&x, &step, 1, 5);
    float at_once[20], cut[20];
    ok(run_at(&x, plan, (ls_program_run){ .samples = 5, .batch = 5, .seed = 3, .run = 9 }));
    get(&x, 0, at_once, 20);
    ok(run_at(&x, plan, (ls_program_run){ .samples = 2, .row = 3, .first = 3, .batch = 5, .seed = 3, .run = 9 }));
    ok(run_at(&x, plan, (ls_program_run){ .samples = 3, .batch = 5, .seed = 3, .run = 9 }));
    get(&x, 0, cut, 20);
    assert_floats(cut, at_once, 20);
    ok(run_at(&x, plan, (ls_program_run){ .samples = 5, .batch = 5, .seed = 3, .run = 10 }));
    get(&x, 0, cut, 20);
    assert_memory_not_equal(cut, at_once, sizeof cut);
    x.b->plan_destroy(x.device[0], plan);
    close_bed(&x);
}

/* ---- State ---- */

/* An update with momentum by hand: state at 0 of one buffer, new state at 2048 of it, the rest at
 * 1024. */
typedef struct update {
    ls_program_slot in[2], state[2], new_state[2];
    ls_program_step step;
    void *plan;
    ls_program_run run;
} update;

static ls_program_slot in_room(ls_room room, size_t offset)
{
    ls_program_slot slot = whole(offset, 2);
    slot.room = room;
    return slot;
}

static void make_update(bed *x, update *u)
{
    ls_tensor *w = ls_op_variable(x->graph, "w", LS_F32, LS_SHAPE(2)),
              *m = ls_op_variable(x->graph, "m", LS_F32, LS_SHAPE(2), .frozen = true);
    ls_tensor *gradient = ls_op_input(x->graph, "gradient", LS_F32, LS_SHAPE(2)),
              *rate = ls_op_input(x->graph, "rate", LS_F32, LS_SCALAR);
    *u = (update){ .in = { whole(0, 2), whole(64, 1) } };
    for (size_t i = 0; i < 2; i++) {
        u->state[i] = in_room(LS_ROOM_STATE, i * 64);
        u->new_state[i] = in_room(LS_ROOM_NEW_STATE, i * 64);
    }
    u->step = (ls_program_step){ .node = ls_op_apply(w, gradient, .rule = LS_APPLY_MOMENTUM, .learning_rate = rate,
                                                     .slots = { m }, .momentum = 0.5),
                                 .in = u->in,
                                 .out = u->new_state[0],
                                 .state = u->state,
                                 .new_state = u->new_state,
                                 .state_count = 2 };
    u->plan = plan_of(x, &u->step, 1, 1);
    u->run = (ls_program_run){
        .room = { [LS_ROOM_PLAN] = at(x, 1024), [LS_ROOM_STATE] = at(x, 0), [LS_ROOM_NEW_STATE] = at(x, 2048) },
        .samples = 1,
        .batch = -1
    };
}

static void updates_read_one_state_and_write_the_other(void **state)
{
    (void)state;
    bed x;
    update u;
    float got[2];
    open_bed(&x, (gpu_settings){ 0 });
    make_update(&x, &u);
    put(&x, 0, (float[]){ 10, 20 }, 2);
    put(&x, 64, (float[]){ 2, 4 }, 2);
    put(&x, 1024, (float[]){ 1, -1 }, 2);
    put(&x, 1024 + 64, (float[]){ 0.25f }, 1);
    ok(x.b->plan_run(x.device[0], u.plan, &u.run)); /* m = 0.5 m - 0.25 g, w = w + m */
    get(&x, 2048, got, 2);
    assert_floats(got, (float[]){ 10.75f, 22.25f }, 2);
    get(&x, 2048 + 64, got, 2);
    assert_floats(got, (float[]){ 0.75f, 2.25f }, 2);
    get(&x, 0, got, 2); /* inputs are unchanged */
    assert_floats(got, (float[]){ 10, 20 }, 2);
    get(&x, 64, got, 2);
    assert_floats(got, (float[]){ 2, 4 }, 2);
    x.b->plan_destroy(x.device[0], u.plan);
    close_bed(&x);
}

/* ---- Joins ---- */

static void join_floats(bed *x, ls_join_kind kind, const float *left, const float *right, const float *wanted)
{
    float got[4];
    put(x, 0, left, 4);
    put(x, 64, right, 4);
    put(x, 128, (float[4]){ 0 }, 4);
    ls_join_call call = { kind, LS_F32, 4, at(x, 128), at(x, 0), at(x, 64) };
    ok(x->b->join(x->device[0], &call));
    call.to = call.left; /* in place */
    ok(x->b->join(x->device[0], &call));
    for (size_t offset = 0; offset < 256; offset += 128) {
        get(x, offset, got, 4);
        for (int i = 0; i < 4; i++)
            assert_true(wanted[i] != wanted[i] ? got[i] != got[i] : got[i] == wanted[i]);
    }
}

static void partials_are_joined(void **state)
{
    (void)state;
    const float nan = __builtin_nanf(""), left[] = { 1, 5, nan, -3 }, right[] = { 2, 4, 0, nan };
    bed x;
    float got[4];
    int32_t i32[2] = { INT32_MAX, -5 }, one32[2] = { 1, -6 };
    open_bed(&x, (gpu_settings){ 0 });
    join_floats(&x, LS_JOIN_SUM, left, right, (float[]){ 3, 9, nan, nan });
    join_floats(&x, LS_JOIN_MAX, left, right, (float[]){ 2, 5, nan, nan });
    join_floats(&x, LS_JOIN_MIN, left, right, (float[]){ 1, 4, nan, nan });
    put(&x, 0, (float[]){ 7, 8, 9, 10 }, 4);
    ok(x.b->join(x.device[0], &(ls_join_call){ LS_JOIN_MAX, LS_F32, 3, at(&x, 128), at(&x, 0), { NULL, 0 } }));
    put(&x, 0, (float[]){ 0, 0, 0, 0 }, 4); /* after the join, in the queue's order */
    get(&x, 128, got, 3);
    assert_floats(got, (float[]){ 7, 8, 9 }, 3); /* left alone: a copy */
    ok(x.b->upload(x.device[0], x.memory[0], 0, i32, sizeof i32));
    ok(x.b->upload(x.device[0], x.memory[0], 64, one32, sizeof one32));
    ok(x.b->join(x.device[0], &(ls_join_call){ LS_JOIN_SUM, LS_I32, 2, at(&x, 0), at(&x, 0), at(&x, 64) }));
    ok(x.b->download(x.device[0], x.memory[0], 0, i32, sizeof i32));
    assert_true(i32[0] == INT32_MIN && i32[1] == -11); /* integers wrap */
    gpu_counts counts = gpu_counted(x.g);
    assert_int_equal(counts.calls[GPU_JOIN], 8);
    assert_int_equal(counts.bytes[GPU_JOIN], 6 * FLOATS(4) + FLOATS(3) + sizeof i32);
    close_bed(&x);
}

static void joins_of_other_types(void **state)
{
    (void)state;
    double wide[3], a[3] = { 1, 0x1p53, __builtin_nan("") }, b[3] = { 2, 1, 1 };
    int64_t sums[2], most[2], l[2] = { INT64_MAX, -7 }, r[2] = { 2, -8 };
    ls_reference_join(LS_JOIN_SUM, LS_F64, a, b, 3, wide);
    assert_true(wide[0] == 3 && wide[1] == 0x1p53 && wide[2] != wide[2]);
    ls_reference_join(LS_JOIN_MIN, LS_F64, a, b, 3, wide);
    assert_true(wide[0] == 1 && wide[1] == 1 && wide[2] != wide[2]);
    ls_reference_join(LS_JOIN_SUM, LS_I64, l, r, 2, sums);
    assert_true(sums[0] == INT64_MIN + 1 && sums[1] == -15);
    ls_reference_join(LS_JOIN_MAX, LS_I64, l, r, 2, most);
    assert_true(most[0] == INT64_MAX && most[1] == -7);
    ls_reference_join(LS_JOIN_MIN, LS_I64, l, NULL, 2, most);
    assert_true(most[0] == l[0] && most[1] == l[1]);
}

static void finite_looks_at_every_element(void **state)
{
    (void)state;
    bed x;
    bool finite = false;
    open_bed(&x, (gpu_settings){ 0 });
    put(&x, 0, (float[]){ 1, 2, 3, __builtin_inff() }, 4);
    ok(x.b->finite(x.device[0], LS_F32, at(&x, 0), 3, &finite));
    assert_true(finite);
    ok(x.b->finite(x.device[0], LS_F32, at(&x, 0), 4, &finite));
    assert_false(finite);
    ok(x.b->finite(x.device[0], LS_I32, at(&x, 0), 4, &finite));
    assert_true(finite);
    ok(x.b->upload(x.device[0], x.memory[0], 64, (double[]){ 1e300, __builtin_nan("") }, 16));
    ok(x.b->finite(x.device[0], LS_F64, at(&x, 64), 2, &finite));
    assert_false(finite);
    ok(x.b->finite(x.device[0], LS_F64, at(&x, 64), 1, &finite));
    assert_true(finite);
    assert_int_equal(gpu_counted(x.g).calls[GPU_FINITE], 5);
    assert_int_equal(gpu_counted(x.g).bytes[GPU_FINITE], 3 * 4 + 2 * 4 * 4 + 16 + 8);
    close_bed(&x);
}

/* ---- Order ---- */

static void uploads_copy_at_once(void **state)
{
    (void)state;
    bed x;
    open_bed(&x, (gpu_settings){ 0 });
    float source[3] = { 1, 2, 3 }, got[3];
    gpu_hold(x.g, true);
    put(&x, 0, source, 3); /* returns, though nothing can have been done */
    source[0] = source[1] = source[2] = 77;
    gpu_hold(x.g, false);
    get(&x, 0, got, 3);
    assert_floats(got, (float[]){ 1, 2, 3 }, 3);
    close_bed(&x);
}

/* x becomes 2x + 1 by two programs and two places, again and again. Any other order gives another
 * number. */
typedef struct doubling {
    ls_program_slot in_twice[2], in_next[2];
    ls_program_step twice, next;
    void *plan[2];
} doubling;

enum { X = 0, TWICE = 64, ONE = 128 };

static void make_doubling(bed *x, doubling *d)
{
    ls_tensor *a = ls_op_input(x->graph, "a", LS_F32, LS_SCALAR),
              *one = ls_op_input(x->graph, "one", LS_F32, LS_SCALAR);
    *d = (doubling){ .in_twice = { whole(X, 1), whole(X, 1) }, .in_next = { whole(TWICE, 1), whole(ONE, 1) } };
    d->twice = (ls_program_step){ .node = ls_op_add(a, a), .in = d->in_twice, .out = whole(TWICE, 1) };
    d->next = (ls_program_step){ .node = ls_op_add(a, one), .in = d->in_next, .out = whole(X, 1) };
    d->plan[0] = plan_of(x, &d->twice, 1, 1);
    d->plan[1] = plan_of(x, &d->next, 1, 1);
    put(x, X, &(float){ 0 }, 1);
    put(x, ONE, &(float){ 1 }, 1);
}

static void end_doubling(bed *x, doubling *d)
{
    x->b->plan_destroy(x->device[0], d->plan[0]);
    x->b->plan_destroy(x->device[0], d->plan[1]);
}

static void work_is_done_in_order(void **state)
{
    (void)state;
    for (int queue = 1; queue < 40; queue += 6) {
        bed x;
        doubling d;
        float got;
        open_bed(&x, (gpu_settings){ .queue = queue, .seed = (uint32_t)queue });
        make_doubling(&x, &d);
        for (int i = 0; i < 20; i++) {
            run_whole(&x, d.plan[0]);
            run_whole(&x, d.plan[1]);
        }
        get(&x, X, &got, 1);
        assert_true(got == 1048575);
        run_whole(&x, d.plan[0]);
        put(&x, X, &(float){ 5 }, 1); /* after a run that reads it, before another one */
        run_whole(&x, d.plan[0]);
        put(&x, ONE, &(float){ 3 }, 1);
        run_whole(&x, d.plan[1]);
        put(&x, ONE, &(float){ 4 }, 1);
        ok(x.b->sync(x.device[0]));
        get(&x, X, &got, 1);
        assert_true(got == 13);
        end_doubling(&x, &d);
        close_bed(&x);
    }
}

/* Calls that queue work return while the device is held; one that finds the queue full waits. */
#define QUEUE 5
typedef struct pusher {
    bed *x;
    doubling *d;
    atomic_int made;
} pusher;

static void *push(void *argument)
{
    pusher *p = argument;
    for (int i = 0; i < 4 * QUEUE; i++) {
        run_whole(p->x, p->d->plan[i % 2]);
        atomic_fetch_add(&p->made, 1);
    }
    return NULL;
}

static void a_full_queue_makes_callers_wait(void **state)
{
    (void)state;
    bed x;
    doubling d;
    pthread_t thread;
    float got;
    open_bed(&x, (gpu_settings){ .queue = QUEUE });
    make_doubling(&x, &d);
    ok(x.b->sync(x.device[0]));
    pusher p = { .x = &x, .d = &d };
    gpu_hold(x.g, true);
    assert_int_equal(pthread_create(&thread, NULL, push, &p), 0);
    while (gpu_counted(x.g).calls[GPU_RUN] <= QUEUE) /* the last of these waits */
        sched_yield();
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(atomic_load(&p.made) <= QUEUE, true);
        sched_yield();
    }
    gpu_hold(x.g, false);
    pthread_join(thread, NULL);
    get(&x, X, &got, 1);
    assert_true(got == 1023); /* ten times */
    end_doubling(&x, &d);
    close_bed(&x);
}

static void a_run_allocates_nothing(void **state)
{
    (void)state;
    bed x;
    doubling d;
    open_bed(&x, (gpu_settings){ .queue = QUEUE });
    make_doubling(&x, &d);
    ok(x.b->sync(x.device[0]));
    gpu_hold(x.g, true); /* so that kernels, which may, do not */
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < QUEUE; i++)
        run_whole(&x, d.plan[i % 2]);
    struct mallinfo2 after = mallinfo2();
    gpu_hold(x.g, false);
    assert_int_equal(after.uordblks, before.uordblks);
    end_doubling(&x, &d);
    close_bed(&x);
}

/* ---- Copies ---- */

/* To and fro, a place further each time. Each device is done with it before the other takes it. */
static void copies_go_between_devices(void **state)
{
    (void)state;
    bed x;
    float got[2];
    open_bed(&x, (gpu_settings){ .copies = true });
    put(&x, 0, (float[]){ 1, 2 }, 2);
    for (size_t i = 0, at = 0; i < 20; i++, at += 16) {
        ok(x.b->sync(x.device[0]));
        ok(x.b->copy(x.device[1], x.memory[1], at, x.device[0], x.memory[0], at, FLOATS(2)));
        ok(x.b->sync(x.device[1]));
        ok(x.b->upload(x.device[0], x.memory[0], at, (float[]){ -1, -1 }, FLOATS(2)));
        ok(x.b->copy(x.device[0], x.memory[0], at + 16, x.device[1], x.memory[1], at, FLOATS(2)));
    }
    get(&x, 20 * 16, got, 2);
    assert_floats(got, (float[]){ 1, 2 }, 2);
    get(&x, 19 * 16, got, 2);
    assert_floats(got, (float[]){ -1, -1 }, 2);
    gpu_counts counts = gpu_counted(x.g);
    assert_int_equal(counts.calls[GPU_COPY], 40);
    assert_int_equal(counts.bytes[GPU_COPY], 40 * FLOATS(2));
    close_bed(&x);
}

/* On the device that they go to; within one device, too. */
static void copies_come_at_their_place(void **state)
{
    (void)state;
    bed x;
    float got[3];
    open_bed(&x, (gpu_settings){ .copies = true });
    ok(x.b->upload(x.device[1], x.memory[1], 0, &(float){ 3 }, FLOATS(1)));
    ok(x.b->sync(x.device[1]));
    gpu_hold(x.g, true);
    put(&x, 0, (float[]){ 1, 1, 1 }, 3);
    ok(x.b->copy(x.device[0], x.memory[0], 4, x.device[1], x.memory[1], 0, FLOATS(1)));
    ok(x.b->copy(x.device[0], x.memory[0], 0, x.device[0], x.memory[0], 4, FLOATS(1)));
    put(&x, 4, &(float){ 4 }, 1);
    gpu_hold(x.g, false);
    get(&x, 0, got, 3);
    assert_floats(got, (float[]){ 3, 4, 1 }, 3);
    close_bed(&x);
}

/* ---- Failures ---- */

/* A call of each kind; what it makes is given back. */
static ls_status make_call(bed *x, doubling *d, gpu_call call)
{
    void *made;
    float number = 0;
    ls_status status;
    switch (call) {
    case GPU_OPEN:
        status = x->b->open(x->b->user, 1, &made);
        if (status == LS_OK)
            x->b->close(made);
        return status;
    case GPU_ALLOC:
        status = x->b->alloc(x->device[0], 10, &made);
        if (status == LS_OK)
            x->b->free(x->device[0], made);
        return status;
    case GPU_UPLOAD:
        return x->b->upload(x->device[0], x->memory[0], X, &number, sizeof number);
    case GPU_DOWNLOAD:
        return x->b->download(x->device[0], x->memory[0], X, &number, sizeof number);
    case GPU_COPY:
        return x->b->copy(x->device[0], x->memory[0], X, x->device[1], x->memory[1], 0, sizeof number);
    case GPU_JOIN:
        return x->b->join(x->device[0],
                          &(ls_join_call){ .count = 1, .to = at(x, X), .left = at(x, X), .right = at(x, ONE) });
    case GPU_FINITE:
        return x->b->finite(x->device[0], LS_F32, at(x, X), 1, &(bool){ false });
    case GPU_PLAN:
        status = x->b->plan_create(
            x->device[0], &(ls_program){ .steps = &d->twice, .step_count = 1, .samples = 1, .lanes = 1 }, &made);
        if (status == LS_OK)
            x->b->plan_destroy(x->device[0], made);
        return status;
    case GPU_RUN:
        return run_at(x, d->plan[0], (ls_program_run){ .samples = 1, .batch = -1 });
    default:
        return x->b->sync(x->device[0]);
    }
}

static void the_nth_call_fails(void **state)
{
    (void)state;
    bed x;
    doubling d;
    open_bed(&x, (gpu_settings){ .copies = true });
    make_doubling(&x, &d);
    for (gpu_call call = 0; call < GPU_CALLS; call++)
        for (int nth = 1; nth < 4; nth++) {
            int64_t before = gpu_counted(x.g).calls[call];
            gpu_fail_next(x.g, call, nth);
            for (int i = 1; i < nth; i++)
                ok(make_call(&x, &d, call));
            assert_says(make_call(&x, &d, call), call == GPU_ALLOC ? LS_ERR_MEMORY : LS_ERR_DEVICE,
                        gpu_call_name(call));
            ok(make_call(&x, &d, call)); /* once */
            assert_int_equal(gpu_counted(x.g).calls[call], before + nth + 1);
            gpu_fail_next(x.g, call, 1);
            gpu_fail_next(x.g, call, 0);
            ok(make_call(&x, &d, call));
        }
    end_doubling(&x, &d);
    close_bed(&x);
}

static void late_failures_are_reported_later(void **state)
{
    (void)state;
    static const struct {
        gpu_call call;
        const char *words;
    } rows[] = { { GPU_UPLOAD, "upload" }, { GPU_COPY, "copy" }, { GPU_JOIN, "join" }, { GPU_RUN, "twice" } };
    bed x;
    doubling d;
    open_bed(&x, (gpu_settings){ .copies = true });
    make_doubling(&x, &d);
    ls_named((ls_tensor *)d.twice.node, "twice");
    for (size_t i = 0; i < LENGTH(rows); i++) {
        float got = 7;
        gpu_fail_late(x.g, rows[i].call, 2);
        for (int k = 0; k < 3; k++)
            ok(make_call(&x, &d, rows[i].call));
        ok(x.b->sync(x.device[1])); /* it is not its own */
        assert_says(x.b->download(x.device[0], x.memory[0], X, &got, sizeof got), LS_ERR_DEVICE, rows[i].words);
        assert_true(got == 7); /* left alone */
        get(&x, X, &got, 1);   /* reported once */
        gpu_fail_late(x.g, rows[i].call, 1);
        ok(make_call(&x, &d, rows[i].call));
        assert_says(x.b->sync(x.device[0]), LS_ERR_DEVICE, rows[i].words);
        ok(x.b->sync(x.device[0]));
        bool finite[2] = { false, true }; /* one of them would be changed */
        for (int k = 0; k < 2; k++) {
            gpu_fail_late(x.g, rows[i].call, 1);
            ok(make_call(&x, &d, rows[i].call));
            assert_says(x.b->finite(x.device[0], LS_F32, at(&x, ONE), 1, &finite[k]), LS_ERR_DEVICE, rows[i].words);
            assert_int_equal(finite[k], k == 1);
        }
        ok(x.b->sync(x.device[0]));
    }
    end_doubling(&x, &d);
    close_bed(&x);
}

/* A label that is too large: only the kernel can know. */
static void kernels_errors_name_their_node(void **state)
{
    (void)state;
    bed x;
    open_bed(&x, (gpu_settings){ 0 });
    ls_tensor *scores = ls_op_input(x.graph, "scores", LS_F32, LS_SHAPE(LS_BATCH, 2));
    ls_tensor *labels = ls_op_input(x.graph, "labels", LS_I32, LS_SHAPE(LS_BATCH));
    ls_tensor *loss = ls_named(ls_op_sparse_cross_entropy(labels, scores, LS_LOGITS), "the_loss");
    ls_program_slot in[] = { each(0, 2, false), each(64, 1, false) };
    ls_program_step step = { .node = loss, .in = in, .out = each(128, 1, false) };
    void *plan = plan_of(&x, &step, 1, 2);
    float got = 7;
    put(&x, 0, (float[]){ 1, 1, 1, 1 }, 4);
    put(&x, 128, (float[]){ 5, 5 }, 2);
    ok(x.b->upload(x.device[0], x.memory[0], 64, (int32_t[]){ 0, 2 }, 8));
    ok(run_at(&x, plan, (ls_program_run){ .samples = 2, .batch = 2 }));
    assert_says(x.b->download(x.device[0], x.memory[0], 128, &got, 4), LS_ERR_DATA, "the_loss");
    assert_non_null(strstr(ls_last_error(), "label 2"));
    assert_true(got == 7);
    ok(run_at(&x, plan, (ls_program_run){ .samples = 2, .batch = 2 }));
    assert_says(x.b->sync(x.device[0]), LS_ERR_DATA, "the_loss");
    ok(run_at(&x, plan, (ls_program_run){ .samples = 1, .batch = 2 })); /* the first label is right */
    get(&x, 128, &got, 1);
    assert_true(got > 0.69f && got < 0.70f);
    x.b->plan_destroy(x.device[0], plan);
    close_bed(&x);
}

/* ---- What is counted ---- */

static void calls_and_bytes_are_counted(void **state)
{
    (void)state;
    bed x;
    float numbers[4] = { 0 };
    open_bed(&x, (gpu_settings){ 0 });
    put(&x, 0, numbers, 4);
    put(&x, 0, numbers, 1);
    get(&x, 0, numbers, 3);
    ok(x.b->sync(x.device[1]));
    gpu_counts counts = gpu_counted(x.g);
    static const int64_t calls[GPU_CALLS] = {
        [GPU_OPEN] = 2, [GPU_ALLOC] = 2, [GPU_UPLOAD] = 2, [GPU_DOWNLOAD] = 1, [GPU_SYNC] = 1
    };
    static const size_t bytes[GPU_CALLS] = { [GPU_ALLOC] = 2 * BYTES, [GPU_UPLOAD] = 20, [GPU_DOWNLOAD] = 12 };
    for (gpu_call call = 0; call < GPU_CALLS; call++) {
        assert_int_equal(counts.calls[call], calls[call]);
        assert_int_equal(counts.bytes[call], bytes[call]);
    }
    assert_int_equal(counts.devices, 2);
    assert_int_equal(counts.buffers, 2);
    close_bed(&x);
}

#define MISUSED(x, call, words)                                                                                        \
    do {                                                                                                               \
        assert_says(call, LS_ERR_INTERNAL, words);                                                                     \
        assert_int_equal(gpu_counted((x)->g).misuses, ++(x)->misuses);                                                 \
    } while (0)

static void wrong_bytes_are_noticed(void **state)
{
    (void)state;
    bed x;
    char host[8] = { 0 };
    open_bed(&x, (gpu_settings){ .copies = true });
    MISUSED(&x, x.b->upload(x.device[0], x.memory[1], 0, host, 8), "no buffer");
    MISUSED(&x, x.b->upload(x.device[0], (char *)x.memory[0] + 8, 0, host, 8), "no buffer");
    MISUSED(&x, x.b->download(x.device[0], host, 0, host, 8), "no buffer");
    MISUSED(&x, x.b->upload(x.device[0], x.memory[0], BYTES - 4, host, 8), "8 bytes at 4092");
    MISUSED(&x, x.b->download(x.device[0], x.memory[0], SIZE_MAX, host, 8), "8 bytes at");
    MISUSED(&x, x.b->copy(x.device[0], x.memory[0], 0, x.device[1], x.memory[0], 0, 8), "no buffer");
    MISUSED(&x, x.b->copy(x.device[0], x.memory[0], 0, x.device[1], x.memory[1], BYTES, 1), "1 bytes at 4096");
    void *other;
    ok(x.b->alloc(x.device[0], 8, &other));
    x.b->free(x.device[0], other);
    MISUSED(&x, x.b->upload(x.device[0], other, 0, host, 8), "no buffer");
    x.b->free(x.device[0], other);
    assert_int_equal(gpu_counted(x.g).misuses, ++x.misuses);
    close_bed(&x);
}

static void wrong_programs_are_noticed(void **state)
{
    (void)state;
    bed x;
    doubling d;
    void *plan;
    open_bed(&x, (gpu_settings){ 0 });
    make_doubling(&x, &d);
    ls_tensor *cast = ls_op_cast(ls_op_input(x.graph, "c", LS_F32, LS_SCALAR), LS_F64);
    ls_program_step denied = { .node = cast, .in = d.in_twice, .out = whole(64, 2) };
    MISUSED(&x,
            x.b->plan_create(x.device[0], &(ls_program){ .steps = &denied, .step_count = 1, .samples = 1, .lanes = 1 },
                             &plan),
            "cast");
    ls_program_run good = { .room = { { x.memory[0], 0 } }, .samples = 1, .batch = -1 }, run = good;
    MISUSED(&x, x.b->plan_run(x.device[1], d.plan[0], &good), "no buffer");
    run.room[0].memory = x.memory[1];
    MISUSED(&x, x.b->plan_run(x.device[1], d.plan[0], &run), "another device");
    run = good;
    run.samples = 2;
    MISUSED(&x, x.b->plan_run(x.device[0], d.plan[0], &run), "2 samples");
    run = good;
    run.room[0].offset = BYTES - TWICE;
    MISUSED(&x, x.b->plan_run(x.device[0], d.plan[0], &run), "output 0 ends at 4100");
    run.room[0].offset = BYTES - TWICE - 4;
    MISUSED(&x, x.b->plan_run(x.device[0], d.plan[1], &run), "input 1 ends at");
    d.twice.out.offset = 2; /* over its input */
    MISUSED(&x, x.b->plan_run(x.device[0], d.plan[0], &good), "output 0 lies over input 0");
    d.twice.out = whole(TWICE, 1);
    run = good;
    run.room[LS_ROOM_LANE] = good.room[0];
    d.twice.out.room = LS_ROOM_LANE; /* another room, but of the same buffer */
    ok(x.b->plan_run(x.device[0], d.plan[0], &run));
    ok(x.b->sync(x.device[0])); /* before the program changes */
    d.twice.out.offset = 0;
    MISUSED(&x, x.b->plan_run(x.device[0], d.plan[0], &run), "output 0 lies over input 0");
    MISUSED(&x, x.b->plan_run(x.device[0], d.plan[0], &good), "output 0 is in room 1, which has no memory");
    d.twice.out = whole(TWICE, 1);
    d.in_twice[1].room = LS_ROOM_PARTIALS;
    MISUSED(&x, x.b->plan_run(x.device[0], d.plan[0], &run), "input 1 is in room 2, which has no memory");
    end_doubling(&x, &d);
    close_bed(&x);
}

static void wrong_states_are_noticed(void **state)
{
    (void)state;
    bed x;
    update u;
    void *plan;
    open_bed(&x, (gpu_settings){ 0 });
    make_update(&x, &u);
    ls_program_run run = u.run;
    run.room[LS_ROOM_NEW_STATE] = run.room[LS_ROOM_STATE];
    MISUSED(&x, x.b->plan_run(x.device[0], u.plan, &run), "output 0 lies over state 0");
    run.room[LS_ROOM_NEW_STATE].offset = 32;
    MISUSED(&x, x.b->plan_run(x.device[0], u.plan, &run), "new state, from 32 to 104, lies over its state");
    run.room[LS_ROOM_NEW_STATE] = (ls_memory_place){ NULL, 0 };
    MISUSED(&x, x.b->plan_run(x.device[0], u.plan, &run), "room 4, which has no memory");
    run = u.run;
    run.room[LS_ROOM_NEW_STATE].memory = x.memory[1];
    MISUSED(&x, x.b->plan_run(x.device[0], u.plan, &run), "no buffer");
    u.step.out = u.new_state[1];
    MISUSED(&x, x.b->plan_run(x.device[0], u.plan, &u.run), "its output is not its new state 0");
    u.step.out = u.new_state[0];
    u.new_state[1].offset = 4;
    MISUSED(&x, x.b->plan_run(x.device[0], u.plan, &u.run), "new state 1 lies over new state 0");
    u.new_state[1] = in_room(LS_ROOM_STATE, 128);
    MISUSED(&x, x.b->plan_run(x.device[0], u.plan, &u.run), "room of the state that the run reads");
    x.b->plan_destroy(x.device[0], u.plan);
    u.step.state_count = 0;
    MISUSED(&x,
            x.b->plan_create(x.device[0], &(ls_program){ .steps = &u.step, .step_count = 1, .samples = 1, .lanes = 1 },
                             &plan),
            "0 values of state");
    close_bed(&x);
}

static void wrong_joins_are_noticed(void **state)
{
    (void)state;
    bed x;
    bool finite;
    open_bed(&x, (gpu_settings){ 0 });
    const ls_join_call good = { LS_JOIN_SUM, LS_F32, 4, at(&x, 0), at(&x, 64), at(&x, 128) };
    ls_join_call call = good;
    call.right.memory = x.memory[1];
    MISUSED(&x, x.b->join(x.device[0], &call), "no buffer");
    call = good;
    call.to.offset = BYTES - 8;
    MISUSED(&x, x.b->join(x.device[0], &call), "16 bytes at 4088");
    call.to.offset = 128;
    MISUSED(&x, x.b->join(x.device[0], &call), "over its right operand");
    call.to.offset = 72;
    MISUSED(&x, x.b->join(x.device[0], &call), "a part of its left operand");
    call = good;
    call.dtype = LS_BOOL;
    MISUSED(&x, x.b->join(x.device[0], &call), "4 elements of bool");
    MISUSED(&x, x.b->finite(x.device[0], LS_F64, at(&x, BYTES - 8), 2, &finite), "16 bytes at 4088");
    MISUSED(&x, x.b->finite(x.device[1], LS_F64, at(&x, 0), 2, &finite), "no buffer");
    ok(x.b->join(x.device[0], &good));
    close_bed(&x);
}

/* A thread waits in sync while another one calls. */
static void *sync_device(void *argument)
{
    bed *x = argument;
    return (void *)(intptr_t)x->b->sync(x->device[0]);
}

static void two_threads_at_once_are_noticed(void **state)
{
    (void)state;
    bed x;
    pthread_t thread;
    void *status;
    float number = 0;
    open_bed(&x, (gpu_settings){ 0 });
    gpu_hold(x.g, true);
    put(&x, 0, &number, 1);
    assert_int_equal(pthread_create(&thread, NULL, sync_device, &x), 0);
    while (gpu_counted(x.g).calls[GPU_SYNC] == 0)
        sched_yield();
    MISUSED(&x, x.b->upload(x.device[0], x.memory[0], 0, &number, 4), "two threads");
    ok(x.b->upload(x.device[1], x.memory[1], 0, &number, 4)); /* another device is another matter */
    gpu_hold(x.g, false);
    pthread_join(thread, &status);
    ok((ls_status)(intptr_t)status);
    put(&x, 0, &number, 1);
    close_bed(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_as_set),
        cmocka_unit_test(some_ops_are_denied),
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(the_host_cannot_touch_it),
        cmocka_unit_test(memory_is_limited),
        cmocka_unit_test(a_program_computes),
        cmocka_unit_test(samples_are_where_their_slots_say),
        cmocka_unit_test(random_numbers_know_their_sample),
        cmocka_unit_test(updates_read_one_state_and_write_the_other),
        cmocka_unit_test(partials_are_joined),
        cmocka_unit_test(joins_of_other_types),
        cmocka_unit_test(finite_looks_at_every_element),
        cmocka_unit_test(uploads_copy_at_once),
        cmocka_unit_test(work_is_done_in_order),
        cmocka_unit_test(a_full_queue_makes_callers_wait),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(copies_go_between_devices),
        cmocka_unit_test(copies_come_at_their_place),
        cmocka_unit_test(the_nth_call_fails),
        cmocka_unit_test(late_failures_are_reported_later),
        cmocka_unit_test(kernels_errors_name_their_node),
        cmocka_unit_test(calls_and_bytes_are_counted),
        cmocka_unit_test(wrong_bytes_are_noticed),
        cmocka_unit_test(wrong_programs_are_noticed),
        cmocka_unit_test(wrong_states_are_noticed),
        cmocka_unit_test(wrong_joins_are_noticed),
        cmocka_unit_test(two_threads_at_once_are_noticed),
    };
    return cmocka_run_group_tests_name("gpu", tests, NULL, NULL);
}
