/* Stories: lives of a cluster with the faults that befall them, drawn from a seed, lived, checked and shrunk. */
#ifndef TESTS_SIMULATE_STORY_H
#define TESTS_SIMULATE_STORY_H

#include "cluster.h"

enum { LIVES = 3 /* the last one without faults */ };

struct story {
    uint64_t seed;
    int n; /* number of lives */
    struct {
        int form;
        struct faults faults;
    } life[LIVES];
};

/* Courses of undisturbed runs of a form: [0] its own, [k] the one whose step k the form's partner goes on from. They are found when a story
 * needs them. */
struct truth {
    struct course course[CLUSTER_STEPS];
    struct outcome life;
};

/* A course that is sought: a form's own (step 0), or its partner's from that step on. */
struct sought {
    int form, step;
};

enum story_count { KILLED, FAILED, STOPPED, RESUMED, ELSEWHERE, ANEW, COUNTS };

/* Memory that the processes of stories share with the one that starts them. */
struct shared {
    struct truth truth[32];
    int lacks; /* 1: the story needs the course `sought` */
    struct sought sought;
    char text[4096];
    int counts[COUNTS];
};
extern struct shared *story_shared;
extern int story_tells; /* 1: what happens is printed */

/* Sets the directory of lives and what else a process of stories needs. Returns 0 on failure. */
int story_begin(void);
void story_end(void);
/* Finds the undisturbed course of each form. Returns 0, with story_shared->text, if one goes wrong. */
int story_find_truths(void);
void story_draw(uint64_t seed, struct story *out);
void story_print(const struct story *x);
/* Lives a story in a process of its own. Returns 1 if all goes as it must, else 0 with story_shared->text. */
int story_live(const struct story *x);
/* Makes a failing story as short as it still fails. */
void story_shrink(struct story *x);

#endif
