/* The memory of a device: where blocks lie, what regions are taken and given back, limits, sums,
 * messages, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/philox.h"
#include "base/poison.h"
#include "check.h"
#include "device/memory.h"

/* ---- A source that counts, and fails when told to ---- */

#define MOST_REGIONS 4096

typedef struct counter {
    bool failing;
    int calls, failures, count; /* count: regions that are out */
    size_t bytes, most;         /* out now; the most a region may have, 0: anything */
    struct {
        char *at;
        size_t bytes;
    } regions[MOST_REGIONS];
} counter;

static ls_status counted_take(void *device, size_t bytes, void **region)
{
    counter *c = device;
    c->calls++;
    if (c->failing || (c->most > 0 && c->bytes + bytes > c->most)) {
        c->failures++;
        return ls_fail(LS_ERR_DEVICE, "the bus is on fire");
    }
    char *at = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(at);
    assert_true(c->count < MOST_REGIONS);
    c->regions[c->count].at = at;
    c->regions[c->count++].bytes = bytes;
    c->bytes += bytes;
    *region = at;
    return LS_OK;
}

static void counted_give(void *device, void *region, size_t bytes)
{
    counter *c = device;
    int i = 0;
    while (i < c->count && c->regions[i].at != region)
        i++;
    assert_true(i < c->count);
    assert_int_equal(c->regions[i].bytes, bytes);
    c->regions[i] = c->regions[--c->count];
    c->bytes -= bytes;
    free(region);
}

static counter counted; /* the running test's */

static ls_memory *open_counted(size_t limit, bool growth)
{
    memset(&counted, 0, sizeof(counted));
    ls_region_source source = { &counted, counted_take, counted_give, true };
    ls_memory *memory = NULL;
    assert_int_equal(ls_memory_open("GPU:1", source, limit, growth, &memory), LS_OK);
    return memory;
}

static void close_counted(ls_memory *memory)
{
    ls_memory_close(memory);
    assert_int_equal(counted.count, 0); /* every region was given back */
    assert_int_equal(counted.bytes, 0);
}

static ls_block *take(ls_memory *memory, size_t bytes, const char *what)
{
    ls_block *block = NULL;
    ls_status status = ls_memory_take(memory, bytes, what, &block);
    if (status != LS_OK)
        fail_msg("%zu bytes are refused: %s", bytes, ls_last_error());
    assert_int_equal(block->offset % 64, 0);
    assert_int_equal(block->bytes, bytes);
    return block;
}

static void refused(ls_memory *memory, size_t bytes)
{
    ls_block *block = NULL;
    ls_memory_info before = ls_memory_usage(memory);
    assert_int_equal(ls_memory_take(memory, bytes, "much", &block), LS_ERR_MEMORY);
    assert_null(block);
    assert_int_equal(ls_memory_usage(memory).in_use, before.in_use);
    assert_int_equal(ls_memory_usage(memory).peak, before.peak);
}

static void check_usage(ls_memory *memory, size_t in_use, size_t peak, size_t reserved)
{
    ls_memory_info info = ls_memory_usage(memory);
    assert_int_equal(info.in_use, in_use);
    assert_int_equal(info.peak, peak);
    assert_int_equal(info.reserved, reserved);
    assert_int_equal(counted.bytes, reserved);
}

static char *address(const ls_block *block)
{
    return (char *)block->region + block->offset;
}

/* ---- Regions ---- */

static void a_limit_is_reserved_at_opening(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(LS_MIB(3) + 100, false);
    check_usage(memory, 0, 0, LS_MIB(3) + 64);
    assert_int_equal(ls_memory_usage(memory).limit, LS_MIB(3) + 100);
    assert_int_equal(ls_memory_available(memory), LS_MIB(3) + 64);
    ls_block *all = take(memory, LS_MIB(3) + 64, "all");
    assert_int_equal(ls_memory_available(memory), 0);
    refused(memory, 1);
    ls_memory_give(memory, all);
    refused(memory, LS_MIB(3) + 65);
    ls_memory_give(memory, take(memory, LS_MIB(2), "some"));
    check_usage(memory, 0, LS_MIB(3) + 64, LS_MIB(3) + 64);
    assert_int_equal(counted.calls, 1);
    close_counted(memory);
}

static void a_limit_below_one_block(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(63, false);
    check_usage(memory, 0, 0, 0);
    assert_int_equal(ls_memory_available(memory), 0);
    refused(memory, 1);
    assert_int_equal(counted.calls, 0);
    close_counted(memory);
}

