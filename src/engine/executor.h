/* Running programs: one thread per lane, waits as tickets, nothing decided or allocated while a step runs. */
#ifndef LTRAIN_ENGINE_EXECUTOR_H
#define LTRAIN_ENGINE_EXECUTOR_H

#include "engine/exec_context.h"
#include "program/stalls.h"

struct executor;

struct lane_stats {
    int64_t bytes, busy_ns, waited_ns;
    double stalled[CLASSES]; /* seconds that compute stood still for this lane's work, by class (program/stalls.h) */
};

/* Submissions to a device with streams: instructions, and the submitting thread's CPU time. */
struct lane_submission {
    int64_t instrs, cpu_ns;
};

/* Start and end of an instruction. If its predicate did not hold, both are when its turn came. */
struct trace_event {
    int64_t start_ns, end_ns; /* ns since the program's start */
    int64_t submit_ns;        /* time of the submitting thread for the instruction, its awaits and its event; in traces only */
};

/* Makes a timeline of a run's events. */
struct timeline executor_timeline(const struct program *p, const struct lane_index *index, const struct trace_event *events);

/* Creates an executor for `programs`, all that it will ever run (NULL entries are skipped). Memory for measurements is allocated
 * here. */
enum status executor_create(const struct exec_context *x, struct program *const *programs, int n, struct executor **out);
void executor_destroy(struct executor *e); /* NULL is fine */

/* Runs the program to its end, or to where it is cut (comm_is_cut). After a cut only instructions that the state at its end
 * depends on are run (program/updates.h); its other results are undefined. The calling thread is the compute lane. trace: NULL,
 * or one event per instruction.
 *
 * After a failure the message is the first failing lane's. The executor can run again, unless the store failed: a failed
 * direction of the store stays so (offload/store.h). */
enum status executor_run(struct executor *e, const struct program *p, struct trace_event *trace);
/* Counts the instructions executed after a program was cut. must: those that had to run; others: those that were under way at the
 * cut. */
void executor_finished(const struct executor *e, int *must, int *others);
/* Returns the phase that compute reached in the last program. */
enum phase executor_reached(const struct executor *e);

/* Takes the sums of all runs since the last call. */
void executor_take_stats(struct executor *e, struct lane_stats out[LANES]);
/* Hands over the times of the last program's instructions, which stay valid until the next run; nothing when they went into a
 * caller's trace. */
struct executed {
    const struct program *p;          /* NULL: none */
    const struct trace_event *events; /* [p->n_instrs] */
};
struct executed executor_last(const struct executor *e);
/* Takes the submissions since the last call; zero for a device without streams. */
struct lane_submission executor_take_submission(struct executor *e);

#endif
