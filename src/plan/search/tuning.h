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
/* Charge for each second of drive writes, in seconds: 0.05 cost up to 1.2% of the step; 0 led to placements that only just wait
 * for drives (plan_random, row 2 at 0.30). */
#define PRICE_WRITES 0.02
/* Compute seconds lost to each second of messages, which take memory bandwidth and multiprocessors (as in seqpar/degrees.c). */
#define PRICE_MESSAGES 0.25
/* Prices are about equal within this share of the step: measured figures and trials of a few layers are noisy; data sheets have
 * no noise. */
#define PRICE_MARGIN_NOISY 0.003
#define PRICE_MARGIN_SHEET 5e-4
/* Charges in scores of about equal prices: for a second of traffic, as others use the links, too; and for a second of drive
 * writes.
 *
 * At 20 GB/s a second of writes wears drives (rated one full write a day for five years) by about the cost of a rented GPU's
 * second. */
#define SCORE_TRAFFIC 0.1
#define SCORE_WRITES 1.0
/* The search decides for another mesh, ZeRO stage or number of kept inputs if it gains this share of the step. */
#define SEARCH_GAIN 0.01

/* --- Tiles (candidate.c) -----------------------------------------------------------------------------------------------------
 */

/* Fewest row chunks of activations with which slow links do not hold the step up: at 32k tokens a 70B model in 1, 4 or 8 chunks
 * took 7%, 4% or 0.1% longer on links 20% slower. */
#define TILES_FEW_CHUNKS 8
/* Fraction (1/32) of the device's memory above which a residual stream is bulky: packing larger tiles then leaves gaps of up to
 * 8%. */
#define TILES_BULKY_PART 32

/* --- Estimates (estimate.c) --------------------------------------------------------------------------------------------------
 */

/* Layers of the smallest model that is measured: a first and a last layer, which differ from those in between. */
#define ESTIMATE_LAYERS 2
/* Largest error of estimated bytes, and of the bytes of smallest placements, as a share. */
#define BYTES_UNCERTAIN 0.1

/* Share of the host's memory up to which estimates of everything on the host, with all chunks kept, leave drives out of the search: of
 * what has room there nothing moves faster by way of drives. */
#define HOST_HOLDS 0.9
/* Part of the device's memory up to which a residual stream counts as small: hidden states between layers, a few times as large, then
 * stay on the device, if its emptiest placement takes at most PASSING_ROOM of it. With 64, 80 layers at 1M tokens on 8 H200 took 16%
 * longer steps by a quick search. */
#define PASSING_PART 128
#define PASSING_ROOM 0.7

/* --- Stalls (stalls.c) -------------------------------------------------------------------------------------------------------
 */

/* Ratio of a placement's traffic to a trial's above which the trial is no evidence: with nearly everything on the device, stalls
 * for each second of the little traffic are next to none, or many. */
#define STALLS_REACH 2.0

/* --- Trials (trial.c, retry.c) -----------------------------------------------------------------------------------------------
 */

/* Programs of up to this many instructions are tried with all layers. */
#define TRIAL_WHOLE_INSTRS 20e3
/* Packing slack of trials (pack.h), as a share: plans are packed more tightly, which takes half a trial of a small program. */
#define TRIAL_SLACK 0.02
/* Instructions from which a trial in the serial order is measured from samples, without packing: 273 such trials of --max-seq were
 * packed with gaps of 0 to 1.7%; those of a model of 64 elements had up to 3.4%. Whole programs confirm what fits.
 *
 * WIDE: models of SERIAL_WIDE elements or more: 54 trials of 8b and 1b of 80e3 to 200e3 instructions had gaps of up to 0.8%. */
#define SERIAL_SAMPLED_INSTRS 200e3
#define SERIAL_SAMPLED_INSTRS_WIDE 80e3
enum { SERIAL_WIDE = 1024 };
/* Lowered programs of trials that are kept to be scheduled again, those of one trial, and the instructions of both: 200 bytes each.
 * Of 80 layers at 1m tokens a third of the trials' instructions were lowered again, most of them in the next trial. */
enum { SHELF_PROGRAMS = 2 };
#define SHELF_INSTRS 50000
/* Estimated excess from which a trial's larger model is scheduled first: the shorter one follows at the level that is found. */
#define TRIAL_LARGER_FIRST 0.9
/* Excess above which a trial that fits may not fit with all programs of the set. */
#define TRIAL_TIGHT 0.98
/* Ratio to the best seconds up to which candidates are tried at later prefetch levels, too: with drives that read and write at
 * once, fetching late was up to 7% faster until 008c5c6, and is 1% since (plan_random, row 8). */
