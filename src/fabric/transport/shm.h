/* The memory that the two sides of a shm line share, which tests damage. */
#ifndef LS_FABRIC_TRANSPORT_SHM_H
#define LS_FABRIC_TRANSPORT_SHM_H

#include <stdatomic.h>
#include <stdint.h>

#include "fabric/transport/transport.h"

/* Bytes, a power of two. Measured: with room for four slices a side can go ahead of the other; less makes them wait for
 * each other, more leaves the cache. */
#define LS_SHM_RING (512 << 10)

/* Bytes go from the writer to the reader. Both places only grow; what is between them is there to be read. */
typedef struct ls_shm_ring {
    _Alignas(128) _Atomic(uint64_t) head; /* the writer's place */
    atomic_uint writer_sleeps;
    _Alignas(128) _Atomic(uint64_t) tail; /* the reader's place */
    atomic_uint reader_sleeps;
    _Alignas(4096) char bytes[LS_SHM_RING];
} ls_shm_ring;

typedef struct ls_shm_memory {
    ls_shm_ring rings[2]; /* from who called, and to it */
} ls_shm_memory;

ls_shm_memory *ls_shm_memory_of(const ls_connection *line);
int ls_shm_descriptor(const ls_connection *line);

#endif
