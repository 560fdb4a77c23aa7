/* The communicator's state, shared by its files. Private to src/comm. */
#ifndef LTRAIN_COMM_STATE_H
#define LTRAIN_COMM_STATE_H

#include "base/num.h"
#include "comm/comm.h"
#include "comm/flows.h"
#include "comm/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

struct patience {
    int64_t last_ns, waited_ns, looked_ns;
    int between; /* 1: between programs, where ranks may be busy with files */
};

/* Facts about another rank. */
struct peer {
    char host[HOST_NAME];
    int32_t rank;
    int32_t pid;
    uint64_t boot;   /* hash of the boot id of its kernel, since several hosts may have one name */
    int32_t number;  /* number of its host among those of that name, from 1 */
    uint64_t born;   /* /proc/PID/stat's start time: differs if a pid is used again, or seen in another pid namespace */
    int32_t here;    /* 1: on this host, and its process can be seen */
    int32_t stopped; /* successive looks at which it was stopped */
    int32_t said;    /* 1: a line has named it as standing still */
};

/* Progress of a rank that stops starting collectives: sections done, and collectives started on each lane since the beginning.
 * Every rank starts the same ones. */
struct cut_vote {
    int64_t sections, started[COMM_LANES];
};

/* Notices on the control channel: a failure (status below OK), a vote (OK), or a rank's progress. */
enum { NOTICE_ASKS = 1, NOTICE_ANSWERS };
struct notice {
    int32_t status, origin;
    union {
        char text[1000];
        struct cut_vote vote;
        int64_t place;
    };
};

/* State of behind.c. */
struct behind {
    /* own: this rank's place; place: [size]: places that other ranks have told since this rank asked; -1: not told */
    int64_t own, *place;
    int asked;
    struct notice *out; /* [2 * size]: questions, answers */
    uint8_t *silent;    /* [size]; 1: asked (still.c), without an answer since */
    int64_t round_ns;   /* time of asking */
};

/* State of cut.c. */
struct votes {
    const atomic_int *wanted; /* NULL: nothing is cut */
    pthread_mutex_t lock;     /* guards the fields below, if another thread starts collectives (comm_turn_take) */
    struct cut_vote own;      /* this rank's progress */
    struct cut_vote most;     /* largest of each number in the votes so far */
    uint8_t *heard;           /* [size]; 1: that rank's vote has come; for this rank: its vote is cast */
    atomic_int n_heard;
    atomic_int decided; /* 1: all votes are there */
    atomic_int cut;     /* 1: the current section is cut, and all later ones */
    int64_t looked_ns;
    struct patience patience;
    struct notice out;
};

/* Bytes that travel to or from one member, cut into chunks, of which two may be in flight. stride: distance of the two places
 * that receive even and odd chunks; 0: each chunk has its own place. */
struct flow {
    char *base;
    int64_t bytes, chunk, stride;
    int64_t posted, chunks;
};

struct transfer {
    enum op_kind op;
    struct op_attrs attrs;
    void *arg[3];
    char *own_to; /* destination of this rank's own part, which is copied while the messages travel */
    const char *own_from;
    int64_t own_bytes;
    int64_t in_flight, unposted;
    int reducing;              /* 1: the reduction's first half is under way */
    int64_t reduced, segments; /* segments of the own share: reduced so far, and all */
    int64_t piece;             /* elements of a segment */
    int arrived[2];
};

struct group {
    int members, me, first, stride; /* member m has place first + m * stride */
    enum channel channel;
    struct flow *send, *recv; /* [members] */
    int busy;
    struct transfer t;
    struct patience patience;
    struct comm_traffic sent;
};

struct comm {
    struct launch launch;
    struct mesh mesh;
    struct wire *wire; /* NULL: alone */
    struct peer *peer; /* [size] */
    int *rank_at;      /* [size], by place */
    int place;
    struct group group[COMM_LANES];
    int64_t chunk;
    _Atomic int64_t timeout_ns;
    struct lastword *word;                      /* NULL: alone, or on the way out */
    void (*_Atomic before_report)(int wait_ms); /* NULL: none */
    int hosts, per_host, next_look;
    int crowded;        /* 1: fewer than two cores for each rank of this host: naps leave a core to who computes */
    int naps;           /* number of naps since a message of this rank has come or gone */
    int64_t host_calls; /* number of calls between programs so far */
    char *host_room,
        *host_all; /* host_room: messages of calls between programs; host_all: gathered data, HOST_SMALL bytes of each rank */
    int64_t host_room_bytes;
    enum status broken;
    int told;   /* 1: the other ranks have been told of the failure */
    int agreed; /* 1: the last agreement was on a failure */
    char sentence[1024];
    struct notice in, out;
    struct votes votes;
    struct patience outside; /* wait for messages that another library carries */
    struct behind behind;
    int64_t programs; /* number so far of programs whose messages another library carries */
};