static void small_blocks_share_a_region_large_ones_have_their_own(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(0, true);
    check_usage(memory, 0, 0, 0);
    ls_block *a = take(memory, 1000, "a"), *b = take(memory, 0, "b"), *c = take(memory, LS_MIB(1) - 4096, "c");
    assert_ptr_equal(a->region, b->region);
    assert_ptr_equal(a->region, c->region);
    check_usage(memory, 1024 + 64 + LS_MIB(1) - 4096, 1024 + 64 + LS_MIB(1) - 4096, LS_MIB(1));
    ls_block *large = take(memory, LS_MIB(1), "large"), *odd = take(memory, LS_MIB(5) + 1, "odd");
    assert_int_equal(counted.bytes, LS_MIB(7) + 4096);
    assert_int_equal(large->offset, 0);
    assert_int_equal(odd->offset, 0);
    assert_int_equal(ls_memory_available(memory), SIZE_MAX);
    ls_memory_give(memory, odd);
    ls_memory_give(memory, take(memory, LS_MIB(5) + 4096, "again")); /* regions are kept */
    assert_int_equal(counted.calls, 3);
    ls_memory_give(memory, NULL);
    close_counted(memory); /* with blocks that are still out */
}

static void the_smallest_hole_that_fits_is_taken(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(LS_MIB(4), false);
    static const size_t sizes[] = { 8192, 320, 1 << 20, 8256, 256, 8320, 300000 };
    ls_block *holes[LENGTH(sizes)];
    size_t offsets[LENGTH(sizes)];
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        holes[i] = take(memory, sizes[i], "hole");
        offsets[i] = holes[i]->offset;
        take(memory, 64, "fence");
    }
    for (size_t i = 0; i < LENGTH(sizes); i++)
        ls_memory_give(memory, holes[i]);
    static const struct {
        size_t bytes, hole;
    } rows[] = { { 8250, 3 }, { 8300, 5 }, { 257, 1 }, { 250000, 6 }, { 200, 4 }, { 321, 0 }, { 100000, 2 } };
    for (size_t i = 0; i < LENGTH(rows); i++)
        assert_int_equal(take(memory, rows[i].bytes, "filled")->offset, offsets[rows[i].hole]);
    close_counted(memory);
}

static void neighbours_become_one_hole(void **state)
{
    (void)state;
    static const int orders[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 } };
    for (size_t i = 0; i < LENGTH(orders); i++) {
        ls_memory *memory = open_counted(4 * 64, false);
        ls_block *blocks[3];
        take(memory, 64, "fence"); /* the region stays in use */
        for (int k = 0; k < 3; k++)
            blocks[k] = take(memory, 64, "third");
        refused(memory, 1);
        for (int k = 0; k < 3; k++)
            ls_memory_give(memory, blocks[orders[i][k]]);
        assert_int_equal(ls_memory_available(memory), 3 * 64);
        take(memory, 3 * 64, "all");
        close_counted(memory);
    }
}

/* ---- Limits with growth ---- */

/* A region that small blocks share: a page more than a 64th of the limit. */
static size_t shared(size_t limit)
{
    return (limit / 64 / 4096 + 1) * 4096;
}

static void growth_stays_within_the_limit(void **state)
{
    (void)state;
    const size_t limit = LS_MIB(2) + 192;
    ls_memory *memory = open_counted(limit, true);
    check_usage(memory, 0, 0, 0);
    take(memory, LS_MIB(1) + 64, "large"); /* a page more is reserved: 4032 bytes are a hole */
    check_usage(memory, LS_MIB(1) + 64, LS_MIB(1) + 64, LS_MIB(1) + 4096);
    assert_int_equal(ls_memory_available(memory), LS_MIB(1) + 192 - 4096 - shared(limit));
    take(memory, 64, "small");
    assert_int_equal(counted.bytes, LS_MIB(1) + 4096 + shared(limit));
    assert_int_equal(ls_memory_available(memory),
                     LS_MIB(1) + 192 - 4096 - shared(limit));               /* as before: it is there now */
    take(memory, LS_MIB(1) + 192 - 4096 - shared(limit), "the rest of it"); /* less than whole pages: all there is */
    assert_int_equal(counted.bytes, limit);
    refused(memory, shared(limit) - 63);
    take(memory, shared(limit) - 64, "the last"); /* not small, but nothing else is left */
    take(memory, 4032, "the very last");
    refused(memory, 0);
    assert_int_equal(ls_memory_usage(memory).in_use, limit);
    assert_int_equal(counted.calls, 3);
    close_counted(memory);
}