#define RETRY_WITHIN 1.01
/* The same ratio where few placements are tried: a retry gains 1% at most, and of about equal ones the best is enough. */
#define RETRY_WITHIN_BRIEF 1.003
#define RETRY_LATER 3 /* number of later prefetch levels that are tried, besides FIT_LATE */
/* Ratio of step to compute from which the step counts as waiting: below it neither fetching later nor yielding writes help. */
#define RETRY_WAITS 1.01
/* Blocks of drive writes in flight beside reads: memory mostly has room for half a lane's window. With a quarter in flight, reads
 * have nearly all of the drives. */
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
    SELECT_MOST = 32,      /* most trials that fit */
    SELECT_FEWEST = 4,     /* fewest trials, since a single trial's stalls need not hold for others */
    SELECT_FEWEST_LED = 2, /* fewest trials if trials on another grid have shown stalls */
    SELECT_BRIEF = 4,      /* most trials of a step from one grid to the next */
    SELECT_WRITING = 8,    /* most trials of placements that write to drives, whose stalls vary more */
};
#define SELECT_WRITING_BELOW 1.01 /* ratio to the best seconds up to which such placements are tried */
/* Most trials of smallest placements, while none fits that ought to: estimates add up the classes' peaks, which come at different
 * moments. The next two: excess of a trial after which no further one is made; the second is for trials without prefetches or
 * overlap, which are quicker. */
#define SMALLEST_TRIES 4
#define SMALLEST_FINAL 1.1
#define SMALLEST_FINAL_SERIALLY 1.2
/* Difference of excesses, as a share, below which they count as equal: equal needs of one tier may say nothing of the others. */
#define SMALLEST_ALIKE 1e-3
/* Excess up to which keeping fewer layer inputs may help: attention outputs, which are as large, are kept in any case. */
#define INPUTS_HELP 2.0
/* The largest number of layers of which one keeps its input. */
#define INPUTS_EVERY_MOST 8
/* Share of a budget from which on memory may have limited a placement. */
#define MEMORY_FULL 0.9
/* Instructions for a few promising placements (smallest.c). */
#define PROMISING_INSTRS 30e3

/* --- Classes in two tiers (promote.c) ----------------------------------------------------------------------------------------
 */

#define PROMOTE_WAITS 1.01 /* ratio of step to compute below which nothing is tried */
enum { PROMOTE_TRIES = 3 /* numbers of layers tried for each class */, PROMOTE_MOST = 24 /* trials */ };

/* --- Around the fastest placement (refine.c, split.c) ------------------------------------------------------------------------
 */

#define REFINE_BELOW 0.999 /* share of the best price above which nothing is tried */
#define REFINE_INSTRS (2 * SEARCH_INSTRS)
enum {
    REFINE_FINER = 6,        /* most trials of other numbers of kept chunks */
    REFINE_LESS_TRAFFIC = 3, /* most trials of placements that move less */
    REFINE_FEWER = 4,        /* most trials of fewer kept chunks */
    REFINE_MOST = REFINE_FINER + REFINE_LESS_TRAFFIC + REFINE_FEWER
};
#define SPLIT_WAITS 1.02 /* ratio of step to compute below which nothing is tried */
#define SPLIT_BELOW 0.99 /* share of the best cost above which nothing is tried */
/* Estimated excess up to which a split is tried: a larger one mostly fits only if little is fetched ahead. */
#define SPLIT_ROOM 0.97
#define SPLIT_INSTRS (SEARCH_INSTRS / 2)
enum { SPLIT_STEPS = 16 /* steps from no chunk on the device to all */, SPLIT_TRIES = 4 };

/* --- Meshes in closed form (mesh_seconds.c) ----------------------------------------------------------------------------------
 */

/* Shares of the messages' seconds that compute waits for although there is enough compute to hide them. */
#define MESH_WORLD_WAITS 0.08
#define MESH_ULYSSES_WAITS 0.6
#define MESH_RING_WAITS 0.03
/* The share of slices' messages, which stand before and behind each block's maps: planned for 70b at 1k tokens, tp=4 on 1,024 H100,
 * 91% of their 0.8 s. */
#define MESH_TP_WAITS 0.9
/* Part of a micro-batch beside which slices' state of ZeRO 1 is sent: parameters beside its forward pass alone, gradients beside its backward
 * pass. 70b at 1k tokens, 256 sequences on 256 H100, tp=8: 1.91 s, of which 1.0 s are messages of the state. */
