/* Small files of /proc and /sys below `root`: "" is the real machine; tests use their own. */
#ifndef LS_DEVICE_SYSFILE_H
#define LS_DEVICE_SYSFILE_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the first line, without its newline. Returns false if the file is missing, unreadable or
 * longer than `room`. */
bool ls_sysfile_line(const char *root, const char *path, char *line, size_t room);

bool ls_sysfile_number(const char *root, const char *path, long long *out);

/* Parses a number and advances *text past it. */
bool ls_take_number(const char **text, long long *out);

#endif
