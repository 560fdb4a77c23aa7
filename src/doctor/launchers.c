/* MPI and launchers, which start several ranks. */
#include "doctor/checks.h"

#include "base/disk.h"
#include "base/sys.h"
#include "build_config.h"
#include "comm/launch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARED "/dev/shm"
#define LITTLE_SHARED (64LL << 20) /* bytes: what containers have by default; Open MPI takes some for each pair of ranks */

/* Finds a program in PATH; returns 0 if there is none. */
static int find_program(const char *name, char *path, size_t size)
{
    const char *all = getenv("PATH");
    for (const char *from = all ? all : "", *end; *from; from = *end ? end + 1 : end) {
        end = from + strcspn(from, ":");
        snprintf(path, size, "%.*s/%s", (int)(end - from), from, name);
        if (sys_access(path, X_OK) == 0)
            return 1;
    }
    return 0;
}

static void check_launcher(struct findings *f)
{
    struct launch launch;
    if (launch_detect(NULL, &launch) != OK)
        findings_add(f, VERDICT_FAILURE, "launcher", "", "%s", status_message());
    else
        findings_add(f, VERDICT_OK, "launcher", "", "started by: %s, as rank %d of %d", launch.source, launch.rank, launch.size);
}

#ifdef HAVE_MPI
static void check_mpi(struct findings *f)
{
    char path[4096];
    if (find_program("mpiexec", path, sizeof path))
        findings_add(f, VERDICT_OK, "mpi", "", "built in; %s starts ranks", path);
    else if (find_program("srun", path, sizeof path))
        findings_add(f, VERDICT_OK, "mpi", "", "built in; %s --mpi=pmix starts ranks", path);
    else
        findings_add(f, VERDICT_WARNING, "mpi", "put the directory of the MPI that ltrain was built with into PATH",
                     "built in, and neither mpiexec nor srun is in PATH: one rank can be started");
}
#else
static void check_mpi(struct findings *f)
{
    findings_add(f, VERDICT_WARNING, "mpi", "install an MPI (libopenmpi-dev) and build again",
                 "not built in: one rank can be started");
}
#endif

void doctor_launchers(struct findings *f)
{
    struct disk d;
    char room[64];
    check_mpi(f);
    check_launcher(f);
    if (disk_look(SHARED, &d) != 0)
        findings_add(f, VERDICT_WARNING, "shm", "mount a tmpfs there",
                     SHARED " cannot be looked at: ranks of a host may not find each other");
    else if (disk_room(&d) < LITTLE_SHARED)
        findings_add(f, VERDICT_WARNING, "shm", "docker run --shm-size 1g, or remount it with size=1g",
                     SHARED ": %s: several ranks of a host may not start", disk_say_room(&d, room));
    else
        findings_add(f, VERDICT_OK, "shm", "", SHARED ": %s", disk_say_room(&d, room));
}
