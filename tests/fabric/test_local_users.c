/* Two users of one machine: what one of them can do to the workers of the other, which meet over
 * shm and unix. The test runs as root, and its children as these users. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "fabric/mesh/mesh.h"
#include "fabric/transport/unix.h"
#include "skip.h"

#define OWNER 54321
#define OTHER 54322

#define WANT(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s: %s (%s)\n", __LINE__, #condition, ls_last_error(), strerror(errno));         \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static char base[64], runtime[96], home[96]; /* runtime and home are inside of base */
static const char in_tmp[] = "/tmp/lockstep-54321";
static const char *job_name = "users";
static const ls_transport_table *t;

/* ---- Users ---- */

static void be_user(uid_t user)
{
    WANT(setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0);
    umask(022);
}

/* Runs a function as a user; returns its process. */
static pid_t start_as(uid_t user, void (*function)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        be_user(user);
        function();
        _exit(0);
    }
    return pid;
}

static int end_of(pid_t pid)
{
    int how = 0;
    WANT(waitpid(pid, &how, 0) == pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

static void run_as(uid_t user, void (*function)(void))
{
    assert_int_equal(end_of(start_as(user, function)), 0);
}

/* Folders in which both users may make files, as in /tmp; nothing is left of the case before. */
static void clear(void)
{
    char command[512];
    snprintf(command, sizeof(command), "rm -rf %s/* %s && mkdir -p -m 1777 %s && mkdir -m 0755 %s && chown %d %s", base,
             in_tmp, runtime, home, OWNER, home);
    assert_int_equal(system(command), 0);
    assert_int_equal(chmod(runtime, 01777), 0);
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    setenv("HOME", home, 1);
}

static const char *in_runtime(void)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/lockstep", runtime);
    return path;
}

static const char *in_home(void)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/.lockstep-sockets", home);
    return path;
}

static bool is_there(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

/* ---- Jobs of the owner ---- */

static ls_cluster_options job(int rank)
{
    ls_cluster_options o = { .rank = rank, .size = 4, .begin = 2, .join_limit = 10 };
    snprintf(o.job, sizeof(o.job), "%s", job_name);
    snprintf(o.transport, sizeof(o.transport), "%s", t->name);
    return o;
}

static ls_transport *open_worker(int rank)
{
    ls_cluster_options o = job(rank);
    ls_transport *worker = NULL;
    WANT(t->open(&o, 0, &worker) == LS_OK);
    return worker;
}

/* Workers 0 and 1 call each other; the other ranks do not exist. */
static void meet(char *report, size_t bytes)
{
    ls_transport *worker[2] = { open_worker(0), open_worker(1) };
    ls_connection *called, *line;
    for (int r = 0; r < 2; r++) {
        WANT(t->call(worker[!r], r, &line) == LS_OK && line);
        WANT(t->answer(worker[r], &called) == LS_OK && called);
        t->hang_up(called);
        t->hang_up(line);
        WANT(t->call(worker[r], 2, &line) == LS_OK && !line);
        WANT(t->call(worker[r], 3, &line) == LS_OK && !line);
    }
    report[0] = '\0';
    bool any = t->refused(worker[0], report, bytes);
    WANT(any == (report[0] != '\0'));
    WANT(!t->refused(worker[0], report, bytes)); /* once */
    for (int r = 0; r < 2; r++)
        t->close(worker[r]);
}

static void meet_in_peace(void)
{
    char report[400];
    meet(report, sizeof(report));
    WANT(!report[0]);
    WANT(!is_there(in_runtime()) && !is_there(in_tmp) && !is_there(in_home()));
}

static void meet_and_report(void)
{
    char report[400];
    meet(report, sizeof(report));
    WANT(strstr(report, "54322") || strstr(report, "is not a folder of user 54321"));
    WANT(!is_there(in_home()));
}

static void path_of(const char *folder, int rank, char out[LS_UNIX_PATH_CHARS])
{
    ls_cluster_options o = job(rank);
    WANT(ls_unix_path(folder, t->name, &o, 0, rank, out) == LS_OK);
}

/* ---- Cases ---- */

static int listen_at(const char *path, size_t bytes)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    memcpy(address.sun_path, path, bytes);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    WANT(fd >= 0 &&
         bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes)) == 0);
    WANT(listen(fd, 8) == 0);
    return fd;
}

