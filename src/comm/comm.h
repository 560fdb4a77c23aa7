/* Who takes part in a run, and what they say to each other: collectives of a program on its comm lanes, and agreement between
 * programs.
 *
 * A rank alone talks to itself: the same calls, no MPI at all. Several ranks talk over MPI, which only one thread may use at a
 * time: the comm lanes' thread while a program runs, the main thread between programs. No call of this header waits for ever:
 * every wait has a deadline, ends when a rank on this host has died, and ends when another rank says that it failed. A rank that
 * is stopped is waited for up to the deadline, and a line on stderr names it after some seconds. Ends of waiting fail with ERR_PEER and one sentence that names the rank, its host and what was waited for; from then on
 * every call fails with it. */
#ifndef LTRAIN_COMM_COMM_H
#define LTRAIN_COMM_COMM_H

#include "base/status.h"
#include "comm/launch.h"
#include "program/mesh.h"
#include "program/program.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct comm; /* opaque */

/* Joins the other ranks. Every rank is a mesh dimension dp of its own until comm_set_mesh. ERR_INVALID if what the launcher says
 * is not what MPI says, or if this build has no MPI and there are several ranks. */
enum status comm_create(const struct launch *launch, double timeout_seconds, struct comm **out);
enum status comm_create_self(struct comm **out);
/* The same for what each rank of `of` does by itself: it shares its host, and the GPUs of it, with the others. */
enum status comm_create_alone(const struct comm *of, struct comm **out);
/* Leaves; NULL is fine. After a failure MPI is left as it is (finalizing would wait for the others), the failure is told, and the
 * others are given about a second to print it: the caller then ends the process by _exit. */
void comm_destroy(struct comm *c);

/* Makes the groups of the lanes. The product must be the number of ranks; all ranks give the same mesh. */
enum status comm_set_mesh(struct comm *c, const struct mesh *mesh);
void comm_set_timeout(struct comm *c, double seconds);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
int comm_local_rank(const struct comm *c); /* among the ranks on this host, in rank order */
int comm_local_size(const struct comm *c);
int comm_place(const struct comm *c);              /* in the mesh */
int comm_rank_at(const struct comm *c, int place); /* whose place it is */
int comm_hosts(const struct comm *c);              /* how many */
int comm_per_host(const struct comm *c);           /* the largest number that divides every host's number of ranks */
const char *comm_source(const struct comm *c);     /* who said which rank this is, for people */
struct mesh comm_mesh(const struct comm *c);
int comm_members(const struct comm *c, enum lane lane); /* of this rank's group on a comm lane */
int comm_member(const struct comm *c, enum lane lane);  /* own index in it */
/* One line about ranks, mesh and hosts. */
void comm_describe(const struct comm *c, char *text, size_t bytes);
/* A line that says so if a ulysses group does not lie within one host, else "". */
void comm_describe_span(const struct comm *c, char *text, size_t bytes);

/* Instructions of a program. At most one in flight per lane; every member of the group starts the same one with the same
 * attributes, in the same order. arg: as op.h says; the memory is the communicator's until done. `send` and `recv` are the two
 * halves of OP_EXCHANGE (what their predicates say) and ignored by the others. */
enum status comm_start(struct comm *c, enum lane lane, enum op_kind op, const struct op_attrs *attrs, void *const *arg, int send,
                       int recv);
/* Makes progress; *done once all results are there and all sources may be overwritten. */
enum status comm_poll(struct comm *c, enum lane lane, int *done);
/* Between polls that were not done: sleeps 10 to 200 us, the longer the longer nothing has happened. *idle: 0 before the first.
 */
void comm_nap(int *idle);
/* Bytes of argument `work`; the same on every rank. */
int64_t comm_workspace_bytes(enum op_kind op, const struct op_attrs *attrs, int members);

/* ---- Cutting programs short ----
 *
 * A section is what ranks do between two points at which nothing is half done: the programs of a step, or of an evaluation. From
 * a moment on that all ranks agree on, which may lie within a program, what a section still has to do is left out, but for what
 * may not be (program/updates.h): nobody waits for a collective that another rank leaves out. cut.c has the protocol. */

/* Whether *wanted is not 0 decides, on any rank, from now on; NULL: nothing is cut. Set by signal handlers. */
void comm_cut_for(struct comm *c, const atomic_int *wanted);
/* Whether the section that is under way is cut. From any thread; once it is so, it stays so. c may be NULL. */
int comm_is_cut(struct comm *c);
/* What is not 0 from the moment on at which comm_is_cut would say so, for those who cannot call it: once somebody has seen that,
 * the section that is under way will be cut. NULL if c is. */
