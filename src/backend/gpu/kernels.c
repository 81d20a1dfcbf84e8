/* Compiles modules on first use and caches them on disk under a hash of source, options, device and
 * driver. Several processes may do so at once: files are written atomically and verified when
 * read. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/driver.h"
#include "base/append.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/sha256.h"
#include "base/text.h"

#define MOST_BINARY ((size_t)256 << 20) /* bytes */
#define HEX         64

typedef struct kernel {
    char name[48];
    void *handle;
} kernel;

typedef struct module {
    void *program; /* NULL: not needed yet */
    char *source;
    char path[PATH_MAX]; /* file with its binary; "": not cached */
    bool is_new;         /* not on disk yet */
    kernel *kernels;
    int count;
} module;

/* Identified by its name. */
typedef struct chain {
    char name[48];
    module *module;
    bool refused; /* by the compiler */
} chain;

/* By requested name, because every lane of every step looks its kernel up. If it is full, the
 * modules are searched. */
#define KNOWN 512
typedef struct known {
    char name[48];
    ls_gpu_kernel_of kernel;
} known;

struct ls_gpu_kernels {
    const ls_gpu_driver *driver;
    void *device;
    char *key;
    module modules[LS_GPU_MODULES];
    chain *chains;
    size_t count, room;
    known known[KNOWN];
    int known_count;
};

ls_gpu_kernels *ls_gpu_kernels_create(const ls_gpu_opening *opening)
{
    ls_gpu_kernels *k = calloc(1, sizeof(*k));
    if (!k)
        return NULL;
    k->driver = opening->driver;
    k->device = opening->device;
    k->key = strdup(opening->key);
    if (k->key)
        return k;
    free(k);
    return NULL;
}

static void release_module(const ls_gpu_kernels *k, module *m)
{
    for (int i = 0; k->driver->release_kernel && i < m->count; i++)
        k->driver->release_kernel(k->device, m->kernels[i].handle);
    if (m->program)
        k->driver->release(k->device, m->program);
    free(m->kernels);
    free(m->source);
}

void ls_gpu_kernels_destroy(ls_gpu_kernels *k)
{
    if (!k)
        return;
    for (int m = 0; m < LS_GPU_MODULES; m++)
        release_module(k, &k->modules[m]);
    for (size_t i = 0; i < k->count; i++) {
        release_module(k, k->chains[i].module);
        free(k->chains[i].module);
    }
    free(k->chains);
    free(k->key);
    free(k);
}

