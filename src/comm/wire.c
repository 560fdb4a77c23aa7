/* The wire: choosing and opening the module of the MPI that has started the ranks. */
#include "comm/wire.h"

#include "base/library.h"
#include "base/sys.h"
#include "comm/shm.h"
#include "comm/wire_module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An MPI: libraries of one binary interface, of which the first that is found counts. */
struct mpi {
    const char *name, *module, *library[6];
    const char *launchers[4]; /* launchers whose ranks speak this MPI */
};

/* Cray's, Intel's and MVAPICH's libraries have MPICH's binary interface. */
static const struct mpi mpis[] = {
    {"Open MPI", "libltrain-mpi-openmpi.so", {"libmpi.so.40"}, {"Open MPI", "PMIx"}},
    {"MPICH",
     "libltrain-mpi-mpich.so",
     {"libmpi.so.12", "libmpich.so.12", "libmpi_gnu_91.so.12", "libmpi_cray.so.12", "libmpi_nvidia.so.12"},
     {"MPICH", "PALS", "MVAPICH"}},
};
enum { MPIS = sizeof mpis / sizeof *mpis };

static const struct wire_module *module; /* set by the first wire_create that succeeds in opening one */

/* Tells whether ranks started by that launcher speak this MPI. */
static int is_started_by(const struct mpi *m, const char *launcher)
{
    for (int i = 0; i < 4 && m->launchers[i]; i++)
        if (strncmp(launcher, m->launchers[i], strlen(m->launchers[i])) == 0)
            return 1;
    return 0;
}

/* Opens the MPI's library. *name: the one found; NULL: there is none. */
static void *open_library(const struct mpi *m, int how, const char **name)
{
    void *library = NULL;
    *name = NULL;
    for (int i = 0; !library && i < 6 && m->library[i]; i++)
        if ((library = dlopen(m->library[i], how)))
            *name = m->library[i];
    return library;
}

int wire_found(char *text, size_t size)
{
    int n = 0;
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < MPIS && at < size; i++) {
        char path[4200];
        const char *name;
        const int built = library_find(mpis[i].module, path, sizeof path);
        /* stays open: constructors of what it needs keep memory that nobody could reach after closing */
        void *library = built ? open_library(&mpis[i], RTLD_LAZY | RTLD_LOCAL, &name) : NULL;
        const char *state = !built ? "was not built in" : !library ? "is not here" : name;
        at += (size_t)snprintf(text + at, size - at, "%s%s: %s", i ? "; " : "", mpis[i].name, state);
        n += library != NULL;
    }
    return n;
}

/* Opens the MPI's library for all who come later, since its own plugins look for its symbols, and then the module. Returns 0, with
 * the reason, if one of them is not there or does not fit. */
static int open_mpi(const struct mpi *m, char *why, size_t size)
{
    static const struct wire_host host = {status_fail, sys_malloc, shm_is_short};
    char path[4200];
    const char *name;
    void *opened, *symbol;
    wire_module_entry *entry = NULL;
    if (!library_find(m->module, path, sizeof path)) {
        snprintf(why, size, "%s: there is no %.200s: ltrain was built without its headers", m->name, path);
        return 0;
    }
    if (!open_library(m, RTLD_NOW | RTLD_GLOBAL, &name)) {
        snprintf(why, size, "%s: there is no %s here", m->name, m->library[0]);
        return 0;
    }
    opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    symbol = opened ? dlsym(opened, WIRE_MODULE_ENTRY) : NULL;
    memcpy(&entry, &symbol, sizeof entry);
    const struct wire_module *found = entry ? entry(&host) : NULL;
    if (!found || found->version != WIRE_MODULE_VERSION) {
        const char *reason = opened ? NULL : dlerror();
        snprintf(why, size, "%s: %s", m->name, reason ? reason : "the module is another ltrain's: build both anew");
        return 0;
    }
    module = found;
    return 1;
}

/* Opens the module of the launcher's MPI; of a launcher that starts ranks of any, the first that can be opened. */
static enum status open_module(const struct launch *launch)
{
    char why[MPIS][512];
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < MPIS; i++)
            if (is_started_by(&mpis[i], launch->source) == (turn == 0) && open_mpi(&mpis[i], why[i], sizeof why[i]))
                return OK;
    return status_fail(
        ERR_INVALID,
        "%s started this as rank %d of %d, but there is no MPI to speak with the other ranks (see `ltrain doctor`): %.300s; %.300s",
        launch->source, launch->rank, launch->size, why[0], why[1]);
}

enum status wire_create(const struct launch *launch, double timeout_seconds, struct wire **out)
{
    if (!module)
        TRY(open_module(launch));
    return module->create(launch, timeout_seconds, out);
}

void wire_destroy(struct wire *w, double finalize_seconds)
{
    if (w)
        module->destroy(w, finalize_seconds);
}

unsigned wire_calls(void)
{
    return module ? module->calls() : 0;
}

const char *wire_starting(void)
{
    return module ? module->starting() : "";
}

enum status wire_reserve(struct wire *w, enum channel channel, int slots)
{
    return module->reserve(w, channel, slots);
}

enum status wire_send(struct wire *w, enum channel channel, int slot, int to, const void *data, int bytes)
{
    return module->send(w, channel, slot, to, data, bytes);
}

enum status wire_recv(struct wire *w, enum channel channel, int slot, int from, void *data, int bytes)
{
    return module->recv(w, channel, slot, from, data, bytes);
}

int wire_in_use(const struct wire *w, enum channel channel, int slot)
{
    return module->in_use(w, channel, slot);
}

enum status wire_test(struct wire *w, enum channel channel, const struct wire_event **events, int *n)
{
    return module->test(w, channel, events, n);
}
