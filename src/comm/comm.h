/* The ranks of a run and their messages: collectives of a program on its comm lanes, and agreement between programs.
 *
 * A rank alone talks to itself: the same calls, no MPI at all. Several ranks talk over MPI, which only one thread may use at a
 * time: the comm lanes' thread while a program runs, the main thread between programs.
 *
 * No call of this header waits for ever. Every wait has a deadline, ends when a rank on this host has died, and ends when another
 * rank says that it failed. A stopped rank is waited for up to the deadline, and a line on stderr names it after some seconds. A
 * wait that ends so fails with ERR_PEER and one sentence that names the rank, its host and what was waited for. From then on
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

/* Joins the other ranks; every rank is its own dp member until comm_set_mesh. ERR_INVALID: launcher and MPI disagree, or this
 * build has no MPI and there are several ranks. */
enum status comm_create(const struct launch *launch, double timeout_seconds, struct comm **out);
enum status comm_create_self(struct comm **out);
/* Creates a communicator for work that each rank of `of` does by itself. Facts about the host stay: the rank shares the host and
 * its GPUs with the others. */
enum status comm_create_alone(const struct comm *of, struct comm **out);
/* Leaves; NULL is fine. After a failure MPI is left as it is (finalizing would wait for the others), and the failure is told. The
 * others get about a second to print it; the caller then ends the process by _exit. */
void comm_destroy(struct comm *c);

/* Makes the groups of the lanes. The mesh's degrees multiply to the number of ranks; all ranks give the same mesh. */
enum status comm_set_mesh(struct comm *c, const struct mesh *mesh);
void comm_set_timeout(struct comm *c, double seconds);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
int comm_local_rank(const struct comm *c); /* among the ranks on this host, in rank order */
int comm_local_size(const struct comm *c);
int comm_place(const struct comm *c);              /* place in the mesh */
int comm_rank_at(const struct comm *c, int place); /* rank at a place */
int comm_hosts(const struct comm *c);              /* number of hosts */
int comm_per_host(const struct comm *c);           /* largest number that divides every host's number of ranks */
const char *comm_source(const struct comm *c);     /* launcher that gave this rank its number, for messages */
struct mesh comm_mesh(const struct comm *c);
int comm_member(const struct comm *c, enum lane lane); /* own index in this rank's group on a comm lane */
/* Lists this rank's indices in its groups, for a step_record. */
void comm_list_members(const struct comm *c, uint16_t member[RECORD_GROUPS]);
/* Writes one line about ranks, mesh and hosts. */
void comm_describe(const struct comm *c, char *text, size_t bytes);
/* Writes a remark if a ulysses group does not lie within one host, else "". */
void comm_describe_span(const struct comm *c, char *text, size_t bytes);

/* Starts an instruction of a program. Each lane has at most one in flight; every member of the group starts the same one with the
 * same attributes, in the same order.
 *
 * arg: as of op.h; the memory is the communicator's until done. `send` and `recv` are the halves of OP_EXCHANGE and OP_SHIFT
 * that take place (by their predicates); other ops ignore them. */
enum status comm_start(struct comm *c, enum lane lane, enum op_kind op, const struct op_attrs *attrs, void *const *arg, int send,
                       int recv);
/* Makes progress; *done: all results are there and all sources may be overwritten. */
enum status comm_poll(struct comm *c, enum lane lane, int *done);
/* Sleeps between polls that were not done, the longer the longer no message has come or gone: 10 to 200 us, and 40 us to 1 ms where
 * a rank has less than two cores, as others have work while this one naps. */
void comm_nap(struct comm *c);
/* Returns the bytes of argument `work`; the same on every rank. */
int64_t comm_workspace_bytes(enum op_kind op, const struct op_attrs *attrs, int members);

/* ---- Cutting programs short ----
 *
 * A section is the ranks' work between two points at which nothing is half done: the programs of a step, or of an evaluation. All
 * ranks agree on a moment, perhaps within a program, from which on the rest of the section is left out, except what must run
 * (program/updates.h). Nobody then waits for a collective that another rank leaves out. cut.c has the protocol. */

/* Sets the flag that asks for a cut: from now on, a value that is not 0 on any rank decides. NULL: nothing is cut. Signal
 * handlers set *wanted. */