/* LOCKSTEP_CACHE, or `lockstep` in the user's cache. "": no cache. */
static void folder(char out[PATH_MAX])
{
    const char *chosen = getenv("LOCKSTEP_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    out[0] = '\0';
    if (chosen)
        snprintf(out, PATH_MAX, "%s", chosen);
    else if (cache && cache[0] == '/')
        snprintf(out, PATH_MAX, "%s/lockstep", cache);
    else if (home && home[0] == '/')
        snprintf(out, PATH_MAX, "%s/.cache/lockstep", home);
}

static void find_path(const ls_gpu_kernels *k, module *m)
{
    char from[PATH_MAX], hex[HEX + 1];
    ls_text key = { 0 };
    folder(from);
    m->path[0] = '\0';
    if (!from[0] || !k->key[0])
        return;
    ls_text_add(&key, "%s\n%s", k->key, m->source);
    if (!key.failed && ls_sha256_of(ls_text_get(&key), strlen(ls_text_get(&key)), hex) == LS_OK &&
        strlen(from) + HEX + 32 < PATH_MAX)
        snprintf(m->path, sizeof(m->path), "%.*s/%.16s/%s.bin", PATH_MAX - HEX - 32, from, k->driver->name, hex);
    ls_text_free(&key);
}

/* Only if the file is intact. */
static void *read_program(const ls_gpu_kernels *k, const module *m)
{
    char *data = NULL, hex[HEX + 1];
    size_t bytes = 0;
    void *program = NULL;
    if (!m->path[0] || ls_file_read(m->path, MOST_BINARY, &data, &bytes) != LS_OK)
        return NULL;
    bool whole = bytes > HEX && ls_sha256_of(data + HEX, bytes - HEX, hex) == LS_OK && memcmp(hex, data, HEX) == 0;
    if (!whole || !k->driver->load(k->device, data + HEX, bytes - HEX, &program))
        program = NULL;
    free(data);
    return program;
}

static void write_program(const ls_gpu_kernels *k, const module *m)
{
    char hex[HEX + 1], from[PATH_MAX];
    void *binary = NULL;
    size_t bytes = 0;
    if (!k->driver->binary(k->device, m->program, &binary, &bytes))
        return;
    snprintf(from, sizeof(from), "%s", m->path);
    *strrchr(from, '/') = '\0';
    if (bytes <= MOST_BINARY && ls_sha256_of(binary, bytes, hex) == LS_OK && ls_make_folders(from) == LS_OK)
        (void)ls_file_write_parts(m->path, (ls_file_part[]){ { hex, HEX }, { binary, bytes } }, 2);
    free(binary);
}

static void keep(const ls_gpu_kernels *k, module *m)
{
    if (m->is_new && m->path[0])
        write_program(k, m);
    m->is_new = false;
}

void ls_gpu_kernels_keep(ls_gpu_kernels *k)
{
    for (int i = 0; i < LS_GPU_MODULES; i++)
        keep(k, &k->modules[i]);
    for (size_t i = 0; i < k->count; i++)
        keep(k, k->chains[i].module);
}

static ls_status need_module(ls_gpu_kernels *k, module *m, const char *name)
{
    if (m->program)
        return LS_OK;
    if (!m->source)
        return ls_fail(LS_ERR_MEMORY, "no memory for the kernels of %s", name);
    find_path(k, m);
    if ((m->program = read_program(k, m)))
        return LS_OK;
    LS_TRY(k->driver->compile(k->device, m->source, name, &m->program));
    m->is_new = true;
    return LS_OK;
}

static chain *find_chain(const ls_gpu_kernels *k, const char *name)
{
    for (size_t i = 0; i < k->count; i++)
        if (strcmp(k->chains[i].name, name) == 0)
            return &k->chains[i];
    return NULL;
}

ls_status ls_gpu_kernels_chain(ls_gpu_kernels *k, const ls_gpu_chain_steps *c, bool *taken)
{
    chain *found = find_chain(k, c->name);
    if (!found) {
        LS_TRY(ls_grow(&k->chains, k->count, &k->room, sizeof(*k->chains)));
        found = &k->chains[k->count];
        *found = (chain){ .module = calloc(1, sizeof(module)) };
        if (!found->module)
            return ls_fail(LS_ERR_MEMORY, "no memory for kernel %s", c->name);
        snprintf(found->name, sizeof(found->name), "%s", c->name);
        found->module->source = ls_gpu_chain_source(c);
        k->count++;
        ls_status status = need_module(k, found->module, c->name);
        if (status != LS_OK && status != LS_ERR_DEVICE)
            return status;
        found->refused = status != LS_OK;
    }
    *taken = !found->refused;
    return LS_OK;
}

static ls_status find_in_module(ls_gpu_kernels *k, module *m, const char *module_name, const char *name, void **out,
                                bool *first)
{
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->kernels[i].name, name) == 0) {
            *out = m->kernels[i].handle;
            return LS_OK;
        }
    LS_TRY(need_module(k, m, module_name));
    kernel *grown = realloc(m->kernels, (size_t)(m->count + 1) * sizeof(*grown));
    if (!grown)
        return ls_fail(LS_ERR_MEMORY, "no memory for kernel %s", name);
    m->kernels = grown;
    kernel *added = &m->kernels[m->count];
    LS_TRY(k->driver->kernel(k->device, m->program, name, &added->handle));
    snprintf(added->name, sizeof(added->name), "%s", name);
    m->count++;
    *out = added->handle;
    *first = true;
    return LS_OK;
}

/* The entry of this name, or a free one for it. */
static known *find_known(ls_gpu_kernels *k, const char *name)
{
    uint32_t hash = 2166136261u;
    for (const char *at = name; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    size_t at = hash % KNOWN;
    while (k->known[at].name[0] && strcmp(k->known[at].name, name) != 0)
        at = (at + 1) % KNOWN;
    return &k->known[at];
}

ls_status ls_gpu_kernel(ls_gpu_kernels *k, ls_gpu_module number, const char *name, ls_gpu_kernel_of *out, bool *first)
{
    known *place = find_known(k, name);
    *first = false;
    if (place->name[0]) {
        *out = place->kernel;
        return LS_OK;
    }
    const chain *own = number == LS_GPU_CHAINS ? find_chain(k, name) : NULL;
    ls_gpu_found found = ls_gpu_find_kernel(name, number);
    module *m = own ? own->module : &k->modules[found.module];
    if (!m->source)
        m->source = ls_gpu_source(found.module);
    *out = (ls_gpu_kernel_of){ .which = found.which, .places = found.places };
    LS_TRY(find_in_module(k, m, own ? own->name : ls_gpu_module_name(found.module), found.name, &out->handle, first));
    if (k->known_count < KNOWN / 2) {
        snprintf(place->name, sizeof(place->name), "%s", name);
        place->kernel = *out;
        k->known_count++;
    }
    return LS_OK;
}
