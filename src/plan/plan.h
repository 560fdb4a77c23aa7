/* The planner: from a model and settings to a program set that fits, or a sentence saying what does not. */
#ifndef LTRAIN_PLAN_PLAN_H
#define LTRAIN_PLAN_PLAN_H

#include "machine/cost.h"
#include "model/model.h"
#include "plan/lower/program.h"
#include "plan/search/meshes.h"
#include "settings/settings.h"

enum plan_program {
    PLAN_STEP,        /* first micro-batch, nothing pending */
    PLAN_UPDATE_STEP, /* first micro-batch, the pending update woven in; of what only evaluates, that */
    PLAN_MORE,        /* a further micro-batch, not the last */
    PLAN_LAST,        /* the last of several micro-batches */
    PLAN_FLUSH,       /* the pending update alone */
    PLAN_EVAL,
    PLAN_PREFILL, /* many tokens of a text; of sampling (sampling.h), whose plans have no others but these three */
    PLAN_PREFILL_SHORT,
    PLAN_DECODE, /* one token */
    PLAN_PROGRAMS
};

/* How the length was found, where it was searched for (max_seq.h). */
struct longest {
    int64_t step;   /* between lengths tried; 0: the length was given */
    int64_t longer; /* the shortest one found not to fit; 0: none */
    enum tier tier; /* of that one: which budget it exceeds, and what it needs of it */
    int64_t bytes;
    int beyond;      /* else: of that one all programs are beyond their tables (PROGRAM_MOST_*), whatever the budgets are */
    int mesh, tiles; /* it fits on another mesh or a finer grid than the default ones */
};

/* The grid of model, length and mesh, and what it takes. */
struct default_grid {
    int64_t row_chunk, loss_tile;
    int head_tile; /* 0: it was taken */
    double slower; /* than the one taken, by this share of that one's step; INFINITY: what was taken does not fit there */
};

/* What a pass of plan_create took, and what it left: trials so far, or instructions of the plan's programs. */
enum { PLAN_PASSES = 10 };
struct pass_time {
    const char *name, *unit;
    double seconds;
    int64_t count;
};

/* Steps [first, end) of a run whose sequences change their length, and the plan of that length. */
struct plan_stretch {
    int64_t seq_len, first, end;
    const struct plan *plan;
};

struct plan {
    struct strategy strategy;
    struct program *programs[PLAN_PROGRAMS]; /* NULL where the run needs none */
    struct io_buffers io;
    int64_t arena[TIERS];
    int64_t persistent[TIERS][CLASSES]; /* bytes */
    int64_t peak[TIERS][CLASSES];       /* largest simultaneously live bytes of a class, persistent ones included */
    int64_t limit[TIERS];
    double seconds;                   /* simulated step, all micro-batches; if !fits, estimated from the first one */
    enum effort effort;               /* of the search that found it */
    struct meshes meshes;             /* that were weighed */
    int64_t tokens;                   /* of a step, all micro-batches */
    int64_t sequences, micro_batches; /* of a step: over all ranks; of one */
    struct cost_model cost;
    int fits;
    int finer;               /* the grid is not the default one, on which nothing fits */
    struct default_grid default_grid; /* where another one was chosen for speed */
    int level;                /* prefetch level of the first program (prefetch.h) */
    double took;             /* seconds of planning */
    struct pass_time passes[PLAN_PASSES];
    struct longest longest;
    const struct plan_stretch *stretches; /* of the longest one's plan, where lengths change: all of them, borrowed; else NULL */
    int n_stretches;
    enum tier misfit; /* tier whose limit is exceeded, if !fits */
};

/* For the settings' mesh (plan_mesh; unresolved degrees count as 1). Limits of the three tiers in bytes. The
 * placement is searched within what the settings fix (search.h), with the longest prefetch distance that fits. If nothing fits,
 * and finer tiles that the settings leave open do not help, returns OK with fits = 0 and the plan that exceeds by the least of
 * those tried (its programs up to the one that did not fit). The plan owns its programs; the model must outlive it. */
enum status plan_create(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out);
void plan_destroy(struct plan *p); /* NULL is fine */
/* The first program there is: persistent buffers are alike in all. */
const struct program *plan_any(const struct plan *p);
/* Tokens of a sequence, without padding. */
static inline int64_t plan_length(const struct plan *p)
{
    return p->tokens / p->sequences;
}
/* A line for each pass. */
void plan_print_passes(const struct plan *p, FILE *f);

/* Whether the verifier accepts every program: ERR_CORRUPT with the sentence of the first that it does not. */
enum status plan_verify(const struct plan *p);

#endif
