/* Reads small files. */
#include "device/sysfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ls_sysfile_line(const char *root, const char *path, char *line, size_t room)
{
    char whole[PATH_MAX];
    if (snprintf(whole, sizeof(whole), "%s%s", root, path) >= (int)sizeof(whole))
        return false;
    int fd = open(whole, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t bytes;
    do
        bytes = read(fd, line, room);
    while (bytes < 0 && errno == EINTR);
    close(fd);
    if (bytes <= 0 || (size_t)bytes == room)
        return false;
    line[bytes] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return true;
}

bool ls_take_number(const char **text, long long *out)
{
    char *end;
    errno = 0;
    *out = strtoll(*text, &end, 10);
    if (end == *text || errno)
        return false;
    *text = end;
    return true;
}

bool ls_sysfile_number(const char *root, const char *path, long long *out)
{
    char line[64];
    const char *text = line;
    return ls_sysfile_line(root, path, line, sizeof(line)) && ls_take_number(&text, out) &&
           text[strspn(text, " \t")] == '\0';
}
