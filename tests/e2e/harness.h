/* Running the ltrain program as people do: in a directory of its own, with arguments, environment and limits, looking at what
 * comes out. */
#ifndef TESTS_E2E_HARNESS_H
#define TESTS_E2E_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdint.h>
#include <sys/types.h>

/* A model and tiles so small that a step takes milliseconds, cut into many pieces all the same, and planned as fast. */
#define TILES " --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick "
#define TINY " --model tiny --data corpus.txt --seq-len 256" TILES
#define DISCRETE " --offload nvme --device cpu:discrete "

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define E2E_SANITIZED 1 /* memory is not what it is elsewhere, and mlock does nothing */
#else
#define E2E_SANITIZED 0
#endif

/* How a program is started. */
struct launch {
    const char *fault; /* LTRAIN_FAULT, or NULL */
    int (*prepare)(
        void); /* called in the child before it becomes ltrain; not 0: this machine cannot do it (the test is skipped), or NULL */
};

struct result {
    int status;         /* exit status, or 128 + signal */
    char *out, *err;    /* what it printed; owned by the harness until the next program */
    int64_t peak_bytes; /* resident */
    double seconds;
};

/* Group or test fixtures: a fresh working directory with corpus.txt, removed at the end. */
int e2e_setup(void **state);
int e2e_teardown(void **state);

/* Arguments are one string cut at blanks. how may be NULL. */
__attribute__((format(printf, 2, 3))) struct result e2e_run(const struct launch *how, const char *format, ...);
/* The same in two halves, one program at a time. */
pid_t e2e_start(const struct launch *how, const char *arguments);
struct result e2e_wait(pid_t pid);

/* Runs; fails unless it exits with 0, saying nothing on stderr. */
__attribute__((format(printf, 2, 3))) struct result e2e_succeeds(const struct launch *how, const char *format, ...);
/* Runs; fails unless it exits with `status`, its stderr being one line `ltrain: SENTENCE` that contains all of the words, which
 * are separated by '|'. */
__attribute__((format(printf, 4, 5))) struct result e2e_refuses(int status, const char *words, const struct launch *how,
                                                                const char *format, ...);
void e2e_contains(const char *text, const char *word);

/* ---- files ---- */

char *e2e_read(const char *path, size_t *bytes); /* the whole file with a 0 behind it, to be freed; fails if there is none */
__attribute__((format(printf, 2, 3))) void e2e_write(const char *path, const char *format, ...);
__attribute__((format(printf, 1, 2))) int e2e_exists(const char *format, ...);
void e2e_remove(const char *path);               /* a file or a tree */
void e2e_copy(const char *from, const char *to); /* a tree, in the place of what is there */
void e2e_same_file(const char *a, const char *b);
int e2e_count(const char *pattern); /* of files matching a glob */

/* ---- preparations ---- */

int e2e_can_mount(void);      /* in a mount namespace of one's own */
int e2e_private_mounts(void); /* as a preparation: mounts of this process are its own */
int e2e_drop_capability(int capability);
int e2e_drop_reading(void);        /* as a preparation: root reads only what it may */
int e2e_let_root_start_ranks(void); /* as a preparation, or for this process */

/* ---- looking at a program that runs ---- */

int e2e_ended(pid_t pid);
void e2e_wait_for_output(pid_t pid, const char *word); /* on stdout, or until it has ended */
int e2e_count_unsaved(void);                           /* saves that have failed so far */

/* How a run is stopped. Where the signal finds it depends on the machine: `where` says whether it was before what is wanted (< 0),
 * there, or behind it (> 0), and the stop is tried again, later or sooner. */
struct stop {
    int step; /* the one after it is to be stopped, ms after it was printed */
    long ms;
    int number, times; /* of the signal; how often it is sent */
    int (*where)(const struct result *r, int step);
};
/* Starts `arguments`, which have --out run, anew each time. */
struct result e2e_stop(const struct launch *how, const char *arguments, const struct stop *at);

/* ---- what a run left ---- */

#define E2E_MAX_STEPS 64
struct curve {
    int n;
    double loss[E2E_MAX_STEPS];
};
/* RUN/metrics.jsonl, one object a step, in order from step 1 on. */
struct curve e2e_curve(const char *run);
/* The first n losses are equal, bit for bit. */
void e2e_same_curve(const struct curve *a, const struct curve *b, int n);

#endif
