/* The memory that both sides of a shm connection share, for tests that damage it. */
#ifndef LS_FABRIC_TRANSPORT_SHM_H
#define LS_FABRIC_TRANSPORT_SHM_H

#include <stdatomic.h>
#include <stdint.h>

#include "fabric/transport/transport.h"

/* Bytes of a ring, a power of two. Measured: with room for four slices a side can run ahead of the
 * other; less makes them wait, more leaves the cache. */
#define LS_SHM_RING (512 << 10)

/* Both positions only grow; the bytes between them can be read. */
typedef struct ls_shm_ring {
    _Alignas(128) _Atomic(uint64_t) head; /* position of the writer */
    atomic_uint writer_sleeps;
    _Alignas(128) _Atomic(uint64_t) tail; /* position of the reader */
    atomic_uint reader_sleeps;
    _Alignas(4096) char bytes[LS_SHM_RING];
} ls_shm_ring;

typedef struct ls_shm_memory {
    ls_shm_ring rings[2]; /* [0]: from the calling side, [1]: to it */
} ls_shm_memory;

ls_shm_memory *ls_shm_memory_of(const ls_connection *connection);
int ls_shm_descriptor(const ls_connection *connection);

#endif
