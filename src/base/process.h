/* The identity of a process, by which processes on other hosts and in other containers tell it from all others. */
#ifndef LTRAIN_BASE_PROCESS_H
#define LTRAIN_BASE_PROCESS_H

#include <stdint.h>

struct process {
    char host[256];
    char boot[40];          /* kernel's id of this boot: differs between hosts, equal in the containers of a host */
    uint64_t pid_namespace; /* number of the pid namespace, within which a pid names a process */
    int64_t pid;
    uint64_t born; /* start time in /proc/PID/stat, which differs if a pid is used again */
};

/* Describes the calling process; members that /proc does not show are empty or 0. */
void process_self(struct process *p);
/* Returns the state letter of a process in this pid namespace, and its start time in *born; 0 if there is no such process. */
char process_state(int64_t pid, uint64_t *born);
/* Hashes a process's identity: its host, boot, pid namespace, pid and start time. */
uint64_t process_hash(const struct process *p);

/* Returns the path that is put in front of /proc and /sys: the environment variable LTRAIN_SYSTEM_ROOT, with which whole-program
 * tests show made-up cgroups, or "". */
const char *process_system_root(void);

/* ---- telling children, who get one signal for all causes, which signal their parent received ---- */

/* Lets children that start from now on find the number given to process_pass_on; children started before find none. */
void process_will_pass_on(void);
void process_pass_on(int number);
/* Prepares the functions below; called once, by a child. */
void process_find_passed_on(void);
/* Tells whether an ancestor passes signals on: process_passed_on then knows of a signal before any process gets it. */
int process_is_passed_on_to(void);
/* Returns the number that an ancestor has passed on; 0: none, or no ancestor passes any on. Safe in a signal handler. */
int process_passed_on(void);

#endif
