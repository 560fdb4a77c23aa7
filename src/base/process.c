#include "base/process.h"

#include "base/mix.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PASSED_ON "LTRAIN_PASSED_ON" /* environment variable with the path of a file of one int: the number passed on, or 0 */

/* Reads a file of up to size - 1 bytes; "" if it cannot be read. Does not use sys_open, so that reading /proc is not counted as
 * the run's I/O, and may fail. */
static void read_short(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
}

char process_state(int64_t pid, uint64_t *born)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    read_short(path, text, sizeof text);
    char *at = strrchr(text, ')'); /* the name before the last ')' may contain any character */
    if (!at || strlen(at) < 3)
        return 0;
    char state = at[2];
    at += 2;
    for (int field = 3; field < 22 && at; field++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    *born = at ? strtoull(at, NULL, 10) : 0;
    return state;
}

void process_self(struct process *p)
{
    struct stat s;
    memset(p, 0, sizeof *p);
    if (gethostname(p->host, sizeof p->host - 1) != 0)
        snprintf(p->host, sizeof p->host, "localhost");
    read_short("/proc/sys/kernel/random/boot_id", p->boot, sizeof p->boot);
    p->boot[strcspn(p->boot, "\n")] = 0;
    if (stat("/proc/self/ns/pid", &s) == 0)
        p->pid_namespace = s.st_ino;
    p->pid = getpid();
    process_state(p->pid, &p->born);
}

uint64_t process_hash(const struct process *p)
{
    uint64_t h = mix_text(mix_text(0, p->host), p->boot);
    return mix(mix(mix(h, p->pid_namespace), (uint64_t)p->pid), p->born);
}

const char *process_system_root(void)
{
    const char *root = getenv("LTRAIN_SYSTEM_ROOT");
    return root ? root : "";
}

static int passed_on_fd = -1;
static char passed_on_path[64];

/* Makes an unnamed file that children can open by a path in the environment: mpiexec, between parent and child, closes
 * descriptors but passes the environment on. */
void process_will_pass_on(void)
{
    char path[sizeof passed_on_path];
    passed_on_fd = memfd_create("signal", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)getpid(), passed_on_fd);
    if (passed_on_fd >= 0)
        setenv(PASSED_ON, path, 1);
}

void process_pass_on(int number)
{
    ssize_t n = pwrite(passed_on_fd, &number, sizeof number, 0);
    (void)n; /* a failed write leaves 0 there: no number is known to the children */
}

void process_find_passed_on(void)
{
    const char *path = getenv(PASSED_ON);
    snprintf(passed_on_path, sizeof passed_on_path, "%s", path ? path : "");
}

int process_is_passed_on_to(void)
{
    return passed_on_path[0] != 0;
}

int process_passed_on(void)
{
    int number = 0, fd = passed_on_path[0] ? open(passed_on_path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && read(fd, &number, sizeof number) != (ssize_t)sizeof number)
        number = 0;
    if (fd >= 0)
        close(fd);
    return number;
}
