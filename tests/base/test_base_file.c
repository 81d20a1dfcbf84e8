/* Whole files: limits, errors that name the path, and writing that leaves the old file or the new
 * one, never less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "folder.h"

static void assert_content(const char *path, const char *want)
{
    char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(ls_file_read(path, 1 << 20, &data, &bytes), LS_OK);
    assert_int_equal(bytes, strlen(want));
    assert_string_equal(data, want); /* zero-terminated */
    free(data);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    const char *path = in_folder("a");
    char bytes[3] = { 'x', '\0', 'y' };
    assert_int_equal(ls_file_write(path, bytes, 3), LS_OK);
    char *data = NULL;
    size_t count = 0;
    assert_int_equal(ls_file_read(path, 3, &data, &count), LS_OK);
    assert_int_equal(count, 3);
    assert_memory_equal(data, bytes, 3);
    assert_int_equal(data[3], 0);
    free(data);
    assert_int_equal(ls_file_write(path, NULL, 0), LS_OK); /* empty */
    assert_content(path, "");
    assert_int_equal(files_in_folder(), 1); /* no temporary is left */
}

static void reading_keeps_the_limit(void **state)
{
    (void)state;
    const char *path = in_folder("five");
    assert_int_equal(ls_file_write(path, "12345", 5), LS_OK);
    char *data = (char *)folder;
    size_t count = 99;
    assert_int_equal(ls_file_read(path, 4, &data, &count), LS_ERR_DATA);
    assert_non_null(strstr(ls_last_error(), path));
    assert_non_null(strstr(ls_last_error(), "4"));
    assert_ptr_equal(data, folder); /* outputs only on success */
    assert_int_equal(count, 99);
    /* A file whose size is not known beforehand. */
    assert_int_equal(ls_file_read("/dev/zero", 1000000, &data, &count), LS_ERR_DATA);
    assert_non_null(strstr(ls_last_error(), "/dev/zero"));
}

static void *feed_a_pipe(void *path)
{
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 50000; i++)
        fprintf(file, "%07d\n", i);
    fclose(file);
    return NULL;
}

static void a_pipe_is_read_to_its_end(void **state)
{
    (void)state;
    char path[512];
    strcpy(path, in_folder("pipe"));
    assert_int_equal(mkfifo(path, 0600), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, feed_a_pipe, path), 0);
    char *data = NULL;
    size_t bytes = 0;
    ls_status status = ls_file_read(path, SIZE_MAX, &data, &bytes);
    pthread_join(thread, NULL);
    assert_int_equal(status, LS_OK);
    assert_int_equal(bytes, 400000);
    assert_string_equal(data + bytes - 8, "0049999\n");
    free(data);
}

static void errors_name_the_path_and_the_reason(void **state)
{
    (void)state;
    char *data;
    size_t bytes;
    const char *path = in_folder("none");
    assert_int_equal(ls_file_read(path, 10, &data, &bytes), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_last_error(), path));
    assert_non_null(strstr(ls_last_error(), "No such file"));
    assert_int_equal(ls_file_read(folder, 10, &data, &bytes), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "Is a directory"));
    assert_int_equal(ls_file_write(folder, "x", 1), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), folder));
    path = in_folder("no-folder/file");
    assert_int_equal(ls_file_write(path, "x", 1), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_last_error(), path));
    char longest[5000];
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(ls_file_write(longest, "x", 1), LS_ERR_IO);
    char full[512];
    snprintf(full, sizeof full, "%s/%.*s", folder, 250, longest); /* the name fits, that of its temporary does not */
    assert_int_equal(ls_file_write(full, "x", 1), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "too long"));
}

/* A disk that is full in the middle of the write, by a limit on the size of files. */
static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    const char *path = in_folder("weights");
    assert_int_equal(ls_file_write(path, "old weights", 11), LS_OK);
    static char large[100000];
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 40000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ls_status status = ls_file_write(path, large, sizeof large);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), path));
    assert_non_null(strstr(ls_last_error(), "too large"));
    assert_content(path, "old weights");
    assert_int_equal(files_in_folder(), 1); /* the temporary is gone */
}