const atomic_int *comm_cut_flag(const struct comm *c);
/* What this rank and the others want; by the thread that talks, as often as it likes. */
enum status comm_cut_look(struct comm *c);
/* Whether the ranks are about to agree: no collective may be started meanwhile. */
int comm_cut_holds(const struct comm *c);
/* Whether some rank has started the lane's next collective before the cut: all take part in it then, whatever they send. */
int comm_owes(struct comm *c, enum lane lane);
/* The lane's next collective is left out, by all ranks, or nothing of it travels. */
void comm_pass(struct comm *c, enum lane lane);
/* The section is over; *cut: all ranks throw away what it did. */
enum status comm_section_end(struct comm *c, int *cut);

/* ---- Collectives that a device's library carries (device/backend.h) ----
 *
 * They are started by another thread than the one that talks, which watches over the ranks meanwhile. */

/* What becomes of the lane's next collective. Counts it, unless the ranks are about to agree on where to stop. must: it is not left
 * out. From any thread. */
enum comm_turn { COMM_TURN, COMM_TURN_OVER /* it is left out */, COMM_TURN_NOT_YET };
enum comm_turn comm_turn_take(struct comm *c, enum lane lane, int must);
/* Bytes that it sends count as sent. */
void comm_count(struct comm *c, enum lane lane, enum op_kind op, const struct op_attrs *attrs, int send, int receive);
/* Like comm_poll, of what waits outside since comm_wait_begin: `what`, for people. counts: it waits for other ranks, and not too
 * long. By the thread that talks. */
void comm_wait_program(struct comm *c); /* a program begins, the same on all ranks */
/* op -1: nothing. place: how far in the program the rank is; a rank that is behind is named. */
void comm_wait_begin(struct comm *c, enum lane lane, int op, int64_t place);
enum status comm_wait_look(struct comm *c, const char *what, int counts);
/* What of a lane's collective waits, for people. */
void comm_describe_collective(const struct comm *c, enum lane lane, enum op_kind op, const struct op_attrs *attrs, char text[96]);
/* The group of a lane, as places. */
struct mesh_group comm_group_of(const struct comm *c, enum lane lane);
const char *comm_host(const struct comm *c, int rank);

/* Payload sent to other ranks by instructions of that lane so far. */
struct comm_traffic {
    int64_t same_host, other_hosts;
};
struct comm_traffic comm_bytes_sent(const struct comm *c, enum lane lane);

/* Between programs, blocking; every rank calls the same in the same order (checked). */
enum status comm_barrier(struct comm *c);
enum status comm_broadcast(struct comm *c, int root, void *data, int64_t bytes);
/* all[size][bytes] = every rank's own[bytes]. */
enum status comm_gather(struct comm *c, const void *own, int64_t bytes, void *all);
/* x[i] = sum over ranks, in rank order. */
enum status comm_sum(struct comm *c, double *x, int n);
/* The first rank's failure (with its status_message, "rank 3: ...") on every rank; OK if `own` is OK everywhere. A sentence that
 * all ranks share stands without a rank. The communicator stays whole. */
enum status comm_agree(struct comm *c, enum status own);

/* Whether the last agreement was on a failure: all ranks know it, and one of them may say it. */
int comm_agreed(const struct comm *c);

/* This rank cannot go on: tells all others, whose waits then fail. Keeps the first failure if there was one. */
void comm_fail(struct comm *c, enum status code, const char *sentence);
/* Whether a failure has ended the communication (after which the process has to leave by _exit). */
int comm_broken(const struct comm *c);

/* What is to be said beside the cause if this process is ended before its caller can say why (by MPI, or by mpiexec after another
 * rank's death): a thread of the communicator then writes `ltrain: rank N: CAUSE; REMARK` to stderr. */
void comm_remark(struct comm *c, const char *text);
/* Whether the caller is the first to say why this rank ends; asked once, just before saying so. */
int comm_speak(struct comm *c);

/* Whether a collective of this rank is under way: the memory of its arguments is still the communicator's, for ever if it is left
 * so. */
int comm_is_busy(const struct comm *c);

/* For tests: messages of at most `bytes` bytes, on every rank; before any instruction. */
void comm_set_chunk(struct comm *c, int64_t bytes);

#endif
