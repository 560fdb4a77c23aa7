/* Setting the environment of mpiexec for ranks of one machine. */
#include "cli/mpi_defaults.h"

#include "base/disk.h"
#include "base/sys.h"
#include "comm/launch.h"
#include "comm/shm.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tells whether PATH has the program. */
static int is_on_path(const char *name)
{
    char path[PATH_MAX], *copy = strdup(getenv("PATH") ? getenv("PATH") : ""), *at = copy, *directory;
    int found = 0;
    while (!found && at && (directory = strsep(&at, ":")))
        if (snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path)
            found = sys_access(path, X_OK) == 0;
    free(copy);
    return found;
}

/* Sets the variable unless the user has, and notes that in `ours`. */
static void set_default(const char *name, const char *value, char *ours, size_t size)
{
    size_t n = strlen(ours);
    if (getenv(name) || setenv(name, value, 0) != 0)
        return;
    snprintf(ours + n, size - n, "%s:", name);
}

/* Chooses how ranks of one machine send: through shared memory, or over TCP if a container has no room for that. */
static void choose_transport(int n, FILE *notes, char *ours, size_t size)
{
    char why[192];
    const int given = getenv("OMPI_MCA_btl") || getenv("OMPI_MCA_pml");
    if (given || !shm_is_short(n, why, sizeof why)) {
        set_default("OMPI_MCA_btl", "vader,self", ours, size);
        return;
    }
    set_default("OMPI_MCA_btl", "tcp,self", ours, size);
    if (!getenv("OMPI_MCA_btl_tcp_if_exclude"))
        set_default("OMPI_MCA_btl_tcp_if_include", "lo", ours, size);
    fprintf(notes, "remark: %s: the ranks send over TCP instead, which is slower (docker run --shm-size gives more)\n", why);
    fflush(notes);
}

/* Tells whether the directory has room for mpiexec's files, some 12 MiB. Without room, Open MPI 4.1 hangs, or fails without a
 * message of ours. */
static int has_session_room(const char *directory, char *free_text)
{
    const int64_t need = (int64_t)32 << 20;
    struct disk disk;
    if (sys_access(directory, W_OK | X_OK) != 0 || disk_look(directory, &disk) != 0) {
        snprintf(free_text, 64, "cannot be written");
        return 0;
    }
    disk_say_room(&disk, free_text);
    return disk_room(&disk) >= need;
}

/* Chooses Open MPI's directory for a job, since the usual one (TMPDIR and the like) may be full. */
static void choose_session_directory(FILE *notes, char *ours, size_t size)
{
    static const char *const variables[] = {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"};
    static const char *const others[] = {"/tmp", "/var/tmp", "/dev/shm"};
    const char *given = NULL;
    char why[64], room[64];
    for (size_t i = 0; i < sizeof variables / sizeof *variables && !given; i++)
        given = getenv(variables[i]);
    if (getenv(variables[0]) || has_session_room(given ? given : "/tmp", why))
        return;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (has_session_room(others[i], room)) {
            set_default(variables[0], others[i], ours, size);
            fprintf(notes, "remark: %s (%s) is no place for mpiexec's files: they are in %s\n", given ? given : "/tmp", why,
                    others[i]);
            fflush(notes);
            return;
        }
}

/* Sets variables instead of options, so that another MPI's mpiexec accepts the command line and the user's own variables stay. */
void mpi_defaults_set(int n, FILE *notes)
{
    char ours[512] = ":";
    static const char *const defaults[][2] = {
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},     /* allows more ranks than cores */
        {"OMPI_MCA_hwloc_base_binding_policy", "none"}, /* without it up to two ranks get one core each, whatever their threads */
        {"OMPI_MCA_pml", "ob1"},              /* the shortest start on one machine: 22 ms instead of 239 with Open MPI 4.1 */
        {"OMPI_MCA_orte_execute_quiet", "1"}, /* ltrain prints the message */
        /* seconds, waited twice before ranks are killed: time for them to say why they fail */
        {"OMPI_MCA_odls_base_sigkill_timeout", "2"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"}, /* Open MPI 5 */
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
    };
    choose_transport(n, notes, ours, sizeof ours);
    choose_session_directory(notes, ours, sizeof ours);
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
        set_default(defaults[i][0], defaults[i][1], ours, sizeof ours);
    setenv(LAUNCH_DEFAULTS, ours, 1);
    /* Open MPI 4 asks for ssh or rsh even for local ranks; containers have neither */
    if (!is_on_path("ssh") && !is_on_path("rsh"))
        setenv("OMPI_MCA_plm", "isolated", 0);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
        setenv("PRTE_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
}