/* ms that a report waits for a signal to this rank. mpiexec tells ranks one after the other, and a second after a death it sends
 * SIGTERM itself. */
enum { SIGNAL_MS = 400 };
/* Calls the function of comm_before_report, if there is one; the process may end. From any thread. */
static inline void comm_is_to_report(const struct comm *c, int wait_ms)
{
    void (*f)(int) = atomic_load(&c->before_report);
    if (f)
        f(wait_ms);
}

static inline struct group *comm_group(struct comm *c, enum lane lane)
{
    return &c->group[lane - LANE_WORLD];
}

/* Resets a wait's clocks. (This and the functions down to failure_tell: failure.c.) */
void patience_begin(struct patience *p);
/* Looks once for reasons to give up, after a poll without progress: the own deadline, notices of other ranks, dead processes on
 * this host. missing: the rank that is waited for (-1: not known); what: for messages. */
enum status patience_look(struct comm *c, struct patience *p, int missing, const char *what);
enum status failure_listen(struct comm *c); /* posts the receive of the next notice */
enum status failure_hear(struct comm *c);   /* takes all notices that have come: a thousand ranks' votes come at once */
/* Breaks the communicator with status_message as the sentence, unless it is broken already; returns its failure. */
enum status failure_break(struct comm *c, enum status code);
enum status failure_break_and_tell(struct comm *c);
/* Breaks the communicator if the wire has failed (`st`). */
enum status failure_of_wire(struct comm *c, enum status st);
enum status failure_broken(const struct comm *c);
void failure_tell(struct comm *c);

/* votes.c; failures of the wire are returned, and the caller breaks the communicator */
/* Tells all others this rank's progress, once. */
enum status votes_cast(struct comm *c);
/* Takes a vote that has come (c->in), and casts the own one. */
enum status votes_hear(struct comm *c);
/* Sets `cut` if the votes say so. */
void votes_apply(struct votes *x);
/* Returns a rank whose vote is missing; -1: none. */
int votes_missing(const struct comm *c);

/* Asks all ranks how far they are. (This and the next three functions: behind.c; they return failures of the wire to the caller.) */
enum status behind_ask(struct comm *c);
enum status behind_hear(struct comm *c);               /* takes a rank's place (c->in) */
int behind_rank(const struct comm *c);                 /* -1: not known */
enum status behind_ask_rank(struct comm *c, int rank); /* asks one rank, which counts as silent until it answers */

/* peer.c */
enum peer_life { PEER_ALIVE, PEER_STOPPED, PEER_DEAD };
void peer_self(struct peer *p);
void peer_locate(struct comm *c);
enum peer_life peer_look(const struct peer *p);
/* Finds the first other rank of this host whose process is in that state; -1: none. From any thread. */
int peer_found(const struct comm *c, enum peer_life life);

/* still.c */
/* Counts a look at a process of this host; prints a line once it has been stopped for some seconds, and once it goes on. */
void still_look(struct comm *c, int rank, enum peer_life life);
/* Asks the ranks that cannot be seen here, and names those that do not answer. Failures of the wire go to the caller. */
enum status still_ask(struct comm *c, const struct patience *p);
/* Returns a rank that stands still, or -1. *life: PEER_STOPPED or, if it is only silent, PEER_ALIVE. */
int still_rank(const struct comm *c, enum peer_life *life);

/* Starts the thread of the last word. (This and the next functions: lastword.c.) */
enum status lastword_create(struct comm *c); /* after peer_locate */
void lastword_destroy(struct comm *c);
void lastword_broken(struct comm *c);                        /* c->sentence is known */
void lastword_doing(struct comm *c, enum lane lane, int op); /* op -1: done */

/* host.c */
enum { HOST_SMALL = 64 };
enum status host_create(struct comm *c); /* freed by comm_destroy */

/* Sets the ranks' places, host by host. (groups.c) */
void group_set_places(struct comm *c); /* after peer_locate */
/* Returns the rank of a group's member. */
static inline int group_rank(const struct comm *c, const struct group *g, int member)
{
    return c->rank_at[g->first + member * g->stride];
}
void group_free(struct comm *c);

#endif