#define MESH_STATE_BESIDE (1.0 / 3)
#define MESH_ADD_BYTES 12.0 /* moved to add a micro-batch's gradient of an element to those of others */
#define MESH_EP_WAITS 0.5   /* experts wait for a chunk's rows, while those of other chunks travel */
/* Ratio of the largest to the mean work of the ring's members (as in seqpar/degrees.c). */
#define MESH_RING_UNEVEN 1.01
/* Passes over the rows of the stream and of the MLP in a layer's step; instructions of a layer for each row chunk and ring member. */
#define MESH_STREAM_PASSES 30.0
#define MESH_MLP_PASSES 12.0
#define MESH_INSTRS_CHUNK 60.0
#define MESH_INSTRS_RING 12.0
/* Share of the device's memory that state and activations may take together. */
#define MESH_ROOM 0.85
/* Ratio of a mesh's seconds in closed form to the least ones, up to which the mesh is tried; at most MESH_TRIES are. With the first
 * mesh alone, 60 requests of bench/planner/mesh_table.py took up to 10% more than with the best. */
#define MESH_WITHIN 1.12
/* The same ratio where the first mesh's step takes less than MESH_SHORT_STEP seconds: the closed form has no term for what each
 * instruction costs, and of 25m on 8 A100s it put the best mesh 40% behind. */
#define MESH_WITHIN_SHORT 1.5
#define MESH_SHORT_STEP 0.05
enum { MESH_TRIES = 5, MESH_TRIES_QUICK = 4 };
/* Difference in layers of the two models that a step's trial is extrapolated from. With 1, 70b with LoRA at 8k tokens on 16 H100s
 * took 18% more in its trial than as a plan; with 3, 0.6%. */
enum { STEP_LAYERS = 3 };
/* Ratio of step to compute from which the step counts as waiting: below it larger groups are not tried for messages. */
#define MESH_STEP_WAITS 1.01
/* Difference of trials' seconds, as a share, below which they count as equal. */
#define MESH_EQUAL 0.005
/* Ratio of a step to its compute and messages from which these are hidden by others: gpt-25b with LoRA at 22,656 tokens on 4 RTX 4090s
 * with 41 GiB of host memory took 66.91 s in brief trials of three meshes (11 to 16 s of compute and messages), which all read the
 * drives; as plans 40.9 and 46.2 s. */
#define MESH_HIDDEN 2.0
/* Least gain in brief trials for which more sequences share a micro-batch: 4 together promised 9% for 8b at 8k, 512 sequences on
 * 64 H100, where the whole plan was 3% slower. */
#define MESH_PACKED 0.1
/* Gain in brief trials from which more sequences in a micro-batch are faster without another look. Trials have the default tiles, on
 * which a sequence alone loses more: a 7B model at 4k on four A100 took 17.1 s alone and 14.7 s eight together, whole plans 13.8 and
 * 13.9 s. */
#define PACKED_SURELY 0.3

/* --- Slices and stages of layers (parts.c, hybrid.c) --------------------------------------------------------------------------
 */

/* Share of the plain mesh's step in which no rank computes, below which parts of layers are not weighed: these spare no compute. */
#define PARTS_WAITS 0.1
/* Ratio of the seconds of parts to the plain mesh's in closed form, below which parts are tried; of parts to the best parts'. */
#define PARTS_BELOW 1.1
#define PARTS_WITHIN 1.2
/* Share by which a mesh with parts is ordered as slower for each doubling of the ranks that share a sequence: of tp=8 meshes that promise
 * the same, those with fewer such ranks were up to 30% faster as plans. */
#define PARTS_SHARING 0.02
/* Meshes with parts, and numbers of stages of islands, that are planned briefly. */
enum { PARTS_TRIES = 3, ISLANDS_TRIES = 3 };

/* --- Mesh, ZeRO stage and grid (key.c) ----------------------------------------------------------------------------------
 */

/* Shares of the step that another grid must gain: with measured costs, since the numerics key must not follow their noise; with
 * data sheets, where the search gives up as much for less traffic. */
