/* Arenas: alignment, zeroing, mark and restore, and memory that stays flat. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#if __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define HAVE_OTHER_SANITIZER 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HAVE_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define HAVE_OTHER_SANITIZER 1
#endif

#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* Calls of malloc, where we can put ourselves before it (the sanitizers do so themselves). */
static size_t mallocs;

#if defined(__GLIBC__) && !defined(HAVE_ASAN) && !defined(HAVE_OTHER_SANITIZER)
#define CAN_COUNT 1
void *__libc_malloc(size_t bytes);

void *malloc(size_t bytes)
{
    mallocs++;
    return __libc_malloc(bytes);
}
#endif

static bool all_zero(const unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != 0)
            return false;
    return true;
}

static void memory_is_aligned_zeroed_and_apart(void **state)
{
    (void)state;
    ls_arena arena = { 0 };
    enum { COUNT = 3000 };
    static unsigned char *taken[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        size_t bytes = i % 97 + (i % 500 == 0 ? 5000 : 0) + (i == 1234 ? 3 << 20 : 0);
        taken[i] = ls_arena_alloc(&arena, bytes);
        assert_non_null(taken[i]);
        assert_int_equal((uintptr_t)taken[i] % _Alignof(max_align_t), 0);
        assert_true(all_zero(taken[i], bytes));
        memset(taken[i], (int)(i % 255) + 1, bytes);
    }
    for (size_t i = 0; i < COUNT; i++) {
        size_t bytes = i % 97 + (i % 500 == 0 ? 5000 : 0) + (i == 1234 ? 3 << 20 : 0);
        for (size_t j = 0; j < bytes; j++)
            if (taken[i][j] != i % 255 + 1)
                fail_msg("allocation %zu was overwritten by another", i);
    }
    assert_ptr_not_equal(ls_arena_alloc(&arena, 0), ls_arena_alloc(&arena, 0));
    ls_arena_free(&arena);
    assert_null(arena.top);
    ls_arena_free(&arena);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    ls_arena arena = { 0 };
    assert_null(ls_arena_alloc(&arena, SIZE_MAX));
    assert_null(ls_arena_alloc(&arena, SIZE_MAX - 8));
    assert_null(ls_arena_alloc(&arena, SIZE_MAX / 2 + 1));
    assert_non_null(ls_arena_alloc(&arena, 8)); /* and it works on */
    ls_arena_free(&arena);
}

static void strings_are_copied(void **state)
{
    (void)state;
    ls_arena arena = { 0 };
    char original[] = "g1/cross_entropy";
    char *copy = ls_arena_strdup(&arena, original);
    original[0] = 'x';
    assert_string_equal(copy, "g1/cross_entropy");
    assert_string_equal(ls_arena_strdup(&arena, ""), "");
    ls_arena_free(&arena);
}

static void restore_gives_back_what_came_after_the_mark(void **state)
{
    (void)state;
    ls_arena arena = { 0 };
    ls_arena_mark start = ls_arena_save(&arena);
    char *kept = ls_arena_strdup(&arena, "kept");
    ls_arena_mark mark = ls_arena_save(&arena);
    unsigned char *first = ls_arena_alloc(&arena, 100);
    memset(first, 0xee, 100);
    for (int i = 0; i < 1000; i++) /* over several blocks */
        memset(ls_arena_alloc(&arena, 100), 0xee, 100);
    ls_arena_mark inner = ls_arena_save(&arena);
    ls_arena_alloc(&arena, 2 << 20);
    ls_arena_restore(&arena, inner);
    ls_arena_restore(&arena, mark);
    assert_string_equal(kept, "kept");
    unsigned char *again = ls_arena_alloc(&arena, 100);
    assert_ptr_equal(again, first);
    assert_true(all_zero(again, 100)); /* zeroed although it was used before */
    ls_arena_restore(&arena, start);
    assert_null(arena.top);
    ls_arena_restore(&arena, start);
    ls_arena_free(&arena);
    assert_null(arena.spare);
}

/* Save, take `count` pieces, restore: over and over. */
static void cycles(ls_arena *arena, int times, int count, size_t bytes)
{
    for (int i = 0; i < times; i++) {
        ls_arena_mark mark = ls_arena_save(arena);
        for (int j = 0; j < count; j++)
            if (ls_arena_alloc(arena, bytes) == NULL)
                fail_msg("no memory in cycle %d", i);
        ls_arena_restore(arena, mark);
    }
}

static void a_million_cycles_call_malloc_only_at_first(void **state)
{
    (void)state;
    ls_arena fresh = { 0 }, filled = { 0 };
    for (int i = 0; i < 40; i++) /* nearly a block: each cycle must open the next */
        ls_arena_alloc(&filled, 100);
    cycles(&fresh, 10, 3, 200);
    cycles(&filled, 10, 3, 200);
    cycles(&filled, 10, 400, 100);
    cycles(&fresh, 10, 1, 5000); /* larger than the spare: it takes the spare's place */
    size_t before = mallocs;
    cycles(&fresh, 1000000, 3, 200);
    cycles(&filled, 1000000, 3, 200);
    cycles(&fresh, 10000, 1, 5000);
    cycles(&filled, 10000, 400, 100); /* over several blocks at first, one when the spare has grown */
    size_t after = mallocs;
    assert_int_equal(after - before, 0);
#ifdef CAN_COUNT
    assert_true(before > 0); /* else nothing was counted */
#endif
    ls_arena_free(&fresh);
    ls_arena_free(&filled);
}

static void a_huge_block_is_not_kept(void **state)
{
    (void)state;
    ls_arena arena = { 0 };
    ls_arena_alloc(&arena, 16);
    ls_arena_mark mark = ls_arena_save(&arena);
    ls_arena_alloc(&arena, 64 << 20);
    ls_arena_restore(&arena, mark);
    assert_null(arena.spare);
    ls_arena_alloc(&arena, 1 << 19);
    ls_arena_restore(&arena, mark);
    assert_non_null(arena.spare);
    ls_arena_free(&arena);
}

#ifdef HAVE_ASAN
static void the_sanitizer_sees_what_is_not_handed_out(void **state)
{
    (void)state;
    ls_arena arena = { 0 };
    ls_arena_mark start = ls_arena_save(&arena);
    char *first = ls_arena_alloc(&arena, 24);
    ls_arena_mark mark = ls_arena_save(&arena);
    char *second = ls_arena_alloc(&arena, 24);
    assert_false(__asan_address_is_poisoned(first + 23));
    assert_true(__asan_address_is_poisoned(first + 24));
    assert_true(__asan_address_is_poisoned(second + 24));
    ls_arena_restore(&arena, mark);
    assert_true(__asan_address_is_poisoned(second));
    assert_false(__asan_address_is_poisoned(first));
    ls_arena_restore(&arena, start);
    assert_true(__asan_address_is_poisoned(first)); /* the block is the spare now */
    ls_arena_free(&arena);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_zeroed_and_apart),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(strings_are_copied),
        cmocka_unit_test(restore_gives_back_what_came_after_the_mark),
        cmocka_unit_test(a_million_cycles_call_malloc_only_at_first),
        cmocka_unit_test(a_huge_block_is_not_kept),
#ifdef HAVE_ASAN
        cmocka_unit_test(the_sanitizer_sees_what_is_not_handed_out),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