/* Names that any user can take: no worker may depend on one. */
static void take_abstract_names(void)
{
    char hex[65], name[108] = "";
    WANT(ls_sha256_of("users", 5, hex) == LS_OK);
    for (int r = 0; r < 4; r++) {
        int length = snprintf(name + 1, sizeof(name) - 1, "lockstep-%s-%d-%.32s-0-%d", t->name, OWNER, hex, r);
        (void)listen_at(name, (size_t)length + 1);
    }
}

static void wait_for_signal(void)
{
    WANT(kill(getpid(), SIGSTOP) == 0);
}

static void take_and_wait(void)
{
    take_abstract_names();
    wait_for_signal();
}

static pid_t start_and_stop(uid_t user, void (*function)(void))
{
    int how;
    pid_t pid = start_as(user, function);
    assert_int_equal(waitpid(pid, &how, WUNTRACED), pid);
    assert_true(WIFSTOPPED(how));
    return pid;
}

static void kill_it(pid_t pid)
{
    kill(pid, SIGKILL);
    (void)end_of(pid);
}

static void abstract_names_are_not_used(void **state)
{
    t = *state;
    clear();
    pid_t other = start_and_stop(OTHER, take_and_wait);
    run_as(OWNER, meet_in_peace);
    kill_it(other);
}

static const char *squatted;
static enum { FOLDER, LINK, FILE_THERE, LINK_TO_OWNER, KINDS } kind;

static void squat(void)
{
    char elsewhere[128];
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", runtime);
    if (kind == FOLDER)
        WANT(mkdir(squatted, 0777) == 0 && chmod(squatted, 0777) == 0);
    else if (kind == FILE_THERE)
        WANT(close(open(squatted, O_CREAT | O_WRONLY, 0666)) == 0);
    else
        WANT(symlink(kind == LINK_TO_OWNER ? home : elsewhere, squatted) == 0);
    if (kind == LINK)
        WANT(mkdir(elsewhere, 0777) == 0 && chmod(elsewhere, 0777) == 0);
}

static void squatters_are_reported_and_ignored(void **state)
{
    t = *state;
    for (kind = FOLDER; kind < KINDS; kind++) {
        clear();
        squatted = in_runtime();
        run_as(OTHER, squat);
        run_as(OWNER, meet_and_report);
        assert_false(is_there(in_tmp)); /* they met there */
        if (kind == LINK)
            continue; /* its second folder is there already */
        squatted = in_tmp;
        run_as(OTHER, squat);
        run_as(OWNER, meet_and_report);
    }
    clear();
}

static void fail_to_open(void)
{
    ls_cluster_options o = job(0);
    ls_transport *worker = NULL;
    setenv("HOME", "/proc/1/nowhere", 1);
    WANT(t->open(&o, 0, &worker) == LS_ERR_PEER && !worker);
    WANT(strstr(ls_last_error(), in_runtime()) && strstr(ls_last_error(), in_tmp));
    WANT(strstr(ls_last_error(), "belongs to user 54322") && strstr(ls_last_error(), "set XDG_RUNTIME_DIR"));
}

static void the_message_names_every_folder(void **state)
{
    t = *state;
    clear();
    kind = FOLDER;
    squatted = in_runtime();
    run_as(OTHER, squat);
    squatted = in_tmp;
    run_as(OTHER, squat);
    run_as(OWNER, fail_to_open);
    clear();
}

/* The owner once left the folder open to all. */
static void make_open_folder(void)
{
    WANT(mkdir(in_runtime(), 0777) == 0 && chmod(in_runtime(), 0777) == 0);
}

static int keep_away[4];

static void listen_in_folder(void)
{
    char path[LS_UNIX_PATH_CHARS];
    for (int r = 0; r < 4; r++) {
        path_of(in_runtime(), r, path);
        keep_away[r] = listen_at(path, strlen(path) + 1);
        WANT(chmod(path, 0777) == 0);
    }
    wait_for_signal();
}

/* Worker 0 keeps the others' sockets from being removed: what is at ranks 2 and 3 is called while
 * it is there. */
static void call_foreign_listeners(void)
{
    char folder[LS_SOCKET_FOLDER_CHARS], why[400];
    ls_unix_listener listener = { .kind = t->name, .options = job(0), .fd = -1 };
    int fd = 0;
    snprintf(folder, sizeof(folder), "%.63s", in_runtime());
    WANT(chmod(folder, 0755) == 0);
    WANT(ls_unix_listener_call(&listener, 2, &fd) == LS_OK && fd == -1);
    WANT(ls_unix_listener_refused(&listener, why, sizeof(why)));
    WANT(strstr(why, "user 54322 listens in place of worker 2"));
    WANT(ls_unix_listener_call(&listener, 3, &fd) == LS_OK && fd == -1);
    WANT(!ls_unix_listener_refused(&listener, why, sizeof(why)));
    WANT(chmod(folder, 0777) == 0);
}