#define GRID_GAIN_MEASURED 0.03
#define GRID_GAIN_SHEET 0.003
/* Fraction of that gain which each single step toward the best grid must reach. */
#define GRID_STEP_GAIN (2.0 / 3)
#define GRID_STEP_INSTRS 600e3
#define GRID_ROUNDS 3 /* most full searches of grids that steps have found */
/* Ratio to the default grid's estimated seconds up to which the search may start on larger tiles. */
#define START_SLOWER 1.003
/* Ratio of a program's instructions to TRIAL_WHOLE_INSTRS from which all sizes of the grid are enlarged at once. */
#define START_COARSEN_ALL 8
/* Fewest loss tiles while enlarging: loss tiles are few instructions, and larger ones only take memory for logits. */
#define START_LOSS_TILES 128
#define START_GRIDS 64 /* most grids between the default grid and the largest one */
/* Trials of a few layers may be too short by this share. */
#define FEW_LAYERS_MISS 0.04
/* Ratio of step to attention plus products at their best rates, below which local search has nothing to gain. */
#define LOCAL_WAITS 1.003
/* The same ratio at effort normal: below it the ten models of plan_bench at 32k and 256k tokens gain less than 0.7%. */
#define LOCAL_WAITS_NORMAL 1.05

/* --- Local search (local.c, pool.c) ------------------------------------------------------------------------------------------
 */
/* LOCAL_RETRY_WITHIN, LOCAL_MISSES, LOCAL_STARTS, MOVE_WITHIN and MOVE_DISTANCE as plan_random measured them; the others were not
 * varied. */

/* Most instructions, for each prefetch level that is looked at: twice as many (16 * SEARCH_INSTRS) made one of five budgets of 1b
 * at 128k tokens 1.0% faster, for 38% more processor time. Large programs get as many only if LOCAL_GAIN of the step can be
 * gained, else a fraction. */
#define LOCAL_INSTRS (8 * SEARCH_INSTRS)
/* Most instructions at effort normal: 25m at 32k tokens on six budgets of 206 to 254 MiB then takes steps within 1.0% of effort
 * best's. With a third of them steps take up to 12% longer, without local search 32%; with two thirds four layers of 25m at 16k
 * tokens take 7% longer. */
#define LOCAL_INSTRS_NORMAL (3 * SEARCH_INSTRS)
#define LOCAL_GAIN 0.02
/* Most instructions of programs that local search tries with all layers: of larger programs there would be few trials. */
#define LOCAL_WHOLE_INSTRS 100e3
/* Ratio to the best price up to which local search continues from another placement, if the best one has no untried move. */
#define LOCAL_CONTINUE_WITHIN 1.02
/* Ratio to the best price up to which trials are retried: the earliest prefetch level that memory allows may be too early. */
#define LOCAL_RETRY_WITHIN 1.02
/* Ratio to the best price up to which the cheapest trial of a family is another start. */
#define LOCAL_FAMILY_WITHIN 1.1
/* Ratio of estimates, trial to candidate, up to which a trial on another grid is evidence for a family. */
#define LOCAL_EVIDENCE_WITHIN 1.1
/* Ratio of step to compute from which transfers count as the step's limit. */
#define LOCAL_TRANSFERS_LIMIT 1.1
enum {
    LOCAL_MISSES = 32, /* trials in a row without a cheaper one after which local search ends */
    LOCAL_STARTS = 4,
    LOCAL_COARSER = 6, /* most steps to larger tiles, in search of programs that are small enough */
    POOL_GRIDS = 64,   /* most grids; further ones are ignored; 125m at 32k tokens came to 44 */
    POOL_VISITED = 64, /* most placements whose moves are looked at */
    /* most trials of a few layers that are kept as hints; with all layers their placements may take several percent longer */
    POOL_HINTS = 8
};

/* --- Moves (moves.c) ---------------------------------------------------------------------------------------------------------
 */

#define MOVE_BELOW 0.999 /* share of the price to beat: moves estimated above it, even without stalls, are not tried */
#define MOVE_WITHIN 1.05 /* share of the price to beat: moves expected above it are not tried */
/* Ratio to the best price below which moves are tried by estimate alone if none is expected to be about as cheap: expectations
 * count stalls of other trials, which may not occur after this move. 8b of 4 layers on an RTX 4090: up to 8% faster by budget,
 * for 27% more processor time. */
#define MOVE_BY_ESTIMATE_BELOW 0.995
/* Binary logarithm of the ratio within which traffic counts as equal (2^0.25). A trial more than 8 such steps away is no
 * evidence. */
#define MOVE_TRAFFIC_STEP 0.25
#define MOVE_TRAFFIC_FAR 8
/* Grids are about as fine within this factor in each size: 1b of 2 layers at 16k tokens took 28% more than estimated with
 * rows=2048,heads=8,loss=128, 9% with 16384,32,1024. */
#define MOVE_TILES_ALIKE 4
/* Each similar trial puts off the next one by this share of its price, so that others have their turn. */
#define MOVE_SIMILAR 0.002
enum {
    MOVE_DISTANCE = 2 /* most choices in which a move may differ from its start */,
    MOVES_AT_ONCE = 4 /* a constant, so that plans do not depend on the number of processors */
};

