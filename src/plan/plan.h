/* The planner: from a model and settings to a program set that fits, or a sentence that names the shortage. */
#ifndef LTRAIN_PLAN_PLAN_H
#define LTRAIN_PLAN_PLAN_H

#include "machine/cost.h"
#include "model/model.h"
#include "plan/lower/program.h"
#include "plan/search/meshes.h"
#include "settings/settings.h"

enum plan_program {
    PLAN_STEP,        /* first micro-batch, nothing pending */
    PLAN_UPDATE_STEP, /* first micro-batch, interleaved with the pending update; plans that only evaluate: the evaluation */
    PLAN_MORE,        /* a further micro-batch, not the last */
    PLAN_LAST,        /* the last of several micro-batches */
    PLAN_FLUSH,       /* the pending update alone */
    PLAN_EVAL,        /* the losses of held-out sequences; in a pipeline, those behind forward passes */
    /* Pipelines run only PLAN_FLUSH and the programs below; their PLAN_UPDATE_STEP has both passes, and is cut into the halves
     * that run. FIRST: for a step's first micro-batch; LAST: for the last one of several; MORE: for those between. */
    PLAN_EMBED,
    PLAN_FORWARD,
    PLAN_HEAD_FIRST,
    PLAN_HEAD_MORE,
    PLAN_HEAD_LAST,
    PLAN_BACKWARD_FIRST,
    PLAN_BACKWARD_MORE,
    PLAN_BACKWARD_LAST,
    PLAN_BACKWARD_NEXT, /* the last slice of a further micro-batch */
    PLAN_EMBED_GRAD_FIRST,
    PLAN_EMBED_GRAD_MORE,
    PLAN_EMBED_GRAD_LAST,
    PLAN_PASS_FORWARD, /* messages beside a forward or backward pass that other stages run */
    PLAN_PASS_BACKWARD,
    PLAN_PREFILL, /* many tokens of a text; plans of sampling (sampling.h) only, which have just this and the next two programs */
    PLAN_PREFILL_SHORT,
    PLAN_DECODE, /* one token */
    PLAN_PROGRAMS
};

/* Result of the search for a length (max_seq.h). */
struct longest {
    int64_t step;   /* distance between lengths tried; 0: the length was given */
    int64_t longer; /* shortest length found not to fit; 0: none */
    enum tier tier; /* tier and bytes: the budget that `longer` exceeds, and its need */
    int64_t bytes;
    /* 1: all programs of `longer` exceed their tables (PROGRAM_MOST_*), whatever the budgets are; tier and bytes are not set */
    int beyond;
    int mesh, tiles; /* 1: the length fits on another mesh, or a finer grid, than the default one */
};

/* The default grid of model, length and mesh, compared with the grid that was taken. */
struct default_grid {
    int64_t row_chunk, loss_tile;
    int head_tile; /* 0: the default grid was taken */
    double slower; /* share of the plan's step by which the default grid is slower; INFINITY: the placement does not fit there */
};

/* Time and count of a pass of plan_create. The count is of trials so far or, once there is a plan, of its programs' instructions. */
enum { PLAN_PASSES = 11 };
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

/* Program sets of all ranks. A model has parts, each with as many ranks as the mesh; equal parts share a role (roles.h). */
struct plan_role {
    struct model *made; /* model of a part with this role, owned; NULL: the whole model */
    int island;         /* island of the machine on which the role runs; 0 where there are none */
    struct plan *plan;
};
struct plan_roles {
    int n_parts, n_roles;
    int *role;             /* [n_parts] */
    struct plan_role of[]; /* [n_roles] */
};

struct plan {
    struct strategy strategy;
    struct program *programs[PLAN_PROGRAMS]; /* NULL: the run does not need this program */
    struct io_buffers io;
    int64_t arena[TIERS];
    int64_t persistent[TIERS][CLASSES]; /* bytes */
    int64_t peak[TIERS][CLASSES];       /* largest simultaneously live bytes of a class, persistent ones included */
    int64_t limit[TIERS];
    double seconds; /* simulated step, all micro-batches; if !fits, estimated from the first one */
    /* seconds of attention without a window in a program, which is planned for a mean slice (ticks.h); 0 without slices */
    double causal_seconds[PLAN_PROGRAMS];
    enum effort effort;               /* effort of the search that found the plan */
    struct meshes meshes;             /* meshes that were weighed */
    int64_t tokens;                   /* tokens of a step, all micro-batches */
    int64_t sequences, micro_batches; /* sequences of a step over all ranks, micro-batches on each */
    struct cost_model cost;
    int fits;
    int finer;                        /* 1: the grid is not the default one, on which nothing fits */
    struct default_grid default_grid; /* set if another grid was chosen for speed */
    /* pipelines whose ZeRO stage was left open: seconds of a step with each stage, planned briefly; 0: not tried; INFINITY: no plan
     * fits */
    double zero_tried[4];
    int level;   /* prefetch level of the first program (prefetch.h) */
    double took; /* seconds of planning */
    struct pass_time passes[PLAN_PASSES];
    struct longest longest;
    const struct plan_stretch *
        stretches; /* all stretches of a run whose sequences change their length, borrowed; only in the longest length's plan, else NULL */
    int n_stretches;
    enum tier misfit;         /* tier whose limit is exceeded, if !fits */
    struct model *slice;      /* slice of the model for which the plan is made (--mesh tp), owned; NULL: plan_create's model */
    struct plan_roles *roles; /* roles of all ranks, this plan's among them; owned; NULL: all ranks have this plan */
};

/* Plans for the settings' mesh (plan_mesh; unresolved degrees count as 1). limit: bytes of the three tiers. The placement is
 * searched within the settings (search.h), with the longest prefetch distance that fits. If nothing fits, and finer tiles that
 * the settings leave open do not help, returns OK with fits = 0. *out is then the plan that exceeds by the least of those tried
 * (its programs up to the one that did not fit). The plan owns its programs; the model must outlive it.
 *
 * If the mesh has more slices of layers than the model, the plan is that of a slice: all slices run one program. */
enum status plan_create(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], struct plan **out);
/* Cuts the slice of a model that the request's mesh asks for, with the same layers. *out is NULL if the model is such a slice. */
enum status plan_slice_create(const struct model *m, const struct plan_request *s, struct model **out);
void plan_destroy(struct plan *p); /* NULL is fine */
/* Returns the first program there is: persistent buffers are alike in all. */
const struct program *plan_any(const struct plan *p);
/* Returns the tokens of a sequence, without padding. */
static inline int64_t plan_length(const struct plan *p)
{
    return p->tokens / p->sequences;
}
/* Prints a line for each pass. */
void plan_print_passes(const struct plan *p, FILE *f);

/* Verifies every program: ERR_CORRUPT with the sentence of the first that the verifier refuses. */
enum status plan_verify(const struct plan *p);

#endif
