/* Arenas: a stack of blocks that double in size. Under the address sanitizer unallocated memory is
 * poisoned and a gap follows each allocation, so that reading past one, or after a restore, is
 * reported. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/poison.h"
#include "base/size.h"

#ifdef LS_HAVE_ASAN
#define GAP 16
#else
#define GAP 0
#endif

#define ALIGNMENT     _Alignof(max_align_t)
#define FIRST_BLOCK   ((size_t)4096)
#define LARGEST_BLOCK ((size_t)1 << 20) /* single requests may be larger */

struct ls_arena_block {
    ls_arena_block *below;
    size_t bytes; /* size of data */
    size_t used;
    _Alignas(max_align_t) unsigned char data[];
};

static void block_free(ls_arena_block *block)
{
    if (block == NULL)
        return;
    LS_UNPOISON(block->data, block->bytes);
    free(block);
}

/* Returns the spare if it is large enough, otherwise a new block of twice the size of the top. */
static ls_arena_block *block_for(ls_arena *arena, size_t bytes)
{
    ls_arena_block *spare = arena->spare;
    if (spare != NULL && spare->bytes >= bytes) {
        arena->spare = NULL;
        return spare;
    }
    size_t size = FIRST_BLOCK;
    if (arena->top != NULL)
        size = arena->top->bytes >= LARGEST_BLOCK / 2 ? LARGEST_BLOCK : arena->top->bytes * 2;
    if (size < bytes)
        size = bytes;
    size_t total;
    if (!ls_size_add(sizeof(ls_arena_block), size, &total))
        return NULL;
    ls_arena_block *block = malloc(total);
    if (block == NULL)
        return NULL;
    block->bytes = size;
    LS_POISON(block->data, block->bytes);
    return block;
}

void *ls_arena_alloc(ls_arena *arena, size_t bytes)
{
    if (bytes == 0)
        bytes = 1; /* so that all pointers differ */
    if (bytes > SIZE_MAX / 2)
        return NULL;
    size_t taken = ls_size_align(bytes, ALIGNMENT) + GAP;
    ls_arena_block *top = arena->top;
    if (top == NULL || top->bytes - top->used < taken) {
        ls_arena_block *block = block_for(arena, taken);
        if (block == NULL)
            return NULL;
        block->below = top;
        block->used = 0;
        arena->top = top = block;
    }
    void *memory = top->data + top->used;
    top->used += taken;
    LS_UNPOISON(memory, bytes);
    return memset(memory, 0, bytes);
}

char *ls_arena_strdup(ls_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = ls_arena_alloc(arena, bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

ls_arena_mark ls_arena_save(const ls_arena *arena)
{
    return (ls_arena_mark){ arena->top, arena->top == NULL ? 0 : arena->top->used };
}

/* Keeps the largest ordinary block as the spare, so that repeating the same work needs no
 * malloc. */
static void block_retire(ls_arena *arena, ls_arena_block *block)
{
    ls_arena_block *unwanted = block;
    if (block->bytes <= LARGEST_BLOCK && (arena->spare == NULL || arena->spare->bytes < block->bytes)) {
        unwanted = arena->spare;
        arena->spare = block;
        LS_POISON(block->data, block->bytes);
    }
    block_free(unwanted);
}

void ls_arena_restore(ls_arena *arena, ls_arena_mark mark)
{
    while (arena->top != NULL && arena->top != mark.block) {
        ls_arena_block *block = arena->top;
        arena->top = block->below;
        block_retire(arena, block);
    }
    if (arena->top != NULL) {
        arena->top->used = mark.used;
        LS_POISON(arena->top->data + mark.used, arena->top->bytes - mark.used);
    }
}

void ls_arena_free(ls_arena *arena)
{
    while (arena->top != NULL) {
        ls_arena_block *block = arena->top;
        arena->top = block->below;
        block_free(block);
    }
    block_free(arena->spare);
    arena->spare = NULL;
}
