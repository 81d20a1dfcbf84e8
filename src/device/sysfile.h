/* Small files of /proc and /sys. A file is looked for under `root`: "" is the machine itself, tests have roots of their
 * own. */
#ifndef LS_DEVICE_SYSFILE_H
#define LS_DEVICE_SYSFILE_H

#include <stdbool.h>
#include <stddef.h>

/* The first line. False when the file is not there, cannot be read or does not fit. The newline is cut off. */
bool ls_sysfile_line(const char *root, const char *path, char *line, size_t room);

/* A file that holds one number. */
bool ls_sysfile_number(const char *root, const char *path, long long *out);

/* A number that begins at *text, which moves behind it. */
bool ls_take_number(const char **text, long long *out);

#endif
