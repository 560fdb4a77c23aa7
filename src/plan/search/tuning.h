/* The constants of the search and of its users, by stage, with unit and measurement. Private to src/plan.
 *
 * A share above 1 is a multiple of the quantity in the comment. "Instructions" are those of programs that trials schedule: 300
 * thousand take seconds on one processor, and the number is the same on any machine. Where a comment says plan_random, the
 * measurement is in bench/results/2026-11-23-search-vs-random.txt, by row. */
#ifndef LTRAIN_PLAN_SEARCH_TUNING_H
#define LTRAIN_PLAN_SEARCH_TUNING_H

#include "program/drives.h"

/* --- Prices (candidate.c) ----------------------------------------------------------------------------------------------------
 */

/* Slow links (slower by FIT_SLOW) may lengthen the step by 3%. Time beyond that counts like the step, but at most 1% of it: where
 * a step waits for links anyway, a much longer one that does not is no gain. */
#define PRICE_SLOW_FREE 1.03
#define PRICE_SLOW_MOST 0.01
/* Seconds that a second of drive writes counts: 0.05 cost up to 1.2% of the step; 0 led to placements that only just wait for
 * drives (plan_random, row 2 at 0.30). */
#define PRICE_WRITES 0.02
/* Seconds that a second of messages takes from compute, in memory bandwidth and multiprocessors (as in seqpar/degrees.c). */
#define PRICE_MESSAGES 0.25
/* Prices are about equal within this share of the step: measured figures and trials of a few layers are noisy; data sheets have
 * no noise. */
#define PRICE_MARGIN_NOISY 0.003
#define PRICE_MARGIN_SHEET 5e-4
/* Scores of about equal prices: seconds that a second of traffic counts, as others use the links, too; and a second of drive
 * writes. At 20 GB/s these wear drives of one write a day for five years by about the cost of a second of a rented GPU. */
#define SCORE_TRAFFIC 0.1
#define SCORE_WRITES 1.0
/* The search decides for another mesh, ZeRO stage or number of kept inputs if it gains this share of the step. */
#define SEARCH_GAIN 0.01

/* --- Tiles (candidate.c) -----------------------------------------------------------------------------------------------------
 */

/* Activations in fewer row chunks than this make slow links hold the step up: at 32k tokens a 70B of 1, 4 or 8 chunks took 7%, 4%
 * or 0.1% longer on links 20% slower. */
#define TILES_FEW_CHUNKS 8
/* A residual stream of more than this part of the device leaves gaps of up to 8% when larger tiles are packed. */
#define TILES_BULKY_PART 32

/* --- Estimates (estimate.c) --------------------------------------------------------------------------------------------------
 */

/* Layers of the smaller model that is measured: the first and the last layer differ from the others. */
#define ESTIMATE_LAYERS 2
/* Bytes are estimated, and smallest placements are found, with an error of up to this share. */
#define BYTES_UNCERTAIN 0.1

/* --- Stalls (stalls.c) -------------------------------------------------------------------------------------------------------
 */

/* A trial is no evidence for placements of more than twice its traffic: where everything lies on the device, stalls for every
 * second of the little traffic are next to none, or many. */
#define STALLS_REACH 2.0

/* --- Trials (trial.c, retry.c) -----------------------------------------------------------------------------------------------
 */

/* Programs of up to this many instructions are tried with all layers. */
#define TRIAL_WHOLE_INSTRS 20e3
/* Packing slack of trials (pack.h), as a share: plans are packed more tightly, which takes half a trial of a small program. */
#define TRIAL_SLACK 0.02
/* Excess above which a trial that fits may not fit with all programs of the set. */
#define TRIAL_TIGHT 0.98
/* Within this share of the best one, candidates are tried at later prefetch levels, too: where drives read and write at once,
 * fetching late was up to 7% faster until 008c5c6, and is 1% since (plan_random, row 8). */
#define RETRY_WITHIN 1.01
#define RETRY_LATER 3 /* prefetch levels; FIT_LATE is tried, too */
/* The step waits if it takes this many times the compute: else neither fetching later nor yielding writes help. */
#define RETRY_WAITS 1.01
/* Blocks of drive writes in flight beside reads: memory mostly has room for half a lane's window; with a quarter reads have
 * nearly all of the drives. */
#define RETRY_WRITES_YIELD (DRIVE_DEPTH / 2)
#define RETRY_WRITES_LAST (DRIVE_DEPTH / 4)

/* --- Which placements are tried on a grid (select.c, search.c) ---------------------------------------------------------------
 */

