/* Scrubbing: checksums of the state that lies in host memory, from each write to the next use (--scrub).
 *
 * The state is divided into pieces of at most 256 KiB, none of which crosses a group. An instruction that reads a whole piece finds
 * it as it was left; parts of a piece are summed between programs, and not checked when they are read. */
#ifndef LTRAIN_ENGINE_SCRUB_H
#define LTRAIN_ENGINE_SCRUB_H

#include "model/model.h"
#include "plan/plan.h"

struct scrub; /* opaque */

/* Returns the bytes of parameters, masters, moments and quantised matrices that the plan keeps in host memory. */
int64_t scrub_plan_bytes(const struct plan *plan);

/* Creates a table of checksums without pieces. m: the rank's model; host: the host arena; both must outlive it. ERR_NOMEM. */
enum status scrub_create(const struct model *m, const char *host, struct scrub **out);
/* Takes the pieces of another plan, none of which has a checksum yet. No program runs. s NULL is fine. ERR_NOMEM. */
enum status scrub_use(struct scrub *s, const struct plan *plan);
void scrub_destroy(struct scrub *s); /* NULL is fine */
/* Returns the bytes that were compared with a checksum so far. */
int64_t scrub_checked_bytes(const struct scrub *s);

/* The functions below take s NULL for none, and may be called from any thread, scrub_take excepted. ERR_CORRUPT: bytes changed
 * although nothing wrote there; the sentence names the state. */

/* Checks what the instruction is going to read; all that it waits for is done. */
enum status scrub_check_read(struct scrub *s, const struct program *p, const struct instr *in);
/* Notes that an instruction that writes state is under way, or is submitted. */
void scrub_begin_write(struct scrub *s, const struct program *p, const struct instr *in);
/* Sums what the instruction has written; nothing that waits for it has begun. */
void scrub_end_write(struct scrub *s, const struct program *p, const struct instr *in);
/* Checks bytes of the host arena that something else is going to read. */
enum status scrub_check(struct scrub *s, int64_t at, int64_t bytes);
/* Forgets the checksums of bytes that something else writes. */
void scrub_forget(struct scrub *s, int64_t at, int64_t bytes);
/* Sums all pieces that have no checksum. No program runs. */
void scrub_take(struct scrub *s);

#endif