typedef struct watch {
    const char *path;
    atomic_bool stop;
    atomic_int seen, torn;
} watch;

enum { LONG = 300000 };

static void *watch_file(void *arg)
{
    watch *w = arg;
    while (!atomic_load(&w->stop)) {
        char *data = NULL;
        size_t bytes = 0;
        if (ls_file_read(w->path, 1 << 20, &data, &bytes) != LS_OK) {
            atomic_fetch_add(&w->torn, 1);
            continue;
        }
        bool whole = bytes == LONG && data[0] == data[LONG / 2] && data[0] == data[LONG - 1];
        atomic_fetch_add(whole ? &w->seen : &w->torn, 1);
        free(data);
    }
    return NULL;
}

static void a_reader_never_sees_half_a_file(void **state)
{
    (void)state;
    static char data[LONG];
    watch w = { .path = in_folder("shared") };
    memset(data, 'a', LONG);
    assert_int_equal(ls_file_write(w.path, data, LONG), LS_OK);
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, watch_file, &w), 0);
    for (int i = 0; i < 100 || (atomic_load(&w.seen) < 20 && atomic_load(&w.torn) == 0); i++) {
        memset(data, 'a' + i % 26, LONG);
        assert_int_equal(ls_file_write(w.path, data, LONG), LS_OK);
    }
    atomic_store(&w.stop, true);
    pthread_join(reader, NULL);
    assert_int_equal(atomic_load(&w.torn), 0);
}

/* Temporary files of a killed process are removed when the file is written again; those of a living
 * one stay. */
static void left_temporaries_are_cleaned(void **state)
{
    (void)state;
    char names[6][600];
    const char *path = in_folder("b");
    const char *const ends[] = { "b.%ld.0.tmp", "b.%ld.1.tmp", "b.99999999.0.tmp",
                                 "b.x.0.tmp",   "b.1.tmp",     "bb.%ld.0.tmp" };
    int living = -1;
    for (int i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, ends[i], (long)getpid());
        snprintf(names[i], sizeof names[i], "%s/%s", folder, name);
        int fd = open(names[i], O_WRONLY | O_CREAT, 0666);
        assert_true(fd >= 0);
        if (i == 1) {
            living = fd;
            assert_int_equal(flock(fd, LOCK_EX), 0); /* as a writer does */
        } else {
            close(fd);
        }
    }
    assert_int_equal(ls_file_write(path, "new", 3), LS_OK);
    assert_content(path, "new");
    for (int i = 0; i < 6; i++)
        assert_int_equal(access(names[i], F_OK) == 0, i == 1 || i > 2);
    close(living);
    assert_int_equal(ls_file_try(path), LS_OK);
    assert_int_equal(access(names[1], F_OK), -1);
    assert_content(path, "new");
    assert_int_equal(files_in_folder(), 4);
}

enum { WRITERS = 4, WRITES = 60 };

static void *write_again_and_again(void *path)
{
    for (int i = 0; i < WRITES; i++)
        if (ls_file_write(path, "whole", 5) != LS_OK)
            return strdup(ls_last_error());
    return NULL;
}

/* Each of them cleans beside the others' work. */
static void writers_do_not_clean_each_other_away(void **state)
{
    (void)state;
    char path[600];
    pthread_t threads[WRITERS];
    snprintf(path, sizeof path, "%s", in_folder("shared"));
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_again_and_again, path), 0);
    for (int i = 0; i < WRITERS; i++) {
        void *error = NULL;
        pthread_join(threads[i], &error);
        if (error)
            fail_msg("%s", (char *)error);
    }
    assert_content(path, "whole");
    assert_int_equal(files_in_folder(), 1);
}

