/* Running programs in random legal orders with dead bytes poisoned, or with kernels confined to their declared operands. */
#include "engine/chaos.h"

#include "base/rng.h"
#include "base/sys.h"
#include "engine/bounce.h"
#include "engine/comm_lanes.h"
#include "engine/dead_bytes.h"

#include <stdlib.h>
#include <string.h>

#define IN_FLIGHT 64

/* --- Random orders --- */

struct chaos_lane {
    int *instr; /* the lane's instructions, in order */
    int n, started, retired;
    char effect[IN_FLIGHT]; /* 1: the instruction has taken effect; by ticket modulo IN_FLIGHT */
    int flying;             /* comm lanes; 1: the communicator has the instruction, which other ranks may keep from ending */
    uint32_t speed;
};

struct chaos {
    const struct exec_context *x;
    const struct program *p;
    struct ages ages;
    struct chaos_lane lane[LANES];
    uint64_t seed, draws;
};

static uint64_t draw(struct chaos *c, uint64_t n)
{
    return rng_below(c->seed, 0xc4a05, c->draws++, n);
}

static int can_start(const struct chaos *c, int l)
{
    const struct chaos_lane *lane = &c->lane[l];
    if (lane->started == lane->n || lane->started - lane->retired >= (lane_is_pipelined((enum lane)l) ? IN_FLIGHT : 1))
        return 0;
    const struct instr *in = &c->p->instrs[lane->instr[lane->started]];
    for (const struct wait *w = program_waits(c->p, in), *end = w + in->n_waits; w < end; w++)
        if (c->lane[w->lane].retired < w->ticket)
            return 0;
    return 1;
}

/* Tells whether the instruction reads any of the operand's bytes. */
static int reads_too(const struct program *p, const struct instr *in, const struct operand *o)
{
    int64_t a = operand_address(p, o), b = a + o->bytes;
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *r = &p->operands[in->first_operand + k];
        int64_t at = operand_address(p, r);
        if ((r->access & ACCESS_READ) && operand_tier(p, r) == operand_tier(p, o) && at < b && a < at + r->bytes)
            return 1;
    }
    return 0;
}

/* Poisons the bytes that the instruction only writes, which may hold anything from its start on. One whose predicate does not hold
 * writes none. */
static enum status poison_written(struct chaos *c, const struct instr *in)
{
    if (!exec_holds(c->x, in->predicate))
        return OK;
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &c->p->operands[in->first_operand + k];
        enum tier t = operand_tier(c->p, o);
        if (o->access == ACCESS_WRITE && t != TIER_NVME && !reads_too(c->p, in, o))
            TRY(exec_fill(c->x, t, operand_address(c->p, o), POISON, o->bytes));
    }
    if (in->lane != LANE_WRITE)
        return OK;
    int64_t offset, bytes;
    exec_argument(c->x, c->p, in, 1, &offset, &bytes);
    void *garbage = sys_malloc((size_t)bytes);
    if (!garbage)
        return status_no_memory("for the chaos executor");
    memset(garbage, POISON, (size_t)bytes);
    enum status st = store_write(c->x->store, offset, garbage, bytes);
    free(garbage);
    return st;
}

/* Hands a comm lane's instruction to the communicator. */
static enum status comm_begin(const struct exec_context *x, const struct program *p, const struct instr *in,
                              const struct exec_halves *h)
{
    void *arg[OP_MAX_ARGS];
    int64_t offset, bytes;
    for (int k = 0; k < OP_MAX_ARGS; k++)
        arg[k] = exec_argument(x, p, in, k, &offset, &bytes);
    if (x->bounce)
        TRY(bounce_in(x, p, in, h->send, arg));
    return comm_start(x->comm, in->lane, in->op, &program_call(p, in)->attrs, arg, h->send, h->receive);
}

/* Starts or polls a comm lane's instruction; *done: it has taken effect. */
static enum status comm_effect(struct chaos *c, struct chaos_lane *lane, int i, int *done)
{
    const struct instr *in = &c->p->instrs[i];
    const struct exec_halves h = exec_halves(c->x, c->p, in);
    *done = !h.send && !h.receive; /* no bytes travel */
    if (*done) {
        comm_pass(c->x->comm, in->lane);
        return OK;
    }
    enum status st = lane->flying ? OK : comm_begin(c->x, c->p, in, &h);
    lane->flying = 1;
    if (st == OK)
        st = comm_poll(c->x->comm, in->lane, done);
    if (st == OK && *done && c->x->bounce)
        st = bounce_out(c->x, c->p, in, h.receive);
    lane->flying = !*done;
    return st == OK ? OK : comm_lanes_explain(c->p, i, st);
}

