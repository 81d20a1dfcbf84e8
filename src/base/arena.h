/* An arena hands out memory that is given back all at once, or back to a mark (last taken, first returned). */
#ifndef LS_BASE_ARENA_H
#define LS_BASE_ARENA_H

#include <stddef.h>

typedef struct ls_arena_block ls_arena_block;

/* A fresh arena is all zeros: ls_arena a = { 0 }; */
typedef struct ls_arena {
    ls_arena_block *top;   /* blocks below it are full; NULL in a fresh arena */
    ls_arena_block *spare; /* one block kept by ls_arena_restore, so that a loop of save and restore need not malloc */
} ls_arena;

typedef struct ls_arena_mark {
    ls_arena_block *block;
    size_t used;
} ls_arena_mark;

/* Zeroed memory aligned for any type, or NULL when the system has none (the caller reports it). Zero bytes give a
 * pointer too. */
void *ls_arena_alloc(ls_arena *arena, size_t bytes);
char *ls_arena_strdup(ls_arena *arena, const char *text);

ls_arena_mark ls_arena_save(const ls_arena *arena);
void ls_arena_restore(ls_arena *arena, ls_arena_mark mark); /* frees everything taken since the mark */
void ls_arena_free(ls_arena *arena);                        /* the arena is fresh again */

#endif
