/* Runs a fuzz target without libFuzzer: replays files, then mutates them for a number of rounds.
 *     fuzz_npy [-runs=N] [-seconds=N] [-timeout=N] [-seed=N] FILE_OR_FOLDER...
 * Limits the rounds, the seconds of the whole run, and the seconds and memory of one input. Writes
 * the input that fails to ./crash-TARGET. Mutations depend only on the seed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"
#include "sanitized.h"

#define MOST_BYTES (1 << 16)
#define MOST_SEEDS 1024
#define MEMORY     ((rlim_t)3 << 30) /* address space; sanitizers need more than any limit */

typedef struct seed {
    uint8_t *data;
    size_t size;
} seed;

static seed seeds[MOST_SEEDS];
static size_t seed_count;
static uint8_t input[MOST_BYTES];
static size_t input_size;
static char crash_path[256];
static uint64_t random_state = 1;
static int timeout_seconds = 20;

/* ---- When something breaks ---- */

static void keep_input(void)
{
    int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    ssize_t written = write(fd, input, input_size);
    static const char told[] = "fuzz: the input is in ";
    if (written == (ssize_t)input_size && write(2, told, sizeof told - 1) > 0 &&
        write(2, crash_path, strlen(crash_path)) > 0)
        written = write(2, "\n", 1);
    close(fd);
}

static void on_signal(int number)
{
    static const char late[] = "fuzz: timed out\n";
    if (number == SIGALRM && write(2, late, sizeof late - 1) < 0)
        _exit(70);
    keep_input();
    _exit(70);
}

/* Sanitizers end the process by themselves; this is theirs, where they are linked in. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void prepare(const char *program)
{
    const char *slash = strrchr(program, '/');
    snprintf(crash_path, sizeof crash_path, "crash-%s", slash ? slash + 1 : program);
    signal(SIGALRM, on_signal);
    signal(SIGABRT, on_signal);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(keep_input);
        return;
    }
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGFPE, on_signal);
    if (!SANITIZED)
        setrlimit(RLIMIT_AS, &(struct rlimit){ MEMORY, MEMORY });
}

/* ---- Seeds ---- */

static void add_file(const char *path)
{
    uint8_t *data = malloc(MOST_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 || !data ? -1 : read(fd, data, MOST_BYTES);
    if (size < 0 || seed_count == MOST_SEEDS) {
        fprintf(stderr, "fuzz: cannot read %s: %s\n", path, strerror(errno));
        exit(2);
    }
    close(fd);
    seeds[seed_count++] = (seed){ data, (size_t)size };
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_path(const char *path)
{
    struct dirent **names;
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        add_file(path);
        return;
    }
    int count = scandir(path, &names, NULL, by_name);
    for (int i = 0; i < count; i++) {
        char full[4096];
        snprintf(full, sizeof full, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            add_file(full);
        free(names[i]);
    }
    if (count >= 0)
        free(names);
}

/* ---- Mutations ---- */

static size_t below(size_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return limit == 0 ? 0 : (size_t)(random_state % limit);
}

/* Moves the tail by `by` bytes and leaves the gap as it is. */
static void move_tail(size_t at, ptrdiff_t by)
{
    if (by < 0 && (size_t)-by > input_size - at)
        by = -(ptrdiff_t)(input_size - at);
    if (by > 0 && input_size + (size_t)by > MOST_BYTES)
        by = (ptrdiff_t)(MOST_BYTES - input_size);
    size_t from = by < 0 ? at + (size_t)-by : at;
    memmove(input + at + (by > 0 ? by : 0), input + from, input_size - from);
    input_size = (size_t)((ptrdiff_t)input_size + by);
}

static void mutate_once(void)
{
    static const uint64_t odd[] = { 0,
                                    1,
                                    0x7f,
                                    0x80,
                                    0xff,
                                    0x7fff,
                                    0xffff,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    0x7fffffffffffffff,
                                    0x8000000000000000,
                                    0xffffffffffffffff,
                                    0x7fc00000,
                                    0x7f800000 };
    static const char letters[] = "0123456789-+.,eE:[]{}\"'\n/ x";
    size_t at = below(input_size), count = 1 + below(8);
    const seed *other = &seeds[below(seed_count)];
    switch (below(8)) {
    case 0:
        if (input_size > 0)
            input[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        if (input_size > 0)
            input[at] = (uint8_t)below(256);
        break;
    case 2: { /* a number that is at some edge, of 1, 2, 4 or 8 bytes */
        uint64_t value = odd[below(sizeof odd / sizeof *odd)];
        size_t bytes = (size_t)1 << below(4);
        if (input_size >= bytes)
            memcpy(input + below(input_size - bytes + 1), &value, bytes);
        break;
    }
    case 3:
        move_tail(at, -(ptrdiff_t)below(32));
        break;
    case 4: /* a part again */
        move_tail(at, (ptrdiff_t)count);
        break;
    case 5:
        if (input_size > 0)
            input[at] = (uint8_t)letters[below(sizeof letters - 1)];
        break;
    case 6: /* the tail of another seed */
        if (other->size > at) {
            input_size = other->size;
            memcpy(input + at, other->data + at, other->size - at);
        }
        break;
    default:
        input_size = below(8) == 0 ? at : input_size;
        break;
    }
}

static void run_input(void)
{
    /* A copy of the very size: reads past its end are then seen. */
    uint8_t *copy = malloc(input_size ? input_size : 1);
    if (!copy)
        exit(2);
    memcpy(copy, input, input_size);
    alarm((unsigned)timeout_seconds);
    LLVMFuzzerTestOneInput(copy, input_size);
    alarm(0);
    free(copy);
}

static void use_seed(const seed *s)
{
    memcpy(input, s->data, s->size);
    input_size = s->size;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    long runs = 0, seconds = 600, number;
    prepare(argv[0]);
    for (int i = 1; i < argc; i++) {
        if (sscanf(argv[i], "-runs=%ld", &runs) == 1 || sscanf(argv[i], "-seconds=%ld", &seconds) == 1)
            continue;
        if (sscanf(argv[i], "-timeout=%d", &timeout_seconds) == 1)
            continue;
        if (sscanf(argv[i], "-seed=%ld", &number) == 1)
            random_state = (uint64_t)number * 0x9e3779b97f4a7c15u | 1;
        else
            add_path(argv[i]);
    }
    double end = now() + (double)seconds;
    for (size_t i = 0; i < seed_count; i++) {
        use_seed(&seeds[i]);
        run_input();
    }
    long done = 0;
    for (; seed_count > 0 && done < runs && now() < end; done++) {
        use_seed(&seeds[below(seed_count)]);
        for (size_t n = 1 + below(6); n > 0; n--)
            mutate_once();
        run_input();
    }
    printf("%zu seeds and %ld mutations\n", seed_count, done);
    for (size_t i = 0; i < seed_count; i++)
        free(seeds[i].data);
    return seed_count > 0 ? 0 : 2;
}