/* Lets an instruction take effect, if its predicate holds; *moved: it has. */
static enum status effect(struct chaos *c, struct chaos_lane *lane, int n, int *moved)
{
    int i = lane->instr[n];
    *moved = 1;
    if (!exec_holds(c->x, c->p->instrs[i].predicate)) {
        lane->effect[n % IN_FLIGHT] = 1;
        return ages_done(&c->ages, c->x, i);
    }
    if (lane_is_comm(c->p->instrs[i].lane) && !c->x->carried)
        TRY(comm_effect(c, lane, i, moved));
    else
        TRY(exec_instr(c->x, c->p, &c->p->instrs[i]));
    if (!*moved)
        return OK;
    TRY(ages_done(&c->ages, c->x, i));
    lane->effect[n % IN_FLIGHT] = 1;
    return OK;
}

/* Tries one random step of the lane; *moved is set if there was one. */
static enum status lane_step(struct chaos *c, int l, int *moved)
{
    struct chaos_lane *lane = &c->lane[l];
    int flying = lane->started - lane->retired, choice = (int)draw(c, 3);
    for (int k = 0; k < 3 && !*moved; k++, choice = (choice + 1) % 3) {
        if (choice == 0 && can_start(c, l)) {
            *moved = 1;
            lane->effect[lane->started % IN_FLIGHT] = 0;
            return poison_written(c, &c->p->instrs[lane->instr[lane->started++]]);
        }
        if (choice == 1 && flying > 0) {
            int n = lane->retired + (int)draw(c, (uint64_t)flying);
            for (int j = 0; j < flying; j++, n = n + 1 == lane->started ? lane->retired : n + 1)
                if (!lane->effect[n % IN_FLIGHT])
                    return effect(c, lane, n, moved);
        }
        if (choice == 2 && flying > 0 && lane->effect[lane->retired % IN_FLIGHT]) {
            *moved = 1;
            lane->retired++;
        }
    }
    return OK;
}

static enum status lanes_make(struct chaos *c)
{
    for (int l = 0; l < LANES; l++) {
        c->lane[l].instr = sys_malloc(sizeof(int) * ((size_t)c->p->n_instrs + 1));
        if (!c->lane[l].instr)
            return status_no_memory("for the chaos executor");
    }
    for (int i = 0; i < c->p->n_instrs; i++) {
        struct chaos_lane *lane = &c->lane[c->p->instrs[i].lane];
        lane->instr[lane->n++] = i;
    }
    return OK;
}

static void draw_speeds(struct chaos *c)
{
    for (int l = 0; l < LANES; l++)
        c->lane[l].speed = 1u << draw(c, 10);
}

/* Draws a lane, fast ones more often. */
static int draw_lane(struct chaos *c)
{
    uint64_t total = 0;
    for (int l = 0; l < LANES; l++)
        total += c->lane[l].speed;
    uint64_t x = draw(c, total);
    int l = 0;
    while (x >= c->lane[l].speed)
        x -= c->lane[l++].speed;
    return l;
}

/* Poisons all bytes that instructions touch; the gaps between belong to the canaries. */
static enum status poison_transient(const struct exec_context *x, const struct program *p, const struct ages *a)
{
    for (int k = 0; k < p->n_operands; k++) {
        const struct operand *o = &p->operands[k];
        enum tier t = operand_tier(p, o);
        if (t != TIER_NVME && operand_address(p, o) >= a->cuts[t].persistent_end)
            TRY(exec_fill(x, t, operand_address(p, o), POISON, o->bytes));
    }
    return OK;
}

/* Tells whether other ranks are waited for. */
static int is_flying(const struct chaos *c)
{
    int flying = 0;
    for (int l = 0; l < LANES; l++)
        flying |= c->lane[l].flying;
    return flying;
}

enum status chaos_run(const struct exec_context *x, const struct program *p, uint64_t seed)
{
    struct chaos c = {.x = x, .p = p, .seed = seed};
    enum status st;
    TRY(backend_status(x->backend, x->backend->enter(x->backend)));
    TRY_GOTO(ages_make(p, &c.ages), out);
    TRY_GOTO(lanes_make(&c), out);
    TRY_GOTO(poison_transient(x, p, &c.ages), out);
    int64_t steps = 3 * (int64_t)p->n_instrs; /* start, effect, retirement */
    for (int64_t done = 0; done < steps; done++) {
        int moved = 0;
        if (done % 256 == 0)
            draw_speeds(&c);
        int l = draw_lane(&c);
        for (int k = 0; k < LANES && !moved; k++, l = (l + 1) % LANES)
            TRY_GOTO(lane_step(&c, l, &moved), out);
        if (!moved && is_flying(&c)) {
            comm_nap(x->comm);
            done--;
            continue;
        }
        if (!moved) {
            st = status_fail(ERR_CORRUPT, "program %s: deadlock, every lane waits for another", p->name);
            goto out;
        }
    }
out:
    ages_free(&c.ages);
    for (int l = 0; l < LANES; l++)
        free(c.lane[l].instr);
    return st;
}

/* --- Declared operands --- */

struct gap {
    int64_t a, b;
};

static int by_start(const void *a, const void *b)
{
    int64_t x = ((const struct gap *)a)->a, y = ((const struct gap *)b)->a;
    return x < y ? -1 : x > y;
}

/* Finds the ranges of the tier that no operand with (access & mask) covers, sorted. `out` has room for n_operands + 1 gaps, and
 * as many entries of scratch behind them. */