/* --- Probes (probe.c) --------------------------------------------------------------------------------------------------------
 */

/* Number of layers of which one keeps its input, for placements that must take little memory. */
#define PROBE_INPUTS_EVERY 4
/* Most row chunks of all layers together in a small model, which is tried with all layers at once. Each chunk takes 27
 * instructions or more. */
#define PROBE_SMALL_CHUNKS 768
/* Largest share of a placement's bytes that is in transit between tiers and so counted in both. */
#define PROBE_STAGED 0.05

/* --- Plans (plan.c, program_set.c) -------------------------------------------------------------------------------------------
 */

/* Most candidates that are planned before a refusal, or while plans take longer than trials. A candidate that fitted in its trial
 * mostly fits with all programs of the set. */
#define PLANS_MOST 4
/* Excess of plans up to which the search is repeated with trials' limits lowered by PLANS_LOWER times what they lack, at most PLANS_AGAIN
 * times: stages of gpt-25b with LoRA needed 3% more than trials, and the smallest placement took 190 times as long. */
#define PLANS_EXCEED 1.1
#define PLANS_LOWER 1.25
#define PLANS_AGAIN 2
/* Ratios of a plan's step to its trial up to which no further candidate is planned. A trial of all layers differs from the plan
 * in packing only, a trial of a few layers by more. */
#define PLAN_HOLDS_WHOLE 1.001
#define PLAN_HOLDS_FEW_LAYERS 1.03
/* Relief if slow links hold the step up: one row chunk of this many more stays on the device or is computed again, or chunks get
 * half as long; up to SLOW_LINKS_STEPS times, for SLOW_LINKS_GIVE of the step. */
#define SLOW_LINKS_CHUNKS 8
#define SLOW_LINKS_STEPS 4
#define SLOW_LINKS_GIVE 0.02
#define SLOW_LINKS_GAIN 0.002 /* share of the step on slow links that a trial must promise before a plan is made */
/* Ratio of a step to its compute from which experts are tried apart from other layers' state; share of the step that must be gained. */
#define EXPERTS_WAITS 1.05
#define EXPERTS_GAIN 0.003
/* Most tries (on all layers) of different numbers of kept chunks for light and other layers, if only some layers have a window;
 * the next: their instructions. An improvement takes less than KINDS_BELOW of the best cost.
 *
 * KINDS_LATER: prefetch levels after the plan's that are looked at. If nothing is computed again, a step below KINDS_WAITS times
 * its compute has nothing to gain. Gains: bench/results/2026-11-26-layer-kinds.txt. */
enum { KINDS_TRIES = 12, KINDS_LATER = 2 };
#define KINDS_INSTRS 200e3
#define KINDS_BELOW 0.9995
#define KINDS_WAITS 1.01
/* Elements of a group if groups stay on the device: 1b at 4k tokens on an H200 spends 9% of its step in the fixed costs of 1,213
 * instructions of 2^21 elements. Larger groups would cost memory while checkpoints are written (session.h: twice their bytes and
 * more).
 *
 * GROUP_GAIN: share of the step that must be gained, as for another grid, since the gradient's norm is summed otherwise. */
#define GROUP_RESIDENT (1 << 24)
#define GROUP_GAIN GRID_GAIN_SHEET

/* Share of a program's time in messages between all ranks, from which larger groups are tried. 70b at 1k tokens on 64 H100
 * (messages all the time): 16.3 s a step with groups of 2^23 elements, 13.3 with 2^25, 12.8 with 2^26. */
#define GROUP_MESSAGES_BUSY 0.5
/* Elements of the largest group tried: gathered in bf16 it takes 128 MiB of a device, its gradient in fp32 twice as much. */
#define GROUP_MESSAGES_MOST (1 << 26)
/* Programs planned or verified at the same time: a set's large programs come in pairs, and each takes memory of its own. */
#define PROGRAMS_AT_ONCE 2

/* --- The longest sequence (max_seq.c) ----------------------------------------------------------------------------------------
 */

enum {
    LENGTH_SHORTEST = 1024 /* tokens */,
    LENGTH_FIRST = 131072 /* tokens */,
    LENGTH_STEPS = 64 /* lengths tried from a power of two to the next */
};
/* Most instructions of plans that find out about lengths that do not fit in trials: three plans of 1b. */
#define LENGTH_INSTRS 1500e3
/* Most instructions of a program with which lengths above those that fit in trials are planned: each such plan takes some
 * seconds. */
#define LENGTH_BEYOND_INSTRS 200e3

#endif
