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

/* The calling process; what /proc does not show is empty or 0. */
void process_self(struct process *p);
/* State letter and start time of a process of this pid namespace; 0 if there is none. */
char process_state(int64_t pid, uint64_t *born);
/* One process of one boot of one host. */
uint64_t process_hash(const struct process *p);

/* What stands before /proc and /sys in whole-program tests, which act out cgroups by files of their own: the environment
 * variable LTRAIN_SYSTEM_ROOT, or "". */
const char *process_system_root(void);

/* ---- a signal that its children get as another one: which one it was ---- */

/* Children that are started from here on can ask. Without it they get no answer. */
void process_will_pass_on(void);
void process_pass_on(int number);
/* Finds what the next one reads; by a child. */
void process_find_passed_on(void);
/* What an ancestor has passed on; 0: nothing, or there is no such one. May be called by a signal's handler. */
int process_passed_on(void);

#endif
