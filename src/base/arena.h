/* Memory that is freed all at once, or back to a mark in stack order. */
#ifndef LS_BASE_ARENA_H
#define LS_BASE_ARENA_H

#include <stddef.h>

typedef struct ls_arena_block ls_arena_block;

/* Initialize with zeros: ls_arena a = { 0 }; */
typedef struct ls_arena {
    ls_arena_block *top; /* current block; the blocks below it are full */
    /* Block that ls_arena_restore kept, so that a loop of save and restore does not call malloc. */
    ls_arena_block *spare;
} ls_arena;

typedef struct ls_arena_mark {
    ls_arena_block *block;
    size_t used;
} ls_arena_mark;

/* Returns zeroed memory aligned for any type, also for 0 bytes; NULL, without an error message, if
 * there is none. */
void *ls_arena_alloc(ls_arena *arena, size_t bytes);
char *ls_arena_strdup(ls_arena *arena, const char *text);

ls_arena_mark ls_arena_save(const ls_arena *arena);
/* Frees everything allocated since the mark. */
void ls_arena_restore(ls_arena *arena, ls_arena_mark mark);
void ls_arena_free(ls_arena *arena); /* the arena can be used again */

#endif
