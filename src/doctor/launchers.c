/* MPI and launchers, which start several ranks. */
#include "doctor/checks.h"

#include "base/disk.h"
#include "base/sys.h"
#include "comm/launch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARED "/dev/shm"
#define LITTLE_SHARED (64LL << 20) /* bytes that containers have by default; Open MPI takes some for each pair of ranks */

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

static void check_mpi(struct findings *f)
{
    char path[4096], libraries[256];
    if (wire_found(libraries, sizeof libraries) == 0)
        findings_add(f, VERDICT_WARNING, "mpi",
                     "install Open MPI or MPICH, or load its module; build again where headers were missing",
                     "%s: one rank can be started", libraries);
    else if (find_program("mpiexec", path, sizeof path))
        findings_add(f, VERDICT_OK, "mpi", "", "%s; %s starts ranks", libraries, path);
    else if (find_program("srun", path, sizeof path))
        findings_add(f, VERDICT_OK, "mpi", "", "%s; %s --mpi=pmix starts ranks", libraries, path);
    else
        findings_add(f, VERDICT_WARNING, "mpi", "put the directory of that MPI's mpiexec into PATH",
                     "%s; neither mpiexec nor srun is in PATH: one rank can be started", libraries);
}

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