/* Instructions for one grid; four times as many while nothing fits. */
#define SEARCH_INSTRS 300e3
#define SEARCH_INSTRS_MOST (4 * SEARCH_INSTRS)
/* Share of the best seconds above which a placement is not expected to pay, and is not tried. */
#define TRIAL_BELOW 0.998
enum {
    SELECT_MOST = 32,      /* trials that fit */
    SELECT_FEWEST = 4,     /* a single trial's stalls need not hold for others */
    SELECT_FEWEST_LED = 2, /* fewest trials if trials on another grid have shown stalls */
    SELECT_BRIEF = 4,      /* most trials of a step from one grid to the next */
    SELECT_WRITING = 8,    /* most trials of placements that write to drives, whose stalls differ more, */
};
#define SELECT_WRITING_BELOW 1.01 /* expected up to this share of the best seconds */
/* Trials of the smallest placements, if nothing that ought to fit does: estimates add up the classes' peaks, which come at
 * different moments. A trial of this excess is final; in the serial order, where trials are quicker, of the second one. */
#define SMALLEST_TRIES 4
#define SMALLEST_FINAL 1.1
#define SMALLEST_FINAL_SERIALLY 1.2
/* Excesses that differ by less than this share count as equal: one tier may be all that the placements have in common. */
#define SMALLEST_ALIKE 1e-3
/* Excess up to which fewer inputs may help: attention outputs, which stay, are as large. */
#define INPUTS_HELP 2.0
/* The largest number of layers of which one keeps its input. */
#define INPUTS_EVERY_MOST 8
/* Share of a budget from which on memory may have limited a placement. */
#define MEMORY_FULL 0.9
/* Instructions for a few promising placements (smallest.c). */
#define PROMISING_INSTRS 30e3

/* --- Classes in two tiers (promote.c) ----------------------------------------------------------------------------------------
 */

#define PROMOTE_WAITS 1.01 /* times the compute: below it nothing is tried */
enum { PROMOTE_TRIES = 3 /* numbers of layers tried for each class */, PROMOTE_MOST = 24 /* trials */ };

/* --- Around the fastest placement (refine.c, split.c) ------------------------------------------------------------------------
 */

#define REFINE_BELOW 0.999 /* share of the best price above which nothing is tried */
#define REFINE_INSTRS (2 * SEARCH_INSTRS)
enum {
    REFINE_FINER = 6,        /* trials of other numbers of kept chunks, */
    REFINE_LESS_TRAFFIC = 3, /* trials of placements that move less, */
    REFINE_FEWER = 4,        /* and of fewer kept chunks */
    REFINE_MOST = REFINE_FINER + REFINE_LESS_TRAFFIC + REFINE_FEWER
};
#define SPLIT_WAITS 1.02 /* times the compute: below it nothing is tried */
#define SPLIT_BELOW 0.99 /* share of the best cost above which nothing is tried */
/* Estimated excess up to which a split is tried: a larger one mostly fits only if little is fetched ahead. */
#define SPLIT_ROOM 0.97
#define SPLIT_INSTRS (SEARCH_INSTRS / 2)
enum { SPLIT_STEPS = 16 /* parts of the chunks */, SPLIT_TRIES = 4 };

/* --- Meshes in closed form (mesh_seconds.c) ----------------------------------------------------------------------------------
 */

/* Shares of messages that compute waits for although compute is there to hide them. */
#define MESH_WORLD_WAITS 0.08
#define MESH_ULYSSES_WAITS 0.6
#define MESH_RING_WAITS 0.03
/* Work of the ring's members is even within this (as in seqpar/degrees.c). */
#define MESH_RING_UNEVEN 1.01
/* Passes over the rows of the stream and of the MLP in a layer's step; instructions of a layer for each row chunk and ring member. */
#define MESH_STREAM_PASSES 30.0
#define MESH_MLP_PASSES 12.0
#define MESH_INSTRS_CHUNK 60.0
#define MESH_INSTRS_RING 12.0
/* Share of the device that activations may have beside state. */
#define MESH_ROOM 0.85
/* Ratio of a mesh's seconds in closed form to the least ones, up to which the mesh is tried; at most MESH_TRIES are. With the first
 * mesh alone, 60 requests of bench/planner/mesh_table.py took up to 10% more than with the best. */
#define MESH_WITHIN 1.12
enum { MESH_TRIES = 5, MESH_TRIES_QUICK = 4 };
/* Layers from one model to the next of those that a step's trial is extrapolated from. With one, 70b with LoRA at 8k tokens on 16
 * H100s took 18% more by its trial than as a plan, with three 0.6%. */