static void an_unused_region_makes_way_for_a_larger_one(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(LS_MIB(10), true);
    ls_block *four = take(memory, LS_MIB(4), "four"), *three = take(memory, LS_MIB(3), "three");
    ls_block *used = take(memory, LS_MIB(2), "used");
    refused(memory, LS_MIB(2));
    ls_memory_give(memory, four);
    assert_int_equal(counted.count, 3); /* kept for later */
    refused(memory, LS_MIB(5) + 1);
    assert_int_equal(counted.count, 3); /* memory that would not help is not returned */
    ls_block *five = take(memory, LS_MIB(5), "five");
    assert_int_equal(counted.count, 3);
    check_usage(memory, LS_MIB(10), LS_MIB(10), LS_MIB(10));
    ls_memory_give(memory, five);
    ls_memory_give(memory, three);
    memset(address(used), 1, used->bytes);              /* it is still there */
    ls_block *eight = take(memory, LS_MIB(8), "eight"); /* both make way */
    check_usage(memory, LS_MIB(10), LS_MIB(10), LS_MIB(10));
    assert_int_equal(counted.count, 2);
    ls_memory_give(memory, eight);
    take(memory, 64, "small"); /* in a region of its own, for which the large one makes way */
    refused(memory, LS_MIB(8) - shared(LS_MIB(10)) + 1);
    close_counted(memory);
}

/* Small blocks do not use the rest of a large block's page: they would keep the region from being
 * returned. */
static void small_blocks_hold_no_large_region(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(LS_MIB(10), true);
    ls_block *large = take(memory, LS_MIB(6) + 64, "large");
    take(memory, 64, "small");
    ls_memory_give(memory, large);
    take(memory, 64, "another");
    take(memory, LS_MIB(10) - shared(LS_MIB(10)), "larger");
    close_counted(memory);
}

static void only_as_many_regions_as_needed_are_given_back(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(LS_MIB(8), true);
    ls_block *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = take(memory, LS_MIB(2), "two");
    for (int i = 0; i < 4; i++)
        ls_memory_give(memory, blocks[i]);
    take(memory, LS_MIB(4), "four");
    check_usage(memory, LS_MIB(4), LS_MIB(8), LS_MIB(8));
    assert_int_equal(counted.count, 3);
    close_counted(memory);
}

/* ---- Failing ---- */

static void has_words(const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strstr(ls_last_error(), words[i]))
            fail_msg("the message has no '%s': %s", words[i], ls_last_error());
}

static void the_message_of_a_limit(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(LS_MIB(8), false);
    take(memory, LS_MIB(3), "kernel");
    ls_block *block = NULL;
    assert_int_equal(ls_memory_take(memory, LS_MIB(12) + LS_MIB(1) / 2, "dense/kernel", &block), LS_ERR_MEMORY);
    assert_string_equal(ls_last_error(), "GPU:1 has no memory for dense/kernel, 12.50 MiB: in use 3.00 MiB, reserved "
                                         "8.00 MiB, limit 8.00 MiB; the largest free block has 5.00 MiB");
    close_counted(memory);
}

static void a_failing_source(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(0, false);
    ls_block *block = take(memory, LS_MIB(2), "kernel");
    counted.failing = true;
    refused(memory, LS_MIB(3));
    static const char *const words[] = { "GPU:1",    "for much, 3.00 MiB", "in use 2.00 MiB", "reserved 2.00 MiB",
                                         "no limit", "the bus is on fire" };
    has_words(words, LENGTH(words));
    check_usage(memory, LS_MIB(2), LS_MIB(2), LS_MIB(2));
    assert_int_equal(counted.failures, 1);
    counted.failing = false;
    ls_memory_give(memory, block);
    take(memory, LS_MIB(3), "now");
    check_usage(memory, LS_MIB(3), LS_MIB(3), LS_MIB(5));
    close_counted(memory);
}

static void a_full_device_gets_unused_regions_back(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(0, true);
    counted.most = LS_MIB(8);
    ls_block *used = take(memory, LS_MIB(2), "used"), *unused = take(memory, LS_MIB(4), "unused");
    ls_memory_give(memory, unused);
    take(memory, LS_MIB(6), "six");
    assert_int_equal(counted.failures, 1);
    check_usage(memory, LS_MIB(8), LS_MIB(8), LS_MIB(8));
    memset(address(used), 1, used->bytes);
    refused(memory, LS_MIB(1));
    close_counted(memory);
}