void comm_cut_for(struct comm *c, const atomic_int *wanted);
/* Tells whether the current section is cut; once it is, it stays cut. From any thread; c may be NULL. */
int comm_is_cut(struct comm *c);
/* Returns a flag that becomes nonzero once the current section is cut, for code that cannot call comm_is_cut. NULL if c is NULL. */
const atomic_int *comm_cut_flag(const struct comm *c);
/* Exchanges with the other ranks who wants a cut; called by the thread that talks to them, at any time. */
enum status comm_cut_look(struct comm *c);
/* Tells whether the ranks are about to agree: no collective may be started meanwhile. */
int comm_cut_holds(const struct comm *c);
/* Tells whether some rank started the lane's next collective before the cut: then all take part in it, whatever they send. */
int comm_owes(struct comm *c, enum lane lane);
/* Counts the lane's next collective as passed: all ranks leave it out, or no bytes travel. */
void comm_pass(struct comm *c, enum lane lane);
/* Ends the section; *cut: all ranks discard its results. */
enum status comm_section_end(struct comm *c, int *cut);

/* ---- Collectives that a device's library carries (device/backend.h) ----
 *
 * One thread starts these collectives; another, which talks to the ranks, watches over them meanwhile. */

/* Fate of the lane's next collective. */
enum comm_turn { COMM_TURN, COMM_TURN_OVER /* left out */, COMM_TURN_NOT_YET };
enum comm_turn comm_turn_take(struct comm *c, enum lane lane, int must);
/* Counts the bytes that the collective sends as sent. arg: as comm_start's, but only counts (op_is_counted) are read. */
void comm_count(struct comm *c, enum lane lane, enum op_kind op, const struct op_attrs *attrs, void *const *arg, int send,
                int receive);
/* Notes that a program begins, the same on all ranks. */
void comm_wait_program(struct comm *c);
/* Begins a wait outside the communicator. op: the collective that is waited for; -1: none. place: this rank's progress in the
 * program, by which a rank that is behind is found and named. */
void comm_wait_begin(struct comm *c, enum lane lane, int op, int64_t place);
enum status comm_wait_look(struct comm *c, const char *what, int counts);
/* Describes a lane's collective, for messages. */
void comm_describe_collective(const struct comm *c, enum lane lane, enum op_kind op, const struct op_attrs *attrs, char text[96]);
/* Returns the group of a lane, as places. */
struct mesh_group comm_group_of(const struct comm *c, enum lane lane);
const char *comm_host(const struct comm *c, int rank);

/* Payload that instructions of a lane have sent to other ranks so far, in bytes. */
struct comm_traffic {
    int64_t same_host, other_hosts;
};
struct comm_traffic comm_bytes_sent(const struct comm *c, enum lane lane);

/* Waits for all ranks. This and the calls below run between programs and block; every rank calls the same in the same order
 * (checked). */
enum status comm_barrier(struct comm *c);
enum status comm_broadcast(struct comm *c, int root, void *data, int64_t bytes);
/* Gathers all[size][bytes] = every rank's own[bytes]. */
enum status comm_gather(struct comm *c, const void *own, int64_t bytes, void *all);
/* Computes x[i] = sum over ranks, in rank order. */
enum status comm_sum(struct comm *c, double *x, int n);
/* Returns the first rank's failure on every rank, OK if `own` is OK everywhere. status_message is that rank's ("rank 3: ..."), or
 * without a rank if all ranks share it. The communicator stays whole. */
enum status comm_agree(struct comm *c, enum status own);

/* Tells whether the last agreement was on a failure: all ranks know it, and one of them may report it. */
int comm_agreed(const struct comm *c);

/* Fails this rank for good: tells all others, whose waits then fail. Keeps the first failure if there was one. */
void comm_fail(struct comm *c, enum status code, const char *sentence);
/* Tells whether a failure has ended the communication (the process then has to leave by _exit). */
int comm_broken(const struct comm *c);

/* Sets a remark for the case that MPI, or mpiexec after another rank's death, ends this process before its caller can say why. A
 * thread of the communicator then writes `ltrain: rank N: CAUSE; REMARK` to stderr. */
void comm_remark(struct comm *c, const char *text);
/* Sets a function that any thread calls before this rank reports another one's failure, with the time that the report can wait.
 * The function may end the process: a signal that ended the other rank may be on its way to this one. NULL: none. */
void comm_before_report(struct comm *c, void (*f)(int wait_ms));
/* Tells whether the caller is the first to say why this rank ends; asked once, just before saying so. */
int comm_speak(struct comm *c);

/* Tells whether a collective of this rank is under way: its arguments' memory is still the communicator's, for ever if it is left
 * so. */
int comm_is_busy(const struct comm *c);

#endif