static void meet_as_one(int rank)
{
    ls_cluster_options o = job(rank);
    ls_mesh *mesh = NULL;
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    ls_mesh_close(mesh);
}

static void meet_as_job(void)
{
    pid_t one = fork();
    if (one == 0) {
        meet_as_one(1);
        _exit(0);
    }
    meet_as_one(0);
    WANT(end_of(one) == 0);
    WANT(!is_there(in_runtime()));
}

static void foreign_listeners_are_ignored(void **state)
{
    t = *state;
    clear();
    run_as(OWNER, make_open_folder);
    pid_t other = start_and_stop(OTHER, listen_in_folder);
    run_as(OWNER, call_foreign_listeners);
    run_as(OWNER, meet_as_job);
    kill_it(other);
}

/* Links at the places of sockets lead to a worker of another job of the same user. */
static void plant_links(void)
{
    char path[LS_UNIX_PATH_CHARS], target[LS_UNIX_PATH_CHARS];
    path_of(in_tmp, 0, target);
    for (int r = 0; r < 4; r++) {
        path_of(in_runtime(), r, path);
        WANT(symlink(target, path) == 0);
    }
}

static void listen_in_tmp(void)
{
    unsetenv("XDG_RUNTIME_DIR");
    (void)open_worker(0);
    wait_for_signal();
}

static void open_among_links(void)
{
    char path[LS_UNIX_PATH_CHARS];
    struct stat about;
    ls_transport *worker = open_worker(0);
    path_of(in_runtime(), 0, path);
    WANT(lstat(path, &about) == 0 && S_ISSOCK(about.st_mode) && about.st_uid == OWNER);
    WANT(lstat(in_runtime(), &about) == 0 && (about.st_mode & 07777) == 0700);
    t->close(worker);
    path_of(in_tmp, 0, path);
    WANT(ls_socket_is_live(path)); /* the target of the link is untouched */
}

static void links_are_replaced(void **state)
{
    t = *state;
    clear();
    run_as(OWNER, make_open_folder);
    pid_t first = start_and_stop(OWNER, listen_in_tmp);
    run_as(OTHER, plant_links);
    run_as(OWNER, open_among_links);
    kill_it(first);
}

/* The other user's folder has links to a worker of the owner: one of another job, which must not be
 * met. */
static void plant_links_in_own_folder(void)
{
    char path[LS_UNIX_PATH_CHARS], target[LS_UNIX_PATH_CHARS];
    path_of(in_tmp, 0, target);
    WANT(mkdir(in_runtime(), 0755) == 0);
    job_name = "another";
    path_of(in_runtime(), 0, path);
    WANT(symlink(target, path) == 0);
}

static void call_through_links(void)
{
    job_name = "another";
    ls_unix_listener listener = { .kind = t->name, .options = job(1), .fd = -1 };
    int fd = 0;
    WANT(ls_unix_listener_call(&listener, 0, &fd) == LS_OK && fd == -1);
}

static void links_lead_to_no_other_job(void **state)
{
    t = *state;
    clear();
    pid_t first = start_and_stop(OWNER, listen_in_tmp);
    run_as(OTHER, plant_links_in_own_folder);
    run_as(OWNER, call_through_links);
    kill_it(first);
}

/* ---- Files that are left ---- */

static void open_and_wait(void)
{
    (void)open_worker(0);
    (void)open_worker(1);
    wait_for_signal();
}

static void be_refused(void)
{
    ls_cluster_options o = job(1);
    ls_transport *worker = NULL;
    WANT(t->open(&o, 0, &worker) == LS_ERR_STATE && !worker);
    WANT(strstr(ls_last_error(), "another process is worker 1 of job \"users\" already"));
}

/* A job of another name removes them, too. */
static void meet_under_another_name(void)
{
    char path[LS_UNIX_PATH_CHARS];
    ls_cluster_options o = job(0);
    ls_transport *worker = NULL;
    snprintf(o.job, sizeof(o.job), "another");
    WANT(t->open(&o, 0, &worker) == LS_OK);
    path_of(in_runtime(), 0, path);
    WANT(!is_there(path));
    t->close(worker);
    WANT(!is_there(in_runtime()));
}