enum { STEP_LAYERS = 3 };
/* The step waits if it takes this many times the compute: else larger groups are not tried for messages. */
#define MESH_STEP_WAITS 1.01
/* Trials within this share of each other are about as fast. */
#define MESH_EQUAL 0.005

/* --- Mesh, ZeRO stage and grid (key.c) ----------------------------------------------------------------------------------
 */

/* Share of the step that another grid must gain: with measured figures, whose noise the numerics key must not follow; and with
 * data sheets, where the search gives up as much for less traffic. */
#define GRID_GAIN_MEASURED 0.03
#define GRID_GAIN_SHEET 0.003
/* Share of that gain which one step on the way to the best grid is to reach. */
#define GRID_STEP_GAIN (2.0 / 3)
#define GRID_STEP_INSTRS 600e3
#define GRID_ROUNDS 3 /* searches of grids that steps have found */
/* A start on larger tiles may be estimated to take this many times the default grid's seconds. */
#define START_SLOWER 1.003
/* All sizes are made larger at once where programs have this many times the instructions of a trial of all layers. */
#define START_COARSEN_ALL 8
/* With fewer loss tiles the logits take memory for nothing: they are few instructions. */
#define START_LOSS_TILES 128
/* Trials of a few layers may be too short by this share. */
#define FEW_LAYERS_MISS 0.04
/* Times attention plus products at their best: below it local search has nothing to gain. */
#define LOCAL_WAITS 1.003
/* At effort normal: the ten models of plan_bench at 32k and 256k gain less than 0.7% below it. */
#define LOCAL_WAITS_NORMAL 1.05

/* --- Local search (local.c, pool.c) ------------------------------------------------------------------------------------------
 */
/* LOCAL_RETRY_WITHIN, LOCAL_MISSES, LOCAL_STARTS, MOVE_WITHIN and MOVE_DISTANCE as plan_random measured them; the others were not
 * varied. */

/* Instructions, once for every prefetch level that is looked at: sixteen times SEARCH_INSTRS made one of five budgets of 1b at
 * 128k 1.0% faster, for 38% more processor time. Large programs get as many only if LOCAL_GAIN of the step can be gained, else a
 * fraction. */
#define LOCAL_INSTRS (8 * SEARCH_INSTRS)
/* Instructions at effort normal. 25m at 32k on six budgets of 206 to 254 MiB takes steps within 1.0% of best's. A third of these
 * instructions costs up to 12%, no local search up to 32%. With two thirds four layers of 25m at 16k take 7% longer. */
#define LOCAL_INSTRS_NORMAL (3 * SEARCH_INSTRS)
#define LOCAL_GAIN 0.02
/* Programs of up to this many instructions are tried with all layers by local search: of larger ones it could try a few only. */
#define LOCAL_WHOLE_INSTRS 100e3
/* If the best placement has no untried move, continue from any within 2% of it. */
#define LOCAL_CONTINUE_WITHIN 1.02
/* Trials within 2% of the best one are retried: a prefetch level that memory allows may be one that is too early. */
#define LOCAL_RETRY_WITHIN 1.02
/* A family whose cheapest trial costs up to 10% more than the best one is another start. */
#define LOCAL_FAMILY_WITHIN 1.1
/* A trial on another grid is evidence for a family if its estimate is up to 10% above the candidate's. */
#define LOCAL_EVIDENCE_WITHIN 1.1
/* Transfers limit a step that takes this many times its compute. */
#define LOCAL_TRANSFERS_LIMIT 1.1
enum {
    LOCAL_MISSES = 32, /* trials in a row that are not cheaper: it ends */
    LOCAL_STARTS = 4,
    LOCAL_COARSER = 6, /* steps to a grid whose programs are small enough */
    POOL_GRIDS = 64,   /* further ones are not looked at; 125m at 32k tokens came to 44 */
    POOL_VISITED = 64, /* placements whose moves were looked at */
    POOL_HINTS = 8     /* best trials of a few layers: with all layers they may take longer by several percent */
};

/* --- Moves (moves.c) ---------------------------------------------------------------------------------------------------------
 */

#define MOVE_BELOW 0.999 /* share of the price to beat: moves estimated above it, even without stalls, are not tried */
#define MOVE_WITHIN 1.05 /* share of the price to beat: moves expected above it are not tried */
/* Share of the best price below which moves are tried by estimate, if none is expected to be about as cheap: stalls of others
 * need not hold for them. 8b of 4 layers on an RTX 4090: up to 8% faster by budget, for 27% more processor time. */
