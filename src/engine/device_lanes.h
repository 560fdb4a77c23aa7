/* The lanes of a device with streams: one thread submits all of them ahead of what is done, others sleep until it is. Private to
 * src/engine.
 *
 * 1. A lane's next instruction is ready when what it waits for on lanes of the host has retired, and what it waits for on lanes
 * of the device has been submitted. Of several ready ones the earliest in the program is submitted: its stream is told to await
 *    the events of the others, the instruction is submitted, and its event is recorded where somebody will ask for it.
 * 2. A stream never waits for the host: whatever was submitted ends by itself. After a failure nothing more is submitted, and
 *    joining the streams is all that there is to undo.
 * 3. Announced instructions have an event: those that another device lane waits for, and those after which their own lane may
 *    stand still, so that what it waited for is measured. Watched ones are announced, and retire on
 *    the board: those that a host lane waits for, a lane's last, and one of every WATCH_INSTRS and of every WATCH_EVENTS events.
 * 4. A lane is submitted BACKEND_EVENTS instructions ahead of what has retired at most, so that the events in use never outnumber
 *    the ring's slots; and half a second of planned time ahead, so that a signal waits for little. An await of a ticket that has
 *    retired is left out, so a slot that is used again is asked for by nobody.
 * 5. Where a library of the device carries messages (exec_context.carried), the comm lanes are lanes of the device, too. They
 * share one stream and one cursor, so that all ranks give the library all collectives in the program's order: what waits for
 * others is the earliest that has not been given, and waits for nothing later. Collectives are all watched, and so is what they
 * wait for: the board then tells which one waits for other ranks (comm_guard.h). */
#ifndef LTRAIN_ENGINE_DEVICE_LANES_H
#define LTRAIN_ENGINE_DEVICE_LANES_H

#include "device/tickets.h"
#include "engine/executor.h"

struct device_lanes;

/* programs: all that it will run (NULLs are passed over). */
enum status device_lanes_create(const struct exec_context *x, struct program *const *programs, int n, struct device_lanes **out);
void device_lanes_destroy(struct device_lanes *d); /* NULL is fine */

/* The start of an instruction that was left out, in the events of a program that was cut. */
#define DEVICE_LEFT_OUT (-1)

/* What the executor keeps of a program that may be cut (comm_is_cut). */
struct device_cut {
    const uint8_t *must; /* by instruction: submitted all the same */
    /* Tickets of the lane after `from` up to `to` have retired. */
    void (*retired)(void *user, enum lane lane, int64_t from, int64_t to);
    void *user;
};

/* Before submitter and reapers of a run start. events: of the program, whose host lanes fill their own ones. timed: each
 * instruction's end is measured, for a trace; else that of announced ones, and lanes' sums are the same. began: by clock_ns(). */
void device_lanes_begin(struct device_lanes *d, const struct program *p, struct tickets *t, struct trace_event *events, int timed,
                        int64_t began, const struct device_cut *cut);
/* Submits the program; the caller has entered the backend. When it returns, nothing more will be submitted, and after a failure
 * the streams are idle or dead. ERR_CANCELLED if another lane failed. */
enum status device_lanes_submit(struct device_lanes *d);
/* Retires what of the lane's stream is watched, until the submitter has returned and all is done. Of the comm lanes: LANE_WORLD.
 */
enum status device_lanes_reap(struct device_lanes *d, enum lane lane);
/* Accumulated since the last call. */
struct lane_submission device_lanes_take_submission(struct device_lanes *d);
/* After a run that did not fail: when instructions of device lanes started, and the lanes' sums. */
void device_lanes_measure(const struct device_lanes *d, const struct lane_index *index, struct lane_stats stats[LANES]);

#endif
