/* The planner: from a model and settings to a program set that fits, or a sentence saying what does not. */
#ifndef LTRAIN_PLAN_PLAN_H
#define LTRAIN_PLAN_PLAN_H

#include "model/model.h"
#include "plan/lower.h"
#include "plan/settings.h"
#include "program/cost.h"

enum plan_program {
    PLAN_STEP,        /* first micro-batch, nothing pending */
    PLAN_UPDATE_STEP, /* first micro-batch, the pending update woven in */
    PLAN_MORE,        /* a further micro-batch, not the last */
    PLAN_LAST,        /* the last of several micro-batches */
    PLAN_FLUSH,       /* the pending update alone */
    PLAN_EVAL,
    PLAN_PROGRAMS
};

/* How the length was found, where it was searched for (longest.h). */
struct longest {
    int64_t step;   /* between lengths tried; 0: the length was given */
    int64_t longer; /* the shortest one found not to fit; 0: none */
    enum tier tier; /* of that one: which budget it exceeds, and what it needs of it */
    int64_t bytes;
    int mesh, tiles; /* it fits on another mesh or a finer grid than the usual ones */
};

/* The grid of model, length and mesh, and what it takes. */
struct usual_grid {
    int64_t row_chunk, loss_tile;
    int head_tile; /* 0: it was taken */
    double slower; /* than the one taken, by this share of that one's step; INFINITY: what was taken does not fit there */
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
    int64_t tokens;                   /* of a step, all micro-batches */
    int64_t sequences, micro_batches; /* of a step: over all ranks; of one */
    struct cost_model cost;
    int fits;
    int finer;               /* the grid is not the usual one, on which nothing fits */
    struct usual_grid usual; /* where another one was chosen for speed */
    int pace;                /* how far ahead the first program fetches (fit.h) */
    double took;             /* seconds of planning */
    struct longest longest;
    enum tier misfit; /* tier whose limit is exceeded, if !fits */
};

/* Resolves dp, ulysses and ring for so many ranks, whose hosts have multiples of per_host of them, and batch and grad_accum with
 * them. What is given stays. ERR_INVALID names what does not divide, or the legal degrees. */
enum status plan_mesh(const struct model *m, struct settings *s, int ranks, int per_host);
/* The i-th other way to share a sequence among as many ranks, where plan_mesh has derived both degrees: ulysses groups lie inside
 * hosts. Returns 0 if there is none. */
int plan_other_degrees(const struct model *m, const struct settings *s, int i, int *ulysses, int *ring);

/* The usual grid of tiles: part of the numerics key, from model, sequence length and mesh unless given. ERR_INVALID names the
 * legal values. */
enum status plan_tiles(const struct model *m, const struct settings *s, struct strategy *out);
/* One size of the grid t changed to its i-th other value, if the settings leave it open: more heads, row chunks twice or half as
 * long, longer loss tiles. Returns 0 if there is none. */
enum tile_size { TILE_HEADS, TILE_ROWS, TILE_LOSS, TILE_SIZES };
int plan_other_tiles(const struct model *m, const struct settings *s, enum tile_size which, int i, struct strategy *t);
/* The i-th grid beside t, in all directions: also fewer heads, and loss tiles twice, four times, half and a quarter as long.
 * Returns 0 if the settings do not leave it open, or it is not legal. */
enum { PLAN_NEAR_TILES = 8 };
int plan_near_tiles(const struct model *m, const struct settings *s, int i, struct strategy *t);
/* The next finer grid among those that the settings leave open: fewer heads to a tile, and row chunks half as long. Returns 0 if
 * there is none. */
#define PLAN_FINER_HELPS 3.0 /* nothing is tried where more than so many times the memory would be needed */
enum { PLAN_FINER = 2 };     /* so many are tried: each takes longer to plan */
int plan_finer_tiles(const struct model *m, const struct settings *s, struct strategy *t);
/* Pieces of attention, row chunks times head tiles, of all layers. Of more than PLAN_QUICK a plan takes longer than all else:
 * with 7344 41 s instead of 16, for a length 5% longer, where host memory and not the device is short. */
enum { PLAN_QUICK = 6144 };
int64_t plan_pieces(const struct model *m, const struct strategy *t);
/* What is decided before the placement: mesh, rows, types, tiles. Errors as plan_tiles. */
enum status plan_fixed(const struct model *m, const struct settings *s, struct strategy *out);
/* Of one rank, from the settings' hardware (NULL: assumed), mesh, storage type and link speed. */
void plan_cost_model(const struct settings *s, struct cost_model *out);

/* For the settings' mesh (plan_mesh; unresolved degrees count as 1). Limits of the three tiers in bytes. The
 * placement is searched within what the settings fix (search.h), with the longest prefetch distance that fits. If nothing fits,
 * and finer tiles that the settings leave open do not help, returns OK with fits = 0 and the plan that exceeds by the least of
 * those tried (its programs up to the one that did not fit). The plan owns its programs; the model must outlive it. */
enum status plan_create(const struct model *m, const struct settings *s, const int64_t limit[TIERS], struct plan **out);
void plan_destroy(struct plan *p); /* NULL is fine */

/* Whether the verifier accepts every program: ERR_CORRUPT with the sentence of the first that it does not. */
enum status plan_verify(const struct plan *p);

/* A refusal: which tier, the excess and the cheapest change that fits (found by planning again), as an ERR_NOFIT failure. */
enum status plan_refuse(const struct plan *p, const struct model *m, const struct settings *s);

/* What `ltrain plan` says: the verdict, memory against its limits, and of what fits where a step's time goes. s: of the plan,
 * with the hardware if they name a machine. ERR_NOMEM. */
enum status plan_print(const struct plan *p, const struct model *m, const struct settings *s, FILE *f);
/* Memory beside what any plan would need: what addresses and fetching ahead cost. ERR_NOMEM. */
enum status plan_print_bounds(const struct plan *p, const struct model *m, FILE *f);
/* How the sequences of a step are shared out, where that is not evident: masked tokens, groups of ranks without work, several
 * micro-batches. A line each. */
void plan_print_sharing(const struct plan *p, FILE *f);
/* How many ranks have to share a node's host memory and drives, where the settings' machine says so; else 1. */
int plan_sharing(const struct plan *p, const struct settings *s);
/* The mesh and tiles to give with the longest length, where they are not the usual ones, as flags; else "". */
void plan_longest_flags(const struct plan *p, char buf[96]);
/* One line: residencies, alpha, tiles. PLAN_TEXT bytes are enough for either. */
enum { PLAN_TEXT = 512 };
void strategy_describe(const struct strategy *s, char *buf, int size);
void plan_describe(const struct plan *p, char *buf, int size);

#endif