#define MOVE_BY_ESTIMATE_BELOW 0.995
/* Traffic counts as equal within 2^0.25; a trial over 8 such steps away is no evidence. */
#define MOVE_TRAFFIC_STEP 0.25
#define MOVE_TRAFFIC_FAR 8
/* Grids are about as fine within this factor in each size: 1b of 2 layers at 16k tokens took 28% more than estimated with
 * rows=2048,heads=8,loss=128, 9% with 16384,32,1024. */
#define MOVE_TILES_ALIKE 4
/* Each similar trial puts off the next one by this share of its price, so that others have their turn. */
#define MOVE_SIMILAR 0.002
enum { MOVE_DISTANCE = 2 /* choices in which a move may differ */, MOVES_AT_ONCE = 4 /* the same on any machine */ };

/* --- Probes (probe.c) --------------------------------------------------------------------------------------------------------
 */

/* Number of layers of which one keeps its input, if memory is all that matters. */
#define PROBE_INPUTS_EVERY 4
/* Row chunks of all layers up to which a model is small, and all its layers are tried at once. Each takes 27 instructions and
 * more. */
#define PROBE_SMALL_CHUNKS 768
/* Largest share of a placement's bytes that is on its way and counted twice. */
#define PROBE_STAGED 0.05

/* --- Plans (plan.c, program_set.c) -------------------------------------------------------------------------------------------
 */

/* Candidates that are planned before a refusal, or while plans take longer than trials: one that fitted as a trial mostly fits
 * with all programs of the set. */
#define PLANS_MOST 4
/* A step may take this many times its trial before the next candidate is planned, too. A trial of all layers differs only by how
 * tightly it is packed, one of a few layers by more. */
#define PLAN_HOLDS_WHOLE 1.001
#define PLAN_HOLDS_FEW_LAYERS 1.03
/* Relief where slow links hold the step up: one of this many row chunks more stays on the device or is computed again, or chunks
 * are half as long; up to SLOW_LINKS_STEPS times, for SLOW_LINKS_GIVE of the step. */
#define SLOW_LINKS_CHUNKS 8
#define SLOW_LINKS_STEPS 4
#define SLOW_LINKS_GIVE 0.02
/* Tries of other numbers of kept chunks for each kind of layer, if some layers alone have a window, on all layers; and the
 * instructions of their programs. A better one takes less than KINDS_BELOW of the best cost; prefetch levels up to KINDS_LATER
 * after the plan's are looked at. If nothing is computed again, a step below KINDS_WAITS times its compute has nothing to gain.
 * Gains: bench/results/2026-11-26-layer-kinds.txt. */
enum { KINDS_TRIES = 12, KINDS_LATER = 2 };
#define KINDS_INSTRS 200e3
#define KINDS_BELOW 0.9995
#define KINDS_WAITS 1.01
/* Elements of a group if nothing of the groups moves: 1b at 4k tokens on an H200 spends 9% of its step in the fixed parts of
 * 1,213 instructions of 2^21 elements. At least twice as many bytes are in hand while checkpoints are written (session.h), so no
 * more. GROUP_GAIN: share of the step that must be gained, as for another grid, since the gradient's norm is summed otherwise. */
#define GROUP_RESIDENT (1 << 24)
#define GROUP_GAIN GRID_GAIN_SHEET

/* Share of a program's time that messages between all ranks take, from which larger groups are tried for them. 70b at 1k tokens
 * on 64 H100 (busy throughout): 16.3 s a step with groups of 2^23 elements, 13.3 with 2^25, 12.8 with 2^26. */
#define GROUP_MESSAGES_BUSY 0.5
/* Elements of the largest group tried: a gathered one takes 128 MiB of a device in bf16, its gradient in fp32 twice as much. */
#define GROUP_MESSAGES_MOST (1 << 26)
/* Programs planned or verified at the same time: the large ones come in pairs, and each takes memory of its own. */
#define PROGRAMS_AT_ONCE 2

/* --- The longest sequence (max_seq.c) ----------------------------------------------------------------------------------------
 */

enum {
    LENGTH_SHORTEST = 1024 /* tokens */,
    LENGTH_FIRST = 131072 /* tokens */,
    LENGTH_STEPS = 64 /* from a power of two to the next */
};
/* Instructions of plans that find out whether lengths fit that trials do not: three of 1b. */
#define LENGTH_INSTRS 1500e3
/* Instructions of a program up to which lengths longer than those of trials are planned: each such plan takes some seconds. */
#define LENGTH_BEYOND_INSTRS 200e3

#endif
