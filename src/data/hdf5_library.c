/* libhdf5 by dlopen: found once, used by one thread at a time, silent. */
#include "data/hdf5_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

/* Debian's names, with their versions of the interface, then others'. */
static const char *const names[] = {
    "libhdf5_serial.so.103", "libhdf5_serial.so.310", "libhdf5.so.103", "libhdf5.so.200",
    "libhdf5.so.310",        "libhdf5_serial.so",     "libhdf5.so"
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ls_hdf5 library;
static bool loaded;

static bool find_calls(void *handle, ls_hdf5 *h5, const char **missing)
{
    void *found;
#define CALL(result, name, arguments)                                                                                  \
    found = dlsym(handle, *missing = #name);                                                                           \
    if (!found)                                                                                                        \
        return false;                                                                                                  \
    memcpy(&h5->name, &found, sizeof found);
    LS_HDF5_CALLS(CALL)
#undef CALL
    found = dlsym(handle, "H5Lget_info2");
    if (!found)
        found = dlsym(handle, *missing = "H5Lget_info");
    memcpy(&h5->link_info, &found, sizeof found);
    return found != NULL;
}

static bool find_numbers(void *handle, ls_hdf5 *h5, const char **missing)
{
    const void *found;
#define NUMBER(name)                                                                                                   \
    found = dlsym(handle, *missing = #name);                                                                           \
    if (!found)                                                                                                        \
        return false;                                                                                                  \
    memcpy(&h5->name, found, sizeof h5->name);
    LS_HDF5_NUMBERS(NUMBER)
#undef NUMBER
    return true;
}

/* Whatever is opened stays: the library has things to do when the process ends. */
static ls_status load(const char *path, ls_hdf5 *h5)
{
    void *handle = NULL;
    const char *missing = "";
    unsigned major = 0, minor = 0, release = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && !handle; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "'%s' is an HDF5 file, and libhdf5 is not installed here (Debian's package: libhdf5-103-1, in "
                       "Debian 13 libhdf5-310)",
                       path);
    if (!find_calls(handle, h5, &missing))
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "'%s': the libhdf5 that is installed here has no %s; 1.10 or later is needed", path, missing);
    if (h5->H5get_libversion(&major, &minor, &release) < 0 || major < 1 || (major == 1 && minor < 10))
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "'%s': the libhdf5 that is installed here is %u.%u.%u; 1.10 or later is needed", path, major,
                       minor, release);
    if (h5->H5open() < 0 || !find_numbers(handle, h5, &missing))
        return ls_fail(LS_ERR_UNSUPPORTED, "'%s': the libhdf5 that is installed here does not start", path);
    return LS_OK;
}

ls_status ls_hdf5_acquire(const char *path, ls_hdf5 **out)
{
    pthread_mutex_lock(&lock);
    ls_status status = loaded ? LS_OK : load(path, &library);
    loaded = loaded || status == LS_OK;
    if (status != LS_OK) {
        pthread_mutex_unlock(&lock);
        return status;
    }
    library.H5Eget_auto2(0, &library.print, &library.print_user);
    library.H5Eset_auto2(0, NULL, NULL);
    library.H5Eclear2(0);
    *out = &library;
    return LS_OK;
}

void ls_hdf5_release(ls_hdf5 *h5)
{
    h5->H5Eclear2(0);
    h5->H5Eset_auto2(0, h5->print, h5->print_user);
    pthread_mutex_unlock(&lock);
}

/* The innermost error, which comes first. */
static int keep_first(unsigned n, const h5_error *error, void *user)
{
    char *text = user;
    if (n == 0 && error->text)
        snprintf(text, 200, "%s", error->text);
    return 0;
}

ls_status ls_hdf5_fail(ls_hdf5 *h5, const char *path, const char *what)
{
    char text[200] = "";
    h5->H5Ewalk2(0, 0, keep_first, text);
    return ls_fail(LS_ERR_DATA, "'%s': %s%s%s", path, what, text[0] ? "; libhdf5 says: " : "", text);
}
