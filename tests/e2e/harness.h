/* Runs the ltrain program as users do, in a working directory made for the test, with arguments, environment and limits, and
 * returns its output. */
#ifndef TESTS_E2E_HARNESS_H
#define TESTS_E2E_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdint.h>
#include <sys/types.h>

/* Options for a small model with tiles so small that a step and its planning take milliseconds, although the step has many
 * instructions. */
#define TILES " --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick "
#define TINY " --model tiny --data corpus.txt --seq-len 256" TILES
#define DISCRETE " --offload nvme --device cpu:discrete "

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define E2E_SANITIZED 1 /* 1 with sanitizers: memory sizes differ, and mlock does nothing */
#else
#define E2E_SANITIZED 0
#endif

/* Way to start a program. */
struct launch {
    const char *fault;    /* LTRAIN_FAULT, or NULL */
    int (*prepare)(void); /* called in the child before it becomes ltrain; a result other than 0 skips the test; NULL: none */
};

struct result {
    int status;         /* exit status, or 128 + signal */
    char *out, *err;    /* output, owned by the harness until the next program starts */
    int64_t peak_bytes; /* resident */
    double seconds;
};

/* Fixtures of a group or a test: e2e_setup makes a fresh working directory with corpus.txt, the other function removes it. */
int e2e_setup(void **state);
int e2e_teardown(void **state);

/* Runs ltrain. Arguments are one string, split at blanks; how may be NULL. */
__attribute__((format(printf, 2, 3))) struct result e2e_run(const struct launch *how, const char *format, ...);
/* e2e_start starts ltrain, e2e_wait waits for its end. Only one program runs at a time. */
pid_t e2e_start(const struct launch *how, const char *arguments);
struct result e2e_wait(pid_t pid);

/* Runs ltrain; fails unless it exits with 0 and an empty stderr. */
__attribute__((format(printf, 2, 3))) struct result e2e_succeeds(const struct launch *how, const char *format, ...);
/* Runs ltrain; fails unless it exits with `status` and prints one line `ltrain: SENTENCE` on stderr that contains each of the
 * texts in `words`, which are separated by '|'. */
__attribute__((format(printf, 4, 5))) struct result e2e_refuses(int status, const char *words, const struct launch *how,
                                                                const char *format, ...);
void e2e_contains(const char *text, const char *word);

/* ---- files ---- */

/* Reads a whole file and appends a 0; the caller frees the memory; fails if there is no file */
char *e2e_read(const char *path, size_t *bytes);
__attribute__((format(printf, 2, 3))) void e2e_write(const char *path, const char *format, ...);
__attribute__((format(printf, 1, 2))) int e2e_exists(const char *format, ...);
void e2e_remove(const char *path);               /* removes a file or a tree */
void e2e_copy(const char *from, const char *to); /* copies a tree; replaces an existing one */
void e2e_same_file(const char *a, const char *b);
/* Copies a model of tests/golden, or of tests/golden/moe, to a directory, and writes ids.bin, whose tokens it knows; IDS trains on them. */
#define IDS \
    " --data ids.bin --token-type u16 --seq-len 128 --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick --lr 1e-2 "
void e2e_golden_model(const char *name, const char *to);
void e2e_experts_model(const char *name, const char *to);
int e2e_count(const char *pattern); /* counts files that match a glob */

/* ---- preparations ---- */

int e2e_can_mount(void);      /* tells whether this process can mount in its own mount namespace */
int e2e_private_mounts(void); /* a preparation: gives the process its own mount namespace */
int e2e_drop_capability(int capability);
int e2e_drop_reading(void);                     /* a preparation: root reads only files that its permissions allow */
int e2e_without_call(unsigned call, int error); /* lets a system call fail in this process and its children */
int e2e_in_tree(void); /* a preparation: /proc and /sys of cgroups, memory and the bus are those below the directory `tree` */
int e2e_let_root_start_ranks(void); /* lets root start ranks with Open MPI; a preparation, or called for this process */

/* ---- looking at a running program ---- */

int e2e_ended(pid_t pid);
void e2e_wait_for_output(pid_t pid, const char *word); /* waits for a word on stdout, or until the program ends */
int e2e_count_unsaved(void);                           /* counts the failed saves so far */

/* Way to stop a run. Where the signal finds the run depends on the machine's speed: `where` returns < 0 if that is too early, 0
 * if it is right, > 0 if it is too late. The stop is then tried again with the signal later or sooner. */
struct stop {
    int step; /* the signal comes `ms` milliseconds after this step is printed */
    long ms;
    int number, times; /* the signal, and how often it is sent */
    int (*where)(const struct result *r, int step);
};
/* Starts ltrain with `arguments`, which contain --out run, and stops it; starts it anew for each try. */
struct result e2e_stop(const struct launch *how, const char *arguments, const struct stop *at);

/* ---- files of a run ---- */

#define E2E_MAX_STEPS 64
struct curve {
    int n;
    double loss[E2E_MAX_STEPS];
};
/* Reads RUN/metrics.jsonl, which has one object per step, from step 1 on. */
struct curve e2e_curve(const char *run);
/* Makes sure that the first n losses are equal, bit for bit. */
void e2e_same_curve(const struct curve *a, const struct curve *b, int n);

#endif
