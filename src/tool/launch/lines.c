/* lockstep launch: prints the workers' output. Lines begin with the rank, except the chief's. */
#include "tool/launch/launch.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Writes a line with one call, because the chief may write to the same file directly. */
static void print_line(const launch *l, int rank, int which, const char *line, size_t length)
{
    FILE *file = which == 0 ? stdout : stderr;
    char whole[LAUNCH_LINE + 32];
    size_t used = rank != l->chief ? (size_t)snprintf(whole, 32, "[%d] ", rank) : 0;
    memcpy(whole + used, line, length);
    used += length;
    whole[used++] = '\n';
    fwrite(whole, 1, used, file);
    fflush(file);
}

static void print_lines(const launch *l, int rank, int which, bool end)
{
    launch_stream *s = &l->workers[rank].out[which];
    char *from = s->line, *newline;
    while ((newline = memchr(from, '\n', s->used - (size_t)(from - s->line))) != NULL) {
        print_line(l, rank, which, from, (size_t)(newline - from));
        from = newline + 1;
    }
    s->used -= (size_t)(from - s->line);
    memmove(s->line, from, s->used);
    if (s->used == LAUNCH_LINE || (end && s->used > 0)) {
        print_line(l, rank, which, s->line, s->used);
        s->used = 0;
    }
}

static void read_stream(const launch *l, int rank, int which)
{
    launch_stream *s = &l->workers[rank].out[which];
    while (s->fd >= 0) {
        ssize_t got = read(s->fd, s->line + s->used, LAUNCH_LINE - s->used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        s->used += got > 0 ? (size_t)got : 0;
        print_lines(l, rank, which, got <= 0);
        if (got <= 0) {
            close(s->fd);
            s->fd = -1;
        }
    }
}

void launch_read_worker(launch *l, int rank, bool end)
{
    for (int i = 0; i < 2; i++) {
        read_stream(l, rank, i);
        if (end)
            print_lines(l, rank, i, true);
    }
}
