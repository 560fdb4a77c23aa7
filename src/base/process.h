/* Who a process is, so that other processes, on other hosts and in other containers, can tell it from all others. */
#ifndef LTRAIN_BASE_PROCESS_H
#define LTRAIN_BASE_PROCESS_H

#include <stdint.h>

struct process {
    char host[256];
    char boot[40];          /* the kernel's number of this boot: hosts differ in it; containers of one host do not */
    uint64_t pid_namespace; /* pids mean something within one only */
    int64_t pid;
    uint64_t born; /* /proc/PID/stat's start time: a pid that is used again differs */
};

/* Describes the calling process; whatever /proc does not show is empty or 0. */
void process_self(struct process *p);
/* Returns the state letter, and the start time, of a process in this pid namespace; 0 if there is none. */
char process_state(int64_t pid, uint64_t *born);
/* Hashes a process's identity: its host, boot, pid namespace, pid and start time. */
uint64_t process_hash(const struct process *p);

/* Returns the path in front of /proc and /sys: the environment variable LTRAIN_SYSTEM_ROOT, by which whole-program tests play
 * cgroups with files of their own, or "". */
const char *process_system_root(void);

/* ---- a signal that its children get as another one: which one it was ---- */

/* Lets children started from here on read what process_pass_on says; earlier ones get no answer. */
void process_will_pass_on(void);
void process_pass_on(int number);
/* Finds what the next one reads; by a child. */
void process_find_passed_on(void);
/* Returns the number that an ancestor has passed on; 0: none, or no such ancestor. Safe in a signal handler. */
int process_passed_on(void);

#endif
