/* Allocator for the memory of one device. A region is a sequence of pieces, each a block or a hole;
 * holes are never adjacent, and listed by size class for a quick best fit. The bookkeeping is
 * outside of the regions, because the host may be unable to write to them. */
#include "device/memory.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/poison.h"
#include "base/size.h"

#define UNIT       ((size_t)64) /* blocks begin and end at its multiples */
#define PAGE       ((size_t)4096)
#define SHARED     LS_MIB(1) /* bytes of a region for small blocks; less under a small limit */
#define SHARE      64        /* a shared region is at most 1/64 of the limit */
#define HUGE_PAGE  LS_MIB(2)
#define LARGEST    ((size_t)1 << 62) /* rounding up does not overflow */
#define MIB(bytes) ((double)(bytes) / (double)LS_MIB(1))

/* Sizes below EXACT units have a class each; above, each power of two has STEPS classes. */
#define EXACT_BITS 6
#define STEP_BITS  4
#define EXACT      ((size_t)1 << EXACT_BITS)
#define STEPS      ((size_t)1 << STEP_BITS)
#define CLASSES    (EXACT + (64 - EXACT_BITS) * STEPS)
#define WORD_BITS  64

typedef struct region region;
typedef struct piece piece;

struct piece {
    /* Must be first: callers hold its address. A hole uses only the offset. */
    ls_block block;
    size_t size; /* a multiple of UNIT */
    region *region;
    piece *before, *after;  /* adjacent */
    piece *previous, *next; /* holes of the same class */
    bool used;
    char what[];
};

/* Small blocks have separate regions: a long-lived one in a large region would prevent its
 * release. */
typedef enum use { ANY, SMALL, LARGE } use;

struct region {
    use use; /* blocks that the region accepts */
    void *handle;
    size_t bytes, used;
    piece *first;
    region *next;
};

struct ls_memory {
    pthread_mutex_t mutex;
    ls_region_source source;
    ls_memory_info info;
    size_t idle;   /* bytes of regions without blocks */
    size_t blocks; /* blocks in use */
    region *regions;
    piece *holes[CLASSES];
    uint64_t filled[(CLASSES + WORD_BITS - 1) / WORD_BITS]; /* bit c: class c has holes */
    char name[];
};

/* ---- Host memory ---- */