static void opening_fails_with_the_source(void **state)
{
    (void)state;
    memset(&counted, 0, sizeof(counted));
    counted.failing = true;
    ls_region_source source = { &counted, counted_take, counted_give, true };
    ls_memory *memory = NULL;
    assert_int_equal(ls_memory_open("GPU:1", source, LS_MIB(8), false, &memory), LS_ERR_MEMORY);
    assert_null(memory);
    static const char *const words[] = { "GPU:1", "8.00 MiB", "reserved 0.00 MiB", "limit 8.00 MiB", "on fire" };
    has_words(words, LENGTH(words));
    ls_memory_close(NULL);
}

static void sizes_that_cannot_be(void **state)
{
    (void)state;
    static const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2 + 1, ((size_t)1 << 62) + 1 };
    for (int limited = 0; limited < 2; limited++) {
        ls_memory *memory = open_counted(limited ? SIZE_MAX : 0, true);
        for (size_t i = 0; i < LENGTH(sizes); i++)
            refused(memory, sizes[i]);
        assert_int_equal(counted.calls, 0);
        take(memory, 64, "small");
        close_counted(memory);
    }
    ls_memory *memory = NULL;
    assert_int_equal(ls_memory_open("CPU:0", ls_region_host(), SIZE_MAX, false, &memory), LS_ERR_MEMORY);
    assert_null(memory);
    assert_int_equal(ls_memory_open("CPU:0", ls_region_host(), 0, true, &memory), LS_OK);
    refused(memory, (size_t)1 << 62);
    assert_non_null(strstr(ls_last_error(), "Cannot allocate memory")); /* the system's error */
    ls_memory_close(memory);
}

/* ---- Host memory ---- */

static void host_regions_are_aligned_and_zero(void **state)
{
    (void)state;
    ls_region_source host = ls_region_host();
    static const size_t sizes[] = { 64, 5000, LS_MIB(1), LS_MIB(2), LS_MIB(2) + 64, LS_MIB(9) + 4096 };
    void *regions[LENGTH(sizes)];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < LENGTH(sizes); i++) {
            assert_int_equal(host.take(host.device, sizes[i], &regions[i]), LS_OK);
            assert_int_equal((uintptr_t)regions[i] % (sizes[i] < LS_MIB(2) ? 4096 : LS_MIB(2)), 0);
            for (size_t k = 0; k < sizes[i]; k += 64)
                assert_int_equal(((char *)regions[i])[k], 0);
            memset(regions[i], 1, sizes[i]);
        }
        for (size_t i = 0; i < LENGTH(sizes); i++)
            host.give(host.device, regions[i], sizes[i]);
    }
}

