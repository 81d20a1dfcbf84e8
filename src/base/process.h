/* Identity of a process, with which workers check whether a peer on their machine still runs. */
#ifndef LS_BASE_PROCESS_H
#define LS_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Sent over the network as it is in memory. */
typedef struct ls_process_id {
    uint64_t machine; /* hash of the boot id and of the pid and time namespaces; 0: unknown */
    uint64_t start;   /* start time in clock ticks since boot */
    uint64_t pid;
} ls_process_id;

/* `machine` is 0 if /proc does not show it. */
ls_process_id ls_process_self(void);

/* Returns true only if the process ran on this machine and its pid is free, reused or a zombie;
 * false when unsure. */
bool ls_process_has_ended(const ls_process_id *process);

#endif