static void links_to_nothing_are_followed(void **state)
{
    (void)state;
    struct stat info;
    char link[600], second[600], sub[600];
    snprintf(link, sizeof link, "%s", in_folder("link"));
    snprintf(second, sizeof second, "%s", in_folder("second"));
    snprintf(sub, sizeof sub, "%s", in_folder("sub"));
    assert_int_equal(mkdir(sub, 0777), 0);
    assert_int_equal(symlink("sub/new", link), 0);
    assert_int_equal(symlink(link, second), 0);
    assert_int_equal(ls_file_try(second), LS_OK);
    assert_int_equal(ls_file_write(second, "x", 1), LS_OK);
    assert_int_equal(lstat(second, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_content(in_folder("sub/new"), "x");
    unlink(in_folder("sub/new"));
    assert_int_equal(rmdir(sub), 0);
    assert_int_equal(ls_file_write(second, "x", 1), LS_ERR_NOT_FOUND); /* the folder of the target is gone */
    unlink(link);
    assert_int_equal(symlink("link", link), 0);
    assert_int_equal(ls_file_write(link, "x", 1), LS_ERR_IO); /* a loop */
    assert_int_equal(ls_file_write("", "x", 1), LS_ERR_NOT_FOUND);
}

static void unwritable_outputs_are_reported_before(void **state)
{
    (void)state;
    char longest[512];
    memset(longest, 'n', sizeof longest);
    memcpy(longest, folder, strlen(folder));
    longest[strlen(folder)] = '/';
    longest[strlen(folder) + 1 + 250] = '\0';
    assert_int_equal(ls_file_try(longest), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "too long"));
    assert_int_equal(ls_file_try(folder), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "is a folder"));
    assert_int_equal(ls_file_try("/dev/null"), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "is a device"));
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(ls_file_try(in_folder("fifo")), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "is a FIFO"));
    assert_int_equal(ls_file_try(in_folder("no/file")), LS_ERR_NOT_FOUND);
    if (geteuid() != 0) {
        assert_int_equal(chmod(folder, 0500), 0);
        ls_status status = ls_file_try(in_folder("file"));
        assert_int_equal(chmod(folder, 0700), 0);
        assert_int_equal(status, LS_ERR_IO);
    }
    assert_int_equal(ls_file_try(in_folder("file")), LS_OK);
    assert_int_equal(files_in_folder(), 1); /* the FIFO: nothing else is left behind */
}

static void mode_and_links_stay(void **state)
{
    (void)state;
    const char *path = in_folder("target"), *link = in_folder("link");
    struct stat info;
    mode_t mask = umask(027);
    assert_int_equal(ls_file_write(path, "1", 1), LS_OK);
    umask(mask);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640); /* a new file obeys the umask */
    assert_int_equal(chmod(path, 0604), 0);
    assert_int_equal(symlink("target", link), 0);
    assert_int_equal(ls_file_write(link, "2", 1), LS_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0604);
    assert_content(path, "2");
}

static void a_device_stays_a_device(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(ls_file_write("/dev/null", "gone", 4), LS_OK);
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    int ends[2]; /* a pipe without a name, as /dev/stdout may be */
    char path[64], read_back[4] = "";
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    assert_int_equal(ls_file_write(path, "abc", 3), LS_OK);
    assert_int_equal(read(ends[0], read_back, 3), 3);
    assert_string_equal(read_back, "abc");
    assert_int_equal(ls_file_try(path), LS_ERR_IO);
    close(ends[0]);
    close(ends[1]);
}

static void a_bare_name_is_in_the_working_folder(void **state)
{
    (void)state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    ls_status status = ls_file_write("bare", "x", 1);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(status, LS_OK);
    assert_content(in_folder("bare"), "x");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read),
        TEST(reading_keeps_the_limit),
        TEST(a_pipe_is_read_to_its_end),
        TEST(errors_name_the_path_and_the_reason),
        TEST(a_failed_write_leaves_the_old_file),
        TEST(a_reader_never_sees_half_a_file),
        TEST(left_temporaries_are_cleaned),
        TEST(writers_do_not_clean_each_other_away),
        TEST(links_to_nothing_are_followed),
        TEST(unwritable_outputs_are_reported_before),
        TEST(mode_and_links_stay),
        TEST(a_device_stays_a_device),
        TEST(a_bare_name_is_in_the_working_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