static void make_many_stale_files(void)
{
    char path[LS_UNIX_PATH_CHARS];
    WANT(mkdir(in_runtime(), 0700) == 0);
    for (int r = 0; r < 500; r++) {
        path_of(in_runtime(), r, path);
        close(listen_at(path, strlen(path) + 1));
    }
}

static void stale_files_do_not_block(void **state)
{
    t = *state;
    clear();
    pid_t killed = start_and_stop(OWNER, open_and_wait);
    run_as(OWNER, be_refused); /* it lives */
    kill_it(killed);
    run_as(OWNER, meet_in_peace); /* the same ranks */
    kill_it(start_and_stop(OWNER, open_and_wait));
    run_as(OWNER, meet_under_another_name);
    run_as(OWNER, make_many_stale_files);
    run_as(OWNER, meet_in_peace);
}

/* ---- Folders that cannot be used ---- */

static void meet_elsewhere(void)
{
    char report[400];
    meet(report, sizeof(report));
    WANT(!is_there(in_tmp));
}

static void live_in_small_place(void)
{
    struct stat about;
    ls_transport *worker = open_worker(0);
    char path[LS_UNIX_PATH_CHARS];
    path_of(in_tmp, 0, path);
    WANT(stat(path, &about) == 0); /* there was no room in the first folder */
    t->close(worker);
    meet_elsewhere();
}

static void full_folders_are_passed_over(void **state)
{
    t = *state;
    clear();
    if (mount("tmpfs", runtime, "tmpfs", 0, "nr_inodes=2,mode=1777") < 0)
        SKIP("no small file system can be mounted here");
    int status = end_of(start_as(OWNER, live_in_small_place));
    umount(runtime);
    assert_int_equal(status, 0);
}

static void long_paths_are_passed_over(void **state)
{
    t = *state;
    char path[300];
    clear();
    snprintf(path, sizeof(path), "%s/%0100d", runtime, 1);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chown(path, OWNER, OWNER), 0);
    setenv("XDG_RUNTIME_DIR", path, 1);
    run_as(OWNER, meet_elsewhere);
    setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
    run_as(OWNER, meet_elsewhere);
    unsetenv("XDG_RUNTIME_DIR");
    run_as(OWNER, meet_elsewhere);
}

/* Workers whose environments differ find each other, as one that is started later from another
 * terminal. */
static void meet_in_two_folders(void)
{
    ls_connection *line, *called;
    ls_transport *zero = open_worker(0);
    unsetenv("XDG_RUNTIME_DIR");
    ls_transport *one = open_worker(1);
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    WANT(t->call(zero, 1, &line) == LS_OK && line);
    WANT(t->answer(one, &called) == LS_OK && called);
    t->hang_up(line);
    t->hang_up(called);
    t->close(zero);
    t->close(one);
    WANT(!is_there(in_runtime()) && !is_there(in_tmp));
}

static void workers_look_in_all_folders(void **state)
{
    t = *state;
    clear();
    run_as(OWNER, meet_in_two_folders);
}

/* ---- All ---- */

static int set_up(void **state)
{
    (void)state;
    snprintf(base, sizeof(base), "/tmp/lockstep-users-XXXXXX");
    if (!mkdtemp(base) || chmod(base, 0755) < 0)
        return 1;
    snprintf(runtime, sizeof(runtime), "%s/r", base);
    snprintf(home, sizeof(home), "%s/h", base);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[256];
    snprintf(command, sizeof(command), "rm -rf %s %s", base, in_tmp);
    return system(command);
}

static void needs_root(void **state)
{
    (void)state;
    SKIP("only root can be two other users");
}

#define BOTH(test)                                                                                                     \
    cmocka_unit_test_prestate(test, (void *)&ls_transport_shm),                                                        \
        cmocka_unit_test_prestate(test, (void *)&ls_transport_unix)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(abstract_names_are_not_used),
        BOTH(squatters_are_reported_and_ignored),
        BOTH(the_message_names_every_folder),
        BOTH(foreign_listeners_are_ignored),
        BOTH(links_are_replaced),
        BOTH(links_lead_to_no_other_job),
        BOTH(stale_files_do_not_block),
        BOTH(full_folders_are_passed_over),
        BOTH(long_paths_are_passed_over),
        BOTH(workers_look_in_all_folders),
    };
    const struct CMUnitTest skipped[] = { cmocka_unit_test(needs_root) };
    return geteuid() == 0 ? cmocka_run_group_tests(tests, set_up, tear_down)
                          : cmocka_run_group_tests(skipped, NULL, NULL);
}
