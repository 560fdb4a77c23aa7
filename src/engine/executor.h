/* Runs programs: one thread per lane, waits as tickets, nothing decided or allocated while a step runs. */
#ifndef LTRAIN_ENGINE_EXECUTOR_H
#define LTRAIN_ENGINE_EXECUTOR_H

#include "engine/exec_context.h"
#include "program/stalls.h"

struct executor;

struct lane_stats {
    int64_t bytes, busy_ns, waited_ns;
    double stalled[CLASSES]; /* seconds that compute stood still for what this lane did, by class (program/stalls.h) */
};

/* To a device with streams: instructions, and the submitting thread's processor time for them. */
struct lane_submission {
    int64_t instrs, cpu_ns;
};

/* Of an instruction; of one that was not executed, because its predicate did not hold, both are when it was its turn. */
struct trace_event {
    int64_t start_ns, end_ns; /* since the program's start */
    int64_t submit_ns;        /* of a trace: what giving it to a stream took the submitting thread, with awaits and event */
};

/* The events of a run as a timeline. */
struct timeline executor_timeline(const struct program *p, const struct lane_index *index, const struct trace_event *events);

/* programs: all that it will run (NULLs are passed over); what is measured of them is kept in memory made here. */
enum status executor_create(const struct exec_context *x, struct program *const *programs, int n, struct executor **out);
void executor_destroy(struct executor *e); /* NULL is fine */

/* Runs the program to its end, or to where it is cut (comm_is_cut): then only what the state at its end depends on is done
 * (program/updates.h), and nothing else that it leaves holds anything. The calling thread is the compute lane. trace: NULL, or one event per instruction. After a failure
 * the sentence is the first failing lane's, and the executor can run again,
 * unless the store failed: a direction of the store that has failed stays so (offload/store.h). */
enum status executor_run(struct executor *e, const struct program *p, struct trace_event *trace);
/* Instructions that were executed all the same after a program was cut: those that were not left out, and others, which were under
 * way then. */
void executor_finished(const struct executor *e, int *must, int *others);
/* How far compute came in the program that ran last. */
enum phase executor_reached(const struct executor *e);

/* Accumulated over all runs since the last call. */
void executor_take_stats(struct executor *e, struct lane_stats out[LANES]);
/* The same; zero where the device has no streams. */
struct lane_submission executor_take_submission(struct executor *e);

#endif
