/* The lanes of a device with streams: one thread submits all of them ahead of finished work, others sleep until work is done.
 * Private to src/engine.
 *
 * 1. A lane's next instruction is ready when its waits on host lanes have retired and its waits on device lanes have been
 * submitted. The earliest ready one in the program is submitted next. Its stream is told to await the other lanes' events; then
 * the instruction is submitted, and its event is recorded if somebody will ask for it.
 *
 * 2. A stream never waits for the host: submitted work ends by itself. After a failure nothing more is submitted, and joining the
 * streams is the only cleanup.
 *
 * 3. Announced instructions have an event: those that another device lane waits for, and those after which their own lane may
 * stand still, so that the wait is measured. Watched instructions are announced, and retire on the board: those that a host lane
 * waits for, a lane's last one, and one of every WATCH_INSTRS instructions and of every WATCH_EVENTS events.
 *
 * 4. A lane is submitted at most BACKEND_EVENTS instructions ahead of what has retired, so that events in use fit the ring's
 * slots. It is also at most half a second of planned time ahead, so that a signal waits for little. An await of a retired ticket
 * is left out, so nobody asks for a slot that is used again.
 *
 * 5. If a library of the device carries messages (exec_context.carried), the comm lanes are device lanes, too. They share one
 * stream and one cursor, so that all ranks give the library all collectives in the program's order and cannot deadlock: the
 * earliest collective not given yet waits for nothing later. All collectives and all that they wait for are watched, so the board
 * tells which one waits for other ranks (comm_guard.h). Rows for other ranks' experts (op_is_counted) are given to the library once
 * their numbers have arrived. */
#ifndef LTRAIN_ENGINE_DEVICE_LANES_H
#define LTRAIN_ENGINE_DEVICE_LANES_H

#include "device/tickets.h"
#include "engine/executor.h"

struct device_lanes;

/* Prepares for running `programs`, all that will ever be run (NULL entries are skipped). */
enum status device_lanes_create(const struct exec_context *x, struct program *const *programs, int n, struct device_lanes **out);
void device_lanes_destroy(struct device_lanes *d); /* NULL is fine */

/* start_ns of an instruction that was left out because the program was cut */
#define DEVICE_LEFT_OUT (-1)

/* The executor's part in a program that may be cut (comm_is_cut). */
struct device_cut {
    const uint8_t *must; /* 1 for each instruction that is submitted even after the cut */
    /* Called when the lane's tickets after `from` up to `to` have retired. */
    void (*retired)(void *user, enum lane lane, int64_t from, int64_t to);
    void *user;
};

/* Sets up a run, before its submitter and reapers start. events: one per instruction; host lanes fill their own. timed: measure
 * each instruction's end, for a trace; 0: only announced ones, and the lanes' sums stay the same. began: start of the run by
 * clock_ns(). */
void device_lanes_begin(struct device_lanes *d, const struct program *p, struct tickets *t, struct trace_event *events, int timed,
                        int64_t began, const struct device_cut *cut);
/* Submits the program; the caller has entered the backend. On return nothing more will be submitted; after a failure the streams
 * are idle or dead. ERR_CANCELLED if another lane failed. */
enum status device_lanes_submit(struct device_lanes *d);
/* Retires the watched instructions of the lane's stream, until the submitter has returned and all is done. LANE_WORLD stands for
 * all comm lanes. */
enum status device_lanes_reap(struct device_lanes *d, enum lane lane);
/* Returns and resets the counts accumulated since the last call. */
struct lane_submission device_lanes_take_submission(struct device_lanes *d);
/* Computes when device lanes' instructions started, and adds to the lanes' sums. Only after a run that did not fail. */
void device_lanes_measure(const struct device_lanes *d, const struct lane_index *index, struct lane_stats stats[LANES]);

#endif