static size_t whole_pages(size_t bytes)
{
    return ls_size_align(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

/* Maps more than needed and unmaps what lies before and after the part aligned for huge pages. */
static ls_status take_host(void *device, size_t bytes, void **out)
{
    (void)device;
    bool huge = bytes >= HUGE_PAGE;
    size_t kept = whole_pages(bytes), mapped = kept + (huge ? HUGE_PAGE : 0);
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return ls_fail(LS_ERR_MEMORY, "the system cannot allocate %.2f MiB: %s", MIB(bytes), strerror(errno));
    if (huge) {
        size_t head = -(uintptr_t)start & (HUGE_PAGE - 1), tail = HUGE_PAGE - head;
        if (head > 0)
            munmap(start, head);
        start += head;
        munmap(start + kept, tail);
        madvise(start, kept, MADV_HUGEPAGE); /* small pages are only slower */
    }
    *out = start;
    return LS_OK;
}

static void give_host(void *device, void *region, size_t bytes)
{
    (void)device;
    munmap(region, whole_pages(bytes));
}

ls_region_source ls_region_host(void)
{
    return (ls_region_source){ .take = take_host, .give = give_host, .host = true };
}

/* ---- Holes ---- */

static size_t class_of(size_t size)
{
    size_t units = size / UNIT;
    if (units < EXACT)
        return units;
    size_t log = (size_t)(63 - __builtin_clzll(units));
    size_t step = (units >> (log - STEP_BITS)) - STEPS;
    return EXACT + (log - EXACT_BITS) * STEPS + step;
}

/* CLASSES if there is none. */
static size_t next_filled(const ls_memory *memory, size_t class)
{
    for (size_t word = class / WORD_BITS; word < sizeof(memory->filled) / sizeof(*memory->filled); word++) {
        uint64_t bits = memory->filled[word];
        if (word == class / WORD_BITS)
            bits &= ~(uint64_t)0 << class % WORD_BITS;
        if (bits != 0)
            return word * WORD_BITS + (size_t)__builtin_ctzll(bits);
    }
    return CLASSES;
}

/* Puts the hole first in its list: it was used last and may still be in a cache. */
static void add_hole(ls_memory *memory, piece *hole)
{
    size_t class = class_of(hole->size);
    piece *next = memory->holes[class];
    hole->previous = NULL;
    hole->next = next;
    if (next)
        next->previous = hole;
    memory->holes[class] = hole;
    memory->filled[class / WORD_BITS] |= (uint64_t)1 << class % WORD_BITS;
}

static void remove_hole(ls_memory *memory, piece *hole)
{
    size_t class = class_of(hole->size);
    if (hole->next)
        hole->next->previous = hole->previous;
    if (hole->previous)
        hole->previous->next = hole->next;
    else
        memory->holes[class] = hole->next;
    if (!memory->holes[class])
        memory->filled[class / WORD_BITS] &= ~((uint64_t)1 << class % WORD_BITS);
}

static size_t shared_bytes(const ls_memory *memory)
{
    size_t part = ls_size_align(memory->info.limit / SHARE + 1, PAGE);
    return memory->info.limit == 0 || part > SHARED ? SHARED : part;
}

/* Under a limit, only blocks much smaller than a shared region go there, so that little of it stays
 * empty. */
static use use_of(const ls_memory *memory, size_t size)
{
    return size < (memory->info.limit ? shared_bytes(memory) / 8 : SHARED) ? SMALL : LARGE;
}

/* An empty shared region accepts any block, a larger empty one only blocks of at least half its
 * size: a long-lived smaller block would prevent its release. */
static bool accepts(const ls_memory *memory, const piece *hole, size_t size, use wanted)
{
    const region *in = hole->region;
    if (wanted == ANY || in->use == ANY)
        return true;
    if (in->used > 0)
        return in->use == wanted;
    return in->bytes <= shared_bytes(memory) || (wanted == LARGE && in->bytes <= 2 * size);
}

/* The smallest hole that is large enough is in the class of the size, which may also have smaller
 * holes, or in the next class with holes. */
static piece *find_hole(const ls_memory *memory, size_t size, use wanted)
{
    piece *best = NULL;
    for (size_t class = next_filled(memory, class_of(size)); !best && class < CLASSES;
         class = next_filled(memory, class + 1))
        for (piece *hole = memory->holes[class]; hole && !(best && best->size == size); hole = hole->next)
            if (hole->size >= size && (!best || hole->size < best->size) && accepts(memory, hole, size, wanted))
                best = hole;
    return best;
}

static size_t largest_hole(const ls_memory *memory)
{
    size_t top = CLASSES, largest = 0;
    for (size_t class = next_filled(memory, 0); class < CLASSES; class = next_filled(memory, class + 1))
        top = class;
    for (piece *hole = top < CLASSES ? memory->holes[top] : NULL; hole; hole = hole->next)
        largest = hole->size > largest ? hole->size : largest;
    return largest;
}

/* ---- Pieces ---- */

static piece *make_piece(const char *what)
{
    size_t length = strlen(what) + 1;
    piece *made = malloc(sizeof(*made) + length);
    if (made)
        memcpy(made->what, what, length);
    return made;
}

static void *address(const piece *at)
{
    return (char *)at->region->handle + at->block.offset;
}

static void link_neighbours(piece *at)
{
    if (at->before)
        at->before->after = at;
    else
        at->region->first = at;
    if (at->after)
        at->after->before = at;
}

/* Puts `block` at the start of the hole. */
static void fill(ls_memory *memory, piece *hole, piece *block, size_t bytes, size_t size)
{
    region *in = hole->region;
    remove_hole(memory, hole);
    block->block = (ls_block){ in->handle, hole->block.offset, bytes };
    block->size = size;
    block->region = in;
    block->used = true;
    block->before = hole->before;
    if (hole->size == size) {
        block->after = hole->after;
        free(hole);
    } else {
        block->after = hole;
        hole->block.offset += size;
        hole->size -= size;
        add_hole(memory, hole);
    }
    link_neighbours(block);
    if (memory->source.host)
        LS_UNPOISON(address(block), bytes);

    if (in->used == 0) {
        memory->idle -= in->bytes;
        in->use = in->use == ANY ? ANY : use_of(memory, size);
    }
    in->used += size;
    memory->blocks++;
    memory->info.in_use += size;
    if (memory->info.in_use > memory->info.peak)
        memory->info.peak = memory->info.in_use;
}

static void swallow_next(piece *at)
{
    piece *next = at->after;
    at->size += next->size;
    at->after = next->after;
    link_neighbours(at);
    free(next);
}

/* Merges the hole with adjacent ones. */
static void empty(ls_memory *memory, piece *at)
{
    region *in = at->region;
    if (memory->source.host)
        LS_POISON(address(at), at->size);
    at->used = false;
    memory->blocks--;
    memory->info.in_use -= at->size;
    in->used -= at->size;
    memory->idle += in->used == 0 ? in->bytes : 0;
    if (at->after && !at->after->used) {
        remove_hole(memory, at->after);
        swallow_next(at);
    }
    if (at->before && !at->before->used) {
        at = at->before;
        remove_hole(memory, at);
        swallow_next(at);
    }
    add_hole(memory, at);
}

/* ---- Regions ---- */

static ls_status add_region(ls_memory *memory, size_t bytes, use use)
{
    region *added = calloc(1, sizeof(*added));
    piece *hole = make_piece("");
    ls_status status = LS_OK;
    if (!added || !hole)
        status = ls_fail(LS_ERR_MEMORY, "the host has no memory for its bookkeeping");
    else
        status = memory->source.take(memory->source.device, bytes, &added->handle);
    if (status != LS_OK) {
        free(hole);
        free(added);
        return status;
    }
    added->use = use;
    added->bytes = bytes;
    added->first = hole;
    added->next = memory->regions;
    memory->regions = added;
    memory->info.reserved += bytes;
    memory->idle += bytes;
    *hole = (piece){ .size = bytes, .region = added };
    add_hole(memory, hole);
    if (memory->source.host)
        LS_POISON(added->handle, bytes);
    return LS_OK;
}

/* Its pieces must have been removed from the lists of holes. */
static void end_region(ls_memory *memory, region *ended)
{
    for (piece *at = ended->first, *after; at; at = after) {
        after = at->after;
        free(at);
    }
    if (memory->source.host)
        LS_UNPOISON(ended->handle, ended->bytes);
    memory->source.give(memory->source.device, ended->handle, ended->bytes);
    free(ended);
}

/* Releases empty regions until `bytes` bytes are released or none is left. */
static void release_idle(ls_memory *memory, size_t bytes)
{
    size_t given = 0;
    for (region **link = &memory->regions; *link && given < bytes;) {
        region *at = *link;
        if (at->used > 0) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        given += at->bytes;
        memory->idle -= at->bytes;
        memory->info.reserved -= at->bytes;
        remove_hole(memory, at->first);
        end_region(memory, at);
    }
}

/* Bytes that the limit leaves for a new region beside `kept`. */
static size_t space_beside(const ls_memory *memory, size_t kept)
{
    size_t limit = memory->info.limit, room = (limit - kept) / UNIT * UNIT;
    return limit == 0 || room > LARGEST ? LARGEST : room;
}

static size_t most(const ls_memory *memory)
{
    size_t room = space_beside(memory, memory->info.reserved - memory->idle), hole = largest_hole(memory);
    return memory->info.limit == 0 ? SIZE_MAX : room > hole ? room : hole;
}

/* why NULL: the limit is exceeded. */
static ls_status refuse(const ls_memory *memory, size_t bytes, const char *what, const char *why)
{
    const ls_memory_info *info = &memory->info;
    char limit[48] = "no limit", left[64] = "";
    if (info->limit > 0)
        snprintf(limit, sizeof(limit), "limit %.2f MiB", MIB(info->limit));
    if (!why)
        snprintf(left, sizeof(left), "the largest free block has %.2f MiB", MIB(most(memory)));
    return ls_fail(LS_ERR_MEMORY, "%s has no memory for %s, %.2f MiB: in use %.2f MiB, reserved %.2f MiB, %s; %s",
                   memory->name, what, MIB(bytes), MIB(info->in_use), MIB(info->reserved), limit, why ? why : left);
}

/* Releases empty regions if the limit requires it. */
static ls_status grow(ls_memory *memory, size_t size, const char *what)
{
    size_t room = space_beside(memory, memory->info.reserved);
    if (size > space_beside(memory, memory->info.reserved - memory->idle))
        return refuse(memory, size, what, NULL);
    if (size > room) {
        release_idle(memory, size - room);
        room = space_beside(memory, memory->info.reserved);
    }
    size_t bytes = use_of(memory, size) == SMALL ? shared_bytes(memory) : ls_size_align(size, PAGE);
    bytes = bytes < room ? bytes : room;
    ls_status status = add_region(memory, bytes, use_of(memory, size));
    if (status != LS_OK && memory->idle > 0) { /* our empty regions may take what the device lacks */
        release_idle(memory, SIZE_MAX);
        status = add_region(memory, bytes, use_of(memory, size));
    }
    return status == LS_OK ? LS_OK : refuse(memory, size, what, ls_last_error());
}

/* ---- The interface ---- */

ls_status ls_memory_open(const char *name, ls_region_source source, size_t limit, bool growth, ls_memory **out)
{
    size_t length = strlen(name) + 1;
    ls_memory *memory = calloc(1, sizeof(*memory) + length);
    if (!memory)
        return ls_fail(LS_ERR_MEMORY, "no memory for the allocator of %s", name);
    memcpy(memory->name, name, length);
    memory->source = source;
    memory->info.limit = limit;
    pthread_mutex_init(&memory->mutex, NULL);
    size_t whole = space_beside(memory, 0);
    if (limit > 0 && !growth && whole > 0 && add_region(memory, whole, ANY) != LS_OK) {
        ls_status status = refuse(memory, whole, "all of its limit", ls_last_error());
        ls_memory_close(memory);
        return status;
    }
    *out = memory;
    return LS_OK;
}

void ls_memory_close(ls_memory *memory)
{
    if (!memory)
        return;
    for (region *at = memory->regions, *next; at; at = next) {
        next = at->next;
        end_region(memory, at);
    }
    pthread_mutex_destroy(&memory->mutex);
    free(memory);
}

static ls_status take(ls_memory *memory, size_t bytes, const char *what, piece *block)
{
    if (!block)
        return refuse(memory, bytes, what, "the host has no memory for its bookkeeping");
    if (bytes > LARGEST)
        return refuse(memory, bytes, what, "no device has that much");
    size_t size = ls_size_align(bytes > 0 ? bytes : 1, UNIT);
    piece *hole = find_hole(memory, size, use_of(memory, size));
    if (!hole) {
        ls_status status = grow(memory, size, what);
        /* Use any hole before failing. */
        hole = find_hole(memory, size, status == LS_OK ? use_of(memory, size) : ANY);
        if (!hole)
            return status;
    }
    fill(memory, hole, block, bytes, size);
    return LS_OK;
}

ls_status ls_memory_take(ls_memory *memory, size_t bytes, const char *what, ls_block **out)
{
    piece *block = make_piece(what);
    pthread_mutex_lock(&memory->mutex);
    ls_status status = take(memory, bytes, what, block);
    pthread_mutex_unlock(&memory->mutex);
    if (status == LS_OK)
        *out = &block->block;
    else
        free(block);
    return status;
}

void ls_memory_give(ls_memory *memory, ls_block *block)
{
    if (!block)
        return;
    pthread_mutex_lock(&memory->mutex);
    empty(memory, (piece *)block);
    pthread_mutex_unlock(&memory->mutex);
}

/* Whether a small block fits without a new region. */
static bool has_small_room(const ls_memory *memory)
{
    for (const region *at = memory->regions; at; at = at->next)
        if (at->use == ANY || (at->use == SMALL && at->used > 0 && at->used < at->bytes / 2))
            return true;
    return false;
}

size_t ls_memory_available(ls_memory *memory)
{
    pthread_mutex_lock(&memory->mutex);
    size_t room = most(memory), spent = has_small_room(memory) ? 0 : shared_bytes(memory);
    bool grows = memory->info.limit > 0 && !(memory->regions && memory->regions->use == ANY);
    pthread_mutex_unlock(&memory->mutex);
    return !grows ? room : room > spent ? room - spent : 0;
}

ls_memory_info ls_memory_usage(ls_memory *memory)
{
    pthread_mutex_lock(&memory->mutex);
    ls_memory_info info = memory->info;
    pthread_mutex_unlock(&memory->mutex);
    return info;
}

/* ---- Printing ---- */

typedef struct line {
    const char *what;
    size_t bytes;
} line;

static int by_name(const void *a, const void *b)
{
    const line *x = a, *y = b;
    return strcmp(x->what, y->what);
}

static int by_bytes(const void *a, const void *b)
{
    const line *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : strcmp(x->what, y->what);
}

/* `lines` has room for one per block. */
static size_t collect(const ls_memory *memory, line *lines)
{
    size_t count = 0, names = 0;
    for (const region *in = memory->regions; in; in = in->next)
        for (const piece *at = in->first; at; at = at->after)
            if (at->used)
                lines[count++] = (line){ at->what, at->size };
    qsort(lines, count, sizeof(*lines), by_name);
    for (size_t i = 0; i < count; i++) {
        if (names > 0 && strcmp(lines[names - 1].what, lines[i].what) == 0)
            lines[names - 1].bytes += lines[i].bytes;
        else
            lines[names++] = lines[i];
    }
    qsort(lines, names, sizeof(*lines), by_bytes);
    return names;
}

ls_status ls_memory_print(ls_memory *memory, ls_text *text)
{
    ls_status status = LS_OK;
    pthread_mutex_lock(&memory->mutex); /* names belong to blocks */
    line *lines = calloc(memory->blocks + 1, sizeof(*lines));
    if (lines) {
        size_t count = collect(memory, lines);
        /* Width of the largest number. */
        int width = snprintf(NULL, 0, "%.2f", MIB(lines[0].bytes));
        for (size_t i = 0; i < count; i++)
            ls_text_add(text, "  %*.2f MiB %s\n", width, MIB(lines[i].bytes), lines[i].what);
    } else {
        status = ls_fail(LS_ERR_MEMORY, "no memory to list the %zu blocks of %s", memory->blocks, memory->name);
    }
    pthread_mutex_unlock(&memory->mutex);
    free(lines);
    return status;
}
