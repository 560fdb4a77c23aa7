#include "base/process.h"

#include "base/mix.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Up to size - 1 bytes; "" if there are none. Not sys_open: a look is not the run's I/O, and may fail. */
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
    char *at = strrchr(text, ')'); /* the name may hold anything */
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