static size_t mapped_bytes(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu", &pages), 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void host_regions_are_given_back_whole(void **state)
{
    (void)state;
    ls_region_source host = ls_region_host();
    size_t before = mapped_bytes();
    for (int i = 0; i < 1000; i++) {
        void *region;
        assert_int_equal(host.take(host.device, LS_MIB(3) + 4096, &region), LS_OK);
        host.give(host.device, region, LS_MIB(3) + 4096);
    }
    assert_true(mapped_bytes() < before + LS_MIB(100)); /* others of the process may map a little */
}

#ifdef LS_HAVE_ASAN
static void the_sanitizer_sees_what_is_free(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(LS_MIB(1), false);
    ls_block *a = take(memory, 100, "a"), *b = take(memory, 100, "b");
    char *at = address(a), *other = address(b);
    assert_false(__asan_address_is_poisoned(at + 99));
    assert_true(__asan_address_is_poisoned(at + 100));
    assert_true(__asan_address_is_poisoned(other + 128));
    ls_memory_give(memory, a);
    assert_true(__asan_address_is_poisoned(at));
    assert_false(__asan_address_is_poisoned(other));
    ls_memory_give(memory, b);
    assert_true(__asan_address_is_poisoned(other));
    close_counted(memory);
}
#endif

/* No byte of a region that is only a handle may be touched: here it is the address of something
 * else. */
static char something_else[64];

static ls_status take_handle(void *device, size_t bytes, void **region)
{
    (void)device, (void)bytes;
    *region = something_else;
    return LS_OK;
}

static void give_handle(void *device, void *region, size_t bytes)
{
    (void)device, (void)bytes;
    assert_ptr_equal(region, something_else);
}

static void a_region_may_be_a_handle(void **state)
{
    (void)state;
    ls_memory *memory = NULL;
    ls_region_source source = { .take = take_handle, .give = give_handle };
    assert_int_equal(ls_memory_open("GPU:0", source, LS_MIB(1024), false, &memory), LS_OK);
    something_else[63] = 1; /* the address sanitizer would report it */
    ls_block *a = take(memory, 100, "a"), *b = take(memory, 100, "b");
    assert_ptr_equal(b->region, something_else);
    ls_memory_give(memory, a);
    ls_memory_give(memory, b);
    something_else[0] = 1;
    assert_int_equal(ls_memory_available(memory), LS_MIB(1024));
    ls_memory_close(memory);
}

/* ---- Printing ---- */

static void what_is_in_use_is_printed_by_name(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(0, true);
    ls_text text = { 0 };
    assert_int_equal(ls_memory_print(memory, &text), LS_OK);
    assert_string_equal(ls_text_get(&text), "");
    char name[] = "dense/kernel"; /* copied */
    take(memory, LS_MIB(6), name);
    take(memory, LS_MIB(6) + LS_MIB(1) / 2, name);
    name[0] = 'X';
    take(memory, LS_MIB(12), "a plan");
    take(memory, LS_MIB(3), "b");
    take(memory, LS_MIB(3), "a");
    ls_memory_give(memory, take(memory, LS_MIB(100), "gone"));
    assert_int_equal(ls_memory_print(memory, &text), LS_OK);
    assert_string_equal(ls_text_get(&text), "  12.50 MiB dense/kernel\n"
                                            "  12.00 MiB a plan\n"
                                            "   3.00 MiB a\n"
                                            "   3.00 MiB b\n");
    ls_text_free(&text);
    close_counted(memory);
}

/* ---- A long random life, beside a model of it ---- */

#define SOAK_BLOCKS 3000
#define SOAK_STEPS  100000

typedef struct shadow {
    ls_block *block;
    size_t bytes;
    unsigned char mark;
} shadow;

/* Mostly small; some of a few pages, a few of their own region. */
static size_t soak_bytes(const uint32_t *word)
{
    if (word[1] % 1000 == 0)
        return word[2] % LS_MIB(3);
    if (word[1] % 10 == 0)
        return word[2] % 100000;
    return word[2] % 2000;
}

static void check_contents(const shadow *s)
{
    const unsigned char *at = (unsigned char *)address(s->block);
    assert_int_equal(s->block->bytes, s->bytes);
    for (size_t i = 0; i < s->bytes; i += i + 64 < s->bytes ? 61 : 1) /* some of the middle, all of the end */
        if (at[i] != s->mark)
            fail_msg("byte %zu of a block of %zu was overwritten", i, s->bytes);
}

static int by_address(const void *a, const void *b)
{
    const shadow *x = a, *y = b;
    uintptr_t p = x->block ? (uintptr_t)address(x->block) : 0, q = y->block ? (uintptr_t)address(y->block) : 0;
    return (p > q) - (p < q);
}

static void check_region_has(const ls_block *block, size_t size)
{
    for (int i = 0; i < counted.count; i++)
        if (counted.regions[i].at == block->region) {
            assert_true(block->offset + size <= counted.regions[i].bytes);
            return;
        }
    fail_msg("a block in no region");
}

/* Everything about all blocks at once: no two overlap, sums are right. */
static void check_all(ls_memory *memory, const shadow *blocks, size_t limit)
{
    static shadow sorted[SOAK_BLOCKS];
    size_t in_use = 0;
    uintptr_t end = 0;
    memcpy(sorted, blocks, sizeof(sorted));
    qsort(sorted, SOAK_BLOCKS, sizeof(*sorted), by_address);
    for (size_t i = 0; i < SOAK_BLOCKS; i++) {
        if (!sorted[i].block)
            continue;
        size_t size = (sorted[i].bytes + (sorted[i].bytes == 0) + 63) / 64 * 64;
        uintptr_t at = (uintptr_t)address(sorted[i].block);
        assert_true(at >= end);
        assert_int_equal(at % 64, 0);
        check_region_has(sorted[i].block, size);
        check_contents(&sorted[i]);
        end = at + size;
        in_use += size;
    }
    ls_memory_info info = ls_memory_usage(memory);
    assert_int_equal(info.in_use, in_use);
    assert_true(info.peak >= in_use && info.reserved >= in_use);
    assert_int_equal(info.reserved, counted.bytes);
    assert_true(limit == 0 || info.reserved <= limit);
}

/* Takes a block. False: there was no room. */
static bool soak_take(ls_memory *memory, shadow *s, const uint32_t *word)
{
    *s = (shadow){ .bytes = soak_bytes(word), .mark = (unsigned char)word[3] };
    size_t room = ls_memory_available(memory);
    ls_status status = ls_memory_take(memory, s->bytes, "soak", &s->block);
    if (s->bytes <= room && room > 0) /* room is no promise too much */
        assert_int_equal(status, LS_OK);
    else if (status != LS_OK)
        assert_int_equal(status, LS_ERR_MEMORY);
    if (status == LS_OK)
        memset(address(s->block), s->mark, s->bytes);
    return status == LS_OK;
}

static void soak(size_t limit, bool growth, uint32_t seed, bool fills)
{
    static shadow blocks[SOAK_BLOCKS];
    memset(blocks, 0, sizeof(blocks));
    ls_memory *memory = open_counted(limit, growth);
    ls_philox_key key = ls_random_key(seed, LS_RANDOM_TEST, 0, 0);
    int refusals = 0;
    for (uint32_t i = 0; i < SOAK_STEPS; i++) {
        ls_philox_block random = ls_random_block(key, 0, 0, i);
        shadow *s = &blocks[random.word[0] % SOAK_BLOCKS];
        if (s->block) {
            check_contents(s);
            ls_memory_give(memory, s->block);
            s->block = NULL;
        } else {
            refusals += !soak_take(memory, s, random.word);
        }
        if (i % 5000 == 0)
            check_all(memory, blocks, limit);
    }
    check_all(memory, blocks, limit);
    assert_true(fills ? refusals > 100 && refusals < SOAK_STEPS / 4 : refusals == 0);
    for (size_t i = 0; i < SOAK_BLOCKS; i++)
        ls_memory_give(memory, blocks[i].block);

    /* One hole in each region: each can be taken as a whole, and then nothing is left without a new
     * one. */
    assert_int_equal(ls_memory_usage(memory).in_use, 0);
    int calls = counted.calls, regions = counted.count;
    for (int i = 0; i < regions; i++)
        assert_int_equal(take(memory, counted.regions[i].bytes, "whole")->offset, 0);
    assert_int_equal(counted.calls, calls);
    assert_int_equal(ls_memory_usage(memory).in_use, ls_memory_usage(memory).reserved);
    close_counted(memory);
}

static void a_long_life_without_a_limit(void **state)
{
    (void)state;
    soak(0, true, 1, false);
}

static void a_long_life_in_one_region(void **state)
{
    (void)state;
    soak(LS_MIB(8) + 64, false, 2, true);
}

static void a_long_life_of_growth_within_a_limit(void **state)
{
    (void)state;
    soak(LS_MIB(9) + 192, true, 3, true);
}

/* ---- Threads ---- */

#define THREADS      2
#define THREAD_STEPS 20000

typedef struct thread_life {
    ls_memory *memory;
    unsigned char mark;
    bool bad;
} thread_life;

/* No cmocka here: it belongs to the first thread. */
static void *live(void *argument)
{
    thread_life *life = argument;
    ls_block *blocks[50] = { 0 };
    for (uint32_t i = 0; i < THREAD_STEPS; i++) {
        ls_block **at = &blocks[i * 2654435761u % LENGTH(blocks)];
        if (*at) {
            for (size_t k = 0; k < (*at)->bytes; k += 61)
                life->bad |= address(*at)[k] != (char)life->mark;
            ls_memory_give(life->memory, *at);
            *at = NULL;
        } else if (ls_memory_take(life->memory, i % 100 == 0 ? LS_MIB(1) : i * 40503u % 5000, "life", at) == LS_OK) {
            memset(address(*at), life->mark, (*at)->bytes);
        }
        if (i % 1000 == 0) {
            ls_text text = { 0 };
            life->bad |= ls_memory_print(life->memory, &text) != LS_OK;
            ls_text_free(&text);
            ls_memory_info info = ls_memory_usage(life->memory);
            life->bad |= info.in_use > info.reserved || info.reserved > info.limit ||
                         ls_memory_available(life->memory) > info.limit;
        }
    }
    for (size_t i = 0; i < LENGTH(blocks); i++)
        ls_memory_give(life->memory, blocks[i]);
    return NULL;
}

static void threads_share_a_memory(void **state)
{
    (void)state;
    ls_memory *memory = open_counted(LS_MIB(4), true);
    pthread_t threads[THREADS];
    thread_life lives[THREADS];
    for (int i = 0; i < THREADS; i++) {
        lives[i] = (thread_life){ .memory = memory, .mark = (unsigned char)(i + 1) };
        assert_int_equal(pthread_create(&threads[i], NULL, live, &lives[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(lives[i].bad);
    }
    assert_int_equal(ls_memory_usage(memory).in_use, 0);
    close_counted(memory);
}

/* While a region is being taken nothing is given back: the books are one thread's at a time. */
static struct {
    ls_memory *memory;
    ls_block *block;
    pthread_t thread;
    atomic_bool given;
    bool started, given_meanwhile;
} meanwhile;

static void *give_block(void *unused)
{
    (void)unused;
    ls_memory_give(meanwhile.memory, meanwhile.block);
    atomic_store(&meanwhile.given, true);
    return NULL;
}

/* Another thread tries to give a block back while this call is on. It has 50 ms to do the wrong
 * thing. */
static ls_status slow_take(void *device, size_t bytes, void **region)
{
    (void)device;
    if (meanwhile.block && !meanwhile.started) {
        meanwhile.started = pthread_create(&meanwhile.thread, NULL, give_block, NULL) == 0;
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        meanwhile.given_meanwhile = atomic_load(&meanwhile.given);
    }
    *region = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *region ? LS_OK : ls_fail(LS_ERR_MEMORY, "none");
}

static void slow_give(void *device, void *region, size_t bytes)
{
    (void)device, (void)bytes;
    free(region);
}

static void giving_waits_for_its_turn(void **state)
{
    (void)state;
    ls_region_source source = { .take = slow_take, .give = slow_give, .host = true };
    ls_block *second = NULL;
    assert_int_equal(ls_memory_open("slow", source, 0, true, &meanwhile.memory), LS_OK);
    assert_int_equal(ls_memory_take(meanwhile.memory, LS_MIB(2), "first", &meanwhile.block), LS_OK);
    assert_int_equal(ls_memory_take(meanwhile.memory, LS_MIB(4), "second", &second), LS_OK);
    assert_true(meanwhile.started);
    pthread_join(meanwhile.thread, NULL);
    assert_false(meanwhile.given_meanwhile);
    assert_int_equal(ls_memory_usage(meanwhile.memory).in_use, LS_MIB(4));
    ls_memory_give(meanwhile.memory, second);
    ls_memory_close(meanwhile.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_is_reserved_at_opening),
        cmocka_unit_test(a_limit_below_one_block),
        cmocka_unit_test(small_blocks_share_a_region_large_ones_have_their_own),
        cmocka_unit_test(the_smallest_hole_that_fits_is_taken),
        cmocka_unit_test(neighbours_become_one_hole),
        cmocka_unit_test(growth_stays_within_the_limit),
        cmocka_unit_test(an_unused_region_makes_way_for_a_larger_one),
        cmocka_unit_test(small_blocks_hold_no_large_region),
        cmocka_unit_test(only_as_many_regions_as_needed_are_given_back),
        cmocka_unit_test(the_message_of_a_limit),
        cmocka_unit_test(a_failing_source),
        cmocka_unit_test(a_full_device_gets_unused_regions_back),
        cmocka_unit_test(opening_fails_with_the_source),
        cmocka_unit_test(sizes_that_cannot_be),
        cmocka_unit_test(host_regions_are_aligned_and_zero),
        cmocka_unit_test(host_regions_are_given_back_whole),
#ifdef LS_HAVE_ASAN
        cmocka_unit_test(the_sanitizer_sees_what_is_free),
#endif
        cmocka_unit_test(a_region_may_be_a_handle),
        cmocka_unit_test(what_is_in_use_is_printed_by_name),
        cmocka_unit_test(a_long_life_without_a_limit),
        cmocka_unit_test(a_long_life_in_one_region),
        cmocka_unit_test(a_long_life_of_growth_within_a_limit),
        cmocka_unit_test(threads_share_a_memory),
        cmocka_unit_test(giving_waits_for_its_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