static int gaps_find(const struct program *p, const struct instr *in, enum tier t, int mask, struct gap *out)
{
    int n = 0, gaps = 0;
    int64_t at = 0;
    struct gap *declared = out + in->n_operands + 1;
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if (operand_tier(p, o) == t && (o->access & mask))
            declared[n++] = (struct gap){operand_address(p, o), operand_address(p, o) + o->bytes};
    }
    qsort(declared, (size_t)n, sizeof *declared, by_start);
    for (int i = 0; i < n; i++) {
        if (declared[i].a > at)
            out[gaps++] = (struct gap){at, declared[i].a};
        if (declared[i].b > at)
            at = declared[i].b;
    }
    if (at < p->arena[t])
        out[gaps++] = (struct gap){at, p->arena[t]};
    return gaps;
}

/* Copies of the arenas for checking confined kernels. */
struct confinement {
    char *saved[TIERS]; /* the arenas as they were */
    char *seen, *left;  /* seen: one arena as the kernel should see it; left: the same arena after the kernel */
    struct gap *gaps;
};

static enum status poison_gaps(const struct exec_context *x, enum tier t, const struct gap *gaps, int n)
{
    for (int g = 0; g < n; g++)
        TRY(exec_fill(x, t, gaps[g].a, POISON, gaps[g].b - gaps[g].a));
    return OK;
}

/* Checks that the kernel changed nothing in a tier where it declares no write, and restores those bytes. */
static enum status check_left(const struct exec_context *x, const struct program *p, const struct instr *in, enum tier t,
                              const struct confinement *c)
{
    int n = gaps_find(p, in, t, ACCESS_READ, c->gaps);
    memcpy(c->seen, c->saved[t], (size_t)p->arena[t]);
    for (int g = 0; g < n; g++)
        memset(c->seen + c->gaps[g].a, POISON, (size_t)(c->gaps[g].b - c->gaps[g].a));
    TRY(exec_read(x, t, 0, c->left, p->arena[t]));
    n = gaps_find(p, in, t, ACCESS_WRITE, c->gaps);
    for (int g = 0; g < n; g++) {
        int64_t a = c->gaps[g].a, bytes = c->gaps[g].b - a;
        if (memcmp(c->left + a, c->seen + a, (size_t)bytes) != 0)
            return status_fail(
                ERR_CORRUPT, "program %s, instruction %d: %s wrote into %s bytes %lld to %lld, which it does not declare",
                p->name, (int)(in - p->instrs), op_name(in->op), tier_name(t), (long long)a, (long long)(a + bytes));
        TRY(exec_write(x, t, a, c->saved[t] + a, bytes));
    }
    return OK;
}

/* Runs one kernel with all bytes poisoned that it does not declare as read. */
static enum status run_confined(const struct exec_context *x, const struct program *p, const struct instr *in,
                                const struct confinement *c)
{
    for (int t = 0; t < TIER_NVME; t++) {
        TRY(exec_read(x, (enum tier)t, 0, c->saved[t], p->arena[t]));
        TRY(poison_gaps(x, (enum tier)t, c->gaps, gaps_find(p, in, (enum tier)t, ACCESS_READ, c->gaps)));
    }
    TRY(exec_instr(x, p, in));
    for (int t = 0; t < TIER_NVME; t++)
        TRY(check_left(x, p, in, (enum tier)t, c));
    return OK;
}

static enum status confinement_make(const struct program *p, struct confinement *c)
{
    int operands = 0;
    int64_t most = 1;
    memset(c, 0, sizeof *c);
    for (int i = 0; i < p->n_instrs; i++)
        operands = p->instrs[i].n_operands > operands ? p->instrs[i].n_operands : operands;
    c->gaps = sys_malloc(sizeof *c->gaps * (size_t)(2 * operands + 2));
    for (int t = 0; t < TIER_NVME; t++) {
        c->saved[t] = sys_malloc((size_t)p->arena[t] + 1);
        most = max_i64(most, p->arena[t]);
    }
    c->seen = sys_malloc((size_t)most);
    c->left = sys_malloc((size_t)most);
    return c->gaps && c->saved[TIER_DEVICE] && c->saved[TIER_HOST] && c->seen && c->left
               ? OK
               : status_no_memory("for the chaos executor");
}

static void confinement_free(struct confinement *c)
{
    free(c->gaps);
    free(c->seen);
    free(c->left);
    for (int t = 0; t < TIER_NVME; t++)
        free(c->saved[t]);
}

enum status chaos_run_declared(const struct exec_context *x, const struct program *p)
{
    struct confinement c;
    enum status st;
    TRY(backend_status(x->backend, x->backend->enter(x->backend)));
    TRY_GOTO(confinement_make(p, &c), out);
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        int kernel = in->lane == LANE_COMPUTE || in->lane == LANE_HOST;
        TRY_GOTO(kernel ? run_confined(x, p, in, &c) : exec_instr(x, p, in), out);
    }
out:
    confinement_free(&c);
    return st;
}
